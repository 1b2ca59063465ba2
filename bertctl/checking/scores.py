"""Scores of text regression: missing, no numbers, all alike, far out."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np

from bertctl.arrays import Floats
from bertctl.checking.findings import Finding, FindingRules
from bertctl.checking.subject import Subject
from bertctl.data.rows import Rows
from bertctl.words import as_number, percent

_RULES = FindingRules("scores")

_MOSTLY = 0.9  # share of one value from which there is little to learn
_FAR_OUT = 10.0  # times the middle half's width beyond it


def check_scores(subject: Subject) -> Iterator[Finding]:
    """Yields scores that are no numbers, all alike, far out, or out of the range of train."""
    ranges: dict[str, tuple[float, float]] = {}
    for split, rows in subject.splits.items():
        if not rows.has("label"):
            continue
        scores = _numbers(rows)
        is_number = np.isfinite(scores)
        yield from _RULES.of_rows(
            "score-not-a-number",
            rows,
            split,
            np.flatnonzero(~is_number).tolist(),
            partial(_shown, rows),
        )
        if is_number.any():
            numbers = scores[is_number]
            ranges[split] = (float(numbers.min()), float(numbers.max()))
            yield from _spread(subject, split, numbers, np.flatnonzero(is_number).tolist())
    for split, (low, high) in ranges.items():
        if split != "train" and "train" in ranges:
            yield from _outside(subject, split, ranges["train"], (low, high))


def _numbers(rows: Rows) -> Floats:
    """Returns (N,) the scores of the rows, NaN where a score is no number."""
    return np.array([as_number(str(value)) for value in rows.columns["label"]])


def _spread(
    subject: Subject, split: str, numbers: Floats, row_numbers: list[int]
) -> Iterator[Finding]:
    """Yields findings on scores that are all equal, mostly equal, or far from the others.

    Args:
        subject: The splits that are checked.
        split: Name of the split.
        numbers: (n,) scores of the split, those that are numbers.
        row_numbers: (n,) number of the row that each score is of.
    """
    rows = subject.splits[split]
    value, count = Counter(numbers.tolist()).most_common(1)[0]
    # Constant scores can be evaluated on, but not learned from.
    if split == "train" and count == len(numbers):
        message = f"every score of {split} is {value:g}: nothing can be learned"
        yield _RULES.finding("one-score", split, (count, len(numbers)), message=message)
        return
    are_mostly_equal = count > _MOSTLY * len(numbers)
    if split == "train" and are_mostly_equal:
        message = f"{percent(count, len(numbers))} of the scores of {split} are {value:g}"
        yield _RULES.finding("imbalance", split, (count, len(numbers)), message=message)
    low, high = np.percentile(numbers, [25, 75])
    margin = _FAR_OUT * max(high - low, 1e-12)
    is_far_out = (numbers < low - margin) | (numbers > high + margin)
    far_out = [row_numbers[i] for i in np.flatnonzero(is_far_out)]
    # Where the middle half is one value, any other value would be far out.
    if high > low:
        says = f"have a score far from the middle half ({low:g} to {high:g})"
        yield from _RULES.of_rows(
            "score-far-out",
            rows,
            split,
            far_out,
            partial(_shown, rows),
            says=says,
        )


def _outside(
    subject: Subject, split: str, train: tuple[float, float], of_split: tuple[float, float]
) -> Iterator[Finding]:
    """Yields the rows of a split whose scores are outside the range of the training scores.

    Args:
        subject: What is checked.
        split: A split other than train.
        train: Lowest and highest score of the training rows.
        of_split: Lowest and highest score of the split.
    """
    lowest, highest = train
    rows = subject.splits[split]
    scores = _numbers(rows)
    is_outside = np.isfinite(scores) & ((scores < lowest) | (scores > highest))
    beyond = np.flatnonzero(is_outside).tolist()
    range_of_split = f"{of_split[0]:g} to {of_split[1]:g}"
    range_of_train = f"{lowest:g} to {highest:g}"
    message = (
        f"the scores of {split} go from {range_of_split}, those of train from {range_of_train}"
    )
    yield from _RULES.of_rows(
        "score-out-of-range",
        rows,
        split,
        beyond,
        partial(_shown, rows),
        message=message,
    )


def _shown(rows: Rows, index: int) -> str:
    """Returns the score and the text of a row."""
    return f"{rows.columns['label'][index]!r}: {rows.columns['text'][index]}"
