"""How well what belongs together is found: each query's right texts, ranked among all that could be found.

Letters: Q queries, C candidates, D size of a vector.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bertctl.arrays import Floats32, Ints
from bertctl.metrics import contributions
from bertctl.metrics.contributions import Contributions

Figure = Callable[[Sequence[int], int], float]
"""The ranks of a query's right candidates, and how many these are, to a number from 0 to 1."""

AT = 10
"""Rank to which is looked: the tenth."""

_AT_ONCE = 512
"""Queries whose similarities with all candidates are in memory."""


def similarities(queries: Floats32, candidates: Floats32) -> Iterator[Floats32]:
    """Yields the (C,) cosines of each query; a vector of zeros is like nothing."""
    queries, candidates = (
        each / np.maximum(np.linalg.norm(each, axis=-1, keepdims=True), 1e-12) for each in (queries, candidates)
    )
    for first in range(0, len(queries), _AT_ONCE):
        yield from queries[first : first + _AT_ONCE] @ candidates.T


def ranks_of(similar: Floats32, right: Ints) -> list[int]:
    """Returns the ranks, from 1, of the right candidates, the best first; of equals a right one comes last.

    Args:
        similar: (C,) similarities of a query; minus infinity for what is no candidate.
        right: numbers of the candidates that belong to it.
    """
    wrong = np.sort(np.delete(similar, right))
    # A matrix product gives equal vectors cosines whose last bits differ.
    at_least = len(wrong) - np.searchsorted(wrong, np.sort(similar[right])[::-1] - 1e-6, side="left")
    ranks: list[int] = (at_least + np.arange(1, len(right) + 1)).tolist()
    return ranks


def reciprocal(ranks: Sequence[int], _relevant: int) -> float:
    """Returns 1 / the rank of the first right one, 0 beyond the tenth."""
    return 1.0 / ranks[0] if ranks and ranks[0] <= AT else 0.0


def gain(ranks: Sequence[int], relevant: int) -> float:
    """Returns the discounted gain of the right ones among the first ten, over the greatest possible one."""
    found = sum(1.0 / np.log2(1 + rank) for rank in ranks if rank <= AT)
    return float(found / sum(1.0 / np.log2(1 + rank) for rank in range(1, min(relevant, AT) + 1)))


def _recall(at: int) -> Figure:
    return lambda ranks, relevant: sum(rank <= at for rank in ranks) / relevant


FIGURES: Mapping[str, tuple[Figure, str]] = {
    "mrr_at_10": (reciprocal, "mean of 1 / rank of the first right text"),
    "ndcg_at_10": (gain, "discounted gain of the first ten texts"),
    **{f"recall_at_{at}": (_recall(at), f"right texts among the first {at}") for at in (1, 5, 10)},
}
"""What is computed of a query's ranks, with what it is."""


def mean_of(figure: Figure, found: Sequence[tuple[Sequence[int], int]]) -> Contributions:
    """Returns the mean of a figure over queries, each given by the ranks of its right ones, and how many these are."""
    return contributions.fraction(np.array([figure(ranks, relevant) for ranks, relevant in found], dtype=np.float64))
