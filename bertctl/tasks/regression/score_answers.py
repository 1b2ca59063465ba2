"""What a predicted score means: text regression."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from bertctl.arrays import Floats
from bertctl.metrics import contributions, regression
from bertctl.metrics.contributions import Contributions, Metric, refuse_not_finite
from bertctl.tasks.answers import Answers, ErrorOrder, Line, Lines, Outcome, clustered, sides

_FLAT = 0.05
"""Predictions that spread by less than this share of the gold scores' spread explain less than a
tenth of them."""


def scores(lines: Lines) -> tuple[Floats, Floats]:
    """Returns (N,) gold scores and (N,) predictions, both in 64 bits.

    Raises:
        DivergedError: Predictions that are not finite.
    """
    gold, predicted = sides(lines)
    answers = np.array(predicted, dtype=np.float64)
    refuse_not_finite(answers, "predictions")
    return np.array(gold, dtype=np.float64), answers


def pearson(_: Answers, lines: Lines) -> Contributions:
    """Returns the Pearson correlation of scores and predictions."""
    return regression.pearson(*scores(lines))


def spearman(_: Answers, lines: Lines) -> Contributions:
    """Returns the Spearman correlation of scores and predictions."""
    return regression.spearman(*scores(lines))


def _mse(_: Answers, lines: Lines) -> Contributions:
    """Returns what each line adds to the mean squared error."""
    gold, predicted = scores(lines)
    return contributions.mean((gold - predicted) ** 2)


def _mae(_: Answers, lines: Lines) -> Contributions:
    """Returns what each line adds to the mean absolute error."""
    gold, predicted = scores(lines)
    return contributions.mean(np.abs(gold - predicted))


def _rmse(_: Answers, lines: Lines) -> Contributions:
    """Returns what each line adds to the root of the mean squared error."""
    return regression.rmse(*scores(lines))


def _r2(_: Answers, lines: Lines) -> Contributions:
    """Returns what each line adds to R squared."""
    return regression.r2(*scores(lines))


class ScoreAnswers(Answers):
    """One number per text or pair."""

    task: ClassVar[str] = "text-regression"
    texts: ClassVar[tuple[str, ...]] = ("text", "pair")
    checks: ClassVar[frozenset[str]] = frozenset({"scores"})
    pipeline: ClassVar[str] = "text-classification"  # the hub knows no regression; the tag says it
    tags: ClassVar[tuple[str, ...]] = ("regression",)
    usage: ClassVar[str] = """from transformers import pipeline

answer = pipeline("text-classification", model=MODEL, function_to_apply="none")
answer({example})"""
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("pearson", pearson, "Pearson correlation, -1 to 1", hub_name="pearsonr"),
        Metric("spearman", spearman, "Spearman rank correlation", hub_name="spearmanr"),
        Metric(
            "mse",
            _mse,
            "mean squared error",
            higher_is_better=False,
            is_fraction=False,
        ),
        Metric(
            "rmse",
            _rmse,
            "root of the mean squared error",
            higher_is_better=False,
            is_fraction=False,
        ),
        Metric(
            "mae",
            _mae,
            "mean absolute error",
            higher_is_better=False,
            is_fraction=False,
        ),
        Metric(
            "r2", _r2, "R squared: share of the gold scores' variance explained", is_fraction=False
        ),
    )

    def baseline_answer(self, gold: Any) -> float:
        """Returns the mean of the training rows."""
        return float(np.array(gold, dtype=np.float64).mean())

    def constant_prediction(self, lines: Lines) -> str | None:
        """Returns the score that every line got, or hardly anything else.

        The mean of the training scores is such a score.
        """
        gold, predicted = scores(lines)
        if predicted.std() < _FLAT * gold.std():
            return f"about {predicted.mean():.3g}"
        return None

    def is_right(self, line: Line) -> None:
        """Returns None: a score is more or less near."""
        return

    def is_error(self, line: Line) -> bool:
        """Returns whether the score is off at all."""
        return self.gravity(line) != 0

    def error_order(self) -> ErrorOrder:
        """Returns the order by distance."""
        return ErrorOrder("Largest errors", "the farthest off first", "off by", "{:+.3f}")

    def gravity(self, line: Line) -> float:
        """Returns how far too high the score is."""
        return float(line["prediction"]) - float(line["gold"])

    def shown(self, line: Line) -> tuple[str, str, str]:
        """Returns the texts and both scores."""
        return (
            self.shown_input(line),
            f"{float(line['gold']):g}",
            f"{float(line['prediction']):.3f}",
        )

    def group_score(self, lines: Lines) -> tuple[str, Contributions]:
        """Returns the mean absolute error, which is in the scores' own unit."""
        errors = contributions.mean(np.abs(np.array([self.gravity(line) for line in lines])))
        return "mean absolute error", clustered(replace(errors, higher_is_better=False), lines)

    def outcome(self, lines: Lines) -> Outcome:
        """Returns gold and predicted scores, to be drawn."""
        points = [(float(line["gold"]), float(line["prediction"])) for line in lines]
        return Outcome("Predicted and true scores", points=points)
