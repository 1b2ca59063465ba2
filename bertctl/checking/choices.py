"""Multiple choice: choices that are blank or alike, and what gives the right one away.

A row has `context`, `choices` (a list of texts) and, where it is labelled, `label` (the number of
the right one).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bertctl.checking.findings import Finding, FindingRules, examples_at
from bertctl.checking.subject import Subject
from bertctl.data.groups import normalised
from bertctl.data.rows import Rows
from bertctl.words import percent

_RULES = FindingRules("choices")

_ENOUGH_ROWS = 50
_LEANING = 1.5  # times its fair share that one place of the right answer has
_GIVEN_AWAY = 0.6  # share of the rows whose right choice is the longest (or the shortest) one


def check_choices(subject: Subject) -> Iterator[Finding]:
    """Yields choices that are blank or alike, and what gives the right one away."""
    for split, rows in subject.splits.items():
        yield from _choices(rows, split)
        if rows.has("label"):
            yield from _places(rows, split)
            yield from _lengths(rows, split)


def _choices(rows: Rows, split: str) -> Iterator[Finding]:
    """Yields rows with an unusual number of choices, blank choices, or the same choice twice.

    Choices are the same if they differ only in case and spacing. If the right choice is there
    twice, that is a finding of its own: no model can tell the two apart.
    """
    column = rows.columns["choices"]
    if len(rows):
        usual_number = Counter(map(len, column)).most_common(1)[0][0]
    else:
        usual_number = 0
    labels = rows.columns.get("label", [None] * len(rows))
    keys_of_rows = [[normalised(str(choice)) for choice in choices] for choices in column]
    repeating = [i for i, keys in enumerate(keys_of_rows) if len(set(keys)) < len(keys)]
    ambiguous = []  # the right choice is there twice
    for i in repeating:
        right_choice = _right(labels[i], len(keys_of_rows[i]))
        if right_choice is None:
            continue
        right_key = keys_of_rows[i][right_choice]
        if keys_of_rows[i].count(right_key) > 1:
            ambiguous.append(i)
    unusual = [i for i, choices in enumerate(column) if len(choices) != usual_number]
    yield from _about(
        rows,
        split,
        "number-of-choices",
        unusual,
        says=f"do not have {usual_number} choices, as most have",
    )
    yield from _about(
        rows, split, "blank-choice", [i for i, keys in enumerate(keys_of_rows) if not all(keys)]
    )
    yield from _about(
        rows, split, "same-choice-twice", [i for i in repeating if i not in set(ambiguous)]
    )
    yield from _about(rows, split, "right-choice-twice", ambiguous)


def _right(label: Any, n_choices: int) -> int | None:
    """Returns the number of the right choice, or None where the label is none."""
    try:
        number = int(str(label))
    except ValueError:
        return None
    if 0 <= number < n_choices:
        return number
    return None


def _places(rows: Rows, split: str) -> Iterator[Finding]:
    """Yields a finding if the right choice is at one position far more often than by chance."""
    right_choices = [_right(label, len(choices)) for label, choices in _pairs(rows)]
    counts = Counter(place for place in right_choices if place is not None)
    n_rows = counts.total()
    most_choices = max(map(len, rows.columns["choices"]), default=0)
    if n_rows < _ENOUGH_ROWS or most_choices < 2:
        return

    place, count = counts.most_common(1)[0]
    # By chance, the right choice is there in one of `most_choices` rows.
    is_far_more_often = count * most_choices > _LEANING * n_rows
    if is_far_more_often:
        share = percent(count, n_rows)
        by_chance = percent(1, most_choices)
        message = (
            f"choice {place} is right in {share} of the rows of {split}, where {by_chance} were to "
            "be expected"
        )
        yield _RULES.finding("leaky-place", split, (count, n_rows), message=message)


def _lengths(rows: Rows, split: str) -> Iterator[Finding]:
    """Yields a finding if the right choice is the longest, or the shortest, in most rows.

    Rows in which two choices are equally long are not counted.
    """
    rows_by_extreme: dict[str, list[int]] = {"longest": [], "shortest": []}
    n_compared = 0
    for i, (label, choices) in enumerate(_pairs(rows)):
        right_choice = _right(label, len(choices))
        lengths = [len(str(choice)) for choice in choices]
        if right_choice is None or len(set(lengths)) < len(lengths):
            continue
        n_compared += 1
        if lengths[right_choice] == max(lengths):
            rows_by_extreme["longest"].append(i)
        elif lengths[right_choice] == min(lengths):
            rows_by_extreme["shortest"].append(i)
    for word, given_away in rows_by_extreme.items():
        # In a few rows, or with a small majority, it may be chance.
        are_most_rows = len(given_away) > _GIVEN_AWAY * n_compared
        if n_compared >= _ENOUGH_ROWS and are_most_rows:
            examples = examples_at(
                rows, given_away, lambda i: " | ".join(map(str, rows.columns["choices"][i]))
            )
            message = (
                f"the right choice is the {word} one in {percent(len(given_away), n_compared)} of "
                f"the rows of {split}"
            )
            yield _RULES.finding(
                "leaky-length",
                split,
                (len(given_away), n_compared),
                examples,
                message=message,
            )


def _pairs(rows: Rows) -> Iterator[tuple[Any, Any]]:
    """Yields the label and the choices of each row."""
    return zip(rows.columns["label"], rows.columns["choices"], strict=True)


def _about(
    rows: Rows, split: str, code: str, row_numbers: list[int], *, says: str | None = None
) -> Iterator[Finding]:
    """Yields the finding about some rows, shown with their label and choices."""
    labels = rows.columns.get("label", [None] * len(rows))
    yield from _RULES.of_rows(
        code,
        rows,
        split,
        row_numbers,
        lambda i: f"label {labels[i]!r}: {rows.columns['choices'][i]!r}",
        says=says,
    )
