"""Files packed with gzip, read as they are unpacked, with bounds on what a few bytes may become.

A megabyte of gzip can unpack to a gigabyte. Text that says something packs to a tenth, so a file
that becomes 200 times as large, or has more lines than packed bytes, is refused before it fills
memory, disk or time.
"""

import gzip
import io
import shlex
import zlib
from typing import BinaryIO, cast

from bertctl.errors import DataError
from bertctl.words import human_bytes

LARGEST_RATIO = 200
"""Bytes that one packed byte may become."""

SMALLEST_REFUSED = 2**26
"""Bytes that a file of any ratio may unpack to."""

_SMALLEST_LINES = 1_000_000
"""Lines that a file of any size may have."""

_GLANCE = 2**14
"""Packed bytes by which a file is suspected."""

_BLOCK = 2**20


class UnpackedFile(io.BufferedReader):
    """Unpacked bytes of a gzip file.

    Args:
        raw: The packed bytes, from the first one on.
        name: Name of the file, for messages.

    Attributes:
        fileobj: The packed bytes.
    """

    def __init__(self, raw: BinaryIO, name: str) -> None:
        super().__init__(_Unpacker(raw, name), buffer_size=_BLOCK)
        self.fileobj = raw


class _Unpacker(io.RawIOBase):
    """Unpacks bytes, and compares what they have become with what they were."""

    def __init__(self, raw: BinaryIO, name: str) -> None:
        super().__init__()
        self._raw = raw
        self._name = name
        self._packed = _CountedFile(raw)
        self._file = gzip.GzipFile(fileobj=cast(BinaryIO, self._packed))
        # Unpacked bytes, and lines in them, that were read so far.
        self._n_bytes = 0
        self._n_lines = 0

    def readable(self) -> bool:
        """Returns True, as the class is for reading."""
        return True

    def fileno(self) -> int:
        """Returns the descriptor of the packed file."""
        return self._raw.fileno()

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        """Fills a buffer with unpacked bytes, and returns how many it got.

        Raises:
            DataError: The file has unpacked to too much.
        """
        data = self._file.read1(len(buffer))
        buffer[: len(data)] = data
        self._n_bytes += len(data)
        self._n_lines += data.count(b"\n")
        n_packed = self._packed.n_bytes
        # Text packs to about a tenth, so such files are not text: they would fill memory or time.
        if self._n_bytes > max(SMALLEST_REFUSED, LARGEST_RATIO * n_packed):
            raise self._refusal(f"unpacks to more than {LARGEST_RATIO} times its size", n_packed)
        if self._n_lines > max(_SMALLEST_LINES, n_packed):
            raise self._refusal("has more lines than packed bytes", n_packed)
        return len(data)

    def _refusal(self, reason: str, n_packed: int) -> DataError:
        """Returns the error for a file that unpacks to too much.

        Args:
            reason: What is too much, as it follows the file's name.
            n_packed: Packed bytes that were read so far.
        """
        sizes = (
            f"{human_bytes(n_packed)} became {human_bytes(self._n_bytes)} with {self._n_lines:,} "
            "lines so far"
        )
        return DataError(
            f"{self._name} {reason}: {sizes}",
            remedy="If it is meant, unpack it and give the unpacked file: gzip -d "
            f"{shlex.quote(self._name)}.",
            file=self._name,
        )


class _CountedFile:
    """File that counts the bytes that are read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.n_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Reads bytes of the file, and counts them in `n_bytes`."""
        data = self._file.read(size)
        self.n_bytes += len(data)
        return data


def unpacked(raw: BinaryIO, name: str) -> UnpackedFile:
    """Opens a gzip file to read its unpacked bytes.

    A suspicious file is read here once, so that one that unpacks to too much is refused before any
    of it is used. Others, and pipes, are refused while they are read.

    Args:
        raw: The packed bytes.
        name: Name of the file, for messages.

    Raises:
        DataError: The file unpacks to too much.
    """
    if raw.seekable() and _is_suspicious(raw):
        start = raw.tell()
        first_reading = UnpackedFile(raw, name)
        # Every file may unpack to SMALLEST_REFUSED bytes. Reading a block more raises the error.
        n_bytes_to_read = SMALLEST_REFUSED + _BLOCK
        while n_bytes_to_read > 0 and (block := first_reading.read(_BLOCK)):
            n_bytes_to_read -= len(block)
        raw.seek(start)
    return UnpackedFile(raw, name)


def _is_suspicious(raw: BinaryIO) -> bool:
    """Returns whether the first bytes of a packed file unpack to `LARGEST_RATIO` times as many."""
    start = raw.tell()
    head = raw.read(_GLANCE)
    raw.seek(start)
    size_limit = LARGEST_RATIO * len(head)
    try:
        # wbits=31: zlib's number for gzip's header with the largest window.
        return len(zlib.decompressobj(wbits=31).decompress(head, size_limit)) >= size_limit
    except zlib.error:
        return False  # refused where it is read
