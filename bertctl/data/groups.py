"""Rows that hang together: equal texts, the questions about one article, the sentences of one document.

They stay on one side of a hold-out, and they are no independent examples of a metric.
"""

import unicodedata
from collections.abc import Hashable, Sequence
from functools import lru_cache

from bertctl.data.rows import Rows, is_missing


def group_keys(rows: Rows, columns: Sequence[str]) -> list[Hashable]:
    """Returns one key per row, the same for rows that hang together.

    Args:
        rows: a split.
        columns: those that may tell, the widest first: the first that the rows have, and with several values, does.
            Texts are compared without case and spacing; a row whose value is blank hangs together with no other.
    """
    for name in columns:
        if rows.has(name):
            keys = [_key(value, index) for index, value in enumerate(rows.columns[name])]
            if len(set(keys)) > 1:
                return keys
    return list(range(len(rows)))


def _key(value: object, index: int) -> Hashable:
    if isinstance(value, str):
        return normalised(value) or index
    if is_missing(value):
        return index
    return repr(value)


@lru_cache(maxsize=4096)  # contexts of question answering stand many times, one after the other
def normalised(text: str) -> str:
    """Returns Unicode's compatibility form without case, one space where there is any: full-width letters are plain."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())
