"""Files of extractive question answering: SQuAD's JSON (1.1, 2.0), and flat rows as JSON, JSON Lines, Parquet, CSV.

Canonical columns: `question`, `context`, `label` as {"text": [...], "answer_start": [...]} (empty lists: unanswerable;
development sets have several answers), `title` where the file has one. `answer_start` counts characters; -1 stands
where the file gives no offset and the text does not occur in the context.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bertctl.config.recipe_sections import DataSection
from bertctl.data.column_contents import content_of, written_list
from bertctl.data.columns import FileColumns, columns_named, distinct_ids, ids_of, other_columns, shown_columns
from bertctl.data.files import document_or_tables, input_kind, read_tables, table_of_document
from bertctl.data.names import folded
from bertctl.data.reading import Reader, Reading, ReadOptions
from bertctl.data.rows import Rows
from bertctl.data.table import Table, table_of_objects
from bertctl.data.text_files import Source, open_bytes, source_name
from bertctl.data.word_splitting import cuts_word
from bertctl.errors import DataError, UsageError
from bertctl.words import count

_USUAL = {
    "question": ("--text-column", ("question", "query")),
    "context": ("--pair-column", ("context", "passage", "paragraph", "document", "text", "article")),
    "answers": ("--label-column", ("answers", "answer", "label", "gold")),
}
"""Option that names a column, and its usual names, the likeliest first."""
_CANONICAL = ("question", "context", "label")
_SQUAD = DataSection(text_column="question", pair_column="context", label_column="answers")
"""The names that `_flat_questions` gives to the nested form."""
_FORMS = (
    'Questions are SQuAD\'s JSON, {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [...]}]}]}, or one '
    'object per line: {"question": "...", "context": "...", "answers": {"text": ["..."], "answer_start": [0]}}.'
)
_ANSWERS = (
    'Answers are written {"text": ["..."], "answer_start": [0]} or [{"text": "...", "answer_start": 0}]; '
    "[] for a question without one."
)


@dataclass(frozen=True)
class QuestionReader(Reader):
    """Makes rows of questions about texts."""

    columns: tuple[str, ...] = _CANONICAL
    no_label: tuple[Any, ...] = (None,)
    noun: str = "questions"
    form: str = _FORMS
    together: tuple[str, ...] = ("title", "context")

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin, which is JSON unless it is said to be something else."""
        kind = "jsonl" if source == "-" and options.kind is None else input_kind(source, options.kind)
        if kind == "lines":
            what = f"{source_name(source)}: lines of text are no questions with a context"
            raise UsageError(what, remedy=f'{_FORMS} One question alone: --question "..." --context FILE.')
        tables = json_tables(source, options) if kind == "jsonl" else read_tables(source, kind, options)
        return self.table_readings(tables, options)

    def guess(self, path: Path, options: ReadOptions) -> Reading | None:
        """Returns the first questions of a file whose answers are found in their texts, and are no classes."""
        reading = super().guess(path, options)
        answers = reading.rows.columns["label"] if reading else ()
        places = [place for answer in answers for place in answer["answer_start"]]
        found = 2 * sum(place >= 0 for place in places) >= len(places)
        is_class = content_of([text for answer in answers for text in answer["text"]]) == "class"
        return reading if found and not (is_class and path.suffix in (".csv", ".tsv")) else None

    def columns_of(self, table: Table, options: ReadOptions) -> "QuestionColumns":
        """Returns which column of a file is which."""
        return find_columns(table, _SQUAD if isinstance(table, NestedTable) else options.settings, options)

    def rows_of(self, table: Table, columns: "QuestionColumns", options: ReadOptions, *, first_id: int) -> Rows:
        """Returns a file's columns under their canonical names."""
        return rows_of_questions(table, columns, options, first_id=first_id)


@dataclass(frozen=True)
class QuestionColumns(FileColumns):
    """The file's names of the canonical columns.

    Attributes:
        question: what is asked.
        context: the text with the answer.
        label: the answers, or None.
    """

    settings_of: ClassVar[Mapping[str, str]] = {
        "question": "text_column",
        "context": "pair_column",
        "label": "label_column",
    }

    question: str
    context: str
    label: str | None = None


def find_columns(table: Table, settings: DataSection, options: ReadOptions) -> QuestionColumns:
    """Finds which column is which, as the person said or by the usual names.

    Args:
        table: the file as it was read.
        settings: `text_column` is the question, `pair_column` the context, `label_column` the answers.
        options: whether to refuse a table without answers, and who is told of guesses.

    Raises:
        DataError: a column that was named is not there (those there are shown).
        UsageError: a column can't be guessed, or one was named twice.
    """
    if settings.text_column not in table.columns and {"question", "context"} <= set(table.columns):
        # A prediction file, or another file than the one the settings were made for: it has the canonical names.
        settings = settings.model_copy(update={"text_column": None, "pair_column": None, "label_column": None})
    roles = {"question": settings.text_column, "context": settings.pair_column, "answers": settings.label_column}
    named = {**roles, "id": settings.id_column}
    label_needed = options.label_needed
    taken = columns_named(named, table, optional="" if label_needed else "answers")
    free = {folded(name): name for name in table.columns if name not in taken}
    for role, (option, usual) in _USUAL.items():
        found = next((free.pop(key) for key in usual if key in free), None)
        if roles[role] is None and found is not None:
            roles[role] = found
        elif roles[role] is None and (role != "answers" or label_needed):
            what = f"{table.source}: no column is known as the {role}"
            raise UsageError(what, remedy=f"Name it: {option} NAME. {shown_columns(table)}")
    label = roles["answers"] if roles["answers"] in table.columns else None
    identity = settings.id_column or _usable_ids(table, free.get("id"), options)
    return QuestionColumns(identity, str(roles["question"]), str(roles["context"]), label)


def _usable_ids(table: Table, name: str | None, options: ReadOptions) -> str | None:
    """Returns a column called `id` that nobody named; where rows are labelled, only if each value is there once."""
    values = [str(value) for value in table.columns[name] if not _is_blank(value)] if name is not None else []
    if not values or len(set(values)) == len(table) or not options.keep_labels:
        return name if values else None
    told = f"{table.source}: ids in '{name}' are blank or stand twice; the questions are numbered instead"
    options.listener.warn(told)
    return None


def _is_blank(value: Any) -> bool:
    return value is None or value == ""


def require_distinct_ids(rows: Rows) -> None:
    """Refuses questions of which some have the same id, or have none where others do; numbers stand for no ids at all.

    Raises:
        DataError: with both rows.
    """
    ids = rows.columns.get("id", rows.ids)
    if not all(map(_is_blank, ids)):
        remedy = "Give each question an id of its own, or take --format jsonl, which has a line per row."
        distinct_ids(ids, rows.where, remedy=remedy, why=", and these answers are written by their ids")


def rows_of_questions(table: Table, names: QuestionColumns, options: ReadOptions, *, first_id: int = 0) -> Rows:
    """Returns a file's columns under their canonical names.

    Args:
        table: the file as it was read.
        names: which column is which.
        options: where labels are kept, an id that is blank or stands twice is refused; else a blank one becomes the
            row's number, beside the column as it is.
        first_id: number of the first row, where there is no id column.

    Raises:
        DataError: a question that is no text or has no context, answers that can't be read, an id that stands twice,
            with file, line and id.
    """
    names.require(table, optional=() if options.keep_labels or names.id is None else (names.id,))
    ids = ids_of(table, names.id if options.keep_labels else None, first_id=first_id)
    given = table.columns.get(names.id, ()) if names.id is not None and not options.keep_labels else ()
    complete = not any(map(_is_blank, given))
    if given:
        ids = [number if _is_blank(value) else str(value) for number, value in zip(ids, given, strict=True)]
    found: dict[str, Sequence[Any]] = {
        canonical: [_text(table, i, value, canonical, ids) for i, value in enumerate(table.columns[name])]
        for canonical, name in (("question", names.question), ("context", names.context))
    }
    if names.label is not None:
        nothing: Sequence[Any] = [None] * len(table)
        impossible = table.columns.get("is_impossible", nothing)
        starts = table.columns.get("answer_start", nothing)
        several: list[str] = []
        labels: list[dict[str, list[Any]]] = []
        for i, (answers, start, no) in enumerate(zip(table.columns[names.label], starts, impossible, strict=True)):
            blank = "answer_start" in table.columns and _is_blank(answers) and _is_blank(start)
            none = no is True or str(no).lower() in ("true", "1") or blank
            label = _answers(None if none else _with_start(answers, start), found["context"][i], none, several)
            labels.append(label or _refuse_answers(answers, table, i, ids))
        found["label"] = labels
        if several:
            options.listener.warn(
                f"{table.source}: {count(len(several), 'answer')} without an offset stand at several places of their "
                f"contexts, such as {several[0]!r}: the first one is taken, of whole words where there are any"
            )
    found |= other_columns(table, (*names.used, names.id if complete else None), _CANONICAL)
    return Rows(options.split, found, ids, table.source, table.lines)


def questions_about(questions: Sequence[str], context: str, *, source: str = "the question") -> Rows:
    """Returns questions about one text as a split, numbered from 0.

    Raises:
        DataError: the context is blank.
    """
    table = Table({"question": questions, "context": [context] * len(questions)}, source)
    return rows_of_questions(table, QuestionColumns(None, "question", "context"), ReadOptions(DataSection(), "predict"))


def _text(table: Table, index: int, value: Any, role: str, ids: Sequence[str]) -> str:
    where = f"{table.where(index)} (id '{ids[index]}')"
    if value is None or (role == "context" and isinstance(value, str) and not value.strip()):
        what = "the question has no context" if role == "context" else "there is no question"
        raise DataError(f"{where}: {what}", remedy="Fill it in, or take the question out. " + shown_columns(table))
    if not isinstance(value, str):
        what = f"{where}: the {role} is {type(value).__name__} where a text is needed: {value!r:.80}"
        remedy = f"Name the columns: --text-column QUESTION --pair-column CONTEXT. {shown_columns(table)}"
        raise DataError(what, remedy=remedy)
    return value


def _with_start(answers: Any, start: Any) -> Any:
    """Returns an answer whose offset stands in a column of its own."""
    if start in (None, "") or not isinstance(answers, str):
        return answers
    return {"text": answers, "answer_start": start}


def _place(text: str, context: str, several: list[str]) -> int:
    """Returns where an answer stands that has no offset, whole words first; -1 if nowhere.

    Args:
        text: the answer.
        context: where it is looked for.
        several: gets the answer where it stands at several places.
    """
    every = [match.start() for match in re.finditer(re.escape(text), context)]
    whole_words = [start for start in every if not cuts_word(context, start, start + len(text))]
    for places in (whole_words, every):
        if places:
            several += [text] * (len(places) > 1)
            return places[0]
    return -1


def _answers(value: Any, context: str, impossible: bool, several: list[str]) -> dict[str, list[Any]] | None:
    """Returns answers in the canonical form; None where they can't be read, or one is blank."""
    if impossible:
        return {"text": [], "answer_start": []}
    if isinstance(value, str) and value not in context:
        value = written_list(value)  # a CSV's cell
    if isinstance(value, str):
        value = [value]
    elif isinstance(value, Mapping):
        texts, starts = (_as_list(value.get(name)) for name in ("text", "answer_start"))
        if texts is None or (starts is not None and len(starts) != len(texts)):
            return None
        value = [{"text": t, "answer_start": s} for t, s in zip(texts, starts or [None] * len(texts), strict=True)]
    if not isinstance(value, list | tuple):
        return None
    found: dict[str, list[Any]] = {"text": [], "answer_start": []}
    for answer in value:
        entry = {"text": answer} if isinstance(answer, str) else answer
        if not isinstance(entry, Mapping) or not isinstance(entry.get("text"), str):
            return None
        text, start = entry["text"], entry.get("answer_start")
        if (isinstance(start, float) and start.is_integer()) or (isinstance(start, str) and start.strip().isdecimal()):
            start = int(start)
        if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
            return None
        if not text.strip():
            return None
        found["text"].append(text)
        found["answer_start"].append(_place(text, context, several) if start is None else start)
    return found


def _as_list(value: Any) -> list[Any] | None:
    if value is None:
        return None
    return list(value) if isinstance(value, list | tuple) else [value]


def _refuse_answers(value: Any, table: Table, index: int, ids: Sequence[str]) -> dict[str, list[Any]]:
    what, remedy = "there are no answers" if value is None else f"these answers can't be read: {value!r:.120}", _ANSWERS
    texts = value.get("text") if isinstance(value, Mapping) else value
    texts = [each.get("text") if isinstance(each, Mapping) else each for each in _as_list(texts) or ()]
    if any(isinstance(text, str) and not text.strip() for text in texts):
        what = f"an answer is blank: {value!r:.120}"
        remedy = "Has the question no answer? Then write [], or true in a column `is_impossible`."
    raise DataError(f"{table.where(index)} (id '{ids[index]}'): {what}", remedy=remedy)


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
                raise DataError(f"{name} has no questions", remedy=_FORMS)
            table = NestedTable(table_of_objects(flat, name).columns, name)
        yield from table.chunks(options.chunk_rows)


def _flat_questions(articles: Iterable[dict[str, Any]], source: str) -> Iterator[dict[str, Any]]:
    """Yields the questions of SQuAD's articles, one dictionary each."""
    for number, article in enumerate(articles, start=1):
        place = f"{source}, article {number} ('{article.get('title', '')}')"
        for at, paragraph in enumerate(_list_of(article, "paragraphs", place), start=1):
            for question in _list_of(paragraph, "qas", f"{place}, paragraph {at}"):
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
        raise DataError(f"{place}: there is no list '{name}' of objects", remedy=_FORMS)
    return values
