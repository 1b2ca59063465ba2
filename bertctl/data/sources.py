"""Where the bytes of rows come from: a file, stdin, or rows in memory.

Rows in memory are encoded as a file of theirs would be, piece by piece, and go through the same
readers: what comes of them is what comes of that file, and no disk is touched.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, cast

MemoryKind = Literal["lines", "jsonl", "parquet"]
"""Format in which rows in memory are encoded."""

_SUFFIXES: dict[MemoryKind, str] = {"lines": ".txt", "jsonl": ".jsonl", "parquet": ".parquet"}
_BUFFER = 2**16


@dataclass(frozen=True)
class MemoryFile:
    """Rows in memory, read as a file of theirs is.

    Attributes:
        name: What messages call them.
        kind: Format of the bytes.
        pieces: Returns the bytes in pieces.
        is_read_once: Whether `pieces` can be called only once, as those of a generator.
    """

    name: str
    kind: MemoryKind
    pieces: Callable[[], Iterable[bytes]] = field(repr=False)
    is_read_once: bool = False

    def __str__(self) -> str:
        """Returns the name."""
        return self.name

    @property
    def suffix(self) -> str:
        """Suffix of a file with these bytes."""
        return _SUFFIXES[self.kind]

    def open(self) -> BinaryIO:
        """Opens the bytes from the first one on. The bytes of Parquet can be wound back."""
        if self.kind == "parquet":
            return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, _seekable(self.pieces()))))
        return cast(BinaryIO, io.BufferedReader(_Pieces(self.pieces()), _BUFFER))


def kept_rows(rows_in_memory: Mapping[str, MemoryFile]) -> dict[str, str]:
    """Returns split name -> path inside the run folder at which a run keeps the split's rows."""
    return {split: f"rows/{split}{file.suffix}" for split, file in rows_in_memory.items()}


Source: TypeAlias = Path | Literal["-"] | MemoryFile
"""A file, `-` for stdin, or rows in memory."""


def source_of(typed: str) -> Path | Literal["-"]:
    """Returns the file that was typed, or stdin."""
    return "-" if typed == "-" else Path(typed)


def source_name(source: Source) -> str:
    """Returns the name of a source in messages."""
    if source == "-":
        return "stdin"
    return str(source)


def is_read_once(source: Source) -> bool:
    """Returns whether a source can't be read again: stdin, or what a generator gives."""
    return source == "-" or (isinstance(source, MemoryFile) and source.is_read_once)


class _Pieces(io.RawIOBase):
    """Bytes that come in pieces, as a file that is read from its beginning to its end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._rest = memoryview(b"")  # of the last piece: bytes that nobody has read yet

    def readable(self) -> bool:
        """Returns True."""
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        """Fills a buffer as far as the next piece goes; 0 at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _seekable(pieces: Iterable[bytes]) -> io.BytesIO:
    """Returns bytes in pieces as a file that can be wound back, all of it in memory."""
    return io.BytesIO(b"".join(pieces))
