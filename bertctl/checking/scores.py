"""Scores of text regression: missing, no numbers, all alike, far out."""

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bertctl.checking.findings import Finding, count_of, examples_at, percent
from bertctl.checking.subject import Subject
from bertctl.data.rows import Rows

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
        if bad:
            yield Finding(
                "score-not-a-number",
                "error",
                split,
                len(bad),
                len(rows),
                f"{count_of(len(bad), len(rows), 'row')} of {split} have a score that is no finite number",
                examples_at(rows, bad, partial(_shown, rows)),
                "Write them as numbers with a point (3.5), or take the rows out: training refuses them.",
            )
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
        yield Finding(
            "one-score",
            "error",
            split,
            count,
            len(numbers),
            f"every score of {split} is {value:g}: nothing can be learned",
            (),
            "Check --label-column, or add rows with other scores.",
        )
        return
    if split == "train" and count > _MOSTLY * len(numbers):
        yield Finding(
            "imbalance",
            "warning",
            split,
            count,
            len(numbers),
            f"{percent(count, len(numbers))} of the scores of {split} are {value:g}",
            (),
            "Look at the correlation rather than the error, and add rows with other scores.",
        )
    low, high = np.percentile(numbers, [25, 75])
    margin = _FAR_OUT * max(high - low, 1e-12)
    far = [places[i] for i in np.flatnonzero((numbers < low - margin) | (numbers > high + margin))]
    if far and high > low:
        yield Finding(
            "score-far-out",
            "warning",
            split,
            len(far),
            len(rows),
            f"{count_of(len(far), len(rows), 'row')} of {split} have a score far from the middle half "
            f"({low:g} to {high:g})",
            examples_at(rows, far, partial(_shown, rows)),
            "Check for a slipped decimal point or a missing-value code such as 999 or -1; squared error obeys them.",
        )


def _outside(subject: Subject, split: str, train: tuple[float, float], other: tuple[float, float]) -> Iterator[Finding]:
    rows = subject.splits[split]
    beyond = [
        i
        for i, value in enumerate(rows.columns["label"])
        if (score := _number(value)) is not None and not train[0] <= score <= train[1]
    ]
    if beyond:
        yield Finding(
            "score-out-of-range",
            "note",
            split,
            len(beyond),
            len(rows),
            f"the scores of {split} go from {other[0]:g} to {other[1]:g}, those of train from {train[0]:g} to "
            f"{train[1]:g}",
            examples_at(rows, beyond, partial(_shown, rows)),
            "Are both on one scale? What lies outside was never seen in training.",
        )


def _shown(rows: Rows, index: int) -> str:
    return f"{rows.columns['label'][index]!r}: {rows.columns['text'][index]}"
