"""What a student minimises beside its teacher's answers.

It is how far its attention relates tokens otherwise than its teacher's. See Wang et al. 2021,
"MiniLMv2: Multi-Head Self-Attention Relation Distillation for Compressing Pretrained Transformers".

Letters: B windows in a batch, T tokens, H size of a vector, R relation heads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor
from torch.nn import functional

from bertctl.arrays import Ints
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import BatchT, FeaturesT, Network, Objective, OutputsT

_NO_PROBABILITY = -1e9
"""Score of a token of padding."""

Vectors = Callable[[], Mapping[str, Tensor]]
"""Returns the (B, T, H) queries and values of the last forward pass."""


@dataclass(frozen=True)
class RelatedOutputs(Generic[OutputsT]):
    """Outputs of a student and what is compared with its teacher.

    Attributes:
        outputs: What the base objective reads.
        vectors: (B, T, H) queries and values of the student by kind.
    """

    outputs: OutputsT
    vectors: Mapping[str, Tensor]


@dataclass(frozen=True)
class RelationDistillation(
    Objective[FeaturesT, BatchT, RelatedOutputs[OutputsT]], Generic[FeaturesT, BatchT, OutputsT]
):
    """An objective of a student, and the divergence of its relations from its teacher's.

    The relation of two tokens is the scaled dot product of their vectors, as a probability over all
    tokens of the window. Queries are related to queries and values to values. The vectors are cut
    into relation heads, whose number may differ from that of the attention, so that student and
    teacher may have vectors of other sizes.

    Attributes:
        base: Objective on labels and answers.
        student: Gives the student's vectors after a forward pass.
        teacher: Called with inputs by name; returns the teacher's vectors.
        heads: Number of relation heads, R.
        weight: What the divergences are multiplied by.
    """

    base: Objective[FeaturesT, BatchT, OutputsT]
    student: Vectors
    teacher: Callable[..., Mapping[str, Tensor]]
    heads: int
    weight: float

    def batch(self, features: FeaturesT, indices: Ints, rng: WindowRandom) -> BatchT:
        """Returns the base objective's batch of some windows."""
        return self.base.batch(features, indices, rng)

    def forward(self, network: Network, batch: BatchT) -> RelatedOutputs[OutputsT]:
        """Returns the outputs and the student's vectors."""
        outputs = self.base.forward(network, batch)
        return RelatedOutputs(outputs, self.student())

    def counts(self, batch: BatchT) -> Mapping[str, float]:
        """Returns the base objective's counts, and how many windows there are."""
        return {**self.base.counts(batch), "relations": len(batch.inputs["input_ids"])}

    def losses(self, outputs: RelatedOutputs[OutputsT], batch: BatchT) -> dict[str, Tensor]:
        """Returns the base objective's losses, and the weighted divergence from the teacher.

        The divergence is between student and teacher in how the tokens of a window relate to each
        other, by their queries and by their values ("queries" and "values" are the kinds).
        """
        is_token = batch.inputs["attention_mask"] != 0
        teacher_vectors = self.teacher(**batch.inputs)
        divergences = [
            relation_divergences(
                outputs.vectors[kind],
                vectors,
                is_token,
                heads=self.heads,
            )
            for kind, vectors in teacher_vectors.items()
        ]
        relations = torch.stack(divergences).sum()
        return {**self.base.losses(outputs.outputs, batch), "relations": self.weight * relations}


def relation_divergences(student: Tensor, teacher: Tensor, mask: Tensor, *, heads: int) -> Tensor:
    """Returns (B,) Kullback-Leibler divergences of the student's relations from the teacher's.

    Each is a mean over relation heads and over the tokens of a window. Relations are those between
    tokens, as in MiniLMv2, so vectors of the two may have different sizes.

    Args:
        student: (B, T, H) vectors of the student.
        teacher: (B, T, H) vectors of the teacher; H may be another one.
        mask: (B, T) which positions are tokens.
        heads: Number of relation heads; divides both sizes.
    """
    divergences = functional.kl_div(
        _relations(student, mask, heads),
        _relations(teacher, mask, heads),
        log_target=True,
        reduction="none",
    )
    by_token = divergences.sum(dim=-1).mean(dim=1)
    n_tokens = mask.sum(dim=1).clamp(min=1)
    return (by_token * mask).sum(dim=1) / n_tokens


def _relations(vectors: Tensor, mask: Tensor, heads: int) -> Tensor:
    """Returns the (B, R, T, T) logarithms of how much each token is related to each other one.

    They are attention weights of the vectors to themselves: the softmax of scaled dot products,
    without padding.

    Args:
        vectors: (B, T, H) queries, keys or values of a layer.
        mask: (B, T) which positions are tokens.
        heads: R, the number of heads that vectors are split into.
    """
    n_windows, n_tokens, _ = vectors.shape
    by_head = vectors.float().view(n_windows, n_tokens, heads, -1).transpose(1, 2)
    scores = by_head @ by_head.transpose(2, 3) / by_head.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask[:, None, None, :], _NO_PROBABILITY)
    return functional.log_softmax(scores, dim=-1)
