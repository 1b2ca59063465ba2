"""Attention over packed tokens.

The windows of a batch lie one after the other, and those of like lengths make a block.

Letters: B windows, T tokens of the longest, N tokens of all windows, C numbers of a hidden state, H
heads, D = C / H; W windows of a block, L tokens of its longest, Q of each window that look.
"""

import math
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
        tokens: Slice of the N tokens that are these windows'.
        windows: W.
        width: L, at least `LANES`; 1 in a block of first tokens.
        places: Where the block's tokens lie among the W x L positions, which include padding. None
            if the block has no padding, as the next two.
        sources: (W x L,) number of the block's token at each position; any number at padding.
        padding: (W, 1, 1, L) added to the scores: minus infinity at padding, else 0.
    """

    tokens: slice
    windows: int
    width: int
    places: Tensor | None = None
    sources: Tensor | None = None
    padding: Tensor | None = None


Looks = Sequence[tuple[Block, Block]]
"""Pairs of blocks of the same windows: the tokens that are looked at (keys), and those that look
(queries), which are the first Q tokens of each window."""


def pack(hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, list[Block]]:
    """Returns the positions of the N real tokens among the B x T, and the blocks of windows.

    The longest windows come first. A block has as many windows as fit `BLOCK` tokens.

    Args:
        hidden_states: (B, T, C).
        mask: (B, 1, T or 1, T) true where a token may be looked at; None without padding.

    Returns:
        (N,) positions in the order of the blocks, and the blocks.
    """
    windows, width = hidden_states.shape[:2]
    if mask is None:
        is_real = torch.ones(windows, width, dtype=torch.bool)
    else:
        # All tokens of a window look at the same ones: at those that are no padding.
        is_real = mask[:, 0, -1]
    lengths = is_real.sum(1).numpy()
    order = np.argsort(-lengths, kind="stable")
    positions = (torch.from_numpy(order)[:, None] * width + torch.arange(width))[is_real[order]]
    blocks = []
    start = 0
    while len(order):
        # Lengths and numbers of windows are rounded, so that there are few shapes of blocks: oneDNN
        # makes code for each shape.
        longest = max(_round_up(int(lengths[order[0]])), LANES)
        count = max(1, BLOCK // longest)
        if count > _STEP:
            count -= count % _STEP
        # All windows of a block are filled up to its longest one. If the windows after the first
        # quarter are clearly shorter, they are left to the next block: filling them up costs more.
        quarter = _round_up(math.ceil(BLOCK / (4 * longest)))
        has_more = quarter < min(count, len(order))
        if has_more and lengths[order[quarter]] <= longest - _STEP:
            count = quarter
        indices, order = np.split(order, [count])
        end = start + int(lengths[indices].sum())
        is_token = torch.arange(longest) < torch.from_numpy(lengths[indices])[:, None]
        blocks.append(_block(slice(start, end), is_token))
        start = end
    return positions, blocks


def _round_up(size: int) -> int:
    """Returns the next multiple of `_STEP`."""
    return math.ceil(size / _STEP) * _STEP


def _block(tokens: slice, is_token: Tensor) -> Block:
    """Returns a block of windows, with the positions of its tokens if it has padding.

    Args:
        tokens: Slice of the N tokens that are these windows'.
        is_token: (W, L), false at padding.
    """
    windows, width = is_token.shape
    flat = is_token.flatten()
    if bool(flat.all()):
        return Block(tokens, windows, width)

    padding = torch.zeros(is_token.shape).masked_fill_(~is_token, float("-inf"))
    # At a token, the number of tokens so far less one is its number. Padding repeats a number.
    token_numbers = (flat.cumsum(0) - 1).clamp(min=0)
    return Block(
        tokens,
        windows,
        width,
        places=flat.nonzero().flatten(),
        sources=token_numbers,
        padding=padding[:, None, None],
    )


def first_tokens(
    positions: Tensor, width: int, blocks: Sequence[Block]
) -> tuple[Looks, Tensor] | None:
    """Returns the blocks for an attention whose only queries are the windows' first tokens.

    None if the first token of a window is padding, as with padding on the left.

    Args:
        positions: (N,) positions of the tokens among the B x T.
        width: T.
        blocks: The blocks of windows.

    Returns:
        Pairs for `attend`: a block with all tokens of some windows (keys and values), and a block
        with the first token of each of these windows (queries). And (B,) the numbers of the first
        tokens among the N tokens.
    """
    token_numbers = (positions % width == 0).nonzero().flatten()
    n_windows = sum(block.windows for block in blocks)
    if len(token_numbers) < n_windows:
        return None

    # Outputs are computed for the B first tokens alone, which lie one after the other in the order
    # of the blocks. The slices of the new blocks are among these B.
    bounds = np.cumsum([0, *(block.windows for block in blocks)]).tolist()
    looking_blocks = [
        Block(slice(begin, end), windows=end - begin, width=1) for begin, end in pairwise(bounds)
    ]
    return list(zip(blocks, looking_blocks, strict=True)), token_numbers


def attend(
    qkv: Tensor,
    shape: torch.Size,
    heads: int,
    looks: Looks,
    dropout_mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, list[Tensor]]:
    """Returns the attention's outputs, and its weights for the backward pass.

    Args:
        qkv: (N, 3 C) queries, keys and values side by side; the queries are divided by the root of
            D.
        shape: Shape of the outputs: (N, C), or (B, C) where only first tokens look.
        heads: H.
        looks: Pairs of blocks of the same windows: the tokens of the first one are the keys and
            values, those of the second one the queries, which may be fewer.
        dropout_mask: Masks of the weights of all blocks, one after the other; None without dropout.
        scale: Factor of the weights that the dropout keeps.

    Returns:
        The outputs, and (W x H, Q, L) weights of each block, before their dropout.
    """
    attended = _empty_output(qkv, shape, looks[-1][1])
    saved = []
    mask_start = 0  # the masks of all blocks lie one behind the other
    for block, looking in looks:
        q, k, v = _by_head(qkv[block.tokens], 3, heads, block)
        scores = torch.bmm(q[:, : looking.width], k.transpose(1, 2)).float()
        if block.padding is not None:
            scores.view(block.windows, heads, looking.width, -1).add_(block.padding)
        weights = scores.softmax(-1).to(q.dtype)
        saved.append(weights)
        mask_end = mask_start + weights.numel()
        mask = None if dropout_mask is None else dropout_mask[mask_start:mask_end]
        mask_start = mask_end
        # The scale of the kept weights is applied to the products, which are fewer numbers.
        outputs = torch.bmm(keep(weights, mask), v).mul_(scale)
        _by_token(outputs[None], heads, looking, attended)
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
    """Returns the (N, 3 C) gradient with respect to the queries, keys and values.

    Args:
        gradient: Gradient with respect to the outputs of `attend`, of their shape.
        qkv: (N, 3 C) queries, keys and values, as in `attend`.
        saved: The weights that `attend` returned.
        heads: H.
        looks: Pairs of blocks as in `attend`: in each, the block of the keys and values, and that
            of the queries.
        dropout_mask: Masks of the weights, as in `attend`.
        scale: Factor of the weights that the dropout keeps.
    """
    qkv_gradient = _empty_output(qkv, qkv.shape, looks[-1][0])
    mask_start = 0
    for (block, looking), weights in zip(looks, saved, strict=True):
        q, k, v = _by_head(qkv[block.tokens], 3, heads, block)
        g = _by_head(gradient[looking.tokens], 1, heads, looking)[0].mul_(scale)
        if looking.padding is not None:
            # Positions of padding hold the gradient of some other token.
            g.view(looking.windows, heads, looking.width, -1).masked_fill_(
                looking.padding.mT != 0, 0.0
            )
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
        of_scores = softmax_gradient(of_weights.to(dtype), weights.to(dtype), -1, dtype)
        of_scores = of_scores.to(weights.dtype)
        of_qkv = q.new_empty(3, *q.shape)  # gradients of queries, keys and values
        of_qkv[0, :, looking.width :] = 0  # tokens that are keys and values, but no queries
        torch.bmm(of_scores, k, out=of_qkv[0, :, : looking.width])
        torch.bmm(of_scores.transpose(1, 2), q[:, : looking.width], out=of_qkv[1])
        torch.bmm(keep(weights, mask).transpose(1, 2), g, out=of_qkv[2])
        _by_token(of_qkv, heads, block, qkv_gradient)
    return qkv_gradient


def _empty_output(like: Tensor, shape: torch.Size, last: Block) -> Tensor:
    """Returns a tensor to be filled block by block; its rows behind the last block are 0.

    Args:
        like: A tensor with the dtype of the new one.
        shape: Shape of the new tensor.
        last: The last block that will be filled in.
    """
    output = like.new_empty(shape)
    output[last.tokens.stop :] = 0
    return output


def _by_head(tokens: Tensor, parts: int, heads: int, block: Block) -> Tensor:
    """Returns a block's tokens, split by heads and filled up to windows: (parts, W x H, L, D).

    A position of padding holds some other token.

    Args:
        tokens: (M, parts x C), for the M tokens of the block.
        parts: 3 for queries, keys and values side by side, else 1.
        heads: H.
        block: The block.
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
    # (W, L, parts, H, D) becomes (parts, W, H, L, D).
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
    """Writes the numbers of a block's tokens to their rows in a packed tensor; undoes `_by_head`.

    Args:
        x: (parts, W x H, L, D).
        heads: H.
        block: The block.
        packed: (N, parts x C), changed in place.
    """
    # (parts, W, H, L, D) becomes (W, L, parts, H, D): a token's numbers side by side.
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
