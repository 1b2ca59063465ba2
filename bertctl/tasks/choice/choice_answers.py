"""What a chosen number means: multiple choice."""

from typing import Any, ClassVar

import numpy as np

from bertctl.metrics.contributions import Metric
from bertctl.tasks.answers import Answers, Line, Lines, Outcome, accuracy, sides


class ChoiceAnswers(Answers):
    """The number of one of a row's own choices.

    Means over labels (macro F1) are left out: a number is no class.
    """

    task: ClassVar[str] = "multiple-choice"
    texts: ClassVar[tuple[str, ...]] = ("context", "choices")
    checks: ClassVar[frozenset[str]] = frozenset({"choices"})
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("accuracy", accuracy, "share of rows answered right"),
    )

    def baseline(self, constant: Any, lines: Lines) -> dict[str, float]:
        """Returns the better of two answers that ignore the texts.

        One is always the same number, the other is chance.

        Chance is the mean over rows of 1 / number of choices.
        """
        chance = float(np.mean([1 / len(line["choices"]) for line in lines]))
        baselines = super().baseline(constant, lines)
        return baselines | {"accuracy": max(baselines["accuracy"], chance)}

    def constant_prediction(self, lines: Lines) -> str | None:
        """Returns the only place that was chosen, where rows have the right one in several."""
        place = super().constant_prediction(lines)
        return place and f"choice {place}"

    def shown(self, line: Line) -> tuple[str, str, str]:
        """Returns the context, and both choices with their numbers."""
        choices = line.get("choices") or []
        gold, predicted = (
            f"{number}: {choices[number]}" if number < len(choices) else str(number)
            for number in (line["gold"], line["prediction"])
        )
        return str(line.get("context") or ""), gold, predicted

    def outcome(self, lines: Lines) -> Outcome:
        """Returns a row per place of the right choice."""
        gold, predicted = (list(map(str, answers)) for answers in sides(lines))
        pairs = [[pair] for pair in zip(gold, predicted, strict=True)]
        last_place = max(map(int, {*gold, *predicted}))
        names = [str(place) for place in range(last_place + 1)]
        return Outcome.counted(
            "By place of the right choice",
            "choice",
            names,
            lines,
            pairs,
        )
