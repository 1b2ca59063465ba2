"""What training minimises.

An objective makes batches, passes them through the network and says what their losses are.

The training loop knows a task only by its objective. A loss is a sum over the things it counts
(examples, words, masked tokens); the loop divides it by their number in the whole global batch,
over all micro-batches and processes, so that it makes no difference how the batch is split.

Letters: B windows in a batch, T tokens, C classes.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, cast

import torch
from torch import Tensor, float32, inf, split, stack, tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from bertctl.arrays import Ints
from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import BatchT, Features, Network, Objective
from bertctl.tasks.batches import IGNORED, Batch
from bertctl.tasks.choice.choices import ChoiceBatch


@dataclass(frozen=True)
class HeadObjective(Objective[Features, BatchT, Tensor], Generic[BatchT]):
    """The mean loss of a labelled head.

    Fine-tuning minimises it, and evaluation reports it of each window. Its batches are those that
    the features of its task collate.

    Attributes:
        padding: How batches are filled up.
    """

    padding: Padding
    outputs: ClassVar[tuple[str, ...]] = ("logits",)
    """Names of the model's outputs that are read."""

    def batch(self, features: Features, indices: Ints, rng: WindowRandom) -> BatchT:
        """Returns some windows as padded tensors; nothing is drawn."""
        return cast("BatchT", features.collate(indices, self.padding))

    def forward(self, network: Network, batch: BatchT) -> Tensor:
        """Returns the head's numbers in float32."""
        return self.logits(network(**batch.inputs)).float()

    def logits(self, output: Any) -> Tensor:
        """Returns the head's numbers out of what the model's forward returns."""
        logits: Tensor = output.logits
        return logits

    def of_lines(self, inputs: dict[str, Tensor]) -> Batch:
        """Returns lines of input, (B, T) tensors, as a batch.

        Each line in it is answered by itself.
        """
        return Batch(inputs, None)

    def counts(self, batch: BatchT) -> Mapping[str, float]:
        """Returns how many examples there are."""
        return {"loss": len(batch.gold)}

    def losses(self, outputs: Tensor, batch: BatchT) -> dict[str, Tensor]:
        """Returns the sum over the batch."""
        return {"loss": self.window_losses(outputs, batch).sum()}

    @abstractmethod
    def window_losses(self, outputs: Tensor, batch: BatchT) -> Tensor:
        """Returns the (B,) losses of the windows, each a sum over its labelled things."""


@dataclass(frozen=True)
class ClassObjective(HeadObjective[Batch]):
    """A loss over classes, which may be weighted and smoothed in training.

    Weighted examples are not divided by the batch's weights: no loss depends on what else is in its
    batch. The weight is that of the true label, smoothed or not: torch's own combination weighs
    each class's share of the smoothing by that class, so that a heavy rare class would draw the
    answers to examples of all others.

    Attributes:
        class_weights: Weight of each of the C classes; None where all count the same.
        label_smoothing: Share of each label that is spread evenly over all classes.
        temperature: What logits are divided by, of a model that was calibrated.
    """

    class_weights: tuple[float, ...] | None = None
    label_smoothing: float = 0.0
    temperature: float = 1.0

    def weights_like(self, like: Tensor) -> Tensor | None:
        """Returns the class weights (C,) on the tensor's device, or None."""
        if self.class_weights is None:
            return None
        return like.new_tensor(self.class_weights)


@dataclass(frozen=True)
class CrossEntropy(ClassObjective):
    """Cross-entropy of one class per example (B, C), or per word (B, T, C).

    Attributes:
        per_window: Labelled words that a window has on average over the training rows. The loss of
            a batch is divided by this number for each window, so that each word weighs the same.
            Windows of a batch have like lengths: divided by the batch's own words, a word of a
            short sentence would weigh several times as much as one of a long sentence. None divides
            by the number of labels in the batch.
    """

    per_window: float | None = None

    def counts(self, batch: Batch) -> Mapping[str, float]:
        """Returns how many labelled examples or words the loss of a batch is divided by.

        With `per_window` it is this mean times the number of windows.
        """
        if self.per_window is not None:
            return {"loss": len(batch.gold) * self.per_window}
        return {"loss": int((batch.gold != IGNORED).sum())}

    def window_losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Returns the (B,) sums over what is labelled."""
        gold = batch.gold.flatten()
        losses = self.item_losses(outputs.flatten(0, -2), gold)
        weights = self.weights_like(outputs)
        if weights is not None:
            losses = losses * weights[gold.clamp(min=0)]  # what is ignored has the loss 0
        return losses.view(len(outputs), -1).sum(dim=1)

    def item_losses(self, logits: Tensor, gold: Tensor) -> Tensor:
        """Returns the (N,) losses of N examples or words, from (N, C) logits and (N,) labels.

        The loss without a label is 0.
        """
        return functional.cross_entropy(
            logits / self.temperature,
            gold,
            ignore_index=IGNORED,
            label_smoothing=self.label_smoothing,
            reduction="none",
        )


@dataclass(frozen=True)
class FocalLoss(CrossEntropy):
    """Focal loss of one class per example (B, C), or per word (B, T, C): -(1 - p)^gamma log p.

    p is the probability of the label. An example that is answered well (p near 1) counts little, so
    that many easy examples do not outweigh a few hard ones. Choose it where one class is rare, or
    beside class weights, which are the alpha of Lin et al. 2017, "Focal Loss for Dense Object
    Detection", section 3.2.

    Example:
        With gamma 2, an example with p = 0.9 has 1 % of its cross-entropy, one with p = 0.5 has
        25 %::

            -(1 - 0.9) ** 2 * log(0.9)  # 0.0011 instead of 0.105

    Attributes:
        gamma: Power of (1 - p); 0 is cross-entropy.
    """

    gamma: float = 2.0

    def item_losses(self, logits: Tensor, gold: Tensor) -> Tensor:
        """Returns the (N,) losses of N examples or words; 0 where there is no label."""
        cross_entropies = super().item_losses(logits, gold)  # -log p
        return _miss_probabilities(cross_entropies) ** self.gamma * cross_entropies


class BinaryCrossEntropy(ClassObjective):
    """The mean over C labels of the binary cross-entropy of each.

    Smoothing goes towards one half.
    """

    def window_losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Returns the (B,) means."""
        targets = batch.gold * (1.0 - self.label_smoothing) + self.label_smoothing / 2
        losses = self.label_losses(outputs / self.temperature, targets)
        weights = self.weights_like(outputs)
        if weights is not None:
            # A label that is not there weighs 1.
            losses = losses * (1.0 + (weights - 1.0) * batch.gold)
        return losses.mean(dim=1)

    def label_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the (B, C) losses of the labels, of logits and targets of that shape."""
        return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")


@dataclass(frozen=True)
class BinaryFocalLoss(BinaryCrossEntropy):
    """Focal loss of each of C labels, (B, C).

    It is -(1 - p)^gamma log p, p being the probability of the right answer.

    The right answer is the label where the example has it, and its absence where not (Lin et al.
    2017, equation 2). See `FocalLoss` for when to choose it.

    Attributes:
        gamma: Power of (1 - p); 0 is binary cross-entropy.
    """

    gamma: float = 2.0

    def label_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the (B, C) losses of the labels."""
        cross_entropies = super().label_losses(logits, targets)  # -log p
        return _miss_probabilities(cross_entropies) ** self.gamma * cross_entropies


def _miss_probabilities(cross_entropies: Tensor) -> Tensor:
    """Returns 1 - p of each -log p, exact where p is near 1.

    It is never 0, where a power below 1 has no gradient.
    """
    misses = -torch.expm1(-cross_entropies)
    return misses.clamp(min=torch.finfo(misses.dtype).tiny)


@dataclass(frozen=True)
class SquaredError(HeadObjective[Batch]):
    """Squared error of one score per example, in units of the training scores' variance.

    So the loss is the same whatever the scale of the scores is, and about 1 for a model that always
    answers the mean score.

    Gold scores come in 64 bits. They are standardised before they are rounded to 32 bits, as scores
    such as 1000000000.5 lose their differences by rounding.

    Attributes:
        deviation: Standard deviation of the training scores.
        mean: Mean of the training scores.
    """

    deviation: float = 1.0
    mean: float = 0.0
    is_log_likelihood: ClassVar[bool] = False  # one example can make it large

    @property
    def _center(self) -> float:
        """The mean as 32 bits hold it.

        It is then the same number for gold scores and for answers.
        """
        return float(tensor(self.mean, dtype=float32))

    def batch(self, features: Features, indices: Ints, rng: WindowRandom) -> Batch:
        """Returns some windows as padded tensors, with standardised scores as labels."""
        batch = super().batch(features, indices, rng)
        if batch.labels is None:
            return batch
        standardised = (batch.labels.double() - self._center) / self.deviation
        return replace(batch, labels=standardised.float())

    def window_losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Returns the (B,) squared errors."""
        return ((outputs[:, 0] - self._center) / self.deviation - batch.gold) ** 2


class ChoiceCrossEntropy(HeadObjective[ChoiceBatch]):
    """Cross-entropy of each row over its own choices; K choices in a batch."""

    def logits(self, output: Any) -> Tensor:
        """Returns a score for each choice of the batch, (K,)."""
        return super().logits(output)[:, 0]

    def of_lines(self, inputs: dict[str, Tensor]) -> Batch:
        """Returns each line as the only choice of a row."""
        return Batch({name: tensor.unsqueeze(1) for name, tensor in inputs.items()}, None)

    def window_losses(self, outputs: Tensor, batch: ChoiceBatch) -> Tensor:
        """Returns the (B,) losses."""
        # A choice that a row lacks scores minus infinity: probability 0, and no gradient.
        by_row = pad_sequence(
            list(split(outputs, list(batch.counts))), batch_first=True, padding_value=-inf
        )
        return functional.cross_entropy(by_row, batch.gold, reduction="none")


class SpanCrossEntropy(HeadObjective[Batch]):
    """The mean of the cross-entropies of a span's start and end over the window's tokens.

    `run_squad.py` has padding compete too; here it does not, so that the loss does not depend on
    the batch.
    """

    outputs: ClassVar[tuple[str, ...]] = ("start_logits", "end_logits")

    def logits(self, output: Any) -> Tensor:
        """Returns the start and end score of each token, (B, T, 2)."""
        return stack([output.start_logits, output.end_logits], dim=2)

    def counts(self, batch: Batch) -> Mapping[str, float]:
        """Returns how many windows have an answer that can be found, or none."""
        return {"loss": int((batch.gold[:, 0] != IGNORED).sum())}

    def window_losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Returns the (B,) losses; 0 where the answer can't be found."""
        is_padding = batch.inputs["attention_mask"] == 0
        scores = outputs.masked_fill(is_padding[:, :, None], float("-inf"))
        return functional.cross_entropy(
            scores,
            batch.gold,
            reduction="none",
            ignore_index=IGNORED,
        ).mean(dim=1)
