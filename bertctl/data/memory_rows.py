"""Rows that Python code has in memory, as a file that the readers know.

They may be texts, mappings or data frames.

A data frame becomes Parquet, by pyarrow and the frame's own methods: types, and the names of
classes, are those that its own `to_parquet` would write. Nothing is imported for it.
"""

import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.data.file_names import SUFFIXES
from bertctl.data.sources import MemoryFile, Source
from bertctl.documents import is_whole
from bertctl.errors import UsageError
from bertctl.plugins import plugin

RowsInMemory = Iterable[str] | Iterable[Mapping[str, Any]]
"""Texts; mappings from column to value; or a frame of pandas, Polars, pyarrow or `datasets`."""

_LINES_AT_ONCE = 256


def memory_file(rows: RowsInMemory, name: str) -> MemoryFile | None:
    """Returns rows as a file in memory; None where there are none. A generator is read as it goes.

    Args:
        rows: Texts (their line breaks count as spaces), mappings, or a data frame.
        name: What messages call them.

    Raises:
        UsageError: They are neither. What comes later out of `rows` is refused when it is read.
    """
    if is_frame(rows):
        return _parquet_file(rows, name)
    # The parts of a text are letters, those of a mapping the names of its columns.
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise _not_rows(name)

    is_read_once = iter(rows) is rows  # a generator
    remaining: Iterator[Any] = iter(rows)
    head = list(itertools.islice(remaining, 1))  # the first row shows what all of them are
    if not head:
        return None

    def values() -> Iterator[Any]:
        """Returns all rows; those of a generator only the first time."""
        if is_read_once:
            return itertools.chain(head, remaining)
        return iter(rows)

    if isinstance(head[0], str):
        return MemoryFile(
            name,
            "lines",
            lambda: _joined(_line(text, name) for text in values()),
            is_read_once=is_read_once,
        )
    if not isinstance(head[0], Mapping):
        raise _not_rows(name)
    return MemoryFile(
        name,
        "jsonl",
        lambda: _joined(_json_line(row, name) for row in values()),
        is_read_once=is_read_once,
    )


def as_readable(source: Source) -> Source:
    """Returns a source as it is; a file in a plug-in's format as a file of JSON Lines in memory.

    The plug-in is found by the suffix, which bertctl itself does not know. It returns the rows of
    the file as mappings.
    """
    if not isinstance(source, Path) or source.suffix.lower() in SUFFIXES:
        return source
    read_records = plugin("readers", source.suffix.lower().removeprefix("."))
    if read_records is None:
        return source

    def lines() -> Iterator[bytes]:
        """Yields the records of the plug-in as JSON Lines."""
        for record in read_records(source):
            yield json.dumps(record, ensure_ascii=False).encode() + b"\n"

    return MemoryFile(str(source), "jsonl", lines)


def kept_file(rows: RowsInMemory, name: str) -> MemoryFile:
    """Returns rows as a file in memory that can be read again, whatever becomes of `rows`.

    Raises:
        UsageError: There are none, or they are no mappings and no data frame.
    """
    file = memory_file(rows, name)
    if file is None:
        raise UsageError(f"{name} has no rows", remedy="Give rows, or leave it out.")
    if file.kind == "lines":
        raise UsageError(
            f"{name} is a list of texts, and rows with labels are needed",
            remedy='Give mappings, such as {"text": "a text", "label": "good"}, or a data frame.',
        )
    content = b"".join(file.pieces())
    return MemoryFile(name, file.kind, lambda: [content])


def is_frame(rows: object) -> bool:
    """Returns whether rows are a data frame: all there, in columns with names."""
    # Only the type is looked at: a lazy frame would begin its query at `rows.columns`.
    kind = type(rows)
    has_columns = hasattr(kind, "columns") or hasattr(kind, "column_names")
    return has_columns and hasattr(kind, "__len__")


def _not_rows(name: str) -> UsageError:
    """Returns the error for something that is neither texts nor mappings nor a data frame."""
    return UsageError(
        f"{name} are a list of texts, or a list of mappings, or a data frame",
        remedy='Such as ["a text"], or [{"text": "a text"}]. Of several splits give one; collect a '
        "lazy frame.",
    )


def _joined(lines: Iterable[str]) -> Iterator[bytes]:
    """Yields lines as bytes, `_LINES_AT_ONCE` at a time: a piece per line would take longer."""
    remaining = iter(lines)
    while chunk := list(itertools.islice(remaining, _LINES_AT_ONCE)):
        yield "".join(chunk).encode("utf-8")


def _line(text: Any, name: str) -> str:
    """Returns a text as a line.

    Raises:
        UsageError: It is no text, or can't be written as UTF-8.
    """
    if not isinstance(text, str):
        raise _not_rows(name)
    if not is_whole(text):
        raise UsageError(
            "a text holds half a surrogate pair, which is not a character",
            remedy="Give whole characters.",
        )
    return " ".join(str(text).splitlines()) + "\n"


def _json_line(row: Any, name: str) -> str:
    """Returns a mapping as a line of JSON.

    Raises:
        UsageError: It is no mapping, or a value of it is not one of JSON's.
    """
    if not isinstance(row, Mapping):
        raise _not_rows(name)
    return json.dumps(dict(row), default=_plain) + "\n"


def _plain(value: Any) -> Any:
    """Returns a value as one that JSON can write: NumPy's as numbers or lists, mappings as objects.

    Raises:
        UsageError: JSON can't write such a value.
    """
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    message = (
        f"an example holds {value!r}, of type {type(value).__name__}: texts, numbers and lists of "
        "them fit"
    )
    raise UsageError(message, remedy="Make a text of it, or leave its column out.")


def _parquet_file(frame: Any, name: str) -> MemoryFile | None:
    """Returns a data frame as a Parquet file in memory; None if it has no rows.

    Raises:
        UsageError: It can't be made into columns.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = _arrow_table(frame)
        if not len(table):
            return None
        content = io.BytesIO()
        # A dictionary would store a repeated text once. The reader refuses files that unpack to
        # many times their size, so each cell is written with all of its bytes.
        pq.write_table(table, content, use_dictionary=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        message = f"{name}: this {type(frame).__name__} can't be made into columns: {error}"
        raise UsageError(
            message,
            remedy="Give each column one type, and its own name; or give rows: a list of mappings.",
        ) from error
    return MemoryFile(name, "parquet", lambda: [content.getvalue()])


def _arrow_table(frame: Any) -> Any:
    """Returns a frame as a table of pyarrow, by its own methods.

    Raises:
        TypeError: It has no such method.
    """
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, Mapping):
        raise TypeError("it has several splits, but one is needed")
    if hasattr(frame, "with_format") and hasattr(frame, "features"):  # of `datasets`
        table = frame.with_format("arrow")[:]
        return table.replace_schema_metadata(frame.features.arrow_schema.metadata)
    if hasattr(frame, "to_arrow"):  # of Polars
        return frame.to_arrow()
    if hasattr(frame, "reset_index"):  # of pandas, whose index is no column
        frame = frame.reset_index(drop=True)
    if not hasattr(frame, "__arrow_c_stream__"):
        raise TypeError("it has no method that gives its columns to Arrow")
    return pa.table(frame)
