"""How well what belongs together is found: each query's right texts, ranked among all that could be found.

Letters: Q queries, C candidates, D size of a vector.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bertctl.metrics import contributions
from bertctl.metrics.arrays import Floats
from bertctl.metrics.contributions import Contributions

AT = 10
"""Rank to which is looked: the tenth."""

_AT_ONCE = 512
"""Queries whose similarities with all candidates are in memory."""


def similarities(queries: NDArray[np.float32], candidates: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yields the (C,) cosines of each query; a vector of zeros is like nothing."""
    queries, candidates = (
        each / np.maximum(np.linalg.norm(each, axis=-1, keepdims=True), 1e-12) for each in (queries, candidates)
    )
    for first in range(0, len(queries), _AT_ONCE):
        yield from queries[first : first + _AT_ONCE] @ candidates.T


def ranks_of(similar: NDArray[np.float32], right: NDArray[np.int64]) -> list[int]:
    """Returns the ranks, from 1, of the right candidates, the best first; of equals a right one comes last.

    Args:
        similar: (C,) similarities of a query; minus infinity for what is no candidate.
        right: numbers of the candidates that belong to it.
    """
    wrong = np.sort(np.delete(similar, right))
    at_least = len(wrong) - np.searchsorted(wrong, np.sort(similar[right])[::-1], side="left")
    ranks: list[int] = (at_least + np.arange(1, len(right) + 1)).tolist()
    return ranks


def reciprocal(ranks: Sequence[int], _relevant: int) -> float:
    """Returns 1 / the rank of the first right one, 0 beyond the tenth."""
    return 1.0 / ranks[0] if ranks and ranks[0] <= AT else 0.0


def gain(ranks: Sequence[int], relevant: int) -> float:
    """Returns the discounted gain of the right ones among the first ten, over the greatest possible one."""
    found = sum(1.0 / np.log2(1 + rank) for rank in ranks if rank <= AT)
    return float(found / sum(1.0 / np.log2(1 + rank) for rank in range(1, min(relevant, AT) + 1)))


def recall(at: int) -> Callable[[Sequence[int], int], float]:
    """Returns what says which share of the right ones is among the first so many."""
    return lambda ranks, relevant: sum(rank <= at for rank in ranks) / relevant


def mean_of(figure: Callable[[Sequence[int], int], float], found: Sequence[tuple[Sequence[int], int]]) -> Contributions:
    """Returns the mean of a figure over queries, each given by the ranks of its right ones, and how many these are."""
    values: Floats = np.array([figure(ranks, relevant) for ranks, relevant in found], dtype=np.float64)
    return contributions.fraction(values)
