"""Exact match and F1 of answers, as SQuAD's official scorers define them (`evaluate-v1.1.py`, `evaluate-v2.0.py`).

Two texts are compared in lower case, without ASCII punctuation and the words a, an and the; the best of a question's
gold answers counts. The versions differ in gold answers of which nothing is left then ("The", "!"): 1.1 gives them F1 0
and an exact match with any answer of which nothing is left, 2.0 leaves them out, and a question whose answers are all
of this kind is answered by an empty text.

Letters: N questions.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertctl.metrics.names import metric_value
from bertctl.metrics.statistics import bootstrap_interval, wilson_interval
from bertctl.metrics.value import MetricValue

Version = Literal[1, 2]
"""1 for data in which every question has an answer (SQuAD 1.1), 2 for data with unanswerable ones (SQuAD 2.0)."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalized_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no a, an, the, single spaces: what two answers are compared by."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def answer_exact(prediction: str, gold: Sequence[str], *, version: Version = 2) -> float:
    """1.0 where the answer is one of the gold ones after normalisation, else 0.0.

    Args:
        prediction: the answer; empty for "no answer".
        gold: texts of the gold answers; empty for an unanswerable question.
        version: of the scorer.
    """
    return float(normalized_answer(prediction) in _references(gold, version))


def answer_f1(prediction: str, gold: Sequence[str], *, version: Version = 2) -> float:
    """Harmonic mean of precision and recall of the answer's words, against the gold answer that fits best.

    Args:
        prediction: the answer; empty for "no answer".
        gold: texts of the gold answers; empty for an unanswerable question, where only an empty answer scores.
        version: of the scorer.
    """
    words = normalized_answer(prediction).split()
    return max(_overlap(words, reference.split(), version) for reference in _references(gold, version))


def answer_metrics(
    predictions: Sequence[str],
    gold: Sequence[Sequence[str]],
    *,
    null_odds: Sequence[float] | NDArray[np.floating] | None = None,
    resamples: int,
    seed: int,
) -> dict[str, MetricValue]:
    """`exact_match` and `f1`; for data with unanswerable questions also both kinds apart, and the best thresholds.

    Args:
        predictions: N answers, empty for "no answer".
        gold: for each the texts of its gold answers, empty where it is unanswerable; N at least 1.
        null_odds: (N,) how much likelier "no answer" is for the model; what thresholds are tried on.
        resamples: of the bootstrap behind the intervals of F1.
        seed: of the bootstrap.

    Returns:
        Data without unanswerable questions are scored as version 1.1: `exact_match`, `f1`. Others as 2.0, and have
        `has_answer_exact`, `has_answer_f1`, `no_answer_exact`, `no_answer_f1` (of the kinds that occur) and, where
        there are `null_odds`, `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh`.
    """
    answerable = np.array([len(texts) > 0 for texts in gold])
    version: Version = 1 if answerable.all() else 2
    exact, f1 = raw_scores(predictions, gold, version=version)
    metrics = _both("exact_match", exact, "f1", f1, resamples=resamples, seed=seed)
    if version == 1:
        return metrics
    for part, chosen in (("has_answer", answerable), ("no_answer", ~answerable)):
        if chosen.any():
            names = (f"{part}_exact", f"{part}_f1")
            metrics |= _both(names[0], exact[chosen], names[1], f1[chosen], resamples=resamples, seed=seed)
    if null_odds is not None:
        odds, said = np.asarray(null_odds, dtype=np.float64), np.array([bool(text) for text in predictions])
        for name, scores in (("best_exact", exact), ("best_f1", f1)):
            best, threshold = best_threshold(scores, odds, answerable=answerable, answered=said)
            metrics[name] = metric_value(name, best, None, len(scores))
            metrics[f"{name}_thresh"] = metric_value(f"{name}_thresh", threshold, None, len(scores))
    return metrics


def raw_scores(
    predictions: Sequence[str], gold: Sequence[Sequence[str]], *, version: Version
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(N,) exact matches and (N,) F1 of each question."""
    pairs = list(zip(predictions, gold, strict=True))
    exact = np.array([answer_exact(said, texts, version=version) for said, texts in pairs], dtype=np.float64)
    f1 = np.array([answer_f1(said, texts, version=version) for said, texts in pairs], dtype=np.float64)
    return exact, f1


def best_threshold(
    scores: NDArray[np.float64],
    null_odds: NDArray[np.float64],
    *,
    answerable: NDArray[np.bool_],
    answered: NDArray[np.bool_],
) -> tuple[float, float]:
    """The highest mean score that a threshold on the null odds can give: odds above it become "no answer".

    As `evaluate-v2.0.py::find_best_thresh`: from "no answer" to everything, questions are answered one by one in the
    order of their odds, questions of equal odds in the order given; the first of several best thresholds is taken, and
    0.0 where answering none is best.

    Args:
        scores: (N,) of each answer.
        null_odds: (N,) odds, or probabilities, of "no answer".
        answerable: (N,) whether the question has an answer.
        answered: (N,) whether the model's answer is not empty.

    Returns:
        The mean score (a fraction) and the threshold.
    """
    order, totals = _by_number_answered(scores, null_odds, answerable=answerable, answered=answered)
    best = int(totals.argmax())
    return float(totals[best] / len(scores)), float(null_odds[order[best - 1]]) if best else 0.0


def chosen_threshold(
    scores: NDArray[np.float64], null_odds: NDArray[np.float64], *, answerable: NDArray[np.bool_]
) -> float:
    """The threshold to store in a run: where `best_threshold` finds it, but halfway to the next question's odds.

    Odds that differ in their last digits, as in a batch of another size, then fall on the same side. Where answering
    none is best it lies below all odds.

    Args:
        scores: (N,) of each question's best answer that is not empty; N at least 1.
        null_odds: (N,) odds of "no answer".
        answerable: (N,) whether the question has an answer.
    """
    answered = np.ones(len(scores), dtype=np.bool_)
    order, totals = _by_number_answered(scores, null_odds, answerable=answerable, answered=answered)
    best, odds = int(totals.argmax()), null_odds[order]
    below = odds[best - 1] if best else odds[0] - 1.0
    above = odds[best] if best < len(odds) else odds[-1] + 1.0
    return float((below + above) / 2)


def _by_number_answered(
    scores: NDArray[np.float64],
    null_odds: NDArray[np.float64],
    *,
    answerable: NDArray[np.bool_],
    answered: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(N,) questions by rising odds, and (N + 1,) the sum of scores when so many of them are answered."""
    order = np.argsort(null_odds, kind="stable")
    gains = np.where(answerable, scores, -answered.astype(np.float64))[order]
    return order, np.cumsum(np.concatenate([[float((~answerable).sum())], gains]))


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
        null_odds: version 2: question id -> odds of "no answer" (`--na-prob-file`), of every question.
        threshold: version 2: odds above it make the answer "no answer" (`--na-prob-thresh`); used with `null_odds`.
        version: 1 for `evaluate-v1.1.py`, where a question without a prediction scores 0; 2 for `evaluate-v2.0.py`,
            which leaves such questions out.

    Returns:
        Version 1: exact_match, f1. Version 2: exact, f1, total, HasAns_exact, ..., NoAns_total (of the kinds that
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
            result |= {f"{prefix}{name}": 100 * float(scores[chosen].mean()) for name, scores in decided.items()}
            result[f"{prefix}total"] = int(chosen.sum())
    if null_odds is not None:
        # The scorer goes through the questions in the order of the odds' file, which decides among equal odds.
        place = {key: i for i, key in enumerate(present)}
        order = np.array([place[key] for key in null_odds if key in place], dtype=np.int64)
        said = np.array([bool(text) for text in texts])[order]
        for name, scores in (("best_exact", exact), ("best_f1", f1)):
            best, at = best_threshold(scores[order], odds[order], answerable=answerable[order], answered=said)
            result |= {name: 100 * best, f"{name}_thresh": at}
    return result


def _references(gold: Sequence[str], version: Version) -> list[str]:
    """The normalised gold answers; [""] where there are none."""
    texts = [normalized_answer(text) for text in gold]
    return ([text for text in texts if text] if version == 2 else texts) or [""]


def _overlap(words: Sequence[str], reference: Sequence[str], version: Version) -> float:
    if not words or not reference:
        return float(version == 2 and words == reference)
    common = (Counter(words) & Counter(reference)).total()
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(reference)
    return 2 * precision * recall / (precision + recall)


def _both(
    exact_name: str,
    exact: NDArray[np.float64],
    f1_name: str,
    f1: NDArray[np.float64],
    *,
    resamples: int,
    seed: int,
) -> dict[str, MetricValue]:
    n = len(exact)
    hits = int(exact.sum())
    # Answers that are wholly wrong or right could occur even where none did: the interval has to know of them.
    kinds, numbers = np.unique(np.concatenate([f1, [0.0, 1.0]]), return_inverse=True)
    counts = np.bincount(numbers[:-2], minlength=len(kinds)).astype(np.int64)

    def mean(counts_RM: NDArray[np.float64]) -> NDArray[np.float64]:
        means: NDArray[np.float64] = (counts_RM * kinds).sum(axis=1) / counts_RM.sum(axis=1)
        return means

    interval = bootstrap_interval(mean, counts, resamples=resamples, seed=seed)
    value = float(f1.sum() / n)
    # The mean of many fractions, added up in another order, may leave the interval by its last digit.
    interval = min(interval[0], value), max(interval[1], value)
    return {
        exact_name: metric_value(exact_name, hits / n, wilson_interval(hits, n), n),
        f1_name: metric_value(f1_name, value, interval, n),
    }
