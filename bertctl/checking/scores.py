"""Scores of text regression: missing, no numbers, all alike, far out."""

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bertctl.checking.findings import Finding, FindingRules
from bertctl.checking.subject import Subject
from bertctl.data.rows import Rows
from bertctl.words import percent

_RULES = FindingRules("scores")

_MOSTLY = 0.9  # share of one value from which there is little to learn
_FAR_OUT = 10.0  # times the middle half's width beyond it


def check_scores(subject: Subject) -> Iterator[Finding]:
    """Yields everything about scores."""
    ranges: dict[str, tuple[float, float]] = {}
    for split, rows in subject.splits.items():
        if not rows.has("label"):
            continue
        scores = [_number(value) for value in rows.columns["label"]]
        bad = [i for i, score in enumerate(scores) if score is None]
        yield from _RULES.of_rows("score-not-a-number", rows, split, bad, partial(_shown, rows))
        numbers = np.array([score for score in scores if score is not None])
        if len(numbers):
            ranges[split] = (float(numbers.min()), float(numbers.max()))
            yield from _spread(subject, split, numbers, [i for i, score in enumerate(scores) if score is not None])
    for split, (low, high) in ranges.items():
        if split != "train" and "train" in ranges:
            yield from _outside(subject, split, ranges["train"], (low, high))


def _number(value: object) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _spread(subject: Subject, split: str, numbers: NDArray[np.float64], places: list[int]) -> Iterator[Finding]:
    rows = subject.splits[split]
    value, count = Counter(numbers.tolist()).most_common(1)[0]
    if split == "train" and count == len(numbers):
        message = f"every score of {split} is {value:g}: nothing can be learned"
        yield _RULES.finding("one-score", split, (count, len(numbers)), message=message)
        return
    if split == "train" and count > _MOSTLY * len(numbers):
        message = f"{percent(count, len(numbers))} of the scores of {split} are {value:g}"
        yield _RULES.finding("imbalance", split, (count, len(numbers)), message=message)
    low, high = np.percentile(numbers, [25, 75])
    margin = _FAR_OUT * max(high - low, 1e-12)
    far = [places[i] for i in np.flatnonzero((numbers < low - margin) | (numbers > high + margin))]
    if high > low:
        says = f"have a score far from the middle half ({low:g} to {high:g})"
        yield from _RULES.of_rows("score-far-out", rows, split, far, partial(_shown, rows), says=says)


def _outside(subject: Subject, split: str, train: tuple[float, float], other: tuple[float, float]) -> Iterator[Finding]:
    rows = subject.splits[split]
    scores = [_number(value) for value in rows.columns["label"]]
    beyond = [i for i, score in enumerate(scores) if score is not None and not train[0] <= score <= train[1]]
    spans = f"{other[0]:g} to {other[1]:g}, those of train from {train[0]:g} to {train[1]:g}"
    message = f"the scores of {split} go from {spans}"
    yield from _RULES.of_rows("score-out-of-range", rows, split, beyond, partial(_shown, rows), message=message)


def _shown(rows: Rows, index: int) -> str:
    return f"{rows.columns['label'][index]!r}: {rows.columns['text'][index]}"
