"""Metrics of labels.

Values equal scikit-learn's; its code is not used because these also run on 1,000 tables at once.

Letters: N examples, C labels, R tables, M kinds of examples.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from bertctl.arrays import Bools, Floats, Ints
from bertctl.metrics.contributions import Contributions, Proportion, f1_of_overlap, ratio
from bertctl.metrics.resampling import Statistic
from bertctl.metrics.statistics import MAX_KINDS, Method

Average = Literal["micro", "macro", "weighted"]
"""Over all decisions; the mean of the labels' F1; that mean by how often each label is there."""

OfMargins = Callable[[Floats, Floats, Floats], Floats]
"""A metric as a function of how often, (R, C), each label is answered rightly, is gold, and is the
answer."""


def f1_of_labels(gold: Ints, predicted: Ints, *, n_labels: int, of: int | Average) -> Contributions:
    """Returns F1 as in scikit-learn; 0 if neither gold nor answers have the positive label.

    Args:
        gold: (N,) label numbers, 0 to C - 1; N at least 1.
        predicted: (N,) the same for the answers.
        n_labels: C.
        of: Label whose F1 is taken, or an average over the labels that occur in gold or answers.
    """
    proportion = None
    if isinstance(of, int):
        # F1 of one label is a function of a share (Jaccard's index): of the examples whose gold
        # label or answer it is, those where it is both. F1's interval follows from the share's.
        is_gold = gold == of
        is_answer = predicted == of
        hits = is_gold & is_answer
        trials = is_gold | is_answer
        proportion = Proportion(hits.astype(np.float64), trials.astype(np.float64), f1_of_overlap)
    return _of_cells(
        gold,
        predicted,
        n_labels,
        _f1(of),
        proportion=proportion,
    )


def matthews(gold: Ints, predicted: Ints, *, n_labels: int) -> Contributions:
    """Returns the Matthews correlation as in scikit-learn.

    It is 0 with a single label in gold or answers.

    Args:
        gold: (N,) label numbers, 0 to C - 1; N at least 1.
        predicted: (N,) the same for the answers.
        n_labels: C.
    """
    return _of_cells(
        gold,
        predicted,
        n_labels,
        _matthews,
        lowest=-1.0,
    )


def _of_cells(
    gold: Ints,
    predicted: Ints,
    n_labels: int,
    of_margins: OfMargins,
    *,
    proportion: Proportion | None = None,
    lowest: float = 0.0,
) -> Contributions:
    """Returns a metric that knows of an example only its cell of the confusion table.

    An example's row is the number of its cell, gold * C + predicted.

    Args:
        gold: (N,) label numbers.
        predicted: (N,) label numbers of the answers.
        n_labels: C.
        of_margins: The metric as a function of (R, C) right answers, gold labels and answers of
            each label, for R resamples.
        proportion: Hits and trials behind the metric; None where it is no function of a share.
        lowest: Least value of the metric.
    """
    n_cells = n_labels * n_labels

    def make(rows_M1: Floats) -> Statistic:
        """Returns the metric as a function of (R, M) counts: how often R resamples draw each cell.

        Args:
            rows_M1: Numbers of M cells of the confusion table, gold label * C + answered label.
        """
        # Resamples are added up by gold label, by answer, and by right answer. Their whole tables
        # would be too large: that of 2,000 labels has 4 million cells.
        gold_M, answers_M = np.divmod(rows_M1[:, 0].astype(np.int64), n_labels)
        of_gold = _summed(gold_M, n_labels)
        of_answers = _summed(answers_M, n_labels)
        right_M = gold_M == answers_M
        return lambda counts: of_margins(
            of_gold(counts * right_M), of_gold(counts), of_answers(counts)
        )

    # For each label the cell of a right answer, and that of a wrong one: the next label.
    labels = np.arange(n_labels)
    diagonal = labels * (n_labels + 1)
    beside = labels * n_labels + (labels + 1) % n_labels
    # Pairs of cells, of one model and of the other, in which two models could differ: for each
    # label the first is right and the second wrong, and the other way round.
    pairs = [diagonal, beside, beside, diagonal]
    # The posterior, for two labels, needs all pairs of a gold label: also both right, both wrong.
    if n_labels == 2:
        pairs += [diagonal, diagonal, beside, beside]
    # A row for each label, with two or four pairs one after the other, becomes a row for each pair.
    possible = np.stack(pairs, axis=1).reshape(-1, 2).astype(np.float64)
    rows = (gold * n_labels + predicted).astype(np.float64)[:, None]
    # With many labels, the kinds that could occur are not all cells, which would be too many, but a
    # right and a wrong answer to each label.
    if n_cells <= MAX_KINDS:
        cells = np.arange(n_cells)
    else:
        cells = np.concatenate([diagonal, beside])
    method: Method = "posterior" if n_labels == 2 else "bca"
    unseen = cells.astype(np.float64)[:, None]
    return Contributions(
        rows,
        "statistic",
        make,
        unseen,
        possible,
        method=method,
        proportion=proportion,
        lowest=lowest,
    )


def _summed(label_M: Ints, n_labels: int) -> Callable[[Floats], Floats]:
    """Returns a function that adds up the counts of the kinds that have the same label.

    Args:
        label_M: Label of each of M kinds of examples.
        n_labels: C.

    Returns:
        Function from (R, M), how often each kind counts in R resamples, to (R, C) sums.
    """
    order = np.argsort(label_M, kind="stable")
    labels, starts = np.unique(label_M[order], return_index=True)

    def summed(counts: Floats) -> Floats:
        """Returns (R, C) sums of (R, M) counts by label; `order` puts kinds of a label together."""
        sums = np.zeros((len(counts), n_labels))
        sums[:, labels] = np.add.reduceat(counts[:, order], starts, axis=1)
        return sums

    return summed


def f1_of_sets(gold: Bools, predicted: Bools, average: Average) -> Contributions:
    """Returns F1 where an example can have several labels, as in scikit-learn with zero_division=0.

    Args:
        gold: (N, C) whether an example has a label; N at least 1.
        predicted: (N, C) the same for the answers.
        average: Name of the average over the labels. The macro average is over all C labels.
    """
    C = gold.shape[1]
    is_used_C = (gold | predicted).any(axis=0)

    def make(rows_MS: Floats) -> Statistic:
        """Returns F1 of (M, 2 C) gold and answered labels, by counts of rows."""
        # Whole numbers: their sums are exact in any order, so a matrix product gives the same bits
        # with any threads.
        gold_MC = rows_MS[:, :C]
        answered_MC = rows_MS[:, C:]
        twice_hits_MC = 2 * gold_MC * answered_MC
        # F1 is 2 hits / uses, where each gold label and each answer is a use.
        uses_MC = gold_MC + answered_MC

        def statistic(counts: Floats) -> Floats:
            """Returns (R,) averages of the labels' F1, of (R, M) counts of the rows."""
            uses_RC = counts @ uses_MC
            # A label that these examples have and a resample lacks is undefined there, not 0. A
            # label that none of the examples has counts as 0, as zero_division=0 says.
            is_counted_RC = (uses_RC > 0) | ~is_used_C
            return _averaged(
                average,
                twice_hits_RC=counts @ twice_hits_MC,
                uses_RC=uses_RC,
                gold_RC=counts @ gold_MC,
                is_counted_RC=is_counted_RC,
            )

        return statistic

    proportion = None
    if average == "micro":
        # Micro F1 is a function of a share (Jaccard's index): of the labels that are gold or
        # answered, those that are both. F1's interval follows from the share's.
        proportion = Proportion(
            (gold & predicted).sum(axis=1).astype(np.float64),
            (gold | predicted).sum(axis=1).astype(np.float64),
            f1_of_overlap,
        )

    # Kinds that could occur and perhaps did not: one label missed, one invented, one found. A kind
    # is a row of 0 and 1 for each gold label, then for each answered label.
    one_label = np.eye(C)
    no_label = np.zeros((C, C))
    missed = np.hstack([one_label, no_label])
    invented = np.hstack([no_label, one_label])
    hit = np.hstack([one_label, one_label])
    unseen = np.vstack([missed, invented, hit])
    # Two models could differ in a label that one finds and the other misses.
    possible = np.vstack([np.hstack([hit, missed]), np.hstack([missed, hit])])
    rows = np.hstack([gold, predicted]).astype(np.float64)
    return Contributions(
        rows,
        "statistic",
        make,
        unseen,
        possible,
        proportion=proportion,
    )


def _f1(target: int | Average) -> OfMargins:
    """Returns F1 of a label, or an average over labels, as a function of margins."""

    def f1(hits_RC: Floats, gold_RC: Floats, answers_RC: Floats) -> Floats:
        """Returns (R,) the F1 of each resample: of one label, or averaged over the labels.

        `target` is the number of the label, or the name of the average.

        Args:
            hits_RC: How often each of C labels is the right answer, in each of R resamples.
            gold_RC: How often it is gold.
            answers_RC: How often it is the answer.
        """
        # 2 TP / (2 TP + FP + FN); the denominator is how often the label is gold plus how often it
        # is the answer.
        twice_hits_RC = 2 * hits_RC
        uses_RC = gold_RC + answers_RC
        if isinstance(target, str):
            return _averaged(
                target,
                twice_hits_RC=twice_hits_RC,
                uses_RC=uses_RC,
                gold_RC=gold_RC,
                is_counted_RC=uses_RC > 0,
            )
        return ratio(twice_hits_RC[:, target], uses_RC[:, target], undefined=math.nan)

    return f1


def _averaged(
    average: Average,
    twice_hits_RC: Floats,
    uses_RC: Floats,
    gold_RC: Floats,
    is_counted_RC: Bools,
) -> Floats:
    """Returns (R,) averages of F1 over C labels, for R resamples.

    "micro" adds up all labels first, "weighted" weighs labels by their gold counts, and in "macro"
    each label that is counted weighs the same.

    Args:
        average: Name of the average.
        twice_hits_RC: Twice the right answers.
        uses_RC: Gold labels plus answers, the denominator of F1.
        gold_RC: Gold labels.
        is_counted_RC: Labels that the macro average is over.
    """
    if average == "micro":
        return ratio(twice_hits_RC.sum(axis=1), uses_RC.sum(axis=1), undefined=math.nan)
    if average == "weighted":
        weights_RC = gold_RC
    else:
        weights_RC = is_counted_RC.astype(np.float64)
    return ratio(
        (ratio(twice_hits_RC, uses_RC) * weights_RC).sum(axis=1),
        weights_RC.sum(axis=1),
        undefined=math.nan,
    )


def _matthews(hits_RC: Floats, gold_RC: Floats, answers_RC: Floats) -> Floats:
    """Returns the Matthews correlation of confusion tables by their margins."""
    total_R = gold_RC.sum(axis=1)
    right_R = hits_RC.sum(axis=1)
    # Gorodkin 2004, the form for any number of labels. On whole counts everything up to the last
    # line is exact.
    covariance_R = right_R * total_R - (gold_RC * answers_RC).sum(axis=1)
    square_R = total_R**2
    gold_spread_R = square_R - (gold_RC**2).sum(axis=1)
    answer_spread_R = square_R - (answers_RC**2).sum(axis=1)
    # With a single label in gold or answers, a spread is 0, but for rounding if counts are no whole
    # numbers.
    defined_R = np.minimum(gold_spread_R, answer_spread_R) > 1e-13 * square_R
    spreads = (np.where(defined_R, spread, 0.0) for spread in (gold_spread_R, answer_spread_R))
    of_gold, of_answers = map(np.sqrt, spreads)
    return np.clip(ratio(covariance_R, of_gold * of_answers, undefined=math.nan), -1.0, 1.0)
