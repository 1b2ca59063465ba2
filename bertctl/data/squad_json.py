"""JSON with questions: one object a line, a list of them, or SQuAD's articles with paragraphs with questions."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bertctl.config.schema import DataSection
from bertctl.data.files import json_objects, table_of_objects
from bertctl.data.table import Table
from bertctl.data.text_files import Source, open_bytes, source_name, stream_lines
from bertctl.errors import DataError
from bertctl.progress import Listener

FORMS = (
    'Questions are SQuAD\'s JSON, {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [...]}]}]}, or one '
    'object a line: {"question": "...", "context": "...", "answers": {"text": ["..."], "answer_start": [0]}}.'
)
"""What such a file can look like, for remedies."""


def opened(lines: Iterator[str], source: str) -> tuple[list[str], Any]:
    """The lines read so far and None where one object stands on each; else nothing and the whole as one document."""
    head: list[str] = []
    for line in lines:
        head.append(line)
        if not line.isspace():
            break
    if not head:
        raise DataError(f"{source} is empty", remedy=FORMS)
    try:
        first = json.loads(head[-1])
        is_document = isinstance(first, list) or (isinstance(first, dict) and isinstance(first.get("data"), list))
    except (ValueError, RecursionError):
        is_document = head[-1].strip() in ("{", "[") or head[-1].lstrip().startswith(('{"data"', '{"version"', "["))
    if not is_document:
        return head, None
    try:
        return [], json.loads("".join([*head, *lines]))
    except (ValueError, RecursionError) as error:
        where = f"{source}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else source
        raise DataError(f"{where}: this is not JSON: {error}", remedy=FORMS) from error


def json_tables(
    source: Source, settings: DataSection, *, rows: int, listener: Listener
) -> Iterator[tuple[Table, bool]]:
    """Portions of a JSON file or of stdin, each with whether it comes out of SQuAD's nested form."""
    name = source_name(source)
    with open_bytes(source) as file:
        lines = iter(stream_lines(file, name, settings.encoding, listener))
        head, document = opened(lines, name)
        if document is not None:
            table, nested = table_of_document(document, name)
            for first in range(0, len(table), rows):
                part = {column: values[first : first + rows] for column, values in table.columns.items()}
                yield Table(part, name), nested
            return
        objects = json_objects(itertools.chain(head, lines), name)
        while portion := list(itertools.islice(objects, rows)):
            yield table_of_objects(portion, name), False


def table_of_document(document: Any, source: str) -> tuple[Table, bool]:
    """A whole JSON document as columns, and whether it was SQuAD's nested form."""
    entries = document["data"] if isinstance(document, dict) and "data" in document else document
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{source}: this JSON has no list of articles or questions", remedy=FORMS)
    nested = any("paragraphs" in entry for entry in entries)
    flat = list(_flat_questions(entries, source)) if nested else entries
    if not flat:
        raise DataError(f"{source} has no questions", remedy=FORMS)
    names = dict.fromkeys(itertools.chain.from_iterable(flat))
    return Table({name: [entry.get(name) for entry in flat] for name in names}, source), nested


def _flat_questions(articles: Iterable[dict[str, Any]], source: str) -> Iterator[dict[str, Any]]:
    """The questions of SQuAD's articles, one dictionary each."""
    count = 0
    for number, article in enumerate(articles, start=1):
        place = f"{source}, article {number} ('{article.get('title', '')}')"
        for at, paragraph in enumerate(_list_of(article, "paragraphs", place), start=1):
            inner = f"{place}, paragraph {at}"
            for question in _list_of(paragraph, "qas", inner):
                flat = {
                    "id": str(question.get("id", count)),
                    "title": article.get("title"),
                    "question": question.get("question"),
                    "context": paragraph.get("context"),
                }
                if "answers" in question or "is_impossible" in question:
                    flat["answers"] = [] if question.get("is_impossible") is True else question.get("answers")
                count += 1
                yield flat


def _list_of(entry: Mapping[str, Any], name: str, place: str) -> list[dict[str, Any]]:
    values = entry.get(name)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise DataError(f"{place}: there is no list '{name}' of objects", remedy=FORMS)
    return values
