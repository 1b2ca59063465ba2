"""What pretraining minimises.

It adds the loss of masked words and that of the order of a window's two parts.

Letters: B windows, T tokens, M masked places of a batch, V tokens of the vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import functional

from bertctl.arrays import Ints
from bertctl.modeling.masked_head import order_logits, read_only_at, word_logits
from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import Objective
from bertctl.tasks.batches import IGNORED
from bertctl.tasks.pretraining.corpus_windows import CorpusWindows, MaskedBatch


class PretrainingOutputs(NamedTuple):
    """What a forward pass gave.

    Attributes:
        words: (M, V) logits at the masked places.
        windows: (M,) window of each place.
        gold: (M,) tokens that were there.
        order: (B, 2) logits of the order; None without pairs.
    """

    words: Tensor
    windows: Tensor
    gold: Tensor
    order: Tensor | None


@dataclass(frozen=True)
class PretrainingObjective(Objective[CorpusWindows, MaskedBatch, PretrainingOutputs]):
    """Cross-entropy of the masked words, and of the order of two parts.

    See the BERT paper, appendix A.2: their means are added.

    Only masked places go through the vocabulary's matrix.

    Attributes:
        padding: How batches are filled up.
    """

    padding: Padding

    def batch(self, features: CorpusWindows, indices: Ints, rng: WindowRandom) -> MaskedBatch:
        """Returns some windows as padded tensors, with the masks of this epoch."""
        return features.masked(indices, self.padding, rng)

    def forward(self, network: Any, batch: MaskedBatch) -> PretrainingOutputs:
        """Returns the logits of masked words and of the order."""
        labels = batch.gold.flatten()
        positions = (labels != IGNORED).nonzero()[:, 0]
        # Logits over the vocabulary are the largest tensor: only masked positions get them.
        with read_only_at(network.network, positions):
            output = network(**batch.inputs)
        width = batch.gold.shape[1]
        words = word_logits(output, positions)
        windows = positions // width
        order = order_logits(output)
        if batch.order is None:
            order = None
        return PretrainingOutputs(words, windows, labels[positions], order)

    def counts(self, batch: MaskedBatch) -> Mapping[str, float]:
        """Returns how many masked words there are, and how many pairs."""
        words = {"words": int((batch.gold != IGNORED).sum())}
        if batch.order is None:
            return words
        return words | {"order": len(batch.order)}

    def losses(self, outputs: PretrainingOutputs, batch: MaskedBatch) -> dict[str, Tensor]:
        """Returns the sums over masked words and over pairs."""
        losses = {"words": self._of_words(outputs).sum()}
        if outputs.order is not None and batch.order is not None:
            losses["order"] = functional.cross_entropy(
                outputs.order.float(), batch.order, reduction="sum"
            )
        return losses

    def window_losses(self, outputs: PretrainingOutputs, batch: MaskedBatch) -> Tensor:
        """Returns the (B,) sums over the masked words."""
        word_losses = self._of_words(outputs)
        return word_losses.new_zeros(len(batch.gold)).index_add_(0, outputs.windows, word_losses)

    @staticmethod
    def _of_words(outputs: PretrainingOutputs) -> Tensor:
        """Returns the (M,) losses of masked words."""
        return functional.cross_entropy(outputs.words.float(), outputs.gold, reduction="none")
