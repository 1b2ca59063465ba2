"""What each example adds to a metric, and what a metric is.

A metric of a whole split can't be compared example by example; what each example adds to it can:
whether it was right, which cell of the confusion table it falls into, how many of its entities were
found. That and a function from counts of such rows to the metric is all that values, intervals,
paired differences and slices need, so all four have one definition.

Letters: N examples, M kinds of examples, P kinds that could occur, R resamples, S numbers that
describe an example.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from bertctl.arrays import Array, Bools, Floats, Ints
from bertctl.errors import DivergedError
from bertctl.metrics import resampling, statistics
from bertctl.metrics.clusters import (
    cluster_means,
    cluster_units,
    design_effect,
    design_effect_of_ratio,
    number_of,
)
from bertctl.metrics.paired import (
    RESAMPLES,
    Difference,
    bootstrap_difference,
    mean_difference,
    share_difference,
)
from bertctl.metrics.value import MetricValue

_CLOSE = 1e-4
"""Difference from metrics.json that rounding explains: predictions are written as they were
computed, in 32 bits."""

_FEWEST_DRAWN = 3
"""Examples below which resamples of a correlation say nothing: of two, half hold one example
twice."""


@dataclass(frozen=True)
class Metric:
    """The definition of a metric: all that is known of it stands here.

    Attributes:
        name: Name in metrics.json, `--min NAME=...` and `evaluation.primary_metric`.
        contribute: Takes the `Answers` of a task and labelled prediction lines, and returns what
            each line adds; None where the lines don't give this metric. None in place of the
            function: a figure of the split as a whole, which `Answers.figures` computes.
        description: What it is, in a line.
        higher_is_better: Direction.
        is_fraction: Whether it lies between -1 and 1.
        hub_name: What the Hugging Face hub calls it, where that is another name.
        is_detail: Whether tables and comparisons leave it out unless it is the primary one.
    """

    name: str
    contribute: Callable[[Any, Any], "Contributions | None"] | None
    description: str
    higher_is_better: bool = True
    is_fraction: bool = True
    hub_name: str | None = None
    is_detail: bool = False


LOSS = Metric(
    "loss",
    lambda answers, lines: answers.losses(lines),
    "mean of the loss that training minimises",
    higher_is_better=False,
    is_fraction=False,
)
"""The one metric that every task has."""


def same_share(share: float) -> float:
    """Returns the share: the metric of a `Proportion` that is the share of hits itself."""
    return share


def f1_of_overlap(share: float) -> float:
    """Returns F1 from Jaccard's index J: 2 J / (1 + J).

    Args:
        share: J, how many things are gold and answered, divided by how many are at least one.
    """
    return 2 * share / (1 + share)


@dataclass(frozen=True)
class Proportion:
    """Hits among trials, of which a metric is a growing function.

    Its interval is the share's, with that function.

    Precision is a share of what was answered, recall of what is gold. F1 = 2 TP / (2 TP + FP + FN)
    is 2 J / (1 + J) of the share J = TP / (TP + FP + FN) of everything that is gold, answered or
    both.

    Attributes:
        hits: (N,) of each example.
        trials: (N,) of each example, at least as many as hits.
        metric: The metric as a function of the share.
    """

    hits: Floats
    trials: Floats
    metric: Callable[[float], float] = same_share

    def interval(self, clusters: Ints | None) -> tuple[float, float]:
        """Returns the 95 % interval of the metric.

        Trials of one example, or of one cluster, may succeed or fail together, so they count as
        fewer independent trials: their number is divided by the design effect.

        Args:
            clusters: (N,) number of the group that an example belongs to; None where each stands by
                itself.
        """
        n_trials = float(self.trials.sum())
        if n_trials == 0:
            return self.metric(0.0), self.metric(1.0)
        effect = design_effect_of_ratio(self.hits, self.trials, clusters)
        low, high = statistics.share_interval(float(self.hits.sum()) / effect, n_trials / effect)
        return self.metric(low), self.metric(high)


@dataclass(frozen=True)
class Contributions:
    """What each example adds to a metric.

    Attributes:
        rows: (N, S) numbers; N at least 1.
        family: `share` (one column of 0 and 1, whose mean it is), `mean` (one column of any numbers
            that are not negative), `fraction` (one column of numbers from 0 to 1), `ratio` (sums
            and what they are divided by), or `statistic`.
        make: Rows (M, S) to the metric as a function of (R, M) counts of them.
        unseen: (P, S) kinds of examples that the interval takes into account, whether or not they
            occur here.
        possible: (P, 2 S) pairs of kinds in which two models could differ, whether or not they do
            here.
        kinds: How the rows are counted for the interval: `joined` (different rows and unseen kinds,
            each once) or `single` (every row by itself).
        method: Method of the interval: a bootstrap, or `posterior` where `unseen` and `possible`
            have every kind there can be.
        is_defined: Whether the metric means something here; where it does not, it is 0 and has no
            interval.
        higher_is_better: Direction.
        is_dear: Whether it takes so long that many examples have to do with fewer resamples, at
            least 200.
        clusters: (N,) number of the group that an example belongs to; None where each stands by
            itself.
        proportion: Hits and trials behind the metric; None where it is no function of a share.
        lowest: Least value that the metric can have.
        highest: Greatest value that it can have.
        of_mean: The metric as a growing function of the mean of the first column, which is not
            negative; None where it is no such function.
    """

    rows: Floats
    family: Literal["share", "mean", "fraction", "ratio", "statistic"]
    make: Callable[[Floats], resampling.Statistic]
    unseen: Floats
    possible: Floats
    kinds: Literal["joined", "single"] = "joined"
    method: statistics.Method = "bca"
    is_defined: bool = True
    higher_is_better: bool = True
    is_dear: bool = False
    clusters: Ints | None = None
    proportion: Proportion | None = None
    lowest: float = 0.0
    highest: float = 1.0
    of_mean: Callable[[float], float] | None = None

    @cached_property
    def value(self) -> float:
        """The metric of all examples."""
        if not self.is_defined:
            return 0.0
        if self.family == "statistic":
            kinds, counts, _ = self._counted
            return float(np.nan_to_num(self.make(kinds)(counts[None, :].astype(np.float64))[0]))
        return float(self._linear.mean())

    @property
    def _linear(self) -> Floats:
        """(N,) values whose mean is the metric."""
        values: Floats = self.rows[:, 0]
        if self.family != "ratio":
            return values
        # A ratio of sums behaves like the mean of its linear part (the delta method), whose mean is
        # the ratio itself.
        weights = self.rows[:, 1]
        ratio_of_sums = float(values.sum() / weights.sum())
        linear: Floats = ratio_of_sums + (values - ratio_of_sums * weights) / weights.mean()
        return linear

    @cached_property
    def _counted(self) -> tuple[Floats, Ints, Ints]:
        """(M, S) kinds of examples, (M,) how often each occurs, and (N,) which each example is."""
        if self.kinds == "single":
            n = len(self.rows)
            return self.rows, np.ones(n, dtype=np.int64), np.arange(n)
        return resampling.counted_kinds(self.rows, self.unseen)

    def metric(
        self, *, resamples: int = RESAMPLES, seed: int = 0, thorough: bool = False
    ) -> MetricValue:
        """Returns the metric with its 95 % interval, as metrics.json has it.

        Args:
            resamples: Number of resamples of the bootstrap; 0 for the value alone.
            seed: Seed of the bootstrap.
            thorough: Whether to draw up to 10,000 resamples where they take about 0.1 s.
        """
        if thorough:
            n_affordable = statistics.CHEAP // self._numbers_per_resample()
            resamples = max(resamples, min(statistics.DRAWS, n_affordable))
        # A metric that takes long gets fewer resamples for many examples, but at least 200.
        if resamples and self.is_dear:
            resamples = max(200, min(resamples, 10 * statistics.CHEAP // self.rows.size))
        if resamples:
            low, high = self._interval(resamples, seed)
        else:
            low = None
            high = None
        return MetricValue(
            self.value,
            low,
            high,
            n=len(self.rows),
            higher_is_better=self.higher_is_better,
            clusters=number_of(self.clusters),
            is_defined=self.is_defined,
        )

    def _numbers_per_resample(self) -> int:
        """Returns how many counts are drawn for one resample, as a measure of its time."""
        width = max(1, len(self.rows))
        if self.family not in ("mean", "ratio"):
            width = max(width, len(self._counted[0]))
        if self.kinds == "single":  # ranks and sums of pairs take ten times as long
            width *= 10
        return width

    def _interval(self, resamples: int, seed: int) -> tuple[float | None, float | None]:
        """Returns the 95 % interval by the method that suits the metric's family.

        A share has a score interval, a mean a studentised bootstrap, and any other statistic a
        posterior or bootstrap interval. It is None, None where examples are too few or the metric
        is not defined.
        """
        units = number_of(self.clusters) or len(self.rows)
        # One example or cluster doesn't show how they differ.
        if self.family == "statistic" and units < 2:
            return None, None
        if self.proportion is not None:
            return self.proportion.interval(self.clusters)
        if self.family in ("mean", "ratio"):
            return self._interval_of_mean(self._linear, resamples, seed)
        # The metric grows with a mean, such as the root of a mean of squares: the interval of the
        # mean is converted.
        if self.of_mean is not None:
            low, high = self._interval_of_mean(self.rows[:, 0], resamples, seed)
            if low is None or high is None:
                return None, None
            return self.of_mean(low), self.of_mean(high)
        if not self.is_defined or (self.method == "percentile" and len(self.rows) < _FEWEST_DRAWN):
            return None, None

        # Any other metric is a function of how often each kind of example (different row) occurs.
        kinds, counts, kind_of_example = self._counted
        statistic = self.make(kinds)
        method = self.method
        if method == "posterior":
            # Examples of one cluster are alike, so they count as fewer independent ones.
            influences = resampling.influence(statistic, counts)[kind_of_example]
            effect = design_effect(influences, self.clusters)
            low, high = statistics.posterior_interval(statistic, counts / effect, seed=seed)
        else:
            # The bootstrap draws clusters, or examples if each is by itself.
            if self.clusters is not None:
                statistic, counts = self._by_cluster(self.clusters)
            scale = statistics.Scale(self.lowest, self.highest)
            low, high = statistics.statistic_interval(
                statistic,
                counts,
                resamples=resamples,
                seed=seed,
                method=method,
                scale=scale,
            )
        # `value` may be outside the interval by its last digit: the resamples add up the same
        # numbers in another order.
        return max(self.lowest, min(low, self.value)), min(self.highest, max(high, self.value))

    def _interval_of_mean(
        self, values: Floats, resamples: int, seed: int
    ) -> tuple[float | None, float | None]:
        """Returns the interval of the mean of (N,) values that are not negative.

        It is None, None if all values are in one cluster, or only one value is given.
        """
        # Clusters have different sizes, so their sums differ even if all values are equal. Sums of
        # differences from the mean don't.
        mean = float(values.mean())
        units = mean + cluster_means(values - mean, self.clusters)
        if len(units) < 2:
            return None, None
        low, high = statistics.mean_interval(
            units,
            resamples=resamples,
            seed=seed,
            never_negative=True,
        )
        return max(0.0, low), high

    def _by_cluster(self, clusters: Ints) -> tuple[resampling.Statistic, Ints]:
        """Returns the metric as a function of how often each cluster counts, and these counts.

        Each cluster counts once, each kind of example that could have occurred not at all.
        """
        (units,), unseen, make = cluster_units(clusters, [self.rows], self.unseen, self.make)
        counts = np.zeros(len(units) + len(unseen), dtype=np.int64)
        counts[: len(units)] = 1
        return make(np.vstack([units, unseen])), counts

    def linear_parts(self) -> Floats:
        """Returns a value for each example or cluster, such that their mean is the metric.

        Their spread is that of the metric. For a metric that is neither a mean nor a ratio of sums,
        they are the jackknife's pseudo-values. More than 2,000 examples are joined in blocks, like
        clusters.
        """
        n = len(self.rows)
        clusters = self.clusters
        # The jackknife computes the metric once for each unit, so there may not be too many.
        if clusters is None and n > statistics.MAX_KINDS:
            n_blocks = statistics.MAX_KINDS // 4
            clusters = np.arange(n) % n_blocks
        if self.family != "statistic":
            return self.value + cluster_means(self._linear - self.value, clusters)
        if clusters is None:
            kinds, counts, kind_of_example = self._counted
            return resampling.influence(self.make(kinds), counts)[kind_of_example]
        # A cluster counts once. Unseen kinds, which count 0 times, have no value.
        statistic, counts = self._by_cluster(clusters)
        return resampling.influence(statistic, counts)[counts > 0]

    def difference(self, other: "Contributions") -> Difference:
        """Returns this model's metric minus the other's, on the same examples in the same order.

        The test suits the family: McNemar's for shares, and exchanges of answers for the rest.
        """
        a = self.rows
        b = other.rows
        clusters = self.clusters
        if self.family == "share":
            return share_difference(a[:, 0] > 0, b[:, 0] > 0, clusters)
        if self.family == "mean" and len(a) > 1:
            return mean_difference(a[:, 0], b[:, 0], clusters)
        return bootstrap_difference(
            a,
            b,
            self.make,
            possible=self.possible,
            method=self.method,
            clusters=clusters,
        )

    def agrees_with(self, value: float) -> bool:
        """Returns whether the examples give the value that stands in metrics.json."""
        return abs(self.value - value) <= _CLOSE * max(1.0, abs(value))


def share(is_right: Sequence[bool] | Bools) -> Contributions:
    """Returns the share of (N,) examples that are right, such as accuracy; N is at least 1."""
    rows = np.array(is_right, dtype=np.float64)[:, None]
    unseen = np.empty((0, 1))
    # Two models differ if one is right and the other is wrong.
    possible = np.array([[1.0, 0.0], [0.0, 1.0]])
    proportion = Proportion(rows[:, 0], np.ones(len(rows)))
    return Contributions(
        rows,
        family="share",
        make=mean_statistic,
        unseen=unseen,
        possible=possible,
        proportion=proportion,
    )


def mean(values: Floats) -> Contributions:
    """Returns the mean of (N,) values that are not negative, such as errors."""
    return Contributions(
        rows=values[:, None],
        family="mean",
        make=mean_statistic,
        unseen=np.empty((0, 1)),
        possible=np.empty((0, 2)),
    )


def fraction(values: Floats) -> Contributions:
    """Returns the mean of (N,) values from 0 to 1, of which many may be equal, such as F1."""
    # Answers that are wholly wrong or right could occur even where none did: the interval has to
    # know of them.
    unseen = np.array([[0.0], [1.0]])
    possible = np.array([[1.0, 0.0], [0.0, 1.0]])
    return Contributions(
        rows=values[:, None],
        family="fraction",
        make=mean_statistic,
        unseen=unseen,
        possible=possible,
    )


def loss(sums: Floats, weights: Array) -> Contributions:
    """Returns the mean loss over everything that is counted; lower is better.

    Examples, words or windows are counted.

    Args:
        sums: (N,) summed loss of each example, not negative; N at least 1.
        weights: (N,) how many things each sum is over; at least one is positive.

    Raises:
        DivergedError: Losses that are not finite.
    """
    refuse_not_finite(sums, "losses")
    if (weights == 1).all():
        return replace(mean(sums), higher_is_better=False)
    rows = np.stack([sums, weights.astype(np.float64)], axis=1)
    return Contributions(
        rows,
        family="ratio",
        make=ratio_statistic,
        unseen=np.empty((0, 2)),
        possible=np.empty((0, 4)),
        higher_is_better=False,
    )


def mean_statistic(rows_MS: Floats) -> resampling.Statistic:
    """Returns the mean of the first column, as a function of counts."""
    # No matrix product: the same bits with any number of BLAS threads.
    return lambda counts: (counts * rows_MS[:, 0]).sum(axis=1) / counts.sum(axis=1)


def ratio_statistic(rows_MS: Floats) -> resampling.Statistic:
    """Returns the sums of the first column divided by those of the second, by counts of rows."""
    numerators_M, denominators_M = rows_MS.T

    def statistic(counts_RM: Floats) -> Floats:
        sums_R = np.einsum("rm,m->r", counts_RM, numerators_M)
        return ratio(sums_R, np.einsum("rm,m->r", counts_RM, denominators_M), undefined=math.nan)

    return statistic


def ratio(numerator: Floats, denominator: Floats, *, undefined: float = 0.0) -> Floats:
    """Returns quotients, and `undefined` where there is nothing to divide by."""
    return np.divide(
        numerator,
        denominator,
        out=np.full_like(numerator, undefined),
        where=denominator > 0,
    )


def mean_of_defined(values_RC: Floats) -> Floats:
    """Returns the (R,) means of the values that are no NaN; NaN where all are."""
    is_defined = ~np.isnan(values_RC)
    return ratio(
        np.where(is_defined, values_RC, 0.0).sum(axis=1), is_defined.sum(axis=1), undefined=math.nan
    )


def refuse_not_finite(values: Array, noun: str) -> None:
    """Raises DivergedError where some of the values are infinite or not a number.

    JSON has no word for them.
    """
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise DivergedError(
            f"{bad} of {values.size} {noun} are not finite numbers",
            remedy="The model has diverged: lower optimizer.learning_rate, or set "
            "runtime.precision=fp32.",
        )
