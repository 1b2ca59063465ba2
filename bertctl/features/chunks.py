"""Rows in the chunks that are worked on at once.

They are the same ones in every attempt and in every process.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from bertctl.data.packed_columns import column_of, int_column
from bertctl.data.rows import Rows, joined_columns
from bertctl.errors import DataError

READ_ROWS = 256
"""Rows read at once."""
CHUNK_ROWS = 8192
"""Rows sorted by length together: 64 batches and more, so nearly all of a batch have one length."""
CHUNK_CHARACTERS = 2_000_000
"""A chunk ends with the rows that reach this many characters, so that long texts take no more
memory."""

# Numbers of token vectors in memory at once (128 MB). A row has as many vectors as tokens.
_TOKEN_NUMBERS = 1 << 25


def require_rows(stream: Iterable[Rows], source: str) -> Iterator[Rows]:
    """Returns the same stream, whose first rows have been read to see that there are some.

    Raises:
        DataError: The stream has no rows; or whatever its reading raises.
    """
    rest = iter(stream)
    first_rows = next(rest, None)
    if first_rows is None or not len(first_rows):
        raise DataError(
            f"{source} has no rows", remedy="Give texts, one per line, or a file with rows."
        )
    return itertools.chain([first_rows], rest)


def chunks(stream: Iterable[Rows]) -> Iterator[Rows]:
    """Yields the rows in chunks of at least `CHUNK_ROWS` rows or `CHUNK_CHARACTERS` characters.

    The last chunk has what is left.
    """
    pending: list[Rows] = []
    count = characters = 0
    for rows in stream:
        pending.append(rows)
        count += len(rows)
        characters += sum(map(len, rows.columns["text"]))
        if count >= CHUNK_ROWS or characters >= CHUNK_CHARACTERS:
            yield joined(pending)
            pending = []
            count = 0
            characters = 0
    if pending:
        yield joined(pending)


def joined(parts: list[Rows]) -> Rows:
    """Returns the rows of several parts of one source, with the columns that any of them has."""
    import numpy as np

    together = itertools.chain.from_iterable
    lines = np.fromiter(together(rows.lines for rows in parts), dtype=np.int64)
    return replace(
        parts[0],
        columns=joined_columns(parts),
        ids=column_of(together(rows.ids for rows in parts)),
        lines=int_column(lines),
        numbers=(),
        groups=(),
        file_ids=column_of(together(rows.file_ids for rows in parts)),
    )


def split_for_memory(rows: Rows, numbers_per_token: int) -> Iterator[Rows]:
    """Yields the parts of a chunk, so small that the token vectors of each fit into memory.

    How many tokens a text has is estimated by its characters.

    Args:
        rows: A chunk of rows.
        numbers_per_token: Numbers of all vectors of a token.
    """
    # Tokens of a part; a text with more is a part by itself.
    limit = max(1, _TOKEN_NUMBERS // numbers_per_token)
    begin = 0
    n_tokens = 0
    for i, text in enumerate(rows.columns["text"]):
        # A token has about three characters, and a text two special tokens.
        if i > begin and n_tokens + len(text) // 3 > limit:
            yield rows.select(range(begin, i))
            begin = i
            n_tokens = 0
        n_tokens += len(text) // 3 + 2
    yield rows.select(range(begin, len(rows)))
