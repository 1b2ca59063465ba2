"""`Table`: what is found in a file, before anybody decided what the columns mean."""

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from bertctl.data.packed_columns import ColumnBuilder, is_many, selected
from bertctl.data.rows import Rows, is_missing
from bertctl.errors import DataError
from bertctl.words import as_number, number_with_sign

_RECORDS = 4096
"""Records that are turned into columns at once."""
_WEIGHED_AT_ONCE = 16
"""Items between two looks at how many bytes a chunk has."""
HEAVIEST_CHUNK = 64_000_000
"""Bytes of rows that are read at once: rows may be as long as a line may be."""
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Table:
    """Columns as the file has them.

    Attributes:
        columns: name in the file -> values.
        source: the file, for messages.
        lines: line where each row begins, counted from 1; empty where there are no lines (Parquet).
        header: whether the names come from the file, or are `column1`, `column2`, ...
        first: how many rows of the file stand before these.
        numbers: number of each row in the file, counted from 1, where they are not one after the
            other.
        is_typed: whether the file says the type of each column (Parquet).
        class_names: by column, the names of its classes in the order of their numbers, where the
            file says them.
    """

    columns: Mapping[str, Sequence[Any]]
    source: str
    lines: Sequence[int] = ()
    header: bool = True
    first: int = 0
    numbers: Sequence[int] = ()
    is_typed: bool = False
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Returns the number of rows, which is the length of any column."""
        return len(next(iter(self.columns.values()), ()))

    def where(self, index: int) -> str:
        """Returns `file:line` (or `file, row n`) of a row, for messages."""
        if self.lines:
            return f"{self.source}:{self.lines[index]}"
        return f"{self.source}, row {self.number(index)}"

    def number(self, index: int) -> int:
        """Returns the number of a row in the file, counted from 1."""
        if self.numbers:
            return self.numbers[index]
        return self.first + index + 1

    def chunks(self, size: int | None) -> Iterator[Self]:
        """Yields the rows, at most `size` at a time; all at once if `size` is None."""
        for numbers in in_chunks(range(len(self)), size):
            yield self.select(numbers)

    def select(self, indices: Sequence[int]) -> Self:
        """Returns the rows at these positions.

        Messages name a row by its line where the file has lines, and by its number otherwise. So
        numbers are kept only without lines.
        """
        columns = {name: selected(values, indices) for name, values in self.columns.items()}
        lines = selected(self.lines, indices) if self.lines else ()
        if self.lines:
            numbers = []
        else:
            numbers = [self.number(i) for i in indices]
        # How many rows of the file come before the first selected row. It numbers rows that follow
        # each other, such as a chunk; other selections have lines or numbers.
        first = self.first + min(indices, default=0)
        return replace(
            self,
            columns=columns,
            lines=lines,
            first=first,
            numbers=numbers,
        )


def in_chunks(
    items: Iterable[_Item], size: int | None, *, weight: Callable[[_Item], int] | None = None
) -> Iterator[list[_Item]]:
    """Yields the items in lists of `size`: 1, 2, 3 with size 2 -> `[1, 2]`, `[3]`.

    Args:
        items: In their order. Without any, no list is yielded.
        size: Items of a list. The last list may be shorter. None makes one list of all items.
        weight: Returns about how many bytes an item has. A list ends early once its items have more
            than `HEAVIEST_CHUNK`.
    """
    remaining = iter(items)
    if size is None or weight is None:
        while chunk := list(itertools.islice(remaining, size)):
            yield chunk
        return

    chunk = []
    n_bytes = 0
    while piece := list(itertools.islice(remaining, min(_WEIGHED_AT_ONCE, size - len(chunk)))):
        chunk += piece
        n_bytes += sum(map(weight, piece))
        if len(chunk) >= size or n_bytes > HEAVIEST_CHUNK:
            yield chunk
            chunk = []
            n_bytes = 0
    if chunk:
        yield chunk


def weight_of_record(record: tuple[int, Sequence[str]]) -> int:
    """Returns the characters of a record, or of a line with its number."""
    return sum(map(len, record[1]))


def table_of_records(
    names: Sequence[str], records: Iterable[tuple[int, Sequence[str]]], source: str, *, header: bool
) -> Table:
    """Returns records as columns: `(2, ["a", "1"]), (3, ["b", "0"])` -> a, b and 1, 0.

    They are turned in chunks: hundreds of thousands of records kept as lists make the garbage
    collector slow.

    Args:
        names: Names of the columns.
        records: Line and fields of each, as many as there are names.
        source: The file, for messages.
        header: Whether the names are the file's own.
    """
    lines = array("q")
    builders = [ColumnBuilder() for _ in names]
    for chunk in in_chunks(records, _RECORDS):
        lines.extend([line for line, _ in chunk])
        values_by_column = zip(*(fields for _, fields in chunk), strict=True)
        for builder, values in zip(builders, values_by_column, strict=True):
            builder.extend(values)
    columns = {name: builder.finish() for name, builder in zip(names, builders, strict=True)}
    return Table(columns, source, _line_column(lines), header=header)


def joined_tables(parts: Iterable[Table]) -> Table:
    """Returns the rows of tables with the same columns, at least one, as one table."""
    builders: dict[str, ColumnBuilder] = {}
    first_table: Table | None = None
    for table in parts:
        if first_table is None:
            first_table = table
        for name, values in table.columns.items():
            builders.setdefault(name, ColumnBuilder()).extend(values)
    if first_table is None:
        raise ValueError("no table to be joined")
    columns = {name: builder.finish() for name, builder in builders.items()}
    return replace(first_table, columns=columns)


def table_of_objects(objects: Iterable[tuple[int, Mapping[str, Any]]], source: str) -> Table:
    """Returns objects as columns: `(1, {"a": 1}), (2, {"a": 2, "b": 3})` -> a 1, 2 and b None, 3.

    Args:
        objects: Line and object.
        source: The file, for messages.
    """
    lines = array("q")
    builders: dict[str, ColumnBuilder] = {}
    for chunk in in_chunks(objects, _RECORDS):
        names = dict.fromkeys(itertools.chain.from_iterable(value for _, value in chunk))
        for name in names:
            if name not in builders:
                builders[name] = ColumnBuilder()
                builders[name].extend([None] * len(lines))  # objects before have no such field
        for name, builder in builders.items():
            builder.extend([value.get(name) for _, value in chunk])
        lines.extend([number for number, _ in chunk])
    columns = {name: builder.finish() for name, builder in builders.items()}
    return Table(columns, source, _line_column(lines))


def _line_column(lines: "array[int]") -> Sequence[int]:
    """Returns the lines of rows as a column: a list, or of many rows the array.

    The columns of many rows are packed, too: a list of Python's numbers takes several times as much
    memory.
    """
    if is_many(len(lines)):
        return lines
    return lines.tolist()


def entries_of(table: Table) -> list[dict[str, Any]]:
    """Returns the rows of a table as dictionaries, without cells that are None."""
    rows = zip(*table.columns.values(), strict=True)
    named_rows = (zip(table.columns, values, strict=True) for values in rows)
    return [{name: value for name, value in row if value is not None} for row in named_rows]


def require_label(rows: Rows | Table, index: int, column: str = "label") -> Any:
    """Returns the label of a row.

    Raises:
        DataError: it is missing (empty, null or NaN).
    """
    label = rows.columns[column][index]
    if label == "" or is_missing(label):
        if isinstance(label, float):
            nothing = "NaN"
        else:
            nothing = "empty"
        message = f"{rows.where(index)}: the label is {nothing}"
        raise DataError(
            message,
            remedy="Every row of a labelled split needs a label: fill it in, or take the row out.",
        )
    return label


LARGEST_SCORE = 3.4e38
"""Scores are learned in 32 bits, which end there."""


def require_score(rows: Rows | Table, index: int, column: str = "label") -> float:
    """Returns the score of a row.

    Raises:
        DataError: it is missing, or no finite number.
    """
    label = require_label(rows, index, column)
    score = as_number(label)
    if abs(score) < LARGEST_SCORE:
        return score
    raise DataError(
        f"{rows.where(index)}: the label {label!r} is not a finite number in 32 bits",
        remedy=f"{_plain_number(label)} To learn classes use the recipe text-classification; else "
        "check `data.label_column=`.",
    )


def _plain_number(label: Any) -> str:
    """Returns a sentence that says how to write a label as a score: `A score is a plain number`."""
    plain = number_with_sign(str(label))
    if plain is not None:
        return f"A score is a plain number: write {plain} for {str(label).strip()}."
    return "Decimals take a point, as in 1.90."
