"""Which of many vectors are near: exactly, in blocks, so that memory holds no matrix of all against all; and the lines
that say it of texts.

Letters: Q queries, N rows, B rows of a block, D size of a vector, K nearest rows of each query.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bertctl.arrays import Floats, Floats32, Ints
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from bertctl.inference.carried_columns import shown_name
from bertctl.metrics.regression import pearson, spearman
from bertctl.progress import SILENT, Listener
from bertctl.words import as_number, count

Pairs = tuple[Ints, Ints, Floats32]
"""Numbers of rows, those of their partners, and their cosines."""

_CLOSE = 1e-5
"""More than rounding takes from a product of two vectors of length 1 in fp32, whatever their size."""

_SAME = 5e-7
"""Half of the last of six decimals: equal texts have a cosine of 1, of which fp32 may lose that much."""

_SCORES = 1 << 22  # of a block against the queries, in memory at once (16 MB)
_AGAIN = 1 << 13  # pairs that are computed again at once
_BLOCK = 1024  # rows on each side of a block of pairs


def block_rows(queries: int) -> int:
    """Returns how many rows are compared with so many queries at once."""
    return min(max(_SCORES // queries, 1024), 1 << 14)


class Nearest:
    """Keeps the K nearest rows of each of Q queries while all rows go by in blocks; of equally near ones the first.

    A block is compared in fp32. What comes near the K-th is computed again in fp64, the same way wherever a row stands,
    so that equal rows are equally near.

    Args:
        queries: (Q, D) of length 1.
        top: K.

    Attributes:
        rows: (Q, K) numbers of the nearest rows, the nearest first; of fewer than K rows all.
        scores: (Q, K) their cosines.
    """

    def __init__(self, queries: Floats32, top: int) -> None:
        self._queries, self._top = queries, top
        self._bound = np.full(len(queries), -np.inf, dtype=np.float32)
        self.rows: Ints = np.empty((len(queries), 0), dtype=np.int64)
        self.scores: Floats = np.empty((len(queries), 0))

    def see(self, block: Floats32, first: int) -> None:
        """Looks at (B, D) rows, the first of which has this number."""
        scores, top, n = self._queries @ block.T, self._top, len(self._queries)
        near = scores >= self._bound[:, None]
        # Of the first block, and of rows that come nearer and nearer, all would be candidates.
        if np.count_nonzero(near) > 4 * top * n and top <= len(block):
            self._bound = np.maximum(self._bound, np.partition(scores, -top, axis=1)[:, -top] - _CLOSE)
            near = scores >= self._bound[:, None]
        query, row = np.divmod(np.flatnonzero(near), len(block))  # np.nonzero takes 30 times as long
        again = [self._exact(block, query[i : i + _AGAIN], row[i : i + _AGAIN]) for i in range(0, len(row), _AGAIN)]
        score = np.concatenate([self.scores.ravel(), *again])
        query = np.concatenate([np.repeat(np.arange(n), self.rows.shape[1]), query])
        row = np.concatenate([self.rows.ravel(), row + first])
        order = np.lexsort((row, -score, query))
        place = np.arange(len(order)) - np.searchsorted(query[order], np.arange(n))[query[order]]
        order = order[place < top].reshape(n, -1)
        self.rows, self.scores = row[order], score[order]
        if order.shape[1] == top:
            self._bound = np.maximum(self._bound, self.scores[:, -1] - _CLOSE).astype(np.float32)

    def _exact(self, block: Floats32, query: Ints, row: Ints) -> Floats:
        a, b = (each.astype(np.float64) for each in (self._queries[query], block[row]))
        return np.asarray((a * b).sum(axis=1))


def recall(found: Ints, right: Ints) -> float:
    """Returns the share of the (Q, K) right rows that were found, as a mean over queries."""
    return float(np.mean([np.isin(those, some).mean() for some, those in zip(found, right, strict=True)]))


def row_by_row(first: Floats32, second: Floats32) -> Pairs:
    """Returns each row of (N, D) vectors with that of others."""
    return (rows := np.arange(len(first))), rows, (first * second).sum(axis=1)


def pairs_above(threshold: float, first: Floats32, second: Floats32 | None = None) -> Iterator[Pairs]:
    """Yields every pair of rows whose cosine, to six decimals, is the threshold or more, some at a time.

    Args:
        threshold: a cosine.
        first: (N, D) of length 1.
        second: the others; None for pairs of the first with each other, each once.
    """
    others = first if second is None else second
    for i in range(0, len(first), _BLOCK):
        for j in range(i if second is None else 0, len(others), _BLOCK):
            scores = first[i : i + _BLOCK] @ others[j : j + _BLOCK].T
            near = scores >= threshold - _SAME
            near = np.triu(near, 1) if second is None and i == j else near
            row, column = np.divmod(np.flatnonzero(near), scores.shape[1])
            yield row + i, column + j, scores[row, column]


def both_sides(first: Rows, second: Rows | None, *, every: bool) -> tuple[Rows, Rows]:
    """Returns the texts that are compared with each other.

    Args:
        first: texts, or pairs of them.
        second: what they are compared with; None where that is their second texts, or they are themselves.
        every: whether each is compared with each, and not row by row.

    Raises:
        UsageError: one text, or one column of them, and nothing to compare it with.
        DataError: other numbers of rows, where they are compared row by row.
    """
    if second is None and len(first) == 1 and not first.has("pair"):
        raise UsageError(f"{first.source} has one text", remedy="Give a second one, or a file, to compare it with.")
    if second is None and not (first.has("pair") or every):
        raise UsageError(f"{first.source} has one column of texts", remedy="Give what it is compared with, or --all.")
    if second is None:
        second = replace(first, columns={"text": first.columns["pair"]}) if first.has("pair") else first
    if not every and len(first) != len(second):
        told = f"{first.source} has {len(first):,} rows, {second.source} {len(second):,}"
        raise DataError(told, remedy="Add --all to compare each with each.")
    return first, second


def correlation(rows: Rows, cosines: Floats32, listener: Listener = SILENT) -> dict[str, Any]:
    """Returns how (N,) cosines go with the scores that people gave the pairs; nothing where the rows have none.

    Nor is there anything of fewer than three pairs, or of scores that are all the same. The listener is warned of rows
    that have no score, which are left out.
    """
    gold = np.array([as_number(label) for label in rows.columns.get("label", ())])
    is_score = np.isfinite(gold)
    if not is_score.any():  # no scores, or words
        return {}
    if not is_score.all():
        first = int(np.argmin(is_score))
        what = f"{rows.where(first)}: {rows.columns['label'][first]!r} is no score"
        listener.warn(f"{what}; the correlation leaves {count(int((~is_score).sum()), 'row')} out")
    gold, cosines = gold[is_score], cosines[is_score]
    found = {one.__name__: one(gold, cosines.astype(np.float64)).metric().as_json() for one in (spearman, pearson)}
    return {name: figure for name, figure in found.items() if figure["low"] is not None}


def pair_lines(first: Rows, second: Rows, pairs: Iterable[Pairs]) -> Iterator[dict[str, Any]]:
    """Yields a line for each pair of rows: ids, cosine, texts."""
    column = shown_name("text", first)  # another one where the file calls something else text
    for rows, others, cosines in pairs:
        for i, j, cosine in zip(rows.tolist(), others.tolist(), cosines.tolist(), strict=True):
            texts = {column: first.columns["text"][i], "pair": second.columns["text"][j]}
            yield {"id": first.answer_id(i), "pair_id": second.answer_id(j), "similarity": round(cosine, 6), **texts}
