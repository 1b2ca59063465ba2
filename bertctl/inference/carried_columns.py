"""Columns of a file that stand beside its answers, under the names that they have in the file."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertctl.data.columns import beside_canonical
from bertctl.data.file_ids import as_json
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.words import hinted, names_in

SUFFIX = "_bertctl"
"""Ends the name of an answer's field where the file has a column of that name, which keeps it."""

_INTERNAL = ("lines", "offsets", "document")
"""Columns of rows that readers make themselves."""


@dataclass(frozen=True)
class KeptColumns:
    """Choice of the columns that are carried over from a file to its answers.

    Attributes:
        names: Names in the file; None for all that the answers do not show anyway.
    """

    names: tuple[str, ...] | None = ()

    @classmethod
    def parse(cls, typed: str | None, *, by_default: bool) -> "KeptColumns":
        """Returns the choice of `--keep-columns`: `all`, `none` or names between commas.

        Args:
            typed: What was typed; None for nothing.
            by_default: Whether all columns are carried over if nothing was typed.
        """
        if typed is None:
            typed = "all" if by_default else "none"
        if typed == "all":
            return cls(None)
        if typed == "none":
            return cls(())
        return cls(tuple(names_in(typed)))

    def columns(self, rows: Rows, canonical: Collection[str]) -> dict[str, Sequence[Any]]:
        """Returns name in the file -> values, of the columns that are carried over.

        Args:
            rows: Some rows of the file.
            canonical: Columns that the task reads; all but the label are shown by the answers.

        Raises:
            UsageError: The file has no such column.
        """
        if self.names == ():  # none are carried over; None means all
            return {}
        shown_anyway = {*canonical, *_INTERNAL} - {"label"}
        not_carried = set(shown_anyway)
        if rows.file_names.get("id") == "id":  # answers have this column as their `id`
            not_carried.add("id")
        available = {
            _name_in_file(column, rows, canonical): values
            for column, values in rows.columns.items()
            if column not in not_carried
        }
        if self.names is None:
            return available

        # Columns that answers show anyway, under the task's name, can be asked for by their name in
        # the file. `id` can be asked for, too, and adds nothing: every answer has it.
        nameable = dict(available)
        for column, name in _texts(rows, shown_anyway).items():
            nameable[name] = rows.columns[column]
        for name in self.names:
            if name not in nameable and name != "id":
                message = hinted(
                    f"`keep_columns=`: {rows.source} has no column '{name}'", name, nameable
                )
                raise UsageError(
                    message, remedy=f"Columns there: {', '.join(nameable)}; or all, or none."
                )
        return {name: nameable[name] for name in self.names if name in nameable}


def _texts(rows: Rows, answer_columns: Iterable[str]) -> dict[str, str]:
    """Returns canonical name -> name in the file for the columns that answers show."""
    return {
        column: name
        for column, name in rows.file_names.items()
        if column in answer_columns and rows.has(column)
    }


def _name_in_file(column: str, rows: Rows, canonical: Collection[str]) -> str:
    """Returns what the file calls a column of rows, as answers name it.

    Args:
        column: Name of the column in the rows.
        rows: Some rows of the file.
        canonical: Names of the columns that the task reads, such as `text`.
    """
    if column == "id":  # in an answer, `id` is the id of the answer
        return "file_id"
    if column == "label":
        return rows.file_names.get("label", "label")
    # If `text` is read from another column, the file's own `text` is called `file_text` in rows.
    for name in canonical:
        if column == beside_canonical(name):
            return name
    return column


def shown_name(column: str, rows: Rows) -> str:
    """Returns what answers call a column that the model reads.

    That is its canonical name, such as `text`. If the file has another column of this name, answers
    use the name that the file gives to the column that is read.
    """
    names_of_other_columns = [
        name for canonical, name in rows.file_names.items() if canonical != column
    ]
    is_taken = rows.has(beside_canonical(column)) or column in names_of_other_columns
    if is_taken:
        return rows.file_names.get(column, column)
    return column


def beside(columns: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a file and behind them the fields of an answer.

    A field that is called like a column gets another name.
    """
    merged = dict(columns)
    for name, value in fields.items():
        merged[free_name(name, merged)] = value
    return merged


def free_name(name: str, used_names: Collection[str]) -> str:
    """Returns a name with as many suffixes as it takes to be free."""
    while name in used_names:
        name += SUFFIX
    return name


def cells(columns: Mapping[str, Sequence[Any]], index: int) -> dict[str, Any]:
    """Returns a row of columns, as JSON can hold it."""
    return {name: as_json(values[index]) for name, values in columns.items()}
