"""Paired differences against statsmodels and scipy on made tables.

It is also counted how often they are wrong in simulated ones.
"""

import math
from itertools import product

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.metrics import f1_score
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep

from bertctl.metrics.classification import f1_of_labels
from bertctl.metrics.paired import (
    bootstrap_difference,
    detectable,
    holm,
    mcnemar,
    mean_difference,
    score_interval,
    share_difference,
    unpaired_difference,
)
from bertctl.metrics.regression import pearson_statistic, spearman_statistic
from bertctl.metrics.statistics import wilson_interval
from bertctl.metrics.value import MetricValue

TABLES = [(0, 1), (1, 0), (3, 3), (9, 2), (12, 30), (150, 97), (2000, 1800), (52_000, 53_000)]


@pytest.mark.parametrize(("only_a", "only_b"), TABLES)
def test_mcnemar_equals_statsmodels(only_a, only_b):
    table = [[70, only_a], [only_b, 11]]
    assert mcnemar(only_a, only_b) == pytest.approx(
        statsmodels_mcnemar(table, exact=True).pvalue, rel=1e-9
    )


def test_mcnemar_without_a_discordant_example_knows_of_no_difference():
    assert mcnemar(0, 0) == 1.0


def _likeliest_score(only_a, only_b, n, shift):
    """Computes the score at a difference.

    Its likeliest share is found by a general optimizer instead of Tango's formula.
    """

    def unlikelihood(q):
        counts_and_shares = [
            (only_a, q + shift),
            (only_b, q),
            (n - only_a - only_b, 1 - 2 * q - shift),
        ]
        total = 0.0
        for count, share in counts_and_shares:
            if count:
                total -= count * math.log(share)
        return total

    lowest = max(0.0, -shift) + 1e-12
    highest = (1 - shift) / 2 - 1e-12
    likeliest = optimize.minimize_scalar(
        unlikelihood,
        bounds=(lowest, highest),
        method="bounded",
        options={"xatol": 1e-13},
    )
    variance = n * (2 * likeliest.x + shift - shift**2)
    return (only_a - only_b - n * shift) / math.sqrt(variance)


@pytest.mark.parametrize(
    ("only_a", "only_b", "n"), [(9, 2, 100), (3, 8, 60), (40, 25, 872), (1, 1, 30)]
)
def test_the_score_intervals_ends_are_1_96_standard_errors_away(only_a, only_b, n):
    low, high = score_interval(only_a, only_b, n)
    assert low < (only_a - only_b) / n < high
    z = stats.norm.ppf(0.975)
    assert _likeliest_score(only_a, only_b, n, low) == pytest.approx(z, abs=1e-4)
    assert _likeliest_score(only_a, only_b, n, high) == pytest.approx(-z, abs=1e-4)


def test_the_score_interval_without_a_discordant_example_is_wilsons_both_ways():
    high = wilson_interval(0, 150)[1]
    assert score_interval(0, 0, 150) == pytest.approx((-high, high), abs=1e-9)


def _discordant_tables(n, share_a, share_b):
    """Every table that has a chance worth counting: (only a, only b, chance)."""
    most = [int(stats.binom.isf(1e-7, n, share)) for share in (share_a, share_b)]
    for only_a, only_b in product(range(most[0] + 1), range(most[1] + 1)):
        if only_a + only_b <= n:
            rest = n - only_a - only_b
            yield (
                only_a,
                only_b,
                stats.multinomial.pmf(
                    [only_a, only_b, rest], n, [share_a, share_b, 1 - share_a - share_b]
                ),
            )


@pytest.mark.parametrize(
    ("n", "share_a", "share_b"), [(150, 0.05, 0.05), (150, 0.08, 0.03), (400, 0.04, 0.02)]
)
def test_the_score_interval_covers_93_to_97_percent(n, share_a, share_b):
    covered = sum(
        chance
        for only_a, only_b, chance in _discordant_tables(n, share_a, share_b)
        if score_interval(only_a, only_b, n)[0]
        <= share_a - share_b
        <= score_interval(only_a, only_b, n)[1]
    )
    assert 0.93 <= covered <= 0.97


def _shares(only_a, only_b, n):
    right_a = np.zeros(n, dtype=bool)
    right_b = np.zeros(n, dtype=bool)
    right_a[:only_a] = True
    right_b[only_a : only_a + only_b] = True
    return right_a, right_b


@pytest.mark.parametrize(("n", "share"), [(60, 0.03), (150, 0.02), (150, 0.06)])
def test_equal_models_have_an_interval_below_zero_in_at_most_2_5_percent(n, share):
    """Computed, not simulated.

    The score interval alone would say so of 4 to nothing, one time in 16.
    """
    wrong = sum(
        chance
        for only_a, only_b, chance in _discordant_tables(n, share, share)
        if only_a < only_b and share_difference(*_shares(only_a, only_b, n)).high < 0
    )
    assert 0 < wrong <= 0.025
    assert score_interval(0, 4, n)[1] < 0 <= share_difference(*_shares(0, 4, n)).high


@pytest.mark.parametrize(("only_a", "only_b"), [(5, 0), (9, 2), (12, 30)])
def test_the_exchange_test_of_a_share_is_mcnemars(only_a, only_b):
    a, b = (right[:, None].astype(float) for right in _shares(only_a, only_b, 100))
    difference = bootstrap_difference(
        a, b, lambda rows: lambda counts: counts @ rows[:, 0] / counts.sum(axis=1)
    )
    assert difference.p == pytest.approx(mcnemar(only_a, only_b), rel=1e-9)
    assert difference.value == pytest.approx((only_a - only_b) / 100)
    assert difference.changed == only_a + only_b


def _label_rows(n, seed, right=(0.8, 0.7)):
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 2, n)
    return [
        np.stack([gold, np.where(rng.random(n) < share, gold, 1 - gold)], axis=1).astype(float)
        for share in right
    ]


def _make_f1(rows):
    gold = rows[:, 0].astype(int)
    predicted = rows[:, 1].astype(int)
    cells = 2 * gold + predicted
    f1 = f1_of_labels(gold, predicted, n_labels=2, of=1)
    return f1.make(cells[:, None].astype(float))


def _scipy_f1_difference(a, b):
    return f1_score(a // 2, a % 2, zero_division=0) - f1_score(b // 2, b % 2, zero_division=0)


@pytest.mark.slow
def test_the_exchange_test_of_f1_equals_scipys_exact_permutation_test():
    a, b = _label_rows(60, seed=3, right=(0.9, 0.8))
    assert 3 <= int((a != b).any(axis=1).sum()) <= 16
    coded = [2 * rows[:, 0] + rows[:, 1] for rows in (a, b)]
    keep = coded[0] != coded[1]
    same = coded[0][~keep]

    def statistic(x, y):
        return _scipy_f1_difference(np.concatenate([same, x]), np.concatenate([same, y]))

    expected = stats.permutation_test(
        (coded[0][keep], coded[1][keep]),
        statistic,
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=False,
    )
    assert bootstrap_difference(a, b, _make_f1).p == pytest.approx(expected.pvalue, rel=1e-9)


@pytest.mark.slow
def test_the_drawn_exchange_test_equals_scipys_permutation_test():
    rng = np.random.default_rng(4)
    x = rng.normal(size=80)
    y_a = x + rng.normal(0, 0.5, 80)
    y_b = x + rng.normal(0, 0.75, 80)

    def make(rows):
        return spearman_statistic(rows[:, 0], rows[:, 1])

    difference = bootstrap_difference(
        np.stack([x, y_a], 1), np.stack([x, y_b], 1), make, resamples=20_000
    )

    def statistic(entry, other):
        return stats.spearmanr(x, entry).statistic - stats.spearmanr(x, other).statistic

    expected = stats.permutation_test(
        (y_a, y_b),
        statistic,
        permutation_type="samples",
        n_resamples=1_000,
        vectorized=False,
        rng=rng,
    )
    assert difference.value == pytest.approx(statistic(y_a, y_b), abs=1e-12)
    assert difference.p == pytest.approx(expected.pvalue, abs=0.02)
    assert 0.001 < difference.p < 0.2


def test_the_paired_bootstrap_equals_scipys():
    rng = np.random.default_rng(5)
    x = rng.normal(size=120)
    y_a = x + rng.normal(0, 0.5, 120)
    y_b = x + rng.normal(0, 1.5, 120)

    def statistic(x, a, b, axis=-1):
        of_a = stats.pearsonr(x, a, axis=axis)
        of_b = stats.pearsonr(x, b, axis=axis)
        return of_a.statistic - of_b.statistic

    expected = stats.bootstrap(
        (x, y_a, y_b),
        statistic,
        paired=True,
        n_resamples=20_000,
        method="percentile",
        vectorized=True,
        rng=rng,
    ).confidence_interval

    def make(rows):
        return pearson_statistic(rows[:, 0], rows[:, 1])

    rows = np.stack([x, y_a], 1), np.stack([x, y_b], 1)
    difference = bootstrap_difference(*rows, make, resamples=20_000, method="percentile")
    assert difference.low > 0, "or the interval could have been stretched to hold 0"
    width = expected.high - expected.low
    assert (difference.low, difference.high) == pytest.approx(
        (expected.low, expected.high), abs=0.03 * width
    )


def test_a_mean_difference_equals_scipys():
    rng = np.random.default_rng(6)
    a = rng.exponential(1.0, 60)
    b = rng.exponential(1.3, 60)
    difference = mean_difference(a, b, resamples=40_000, seed=1)
    expected = stats.permutation_test(
        (a - b,), np.mean, permutation_type="samples", n_resamples=40_000, vectorized=True, rng=rng
    )
    assert difference.value == pytest.approx((a - b).mean())
    assert difference.p == pytest.approx(expected.pvalue, abs=0.01)
    wide = stats.ttest_rel(a, b).confidence_interval()
    assert (difference.low, difference.high) == pytest.approx(
        (wide.low, wide.high), abs=0.1 * (wide.high - wide.low)
    )


def test_a_mean_difference_of_unequal_clusters_is_that_of_clusters_drawn_again():
    rng = np.random.default_rng(8)
    sizes = rng.geometric(0.1, 60)
    clusters = np.repeat(np.arange(60), sizes)
    cluster_effects = rng.normal(0, 0.05, 60)[clusters]
    row_effects = rng.normal(0, 0.05, clusters.size)
    gaps = 0.5 + cluster_effects + row_effects
    reference = np.full(clusters.size, 3.0)

    difference = mean_difference(reference + gaps, reference, clusters)

    drawn_clusters = rng.integers(0, 60, (4_000, 60))
    sums = np.bincount(clusters, gaps)[drawn_clusters].sum(axis=1)
    counts = sizes[drawn_clusters].sum(axis=1)
    low, high = np.quantile(sums / counts, [0.025, 0.975])
    tolerance = 0.2 * (high - low)
    assert difference.value == pytest.approx(gaps.mean())
    assert difference.low == pytest.approx(low, abs=tolerance)
    assert difference.high == pytest.approx(high, abs=tolerance)


def test_many_means_give_the_normal_p():
    rng = np.random.default_rng(7)
    a = rng.normal(0.012, 1, 30_000)
    difference = mean_difference(a, np.zeros(30_000))
    assert difference.p == pytest.approx(stats.ttest_1samp(a, 0).pvalue, rel=1e-3)


@pytest.mark.parametrize(("a", "b", "n"), [(80, 90, 150), (850, 870, 872), (40, 40, 60)])
def test_an_unpaired_difference_of_proportions_is_newcombes(a, b, n):
    entry, other = (MetricValue(count / n, *wilson_interval(count, n), n) for count in (a, b))
    expected = confint_proportions_2indep(a, n, b, n, method="newcomb", compare="diff")
    difference = unpaired_difference(entry, other)
    assert (difference.low, difference.high) == pytest.approx(expected, abs=1e-9)
    assert difference.changed is None
    assert (difference.p < 0.05) == (difference.low > 0 or difference.high < 0)


def test_an_unpaired_difference_needs_intervals():
    with pytest.raises(ValueError, match="need an interval"):
        unpaired_difference(MetricValue(0.5, None, None, 10), MetricValue(0.5, 0.4, 0.6, 10))


@pytest.mark.parametrize(
    "p_values", [[0.01, 0.04, 0.03, 0.005], [0.5], [0.9, 0.8, 0.02], [0.03, 0.03, 0.03], []]
)
def test_holm_equals_statsmodels(p_values):
    expected = multipletests(p_values, method="holm")[1] if p_values else []
    assert holm(p_values) == pytest.approx(list(expected))


def test_the_detectable_drop_is_found_in_four_of_five_cases():
    rng = np.random.default_rng(8)
    n = 400
    deviation = 1.0
    drop = detectable(-1.96 * deviation / math.sqrt(n), 1.96 * deviation / math.sqrt(n))
    means = rng.normal(-drop, deviation / math.sqrt(n), 200_000)
    assert np.mean(means + 1.96 * deviation / math.sqrt(n) < 0) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("seed", range(6))
def test_interval_and_p_never_contradict_each_other(seed):
    a, b = _label_rows(40, seed, right=(0.95, 0.85))
    difference = bootstrap_difference(a, b, _make_f1, resamples=500)
    assert difference.low <= difference.value <= difference.high
    assert difference.p <= 0.05 or difference.low <= 0 <= difference.high


def test_models_that_never_differ_may_differ_on_what_was_not_seen():
    a, _ = _label_rows(100, seed=1)
    possible = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 1.0]])
    difference = bootstrap_difference(a, a, _make_f1, possible=possible)
    assert difference.p == 1.0
    assert difference.value == 0.0
    assert difference.low == pytest.approx(-difference.high, rel=0.2)
    assert 0.01 < difference.high < 0.08, "as far as one unseen kind of example could move it"


def test_equal_models_f1_is_told_apart_in_at_most_5_percent():
    """Two models with equal chances; of 160 trials 5 % give 8, with three standard errors 16."""
    rng = np.random.default_rng(9)
    below = above = 0
    for _ in range(160):
        a, b = _label_rows(120, int(rng.integers(2**32)), right=(0.9, 0.9))
        difference = bootstrap_difference(a, b, _make_f1, resamples=200)
        below = below + (difference.high < 0)
        above = above + (difference.low > 0)
    assert 0 < below + above <= 16
    assert max(below, above) <= 10, "2.5 % of 160 are 4, with three standard errors 10"
