"""What makes vectors of texts near or far.

These are losses of pairs, and of pairs among all those of a batch.

All of them are those of sentence-transformers, with its settings.
Letters: B rows, K texts of a row, D size of a vector.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from bertctl.arrays import Ints
from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import Network, Objective
from bertctl.tasks.sentences.sentence_features import SentenceBatch, SentenceFeatures


@dataclass(frozen=True)
class SentenceObjective(Objective[SentenceFeatures, SentenceBatch, Tensor]):
    """Squared difference of each pair's cosine from its label, which is 0 to 1.

    See Reimers & Gurevych 2019, section 3. The other losses of embeddings inherit its batches and
    settings, and compute another sum.

    Attributes:
        padding: How batches are filled up.
        scale: What cosines are multiplied by.
        margin: Distance that negatives should keep; see `sentence_embeddings.margin`.
        symmetric: Whether the first texts are looked for too.
        widths: Sizes to which vectors are cut, each with a loss of its own beside that of whole
            vectors.
        draws_partners: Whether single labelled texts get partners, as in training.
        draws_negatives: Whether every other partner that is drawn has another label.
        draws_third_text: Whether a third text is drawn, which has another label.
    """

    padding: Padding
    scale: float = 20.0
    margin: float = 0.0
    symmetric: bool = False
    widths: tuple[int, ...] = ()
    draws_partners: bool = False
    draws_negatives: bool = False
    draws_third_text: bool = False
    is_log_likelihood: ClassVar[bool] = False
    output: ClassVar[str] = "vectors"
    """Name of the model's output that is read."""

    def batch(self, features: SentenceFeatures, indices: Ints, rng: WindowRandom) -> SentenceBatch:
        """Returns some rows as padded tensors; single texts get partners in training."""
        if self.draws_partners and features.kind == "texts":
            return features.drawn(
                indices,
                self.padding,
                rng,
                with_negatives=self.draws_negatives,
                with_third_text=self.draws_third_text,
            )
        return features.collate(indices, self.padding)

    def forward(self, network: Network, batch: SentenceBatch) -> Tensor:
        """Returns (B, K, D) vectors; what a loss reads in their place."""
        vectors: Tensor = getattr(network(**batch.inputs), self.output)
        return vectors

    def counts(self, batch: SentenceBatch) -> Mapping[str, float]:
        """Returns how many rows there are."""
        return {"loss": len(batch.gold)}

    def losses(self, outputs: Tensor, batch: SentenceBatch) -> dict[str, Tensor]:
        """Returns the sum over the rows, added up over the widths that vectors are cut to.

        Whole vectors count as one more width, as in Matryoshka representation learning.
        """
        if not self.widths:
            return {"loss": self.summed(outputs, batch)}
        widths = sorted({*self.widths, outputs.shape[-1]})
        cut = [functional.normalize(outputs[..., :width], dim=-1) for width in widths]
        return {"loss": torch.stack([self.summed(vectors, batch) for vectors in cut]).sum()}

    def summed(self, vectors: Tensor, batch: SentenceBatch) -> Tensor:
        """Returns the loss of (B, K, D) vectors, summed over what `counts` counts."""
        return ((_cosines(vectors) - batch.gold) ** 2).sum()


class ContrastiveObjective(SentenceObjective):
    """Contrastive loss: matching pairs at distance 0, others at least the margin apart.

    The distance is 1 - cosine. See Hadsell et al. 2006.
    """

    def summed(self, vectors: Tensor, batch: SentenceBatch) -> Tensor:
        """Returns the sum over pairs: squared distances of matches, squared violations of others.

        A pair that does not belong together violates the margin if it is nearer than that.
        """
        distances = 1.0 - _cosines(vectors)
        labels = batch.gold
        violations = functional.relu(self.margin - distances)
        return 0.5 * (labels * distances**2 + (1.0 - labels) * violations**2).sum()


class TripletObjective(SentenceObjective):
    """Triplet loss: the third text farther from the first than the second is, by the margin.

    The distance is Euclidean. See Schroff et al. 2015.
    """

    def counts(self, batch: SentenceBatch) -> Mapping[str, float]:
        """Returns how many triplets there are; a row without a third text is none."""
        return {"loss": float((batch.keys[:, 2] >= 0).sum())}

    def summed(self, vectors: Tensor, batch: SentenceBatch) -> Tensor:
        """Returns the sum over triplets of how far negatives are short of the margin."""
        anchors = vectors[:, 0]
        to_positives = functional.pairwise_distance(anchors, vectors[:, 1])
        to_negatives = functional.pairwise_distance(anchors, vectors[:, 2])
        violations = functional.relu(to_positives - to_negatives + self.margin)
        has_negative = batch.keys[:, 2] >= 0
        return violations[has_negative].sum()


class SoftmaxObjective(SentenceObjective):
    """Cross-entropy of a pair's class, which a linear layer predicts from u, v and |u - v|.

    u and v are the vectors of the two texts. See Reimers & Gurevych 2019, section 3.
    """

    is_log_likelihood: ClassVar[bool] = True
    output: ClassVar[str] = "logits"

    def losses(self, outputs: Tensor, batch: SentenceBatch) -> dict[str, Tensor]:
        """Returns the cross-entropy of the classes, summed over pairs and widths.

        Args:
            outputs: (B, W, C) logits, from vectors that are cut to each of W widths.
            batch: The pairs with their classes.
        """
        logits = outputs.flatten(0, 1)
        classes = batch.classes.repeat_interleave(outputs.shape[1])
        return {"loss": functional.cross_entropy(logits, classes, reduction="sum")}


class CosentObjective(SentenceObjective):
    """CoSENT loss (Su 2022): cosines of pairs in the order of their gold scores.

    Each two pairs of the batch are compared, and those in the wrong order make the loss of the
    batch.
    """

    spans_batch: ClassVar[bool] = True

    def counts(self, batch: SentenceBatch) -> Mapping[str, float]:
        """Returns one: the batch has one loss."""
        return {"loss": 1.0}

    def summed(self, vectors: Tensor, batch: SentenceBatch) -> Tensor:
        """Returns log(1 + the sum of exp(cosine i - cosine j)) over pairs of rows of the batch.

        The sum has all rows i and j with the gold score of i below that of j: the texts of i should
        be less alike than the texts of j.
        """
        cosines = _cosines(vectors) * self.scale
        differences = cosines[:, None] - cosines[None, :]
        is_in_order = batch.gold[:, None] >= batch.gold[None, :]
        differences = differences.masked_fill(is_in_order, -torch.inf)
        # The zero is the 1 in the logarithm.
        return torch.cat([differences.flatten(), differences.new_zeros(1)]).logsumexp(dim=0)


class MultipleNegatives(SentenceObjective):
    """Multiple negatives ranking loss: a softmax that picks each first text's own second text.

    See Henderson et al. 2017, section 4.4. The candidates are the second and third texts of all
    rows of the batch. `not_negative` says which of them are left out, as they may be right, too.
    """

    spans_batch: ClassVar[bool] = True
    is_log_likelihood: ClassVar[bool] = True

    def counts(self, batch: SentenceBatch) -> Mapping[str, float]:
        """Returns how many pairs belong together."""
        return {"loss": float(batch.gold.sum())}

    def summed(self, vectors: Tensor, batch: SentenceBatch) -> Tensor:
        """Returns the sum over the pairs that belong together of a softmax over candidates.

        For each first text the candidates are all second and third texts of the batch; its own
        second text is the right one.

        Args:
            vectors: (B, K, D) vectors of the texts of each row.
            batch: The rows' labels, and keys by which equal texts are known: they are no negatives.
        """
        is_positive = batch.gold > 0
        unit = functional.normalize(vectors, dim=-1)
        # The second texts, then the third ones.
        candidates = unit[:, 1:].transpose(0, 1).flatten(0, 1)
        targets = torch.arange(len(is_positive), device=is_positive.device)[is_positive]
        scores = (self.scale * unit[is_positive, 0] @ candidates.T).masked_fill(
            not_negative(batch)[is_positive], -torch.inf
        )
        loss = functional.cross_entropy(scores, targets, reduction="sum")
        if self.symmetric:  # and each second text looks for its first one
            scores = scores[:, : len(is_positive)][:, is_positive].T
            backward_loss = functional.cross_entropy(
                scores, torch.arange(len(scores), device=scores.device), reduction="sum"
            )
            loss = (loss + backward_loss) / 2
        return loss


def not_negative(batch: SentenceBatch) -> Tensor:
    """Returns (B, (K - 1) B) which candidates are left out of the softmax of each first text.

    The candidates are the second texts of all rows, then the third ones. A candidate is left out if
    it is blank, if it equals the first text, if it is right for an equal first text of any row, or,
    of labelled texts, if its row has the same class. The row's own second text always stays.
    """
    keys = batch.keys
    candidates = keys[:, 1:].T.flatten()
    size = len(keys)
    is_positive = batch.gold > 0
    first_texts = keys[:, 0]
    positives = keys[:, 1].masked_fill(~is_positive, -2)  # -2 equals no key, -1 would: a blank
    has_same_text = first_texts[:, None] == first_texts[None, :]
    is_its_positive = positives[:, None] == candidates[None, :]
    # All that is right for an equal first text is right for this one.
    n_positives = (has_same_text & is_positive[None, :]).float() @ is_its_positive.float()
    is_its_first_text = first_texts[:, None] == candidates[None, :]
    is_blank = (candidates == -1)[None, :]
    is_left_out = (n_positives > 0) | is_its_first_text | is_blank
    if batch.kind == "texts":
        has_same_class = batch.classes[:, None] == batch.classes[None, :]
        is_left_out |= has_same_class.repeat(1, len(candidates) // size)
    diagonal = torch.arange(size, device=keys.device)
    is_left_out[diagonal, diagonal] = False
    return is_left_out


def _cosines(vectors: Tensor) -> Tensor:
    """Returns the (B,) cosines of the first two texts."""
    return functional.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1)
