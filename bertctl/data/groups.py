"""Rows that belong together.

They have equal texts, are questions about one article, or sentences of one document. They stay on
one side of a hold-out, and are no independent examples of a metric.
"""

import unicodedata
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache

import numpy as np

from bertctl.arrays import Ints, sorted_unique
from bertctl.data.packed_columns import int_column, is_packed
from bertctl.data.rows import Rows, is_missing

_SALT = "\x1f"


def group_keys(rows: Rows, columns: Sequence[str]) -> Sequence[Hashable]:
    """Returns one key per row, equal for rows that belong together by one of the columns.

    Columns are tried in order. A column that the rows lack, or that would make all rows one group,
    is skipped. If all columns are skipped, each row is a group of its own.

    Args:
        rows: A split.
        columns: Names of the columns to try, the one with the widest groups first. Texts are
            compared without case and spacing. A row with a blank value is a group of its own.
    """
    for name in columns:
        if not rows.has(name):
            continue
        if is_packed(rows.columns[name]):
            # A packed column may be too large for a Python object per row, so its keys are numbers:
            # the position of the first row with the same value.
            first_rows = first_positions(map(_text_key, rows.columns[name]))
            if len(sorted_unique(first_rows)) > 1:
                return int_column(first_rows)
        else:
            keys = [_key(value, index) for index, value in enumerate(rows.columns[name])]
            if len(set(keys)) > 1:
                return keys
    return int_column(np.arange(len(rows)))  # a key of its own for each row


def _key(value: object, index: int) -> Hashable:
    """Returns the text of a value, or for a missing one the number of its row."""
    return _text_key(value) or index


def _text_key(value: object) -> str:
    """Returns a text that is equal for values that belong together.

    It is empty for a missing value, which belongs together with no other.
    """
    if isinstance(value, str):
        return normalised(value)
    if is_missing(value):
        return ""
    return repr(value)


def number_of_groups(keys: Sequence[Hashable]) -> int:
    """Returns how many different keys there are."""
    if isinstance(keys, array):
        return len(sorted_unique(np.asarray(keys)))
    return len(set(keys))


def size_of_largest(keys: Sequence[Hashable]) -> int:
    """Returns the number of rows with the most frequent key."""
    if isinstance(keys, array):
        _, sizes = np.unique(keys, return_counts=True)
        return int(sizes.max())
    return max(Counter(keys).values(), default=0)


def first_positions(keys: Iterable[str]) -> Ints:
    """Returns for each key the position of the first key that equals it, (N,).

    A blank key equals no other key: `["a", "b", "a", ""]` -> `[0, 1, 0, 3]`. Keys are compared by
    128 bits of their hashes, so that no key has to be held in memory.
    """
    hashes = array("q")
    other_hashes = array("q")
    is_blank = bytearray()
    for key in keys:
        hashes.append(hash(key))
        other_hashes.append(hash(f"{key}{_SALT}"))
        is_blank.append(not key)

    # Sorted by their hashes, equal keys are groups, each in the order of its keys' positions.
    low = np.frombuffer(hashes, dtype=np.int64)
    high = np.frombuffer(other_hashes, dtype=np.int64)
    order = np.lexsort((high, low))
    # A group begins where either of the two hashes differs from the one before.
    begins_group = np.zeros(len(order), dtype=np.bool_)
    begins_group[:1] = True
    for half in (low, high):
        ordered = half[order]
        begins_group[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(begins_group)
    sizes = np.diff(starts, append=len(order))

    # Each key gets the position of its group's first key.
    positions = np.empty(len(order), dtype=np.int64)
    positions[order] = np.repeat(order[starts], sizes)
    blank_positions = np.flatnonzero(np.frombuffer(is_blank, dtype=np.bool_))
    positions[blank_positions] = blank_positions
    return positions


@lru_cache(maxsize=4096)  # contexts of question answering stand many times, one after the other
def normalised(text: str) -> str:
    """Returns a text as it is compared: without case, with single spaces, in Unicode's form NFKC.

    `" Good   Film"` and `"ｇｏｏｄ film"` -> `"good film"`.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())
