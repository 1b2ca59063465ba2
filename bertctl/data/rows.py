"""`Rows`: one split as columns of plain Python values, with where each row came from."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from bertctl.data.packed_columns import column_of, int_column, selected
from bertctl.data.tag_schemes import TagKind

if TYPE_CHECKING:
    from bertctl.arrays import Ints


@dataclass(frozen=True)
class Rows:
    """One split, column by column.

    Attributes:
        split: `train`, `validation`, `test`, or the data set's own split name.
        columns: column name -> values, all of one length. Columns have their canonical names:
            `text`, `pair` (only where the task has pairs), `label` (only where the split has
            labels); others keep the name they have in the file.
        ids: one string for each row, unique within the split.
        source: the file or hub address, for messages.
        lines: line in the file where each row begins, counted from 1; empty where there are no
            lines (Parquet).
        numbers: of a part of a file without lines, the number of each row in the file, counted from
            1.
        tag_kind: for words with tags, the kind of the tags of the whole file, of which these rows
            may be a part.
        groups: a key for each row, the same for rows that belong together; empty where nobody needs
            them (training).
        file_ids: what the file's own id column has in each row, of whatever type; empty where the
            rows are numbered.
        file_names: canonical column -> its name in the file.
    """

    split: str
    columns: Mapping[str, Sequence[Any]]
    ids: Sequence[str]
    source: str
    lines: Sequence[int] = ()
    numbers: Sequence[int] = ()
    tag_kind: TagKind | None = None
    groups: Sequence[Hashable] = ()
    file_ids: Sequence[Any] = ()
    file_names: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self.ids)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the rows one by one, as dictionaries."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def has(self, column: str) -> bool:
        """Whether the split has this column."""
        return column in self.columns

    def fields(self, index: int, names: Iterable[str]) -> dict[str, Any]:
        """Returns column -> value of a row. Named columns that the split lacks are left out."""
        return {name: self.columns[name][index] for name in names if name in self.columns}

    def answer_id(self, index: int) -> Any:
        """Returns the id under which a row is answered: the file's own, else the row's number."""
        if self.file_ids:
            return self.file_ids[index]
        return self.ids[index]

    def where(self, index: int) -> str:
        """Returns `file:line` (or `file, row n`) of a row, for messages."""
        if self.lines:
            return f"{self.source}:{self.lines[index]}"
        number = self.numbers[index] if self.numbers else index + 1
        return f"{self.source}, row {number}"

    def parts(self, size: int) -> Iterator["Rows"]:
        """Yields the rows, `size` at a time."""
        for first in range(0, len(self), size):
            yield self.select(range(first, min(first + size, len(self))))

    def select(self, indices: "Sequence[int] | Ints", *, split: str | None = None) -> "Rows":
        """Returns the rows at these positions, in this order."""
        return replace(
            self,
            split=split or self.split,
            columns={name: selected(values, indices) for name, values in self.columns.items()},
            ids=selected(self.ids, indices),
            lines=selected(self.lines, indices) if self.lines else (),
            numbers=() if self.lines else self._numbers_at(indices),
            groups=selected(self.groups, indices) if self.groups else (),
            file_ids=selected(self.file_ids, indices) if self.file_ids else (),
        )

    def _numbers_at(self, indices: "Sequence[int] | Ints") -> Sequence[int]:
        """Returns the numbers that rows of a file without lines have in it."""
        if self.numbers:
            return selected(self.numbers, indices)
        import numpy as np

        # The split still has all rows of its file, which are numbered from 1.
        numbers = np.asarray(indices, dtype=np.int64) + 1
        return int_column(numbers)


def joined_columns(parts: "Sequence[Rows]") -> dict[str, Sequence[Any]]:
    """Returns the columns that any of several parts has, one part behind the other.

    A part that lacks a column has None in it. Columns of many rows are packed.
    """
    if len(parts) == 1:
        return dict(parts[0].columns)
    columns: dict[str, Sequence[Any]] = {}
    # Each name once, in order.
    names = dict.fromkeys(chain.from_iterable(rows.columns for rows in parts))
    for name in names:
        values_of_parts = (rows.columns.get(name, [None] * len(rows)) for rows in parts)
        columns[name] = column_of(chain.from_iterable(values_of_parts))
    return columns


def is_missing(value: object) -> bool:
    """Returns whether a cell has no value: null, or NaN, as Parquet files have it."""
    return value is None or (isinstance(value, float) and value != value)


def is_empty_cell(value: object) -> bool:
    """Returns whether a cell is empty, null or NaN."""
    if isinstance(value, str):
        return value == ""
    return is_missing(value)
