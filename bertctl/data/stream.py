"""Rows of a file or of stdin in portions, so that files of any size fit: lines, CSV, TSV, JSONL, Parquet."""

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO, TypeVar

from bertctl.config.schema import DataSection
from bertctl.data.columns import Choice, choose_columns, rows_from, say_blank
from bertctl.data.delimited import SAMPLE_LINES, detect_layout, records
from bertctl.data.files import KINDS, Kind, json_objects, kind_of, parquet_tables, table_of_objects
from bertctl.data.rows import Rows
from bertctl.data.table import Table, table_of_records
from bertctl.data.text_files import Source, open_bytes, require_file, source_name, stream_lines
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.words import did_you_mean

_LINES = Choice("text", None, None, None)
_Item = TypeVar("_Item")


def stream_rows(
    source: Source,
    settings: DataSection,
    *,
    kind: str | None = None,
    split: str = "predict",
    chunk_rows: int = 2048,
    listener: Listener = SILENT,
) -> Iterator[Rows]:
    """The rows of a file or of stdin, in order, at most `chunk_rows` at a time; labels are optional.

    Columns are chosen by the first portion and stay; rows are numbered through unless there is an id column.

    Args:
        source: a path, or `-` for stdin.
        settings: columns, delimiter, header and encoding, where the person said them.
        kind: one of `KINDS`; by the suffix when left out, for stdin `lines` (each line a text, blank ones too).
        split: what the rows are to be called.
        chunk_rows: rows in a portion.
        listener: told of what was guessed and detected.

    Raises:
        UsageError: an unknown kind or suffix, columns that can't be guessed.
        DataError: nothing there, bytes, records or columns that are not what they should be, with file and line.
        UnavailableError: not there.
    """
    name = source_name(source)
    read_as = input_kind(source, kind)
    tables = stream_tables(source, settings, kind=read_as, rows=chunk_rows, listener=listener)
    choice: Choice | None = None
    count = blank = 0
    for table in tables:
        if choice is None:
            choice = (
                _LINES if read_as == "lines" else choose_columns(table, settings, label_needed=False, listener=listener)
            )
        rows, blanks = rows_from(table, choice, split=split, first_id=count)
        count += len(rows)
        blank += blanks
        yield rows
    if not count:
        raise DataError(f"{name} has no rows", remedy="Give texts, one a line, or a file with rows.")
    say_blank(blank, count, name, listener)


def input_kind(source: Source, given: str | None) -> Kind:
    """What a file is: as it was said, else by its suffix; stdin is lines.

    Raises:
        UsageError: an unknown kind, or a suffix that says nothing.
        UnavailableError: not there.
    """
    if source != "-":
        require_file(source)
    if given is None:
        return "lines" if source == "-" else kind_of(source)
    if given not in KINDS:
        hint = did_you_mean(given, KINDS)
        raise UsageError(
            f"there is no input format '{given}'" + (f": {hint}" if hint else ""),
            remedy=f"Formats: {', '.join(KINDS)}.",
        )
    return given


def stream_tables(
    source: Source, settings: DataSection, *, kind: Kind, rows: int, listener: Listener
) -> Iterator[Table]:
    """A file's columns as they are, at most `rows` rows at a time.

    Raises:
        DataError: bytes or records that are not what they should be, with file and line.
    """
    name = source_name(source)
    with open_bytes(source) as file:
        if kind == "parquet":
            with tempfile.TemporaryFile() as spool:
                yield from parquet_tables(_seekable(file, source, spool), name, batch_rows=rows)
            return
        lines = stream_lines(file, name, settings.encoding, listener)
        if kind == "lines":
            numbered = enumerate((line.rstrip("\n").removesuffix("\r") for line in lines), start=1)
            for portion in _portions(numbered, rows):
                yield Table({"text": [text for _, text in portion]}, name, [number for number, _ in portion])
        elif kind == "jsonl":
            for objects in _portions(json_objects(lines, name), rows):
                yield table_of_objects(objects, name)
        else:
            yield from _delimited_tables(source, lines, settings, tabs=kind == "tsv", rows=rows, listener=listener)


def _delimited_tables(
    source: Source, lines: Iterator[str], settings: DataSection, *, tabs: bool, rows: int, listener: Listener
) -> Iterator[Table]:
    name = source_name(source)
    sample = list(itertools.islice(lines, SAMPLE_LINES))
    if not sample:
        raise DataError(f"{name} is empty", remedy="Give a file with rows.")
    if source == "-":
        layout = detect_layout(sample, sample, tabs=tabs, settings=settings, source=name, listener=listener)
    else:  # a file can be read twice, so quoting is judged by all of it
        with open_bytes(source) as again:
            whole = stream_lines(again, name, settings.encoding, SILENT)
            layout = detect_layout(sample, whole, tabs=tabs, settings=settings, source=name, listener=listener)
    everything = itertools.chain(sample, lines)
    for portion in _portions(records(everything, layout, source=name, listener=listener), rows):
        yield table_of_records(layout.names, portion, name, header=layout.header)


def _portions(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """`itertools.batched` of Python 3.12, as lists."""
    left = iter(items)
    while portion := list(itertools.islice(left, size)):
        yield portion


def _seekable(file: BinaryIO, source: Source, spool: BinaryIO) -> BinaryIO:
    """Parquet begins at its end: what can't be wound back goes through a temporary file, not through memory."""
    if source != "-" and source.suffix != ".gz":
        return file
    shutil.copyfileobj(file, spool)
    spool.seek(0)
    return spool
