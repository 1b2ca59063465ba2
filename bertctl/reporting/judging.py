"""What each prediction line is worth: right or wrong, how far off, which entities; and the score of a group of lines.

Letters: N lines.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertctl.metrics.answers import answer_exact
from bertctl.metrics.statistics import bootstrap_interval, mean_interval, wilson_interval
from bertctl.metrics.tagging import entity_counts
from bertctl.reporting.runs import Line

RESAMPLES = 500


@dataclass(frozen=True)
class Judge:
    """A score that any group of lines has.

    Attributes:
        name: of the score.
        kind: a share of right answers, a mean, or a ratio of sums.
        numerators: (N,) right or not; the value; or what is summed up above.
        denominators: (N,) what is summed up below; ones except for a ratio.
        wrong: (N,) whether the line is an error to look at.
        weights: (N,) how grave an error is, or how sure the model was of it.
    """

    name: str
    kind: Literal["share", "mean", "ratio"]
    numerators: NDArray[np.float64]
    denominators: NDArray[np.float64]
    wrong: NDArray[np.bool_]
    weights: NDArray[np.float64]

    def score(self, lines: NDArray[np.int64]) -> dict[str, Any]:
        """`value`, `low`, `high` (95 %; None where there is none) and `n` of the lines with these numbers."""
        above, below, n = self.numerators[lines], self.denominators[lines], int(lines.size)
        value = float(above.sum() / below.sum()) if below.sum() else 0.0
        low: float | None = None
        high: float | None = None
        if self.kind == "share":
            low, high = wilson_interval(int(above.sum()), n)
        elif n >= 10 and self.kind == "mean":
            low, high = mean_interval(above, resamples=RESAMPLES, seed=0)
            low = max(0.0, low)
        elif n >= 10:

            def ratio(counts_RM: NDArray[np.float64]) -> NDArray[np.float64]:
                top, bottom = np.einsum("rm,m->r", counts_RM, above), np.einsum("rm,m->r", counts_RM, below)
                ratios: NDArray[np.float64] = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
                return ratios

            low, high = bootstrap_interval(ratio, n, resamples=RESAMPLES, seed=0, method="percentile")
        return {"value": value, "low": low, "high": high, "n": n}


def judge(lines: Sequence[Line], task: str) -> Judge:
    """The score that groups of these lines are compared by, and which of them are errors.

    Args:
        lines: of a prediction file, at least one.
        task: as in `recipe.task`.
    """
    if task == "text-regression":
        distance = np.array([abs(float(line["prediction"]) - float(line["gold"])) for line in lines])
        return Judge("mean absolute error", "mean", distance, np.ones_like(distance), distance > 0, distance)
    if task == "token-classification":
        return _tag_judge(lines)
    if task == "question-answering":
        right = np.array([answer_exact(line["prediction"], line["gold"]) for line in lines], dtype=np.float64)
        name = "exact match"
    else:
        right = np.array([_same(line["gold"], line["prediction"]) for line in lines], dtype=np.float64)
        name = "accuracy"
    sure = np.array([confidence(line) for line in lines])
    return Judge(name, "share", right, np.ones_like(right), right == 0, sure)


def confidence(line: Line) -> float:
    """The probability that the line gives its own answer; 0 where it has none, with several labels the loss."""
    probabilities, prediction = line.get("probabilities"), line["prediction"]
    if isinstance(prediction, list):
        return float(line.get("loss", 0.0))
    if isinstance(probabilities, Mapping):
        return float(probabilities.get(prediction, 0.0))
    if isinstance(probabilities, Sequence):
        return float(probabilities[prediction])
    return float(line.get("probability") or 0.0)


def _same(gold: Any, prediction: Any) -> bool:
    if isinstance(gold, list) and isinstance(prediction, list):
        return set(gold) == set(prediction)
    return bool(gold == prediction)


def _tag_judge(lines: Sequence[Line]) -> Judge:
    losses = np.array([float(line.get("loss", 0.0)) for line in lines])
    wrong = np.array([list(line["gold"]) != list(line["prediction"]) for line in lines])
    if not marks_entities(lines):
        right = [sum(map(_same, line["gold"], line["prediction"])) for line in lines]
        words = [len(line["gold"]) for line in lines]
        return Judge("accuracy of words", "ratio", _floats(right), _floats(words), wrong, losses)
    counts = entity_counts([line["gold"] for line in lines], [line["prediction"] for line in lines])
    above, below = [2 * right for _, _, right in counts], [there + found for there, found, _ in counts]
    return Judge("entity F1", "ratio", _floats(above), _floats(below), wrong, losses)


def _floats(values: Iterable[float]) -> NDArray[np.float64]:
    return np.array(list(values), dtype=np.float64)


def marks_entities(lines: Sequence[Line]) -> bool:
    """Whether the gold tags mark entities (`B-PER`, `I-PER`), not words (`NOUN`)."""
    tags = {tag for line in lines for tag in line["gold"]}
    return any(tag[:2] in ("B-", "I-", "S-", "E-") for tag in tags)


def stated_probabilities(lines: Sequence[Line], task: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
    """What was promised and whether it held: the probability of each answer, or with several labels of each label.

    Returns:
        Two (N,) arrays, or None where the lines have no probabilities.
    """
    if not lines or not (lines[0].get("probabilities") or lines[0].get("probability") is not None):
        return None
    if isinstance(lines[0]["prediction"], list):
        stated = [(p, name in line["gold"]) for line in lines for name, p in line["probabilities"].items()]
    else:
        right = judge(lines, task).numerators
        stated = [(confidence(line), bool(ok)) for line, ok in zip(lines, right, strict=True)]
    return np.clip([p for p, _ in stated], 0.0, 1.0), np.array([held for _, held in stated], dtype=np.bool_)
