"""Classifiers of a few labelled texts (SetFit).

See Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts".

The encoder learns from pairs of the texts, which are near where they have one label; a logistic
regression then learns the labels from its vectors. The same regression on the vectors of the frozen
encoder stands beside it.

RUN/encoder        the encoder, a folder of sentence-transformers; its classifier is as a probe's
RUN/checkpoints    draw-N: the encoder's run of a draw; draw-N.json: its results; gone at the end
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.arrays import Floats32
from bertctl.config.recipe_sections import (
    EvaluationSection,
    FewShotSection,
    ModelSection,
    SentenceEmbeddingsSection,
)
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import NO_ROWS, LoadedData, load_data
from bertctl.data.recipe_splits import warn_of_rare_labels
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.data.splits import sample_of_labels
from bertctl.documents import read_json
from bertctl.errors import ExitCode, InterruptedRunError, UsageError, said_of
from bertctl.features.encoded_windows import EncodedWindows
from bertctl.features.encoder import Encoder, VectorSpec, frozen_engine
from bertctl.inference.engine import Engine
from bertctl.inference.environment import describe_environment
from bertctl.inference.evaluate import SplitResult, write_predictions
from bertctl.inference.run_inputs import encode_splits, fit_task, primary_metric, resolved_for
from bertctl.metrics.contributions import Contributions
from bertctl.metrics.paired import Difference, mean_difference
from bertctl.modeling.build import build_tokenizer, load_frozen
from bertctl.modeling.classifiers import LOGISTIC, ClassifierSettings, LinearFunction, fit
from bertctl.modeling.families import BARE
from bertctl.modeling.layers import choose_layers, layer_count
from bertctl.modeling.linear_head import LinearHead
from bertctl.modeling.sentence_folder import SentenceModules, chosen_modules
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.progress import SILENT, Listener
from bertctl.reporting.summary import figure
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.performance_document import PerformanceDocument
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.runtime.launch import is_worker
from bertctl.runtime.stopping import Terminated
from bertctl.tasks.registry import higher_is_better
from bertctl.tasks.sentences.sentence_embeddings import SentenceEmbeddings
from bertctl.tasks.sentences.sentence_features import different
from bertctl.tokenization.long_texts import LongText, ends_of
from bertctl.training.finetune import Result
from bertctl.training.job import Encoded, Job
from bertctl.training.job import prepare as prepare_pairs
from bertctl.training.start import start
from bertctl.training.steps import total_steps
from bertctl.words import count
from bertctl.writing import write_json

WORTH = 0.03
"""Mean gain over the frozen encoder from which few-shot training is said to pay."""

_DRAWS = 6
"""With fewer draws the exchange of signs has a p value above 0.05 whatever they say: 2 / 2^5 is
0.06."""


@dataclass(kw_only=True)
class FewShotJob(Job):
    """Few-shot run made ready.

    Its training rows, its network and its encoded rows are those of the first draw.

    Attributes:
        draws: The training rows of each draw.
    """

    draws: Sequence[Rows]


def prepare(
    recipe: Recipe,
    *,
    rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
    listener: Listener = SILENT,
) -> FewShotJob:
    """Reads and checks everything a run needs, and draws the training rows of each draw.

    Args:
        recipe: What to run.
        rows_in_memory: Split name -> rows in place of those in the recipe's files.
        listener: Receives progress messages.

    Raises:
        UsageError: A task without one label for each single text, or several processes.
        BertctlError: Any refusal of data, labels, model or device.
    """
    if is_worker():
        raise UsageError(
            "few-shot training runs in one process", remedy="Leave `num_processes=` out."
        )
    rows_per_label = recipe.data.train_rows_per_label
    seed = recipe.data.split_seed
    data = load_data(
        recipe.with_fields("data", train_rows_per_label=None),
        rows_in_memory=rows_in_memory,
        listener=listener,
    )
    task, evaluated = fit_task(recipe, data)
    rows = data.splits["train"]
    has_one_label = task.head().get("problem_type") == "single_label_classification"
    if not has_one_label or "text" not in task.columns or rows.has("pair"):
        raise UsageError(
            "few-shot training learns one label for each single text",
            remedy="Fine-tune on other rows.",
        )
    if rows_per_label is None:
        draws = [rows] * recipe.few_shot.draws
    else:
        warn_of_rare_labels(rows, rows_per_label, listener)
        draws = [
            sample_of_labels(rows, rows_per_label, seed=seed + number)
            for number in range(recipe.few_shot.draws)
        ]
    data = replace(data, splits={**data.splits, "train": draws[0]})
    # The job is that of training on pairs, but with the recipe, rows and task of the classifier.
    pairs = _pairs(recipe, data, draws[0], inspect_model(recipe.model))
    resolved = resolved_for(recipe, pairs.compute)
    model_hash = pairs.environment["model_hash"]
    job_fields = {
        "recipe": resolved,
        "data": data,
        "task": task,
        "features": encode_splits(task, data, recipe, pairs.loaded.tokenizer),
        "evaluated": tuple(dict.fromkeys((data.validation_splits[0], *evaluated))),
        "primary": primary_metric(recipe, data, task),
        "environment": describe_environment(
            resolved,
            pairs.compute,
            data=data,
            model_hash=model_hash,
        ),
        "run": run,  # the function that `start` calls in place of the one for fine-tuning
    }
    return FewShotJob(**{**vars(pairs), **job_fields}, draws=draws)


def _pairs(recipe: Recipe, data: LoadedData, rows: Rows, source: ModelSource) -> Job:
    """Returns the job that trains the encoder on pairs of labelled rows.

    Args:
        recipe: Recipe of the few-shot run.
        data: Its data.
        rows: Training rows of one draw.
        source: Files of the encoder.
    """
    # One evaluation at the end: no checkpoint is chosen, so more would only take time.
    once = {"evaluate_every": total_steps(recipe, len(rows))}
    sections = {
        "task": SentenceEmbeddings.name,
        "sentence_embeddings": SentenceEmbeddingsSection(loss=recipe.few_shot.loss),
        "training": recipe.training.model_copy(update=once),
        "evaluation": EvaluationSection(),
        "few_shot": FewShotSection(),
    }
    recipe = recipe.model_copy(update=sections)
    task = SentenceEmbeddings.from_data(recipe, rows, data.labels)
    task = replace(task, modules=SentenceModules())  # pairs are learned without prompts
    tokenizer = build_tokenizer(source, BARE, None)
    long_text_mode = recipe.model.long_text
    # Each text has its first tokens, up to the longest input. That is also right for long texts in
    # windows: their first window is learned from.
    features = task.encode(rows, tokenizer, max_length=recipe.model.max_length)
    if long_text_mode in ("tail", "head-tail") and features.encoded.truncated.any():
        # Each different text is encoded once.
        _, different_texts = different([rows.columns["text"]])
        with_ends = ends_of(features.encoded, tokenizer, [different_texts], long_text_mode)
        features = replace(features, encoded=with_ends)
    # Training needs a validation split. Its scores are not used, so it has the same rows.
    splits = {"train": rows, "validation": replace(rows, split="validation")}
    data = replace(
        data,
        splits=splits,
        validation_splits=("validation",),
        dataset=None,
        rows_in_memory={},
    )
    return prepare_pairs(
        recipe,
        encoded=Encoded(
            data,
            source,
            source.content_hash(),
            features={"train": features, "validation": features},
        ),
    )


def run(job: FewShotJob, folder: RunFolder, *, listener: Listener, **_: Any) -> Result:
    """Trains, scores and writes the run folder, as `training.finetune.run` does.

    A run that was interrupted continues with the draw that it was at.

    Raises:
        InterruptedRunError: Ctrl-C, SIGTERM or SIGHUP.
        BertctlError: see `training.finetune.run`.
    """
    job.write_inputs(folder, job.verb)
    folder.set_status("running", step=0)
    # A run that has folders of draws can be resumed, even if it is interrupted before the first.
    (folder.checkpoints / "draw-1").mkdir(parents=True, exist_ok=True)
    try:
        result = _carry_out(job, folder, listener)
    except (KeyboardInterrupt, InterruptedRunError) as error:
        # Between draws a signal raises `Terminated` or `KeyboardInterrupt`. While a draw is
        # trained, it raises `InterruptedRunError`, whose exit code says which signal it was.
        terminated = (
            isinstance(error, Terminated) or getattr(error, "exit_code", 0) == ExitCode.TERMINATED
        )
        message = "stopped; finished draws are kept"
        again = f"{folder.command(job.verb, resume=True)}"
        folder.set_status("interrupted", step=0, message=message)
        raise InterruptedRunError(
            message, remedy=f"Continue with `{again}`.", terminated=terminated
        ) from error
    except Exception as error:
        folder.set_status(
            "failed",
            step=0,
            message=said_of(error),
            reason="error",
        )
        raise
    # Not in the `try`: the run is done, also if this deletion is interrupted.
    shutil.rmtree(folder.checkpoints)
    return result


def _carry_out(job: FewShotJob, folder: RunFolder, listener: Listener) -> Result:
    """Trains and scores the classifiers of all draws, and writes the run folder.

    Each draw is scored twice, with the trained encoder and with the frozen one. The model, the
    predictions and the performance that the folder keeps are those of the first draw.

    Returns:
        The run folder with its metrics and performance.
    """
    features_of_draws = [
        job.task.encode(draw, job.loaded.tokenizer, max_length=job.recipe.model.max_length)
        for draw in job.draws
    ]
    frozen_draws = _score_frozen(job, features_of_draws)
    values = [0.0] * len(job.draws)  # the primary metric of each draw
    # The first draw comes last, so that its model is at hand to be kept.
    for number in reversed(range(1, len(job.draws))):
        values[number] = _value_of_draw(job, folder, number, features_of_draws[number], listener)
    first_draw = _train_draw(job, folder, 0, features_of_draws[0], listener)
    results = _keep(
        job,
        first_draw.encoder,
        first_draw.classifier,
        folder,
        listener,
    )
    contributions_of_first = _contributions(job, results[job.selection].lines)
    values[0] = contributions_of_first.value

    # With several draws, `judge_training` compares the draws. With one, its examples are compared.
    if len(values) == 1:
        gap = contributions_of_first.difference(frozen_draws[0])
    else:
        gap = None
    frozen_values = [contributions.value for contributions in frozen_draws]
    scores = job.metrics(results) | {"few_shot": judge_training(job, values, frozen_values, gap)}
    metrics = MetricsDocument.model_validate(scores)

    write_predictions(folder, results, job.recipe.evaluation)
    write_json(folder.metrics, metrics.as_json())
    write_json(folder.performance, first_draw.performance.as_json())
    # A call that was interrupted after the next step has moved the model already.
    if first_draw.model != folder.encoder:
        first_draw.model.rename(folder.encoder)
    folder.set_status("done", step=job.steps)
    return Result(folder, metrics, first_draw.performance)


def _score_frozen(job: FewShotJob, features_of_draws: Sequence[Any]) -> list[Contributions]:
    """Returns for each draw what the validation rows add to the metric with the frozen encoder.

    Args:
        job: The few-shot run.
        features_of_draws: The encoded training rows of each draw.
    """
    rows = job.data.splits[job.selection]
    features = job.features[job.selection]
    frozen = _TextEncoder(job, job.source)
    frozen_vectors = frozen.vectors(features)
    contributions_of_draws = []
    for draw_features in features_of_draws:
        logits = frozen.learned(draw_features).logits(frozen_vectors)
        lines = job.task.lines({"logits": logits}, features, rows)
        contributions_of_draws.append(_contributions(job, lines))
    return contributions_of_draws


@dataclass(frozen=True)
class _TrainedDraw:
    """The classifier of one draw.

    Attributes:
        model: Folder of the encoder that was trained on pairs of the draw's rows.
        encoder: This encoder, loaded.
        classifier: Logistic regression on its vectors of the draw's rows.
        performance: Time and memory that the training took.
    """

    model: Path
    encoder: "_TextEncoder"
    classifier: LinearFunction
    performance: PerformanceDocument


def _train_draw(
    job: FewShotJob, folder: RunFolder, number: int, draw_features: Any, listener: Listener
) -> _TrainedDraw:
    """Trains the encoder on pairs of a draw's rows, then the regression on its vectors.

    Args:
        job: The few-shot run.
        folder: The run folder. A training that was interrupted in it is continued.
        number: Which draw, from 0.
        draw_features: The encoded training rows of the draw.
        listener: Receives progress messages.
    """
    listener.say(f"draw {number + 1} of {len(job.draws)}")
    pairs = _pairs(job.recipe, job.data, job.draws[number], job.source)
    trained = start(
        pairs,
        _draw_folder(folder, number),
        resume="if any",
        listener=_Steps(listener),
    )
    # The encoder of draw 0 is moved to `folder.encoder` at the end of a run. If the run was
    # interrupted just after that, it is there.
    if trained.folder.model.is_dir():
        model = trained.folder.model
    else:
        model = folder.encoder
    model_section = ModelSection(name=str(model), max_length=job.recipe.model.max_length)
    encoder = _TextEncoder(job, inspect_model(model_section, is_from_run=True))
    return _TrainedDraw(
        model=model,
        encoder=encoder,
        classifier=encoder.learned(draw_features),
        performance=trained.performance,
    )


def _value_of_draw(
    job: FewShotJob, folder: RunFolder, number: int, draw_features: Any, listener: Listener
) -> float:
    """Returns the primary metric of a draw whose model is not kept; trains it if need be.

    The value is written to draw-N.json, where a resumed run finds it, and the model is deleted.

    Args:
        job: The few-shot run.
        folder: The run folder.
        number: Which draw, from 1, as the model of draw 0 is kept.
        draw_features: The encoded training rows of the draw.
        listener: Receives progress messages.
    """
    draw_folder = _draw_folder(folder, number)
    draw_results = draw_folder.with_suffix(".json")
    if draw_results.exists():  # the run was interrupted after this draw
        value: float = read_json(draw_results)["value"]
        return value

    rows = job.data.splits[job.selection]
    features = job.features[job.selection]
    draw = _train_draw(job, folder, number, draw_features, listener)
    logits = draw.classifier.logits(draw.encoder.vectors(features))
    lines = job.task.lines({"logits": logits}, features, rows)
    value = _contributions(job, lines).value
    write_json(draw_results, {"schema": SCHEMA, "value": value})
    shutil.rmtree(draw_folder)
    return value


def _draw_folder(folder: RunFolder, number: int) -> Path:
    """Returns the folder in which the encoder of a draw is trained; draws are numbered from 0."""
    return folder.checkpoints / f"draw-{number + 1}"


class _Steps(Listener):
    """Listener that passes on the progress and the warnings of the training of one draw.

    Its other messages are dropped: they are about a part of the run, not about the run.
    """

    def __init__(self, listener: Listener) -> None:
        self.warn = listener.warn  # type: ignore[method-assign]
        self.advance = listener.advance  # type: ignore[method-assign]
        self.finish = listener.finish  # type: ignore[method-assign]


class _TextEncoder:
    """An encoder whose vectors of texts a logistic regression learns from.

    Args:
        job: The few-shot run.
        source: The encoder, frozen or trained on pairs.
    """

    def __init__(self, job: FewShotJob, source: ModelSource) -> None:
        self.sentence_modules = chosen_modules(
            source.folder, SentenceEmbeddingsSection(), max_length=source.max_length
        )
        # How the vectors of a long text's windows are combined, if it is read in windows.
        self.window_pooling = LongText.of(job.recipe.model).pooling
        layers = choose_layers(["last"], layer_count(source.config))
        self.job = job
        self.source = source
        self.loaded = load_frozen(source, job.compute)
        spec = VectorSpec(
            layers,
            poolings=("model",),  # the pooling that the model's folder prescribes
            sentence_modules=self.sentence_modules,
            windows=self.window_pooling,
        )
        self._encoder = Encoder(source, self.loaded, spec, frozen_engine(self.loaded, job.compute))

    def vectors(self, features: Any) -> Floats32:
        """Returns (N, D) vectors of the rows."""
        return self._encoder.texts(EncodedWindows.of(features))[0]

    def learned(self, features: Any) -> LinearFunction:
        """Fits a logistic regression on the vectors and labels of some encoded rows."""
        # The recipe names the strength, so none is chosen: there are no `strengths` and no folds.
        settings = ClassifierSettings(
            LOGISTIC,
            multi_label=False,
            n_outputs=int(self.job.task.head()["num_labels"]),
            balanced=False,
            strengths=(),
            folds=0,
            seed=0,
        )
        return fit(
            self.vectors(features), features.labels, self.job.recipe.few_shot.strength, settings
        )


def _keep(
    job: FewShotJob,
    tuned: _TextEncoder,
    learned: LinearFunction,
    folder: RunFolder,
    listener: Listener,
) -> dict[str, SplitResult]:
    """Writes the classifier of a draw, and scores the network that `evaluate` will load.

    Args:
        job: The few-shot run.
        tuned: The encoder of the draw.
        learned: The logistic regression on its vectors.
        folder: The run folder.
        listener: Receives progress messages.

    Returns:
        Results by split.
    """
    from bertctl.modeling.probe_network import with_head

    head = LinearHead(
        layer="last",
        pooling="model",
        special_tokens=True,
        normalize=tuned.sentence_modules.normalised,
        classifier=LOGISTIC,
        strength=learned.strength,
        weight=learned.weight,
        bias=learned.bias,
        windows=tuned.window_pooling,
    )
    head.save(
        folder.path, source=replace(tuned.source, name=job.recipe.model.name), head=job.task.head()
    )
    return job.scored(
        Engine.of(with_head(tuned.loaded, head, tuned.source, job.compute), job.compute), listener
    )


def _contributions(job: FewShotJob, lines: Sequence[dict[str, Any]]) -> Contributions:
    """Returns what each row adds to the primary metric, from the lines of predictions."""
    contributions = job.task.answers.contributions(lines, job.primary)
    if contributions is None:
        raise UsageError(
            f"few-shot training can't be judged by '{job.primary}'", remedy="Take accuracy."
        )
    return contributions


def judge_training(
    job: FewShotJob, trained: Sequence[float], frozen: Sequence[float], gap: Difference | None
) -> dict[str, Any]:
    """Returns what metrics.json has under `few_shot`.

    It is both scores of each draw (with the trained encoder and with the frozen one), their means,
    and whether the training pays: whether it is better by `WORTH` at least, significantly.

    Args:
        job: The run.
        trained: The primary metric of each draw, with the trained encoder.
        frozen: The same with the frozen encoder.
        gap: With one draw, the difference of both scores over its examples; None with several
            draws, whose scores are compared here.
    """
    scores = {"few_shot": np.array(trained), "frozen": np.array(frozen)}
    if gap is None:
        n_compared = count(len(trained), "draw")
        gap = mean_difference(scores["few_shot"], scores["frozen"])
    else:
        n_compared = count(gap.n, "example")
    if higher_is_better(job.primary):
        sign = 1
    else:
        sign = -1
    is_significant = gap.low * gap.high > 0  # zero is outside the interval
    if sign * gap.value >= WORTH and is_significant:
        verdict = "pays"
    else:
        verdict = "does not pay"
    mean_scores = {name: float(values.mean()) for name, values in scores.items()}
    # A difference over fewer draws can't be significant, however large it is.
    has_few_draws = 1 < len(trained) < _DRAWS
    if verdict != "pays" and has_few_draws:
        note_of_few_draws = f"; fewer than {_DRAWS} draws can't show it"
    else:
        note_of_few_draws = ""
    verdict_text = f"{verdict}: {job.primary} on {job.selection}"
    frozen_text = f"{figure(mean_scores['frozen'])} with the frozen encoder"
    means_text = f"{figure(mean_scores['few_shot'])}, and {frozen_text}"
    worth_text = f"{WORTH:.2f} more would be worth it{note_of_few_draws}"
    difference_text = f"{gap.value:+.4f}, 95 % {gap.low:+.4f} to {gap.high:+.4f}; {n_compared}"
    deviation = None
    if len(trained) > 1:
        deviation = {name: float(values.std(ddof=1)) for name, values in scores.items()}
    draws = []
    first_seed = job.recipe.data.split_seed
    for seed, (trained_score, frozen_score) in enumerate(
        zip(trained, frozen, strict=True), start=first_seed
    ):
        draws.append({"seed": seed, "few_shot": trained_score, "frozen": frozen_score})
    return {
        "rows": len(job.draws[0]),
        "draws": draws,
        "mean": mean_scores,
        "deviation": deviation,
        "difference": gap.as_json(),
        "verdict": verdict,
        "sentence": f"{verdict_text} {means_text} ({difference_text}); {worth_text}",
    }
