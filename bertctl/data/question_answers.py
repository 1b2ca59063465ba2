"""Answers to questions: cells of a file as labels of extractive question answering.

A label is `{"text": [...], "answer_start": [...]}`. Its lists are empty if the question has no
answer. `answer_start` counts characters; -1 stands where the file gives no offset and the text does
not occur in the context.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertctl.data.names import first_field, folded
from bertctl.data.read_options import ReadOptions
from bertctl.data.rows import is_empty_cell
from bertctl.data.table import Table
from bertctl.data.word_splitting import cuts_word
from bertctl.data.written_values import is_shortened, written_value
from bertctl.errors import DataError
from bertctl.words import count

IS_IMPOSSIBLE = "is_impossible"
"""Column, and field of SQuAD's JSON, that says that a question has no answer."""
_ANSWERS = (
    'Answers are written {"text": ["..."], "answer_start": [0]} or [{"text": "...", '
    '"answer_start": 0}]; '
    "[] for a question without one."
)
"""How to write answers, for remedies."""
_OTHER_STARTS = frozenset(
    (
        "start", "start_char", "char_start", "start_position", "start_offset", "start_idx",
        "start_index", "start_character", "span_start", "begin", "offset", "answer_offset",
        "answer_start_char", "answer_start_idx", "start_pos", "answer_begin", "position",
    )
)  # fmt: skip
"""Other names of an answer's first character; they are believed where the answer stands there."""
_OFFSETS = (("answer_start", "start"), ("answer_end", "end"))
_NO_OFFSET = "no offset"


def labels_of_answers(
    table: Table, name: str, contexts: Sequence[str], ids: Sequence[str], options: ReadOptions
) -> list[dict[str, list[Any]]]:
    """Returns the answers of each question as {"text": [...], "answer_start": [...]}.

    Args:
        table: The file; its columns `answer_start`, `answer_end` and `is_impossible` are read, too.
        name: Its column with the answers.
        contexts: The context of each row.
        ids: The id of each row, for messages.
        options: Whether a question needs an answer, and who is warned of answers without an offset
            that occur several times.

    Raises:
        DataError: Answers that can't be read, or that `is_impossible` contradicts.
    """
    nothing: Sequence[Any] = [None] * len(table)
    impossible = table.columns.get(IS_IMPOSSIBLE, nothing)
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
        is_blank_row = has_start_column and is_empty_cell(answers) and is_empty_cell(start)
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
                f"{table.where(i)} (id '{ids[i]}'): no answer, and `{IS_IMPOSSIBLE}` is false",
                remedy=f"Give the answer, or true in `{IS_IMPOSSIBLE}` where the context has none.",
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
    """Refuses answers to a question for which `is_impossible` is true.

    Raises:
        DataError: with the first of them.
    """
    if is_empty_cell(answers):
        return
    label = _answers(answers, context, ambiguous=[])
    if label and label["text"]:
        raise DataError(
            f"{where}: `{IS_IMPOSSIBLE}` is true, and there is an answer: {label['text'][0]!r:.80}",
            remedy="Correct one of the two. Answers that only seem right belong into "
            "`plausible_answers`.",
        )


def _no_answers() -> dict[str, list[Any]]:
    """Returns the canonical label of a question without an answer."""
    return {"text": [], "answer_start": []}


def _with_start(answers: Any, start: Any, end: Any) -> Any:
    """Returns an answer whose offset stands in a column of its own, as an object with both.

    `"Oslo", 17, None` -> `{"text": "Oslo", "answer_start": 17}`. Other answers stay as they are.
    """
    if is_empty_cell(start) or not isinstance(answers, str):
        return answers
    answer = {"text": answers, "answer_start": start}
    if is_empty_cell(end):
        return answer
    return {**answer, "answer_end": end}


def _answers(value: Any, context: str, ambiguous: list[str]) -> dict[str, list[Any]] | None:
    """Returns answers as {"text": [...], "answer_start": [...]}; None if they can't be read.

    Args:
        value: A text, a list of texts or of objects, an object of lists, or one of these as the
            text of a CSV cell: `'{"text": ["Oslo"], "answer_start": [17]}'`.
        context: The text with the answers. Answers without an offset are looked for in it.
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
    starts = whole_words or all_starts
    if not starts:
        return -1
    if len(starts) > 1:
        ambiguous.append(text)
    return starts[0]


def _other_start_names(names: Iterable[str], *, but: str = "") -> list[str]:
    """Returns the names that may mean an answer's first character, except the name `but`."""
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
        ids: The id of each row, for the message.
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
                f"Has the question no answer? Then write [], or true in a column `{IS_IMPOSSIBLE}`."
            )
            return DataError(f"{where}: an answer is blank: {value!r:.120}", remedy=remedy)
        # An answer with a text can't be read if its end contradicts its length.
        end = entry.get("answer_end", entry.get("end", column_end))
        if not is_empty_cell(end):
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
