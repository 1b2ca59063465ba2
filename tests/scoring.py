"""Metrics of plain arrays, by the product's own definitions.

And what SQuAD's official scorers print.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertctl.metrics import classification, contributions, regression
from bertctl.metrics.contributions import Contributions
from bertctl.metrics.squad import Version, best_threshold, raw_scores
from bertctl.metrics.tagging import entities
from bertctl.metrics.value import MetricValue
from bertctl.tasks.answers import Lines
from bertctl.tasks.classification.class_answers import LabelSetAnswers
from bertctl.tasks.questions.span_answers import SpanAnswers
from bertctl.tasks.registry import answer_type
from bertctl.tasks.tagging.tag_answers import TagAnswers

Metrics = dict[str, MetricValue]


def lines_of(gold: Any, predicted: Any, **columns: Any) -> list[dict[str, Any]]:
    """Returns prediction lines."""
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    pairs = zip(gold, predicted, strict=True)
    return [
        {"id": i, "gold": g, "prediction": p, **(rows[i] if rows else {})}
        for i, (g, p) in enumerate(pairs)
    ]


def contributions_of(lines: Lines, task: str, name: str) -> Contributions | None:
    """Returns what lines add to a metric, by the task's name."""
    return answer_type(task).from_lines(lines).contributions(lines, name)


def classification_metrics(
    gold: Any, predicted: Any, *, n_labels: int, positive: int | None, resamples: int, seed: int
) -> Metrics:
    """Returns accuracy, f1 and matthews of label numbers."""
    of = "macro" if positive is None else positive
    found = {
        "accuracy": contributions.share(gold == predicted),
        "f1": classification.f1_of_labels(gold, predicted, n_labels=n_labels, of=of),
        "matthews": classification.matthews(gold, predicted, n_labels=n_labels),
    }
    return {name: each.metric(resamples=resamples, seed=seed) for name, each in found.items()}


def multi_label_metrics(gold: Any, predicted: Any, *, resamples: int, seed: int) -> Metrics:
    """Returns the metrics of (N, C) booleans."""
    names = tuple(f"label {i}" for i in range(gold.shape[1]))
    sides = [
        [[n for n, there in zip(names, row, strict=True) if there] for row in side]
        for side in (gold, predicted)
    ]
    return LabelSetAnswers(names).score(lines_of(*sides), resamples=resamples, seed=seed)


def regression_metrics(gold: Any, predicted: Any, *, resamples: int, seed: int) -> Metrics:
    """Returns pearson, spearman and mse, of scores in 64 bits."""
    x = gold.astype(np.float64)
    y = predicted.astype(np.float64)
    found = {
        "pearson": regression.pearson(x, y),
        "spearman": regression.spearman(x, y),
        "mse": replace(contributions.mean((x - y) ** 2), higher_is_better=False),
    }
    return {name: each.metric(resamples=resamples, seed=seed) for name, each in found.items()}


def tagging_metrics(
    gold: Any, predicted: Any, *, resamples: int, seed: int, entities: bool
) -> Metrics:
    """Returns the metrics of tags, in total and, where there are several, by type of entity."""
    tags = tuple(sorted({tag for side in (gold, predicted) for row in side for tag in row}))
    return TagAnswers(tags, entities).score(
        lines_of(gold, predicted), resamples=resamples, seed=seed
    )


def answer_metrics(
    predictions: Any, gold: Any, *, resamples: int, seed: int, null_odds: Any = None
) -> Metrics:
    """Returns the metrics of answers to questions."""
    columns = {} if null_odds is None else {"null_odds": null_odds}
    return SpanAnswers().score(
        lines_of(gold, predictions, **columns), resamples=resamples, seed=seed
    )


def loss_metric(sums: Any, weights: Any, *, resamples: int, seed: int) -> MetricValue:
    """Returns the mean loss."""
    mean_loss = contributions.loss(sums, weights)
    return mean_loss.metric(resamples=resamples, seed=seed)


def official_scores(
    predictions: Mapping[str, str],
    gold: Mapping[str, Sequence[str]],
    *,
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
    version: Version,
) -> dict[str, float]:
    """What the official scorer makes of a predictions file, under its own names, in percent.

    Args:
        predictions: question id -> answer.
        gold: question id -> texts of the gold answers, in the data's order.
        null_odds: version 2: question id -> odds of "no answer" (`--na-prob-file`), of every
            question.
        threshold: version 2: odds above it make the answer "no answer" (`--na-prob-thresh`); used
            with `null_odds`.
        version: 1 for `evaluate-v1.1.py`, where a question without a prediction scores 0; 2 for
            `evaluate-v2.0.py`, which leaves such questions out.

    Returns:
        Version 1: exact_match, f1. Version 2: exact, f1, total, HasAns_exact, ..., NoAns_total (of
            the kinds that
        occur) and, with `null_odds`, best_exact, best_exact_thresh, best_f1, best_f1_thresh.

    Raises:
        ValueError: no question of the data has a prediction.
    """
    present = [key for key in gold if key in predictions]
    if not present:
        raise ValueError("no question has a prediction")
    texts = [predictions[key] for key in present]
    exact, f1 = raw_scores(texts, [gold[key] for key in present], version=version)
    if version == 1:
        return {"exact_match": 100 * exact.sum() / len(gold), "f1": 100 * f1.sum() / len(gold)}
    answerable = np.array([len(gold[key]) > 0 for key in present])
    odds = np.array([null_odds[key] if null_odds else 0.0 for key in present], dtype=np.float64)
    silenced = odds > threshold
    decided = {
        name: np.where(silenced, ~answerable, scores).astype(np.float64)
        for name, scores in (("exact", exact), ("f1", f1))
    }
    result: dict[str, float] = {}
    everything = np.ones(len(present), dtype=np.bool_)
    for prefix, chosen in (("", everything), ("HasAns_", answerable), ("NoAns_", ~answerable)):
        if chosen.any():
            result |= {
                f"{prefix}{name}": 100 * float(scores[chosen].mean())
                for name, scores in decided.items()
            }
            result[f"{prefix}total"] = int(chosen.sum())
    if null_odds is not None:
        # The scorer goes through the questions in the order of the odds' file, which decides among
        # equal odds.
        place = {key: i for i, key in enumerate(present)}
        order = np.array([place[key] for key in null_odds if key in place], dtype=np.int64)
        said = np.array([bool(text) for text in texts])[order]
        for name, scores in (("best_exact", exact), ("best_f1", f1)):
            best, at = best_threshold(
                scores[order], odds[order], answerable=answerable[order], answered=said
            )
            result |= {name: 100 * best, f"{name}_thresh": at}
    return result


@dataclass(frozen=True)
class TypeScore:
    """How the entities of one type were found.

    Attributes:
        type: its name.
        precision: share of those answered that are right; 0 where none was answered.
        recall: share of those there that were answered; 0 where there are none.
        f1: harmonic mean of the two.
        gold: entities there.
        predicted: entities answered.
        correct: entities answered with the right type, first word and last word.
    """

    type: str
    precision: float
    recall: float
    f1: float
    gold: int
    predicted: int
    correct: int


def scores_by_type(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> list[TypeScore]:
    """Returns the table that conlleval prints: a row for each type that occurs in either, by name.

    Args:
        gold: N sentences of tags.
        predicted: the same for the answers.

    Raises:
        ValueError: the two have different lengths, or a sentence has.
    """
    there = Counter[str]()
    answered = Counter[str]()
    right = Counter[str]()
    for gold_tags, tags in zip(gold, predicted, strict=True):
        wanted = entities(gold_tags)
        found = entities(tags)
        there.update(kind for kind, _, _ in wanted)
        answered.update(kind for kind, _, _ in found)
        right.update(kind for kind, _, _ in set(wanted) & set(found))
    return [
        TypeScore(
            kind,
            right[kind] / answered[kind] if answered[kind] else 0.0,
            right[kind] / there[kind] if there[kind] else 0.0,
            2 * right[kind] / (there[kind] + answered[kind]),
            there[kind],
            answered[kind],
            right[kind],
        )
        for kind in sorted(there | answered)
    ]
