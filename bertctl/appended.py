"""Files that grow by whole records: what a killed attempt left behind its last whole record is cut off on opening."""

import io
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from bertctl.arrays import Array
from bertctl.errors import DataError
from bertctl.writing import failures_of, open_in_place


class AppendedFile:
    """Is opened to be appended to.

    Args:
        path: the file; written anew unless `size` says how much of it stays.
        size: bytes known to be whole.

    Raises:
        DataError: the file is shorter than that.
        UnavailableError: it can't be written.
    """

    def __init__(self, path: Path, size: int | None) -> None:
        self._path, self._size = path, size or 0
        with failures_of(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if size is not None and path.stat().st_size < size:
                what = f"{path} has been cut short: it had {size} bytes"
                raise DataError(what, remedy="Start again with --overwrite.")
            self._file = os.fdopen(open_in_place(path, os.O_RDWR), "rb+", buffering=0)
            self._cut()

    def append(self, data: bytes | memoryview) -> None:
        """Writes all of the data, or nothing.

        Raises:
            UnavailableError: the disk is full.
        """
        left = memoryview(data)
        with failures_of(self._path):
            try:
                while left:
                    left = left[self._file.write(left) :]
                self._size += len(data)
            except OSError:
                with suppress(OSError):
                    self._cut()
                raise

    def sync(self, head: bytes = b"") -> int:
        """Makes the file outlive a loss of power, with `head` in place of its first bytes; returns its size."""
        with failures_of(self._path):
            os.pwrite(self._file.fileno(), head, 0)
            os.fsync(self._file.fileno())
        return self._size

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _cut(self) -> None:
        self._file.truncate(self._size)
        self._file.seek(self._size)


class AppendedArray:
    """Is a `.npy` file that grows by rows; numpy's header has room for a longer number, so growing moves no row.

    The header counts the rows of the last `sync`, so that who reads along (`numpy.load(path, mmap_mode="r")`) sees
    whole rows only.

    Args:
        path: the file; written anew unless `rows` says how many of its rows stay.
        row_shape: shape of a row.
        dtype: type of its numbers.
        rows: whole rows that are there already.
    """

    def __init__(self, path: Path, row_shape: tuple[int, ...], dtype: DTypeLike, rows: int | None) -> None:
        self.rows = rows or 0
        self._row_shape, self._dtype = row_shape, np.dtype(dtype)
        head = self._header()
        row_bytes = int(np.prod(row_shape, dtype=np.int64)) * self._dtype.itemsize
        self._file = AppendedFile(path, None if rows is None else len(head) + rows * row_bytes)
        if rows is None:
            self._file.append(head)

    def append(self, rows: Array) -> None:
        """Adds rows, all of them or none.

        Raises:
            UnavailableError: the disk is full.
        """
        flat = np.ascontiguousarray(rows, dtype=self._dtype).reshape(-1)
        self._file.append(flat.view(np.uint8).data)
        self.rows += len(rows)

    def sync(self) -> None:
        """Makes the rows outlive a loss of power, and counts them in the header."""
        self._file.sync(self._header())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _header(self) -> bytes:
        header = io.BytesIO()
        fields = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.rows, *self._row_shape)}
        np.lib.format.write_array_header_1_0(header, fields)
        return header.getvalue()


def open_array(path: Path) -> Array:
    """Returns a `.npy` file as a memory map."""
    array: Array
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # no rows: there is nothing to map
        array = np.load(path, allow_pickle=False)
    return array
