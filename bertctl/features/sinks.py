"""Where vectors go while they are made: each sink holds whole rows only, and can be taken up again after a kill."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bertctl.data.rows import Rows
from bertctl.errors import DataError
from bertctl.features.arrays import GrowingArray
from bertctl.features.encoder import TokenVectors
from bertctl.features.jsonl import text_line, token_line
from bertctl.run_folder import write_failure


@dataclass(frozen=True)
class Window:
    """The rows that are worked on at once, with their vectors.

    Attributes:
        first: number of the first row.
        rows: N rows.
        vectors: (N, K, D), or (T, K, D) for tokens, K layers.
        tokens: places and pieces of tokens; None where a row has one vector.
    """

    first: int
    rows: Rows
    vectors: NDArray[np.floating]
    tokens: TokenVectors | None


def stacked(layers: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """(N, K, D) of K times (N, D); of one without a copy."""
    return layers[0][:, None] if len(layers) == 1 else np.stack(layers, axis=1)


@dataclass(frozen=True)
class Shape:
    """What every row of a file looks like.

    Attributes:
        layers: names, K.
        size: D.
        dtype: float32 or float16.
        by_token: whether a row has as many vectors as tokens, or words.
        pooling: its name, `none` for tokens, or `words-...`.
        pieces: name of each piece id, for JSON lines of tokens; empty otherwise.
        keep_text: whether texts are written where the format has room for them.
    """

    layers: tuple[str, ...]
    size: int
    dtype: str
    by_token: bool
    pooling: str
    pieces: tuple[str, ...] = ()
    keep_text: bool = True

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of a vector: (D,), or (K, D) for several layers."""
        return (self.size,) if len(self.layers) == 1 else (len(self.layers), self.size)


class Sink(Protocol):
    """Takes windows in order."""

    def append(self, window: Window) -> None:
        """Add the window's rows, whole or not at all."""

    def commit(self) -> dict[str, int]:
        """Make what was added outlive a kill; what to give to the next `open` to go on from here."""

    def close(self) -> None:
        """Give the files back."""


class NpySink:
    """The `.npy` file itself, grown in place."""

    def __init__(self, path: Path, shape: Shape, state: Mapping[str, int] | None) -> None:
        self._array = GrowingArray(path, shape.row_shape, shape.dtype, rows=None if state is None else state["rows"])
        self._shape = shape

    def append(self, window: Window) -> None:
        """See `Sink`."""
        self._array.append(window.vectors.reshape(-1, *self._shape.row_shape))

    def commit(self) -> dict[str, int]:
        """See `Sink`."""
        self._array.sync()
        return {"rows": self._array.rows}

    def close(self) -> None:
        """See `Sink`."""
        self._array.close()


class LineSink:
    """The `.jsonl` file itself, one whole line after the other."""

    def __init__(self, path: Path, shape: Shape, state: Mapping[str, int] | None) -> None:
        self._lines = GrowingLines(path, None if state is None else state["bytes"])
        self._shape = shape

    def append(self, window: Window) -> None:
        """See `Sink`."""
        self._lines.append(window_lines(window, self._shape))

    def commit(self) -> dict[str, int]:
        """See `Sink`."""
        return {"bytes": self._lines.sync()}

    def close(self) -> None:
        """See `Sink`."""
        self._lines.close()


class PartSink:
    """A folder of arrays: what the formats that can't be grown (Parquet, zip, safetensors) are made from at the end,
    and what each of several processes writes.
    """

    def __init__(self, folder: Path, shape: Shape, state: Mapping[str, int] | None) -> None:
        if state is None:
            shutil.rmtree(folder, ignore_errors=True)
        rows = None if state is None else state["rows"]
        vectors = None if state is None else state["vectors"]
        self._shape = shape
        self._vectors = GrowingArray(folder / "vectors.npy", shape.row_shape, shape.dtype, rows=vectors)
        self._rows = GrowingLines(folder / "rows.jsonl", None if state is None else state["bytes"])
        self._count = rows or 0
        self._arrays: dict[str, GrowingArray] = {}
        if shape.by_token:
            self._arrays["counts"] = GrowingArray(folder / "counts.npy", (), np.int64, rows=rows)
            self._arrays["spans"] = GrowingArray(folder / "spans.npy", (2,), np.int32, rows=vectors)
            if not shape.pooling.startswith("words"):
                self._arrays["ids"] = GrowingArray(folder / "ids.npy", (), np.int32, rows=vectors)

    def append(self, window: Window) -> None:
        """See `Sink`."""
        self._vectors.append(window.vectors.reshape(-1, *self._shape.row_shape))
        tokens = window.tokens
        if tokens is not None:
            for name, values in (("counts", tokens.counts), ("spans", tokens.spans), ("ids", tokens.ids)):
                if name in self._arrays:
                    self._arrays[name].append(values)
        self._rows.append(b"".join(row_line(window.rows, i, self._shape) for i in range(len(window.rows))))
        self._count += len(window.rows)

    def commit(self) -> dict[str, int]:
        """See `Sink`."""
        for array in (self._vectors, *self._arrays.values()):
            array.sync()
        return {"rows": self._count, "vectors": self._vectors.rows, "bytes": self._rows.sync()}

    def close(self) -> None:
        """See `Sink`."""
        self._rows.close()
        for array in (self._vectors, *self._arrays.values()):
            array.close()


class GrowingLines:
    """A file of lines, appended to; what follows the bytes that are known to be whole is cut off."""

    def __init__(self, path: Path, size: int | None) -> None:
        self._path = path
        self._size = size or 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb" if size is None else "rb+", buffering=0)
            if path.stat().st_size < self._size:
                raise DataError(
                    f"{path} has been cut short: its whole lines took {self._size} bytes",
                    remedy="Start again with --overwrite.",
                )
            self._file.truncate(self._size)
            self._file.seek(self._size)
        except OSError as error:
            raise write_failure(path, error) from error

    def append(self, lines: bytes) -> None:
        """Add whole lines, or none of them.

        Raises:
            UnavailableError: the disk is full.
        """
        left = memoryview(lines)
        try:
            while left:
                left = left[self._file.write(left) :]
            self._size += len(lines)
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._size)
                self._file.seek(self._size)
            raise write_failure(self._path, error) from error

    def sync(self) -> int:
        """Bytes that now outlive a loss of power."""
        os.fsync(self._file.fileno())
        return self._size

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


def window_lines(window: Window, shape: Shape) -> bytes:
    """The window's rows as JSON lines."""
    if window.tokens is None:
        return b"".join(
            text_line(window.first + i, window.rows.ids[i], shape, window.vectors[i]) for i in range(len(window.rows))
        )
    ends = np.cumsum(window.tokens.counts)
    lines = []
    for i, end in enumerate(ends.tolist()):
        inside = slice(end - int(window.tokens.counts[i]), end)
        if shape.pooling.startswith("words"):
            names = word_names(window.rows, i, window.tokens.spans[inside])
        else:
            names = [shape.pieces[number] for number in window.tokens.ids[inside].tolist()]
        lines.append(token_line(window.first + i, names, shape, window.vectors[inside]))
    return b"".join(lines)


def word_names(rows: Rows, index: int, spans: NDArray[np.int32]) -> list[str]:
    """The words of a row: as given, else its text between the spans."""
    if rows.has("words"):
        return list(rows.columns["words"][index])
    text = rows.columns["text"][index]
    return [text[begin:end] for begin, end in spans.tolist()]


def row_line(rows: Rows, index: int, shape: Shape) -> bytes:
    """What is kept of a row beside its vector: id, texts, words, label."""
    line: dict[str, Any] = {"id": rows.ids[index]}
    names = ("text", "pair", "words", "label", "tags") if shape.keep_text else ("label",)
    line |= {name: rows.columns[name][index] for name in names if rows.has(name)}
    return json.dumps(line, ensure_ascii=False, default=str).encode() + b"\n"
