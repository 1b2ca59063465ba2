"""Tables with a word on each row, as tables of sentences.

Kaggle's and simpletransformers' CSV files are such tables.

Sentence #,Word,Tag
Sentence: 1,Anna,B-PER      the number stands at every word, or at the first of its sentence alone
,sleeps,O
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bertctl.data.rows import is_missing
from bertctl.data.table import Table
from bertctl.errors import DataError

_SENTENCE_NAMES = frozenset(
    {
        "sentence #",
        "sentence_id",
        "sentence id",
        "sentence_idx",
        "sentence_no",
        "sentenceid",
        "sent_id",
        "sentence",
    }
)
_WORD_NAMES = ("word", "words", "token", "tokens", "form")
_NUMBER = re.compile(r"(?:[A-Za-z]+\W*)?\d+(?:\.0)?")


def sentence_column(names: Iterable[str]) -> str | None:
    """Returns the column that numbers sentences, by its names; else None.

    The table has a word on each row.
    """
    by_name = {name.strip().casefold(): name for name in names}
    if not any(name in by_name for name in _WORD_NAMES):
        return None
    return next((by_name[name] for name in by_name if name in _SENTENCE_NAMES), None)


def sentences_of_words(tables: Iterable[Table]) -> Iterator[Table]:
    """Yields tables of sentences: each other column is a list of its words' values.

    Raises:
        DataError: a row without a word, a sentence that goes on after another one; with file and
            line.
    """
    blocks: list[list[tuple[Table, int]]] = []
    finished_numbers: set[str] = set()
    column = ""
    for table in tables:
        numbers = sentence_column(table.columns)
        # The first table decides.
        if numbers is None or not (column or _is_word_table(table, numbers)):
            yield table
            continue
        column = numbers
        if len(blocks) > 1:  # the last sentence may go on in this table
            yield _joined(blocks[:-1], column)
            del blocks[:-1]
        for row, number in enumerate(table.columns[column]):
            goes_on = bool(blocks) and (
                _is_blank(number) or str(number) == _number_of(blocks[-1], column)
            )
            if not goes_on:
                if str(number) in finished_numbers:
                    message = (
                        f"{table.where(row)}: the sentence '{number}' has begun before another one"
                    )
                    raise DataError(
                        message,
                        remedy=f"Sort the rows by '{column}', so that a sentence stands together.",
                    )
                finished_numbers.add(str(number))
                blocks.append([])
            blocks[-1].append((table, row))
    if blocks:
        yield _joined(blocks, column)


def _is_word_table(table: Table, column: str) -> bool:
    """Whether the words are single words, and the sentences' column has numbers."""
    word = _word_column(table)
    numbers = [str(value) for value in table.columns[column] if not _is_blank(value)]
    return (
        bool(numbers)
        and all(map(_NUMBER.fullmatch, numbers))
        and not any(isinstance(value, list | tuple) for value in table.columns[word])
    )


def _word_column(table: Table) -> str:
    by_name = {name.strip().casefold(): name for name in table.columns}
    return next(by_name[name] for name in _WORD_NAMES if name in by_name)


def _number_of(block: Sequence[tuple[Table, int]], column: str) -> str:
    """Returns the number of a sentence, which is at its first word."""
    table, row = block[0]
    return str(table.columns[column][row])


def _is_blank(value: Any) -> bool:
    return is_missing(value) or str(value).strip() == ""


def _joined(blocks: Sequence[Sequence[tuple[Table, int]]], column: str) -> Table:
    """Returns a table with a row for each block of rows."""
    first, first_row = blocks[0][0]
    word = _word_column(first)
    columns: dict[str, list[Any]] = {name: [] for name in first.columns}
    for block in blocks:
        for table, row in block:
            if _is_blank(table.columns[word][row]):
                message = f"{table.where(row)}: no word in the column '{word}'"
                raise DataError(message, remedy="Write the word, or take the row out.")
        for name, sentences in columns.items():
            values = [table.columns[name][row] for table, row in block]
            sentences.append(values[0] if name == column else values)
    columns[word] = [[str(value) for value in values] for values in columns[word]]
    beginnings = [block[0] for block in blocks]
    if first.lines:
        lines = [table.lines[row] for table, row in beginnings]
    else:
        lines = []
    if lines:
        numbers = []
    else:
        numbers = [table.number(row) for table, row in beginnings]
    return Table(
        columns,
        first.source,
        lines,
        header=first.header,
        first=first.number(first_row) - 1,
        numbers=numbers,
    )
