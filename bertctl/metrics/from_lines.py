"""Metrics from the lines of a prediction file: what each example adds to a metric, and the metric of any such rows.

A metric of a whole split can't be compared example by example; what each example adds to it can: whether it was right,
which cell of the confusion table it falls into, how many of its entities were found. That and a function from counts of
such rows to the metric is all that intervals, paired differences and slices need.

Letters: N examples, M kinds of examples, R resamples, S numbers that a metric needs to know of an example.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import eq
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import DataError, UsageError
from bertctl.metrics.answers import Version, answer_exact, answer_f1
from bertctl.metrics.classification import f1_statistic, matthews_statistic, multi_label_statistics, ratio
from bertctl.metrics.names import METRICS
from bertctl.metrics.paired import RESAMPLES, Difference, bootstrap_difference, mean_difference, share_difference
from bertctl.metrics.regression import mean_metric, pearson_statistic, spearman_statistic
from bertctl.metrics.statistics import Statistic, bootstrap_interval, wilson_interval
from bertctl.metrics.tagging import Entity, entities, entity_counts, tagging_statistic
from bertctl.metrics.value import MetricValue

Floats = NDArray[np.float64]
Lines = Sequence[Mapping[str, Any]]

_CLOSE = 1e-4
"""Difference from metrics.json that rounding explains: predictions are written as they were computed, in 32 bits."""


@dataclass(frozen=True)
class Contributions:
    """What each example adds to a metric.

    Attributes:
        name: of the metric, for its direction.
        rows: (N, S) numbers; N at least 1.
        family: `share` (one column of 0 and 1, whose mean it is), `mean` (one column of any numbers), or `other`.
        make: rows (M, S) to the metric as a function of (R, M) counts of them.
        possible: (P, 2 S) kinds that two models could differ in, whether or not they do here.
        percentile: whether the interval is the percentile one instead of BCa (correlations, see `statistics`).
    """

    name: str
    rows: Floats
    family: Literal["share", "mean", "other"]
    make: Callable[[Floats], Statistic]
    possible: Floats
    percentile: bool = False

    @property
    def value(self) -> float:
        """The metric of all examples."""
        kinds, counts = np.unique(self.rows, axis=0, return_counts=True)
        return float(self.make(kinds)(counts[None, :].astype(np.float64))[0])

    def metric(self, *, resamples: int = RESAMPLES, seed: int = 0) -> MetricValue:
        """The metric with its interval, as metrics.json would have it."""
        n, better = len(self.rows), METRICS[self.name].higher_is_better if self.name in METRICS else True
        if self.family == "share":
            right = int(self.rows.sum())
            return MetricValue(right / n, *wilson_interval(right, n), n)
        if self.family == "mean" and n > 1:
            mean = mean_metric("loss", self.rows[:, 0], resamples=resamples, seed=seed)
            return MetricValue(mean.value, mean.low, mean.high, n, better)
        S = self.rows.shape[1]
        kinds, counts = np.unique(self.rows, axis=0, return_counts=True)
        kinds = np.vstack([kinds, self.possible[:, :S]])
        counts = np.concatenate([counts, np.zeros(len(self.possible), dtype=counts.dtype)]).astype(np.int64)
        method: Literal["bca", "percentile"] = "percentile" if self.percentile else "bca"
        low, high = bootstrap_interval(self.make(kinds), counts, resamples=resamples, seed=seed, method=method)
        return MetricValue(self.value, low, high, n, better)

    def difference(self, other: "Contributions", *, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
        """This model's metric minus the other's, on the same examples in the same order."""
        if self.family == "share":
            return share_difference(self.rows[:, 0] > 0, other.rows[:, 0] > 0)
        if self.family == "mean" and len(self.rows) > 1:
            return mean_difference(self.rows[:, 0], other.rows[:, 0], resamples=resamples, seed=seed)
        return bootstrap_difference(
            self.rows,
            other.rows,
            self.make,
            possible=self.possible,
            resamples=resamples,
            seed=seed,
            method="percentile" if self.percentile else "bca",
        )

    def agrees_with(self, value: float) -> bool:
        """Whether the examples give the value that stands in metrics.json."""
        return abs(self.value - value) <= _CLOSE * max(1.0, abs(value))


def contributions(lines: Lines, *, task: str, name: str, labels: Sequence[str] = ()) -> Contributions | None:
    """What each line adds to a metric.

    Args:
        lines: of a prediction file, at least one.
        task: as in the recipe.
        name: of the metric, as in metrics.json.
        labels: label names in the model's order, see `label_names`; for text-classification.

    Returns:
        None where a metric of this name can't be computed from such lines.

    Raises:
        DataError: lines that lack a field.
    """
    if name == "loss":
        return _losses(lines, task)
    gold, answers = ([_field(line, name) for line in lines] for name in ("gold", "prediction"))
    if name == "accuracy" and task == "text-classification" and isinstance(gold[0], list):
        return _share(name, [set(g) == set(a) for g, a in zip(gold, answers, strict=True)])
    if name == "accuracy" and task in ("text-classification", "multiple-choice"):
        return _share(name, [g == a for g, a in zip(gold, answers, strict=True)])
    if task == "text-classification" and isinstance(gold[0], list):
        return _several_labels(name, gold, answers, labels)
    if task == "text-classification":
        return _one_label(name, gold, answers, labels)
    if task == "text-regression":
        return _scores(name, np.array(gold, dtype=np.float64), np.array(answers, dtype=np.float64))
    if task == "token-classification":
        return _tags(name, gold, answers)
    if task == "question-answering":
        return _questions(name, gold, answers)
    return None


def label_names(lines: Lines) -> list[str]:
    """The label names in the model's order where the lines have probabilities by name, else sorted as found."""
    found: list[str] = []
    if isinstance(lines[0].get("probabilities"), Mapping):
        found = list(lines[0]["probabilities"])
    occurring: set[str] = set()
    for line in lines:
        for key in ("gold", "prediction"):
            value = _field(line, key)
            occurring.update(map(str, value) if isinstance(value, list) else [str(value)])
    return found + sorted(occurring - set(found))


def is_right(line: Mapping[str, Any], *, task: str) -> bool | None:
    """Whether an example was answered rightly as a whole; None where that is no question (scores)."""
    gold, answer = _field(line, "gold"), _field(line, "prediction")
    if task == "question-answering":
        return _question_score(answer, tuple(gold), 2)[0] > 0
    if task == "text-regression":
        return None
    if task == "text-classification" and isinstance(gold, list):
        return set(gold) == set(answer)
    return bool(gold == answer)


def slice_contributions(
    lines: Lines, *, task: str, name: str, column: str, value: str, labels: Sequence[str] = ()
) -> Contributions | None:
    """What the examples of a slice add to a metric.

    `label=X` is the gold label (or tag type); there `precision`, `recall` and `f1` are those of X against all else,
    and other metrics are those of the examples whose gold label is X. Any other column selects the lines that have
    the value in it.

    Args:
        lines: of a prediction file, at least one.
        task: as in the recipe.
        name: of the metric.
        column: `label`, or a field of the lines.
        value: as text; true and false for booleans.
        labels: see `contributions`.

    Returns:
        None where the metric can't be computed from such lines.

    Raises:
        UsageError: a column that the lines don't have, a value that does not occur, a metric that is undefined there.
    """
    if column == "label" and task in ("text-classification", "token-classification"):
        if name in ("precision", "recall", "f1"):
            return _of_label(lines, task, name, value)
        chosen = [line for line in lines if value in _golds(line, task)]
        occurring = sorted({label for line in lines for label in _golds(line, task)})
    else:
        if not any(column in line for line in lines):
            known = [key for key in lines[0] if key not in ("id", "probabilities", "prediction", "gold")]
            raise UsageError(
                f"the predictions have no column '{column}'",
                remedy=f"Columns: label, {', '.join(known)}. Others are copied into prediction files when "
                f"the run is made with --set evaluation.slice_columns='[{column}]'.",
            )
        chosen = [line for line in lines if _text(line.get(column)) == value]
        occurring = sorted({_text(line.get(column)) for line in lines})
    if not chosen:
        raise UsageError(
            f"no example has {column}={value}",
            remedy=f"Values: {', '.join(occurring[:10])}{', ...' if len(occurring) > 10 else ''}.",
        )
    return contributions(chosen, task=task, name=name, labels=labels)


def _of_label(lines: Lines, task: str, name: str, label: str) -> Contributions:
    """Precision, recall or F1 of a label against all else; of entities of a type."""
    pairs = [_of_one(line, task, label) for line in lines]
    gold, found, hits = np.array([[len(g), len(f), len(g & f)] for g, f in pairs], dtype=np.float64).T
    if not gold.any():
        occurring = sorted({known for line in lines for known in _golds(line, task)})
        raise UsageError(
            f"no example has the gold label '{label}'",
            remedy=f"Labels: {', '.join(occurring[:10])}{', ...' if len(occurring) > 10 else ''}.",
        )
    if name == "precision" and not found.any():
        raise UsageError(f"the precision of '{label}' is undefined: the model never answers '{label}'")
    if task == "text-classification" and name == "recall":
        return _share(name, hits[gold > 0] > 0)
    if task == "text-classification" and name == "precision":
        return _share(name, hits[found > 0] > 0)
    return _tagged(f"entity_{name}", np.stack([gold, found, hits], axis=1))


def _of_one(line: Mapping[str, Any], task: str, label: str) -> tuple[set[Any], set[Any]]:
    """What is gold and what was answered of a label: entities of the type, or the label itself."""
    gold, answer = _field(line, "gold"), _field(line, "prediction")
    if task == "token-classification":
        return _of_type(gold, label), _of_type(answer, label)
    answers = map(str, answer) if isinstance(answer, list) else [str(answer)]
    return set(_golds(line, task)) & {label}, set(answers) & {label}


def _share(name: str, right: Sequence[bool] | NDArray[np.bool_]) -> Contributions:
    rows = np.array(right, dtype=np.float64)[:, None]
    return Contributions(name, rows, "share", _mean_statistic, np.array([[1.0, 0.0], [0.0, 1.0]]))


def _mean(name: str, values: Floats) -> Contributions:
    return Contributions(name, values[:, None], "mean", _mean_statistic, np.empty((0, 2)))


def _losses(lines: Lines, task: str) -> Contributions | None:
    losses = np.array([_field(line, "loss") for line in lines], dtype=np.float64)
    if task == "question-answering" or (
        task == "token-classification" and any(line.get("truncated") for line in lines)
    ):
        return None  # a mean over windows, or over words that were read: the lines don't say how many
    if task != "token-classification":
        return _mean("loss", losses)
    words = np.array([len(_field(line, "gold")) for line in lines], dtype=np.float64)

    def make(rows_MS: Floats) -> Statistic:
        return lambda counts: ratio(*(np.einsum("rm,m->r", counts, column) for column in rows_MS.T))

    return Contributions("loss", np.stack([losses * words, words], axis=1), "other", make, np.empty((0, 4)))


def _mean_statistic(rows_MS: Floats) -> Statistic:
    # einsum, not a matrix product: the same bits with any number of BLAS threads.
    return lambda counts: np.einsum("rm,m->r", counts, rows_MS[:, 0]) / counts.sum(axis=1)


def _one_label(name: str, gold: list[Any], answers: list[Any], labels: Sequence[str]) -> Contributions | None:
    C, number = len(labels), {label: i for i, label in enumerate(labels)}
    statistics = {"f1": f1_statistic(C, 1 if C == 2 else None), "matthews": matthews_statistic(C)}
    if name not in statistics:
        return None
    of_cells = statistics[name]
    rows = np.array([[number[str(g)], number[str(a)]] for g, a in zip(gold, answers, strict=True)], dtype=np.float64)

    def make(rows_MS: Floats) -> Statistic:
        cells_M = (rows_MS[:, 0] * C + rows_MS[:, 1]).astype(np.int64)
        order = np.argsort(cells_M, kind="stable")
        cells, starts = np.unique(cells_M[order], return_index=True)

        def statistic(counts: Floats) -> Floats:
            table = np.zeros((len(counts), C * C))
            table[:, cells] = np.add.reduceat(counts[:, order], starts, axis=1)
            return of_cells(table)

        return statistic

    # Right here and wrong there, for each label, and the other way round.
    possible = [pair for g in range(C) for pair in ((g, g, g, (g + 1) % C), (g, (g + 1) % C, g, g))]
    return Contributions(name, rows, "other", make, np.array(possible, dtype=np.float64))


def _several_labels(name: str, gold: list[Any], answers: list[Any], labels: Sequence[str]) -> Contributions | None:
    if name not in ("f1", "f1_macro"):
        return None
    C = len(labels)
    rows = np.array(
        [[*(label in g for label in labels), *(label in a for label in labels)] for g, a in _sets(gold, answers)],
        dtype=np.float64,
    )

    def make(rows_MS: Floats) -> Statistic:
        return multi_label_statistics(rows_MS[:, :C] > 0, rows_MS[:, C:] > 0)[name]

    one, none = np.eye(C), np.zeros((C, C))
    possible = np.vstack([np.hstack([one, one, one, none]), np.hstack([one, none, one, one])])
    return Contributions(name, rows, "other", make, possible)


def _sets(gold: list[Any], answers: list[Any]) -> list[tuple[set[str], set[str]]]:
    return [(set(map(str, g)), set(map(str, a))) for g, a in zip(gold, answers, strict=True)]


def _scores(name: str, gold: Floats, answers: Floats) -> Contributions | None:
    if name == "mse":
        return _mean("mse", (gold - answers) ** 2)
    if name not in ("pearson", "spearman"):
        return None
    of_pairs = pearson_statistic if name == "pearson" else spearman_statistic

    def make(rows_MS: Floats) -> Statistic:
        x, y = rows_MS[:, 0], rows_MS[:, 1]
        if not (np.ptp(x) > 0 and np.ptp(y) > 0):
            return lambda counts: np.zeros(len(counts))  # one answer to all is worth nothing
        return of_pairs(x, y)

    rows = np.stack([gold, answers], axis=1)
    return Contributions(name, rows, "other", make, np.empty((0, 4)), percentile=True)


def _tags(name: str, gold: list[Any], answers: list[Any]) -> Contributions | None:
    if name == "accuracy":
        right = [sum(map(eq, tags, found)) for tags, found in zip(gold, answers, strict=True)]
        return _tagged(name, np.array([[len(tags) for tags in gold], right], dtype=np.float64).T)
    what, _, kind = name.partition(":")  # entity_f1:PER is that of one type
    if what not in ("entity_precision", "entity_recall", "entity_f1"):
        return None
    if not kind:
        return _tagged(what, np.array(entity_counts(gold, answers), dtype=np.float64))
    pairs = [(_of_type(tags, kind), _of_type(found, kind)) for tags, found in zip(gold, answers, strict=True)]
    return _tagged(what, np.array([[len(g), len(a), len(g & a)] for g, a in pairs], dtype=np.float64))


def _of_type(tags: Sequence[str], kind: str) -> set[Entity]:
    return {entity for entity in entities(tags) if entity[0] == kind}


def _tagged(name: str, rows: Floats) -> Contributions:
    """Rows of what is there, what was answered (but for accuracy), and what is right of it."""
    possible = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0] if rows.shape[1] == 3 else [1.0, 1.0, 1.0, 0.0]
    mirrored = possible[len(possible) // 2 :] + possible[: len(possible) // 2]

    def make(rows_MS: Floats) -> Statistic:
        return tagging_statistic(name, rows_MS.astype(np.int64))

    return Contributions(name, rows, "other", make, np.array([possible, mirrored]))


def _questions(name: str, gold: list[Any], answers: list[Any]) -> Contributions | None:
    answerable = np.array([len(texts) > 0 for texts in gold])
    version: Version = 1 if answerable.all() else 2
    scored = [_question_score(said, tuple(texts), version) for said, texts in zip(answers, gold, strict=True)]
    exact, f1 = np.array(scored, dtype=np.float64).T
    chosen = {"has_answer": answerable, "no_answer": ~answerable}.get(name.rpartition("_")[0], answerable | True)
    if not chosen.any():
        return None
    if name in ("exact_match", "has_answer_exact", "no_answer_exact"):
        return _share(name, exact[chosen] > 0)
    if name in ("f1", "has_answer_f1", "no_answer_f1"):
        return Contributions(name, f1[chosen][:, None], "other", _mean_statistic, np.array([[1.0, 0.0], [0.0, 1.0]]))
    return None


@lru_cache(maxsize=2**16)  # each of SQuAD's metrics is asked for both, for each of two runs
def _question_score(said: str, gold: tuple[str, ...], version: Version) -> tuple[float, float]:
    return answer_exact(said, gold, version=version), answer_f1(said, gold, version=version)


def _golds(line: Mapping[str, Any], task: str) -> list[str]:
    """The gold labels of a line; of tags, the types of their entities."""
    gold = _field(line, "gold")
    if task == "token-classification":
        return [entity[0] for entity in entities(gold)]
    return [str(label) for label in gold] if isinstance(gold, list) else [str(gold)]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _field(line: Mapping[str, Any], key: str) -> Any:
    if key not in line:
        raise DataError(
            f"a prediction line (id {line.get('id')!r}) has no '{key}'",
            remedy="Write the predictions again: bertctl evaluate RUN --split SPLIT.",
        )
    return line[key]
