"""Files of extractive question answering.

They are SQuAD's JSON (1.1, 2.0), and flat rows as JSON, JSON Lines, Parquet, CSV.

Canonical columns: `question`, `context`, `label` as {"text": [...], "answer_start": [...]} (empty
lists: unanswerable; development sets have several answers), `title` where the file has one.
`answer_start` counts characters; -1 stands where the file gives no offset and the text does not
occur in the context.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from bertctl.data.json_tables import document_or_tables, table_of_document
from bertctl.data.names import first_field, folded
from bertctl.data.read_options import Reading, ReadOptions
from bertctl.data.reading import Reader
from bertctl.data.rows import Rows, is_missing
from bertctl.data.sources import MemoryFile, Source, source_name
from bertctl.data.table import Table, table_of_objects
from bertctl.data.text_files import open_bytes
from bertctl.data.word_splitting import cuts_word
from bertctl.data.written_values import is_shortened, written_value
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
_IMPOSSIBLE = "is_impossible"
_SQUAD = DataSection(text_column="question", pair_column="context", label_column="answers")
"""The names that `_flat_questions` gives to the nested form."""
_FORMS = (
    'Questions are SQuAD\'s JSON, {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": '
    "[...]}]}]}, a list "
    "of its paragraphs, or one object per line: "
    '{"question": "...", "context": "...", "answers": {"text": ["..."], "answer_start": [0]}}.'
)
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
_ANSWERS = (
    'Answers are written {"text": ["..."], "answer_start": [0]} or [{"text": "...", '
    '"answer_start": 0}]; '
    "[] for a question without one."
)


@dataclass(frozen=True)
class QuestionReader(Reader):
    """Makes rows of questions about texts."""

    columns: tuple[str, ...] = _CANONICAL
    no_label: tuple[Any, ...] = (None,)
    nouns: tuple[tuple[str, str], ...] = ((_CANONICAL[0], "questions"),)
    finds_ids: bool = True
    form: str = _FORMS
    together: tuple[str, ...] = ("title", "context")

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin.

        Stdin is JSON unless it is said to be something else.
        """
        kind = input_kind(source, options)
        is_unnamed_stdin = source == "-" and options.kind is None
        if is_unnamed_stdin and kind == "lines":  # what stdin is if its first bytes say nothing
            kind = "jsonl"
        if kind == "lines":
            message = f"{source_name(source)}: lines of text are not questions with a context"
            raise UsageError(
                message, remedy=f'{_FORMS} One question alone: `question="..." context=FILE`.'
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
    used = columns_named(
        {**roles, "id": settings.id_column},
        table,
        optional="" if options.label_needed else "answers",
    )
    free = {folded(name): name for name in table.columns if name not in used}
    roles = _with_usual_names(roles, free, table, answers_needed=options.label_needed)
    label = roles["answers"]
    if label not in table.columns:  # it was named for another file
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
        free: Lowercase name -> name of the columns that were not named. A usual name is removed
            from it with its role, so that no later role takes that column.
        table: The file, for messages.
        answers_needed: Whether to refuse a file without a column of answers.

    Raises:
        UsageError: The column of a role can't be guessed.
    """
    columns_by_role = dict(roles)
    for role, (option, usual) in _USUAL.items():
        usual_key = next((key for key in usual if key in free), None)
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
                remedy=remedy + _FORMS,
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
    ids = [str(value) for value in table.columns[name] if not _is_blank(value)]
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


def _is_blank(value: Any) -> bool:
    """Returns whether a cell is empty, null or NaN."""
    return is_missing(value) or (isinstance(value, str) and value == "")


def require_distinct_ids(rows: Rows) -> None:
    """Refuses questions of which some have the same id, or have none where others do.

    If all ids are blank, the rows are numbered, and the numbers are different.

    Raises:
        DataError: with both rows.
    """
    ids = rows.columns.get("id", rows.ids)
    if not all(map(_is_blank, ids)):
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
    """Returns a file's columns under their canonical names.

    Args:
        table: the file as it was read.
        names: which column is which.
        options: where labels are kept, an id that is blank or stands twice is refused; else a blank
            one becomes the row's number, and the rows keep the id column as the file has it, too.
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
        columns_read["label"] = _labels_of(
            table,
            name=names.label,
            contexts=columns_read["context"],
            ids=ids,
            options=options,
        )
    # Rows keep all columns of the file but these. An id column with blank cells is not among them,
    # because the ids of the rows do not say all of it.
    names_read = list(names.used)
    if has_all_ids and names.id is not None:
        names_read.append(names.id)
    if isinstance(table, NestedTable):  # in SQuAD's form it is a part of the answers
        names_read.append(_IMPOSSIBLE)
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
        return ids_of(table, names.id, first_id=first_id), True

    numbers = ids_of(table, None, first_id=first_id)
    file_ids = table.columns.get(names.id, ())
    if not file_ids:  # a chunk of JSON Lines whose rows have no ids
        return numbers, True
    ids = [
        number if _is_blank(value) else str(value)
        for number, value in zip(numbers, file_ids, strict=True)
    ]
    return ids, not any(map(_is_blank, file_ids))


def _labels_of(
    table: Table, name: str, contexts: Sequence[str], ids: Sequence[str], options: ReadOptions
) -> list[dict[str, list[Any]]]:
    """Returns the answers of each question as {"text": [...], "answer_start": [...]}.

    Args:
        table: The file; its columns `answer_start`, `answer_end` and `is_impossible` are read, too.
        name: Its column with the answers.
        contexts: Of each row.
        ids: Of each row, for messages.
        options: Whether a question needs an answer, and who is warned of answers without an offset
            that occur several times.

    Raises:
        DataError: Answers that can't be read, or that `is_impossible` contradicts.
    """
    nothing: Sequence[Any] = [None] * len(table)
    impossible = table.columns.get(_IMPOSSIBLE, nothing)
    starts = table.columns.get("answer_start", nothing)
    ends = table.columns.get("answer_end", nothing)
    ambiguous: list[str] = []  # answers without an offset that occur several times
    labels: list[dict[str, list[Any]]] = []
    has_start_column = "answer_start" in table.columns
    if has_start_column:
        other_start_columns = []
    else:
        other_start_columns = _other_start_names(table.columns, but=name)
    for i, (answers, start, end) in enumerate(zip(table.columns[name], starts, ends, strict=True)):
        if other_start_columns and isinstance(answers, str):
            row = {column: values[i] for column, values in table.columns.items()}
            start = _start_by_other_names(row, other_start_columns, answers, contexts[i])
        is_blank_row = has_start_column and _is_blank(answers) and _is_blank(start)
        if is_blank_row:  # how flat tables write an unanswerable question
            label = _no_answers()
        elif _is_true(impossible[i]):
            _require_no_answers(answers, contexts[i], f"{table.where(i)} (id '{ids[i]}')")
            label = _no_answers()
        else:
            answers_with_start = _with_start(answers, start, end)
            readable = _answers(answers_with_start, contexts[i], ambiguous)
            if readable is None:
                raise _refused_answers(answers, table, i, ids)
            label = readable
        has_no_answer = not label["text"]
        if has_no_answer and options.label_needed and _is_false(impossible[i]):
            raise DataError(
                f"{table.where(i)} (id '{ids[i]}'): no answer, and `{_IMPOSSIBLE}` is false",
                remedy=f"Give the answer, or true in `{_IMPOSSIBLE}` where the context has none.",
            )
        labels.append(label)
    if ambiguous:
        options.listener.warn(
            f"{table.source}: {count(len(ambiguous), 'answer')} without an offset occur several "
            f"times in their contexts, such as {ambiguous[0]!r}: the first one is taken, of whole "
            "words where there are any"
        )
    return labels


def _is_true(value: Any) -> bool:
    """Returns whether a cell says yes; an empty one says neither."""
    return value is True or str(value).strip().lower() in ("true", "1", "1.0", "yes")


def _is_false(value: Any) -> bool:
    """Returns whether a cell says no; an empty one says neither."""
    return value is False or str(value).strip().lower() in ("false", "0", "0.0", "no")


def _require_no_answers(answers: Any, context: str, where: str) -> None:
    """Refuses answers to a question that is said to have none.

    Raises:
        DataError: with the first of them.
    """
    if _is_blank(answers):
        return
    label = _answers(answers, context, ambiguous=[])
    if label and label["text"]:
        raise DataError(
            f"{where}: `{_IMPOSSIBLE}` is true, and there is an answer: {label['text'][0]!r:.80}",
            remedy="Correct one of the two. Answers that only seem right belong into "
            "`plausible_answers`.",
        )


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
    return rows_of_questions(
        table, QuestionColumns(None, "question", "context"), ReadOptions(DataSection(), "predict")
    )


def _texts(table: Table, name: str, role: str, ids: Sequence[str]) -> list[str]:
    """Returns a column of questions or contexts as texts.

    Args:
        table: The file.
        name: Its column.
        role: `question` or `context`.
        ids: Of each row, for messages.

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
        ids: Of each row.

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


def _with_start(answers: Any, start: Any, end: Any) -> Any:
    """Returns an answer whose offset stands in a column of its own, as an object with both.

    `"Oslo", 17, None` -> `{"text": "Oslo", "answer_start": 17}`. Other answers stay as they are.
    """
    if _is_blank(start) or not isinstance(answers, str):
        return answers
    answer = {"text": answers, "answer_start": start}
    if _is_blank(end):
        return answer
    return {**answer, "answer_end": end}


def _find_answer(text: str, context: str, ambiguous: list[str]) -> int:
    """Returns where an answer without an offset begins; -1 if it does not occur.

    That is the first occurrence as whole words, or else the first one that begins or ends inside
    of a word.

    Args:
        text: The answer.
        context: Where it is looked for.
        ambiguous: The answer is added to this list if it occurs several times.
    """
    all_starts = [match.start() for match in re.finditer(re.escape(text), context)]
    whole_words = [
        start for start in all_starts if not cuts_word(context, start, start + len(text))
    ]
    for starts in (whole_words, all_starts):
        if len(starts) > 1:
            ambiguous.append(text)
        if starts:
            return starts[0]
    return -1


def _no_answers() -> dict[str, list[Any]]:
    """Returns the canonical label of a question without an answer."""
    return {"text": [], "answer_start": []}


def _answers(value: Any, context: str, ambiguous: list[str]) -> dict[str, list[Any]] | None:
    """Returns answers as {"text": [...], "answer_start": [...]}; None if they can't be read.

    Args:
        value: A text, a list of texts or of objects, an object of lists, or one of these as the
            text of a CSV cell: `'{"text": ["Oslo"], "answer_start": [17]}'`.
        context: The text with the answers. Those without an offset are looked for in it.
        ambiguous: Answers without an offset that occur several times are added to this list.
    """
    # A text that occurs in the context is the answer itself. Any other may be a CSV cell with a
    # list or an object.
    if isinstance(value, str) and value not in context:
        value = written_value(value)
        # An object, or an array as numpy prints it, that was cut off or is written wrongly.
        if isinstance(value, str) and value.lstrip().startswith(("{", "array(")):
            return None
    if isinstance(value, str):
        value = [value]
    elif isinstance(value, Mapping):
        value = _answers_of_lists(value)
    if not isinstance(value, list | tuple):
        return None

    label = _no_answers()
    for answer in value:
        entry = {"text": answer} if isinstance(answer, str) else answer
        if not isinstance(entry, Mapping) or not isinstance(entry.get("text"), str):
            return None
        start = _start_of(entry, context, ambiguous)
        if start is None:
            return None
        label["text"].append(entry["text"])
        label["answer_start"].append(start)
    return label


def _start_of(entry: Mapping[str, Any], context: str, ambiguous: list[str]) -> int | None:
    """Returns where an answer begins in its context, -1 if it does not occur there.

    The result is None if the answer is blank, an offset is no number, or the end contradicts the
    answer's length.

    Args:
        entry: The answer: its `text`, and its offsets if they are known.
        context: The text with the answer, which is searched if the start is not known.
        ambiguous: The answer is added to this list if it has no offset and occurs several times.
    """
    text = entry["text"]
    start_names, end_names = _OFFSETS
    if any(name in entry for name in start_names):
        start = _offset(first_field(entry, start_names))
    else:
        start = _start_by_other_names(entry, _other_start_names(entry), text, context)
    end = _offset(first_field(entry, end_names))
    if start is _NO_OFFSET or end is _NO_OFFSET or not text.strip():
        return None

    # An end may be that of the last character, or the one behind it.
    has_both = isinstance(start, int) and isinstance(end, int)
    if has_both and end - start not in (len(text), len(text) - 1):
        return None
    if start is None:
        return _find_answer(text, context, ambiguous)
    return int(start)


_OTHER_STARTS = frozenset(
    (
        "start", "start_char", "char_start", "start_position", "start_offset", "start_idx",
        "start_index", "start_character", "span_start", "begin", "offset", "answer_offset",
        "answer_start_char", "answer_start_idx", "start_pos", "answer_begin", "position",
    )
)  # fmt: skip
"""Other names of an answer's first character; they are believed where the answer stands there."""


def _other_start_names(names: Iterable[str], *, but: str = "") -> list[str]:
    """Returns the names that may mean an answer's first character, without that of `but`."""
    return [name for name in names if name != but and folded(name) in _OTHER_STARTS]


def _start_by_other_names(
    entry: Mapping[str, Any], names: Iterable[str], answer: str, context: str
) -> int | None:
    """Returns where an answer begins, by a field such as `start_char`; None if none can be trusted.

    Args:
        entry: Name -> value of the fields of the answer, or of its row.
        names: Fields that may have the start.
        answer: Its text.
        context: The text with the answer.
    """
    # Such a field may count tokens instead of characters. So a start is trusted only if the context
    # has the answer at this character, or if end - start is the answer's length in characters.
    offsets = {name: _offset(entry[name]) for name in names}
    starts = {
        name: offset for name, offset in offsets.items() if isinstance(offset, int) and offset >= 0
    }
    for start in starts.values():
        if answer and context.startswith(answer, start):
            return start
    for name, start in starts.items():
        end_name = name.replace("start", "end").replace("begin", "end")  # `start_char`: `end_char`
        end = _offset(entry.get(end_name))
        if end_name != name and isinstance(end, int) and end - start == len(answer):
            return start
    return None


_OFFSETS = (("answer_start", "start"), ("answer_end", "end"))
_NO_OFFSET = "no offset"


def _answers_of_lists(answers: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Returns an object of lists, as in SQuAD's Parquet, as a list of objects.

    `{"text": ["Oslo"], "answer_start": [17]}` -> `[{"text": "Oslo", "answer_start": 17}]`. The
    result is None if there are no texts, or the lists have different lengths.
    """
    texts = _as_list(answers.get("text"))
    if texts is None:
        return None
    answer_objects: list[dict[str, Any]] = [{"text": text} for text in texts]
    for name in ("answer_start", "start", "answer_end", "end"):
        offsets = _as_list(answers.get(name))
        if offsets is None:
            continue
        if len(offsets) != len(texts):
            return None
        for answer, offset in zip(answer_objects, offsets, strict=True):
            answer[name] = offset
    return answer_objects


def _offset(value: Any) -> Any:
    """Returns an offset as a number, None where there is none, `_NO_OFFSET` for something else."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.0*)?\s*", value):
        return int(float(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return _NO_OFFSET


def _as_list(value: Any) -> list[Any] | None:
    """Returns a list as it is and another value as a list of one; None stays None."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return list(value)
    return [value]


def _refused_answers(value: Any, table: Table, index: int, ids: Sequence[str]) -> DataError:
    """Returns the error for answers that can't be read, with the likeliest reason.

    Args:
        value: The cell with the answers.
        table: The file.
        index: Number of the row in it.
        ids: Of each row.
    """
    where = f"{table.where(index)} (id '{ids[index]}')"
    if value is None:
        return DataError(f"{where}: no answers", remedy=_ANSWERS)
    if is_shortened(value):
        remedy = (
            "numpy has left a part out (...). Save the table as JSON Lines or Parquet, which keep "
            "lists."
        )
        return DataError(f"{where}: these answers can't be read: {value!r:.120}", remedy=remedy)
    if isinstance(value, str):
        answers = written_value(value)
    else:
        answers = value
    if isinstance(answers, Mapping):
        answers = _answers_of_lists(answers)
    entries = [
        entry if isinstance(entry, Mapping) else {"text": entry}
        for entry in _as_list(answers) or ()
    ]
    # Offsets stand in the answer itself, or in a column of their own.
    column_start = _cell(table, "answer_start", index)
    column_end = _cell(table, "answer_end", index)
    for entry in entries:
        text = entry.get("text")
        if not isinstance(text, str):
            continue
        if not text.strip():
            remedy = (
                f"Has the question no answer? Then write [], or true in a column `{_IMPOSSIBLE}`."
            )
            return DataError(f"{where}: an answer is blank: {value!r:.120}", remedy=remedy)
        end = entry.get("answer_end", entry.get("end", column_end))
        if not _is_blank(end):
            start = entry.get("answer_start", entry.get("start", column_start))
            message = (
                f"the answer {text!r:.80} has {len(text)} characters, and its offsets say {start} "
                f"to {end}"
            )
            return DataError(
                f"{where}: {message}",
                remedy="Correct answer_end, or leave it out: it is only compared.",
            )
    return DataError(f"{where}: these answers can't be read: {value!r:.120}", remedy=_ANSWERS)


def _cell(table: Table, column: str, index: int) -> Any:
    """Returns the cell of a row in a column; None if the table has no such column."""
    if column not in table.columns:
        return None
    return table.columns[column][index]


class NestedTable(Table):
    """Questions out of SQuAD's nested form, under the names of `_SQUAD`."""


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
                raise DataError(f"{name} has no questions", remedy=_FORMS)
            yield from flat.chunks(options.chunk_rows)


_CONTEXTS = ("context", "context_text")
"""Names of a paragraph's text in SQuAD's form, and in CMRC's first one."""


def _is_nested(names: Collection[str]) -> bool:
    """Returns whether objects are articles of SQuAD (`paragraphs`), or paragraphs alone (`qas`)."""
    return "paragraphs" in names or ("qas" in names and any(name in names for name in _CONTEXTS))


def _flat_table(table: Table) -> Table:
    """Returns a table with a row per question, made of articles or paragraphs of SQuAD.

    Each question has the line of its article, if the file has an article per line.
    """
    rows: list[dict[str, Any]] = []
    lines: list[int] = []  # of each row, if the file has lines
    for index, article in enumerate(_objects(table)):
        if article.keys() == {"header"}:  # the first line of MRQA's files
            continue
        if "paragraphs" not in article:
            where = f"{table.source}, paragraph {index + 1}"
            questions = list(_flat_paragraph(article, article.get("title"), where))
        else:
            where = f"{table.source}, article {index + 1} ('{article.get('title', '')}')"
            questions = list(_flat_article(article, where))
        rows += questions
        if table.lines:
            lines += [table.lines[index]] * len(questions)
    if not table.lines:
        numbered = list(enumerate(rows))
        return NestedTable(table_of_objects(numbered, table.source).columns, table.source)
    flat = table_of_objects(list(zip(lines, rows, strict=True)), table.source)
    return NestedTable(flat.columns, flat.source, flat.lines)


def _objects(table: Table) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table as dictionaries, without cells that are None."""
    for values in zip(*table.columns.values(), strict=True):
        yield {
            name: value
            for name, value in zip(table.columns, values, strict=True)
            if value is not None
        }


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
            flat[_IMPOSSIBLE] = question["is_impossible"]
        yield flat


def _mrqa_answers(answers: Any) -> Any:
    """Returns answers of MRQA, which has all occurrences of each, as SQuAD has them.

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
        raise DataError(f"{where}: no list '{name}' of objects", remedy=_FORMS)
    return values
