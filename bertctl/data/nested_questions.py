"""Questions in SQuAD's nested JSON, as tables with a row per question.

A file has articles, an article has paragraphs, and a paragraph has a context with its questions
(`qas`). Files of MRQA and CMRC are nested alike, with other names.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from bertctl.data.json_tables import document_or_tables, table_of_document
from bertctl.data.names import first_field
from bertctl.data.question_answers import IS_IMPOSSIBLE
from bertctl.data.read_options import ReadOptions
from bertctl.data.sources import Source, source_name
from bertctl.data.table import Table, entries_of, table_of_objects
from bertctl.data.text_files import open_bytes
from bertctl.errors import DataError

FORMS = (
    'Questions are SQuAD\'s JSON, {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": '
    "[...]}]}]}, a list "
    "of its paragraphs, or one object per line: "
    '{"question": "...", "context": "...", "answers": {"text": ["..."], "answer_start": [0]}}.'
)
"""What questions look like in a file, for remedies."""
_CONTEXTS = ("context", "context_text")
"""Names of a paragraph's text in SQuAD's form, and in CMRC's first one."""


class NestedTable(Table):
    """Table of questions out of SQuAD's nested form: `question`, `context`, `answers`, ..."""


def json_tables(source: Source, options: ReadOptions) -> Iterator[Table]:
    """Yields the questions of a JSON file or of stdin, one table per chunk.

    Articles and paragraphs of SQuAD's nested form become a row per question.

    Raises:
        DataError: The file has no questions, or is not in this form.
    """
    name = source_name(source)
    with open_bytes(source) as file:
        document, tables = document_or_tables(file, name, options)
        if document is not None:
            # One article or paragraph alone, which is no table yet.
            is_single = (
                isinstance(document, dict) and "data" not in document and _is_nested(document)
            )
            if is_single:
                document = [document]
            tables = iter([table_of_document(document, name, options)])
        for table in tables:
            if _is_nested(table.columns):
                flat = _flat_table(table)
            else:
                flat = table
            if not len(flat):
                raise DataError(f"{name} has no questions", remedy=FORMS)
            yield from flat.chunks(options.chunk_rows)


def _is_nested(names: Collection[str]) -> bool:
    """Returns whether objects are articles of SQuAD (`paragraphs`), or paragraphs alone (`qas`)."""
    return "paragraphs" in names or ("qas" in names and any(name in names for name in _CONTEXTS))


def _flat_table(table: Table) -> Table:
    """Returns a table with a row per question, made of articles or paragraphs of SQuAD.

    Each question has the line of its article, if the file has an article per line.
    """
    rows: list[dict[str, Any]] = []
    lines: list[int] = []  # of each row, if the file has lines
    for index, entry in enumerate(entries_of(table)):
        if entry.keys() == {"header"}:  # the first line of MRQA's files
            continue
        if "paragraphs" not in entry:
            where = f"{table.source}, paragraph {index + 1}"
            questions = list(_flat_paragraph(entry, entry.get("title"), where))
        else:
            where = f"{table.source}, article {index + 1} ('{entry.get('title', '')}')"
            questions = list(_flat_article(entry, where))
        rows += questions
        if table.lines:
            lines += [table.lines[index]] * len(questions)
    if not table.lines:
        numbered = list(enumerate(rows))
        return NestedTable(table_of_objects(numbered, table.source).columns, table.source)
    flat = table_of_objects(list(zip(lines, rows, strict=True)), table.source)
    return NestedTable(flat.columns, flat.source, flat.lines)


def _flat_article(article: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Yields the questions of an article of SQuAD, one dictionary each."""
    for number, paragraph in enumerate(_list_of(article, "paragraphs", where), start=1):
        yield from _flat_paragraph(paragraph, article.get("title"), f"{where}, paragraph {number}")


def _flat_paragraph(
    paragraph: Mapping[str, Any], title: Any, where: str
) -> Iterator[dict[str, Any]]:
    """Yields the questions of a paragraph of SQuAD, one dictionary each.

    CMRC and MRQA have other names of the same fields (`query_text`, `qid`).
    """
    for question in _list_of(paragraph, "qas", where):
        flat = {
            "id": first_field(question, ("id", "qid", "query_id")),
            "title": title,
            "question": first_field(question, ("question", "query_text")),
            "context": first_field(paragraph, _CONTEXTS),
        }
        if "detected_answers" in question:
            flat["answers"] = _mrqa_answers(question["detected_answers"])
        elif "answers" in question or "is_impossible" in question:
            flat["answers"] = question.get("answers") or []
        if "is_impossible" in question:
            flat[IS_IMPOSSIBLE] = question["is_impossible"]
        yield flat


def _mrqa_answers(answers: Any) -> Any:
    """Returns MRQA's answers in SQuAD's form: of an answer's occurrences, only the first one.

    `[{"text": "Oslo", "char_spans": [[17, 20], [90, 93]]}]` -> `[{"text": "Oslo", "answer_start":
    17}]`. Anything else is returned as it is, and refused where answers are read.
    """
    try:
        return [
            {"text": answer["text"], "answer_start": answer["char_spans"][0][0]}
            for answer in answers
        ]
    except (KeyError, TypeError, IndexError):
        return answers


def _list_of(entry: Mapping[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    """Returns a field that must be a list of objects.

    Raises:
        DataError: It is missing, or something else.
    """
    values = entry.get(name)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise DataError(f"{where}: no list '{name}' of objects", remedy=FORMS)
    return values
