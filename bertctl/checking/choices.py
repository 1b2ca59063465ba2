"""Multiple choice: right answers that are no choice, choices that are blank or alike, and what gives them away.

A row has `context`, `choices` (a list of texts) and, where it is labelled, `label` (the number of the right one).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bertctl.checking.findings import Finding, Severity, count_of, examples_at, percent
from bertctl.checking.subject import Subject, normalised
from bertctl.data.rows import Rows

_ENOUGH_ROWS = 50
_LEANING = 1.5  # times its fair share that one place of the right answer has
_GIVEN_AWAY = 0.6  # share of the rows whose right choice is the longest (or the shortest) one


def check_choices(subject: Subject) -> Iterator[Finding]:
    """Yields everything about choices."""
    for split, rows in subject.splits.items():
        yield from _choices(rows, split)
        if rows.has("label"):
            yield from _labels(rows, split)
            yield from _places(rows, split)
            yield from _lengths(rows, split)


def _choices(rows: Rows, split: str) -> Iterator[Finding]:
    column = rows.columns["choices"]
    usual = Counter(map(len, column)).most_common(1)[0][0] if len(rows) else 0
    labels = rows.columns.get("label", [None] * len(rows))
    keyed = [[normalised(str(choice)) for choice in choices] for choices in column]
    alike = [i for i, keys in enumerate(keyed) if len(set(keys)) < len(keys)]
    ambiguous = [
        i
        for i in alike
        if (right := _right(labels[i], len(keyed[i]))) is not None and keyed[i].count(keyed[i][right]) > 1
    ]
    faults: tuple[tuple[str, Severity, list[int], str, str], ...] = (
        (
            "number-of-choices",
            "note",
            [i for i, choices in enumerate(column) if len(choices) != usual],
            f"have not {usual} choices as most have",
            "Fine where it is meant; else look for choices that were lost or split.",
        ),
        (
            "blank-choice",
            "warning",
            [i for i, keys in enumerate(keyed) if not all(keys)],
            "have a blank choice",
            "Fill it in: a blank choice is ruled out without reading.",
        ),
        (
            "same-choice-twice",
            "warning",
            [i for i in alike if i not in set(ambiguous)],
            "have the same choice twice",
            "Replace one of the two.",
        ),
        (
            "right-choice-twice",
            "error",
            ambiguous,
            "have the right choice twice, once as a wrong one",
            "Replace the wrong one: no model can tell them apart.",
        ),
    )
    for code, severity, found, says, remedy in faults:
        yield from _finding(rows, split, code, severity, found, says, remedy)


def _labels(rows: Rows, split: str) -> Iterator[Finding]:
    labels = rows.columns["label"]
    missing = [i for i, label in enumerate(labels) if label is None or label == ""]
    choices = rows.columns["choices"]
    out = [i for i, label in enumerate(labels) if i not in set(missing) and _right(label, len(choices[i])) is None]
    yield from _finding(
        rows, split, "missing-label", "error", missing, "do not say which choice is right", "Fill the number in."
    )
    yield from _finding(
        rows,
        split,
        "label-out-of-range",
        "error",
        out,
        "have a label that is the number of no choice",
        "Count the choices from 0: the last of four is 3.",
    )


def _right(label: Any, n_choices: int) -> int | None:
    """The number of the right choice, or None where the label is none."""
    try:
        number = int(str(label))
    except ValueError:
        return None
    return number if 0 <= number < n_choices else None


def _places(rows: Rows, split: str) -> Iterator[Finding]:
    found = [_right(label, len(choices)) for label, choices in _pairs(rows)]
    known = Counter(place for place in found if place is not None)
    width = max(map(len, rows.columns["choices"]), default=0)
    if known.total() < _ENOUGH_ROWS or width < 2:
        return
    place, count = known.most_common(1)[0]
    if count * width > _LEANING * known.total():
        yield Finding(
            "leaky-place",
            "warning",
            split,
            count,
            known.total(),
            f"choice {place} is right in {percent(count, known.total())} of the rows of {split}, where "
            f"{percent(1, width)} were to be expected",
            (),
            "Shuffle the choices of each row: a system could learn the place.",
        )


def _lengths(rows: Rows, split: str) -> Iterator[Finding]:
    longest: list[int] = []
    shortest: list[int] = []
    judged = 0
    for i, (label, choices) in enumerate(_pairs(rows)):
        right = _right(label, len(choices))
        lengths = [len(str(choice)) for choice in choices]
        if right is None or len(set(lengths)) < len(lengths):
            continue
        judged += 1
        if lengths[right] == max(lengths):
            longest.append(i)
        elif lengths[right] == min(lengths):
            shortest.append(i)
    for found, word in ((longest, "longest"), (shortest, "shortest")):
        if judged >= _ENOUGH_ROWS and len(found) > _GIVEN_AWAY * judged:
            yield Finding(
                "leaky-length",
                "warning",
                split,
                len(found),
                judged,
                f"the right choice is the {word} one in {percent(len(found), judged)} of the rows of {split}",
                examples_at(rows, found, lambda i: " | ".join(map(str, rows.columns["choices"][i]))),
                "Write wrong choices as long as the right ones: the length gives them away.",
            )


def _pairs(rows: Rows) -> Iterator[tuple[Any, Any]]:
    return zip(rows.columns["label"], rows.columns["choices"], strict=True)


def _finding(
    rows: Rows, split: str, code: str, severity: Severity, found: list[int], says: str, remedy: str
) -> Iterator[Finding]:
    if found:
        yield Finding(
            code,
            severity,
            split,
            len(found),
            len(rows),
            f"{count_of(len(found), len(rows), 'row')} of {split} {says}",
            examples_at(
                rows,
                found,
                lambda i: f"label {rows.columns.get('label', {i: None})[i]!r}: {rows.columns['choices'][i]!r}",
            ),
            remedy,
        )
