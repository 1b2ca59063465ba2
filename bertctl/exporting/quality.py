"""The cost of smaller numbers: metrics before and after on the same rows, flips, rows a second."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bertctl.errors import UsageError
from bertctl.exporting.proof import Comparison, answer_of
from bertctl.inference.engine import Engine
from bertctl.inference.speed import rows_per_second
from bertctl.metrics.value import MetricValue
from bertctl.run_documents.export_document import MetricChange
from bertctl.tasks.base import Outputs
from bertctl.words import listing

_TIMED_ROWS = 256
_NO_LABEL = "-"
"""Stands for the label of an answer that is none, such as words of a text."""


@dataclass(frozen=True)
class Scores:
    """Rows as one model answered them, scored.

    Attributes:
        lines: Gold answer and prediction of each row.
        values: Metrics by name.
    """

    lines: Sequence[Mapping[str, Any]]
    values: Mapping[str, MetricValue]


class QualityCheck:
    """Metrics of a model with smaller numbers against those of the model.

    Args:
        comparison: Labelled rows, answered by the model.
        limits: Largest drop that is allowed, by metric (`max_drop`). If it is empty, only the
            primary metric is checked.
        usual: Largest drop of the primary metric, if no limits are given.

    Raises:
        UsageError: A metric that the task does not have.
    """

    def __init__(self, comparison: Comparison, limits: Mapping[str, float], usual: float) -> None:
        self._comparison = comparison
        self._task = comparison.subject.task
        if limits:
            self.limits = dict(limits)
        else:
            self.limits = {self._task.primary_metric: usual}
        # The model's own metrics: those of its export are compared with them.
        self.before = self.score(comparison.model.outputs)
        for name in self.limits:
            if name not in self.before.values:
                known = list(self.before.values)
                raise UsageError(
                    f"`max_drop={name}`: a run of {self._task.name} has no such metric",
                    remedy=f"Choose from {listing(known, 40)}.",
                )

    def score(self, outputs: Outputs, *, thorough: bool = False) -> Scores:
        """Returns the metrics of some outputs, with intervals where it is `thorough`."""
        comparison = self._comparison
        recipe = comparison.subject.run.recipe
        lines = self._task.lines(outputs, comparison.features, comparison.rows)
        resamples = recipe.evaluation.bootstrap_resamples if thorough else 0
        values = self._task.answers.score(
            lines,
            resamples=resamples,
            seed=recipe.training.seed,
            thorough=thorough,
        )
        return Scores(lines, values)

    def failures(self, after: Scores) -> tuple[str, ...]:
        """Returns which metrics drop by more than is allowed, a sentence each."""
        failures = []
        for name, limit in self.limits.items():
            before = self.before.values[name]
            drop = before.value - after.values[name].value
            if not before.higher_is_better:
                drop = -drop
            # "not <=" also refuses NaN; 1e-12 allows for rounding of the difference.
            if not drop <= limit + 1e-12:
                failures.append(
                    f"{name} goes from {before.value:.4f} to {after.values[name].value:.4f}: "
                    f"{drop:.4f} worse, and {limit:g} is allowed"
                )
        return tuple(failures)

    def changes(self, outputs: Outputs) -> dict[str, MetricChange]:
        """Returns each limited metric before and after, with intervals and the paired test."""
        before = self.score(self._comparison.model.outputs, thorough=True)
        after = self.score(outputs, thorough=True)
        return {name: self._change(name, before, after) for name in self.limits}

    def _change(self, name: str, before: Scores, after: Scores) -> MetricChange:
        """Returns a metric with its interval before and after, and the p value of the difference.

        The test is left out for metrics to which no single row adds.
        """
        fields: dict[str, Any] = {
            "before": before.values[name].value,
            "before_low": before.values[name].low,
            "before_high": before.values[name].high,
            "after": after.values[name].value,
            "after_low": after.values[name].low,
            "after_high": after.values[name].high,
        }
        answers = self._task.answers
        contributions_after = answers.contributions(after.lines, name)
        contributions_before = answers.contributions(before.lines, name)
        if contributions_after is not None and contributions_before is not None:
            difference = contributions_after.difference(contributions_before)
            fields["p"] = difference.p
            fields["test"] = difference.method
        return MetricChange(**{key: value for key, value in fields.items() if value is not None})

    def flips(self, after: Scores) -> dict[str, int]:
        """Returns how many rows have another answer, by the label that they had before."""
        counts: Counter[str] = Counter()
        for line_before, line_after in zip(self.before.lines, after.lines, strict=True):
            label = answer_of(line_before)
            if label != answer_of(line_after):
                is_label = isinstance(label, str) and self._has_labels
                counts[label if is_label else _NO_LABEL] += 1
        return dict(counts)

    @property
    def _has_labels(self) -> bool:
        """Whether the task's answers are labels of a fixed set."""
        return bool(self._task.label_names)


def engine_speeds(comparison: Comparison, engines: Mapping[str, Engine]) -> dict[str, float]:
    """Returns how many rows of a comparison each engine answers in a second."""
    count = len(comparison.rows)
    positions = np.linspace(0, count - 1, min(count, _TIMED_ROWS)).round().astype(np.int64)
    rows = comparison.rows.select(positions)
    subject = comparison.subject
    features = subject.task.encode(
        rows, subject.engine.tokenizer, max_length=subject.run.recipe.model.max_length
    )
    batch_size = subject.run.recipe.evaluation.batch_size
    passes = {
        name: partial(engine.forward, subject.task, features, batch_size=batch_size)
        for name, engine in engines.items()
    }
    return rows_per_second(passes, n_rows=len(rows))


def parse_drops(texts: Iterable[str]) -> dict[str, float]:
    """Returns limits by metric: `["accuracy=0.005"] -> {"accuracy": 0.005}`.

    Raises:
        UsageError: A text is not METRIC=NUMBER, or its number is negative or not finite.
    """
    limits = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            drop = float(number)
        except ValueError:
            drop = math.nan  # is refused below
        is_drop = math.isfinite(drop) and drop >= 0
        if not equals or not name.strip() or not is_drop:
            raise UsageError(
                f"`max_drop={text}`: expected METRIC=NUMBER, a drop from 0 on",
                remedy="For example `max_drop=accuracy=0.005`.",
            )
        limits[name.strip()] = drop
    return limits
