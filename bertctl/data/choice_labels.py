"""Which choice a label means: by its key in the file, by its number, by its text or by its letter.

A column is what nearly all of its labels are. Numbers count from 0 or from 1. Which of the two is
seen from a 0, or from columns that are numbered themselves; where neither says it, the person is
asked.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bertctl.data.choice_cells import Choices
from bertctl.data.rows import is_missing
from bertctl.data.table import Table, require_label
from bertctl.errors import DataError, WholeFileError
from bertctl.words import count

Kind = Literal["key", "number", "text", "letter"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_KINDS: tuple[Kind, ...] = ("key", "number", "text", "letter")
"""How a label may be read. Of several that fit as many labels, the first is taken."""
_COUNTING = "`data.first_choice=0` or `data.first_choice=1`"


@dataclass(frozen=True)
class LabelReading:
    """How the labels of a file are read.

    Attributes:
        kind: What the labels are read as.
        first: Number that means the first choice, 0 or 1, if the labels are numbers.
        fitting: How many labels of the file mean a choice if they are read so.
        is_ambiguous: Whether they are numbers that could count from 0 or from 1.
        seen_first: Number of the first choice, 0 or 1, if the labels themselves show it; else None.
    """

    kind: Kind
    first: int = 0
    fitting: int = 0
    is_ambiguous: bool = False
    seen_first: int | None = None

    def choice_of(self, label: Any, choices: Choices) -> int | None:
        """Returns the number of the choice that a label means, counted from 0.

        The result is None if it means none.
        """
        if self.kind == "key":
            return _by_key(label, choices)
        if self.kind == "number":
            return _by_number(label, choices, self.first)
        if self.kind == "text":
            return _by_text(label, choices)
        return _by_letter(label, choices)


def find_reading(
    labels: Sequence[Any], choices: Sequence[Choices], first: int | None
) -> LabelReading:
    """Returns the reading (as keys, numbers, texts or letters) that fits most labels.

    Args:
        labels: The labels of a whole file. Missing ones do not count.
        choices: The choices of each row.
        first: The number that labels give the first choice, 0 or 1; None if it is not known.
    """
    # Labels that are there, each with the choices of its row.
    pairs = [
        (label, row)
        for label, row in zip(labels, choices, strict=True)
        if not is_missing(label) and label != ""
    ]
    # Only labels that count from 0 contain 0. Only labels that count from 1 contain the number of
    # choices, which means the last choice then.
    n_zeros = sum(_as_whole_number(label) == 0 for label, _ in pairs)
    n_last_from_one = sum(_as_whole_number(label) == len(row.texts) for label, row in pairs)
    counts_from_zero = n_zeros > 0 and n_last_from_one <= n_zeros
    # If several readings fit equally many labels, the first of them is taken.
    if counts_from_zero:
        kinds: tuple[Kind, ...] = ("number", "key", "text", "letter")
    else:
        kinds = _KINDS

    # Only the reading as numbers depends on it. If it is not known, the numbers are tried from 0.
    assumed_first = first or 0
    n_fitting: dict[Kind, int] = {}
    for kind in kinds:
        reading = LabelReading(kind, assumed_first)
        n_fitting[kind] = sum(reading.choice_of(label, row) is not None for label, row in pairs)
    kind = max(n_fitting, key=n_fitting.__getitem__)  # `max` returns the first of equal ones

    seen_first = None
    if kind == "number" and n_zeros:
        seen_first = 0
    elif kind == "key" and n_last_from_one > n_zeros:
        # The labels are the numbers of columns such as `choice1`, the last one among them.
        seen_first = 1
    shows_no_start = not n_zeros and not n_last_from_one and bool(pairs)
    return LabelReading(
        kind,
        first=assumed_first,
        fitting=n_fitting[kind],
        is_ambiguous=kind == "number" and first is None and shows_no_start,
        seen_first=seen_first,
    )


def numbers_of_choices(
    table: Table,
    name: str,
    choices: Sequence[Choices],
    reading: LabelReading,
    *,
    keys_are_columns: bool,
    is_whole: bool = True,
) -> list[int]:
    """Returns the labels as numbers of choices, counted from 0: `B` -> 1.

    Args:
        table: The file, or a chunk of it.
        name: Its label column.
        choices: The choices of each row.
        reading: How labels are read (as numbers, letters ...), as the whole file showed it.
        keys_are_columns: Whether the keys of the choices are the numbers of their columns, such as
            `1` for `choice1`. Labels that are read as keys are numbers then.
        is_whole: Whether the table is the whole file. A chunk can't show whether labels count from
            0 or from 1, so this is not checked.

    Raises:
        DataError: A label is missing, or means none of the row's choices; or all labels are the
            number of one choice and the text of another.
        WholeFileError: The labels could count from 0 or from 1.
    """
    labels = [require_label(table, index, name) for index in range(len(table))]
    numbers = [reading.choice_of(label, row) for label, row in zip(labels, choices, strict=True)]
    if None in numbers:
        raise _refused(
            table,
            labels,
            choices,
            index=numbers.index(None),
            reading=reading,
        )
    are_numbers = reading.kind == "number" or (reading.kind == "key" and keys_are_columns)
    if are_numbers:
        # In an arithmetic exercise, choices are numbers, too. With the choices 2, 3, 4 and 5, the
        # label 3 may be the number of a choice, or its text.
        numbers_by_text = [_by_text(label, row) for label, row in zip(labels, choices, strict=True)]
        all_are_texts = None not in numbers_by_text
        if all_are_texts and numbers_by_text != numbers:
            message = (
                f"{table.source}: each label in '{name}' fits as the number of one choice and as "
                "the text of another"
            )
            raise DataError(message, remedy="Write them as letters: A is the first choice.")
    if reading.is_ambiguous and is_whole:
        raise WholeFileError(
            f"{table.source}: whether the labels in '{name}' count from 0 or from 1 can't be seen: "
            "none is 0, and none is the number of choices",
            remedy=f"Say in training what the first choice is called: {_COUNTING} (in a recipe: "
            "data.first_choice). Or write letters: A is the first choice.",
        )
    return [number for number in numbers if number is not None]


def refuse_other_label(
    table: Table,
    names: tuple[str, str],
    numbers: Sequence[int],
    choices: Sequence[Choices],
    reading: LabelReading,
) -> None:
    """Refuses a table with rows in which a second label column means another choice than the first.

    Args:
        table: The file.
        names: Names of the first and the second label column.
        numbers: The right choices by the first one, counted from 0.
        choices: The choices of each row.
        reading: How the labels of the second one are read.

    Raises:
        DataError: With file and line of the first such row, and the number of such rows.
    """
    label_name, other_name = names
    differing = []
    for index, (number, row) in enumerate(zip(numbers, choices, strict=True)):
        other_number = reading.choice_of(table.columns[other_name][index], row)
        if other_number is not None and other_number != number:
            differing.append((index, other_number))
    if not differing:
        return
    index, other_number = differing[0]
    texts = choices[index].texts
    if len(differing) > 1:
        rows = f" ({count(len(differing), 'row')} of {len(table)} differ)"
    else:
        rows = ""
    raise DataError(
        f"{table.where(index)}: the right choice is {texts[numbers[index]]!r:.60} by "
        f"'{label_name}' and {texts[other_number]!r:.60} by '{other_name}'{rows}",
        remedy="Correct the rows, or take the column out that does not count.",
    )


def _by_key(label: Any, choices: Choices) -> int | None:
    """Returns the number of the choice that has this key in the file; None if not exactly one."""
    key = _as_key(label)
    keys = [choice_key.strip().lower() for choice_key in choices.keys]
    if keys.count(key) == 1:
        return keys.index(key)
    return None


def _as_key(label: Any) -> str:
    """Returns a label as keys are compared: 2.0 -> `2`, ` B` -> `b`."""
    number = _as_whole_number(label)
    if number is None:
        return str(label).strip().lower()
    return str(number)


def _by_number(label: Any, choices: Choices, first: int) -> int | None:
    """Returns the choice, counted from 0, of a label that counts from `first`; None outside."""
    number = _as_whole_number(label)
    if number is not None and 0 <= number - first < len(choices.texts):
        return number - first
    return None


def _by_text(label: Any, choices: Choices) -> int | None:
    """Returns the number of the choice with this text; None if not exactly one has it."""
    texts = [text.strip() for text in choices.texts]
    if isinstance(label, str):
        text = label.strip()
    else:
        text = str(label)
    if texts.count(text) == 1:
        return texts.index(text)
    return None


def _by_letter(label: Any, choices: Choices) -> int | None:
    """Returns the number of the choice of a letter: `A`, `a.`, `(A)` -> 0; else None."""
    if not isinstance(label, str):
        return None
    letter = label.strip().strip("().").lower()
    if len(letter) != 1 or letter not in _LETTERS:
        return None
    number = _LETTERS.index(letter)
    if number < len(choices.texts):
        return number
    return None


def _as_whole_number(label: Any) -> int | None:
    """Returns a label as a whole number, where it is one: 2, '2', '2.0', 2.0."""
    if isinstance(label, bool):
        return None
    if isinstance(label, str):
        text = label.strip()
        if re.fullmatch(r"-?[0-9]+(\.0*)?", text):
            return int(float(text))
        return None
    if isinstance(label, float):
        if label.is_integer():
            return int(label)
        return None
    if isinstance(label, int):
        return label
    return None


def _refused(
    table: Table,
    labels: Sequence[Any],
    choices: Sequence[Choices],
    index: int,
    reading: LabelReading,
) -> DataError:
    """Returns the error for a label that means no choice, with the likeliest reason.

    Args:
        table: The file.
        labels: The labels of all its rows.
        choices: The choices of all its rows.
        index: Position of the wrong row.
        reading: How the labels are read, as the whole file showed it.
    """
    label = labels[index]
    texts = choices[index].texts
    error_type: type[DataError] = DataError
    number = _as_whole_number(label)
    remedy = (
        f"A label is the number of the right choice counted from {reading.first}, its letter (A is "
        "the first), or its text."
    )
    is_letter = isinstance(label, str) and len(label.strip()) == 1 and label.strip().isalpha()
    # The labels that fit, in words, such as `3 labels are letters`. Empty if no label fits.
    fitting_labels = _described(reading, reading.fitting)
    if number is not None and reading.kind in ("letter", "text", "key") and fitting_labels:
        message = f"is a number, and {fitting_labels}"
        remedy = f"Write it as the others are written. {remedy}"
    elif is_letter and reading.kind in ("number", "text") and fitting_labels:
        message = f"is a letter, and {fitting_labels}"
        remedy = f"Write it as the others are written. {remedy}"
    elif reading.kind == "key" and fitting_labels:
        message = f"is none of the labels of its choices: {', '.join(choices[index].keys)}"
    elif number is not None:
        last_number = len(texts) - 1 + reading.first
        message = (
            f"points outside its {len(texts)} choices, which are numbers {reading.first} to "
            f"{last_number}"
        )
        from_one = [_by_number(value, row, 1) for value, row in zip(labels, choices, strict=True)]
        all_fit_from_one = None not in from_one
        if reading.first == 0 and all_fit_from_one:
            # Probably all labels count from 1, so skipping this row alone would be no remedy.
            error_type = WholeFileError
            remedy += (
                " No label of this file is 0: if they count from 1, say `data.first_choice=1`, "
                "or take 1 off each."
            )
    elif is_letter:
        message = (
            f"points outside its {len(texts)} choices, which are letters A to "
            f"{_LETTERS[len(texts) - 1].upper()}"
        )
    elif isinstance(label, str) and [text.strip() for text in texts].count(label.strip()) > 1:
        message = "is the text of several of its choices"
    else:
        message = f"is none of its {len(texts)} choices: " + ", ".join(
            f"{text!r:.40}" for text in texts[:6]
        )
    return error_type(f"{table.where(index)}: the label {label!r:.60} {message}", remedy=remedy)


def _described(reading: LabelReading, number: int) -> str:
    """Returns how a number of labels is read, in words: `3 labels are letters`; empty for 0."""
    if not number:
        return ""
    singular, plural = {
        "key": ("is the label of a choice", "are labels of choices"),
        "number": ("is a number", "are numbers"),
        "text": ("is the text of a choice", "are texts of choices"),
        "letter": ("is a letter", "are letters"),
    }[reading.kind]
    verb = singular if number == 1 else plural
    return f"{count(number, 'label')} {verb}"
