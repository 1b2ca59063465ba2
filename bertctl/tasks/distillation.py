"""What a student minimises: its own loss, and its distance from its teacher's answers.

The loss is that of the labels. See Hinton et al. 2015, "Distilling the Knowledge in a Neural
Network".

Letters: B windows in a batch, T tokens, C classes, N rows, P words of a split, W words of a batch.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from bertctl.arrays import Ints
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import Features, FeaturesT, Network, Objective, TaskObjective
from bertctl.tasks.batches import IGNORED, Batch
from bertctl.tasks.objectives import HeadObjective, SquaredError
from bertctl.tasks.questions.answer_windows import AnswerFeatures
from bertctl.tasks.tagging.word_windows import WordBatch, WordFeatures
from bertctl.tasks.teacher_answers import TeacherAnswers

_NO_PROBABILITY = -1e9
"""Score of a position that is padding: its probability is 0, and its divergence, too."""


@dataclass(frozen=True)
class TaughtBatch(Batch):
    """A batch with the teacher's answers.

    Attributes:
        answers: (B, C) logits of the teacher; of spans (B, T, 2) scores of positions.
    """

    answers: Tensor


@dataclass(frozen=True)
class TaughtWords(WordBatch):
    """A batch of words with the teacher's answers.

    Attributes:
        answers: (W, C) logits of the teacher for the words that the batch's windows answer.
    """

    answers: Tensor


@dataclass(frozen=True)
class LabelledShare:
    """How many of the windows that are trained on have a label.

    Attributes:
        windows: Their share.
        answers: How many answers of the teacher a window has on average: 1, or its words.
    """

    windows: float
    answers: float = 1.0


TaughtT = TypeVar("TaughtT", TaughtBatch, TaughtWords)


@dataclass(frozen=True)
class Distillation(Objective[FeaturesT, TaughtT, Tensor], Generic[FeaturesT, TaughtT]):
    """alpha times the loss on the labels, and 1 - alpha times that on the teacher's answers.

    Each of the two is a mean: the first over the rows that have a label, the second over all rows.
    Where only some rows have one, each batch is divided by as many as it would have on average, so
    that a label weighs the same whatever else is in its batch.

    Attributes:
        base: Loss on the labels.
        answers: Logits of the teacher, an entry for each training row; of tags for each word, of
            spans for each position of each window.
        alpha: Weight of the labels.
        temperature: What the logits of both are divided by.
        labelled: Share of the rows that have a label; None where all have one.
    """

    base: HeadObjective[Batch]
    answers: TeacherAnswers
    alpha: float
    temperature: float
    labelled: LabelledShare | None = None

    def forward(self, network: Network, batch: TaughtT) -> Tensor:
        """Returns the head's numbers in float32."""
        return self.base.forward(network, batch)

    @abstractmethod
    def teacher_losses(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Returns the (B,) losses of (B, C) outputs on (B, C) answers of the teacher."""


class RowDistillation(Distillation[Features, TaughtBatch]):
    """Distillation of an answer per row."""

    def batch(self, features: Features, indices: Ints, rng: WindowRandom) -> TaughtBatch:
        """Returns some windows as padded tensors, with the teacher's answers to them."""
        batch = self.base.batch(features, indices, rng)
        answers = torch.from_numpy(self.answers.take(features.rows[indices]))
        return TaughtBatch(batch.inputs, batch.labels, answers)

    def counts(self, batch: TaughtBatch) -> Mapping[str, float]:
        """Returns how many windows have a label, and how many have the teacher's answers (all).

        If only some rows are labelled, the first number is an average: the share of windows with a
        label, times the windows of the batch. A label then weighs the same in every batch.
        """
        n_windows = len(batch.answers)
        if self.labelled is not None:
            return {"label": n_windows * self.labelled.windows, "teacher": n_windows}
        return {"label": int(_has_label(batch.gold).sum()), "teacher": n_windows}

    def losses(self, outputs: Tensor, batch: TaughtBatch) -> dict[str, Tensor]:
        """Returns the loss on the labels and that on the teacher's answers.

        Each is a sum over the windows of the batch. They are weighted by alpha and 1 - alpha.
        """
        labels = batch.gold
        has_label = _has_label(labels)
        if labels.is_floating_point():
            # A missing label is NaN, and NaN times 0 would still be NaN in the sum below.
            labels = labels.nan_to_num()
        of_labels = self.base.window_losses(outputs, replace(batch, labels=labels))
        of_teacher = self.teacher_losses(outputs, batch.answers)
        return {
            "label": self.alpha * (of_labels * has_label).sum(),
            "teacher": (1.0 - self.alpha) * of_teacher.sum(),
        }


class ClassDistillation(RowDistillation):
    """Distillation of one class per row.

    The loss is T^2 times the Kullback-Leibler divergence of the student's probabilities from the
    teacher's, both at temperature T.

    The factor keeps the gradient's size whatever the temperature is (Hinton et al. 2015,
    section 2).
    """

    def teacher_losses(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Returns the (B,) divergences, times T^2."""
        return _divergences(outputs, answers, self.temperature)


class TagDistillation(Distillation[WordFeatures, TaughtWords]):
    """Distillation of a tag per word: that of classes, at each word's first token.

    Teacher and student may break words into other tokens, as their answers are about words.
    """

    def batch(self, features: WordFeatures, indices: Ints, rng: WindowRandom) -> TaughtWords:
        """Returns some windows as padded tensors, with the teacher's answers to their words."""
        batch = self.base.batch(features, indices, rng)
        assert isinstance(batch, WordBatch)  # noqa: S101 - of the features of words
        answers = torch.from_numpy(self.answers.take(features.prediction_indices(indices)))
        return TaughtWords(
            inputs=batch.inputs,
            labels=batch.labels,
            windows=batch.windows,
            columns=batch.columns,
            answers=answers,
        )

    def counts(self, batch: TaughtWords) -> Mapping[str, float]:
        """Returns how many words have a label, and how many have the teacher's answers.

        Both are averages: the words that a window has on average, times the windows of the batch.
        If only some rows are labelled, the first is also multiplied by the share of their windows.
        """
        n_words = self.base.counts(batch)["loss"]
        if self.labelled is not None:
            return {
                "label": n_words * self.labelled.windows,
                "teacher": len(batch.gold) * self.labelled.answers,
            }
        return {"label": n_words, "teacher": n_words}

    def losses(self, outputs: Tensor, batch: TaughtWords) -> dict[str, Tensor]:
        """Returns the loss on the labels and that on the teacher's answers.

        Each is a sum over the words of the batch. They are weighted by alpha and 1 - alpha.

        Args:
            outputs: (B, T, C) logits of the student.
            batch: The words of its windows, with the teacher's logits.
        """
        windows = torch.as_tensor(batch.windows, device=outputs.device)
        columns = torch.as_tensor(batch.columns, device=outputs.device)
        of_teacher = self.teacher_losses(outputs[windows, columns], batch.answers)
        return {
            "label": self.alpha * self.base.window_losses(outputs, batch).sum(),
            "teacher": (1.0 - self.alpha) * of_teacher.sum(),
        }

    def teacher_losses(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Returns the (W,) divergences of words, times T^2."""
        return _divergences(outputs, answers, self.temperature)


class SpanDistillation(Distillation[AnswerFeatures, TaughtBatch]):
    """Distillation of spans: T^2 times the divergence over the positions of a window.

    It is the mean of that of starts and that of ends.

    Teacher and student read the same windows. Positions of padding have no probability.
    """

    def batch(self, features: AnswerFeatures, indices: Ints, rng: WindowRandom) -> TaughtBatch:
        """Returns some windows as padded tensors, with the teacher's scores of their positions."""
        batch = self.base.batch(features, indices, rng)
        is_token = batch.inputs["attention_mask"] != 0
        answers = torch.zeros(*is_token.shape, 2)
        answers[is_token] = torch.from_numpy(self.answers.take(features.positions_of(indices)))
        return TaughtBatch(batch.inputs, batch.labels, answers)

    def counts(self, batch: TaughtBatch) -> Mapping[str, float]:
        """Returns how many windows have an answer that can be found, and how many there are.

        If only some rows are labelled, the first number is an average: the share of windows with a
        label, times the windows of the batch. A label then weighs the same in every batch.
        """
        n_windows = len(batch.answers)
        if self.labelled is not None:
            return {"label": n_windows * self.labelled.windows, "teacher": n_windows}
        return {"label": self.base.counts(batch)["loss"], "teacher": n_windows}

    def losses(self, outputs: Tensor, batch: TaughtBatch) -> dict[str, Tensor]:
        """Returns the loss on the labels and that on the teacher's answers.

        Each is a sum over the windows of the batch. They are weighted by alpha and 1 - alpha.

        Args:
            outputs: (B, T, 2) start and end scores of the student.
            batch: The windows, with the teacher's scores.
        """
        is_padding = (batch.inputs["attention_mask"] == 0)[:, :, None]
        # (B, 2, T): the positions are the classes of a start, and those of an end.
        student = outputs.masked_fill(is_padding, _NO_PROBABILITY).transpose(1, 2)
        teacher = batch.answers.masked_fill(is_padding, _NO_PROBABILITY).transpose(1, 2)
        of_teacher = self.teacher_losses(student, teacher)
        return {
            "label": self.alpha * self.base.window_losses(outputs, batch).sum(),
            "teacher": (1.0 - self.alpha) * of_teacher.sum(),
        }

    def teacher_losses(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Returns T^2 times the (B,) divergences of (B, 2, T) scores, mean over start and end."""
        return _divergences(outputs, answers, self.temperature).mean(dim=1)


class LabelSetDistillation(RowDistillation):
    """Distillation of several labels per row.

    The loss is the mean over the labels of T^2 times the divergence of "has it, has it not".
    """

    def teacher_losses(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Returns T^2 times the (B,) divergences of the student from the teacher, mean over labels.

        Each label is a decision of its own, at temperature T.

        Args:
            outputs: (B, C) logits of the student.
            answers: (B, C) logits of the teacher.
        """
        student = outputs / self.temperature
        teacher = answers / self.temperature
        targets = teacher.sigmoid()
        # The divergence is the cross-entropy without the entropy of the teacher's probabilities.
        cross_entropies = functional.binary_cross_entropy_with_logits(
            student, targets, reduction="none"
        )
        entropies = functional.binary_cross_entropy_with_logits(teacher, targets, reduction="none")
        return (cross_entropies - entropies).mean(dim=-1) * self.temperature**2


class ScoreDistillation(RowDistillation):
    """Distillation of a score per row.

    The loss is the squared difference from the teacher's score, in units of the training scores'
    variance. No temperature is read.
    """

    is_log_likelihood: ClassVar[bool] = False

    def teacher_losses(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Returns the (B,) squared differences."""
        assert isinstance(self.base, SquaredError)  # noqa: S101 - by `distillation_of`
        return ((outputs[:, 0] - answers[:, 0]) / self.base.deviation) ** 2


def distillation_of(
    base: TaskObjective,
    answers: TeacherAnswers,
    *,
    alpha: float,
    temperature: float,
    by_word: bool = False,
    labelled: LabelledShare | None = None,
) -> Distillation[Any, Any]:
    """Returns what a student minimises: the distillation that goes with its loss on the labels.

    Args:
        base: Loss on the labels; its type decides how the teacher's answers are learned.
        answers: Logits of the teacher, (N, C), or (P, C) by word.
        alpha: Weight of the labels.
        temperature: What logits are divided by.
        by_word: Whether each word has a class.
        labelled: Share of the rows that have a label; None where all have one.

    Raises:
        TypeError: A loss that has no counterpart for a teacher.
    """
    from bertctl.tasks.objectives import BinaryCrossEntropy, CrossEntropy, SpanCrossEntropy

    kinds: tuple[tuple[type[HeadObjective[Batch]], type[Distillation[Any, Any]]], ...] = (
        (CrossEntropy, TagDistillation if by_word else ClassDistillation),
        (BinaryCrossEntropy, LabelSetDistillation),
        (SpanCrossEntropy, SpanDistillation),
        (SquaredError, ScoreDistillation),
    )
    for kind, distillation in kinds:
        if isinstance(base, kind):
            return distillation(
                base,
                answers,
                alpha,
                temperature,
                labelled,
            )
    raise TypeError(f"no student learns by {type(base).__name__}")


def _divergences(outputs: Tensor, answers: Tensor, temperature: float) -> Tensor:
    """Returns T^2 times the (...,) Kullback-Leibler divergences of outputs from answers.

    Both are (..., C), at temperature T.
    """
    divergences = functional.kl_div(
        functional.log_softmax(outputs / temperature, dim=-1),
        functional.log_softmax(answers / temperature, dim=-1),
        log_target=True,
        reduction="none",
    )
    return divergences.sum(dim=-1) * temperature**2


def _has_label(labels: Tensor) -> Tensor:
    """Returns (B,) whether a row has a label, of classes, 0/1 rows or scores."""
    if labels.is_floating_point():
        if labels.dim() > 1:
            return ~labels.flatten(1).isnan().any(dim=1)
        return ~labels.isnan()
    return labels != IGNORED
