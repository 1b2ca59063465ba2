"""Files that grow by whole records.

What a killed attempt left behind its last whole record is cut off on opening.
"""

import hashlib
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.typing import DTypeLike

from bertctl.arrays import Array
from bertctl.documents import loading
from bertctl.errors import DataError
from bertctl.writing import failures_of, open_in_place


class AppendedFile:
    """File that only grows, by whole records.

    Args:
        path: the file; written anew unless `size` says how much of it stays.
        size: bytes known to be whole.

    Raises:
        DataError: the file is shorter than that.
        UnavailableError: it can't be written.
    """

    def __init__(self, path: Path, size: int | None) -> None:
        self._path = path
        self._size = size or 0
        with failures_of(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if size is not None and path.stat().st_size < size:
                message = f"{path} has been cut short: it had {size} bytes"
                raise DataError(message, remedy="Start again with `overwrite=True`.")
            self._file = os.fdopen(open_in_place(path, os.O_RDWR), "rb+", buffering=0)
            self._cut()

    def append(self, data: bytes | memoryview) -> None:
        """Writes all of the data, or nothing.

        Raises:
            UnavailableError: the disk is full.
        """
        unwritten = memoryview(data)
        with failures_of(self._path):
            try:
                while unwritten:
                    unwritten = unwritten[self._file.write(unwritten) :]
                self._size += len(data)
            except OSError:
                with suppress(OSError):
                    self._cut()
                raise

    def sync(self, head: bytes = b"") -> int:
        """Makes the file outlive a loss of power, and returns its size.

        `head` takes the place of its first bytes.
        """
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
    """`.npy` file that grows by rows.

    numpy's header has room for a longer number, so growing moves no row.

    The header counts the rows of the last `sync`, so that who reads along
    (`numpy.load(path, mmap_mode="r")`) sees whole rows only.

    Args:
        path: the file; written anew unless `rows` says how many of its rows stay.
        row_shape: shape of a row.
        dtype: type of its numbers.
        rows: whole rows that are there already.
    """

    def __init__(
        self, path: Path, row_shape: tuple[int, ...], dtype: DTypeLike, rows: int | None
    ) -> None:
        self.rows = rows or 0
        self._row_shape = row_shape
        self._dtype = np.dtype(dtype)
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
        """Returns the `.npy` header for the present number of rows."""
        header = io.BytesIO()
        fields = {
            "descr": self._dtype.str,
            "fortran_order": False,
            "shape": (self.rows, *self._row_shape),
        }
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


Offsets = npt.NDArray[np.uint64]
"""(N,) where each line of a file begins, in bytes."""

_PIECE = 2**22  # bytes of a file of lines that are looked through at once


class AppendedOffsets:
    """Offsets of the lines of a file that grows, in a `.npy` file beside it.

    They are known to be sound by a hash that is kept elsewhere. Offsets that do not fit to it are
    made anew.

    Args:
        path: The `.npy` file.
        lines: The file of lines.
        n_lines: Whole lines that are there already.
        n_bytes: Their size.
        digest: Hash of their offsets, as `sync` returned it; empty for lines that have no offsets
            yet.
    """

    def __init__(self, path: Path, lines: Path, n_lines: int, n_bytes: int, digest: str) -> None:
        if n_lines:
            stored = stored_offsets(path, n_lines, digest)
        else:
            stored = None
        if stored is None:
            offsets = line_offsets(lines, n_lines)
            self._array = AppendedArray(path, (), np.uint64, None)
            self._array.append(offsets)
        else:
            offsets = stored
            self._array = AppendedArray(path, (), np.uint64, n_lines)
        self._hash = hashlib.sha256(np.ascontiguousarray(offsets).data)
        self._end = n_bytes

    def append(self, lengths: Sequence[int]) -> None:
        """Adds lines of these sizes in bytes."""
        ends = self._end + np.cumsum(lengths, dtype=np.uint64)
        starts = ends - np.array(lengths, dtype=np.uint64)
        self._array.append(starts)
        self._hash.update(np.ascontiguousarray(starts).data)
        self._end += sum(lengths)

    def sync(self) -> str:
        """Makes the offsets outlive a loss of power; returns their hash."""
        self._array.sync()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Closes the file."""
        self._array.close()


def stored_offsets(path: Path, n_lines: int, digest: str) -> Offsets | None:
    """Returns the offsets of the first lines of a file, mapped into memory.

    Args:
        path: The `.npy` file.
        n_lines: How many lines.
        digest: Hash of their offsets.

    Returns:
        None where the file is not there, or does not hold the offsets that the hash is of.
    """
    try:
        with loading(path):
            offsets = open_array(path)[:n_lines]
    except DataError:  # no file, or none of arrays
        return None
    if offsets.dtype != np.uint64 or offsets.shape != (n_lines,):
        return None
    is_sound = hashlib.sha256(np.ascontiguousarray(offsets).data).hexdigest() == digest
    return offsets if is_sound else None


def line_offsets(lines: Path, n_lines: int) -> Offsets:
    """Returns where the first lines of a file begin, by reading it.

    The result is shorter than requested if the file has fewer whole lines.
    """
    starts = [np.zeros(1, dtype=np.uint64)]
    n_starts = 1
    position = 0
    with lines.open("rb") as file:
        while n_starts <= n_lines and (piece := file.read(_PIECE)):
            ends = np.flatnonzero(np.frombuffer(piece, dtype=np.uint8) == ord("\n")).astype(
                np.uint64
            )
            starts.append(ends + np.uint64(position + 1))
            n_starts += len(ends)
            position += len(piece)
    return np.concatenate(starts)[: min(n_lines, n_starts - 1)]
