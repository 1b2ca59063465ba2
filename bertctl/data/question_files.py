"""Files of extractive question answering.

They are SQuAD's JSON (1.1, 2.0), and flat rows as JSON, JSON Lines, Parquet, CSV.

Canonical columns: `question`, `context`, `label` as {"text": [...], "answer_start": [...]} (empty
lists: unanswerable; development sets have several answers), `title` where the file has one.
`answer_start` counts characters; -1 stands where the file gives no offset and the text does not
occur in the context.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from bertctl.config.recipe_sections import DataSection
from bertctl.data.column_contents import content_of
from bertctl.data.columns import (
    FileColumns,
    columns_named,
    distinct_ids,
    ids_of,
    other_columns,
    shown_columns,
)
from bertctl.data.files import input_kind, read_tables
from bertctl.data.names import folded
from bertctl.data.nested_questions import FORMS, NestedTable, json_tables
from bertctl.data.question_answers import IS_IMPOSSIBLE, labels_of_answers
from bertctl.data.read_options import Reading, ReadOptions
from bertctl.data.reading import Reader
from bertctl.data.rows import Rows, is_empty_cell
from bertctl.data.sources import MemoryFile, Source, source_name
from bertctl.data.table import Table
from bertctl.errors import DataError, UsageError
from bertctl.words import count

_USUAL = {
    "question": ("`data.text_column=`", ("question", "query")),
    "context": (
        "`data.pair_column=`",
        ("context", "passage", "paragraph", "document", "text", "article"),
    ),
    "answers": ("`data.label_column=`", ("answers", "answer", "answer_text", "label", "gold")),
}
"""Option that names a column, and its usual names, the likeliest first."""
_CANONICAL = ("question", "context", "label")
_SQUAD = DataSection(text_column="question", pair_column="context", label_column="answers")
"""Names of the columns of a `NestedTable`."""
_AS_SQUAD = "Write its answers as SQuAD has them, one object per line. "
_OTHER_FORMATS: tuple[tuple[frozenset[str], str, str], ...] = (
    (
        frozenset({"document_plaintext", "annotations"}),
        "TyDi QA",
        "Its offsets count bytes of UTF-8; TyDi QA-GoldP is in SQuAD's form and can be read. ",
    ),
    (frozenset({"question_text", "annotations"}), "Natural Questions", _AS_SQUAD),
    (
        frozenset({"story", "questions"}),
        "CoQA",
        f"{_AS_SQUAD}Each question needs the ones before it in its text. ",
    ),
    (
        frozenset({"passage", "answers_spans"}),
        "DROP",
        f"{_AS_SQUAD}Numbers and dates are not spans of the text. ",
    ),
    (
        frozenset({"passage", "qa_pairs"}),
        "DROP",
        f"{_AS_SQUAD}Numbers and dates are not spans of the text. ",
    ),
    (
        frozenset({"answer", "entitypages"}),
        "TriviaQA",
        f"{_AS_SQUAD}MRQA's version of it can be read. ",
    ),
    (
        frozenset({"supporting_facts", "context"}),
        "HotpotQA",
        f"{_AS_SQUAD}MRQA's version of it can be read. ",
    ),
)
"""Columns of formats that can't be read, their names, and what to do."""


@dataclass(frozen=True)
class QuestionReader(Reader):
    """Makes rows of questions about texts."""

    columns: tuple[str, ...] = _CANONICAL
    no_label: tuple[Any, ...] = (None,)
    nouns: tuple[tuple[str, str], ...] = ((_CANONICAL[0], "questions"),)
    finds_ids: bool = True
    form: str = FORMS
    together: tuple[str, ...] = ("title", "context")

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin.

        Stdin is JSON unless `options.kind` names another kind.
        """
        kind = input_kind(source, options)
        is_unnamed_stdin = source == "-" and options.kind is None
        if is_unnamed_stdin and kind == "lines":  # what stdin is if its first bytes say nothing
            kind = "jsonl"
        if kind == "lines":
            message = f"{source_name(source)}: lines of text are not questions with a context"
            raise UsageError(
                message, remedy=f'{FORMS} One question alone: `question="..." context=FILE`.'
            )
        if kind == "jsonl":
            tables = json_tables(source, options)
        else:
            tables = read_tables(source, kind, options)
        return self.table_readings(tables, options)

    def guess(self, path: Path | MemoryFile, options: ReadOptions) -> Reading | None:
        """Returns the first questions of a file whose answers occur in their contexts.

        The result is None for other files: fewer than half of the answers occur there, or the
        answers of a CSV or TSV file are classes such as yes and no, which may occur by chance.
        """
        reading = super().guess(path, options)
        if not reading:
            return None

        answers = reading.rows.columns["label"]
        starts = list(chain.from_iterable(answer["answer_start"] for answer in answers))
        n_found = sum(start >= 0 for start in starts)  # -1: not in the context
        if 2 * n_found < len(starts):
            return None

        texts = list(chain.from_iterable(answer["text"] for answer in answers))
        are_classes = content_of(texts) == "class"
        if are_classes and path.suffix in (".csv", ".tsv"):
            return None
        return reading

    def columns_of(self, table: Table, options: ReadOptions) -> "QuestionColumns":
        """Returns which column of a file is which."""
        # A table that was made of SQuAD's nested JSON has columns of fixed names, so column names
        # in the recipe's settings don't apply to it.
        if isinstance(table, NestedTable):
            return find_columns(table, _SQUAD, options)
        return find_columns(table, options.settings, options)

    def rows_of(
        self, table: Table, columns: "QuestionColumns", options: ReadOptions, *, first_id: int
    ) -> Rows:
        """Returns the rows of a file, with the columns `question`, `context` and `label`."""
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
    """Finds which column is which, as the settings say or by the usual names.

    Args:
        table: the file as it was read.
        settings: `text_column` is the question, `pair_column` the context, `label_column` the
            answers.
        options: whether to refuse a table without answers, and who is warned of unusable ids.

    Raises:
        DataError: a column that was named is not there (those there are shown).
        UsageError: a column can't be guessed, or one was named twice.
    """
    _refuse_other_format(table, settings)
    has_canonical_names = {"question", "context"} <= set(table.columns)
    if settings.text_column not in table.columns and has_canonical_names:
        # A prediction file, or another file than the one the settings were made for.
        settings = settings.model_copy(
            update={"text_column": None, "pair_column": None, "label_column": None}
        )
    roles = {
        "question": settings.text_column,
        "context": settings.pair_column,
        "answers": settings.label_column,
    }
    may_lack = "" if options.label_needed else "answers"  # to predict, no answers are needed
    used = columns_named({**roles, "id": settings.id_column}, table, optional=may_lack)
    free = {folded(name): name for name in table.columns if name not in used}
    roles = _with_usual_names(roles, free, table, answers_needed=options.label_needed)
    label = roles["answers"]
    if label not in table.columns:  # it may be named for the training file, and be missing here
        label = None
    question = str(roles["question"])
    context = str(roles["context"])
    identity = settings.id_column or _usable_ids(
        table, free.get("id"), (question, context), options
    )
    return QuestionColumns(identity, question, context, label)


def _with_usual_names(
    roles: Mapping[str, str | None], free: dict[str, str], table: Table, *, answers_needed: bool
) -> dict[str, str | None]:
    """Returns the column of each role: as it was named, or else guessed by the usual names.

    Args:
        roles: Role (`question`, `context`, `answers`) -> column that was named, or None.
        free: Lowercase name -> name of the columns that were not named. The column with the usual
            name of a role is removed from it.
        table: The file, for messages.
        answers_needed: Whether to refuse a file without a column of answers.

    Raises:
        UsageError: The column of a role can't be guessed.
    """
    columns_by_role = dict(roles)
    for role, (option, usual) in _USUAL.items():
        usual_key = next((key for key in usual if key in free), None)
        # Removed even if this role has a column already: no other role may take it.
        usual_name = None if usual_key is None else free.pop(usual_key)
        if columns_by_role[role] is not None:
            continue
        columns_by_role[role] = usual_name
        is_needed = role != "answers" or answers_needed
        if usual_name is None and is_needed:
            message = f"{table.source}: no column is known as the {role}"
            raise UsageError(message, remedy=f"Name it: {option} NAME. {shown_columns(table)}")
    return columns_by_role


def _refuse_other_format(table: Table, settings: DataSection) -> None:
    """Refuses known formats of questions that can't be read, by name, unless columns were named.

    Raises:
        DataError: with what to do.
    """
    if settings.text_column is not None or settings.label_column is not None:
        return
    names = {folded(name) for name in table.columns}
    # DROP's own JSON is one object of passages by their ids: each column has a passage.
    first_cells = [values[0] for values in table.columns.values() if len(values)]
    for cell in first_cells:
        if isinstance(cell, Mapping) and "qa_pairs" in cell:
            names.update(map(folded, cell))
            break
    for columns, noun, remedy in _OTHER_FORMATS:
        if columns <= names:
            raise DataError(
                f"{table.source}: this is the form of {noun}, which can't be read",
                remedy=remedy + FORMS,
            )


def _usable_ids(
    table: Table, name: str | None, texts: tuple[str, str], options: ReadOptions
) -> str | None:
    """Returns the column `id` if its values can be ids of the questions, else None.

    In a labelled file every row needs an id, and different questions need different ids. Elsewhere
    one id is enough: rows without one are numbered.

    Args:
        table: The file as it was read.
        name: Its column called `id`, which nobody named; None if it has no such column.
        texts: Names of the columns with questions and contexts.
        options: Whether the labels are kept, and who is warned.
    """
    if name is None:
        return None
    ids = [str(value) for value in table.columns[name] if not is_empty_cell(value)]
    if not ids:
        return None
    if not options.keep_labels:
        return name
    if len(ids) == len(table) and _same_ids_mean_same_questions(table, name, texts):
        return name
    message = (
        f"{table.source}: ids in '{name}' are blank or stand twice; the questions are numbered "
        "instead"
    )
    options.listener.warn(message)
    return None


def _same_ids_mean_same_questions(table: Table, id_column: str, texts: tuple[str, str]) -> bool:
    """Returns whether rows with the same id have the same question and the same context.

    Args:
        table: The file as it was read.
        id_column: Name of its column with ids.
        texts: Names of the columns with questions and contexts.
    """
    question_column, context_column = texts
    questions = table.columns[question_column]
    contexts = table.columns[context_column]
    content_of_id: dict[str, tuple[str, str]] = {}
    for index, value in enumerate(table.columns[id_column]):
        content = (str(questions[index]), str(contexts[index]))
        if content_of_id.setdefault(str(value), content) != content:
            return False
    return True


def require_distinct_ids(rows: Rows) -> None:
    """Refuses questions if two of them have the same id, or if only some of them have an id.

    If all ids are blank, the rows are numbered, and the numbers are different.

    Raises:
        DataError: with both rows.
    """
    ids = rows.columns.get("id", rows.ids)
    if not all(map(is_empty_cell, ids)):
        remedy = (
            "Give each question an id of its own, or take `format=jsonl`, which has a line per row."
        )
        distinct_ids(
            ids,
            rows.where,
            remedy=remedy,
            reason=", and these answers are written by their ids",
        )


def rows_of_questions(
    table: Table, names: QuestionColumns, options: ReadOptions, *, first_id: int = 0
) -> Rows:
    """Returns the rows of a file, with the columns `question`, `context` and perhaps `label`.

    Args:
        table: the file as it was read.
        names: which column is which.
        options: If labels are kept, an id that is blank or stands twice is refused. Otherwise a
            blank id becomes the row's number, and the rows also keep the file's own id column.
        first_id: number of the first row, where there is no id column.

    Raises:
        DataError: a question that is no text or has no context, answers that can't be read, an id
            that stands twice, with file, line and id.
    """
    if names.id is not None and not options.keep_labels:
        names.require(table, optional=(names.id,))  # files to predict on may lack some ids or all
    else:
        names.require(table)
    ids, has_all_ids = _ids_of_questions(table, names, options, first_id=first_id)
    columns_read: dict[str, Sequence[Any]] = {
        "question": _texts(table, names.question, "question", ids),
        "context": _texts(table, names.context, "context", ids),
    }
    if names.label is not None:
        columns_read["label"] = labels_of_answers(
            table,
            name=names.label,
            contexts=columns_read["context"],
            ids=ids,
            options=options,
        )
    # Rows keep the columns of the file that are not in `names_read`. An id column with blank cells
    # is kept, too, because the ids of the rows have numbers in place of the blank ones.
    names_read = list(names.used)
    if has_all_ids and names.id is not None:
        names_read.append(names.id)
    if isinstance(table, NestedTable):  # in SQuAD's form it is a part of the answers
        names_read.append(IS_IMPOSSIBLE)
    columns_read |= other_columns(table, names_read, _CANONICAL)
    rows = Rows(
        options.split,
        columns_read,
        ids,
        table.source,
        table.lines,
    )
    if "label" in columns_read:
        return _with_all_answers(rows, options)
    return rows


def _ids_of_questions(
    table: Table, names: QuestionColumns, options: ReadOptions, *, first_id: int
) -> tuple[Sequence[str], bool]:
    """Returns an id for each row, and False if the id column has blank cells, else True.

    Args:
        table: The file as it was read.
        names: Which column is which.
        options: If labels are kept, rows of one question may share an id, and a blank id is
            refused. Otherwise a blank id becomes the row's number.
        first_id: Number of the first row.

    Raises:
        DataError: An id is blank or stands at two questions, and labels are kept.
    """
    if names.id is None:
        return ids_of(table, None, first_id=first_id), True
    if options.keep_labels:
        texts = (names.question, names.context)
        if _same_ids_mean_same_questions(table, names.id, texts):
            return _ids_with_repeats(table, names.id), True
        return ids_of(table, names.id, first_id=first_id), True  # refuses an id of two questions

    numbers = ids_of(table, None, first_id=first_id)
    file_ids = table.columns.get(names.id, ())
    if not file_ids:  # a chunk of JSON Lines whose rows have no ids
        return numbers, True
    ids = [
        number if is_empty_cell(value) else str(value)
        for number, value in zip(numbers, file_ids, strict=True)
    ]
    return ids, not any(map(is_empty_cell, file_ids))


def _union(*labels: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Returns the answers of several labels of one question as one label, each answer once."""
    answers: dict[tuple[str, int], None] = {}  # in order, unlike a set
    for label in labels:
        answers |= dict.fromkeys(zip(label["text"], label["answer_start"], strict=True))
    return {
        "text": [text for text, _ in answers],
        "answer_start": [start for _, start in answers],
    }


def _with_all_answers(rows: Rows, options: ReadOptions) -> Rows:
    """Returns each question once, with the answers of all of its rows; warns if rows are merged.

    Some files have a row per annotator, with the same id, question and context. The official
    scorers count questions, each with all of its answers.
    """
    first_rows: dict[tuple[str, str, str], int] = {}
    labels: dict[int, dict[str, list[Any]]] = {}  # first row of a question -> all of its answers
    n_same_answers = 0  # rows that add no answer
    questions = zip(rows.ids, rows.columns["question"], rows.columns["context"], strict=True)
    for index, question in enumerate(questions):
        label = rows.columns["label"][index]
        first_row = first_rows.setdefault(question, index)
        if first_row == index:
            labels[index] = label
        else:
            earlier_answers = _union(labels[first_row])  # each answer once
            all_answers = _union(labels[first_row], label)
            if all_answers == earlier_answers:
                n_same_answers += 1
            labels[first_row] = all_answers
    n_merged = len(rows) - len(labels)
    if not n_merged:
        return rows

    message = (
        f"{rows.source}: {count(n_merged, 'row')} with the id, the question and the context of an "
        "earlier row; "
    )
    if n_same_answers == n_merged:
        message += "the answers are the same, too, so each question counts once"
    else:
        message += "their answers are further answers to it"
        if n_same_answers:
            message += f" ({count(n_same_answers, 'row')} with the same answers)"
    options.listener.warn(f"{message} ({count(len(labels), 'question')} in all)")
    merged = rows.select(list(labels))
    return replace(merged, columns={**merged.columns, "label": list(labels.values())})


def _ids_with_repeats(table: Table, name: str) -> list[str]:
    """Returns a column as ids, of which several rows may have the same: `["a", "a", "b"]`.

    Raises:
        DataError: one is blank, with file and line.
    """
    first_row_of_id: dict[str, int] = {}
    for index, value in enumerate(table.columns[name]):
        row_id = "" if value is None else str(value)
        first_row_of_id.setdefault(row_id, index)
    # `ids_of` refuses blank ids. It would refuse repeated ones, too, so it gets a row of each id.
    ids_of(table.select(list(first_row_of_id.values())), name)
    return [str(value) for value in table.columns[name]]


def questions_about(
    questions: Sequence[str], context: str, *, source: str = "the question"
) -> Rows:
    """Returns questions about one text as a split, numbered from 0.

    Raises:
        DataError: the context is blank.
    """
    table = Table({"question": questions, "context": [context] * len(questions)}, source)
    columns = QuestionColumns(id=None, question="question", context="context")
    return rows_of_questions(table, columns, ReadOptions(DataSection(), "predict"))


def _texts(table: Table, name: str, role: str, ids: Sequence[str]) -> list[str]:
    """Returns a column of questions or contexts as texts.

    Args:
        table: The file.
        name: Its column.
        role: `question` or `context`.
        ids: The id of each row, for messages.

    Raises:
        DataError: A cell is empty or no text.
    """
    return [
        _text(
            table,
            index=index,
            value=value,
            role=role,
            ids=ids,
        )
        for index, value in enumerate(table.columns[name])
    ]


def _text(table: Table, index: int, value: Any, role: str, ids: Sequence[str]) -> str:
    """Returns the cell of a question or a context as text.

    Args:
        table: The file, for messages.
        index: Number of the row in it.
        value: The cell.
        role: `question` or `context`. A question may be blank, a context may not.
        ids: The id of each row, for messages.

    Raises:
        DataError: The cell is empty or no text.
    """
    where = f"{table.where(index)} (id '{ids[index]}')"
    is_blank = isinstance(value, str) and not value.strip()
    if value is None or (role == "context" and is_blank):
        if role == "context":
            message = "the question has no context"
        else:
            message = "no question"
        raise DataError(
            f"{where}: {message}",
            remedy="Fill it in, or take the question out. " + shown_columns(table),
        )
    if not isinstance(value, str):
        message = (
            f"{where}: the {role} is {type(value).__name__} where a text is needed: {value!r:.80}"
        )
        remedy = (
            "Name the columns: `data.text_column=QUESTION` `data.pair_column=CONTEXT`. "
            f"{shown_columns(table)}"
        )
        raise DataError(message, remedy=remedy)
    return value
