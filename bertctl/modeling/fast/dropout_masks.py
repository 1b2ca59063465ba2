"""Dropout in a training step on a CPU: a random 64-bit number serves four elements.

Dropout (Srivastava et al. 2014) sets an element to 0 with probability p, and multiplies the others
by 1 / (1 - p), so that the mean stays. Here an element has 16 random bits, read as an integer r
from -2^15 to 2^15 - 1, and stays where r >= p 2^16 - 2^15: with probability 1 - p, as p is rounded
to a multiple of 2^-16. The comparison gives 1 or 0 and the negation -1 or 0: all bits set or none.
A bitwise `and` with that keeps a floating-point number or makes it 0, whatever its size is.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

_PARTS = 1 << 16  # the share of a dropout is a whole number of them


def drawn_share(dropout: nn.Dropout) -> float:
    """Returns the share of elements that a dropout leaves out, as it is drawn.

    It is never all, as the rest is scaled up.
    """
    return min(round(dropout.p * _PARTS), _PARTS - 1) / _PARTS


def draw_mask(count: int, share: float) -> Tensor | None:
    """Returns random masks for a dropout: 16 bits per element, all set if the element is kept.

    Of an element that is left out, no bit is set. None if all are kept.

    Args:
        count: Number of elements.
        share: Share of the elements that is left out, from 0 to below 1.
    """
    if not share:
        return None
    # An element has 16 random bits, a number from -2^15 to 2^15 - 1. The lowest numbers, a share of
    # `share`, leave their elements out. For others the comparison gives 1, and the negation makes
    # it -1, which has all bits set.
    bits = (
        torch.empty((count + 3) // 4, dtype=torch.int64)
        .random_(-(1 << 63), None)
        .view(torch.int16)[:count]
    )
    return bits.ge_(round(share * _PARTS) - _PARTS // 2).neg_()


def keep(x: Tensor, mask: Tensor | None) -> Tensor:
    """Returns a tensor with zeros in place of the elements that a dropout leaves out.

    Args:
        x: The tensor; the elements that are kept are not scaled.
        mask: 16 bits for each element, as `draw_mask` returns them; None if all are kept.
    """
    if mask is None:
        return x
    bits = torch.int16
    if x.element_size() != 2:
        bits = torch.int32
        mask = mask.int()  # -1 stays -1: all 32 bits are set
    return (x.view(bits) & mask.view(x.shape)).view(x.dtype)


def dropout_in_training(plain: nn.Dropout) -> Callable[[Tensor], Tensor]:
    """Returns a forward pass for a dropout that draws its masks as the packed layers do."""

    def forward(x: Tensor) -> Tensor:
        """Returns x, in training with some elements set to 0 and the others scaled up."""
        share = drawn_share(plain)
        if plain.training:
            mask = draw_mask(x.numel(), share)
        else:
            mask = None
        if mask is None:
            return x
        # The mask is -1 where an element is kept: a negative factor makes it the usual scale.
        return x * mask.view(x.shape).to(x.dtype).mul_(-1 / (1 - share))

    return forward
