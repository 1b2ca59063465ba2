"""What a column holds, as far as its values say: texts, classes or scores, whatever the column is called."""

import ast
import contextlib
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

from bertctl.data.table import Table
from bertctl.words import as_number, shorten

Content = Literal["text", "class", "score", "other"]

MOSTLY = 0.9
"""Share of the cells of a column that decides what it is."""

_SEEN = 2048  # values that are looked at
_CLASS_WORDS = 4  # more words on average are a text's
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_NO_COMMAS = re.compile(rf"\[(?:\s*(?:{_STRING.pattern})(?=\s))+\s*(?:{_STRING.pattern})\s*\]", re.DOTALL)


def filled(values: Sequence[Any]) -> list[Any]:
    """Returns the first values that say something."""
    return [value for value in values[:_SEEN] if value is not None and value != ""]


def is_mostly_empty(values: Sequence[Any]) -> bool:
    """Returns whether hardly a value of a column says something."""
    seen = values[:_SEEN]
    return sum(value is None or not str(value).strip() for value in seen) >= MOSTLY * len(seen)


def is_prose(values: Sequence[Any]) -> bool:
    """Whether a column holds texts of more words than names have."""
    given = filled(values)
    return content_of(given) == "text" and sum(len(value.split()) for value in given) > _CLASS_WORDS * len(given)


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether nearly all of the values are numbers."""
    return 10 * len(_numbers(values)) >= 9 * len(values)


def _numbers(values: Sequence[Any]) -> list[float]:
    return [number for number in map(as_number, values) if math.isfinite(number)]


def content_of(values: Sequence[Any]) -> Content:
    """Returns what a column holds: few values that repeat are classes, numbers with decimals scores, words texts."""
    given = filled(values)
    if not given or any(isinstance(value, list | dict) for value in given):
        return "other"
    numbers = _numbers(given)
    if are_numbers(given):
        whole = all(number.is_integer() for number in numbers)
        return "score" if not whole else "class" if _repeat(numbers) else "other"
    shown = [str(value) for value in given]
    words = sum(len(value.split()) for value in shown) / len(shown)
    if words <= _CLASS_WORDS and _repeat(shown):
        return "class"
    # A word without blanks is an id; in languages without blanks it is no ASCII.
    is_text = words > 1 or not all(value.isascii() for value in shown)
    return "text" if is_text and all(isinstance(value, str) for value in given) else "other"


def _repeat(values: Sequence[Any]) -> bool:
    return len(set(values)) < len(values) and len(set(values)) <= max(2, len(values) // 2)


def names_with_values(table: Table) -> str:
    """Returns the names of a table's columns, with the first value of each where the file has no names."""
    if table.header or not len(table):
        return ", ".join(table.columns)
    return ", ".join(f"{name} ('{shorten(values[0], 24)}')" for name, values in table.columns.items())


def written_list(text: str) -> Any:
    """Returns the list that is written as a text, in JSON, in Python or as numpy shows it; else the text."""
    if not (text.lstrip().startswith(("[", "{")) and text.rstrip().endswith(("]", "}"))):
        return text
    if _NO_COMMAS.fullmatch(text.strip()):
        text = f"[{', '.join(_STRING.findall(text))}]"
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return read(text)
    return text


def with_lists(values: Sequence[Any]) -> Sequence[Any]:
    """Returns a column with lists where all of its values are lists written as texts, and else as it is."""
    if not all(isinstance(value, str) for value in values):
        return values
    found = [written_list(value) if value else None for value in values]
    return found if all(value is None or isinstance(value, list) for value in found) and any(found) else values
