"""Files that grow by whole records.

A process that is killed may leave part of a record at the end. Opening the file cuts that off.
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
        path: The file.
        size: Number of bytes to keep, the whole records of an earlier process; None starts an empty
            file.

    Raises:
        DataError: The file has fewer bytes.
        UnavailableError: The file can't be written.
    """

    def __init__(self, path: Path, size: int | None) -> None:
        """Opens the file, and cuts off what follows its first `size` bytes; None empties it."""
        self._path = path
        self._size = size or 0  # bytes of all whole records
        with failures_of(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if size is not None and path.stat().st_size < size:
                message = f"{path} has been cut short: it had {size} bytes"
                raise DataError(message, remedy="Start again with `overwrite=True`.")
            self._file = os.fdopen(open_in_place(path, os.O_RDWR), "rb+", buffering=0)
            self._cut()  # to `_size` bytes: part of a record may follow them

    def append(self, data: bytes | memoryview) -> None:
        """Writes all of the data, or nothing.

        Raises:
            UnavailableError: The disk is full.
        """
        unwritten = memoryview(data)
        with failures_of(self._path):
            try:
                # An unbuffered file may write only a part at once.
                while unwritten:
                    n_written = self._file.write(unwritten)
                    unwritten = unwritten[n_written:]
                self._size += len(data)
            except OSError:
                # A part of the data may have been written. It is removed.
                with suppress(OSError):
                    self._cut()
                raise

    def sync(self, head: bytes = b"") -> int:
        """Saves the file to disk, so that it survives a loss of power.

        Args:
            head: Bytes to write over the beginning of the file first.

        Returns:
            The file's size in bytes.
        """
        with failures_of(self._path):
            os.pwrite(self._file.fileno(), head, 0)
            os.fsync(self._file.fileno())
        return self._size

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _cut(self) -> None:
        """Removes everything after the last whole record, and continues from there."""
        self._file.truncate(self._size)
        self._file.seek(self._size)


class AppendedArray:
    """`.npy` file that grows by rows.

    The header of a `.npy` file has the number of rows. numpy leaves room in it for a longer number,
    so it is replaced in place. Only `sync` does that: another process that reads the file meanwhile
    (`numpy.load(path, mmap_mode="r")`) sees only whole rows.

    Args:
        path: The file.
        row_shape: Shape of a row.
        dtype: Type of its numbers.
        rows: Number of rows to keep; None starts an empty file.
    """

    def __init__(
        self, path: Path, row_shape: tuple[int, ...], dtype: DTypeLike, rows: int | None
    ) -> None:
        self.rows = rows or 0
        self._row_shape = row_shape
        self._dtype = np.dtype(dtype)
        header = self._header()
        row_bytes = int(np.prod(row_shape, dtype=np.int64)) * self._dtype.itemsize
        if rows is None:
            self._file = AppendedFile(path, size=None)  # starts empty
            self._file.append(header)
        else:
            # Headers have the same length for any number of rows, so the size follows from it.
            self._file = AppendedFile(path, size=len(header) + rows * row_bytes)

    def append(self, rows: Array) -> None:
        """Adds rows, all of them or none.

        Raises:
            UnavailableError: The disk is full.
        """
        flat = np.ascontiguousarray(rows, dtype=self._dtype).reshape(-1)
        self._file.append(flat.view(np.uint8).data)
        self.rows += len(rows)

    def sync(self) -> None:
        """Saves the rows and their number to disk, so that they survive a loss of power."""
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

_PIECE = 2**22
"""Bytes of a file of lines that are read at once."""


class AppendedOffsets:
    """Offsets of the lines of a file that grows, in a `.npy` file beside it.

    Their hash is stored elsewhere, by the caller. If the offsets in the file do not match it, they
    are computed again from the lines.

    Args:
        path: The `.npy` file.
        lines: The file of lines.
        n_lines: Number of whole lines that it already has.
        n_bytes: Their size in bytes.
        digest: Hash of their offsets, as `sync` returned it; empty for lines that have no offsets
            yet.
    """

    def __init__(self, path: Path, lines: Path, n_lines: int, n_bytes: int, digest: str) -> None:
        # None if there are no lines yet, or if the stored offsets do not have the hash `digest`.
        if n_lines:
            stored = stored_offsets(path, n_lines, digest)
        else:
            stored = None
        if stored is None:
            # The file of offsets is written anew, from the lines that exist.
            offsets = line_offsets(lines, n_lines)
            self._array = AppendedArray(path, row_shape=(), dtype=np.uint64, rows=None)
            self._array.append(offsets)
        else:
            offsets = stored
            self._array = AppendedArray(path, row_shape=(), dtype=np.uint64, rows=n_lines)
        self._hash = hashlib.sha256(np.ascontiguousarray(offsets).data)
        self._end = n_bytes  # where the next line begins

    def append(self, lengths: Sequence[int]) -> None:
        """Adds lines of these sizes in bytes."""
        ends = self._end + np.cumsum(lengths, dtype=np.uint64)
        starts = ends - np.array(lengths, dtype=np.uint64)
        self._array.append(starts)
        self._hash.update(np.ascontiguousarray(starts).data)
        self._end += sum(lengths)

    def sync(self) -> str:
        """Saves the offsets to disk, so that they survive a loss of power; returns their hash."""
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
        (N,) offsets in bytes; None if the file can't be read, has fewer lines or another hash.
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

    Args:
        lines: The file.
        n_lines: Number of lines; the result is shorter if the file has fewer whole ones.
    """
    # The first line begins at 0, each further one behind a line break.
    starts = [np.zeros(1, dtype=np.uint64)]
    n_starts = 1
    position = 0
    with lines.open("rb") as file:
        while n_starts <= n_lines and (piece := file.read(_PIECE)):
            is_line_break = np.frombuffer(piece, dtype=np.uint8) == ord("\n")
            breaks = np.flatnonzero(is_line_break).astype(np.uint64)
            starts.append(breaks + np.uint64(position + 1))
            n_starts += len(breaks)
            position += len(piece)
    # Behind the last line break begins no whole line.
    n_whole_lines = n_starts - 1
    return np.concatenate(starts)[: min(n_lines, n_whole_lines)]
