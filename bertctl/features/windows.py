"""Rows in the portions they are worked on in: the same ones in every attempt and in every process."""

import itertools
from collections.abc import Iterable, Iterator

from bertctl.data.rows import Rows
from bertctl.errors import DataError

WINDOW_ROWS = 8192
"""Rows sorted by length together: 64 batches and more, so nearly all of a batch have one length."""
WINDOW_CHARACTERS = 2_000_000
"""A window ends with the portion of rows that reaches this many, so that long texts take no more memory."""
PORTION = 256
"""Rows read at once."""

_WINDOW_NUMBERS = 1 << 25  # of token vectors in memory at once (128 MB); a row has as many as it has tokens


def peeked(portions: Iterable[Rows], source: str) -> Iterator[Rows]:
    """The same portions, once there is a first one.

    Raises:
        DataError: there is none; or whatever its reading raises.
    """
    left = iter(portions)
    first = next(left, None)
    if first is None or not len(first):
        raise DataError(f"{source} has no rows", remedy="Give texts, one a line, or a file with rows.")
    return itertools.chain([first], left)


def windows(portions: Iterable[Rows]) -> Iterator[Rows]:
    """Portions put together until there are `WINDOW_ROWS` rows or `WINDOW_CHARACTERS` characters."""
    kept: list[Rows] = []
    count = characters = 0
    for rows in portions:
        kept.append(rows)
        count += len(rows)
        characters += sum(map(len, rows.columns["text"]))
        if count >= WINDOW_ROWS or characters >= WINDOW_CHARACTERS:
            yield _together(kept)
            kept, count, characters = [], 0, 0
    if kept:
        yield _together(kept)


def portions_of(rows: Rows) -> Iterator[Rows]:
    """Rows that are in memory, as portions."""
    for first in range(0, len(rows), PORTION):
        yield rows.select(range(first, min(first + PORTION, len(rows))))


def _together(parts: list[Rows]) -> Rows:
    names = dict.fromkeys(name for rows in parts for name in rows.columns)
    return Rows(
        split=parts[0].split,
        columns={
            name: [value for rows in parts for value in rows.columns.get(name, [None] * len(rows))] for name in names
        },
        ids=[identity for rows in parts for identity in rows.ids],
        source=parts[0].source,
        lines=[line for rows in parts for line in rows.lines],
    )


def memory_pieces(rows: Rows, by_token: bool, per_token: int) -> Iterator[Rows]:
    """A window of token vectors in pieces that fit into memory: a character is at most about one token."""
    if not by_token:
        yield rows
        return
    limit = max(1, _WINDOW_NUMBERS // per_token)
    first = characters = 0
    for i, text in enumerate(rows.columns["text"]):
        if i > first and characters + len(text) // 3 > limit:
            yield rows.select(range(first, i))
            first, characters = i, 0
        characters += len(text) // 3 + 2
    yield rows.select(range(first, len(rows)))
