"""Rows of a Parquet file in batches that fit into the memory.

A page of a few bytes can hold a cell of gigabytes, or one text for a billion rows. What a batch may
become is worked out before it is decoded: plain values from the sizes that the file announces,
repeated ones from its dictionaries.
"""

import io
from collections.abc import Iterator, Sequence
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

_SMALL_COLUMN_BYTES = 1_000_000
"""Bytes of a column of a row group that are never too many, however few values it has."""

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
        """Reads the metadata of the file, and refuses a file with more rows than bytes."""
        self._file = file
        self._source = source
        self._longest_cell = longest_cell
        n_bytes = file.seek(0, io.SEEK_END)
        self._n_bytes = n_bytes
        file.seek(0)
        self._parquet = pq.ParquetFile(file, pre_buffer=False)
        self._metadata = self._parquet.metadata
        self.schema: pa.Schema = self._parquet.schema_arrow
        self.num_rows = int(self._metadata.num_rows)
        # Only a value that is repeated takes less than a byte for each row. Decoded, many such rows
        # would fill the memory.
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
        n_read = 0  # rows
        n_decoded = 0  # bytes of these rows as Python objects
        memory_guard.check(0)
        repeated_columns = set[str]()
        for group in range(self._metadata.num_row_groups):
            repeated_columns |= self._check_group(group, size)
        parquet = self._parquet
        # Written out, a batch of long texts that recur may not fit into the memory. Such columns
        # are read as numbers of their dictionary of texts.
        if repeated_columns:
            self._file.seek(0)
            parquet = pq.ParquetFile(
                self._file, pre_buffer=False, read_dictionary=sorted(repeated_columns)
            )
        for batch in parquet.iter_batches(batch_size=size):
            for part, n_bytes in self._bounded(batch, first=n_read):
                n_decoded += n_bytes
                self._refuse_growth(n_decoded, last_row=n_read + len(part))
                yield part
                n_read += len(part)
                memory_guard.check(n_read, n_expected)

    def _refuse_growth(self, n_decoded: int, *, last_row: int) -> None:
        """Refuses a file of a few bytes that becomes gigabytes: it is made to fill the memory.

        Args:
            n_decoded: Bytes that the rows so far have as Python objects.
            last_row: Number of the last of them, from 1.

        Raises:
            DataError: They are more than `_LARGEST_RATIO` times as many as the file's.
        """
        if n_decoded <= max(HEAVIEST_CHUNK, _LARGEST_RATIO * self._n_bytes):
            return
        sizes = f"{human_bytes(self._n_bytes)} became {human_bytes(n_decoded)} by row {last_row:,}"
        raise DataError(
            f"{self._source} becomes more than {_LARGEST_RATIO:,} times its size: {sizes}",
            remedy="Write it again without the cells that are repeated.",
        )

    def _check_group(self, group: int, size: int) -> set[str]:
        """Refuses a row group that is too large before any of it is decoded.

        Args:
            group: Number of the row group.
            size: Rows of a batch.

        Returns:
            The columns that must stay dictionary-encoded, as numbers of their few different values:
            written out, a batch of them would not fit into the memory.

        Raises:
            DataError: A cell is too long.
            DeviceError: There is too little memory.
        """
        metadata = self._metadata.row_group(group)
        chunks = [metadata.column(i) for i in range(metadata.num_columns)]
        for chunk in chunks:
            most = self._longest_cell * chunk.num_values + _SMALL_COLUMN_BYTES
            if chunk.total_uncompressed_size > most:
                raise self._too_long(
                    chunk.path_in_schema, f"{chunk.num_values:,} values have", most
                )
        self._require_memory_for(metadata, chunks, size)

        repeated_columns = set[str]()
        for chunk in chunks:
            is_nested = chunk.num_values != metadata.num_rows or "." in chunk.path_in_schema
            if is_nested:  # one row may have all values of the column
                n_values = chunk.num_values
            else:
                n_values = min(size, metadata.num_rows)
            has_texts_of_dictionary = (
                chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
            )
            # No text is longer than all bytes of the column. The exact length is read only if the
            # batch could be too large.
            may_be_large = n_values * chunk.total_uncompressed_size > _MOST_REPEATED
            if has_texts_of_dictionary and may_be_large:
                longest = self._longest_repeated(group, chunk.path_in_schema)
                if longest > self._longest_cell:
                    raise self._too_long(chunk.path_in_schema, "a cell has", self._longest_cell)
                if n_values * longest > _MOST_REPEATED:
                    repeated_columns.add(chunk.path_in_schema)
        return repeated_columns

    def _require_memory_for(self, metadata: Any, chunks: Sequence[Any], size: int) -> None:
        """Refuses a row group that needs more memory than there is.

        Args:
            metadata: Metadata of the group.
            chunks: Metadata of its columns.
            size: Rows of a batch.

        Raises:
            DeviceError: There is too little memory.
        """
        # A page is unpacked and then decoded, both as a whole, so its bytes are in memory twice. It
        # may be as large as its column.
        n_bytes = 2 * sum(chunk.total_uncompressed_size for chunk in chunks)
        # Numbers are decoded batch by batch; of nested columns a batch may have all values.
        for chunk in chunks:
            if chunk.physical_type != "BYTE_ARRAY":
                has_value_per_row = chunk.num_values == metadata.num_rows
                n_values = min(chunk.num_values, size) if has_value_per_row else chunk.num_values
                n_bytes += _WIDEST_NUMBER * n_values
        if n_bytes > HEAVIEST_CHUNK:
            remedy = (
                "Write it again in smaller groups: pyarrow.parquet.write_table(table, FILE, "
                "row_group_size=10_000)."
            )
            require_memory(
                n_bytes,
                f"a group of {metadata.num_rows:,} rows of {self._source}",
                remedy=remedy,
                libraries=False,
            )

    def _longest_repeated(self, group: int, path: str) -> int:
        """Returns the bytes of the longest value in the dictionary of a column.

        A batch of a single row is decoded for it, which has the dictionary of the whole group.

        Args:
            group: Number of the row group.
            path: Path of the column in the schema.
        """
        self._file.seek(0)
        parquet = pq.ParquetFile(self._file, pre_buffer=False, read_dictionary=[path])
        batch = next(parquet.iter_batches(batch_size=1, row_groups=[group], columns=[path]), None)
        if batch is None:
            return 0
        return max(map(_longest_in_dictionary, batch.columns), default=0)

    def _bounded(
        self, batch: pa.RecordBatch, *, first: int
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yields a batch in parts of at most about `HEAVIEST_CHUNK` bytes, each with its bytes.

        What counts is the size of Python objects, where a value of a dictionary is repeated.

        Args:
            batch: The rows.
            first: Number of the first row in the file, from 0.

        Raises:
            DataError: A cell is too long.
        """
        has_repeated_values = any(map(_is_repeated, batch.schema.types))
        if batch.nbytes <= self._longest_cell and not has_repeated_values:
            yield batch, batch.nbytes  # no cell can be too long
            return
        n_bytes = np.zeros(len(batch), np.int64)  # of each row
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            cell_bytes = bytes_of_rows(column)
            self._check_cells(name, cell_bytes, first=first)
            n_bytes += cell_bytes
        # A part begins where the bytes before a row pass a multiple of the heaviest chunk.
        n_bytes_before = np.cumsum(n_bytes) - n_bytes
        part_numbers = n_bytes_before // HEAVIEST_CHUNK
        starts = np.flatnonzero(np.diff(part_numbers, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(batch)], strict=True):
            yield batch.slice(start, end - start), int(n_bytes[start:end].sum())

    def _check_cells(self, column: str, cell_bytes: Ints, *, first: int) -> None:
        """Refuses a column with a cell that is too long.

        Args:
            column: Its name.
            cell_bytes: (N,) bytes of its cells.
            first: Number of the first row in the file, from 0.

        Raises:
            DataError: With the row.
        """
        if not len(cell_bytes):
            return
        longest = int(cell_bytes.argmax())
        if cell_bytes[longest] > self._longest_cell:
            row = f"{self._source}, row {first + longest + 1}"
            size = human_bytes(int(cell_bytes[longest]))
            message = (
                f"{row}: the cell of '{column}' has {size}, more than "
                f"{human_bytes(self._longest_cell)}"
            )
            raise DataError(message, remedy=_REMEDY_TO_CUT)

    def _too_long(self, path: str, subject: str, most: int) -> DataError:
        """Returns the error for a column with too many bytes.

        Args:
            path: Path of the column in the schema.
            subject: What has too many bytes, with a verb, such as `a cell has`.
            most: The most bytes that it may have.
        """
        column, _, _ = path.partition(".")  # of a nested field, the column that it is in
        message = f"{self._source}, column '{column}': {subject} more than {human_bytes(most)}"
        return DataError(message, remedy=_REMEDY_TO_CUT)


_REMEDY_TO_CUT = (
    "Cut the cells, or, if they are meant to be as long, train with `data.longest_line=MEGABYTES`."
)


def bytes_of_rows(column: pa.Array) -> Ints:
    """Returns (N,) about how many bytes the value of each row has as a Python object.

    Values of a dictionary count in each row that has them; lists and structs have the bytes of what
    is in them.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        # Null is one more value, of 0 bytes.
        bytes_of_values = np.append(bytes_of_rows(column.dictionary), 0)
        null_index = len(bytes_of_values) - 1
        indices = column.indices.fill_null(null_index).to_numpy(zero_copy_only=False)
        return np.asarray(bytes_of_values[indices], np.int64)
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    is_large_text = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if is_text or is_large_text:
        return np.asarray(pc.binary_length(column).fill_null(0), np.int64)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        starts = np.asarray(column.offsets, np.int64)  # of each list among the items, and the end
        first_item = int(starts[0])
        items = column.values.slice(first_item, int(starts[-1]) - first_item)
        bytes_of_items = bytes_of_rows(items) + _WIDEST_NUMBER  # with its place in the list
        bytes_before_item = starts_of(bytes_of_items)
        return np.asarray(np.diff(bytes_before_item[starts - first_item]), np.int64)
    if pa.types.is_struct(kind):
        fields = [bytes_of_rows(field) for field in column.flatten()]
        return np.asarray(sum(fields, np.zeros(len(column), np.int64)), np.int64)
    bytes_per_row = column.nbytes // max(len(column), 1)
    return np.full(len(column), bytes_per_row, np.int64)


def _is_repeated(kind: Any) -> bool:
    """Returns whether a type is dictionary-encoded, or has such a type inside."""
    if pa.types.is_dictionary(kind):
        return True
    return any(_is_repeated(kind.field(i).type) for i in range(kind.num_fields))


def _longest_in_dictionary(column: pa.Array) -> int:
    """Returns the bytes of the longest value in a column's dictionary, or in those of its parts.

    The parts are the fields of structs and the items of lists. A column without any dictionary has
    0.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        bytes_of_values = bytes_of_rows(column.dictionary)
        return int(bytes_of_values.max()) if len(bytes_of_values) else 0
    if pa.types.is_struct(kind):
        return max(map(_longest_in_dictionary, column.flatten()), default=0)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _longest_in_dictionary(column.values)
    return 0
