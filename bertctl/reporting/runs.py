"""Finished runs, read for gates and comparisons: metrics, predictions, recipe.

A bare metrics.json is read too.

Nothing here is written, and nothing imports torch.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.config.strict_yaml import read_document
from bertctl.documents import read_json_document, read_json_lines
from bertctl.errors import BertctlError, UnavailableError, UsageError
from bertctl.metrics.value import MetricValue
from bertctl.run_documents.environment_document import EnvironmentDocument
from bertctl.run_documents.line_documents import PredictionLine
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.performance_document import PerformanceDocument
from bertctl.run_folder import CONFIRM, UNFINISHED, RunFolder, is_export
from bertctl.tasks.answers import Line
from bertctl.tasks.classification.class_answers import POSITIVE, ClassAnswers
from bertctl.tasks.classification.text_classification import TextClassification
from bertctl.tasks.registry import TASKS, no_such_metric
from bertctl.words import command

DEFAULT_SPLIT = "validation"

FITTED = 6
"""As the best of how many a threshold flatters the examples it was fitted on: with F1 at 150 to 872
examples a limit that is the model's true F1 is passed in at most 3.5 %, and without correction in
up to 10."""

_LAYOUT = (
    'A metrics.json of bertctl has {"metrics": {"validation": {"accuracy": {"value": 0.91, '
    '"low": 0.89, "high": 0.93, "n": 872}}}, '
    '"primary": {"split": "validation", "name": "accuracy"}}.'
)

TEXTS = tuple(dict.fromkeys(chain.from_iterable(task.answer_type.texts for task in TASKS.values())))
"""Fields of prediction lines that are the input; the same in two runs on the same data."""


@dataclass(frozen=True)
class FinishedRun:
    """Run that has ended well, or the metrics of one.

    Attributes:
        path: as the person named it.
        folder: the run; None where only a metrics.json was given.
        metrics: content of metrics.json.
        recipe: as nested plain values; empty for a bare metrics.json.
    """

    path: Path
    folder: RunFolder | None
    metrics: MetricsDocument
    recipe: Mapping[str, Any]

    @property
    def task(self) -> str | None:
        """As in the recipe; None for a bare metrics.json."""
        if self.folder:
            return str(self.recipe.get("task", Recipe.model_fields["task"].default))
        return None

    @property
    def metrics_file(self) -> Path:
        """Returns where its metrics stand."""
        if self.folder:
            return self.folder.metrics
        return self.path

    @property
    def primary(self) -> str:
        """Returns the name of the metric that picked the best weights."""
        return self.metrics.primary.name

    def split(self, requested: str | None) -> str:
        """Returns the name of the split whose scores are looked at, once it is known to have some.

        Args:
            requested: Name of the split; None for the first of these that has been scored:
                `confirm`, `validation`, the split that chose the weights.

        Raises:
            UsageError: The split has not been scored.
        """
        scored = list(self.metrics.metrics)
        if requested is None:
            candidates = (CONFIRM, DEFAULT_SPLIT, self.metrics.primary.split)
            scored_candidates = [name for name in candidates if name in scored]
            requested = scored_candidates[0] if scored_candidates else DEFAULT_SPLIT
        if requested not in scored:
            if self.folder:
                evaluate = f" Or score it: {command('evaluate', self.path, split=requested)}."
            else:
                evaluate = ""
            if "file" in (requested, *scored):  # the scores of a file, which is no split of a run
                evaluate = (
                    f" Score both runs on one file: "
                    f"{command('evaluate RUN', file='FILE', output='SCORES')}."
                )
            message = f"{self.path} has no metrics of the split '{requested}'"
            raise UsageError(message, remedy=f"It has: {', '.join(scored) or 'none'}.{evaluate}")
        return requested

    def metric(self, split: str, name: str) -> MetricValue:
        """Returns a metric of a split that has been scored.

        Raises:
            UsageError: it is not there.
        """
        by_name = self.metrics.metrics[split]
        if name not in by_name:
            message, remedy = no_such_metric(name, by_name)
            raise UsageError(f"{self.metrics_file}, split '{split}': {message}", remedy=remedy)
        entry = by_name[name]
        return MetricValue(
            value=0.0 if entry.value is None else float(entry.value),
            low=entry.low,
            high=entry.high,
            n=entry.n,
            higher_is_better=entry.higher_is_better,
            clusters=entry.clusters,
            is_defined=entry.value is not None,
        )

    def chosen_on(self, split: str) -> dict[str, int]:
        """Returns what was chosen on a split, and among how many if that is known.

        It is an epoch, a threshold or a setting.
        """
        choices = self.metrics.selected_on
        return {name: choice.of for name, choice in choices.items() if choice.split == split}

    def compared_on(self, split: str) -> int:
        """Returns among how many scores on a split the run's score was chosen as the best.

        The numbers of several choices are multiplied: the best of 4 epochs of 3 settings is the
        best of 12. A threshold that was fitted on the split counts as the best of `FITTED`.
        """
        n_compared = 1
        for name, n_candidates in self.chosen_on(split).items():
            if name == "threshold":
                n_compared *= FITTED
            else:
                n_compared *= n_candidates
        return n_compared

    def lines(self, split: str) -> list[Line]:
        """Returns the prediction lines of a split, in the order of the file.

        If metrics.json names the positive label, each line gets it as a field of its own: who reads
        lines has no metrics.json, and F1 depends on this label.

        Raises:
            UnavailableError: there is no such file.
            DataError: a line that is no prediction, by the published schema.
        """
        if self.folder is None:
            message = f"{self.path} has metrics only, no predictions"
            raise UnavailableError(message, remedy="Give the run's folder instead.")
        path = self.folder.predictions(split)
        remedy = f"Write it with `{command('evaluate', self.path, split=split)}`."
        lines: list[Line] = [*read_json_lines(path, PredictionLine, remedy=remedy)]
        if not lines:
            raise UsageError(f"{path} holds no predictions, so nothing can be said of them")
        positive = self.metrics.positive_label
        if positive:
            return [{**line, POSITIVE: positive} for line in lines]
        return lines

    def performance(self) -> PerformanceDocument:
        """Returns performance.json; an empty one where it is not there."""
        if self.folder and self.folder.performance.exists():
            return self.folder.read_performance()
        return PerformanceDocument(seconds={})

    def environment(self) -> EnvironmentDocument:
        """Returns environment.json; an empty one where it is not there."""
        if self.folder and self.folder.environment.exists():
            return self.folder.read_environment()
        return EnvironmentDocument()


def read_run(path: Path) -> FinishedRun:
    """Returns a finished run by its folder, or a metrics.json.

    Raises:
        UnavailableError: nothing there, no run, or one that has not finished.
        DataError: a metrics.json that is none.
    """
    if path.is_file():
        return FinishedRun(
            path, None, read_json_document(path, MetricsDocument, remedy=_LAYOUT), {}
        )
    folder = RunFolder.open(path, or_export=True)
    if is_export(path):
        _check_export(folder)
    else:
        _require_finished(folder)
    recipe: dict[str, Any] = {}
    if folder.recipe.exists():
        load_recipe(str(folder.recipe))  # refuses what is no recipe
        recipe = read_document(folder.recipe.read_text(encoding="utf-8-sig")).values
    run = FinishedRun(path, folder, folder.read_metrics(), recipe)
    # Runs of older versions call several kinds of F1 `f1`, and get the names of this version.
    return replace(run, metrics=_named_today(run))


def _require_finished(folder: RunFolder) -> None:
    """Refuses a run that has not ended well.

    Raises:
        UnavailableError: It has not.
    """
    state = folder.read_status().state
    if state != "done":
        raise UnavailableError(
            f"{folder.path} is not a finished run: its state is '{state}'", remedy=UNFINISHED
        )


def _check_export(folder: RunFolder) -> None:
    """Refuses an export that was changed, or that has no scores.

    Raises:
        DataError: A file is not as it was written.
        UnavailableError: A file is missing, or there are no scores.
    """
    from bertctl.inference.export_folder import ExportFolder

    ExportFolder.open(folder.path)
    if not folder.metrics.is_file():
        raise UnavailableError(
            f"{folder.path} has no scores: it was exported from a model that no run has scored",
            remedy=f"Score it on a file: {command('evaluate', folder.path, file='FILE')}.",
        )


def _named_today(run: FinishedRun) -> MetricsDocument:
    """Returns the metrics of a run under the names that they have in this version.

    In older runs several kinds of F1 are called `f1`. Which kind it is depends on the number of
    labels, which their predictions tell. Without predictions the metrics are returned as they are.
    """
    older_splits = [
        split
        for split, by_name in run.metrics.metrics.items()
        if "f1" in by_name and "f1_weighted" not in by_name
    ]
    # Older runs don't name the positive label.
    has_todays_names = run.metrics.positive_label is not None
    if run.folder is None or run.task != TextClassification.name or has_todays_names:
        return run.metrics
    # The first split with predictions tells the names of all splits.
    for split in older_splits:
        with contextlib.suppress(BertctlError):  # predictions that are not there
            return ClassAnswers.from_lines(run.lines(split)).named_today(run.metrics)
    return run.metrics


def aligned(ours: Sequence[Line], theirs: Sequence[Line], *, names: tuple[str, str]) -> list[Line]:
    """Returns the prediction lines of another run in the order of ours, matched by id.

    Args:
        ours: Prediction lines.
        theirs: Lines of another run on the same examples, in any order.
        names: What to call the two in an error.

    Raises:
        UsageError: The two are not about the same examples: other ids, gold answers or texts.
    """
    if [line["id"] for line in ours] == [line["id"] for line in theirs]:
        ordered = list(theirs)
    else:
        by_id = {line["id"]: line for line in theirs}
        missing = [line["id"] for line in ours if line["id"] not in by_id]
        extra = by_id.keys() - {line["id"] for line in ours}
        if missing or extra or len(by_id) < len(theirs) or len(ours) != len(theirs):
            unmatched = missing or sorted(extra, key=str) or ["given twice"]
            raise _different(
                names,
                f"{len(ours)} and {len(theirs)} examples, {len(missing)} + {len(extra)} unmatched "
                f"ids ({unmatched[0]!r})",
            )
        ordered = [by_id[line["id"]] for line in ours]
    for field in ("gold", *TEXTS):
        unequal_ids = []
        for our_line, their_line in zip(ours, ordered, strict=True):
            has_field = field in our_line and field in their_line
            if has_field and _comparable(our_line, field) != _comparable(their_line, field):
                unequal_ids.append(our_line["id"])
        if unequal_ids:
            raise _different(
                names,
                f"{len(unequal_ids)} of {len(ours)} examples differ in '{field}', id "
                f"{unequal_ids[0]!r} first",
            )
    return ordered


def _comparable(line: Line, field: str) -> Any:
    """Returns a field of a line, made comparable.

    Several labels are compared as a set, since their order is that of the run's columns.
    """
    several = isinstance(line[field], list) and isinstance(line.get("probabilities"), Mapping)
    if several:
        return sorted(line[field])
    return line[field]


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested sections as dotted names: `training.epochs`."""
    fields: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            fields |= flat(value, f"{prefix}{key}.")
        else:
            fields[f"{prefix}{key}"] = value
    return fields


def _different(names: tuple[str, str], how: str) -> UsageError:
    """Returns the refusal of two runs that were scored on different data."""
    return UsageError(
        f"{names[0]} and {names[1]} were scored on different data: {how}",
        remedy="Score both on the same split of the same data "
        f"({command('evaluate RUN', split='SPLIT')} or `file=FILE`).",
    )
