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
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from bertctl.arrays import Bools, Floats, Ints

Version = Literal[1, 2]
"""1 for data in which every question has an answer (SQuAD 1.1), 2 for data with unanswerable ones (SQuAD 2.0)."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalized_answer(text: str) -> str:
    """Returns a text in lower case, without ASCII punctuation and a, an, the: what two answers are compared by."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def answer_exact(prediction: str, gold: Sequence[str], *, version: Version = 2) -> float:
    """Returns 1.0 where the answer is one of the gold ones after normalisation, else 0.0.

    Args:
        prediction: the answer; empty for "no answer".
        gold: texts of the gold answers; empty for an unanswerable question.
        version: of the scorer.
    """
    return float(normalized_answer(prediction) in _references(gold, version))


def answer_f1(prediction: str, gold: Sequence[str], *, version: Version = 2) -> float:
    """Returns the harmonic mean of precision and recall of the answer's words, against the gold answer that fits best.

    Args:
        prediction: the answer; empty for "no answer".
        gold: texts of the gold answers; empty for an unanswerable question, where only an empty answer scores.
        version: of the scorer.
    """
    words = normalized_answer(prediction).split()
    return max(_overlap(words, reference.split(), version) for reference in _references(gold, version))


def raw_scores(predictions: Sequence[str], gold: Sequence[Sequence[str]], *, version: Version) -> tuple[Floats, Floats]:
    """Returns (N,) exact matches and (N,) F1 of each question."""
    scored = [_both(said, tuple(texts), version) for said, texts in zip(predictions, gold, strict=True)]
    exact, f1 = np.array(scored, dtype=np.float64).reshape(-1, 2).T.copy()
    return exact, f1


@lru_cache(maxsize=2**16)  # each metric asks for these, for each of two runs
def _both(said: str, gold: tuple[str, ...], version: Version) -> tuple[float, float]:
    return answer_exact(said, gold, version=version), answer_f1(said, gold, version=version)


def best_threshold(scores: Floats, null_odds: Floats, *, answerable: Bools, answered: Bools) -> tuple[float, float]:
    """Returns the highest mean score that a threshold on the null odds can give: above it there is "no answer".

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


def chosen_threshold(scores: Floats, null_odds: Floats, *, answerable: Bools) -> float:
    """Returns the threshold to store in a run: that of `best_threshold`, halfway to the next question's odds.

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
    scores: Floats, null_odds: Floats, *, answerable: Bools, answered: Bools
) -> tuple[Ints, Floats]:
    """Returns (N,) questions by rising odds, and (N + 1,) the sum of scores when so many of them are answered."""
    order = np.argsort(null_odds, kind="stable")
    gains = np.where(answerable, scores, -answered.astype(np.float64))[order]
    return order, np.cumsum(np.concatenate([[float((~answerable).sum())], gains]))


def _references(gold: Sequence[str], version: Version) -> list[str]:
    """Returns the normalised gold answers; [""] where there are none."""
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
