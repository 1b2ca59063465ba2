"""Pairs of near texts by a graph: each text is compared with few others, not with all.

Letters: N texts, D size of a vector, U different texts, K neighbours that are asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertctl.arrays import Bools, Floats32, Ints, sorted_unique
from bertctl.metrics.similarity import COSINE, exact_similarities
from bertctl.search.graph import new_graph
from bertctl.search.nearest import Pairs, pairs_above, reaches

_FIRST_NEIGHBOURS = 16
"""Neighbours that the graph is asked for first. If all of them are near, it is asked for more."""

_MOST_NEIGHBOURS = 1024
"""Neighbours from which on it is not asked for more, even if a text has thousands of near texts."""

_AT_ONCE = 8192
"""Texts that are searched for, or pairs that are compared, at once."""

_SAMPLED_TEXTS = 200
"""Texts that recall is measured on."""


@dataclass(frozen=True)
class Recall:
    """Share of the right pairs that an approximate search finds, measured on a sample of texts.

    Attributes:
        n_texts: Texts of the sample, each of which is compared with all others.
        n_pairs: Right pairs of these texts, from an exact comparison.
        n_found: Number of these pairs that the approximate search has found, too.
    """

    n_texts: int
    n_pairs: int
    n_found: int

    def as_json(self) -> dict[str, Any]:
        """Returns the recall as `value`, with the numbers of pairs and texts that it rests on.

        The value is None if the texts of the sample have no pairs.
        """
        if self.n_pairs:
            value = self.n_found / self.n_pairs
        else:
            value = None
        return {"value": value, "pairs": self.n_pairs, "texts": self.n_texts}


class ApproximatePairs:
    """Pairs of texts whose similarity is a threshold or more, nearly all of them.

    The graph is that of Malkov & Yashunin (2018, "HNSW"), by usearch, made in one thread, so that
    the same vectors give the same pairs. Equal texts stand in it once: they would be each other's
    neighbours alone.

    Args:
        threshold: A similarity.
        vectors: (N, D); for cosines of length 1.
        first_of_equals: (N,) the first row with the same text as each row.
        measure: Similarity by which rows are compared, one that has a graph.

    Raises:
        UsageError: A measure without a graph.
        UnavailableError: usearch is not installed.
    """

    def __init__(
        self, threshold: float, vectors: Floats32, first_of_equals: Ints, measure: str = COSINE
    ) -> None:
        self._threshold = threshold
        self._vectors = vectors
        self._measure = measure
        # (U,) the first row of each different text.
        self._different = np.flatnonzero(first_of_equals == np.arange(len(vectors)))
        # (N,) which of these U texts each row has.
        self._text_numbers = np.searchsorted(self._different, first_of_equals)
        # (N,) the rows, with the rows of one text side by side.
        self._rows_by_text = np.argsort(self._text_numbers, kind="stable")
        # (U + 1,) where the rows of each text begin in them.
        sorted_numbers = self._text_numbers[self._rows_by_text]
        self._starts = np.searchsorted(sorted_numbers, np.arange(len(self._different) + 1))
        self._pair_codes = self._find()

    def pairs(self) -> Iterator[Pairs]:
        """Yields the pairs of rows that reach the threshold, some at a time, each once.

        The graph has each different text once; here its pairs become pairs of all rows with these
        texts.
        """
        n_different = len(self._different)
        n_rows = np.diff(self._starts)  # (U,) rows of each text
        for start in range(0, len(self._pair_codes), _AT_ONCE):
            codes = self._pair_codes[start : start + _AT_ONCE]
            left, right = np.divmod(codes, n_different)
            is_single = (n_rows[left] == 1) & (n_rows[right] == 1)
            yield self._near(self._different[left[is_single]], self._different[right[is_single]])
            # A pair of texts that several rows have is a pair of each of these rows with each.
            repeated = zip(left[~is_single].tolist(), right[~is_single].tolist(), strict=True)
            for left_text, right_text in repeated:
                left_rows, right_rows = np.meshgrid(
                    self._rows_of(left_text), self._rows_of(right_text)
                )
                yield self._near(left_rows.ravel(), right_rows.ravel())
        # Rows with the same text are pairs, too.
        for text in np.flatnonzero(n_rows > 1).tolist():
            rows = self._rows_of(text)
            left_places, right_places = np.triu_indices(len(rows), 1)
            yield self._near(rows[left_places], rows[right_places])

    def recall(self) -> Recall:
        """Returns how many pairs of a sample of the texts are found.

        The sample is compared with all other texts.
        """
        step = max(1, len(self._vectors) // _SAMPLED_TEXTS)
        sample = np.arange(0, len(self._vectors), step)
        n_pairs = 0
        n_found = 0
        for positions, neighbours, _ in pairs_above(
            self._threshold, self._vectors[sample], self._vectors, self._measure
        ):
            rows = sample[positions]
            is_pair = rows != neighbours
            n_pairs += int(is_pair.sum())
            n_found += int(self._has(rows[is_pair], neighbours[is_pair]).sum())
        return Recall(len(sample), n_pairs, n_found)

    def _find(self) -> Ints:
        """Returns the near pairs of different texts that the graph finds, as ascending numbers.

        The number of a pair is `low * U + high`, where low and high are the numbers of its texts
        among the U different texts.

        A text may have more near texts than the neighbours that the graph is asked for. It is then
        searched again with four times as many.
        """
        vectors = self._vectors[self._different]
        n_texts = len(vectors)
        graph = new_graph(self._measure, vectors.shape[1])
        graph.add(np.arange(n_texts), vectors, threads=1)
        codes = [np.empty(0, dtype=np.int64)]
        for start in range(0, n_texts, _AT_ONCE):
            waiting = np.arange(start, min(start + _AT_ONCE, n_texts))  # texts to search for
            n_neighbours = _FIRST_NEIGHBOURS
            while len(waiting):
                count = min(n_neighbours + 1, n_texts)  # a text finds itself, too
                matches = graph.search(vectors[waiting], count, threads=1)
                # (texts, count): the graph may return fewer neighbours than it is asked for.
                is_match = np.arange(count) < np.asarray(matches.counts)[:, None]
                texts = np.repeat(waiting, is_match.sum(axis=1))
                neighbours = matches.keys[is_match].astype(np.int64)
                is_near = self._are_near(self._different[texts], self._different[neighbours])
                # Near neighbours of each text; the text itself, which is near, counts as one.
                n_near = np.bincount(texts[is_near] - start, minlength=_AT_ONCE)
                is_near &= texts != neighbours
                low = np.minimum(texts[is_near], neighbours[is_near])
                high = np.maximum(texts[is_near], neighbours[is_near])
                codes.append(sorted_unique(low * n_texts + high))
                is_last = count == n_texts or n_neighbours >= _MOST_NEIGHBOURS
                # If all that was found is near, more may be: only these texts are searched again.
                waiting = waiting[n_near[waiting - start] == count]
                if is_last:
                    break
                n_neighbours *= 4
        return sorted_unique(np.concatenate(codes))

    def _rows_of(self, text: int) -> Ints:
        """Returns all rows that have a text, by its place among the different texts."""
        return self._rows_by_text[self._starts[text] : self._starts[text + 1]]

    def _has(self, rows: Ints, other_rows: Ints) -> Bools:
        """Returns (P,) whether the search has found these pairs; rows of equal text are always."""
        texts = self._text_numbers[rows]
        other_texts = self._text_numbers[other_rows]
        codes = np.minimum(texts, other_texts) * len(self._different)
        codes += np.maximum(texts, other_texts)
        is_found = np.isin(codes, self._pair_codes)
        return np.asarray(is_found | (texts == other_texts))

    def _are_near(self, rows: Ints, other_rows: Ints) -> Bools:
        """Returns (P,) whether pairs of rows reach the threshold."""
        parts = [np.empty(0, dtype=np.bool_)]
        for start in range(0, len(rows), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            parts.append(reaches(self._similarities(rows[part], other_rows[part]), self._threshold))
        return np.concatenate(parts)

    def _near(self, rows: Ints, other_rows: Ints) -> Pairs:
        """Returns pairs of rows, the first row of the file first, that reach the threshold."""
        low = np.minimum(rows, other_rows)
        high = np.maximum(rows, other_rows)
        similarities = self._similarities(low, high)
        is_near = reaches(similarities, self._threshold)
        return low[is_near], high[is_near], similarities[is_near]

    def _similarities(self, rows: Ints, other_rows: Ints) -> Floats32:
        """Returns (P,) the exact similarities of pairs of rows; those of the graph are rounded."""
        exact = exact_similarities(self._measure, self._vectors[rows], self._vectors[other_rows])
        return exact.astype(np.float32)
