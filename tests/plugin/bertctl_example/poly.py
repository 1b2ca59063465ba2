"""The Poly-1 loss (Leng et al. 2022, "PolyLoss", equation 3) with epsilon 1."""

import torch
from torch import Tensor

from bertctl.tasks.objectives import CrossEntropy


class PolyLoss(CrossEntropy):
    """-log p + (1 - p), where p is the probability of the right label."""

    def item_losses(self, logits: Tensor, gold: Tensor) -> Tensor:
        """Returns (N,) losses of (N, C) logits and (N,) labels."""
        cross_entropies = super().item_losses(logits, gold)
        return cross_entropies + 1 - torch.exp(-cross_entropies)
