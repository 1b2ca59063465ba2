"""Scoring a split, and writing down every prediction.

It is the same code at the end of training and in `evaluate`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertctl.arrays import Floats
from bertctl.config.recipe_sections import EvaluationSection
from bertctl.config.schema import Recipe
from bertctl.data.file_ids import as_json
from bertctl.data.rows import Rows
from bertctl.inference.engine import Engine
from bertctl.memory import require_memory
from bertctl.metrics.clusters import numbered
from bertctl.metrics.contributions import Contributions, loss
from bertctl.metrics.scripts import script_metrics
from bertctl.metrics.value import MetricValue
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.tasks.answers import sides, with_clusters
from bertctl.tasks.base import Features, Outputs, Task, TruncationMessage
from bertctl.tasks.registry import known_metrics
from bertctl.words import command
from bertctl.writing import write_jsonl

TRUNCATION_WARNING_SHARE = 0.01
"""Share of truncated examples (or unknown tokens) above which a warning says what to change."""


@dataclass(frozen=True)
class SplitResult:
    """A labelled split, scored.

    Attributes:
        task: The task that decided, with the threshold chosen here where there is one.
        decision: What was chosen on this split; empty where nothing is, or where it was given.
        rows: The split.
        features: The rows as the model read them.
        outputs: What the task collected of the forward pass.
        lines: Gold answer and prediction of each row.
        losses: (N,) mean loss of each row's things that are counted (examples, words, windows); 0
            where there is none.
        loss: The mean of all of them, as what each row adds to it.
        metrics: By name, `loss` included; values alone until `thorough`, as all but the last
            evaluations need no more.
    """

    task: Task
    decision: dict[str, Any]
    rows: Rows
    features: Features
    outputs: Outputs
    lines: Sequence[dict[str, Any]]
    losses: Floats
    loss: Contributions
    metrics: dict[str, MetricValue]

    def headline(self, metric: str) -> str:
        """Returns a metric and the loss, such as `accuracy 0.9333, loss 0.2101`."""
        measured = self.metrics[metric]
        if measured.is_defined:
            scores = f"{metric} {measured.value:.4f}"
        else:
            scores = f"{metric} undefined (one answer to all)"
        if metric != "loss":
            scores += f", loss {self.metrics['loss'].value:.4f}"
        return scores

    def thorough(self, recipe: Recipe) -> "SplitResult":
        """Returns this result with an interval for each metric, as metrics.json has them.

        Evaluations during training compute the values alone. The intervals take up to 10,000
        resamples.

        Args:
            recipe: Says resamples, seed and metric scripts.
        """
        return replace(
            self,
            metrics=_measured(
                self.task,
                self.lines,
                self.loss,
                recipe,
                thorough=True,
            ),
        )


def evaluate_split(
    engine: Engine,
    task: Task,
    rows: Rows,
    features: Features,
    *,
    recipe: Recipe,
    choose: bool = False,
    listener: Listener = SILENT,
) -> SplitResult:
    """Scores a labelled split.

    Args:
        engine: The model; each of the processes that share it gets the whole result.
        task: The task, fitted.
        rows: N labelled rows.
        features: The same rows, encoded.
        recipe: Says the batch size and the metric scripts.
        choose: Whether thresholds are chosen on this split (the validation split of a training run)
            before scoring.
        listener: Receives progress messages.

    Raises:
        UsageError: A metric script that can't be used.
    """
    settings = recipe.evaluation
    phase = f"scoring {rows.split}"
    passed = engine.forward(
        task,
        features,
        batch_size=settings.batch_size,
        phase=phase,
        listener=listener,
    )
    window_losses = passed.losses
    # Losses of embeddings may compare all texts of the split, so they can't be computed batch by
    # batch. In these tasks each row is one window.
    if window_losses is None:
        window_losses = task.row_losses(passed.outputs, features)
    if window_losses is None:
        raise ValueError(f"the split '{rows.split}' has no labels")
    if choose:
        decision = task.tune(passed.outputs, features, rows)
    else:
        decision = {}
    task = task.with_decision(decision)
    lines = task.lines(passed.outputs, features, rows)
    clusters = numbered(rows.groups) if rows.groups else None
    if clusters is not None:
        lines = with_clusters(lines, clusters)
    # Losses and weights of a row are the sums over its windows.
    sums, weights = (
        np.bincount(features.rows, values, minlength=len(rows)).astype(np.float64)
        for values in (window_losses, features.weights)
    )
    losses = np.divide(
        sums,
        weights,
        out=np.zeros_like(sums),
        where=weights > 0,
    )
    mean_loss = replace(loss(sums, weights), clusters=clusters)
    metrics = _measured(
        task,
        lines,
        mean_loss,
        recipe,
        thorough=False,  # values alone; `SplitResult.thorough` adds the intervals
    )
    return SplitResult(
        task=task,
        decision=decision,
        rows=rows,
        features=features,
        outputs=passed.outputs,
        lines=lines,
        losses=losses,
        loss=mean_loss,
        metrics=metrics,
    )


def _measured(
    task: Task,
    lines: Sequence[dict[str, Any]],
    mean_loss: Contributions,
    recipe: Recipe,
    *,
    thorough: bool,
) -> dict[str, MetricValue]:
    """Returns all metrics of a split by their names, those of the recipe's metric scripts, too.

    Args:
        task: Computes its metrics.
        lines: Prediction lines with gold answers.
        mean_loss: The loss of the split.
        recipe: Says resamples, seed and metric scripts.
        thorough: Whether metrics have intervals; see `Contributions.metric`.
    """
    settings = recipe.evaluation
    seed = recipe.training.seed
    if thorough:
        resamples = settings.bootstrap_resamples
    else:
        resamples = 0
    metrics = task.answers.score(
        lines,
        resamples=resamples,
        seed=seed,
        thorough=thorough,
    )
    metrics["loss"] = mean_loss.metric(resamples=resamples, seed=seed, thorough=thorough)
    if settings.metric_scripts:
        gold, answers = sides(lines)
        reserved = known_metrics()
        scripts = settings.metric_scripts
        metrics |= script_metrics(
            scripts,
            predictions=answers,
            references=gold,
            reserved=reserved,
        )
    return metrics


def require_room_for_lines(task: Task, n_rows: int) -> None:
    """Refuses more rows than can be scored in memory, before a model is loaded.

    Raises:
        DeviceError: With what they need, and what is free.
    """
    remedy = (
        "Score a sample of them: `data.max_eval_rows=100000`. Or get answers alone: "
        f"{command('predict RUN FILE', output='OUT')}."
    )
    require_memory(n_rows * task.line_bytes, f"scoring {n_rows:,} rows", remedy=remedy)


def data_document(
    features: Mapping[str, Features], hashes: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Returns what metrics.json says of the rows of each split: `truncation_counts` and a hash.

    Args:
        features: Split name -> its rows as the model reads them.
        hashes: Split name -> hash of its rows, where they have one.
    """
    hashed = {split: {"sha256": hashes[split]} if split in hashes else {} for split in features}
    return {
        split: truncation_counts(split_features) | hashed[split]
        for split, split_features in features.items()
    }


def truncation_counts(features: Features) -> dict[str, int]:
    """Returns what truncation took from a split.

    The counts are truncated examples, lost and unknown tokens, and the tokens that were read.

    `windowed` counts the examples that are read in several windows, where there are any.
    """
    counts = {
        "examples": len(features.tokens),
        "truncated": int((features.truncated_tokens > 0).sum()),
        "lost_tokens": int(features.truncated_tokens.sum()),
        "unknown_tokens": int(features.unknown.sum()),
        "tokens": int(features.tokens.sum()),
    }
    windowed = int((features.windows_of_rows() > 1).sum())
    if windowed:
        counts["windowed"] = windowed
    return counts


def warn_of_truncation(
    split: str,
    counts: Mapping[str, int],
    *,
    message: TruncationMessage,
    max_length: int,
    listener: Listener,
) -> None:
    """Reports how many examples were truncated and how many tokens are unknown.

    Above 1 % it is a warning.
    """
    examples = counts["examples"]
    truncated = counts["truncated"]
    if truncated:
        share = truncated / examples
        effect = message.what.format(max_length=max_length)
        text = (
            f"{split}: {truncated} of {examples} examples ({100 * share:.1f} %) {effect} "
            f"and lose {counts['lost_tokens']} tokens"
        )
        if share > TRUNCATION_WARNING_SHARE:
            listener.warn(f"{text}; {message.remedy}")
        else:
            listener.say(text)
    if counts.get("windowed"):
        listener.say(
            f"{split}: {counts['windowed']} of {examples} examples are longer than {max_length} "
            "tokens: they are read in windows, and nothing of them is cut off"
        )
    # Unknown tokens are counted before anything is cut off.
    unknown = counts["unknown_tokens"]
    tokens = counts["tokens"] + counts["lost_tokens"]
    if unknown > TRUNCATION_WARNING_SHARE * max(1, tokens):
        sentence = f"{split}: {unknown} of {tokens} tokens are unknown to the model"
        listener.warn(f"{sentence}; is it made for this language and case?")


def report_truncation(
    split: str, features: Features, task: Task, recipe: Recipe, listener: Listener
) -> None:
    """Reports what a split loses with the recipe's task and longest input.

    See `warn_of_truncation`.
    """
    counts = truncation_counts(features)
    max_length = recipe.model.max_length
    warn_of_truncation(
        split,
        counts,
        message=task.truncation,
        max_length=max_length,
        listener=listener,
    )
    for note in task.reading_notes(features, recipe):
        report = listener.warn if note.is_warning else listener.say
        report(f"{split}: {note.text}")


def prediction_lines(
    result: SplitResult, *, settings: EvaluationSection
) -> Iterator[dict[str, Any]]:
    """Yields a line per example, in the order of the rows.

    It has id, texts, gold, prediction, probabilities, loss, and tokens.
    """
    rows = result.rows
    task = result.task
    truncated = result.features.truncated_tokens > 0
    lengths = result.features.tokens
    windows = result.features.windows_of_rows()
    in_windows = bool((windows > 1).any())
    for i, answer in enumerate(result.lines):
        line: dict[str, Any] = {"id": line_id(rows.answer_id(i))}
        # If the file's ids are not unique, `id` is the row's number and `file_id` the file's id.
        if not rows.file_ids and rows.has("id"):
            line["file_id"] = as_json(rows.columns["id"][i])
        if settings.keep_text:
            line |= rows.fields(i, task.answers.columns)
        line |= answer
        line |= {
            "loss": float(result.losses[i]),
            "tokens": int(lengths[i]),
            "truncated": bool(truncated[i]),
        }
        line |= {"windows": int(windows[i])} if in_windows else {}
        line |= rows.fields(i, settings.slice_columns)
        yield line


def line_id(value: Any) -> Any:
    """Returns a file's id as a prediction file has it.

    Lines are paired by it. A list or an object is its JSON.
    """
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def write_predictions(
    folder: RunFolder, results: Mapping[str, SplitResult], settings: EvaluationSection
) -> None:
    """Writes the predictions of each split into a run folder."""
    for split, result in results.items():
        write_jsonl(folder.predictions(split), prediction_lines(result, settings=settings))


def metrics_document(
    results: Mapping[str, SplitResult], *, primary: str, selection: str
) -> dict[str, Any]:
    """Returns the content of metrics.json, without times and dates: equal runs write equal bytes.

    Args:
        results: Split name -> its scores.
        primary: Name of the metric that chose the best weights.
        selection: Name of the split on which they were chosen.
    """
    # All splits have the same positive label, or none.
    positive = next((result.task.answers.positive for result in results.values()), None)
    metrics = {}
    for split, result in results.items():
        metrics[split] = {name: metric.as_json() for name, metric in result.metrics.items()}
    document = {
        "schema": SCHEMA,
        "metrics": metrics,
        "primary": {"split": selection, "name": primary},
    }
    if positive:
        document["positive_label"] = positive
    return document
