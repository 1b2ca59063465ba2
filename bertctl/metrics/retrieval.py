"""How well what belongs together is found.

Each query's right texts are ranked among all that could be found.

The unit of every figure is the query, as in trec_eval, BEIR and sentence-transformers'
`InformationRetrievalEvaluator`: a query that stands in several rows counts once, and its right
texts are those of all its rows.

Letters: Q queries, C candidates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bertctl.arrays import Bools, Floats, Ints
from bertctl.metrics import contributions
from bertctl.metrics.contributions import Contributions

Figure = Callable[[Sequence[int], int], float]
"""The ranks of a query's right candidates, and how many these are, to a number from 0 to 1."""

AT = 10
"""Rank to which is looked: the tenth."""

_ROUNDING = 1e-9
"""Part of a similarity below which a difference is rounding: of equal vectors a product may differ
by that much."""


def ranks_of(similarities: Floats, relevant: Ints) -> list[int]:
    """Returns the ranks of a query's right candidates, from 1, the best first.

    Of equally near candidates a right one comes last: a model that gives every text one vector
    finds nothing.

    Args:
        similarities: (C,) similarities of the query with all candidates.
        relevant: Numbers of the candidates that belong to it.
    """
    wrong_candidates = np.sort(np.delete(similarities, relevant))
    best_first = np.sort(similarities[relevant])[::-1]
    # Similarities down to this value count as equal to that of the right candidate.
    lowest_equal = best_first - _ROUNDING * np.maximum(1.0, np.abs(best_first))
    n_behind = np.searchsorted(wrong_candidates, lowest_equal, side="left")
    n_before = len(wrong_candidates) - n_behind
    ranks: list[int] = (n_before + np.arange(1, len(relevant) + 1)).tolist()
    return ranks


def reciprocal(ranks: Sequence[int], _relevant: int) -> float:
    """Returns 1 / the rank of the first right one, 0 beyond the tenth."""
    if ranks and ranks[0] <= AT:
        return 1.0 / ranks[0]
    return 0.0


def gain(ranks: Sequence[int], relevant: int) -> float:
    """Returns nDCG@10: the discounted gain of right candidates as a share of the greatest possible.

    Args:
        ranks: Ranks of a query's right candidates, from 1.
        relevant: How many right candidates there are.
    """
    discounted = sum(1.0 / np.log2(1 + rank) for rank in ranks if rank <= AT)
    best_ranks = range(1, min(relevant, AT) + 1)
    return float(discounted / sum(1.0 / np.log2(1 + rank) for rank in best_ranks))


def _recall(limit: int) -> Figure:
    """Returns recall@limit: the share of a query's right candidates with at most this rank."""
    return lambda ranks, relevant: sum(rank <= limit for rank in ranks) / relevant


FIGURES: Mapping[str, tuple[Figure, str]] = {
    "mrr_at_10": (reciprocal, "mean of 1 / rank of the first right text"),
    "ndcg_at_10": (gain, "discounted gain of the first ten texts"),
    **{f"recall_at_{at}": (_recall(at), f"right texts among the first {at}") for at in (1, 5, 10)},
}
"""What is computed of a query's ranks, with what it is."""


def mean_of(figure: Figure, queries: Sequence[tuple[Sequence[int], int]]) -> Contributions:
    """Returns the mean of a figure over queries; N is the number of queries, not of rows.

    Args:
        figure: One of `FIGURES`.
        queries: The ranks of each query's right candidates, and how many these are. A query without
            a right candidate has no ranks and is left out, as the evaluators leave it out; without
            any other one the mean is undefined.
    """
    answerable = [(ranks, relevant) for ranks, relevant in queries if ranks]
    if not answerable:
        return replace(contributions.fraction(np.zeros(len(queries))), is_defined=False)
    values = [figure(ranks, relevant) for ranks, relevant in answerable]
    return contributions.fraction(np.array(values, dtype=np.float64))


def best_of_pairs(gold: Bools, similarities: Floats) -> dict[str, float]:
    """Returns the highest F1 and the highest accuracy that any threshold gives on these very pairs.

    Pairs of equal similarity are on the same side. The unit is the pair.

    Args:
        gold: (N,) whether a pair belongs together.
        similarities: (N,) of the pairs.
    """
    order = np.argsort(-similarities, kind="stable")
    # A threshold can be behind the last pair of each different similarity.
    is_cut = np.append(np.diff(similarities[order]) != 0, True)
    true_positives = np.cumsum(gold[order])[is_cut]
    accepted = np.flatnonzero(is_cut) + 1
    n_positive = int(gold.sum())
    n_negative = len(gold) - n_positive

    f1 = 2 * true_positives / (accepted + n_positive)
    n_right = true_positives + n_negative - (accepted - true_positives)
    none_accepted = n_negative / len(gold)
    return {
        "best_f1": float(f1.max()),
        "best_accuracy": max(none_accepted, float(n_right.max()) / len(gold)),
    }
