"""How often the 95 % intervals cover the truth, in simulated samples.

The functions are the ones that a run calls.

A simulation knows a coverage only so well: what is asked is 93 to 97 percent but for three standard
errors of the simulation itself. The default run makes some dozens of trials per case,
`pytest -m slow` 2,000, which leaves 91.3 to 98.1. Wilson's coverage is computed, not simulated.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bertctl.metrics.paired import detectable_shares
from bertctl.metrics.statistics import wilson_interval
from tests.scoring import classification_metrics, loss_metric, regression_metrics

RESAMPLES = 1_000  # the default of `evaluation.bootstrap_resamples`
LONG = 2_000


def _next_seed(rng: np.random.Generator) -> int:
    """Another for each trial: the noise of the resampling must not be the same in all."""
    return int(rng.integers(2**32))


def _exact_wilson_coverage(share: float, n: int) -> float:
    covered = [
        low <= share <= high for low, high in (wilson_interval(count, n) for count in range(n + 1))
    ]
    return 100 * float(stats.binom.pmf(np.arange(n + 1), n, share)[covered].sum())


@pytest.mark.parametrize("n", [150, 277, 408, 872, 1043, 1821])
def test_wilson_covers_93_to_97_percent(n):
    for share in (0.5, 0.7, 0.8, 0.9, 0.95):
        assert 93 <= _exact_wilson_coverage(share, n) <= 97


@pytest.mark.slow
def test_wilson_covers_at_99_percent_of_right_answers_too():
    coverages = {n: _exact_wilson_coverage(0.99, n) for n in range(150, 1001)}
    assert 93 <= np.mean(list(coverages.values())) <= 97
    # A few counts carry nearly all probability there, so each n has its own figure: some lie
    # outside, none far.
    assert sum(93 <= coverage <= 97 for coverage in coverages.values()) > 0.85 * len(coverages)
    assert 92 < min(coverages.values()) < max(coverages.values()) < 98.5


# Two labels: share of the positive one, its recall, the other's recall.
TABLES = {
    "even, 0.8 right": (0.5, 0.8, 0.8),
    "even, 0.95 right": (0.5, 0.95, 0.95),
    "like MRPC": (0.68, 0.9, 0.6),
    "like CoLA, weak": (0.69, 0.95, 0.25),
}


def _label_sampler(
    shares: tuple[float, float, float],
) -> tuple[Callable[..., Any], dict[str, float]]:
    positive, recall, specificity = shares
    tp = positive * recall
    fn = positive * (1 - recall)
    tn = (1 - positive) * specificity
    fp = (1 - positive) * (1 - specificity)
    truth = {
        "f1": 2 * tp / (2 * tp + fp + fn),
        "matthews": (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)),
    }

    def sample(rng, n):
        gold = (rng.random(n) < positive).astype(np.int64)
        predicted = np.where(
            gold == 1, rng.random(n) < recall, rng.random(n) >= specificity
        ).astype(np.int64)
        return classification_metrics(
            gold, predicted, n_labels=2, positive=1, resamples=RESAMPLES, seed=_next_seed(rng)
        )

    return sample, truth


def _three_label_sampler() -> tuple[Callable[..., Any], dict[str, float]]:
    priors = np.array([0.5, 0.3, 0.2])
    right = 0.85
    table = priors[:, None] * (right * np.eye(3) + (1 - right) / 2 * (1 - np.eye(3)))
    truth = {"f1": float(np.mean(2 * np.diag(table) / (table.sum(0) + table.sum(1))))}

    def sample(rng, n):
        cells = rng.choice(9, size=n, p=table.ravel())
        return classification_metrics(
            cells // 3,
            cells % 3,
            n_labels=3,
            positive=None,
            resamples=RESAMPLES,
            seed=_next_seed(rng),
        )

    return sample, truth


def _score_sampler(correlation: float) -> tuple[Callable[..., Any], dict[str, float]]:
    noise = math.sqrt(1 - correlation**2)
    truth = {
        "pearson": correlation,
        "spearman": 6
        / math.pi
        * math.asin(correlation / 2),  # of the bivariate normal distribution
        "mse": (1 - correlation) ** 2 + noise**2,
    }

    def sample(rng, n):
        gold = rng.normal(size=n)
        predicted = correlation * gold + noise * rng.normal(size=n)
        return regression_metrics(gold, predicted, resamples=RESAMPLES, seed=_next_seed(rng))

    return sample, truth


def _loss_sampler(kind: str) -> tuple[Callable[..., Any], dict[str, float]]:
    def draw(rng, n):
        if kind == "log-normal":
            return rng.lognormal(-1.5, 1.0, n)
        margin = rng.normal(0, 4, n)  # cross-entropy of a calibrated two-label model
        sign = np.where(rng.random(n) < 1 / (1 + np.exp(-margin)), 1, -1)
        return np.log1p(np.exp(-sign * margin))

    def sample(rng, n):
        return {
            "loss": loss_metric(draw(rng, n), np.ones(n), resamples=RESAMPLES, seed=_next_seed(rng))
        }

    mean = (
        math.exp(-1.0)
        if kind == "log-normal"
        else float(draw(np.random.default_rng(99), 4_000_000).mean())
    )
    return sample, {"loss": mean}


SAMPLERS: dict[str, Callable[[], tuple[Callable[..., Any], dict[str, float]]]] = {
    **{name: lambda shares=shares: _label_sampler(shares) for name, shares in TABLES.items()},
    "three labels": _three_label_sampler,
    "scores, 0.85": lambda: _score_sampler(0.85),
    "scores, 0.5": lambda: _score_sampler(0.5),
    "losses, calibrated": lambda: _loss_sampler("calibrated"),
    "losses, log-normal": lambda: _loss_sampler("log-normal"),
}


def _coverage(name: str, n: int, trials: int) -> dict[str, float]:
    sample, truth = SAMPLERS[name]()
    rng = np.random.default_rng([n, list(SAMPLERS).index(name)])
    covered = dict.fromkeys(truth, 0)
    for _ in range(trials):
        metrics = sample(rng, n)
        for metric, value in truth.items():
            covered[metric] += metrics[metric].low <= value <= metrics[metric].high
    return {metric: 100 * count / trials for metric, count in covered.items()}


def _assert_covers(name: str, n: int, trials: int) -> set[str]:
    coverages = _coverage(name, n, trials)
    for metric, coverage in coverages.items():
        lowest = 93 - 3 * math.sqrt(93 * 7 / trials)
        highest = 97 + 3 * math.sqrt(97 * 3 / trials)
        assert lowest <= coverage <= highest, (
            f"{metric} of {name}, n = {n}: {coverage} in {trials} trials"
        )
    return set(coverages)


def test_intervals_cover_in_a_quick_simulation():
    # Ranks cost more than counts.
    observed = [
        _assert_covers(name, 200, 6 if name.startswith("scores") else 20) for name in SAMPLERS
    ]
    assert set().union(*observed) == {"f1", "matthews", "pearson", "spearman", "mse", "loss"}


@pytest.mark.slow
@pytest.mark.parametrize("n", [150, 400, 1000])
@pytest.mark.parametrize("name", list(SAMPLERS))
def test_intervals_cover_93_to_97_percent(name, n):
    _assert_covers(name, n, LONG)


@pytest.mark.slow
@pytest.mark.parametrize("n", [150, 400, 872])
def test_the_difference_that_estimate_promises_is_found_in_four_of_five_cases(n):
    """Two runs answer a tenth of the examples differently.

    They are compared by McNemar's test as `compare` does.
    """
    rng = np.random.default_rng(11)
    apart = detectable_shares(n)["runs"]
    actual = 0
    for _ in range(1000):
        wins, losses, _ = rng.multinomial(n, [(0.1 + apart) / 2, (0.1 - apart) / 2, 0.9])
        actual += (
            stats.binomtest(int(wins), int(wins + losses)).pvalue < 0.05 if wins + losses else 0
        )
    assert (
        700 <= actual <= 950
    )  # the binomial test is exact, so in steps; a difference near a tenth varies less
