"""JSON as tables: a document with a list of rows, or JSON Lines with a row on each line."""

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from bertctl.data.annotations import label_studio, spacy_json
from bertctl.data.choice_cells import rows_of_dialogues
from bertctl.data.decoding import LONGEST_DOCUMENT, NoRowsError
from bertctl.data.file_contents import begins_like_json_row
from bertctl.data.file_lines import text_lines, weight_of_line
from bertctl.data.names import folded
from bertctl.data.read_options import ReadOptions
from bertctl.data.table import Table, in_chunks, table_of_objects
from bertctl.documents import loading, parse, require_room_for_json
from bertctl.errors import DataError

_WORD_NAMES = ("words", "tokens", "token", "form", "forms")  # of a row of words with their tags


class NoTableError(DataError):
    """JSON that is no list of objects.

    It may be a format of annotations, which another reader knows.
    """


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
    if options.reads_whole_file:
        return None, _table_of_all(_json_objects(numbered, source, options), source)
    return None, _tables_of_objects(numbered, source, options)


def _tables_of_objects(
    numbered: Iterable[tuple[int, str]], source: str, options: ReadOptions
) -> Iterator[Table]:
    """Yields the objects of JSON Lines as tables, one per chunk."""
    for lines in in_chunks(numbered, options.chunk_rows, weight=weight_of_line):
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
    """Returns the JSON values that follow each other in a text.

    Args:
        text: The text of a whole file.
        source: Name of the file in messages.
        form: What JSON of such rows looks like, for remedies.

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

    Args:
        document: The parsed document.
        source: Name of the file in messages.
        options: How the file is read.

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

    Args:
        numbered: Number and text of each line.
        source: Name of the file in messages.
        options: How the file is read.

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
