"""Files as columns, whole or in chunks.

They are CSV, TSV, JSON, JSONL, Parquet and plain lines, also as .gz or from stdin.
"""

import io
import itertools
import json
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from bertctl.data.annotations import label_studio, spacy_json
from bertctl.data.choice_cells import rows_of_dialogues
from bertctl.data.class_features import class_features, names_of_classes, with_class_names
from bertctl.data.delimited import SAMPLE_LINES, detect_dialect, records
from bertctl.data.file_contents import PARQUET, begins_like_json_row, kind_of_head
from bertctl.data.file_names import FILE_KINDS, SUFFIXES, FileKind, kind_of, suffix_of
from bertctl.data.memory_rows import as_read
from bertctl.data.names import folded
from bertctl.data.packed_columns import is_many
from bertctl.data.pipes import copy_bounded, regular
from bertctl.data.read_options import ReadOptions
from bertctl.data.sources import MemoryFile, Source, is_read_once, source_name
from bertctl.data.table import (
    Table,
    entries_of,
    in_chunks,
    joined_tables,
    table_of_objects,
    table_of_records,
    weight_of_record,
)
from bertctl.data.text_files import (
    LONGEST_DOCUMENT,
    NoRowsError,
    decoded_lines,
    first_bytes,
    is_gzip,
    open_bytes,
    require_file,
    rows_expected,
)
from bertctl.documents import is_encoding, loading, parse, require_room_for_json
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.unpacking import UnpackedFile
from bertctl.words import unknown

if TYPE_CHECKING:
    from bertctl.data.parquet_batches import ParquetBatches

_WHOLE_BATCH = 16_384
"""Rows of a Parquet file that are decoded at once, where all of them are read."""

_LARGE = 2**25
"""Bytes from which the lines of a file are not held in memory."""

_WORD_NAMES = ("words", "tokens", "token", "form", "forms")  # of a row of words with their tags


class NoTableError(DataError):
    """JSON that is no list of objects.

    It may be a format of annotations, which another reader knows.
    """


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
    source = as_read(source)
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
    suffix_kinds_of_tables = ("csv", "tsv", "lines") if options.whole else ("csv", "tsv")
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
    if could_be_lines and not options.whole:
        message += " (`input_format=lines` reads its lines as texts)"
    options.listener.say(message)
    return content


def read_tables(source: Source, kind: FileKind, options: ReadOptions) -> Iterator[Table]:
    """Yields a file's columns as they are, one table per chunk.

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
    """Yields a file's columns as they are, one table per chunk, of a kind that is known."""
    source = as_read(source)
    name = source_name(source)
    with open_bytes(source) as file:
        if kind == "parquet":
            yield from _tables_of_parquet(source, file, options)
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
        yield from _expecting(file, tables, options)


def _tables_of_parquet(source: Source, file: BinaryIO, options: ReadOptions) -> Iterator[Table]:
    """Yields the rows of an open Parquet file, through a temporary file if it can't be sought."""
    name = source_name(source)
    _require_parquet(file, name)
    can_seek = source != "-" and not isinstance(file, UnpackedFile)
    if can_seek:
        yield from _parquet_tables(file, name, options)
        return
    with tempfile.TemporaryFile() as spool:
        copy_bounded(file, spool, name)
        spool.seek(0)
        yield from _parquet_tables(cast(BinaryIO, spool), name, options)


def _tables_of_json(file: BinaryIO, name: str, options: ReadOptions) -> Iterator[Table]:
    """Yields the objects of an open JSON or JSON Lines file."""
    # A list may be written on one line, which then may be as long as a document.
    first_byte = cast(io.BufferedReader, file).peek(1)[:1]
    longest_line = LONGEST_DOCUMENT if first_byte == b"[" else 0
    document, tables = document_or_tables(file, name, options, longest=longest_line)
    if document is not None:
        document_table = table_of_document(document, name, options)
        options.listener.expect(len(document_table))
        yield from document_table.chunks(options.chunk_rows)
    else:
        tables = (_without_tasks(table, options) for table in tables)
        yield from _expecting(file, tables, options)


def _tables_of_lines(lines: Iterator[str], name: str, options: ReadOptions) -> Iterator[Table]:
    """Yields lines as the column `text`, each with its number."""
    numbered = enumerate((line.rstrip("\n").removesuffix("\r") for line in lines), start=1)
    for chunk in in_chunks(numbered, options.chunk_rows, weight=_characters):
        yield Table({"text": [text for _, text in chunk]}, name, [number for number, _ in chunk])


def _without_tasks(table: Table, options: ReadOptions) -> Table:
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


def _require_parquet(file: BinaryIO, name: str) -> None:
    """Refuses a file that does not begin like Parquet.

    Raises:
        DataError: The file begins with something else, which the message shows.
    """
    head = cast(io.BufferedReader, file).peek(len(PARQUET))[:64]
    if not head:
        raise NoRowsError(f"{name} is empty: it has no rows", remedy="Give a file with rows.")
    if not head.startswith(PARQUET):
        message = f"{name} is not a Parquet file: it begins with {head[:24]!r}"
        raise DataError(
            message, remedy="Name it by its format: .csv, .tsv, .jsonl or .txt, each also with .gz."
        )


def _expecting(file: BinaryIO, tables: Iterable[Table], options: ReadOptions) -> Iterator[Table]:
    """Yields the tables, and tells the listener about how many rows the open file has.

    The number is estimated anew with each chunk, from the share of the file's bytes that have been
    read. A file that is read whole needs no estimate.
    """
    n_rows = 0
    for table in tables:
        n_rows += len(table)
        if not options.whole:
            options.listener.expect(rows_expected(file, n_rows))
        yield table


def text_lines(
    file: BinaryIO, name: str, options: ReadOptions, *, longest: int = 0
) -> Iterator[str]:
    """Yields the lines of an open file.

    Args:
        file: The open file.
        name: Name of the file in messages.
        options: How the file is read. If bad records are only reported (`on_bad_record` without
            `skipped`), bytes that are no text become U+FFFD. Otherwise they are an error.
        longest: Characters that a line may have, if they are more than `data.longest_line`.

    Raises:
        DataError: Bytes that are no text, or a line that is too long.
    """
    only_reports = options.on_bad_record is not None and options.skipped is None
    errors: Literal["strict", "replace"] = "replace" if only_reports else "strict"
    settings = options.settings
    longest = max(longest, settings.longest_line * 1_000_000)
    return decoded_lines(
        file,
        name,
        settings.encoding,
        options.listener,
        errors=errors,
        longest=longest,
        all_stay=options.whole,
    )


def _delimited_tables(
    source: Source, lines: Iterator[str], options: ReadOptions, *, tabs: bool
) -> Iterator[Table]:
    """Yields the rows of a CSV or TSV file; as one table if it is read whole.

    The dialect is detected before the records are parsed: separator and header by the first lines,
    quoting by all lines. So all lines are read twice. The lines of a small file are held in memory
    for that; other files are opened again. Only a pipe that is read in chunks can't be opened
    again: its first lines decide about quoting, too.

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

    is_held = options.whole and not _is_large(source)
    if is_held:
        held_lines = list(lines)
        dialect = detect(held_lines[:SAMPLE_LINES], held_lines)
        all_records = parse_records(held_lines, dialect)
        yield table_of_records(dialect.names, all_records, name, header=dialect.header)
        return

    sample = list(itertools.islice(lines, SAMPLE_LINES))
    if options.whole:  # a large file, read three times
        # The rest is decoded here for its errors: they come before any other message.
        deque(lines, maxlen=0)
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


def _characters(numbered_line: tuple[int, str]) -> int:
    """Returns how many characters a line has, by which chunks are bounded."""
    return len(numbered_line[1])


def _is_large(source: Source) -> bool:
    """Returns whether a file is so large that its lines are read again rather than held."""
    return isinstance(source, Path) and regular(source).stat().st_size >= _LARGE


def document_or_tables(
    file: BinaryIO, source: str, options: ReadOptions, *, longest: int = LONGEST_DOCUMENT
) -> tuple[Any, Iterator[Table]]:
    """Returns a JSON document and no tables, or None and the tables of a file with JSON Lines.

    Args:
        file: The open file.
        source: Name of the file in messages.
        options: How the file is read.
        longest: Characters that a line may have: a document may be one line.

    Raises:
        DataError: It is no JSON or has no rows.
    """
    lines = text_lines(file, source, options, longest=longest)
    head, document = _lines_or_document(lines, source, options.form)
    if document is not None:
        return document, iter(())
    numbered = enumerate(itertools.chain(head, lines), start=1)
    if options.whole:
        return None, _table_of_all(_json_objects(numbered, source, options), source)
    return None, _tables_of_objects(numbered, source, options)


def _tables_of_objects(
    numbered: Iterable[tuple[int, str]], source: str, options: ReadOptions
) -> Iterator[Table]:
    """Yields the objects that stand one per line as tables."""
    for lines in in_chunks(numbered, options.chunk_rows, weight=_characters):
        objects = list(_json_objects(lines, source, options))
        if objects:
            yield table_of_objects(objects, source)


def _table_of_all(objects: Iterator[tuple[int, dict[str, Any]]], source: str) -> Iterator[Table]:
    """Yields one table of all numbered objects, or no table if there are none."""
    table = table_of_objects(objects, source)
    if len(table):
        yield table


def _lines_or_document(lines: Iterator[str], source: str, form: str) -> tuple[list[str], Any]:
    """Finds out whether a file has a JSON object on each line, or one document; reads a document.

    Objects that follow each other, each written over several lines, are a document, too: the list
    of them.

    Args:
        lines: All lines of the file.
        source: Name of the file in messages.
        form: What JSON of such rows looks like, for remedies.

    Returns:
        For an object on each line: the lines that were read to find out, and None. For a document:
        an empty list, and the document.

    Raises:
        DataError: The file is empty, no JSON, or has columns where rows are needed.
    """
    # The lines read so far, up to the first one that is not blank. `_begins_document` and
    # `_only_blanks_follow` add the lines that they read.
    head: list[str] = []
    for line in lines:
        head.append(line)
        if not line.isspace():
            break
    if not head or head[-1].isspace():
        raise NoRowsError(f"{source} is empty: it has no rows", remedy=form)
    require_room_for_json(head[-1], source)
    try:
        first_value = json.loads(head[-1])
    except (ValueError, RecursionError) as error:  # it may go on in the next lines
        is_document = _begins_document(head, lines, error)
    else:
        is_document = _is_document(first_value)
        looks_like_columns = not is_document and _has_columns(first_value)
        # An object such as `{"text": {...}, "label": {...}}` is a row if further lines follow it.
        if looks_like_columns and _only_blanks_follow(head, lines):
            raise _columns_not_rows(source)
    if not is_document:
        return head, None

    first_value = None  # its memory is needed for the whole document
    text = "".join([*head, *lines])
    require_room_for_json(text, source)
    try:
        return [], parse(text)
    except (ValueError, RecursionError) as error:
        has_more_values = isinstance(error, json.JSONDecodeError) and error.msg == "Extra data"
        if has_more_values and text.lstrip().startswith("{"):
            return [], _json_values(text, source, form)
        raise _not_json(error, source, form) from error


def _is_document(value: Any) -> bool:
    """Returns whether the JSON of a file's first line is a whole document, not the first row.

    A document is a list, or an object with a list of objects under `data` or `documents`, or
    spaCy's collection of examples. But the list `[text, annotations]` is a row of spaCy.
    """
    if isinstance(value, list):
        return not spacy_json.is_example(value)
    if not isinstance(value, dict):
        return False
    has_rows = any(_is_list_of_objects(value.get(name)) for name in ("data", "documents"))
    return has_rows or spacy_json.is_collection(value)


def _is_list_of_objects(value: Any) -> bool:
    """Returns whether a value is a list with nothing but objects in it."""
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _begins_document(head: list[str], lines: Iterator[str], error: Exception) -> bool:
    """Returns whether a line that is no JSON begins a document of several lines.

    Args:
        head: The lines read so far; the last one is no JSON. If the next lines are needed to tell,
            they are added: up to the first one that is not blank.
        lines: The other lines.
        error: What the JSON decoder says of the last line of `head`.
    """
    known_beginnings = ("[", '{"data"', '{"version"', '{"source"', '{"classes"')
    if head[-1].strip() == "{" or head[-1].lstrip().startswith(known_beginnings):
        return True
    breaks_off = isinstance(error, json.JSONDecodeError) and error.pos >= len(head[-1].rstrip())
    if not breaks_off or not begins_like_json_row(head[-1]):
        return False
    # The object is cut off at the line's end. If the next line begins another one, it is a broken
    # row of JSON Lines; otherwise the object goes on there.
    if _only_blanks_follow(head, lines):
        return False
    next_line = head[-1]  # `_only_blanks_follow` added it
    return not next_line.lstrip().startswith("{")


def _only_blanks_follow(head: list[str], lines: Iterator[str]) -> bool:
    """Returns whether only blank lines follow; the lines read to find out are added to `head`."""
    for line in lines:
        head.append(line)
        if not line.isspace():
            return False
    return True


def _json_values(text: str, source: str, form: str) -> list[Any]:
    """Returns the JSON values that stand one after another in a text.

    Raises:
        DataError: A value is no JSON; with file and line.
    """
    decoder = json.JSONDecoder()
    values = []
    start = 0
    text = text.strip()
    while start < len(text):
        try:
            _, end = decoder.raw_decode(text, start)
            # `parse` also refuses halves of surrogate pairs, which `raw_decode` accepts.
            values.append(parse(text[start:end]))
        except (ValueError, RecursionError) as error:
            raise _not_json(error, source, form) from error
        start = end
        while start < len(text) and text[start].isspace():
            start += 1
    return values


def _not_json(error: Exception, source: str, form: str) -> DataError:
    """Returns the error for a document that is no JSON, with the line if the decoder knows it."""
    if isinstance(error, json.JSONDecodeError):
        where = f"{source}:{error.lineno}"
    else:
        where = source
    return DataError(f"{where}: this is not JSON: {error}", remedy=form)


def _has_columns(document: Any) -> bool:
    """Returns whether an object is a table by columns, as pandas' `to_json` writes it by default.

    `{"text": {"0": "good", "1": "bad"}, "label": {"0": 1, "1": 0}}`, or with lists of one length in
    place of the inner objects. pandas' other forms that are no list of rows count, too: "split"
    (`{"columns": [...], "data": [...]}`) and "index" (`{"0": {"text": "good", "label": 1}, ...}`).
    A row with lists of words and tags is no such table.
    """
    if not isinstance(document, dict) or not document:
        return False
    is_split = {"columns", "data"} <= document.keys()
    if is_split:
        return True

    columns = list(document.values())
    if all(isinstance(column, dict) for column in columns):
        have_same_keys = all(column.keys() == columns[0].keys() for column in columns)
        has_row_numbers = all(key.isdecimal() for key in columns[0])
        is_by_index = all(key.isdecimal() for key in document)
        # A single object without numbers may be a row that has an object in its only field.
        is_single_row = len(columns) == 1 and not has_row_numbers and not is_by_index
        return have_same_keys and not is_single_row

    n_rows = len(columns[0]) if isinstance(columns[0], list) else 0
    have_one_length = all(isinstance(column, list) and len(column) == n_rows for column in columns)
    has_words = any(folded(name) in _WORD_NAMES for name in document)
    is_row = has_words or spacy_json.is_collection(document)
    return have_one_length and len(columns) > 1 and n_rows > 1 and not is_row


def _columns_not_rows(source: str) -> DataError:
    """Returns the error for a table by columns, with what writes it by rows."""
    remedy = (
        "Write it again: df.to_json(FILE, orient='records', lines=True, force_ascii=False). "
        "It is read by pandas.read_json(FILE), or by pandas.DataFrame(json.load(open(FILE)))."
    )
    return DataError(
        f"{source}: this JSON has a table by its columns, where its rows are needed", remedy=remedy
    )


def table_of_document(document: Any, source: str, options: ReadOptions) -> Table:
    """Returns the rows of a whole JSON document as columns.

    The rows are the objects in its list, or in the list under `data`. The formats of DREAM, spaCy
    and Label Studio are made rows first.

    Raises:
        DataError: The document has no list of objects, or no rows.
    """
    if _has_columns(document):
        raise _columns_not_rows(source)
    if isinstance(document, dict) and "data" in document:
        entries = document["data"]
    else:
        entries = document

    dialogue_rows = rows_of_dialogues(entries)
    if dialogue_rows:
        entries = dialogue_rows
    else:
        entries = spacy_json.examples_of(entries)  # unchanged if they are not spaCy's
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise NoTableError(f"{source}: this JSON has no list of objects", remedy=options.form)
    if not entries:
        raise DataError(f"{source} has no rows", remedy=options.form)
    if all(map(label_studio.is_task, entries)):
        with loading(source, remedy=options.form):
            entries = label_studio.rows_of(entries, source, options)
    entries = label_studio.short_rows(entries)  # of its short JSON; others are unchanged

    numbered = list(enumerate(entries, start=1))
    # The numbers are no lines of the file, so the table gets none.
    return replace(table_of_objects(numbered, source), lines=())


def _json_objects(
    numbered: Iterable[tuple[int, str]], source: str, options: ReadOptions
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields line number and object of each numbered line; blank lines are no rows.

    Raises:
        DataError: A line that is not a JSON object, with file and line; unless
            `options.on_bad_record` gets it.
    """
    for number, line in numbered:
        if line.isspace():
            continue
        try:
            yield number, _json_object(line, f"{source}:{number}", options.form)
        except DataError as error:
            if options.on_bad_record is None:
                raise
            options.on_bad_record(error)


def _json_object(line: str, where: str, form: str) -> dict[str, Any]:
    """Returns the object on a line of JSON Lines; an example of spaCy's as a row.

    Args:
        line: The text.
        where: File and line, for messages.
        form: What JSON of such rows looks like, for remedies.

    Raises:
        DataError: The line is no JSON, or no object.
    """
    try:
        value = parse(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where}: this is not JSON: {error}: {line.strip()[:80]!r}", remedy=form
        ) from error
    value = spacy_json.row_of(value)
    if not isinstance(value, dict):
        raise DataError(f"{where}: {type(value).__name__} where an object is needed", remedy=form)
    return value


def _parquet_tables(file: BinaryIO, source: str, options: ReadOptions) -> Iterator[Table]:
    """Yields the rows of a Parquet file, in chunks of `options.chunk_rows` or as one table.

    Raises:
        DataError: The file is not Parquet, is damaged, or has too many rows or too long cells.
        DeviceError: There is too little memory for the rows.
    """
    from bertctl.data.parquet_batches import ParquetBatches

    with loading(
        source, remedy="Write the file again, with columns of texts, numbers or lists of them."
    ):
        parquet = ParquetBatches(
            file, source, longest_cell=options.settings.longest_line * 1_000_000
        )
        features = class_features(parquet.schema.metadata)
        if options.chunk_rows is None:
            yield _whole_parquet_table(parquet, features, source)
            return

        first_row = 0
        options.listener.expect(parquet.num_rows)
        for batch in parquet.batches(options.chunk_rows, all_stay=False):
            yield _typed_table(batch.to_pydict(), features, source, first=first_row)
            first_row += len(batch)


def _whole_parquet_table(
    parquet: "ParquetBatches", features: Mapping[str, Any], source: str
) -> Table:
    """Returns all rows of a Parquet file as one table.

    Args:
        parquet: The open file.
        features: Features of the columns that have classes, as `class_features` returns them.
        source: Name of the file.
    """
    batches = parquet.batches(_WHOLE_BATCH, all_stay=True)
    if is_many(parquet.num_rows):
        # `joined_tables` packs each batch, which needs less memory than lists of objects.
        parts = (_typed_table(batch.to_pydict(), features, source) for batch in batches)
        return joined_tables(parts)

    columns: dict[str, list[Any]] = {name: [] for name in parquet.schema.names}
    for batch in batches:
        for name, values in batch.to_pydict().items():
            columns[name] += values
    return _typed_table(columns, features, source)


def _typed_table(
    columns: dict[str, list[Any]], features: Mapping[str, Any], source: str, *, first: int = 0
) -> Table:
    """Returns the columns of a Parquet file as a table, with names of classes for their numbers.

    Args:
        columns: Name -> cells. Those with classes are replaced in place.
        features: Features of the columns that have classes, as `class_features` returns them.
        source: Name of the file.
        first: Number of rows of the file before these.
    """
    for column in features.keys() & columns.keys():
        columns[column] = [with_class_names(value, features[column]) for value in columns[column]]
    class_names: dict[str, tuple[str, ...]] = {}
    for column, feature in features.items():
        names = names_of_classes(feature)
        if names:
            class_names[column] = names
    return Table(
        columns,
        source,
        first=first,
        is_typed=True,
        class_names=class_names,
    )
