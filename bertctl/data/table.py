"""`Table`: what a reader found in a file, before anybody decided what the columns mean."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PORTION = 4096


@dataclass(frozen=True)
class Table:
    """Columns as the file has them.

    Attributes:
        columns: name in the file -> values.
        source: the file, for messages.
        lines: line where each row begins, counted from 1; empty where there are no lines (Parquet).
        header: whether the names come from the file, or are `column1`, `column2`, ...
    """

    columns: Mapping[str, Sequence[Any]]
    source: str
    lines: Sequence[int] = ()
    header: bool = True

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def where(self, index: int) -> str:
        """`file:line` (or `file, row n`) of a row, for messages."""
        return f"{self.source}:{self.lines[index]}" if self.lines else f"{self.source}, row {index + 1}"


def table_of_records(
    names: Sequence[str], records: Iterable[tuple[int, Sequence[str]]], source: str, *, header: bool
) -> Table:
    """Records with the line where each begins, turned into columns; each has as many fields as there are names.

    They are turned in portions: hundreds of thousands of records kept as lists make the garbage collector slow.
    """
    lines: list[int] = []
    columns: list[list[Any]] = [[] for _ in names]
    left = iter(records)
    while portion := list(itertools.islice(left, _PORTION)):
        lines.extend(line for line, _ in portion)
        for column, values in zip(columns, zip(*(fields for _, fields in portion), strict=True), strict=True):
            column.extend(values)
    return Table(dict(zip(names, columns, strict=True)), source, lines, header=header)
