"""How alike two vectors are.

There are the four measures that sentence-transformers knows (`similarity_fn_name`).

Letters: N rows, Q queries, C candidates, D size of a vector.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from bertctl.arrays import Floats, Floats32

if TYPE_CHECKING:
    from torch import Tensor

Measure = Literal["cosine", "dot", "euclidean", "manhattan"]

COSINE: Measure = "cosine"

MEASURES: Mapping[str, str] = {
    "cosine": "the cosine",
    "dot": "the dot product",
    "euclidean": "the Euclidean distance, negative",
    "manhattan": "the Manhattan distance, negative",
}
"""Measures by name, with what they are. More is always more alike, so distances are negative."""

_CDIST_NAMES = {"euclidean": "euclidean", "manhattan": "cityblock"}

_QUERIES_AT_ONCE = 512
"""Queries whose similarities with all candidates are in memory."""


def unit_vectors(vectors: Floats) -> Floats:
    """Returns the vectors scaled to length 1; vectors of zeros stay, and are similar to nothing."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12))


def row_similarities(measure: str, first: Floats32, second: Floats32) -> Floats32:
    """Returns the (N,) similarities of each row of one array with that of another.

    They are computed in 32 bits by the operations of sentence-transformers' `pairwise_*_sim`, so
    that equal vectors give the ranks, ties and correlations that its evaluators give.

    Args:
        measure: One of `MEASURES`.
        first: (N, D) vectors.
        second: (N, D) vectors.
    """
    import torch

    similarities: Floats32 = _ROW_FUNCTIONS[measure](
        torch.from_numpy(first), torch.from_numpy(second)
    ).numpy()
    return similarities


def _row_cosines(first: "Tensor", second: "Tensor") -> "Tensor":
    """Returns (N,) cosines of (N, D) first vectors with the second ones of their rows."""
    from torch.nn import functional

    return (functional.normalize(first, dim=-1) * functional.normalize(second, dim=-1)).sum(dim=-1)


def _row_products(first: "Tensor", second: "Tensor") -> "Tensor":
    """Returns (N,) dot products of (N, D) first vectors with the second ones of their rows."""
    return (first * second).sum(dim=-1)


def _row_euclidean(first: "Tensor", second: "Tensor") -> "Tensor":
    """Returns (N,) negative distances, so that a larger number is more alike."""
    import torch

    distances: Tensor = torch.linalg.vector_norm(first - second, dim=-1)
    return -distances


def _row_manhattan(first: "Tensor", second: "Tensor") -> "Tensor":
    """Returns (N,) negative sums of absolute differences, so that a larger one is more alike."""
    return -(first - second).abs().sum(dim=-1)


_ROW_FUNCTIONS: Mapping[str, Callable[["Tensor", "Tensor"], "Tensor"]] = {
    "cosine": _row_cosines,
    "dot": _row_products,
    "euclidean": _row_euclidean,
    "manhattan": _row_manhattan,
}


def similarity_matrix(measure: str, queries: Floats32, candidates: Floats32) -> Floats:
    """Returns the (Q, C) similarities of each query with each candidate, in 64 bits.

    Args:
        measure: One of `MEASURES`.
        queries: (Q, D) vectors.
        candidates: (C, D) vectors.
    """
    query_vectors = queries.astype(np.float64)
    candidate_vectors = candidates.astype(np.float64)
    if measure in _CDIST_NAMES:
        from scipy.spatial.distance import cdist

        # A distance with a minus sign is a similarity: larger is nearer.
        return np.asarray(-cdist(query_vectors, candidate_vectors, metric=_CDIST_NAMES[measure]))
    if measure == COSINE:
        query_vectors = unit_vectors(query_vectors)
        candidate_vectors = unit_vectors(candidate_vectors)
    return np.asarray(query_vectors @ candidate_vectors.T)


def similarity_rows(measure: str, queries: Floats32, candidates: Floats32) -> Iterator[Floats]:
    """Yields the (C,) similarities of each query with all candidates.

    It computes `similarity_matrix`, some rows at a time.
    """
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        yield from similarity_matrix(measure, queries[start : start + _QUERIES_AT_ONCE], candidates)


def exact_similarities(measure: str, first: Floats32, second: Floats32) -> Floats:
    """Returns (N,) similarities of each first vector with the second one of its row, in 64 bits.

    Equal pairs of vectors have equal similarities to the last digit, which a matrix product does
    not promise.

    Args:
        measure: One of `MEASURES`; for cosines the vectors have length 1.
        first: (N, D) vectors.
        second: (N, D) vectors.
    """
    a = first.astype(np.float64)
    b = second.astype(np.float64)
    if measure == "euclidean":
        return np.asarray(-np.sqrt(((a - b) ** 2).sum(axis=1)))
    if measure == "manhattan":
        return np.asarray(-np.abs(a - b).sum(axis=1))
    return np.asarray((a * b).sum(axis=1))
