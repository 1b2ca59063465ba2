"""Files of extractive question answering: SQuAD's JSON (1.1, 2.0), and flat rows as JSON, JSON Lines, Parquet, CSV.

Canonical columns: `question`, `context`, `label` as {"text": [...], "answer_start": [...]} (empty lists: unanswerable;
development sets have several answers), `title` where the file has one. `answer_start` counts characters; -1 stands
where the file gives no offset and the text does not occur in the context.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertctl.config.schema import DataSection
from bertctl.data.columns import absent_column, ids_of, shown_columns
from bertctl.data.files import json_objects, kind_of, read_table, table_of_objects
from bertctl.data.names import folded
from bertctl.data.reading import Reading
from bertctl.data.rows import Rows
from bertctl.data.squad_json import FORMS, json_tables, opened, table_of_document
from bertctl.data.stream import input_kind, stream_tables
from bertctl.data.table import Table
from bertctl.data.text_files import Source, read_text, require_file, source_name, text_lines
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener

_USUAL = {
    "question": ("--text-column", ("question", "query")),
    "context": ("--pair-column", ("context", "passage", "paragraph", "document", "text", "article")),
    "answers": ("--label-column", ("answers", "answer", "label", "gold")),
}
"""Option that names a column, and its usual names, the likeliest first."""
_CANONICAL = ("question", "context", "label")
_SQUAD = DataSection(text_column="question", pair_column="context", label_column="answers")
"""The names that `squad_json` gives to the nested form."""
_ANSWERS = (
    'Answers are written {"text": ["..."], "answer_start": [0]} or [{"text": "...", "answer_start": 0}]; '
    "[] for a question without one."
)


@dataclass(frozen=True)
class QuestionReader:
    """Questions about texts."""

    columns: tuple[str, ...] = _CANONICAL
    stratify: bool = False
    together: str | None = "context"

    def read(
        self, path: Path, settings: DataSection, *, split: str, label_needed: bool, listener: Listener = SILENT
    ) -> Reading:
        """See `Reader.read`."""
        require_file(path)
        kind = kind_of(path)
        _refuse_lines(kind, str(path))
        if kind != "jsonl":
            table = read_table(path, settings, listener)
            return self.from_table(table, settings, split=split, label_needed=label_needed, listener=listener)
        lines = iter(text_lines(read_text(path, settings.encoding, listener)))
        head, document = opened(lines, str(path))
        if document is None:
            table = table_of_objects(list(json_objects(itertools.chain(head, lines), str(path))), str(path))
        else:
            table, nested = table_of_document(document, str(path))
            if nested:
                reading = self.from_table(table, _SQUAD, split=split, label_needed=label_needed, listener=listener)
                return replace(reading, settings=settings)  # its names are the format's: the next file may have others
        return self.from_table(table, settings, split=split, label_needed=label_needed, listener=listener)

    def stream(
        self,
        source: Source,
        settings: DataSection,
        *,
        kind: str | None = None,
        chunk_rows: int = 2048,
        listener: Listener = SILENT,
    ) -> Iterator[Rows]:
        """See `Reader.stream`. Stdin is JSON unless it is said to be something else; answers are left out."""
        name = source_name(source)
        read_as = "jsonl" if source == "-" and kind is None else input_kind(source, kind)
        _refuse_lines(read_as, name)
        tables = (
            json_tables(source, settings, rows=chunk_rows, listener=listener)
            if read_as == "jsonl"
            else ((t, False) for t in stream_tables(source, settings, kind=read_as, rows=chunk_rows, listener=listener))
        )
        names: QuestionColumns | None = None
        count = 0
        for table, nested in tables:
            if names is None:
                chosen = _SQUAD if nested else settings
                names = replace(find_columns(table, chosen, label_needed=False, listener=listener), label=None)
            rows = rows_of_questions(table, names, split="predict", first_id=count)
            count += len(rows)
            yield rows
        if not count:
            raise DataError(f"{name} has no questions", remedy=FORMS)

    def from_table(
        self, table: Table, settings: DataSection, *, split: str, label_needed: bool, listener: Listener = SILENT
    ) -> Reading:
        """See `Reader.from_table`."""
        if not len(table):
            raise DataError(f"{table.source} has no questions", remedy=FORMS)
        names = find_columns(table, settings, label_needed=label_needed, listener=listener)
        if names.label is not None and not label_needed and all(a is None for a in table.columns[names.label]):
            names = replace(names, label=None)
        rows = rows_of_questions(table, names, split=split)
        blank = sum(not question.strip() for question in rows.columns["question"])
        if blank:
            listener.say(f"{table.source}: {blank} of {len(rows)} questions are blank; they stay in as examples")
        return Reading(rows, names.names(), names.as_settings(settings, header=table.header))


@dataclass(frozen=True)
class QuestionColumns:
    """The file's names of the canonical columns.

    Attributes:
        question: what is asked.
        context: the text with the answer.
        label: the answers, or None.
        id: the column with ids, or None.
    """

    question: str
    context: str
    label: str | None
    id: str | None

    def names(self) -> dict[str, str]:
        """Canonical name -> name in the file."""
        found = {"question": self.question, "context": self.context, "label": self.label}
        return {canonical: name for canonical, name in found.items() if name is not None}

    def as_settings(self, settings: DataSection, *, header: bool) -> DataSection:
        """The same settings with these columns written in, so that the next file is read as the first was."""
        update: Mapping[str, Any] = {
            "text_column": self.question,
            "pair_column": self.context,
            "label_column": self.label or settings.label_column,
            "header": settings.header if header else False,
        }
        return settings.model_copy(update=dict(update))


def find_columns(table: Table, settings: DataSection, *, label_needed: bool, listener: Listener) -> QuestionColumns:
    """Which column is which, as the person said or by the usual names; what was guessed is told.

    Args:
        table: the file as it was read.
        settings: `text_column` is the question, `pair_column` the context, `label_column` the answers.
        label_needed: whether to refuse a table without answers.
        listener: told of guesses.

    Raises:
        DataError: a column that was named is not there (those there are shown).
        UsageError: a column can't be guessed, or one was named twice.
    """
    if settings.text_column not in table.columns and {"question", "context"} <= set(table.columns):
        # A prediction file, or another file than the one the settings were made for: it has the canonical names.
        settings = settings.model_copy(update={"text_column": None, "pair_column": None, "label_column": None})
    roles = {"question": settings.text_column, "context": settings.pair_column, "answers": settings.label_column}
    for role, name in {**roles, "id": settings.id_column}.items():
        if name is not None and name not in table.columns and (role != "answers" or label_needed):
            raise absent_column(name, table)
    taken = [name for name in (*roles.values(), settings.id_column) if name is not None]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice:
        raise UsageError(f"the column '{twice}' is named for two things", remedy=shown_columns(table))
    free = {folded(name): name for name in table.columns if name not in taken}
    guessed: dict[str, str] = {}
    for role, (option, usual) in _USUAL.items():
        found = next((free.pop(key) for key in usual if key in free), None)
        if roles[role] is None and found is not None:
            roles[role] = guessed[role] = found
        elif roles[role] is None and (role != "answers" or label_needed):
            raise UsageError(
                f"{table.source}: no column is known as the {role}",
                remedy=f"Name it: {option} NAME. {shown_columns(table)}",
            )
    if any(role != name for role, name in guessed.items()):
        said = ", ".join(f"{role} from '{name}'" for role, name in guessed.items())
        listener.say(f"{table.source}: {said} (guessed)")
    label = roles["answers"] if roles["answers"] in table.columns else None
    identity = settings.id_column or _usable_ids(table, free.get("id"), listener)
    return QuestionColumns(str(roles["question"]), str(roles["context"]), label, identity)


def _usable_ids(table: Table, name: str | None, listener: Listener) -> str | None:
    """A column called `id` that nobody named, where each of its values is there and stands once."""
    if name is None:
        return None
    values = [str(value) for value in table.columns[name] if value is not None and value != ""]
    if len(set(values)) == len(table):
        return name
    listener.warn(f"{table.source}: ids in '{name}' are blank or stand twice; the questions are numbered instead")
    return None


def rows_of_questions(table: Table, names: QuestionColumns, *, split: str, first_id: int = 0) -> Rows:
    """A file's columns under their canonical names.

    Args:
        table: the file as it was read.
        names: which column is which.
        split: what the rows are to be called.
        first_id: number of the first row, where there is no id column.

    Raises:
        DataError: a question that is no text or has no context, answers that can't be read, an id that stands twice,
            with file, line and id.
    """
    for name in (*names.names().values(), *([names.id] if names.id else [])):
        if name not in table.columns:
            raise absent_column(name, table)
    ids = ids_of(table, names.id) if names.id else [str(i) for i in range(first_id, first_id + len(table))]
    found: dict[str, Sequence[Any]] = {"question": [], "context": []}
    for canonical, name in (("question", names.question), ("context", names.context)):
        found[canonical] = [_text(table, i, value, canonical, ids) for i, value in enumerate(table.columns[name])]
    if names.label is not None:
        nothing: Sequence[Any] = [None] * len(table)
        impossible = table.columns.get("is_impossible", nothing)
        starts = table.columns.get("answer_start", nothing)
        found["label"] = [
            _answers(None if no is True else _with_start(answers, start), found["context"][i], no is True)
            or _refuse_answers(answers, table, i, ids)
            for i, (answers, start, no) in enumerate(zip(table.columns[names.label], starts, impossible, strict=True))
        ]
    used = (*names.names().values(), names.id)
    for name, values in table.columns.items():
        if name not in used:
            found[name if name not in _CANONICAL else f"file_{name}"] = values
    return Rows(split, found, ids, table.source, table.lines)


def one_question(question: str, context: str, *, source: str = "the question") -> Rows:
    """One question as a split of one row, with the id 0.

    Raises:
        DataError: the context is blank.
    """
    table = Table({"question": [question], "context": [context]}, source)
    return rows_of_questions(table, QuestionColumns("question", "context", None, None), split="predict")


def _refuse_lines(kind: str, source: str) -> None:
    if kind == "lines":
        raise UsageError(
            f"{source}: lines of text are no questions with a context",
            remedy=f'{FORMS} One question alone: --question "..." --context FILE.',
        )


def _text(table: Table, index: int, value: Any, role: str, ids: Sequence[str]) -> str:
    where = f"{table.where(index)} (id '{ids[index]}')"
    if value is None or (role == "context" and isinstance(value, str) and not value.strip()):
        what = "the question has no context" if role == "context" else "there is no question"
        raise DataError(f"{where}: {what}", remedy="Fill it in, or take the question out. " + shown_columns(table))
    if not isinstance(value, str):
        raise DataError(
            f"{where}: the {role} is {type(value).__name__} where a text is needed: {value!r:.80}",
            remedy=f"Name the columns: --text-column QUESTION --pair-column CONTEXT. {shown_columns(table)}",
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{where}: the {role} holds half a surrogate pair, which is no character",
            remedy="Write the file again with whole characters.",
        ) from None
    return value


def _with_start(answers: Any, start: Any) -> Any:
    """An answer whose offset stands in a column of its own."""
    if start in (None, "") or not isinstance(answers, str):
        return answers
    return {"text": answers, "answer_start": start}


def _answers(value: Any, context: str, impossible: bool) -> dict[str, list[Any]] | None:
    """Answers in the canonical form; None where they can't be read."""
    if impossible:
        return {"text": [], "answer_start": []}
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
        if text.strip():  # a blank answer is none
            found["text"].append(text)
            found["answer_start"].append(context.find(text) if start is None else start)
    return found


def _as_list(value: Any) -> list[Any] | None:
    if value is None:
        return None
    return list(value) if isinstance(value, list | tuple) else [value]


def _refuse_answers(value: Any, table: Table, index: int, ids: Sequence[str]) -> dict[str, list[Any]]:
    what = "there are no answers" if value is None else f"these answers can't be read: {value!r:.120}"
    raise DataError(f"{table.where(index)} (id '{ids[index]}'): {what}", remedy=_ANSWERS)
