"""Which of many vectors are near.

It is exact, in blocks, so that memory holds no matrix of all against all. It also makes the lines
that say it of texts.

Letters: Q queries, N rows, B rows of a block, D size of a vector, K nearest rows of each query.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bertctl.arrays import Bools, Floats, Floats32, Ints
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from bertctl.inference.carried_columns import shown_name
from bertctl.metrics.regression import pearson, spearman
from bertctl.metrics.similarity import COSINE, exact_similarities, similarity_matrix
from bertctl.progress import SILENT, Listener
from bertctl.words import as_number, count

Pairs = tuple[Ints, Ints, Floats32]
"""Numbers of rows, those of their partners, and their similarities."""

_CLOSE = 1e-5
"""More than rounding takes from a product of two vectors of length 1 in fp32, whatever their
size."""

_DECIMALS = 6
"""Of a similarity in an answer."""

_DISTANCES = ("euclidean", "manhattan")

_SAME = 5e-7
"""Half of the last of six decimals: equal texts have a cosine of 1, of which fp32 may lose that
much."""

_SCORES = 1 << 22  # of a block against the queries, in memory at once (16 MB)
_AGAIN = 1 << 13  # pairs that are computed again at once
_BLOCK = 1024  # rows on each side of a block of pairs


def block_rows(queries: int) -> int:
    """Returns how many rows are compared with so many queries at once."""
    return min(max(_SCORES // queries, 1024), 1 << 14)


class Nearest:
    """Keeps the K nearest rows of each of Q queries while all rows go by in blocks.

    On a tie it keeps the first.

    A block is compared in fp32, by distances in fp64. What comes near the K-th is computed again in
    fp64, the same way wherever a row stands, so that equal rows are equally near.

    Args:
        queries: (Q, D); for cosines of length 1, as the rows are.
        top: Number of nearest rows to find, K.
        measure: Similarity by which rows are near, one of `MEASURES`.

    Attributes:
        rows: (Q, K) numbers of the nearest rows, the nearest first; of fewer than K rows all.
        scores: (Q, K) their similarities.
    """

    def __init__(self, queries: Floats32, top: int, measure: str = COSINE) -> None:
        self._queries = queries
        self._top = top
        self._measure = measure
        self._kth = np.full(len(queries), -np.inf)  # similarity of the K-th nearest row so far
        self._lengths = np.linalg.norm(queries, axis=1)
        self.rows: Ints = np.empty((len(queries), 0), dtype=np.int64)
        self.scores: Floats = np.empty((len(queries), 0))

    def see(self, block: Floats32, first_row: int) -> None:
        """Compares the next rows with all queries, and keeps the K nearest of those so far.

        All similarities are computed in fp32 first. Those that may be among the K best are computed
        again exactly, merged with the K of the rows before, and sorted.

        Args:
            block: (B, D) vectors of the next rows.
            first_row: Number of the first of these rows.
        """
        top = self._top
        n_queries = len(self._queries)
        scores, rounding = self._compare(block)
        bound = (self._kth - rounding).astype(np.float32)
        is_candidate = scores >= bound[:, None]
        # Of the first block, and of rows that come nearer and nearer, all would be candidates.
        # The K-th nearest row of the block itself is then the better bound.
        has_many_candidates = np.count_nonzero(is_candidate) > 4 * top * n_queries
        if has_many_candidates and top <= len(block):
            kth_of_block = np.partition(scores, -top, axis=1)[:, -top]
            bound = np.maximum(bound, kth_of_block - rounding.astype(np.float32))
            is_candidate = scores >= bound[:, None]
        # (P,) the query and the row of each candidate. np.nonzero takes 30 times as long.
        query, row = np.divmod(np.flatnonzero(is_candidate), len(block))
        exact_scores = [
            self._exact(block, query[i : i + _AGAIN], row[i : i + _AGAIN])
            for i in range(0, len(row), _AGAIN)
        ]
        # The K nearest rows so far and the candidates, as three columns.
        score = np.concatenate([self.scores.ravel(), *exact_scores])
        query = np.concatenate([np.repeat(np.arange(n_queries), self.rows.shape[1]), query])
        row = np.concatenate([self.rows.ravel(), row + first_row])

        # By query, then the nearest first, then the first row first; the first K of each stay.
        order = np.lexsort((row, -score, query))
        sorted_query = query[order]
        first_of_query = np.searchsorted(sorted_query, np.arange(n_queries))
        rank = np.arange(len(order)) - first_of_query[sorted_query]
        order = order[rank < top].reshape(n_queries, -1)
        self.rows = row[order]
        self.scores = score[order]
        if order.shape[1] == top:
            self._kth = np.maximum(self._kth, self.scores[:, -1])

    def _compare(self, block: Floats32) -> tuple[Floats32, Floats]:
        """Returns (Q, B) similarities in fp32, and (Q,) upper bounds of their rounding.

        Rounding grows with the numbers: with distances, or with products of the vectors' lengths.
        """
        if self._measure in _DISTANCES:
            scores = similarity_matrix(self._measure, self._queries, block).astype(np.float32)
            farthest = np.abs(scores).max(axis=1, initial=0.0).astype(np.float64)
            return scores, _CLOSE * farthest
        scores = self._queries @ block.T
        if self._measure == COSINE:
            return scores, np.full(len(scores), _CLOSE)
        longest = float(np.linalg.norm(block, axis=1).max(initial=0.0))
        return scores, _CLOSE * longest * self._lengths.astype(np.float64)

    def _exact(self, block: Floats32, query: Ints, row: Ints) -> Floats:
        """Returns (P,) the exact similarities of pairs of a query and a row of the block."""
        return exact_similarities(self._measure, self._queries[query], block[row])


def recall(approximate: Ints, exact: Ints) -> float:
    """Returns the share of the nearest rows that an approximate search has found.

    Args:
        approximate: (Q, K) the rows that it has found for each query.
        exact: (Q, K) the nearest rows, by an exact search.
    """
    shares = [
        np.isin(exact_rows, approximate_rows).mean()
        for approximate_rows, exact_rows in zip(approximate, exact, strict=True)
    ]
    return float(np.mean(shares))


def row_by_row(first: Floats32, second: Floats32, measure: str = COSINE) -> Pairs:
    """Returns the pairs of equally numbered rows: row 0 with row 0, row 1 with row 1.

    Args:
        first: (N, D) vectors; for cosines of length 1.
        second: (N, D) vectors of their partners.
        measure: Similarity by which they are compared, one of `MEASURES`.
    """
    rows = np.arange(len(first))
    return rows, rows, exact_similarities(measure, first, second).astype(np.float32)


def pairs_above(
    threshold: float, first: Floats32, second: Floats32 | None = None, measure: str = COSINE
) -> Iterator[Pairs]:
    """Yields every pair of rows whose similarity, to six decimals, is the threshold or more.

    The pairs come block by block.

    Args:
        threshold: A similarity.
        first: (N, D); for cosines of length 1.
        second: (M, D) vectors that they are compared with; None for pairs of the first with each
            other, each once.
        measure: Similarity by which rows are compared, one of `MEASURES`.
    """
    partners = first if second is None else second
    for i in range(0, len(first), _BLOCK):
        # Pairs of rows with each other: blocks before this one have had their turn.
        first_partner = i if second is None else 0
        for j in range(first_partner, len(partners), _BLOCK):
            scores = _block_similarities(measure, first[i : i + _BLOCK], partners[j : j + _BLOCK])
            is_near = reaches(scores, threshold)
            if second is None and i == j:
                is_near = np.triu(is_near, 1)  # each pair once, and no row with itself
            row, column = np.divmod(np.flatnonzero(is_near), scores.shape[1])
            yield row + i, column + j, scores[row, column]


def reaches(similarities: Floats32, threshold: float) -> Bools:
    """Returns which similarities are the threshold or more, to six decimals."""
    return np.asarray(similarities >= threshold - _SAME)


def _block_similarities(measure: str, first: Floats32, second: Floats32) -> Floats32:
    """Returns (B, B) similarities of each row with each."""
    if measure == COSINE:
        return np.asarray(first @ second.T)
    return similarity_matrix(measure, first, second).astype(np.float32)


class NearestPairs:
    """Keeps the N nearest of all pairs that go by, and counts them.

    On a tie it keeps those of the first rows.

    Args:
        n_pairs: Number of pairs that are kept, N.

    Attributes:
        seen: How many pairs have gone by.
    """

    def __init__(self, n_pairs: int) -> None:
        self._n_pairs = n_pairs
        self._kept: Pairs = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
        self.seen = 0

    def see(self, pairs: Pairs) -> None:
        """Takes some pairs, in any order, and keeps the nearest of all so far."""
        self.seen += len(pairs[0])
        rows = np.concatenate([self._kept[0], pairs[0]])
        partners = np.concatenate([self._kept[1], pairs[1]])
        scores = np.concatenate([self._kept[2], pairs[2]])
        # Rounded as they are shown: pairs that look equal are in the order of their rows.
        shown_scores = np.round(scores.astype(np.float64), _DECIMALS)
        order = np.lexsort((partners, rows, -shown_scores))[: self._n_pairs]
        self._kept = (rows[order], partners[order], scores[order])

    def nearest(self) -> Pairs:
        """Returns the pairs, the nearest first."""
        return self._kept


def both_sides(first: Rows, second: Rows | None, *, all_pairs: bool) -> tuple[Rows, Rows]:
    """Returns the texts of both sides of a comparison.

    Without a second input, the second side is the column `pair` of the first input. Without such a
    column, the texts of the first input are compared with each other.

    Args:
        first: Rows of the first input: texts, or pairs of texts.
        second: Rows of the second input; None without.
        all_pairs: Whether each text is compared with each, instead of row by row.

    Raises:
        UsageError: One text, or one column of texts, and nothing to compare it with.
        DataError: Different numbers of rows, if they are compared row by row.
    """
    if second is None and len(first) == 1 and not first.has("pair"):
        raise UsageError(
            f"{first.source} has one text",
            remedy="Give a second one, or a file, to compare it with.",
        )
    if second is None and not (first.has("pair") or all_pairs):
        raise UsageError(
            f"{first.source} has one column of texts",
            remedy="Give a second text or file to compare with, or `all=True`.",
        )
    if second is None:
        if first.has("pair"):
            second = replace(first, columns={"text": first.columns["pair"]})
        else:
            second = first
    if not all_pairs and len(first) != len(second):
        message = f"{first.source} has {len(first):,} rows, {second.source} {len(second):,}"
        raise DataError(message, remedy="Add `all=True` to compare each with each.")
    return first, second


def correlation(rows: Rows, cosines: Floats32, listener: Listener = SILENT) -> dict[str, Any]:
    """Returns how similarities correlate with the scores that people gave the pairs.

    These are Spearman's and Pearson's correlation by name, with intervals. Correlations that are
    not defined are left out: those of fewer than three pairs, or of scores that are all the same.
    Without any scores the result is empty.

    Args:
        rows: The N pairs; their column `label` has the scores, if there are any. Pairs without a
            score are left out.
        cosines: (N,) similarities of the pairs.
        listener: Receives a warning of pairs without a score.
    """
    gold = np.array([as_number(label) for label in rows.columns.get("label", ())])
    is_score = np.isfinite(gold)
    if not is_score.any():  # no scores, or words
        return {}
    if not is_score.all():
        first_unscored = int(np.argmin(is_score))
        label = rows.columns["label"][first_unscored]
        message = f"{rows.where(first_unscored)}: {label!r} is not a score"
        listener.warn(
            f"{message}; the correlation leaves {count(int((~is_score).sum()), 'row')} out"
        )
    gold = gold[is_score]
    cosines = cosines[is_score]
    figures = {
        statistic.__name__: statistic(gold, cosines.astype(np.float64)).metric().as_json()
        for statistic in (spearman, pearson)
    }
    return {name: figure for name, figure in figures.items() if figure["low"] is not None}


def pair_lines(
    first: Rows,
    second: Rows,
    pairs: Iterable[Pairs],
    unreadable: Collection[int] = (),
    unreadable_seconds: Collection[int] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields a line for each pair of rows: ids, similarity, texts.

    A model may know no token of some texts, so that their vectors say nothing. If there are such
    texts, every line has `unknown`: `text`, `pair`, `text and pair`, or nothing.

    Args:
        first: Texts of the first side.
        second: Texts of the second side.
        pairs: Numbers of the rows of both sides, with their similarities.
        unreadable: Numbers of rows of the first side of which no token is known.
        unreadable_seconds: The same for the second side; None if both sides are the same texts.
    """
    if unreadable_seconds is None:
        unreadable_seconds = unreadable
    has_unknown = bool(unreadable or unreadable_seconds)
    column = shown_name("text", first)  # not "text" if the file has another column of this name
    for rows, partners, similarities in pairs:
        for i, j, similarity in zip(
            rows.tolist(), partners.tolist(), similarities.tolist(), strict=True
        ):
            ids = {"id": first.answer_id(i), "pair_id": second.answer_id(j)}
            line = {**ids, "similarity": round(similarity, _DECIMALS)}
            if has_unknown:
                unknown_sides = []
                if i in unreadable:
                    unknown_sides.append("text")
                if j in unreadable_seconds:
                    unknown_sides.append("pair")
                line["unknown"] = " and ".join(unknown_sides)
            yield {**line, column: first.columns["text"][i], "pair": second.columns["text"][j]}
