"""The choices of a row as files write them, and the names that they have there: `A`, `B`; `1`, `2`.

List: `["Oslo", "Bergen"]`. ARC, OpenBookQA, CommonsenseQA:
`{"text": ["Oslo", "Bergen"], "label": ["A", "B"]}`, or, as their authors publish it,
`[{"label": "A", "text": "Oslo"}, ...]`. MedQA: `{"A": "Oslo", "B": "Bergen"}`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bertctl.data.table import Table, table_of_objects
from bertctl.data.written_values import written_value
from bertctl.errors import DataError

_TEXT = ("text", "choice", "option", "answer", "content")
_KEY = ("label", "key", "id", "letter", "name")
_DISTRACTOR = re.compile(r"(?:distractor|distractors|wrong_answer|incorrect_answer)[ _-]?\d+")
_RIGHT_ANSWERS = frozenset({"correct_answer", "right_answer", "gold-ending", "gold_ending"})
_LABELLED = frozenset({"label", "labels", "choices", "options", "answer"})
"""Columns of files that have labels or choices of their own."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Choices(NamedTuple):
    """The choices of one row.

    Attributes:
        texts: In order.
        keys: Their names in the file, such as letters, in the same order. Empty where they have
            none.
    """

    texts: list[str]
    keys: tuple[str, ...] = ()


class UnreadableChoicesError(Exception):
    """A cell that holds no choices. The message completes the sentence "column 'choices' ..."."""


def choices_in(cell: Any) -> Choices:
    """Returns the choices in a cell: a list, an object, or one of these written as a text.

    Raises:
        UnreadableChoicesError: The cell contains no choices.
    """
    if isinstance(cell, str):
        value = written_value(cell)
    else:
        value = cell
    if isinstance(value, Mapping):
        return _of_mapping(value, cell)
    if not isinstance(value, list | tuple):
        raise UnreadableChoicesError(f"holds {cell!r:.80} where a list of choices is needed")
    if value and all(isinstance(choice, Mapping) for choice in value):
        return _of_objects(value, cell)
    return Choices(_texts(value))


def _of_mapping(value: Mapping[str, Any], cell: Any) -> Choices:
    """Returns the choices of an object.

    The object has lists (`{"text": ["Oslo", "Bergen"], "label": ["A", "B"]}`), or a text for each
    key (`{"A": "Oslo", "B": "Bergen"}`).

    Args:
        value: The object.
        cell: The cell as the file has it, for messages; the object may be a text there.

    Raises:
        UnreadableChoicesError: The object has neither form.
    """
    lists = {name: field for name, field in value.items() if isinstance(field, list | tuple)}
    text_name = _first_common_name(_TEXT, [lists])  # the object is the only one
    if text_name is not None:
        texts = lists[text_name]
        key_name = _first_common_name(_KEY, [lists])
        keys: Sequence[Any] = () if key_name is None else lists[key_name]
        if keys and len(keys) != len(texts):
            raise UnreadableChoicesError(
                f"holds {len(texts)} texts and {len(keys)} labels of choices: {cell!r:.80}"
            )
        return Choices(_texts(texts), tuple(str(key) for key in keys))
    # Parquet has all keys in all rows, and null for the choices that a row lacks.
    filled = {str(key): text for key, text in value.items() if text is not None}
    are_keys_of_choices = all(len(key) == 1 or key.isdecimal() for key in filled)  # `A`, `10`
    if not filled or not are_keys_of_choices:
        raise UnreadableChoicesError(f"holds {cell!r:.80} where a list of choices is needed")
    return Choices(_texts(list(filled.values())), tuple(filled))


def _of_objects(value: Sequence[Mapping[str, Any]], cell: Any) -> Choices:
    """Returns the choices of a list of objects: `[{"label": "A", "text": "Oslo"}, ...]`.

    Args:
        value: The list of objects.
        cell: The cell as the file has it, for messages; the list may be a text there.

    Raises:
        UnreadableChoicesError: The objects have no text.
    """
    text_name = _first_common_name(_TEXT, value)
    if text_name is None:
        raise UnreadableChoicesError(f"holds {cell!r:.80}, objects without a 'text'")
    key_name = _first_common_name(_KEY, value)
    if key_name:
        keys = tuple(str(choice[key_name]) for choice in value)
    else:
        keys = ()
    return Choices(_texts([choice[text_name] for choice in value]), keys)


def _first_common_name(names: Sequence[str], objects: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the first of some usual names that all objects have; None if they have none."""
    for name in names:
        if all(name in entry for entry in objects):
            return name
    return None


def _texts(values: Sequence[Any]) -> list[str]:
    """Returns choices as texts; numbers are choices, too.

    Raises:
        UnreadableChoicesError: A choice is neither text nor number.
    """
    for number, choice in enumerate(values):
        if not isinstance(choice, str | int | float) or isinstance(choice, bool):
            raise UnreadableChoicesError(
                f"has {choice!r:.80} as choice {number}, which is not text"
            )
    return [str(choice) for choice in values]


def flattened(table: Table) -> Table:
    """Returns a table of multiple choice with a question per row, and its choices in one column.

    ARC's and CommonsenseQA's own files have the choices inside the question; RACE's have several
    questions per article; SciQ's and SWAG's own have the right answer in one column and the
    distractors in others; DREAM's have dialogues. Other tables stay as they are.

    Raises:
        DataError: An article of RACE with lists of unlike lengths, with its line.
    """
    questions = table.columns.get("question", ())
    have_stems = len(questions) > 0 and all(
        isinstance(cell, Mapping) and {"stem", "choices"} <= cell.keys() for cell in questions
    )
    if have_stems:
        return _with_stems(table)
    race = ("article", "questions", "options", "answers")
    if all(name in table.columns for name in race):
        return _with_articles(table)
    if "dialogue" in table.columns and {"question", "choice"} <= table.columns.keys():
        table = _with_dialogues(table)
    return _with_distractors(table)


def _with_dialogues(table: Table) -> Table:
    """Returns DREAM's dialogues as texts, a turn on each line, and its `choice` as `choices`."""
    columns = {
        name: values for name, values in table.columns.items() if name not in ("dialogue", "choice")
    }
    dialogues = [
        "\n".join(map(str, turns)) if isinstance(turns, list) else turns
        for turns in table.columns["dialogue"]
    ]
    return replace(
        table, columns={"context": dialogues, "choices": table.columns["choice"], **columns}
    )


def rows_of_dialogues(document: Any) -> list[dict[str, Any]] | None:
    """Returns the questions of DREAM's JSON as rows; None for another document.

    `[[turns, [{question, choice, answer}], id], ...]` -> `[{"dialogue_id": id, "dialogue": turns,
    "question": ..., "choice": ..., "answer": ...}, ...]`.
    """
    if not isinstance(document, list) or not document or not all(map(_is_dialogue, document)):
        return None
    rows: list[dict[str, Any]] = []
    for turns, questions, name in document:
        rows += [{"dialogue_id": name, "dialogue": turns, **question} for question in questions]
    return rows


def _is_dialogue(entry: Any) -> bool:
    """Returns whether a value is a dialogue of DREAM: `[turns, [{question, choice, ...}], id]`."""
    if not isinstance(entry, list) or len(entry) != 3:
        return False
    turns, questions, _ = entry
    have_choices = isinstance(questions, list) and all(
        isinstance(question, dict) and "choice" in question for question in questions
    )
    return isinstance(turns, list) and have_choices


def _with_distractors(table: Table) -> Table:
    """Returns a table whose right answers and distractors are choices, with letters as labels.

    Correct `Oslo`, distractors `Rome` and `Bergen` -> choices `["Bergen", "Oslo", "Rome"]`, label
    `B`. They are in alphabetical order, from which a model can't learn which one is right. Blank
    distractors and those that equal the answer are left out. A row without an answer has no label.
    Tables without such columns stay as they are.
    """
    folded_names = {name.strip().casefold() for name in table.columns}
    distractor_columns = sorted(
        name for name in table.columns if _DISTRACTOR.fullmatch(name.strip().casefold())
    )
    answer_columns = [name for name in table.columns if name.strip().casefold() in _RIGHT_ANSWERS]
    has_own_labels = not _LABELLED.isdisjoint(folded_names)
    if not distractor_columns or not answer_columns or has_own_labels:
        return table

    answer_column = answer_columns[0]
    choices: list[dict[str, list[str]]] = []
    labels: list[str | None] = []
    for index, answer in enumerate(table.columns[answer_column]):
        distractors = [table.columns[name][index] for name in distractor_columns]
        if not isinstance(answer, str) or not answer.strip():
            choices.append({"text": [str(text) for text in distractors], "label": []})
            labels.append(None)
            continue
        filled = {str(text) for text in distractors if text is not None and str(text).strip()}
        ordered = sorted({answer, *filled})
        letters = _LETTERS[: len(ordered)]
        choices.append({"text": ordered, "label": list(letters)})
        labels.append(letters[ordered.index(answer)])
    replaced = (answer_column, *distractor_columns)
    unchanged = {name: values for name, values in table.columns.items() if name not in replaced}
    return replace(table, columns={**unchanged, "choices": choices, "label": labels})


def _rows(table: Table) -> list[dict[str, Any]]:
    """Returns the rows of a table, each as column -> cell."""
    return [
        dict(zip(table.columns, values, strict=True))
        for values in zip(*table.columns.values(), strict=True)
    ]


def _table_like(table: Table, rows: Sequence[Mapping[str, Any]], positions: Sequence[int]) -> Table:
    """Returns a table of new rows, with the source and the lines of the table they are made of.

    Args:
        table: The original table.
        rows: The new rows.
        positions: For each new row, the position of the row in `table` that it is made of.
    """
    if table.lines:
        lines = [table.lines[position] for position in positions]
        return table_of_objects(list(zip(lines, rows, strict=True)), table.source)

    # Without lines, rows are known by their position after `table.first`.
    columns = table_of_objects(list(enumerate(rows)), table.source).columns
    return Table(columns, table.source, first=table.first)


def _with_stems(table: Table) -> Table:
    """Returns ARC's rows with the parts of their question as columns of their own.

    `{"question": {"stem": "Which?", "choices": [...]}}` -> `{"question": "Which?", "choices":
    [...]}`.
    """
    rows = []
    for row in _rows(table):
        question = dict(row.pop("question"))
        stem = question.pop("stem")
        rows.append({"question": stem, **question, **row})
    return _table_like(table, rows, range(len(rows)))


def _with_articles(table: Table) -> Table:
    """Returns RACE's articles, which have a list of questions each, as a row per question.

    Raises:
        DataError: An article has more or fewer questions than options or answers.
    """
    rows: list[dict[str, Any]] = []
    positions: list[int] = []
    for position, row in enumerate(_rows(table)):
        lists = [row["questions"], row["options"], row["answers"]]
        are_lists = all(isinstance(values, list | tuple) for values in lists)
        if not are_lists or len({len(values) for values in lists}) != 1:
            raise DataError(
                f"{table.where(position)}: questions, options and answers are not lists of one "
                "length",
                remedy="RACE's articles have an option list and an answer for each question.",
            )
        name = row.get("id")
        for question, options, answer in zip(*lists, strict=True):
            rows.append(
                {
                    "example_id": name,
                    "article": row["article"],
                    "question": question,
                    "options": options,
                    "answer": answer,
                }
            )
            positions.append(position)
    return _table_like(table, rows, positions)
