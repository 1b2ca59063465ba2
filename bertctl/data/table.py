"""`Table`: what a reader found in a file, before anybody decided what the columns mean."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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


def columns_of(names: Sequence[str], records: Iterable[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Records turned into columns; the same number of fields in each is taken for granted."""
    values = list(zip(*records, strict=True))
    return {name: list(values[i]) if values else [] for i, name in enumerate(names)}
