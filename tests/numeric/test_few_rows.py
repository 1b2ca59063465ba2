"""Gates on few rows and few clusters.

How often a model just below its limit passes, and what intervals hold.

Every metric is simulated with 6, 18, 60 and 300 rows that stand by themselves or come in 2, 5 or 25
clusters, whose members have a quarter of their variance in common. A gate asks for 0.001 more than
the truth, so each pass is wrong.
"""

from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from bertctl.metrics import classification, contributions, ranking, regression, tagging
from bertctl.metrics.clusters import TOO_FEW
from bertctl.metrics.contributions import Contributions
from bertctl.reporting.limits import decide

IN_COMMON = 0.25
MARGIN = 0.001
TRIALS = 400

Sample = Callable[[np.random.Generator, int, np.ndarray | None], Contributions | None]


def _normals(rng, n, clusters, columns):
    """(n, columns) normal numbers, those of a cluster correlated."""
    alone = rng.normal(size=(n, columns))
    if clusters is None:
        return alone
    shared = rng.normal(size=(clusters.max() + 1, columns))[clusters]
    return np.sqrt(IN_COMMON) * shared + np.sqrt(1 - IN_COMMON) * alone


def _below(share):
    return np.array([NormalDist().inv_cdf(entry) for entry in np.atleast_1d(share)])


def _binary(rng, n, clusters):
    latent = _normals(rng, n, clusters, 2)
    gold = (latent[:, 0] < _below(0.4)).astype(np.int64)
    is_right = latent[:, 1] < np.where(gold, _below(0.8), _below(0.85))
    return gold, np.where(is_right, gold, 1 - gold)


def _four_labels(rng, n, clusters):
    latent = _normals(rng, n, clusters, 2)
    gold = np.searchsorted(_below([0.4, 0.7, 0.9]), latent[:, 0])
    is_right = latent[:, 1] < _below(0.85)
    return gold, np.where(is_right, gold, (gold + rng.integers(1, 4, n)) % 4)


def _sets(rng, n, clusters):
    latent = _normals(rng, n, clusters, 6)
    gold = latent[:, :3] < _below([0.5, 0.3, 0.15])
    is_right = latent[:, 3:] < _below(0.88)
    return gold, np.where(is_right, gold, ~gold)


def _accuracy(rng, n, clusters):
    gold, answers = _four_labels(rng, n, clusters)
    return contributions.share(gold == answers)


def _of_one_label(name):
    def sample(rng, n, clusters):
        gold, answers = _binary(rng, n, clusters)
        counts = [(int(g), int(a), int(g & a)) for g, a in zip(gold, answers, strict=True)]
        return tagging.entity_score(name, counts)

    return sample


def _entities(name):
    def sample(rng, n, clusters):
        latent = _normals(rng, n, clusters, 1)[:, 0]
        others = rng.poisson(1.2, n)
        actual = rng.binomial(others, [NormalDist().cdf(0.9 + 0.7 * entry) for entry in latent])
        invented = rng.binomial(2, 0.12, n)
        counts = [
            (int(g), int(f + i), int(f)) for g, f, i in zip(others, actual, invented, strict=True)
        ]
        return tagging.entity_score(name, counts)

    return sample


def _f1(rng, n, clusters):
    return classification.f1_of_labels(*_binary(rng, n, clusters), n_labels=2, of=1)


def _matthews(rng, n, clusters):
    return classification.matthews(*_binary(rng, n, clusters), n_labels=2)


def _macro_f1(rng, n, clusters):
    return classification.f1_of_labels(*_four_labels(rng, n, clusters), n_labels=4, of="macro")


def _micro_f1_of_sets(rng, n, clusters):
    return classification.f1_of_sets(*_sets(rng, n, clusters), "micro")


def _correlation(of_scores):
    def sample(rng, n, clusters):
        latent = _normals(rng, n, clusters, 2)
        return of_scores(latent[:, 0], 0.8 * latent[:, 0] + 0.6 * latent[:, 1])

    return sample


def _squared_error(rng, n, clusters):
    latent = _normals(rng, n, clusters, 2)
    errors = (0.2 * latent[:, 0] - 0.6 * latent[:, 1]) ** 2
    return replace(contributions.mean(errors), higher_is_better=False)


def _root_of_squared_error(rng, n, clusters):
    latent = _normals(rng, n, clusters, 2)
    scores = 0.8 * latent[:, 0] + 0.6 * latent[:, 1]
    return replace(regression.rmse(latent[:, 0], scores), higher_is_better=False)


def _ranking(name):
    def sample(rng, n, clusters):
        latent = _normals(rng, n, clusters, 2)
        gold = latent[:, 0] < _below(0.3)
        surety = 1 / (1 + np.exp(-latent[:, 1] - 1.5 * gold))
        sides = np.stack([~gold, gold], axis=1), np.stack([1 - surety, surety], axis=1)
        return ranking.ranking(name, *sides)

    return sample


METRICS: dict[str, Sample] = {
    "accuracy": _accuracy,
    "recall:LABEL": _of_one_label("entity_recall"),
    "precision:LABEL": _of_one_label("entity_precision"),
    "f1:LABEL": _of_one_label("entity_f1"),
    "f1": _f1,
    "matthews": _matthews,
    "f1_macro": _macro_f1,
    "f1_micro": _micro_f1_of_sets,
    "entity_precision": _entities("entity_precision"),
    "entity_recall": _entities("entity_recall"),
    "entity_f1": _entities("entity_f1"),
    "pearson": _correlation(regression.pearson),
    "spearman": _correlation(regression.spearman),
    "mse": _squared_error,
    "rmse": _root_of_squared_error,
    "r2": _correlation(regression.r2),
    "roc_auc": _ranking("roc_auc"),
    "average_precision": _ranking("average_precision"),
}

LOWEST_COVERAGE = 0.93
HIGHEST_COVERAGE = 0.97


def _over_covers(n: int, n_clusters: int | None) -> bool:
    """Returns whether an interval may be wider than it has to be.

    Shares of a few rows take a few values, so no interval of theirs holds every truth in 95 %.
    Intervals of 5 clusters have 3 degrees of freedom, and metrics whose rows have little in common
    within a cluster need less.
    """
    return n <= 18 or n_clusters == TOO_FEW


def _simulate(name: str, n: int, n_clusters: int | None, trials: int) -> tuple[float, float]:
    """Returns the shares of gates that pass wrongly, and of intervals that hold the truth."""
    sample = METRICS[name]
    rng = np.random.default_rng([n, n_clusters or 0, sorted(METRICS).index(name)])
    sampled = sample(np.random.default_rng(7), 100_000, None)
    assert sampled is not None
    clusters = None if n_clusters is None else np.arange(n) % n_clusters
    passed = held = judgement = 0
    for _ in range(trials):
        drawn = sample(rng, n, clusters)
        if drawn is None:
            continue
        resamples = 200 if drawn.is_dear else 400
        metric = replace(drawn, clusters=clusters).metric(
            resamples=resamples, seed=int(rng.integers(2**32))
        )
        at_least = metric.higher_is_better
        limit = sampled.value + (MARGIN if at_least else -MARGIN)
        ends = (metric.low, metric.high)
        verdict = decide(
            metric.value, *ends, limit, at_least=at_least, policy="strict", clusters=metric.clusters
        )
        judgement += 1
        passed += verdict == "pass"
        held += metric.low is not None and metric.low <= sampled.value <= metric.high
    return passed / judgement, held / judgement


def _noise(share: float) -> float:
    """Returns three standard errors of a share that is simulated."""
    return 3 * float(np.sqrt(share * (1 - share) / TRIALS))


@pytest.mark.slow
@pytest.mark.parametrize("n_clusters", [5, 25, None])
@pytest.mark.parametrize("n", [6, 18, 60, 300])
@pytest.mark.parametrize("name", METRICS)
def test_a_gate_on_few_rows_passes_wrongly_in_at_most_2_5_percent(name, n, n_clusters):
    if n_clusters is not None and n_clusters >= n:
        pytest.skip("no more clusters than rows")

    passed, held = _simulate(name, n, n_clusters, TRIALS)

    rates = f"passes {passed:.1%}, coverage {held:.1%}"
    print(f"{name}, {n} rows, {n_clusters} clusters: {rates}")  # noqa: T201
    assert passed <= 0.025 + _noise(0.025)
    assert held >= LOWEST_COVERAGE - _noise(LOWEST_COVERAGE)
    assert _over_covers(n, n_clusters) or held <= HIGHEST_COVERAGE + _noise(HIGHEST_COVERAGE)


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 18, 60, 300])
@pytest.mark.parametrize("name", METRICS)
def test_no_metric_of_two_clusters_passes(name, n):
    passed, _ = _simulate(name, n, n_clusters=2, trials=20)

    assert passed == 0


@pytest.mark.parametrize("n_clusters", [2, 3, 4])
def test_fewer_than_five_clusters_decide_nothing(n_clusters):
    clusters = np.arange(400) % n_clusters
    metric = replace(contributions.share(np.ones(400, dtype=bool)), clusters=clusters).metric()
    for limit in (0.01, 1.0):
        verdict = decide(
            1.0,
            metric.low,
            metric.high,
            limit,
            at_least=True,
            policy="strict",
            clusters=metric.clusters,
        )
        assert verdict == "inconclusive"
    assert (
        decide(
            1.0, metric.low, metric.high, 0.5, at_least=True, policy="point", clusters=n_clusters
        )
        == "pass"
    )


@pytest.mark.parametrize("n", [20, 100, 1_000])
@pytest.mark.parametrize("n_there", [1, 2, 4, 6, 8, 9])
@pytest.mark.parametrize("name", ["entity_precision", "entity_recall"])
def test_a_label_of_few_rows_has_the_interval_of_its_rows(name, n_there, n):
    """However many rows of other labels stand beside them."""
    counts = [(1, 1, 1)] * n_there + [(0, 0, 0)] * (n - n_there)
    metric = tagging.entity_score(name, counts).metric(resamples=200, seed=1, thorough=True)
    exact_low = 0.025 ** (1 / n_there)
    assert metric.low == pytest.approx(exact_low)
    assert metric.high == 1.0


def test_f1_of_a_label_is_known_as_its_rows_are():
    """Of F1 = 2 J / (1 + J), with J the share of rows that are gold or answered, and both."""
    gold = np.array([1] * 6 + [0] * 94)
    answers = gold.copy()
    answers[[0, 50]] = [0, 1]
    metric = classification.f1_of_labels(gold, answers, n_labels=2, of=1).metric(
        resamples=100, seed=1
    )
    of_overlap = contributions.share(np.array([True] * 5 + [False] * 2)).metric()
    assert metric.value == pytest.approx(2 * 5 / (6 + 6))
    assert (metric.low, metric.high) == pytest.approx(
        tuple(2 * j / (1 + j) for j in (of_overlap.low, of_overlap.high))
    )


@pytest.mark.parametrize("n_there", [2, 4, 6])
@pytest.mark.parametrize("name", ["roc_auc", "average_precision"])
def test_a_ranking_without_an_error_is_not_sure_of_few_rows(name, n_there):
    gold = np.zeros((200, 2), dtype=bool)
    gold[:n_there, 1] = True
    gold[n_there:, 0] = True
    probabilities = gold * 0.8 + 0.1
    metric = ranking.ranking(name, gold, probabilities).metric(resamples=200, seed=1, thorough=True)
    assert metric.value == 1.0
    assert metric.low < 0.9


@pytest.mark.parametrize("name", ["roc_auc", "average_precision", "pearson", "spearman"])
@pytest.mark.parametrize("change", [lambda x: x + 2, lambda x: x / 3, lambda x: 10 * x - 4])
def test_p_does_not_move_when_the_answers_of_a_run_are_shifted_or_scaled(name, change):
    rng = np.random.default_rng(5)
    truth = rng.normal(size=60)
    ours = truth + 0.6 * rng.normal(size=60)
    theirs = truth + 0.9 * rng.normal(size=60)
    if name in ("pearson", "spearman"):
        of_scores = {"pearson": regression.pearson, "spearman": regression.spearman}[name]
        first = of_scores(truth, ours)
        second = of_scores(truth, theirs)
        moved = of_scores(truth, change(theirs))
    else:
        gold = (truth > 0.3)[:, None]
        sides = (ours, theirs, change(theirs))
        first, second, moved = (ranking.ranking(name, gold, scores[:, None]) for scores in sides)
    before = first.difference(second)
    after = first.difference(moved)
    assert after.p == before.p
    assert (after.value, after.low, after.high) == pytest.approx(
        (before.value, before.low, before.high)
    )
