"""JSON with questions: one object per line, a list of them, or SQuAD's articles with paragraphs with questions."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

from bertctl.data.files import json_objects, text_lines
from bertctl.data.reading import ReadOptions
from bertctl.data.table import Table, in_chunks, table_of_objects
from bertctl.data.text_files import LONGEST_DOCUMENT, Source, open_bytes, source_name
from bertctl.errors import DataError

FORMS = (
    'Questions are SQuAD\'s JSON, {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [...]}]}]}, or one '
    'object per line: {"question": "...", "context": "...", "answers": {"text": ["..."], "answer_start": [0]}}.'
)
"""What such a file can look like, for remedies."""


def document_or_tables(file: BinaryIO, source: str, options: ReadOptions) -> tuple[Any, Iterator[Table]]:
    """Returns a whole JSON document and no tables; or None, and the objects that stand one per line as tables."""
    lines = text_lines(file, source, options, longest=LONGEST_DOCUMENT)
    head, document = _opened(lines, source)
    if document is not None:
        return document, iter(())
    objects = json_objects(itertools.chain(head, lines), source, options.on_bad_record)
    return None, (table_of_objects(chunk, source) for chunk in in_chunks(objects, options.chunk_rows))


def _opened(lines: Iterator[str], source: str) -> tuple[list[str], Any]:
    """Returns the lines read so far and None where each line is an object; else nothing and the whole document."""
    head: list[str] = []
    for line in lines:
        head.append(line)
        if not line.isspace():
            break
    if not head:
        raise DataError(f"{source} is empty", remedy=FORMS)
    try:
        first = json.loads(head[-1])
        lists = [first.get(name) for name in ("data", "documents")] if isinstance(first, dict) else [first]
        is_document = any(isinstance(each, list) for each in lists)
    except (ValueError, RecursionError):
        begun = ("[", '{"data"', '{"version"', '{"source"')
        is_document = head[-1].strip() == "{" or head[-1].lstrip().startswith(begun)
    if not is_document:
        return head, None
    try:
        return [], json.loads("".join([*head, *lines]))
    except (ValueError, RecursionError) as error:
        where = f"{source}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else source
        raise DataError(f"{where}: this is not JSON: {error}", remedy=FORMS) from error


class NestedTable(Table):
    """Questions out of SQuAD's nested form, which says what the columns are called."""


def json_tables(source: Source, options: ReadOptions) -> Iterator[Table]:
    """Yields the questions of a JSON file or of stdin, one table per chunk."""
    name = source_name(source)
    with open_bytes(source) as file:
        document, tables = document_or_tables(file, name, options)
        if document is None:
            yield from tables
            return
        table = table_of_document(document, name)
        size = options.chunk_rows or len(table)
        for first in range(0, len(table), size):
            part = {column: values[first : first + size] for column, values in table.columns.items()}
            yield replace(table, columns=part, first=first)


def table_of_document(document: Any, source: str) -> Table:
    """Returns a whole JSON document as columns."""
    entries = document["data"] if isinstance(document, dict) and "data" in document else document
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{source}: this JSON has no list of articles or questions", remedy=FORMS)
    nested = any("paragraphs" in entry for entry in entries)
    flat = list(_flat_questions(entries, source)) if nested else entries
    if not flat:
        raise DataError(f"{source} has no questions", remedy=FORMS)
    names = dict.fromkeys(itertools.chain.from_iterable(flat))
    columns = {name: [entry.get(name) for entry in flat] for name in names}
    return NestedTable(columns, source) if nested else Table(columns, source)


def _flat_questions(articles: Iterable[dict[str, Any]], source: str) -> Iterator[dict[str, Any]]:
    """Yields the questions of SQuAD's articles, one dictionary each."""
    for number, article in enumerate(articles, start=1):
        place = f"{source}, article {number} ('{article.get('title', '')}')"
        for at, paragraph in enumerate(_list_of(article, "paragraphs", place), start=1):
            inner = f"{place}, paragraph {at}"
            for question in _list_of(paragraph, "qas", inner):
                flat = {
                    "id": question.get("id"),
                    "title": article.get("title"),
                    "question": question.get("question"),
                    "context": paragraph.get("context"),
                }
                if "answers" in question or "is_impossible" in question:
                    flat["answers"] = [] if question.get("is_impossible") is True else question.get("answers")
                yield flat


def _list_of(entry: Mapping[str, Any], name: str, place: str) -> list[dict[str, Any]]:
    values = entry.get(name)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise DataError(f"{place}: there is no list '{name}' of objects", remedy=FORMS)
    return values
