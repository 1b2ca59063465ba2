"""How well probabilities rank examples.

It has the area under the ROC curve, and average precision, as in scikit-learn.

Letters: N examples, C labels, R resamples, M kinds of examples, G groups of equal probabilities.
"""

import math
from typing import Literal

import numpy as np

from bertctl.arrays import Bools, Floats
from bertctl.metrics.contributions import Contributions, mean_of_defined, ratio
from bertctl.metrics.resampling import Statistic
from bertctl.metrics.statistics import mean_ranks

Name = Literal["roc_auc", "average_precision"]


def ranking(name: Name, gold: Bools, probabilities: Floats) -> Contributions | None:
    """Returns the mean of a ranking metric over labels, each against the rest.

    Only labels count that some examples have and others have not: of another label, there is
    nothing to rank. Without any such label, average precision is that of the labels that all
    examples have, and `roc_auc` is not defined. None if no label counts.

    Args:
        name: Name of the metric.
        gold: (N, C) whether an example has a label; N and C at least 1.
        probabilities: (N, C) of the labels.
    """
    is_scored_C = gold.any(axis=0) & ~gold.all(axis=0)
    if not is_scored_C.any() and name == "average_precision":
        is_scored_C = gold.any(axis=0)
    scored_labels = np.flatnonzero(is_scored_C)
    if not scored_labels.size:
        return None
    gold = gold[:, scored_labels]
    C = scored_labels.size
    # Ranks in place of probabilities: two models may be sure to different degrees, and are compared
    # by their orders.
    ranks = [mean_ranks(probabilities[:, label]) for label in scored_labels]
    probabilities = np.stack(ranks, axis=1) / len(probabilities)

    def make(rows_MS: Floats) -> Statistic:
        """Returns the mean over C labels as a function of (R, M) counts of M examples.

        Args:
            rows_MS: (M, 2 C) whether an example has each label, then its rank for each label.
        """
        labels = [_of_label(name, rows_MS[:, c], rows_MS[:, C + c]) for c in range(C)]
        return lambda counts: mean_of_defined(np.stack([label(counts) for label in labels], axis=1))

    # Kinds of examples that could occur: a label ranked first, one ranked last, a wrong one first.
    one_label = np.eye(C)
    no_label = np.zeros((C, C))
    hit = np.hstack([one_label, one_label])
    missed = np.hstack([one_label, 1 - one_label])
    invented = np.hstack([no_label, one_label])
    possible = np.vstack([np.hstack([hit, missed]), np.hstack([missed, hit])])
    rows = np.hstack([gold, probabilities]).astype(np.float64)
    unseen = np.vstack([missed, invented])
    return Contributions(
        rows,
        "statistic",
        make,
        unseen,
        possible,
        is_dear=True,
    )


def _of_label(name: Name, gold_M: Floats, probability_M: Floats) -> Statistic:
    """Returns a ranking metric of one label as a function of how often each example counts.

    Args:
        name: `average_precision` or `roc_auc`.
        gold_M: 1 for examples that have the label, 0 for others.
        probability_M: Probabilities of the label; examples with equal ones form one of G groups.
    """
    order = np.argsort(-probability_M, kind="stable")
    falls = np.diff(probability_M[order], prepend=np.inf) != 0
    starts = np.flatnonzero(falls)
    gold_M = gold_M[order]

    def statistic(counts: Floats) -> Floats:
        """Returns the (R,) metric of (R, M) counts: how often R resamples draw each of M examples.

        `order` sorts the examples by falling probability, and `gold_M` is in this order. `starts`
        are the positions where the G groups of equal probabilities begin.
        """
        drawn = counts.take(order, axis=1)
        hits_RG = np.add.reduceat(drawn * gold_M, starts, axis=1)
        all_RG = np.add.reduceat(drawn, starts, axis=1)
        above_RG = hits_RG.cumsum(axis=1)
        n_hits_R = above_RG[:, -1]
        if name == "average_precision":
            return ratio(
                (hits_RG * ratio(above_RG, all_RG.cumsum(axis=1))).sum(axis=1),
                n_hits_R,
                undefined=math.nan,
            )
        # The share of pairs of a hit and a miss in which the hit ranks higher. A miss is below the
        # hits of higher groups. Of the hits in its own group, half count as higher.
        misses_RG = all_RG - hits_RG
        pairs_R = n_hits_R * misses_RG.sum(axis=1)
        return ratio(
            (misses_RG * (above_RG - hits_RG / 2)).sum(axis=1), pairs_R, undefined=math.nan
        )

    return statistic
