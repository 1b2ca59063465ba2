"""Multiple choice (paper, section 4.4: SWAG).

Context and choice are read as a pair, each gets a score, and the softmax goes over the scores.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Array, Floats32
from bertctl.config.recipe_sections import TrainingSection
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.errors import DataError
from bertctl.runtime.batching import Padding
from bertctl.tasks.answers import Answers
from bertctl.tasks.array_losses import choice_cross_entropies
from bertctl.tasks.base import Outputs, Task, TaskObjective, label_fields
from bertctl.tasks.batches import present
from bertctl.tasks.choice.choice_answers import ChoiceAnswers
from bertctl.tasks.choice.choices import ChoiceArrays, ChoiceFeatures, encode_choices
from bertctl.tasks.probabilities import softmax
from bertctl.tasks.targets import Answered, Part, Target


@dataclass(frozen=True)
class MultipleChoice(Task):
    """One of a row's own choices, two or more; rows may differ in how many they have."""

    name: ClassVar[str] = "multiple-choice"
    auto_class: ClassVar[str] = "AutoModelForMultipleChoice"
    columns: ClassVar[tuple[str, ...]] = ("context", "choices")
    answer_type: ClassVar[type[Answers]] = ChoiceAnswers
    primary_metric: ClassVar[str] = "accuracy"

    @classmethod
    def from_data(
        cls, recipe: Recipe, train: Rows, labels: Sequence[str] | None
    ) -> "MultipleChoice":
        """Returns the task; there is nothing to learn from the rows."""
        return cls()

    @classmethod
    def from_model(cls, recipe: Recipe, model_config: Mapping[str, Any]) -> "MultipleChoice":
        """Returns the task; the choices have no names."""
        return cls()

    def head(self) -> dict[str, Any]:
        """Returns the fields of the model's config: one output, a score named `choice`.

        The problem type is the one that transformers has for a single output. Its head for multiple
        choice does not read it.
        """
        return label_fields(["choice"], "regression")

    def check(self, rows: Rows) -> None:
        """Refuses labels that point outside their row's choices.

        Raises:
            DataError: There is such a label; the message has file, line, and what fits.
        """
        if not rows.has("label"):
            return
        for index, (label, choices) in enumerate(
            zip(rows.columns["label"], rows.columns["choices"], strict=True)
        ):
            if not 0 <= label < len(choices):
                message = (
                    f"{rows.where(index)}: the label {label} points outside its {len(choices)} "
                    "choices"
                )
                raise DataError(
                    message,
                    remedy=f"Numbers of choices count from 0; here 0 to {len(choices) - 1} fit.",
                )

    def encode(self, rows: Rows, tokenizer: Tokenizer, *, max_length: int) -> ChoiceFeatures:
        """Returns each choice as a pair with its context, and the (N,) numbers of right choices."""
        if rows.has("label"):
            labels = np.array(rows.columns["label"], dtype=np.int64)
        else:
            labels = None
        return encode_choices(
            rows,
            labels,
            tokenizer,
            max_length=max_length,
        )

    def objective(
        self, padding: Padding, training: TrainingSection | None = None, train: Any = None
    ) -> TaskObjective:
        """Returns cross-entropy over each row's own choices."""
        from bertctl.tasks.objectives import ChoiceCrossEntropy

        return ChoiceCrossEntropy(padding)

    def array_outputs(self, outputs: Any) -> Array:
        """Returns a score for each choice of the batch, (K,)."""
        scores: Array = outputs.logits[:, 0]
        return scores

    def array_losses(self, outputs: Array, batch: ChoiceArrays) -> Floats32:
        """Returns the cross-entropies over each row's own choices."""
        return choice_cross_entropies(outputs, present(batch.labels), batch.counts)

    def decode(
        self, outputs: Outputs, features: ChoiceFeatures, rows: Rows
    ) -> list[dict[str, Any]]:
        """Returns the number of the likeliest choice, and the probability of each."""
        probabilities = _probabilities(outputs["logits"], features)
        return [
            {"prediction": int(row.argmax()), "probabilities": row[:count].tolist()}
            for row, count in zip(probabilities, features.counts.tolist(), strict=True)
        ]

    def targets(self, answered: Answered, label: str | None) -> list[Target]:
        """Returns the score of each row's chosen choice, for explanations.

        It rests on the context and on that choice alone.
        """
        contexts = answered.rows.columns["context"]
        choices = answered.rows.columns["choices"]
        targets = []
        for row, answer in enumerate(answered.answers):
            choice = int(answer["prediction"])
            target = Target(
                row,
                window=row,
                places=((),),  # a choice has one score, so no index is needed
                named={"choice": choice},
                parts=(Part("context", contexts[row]), Part("choice", choices[row][choice])),
                line=choice,
            )
            targets.append(target)
        return targets

    def describe(self, rows: Rows) -> str:
        """Returns how many choices, and how often each is the right one."""
        sizes = sorted({len(choices) for choices in rows.columns["choices"]})
        if len(sizes) == 1:
            n_choices = str(sizes[0])
        else:
            n_choices = f"{sizes[0]} to {sizes[-1]}"
        if not rows.has("label"):
            return f"{n_choices} choices"

        counts = Counter(rows.columns["label"])
        counts_text = ", ".join(
            f"{number}: {counts[number]}" for number in range(min(sizes[-1], 10))
        )
        return f"{n_choices} choices; right one {counts_text}" + (", ..." if sizes[-1] > 10 else "")

    def gold(self, rows: Rows, index: int) -> int:
        """Returns the number of the right choice."""
        return int(rows.columns["label"][index])


def _probabilities(logits_S: Floats32, features: ChoiceFeatures) -> Floats32:
    """Returns (N, most choices) probabilities of (S,) scores; 0 where a row has fewer choices."""
    counts = features.counts
    scores = np.full((len(features), int(counts.max(initial=0))), -np.inf, dtype=np.float32)
    scores[np.arange(scores.shape[1]) < counts[:, None]] = logits_S  # elsewhere minus infinity
    return softmax(scores)
