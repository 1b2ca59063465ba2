"""Examples that belong together.

They are sentences of a document, questions about an article, or hypotheses of one premise.

A model that errs on one of them errs on others, so they say less than as many independent ones;
they are drawn, and exchanged between two models, as a whole.

Letters: N examples, G clusters, S numbers that describe an example, K units, M kinds of examples, R
resamples.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from bertctl.arrays import Floats, Ints, numbers_of
from bertctl.metrics.resampling import SAME, Statistic, chunk_sizes, counted_kinds
from bertctl.metrics.statistics import FEW_UNITS, degrees_of_freedom, student_stretch

FEW = FEW_UNITS
"""Clusters below which an interval is said to be rough: the spread between so few is not known
well."""

TOO_FEW = 5
"""Clusters below which nothing is decided by an interval: how much they differ can't be estimated
from so few."""


def numbered(keys: Sequence[Hashable]) -> Ints | None:
    """Returns (N,) the number of each example's cluster, from 0; None where each has its own.

    A few texts that stand twice make no clusters: below 5 % of the examples they change no
    interval.
    """
    cluster_numbers, different = numbers_of(keys)
    if len(different) <= 0.95 * len(keys):
        return cluster_numbers
    return None


def number_of(clusters_N: Ints | None) -> int | None:
    """Returns how many clusters there are; None without clusters."""
    if clusters_N is None:
        return None
    return int(clusters_N.max()) + 1


def design_effect(linear_N: Floats, clusters_N: Ints | None) -> float:
    """Returns the design effect: the variance of a mean, divided by that of independent examples.

    It is at least 1, and 1 without clusters. With few clusters it is larger, so that an interval
    with it is as wide as one of Student's distribution.

    Args:
        linear_N: Values whose mean is the metric.
        clusters_N: Number of each example's cluster.
    """
    if clusters_N is None:
        return 1.0
    centred = linear_N - linear_N.mean()
    sums_G: Floats = np.bincount(clusters_N, centred).astype(np.float64)
    return _design_effect(float((centred**2).sum()), sums_G, linear_N.size)


def design_effect_of_ratio(hits_N: Floats, trials_N: Floats, clusters_N: Ints | None) -> float:
    """Returns the design effect of a share: its variance, divided by that of independent trials.

    It is above 1 if trials of an example, or of a cluster of examples, succeed or fail together. An
    example has several trials, or none: entities of a sentence, say.

    Args:
        hits_N: Trials of each example that succeeded.
        trials_N: Trials of each example; at least one is positive.
        clusters_N: Number of each example's cluster; None where examples stand by themselves.
    """
    if clusters_N is None and trials_N.max() <= 1:
        return 1.0

    if clusters_N is None:
        owners = np.arange(trials_N.size)
    else:
        owners = clusters_N
    trials_G = np.bincount(owners, trials_N)
    hits_G = np.bincount(owners, hits_N)
    n_trials = float(trials_G.sum())
    share = float(hits_G.sum()) / n_trials
    has_trials = trials_G > 0
    surplus_G: Floats = (hits_G - share * trials_G)[has_trials]
    return _design_effect(share * (1 - share) * n_trials, surplus_G, n_trials)


def _design_effect(squares: float, sums_G: Floats, n: float) -> float:
    """Returns the design effect (Kish 1965) from the spread of examples and of the clusters' sums.

    Args:
        squares: Sum of the squared distances of single examples, or trials, from their mean.
        sums_G: Sum of these distances in each cluster.
        n: Examples or trials.
    """
    G = sums_G.size
    if G < 2 or squares <= SAME:  # without any spread, each cluster counts as one example
        return n / G
    squares_of_clusters = G / (G - 1) * float((sums_G**2).sum())
    return max(1.0, squares_of_clusters / squares) * student_stretch(degrees_of_freedom(G)) ** 2


def cluster_means(values_N: Floats, clusters_N: Ints | None) -> Floats:
    """Returns (G,) a value for each cluster, such that their mean is that of the examples' values.

    It is the sum of the cluster's values, scaled by G / N. Without clusters, each example is one.

    Args:
        values_N: Values of the examples.
        clusters_N: Number of each example's cluster; None without clusters.
    """
    if clusters_N is None:
        return values_N
    sums: Floats = np.bincount(clusters_N, values_N).astype(np.float64)
    return sums * (sums.size / values_N.size)


def cluster_units(
    clusters_N: Ints, models: Sequence[Floats], unseen: Floats, make: Callable[[Floats], Statistic]
) -> tuple[list[Floats], Floats, Callable[[Floats], Statistic]]:
    """Returns rows that stand for clusters, so that a bootstrap draws clusters instead of examples.

    A unit is what is drawn: a cluster as one model answers it, or an unseen kind of example, taken
    as a cluster of mean size. A row has one column, the number of the unit.

    Args:
        clusters_N: Number of each example's cluster.
        models: (N, S) rows of one model, or of each of two.
        unseen: (P, S) kinds of examples that could occur.
        make: Rows (M, S) to the metric as a function of how often each counts.

    Returns:
        The (G, 1) rows of the clusters for each model, with the same unit where both models answer
        a cluster alike; the (P, 1) rows of the unseen kinds; and `make` for such rows.
    """
    from scipy import sparse

    N = clusters_N.size
    G = int(clusters_N.max()) + 1
    kinds, _, kind_of_row = counted_kinds(np.vstack([*models, unseen]))
    # Units are numbered: the first model's clusters, those of the second one, the unseen kinds.
    unit_of_row = np.concatenate([clusters_N + G * number for number in range(len(models))])
    units = G * len(models) + np.arange(len(unseen))
    # How many examples of each kind a unit has: a row per unit, a column per kind. Each example
    # adds 1 to its cluster. The unit of an unseen kind has N / G examples of this kind.
    n_units = G * len(models) + units.size
    added = np.concatenate([np.ones(unit_of_row.size), np.full(units.size, N / G)])
    cells = (np.concatenate([unit_of_row, units]), kind_of_row)
    content = sparse.csr_array((added, cells), shape=(n_units, len(kinds)))

    def of_units(units_K1: Floats) -> Statistic:
        """Returns the metric as a function of how often each of K units counts.

        A unit is a cluster, or an unseen kind of example. It consists of so many examples of each
        kind: these numbers are its row in `content`.

        Args:
            units_K1: (K, 1) numbers of the units.
        """
        content_of_units = content[units_K1[:, 0].astype(np.int64)]
        metric_of_kinds = make(kinds)  # a function of how often each kind of example counts

        def statistic(counts_RK: Floats) -> Floats:
            """Returns the (R,) metric of (R, K) counts of units.

            A row of `content_of_units` has how many examples of each kind a unit has.
            """
            # Counts of units become counts of kinds, a chunk of resamples at a time to save memory.
            ends = np.cumsum([*chunk_sizes(len(counts_RK), len(kinds))])
            chunks = np.split(counts_RK, ends[:-1])
            metrics = []
            for chunk_RK in chunks:
                counts_of_kinds = np.asarray((content_of_units.T @ chunk_RK.T).T)
                metrics.append(metric_of_kinds(counts_of_kinds))
            return np.concatenate(metrics)

        return statistic

    numbers = [np.arange(G)[:, None] for _ in models]
    if len(models) > 1:
        # The second model has units of its own for clusters that it answers in another way.
        differs = np.bincount(clusters_N, (models[0] != models[1]).any(axis=1)) > 0
        numbers[1] = numbers[1] + G * differs[:, None]
    return (
        [column.astype(np.float64) for column in numbers],
        units[:, None].astype(np.float64),
        of_units,
    )
