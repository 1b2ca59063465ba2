"""Score metrics and losses against scipy and scikit-learn, and what is undefined."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import (
    mean_absolute_error,
    mean_squared_error,
    r2_score,
    root_mean_squared_error,
)

from bertctl.errors import DivergedError, ExitCode
from bertctl.metrics import regression
from bertctl.tasks.registry import known_metrics
from bertctl.tasks.regression.score_answers import ScoreAnswers
from tests.scoring import lines_of, loss_metric, regression_metrics


def _scores(n, seed=0):
    """Like STS-B: gold from 0 to 5 with many ties, predictions as float32."""
    rng = np.random.default_rng(seed)
    gold = np.round(rng.uniform(0, 5, n) * 5) / 5
    return gold, (gold * 0.8 + rng.normal(0, 0.7, n)).astype(np.float32)


def test_values_equal_scipy_and_scikit_learn():
    gold, predicted = _scores(700)
    metrics = regression_metrics(gold, predicted, resamples=100, seed=1)
    assert metrics["pearson"].value == pytest.approx(
        stats.pearsonr(gold, predicted).statistic, abs=1e-9
    )
    exact = predicted.astype(np.float64)
    assert metrics["pearson"].value == pytest.approx(
        stats.pearsonr(gold, exact).statistic, abs=1e-12
    )
    assert metrics["spearman"].value == pytest.approx(
        stats.spearmanr(gold, exact).statistic, abs=1e-12
    )
    assert metrics["mse"].value == pytest.approx(mean_squared_error(gold, exact), abs=1e-12)
    assert not metrics["mse"].higher_is_better
    assert metrics["pearson"].higher_is_better


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=15))
def test_values_with_ties_equal_scipy_and_lie_in_their_intervals(pairs):
    gold, predicted = np.array(pairs, dtype=np.float64).T
    metrics = regression_metrics(gold, predicted, resamples=100, seed=1)
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        assert (
            metrics["pearson"].as_json()["value"] is metrics["spearman"].as_json()["value"] is None
        )
        assert metrics["pearson"].low is metrics["pearson"].high is metrics["spearman"].low is None
        return
    assert metrics["pearson"].value == pytest.approx(
        stats.pearsonr(gold, predicted).statistic, abs=1e-12
    )
    assert metrics["spearman"].value == pytest.approx(
        stats.spearmanr(gold, predicted).statistic, abs=1e-12
    )
    for metric in metrics.values():
        assert metric.low <= metric.value <= metric.high


@pytest.mark.parametrize(
    ("name", "of_sample"),
    [
        ("pearson", stats.pearsonr),
        pytest.param("spearman", stats.spearmanr, marks=pytest.mark.slow),
    ],
)
def test_intervals_equal_scipys_bootstrap(name, of_sample):
    gold, predicted = _scores(120, seed=4)
    predicted = predicted.astype(np.float64)
    drawn = np.random.default_rng(8).integers(0, 120, (4000, 120))
    expected = np.quantile(
        [of_sample(gold[row], predicted[row]).statistic for row in drawn], [0.025, 0.975]
    )
    metric = regression_metrics(gold, predicted, resamples=4000, seed=1)[name]
    assert (metric.low, metric.high) == pytest.approx(
        expected, abs=0.05 * (expected[1] - expected[0])
    )


@pytest.mark.parametrize("predicted", [np.full(50, 2.5), np.full(50, 0.1) + np.arange(50) * 1e-17])
def test_a_constant_prediction_is_worth_nothing_and_warns_of_nothing(predicted):
    metrics = regression_metrics(np.linspace(0, 5, 50), predicted, resamples=100, seed=1)
    for name in ("pearson", "spearman"):
        written = metrics[name].as_json()
        assert written["value"] is None
        assert written["low"] is None
        assert written["high"] is None
    assert metrics["mse"].low < metrics["mse"].value < metrics["mse"].high


def test_one_example_has_no_correlation():
    metrics = regression_metrics(np.ones(1), np.ones(1), resamples=100, seed=1)
    assert metrics["pearson"].as_json()["value"] is metrics["spearman"].as_json()["value"] is None
    assert metrics["mse"].n == 1


@pytest.mark.parametrize("predicted", [[1.0, 2.0], [3.0, -1.0], [1e9, 1e9 + 1]])
def test_two_examples_have_the_correlation_of_scipy_and_no_interval(predicted):
    gold = np.arange(2.0)
    predicted = np.array(predicted)
    metrics = regression_metrics(gold, predicted, resamples=100, seed=1)
    assert metrics["pearson"].value == pytest.approx(stats.pearsonr(gold, predicted).statistic)
    assert metrics["spearman"].value == pytest.approx(stats.spearmanr(gold, predicted).statistic)
    assert metrics["pearson"].low is metrics["spearman"].high is None


def test_errors_and_r2_equal_scikit_learn_and_lie_in_their_intervals():
    gold, predicted = _scores(300)
    predicted = predicted.astype(np.float64)
    metrics = ScoreAnswers().score(lines_of(gold, predicted), resamples=200, seed=1)
    assert metrics["mae"].value == pytest.approx(mean_absolute_error(gold, predicted), abs=1e-12)
    assert metrics["rmse"].value == pytest.approx(
        root_mean_squared_error(gold, predicted), abs=1e-12
    )
    assert metrics["r2"].value == pytest.approx(r2_score(gold, predicted), abs=1e-12)
    for name in ("mae", "rmse", "r2"):
        assert metrics[name].low < metrics[name].value < metrics[name].high


def test_r2_of_answers_worse_than_the_mean_is_negative_and_of_equal_gold_scores_undefined():
    gold = np.linspace(0, 5, 30)
    assert ScoreAnswers().score(lines_of(gold, -gold), resamples=0, seed=1)["r2"].value < -1
    constant = (
        ScoreAnswers().score(lines_of(np.ones(30), gold), resamples=100, seed=1)["r2"].as_json()
    )
    assert constant["value"] is None
    assert constant["low"] is None


@pytest.mark.parametrize("offset", [0.0, 1e9, -1.7e9, 1e12])
def test_gold_scores_keep_their_64_bits(offset):
    gold = np.array([0.5, 1.5, 0.5, 2.5]) + offset
    metrics = ScoreAnswers().score(lines_of(gold, gold - [0, 0, 0, 1.0]), resamples=0, seed=1)
    assert metrics["mse"].value == metrics["mae"].value == 0.25
    assert metrics["rmse"].value == 0.5


def test_perfect_predictions():
    gold = np.linspace(0, 5, 40)
    metrics = regression_metrics(gold, gold, resamples=100, seed=1)
    assert metrics["pearson"].value == pytest.approx(1.0)
    assert metrics["spearman"].value == 1.0
    assert metrics["mse"].value == 0.0
    assert metrics["mse"].low == 0.0
    assert metrics["mse"].high == 0.0


def test_predictions_that_are_all_one_but_one_give_finite_intervals():
    predicted = np.zeros(30)
    predicted[3] = 1.0  # a third of the resamples lack it and are constant
    metrics = regression_metrics(np.linspace(0, 5, 30), predicted, resamples=500, seed=1)
    for metric in metrics.values():
        assert np.isfinite([metric.low, metric.high]).all()


def test_not_a_number_is_a_diverged_model():
    with pytest.raises(DivergedError, match="1 of 3 predictions") as caught:
        ScoreAnswers().score(lines_of(np.arange(3.0), [1.0, np.nan, 2.0]), resamples=100, seed=1)
    assert caught.value.exit_code == ExitCode.DIVERGED
    with pytest.raises(DivergedError, match="2 of 3 losses"):
        loss_metric(np.array([np.inf, 0.1, np.nan]), np.ones(3), resamples=100, seed=1)


def test_loss_is_the_mean_and_lower_is_better():
    losses = np.random.default_rng(1).exponential(0.3, 500)
    metric = loss_metric(losses, np.ones(len(losses)), resamples=1000, seed=1)
    assert metric.value == pytest.approx(losses.mean(), rel=1e-6)
    assert 0 <= metric.low < metric.value < metric.high
    assert metric.n == 500
    assert metric.higher_is_better is False
    assert loss_metric(np.array([0.4]), np.ones(1), resamples=100, seed=1).low is None


def test_same_seed_same_numbers():
    gold, predicted = _scores(200)
    first = regression_metrics(gold, predicted, resamples=300, seed=1)
    again = regression_metrics(gold, predicted, resamples=300, seed=1)
    other = regression_metrics(gold, predicted, resamples=300, seed=2)
    assert first == again
    assert first["spearman"].low != other["spearman"].low


@pytest.mark.slow  # a wall clock decides
def test_fifteen_hundred_rows_of_spearman_in_half_a_second():
    gold, predicted = _scores(1500)
    start = time.perf_counter()
    regression_metrics(gold, predicted, resamples=1000, seed=1)
    assert time.perf_counter() - start < 1.0  # all three; Spearman alone takes about 0.15 s


def test_every_metric_that_is_computed_has_a_row():
    gold, predicted = _scores(10)
    names = set(regression_metrics(gold, predicted, resamples=100, seed=1)) | {"loss"}
    metrics = known_metrics()
    assert names <= set(metrics)
    assert {name for name, row in metrics.items() if not row.higher_is_better} == {
        "mse",
        "rmse",
        "mae",
        "loss",
        "perplexity",
    }
    assert all(row.name == name and row.description for name, row in metrics.items())


@pytest.mark.parametrize("n", [8, 200])
def test_intervals_of_rmse_and_r2_go_beyond_0_and_1(n):
    rng = np.random.default_rng(3)
    gold = 10 * rng.normal(size=n)
    predicted = -gold + rng.normal(size=n)

    rmse = regression.rmse(gold, predicted).metric(resamples=200)
    r2 = regression.r2(gold, predicted).metric(resamples=200)

    assert 1 < rmse.low < rmse.value < rmse.high
    assert r2.low < r2.value < r2.high < 0
