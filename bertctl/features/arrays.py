"""Arrays on disk that grow row by row and are whole at any moment: `.npy` files whose header is written again.

The header has room for a longer number (numpy's own writer leaves it for this), so growing never moves the rows.
Rows are written first, then the header: whoever reads along (`numpy.load(path, mmap_mode="r")`) sees whole rows only.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bertctl.errors import DataError
from bertctl.run_folder import write_failure

_HEADER_BYTES = 128
_COPY_ROWS_BYTES = 1 << 24


class GrowingArray:
    """One `.npy` file, opened to be appended to.

    Args:
        path: the file; made anew unless `rows` says how much of it stays.
        row_shape: shape of a row.
        dtype: of its numbers.
        rows: whole rows that are there already; what follows them is cut off.

    Raises:
        DataError: the file has fewer rows than it should, or rows of another kind.
        UnavailableError: it can't be written.
    """

    def __init__(self, path: Path, row_shape: tuple[int, ...], dtype: DTypeLike, *, rows: int | None = None) -> None:
        self.path, self.rows = path, rows or 0
        self._shape, self._dtype = row_shape, np.dtype(dtype)
        self._row_bytes = int(np.prod(row_shape, dtype=np.int64)) * self._dtype.itemsize
        try:
            if rows is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file: BinaryIO = path.open("wb+", buffering=0)
                self._write_header()
            else:
                self._file = path.open("rb+", buffering=0)
                self._check()
            self._file.truncate(self._end)
            self._file.seek(self._end)
        except OSError as error:
            raise write_failure(path, error) from error

    @property
    def _end(self) -> int:
        return _HEADER_BYTES + self.rows * self._row_bytes

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows; a full disk leaves those that were there.

        Raises:
            UnavailableError: the disk is full.
        """
        data = np.ascontiguousarray(rows, dtype=self._dtype).reshape(-1).view(np.uint8).data
        try:
            while data:
                data = data[self._file.write(data) :]
            self.rows += len(rows)
            self._write_header()
        except OSError as error:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            raise write_failure(self.path, error) from error

    def sync(self) -> None:
        """See to it that the rows outlive a loss of power."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def _write_header(self) -> None:
        shape = (self.rows, *self._shape)
        fields = f"{{'descr': '{self._dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
        magic = b"\x93NUMPY\x01\x00" + (_HEADER_BYTES - 10).to_bytes(2, "little")
        header = magic + fields.encode().ljust(_HEADER_BYTES - 11) + b"\n"
        os.pwrite(self._file.fileno(), header, 0)
        self._file.seek(self._end)

    def _check(self) -> None:
        size = self.path.stat().st_size
        if size < self._end:
            raise DataError(
                f"{self.path} has been cut short: {size} bytes, and its {self.rows} rows take {self._end}",
                remedy="Start again with --overwrite.",
            )
        found = open_array(self.path)
        if found.shape[1:] != self._shape or found.dtype != self._dtype:
            raise DataError(
                f"{self.path} holds rows of {found.shape[1:]} {found.dtype}, not of {self._shape} {self._dtype}",
                remedy="Start again with --overwrite.",
            )


def open_array(path: Path) -> NDArray[Any]:
    """A `.npy` file, mapped into memory, not read.

    Raises:
        DataError: it is none, or cut short.
    """
    try:
        if path.stat().st_size == _HEADER_BYTES:  # no rows: there is nothing to map
            empty: NDArray[Any] = np.load(path, allow_pickle=False)
            return empty
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(
            f"{path} is no .npy file, or was cut short: {error}", remedy="Extract the features again, or --resume."
        ) from error
    return mapped


def portions(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The rows of an array, some megabytes at a time."""
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    step = max(1, _COPY_ROWS_BYTES // row_bytes)
    for first in range(0, len(array), step):
        yield array[first : first + step]
