"""What each example adds to a metric, and what a metric is.

A metric of a whole split can't be compared example by example; what each example adds to it can: whether it was right,
which cell of the confusion table it falls into, how many of its entities were found. That and a function from counts of
such rows to the metric is all that values, intervals, paired differences and slices need, so all four have one
definition.

Letters: N examples, M kinds of examples, P kinds that could occur, R resamples, S numbers that describe an example.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import DivergedError
from bertctl.metrics.paired import RESAMPLES, Difference, bootstrap_difference, mean_difference, share_difference
from bertctl.metrics.statistics import Statistic, bootstrap_interval, mean_interval, wilson_interval
from bertctl.metrics.value import MetricValue

Floats = NDArray[np.float64]

_CLOSE = 1e-4
"""Difference from metrics.json that rounding explains: predictions are written as they were computed, in 32 bits."""


@dataclass(frozen=True)
class Metric:
    """The definition of a metric: all that is known of it stands here.

    Attributes:
        name: as in metrics.json, `--min NAME=...` and `evaluation.primary_metric`.
        contribute: takes the `Answers` of a task and labelled prediction lines, and returns what each line adds; None
            where the lines don't give this metric. None in place of the function: a figure of the split as a whole,
            which `Answers.figures` computes.
        description: what it is, in a line.
        interval: where its 95 % interval comes from.
        higher_is_better: direction.
        is_fraction: whether it lies between -1 and 1.
        hub_name: what the Hugging Face hub calls it, where that is another name.
    """

    name: str
    contribute: Callable[[Any, Any], "Contributions | None"] | None
    description: str
    interval: str = "none"
    higher_is_better: bool = True
    is_fraction: bool = True
    hub_name: str | None = None


LOSS = Metric(
    "loss",
    lambda answers, lines: answers.losses(lines),
    "mean of the loss that training minimises",
    "bootstrap, studentised",
    higher_is_better=False,
    is_fraction=False,
)
"""The one metric that every task has."""


@dataclass(frozen=True)
class Contributions:
    """What each example adds to a metric.

    Attributes:
        rows: (N, S) numbers; N at least 1.
        family: `share` (one column of 0 and 1, whose mean it is), `mean` (one column of any numbers that are not
            negative), `fraction` (one column of numbers from 0 to 1), `ratio` (sums and what they are divided by), or
            `statistic`.
        make: rows (M, S) to the metric as a function of (R, M) counts of them.
        unseen: (P, S) kinds of examples that the interval takes into account, whether or not they occur here.
        possible: (P, 2 S) pairs of kinds in which two models could differ, whether or not they do here.
        kinds: how the rows are counted for the interval: `joined` (different rows and unseen kinds, each once),
            `apart` (different rows, then the unseen kinds), or `single` (every row by itself).
        method: of the bootstrap.
        is_defined: whether the metric means something here; where it does not, it is 0 and has no interval.
        higher_is_better: direction.
    """

    rows: Floats
    family: Literal["share", "mean", "fraction", "ratio", "statistic"]
    make: Callable[[Floats], Statistic]
    unseen: Floats
    possible: Floats
    kinds: Literal["joined", "apart", "single"] = "apart"
    method: Literal["bca", "percentile"] = "bca"
    is_defined: bool = True
    higher_is_better: bool = True

    @cached_property
    def value(self) -> float:
        """The metric of all examples."""
        if not self.is_defined:
            return 0.0
        if self.family == "statistic":
            kinds, counts = self._counted
            return float(self.make(kinds)(counts[None, :].astype(np.float64))[0])
        return float(self._linear.mean())

    @property
    def _linear(self) -> Floats:
        """(N,) values whose mean is the metric."""
        first: Floats = self.rows[:, 0]
        if self.family != "ratio":
            return first
        # A ratio of sums behaves like the mean of its linear part (the delta method), whose mean is the ratio itself.
        weights = self.rows[:, 1]
        value = float(first.sum() / weights.sum())
        linear: Floats = value + (first - value * weights) / weights.mean()
        return linear

    @cached_property
    def _counted(self) -> tuple[Floats, NDArray[np.int64]]:
        """(M, S) kinds of examples, and (M,) how often each occurs."""
        if self.kinds == "single":
            return self.rows, np.ones(len(self.rows), dtype=np.int64)
        if self.kinds == "joined":
            kinds, counts = _unique(np.vstack([self.rows, self.unseen]))
            _, extra = _unique(np.vstack([kinds, self.unseen]))
            return kinds, counts - (extra - 1)
        kinds, counts = _unique(self.rows)
        return np.vstack([kinds, self.unseen]), np.concatenate([counts, np.zeros(len(self.unseen), dtype=np.int64)])

    def metric(self, *, resamples: int = RESAMPLES, seed: int = 0) -> MetricValue:
        """Returns the metric with its 95 % interval, as metrics.json has it."""
        low, high = self._interval(resamples, seed)
        return MetricValue(self.value, low, high, len(self.rows), self.higher_is_better)

    def _interval(self, resamples: int, seed: int) -> tuple[float | None, float | None]:
        n = len(self.rows)
        if self.family == "share":
            return wilson_interval(int(self.rows.sum()), n)
        if self.family in ("mean", "ratio"):
            if n < 2:
                return None, None
            low, high = mean_interval(self._linear, resamples=resamples, seed=seed)
            return max(0.0, low), high
        if not self.is_defined:
            return None, None
        kinds, counts = self._counted
        low, high = bootstrap_interval(self.make(kinds), counts, resamples=resamples, seed=seed, method=self.method)
        # The mean of many fractions, added up in another order, may leave the interval by its last digit.
        return min(low, self.value), max(high, self.value)

    def difference(self, other: "Contributions", *, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
        """Returns this model's metric minus the other's, on the same examples in the same order."""
        if self.family == "share":
            return share_difference(self.rows[:, 0] > 0, other.rows[:, 0] > 0)
        if self.family == "mean" and len(self.rows) > 1:
            return mean_difference(self.rows[:, 0], other.rows[:, 0], resamples=resamples, seed=seed)
        return bootstrap_difference(
            self.rows, other.rows, self.make, possible=self.possible, resamples=resamples, seed=seed, method=self.method
        )

    def agrees_with(self, value: float) -> bool:
        """Returns whether the examples give the value that stands in metrics.json."""
        return abs(self.value - value) <= _CLOSE * max(1.0, abs(value))


def share(right: Sequence[bool] | NDArray[np.bool_]) -> Contributions:
    """Returns the share of examples that are right: N at least 1."""
    rows = np.array(right, dtype=np.float64)[:, None]
    return Contributions(rows, "share", mean_statistic, np.empty((0, 1)), np.array([[1.0, 0.0], [0.0, 1.0]]))


def mean(values: Floats) -> Contributions:
    """Returns the mean of (N,) values that are not negative, such as errors."""
    return Contributions(values[:, None], "mean", mean_statistic, np.empty((0, 1)), np.empty((0, 2)))


def fraction(values: Floats) -> Contributions:
    """Returns the mean of (N,) values from 0 to 1, of which many may be equal."""
    # Answers that are wholly wrong or right could occur even where none did: the interval has to know of them.
    unseen, possible = np.array([[0.0], [1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    return Contributions(values[:, None], "fraction", mean_statistic, unseen, possible, kinds="joined")


def loss(sums: Floats, weights: NDArray[np.number]) -> Contributions:
    """Returns the mean loss over everything that is counted (examples, words, windows); lower is better.

    Args:
        sums: (N,) summed loss of each example, not negative; N at least 1.
        weights: (N,) how many things each sum is over; at least one is positive.

    Raises:
        DivergedError: losses that are not finite.
    """
    refuse_not_finite(sums, "losses")
    if (weights == 1).all():
        return replace(mean(sums), higher_is_better=False)
    rows = np.stack([sums, weights.astype(np.float64)], axis=1)
    nothing = np.empty((0, 2)), np.empty((0, 4))
    return Contributions(rows, "ratio", ratio_statistic, *nothing, higher_is_better=False)


def mean_statistic(rows_MS: Floats) -> Statistic:
    """Returns the mean of the first column, as a function of counts."""
    # No matrix product: the same bits with any number of BLAS threads.
    return lambda counts: (counts * rows_MS[:, 0]).sum(axis=1) / counts.sum(axis=1)


def ratio_statistic(rows_MS: Floats) -> Statistic:
    """Returns the sum of the first column divided by that of the second, as a function of counts."""
    return lambda counts: ratio(*(np.einsum("rm,m->r", counts, column) for column in rows_MS.T))


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Returns quotients, 0 where there is nothing to divide by."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def refuse_not_finite(values: NDArray[np.floating], what: str) -> None:
    """Raises DivergedError where some of the values are infinite or not a number: JSON has no word for them."""
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise DivergedError(
            f"{bad} of {values.size} {what} are not finite numbers",
            remedy="The model has diverged: lower optimizer.learning_rate, or set runtime.precision=fp32.",
        )


def _unique(rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Returns the different rows in lexicographic order, and how often each occurs."""
    if rows.shape[1] == 1:  # many times faster than for rows of several numbers
        values, counts = np.unique(rows[:, 0], return_counts=True)
        return values[:, None], counts.astype(np.int64)
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    return kinds, counts.astype(np.int64)
