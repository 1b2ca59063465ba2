"""The right choice of each row as a number, however the file says it: by number, by letter or by its text."""

from collections.abc import Callable, Sequence
from typing import Any

from bertctl.data.table import Table
from bertctl.errors import DataError

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def choice_numbers(table: Table, name: str, choices: Sequence[Sequence[str]]) -> list[int]:
    """Returns labels as numbers of choices, by the one reading (number, text, letter) that fits most rows.

    The whole column decides, since the choices of an arithmetic exercise can be numbers themselves.

    Raises:
        DataError: a label that is missing, or points at none of the row's choices.
    """
    labels = table.columns[name]
    for index, label in enumerate(labels):
        if label is None or label == "" or (isinstance(label, float) and label != label):
            raise DataError(
                f"{table.where(index)}: the label is {'NaN' if isinstance(label, float) else 'empty'}",
                remedy="Every row of a labelled split needs a label: fill it in, or take the row out.",
            )
    found = [[read(label, row) for label, row in zip(labels, choices, strict=True)] for read in _READINGS]
    best = max(found, key=lambda numbers: sum(number is not None for number in numbers))
    wrong = next((index for index, number in enumerate(best) if number is None), None)
    if wrong is not None:
        raise _refused(table, labels, choices, wrong)
    return [number for number in best if number is not None]


def _by_number(label: Any, choices: Sequence[str]) -> int | None:
    number = _whole(label)
    return number if number is not None and 0 <= number < len(choices) else None


def _by_text(label: Any, choices: Sequence[str]) -> int | None:
    stripped = [choice.strip() for choice in choices]
    wanted = label.strip() if isinstance(label, str) else str(label)
    return stripped.index(wanted) if stripped.count(wanted) == 1 else None


def _by_letter(label: Any, choices: Sequence[str]) -> int | None:
    letter = label.strip().lower() if isinstance(label, str) else ""
    number = _LETTERS.find(letter) if len(letter) == 1 else -1
    return number if 0 <= number < len(choices) else None


_READINGS: tuple[Callable[[Any, Sequence[str]], int | None], ...] = (_by_number, _by_text, _by_letter)


def _whole(label: Any) -> int | None:
    """Returns a label as a whole number, where it is one: 2, '2', 2.0."""
    if isinstance(label, bool):
        return None
    if isinstance(label, str):
        text = label.strip()
        return int(text) if text.removeprefix("-").isdecimal() and text.isascii() else None
    if isinstance(label, float):
        return int(label) if label.is_integer() else None
    return label if isinstance(label, int) else None


def _refused(table: Table, labels: Sequence[Any], choices: Sequence[Sequence[str]], index: int) -> DataError:
    label, row = labels[index], choices[index]
    number, stripped = _whole(label), [choice.strip() for choice in row]
    remedy = "A label is the number of the right choice counted from 0, its letter (A is the first), or its text."
    if number is not None:
        what = f"points outside its {len(row)} choices, which are numbers 0 to {len(row) - 1}"
        numbers = [_whole(value) for value in labels]
        if all(n is not None and 1 <= n <= len(of) for n, of in zip(numbers, choices, strict=True)):
            remedy += " No label of this file is 0: if they count from 1, take 1 off each."
    elif isinstance(label, str) and len(label.strip()) == 1:
        what = f"points outside its {len(row)} choices, which are letters A to {_LETTERS[len(row) - 1].upper()}"
    elif isinstance(label, str) and stripped.count(label.strip()) > 1:
        what = "is the text of several of its choices"
    else:
        what = f"is none of its {len(row)} choices: " + ", ".join(f"{choice!r:.40}" for choice in row[:6])
    return DataError(f"{table.where(index)}: the label {label!r:.60} {what}", remedy=remedy)
