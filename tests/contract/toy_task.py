"""A task that only the tests know: ordinal ratings, one whole number from 1 to 5 per text.

It is one file and one registry line, as a task of the package would be; a `bertctl` process of the
nursery knows it when its environment has `NURSERY_IMPORTS=toy_task`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from bertctl.config.recipe_sections import TrainingSection
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.data.table import require_label
from bertctl.errors import DataError
from bertctl.metrics import contributions
from bertctl.metrics.contributions import Metric
from bertctl.runtime.batching import Padding
from bertctl.tasks.answers import Answers, Lines, Outcome, sides
from bertctl.tasks.base import Outputs, Task
from bertctl.tasks.registry import register
from bertctl.tasks.sequences import SequenceFeatures, encode_rows
from bertctl.tokenization.long_texts import LongText

NAME = "ordinal-rating"
LOWEST = 1
HIGHEST = 5


def _distances(lines: Lines) -> np.ndarray:
    gold, message = sides(lines)
    return np.abs(np.array(gold, dtype=np.float64) - np.array(message, dtype=np.float64))


class RatingAnswers(Answers):
    """Whole numbers that are more or less near."""

    texts: ClassVar[tuple[str, ...]] = ("text", "pair")
    columns: ClassVar[tuple[str, ...]] = ("text", "pair")
    pipeline: ClassVar[str] = "text-classification"
    usage: ClassVar[str] = "network = AutoModelForSequenceClassification.from_pretrained(MODEL)"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "within_one",
            lambda _, lines: contributions.share(list(_distances(lines) <= 1)),
            "off by one at most",
        ),
        Metric(
            "stars_off",
            lambda _, lines: contributions.mean(_distances(lines)),
            "mean distance in stars",
            higher_is_better=False,
            is_fraction=False,
        ),
    )

    def outcome(self, lines: Lines) -> Outcome:
        """Returns a row per rating."""
        gold, message = (list(map(str, side)) for side in sides(lines))
        pairs = [[pair] for pair in zip(gold, message, strict=True)]
        names = [str(stars) for stars in range(LOWEST, HIGHEST + 1)]
        return Outcome.counted("By rating", "rating", names, lines, pairs)


@dataclass(frozen=True)
class OrdinalRating(Task):
    """One score per text, rounded."""

    name: ClassVar[str] = NAME
    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    columns: ClassVar[tuple[str, ...]] = ("text",)
    answer_type: ClassVar[type[Answers]] = RatingAnswers
    primary_metric: ClassVar[str] = "stars_off"

    @property
    def answers(self) -> RatingAnswers:
        """What a rating means."""
        return RatingAnswers()

    @classmethod
    def from_data(cls, recipe: Recipe, train: Rows, labels: Sequence[str] | None) -> Self:
        """Needs nothing of them."""
        return cls()

    @classmethod
    def from_model(cls, recipe: Recipe, model_config: Mapping[str, Any]) -> Self:
        """Needs nothing of it."""
        return cls()

    def head(self) -> dict[str, Any]:
        """One output."""
        return {
            "num_labels": 1,
            "id2label": {0: "stars"},
            "label2id": {"stars": 0},
            "problem_type": "regression",
        }

    def check(self, rows: Rows) -> None:
        """Refuses what is no rating."""
        for index in range(len(rows)) if rows.has("label") else ():
            if str(require_label(rows, index)) not in "12345":
                raise DataError(
                    f"{rows.where(index)}: {rows.columns['label'][index]!r} is no rating"
                )

    def encode(self, rows: Rows, tokenizer: Any, *, max_length: int) -> SequenceFeatures:
        """Texts to ids, ratings to numbers."""
        stars = (
            np.array([self.gold(rows, i) for i in range(len(rows))], np.float32)
            if rows.has("label")
            else None
        )
        return encode_rows(rows, stars, tokenizer, LongText(max_length=max_length))

    def objective(
        self, padding: Padding, training: TrainingSection | None = None, train: Any = None
    ) -> Any:
        """The absolute error: an objective that the package does not have."""
        from bertctl.tasks.objectives import HeadObjective

        class AbsoluteError(HeadObjective):
            def window_losses(self, outputs: Any, batch: Any) -> Any:
                return (outputs[:, 0] - batch.gold).abs()

        return AbsoluteError(padding)

    def decode(self, outputs: Outputs, features: Any, rows: Rows) -> list[dict[str, Any]]:
        """The nearest rating."""
        return [
            {"prediction": int(np.clip(round(float(logit)), LOWEST, HIGHEST))}
            for logit in outputs["logits"][:, 0]
        ]

    def describe(self, rows: Rows) -> str:
        """How often each rating is there."""
        return f"stars {dict(sorted(Counter(map(str, rows.columns['label'])).items()))}"

    def gold(self, rows: Rows, index: int) -> int:
        """The rating of a row."""
        return int(str(rows.columns["label"][index]))


register(OrdinalRating)
