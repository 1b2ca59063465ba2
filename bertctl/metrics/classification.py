"""Metrics of labels. Values equal scikit-learn's; its code is not used because these also run on 1,000 tables at once.

Letters: N examples, C labels, R tables, M kinds of examples.
"""

from typing import Literal

import numpy as np

from bertctl.arrays import Bools, Floats, Ints
from bertctl.metrics.contributions import Contributions, ratio
from bertctl.metrics.statistics import Method, Statistic

Average = Literal["micro", "macro", "weighted"]
"""Over all decisions; the mean of the labels' F1; that mean by how often each label is there."""


def f1_of_labels(gold: Ints, predicted: Ints, *, n_labels: int, of: int | Average) -> Contributions:
    """Returns F1 as in scikit-learn; 0 without the positive label in gold and answers.

    Args:
        gold: (N,) label numbers, 0 to C - 1; N at least 1.
        predicted: (N,) the same for the answers.
        n_labels: C.
        of: label whose F1 is taken, or an average over the labels that occur in gold or answers.
    """
    return _of_cells(gold, predicted, n_labels, f1_statistic(n_labels, of))


def matthews(gold: Ints, predicted: Ints, *, n_labels: int) -> Contributions:
    """Returns the Matthews correlation as in scikit-learn; 0 with a single label in gold or answers.

    Args:
        gold: (N,) label numbers, 0 to C - 1; N at least 1.
        predicted: (N,) the same for the answers.
        n_labels: C.
    """
    return _of_cells(gold, predicted, n_labels, matthews_statistic(n_labels))


def _of_cells(gold: Ints, predicted: Ints, n_labels: int, of_tables: Statistic) -> Contributions:
    """Returns a metric that knows of an example only its cell of the confusion table."""
    n_cells = n_labels * n_labels

    def make(rows_M1: Floats) -> Statistic:
        cells_M = rows_M1[:, 0].astype(np.int64)
        order = np.argsort(cells_M, kind="stable")
        cells, starts = np.unique(cells_M[order], return_index=True)

        def statistic(counts: Floats) -> Floats:
            table = np.zeros((len(counts), n_cells))
            table[:, cells] = np.add.reduceat(counts[:, order], starts, axis=1)
            return of_tables(table)

        return statistic

    # Right here and wrong there, for each label, and the other way round; of two labels these are all kinds, with those
    # that are right or wrong in both.
    diagonal = np.arange(n_labels) * (n_labels + 1)
    beside = np.arange(n_labels) * n_labels + (np.arange(n_labels) + 1) % n_labels
    pairs = [diagonal, beside, beside, diagonal, *((diagonal, diagonal, beside, beside) if n_labels == 2 else ())]
    possible = np.stack(pairs, axis=1).reshape(-1, 2).astype(np.float64)
    rows = (gold * n_labels + predicted).astype(np.float64)[:, None]
    every_cell = np.arange(n_cells, dtype=np.float64)[:, None]
    method: Method = "posterior" if n_labels == 2 else "bca"
    return Contributions(rows, "statistic", make, every_cell, possible, method=method)


def f1_of_sets(gold: Bools, predicted: Bools, average: Average) -> Contributions:
    """Returns F1 where an example can have several labels, as in scikit-learn with zero_division=0.

    Args:
        gold: (N, C) whether an example has a label; N at least 1.
        predicted: (N, C) the same for the answers.
        average: over which labels; the mean is over all C.
    """
    C = gold.shape[1]

    def make(rows_MS: Floats) -> Statistic:
        # Whole numbers: their sums are exact in any order, so a matrix product gives the same bits with any threads.
        there_MC, said_MC = rows_MS[:, :C], rows_MS[:, C:]
        hits_MC, uses_MC = 2 * there_MC * said_MC, there_MC + said_MC
        return lambda counts: _averaged(average, counts @ hits_MC, counts @ uses_MC, counts @ there_MC)

    one, none = np.eye(C), np.zeros((C, C))
    # Kinds that could occur and perhaps did not: one label missed, one invented, one found.
    unseen = np.vstack([np.hstack([one, none]), np.hstack([none, one]), np.hstack([one, one])])
    possible = np.vstack([np.hstack([one, one, one, none]), np.hstack([one, none, one, one])])
    return Contributions(np.hstack([gold, predicted]).astype(np.float64), "statistic", make, unseen, possible)


def f1_statistic(n_labels: int, of: int | Average) -> Statistic:
    """Returns F1 of a label, or an average, as a function of (R, C * C) counts of confused labels."""

    def f1(cells: Floats) -> Floats:
        tables_RCC = cells.reshape(-1, n_labels, n_labels)
        # 2 TP / (2 TP + FP + FN); the denominator is how often the label is gold plus how often it is the answer.
        hits_RC, gold_RC = 2 * np.diagonal(tables_RCC, axis1=1, axis2=2), tables_RCC.sum(axis=2)
        uses_RC = gold_RC + tables_RCC.sum(axis=1)
        if isinstance(of, str):
            return _averaged(of, hits_RC, uses_RC, gold_RC, uses_RC > 0)
        return ratio(hits_RC[:, of], uses_RC[:, of])

    return f1


def _averaged(
    average: Average, hits_RC: Floats, uses_RC: Floats, gold_RC: Floats, counted_RC: Bools | None = None
) -> Floats:
    """Returns an average of F1; in the macro one each label that is counted (all, if none is named) weighs the same."""
    if average == "micro":
        return ratio(hits_RC.sum(axis=1), uses_RC.sum(axis=1))
    counted = np.ones_like(uses_RC) if counted_RC is None else counted_RC.astype(np.float64)
    weights_RC = gold_RC if average == "weighted" else counted
    return ratio((ratio(hits_RC, uses_RC) * weights_RC).sum(axis=1), weights_RC.sum(axis=1))


def matthews_statistic(n_labels: int) -> Statistic:
    """Returns the Matthews correlation of confusion tables, as a function of (R, C * C) counts of their cells."""

    def matthews(cells: Floats) -> Floats:
        tables_RCC = cells.reshape(-1, n_labels, n_labels)
        gold_RC, answers_RC = tables_RCC.sum(axis=2), tables_RCC.sum(axis=1)
        total_R = gold_RC.sum(axis=1)
        right_R = np.trace(tables_RCC, axis1=1, axis2=2)
        # Gorodkin 2004, the form for any number of labels. On whole counts everything up to the last line is exact.
        covariance_R = right_R * total_R - (gold_RC * answers_RC).sum(axis=1)
        square_R = total_R**2
        gold_spread_R = square_R - (gold_RC**2).sum(axis=1)
        answer_spread_R = square_R - (answers_RC**2).sum(axis=1)
        # Shares of counts leave rounding errors where there is a single label.
        defined_R = np.minimum(gold_spread_R, answer_spread_R) > 1e-13 * square_R
        spreads = (np.where(defined_R, each, 0.0) for each in (gold_spread_R, answer_spread_R))
        of_gold, of_answers = map(np.sqrt, spreads)
        return np.clip(ratio(covariance_R, of_gold * of_answers), -1.0, 1.0)

    return matthews
