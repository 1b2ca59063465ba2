"""Files as tables, whole or in chunks, and what kind of file each is.

They are CSV, TSV, JSON, JSONL, Parquet and plain lines, also as .gz or from stdin.
"""

import io
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from bertctl.data.annotations import label_studio
from bertctl.data.decoding import LONGEST_DOCUMENT, NoRowsError, rows_expected
from bertctl.data.delimited import SAMPLE_LINES, detect_dialect, records
from bertctl.data.file_contents import begins_like_json_row, kind_of_head
from bertctl.data.file_lines import text_lines, weight_of_line
from bertctl.data.file_names import FILE_KINDS, SUFFIXES, FileKind, kind_of, suffix_of
from bertctl.data.json_tables import document_or_tables, table_of_document
from bertctl.data.memory_rows import as_readable
from bertctl.data.parquet_tables import tables_of_parquet
from bertctl.data.pipes import regular
from bertctl.data.read_options import ReadOptions
from bertctl.data.sources import MemoryFile, Source, is_read_once, source_name
from bertctl.data.table import (
    Table,
    entries_of,
    in_chunks,
    table_of_objects,
    table_of_records,
    weight_of_record,
)
from bertctl.data.text_files import first_bytes, is_gzip, open_bytes, require_file
from bertctl.documents import is_encoding, loading
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.words import unknown

if TYPE_CHECKING:
    pass


_LARGE = 2**25
"""Bytes from which the lines of a file are not held in memory."""


class KnownFormatError(DataError):
    """A file in a format that is known by its content, and can't be read.

    It is for no other task.
    """


def input_kind(source: Source, options: ReadOptions) -> FileKind:
    """Returns the kind of a file: by `options.kind`, else its first bytes, else its suffix.

    Stdin whose first bytes don't show its kind is lines of text.

    Raises:
        UsageError: The kind is unknown, or neither bytes nor suffix show it.
        UnavailableError: The file does not exist.
        DataError: The file is packed in a way that is not read here, or is no file of rows.
    """
    if source != "-":
        require_file(source)
    source = as_readable(source)
    kind = options.kind
    if kind is None:
        detected = detected_kind(source, options)
        if detected is not None:
            return detected
        return "lines" if source == "-" else kind_of(source)
    if kind not in FILE_KINDS:
        raise UsageError(
            unknown("input format", kind, FILE_KINDS), remedy=f"Formats: {', '.join(FILE_KINDS)}."
        )
    return kind


def detected_kind(source: Source, options: ReadOptions) -> FileKind | None:
    """Returns the kind of a file by its first bytes, else by its suffix; None if neither shows it.

    The listener receives a message if the bytes show another kind than the suffix.

    Raises:
        UnavailableError: The file does not exist.
        DataError: The file is packed in a way that is not read here, or is no file of rows.
    """
    if isinstance(source, MemoryFile):
        return source.kind
    if source == "-":
        suffix_kind = None
    else:
        suffix_kind = SUFFIXES.get(suffix_of(source))
    encoding = options.settings.encoding
    if encoding is not None and not is_encoding(encoding):
        encoding = None  # it is refused where the file is decoded
    content = kind_of_head(first_bytes(source), encoding)
    if source != "-" and source.suffix.lower() != ".gz" and is_gzip(source):
        options.listener.say(f"{source}: unpacked, since it is gzip, though it is not named .gz")
    if content is None or content == suffix_kind:
        return suffix_kind

    # A table fits the suffixes .csv and .tsv alike, as `detect_dialect` finds the separator. A file
    # that is read whole has labels, so a .txt of this kind is a table, too. A .txt that is read in
    # chunks, to predict on it, may be lines of text.
    is_table = content in ("csv", "tsv")
    suffix_kinds_of_tables = ("csv", "tsv", "lines") if options.reads_whole_file else ("csv", "tsv")
    if is_table and suffix_kind in suffix_kinds_of_tables:
        return suffix_kind

    if is_table:
        noun = "a table"
    else:
        noun = {"jsonl": "JSON", "parquet": "Parquet"}[content]
    message = f"{source_name(source)}: read as {noun} by its content"
    if source != "-" and suffix_kind is not None:
        message += f", though it is named {source.suffix}"
    could_be_lines = suffix_kind == "lines" or source == "-"
    if could_be_lines and not options.reads_whole_file:
        message += " (`input_format=lines` reads its lines as texts)"
    options.listener.say(message)
    return content


def read_tables(source: Source, kind: FileKind, options: ReadOptions) -> Iterator[Table]:
    """Yields a file's columns as they are, one table per chunk.

    Args:
        source: The file.
        kind: The kind of the file, as `input_kind` returns it.
        options: How the file is read.

    Raises:
        DataError: The file has no rows, or has bytes or records that are not what they should be;
            with file and line. If all records were left out, it is the error of the last one.
    """
    last_table = None  # it may have columns but no rows
    for table in _tables(source, kind, options):
        last_table = table
        if len(table):
            yield table
    if last_table is None or not len(last_table):
        if options.skipped is not None and options.skipped.errors:
            raise options.skipped.errors[-1]
        if last_table is not None and last_table.columns:
            message = "has a header but no rows"
        else:
            message = "has no rows"
        raise NoRowsError(f"{source_name(source)} {message}", remedy="Give a file with rows.")


def _tables(source: Source, kind: FileKind, options: ReadOptions) -> Iterator[Table]:
    """Yields a file's columns as they are, one table per chunk; a chunk may have no rows."""
    source = as_readable(source)
    name = source_name(source)
    with open_bytes(source) as file:
        if kind == "parquet":
            yield from tables_of_parquet(source, file, options)
            return
        if kind == "jsonl":
            yield from _tables_of_json(file, name, options)
            return
        lines = text_lines(file, name, options)
        if kind == "lines":
            tables = _tables_of_lines(lines, name, options)
            if options.kind is None:  # nobody said that these are lines, so they may be JSON
                tables = _telling_json_lines(tables, name, options.listener)
        else:
            tables = _delimited_tables(source, lines, options, tabs=kind == "tsv")
        yield from _estimating_rows(file, tables, options)


def _tables_of_json(file: BinaryIO, name: str, options: ReadOptions) -> Iterator[Table]:
    """Yields the objects of an open JSON or JSON Lines file, as tables.

    Tasks of Label Studio become rows: in JSON Lines they are found here, in a document by
    `table_of_document`.
    """
    # A list may be written on one line, which then may be as long as a document.
    first_byte = cast(io.BufferedReader, file).peek(1)[:1]
    longest_line = LONGEST_DOCUMENT if first_byte == b"[" else 0
    document, tables = document_or_tables(file, name, options, longest=longest_line)
    if document is not None:
        document_table = table_of_document(document, name, options)
        options.listener.expect(len(document_table))
        yield from document_table.chunks(options.chunk_rows)
    else:
        tables = (_with_tasks_as_rows(table, options) for table in tables)
        yield from _estimating_rows(file, tables, options)


def _tables_of_lines(lines: Iterator[str], name: str, options: ReadOptions) -> Iterator[Table]:
    """Yields lines as the column `text`, each with its number."""
    numbered = enumerate((line.rstrip("\n").removesuffix("\r") for line in lines), start=1)
    for chunk in in_chunks(numbered, options.chunk_rows, weight=weight_of_line):
        yield Table({"text": [text for _, text in chunk]}, name, [number for number, _ in chunk])


def _with_tasks_as_rows(table: Table, options: ReadOptions) -> Table:
    """Returns a table as it is, or with Label Studio's tasks as rows if its objects are tasks."""
    if not label_studio.has_tasks(table):
        return table
    with loading(table.source, remedy=options.form):
        rows = label_studio.rows_of(entries_of(table), table.source, options)
    return table_of_objects(list(zip(table.lines, rows, strict=True)), table.source)


def _telling_json_lines(tables: Iterable[Table], name: str, listener: Listener) -> Iterator[Table]:
    """Yields tables of lines, and warns at the end if some of them look like objects of JSON."""
    n_json = 0
    total = 0
    for table in tables:
        n_json += sum(map(begins_like_json_row, table.columns["text"]))
        total += len(table)
        yield table
    tell_json_lines(n_json, total, name, listener)


def tell_json_lines(n_json: int, total: int, name: str, listener: Listener) -> None:
    """Warns of lines that were read as texts and look like objects of JSON.

    Args:
        n_json: Number of lines that look so. If it is 0, there is no warning.
        total: Number of lines that were read.
        name: Name of the file.
        listener: Receives the warning.
    """
    if not n_json:
        return
    if n_json == 1:
        are = "looks like JSON and was"
    else:
        are = "look like JSON and were"
    remedy = (
        "`input_format=jsonl` reads JSON, `input_format=lines` reads texts without this warning"
    )
    listener.warn(f"{name}: {n_json:,} of {total:,} lines {are} read as a text ({remedy})")


def _estimating_rows(
    file: BinaryIO, tables: Iterable[Table], options: ReadOptions
) -> Iterator[Table]:
    """Yields the tables of an open file, and reports how many rows the file probably has.

    The number is estimated again with each chunk, by the share of the file's bytes that have been
    read. A file that is read whole needs no estimate.
    """
    n_rows = 0
    for table in tables:
        n_rows += len(table)
        if not options.reads_whole_file:
            options.listener.expect(rows_expected(file, n_rows))
        yield table


def _delimited_tables(
    source: Source, lines: Iterator[str], options: ReadOptions, *, tabs: bool
) -> Iterator[Table]:
    """Yields the rows of a CSV or TSV file; as one table if it is read whole.

    The dialect is detected before the records are parsed: separator and header by the first lines,
    quoting by all lines. So all lines are read twice. The lines of a small file are held in memory
    for that; other files are opened again. A large file that is read whole is read once more,
    first, for faults of its encoding, which are reported before any other fault. Only a pipe that
    is read in chunks can't be opened again: its first lines decide about quoting, too.

    Args:
        source: The file, to open it again.
        lines: All its lines, not yet read.
        options: How it is read.
        tabs: Whether its suffix says that tabs separate the columns.

    Raises:
        DataError: A record that is not as the others, with file and line.
    """
    name = source_name(source)
    settings = options.settings
    listener = options.listener
    detect = partial(
        detect_dialect,
        tabs=tabs,
        settings=settings,
        source=name,
        listener=listener,
    )
    parse_records = partial(
        records,
        source=name,
        listener=listener,
        on_bad_record=options.on_bad_record,
    )

    is_held = options.reads_whole_file and not _is_large(source)
    if is_held:
        held_lines = list(lines)
        dialect = detect(held_lines[:SAMPLE_LINES], held_lines)
        all_records = parse_records(held_lines, dialect)
        yield table_of_records(dialect.names, all_records, name, header=dialect.header)
        return

    sample = list(itertools.islice(lines, SAMPLE_LINES))
    if options.reads_whole_file:  # a large file
        deque(lines, maxlen=0)  # decodes the rest, for its faults
        silent = replace(options, listener=SILENT)  # the encoding has been reported
        with open_bytes(source) as reopened:
            dialect = detect(sample, text_lines(reopened, name, silent))
        with open_bytes(source) as reopened:
            all_records = parse_records(text_lines(reopened, name, silent), dialect)
            yield table_of_records(dialect.names, all_records, name, header=dialect.header)
        return

    # The file is read in chunks.
    if is_read_once(source):
        dialect = detect(sample, sample)
    else:
        # This reading is for the quoting alone, and reports nothing.
        silent = replace(options, listener=SILENT, on_bad_record=None)
        with open_bytes(source) as reopened:
            dialect = detect(sample, text_lines(reopened, name, silent))
    all_records = parse_records(itertools.chain(sample, lines), dialect)
    for chunk in in_chunks(all_records, options.chunk_rows, weight=weight_of_record):
        yield table_of_records(dialect.names, chunk, name, header=dialect.header)


def _is_large(source: Source) -> bool:
    """Returns whether a file is so large that its lines are read again rather than held."""
    return isinstance(source, Path) and regular(source).stat().st_size >= _LARGE
