"""A metric of other counts of the same examples: resamples, and samples that lack an example.

Examples that are alike are one kind, so a sample is the (M,) counts of its kinds.

Letters: R resamples, M kinds of examples, N examples.
"""

from collections.abc import Callable, Iterator

import numpy as np

from bertctl.arrays import Floats, Ints

Statistic = Callable[[Floats], Floats]
"""A metric as a function of how often each kind of example occurs: (R, M) counts to (R,) values
(NaN: undefined)."""

CHUNK = 50_000
"""Counts held in memory at a time (0.4 MB): as many as stay in a core's cache."""

SAME = 1e-12
"""Values this close are the same: only the order of additions differs."""

_ROUNDS_OF_DRAWS = 20
"""How often resamples without a defined value are drawn again, before fewer have to do."""


def counted_kinds(rows: Floats, unseen: Floats | None = None) -> tuple[Floats, Ints, Ints]:
    """Returns (M, S) different rows, (M,) how often each occurs, and (N,) which each row is.

    The different rows are in lexicographic order. Unseen ones are among them, with a count of 0.

    Args:
        rows: (N, S) numbers of examples.
        unseen: (P, S) kinds of rows that could occur.
    """
    if unseen is None:
        everything = rows
    else:
        everything = np.vstack([rows, unseen])
    if rows.shape[1] == 1:  # many times faster than for rows of several numbers
        values, place = np.unique(everything[:, 0], return_inverse=True)
        kinds = values[:, None]
    else:
        kinds, place = np.unique(everything, axis=0, return_inverse=True)
    place = place.ravel()[: len(rows)]
    return kinds, np.bincount(place, minlength=len(kinds)), place


def chunk_sizes(resamples: int, width: int) -> Iterator[int]:
    """Yields numbers of resamples that fit into memory at once, adding up to all."""
    rows = max(1, CHUNK // max(1, width))
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)


def defined_resamples(
    statistic: Statistic, counts_M: Ints, resamples: int, rng: np.random.Generator
) -> Floats:
    """Returns (R,) values of resamples in which the statistic is defined.

    There are fewer than requested if few resamples define it.
    """
    values: list[Floats] = []
    missing = resamples
    for _ in range(_ROUNDS_OF_DRAWS):
        drawn = np.concatenate([statistic(chunk) for chunk in _draw(counts_M, missing, rng)])
        values.append(drawn[~np.isnan(drawn)])
        missing -= values[-1].size
        if missing == 0:
            break
    return np.concatenate(values)


def _draw(counts_M: Ints, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yields the counts of the kinds in resamples, (r, M) for some resamples at a time.

    Args:
        counts_M: How often each kind occurs in the sample.
        resamples: Number of resamples.
        rng: Random generator.
    """
    n = int(counts_M.sum())
    M = counts_M.size
    # A resample is either one multinomial draw, which makes M binomial draws, or n draws of an
    # example's number, each of which is faster.
    few_kinds = n >= 4 * M
    kind_of_example = np.repeat(np.arange(M), counts_M)
    for rows in chunk_sizes(resamples, max(M, 1 if few_kinds else n)):
        if few_kinds:
            yield rng.multinomial(n, counts_M / n, size=rows).astype(np.float64)
        else:
            # One count over all rows: row r counts its kinds from r M on.
            kinds = kind_of_example[rng.integers(0, n, (rows, n))]
            numbers = kinds + M * np.arange(rows)[:, None]
            counts = np.bincount(numbers.ravel(), minlength=rows * M)
            yield counts.reshape(rows, M).astype(np.float64)


def influence(statistic: Statistic, counts_M: Ints) -> Floats:
    """Returns (M,) what one example of each kind adds to a metric: the jackknife's pseudo-values.

    Their mean over the examples is about the metric. Kinds that do not occur have 0.

    Args:
        statistic: The metric as a function of (R, M) counts.
        counts_M: How often each kind occurs.
    """
    pseudo_values = np.zeros(counts_M.size)
    present = np.flatnonzero(counts_M)
    counts = counts_M.astype(np.float64)
    value = float(np.nan_to_num(statistic(counts[None, :])[0]))
    n = float(counts.sum())
    pseudo_values[present] = value + (n - 1) * (value - left_out(statistic, counts_M, present))
    return pseudo_values


def left_out(statistic: Statistic, counts_M: Ints, present: Ints) -> Floats:
    """Returns the jackknife's values: the statistic without one example of each kind.

    A value that is undefined is replaced by that of all examples.

    Args:
        statistic: Function of (R, M) counts.
        counts_M: How often each kind occurs.
        present: Numbers of the kinds to leave one example out of.
    """
    counts = counts_M.astype(np.float64)
    without = with_one_changed(statistic, counts, present, -1)
    value = float(np.nan_to_num(statistic(counts[None, :])[0]))
    return np.where(np.isnan(without), value, without)


def with_one_changed(statistic: Statistic, counts_M: Floats, kinds: Ints, change: float) -> Floats:
    """Returns the statistic for each of these kinds, with the count of that kind alone changed.

    Args:
        statistic: Function of (R, M) counts.
        counts_M: How often each kind occurs.
        kinds: (K,) numbers of the kinds.
        change: Added to the count.
    """
    values: list[Floats] = []
    for rows in chunk_sizes(kinds.size, counts_M.size):
        changed = np.repeat(counts_M[None, :], rows, axis=0)
        changed[np.arange(rows), kinds[:rows]] += change
        values.append(statistic(changed))
        kinds = kinds[rows:]
    return np.concatenate(values)
