"""What a column holds, as far as its values say: texts, classes or scores.

What the column is called does not matter.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

from bertctl.data.label_cells import FLAGS
from bertctl.data.rows import is_missing
from bertctl.data.table import Table
from bertctl.words import as_number, nearly_all, shorten

Content = Literal["text", "class", "score", "other"]

MOSTLY = 0.9
"""Share of the cells of a column that decides what it is."""

_SEEN = 2048  # values that are looked at
_FEW_CLASSES = 20  # different words that may be classes in a file of any size
_CLASS_WORDS = 4  # more words on average are a text's


def filled(values: Sequence[Any]) -> list[Any]:
    """Returns the first values of a column that are not empty, null or NaN."""
    return [value for value in values[:_SEEN] if not is_missing(value) and value != ""]


def is_mostly_empty(values: Sequence[Any]) -> bool:
    """Returns whether nearly all cells of a column are empty or blank."""
    sample = values[:_SEEN]
    n_empty = sum(value is None or not str(value).strip() for value in sample)
    return n_empty >= MOSTLY * len(sample)


def is_prose(values: Sequence[Any]) -> bool:
    """Returns whether a column holds texts that have more words, on average, than names have."""
    non_empty = filled(values)
    if content_of(non_empty) != "text":
        return False
    n_words = sum(len(value.split()) for value in non_empty)
    return n_words > _CLASS_WORDS * len(non_empty)


def are_numbers(values: Sequence[Any]) -> bool:
    """Returns whether nearly all of the values are numbers, infinite ones among them."""
    n_numbers = sum(not math.isnan(as_number(value)) for value in values)
    return nearly_all(n_numbers, len(values))


def are_flags(values: Sequence[Any]) -> bool:
    """Returns whether nearly all of the values are 0 or 1, or false or true."""
    n_flags = sum(str(value).strip() in FLAGS for value in values)
    return nearly_all(n_flags, len(values))


def is_filled(values: Sequence[Any]) -> bool:
    """Returns whether nearly all of the values are not empty, null or NaN."""
    return nearly_all(len(filled(values)), len(values[:_SEEN]))


def is_class_column(values: Sequence[Any]) -> bool:
    """Returns whether a column has few words that recur, like names of classes, and no numbers."""
    non_empty = filled(values)
    if content_of(non_empty) != "class" or are_numbers(non_empty) or are_flags(non_empty):
        return False
    n_different = len(set(map(str, non_empty)))
    return n_different <= max(_FEW_CLASSES, len(non_empty) // 10)


def _numbers(values: Sequence[Any]) -> list[float]:
    """Returns the values that are finite numbers, written as text or not."""
    return [number for number in map(as_number, values) if math.isfinite(number)]


def content_of(values: Sequence[Any]) -> Content:
    """Returns what the values of a column are.

    `["pos", "neg", "pos"]` are classes, `[0.4, 3.8]` scores, and `["so good", "too long a film"]`
    texts. Ids, dates and lists are `other`.
    """
    non_empty = filled(values)
    if not non_empty or any(isinstance(value, list | dict) for value in non_empty):
        return "other"
    if are_numbers(non_empty):
        numbers = _numbers(non_empty)
        are_integers = all(number.is_integer() for number in numbers)
        if not are_integers:
            return "score"
        if _repeat(numbers):
            return "class"
        return "other"
    texts = [str(value) for value in non_empty]
    words_per_text = sum(len(value.split()) for value in texts) / len(texts)
    if words_per_text <= _CLASS_WORDS and _repeat(texts):
        return "class"
    # Words that don't repeat are ids. But in languages that are written without blanks, a text is
    # one word, too: there, characters outside of ASCII show that it is no id.
    is_text = words_per_text > 1 or not all(value.isascii() for value in texts)
    if is_text and all(isinstance(value, str) for value in non_empty):
        return "text"
    return "other"


def _repeat(values: Sequence[Any]) -> bool:
    """Returns whether values repeat.

    There are at most two different ones, or at most half as many as rows.
    """
    n_values = len(values)
    n_different = len(set(values))
    return n_different < n_values and n_different <= max(2, n_values // 2)


def names_with_values(table: Table) -> str:
    """Returns the names of a table's columns.

    If the file has no names, each comes with the column's first value.
    """
    if table.header or not len(table):
        return ", ".join(table.columns)
    return ", ".join(
        f"{name} ('{shorten(values[0], 24)}')" for name, values in table.columns.items()
    )
