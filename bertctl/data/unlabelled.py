"""Cells of a label's column that hold no label.

Nobody gave one, or the labels given can't be learned.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bertctl.data.packed_columns import is_packed
from bertctl.data.table import Table
from bertctl.errors import DataError
from bertctl.words import count_of


@dataclass(frozen=True)
class NoLabel:
    """Mark in place of a label that no person gave. Labelled splits leave such rows out.

    Attributes:
        reason: In a few words, such as `skipped`.
    """

    reason: str


@dataclass(frozen=True)
class UnusableLabel:
    """Stands where there are labels that can't be learned. Such a row is refused.

    Attributes:
        message: Why, as the end of a message that begins with the place.
        remedy: What to do.
    """

    message: str
    remedy: str

    def error(self, where: str) -> DataError:
        """Returns the error for a row with this label, with its file and line (`where`)."""
        return DataError(f"{where}: {self.message}", remedy=self.remedy)


def without_marks(table: Table) -> Table:
    """Returns a table with None in place of `NoLabel` and `UnusableLabel`.

    It is for a table whose labels nobody needs.
    """
    marked = [
        name
        for name, values in table.columns.items()
        if not is_packed(values) and any(map(_is_mark, values))
    ]
    if not marked:
        return table
    columns = dict(table.columns)
    for name in marked:
        columns[name] = [None if _is_mark(value) else value for value in columns[name]]
    return replace(table, columns=columns)


def _is_mark(value: Any) -> bool:
    """Returns whether a cell says why there is no label."""
    return isinstance(value, NoLabel | UnusableLabel)


def labelled_positions(values: Sequence[Any]) -> Sequence[int]:
    """Returns the positions of the cells of a label column that are not `NoLabel`."""
    if is_packed(values):  # holds only texts, numbers and None
        return range(len(values))
    return [position for position, value in enumerate(values) if not isinstance(value, NoLabel)]


def left_out(values: Iterable[Any], total: int) -> str:
    """Returns how many rows have no label and why, as a sentence; nothing where all have one."""
    reasons = Counter(value.reason for value in values if isinstance(value, NoLabel))
    if not reasons:
        return ""
    counted_reasons = ", ".join(f"{reason}: {number}" for reason, number in reasons.items())
    unlabelled = count_of(reasons.total(), total, "row")
    return f"{unlabelled} have no label and are left out ({counted_reasons})"
