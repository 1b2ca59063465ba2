"""Rows of a Parquet file in batches that fit into the memory.

A page of a few bytes can hold a cell of gigabytes, or one text for a billion rows. What a batch may
become is worked out before it is decoded: plain values from the sizes that the file announces,
repeated ones from its dictionaries.
"""

import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bertctl.arrays import Ints, starts_of
from bertctl.data.table import HEAVIEST_CHUNK
from bertctl.errors import DataError
from bertctl.memory import MemoryGuard, require_memory
from bertctl.words import human_bytes

_FEWEST_REFUSED = 1_000_000
"""Rows that a file of any size may have."""

_LARGEST_RATIO = 1_000
"""Bytes that one byte of a file may become: contexts of questions are repeated, as are labels."""

_MOST_REPEATED = 2**28
"""Bytes that values of a dictionary may become in a batch; beyond it, they stay numbers of the
dictionary."""

_WIDEST_NUMBER = 16
"""Bytes of a number, a date or a decimal."""


class ParquetBatches:
    """Rows of a Parquet file, some at a time.

    Args:
        file: its bytes; it can be wound back.
        source: its name, for messages.
        longest_cell: bytes of a cell.

    Attributes:
        schema: names and types of the columns.
        num_rows: rows of the file.

    Raises:
        DataError: it has more rows than bytes.
    """

    def __init__(self, file: BinaryIO, source: str, *, longest_cell: int) -> None:
        self._file = file
        self._source = source
        self._longest_cell = longest_cell
        self._n_bytes = n_bytes = file.seek(0, io.SEEK_END)
        file.seek(0)
        self._parquet = pq.ParquetFile(file, pre_buffer=False)
        self._metadata = self._parquet.metadata
        self.schema: pa.Schema = self._parquet.schema_arrow
        self.num_rows = int(self._metadata.num_rows)
        if self.num_rows > max(_FEWEST_REFUSED, n_bytes):
            message = (
                f"{source} has {self.num_rows:,} rows in {human_bytes(n_bytes)}: more rows than "
                "bytes"
            )
            raise DataError(message, remedy="Write it again without the rows that are repeated.")

    def batches(self, size: int, *, all_stay: bool) -> Iterator[pa.RecordBatch]:
        """Yields the rows in batches of at most `size`; of fewer, where they have many bytes.

        Args:
            size: rows of a batch.
            all_stay: whether the rows of all batches stay in memory.

        Raises:
            DataError: a cell is too long.
            DeviceError: there is too little memory.
        """
        memory_guard = MemoryGuard(self._source)
        n_expected = self.num_rows if all_stay else 0
        n_read = 0
        n_decoded = 0
        memory_guard.check(0)
        repeated_columns = set[str]()
        for group in range(self._metadata.num_row_groups):
            repeated_columns |= self._check_group(group, size)
        parquet = self._parquet
        if repeated_columns:
            self._file.seek(0)
            parquet = pq.ParquetFile(
                self._file, pre_buffer=False, read_dictionary=sorted(repeated_columns)
            )
        for batch in parquet.iter_batches(batch_size=size):
            for part, n_bytes in self._bounded(batch, first=n_read):
                n_decoded += n_bytes
                if n_decoded > max(HEAVIEST_CHUNK, _LARGEST_RATIO * self._n_bytes):
                    sizes = (
                        f"{human_bytes(self._n_bytes)} became {human_bytes(n_decoded)} by row "
                        f"{n_read + len(part):,}"
                    )
                    message = (
                        f"{self._source} becomes more than {_LARGEST_RATIO:,} times its size: "
                        f"{sizes}"
                    )
                    raise DataError(
                        message, remedy="Write it again without the cells that are repeated."
                    )
                yield part
                n_read += len(part)
                memory_guard.check(n_read, n_expected)

    def _check_group(self, group: int, size: int) -> set[str]:
        """Refuses a group of rows that is too large.

        It returns columns whose values are few, long and repeated.
        """
        metadata = self._metadata.row_group(group)
        chunks = [metadata.column(i) for i in range(metadata.num_columns)]
        for chunk in chunks:
            most = self._longest_cell * chunk.num_values + _FEWEST_REFUSED
            if chunk.total_uncompressed_size > most:
                raise self._too_long(
                    chunk.path_in_schema, f"{chunk.num_values:,} values have", most
                )

        # A page is unpacked and decoded as a whole, and may be as large as its column.
        n_plain = 2 * sum(chunk.total_uncompressed_size for chunk in chunks)
        n_fixed = sum(
            _WIDEST_NUMBER
            * min(
                chunk.num_values,
                size if chunk.num_values == metadata.num_rows else chunk.num_values,
            )
            for chunk in chunks
            if chunk.physical_type != "BYTE_ARRAY"
        )
        message = f"a group of {metadata.num_rows:,} rows of {self._source}"
        remedy = (
            "Write it again in smaller groups: pyarrow.parquet.write_table(table, FILE, "
            "row_group_size=10_000)."
        )
        if n_plain + n_fixed > HEAVIEST_CHUNK:
            require_memory(
                n_plain + n_fixed,
                message,
                remedy=remedy,
                libraries=False,
            )

        repeated_columns = set[str]()
        for chunk in chunks:
            is_nested = chunk.num_values != metadata.num_rows or "." in chunk.path_in_schema
            if is_nested:
                n_values = chunk.num_values
            else:
                n_values = min(size, metadata.num_rows)
            may_be_large = n_values * chunk.total_uncompressed_size > _MOST_REPEATED
            if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page and may_be_large:
                longest = self._longest_repeated(group, chunk.path_in_schema)
                if longest > self._longest_cell:
                    raise self._too_long(chunk.path_in_schema, "a cell has", self._longest_cell)
                if n_values * longest > _MOST_REPEATED:
                    repeated_columns.add(chunk.path_in_schema)
        return repeated_columns

    def _longest_repeated(self, group: int, path: str) -> int:
        """Returns the bytes of the longest value in the dictionary of a column."""
        self._file.seek(0)
        parquet = pq.ParquetFile(self._file, pre_buffer=False, read_dictionary=[path])
        batch = next(parquet.iter_batches(batch_size=1, row_groups=[group], columns=[path]), None)
        if batch is None:
            return 0
        return max(map(_longest_in_dictionary, batch.columns), default=0)

    def _bounded(
        self, batch: pa.RecordBatch, *, first: int
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yields a batch in parts that have not too many bytes once they are Python objects.

        The size of each part in bytes comes with it.

        Raises:
            DataError: a cell is too long.
        """
        if batch.nbytes <= self._longest_cell and not any(map(_is_repeated, batch.schema.types)):
            yield batch, batch.nbytes
            return
        n_bytes = np.zeros(len(batch), np.int64)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            of_column = bytes_of_rows(column)
            if len(of_column):
                longest = int(of_column.argmax())
            else:
                longest = 0
            if len(of_column) and of_column[longest] > self._longest_cell:
                row = f"{self._source}, row {first + longest + 1}"
                size = human_bytes(int(of_column[longest]))
                message = (
                    f"{row}: the cell of '{name}' has {size}, more than "
                    f"{human_bytes(self._longest_cell)}"
                )
                raise DataError(message, remedy=_CUT)
            n_bytes += of_column
        n_before = np.cumsum(n_bytes) - n_bytes
        numbers = n_before // HEAVIEST_CHUNK
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(batch)], strict=True):
            yield batch.slice(start, end - start), int(n_bytes[start:end].sum())

    def _too_long(self, path: str, subject: str, most: int) -> DataError:
        column = path.partition(".")[0]
        message = f"{self._source}, column '{column}': {subject} more than {human_bytes(most)}"
        return DataError(message, remedy=_CUT)


_CUT = (
    "Cut the cells, or, if they are meant to be as long, train with `data.longest_line=MEGABYTES`."
)


def bytes_of_rows(column: pa.Array) -> Ints:
    """Returns about how many bytes the value of each row has."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        of_values = bytes_of_rows(column.dictionary)
        of_values = np.append(of_values, 0)  # of null
        indices = column.indices.fill_null(len(of_values) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(of_values[indices], np.int64)
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    is_large_text = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if is_text or is_large_text:
        return np.asarray(pc.binary_length(column).fill_null(0), np.int64)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        starts = np.asarray(column.offsets, np.int64)
        first = int(starts[0])
        values = column.values.slice(first, int(starts[-1]) - first)
        totals = starts_of(bytes_of_rows(values) + _WIDEST_NUMBER)
        return np.asarray(np.diff(totals[starts - first]), np.int64)
    if pa.types.is_struct(kind):
        fields = [bytes_of_rows(field) for field in column.flatten()]
        return np.asarray(sum(fields, np.zeros(len(column), np.int64)), np.int64)
    share = column.nbytes // max(len(column), 1)
    return np.full(len(column), share, np.int64)


def _is_repeated(kind: Any) -> bool:
    """Returns whether a type has numbers of a dictionary inside."""
    if pa.types.is_dictionary(kind):
        return True
    return any(_is_repeated(kind.field(i).type) for i in range(kind.num_fields))


def _longest_in_dictionary(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_dictionary(kind):
        of_values = bytes_of_rows(column.dictionary)
        if len(of_values):
            return int(of_values.max())
        return 0
    if pa.types.is_struct(kind):
        return max(map(_longest_in_dictionary, column.flatten()), default=0)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _longest_in_dictionary(column.values)
    return 0
