"""JSON with questions: one object per line, a list of them, or SQuAD's articles with paragraphs with questions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bertctl.data.files import document_or_tables, table_of_document
from bertctl.data.reading import ReadOptions
from bertctl.data.table import Table, table_of_objects
from bertctl.data.text_files import Source, open_bytes, source_name
from bertctl.errors import DataError

FORMS = (
    'Questions are SQuAD\'s JSON, {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [...]}]}]}, or one '
    'object per line: {"question": "...", "context": "...", "answers": {"text": ["..."], "answer_start": [0]}}.'
)
"""What such a file can look like, for remedies."""


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
        table = table_of_document(document, name, options)
        if "paragraphs" in table.columns:
            entries = document["data"] if isinstance(document, dict) else document
            flat = list(enumerate(_flat_questions(entries, name), start=1))
            if not flat:
                raise DataError(f"{name} has no questions", remedy=FORMS)
            table = NestedTable(table_of_objects(flat, name).columns, name)
        yield from table.chunks(options.chunk_rows)


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
