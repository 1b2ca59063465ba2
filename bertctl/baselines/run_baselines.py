"""The baselines of a run.

They are computed once before the training, kept in the run folder, and compared with it at the end.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertctl.arrays import Array
from bertctl.baselines.frozen import Answered, frozen_answers
from bertctl.baselines.kinds import (
    FROZEN,
    KINDS,
    TFIDF,
    comparison_sentence,
    difference_document,
    is_full_score,
)
from bertctl.baselines.word_counts import tfidf_answers, word_tag_answers
from bertctl.documents import read_json, read_json_lines
from bertctl.errors import BertctlError, said_of
from bertctl.inference.evaluate import SplitResult, line_id
from bertctl.metrics.clusters import numbered
from bertctl.metrics.paired import simultaneous
from bertctl.progress import Listener
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_folder import DAMAGED, SCHEMA, RunFolder
from bertctl.runtime.heap import trim_heap
from bertctl.runtime.seeding import generators_kept
from bertctl.tasks.answers import Answers, Line
from bertctl.tasks.registry import find_metric
from bertctl.training.job import Job
from bertctl.training.time_shares import NoTimeError
from bertctl.words import count
from bertctl.writing import write_json, write_jsonl

FEWEST_SCORED = 20
"""Scored rows below which no baseline is computed: hardly any difference would show."""

_DIGITS = 6
"""Of probabilities in the prediction files of baselines."""


@dataclass(frozen=True)
class Scores:
    """A baseline, fitted and scored.

    Attributes:
        details: How it was fitted.
        metrics: Split -> name -> value.
        lines: Split -> a line per row: id, gold answer, prediction, probabilities.
    """

    details: Mapping[str, Any]
    metrics: Mapping[str, Mapping[str, float]]
    lines: Mapping[str, Sequence[Line]]


class RunBaselines:
    """The baselines of one run.

    Args:
        job: The run's job, before anything was trained.
        folder: The run.
        listener: Receives progress, and what a baseline that fails says.
    """

    def __init__(self, job: Job, folder: RunFolder, listener: Listener) -> None:
        self._job = job
        self._folder = folder
        self._listener = listener
        self._splits = list(dict.fromkeys((job.selection, *job.evaluated)))
        names = job.task.baselines
        # A run that is resumed has computed them before it was interrupted.
        self._scores = self._earlier_scores(names)
        if self._scores is None:
            self._scores = self._compute(names)

    def metrics(
        self, results: Mapping[str, SplitResult], chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns what metrics.json says of the baselines, as `{"baselines": {name: {...}}}`.

        Each has its metrics, and on each split the difference of the primary metric from the run's.
        Without baselines nothing is returned.

        Args:
            results: The run's scores by split.
            chosen: What was chosen on which split, as metrics.json has it under `selected_on`.
        """
        document: dict[str, Any] = {}
        for name, scores in (self._scores or {}).items():
            differences = {}
            for split, lines in scores.lines.items():
                if split in results:
                    difference = self._difference(results[split], lines, split, chosen)
                    if difference:
                        differences[split] = difference
            metrics = {split: dict(values) for split, values in scores.metrics.items()}
            document[name] = {**scores.details, "metrics": metrics, "differences": differences}
        if document:
            return {"baselines": document}
        return {}

    def announce(self, metrics: MetricsDocument) -> None:
        """Reports how the run compares with each baseline; with a warning where it is not better.

        Args:
            metrics: Content of metrics.json.
        """
        weaker = not_beaten(metrics, self._job)
        for name, entry in metrics.baselines.items():
            split = headline_split(entry.differences, self._job.selection)
            if split is None:
                continue
            comparison = entry.differences[split]
            sentence = comparison_sentence(name, split, self._job.primary, comparison)
            if name in weaker:
                self._listener.warn(sentence)
            else:
                self._listener.say(sentence)
        if weaker:
            is_cut = metrics.time_limit is not None
            self._listener.say(self._ways_out(weaker, is_cut=is_cut))

    def _ways_out(self, weaker: Sequence[str], *, is_cut: bool) -> str:
        """Returns the advice for a run that is not better than some baselines.

        Args:
            weaker: Names of these baselines.
            is_cut: Whether a time limit has cut the training short.
        """
        recipe = self._folder.recipe
        epochs = self._job.recipe.training.epochs
        if is_cut:
            return "to get above it: a longer `training.time_limit=`"
        longer = (
            f"train longer (`training.epochs={2 * epochs:g}`), with the rate that `bertctl lr-find "
            f"{recipe}` suggests"
        )
        if FROZEN in weaker and can_be_probed(self._job):
            return (
                f"`bertctl probe {recipe}` makes a model of the frozen encoder's classifier; or "
                f"{longer}"
            )
        return f"to get above it: {longer}, or take a larger encoder (`model.name=`)"

    def _earlier_scores(self, names: Sequence[str]) -> dict[str, Scores] | None:
        """Returns the scores that the run left before it was interrupted.

        It is None where there are none.
        """
        if not self._folder.baseline_scores.exists():
            return None
        try:
            document = read_json(self._folder.baseline_scores, remedy=DAMAGED)
            scores = {}
            for name in names:
                if name not in document["baselines"]:  # it could not be computed
                    continue
                entry = document["baselines"][name]
                lines = {
                    split: read_json_lines(
                        self._folder.baseline_predictions(name, split), remedy=DAMAGED
                    )
                    for split in entry["metrics"]
                }
                scores[name] = Scores(entry["details"], entry["metrics"], lines)
        except (BertctlError, KeyError, TypeError, AttributeError):
            return None
        return scores

    def _compute(self, names: Sequence[str]) -> dict[str, Scores]:
        """Fits, scores and saves the baselines of these names, and reports their scores.

        A baseline that fails is left out with a warning.
        """
        started = time.perf_counter()
        scores: dict[str, Scores] = {}
        for name in names:
            try:
                with generators_kept():
                    scores[name] = self._scored(self._answers(name))
            except NoTimeError as error:
                self._listener.say(f"{KINDS[name].title} is left out: {error}")
            except Exception as error:  # noqa: BLE001 - no run is lost by a baseline
                self._listener.warn(
                    f"{KINDS[name].title} could not be computed, the run continues: "
                    f"{said_of(error)}"
                )
        trim_heap()
        self._write(scores)
        self._job.seconds["baselines"] = time.perf_counter() - started
        if scores:
            self._listener.say(f"baselines: {self._summary(scores)}")
        return scores

    def _answers(self, name: str) -> Answered:
        """Fits a baseline, and returns its answers to the splits of the run."""
        if name == FROZEN:
            return frozen_answers(self._job, self._splits, self._listener)
        if name == TFIDF:
            return tfidf_answers(self._job, self._splits)
        return word_tag_answers(self._job, self._splits)

    def _scored(self, answered: Answered) -> Scores:
        """Returns the answers of a baseline with their metrics; undefined metrics are left out."""
        metrics: dict[str, dict[str, float]] = {}
        lines: dict[str, Sequence[Line]] = {}
        for split, logits in answered.logits.items():
            lines[split] = self._lines(split, logits)
            scored = self._job.task.answers.score(lines[split], resamples=0, seed=0)
            metrics[split] = {
                metric: value.value
                for metric, value in scored.items()
                if value.is_defined and math.isfinite(value.value)
            }
        return Scores(answered.details, metrics, lines)

    def _lines(self, split: str, logits: Array) -> Sequence[Line]:
        """Returns the prediction lines of a split: id, gold answer, prediction, probabilities.

        Where rows belong together, each line has the number of its group as `cluster`.

        Args:
            split: Name of the split.
            logits: (N, C) logits of its rows or words.
        """
        rows = self._job.data.splits[split]
        answers = self._job.task.lines({"logits": logits}, self._job.features[split], rows)
        lines = [
            {"id": line_id(rows.answer_id(i)), **_rounded(line)} for i, line in enumerate(answers)
        ]
        clusters = numbered(rows.groups) if rows.groups else None
        if clusters is not None:
            for line, cluster in zip(lines, clusters.tolist(), strict=True):
                line["cluster"] = cluster
        return lines

    def _write(self, scores: Mapping[str, Scores]) -> None:
        """Writes the prediction lines, then the scores, whose file shows that all is there."""
        for name, baseline in scores.items():
            for split, lines in baseline.lines.items():
                write_jsonl(self._folder.baseline_predictions(name, split), lines)
        document = {
            name: {"details": dict(baseline.details), "metrics": baseline.metrics}
            for name, baseline in scores.items()
        }
        write_json(self._folder.baseline_scores, {"schema": SCHEMA, "baselines": document})

    def _summary(self, scores: Mapping[str, Scores]) -> str:
        """Returns the primary metric of each baseline on the selection split, in a sentence."""
        split = self._job.selection
        primary = self._job.primary
        parts = [
            f"{KINDS[name].title} {baseline.metrics[split][primary]:.4f}"
            for name, baseline in scores.items()
            if primary in baseline.metrics.get(split, {})
        ]
        if parts:
            return f"{split} {primary} of {', of '.join(parts)}"
        return f"no {primary}"

    def _difference(
        self, result: SplitResult, lines: Sequence[Line], split: str, chosen: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Returns how the run differs from a baseline on a split; None if it can't be told.

        Args:
            result: The run's scores on the split.
            lines: The baseline's predictions there.
            split: Name of the split.
            chosen: What was chosen on which split, and out of how many.
        """
        # The best of 3 epochs in the best of 4 settings is the best of 12.
        compared = math.prod(
            entry.get("of", 1) for entry in chosen.values() if entry["split"] == split
        )
        return paired_comparison(
            result.task.answers,
            result.lines,
            lines,
            self._job.primary,
            compared=compared,
        )


def make_baselines(job: Job, folder: RunFolder, listener: Listener) -> RunBaselines | None:
    """Computes the baselines that a recipe asks for.

    It returns None where it asks for none, or its task has none.
    """
    if not job.recipe.evaluation.baselines or not job.task.baselines:
        return None
    most = max(len(job.data.splits[split]) for split in (job.selection, *job.evaluated))
    if most < FEWEST_SCORED:
        listener.say(
            f"baselines: none, as {count(most, 'row')} to score on can't tell models apart"
        )
        return None
    return RunBaselines(job, folder, listener)


def paired_comparison(
    answers: Answers,
    lines: Sequence[Line],
    baseline_lines: Sequence[Line],
    metric: str,
    *,
    compared: int,
) -> dict[str, Any] | None:
    """Returns how a run's metric differs from a baseline's on the same rows.

    The result is None if the lines don't determine the metric.

    Args:
        answers: What the lines mean.
        lines: Predictions of the run, with their gold answers.
        baseline_lines: Predictions of the baseline, in the same order.
        metric: Name of the metric.
        compared: How many evaluations on these rows the run is the best of (1: it wasn't chosen by
            them). The best of many is good by luck too, so the interval is widened at the bad end.
    """
    ours = answers.contributions(lines, metric)
    theirs = answers.contributions(baseline_lines, metric)
    if ours is None or theirs is None:
        return None
    difference = ours.difference(theirs)
    known = find_metric(metric)
    higher_is_better = known is None or known.higher_is_better

    interval = (difference.low, difference.high)
    low, high = simultaneous(difference.value, interval, compared, at_least=higher_is_better)
    # Of an interval with two ends no end is None; by its type it may be.
    if low is None:
        low = difference.low
    if high is None:
        high = difference.high
    return difference_document(
        difference, theirs.value, (low, high), higher_is_better=higher_is_better
    )


def not_beaten(metrics: MetricsDocument, job: Job) -> list[str]:
    """Returns the baselines that a run is not better than, where a run could be better.

    Args:
        metrics: Content of metrics.json.
        job: The run that was trained.
    """
    names: list[str] = []
    for name, entry in metrics.baselines.items():
        split = headline_split(entry.differences, job.selection)
        if split is None:
            continue
        comparison = entry.differences[split]
        if comparison.verdict == "not better" and not is_full_score(comparison, job.primary):
            names.append(name)
    return names


def can_be_probed(job: Job) -> bool:
    """Returns whether `bertctl probe` takes a run's recipe and makes the frozen baseline of it."""
    return job.recipe.model.keep_layers is None and job.recipe.lora.rank is None


def headline_split(splits: Mapping[str, Any], selection: str) -> str | None:
    """Returns the split whose scores are reported first.

    It is a split that nothing was chosen on, if there is one, else the one that the weights were
    chosen on. Of several it is the last one: rows that are set aside to confirm a choice come last.
    """
    untouched = [split for split in splits if split != selection]
    if untouched:
        return untouched[-1]
    if selection in splits:
        return selection
    return None


def _rounded(line: Line) -> dict[str, Any]:
    """Returns a line whose probabilities take less room."""
    probabilities = line.get("probabilities")
    if not isinstance(probabilities, dict):
        return dict(line)
    return {
        **line,
        "probabilities": {name: round(value, _DIGITS) for name, value in probabilities.items()},
    }
