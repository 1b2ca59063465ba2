"""The encoder of a BERT in a training step on a CPU: each layer is one autograd function over the
tokens of the batch.

The library's way computes padding, turns weights and hidden states to bf16 for each product, and
draws a random number per element by `bernoulli_`, in one thread. Here the tokens of a batch lie one
after the other without padding, a layer keeps for its backward pass what that needs, and a random
64-bit number serves four elements.

Letters: B windows, T tokens of the longest, N tokens of all windows (in bf16 rounded up), C numbers
of a hidden state, H heads, F numbers of the feed-forward part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertctl.modeling.families import BERT_LAYER, DISTILBERT_LAYER, LOOKS_BACK
from bertctl.modeling.fast.dropout_masks import draw_mask, drawn_share, dropout_in_training, keep
from bertctl.modeling.fast.packed_attention import (
    Looks,
    attend,
    attend_backward,
    first_tokens,
    pack,
)
from bertctl.modeling.fast.torch_bert import OF_TEXTS, Layer, Network, Stack
from bertctl.runtime.cpu import cpu_words
from bertctl.runtime.device import Compute

_LIKE_BERT = ("BertLayer", "RobertaLayer", "XLMRobertaLayer", "CamembertLayer", "ElectraLayer")
# oneDNN makes code for each shape of a bf16 product: 25 ms per step (AMX) where no step before had
# as many tokens. They are rounded up to a multiple of the first number where they are few,
# otherwise of the second.
_FEW = 512
_MULTIPLES = (32, 64)

_norm_backward: Any = torch.ops.aten.native_layer_norm_backward
_gelu_backward: Any = torch.ops.aten.gelu_backward


@dataclass(frozen=True)
class _Shape:
    """What a layer is besides its weights.

    Attributes:
        heads: H.
        epsilons: of the two normalisations.
        dropouts: the modules whose shares are those of the attention, of its output and of the
            feed-forward part.
        dtype: of the products.
    """

    heads: int
    epsilons: tuple[float, float]
    dropouts: tuple[nn.Dropout, nn.Dropout, nn.Dropout]
    dtype: torch.dtype

    @property
    def shares(self) -> list[float]:
        """Shares of elements that the three dropouts leave out, as they are drawn."""
        return [drawn_share(dropout) for dropout in self.dropouts]


def use_packed_encoder(network: nn.Module, compute: Compute) -> bool:
    """Makes the encoder of a network compute its training steps as above; returns whether its
    family is one of these.

    Weights, their names, evaluation and what is saved stay the library's.

    Args:
        network: of transformers, or with one in it, or of `torch_bert.py`; changed in place.
        compute: where and how it is trained.
    """
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}.get(compute.precision)
    if compute.device != "cpu" or dtype is None or not _is_usual(network.config):
        return False
    for encoder in network.modules():
        read = [_read_layer(layer, dtype) for layer in getattr(encoder, "layer", ())]
        layers = [layer for layer in read if layer is not None]
        if layers and len(layers) == len(read):
            encoder.forward = _in_training(encoder, layers, _reads_first_tokens(network))
            for part in network.modules():
                # Of embeddings and head: those of the layers are read, not called.
                if type(part) is nn.Dropout:
                    forward: Any = dropout_in_training(part)
                    part.forward = forward  # type: ignore[method-assign]
            return True
    return False


def _is_usual(config: Any) -> bool:
    """Returns whether tokens look both ways, by torch's own attention, and the head reads no state
    of padding.
    """
    looks_back = any(getattr(config, name, None) for name in LOOKS_BACK)
    attention, summary = (
        getattr(config, name, None) for name in ("_attn_implementation", "summary_type")
    )
    return not looks_back and attention in (None, "sdpa") and summary in (None, "first")


def _read_layer(layer: Any, dtype: torch.dtype) -> tuple[_Shape, list[nn.Parameter]] | None:
    """Returns the shape and the 16 weights of a layer of BERT's or DistilBERT's kind; None of
    another kind.
    """
    kind = type(layer).__name__
    if isinstance(layer, Layer):
        weights: list[nn.Parameter] = []
        for name in layer.names:
            weights += layer.part(name).parameters()
        return _Shape(layer.heads, (layer.epsilon, layer.epsilon), layer.dropouts, dtype), weights
    if kind in _LIKE_BERT:
        names = BERT_LAYER
        inner = layer.attention.self
        dropouts = inner.dropout, layer.attention.output.dropout, layer.output.dropout
        heads = inner.num_attention_heads
        activation = layer.intermediate.intermediate_act_fn
    elif kind == "TransformerBlock":
        names = DISTILBERT_LAYER
        inner = layer.attention
        first = layer.ffn
        dropouts = inner.dropout, nn.Dropout(0.0), first.dropout
        heads = inner.n_heads
        activation = first.activation
    else:
        return None
    parts = [layer.get_submodule(name) for name in names.values()]
    is_plain = (
        all(type(part) in (nn.Linear, nn.LayerNorm) for part in parts)
        and not layer.gradient_checkpointing
    )
    if not is_plain or type(activation).__name__ != "GELUActivation":
        return None
    shape = _Shape(heads, (parts[4].eps, parts[7].eps), dropouts, dtype)
    weights = []
    for part in parts:
        weights += [part.weight, part.bias]
    return shape, weights


def _reads_first_tokens(network: nn.Module) -> bool:
    """Returns whether the head of a network, if it is as usual, reads of each window the first
    token alone.
    """
    if isinstance(network, Network):
        name = network.architecture
    else:
        name = type(network).__name__
    return name.endswith(tuple(f"For{kind}" for kind in OF_TEXTS))


def _in_training(
    encoder: Any, layers: Sequence[tuple[_Shape, list[nn.Parameter]]], reads_firsts: bool
) -> Callable[..., Any]:
    """Returns the encoder's forward pass: in training over packed tokens, otherwise its own.

    Args:
        encoder: of a network.
        layers: of it.
        reads_firsts: whether only the states of first tokens are read; of others it gives 0.
    """
    plain = encoder.forward
    outputs = _outputs_of(encoder)

    def forward(
        hidden_states: Tensor, attention_mask: Tensor | None = None, *rest: Any, **more: Any
    ) -> Any:
        if not encoder.training:
            return plain(hidden_states, attention_mask, *rest, **more)
        positions, blocks = pack(hidden_states, attention_mask)
        flat = hidden_states.flatten(0, 1)
        x = flat.index_select(0, positions).float()
        if layers[0][0].dtype is torch.bfloat16:
            rows = -len(x) % _MULTIPLES[len(x) > _FEW]
            # The added rows belong to no window, and give no gradient.
            x = functional.pad(x, (0, 0, 0, rows))
        if reads_firsts:
            firsts = first_tokens(positions, hidden_states.shape[1], blocks)
        else:
            firsts = None
        every = list(zip(blocks, blocks, strict=True)), None
        looks, only = firsts or every
        with torch.autocast("cpu", enabled=False):
            for shape, weights in layers[:-1]:
                x = _apply(x, shape, *every, *weights)
            shape, weights = layers[-1]
            x = _apply(
                x,
                shape,
                looks,
                only,
                *weights,
            )
        if only is not None:
            positions = positions[only]
        padded = (
            x.new_zeros(flat.shape)
            .index_copy(0, positions, x[: len(positions)])
            .view(hidden_states.shape)
        )
        return outputs(last_hidden_state=padded)

    return forward


def _outputs_of(encoder: Any) -> Any:
    """Returns what makes the outputs of an encoder."""
    if isinstance(encoder, Stack):
        return SimpleNamespace
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

    return BaseModelOutputWithPastAndCrossAttentions


class _Layer(torch.autograd.Function):
    """(N, C) hidden states through a layer (Devlin et al. 2019, section 3; Vaswani et al. 2017,
    section 3.1).
    """

    @staticmethod
    def forward(
        context: Any, x: Tensor, shape: _Shape, looks: Looks, only: Tensor | None, *weights: Tensor
    ) -> Tensor:
        """Returns (N, C), or (B, C) of first tokens only, which are these of the N."""
        wq, bq, wk, bk, wv, bv, wo, bo, g1, b1, wi, bi, wf, bf, g2, b2 = weights
        w_qkv = torch.cat([weight.to(shape.dtype) for weight in (wq, wk, wv)])
        b_qkv = torch.cat([bias.to(shape.dtype) for bias in (bq, bk, bv)])
        wo, bo, wi, bi, wf, bf = (weight.to(shape.dtype) for weight in (wo, bo, wi, bi, wf, bf))
        c = x.shape[1]
        of_attention, of_output, of_layer = shape.shares
        xb = x.to(shape.dtype)
        qkv = functional.linear(xb, w_qkv, b_qkv)
        qkv[:, :c] *= (c / shape.heads) ** -0.5
        x = x if only is None else x[only]
        looked_at = sum(block.windows * shape.heads * block.width * to.width for block, to in looks)
        dropout_masks = (
            draw_mask(looked_at, of_attention),
            draw_mask(x.numel(), of_output),
            draw_mask(x.numel(), of_layer),
        )
        attended, saved = attend(
            qkv,
            x.shape,
            shape.heads,
            looks,
            dropout_masks[0],
            1 / (1 - of_attention),
        )
        y = torch.add(
            x,
            keep(functional.linear(attended, wo, bo), dropout_masks[1]),
            alpha=1 / (1 - of_output),
        )
        x1, m1, r1 = torch.native_layer_norm(
            y,
            (c,),
            g1,
            b1,
            shape.epsilons[0],
        )
        x1b = x1.to(shape.dtype)
        h = functional.linear(x1b, wi, bi)
        a = functional.gelu(h)
        z = torch.add(
            x1, keep(_product(a, wf.T).add_(bf), dropout_masks[2]), alpha=1 / (1 - of_layer)
        )
        out, m2, r2 = torch.native_layer_norm(
            z,
            (c,),
            g2,
            b2,
            shape.epsilons[1],
        )
        products = xb, qkv, attended, x1b, h, a, w_qkv, wo, wi, wf
        context.save_for_backward(
            *products,
            y,
            m1,
            r1,
            g1,
            b1,
            z,
            m2,
            r2,
            g2,
            b2,
            *dropout_masks,
            *saved,
        )
        context.shape = shape
        context.looks = looks
        context.only = only
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        """Returns the gradients with respect to the hidden states and to the weights."""
        xb, qkv, attended, x1b, h, a, w_qkv, wo, wi, wf, *rest = context.saved_tensors
        y, m1, r1, g1, b1, z, m2, r2, g2, b2, of_attention, of_output, of_layer, *saved = rest
        shape = context.shape
        needed = context.needs_input_grad[4:]
        scales = [1 / (1 - share) for share in shape.shares]
        sides = [gradient.shape[1:], [True] * 3]
        gz, dg2, db2 = _norm_backward(
            gradient,
            z,
            sides[0],
            m2,
            r2,
            g2,
            b2,
            sides[1],
        )
        gf = keep((gz * scales[2]).to(shape.dtype), of_layer)
        gh = _gelu_backward(gf @ wf, h)
        gy, dg1, db1 = _norm_backward(
            gz.add_(_product(gh, wi)),
            y,
            sides[0],
            m1,
            r1,
            g1,
            b1,
            sides[1],
        )
        go = keep((gy * scales[1]).to(shape.dtype), of_output)
        g_qkv = attend_backward(
            go @ wo,
            qkv,
            saved,
            shape.heads,
            context.looks,
            of_attention,
            scales[0],
        )
        g_qkv[:, : len(wo)] *= (len(wo) / shape.heads) ** -0.5
        gx = None
        only = context.only
        if context.needs_input_grad[0]:
            gx = _product(g_qkv, w_qkv)
            if only is None:
                gx = gy.add_(gx)
            else:
                gx = gx.float().index_add_(0, only, gy)
        dw, db = _of_linear(g_qkv, xb, any(needed[:6]))
        of_qkv: list[Tensor | None] = [None] * 6
        if dw is not None and db is not None:  # the weights and biases take turns
            of_qkv[0::2] = dw.chunk(3)
            of_qkv[1::2] = db.chunk(3)
        of_wo = _of_linear(go, attended, needed[6])
        of_wi = _of_linear(gh, x1b, needed[10])
        of_wf = _of_linear(gf, a, needed[12])
        return gx, None, None, None, *of_qkv, *of_wo, dg1, db1, *of_wi, *of_wf, dg2, db2


_apply: Any = _Layer.apply


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """Returns (N, O) of (N, K) and (K, O).

    With AMX, oneDNN (3.12) lets one of two threads do a bf16 product that makes fewer numbers per
    token out of more; as two products at once it takes 0.55 of the time.
    """
    lets_one = (
        x.dtype is torch.bfloat16 and len(weight) > weight.shape[1] and torch.get_num_threads() == 2
    )
    if not lets_one or len(x) % 2 or "amx_bf16" not in cpu_words():
        return x @ weight
    is_turned = not weight.is_contiguous()
    both = (weight.T if is_turned else weight).expand(2, -1, -1).contiguous()
    return torch.bmm(x.view(2, -1, x.shape[1]), both.mT if is_turned else both).flatten(0, 1)


def _of_linear(
    gradient: Tensor, inputs: Tensor, needed: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of a linear layer's weight and bias in fp32."""
    if not needed:
        return None, None
    # as oneDNN is faster
    if gradient.shape[1] >= inputs.shape[1]:
        turned = gradient.T
    else:
        turned = gradient.T.contiguous()
    return (turned @ inputs).float(), gradient.sum(0).float()
