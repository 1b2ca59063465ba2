"""Ids that a file gives its own rows.

They say which column has them, whether they can stand for the rows, and which repeat.
"""

import datetime
from array import array
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bertctl.arrays import sorted_unique
from bertctl.data.names import OWN_ID_NAMES, folded
from bertctl.data.packed_columns import are_different, column_of, is_packed, mapped_values
from bertctl.data.rows import Rows, is_empty_cell, is_missing
from bertctl.data.table import Table
from bertctl.errors import DataError
from bertctl.progress import Listener
from bertctl.words import count


def guess_id_column(table: Table, used: Collection[str]) -> str | None:
    """Returns the column with a file's own ids, by its usual names (`id`, `guid` ...); or None.

    Args:
        table: The first rows of the file.
        used: Columns that are read as something else.
    """
    if not table.header:
        return None
    if "id" in table.columns and "id" not in used:
        candidates = ["id"]
    else:
        # If names differ only by case, the first of them counts: it is entered last.
        free = [name for name in reversed(list(table.columns)) if name not in used]
        name_in_file = {folded(name): name for name in free}
        candidates = [name_in_file[name] for name in OWN_ID_NAMES if name in name_in_file]
    for name in candidates:
        is_empty = all(map(is_empty_cell, table.columns[name]))
        if not is_empty:
            return name
    return None


def can_stand_for_rows(table: Table, column: str, listener: Listener) -> bool:
    """Returns whether each row of a whole file has an id of its own; warns if not.

    Args:
        table: The file.
        column: Name of its column with ids.
        listener: Receives the warning.
    """
    if is_packed(table.columns[column]) and are_different(table.columns[column]):
        return True
    values = [str(value) for value in table.columns[column] if not is_empty_cell(value)]
    n_blank = len(table) - len(values)
    n_repeated = len(values) - len(set(values))
    if not n_blank and not n_repeated:
        return True
    faults = _faults(n_repeated, n_blank, len(table), column)
    listener.warn(f"{table.source}: {faults}, so the rows are numbered instead")
    return False


class FileIds:
    """Ids of a file's own, taken chunk by chunk.

    Args:
        column: Name in the file; None where the rows are numbered.
        are_strict: Whether a repeated id is refused. Otherwise it is counted.

    Attributes:
        _hashes: Hashes of the ids of each chunk so far, by which repeated ones are found.
        _n_blank: Rows without an id so far.
    """

    def __init__(self, column: str | None = None, *, are_strict: bool = False) -> None:
        self.column = column
        self.are_strict = are_strict
        self._hashes: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        self._n_blank = 0

    def attach(self, rows: Rows, table: Table, *, as_ids: bool) -> Rows:
        """Returns the rows of a chunk with their ids from the file, in `Rows.file_ids`.

        Rows are returned unchanged if the file has no column of ids, or if the rows are more or
        fewer than those of the table.

        Args:
            rows: The rows that a task has made of the table.
            table: The chunk of the file.
            as_ids: Whether the ids also replace `Rows.ids`, as texts.

        Raises:
            DataError: An id occurs in an earlier chunk, and repeated ids are refused.
        """
        if self.column is None or len(rows) != len(table):
            return rows

        values = table.columns.get(self.column, [None] * len(table))
        if is_packed(values):
            return self._attach_packed(rows, values, table, as_ids=as_ids)
        texts = ["" if is_empty_cell(value) else str(value) for value in values]
        filled = [text for text in texts if text]
        self._n_blank += len(texts) - len(filled)
        # To find repeated ids, only their hashes are held in memory.
        hashes = np.fromiter(map(hash, filled), dtype=np.int64, count=len(filled))
        if self.are_strict:
            self._refuse_repeated(hashes, filled, table)
        self._hashes.append(hashes)

        rows = replace(rows, file_ids=[as_json(value) for value in values])
        if as_ids:
            return replace(rows, ids=texts)
        return rows

    def _attach_packed(
        self, rows: Rows, values: Sequence[Any], table: Table, *, as_ids: bool
    ) -> Rows:
        """Returns the rows of a large file with their ids, without a Python object for each.

        The arguments are those of `attach`, and `values`: the packed column of ids.
        """
        texts = column_of("" if is_empty_cell(value) else str(value) for value in values)
        # To find repeated ids in later chunks, only the hashes are held in memory.
        packed_hashes = array("q", (hash(text) for text in texts if text))
        hashes = np.frombuffer(packed_hashes, dtype=np.int64)
        self._n_blank += len(texts) - len(hashes)
        has_earlier_chunks = bool(self._hashes)
        if self.are_strict and has_earlier_chunks:  # repeated ids are errors
            self._refuse_repeated(hashes, [text for text in texts if text], table)
        self._hashes.append(hashes)

        rows = replace(rows, file_ids=mapped_values(values, as_json))
        if as_ids:
            return replace(rows, ids=texts)
        return rows

    def _refuse_repeated(
        self, hashes: np.ndarray[Any, np.dtype[np.int64]], texts: Sequence[str], table: Table
    ) -> None:
        """Refuses ids of a chunk that occur in an earlier one.

        Args:
            hashes: Hashes of the chunk's ids without blank ones.
            texts: The same ids as texts.
            table: The chunk, for messages.

        Raises:
            DataError: An id is repeated. The message shows the first one.
        """
        for earlier_hashes in self._hashes:
            is_repeated = np.isin(hashes, earlier_hashes)
            if is_repeated.any():
                message = (
                    f"{table.source}: the id '{texts[int(is_repeated.argmax())]}' occurs in "
                    f"'{self.column}' twice"
                )
                raise DataError(
                    message,
                    remedy="Leave `data.id_column=` out (data.id_column in a recipe): rows "
                    "are numbered.",
                )

    def report(self, source: str, listener: Listener) -> None:
        """Warns of ids that are blank or repeated, if the file has any."""
        if self.column is None or self.are_strict:
            return
        # Without the empty array, `concatenate` would refuse a file without chunks.
        hashes = np.concatenate([np.zeros(0, dtype=np.int64), *self._hashes])
        repeated = len(hashes) - len(sorted_unique(hashes))
        if repeated or self._n_blank:
            faults = _faults(repeated, self._n_blank, len(hashes) + self._n_blank, self.column)
            listener.warn(f"{source}: {faults}; they are passed on as they are")


def _faults(repeated: int, blank: int, total: int, column: str) -> str:
    """Returns what is wrong with ids: `2 of 10 ids in 'id' repeat an earlier one`."""
    faults = []
    if repeated:
        faults.append(f"{repeated} of {count(total, 'id')} in '{column}' repeat an earlier one")
    if blank:
        faults.append(f"{blank} of {count(total, 'id')} in '{column}' are blank")
    return ", ".join(faults)


def as_json(value: Any) -> Any:
    """Returns a cell as JSON can hold it.

    Numbers, texts, lists and objects stay as they are, all else becomes its text.
    """
    if is_missing(value):
        return None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): as_json(nested) for name, nested in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, str | int | float):
        return value
    return str(value)
