"""Metrics of labels. Values equal scikit-learn's; its code is not used because these also run on 1,000 tables at once.

Letters: N examples, C labels, R tables, M kinds of examples.
"""

import numpy as np
from numpy.typing import NDArray

from bertctl.metrics.names import metric_value
from bertctl.metrics.statistics import Statistic, bootstrap_interval, wilson_interval
from bertctl.metrics.value import MetricValue


def confusion_table(gold_N: NDArray[np.int64], predicted_N: NDArray[np.int64], n_labels: int) -> NDArray[np.int64]:
    """(C, C) counts: row the gold label, column the predicted one."""
    cells = np.bincount(gold_N * n_labels + predicted_N, minlength=n_labels * n_labels)
    return cells.reshape(n_labels, n_labels).astype(np.int64)


def classification_metrics(
    gold: NDArray[np.int64],
    predicted: NDArray[np.int64],
    *,
    n_labels: int,
    positive: int | None,
    resamples: int,
    seed: int,
) -> dict[str, MetricValue]:
    """`accuracy`, `f1` and `matthews`, as in scikit-learn.

    Args:
        gold: (N,) label numbers, 0 to C - 1; N at least 1.
        predicted: (N,) the same for the answers.
        n_labels: C.
        positive: label whose F1 is taken; None for the mean over the labels that occur in gold or answers (macro).
        resamples: of the bootstrap behind the intervals of F1 and Matthews.
        seed: of the bootstrap.

    Where they are undefined they are 0, as in scikit-learn: F1 without the positive label in gold and answers, Matthews
    with a single label in either.
    """
    n = int(gold.size)
    table = confusion_table(gold, predicted, n_labels)
    correct = int(np.trace(table))
    metrics = {"accuracy": metric_value("accuracy", correct / n, wilson_interval(correct, n), n)}
    for name, statistic in (("f1", f1_statistic(n_labels, positive)), ("matthews", matthews_statistic(n_labels))):
        metrics[name] = _bootstrapped(name, statistic, table.ravel(), n, resamples, seed)
    return metrics


def multi_label_metrics(
    gold: NDArray[np.bool_], predicted: NDArray[np.bool_], *, resamples: int, seed: int
) -> dict[str, MetricValue]:
    """`accuracy` (the whole set of labels right), `f1` (micro) and `f1_macro`, as in scikit-learn with zero_division=0.

    Args:
        gold: (N, C) whether an example has a label; N at least 1.
        predicted: (N, C) the same for the answers.
        resamples: of the bootstrap of examples (not of decisions: those of one example hang together).
        seed: of the bootstrap.
    """
    n, n_labels = gold.shape
    correct = int((gold == predicted).all(axis=1).sum())
    metrics = {"accuracy": metric_value("accuracy", correct / n, wilson_interval(correct, n), n)}
    seen, seen_counts = np.unique(np.hstack([gold, predicted]), axis=0, return_counts=True)
    # Kinds that could occur and perhaps did not: one label missed, one invented, one found.
    single, none = np.eye(n_labels, dtype=np.bool_), np.zeros((n_labels, n_labels), dtype=np.bool_)
    kinds = np.vstack([seen, np.hstack([single, none]), np.hstack([none, single]), np.hstack([single, single])])
    counts = np.concatenate([seen_counts, np.zeros(3 * n_labels, dtype=np.int64)]).astype(np.int64)
    for name, statistic in multi_label_statistics(kinds[:, :n_labels], kinds[:, n_labels:]).items():
        metrics[name] = _bootstrapped(name, statistic, counts, n, resamples, seed)
    return metrics


def _bootstrapped(
    name: str, statistic: Statistic, counts_M: NDArray[np.int64], n: int, resamples: int, seed: int
) -> MetricValue:
    value = float(statistic(counts_M[None, :].astype(np.float64))[0])
    return metric_value(name, value, bootstrap_interval(statistic, counts_M, resamples=resamples, seed=seed), n)


def ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quotients, 0 where there is nothing to divide by."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def f1_statistic(n_labels: int, positive: int | None) -> Statistic:
    """F1 of the positive label, or macro F1, of confusion tables, as a function of (R, C * C) counts of their cells."""

    def f1(cells: NDArray[np.float64]) -> NDArray[np.float64]:
        tables_RCC = cells.reshape(-1, n_labels, n_labels)
        # 2 TP / (2 TP + FP + FN); the denominator is how often the label is gold plus how often it is the answer.
        hits_RC = 2 * np.diagonal(tables_RCC, axis1=1, axis2=2)
        uses_RC = tables_RCC.sum(axis=2) + tables_RCC.sum(axis=1)
        f1_RC = ratio(hits_RC, uses_RC)
        if positive is not None:
            of_positive_R: NDArray[np.float64] = f1_RC[:, positive]
            return of_positive_R
        occurring_R: NDArray[np.float64] = (uses_RC > 0).sum(axis=1).astype(np.float64)
        return ratio(f1_RC.sum(axis=1), occurring_R)

    return f1


def matthews_statistic(n_labels: int) -> Statistic:
    """Matthews correlation of confusion tables, as a function of (R, C * C) counts of their cells."""

    def matthews(cells: NDArray[np.float64]) -> NDArray[np.float64]:
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
        product_R = np.sqrt(np.where(defined_R, gold_spread_R, 0.0)) * np.sqrt(
            np.where(defined_R, answer_spread_R, 0.0)
        )
        return np.clip(ratio(covariance_R, product_R), -1.0, 1.0)

    return matthews


def multi_label_statistics(gold_MC: NDArray[np.bool_], answers_MC: NDArray[np.bool_]) -> dict[str, Statistic]:
    """`f1` (micro) and `f1_macro` as functions of (R, M) counts of kinds of examples.

    Args:
        gold_MC: whether a kind of example has a label.
        answers_MC: the same for the answers.
    """
    # Whole numbers: their sums are exact in any order, so a matrix product gives the same bits with any BLAS threads.
    hits_MC = 2.0 * (gold_MC & answers_MC)
    uses_MC = gold_MC.astype(np.float64) + answers_MC

    def micro(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        return ratio(counts @ hits_MC.sum(axis=1), counts @ uses_MC.sum(axis=1))

    def macro(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        means: NDArray[np.float64] = ratio(counts @ hits_MC, counts @ uses_MC).mean(axis=1)
        return means

    return {"f1": micro, "f1_macro": macro}
