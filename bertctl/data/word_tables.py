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
    """Returns the column that numbers sentences in a table with a word on each row; else None.

    `["Sentence #", "Word", "Tag"]` -> `Sentence #`. It is known by its name.
    """
    name_in_file = {name.strip().casefold(): name for name in names}
    if not any(name in name_in_file for name in _WORD_NAMES):
        return None
    for name in name_in_file:
        if name in _SENTENCE_NAMES:
            return name_in_file[name]
    return None


def sentences_of_words(tables: Iterable[Table]) -> Iterator[Table]:
    """Yields tables with a row per sentence, made of tables with a word on each row.

    Rows `1,Anna,B-PER` and `1,sleeps,O` become one: `1`, `["Anna", "sleeps"]`, `["B-PER", "O"]`.
    Other tables stay as they are. After a chunk with a word on each row, the later chunks of the
    file are taken to be such tables, too.

    Args:
        tables: Chunks of one file. A sentence may begin in one and end in the next.

    Raises:
        DataError: A row without a word, or a sentence that continues after another one; with file
            and line.
    """
    # Sentences that were not yielded yet: of each, its rows as chunk and position in it.
    sentences: list[list[tuple[Table, int]]] = []
    numbers_seen: set[str] = set()
    column = ""  # with the numbers of the sentences; empty until a chunk has a word on each row
    for table in tables:
        number_column = sentence_column(table.columns)
        if number_column is None:
            yield table
            continue
        continues_file = column != ""
        if not continues_file and not _is_word_table(table, number_column):
            yield table
            continue
        column = number_column
        if len(sentences) > 1:  # the last sentence may continue in this table
            yield _joined(sentences[:-1], column)
            del sentences[:-1]
        for row, number in enumerate(table.columns[column]):
            # The number stands at each word, or only at the first word of a sentence.
            continues = bool(sentences) and (
                _is_blank(number) or str(number) == _number_of(sentences[-1], column)
            )
            if not continues:
                if str(number) in numbers_seen:
                    message = (
                        f"{table.where(row)}: the sentence '{number}' has begun before another one"
                    )
                    raise DataError(
                        message,
                        remedy=f"Sort the rows by '{column}', so that a sentence stands together.",
                    )
                numbers_seen.add(str(number))
                sentences.append([])
            sentences[-1].append((table, row))
    if sentences:
        yield _joined(sentences, column)


def _is_word_table(table: Table, column: str) -> bool:
    """Returns whether the words are single words, and the column `column` numbers sentences."""
    numbers = [str(value) for value in table.columns[column] if not _is_blank(value)]
    are_numbers = bool(numbers) and all(map(_NUMBER.fullmatch, numbers))
    words = table.columns[_word_column(table)]
    return are_numbers and not any(isinstance(value, list | tuple) for value in words)


def _word_column(table: Table) -> str:
    """Returns the column with the words, which the table is known to have."""
    by_name = {name.strip().casefold(): name for name in table.columns}
    return next(by_name[name] for name in _WORD_NAMES if name in by_name)


def _number_of(sentence: Sequence[tuple[Table, int]], column: str) -> str:
    """Returns the number of a sentence, which is at its first word."""
    table, row = sentence[0]
    return str(table.columns[column][row])


def _is_blank(value: Any) -> bool:
    """Returns whether a cell is empty, or has nothing but blanks."""
    return is_missing(value) or str(value).strip() == ""


def _joined(sentences: Sequence[Sequence[tuple[Table, int]]], column: str) -> Table:
    """Returns a table with a row per sentence: its number, and a list of each other column.

    Args:
        sentences: The rows of each sentence: the chunk of the file, and the position in the chunk.
        column: Name of the column with the numbers of the sentences.

    Raises:
        DataError: A row has no word.
    """
    first_table, first_row = sentences[0][0]  # that of the first word
    word = _word_column(first_table)
    columns: dict[str, list[Any]] = {name: [] for name in first_table.columns}
    for sentence in sentences:
        for table, row in sentence:
            if _is_blank(table.columns[word][row]):
                message = f"{table.where(row)}: no word in the column '{word}'"
                raise DataError(message, remedy="Write the word, or take the row out.")
        for name, cells in columns.items():
            values = [table.columns[name][row] for table, row in sentence]
            if name == column:
                cells.append(values[0])
            else:
                cells.append(values)
    columns[word] = [[str(value) for value in values] for values in columns[word]]
    lines: list[int] = []
    numbers: list[int] = []
    for sentence in sentences:
        table, row = sentence[0]  # a sentence is where its first word is
        if first_table.lines:
            lines.append(table.lines[row])
        else:  # Parquet has no lines
            numbers.append(table.number(row))
    return Table(
        columns,
        first_table.source,
        lines,
        header=first_table.header,
        first=first_table.number(first_row) - 1,
        numbers=numbers,
    )
