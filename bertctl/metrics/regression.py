"""Metrics of scores.

The correlations equal scipy's; they are written out because they run on 1,000 resamples at once.

Letters: N examples, R resamples, G different values.
"""

import math
from collections.abc import Callable

import numpy as np

from bertctl.arrays import Floats, Ints
from bertctl.metrics.contributions import Contributions
from bertctl.metrics.resampling import Statistic
from bertctl.metrics.statistics import mean_ranks


def pearson(gold: Floats, predicted: Floats) -> Contributions:
    """Returns the Pearson correlation of (N,) scores; see `_correlated`.

    Predictions are standardised: models that answer on different scales are compared by what the
    metric looks at.
    """
    return _correlated(gold, predicted, pearson_statistic, standardised)


def spearman(gold: Floats, predicted: Floats) -> Contributions:
    """Returns the Spearman rank correlation of (N,) scores.

    Ties are at their mean rank; see `_correlated`.

    Predictions are ranks: models that answer on different scales are compared by what the metric
    looks at.
    """
    return _correlated(gold, predicted, spearman_statistic, mean_ranks)


def standardised(values: Floats) -> Floats:
    """Returns the values as distances from their mean, in standard deviations.

    They must not be constant.
    """
    distances: Floats = (values - values.mean()) / values.std()
    return distances


def _correlated(
    gold: Floats,
    predicted: Floats,
    of_pairs: Callable[[Floats, Floats], Statistic],
    comparable: Callable[[Floats], Floats],
) -> Contributions:
    """Returns a correlation of scores.

    If all scores are equal, or there is a single example, it is undefined (scipy returns NaN with a
    warning). It counts as 0 in comparisons, as one answer to all is worth nothing. Two examples
    have no interval. Time grows with N x resamples: 1,500 rows of STS-B take 0.1 s for 1,000.

    Args:
        gold: (N,) scores.
        predicted: (N,) scores.
        of_pairs: The correlation as a function of how often each pair counts.
        comparable: Brings a model's predictions onto the scale that all models share.
    """

    def make(rows_MS: Floats) -> Statistic:
        """Returns the correlation of (M, 2) gold and predicted scores, by counts of pairs."""
        x = rows_MS[:, 0]
        y = rows_MS[:, 1]
        if _is_constant(x) or _is_constant(y):
            return lambda counts: np.zeros(len(counts))
        return of_pairs(x, y)

    defined = len(gold) >= 2 and not _is_constant(gold) and not _is_constant(predicted)
    rows = np.stack([gold, comparable(predicted) if defined else predicted], axis=1)
    unseen = np.empty((0, 2))
    possible = np.empty((0, 4))
    return Contributions(
        rows,
        "statistic",
        make,
        unseen,
        possible,
        kinds="single",
        method="percentile",
        is_defined=defined,
        lowest=-1.0,
    )


def rmse(gold: Floats, predicted: Floats) -> Contributions:
    """Returns the root of the mean squared error of (N,) scores, in their own unit."""
    errors = ((gold - predicted) ** 2)[:, None]

    def make(rows_MS: Floats) -> Statistic:
        """Returns the root of the mean of (M, 1) squared errors, by (R, M) counts of rows."""
        return lambda counts: np.sqrt(
            np.einsum("rm,m->r", counts, rows_MS[:, 0]) / counts.sum(axis=1)
        )

    return Contributions(
        rows=errors,
        family="statistic",
        make=make,
        unseen=np.empty((0, 1)),
        possible=np.empty((0, 2)),
        kinds="single",
        method="percentile",
        highest=math.inf,
        of_mean=math.sqrt,
    )


def r2(gold: Floats, predicted: Floats) -> Contributions:
    """Returns R squared of (N,) scores.

    It is 1 for exact answers, 0 for the mean of the gold scores, and negative below that.

    It is undefined where the gold scores are all the same.
    """
    # Centred, as sums of squares far from 0 would lose digits.
    rows = np.stack([gold - gold.mean(), predicted - gold.mean()], axis=1)

    def make(rows_MS: Floats) -> Statistic:
        """Returns R squared of (M, 2) centred gold and predicted scores, by counts of rows."""
        x = rows_MS[:, 0]
        squared_errors = (x - rows_MS[:, 1]) ** 2

        def statistic(counts_RM: Floats) -> Floats:
            """Returns (R,) R squared of counts of rows with gold scores x and `squared_errors`."""
            # einsum, not a matrix product: the same bits with any number of BLAS threads.
            n = counts_RM.sum(axis=1)
            unexplained = np.einsum("rm,m->r", counts_RM, squared_errors)
            sums = np.einsum("rm,m->r", counts_RM, x)
            sums_of_squares = np.einsum("rm,m->r", counts_RM, x * x)
            spread = sums_of_squares - sums**2 / n
            # The spread of equal gold scores is 0 but for rounding; R squared is then taken as 0.
            is_constant = spread <= 1e-14 * n * np.square(x).mean()
            divisors = np.where(is_constant, 1.0, spread)
            return np.where(is_constant, 0.0, 1.0 - unexplained / divisors)

        return statistic

    return Contributions(
        rows=rows,
        family="statistic",
        make=make,
        unseen=np.empty((0, 2)),
        possible=np.empty((0, 4)),
        kinds="single",
        method="percentile",
        is_defined=len(gold) >= 2 and not _is_constant(gold),
        lowest=-math.inf,
    )


def _is_constant(values: Floats) -> bool:
    """Returns whether values are all equal, or differ by rounding alone.

    scipy warns of a constant input at the same threshold.
    """
    mean = values.mean()
    centred = values - mean
    is_rounding = np.linalg.norm(centred) <= 1e-13 * abs(mean)
    return bool(is_rounding or not centred.any())


def _correlation(
    covariance_R: Floats, variance_x_R: Floats, variance_y_R: Floats, smallest: float
) -> Floats:
    """Returns (R,) correlations from the covariance and the variances in each resample.

    A correlation is NaN if a variance is at most `smallest`: the resample then has a single value,
    and its variance is rounding errors only.
    """
    defined = (variance_x_R > smallest) & (variance_y_R > smallest)
    product = np.sqrt(np.where(defined, variance_x_R * variance_y_R, 1.0))
    return np.where(defined, np.clip(covariance_R / product, -1.0, 1.0), math.nan)


def pearson_statistic(x_N: Floats, y_N: Floats) -> Statistic:
    """Returns the Pearson correlation as a function of how often each pair counts.

    Neither x nor y may be constant.
    """
    x_N = standardised(x_N)
    y_N = standardised(y_N)
    columns = (x_N, y_N, x_N * y_N, x_N * x_N, y_N * y_N)

    def pearson(counts_RN: Floats) -> Floats:
        """Returns (R,) correlations of the standardised x and y; `columns` has their products too.

        A resample whose x or y have no variance, but for rounding, gets NaN.
        """
        # einsum, not a matrix product: the same bits with any number of BLAS threads.
        n_R = counts_RN.sum(axis=1)
        # (R,) means of x, y and their products over the pairs that each resample has.
        x, y, xy, xx, yy = (np.einsum("rn,n->r", counts_RN, column) / n_R for column in columns)
        return _correlation(
            covariance_R=xy - x * y,
            variance_x_R=xx - x * x,
            variance_y_R=yy - y * y,
            smallest=1e-14,
        )

    return pearson


def spearman_statistic(x_N: Floats, y_N: Floats) -> Statistic:
    """Returns the Spearman correlation as a function of how often each of N pairs counts.

    Equal values have their mean rank. Ranks are computed for each different value of x or y, of
    which `group_x` and `group_y` have the number for each pair.
    """
    # Pairs are in the order of x from here on; `by_y` sorts them by y.
    order = np.argsort(x_N, kind="stable")
    y_sorted = y_N[order]
    by_y = np.argsort(y_sorted, kind="stable")
    _, starts_x, group_x = np.unique(x_N[order], return_index=True, return_inverse=True)
    _, starts_y = np.unique(y_sorted[by_y], return_index=True)
    _, group_y = np.unique(y_sorted, return_inverse=True)

    def spearman(counts_RN: Floats) -> Floats:
        """Returns the (R,) correlations of the ranks that pairs have in each resample.

        `order` sorts the pairs by x, and `by_y` then sorts them by y. `group_x` and `group_y` have
        the number of each pair's value, and `starts_x` and `starts_y` where a value begins.
        """
        counts_RN = counts_RN[:, order]
        mean = (counts_RN.sum(axis=1, keepdims=True) + 1) / 2
        sizes_x, ranks_x = _mean_ranks(counts_RN, starts_x)
        sizes_y, ranks_y = _mean_ranks(counts_RN[:, by_y], starts_y)
        ranks_x = ranks_x - mean
        ranks_y = ranks_y - mean
        covariance = np.einsum("rn,rn->r", counts_RN * ranks_x[:, group_x], ranks_y[:, group_y])
        variance_x = np.einsum("rg,rg->r", sizes_x * ranks_x, ranks_x)
        variance_y = np.einsum("rg,rg->r", sizes_y * ranks_y, ranks_y)
        # Ranks are multiples of one half, so a variance below this one is 0.
        return _correlation(covariance, variance_x, variance_y, smallest=0.25)

    return spearman


def _mean_ranks(counts_RN: Floats, starts_G: Ints) -> tuple[Floats, Floats]:
    """Returns (R, G) how often each of G different values was drawn, and (R, G) their mean ranks.

    Ranks follow from the counts, so that resamples need no sorting.

    Args:
        counts_RN: How often each of N examples was drawn, in the order of their values.
        starts_G: Position of the first example with each value.
    """
    sizes_RG = np.add.reduceat(counts_RN, starts_G, axis=1)
    return sizes_RG, np.cumsum(sizes_RG, axis=1) - (sizes_RG - 1) / 2
