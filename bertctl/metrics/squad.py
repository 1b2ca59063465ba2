"""Exact match and F1 of answers, as SQuAD's official scorers define them.

These are `evaluate-v1.1.py` and `evaluate-v2.0.py`.

Two texts are compared in lower case, without ASCII punctuation and the words a, an and the; the
best of a question's gold answers counts. The versions differ in gold answers of which nothing is
left then ("The", "!"): 1.1 gives them F1 0 and an exact match with any answer of which nothing is
left, 2.0 leaves them out, and a question whose answers are all of this kind is answered by an empty
text.

Where most letters of the gold answers are of scripts without spaces (Chinese, Japanese, Thai, ...),
which those scorers take for one word, the words of F1 are characters, and punctuation of any script
is left out of both metrics, as MLQA's scorer has it for Chinese. Nothing else moves.

Letters: N questions.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Literal

import numpy as np

from bertctl.arrays import Bools, Floats, Ints

Version = Literal[1, 2]
"""1 for data in which every question has an answer (SQuAD 1.1), 2 for data with unanswerable ones
(SQuAD 2.0)."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalized_answer(text: str) -> str:
    """Returns a text as answers are compared: `"The  U.S. army" -> "us army"`.

    It is in lower case, without ASCII punctuation, articles, and repeated blanks.
    """
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


_WITHOUT_SPACES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # marks that repeat a Chinese character, and zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3400, 0x4DBF),  # Chinese characters
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),  # Katakana of half the width
    (0x20000, 0x3FFFF),
)
"""First and last character of scripts that write words without spaces between them."""


def _is_without_spaces(character: str) -> bool:
    """Returns whether a character is of a script without spaces between words, such as Chinese."""
    code = ord(character)
    return any(low <= code <= high for low, high in _WITHOUT_SPACES)


def counts_characters(gold: Iterable[Sequence[str]]) -> bool:
    """Returns whether most letters of gold answers are of scripts without spaces.

    F1 then counts characters.
    """
    characters = chain.from_iterable(chain.from_iterable(gold))
    letters = [character for character in characters if character.isalpha()]
    return 2 * sum(map(_is_without_spaces, letters)) > len(letters)


def _words(text: str) -> list[str]:
    """Returns the words of a text as F1 counts them if characters are words.

    Each character of a script without spaces is a word, and so is each other word: 東京 BERT has
    the words 東, 京 and BERT. A mark belongs to the character before it.
    """
    words: list[str] = []
    for word in text.split():
        is_open = False  # whether the next letter continues the last word
        for place, character in enumerate(word):
            is_mark = place > 0 and unicodedata.category(character).startswith("M")
            is_alone = _is_without_spaces(character)
            if is_mark or (is_open and not is_alone):
                words[-1] += character
                continue
            words.append(character)
            is_open = not is_alone
    return words


def _without_punctuation(text: str) -> str:
    """Returns a text without the punctuation of any script, and without symbols."""
    return "".join(
        character for character in text if unicodedata.category(character)[0] not in "PS"
    )


def answer_exact(
    prediction: str, gold: Sequence[str], *, version: Version = 2, by_characters: bool = False
) -> float:
    """Returns 1.0 where the answer is one of the gold ones after normalisation, else 0.0.

    Args:
        prediction: The answer; empty for "no answer".
        gold: Texts of the gold answers; empty for an unanswerable question.
        version: Version of the SQuAD scorer, 1 or 2.
        by_characters: Whether F1 counts characters, and punctuation of any script is left out
            (`counts_characters`).
    """
    if by_characters:
        prediction = _without_punctuation(prediction)
        gold = [_without_punctuation(text) for text in gold]
    return float(normalized_answer(prediction) in _references(gold, version))


def answer_f1(
    prediction: str, gold: Sequence[str], *, version: Version = 2, by_characters: bool = False
) -> float:
    """Returns the F1 of the answer's words, against the gold answer that fits best.

    Args:
        prediction: The answer; empty for "no answer".
        gold: Texts of the gold answers; empty for an unanswerable question, where only an empty
            answer scores.
        version: Version of the SQuAD scorer, 1 or 2.
        by_characters: Whether characters of scripts without spaces are words (`counts_characters`).
    """
    split: Callable[[str], list[str]] = _words if by_characters else str.split
    if by_characters:
        prediction = _without_punctuation(prediction)
        gold = [_without_punctuation(text) for text in gold]
    words = split(normalized_answer(prediction))
    return max(
        _overlap(words, split(reference), version) for reference in _references(gold, version)
    )


def raw_scores(
    predictions: Sequence[str], gold: Sequence[Sequence[str]], *, version: Version
) -> tuple[Floats, Floats]:
    """Returns (N,) exact matches and (N,) F1 of each question.

    Args:
        predictions: N answers; empty for "no answer".
        gold: N lists of gold answers; empty for an unanswerable question.
        version: Version of the SQuAD scorer, 1 or 2.
    """
    by_characters = counts_characters(gold)
    scored = [
        _both(prediction, tuple(texts), version, by_characters)
        for prediction, texts in zip(predictions, gold, strict=True)
    ]
    exact, f1 = np.array(scored, dtype=np.float64).reshape(-1, 2).T.copy()
    return exact, f1


@lru_cache(maxsize=2**16)  # each metric asks for these, for each of two runs
def _both(
    prediction: str, gold: tuple[str, ...], version: Version, by_characters: bool
) -> tuple[float, float]:
    """Returns exact match and F1 of an answer; see `answer_f1` for the arguments."""
    return (
        answer_exact(
            prediction,
            gold,
            version=version,
            by_characters=by_characters,
        ),
        answer_f1(
            prediction,
            gold,
            version=version,
            by_characters=by_characters,
        ),
    )


def best_threshold(
    scores: Floats, null_odds: Floats, *, answerable: Bools, answered: Bools
) -> tuple[float, float]:
    """Returns the highest mean score that a threshold on the null odds can give.

    A question whose odds are above the threshold gets "no answer".

    As `evaluate-v2.0.py::find_best_thresh`: from "no answer" to everything, questions are answered
    one by one in the order of their odds, questions of equal odds in the order given; the first of
    several best thresholds is taken, and 0.0 where answering none is best.

    Args:
        scores: (N,) of each answer.
        null_odds: (N,) odds, or probabilities, of "no answer".
        answerable: (N,) whether the question has an answer.
        answered: (N,) whether the model's answer is not empty.

    Returns:
        The mean score (a fraction) and the threshold.
    """
    order, totals = _by_number_answered(
        scores,
        null_odds,
        answerable=answerable,
        answered=answered,
    )
    n_answered = int(totals.argmax())  # the number of answered questions with the best total
    threshold = 0.0
    if n_answered:
        threshold = float(null_odds[order[n_answered - 1]])
    return float(totals[n_answered] / len(scores)), threshold


def chosen_threshold(scores: Floats, null_odds: Floats, *, answerable: Bools) -> float:
    """Returns the threshold to store in a run.

    It lies halfway between the odds of the last question that `best_threshold` answers and those of
    the next one. Odds that differ in their last digits, as in a batch of another size, then fall on
    the same side. If answering none is best, the threshold is below all odds.

    Args:
        scores: (N,) of each question's best answer that is not empty; N at least 1.
        null_odds: (N,) odds of "no answer".
        answerable: (N,) whether the question has an answer.
    """
    answered = np.ones(len(scores), dtype=np.bool_)
    order, totals = _by_number_answered(
        scores,
        null_odds,
        answerable=answerable,
        answered=answered,
    )
    n_answered = int(totals.argmax())  # the number of answered questions with the best total
    odds = null_odds[order]
    if n_answered:
        below = odds[n_answered - 1]
    else:
        below = odds[0] - 1.0
    if n_answered < len(odds):
        above = odds[n_answered]
    else:
        above = odds[-1] + 1.0
    return float((below + above) / 2)


def _by_number_answered(
    scores: Floats, null_odds: Floats, *, answerable: Bools, answered: Bools
) -> tuple[Ints, Floats]:
    """Returns (N,) questions by rising null odds, and (N + 1,) total scores of all questions.

    Total k is reached if the first k of these questions get their answer, and the others get "no
    answer". The arguments are those of `best_threshold`.
    """
    order = np.argsort(null_odds, kind="stable")
    # Answering a question gains its score; an unanswerable one that is answered loses its 1.
    gains = np.where(answerable, scores, -answered.astype(np.float64))[order]
    return order, np.cumsum(np.concatenate([[float((~answerable).sum())], gains]))


def _references(gold: Sequence[str], version: Version) -> list[str]:
    """Returns the normalised gold answers; [""] where there are none.

    The scorer of version 2 leaves out those of which nothing is left.
    """
    texts = [normalized_answer(text) for text in gold]
    if version == 2:
        texts = [text for text in texts if text]
    return texts or [""]


def _overlap(words: Sequence[str], reference: Sequence[str], version: Version) -> float:
    """Returns the F1 of an answer's words against those of one gold answer.

    Where one of the two is empty, the scorer of version 2 gives 1 if both are, and version 1 gives
    0.
    """
    if not words or not reference:
        return float(version == 2 and words == reference)
    common = (Counter(words) & Counter(reference)).total()
    if not common:
        return 0.0
    precision = common / len(words)
    recall = common / len(reference)
    return 2 * precision * recall / (precision + recall)
