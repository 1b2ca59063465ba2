"""Attention over packed tokens.

The windows of a batch lie one after the other, and those of like lengths make a block.

Letters: B windows, T tokens of the longest, N tokens of all windows, C numbers of a hidden state, H
heads, D = C / H; W windows of a block, L tokens of its longest, Q of each window that look.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from bertctl.modeling.fast.dropout_masks import keep
from bertctl.runtime.torch_internals import softmax_gradient

BLOCK = 1024
"""Tokens whose attention is computed at once: its numbers stay in the cache."""

LANES = 16
"""Numbers of the widest vector of a processor in fp32: torch's softmax over fewer takes ten times
as long."""

_STEP = 8
"""Sizes of blocks are rounded to its multiples: for each shape of a product oneDNN makes code, 0.3
MB of it."""

# the gradient of torch's softmax over shorter rows takes ten times as long in bf16 as in fp32
_LONG = 32


@dataclass(frozen=True)
class Block:
    """Windows of like lengths, whose attention is computed at once.

    Attributes:
        tokens: where their tokens lie among the N.
        windows: W.
        width: L, at least `LANES`.
        places: where their tokens lie among the W x L; None where all windows are as long, as the
            next two.
        sources: (W x L) which of their tokens lies there, any where none does.
        padding: (W, 1, 1, L) added to scores.
    """

    tokens: slice
    windows: int
    width: int
    places: Tensor | None = None
    sources: Tensor | None = None
    padding: Tensor | None = None


Looks = Sequence[tuple[Block, Block]]
"""Blocks of the tokens that are looked at, each with that of those that look: Q of each window, its
first ones."""


def pack(hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, list[Block]]:
    """Returns where the N tokens lie among the B x T, and the blocks of windows.

    The longest windows come first.

    Args:
        hidden_states: (B, T, C).
        mask: (B, 1, T or 1, T) true where a token may be looked at; None where there is no padding.
    """
    windows, width = hidden_states.shape[:2]
    if mask is None:
        is_real = torch.ones(windows, width, dtype=torch.bool)
    else:
        is_real = mask[:, 0, -1]
    lengths = is_real.sum(1).numpy()
    order = np.argsort(-lengths, kind="stable")
    positions = (torch.from_numpy(order)[:, None] * width + torch.arange(width))[is_real[order]]
    blocks = []
    start = 0
    while len(order):
        longest = max(-(-int(lengths[order[0]]) // _STEP) * _STEP, LANES)
        count = max(1, BLOCK // longest)
        count -= count % _STEP if count > _STEP else 0
        # A block may end at a quarter if shorter windows follow.
        quarter = -(-BLOCK // (4 * longest * _STEP)) * _STEP
        if quarter < min(count, len(order)) and lengths[order[quarter]] <= longest - _STEP:
            count = quarter
        indices, order = np.split(order, [count])
        end = start + int(lengths[indices].sum())
        is_token = torch.arange(longest) < torch.from_numpy(lengths[indices])[:, None]
        blocks.append(_block(slice(start, end), is_token))
        start = end
    return positions, blocks


def _block(tokens: slice, is_token: Tensor) -> Block:
    """Returns the block of these of the N tokens, which are (W, L) true in its windows."""
    windows, width = is_token.shape
    flat = is_token.flatten()
    if bool(flat.all()):
        return Block(tokens, windows, width)

    padding = torch.zeros(is_token.shape).masked_fill_(~is_token, float("-inf"))
    return Block(
        tokens,
        windows,
        width,
        places=flat.nonzero().flatten(),
        sources=(flat.cumsum(0) - 1).clamp(min=0),
        padding=padding[:, None, None],
    )


def first_tokens(
    positions: Tensor, width: int, blocks: Sequence[Block]
) -> tuple[Looks, Tensor] | None:
    """Returns how the first token of each window looks, and which of the N they are.

    It is None where one is padding.
    """
    ends = np.cumsum([0, *(block.windows for block in blocks)]).tolist()
    tokens = (positions % width == 0).nonzero().flatten()
    firsts = [Block(slice(begin, end), end - begin, 1) for begin, end in pairwise(ends)]
    if len(tokens) == ends[-1]:
        return (list(zip(blocks, firsts, strict=True)), tokens)
    return None


def attend(
    qkv: Tensor,
    shape: torch.Size,
    heads: int,
    looks: Looks,
    dropout_mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, list[Tensor]]:
    """Returns attention of (N, 3 C) queries, keys and values, and the weights.

    Each block has (W x H, Q, L) weights.

    Args:
        qkv: its queries are divided by the root of D.
        shape: of what is returned: (N, C), or (B, C) where only first tokens look.
        heads: H.
        looks: which tokens look at which.
        dropout_mask: masks of the weights' dropout.
        scale: of weights that are kept.
    """
    attended = _room(qkv, shape, looks[-1][1])
    saved = []
    mask_start = 0  # the masks of all blocks lie one behind the other
    for block, to in looks:
        q, k, v = _by_head(qkv[block.tokens], 3, heads, block)
        scores = torch.bmm(q[:, : to.width], k.transpose(1, 2)).float()
        if block.padding is not None:
            scores.view(block.windows, heads, to.width, -1).add_(block.padding)
        weights = scores.softmax(-1).to(q.dtype)
        saved.append(weights)
        mask_end = mask_start + weights.numel()
        mask = None if dropout_mask is None else dropout_mask[mask_start:mask_end]
        mask_start = mask_end
        _by_token(torch.bmm(keep(weights, mask), v).mul_(scale)[None], heads, to, attended)
    return attended, saved


def attend_backward(
    gradient: Tensor,
    qkv: Tensor,
    saved: Sequence[Tensor],
    heads: int,
    looks: Looks,
    dropout_mask: Tensor | None,
    scale: float,
) -> Tensor:
    """Returns the (N, 3 C) gradient with respect to queries, keys and values.

    The arguments are those of `attend`.
    """
    qkv_gradient = _room(qkv, qkv.shape, looks[-1][0])
    mask_start = 0
    for (block, to), weights in zip(looks, saved, strict=True):
        q, k, v = _by_head(qkv[block.tokens], 3, heads, block)
        g = _by_head(gradient[to.tokens], 1, heads, to)[0].mul_(scale)
        if to.padding is not None:
            g.view(to.windows, heads, to.width, -1).masked_fill_(to.padding.mT != 0, 0.0)
        mask_end = mask_start + weights.numel()
        mask = None if dropout_mask is None else dropout_mask[mask_start:mask_end]
        mask_start = mask_end
        # Backwards through attended = D(W) v, with W = softmax(Z), Z = q k^T and D the dropout:
        #     dW = D(g v^T)     dZ = W * (dW - sum of (dW * W) over the row)
        #     dq = dZ k         dk = dZ^T q         dv = D(W)^T g
        of_weights = keep(torch.bmm(g, v.transpose(1, 2)), mask)
        if block.width < _LONG:
            dtype = torch.float32
        else:
            dtype = weights.dtype
        of_scores = softmax_gradient(of_weights.to(dtype), weights.to(dtype), -1, dtype).to(
            weights.dtype
        )
        of_qkv = q.new_empty(3, *q.shape)
        of_qkv[0, :, to.width :] = 0
        torch.bmm(of_scores, k, out=of_qkv[0, :, : to.width])
        torch.bmm(of_scores.transpose(1, 2), q[:, : to.width], out=of_qkv[1])
        torch.bmm(keep(weights, mask).transpose(1, 2), g, out=of_qkv[2])
        _by_token(of_qkv, heads, block, qkv_gradient)
    return qkv_gradient


def _room(like: Tensor, shape: torch.Size, last: Block) -> Tensor:
    """Returns a tensor to be filled block by block.

    Rows after the last one are no window's, and 0.
    """
    output = like.new_empty(shape)
    output[last.tokens.stop :] = 0
    return output


def _by_head(tokens: Tensor, parts: int, heads: int, block: Block) -> Tensor:
    """Returns a block's tokens (..., parts x C) as (parts, W x H, L, D).

    A place without a token holds some other token.
    """
    if block.sources is not None:
        tokens = tokens.index_select(0, block.sources)
    split = tokens.view(
        block.windows,
        block.width,
        parts,
        heads,
        -1,
    )
    return (
        split.permute(
            2,
            0,
            3,
            1,
            4,
        )
        .contiguous()
        .flatten(1, 2)
    )


def _by_token(x: Tensor, heads: int, block: Block, packed: Tensor) -> None:
    """Puts (parts, W x H, L, D) to a block's tokens among the (N, parts x C)."""
    split = x.view(len(x), -1, heads, *x.shape[2:]).permute(
        1,
        3,
        0,
        2,
        4,
    )
    if block.places is None:
        packed[block.tokens].view(split.shape).copy_(split)
    else:
        torch.index_select(
            split.reshape(-1, packed.shape[1]), 0, block.places, out=packed[block.tokens]
        )
