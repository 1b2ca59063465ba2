"""Label metrics against scikit-learn, and the answers that make them undefined."""

import time
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bertctl.metrics.classification import f1_of_labels
from bertctl.metrics.statistics import wilson_interval
from tests.scoring import classification_metrics, multi_label_metrics


def _labels(n, n_labels, share_right, seed):
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, n_labels, n)
    return gold, np.where(rng.random(n) < share_right, gold, rng.integers(0, n_labels, n))


def _score(gold, predicted, n_labels, positive=None, resamples=100):
    return classification_metrics(
        np.asarray(gold),
        np.asarray(predicted),
        n_labels=n_labels,
        positive=positive,
        resamples=resamples,
        seed=1,
    )


@pytest.mark.parametrize("positive", [0, 1])
def test_two_labels_equal_scikit_learn(positive):
    gold, predicted = _labels(872, 2, 0.7, seed=positive)
    metrics = _score(gold, predicted, 2, positive)
    assert metrics["accuracy"].value == pytest.approx(accuracy_score(gold, predicted), abs=1e-12)
    assert metrics["f1"].value == pytest.approx(
        f1_score(gold, predicted, pos_label=positive), abs=1e-12
    )
    assert metrics["matthews"].value == pytest.approx(matthews_corrcoef(gold, predicted), abs=1e-12)


@pytest.mark.parametrize("n_labels", [2, 3, 17])
def test_many_labels_equal_scikit_learns_macro(n_labels):
    gold, predicted = _labels(300, n_labels, 0.5, seed=n_labels)
    metrics = _score(gold, predicted, n_labels)
    assert metrics["f1"].value == pytest.approx(
        f1_score(gold, predicted, average="macro"), abs=1e-12
    )
    assert metrics["matthews"].value == pytest.approx(matthews_corrcoef(gold, predicted), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12),
    positive=st.sampled_from([None, 0, 3]),
)
def test_any_answers_equal_scikit_learn_and_lie_in_finite_intervals(pairs, positive):
    gold, predicted = np.array(pairs).T
    metrics = _score(gold, predicted, 4, positive)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, about what is undefined
        average = (
            {"average": "macro"} if positive is None else {"labels": [positive], "average": "macro"}
        )
        assert metrics["f1"].value == pytest.approx(
            f1_score(gold, predicted, zero_division=0, **average), abs=1e-12
        )
        assert metrics["matthews"].value == pytest.approx(
            matthews_corrcoef(gold, predicted), abs=1e-12
        )
    for metric in metrics.values():
        has_interval = metric.low is not None
        assert has_interval or len(pairs) == 1
        assert not has_interval or -1 <= metric.low <= metric.value <= metric.high <= 1


def test_matthews_of_one_slip_in_a_million_equals_scikit_learn():
    gold = np.zeros(1_000_000, dtype=np.int64)
    gold[:2] = 1
    predicted = gold.copy()
    predicted[5] = 1
    assert _score(gold, predicted, 2, 1)["matthews"].value == pytest.approx(
        matthews_corrcoef(gold, predicted), abs=1e-12
    )


def test_accuracy_has_wilsons_interval_and_all_name_n_and_direction():
    gold, predicted = _labels(150, 2, 0.8, seed=3)
    metrics = _score(gold, predicted, 2, 1)
    right = int((gold == predicted).sum())
    assert (metrics["accuracy"].low, metrics["accuracy"].high) == wilson_interval(right, 150)
    assert {metric.n for metric in metrics.values()} == {150}
    assert all(metric.higher_is_better for metric in metrics.values())


def test_intervals_are_the_same_for_a_seed_and_in_any_order_of_examples():
    gold, predicted = _labels(500, 3, 0.8, seed=3)
    order = np.random.default_rng(9).permutation(500)
    assert (
        _score(gold, predicted, 3)
        == _score(gold, predicted, 3)
        == _score(gold[order], predicted[order], 3)
    )


def test_one_answer_to_all_has_matthews_zero_and_an_interval_that_admits_what_was_not_seen():
    gold = np.arange(150) % 2
    matthews = _score(gold, np.ones(150, dtype=int), 2, 1)["matthews"]
    assert matthews.value == 0.0
    assert -0.2 < matthews.low < 0.0 < matthews.high < 0.2


def test_no_error_seen_is_no_proof_of_none():
    gold = np.arange(150) % 2
    metrics = _score(gold, gold, 2, 1)
    assert [metric.value for metric in metrics.values()] == [1.0, 1.0, 1.0]
    assert [metric.high for metric in metrics.values()] == [1.0, 1.0, 1.0]
    assert 0.96 < metrics["f1"].low < 0.99
    assert 0.93 < metrics["matthews"].low < 0.97


def test_positive_label_that_never_occurs_has_f1_zero():
    metrics = _score([0, 0, 0], [0, 0, 0], 2, 1)
    assert metrics["f1"].value == 0.0
    assert metrics["f1"].high > 0.5  # three examples tell next to nothing


@pytest.mark.slow  # a wall clock decides
def test_forty_thousand_rows_take_no_time():
    gold, predicted = _labels(40_430, 2, 0.8, seed=1)
    start = time.perf_counter()
    f1 = _score(gold, predicted, 2, 1, resamples=1000)["f1"]
    assert time.perf_counter() - start < 0.5
    assert 0.005 < f1.high - f1.low < 0.02


def test_several_labels_equal_scikit_learn():
    rng = np.random.default_rng(2)
    gold = rng.random((400, 5)) < [0.5, 0.3, 0.1, 0.02, 0.0]
    predicted = gold ^ (rng.random((400, 5)) < 0.1)
    metrics = multi_label_metrics(gold, predicted, resamples=200, seed=1)
    assert metrics["accuracy"].value == pytest.approx(accuracy_score(gold, predicted), abs=1e-12)
    for name, average in (("f1_micro", "micro"), ("f1_macro", "macro")):
        expected = f1_score(gold, predicted, average=average, zero_division=0)
        assert metrics[name].value == pytest.approx(expected, abs=1e-12)
        assert metrics[name].low < expected < metrics[name].high


def test_several_labels_all_right_all_wrong_or_none_at_all():
    gold = np.array([[True, False, True]] * 20 + [[False, True, False]] * 20)
    perfect = multi_label_metrics(gold, gold, resamples=100, seed=1)
    assert all(metric.value == 1.0 and 0.5 < metric.low < 1.0 for metric in perfect.values())
    wrong = multi_label_metrics(gold, ~gold, resamples=100, seed=1)
    assert all(metric.value == 0.0 and 0.0 < metric.high < 0.7 for metric in wrong.values())
    nothing = multi_label_metrics(
        np.zeros((5, 2), bool), np.zeros((5, 2), bool), resamples=100, seed=1
    )
    assert nothing["accuracy"].value == 1.0
    assert nothing["f1_micro"].value == nothing["f1_macro"].value == 0.0


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_thousands_of_labels_need_no_table_of_them_all(average):
    gold, predicted = _labels(300, 3000, 0.7, seed=5)
    tracemalloc.start()
    metric = f1_of_labels(gold, predicted, n_labels=3000, of=average).metric(resamples=100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert metric.value == pytest.approx(
        f1_score(gold, predicted, average=average, zero_division=0), abs=1e-12
    )
    assert metric.low < metric.value < metric.high
    assert peak < 8 * 3000**2, "one table of 3,000 labels"
