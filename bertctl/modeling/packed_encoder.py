"""The encoder of a BERT in a training step on a CPU: each layer is one autograd function over the tokens of the batch.

The library's way computes padding, turns weights and hidden states to bf16 for each product, and draws a random number
per element by `bernoulli_`, in one thread. Here the tokens of a batch lie one after the other without padding, a layer
keeps for its backward pass what that needs, and a random 64-bit number serves four elements.

Letters: B windows, T tokens of the longest, N tokens of all windows (in bf16 rounded up), C numbers of a hidden state,
H heads, D = C / H, F numbers of the feed-forward part; W windows of a block, L tokens of its longest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from bertctl.runtime.batching import token_budget_plan
from bertctl.runtime.cpu import cpu_words
from bertctl.runtime.device import Compute

_LIKE_BERT = ("BertLayer", "RobertaLayer", "XLMRobertaLayer", "CamembertLayer", "ElectraLayer")
_BLOCK = 1024  # tokens whose attention is computed at once: its numbers stay in the cache
# oneDNN makes code for each shape of a bf16 product: 25 ms per step (AMX) where no step before had as many tokens. They
# are rounded up to a multiple of the first number where they are few, otherwise of the second.
_FEW, _MULTIPLES = 512, (32, 64)
_LONG = 32  # the gradient of torch's softmax over shorter rows takes ten times as long in bf16 as in fp32
_PARTS = 1 << 16  # the share of a dropout is a whole number of them

_norm_backward: Any = torch.ops.aten.native_layer_norm_backward
_gelu_backward: Any = torch.ops.aten.gelu_backward


@dataclass(frozen=True)
class _Block:
    """Windows of like lengths, whose attention is computed at once.

    Attributes:
        tokens: where their tokens lie among the N.
        windows: W.
        width: L.
        places: where their tokens lie among the W x L; None where all windows are as long, as the next two.
        sources: (W x L) which of their tokens lies there, any where none does.
        padding: (W, 1, 1, L) added to scores.
    """

    tokens: slice
    windows: int
    width: int
    places: Tensor | None = None
    sources: Tensor | None = None
    padding: Tensor | None = None


@dataclass(frozen=True)
class _Firsts:
    """The first tokens of all windows, where a layer's answer for others is not read.

    Attributes:
        tokens: (B,) which of the N they are.
        blocks: as those of all tokens, with windows of one token.
    """

    tokens: Tensor
    blocks: Sequence[_Block]


@dataclass(frozen=True)
class _Shape:
    """What a layer is besides its weights.

    Attributes:
        heads: H.
        epsilons: of the two normalisations.
        dropouts: the modules whose shares are those of the attention, of its output and of the feed-forward part.
        dtype: of the products.
    """

    heads: int
    epsilons: tuple[float, float]
    dropouts: tuple[nn.Dropout, nn.Dropout, nn.Dropout]
    dtype: torch.dtype

    @property
    def shares(self) -> list[float]:
        """Are the shares of elements that the three dropouts leave out, as they are drawn."""
        return [round(each.p * _PARTS) / _PARTS for each in self.dropouts]


def use_packed_encoder(network: nn.Module, compute: Compute) -> bool:
    """Has the encoder of a network compute its training steps as above; returns whether its family is one of these.

    Weights, their names, evaluation and what is saved stay the library's.

    Args:
        network: of transformers, or with one in it; changed in place.
        compute: where and how it is trained.
    """
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}.get(compute.precision)
    if compute.device != "cpu" or dtype is None:
        return False
    for encoder in network.modules():
        read = [_read_layer(layer, dtype) for layer in getattr(encoder, "layer", ())]
        layers = [layer for layer in read if layer is not None]
        if layers and len(layers) == len(read):
            encoder.forward = _in_training(encoder, layers, _reads_first_tokens(network))
            for part in network.modules():
                if type(part) is nn.Dropout:  # of embeddings and head; the layers' are read, not called
                    part.forward = _dropout_in_training(part)  # type: ignore[assignment, method-assign]
            return True
    return False


def _read_layer(layer: Any, dtype: torch.dtype) -> tuple[_Shape, list[nn.Parameter]] | None:
    """Returns the shape and the 16 weights of a layer of BERT's or DistilBERT's kind; None of another kind."""
    kind = type(layer).__name__
    if kind in _LIKE_BERT:
        inner, outer, first, last = layer.attention.self, layer.attention.output, layer.intermediate, layer.output
        parts = [inner.query, inner.key, inner.value, outer.dense, outer.LayerNorm, first.dense, last.dense]
        parts, dropouts = [*parts, last.LayerNorm], (inner.dropout, outer.dropout, last.dropout)
        heads, activation = inner.num_attention_heads, first.intermediate_act_fn
    elif kind == "TransformerBlock":
        inner, first = layer.attention, layer.ffn
        parts = [inner.q_lin, inner.k_lin, inner.v_lin, inner.out_lin, layer.sa_layer_norm, first.lin1, first.lin2]
        parts, dropouts = [*parts, layer.output_layer_norm], (inner.dropout, nn.Dropout(0.0), first.dropout)
        heads, activation = inner.n_heads, first.activation
    else:
        return None
    is_plain = all(type(part) in (nn.Linear, nn.LayerNorm) for part in parts) and not layer.gradient_checkpointing
    if not is_plain or type(activation).__name__ != "GELUActivation":
        return None
    shape = _Shape(heads, (parts[4].eps, parts[7].eps), dropouts, dtype)
    return shape, [one for part in parts for one in (part.weight, part.bias)]


def _reads_first_tokens(network: nn.Module) -> bool:
    """Returns whether the head of a network reads of each window the first token alone."""
    is_one = type(network).__name__.endswith(("ForSequenceClassification", "ForMultipleChoice"))
    return is_one and getattr(network.config, "summary_type", "first") == "first"  # ELECTRA's choices may have another


def _in_training(
    encoder: Any, layers: Sequence[tuple[_Shape, list[nn.Parameter]]], first_tokens: bool
) -> Callable[..., Any]:
    """Returns the encoder's forward pass: in training over packed tokens, otherwise its own.

    Args:
        encoder: of a network.
        layers: of it.
        first_tokens: whether only the states of first tokens are read; of others it gives 0.
    """
    plain = encoder.forward

    def forward(hidden_states: Tensor, attention_mask: Tensor | None = None, *rest: Any, **more: Any) -> Any:
        if not encoder.training:
            return plain(hidden_states, attention_mask, *rest, **more)
        places, blocks = _pack(hidden_states, attention_mask)
        flat = hidden_states.flatten(0, 1)
        x = flat.index_select(0, places).float()
        if layers[0][0].dtype is torch.bfloat16:
            rows = -len(x) % _MULTIPLES[len(x) > _FEW]
            x = functional.pad(x, (0, 0, 0, rows))  # rows that no window has: no gradient comes from them
        firsts = _firsts(places, hidden_states.shape[1], blocks) if first_tokens else None
        with torch.autocast("cpu", enabled=False):
            for i, (shape, weights) in enumerate(layers, start=1):
                x = _apply(x, shape, blocks, firsts if i == len(layers) else None, *weights)
        places = places if firsts is None else places[firsts.tokens]
        padded = x.new_zeros(flat.shape).index_copy(0, places, x[: len(places)]).view(hidden_states.shape)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=padded)

    return forward


def _dropout_in_training(plain: nn.Dropout) -> Callable[[Tensor], Tensor]:
    """Returns the forward pass of a dropout: in training with the masks of the layers."""

    def forward(x: Tensor) -> Tensor:
        share = round(plain.p * _PARTS) / _PARTS
        mask = _draw(x.numel(), share) if plain.training else None
        return x if mask is None else x * mask.view(x.shape).to(x.dtype).mul_(-1 / (1 - share))

    return forward


def _pack(hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, list[_Block]]:
    """Returns where the N tokens lie among the B x T, the longest windows first, and the blocks of windows.

    Args:
        hidden_states: (B, T, C).
        mask: (B, 1, T or 1, T) true where a token may be looked at; None where there is no padding.
    """
    windows, width = hidden_states.shape[:2]
    is_real = torch.ones(windows, width, dtype=torch.bool) if mask is None else mask[:, 0, -1]
    lengths = is_real.sum(1).numpy()
    plan = token_budget_plan(lengths, _BLOCK)
    order = torch.from_numpy(np.concatenate(plan))
    places = (order[:, None] * width + torch.arange(width))[is_real[order]]
    blocks, first = [], 0
    for indices in plan:
        longest, end = int(lengths[indices].max()), first + int(lengths[indices].sum())
        inside = torch.arange(longest) < torch.from_numpy(lengths[indices])[:, None]
        flat, padding = inside.flatten(), torch.zeros(inside.shape).masked_fill_(~inside, float("-inf"))
        gaps = flat.nonzero().flatten(), (flat.cumsum(0) - 1).clamp(min=0), padding[:, None, None]
        blocks.append(_Block(slice(first, end), len(indices), longest, *(() if flat.all() else gaps)))
        first = end
    return places, blocks


def _firsts(places: Tensor, width: int, blocks: Sequence[_Block]) -> _Firsts | None:
    """Returns the first token of each window; None where one begins with padding."""
    ends = np.cumsum([0, *(block.windows for block in blocks)]).tolist()
    tokens = (places % width == 0).nonzero().flatten()
    windows = [_Block(slice(begin, end), end - begin, 1) for begin, end in pairwise(ends)]
    return _Firsts(tokens, windows) if len(tokens) == ends[-1] else None


class _Layer(torch.autograd.Function):
    """(N, C) hidden states through a layer (Devlin et al. 2019, section 3; Vaswani et al. 2017, section 3.1)."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, shape: _Shape, blocks: Sequence[_Block], firsts: _Firsts | None, *weights: Tensor
    ) -> Tensor:
        """Returns (N, C), or (B, C) of first tokens alone."""
        wq, bq, wk, bk, wv, bv, wo, bo, g1, b1, wi, bi, wf, bf, g2, b2 = weights
        w_qkv, b_qkv = (torch.cat([each.to(shape.dtype) for each in of]) for of in ((wq, wk, wv), (bq, bk, bv)))
        wo, bo, wi, bi, wf, bf = (each.to(shape.dtype) for each in (wo, bo, wi, bi, wf, bf))
        c = x.shape[1]
        of_attention, of_output, of_layer = shape.shares
        xb = x.to(shape.dtype)
        qkv = functional.linear(xb, w_qkv, b_qkv)
        qkv[:, :c] *= (c / shape.heads) ** -0.5
        if firsts is not None:
            x = x[firsts.tokens]
        both = list(zip(blocks, blocks if firsts is None else firsts.blocks, strict=True))
        looked_at = sum(block.windows * shape.heads * block.width * to.width for block, to in both)
        kept = _draw(looked_at, of_attention), _draw(x.numel(), of_output), _draw(x.numel(), of_layer)
        found, saved = _attend(qkv, x.shape, shape.heads, both, kept[0], 1 / (1 - of_attention))
        y = torch.add(x, _keep(functional.linear(found, wo, bo), kept[1]), alpha=1 / (1 - of_output))
        x1, m1, r1 = torch.native_layer_norm(y, (c,), g1, b1, shape.epsilons[0])
        x1b = x1.to(shape.dtype)
        h = functional.linear(x1b, wi, bi)
        a = functional.gelu(h)
        z = torch.add(x1, _keep(_product(a, wf.T).add_(bf), kept[2]), alpha=1 / (1 - of_layer))
        out, m2, r2 = torch.native_layer_norm(z, (c,), g2, b2, shape.epsilons[1])
        products = xb, qkv, found, x1b, h, a, w_qkv, wo, wi, wf
        context.save_for_backward(*products, y, m1, r1, g1, b1, z, m2, r2, g2, b2, *kept, *saved)
        context.shape, context.blocks, context.firsts = shape, both, firsts
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        """Returns the gradients with respect to the hidden states and to the weights."""
        xb, qkv, found, x1b, h, a, w_qkv, wo, wi, wf, *rest = context.saved_tensors
        y, m1, r1, g1, b1, z, m2, r2, g2, b2, of_attention, of_output, of_layer, *saved = rest
        shape, needed = context.shape, context.needs_input_grad[4:]
        scales, sides = [1 / (1 - share) for share in shape.shares], [gradient.shape[1:], [True] * 3]
        gz, dg2, db2 = _norm_backward(gradient, z, sides[0], m2, r2, g2, b2, sides[1])
        gf = _keep((gz * scales[2]).to(shape.dtype), of_layer)
        gh = _gelu_backward(gf @ wf, h)
        gy, dg1, db1 = _norm_backward(gz.add_(_product(gh, wi)), y, sides[0], m1, r1, g1, b1, sides[1])
        go = _keep((gy * scales[1]).to(shape.dtype), of_output)
        g_qkv = _attend_backward(go @ wo, qkv, saved, shape.heads, context.blocks, of_attention, scales[0])
        g_qkv[:, : len(wo)] *= (len(wo) / shape.heads) ** -0.5
        gx, firsts = None, context.firsts
        if context.needs_input_grad[0]:
            gx = _product(g_qkv, w_qkv)
            gx = gy.add_(gx) if firsts is None else gx.float().index_add_(0, firsts.tokens, gy)
        dw, db = _of_linear(g_qkv, xb, any(needed[:6]))
        dws, dbs = ((None,) * 3, (None,) * 3) if dw is None or db is None else (dw.chunk(3), db.chunk(3))
        of_qkv = [each for pair in zip(dws, dbs, strict=True) for each in pair]
        of_wo = _of_linear(go, found, needed[6])
        of_wi, of_wf = _of_linear(gh, x1b, needed[10]), _of_linear(gf, a, needed[12])
        return gx, None, None, None, *of_qkv, *of_wo, dg1, db1, *of_wi, *of_wf, dg2, db2


_apply: Any = _Layer.apply


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """Returns (N, O) of (N, K) and (K, O).

    With AMX, oneDNN (3.12) lets one of two threads do a bf16 product that makes fewer numbers per token out of more; as
    two products at once it takes 0.55 of the time.
    """
    lets_one = x.dtype is torch.bfloat16 and len(weight) > weight.shape[1] and torch.get_num_threads() == 2
    if not lets_one or len(x) % 2 or "amx_bf16" not in cpu_words():
        return x @ weight
    is_turned = not weight.is_contiguous()
    both = (weight.T if is_turned else weight).expand(2, -1, -1).contiguous()
    return torch.bmm(x.view(2, -1, x.shape[1]), both.mT if is_turned else both).flatten(0, 1)


def _of_linear(gradient: Tensor, inputs: Tensor, needed: bool) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of a linear layer's weight and bias in fp32."""
    if not needed:
        return None, None
    turned = gradient.T if gradient.shape[1] >= inputs.shape[1] else gradient.T.contiguous()  # as oneDNN is faster
    return (turned @ inputs).float(), gradient.sum(0).float()


def _draw(count: int, share: float) -> Tensor | None:
    """Returns a dropout's 16-bit masks of some elements: all bits are set where one is kept, none where it is not."""
    if not share:
        return None
    bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)[:count]
    return bits.ge_(round(share * _PARTS) - _PARTS // 2).neg_()


def _keep(x: Tensor, mask: Tensor | None) -> Tensor:
    """Returns elements, those that are not kept as 0."""
    if mask is None:
        return x
    bits, mask = (torch.int16, mask) if x.element_size() == 2 else (torch.int32, mask.int())
    return (x.view(bits) & mask.view(x.shape)).view(x.dtype)


def _attend(
    qkv: Tensor,
    shape: torch.Size,
    heads: int,
    blocks: Sequence[tuple[_Block, _Block]],
    kept: Tensor | None,
    scale: float,
) -> tuple[Tensor, list[Tensor]]:
    """Returns attention of (N, 3 C) queries, keys and values, and for each block its (W x H, Q, L) weights.

    Args:
        qkv: its queries are divided by the root of D.
        shape: of what is returned: (N, C), or (B, C) where only first tokens look.
        heads: H.
        blocks: of the tokens that are looked at, and of those that look: Q of each window, its first ones.
        kept: masks of the weights' dropout.
        scale: of weights that are kept.
    """
    found, saved, first = _room(qkv, shape, blocks[-1][1]), [], 0
    for block, to in blocks:
        q, k, v = _by_head(qkv[block.tokens], 3, heads, block)
        scores = torch.bmm(q[:, : to.width], k.transpose(1, 2)).float()
        if block.padding is not None:
            scores.view(block.windows, heads, to.width, -1).add_(block.padding)
        weights = scores.softmax(-1).to(q.dtype)
        saved.append(weights)
        mask, first = None if kept is None else kept[first : first + weights.numel()], first + weights.numel()
        _by_token(torch.bmm(_keep(weights, mask), v).mul_(scale)[None], heads, to, found)
    return found, saved


def _attend_backward(
    gradient: Tensor,
    qkv: Tensor,
    saved: Sequence[Tensor],
    heads: int,
    blocks: Sequence[tuple[_Block, _Block]],
    kept: Tensor | None,
    scale: float,
) -> Tensor:
    """Returns the (N, 3 C) gradient with respect to queries, keys and values; the arguments are those of `_attend`."""
    found, first = _room(qkv, qkv.shape, blocks[-1][0]), 0
    for (block, to), weights in zip(blocks, saved, strict=True):
        q, k, v = _by_head(qkv[block.tokens], 3, heads, block)
        g = _by_head(gradient[to.tokens], 1, heads, to)[0].mul_(scale)
        if to.padding is not None:
            g.view(to.windows, heads, to.width, -1).masked_fill_(to.padding.mT != 0, 0.0)
        mask, first = None if kept is None else kept[first : first + weights.numel()], first + weights.numel()
        of_weights = _keep(torch.bmm(g, v.transpose(1, 2)), mask)
        dtype = torch.float32 if block.width < _LONG else weights.dtype
        of_scores = torch._softmax_backward_data(of_weights.to(dtype), weights.to(dtype), -1, dtype).to(weights.dtype)
        of_qkv = q.new_empty(3, *q.shape)
        of_qkv[0, :, to.width :] = 0
        torch.bmm(of_scores, k, out=of_qkv[0, :, : to.width])
        torch.bmm(of_scores.transpose(1, 2), q[:, : to.width], out=of_qkv[1])
        torch.bmm(_keep(weights, mask).transpose(1, 2), g, out=of_qkv[2])
        _by_token(of_qkv, heads, block, found)
    return found


def _room(like: Tensor, shape: torch.Size, last: _Block) -> Tensor:
    """Returns a tensor to be filled block by block; rows after the last one are no window's, and 0."""
    found = like.new_empty(shape)
    found[last.tokens.stop :] = 0
    return found


def _by_head(tokens: Tensor, parts: int, heads: int, block: _Block) -> Tensor:
    """Returns a block's tokens (..., parts x C) as (parts, W x H, L, D), some token's where there is none."""
    if block.sources is not None:
        tokens = tokens.index_select(0, block.sources)
    split = tokens.view(block.windows, block.width, parts, heads, -1)
    return split.permute(2, 0, 3, 1, 4).contiguous().flatten(1, 2)


def _by_token(x: Tensor, heads: int, block: _Block, found: Tensor) -> None:
    """Puts (parts, W x H, L, D) to a block's tokens among the (N, parts x C)."""
    split = x.view(len(x), -1, heads, *x.shape[2:]).permute(1, 3, 0, 2, 4)
    if block.places is None:
        found[block.tokens].view(split.shape).copy_(split)
    else:
        torch.index_select(split.reshape(-1, found.shape[1]), 0, block.places, out=found[block.tokens])
