"""Intervals and verdicts of examples that hang together.

Simulated documents with intra-class correlations of 0 to 0.3.

The functions are those that a run and its gate call. What is asked: 93 to 97 percent but for three
standard errors of the simulation itself.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bertctl.metrics import contributions
from bertctl.reporting.limits import decide
from tests.scoring import contributions_of, lines_of

TRIALS = 1_000


def _hits(rng, sizes, share, correlation):
    """Whether each example is right; within a document with this correlation (beta-binomial)."""
    if correlation:
        spread = (1 - correlation) / correlation
        of_document = rng.beta(share * spread, (1 - share) * spread, len(sizes))
    else:
        of_document = np.full(len(sizes), share)
    return rng.random(int(sizes.sum())) < np.repeat(of_document, sizes)


def _documents(rng, clusters, n):
    """Draws sizes of so many documents, n examples in all.

    The largest is several times as long as the smallest.
    """
    weights = rng.lognormal(0, 0.5, clusters)
    return 1 + rng.multinomial(n - clusters, weights / weights.sum())


def _labels(rng, sizes, correlation, share=0.85):
    hit = _hits(rng, sizes, share, correlation)
    gold = rng.random(hit.size) < 0.5
    return _classified(gold, np.where(hit, gold, ~gold), sizes)


def _classified(gold, answers, sizes, name="accuracy"):
    names = np.array(["neg", "pos"])
    lines = lines_of(
        names[gold.astype(int)],
        names[answers.astype(int)],
        cluster=np.repeat(np.arange(len(sizes)), sizes),
    )
    return contributions_of(lines, "text-classification", name)


def _entities(rng, sizes, correlation):
    hits = _hits(rng, sizes, 0.8, correlation)
    gold = [["B-PER", "O"]] * hits.size
    message = [["B-PER", "O"] if hit else ["O", "B-PER"] for hit in hits]
    lines = lines_of(gold, message, cluster=np.repeat(np.arange(len(sizes)), sizes))
    return contributions_of(lines, "token-classification", "entity_f1")


def _answers(rng, sizes, correlation):
    hits = _hits(rng, sizes, 0.7, correlation)
    values = np.where(
        hits, "the river Nile", np.where(rng.random(hits.size) < 0.5, "Nile delta", "Rhine")
    )
    lines = lines_of(
        [["the river Nile"]] * hits.size,
        values.tolist(),
        cluster=np.repeat(np.arange(len(sizes)), sizes),
    )
    return contributions_of(lines, "question-answering", "f1")


def _scores(rng, sizes, correlation):
    of_document = np.repeat(rng.normal(size=len(sizes)), sizes) * math.sqrt(correlation)
    gold = of_document + rng.normal(size=of_document.size) * math.sqrt(1 - correlation)
    noise = np.repeat(rng.normal(size=len(sizes)), sizes) * math.sqrt(correlation)
    noise = noise + rng.normal(size=gold.size) * math.sqrt(1 - correlation)
    lines = lines_of(
        gold.tolist(),
        (0.8 * gold + 0.6 * noise).tolist(),
        cluster=np.repeat(np.arange(len(sizes)), sizes),
    )
    return contributions_of(lines, "text-regression", "pearson")


def _losses(rng, sizes, correlation):
    of_document = np.repeat(rng.normal(size=len(sizes)), sizes) * math.sqrt(correlation)
    values = np.exp(
        -1.5 + 0.5 * (of_document + rng.normal(size=of_document.size) * math.sqrt(1 - correlation))
    )
    return replace(
        contributions.loss(values, np.ones(values.size)),
        clusters=np.repeat(np.arange(len(sizes)), sizes),
    )


KINDS = {
    "accuracy": (_labels, 0.85),
    "entity F1": (_entities, 0.8),
    "answers' F1": (_answers, 0.775),
    "Pearson": (_scores, 0.8),
    "loss": (_losses, math.exp(-1.5 + 0.125)),
}


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("name", list(KINDS))
def test_intervals_of_100_documents_cover_93_to_97_percent(name, correlation):
    sample, truth = KINDS[name]
    rng = np.random.default_rng([round(10 * correlation), list(KINDS).index(name)])
    covered = alone = 0
    for _ in range(TRIALS):
        sampled = sample(rng, _documents(rng, 100, 500), correlation)
        metric = sampled.metric(resamples=1_000, seed=int(rng.integers(2**32)))
        covered += metric.low <= truth <= metric.high
        blind = (
            replace(sampled, clusters=None).metric(resamples=200) if correlation == 0.3 else metric
        )
        alone += blind.low <= truth <= blind.high
    output = [f"{100 * entry / TRIALS:.1f} %" for entry in (covered, alone)]
    message = (
        f"{name}, intra-class correlation {correlation}: {output[0]}, as if independent {output[1]}"
    )
    print(message)  # noqa: T201 - the figures of the documents
    assert (
        93 - 3 * math.sqrt(93 * 7 / TRIALS)
        <= 100 * covered / TRIALS
        <= 97 + 3 * math.sqrt(97 * 3 / TRIALS)
    ), message


def _models(rng, sizes, correlation, shares):
    """Whether two models are right, on documents that are hard for both."""
    normal = math.sqrt(correlation) * np.repeat(rng.normal(size=len(sizes)), sizes)
    normal = math.sqrt(1 - correlation) * rng.normal(size=normal.size) + normal
    return [
        math.sqrt(0.5) * normal + math.sqrt(0.5) * _own(rng, sizes, correlation)
        < stats.norm.ppf(share)
        for share in shares
    ]


def _own(rng, sizes, correlation):
    by_document = rng.normal(size=len(sizes))
    of_document = math.sqrt(correlation) * np.repeat(by_document, sizes)
    of_row = rng.normal(size=of_document.size)
    return of_document + math.sqrt(1 - correlation) * of_row


@pytest.mark.slow
@pytest.mark.parametrize(("n", "clusters"), [(150, 50), (400, 100), (872, 200)])
@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_a_model_at_its_limit_passes_in_at_most_3_5_percent(n, clusters, correlation):
    rng = np.random.default_rng([n, round(10 * correlation)])
    passed = dict.fromkeys(["min accuracy", "min f1", "max-drop accuracy", "max-drop f1"], 0)
    for _ in range(TRIALS):
        sizes = _documents(rng, clusters, n)
        gold = rng.random(n) < 0.5
        right = _models(rng, sizes, correlation, (0.85, 0.90))
        for name in ("accuracy", "f1"):
            ours, theirs = (
                _classified(gold, np.where(hit, gold, ~gold), sizes, name) for hit in right
            )
            metric = ours.metric(resamples=500)
            change = ours.difference(theirs)
            for kind, actual, limit in (("min", metric, 0.85), ("max-drop", change, -0.05)):
                verdict = decide(
                    actual.value, actual.low, actual.high, limit, at_least=True, policy="strict"
                )
                passed[f"{kind} {name}"] += verdict == "pass"
    message = (
        f"n {n}, {clusters} clusters, {correlation}: "
        f"{ ({name: 100 * x / TRIALS for name, x in passed.items()}) }"
    )
    print(message)  # noqa: T201 - the figures of the documents
    assert max(passed.values()) <= 0.035 * TRIALS, message
