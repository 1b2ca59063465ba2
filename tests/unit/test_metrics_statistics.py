"""Intervals against scipy, and the cases in which resampling has nothing to say."""

import time
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from bertctl.metrics.statistics import (
    bootstrap_interval,
    mean_interval,
    share_interval,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("successes", "n"), [(0, 10), (10, 10), (1, 3), (789, 872), (148, 150), (40000, 40430)]
)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_wilson_equals_scipy(successes, n, confidence):
    expected = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert wilson_interval(successes, n, confidence) == pytest.approx(
        (expected.low, expected.high), abs=1e-12
    )


def test_wilson_knows_nothing_without_examples():
    assert wilson_interval(0, 0) == (0.0, 1.0)


def _median_free_statistic(values):
    """A skewed function of the mean and the mean square, in both conventions."""

    def of_counts(counts):
        n = counts.sum(axis=1)
        return np.sqrt(counts @ values**2 / n) / (counts @ values / n)

    def of_sample(sample, axis):
        return np.sqrt((sample**2).mean(axis=axis)) / sample.mean(axis=axis)

    return of_counts, of_sample


@pytest.mark.parametrize(("method", "scipys"), [("bca", "BCa"), ("percentile", "percentile")])
def test_bootstrap_equals_scipys(method, scipys):
    values = np.random.default_rng(5).lognormal(0, 0.8, 60)
    of_counts, of_sample = _median_free_statistic(values)
    expected = stats.bootstrap(
        (values,),
        of_sample,
        n_resamples=40_000,
        method=scipys,
        vectorized=True,
        rng=np.random.default_rng(1),
    ).confidence_interval
    low, high = bootstrap_interval(
        of_counts, values.size, resamples=40_000, seed=2, method=method, stretched=False
    )
    # Two independent sets of resamples: the ends differ by about 1 % of the width. BCa's and
    # percentile's differ by 10.
    assert (low, high) == pytest.approx(
        (expected.low, expected.high), abs=0.02 * (expected.high - expected.low)
    )


def test_bca_and_percentile_differ_on_skewed_data():
    of_counts, _ = _median_free_statistic(np.random.default_rng(5).lognormal(0, 0.8, 60))
    ends = [
        bootstrap_interval(of_counts, 60, resamples=20_000, seed=2, method=m)
        for m in ("bca", "percentile")
    ]
    width = ends[0][1] - ends[0][0]
    assert abs(ends[0][1] - ends[1][1]) > 0.05 * width


def test_counted_kinds_give_the_interval_of_listed_examples():
    kinds = np.array([0.0, 1.0, 3.0])
    counts = np.array([50, 30, 20])
    listed = np.repeat(kinds, counts)
    by_kind = bootstrap_interval(
        lambda c: c @ kinds / c.sum(axis=1), counts, resamples=40_000, seed=1
    )
    by_example = bootstrap_interval(
        lambda c: c @ listed / c.sum(axis=1), 100, resamples=40_000, seed=1
    )
    assert by_kind == pytest.approx(by_example, abs=0.02)


def test_studentised_interval_equals_scipys_t_where_data_are_normal():
    values = np.random.default_rng(3).normal(5, 1, 400)
    standard_error = stats.sem(values)
    expected = stats.t.interval(0.95, 399, loc=values.mean(), scale=standard_error)

    interval = mean_interval(values, resamples=40_000, seed=1)

    assert interval == pytest.approx(expected, abs=0.01)


def test_studentised_interval_of_skewed_losses_reaches_further_up_than_down():
    values = np.random.default_rng(3).lognormal(0, 1, 200)
    low, high = mean_interval(values, resamples=2000, seed=1)
    assert high - values.mean() > 1.2 * (values.mean() - low)


def test_studentised_interval_passes_into_the_normal_one_without_a_step():
    values = np.random.default_rng(3).lognormal(0, 1, 20_000)
    normal = mean_interval(values, resamples=4000, seed=1)
    studentised = mean_interval(values[:-1], resamples=4000, seed=1)
    assert studentised == pytest.approx(normal, abs=0.1 * (normal[1] - normal[0]))


def test_one_outlier_does_not_stretch_the_interval_without_bound():
    values = np.full(150, 0.01)
    values[7] = 5.0
    low, high = mean_interval(values, resamples=1000, seed=1)
    assert values.mean() < high < 20 * values.mean()
    assert np.isfinite(low)


@pytest.mark.parametrize("n", [2, 3, 150])
def test_equal_losses_have_an_interval_of_no_width(n):
    low, high = mean_interval(np.full(n, 0.7), resamples=100, seed=0)
    assert low == pytest.approx(0.7)
    assert high == pytest.approx(0.7)


def test_same_seed_same_interval_and_another_seed_another():
    values = np.random.default_rng(0).exponential(size=300)

    def mean(counts):
        return counts @ values / values.size

    ends = [bootstrap_interval(mean, 300, resamples=500, seed=seed) for seed in (1, 1, 2)]
    assert ends[0] == ends[1] != ends[2]
    means = [mean_interval(values, resamples=500, seed=seed) for seed in (1, 1, 2)]
    assert means[0] == means[1] != means[2]


def test_resamples_done_in_portions_are_the_same_as_at_once(monkeypatch):
    values = np.random.default_rng(0).integers(0, 9, 300).astype(float)

    def mean(counts):
        return counts @ values / values.size

    def intervals():
        table = np.array([700, 200, 300])
        return (
            bootstrap_interval(mean, 300, resamples=500, seed=1),
            bootstrap_interval(lambda c: c[:, 1] / c.sum(axis=1), table, resamples=500, seed=1),
            mean_interval(values, resamples=500, seed=1),
        )

    at_once = intervals()
    monkeypatch.setattr("bertctl.metrics.resampling.CHUNK", 1_000)
    assert intervals() == at_once


def test_interval_holds_the_value_and_grows_with_confidence():
    table = np.array([3, 1, 40])
    ends = [
        bootstrap_interval(
            lambda c: c[:, 2] / c.sum(axis=1), table, resamples=2000, seed=4, confidence=level
        )
        for level in (0.8, 0.95, 0.99)
    ]
    assert all(low <= 40 / 44 <= high for low, high in ends)
    assert all(wide[0] < narrow[0] for narrow, wide in pairwise(ends))
    assert all(wide[1] >= narrow[1] for narrow, wide in pairwise(ends))


def test_without_a_single_error_the_interval_is_wilsons():
    low, high = bootstrap_interval(
        lambda c: c[:, 0] / c.sum(axis=1), np.array([150, 0]), resamples=500, seed=0
    )
    assert (low, high) == pytest.approx(wilson_interval(150, 150), abs=1e-12)


@pytest.mark.slow  # a wall clock decides
def test_a_table_with_very_many_empty_cells_is_quick_where_all_agree():
    counts = np.zeros(90 * 90, dtype=np.int64)
    counts[0] = 500
    start = time.perf_counter()
    low, high = bootstrap_interval(lambda c: c[:, 0] / c.sum(axis=1), counts, resamples=100, seed=0)
    assert (low, high) == pytest.approx(wilson_interval(500, 500), abs=1e-12)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("n", [6, 18, 60, 99])
def test_the_low_end_of_a_share_of_few_lies_above_the_truth_in_at_most_2_5_percent(n):
    for successes in range(1, n + 1):
        low, _ = share_interval(successes, n)

        assert stats.binom.sf(successes - 1, n, low) <= 0.025 + 1e-9


@pytest.mark.parametrize("n", [100, 150, 300])
def test_the_low_end_of_a_share_of_many_lies_above_the_truth_in_at_most_3_percent(n):
    for successes in range(1, n + 1):
        low, _ = share_interval(successes, n)

        assert stats.binom.sf(successes - 1, n, low) <= 0.0305
