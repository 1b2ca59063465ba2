"""Scores for texts and pairs (paper, section 4.1: STS-B): one output, squared error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Array, Floats, Floats32
from bertctl.config.recipe_sections import TrainingSection
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.data.table import require_score
from bertctl.errors import DataError
from bertctl.runtime.batching import Padding
from bertctl.tasks.answers import Answers
from bertctl.tasks.array_losses import squared_errors
from bertctl.tasks.base import Outputs, Task, TaskObjective, label_fields
from bertctl.tasks.batches import ArrayBatch, present
from bertctl.tasks.regression.score_answers import ScoreAnswers
from bertctl.tasks.sequences import SequenceFeatures, encode_rows, long_text_of
from bertctl.tokenization.long_texts import HEAD, LongText

_FINEST = 1e-3
"""Share of the scores' deviation that one step of 32-bit numbers may be."""


@dataclass(frozen=True)
class TextRegression(Task):
    """One number for each text or pair.

    Attributes:
        low: Lowest score that is predicted; None for no limit.
        high: Highest.
        mean: Mean of the training scores.
        deviation: Standard deviation of the training scores, the unit of the loss.
        long: What is read of a text that is too long.
    """

    low: float | None
    high: float | None
    mean: float = 0.0
    deviation: float = 1.0
    long: LongText = HEAD

    name: ClassVar[str] = "text-regression"
    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    columns: ClassVar[tuple[str, ...]] = ("text",)
    answer_type: ClassVar[type[Answers]] = ScoreAnswers
    baselines: ClassVar[tuple[str, ...]] = ("frozen", "tfidf")
    primary_metric: ClassVar[str] = "spearman"

    @classmethod
    def from_data(
        cls, recipe: Recipe, train: Rows, labels: Sequence[str] | None
    ) -> "TextRegression":
        """Reads the range of the scores.

        Raises:
            DataError: A label that is no finite number, one value only, or differences that 32 bits
                don't hold.
        """
        scores = _scores(train)
        low = float(scores.min())
        high = float(scores.max())
        if low == high:
            message = f"{train.source}: every score is {low:g}; nothing can be learned"
            raise DataError(
                message, remedy="Check `data.label_column=`, or add rows with other scores."
            )
        mean = float(scores.mean())
        deviation = float(scores.std())
        _refuse_fine_differences(
            train.source,
            mean,
            deviation,
            largest=max(abs(low), abs(high)),
        )
        clip = recipe.text_regression.clip_to_training_range
        long = long_text_of(recipe, train)
        return cls(
            low if clip else None,
            high if clip else None,
            mean=mean,
            deviation=deviation,
            long=long,
        )

    @classmethod
    def from_model(cls, recipe: Recipe, model_config: Mapping[str, Any]) -> "TextRegression":
        """Returns the limits and the training scores' scale, where the model's config has them."""
        low, high = model_config.get("score_range") or (None, None)
        mean, deviation = model_config.get("score_scale") or (0.0, 1.0)
        return cls(
            low,
            high,
            mean,
            deviation,
            long_text_of(recipe),
        )

    def head(self) -> dict[str, Any]:
        """Returns one output, named `score`."""
        if self.low is None:
            limits = {}
        else:
            limits = {"score_range": [self.low, self.high]}
        scale = {"score_scale": [self.mean, self.deviation]}
        return label_fields(["score"], "regression") | limits | scale | self.long.fields()

    def check(self, rows: Rows) -> None:
        """Refuses labels that are no finite numbers.

        Raises:
            DataError: There is such a label; the message has file and line.
        """
        _scores(rows)

    def encode(self, rows: Rows, tokenizer: Tokenizer, *, max_length: int) -> SequenceFeatures:
        """Returns texts as ids, scores as (N,) float64."""
        if rows.has("label"):
            labels = _scores(rows)
        else:
            labels = None
        return encode_rows(rows, labels, tokenizer, replace(self.long, max_length=max_length))

    def objective(
        self, padding: Padding, training: TrainingSection | None = None, train: Any = None
    ) -> TaskObjective:
        """Returns the squared error, in units of the training scores' variance."""
        from bertctl.tasks.objectives import SquaredError

        return SquaredError(padding, self.deviation, self.mean)

    def array_losses(self, outputs: Array, batch: ArrayBatch) -> Floats32:
        """Returns the squared errors."""
        return squared_errors(
            outputs[:, 0],
            present(batch.labels),
            mean=self.mean,
            deviation=self.deviation,
        )

    def decode(
        self, outputs: Outputs, features: SequenceFeatures, rows: Rows
    ) -> list[dict[str, Any]]:
        """Returns the score."""
        scores = outputs["logits"][:, 0].astype(np.float64)
        if self.low is not None:
            scores = np.clip(scores, self.low, self.high)
        return [{"prediction": float(score)} for score in scores]

    def describe(self, rows: Rows) -> str:
        """Returns range and mean."""
        scores = _scores(rows)
        return f"scores {scores.min():g} to {scores.max():g}, mean {scores.mean():.3g}"

    def gold(self, rows: Rows, index: int) -> float:
        """Returns the score of a row."""
        return require_score(rows, index)


def _scores(rows: Rows) -> Floats:
    """Returns (N,) the labels as numbers.

    Raises:
        DataError: A label that is no finite number.
    """
    return np.array([require_score(rows, i) for i in range(len(rows))], dtype=np.float64)


def _refuse_fine_differences(source: str, mean: float, deviation: float, *, largest: float) -> None:
    """Refuses scores that differ by hardly more than the step between two 32-bit numbers.

    A model answers in 32 bits, so it could not tell such scores apart.

    Args:
        source: Where the scores are from, for the message.
        mean: Mean of the scores.
        deviation: Standard deviation of the scores.
        largest: Largest absolute score. The step grows with the size of numbers.

    Raises:
        DataError: Such scores.
    """
    step = float(np.spacing(np.float32(largest)))
    if step <= _FINEST * deviation:
        return
    raise DataError(
        f"{source}: the scores deviate by {deviation:.3g} around {mean:.10g}, where models answer "
        f"in steps of {step:g}",
        remedy=f"Subtract {mean:.0f} from every score, or take another unit: 32 bits hold about "
        "seven digits.",
    )
