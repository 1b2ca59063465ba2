"""How often a gate lets a model pass that is exactly at its limit.

After a choice, and against the constant answer.
"""

import math

import numpy as np
import pytest
from scipy import stats

from bertctl.metrics import classification, contributions
from bertctl.metrics.paired import simultaneous
from bertctl.reporting.limits import against_constant, decide
from bertctl.reporting.runs import FITTED

TRIALS = 2_000
MOST = 0.035


def _right(rng, evaluations, n, share=0.85):
    """Draws (evaluations, n) right answers of models of the same quality.

    The models were trained one from the other.
    """
    of_examples = rng.normal(size=n)
    of_answers = rng.normal(size=(evaluations, n))
    hardness = math.sqrt(0.7) * of_examples + math.sqrt(0.3) * of_answers
    return hardness < stats.norm.ppf(share)


def _f1(gold, right):
    return classification.f1_of_labels(gold, np.where(right, gold, 1 - gold), n_labels=2, of=1)


def _passes(value, ends, k, limit):
    low, high = simultaneous(value, ends, k, at_least=True)
    return decide(value, low, high, limit, at_least=True, policy="strict") == "pass"


@pytest.mark.slow
@pytest.mark.parametrize("n", [150, 400, 872])
@pytest.mark.parametrize("evaluations", [1, 4, 20])
def test_the_best_of_many_evaluations_passes_its_limit_in_at_most_3_5_percent(n, evaluations):
    rng = np.random.default_rng([n, evaluations])
    passed = dict.fromkeys(
        ["accuracy", "accuracy, plain interval", "f1", "drop", "drop from one evaluation"], 0
    )
    for _ in range(TRIALS):
        gold = rng.integers(0, 2, n)
        ours = _right(rng, evaluations, n)
        theirs = _right(rng, evaluations, n)
        best = ours[ours.mean(axis=1).argmax()]
        other = theirs[theirs.mean(axis=1).argmax()]
        share = contributions.share(best)
        metric = share.metric()
        f1 = _f1(gold, best).metric()
        passed["accuracy"] += _passes(metric.value, (metric.low, metric.high), evaluations, 0.85)
        passed["accuracy, plain interval"] += _passes(
            metric.value, (metric.low, metric.high), 1, 0.85
        )
        passed["f1"] += _passes(f1.value, (f1.low, f1.high), evaluations, 0.85)
        for name, against, k in (
            ("drop", other, 1),
            ("drop from one evaluation", theirs[0], evaluations),
        ):
            change = share.difference(contributions.share(against))
            passed[name] += _passes(change.value, (change.low, change.high), k, 0.0)
    message = (
        f"n {n}, best of {evaluations}: "
        f"{ ({name: 100 * count / TRIALS for name, count in passed.items()}) }"
    )
    print(message)  # noqa: T201 - the figures of the documents
    passed.pop("accuracy, plain interval")
    assert max(passed.values()) <= MOST * TRIALS, message


@pytest.mark.slow
@pytest.mark.parametrize("n", [150, 400, 872])
@pytest.mark.parametrize("policy", ["strict", "lenient"])
def test_a_model_as_good_as_the_constant_answer_passes_in_at_most_3_5_percent(n, policy):
    """It answers as often right as the majority, but not on the same examples."""
    rng = np.random.default_rng([n, len(policy)])
    passed = dict.fromkeys(["accuracy", "f1", "matthews"], 0)
    for _ in range(TRIALS):
        gold = (rng.random(n) < 0.68).astype(np.int64)
        values = np.where(rng.random(n) < 0.68, gold, 1 - gold)  # as accurate as the majority
        entry = (rng.random(n) < 0.95).astype(np.int64)  # reads nothing
        everything = np.ones(n, dtype=np.int64)
        f1 = classification.f1_of_labels(gold, entry, n_labels=2, of=1).metric()
        constant = classification.f1_of_labels(gold, everything, n_labels=2, of=1).value
        matthews = classification.matthews(gold, entry, n_labels=2).metric()
        pairs = (
            (contributions.share(values == gold).metric(), float(gold.mean())),
            (f1, constant),
            (matthews, 0.0),
        )
        for name, (metric, baseline) in zip(passed, pairs, strict=True):
            passed[name] += against_constant(metric, baseline, policy) == "pass"
    values = (
        f"n {n}, {policy}: { ({name: 100 * count / TRIALS for name, count in passed.items()}) }"
    )
    print(values)  # noqa: T201 - the figures of the documents
    assert max(passed.values()) <= MOST * TRIALS, values


def _true_f1(threshold, distance, positive):
    actual = positive * stats.norm.sf(threshold - distance)
    return 2 * actual / (actual + (1 - positive) * stats.norm.sf(threshold) + positive)


@pytest.mark.slow
@pytest.mark.parametrize("n", [150, 400, 872])
@pytest.mark.parametrize("positive", [0.2, 0.5])
def test_a_threshold_fitted_on_the_split_passes_the_models_true_f1_in_at_most_3_5_percent(
    n, positive
):
    rng = np.random.default_rng([n, round(10 * positive)])
    passed = dict.fromkeys([1, FITTED], 0)
    for _ in range(TRIALS):
        gold = (rng.random(n) < positive).astype(np.int64)
        score = rng.normal(size=n) + 2.0 * gold
        order = np.argsort(-score)
        f1 = 2 * np.cumsum(gold[order]) / (np.arange(1, n + 1) + gold.sum())
        threshold = score[order][f1.argmax()]
        answers = (score >= threshold).astype(np.int64)
        metric = classification.f1_of_labels(gold, answers, n_labels=2, of=1).metric()
        for k in passed:
            passed[k] += _passes(
                metric.value, (metric.low, metric.high), k, _true_f1(threshold, 2.0, positive)
            )
    message = (
        f"n {n}, {positive} positive, threshold fitted: "
        f"{ ({k: 100 * count / TRIALS for k, count in passed.items()}) }"
    )
    print(message)  # noqa: T201 - the figures of the documents
    assert passed[FITTED] <= MOST * TRIALS, message
