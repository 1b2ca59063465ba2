"""The encoder of a BERT in a training step on a CPU.

Each layer is one autograd function over the tokens of the batch.

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
from bertctl.modeling.lora import LoraLayer
from bertctl.runtime.cpu import cpu_words
from bertctl.runtime.device import Compute

_LIKE_BERT = ("BertLayer", "RobertaLayer", "XLMRobertaLayer", "CamembertLayer", "ElectraLayer")
# oneDNN makes code for each shape of a bf16 product: 25 ms per step (AMX) where no step before had
# as many tokens. They are rounded up to a multiple of the first number where they are few,
# otherwise of the second.
_FEW = 512
_MULTIPLES = (32, 64)

_N_WEIGHTS = 16
# Numbers of the linear layers after query, key and value.
_MIXED = 3
_INNER = 4
_OUTER = 5

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
        scaling: Factor of LoRA's updates.
    """

    heads: int
    epsilons: tuple[float, float]
    dropouts: tuple[nn.Dropout, nn.Dropout, nn.Dropout]
    dtype: torch.dtype
    scaling: float = 1.0

    @property
    def shares(self) -> list[float]:
        """Shares of elements that the three dropouts leave out, as they are drawn."""
        return [drawn_share(dropout) for dropout in self.dropouts]


@dataclass(frozen=True)
class _LayerWeights:
    """What a layer computes with.

    Attributes:
        shape: What it is besides its weights.
        weights: 16 weights and biases, in the order of `BERT_LAYER`.
        adapters: Two matrices of LoRA for each of the six linear layers, R x D and C x R; None
            where a layer has no update. Empty without LoRA.
    """

    shape: _Shape
    weights: Sequence[Tensor]
    adapters: Sequence[Tensor | None] = ()


def use_packed_encoder(network: nn.Module, compute: Compute) -> bool:
    """Makes the encoder of a network compute its training steps as above.

    It returns whether the network's family is one of these.

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
    """Returns whether a network attends and reads its states as usual.

    Tokens look both ways, by torch's own attention, and the head reads no state of padding.
    """
    looks_back = any(getattr(config, name, None) for name in LOOKS_BACK)
    attention, summary = (
        getattr(config, name, None) for name in ("_attn_implementation", "summary_type")
    )
    return not looks_back and attention in (None, "sdpa") and summary in (None, "first")


def _read_layer(layer: Any, dtype: torch.dtype) -> _LayerWeights | None:
    """Returns the shape and the weights of a layer of BERT's or DistilBERT's kind.

    It is None of another kind.
    """
    kind = type(layer).__name__
    if isinstance(layer, Layer):
        parts = [layer.part(name) for name in layer.names]
        dropouts = layer.dropouts
        heads = layer.heads
        epsilons = (layer.epsilon, layer.epsilon)
        has_gelu = True
    elif kind in _LIKE_BERT:
        parts = [layer.get_submodule(name) for name in BERT_LAYER.values()]
        inner = layer.attention.self
        dropouts = inner.dropout, layer.attention.output.dropout, layer.output.dropout
        heads = inner.num_attention_heads
        epsilons = _epsilons(parts)
        has_gelu = _is_gelu(layer.intermediate.intermediate_act_fn)
    elif kind == "TransformerBlock":
        parts = [layer.get_submodule(name) for name in DISTILBERT_LAYER.values()]
        inner = layer.attention
        dropouts = inner.dropout, nn.Dropout(0.0), layer.ffn.dropout
        heads = inner.n_heads
        epsilons = _epsilons(parts)
        has_gelu = _is_gelu(layer.ffn.activation)
    else:
        return None
    is_recomputed = bool(getattr(layer, "gradient_checkpointing", False))
    if not has_gelu or is_recomputed or not all(map(_is_plain, parts)):
        return None

    updates = [part for part in parts if isinstance(part, LoraLayer)]
    scaling = updates[0].scaling if updates else 1.0
    weights: list[Tensor] = []
    for part in parts:
        weights += [part.weight, part.bias]
    return _LayerWeights(
        shape=_Shape(heads, epsilons, dropouts, dtype, scaling),
        weights=weights,
        adapters=_adapters(parts) if updates else (),
    )


def _epsilons(parts: Sequence[Any]) -> tuple[float, float]:
    """Returns the epsilons of a layer's two LayerNorms, that of the attention first.

    An epsilon is 0 for a part that is no LayerNorm; the caller refuses such a layer afterwards.
    """
    # In the order of BERT_LAYER, the LayerNorms are the parts 4 and 7.
    of_attention = float(getattr(parts[4], "eps", 0.0))
    of_output = float(getattr(parts[7], "eps", 0.0))
    return of_attention, of_output


def _is_gelu(activation: Any) -> bool:
    return type(activation).__name__ == "GELUActivation"


def _is_plain(part: Any) -> bool:
    """Returns whether a part is what `_Layer` computes."""
    return type(part) in (nn.Linear, nn.LayerNorm) or (
        isinstance(part, LoraLayer) and part.is_plain_update
    )


def _adapters(parts: Sequence[Any]) -> list[Tensor | None]:
    """Returns LoRA's matrices of a layer's parts, normalisations left out."""
    adapters: list[Tensor | None] = []
    for part in parts:
        if isinstance(part, LoraLayer):
            adapters += [part.lora_A, part.lora_B]
        elif not isinstance(part, nn.LayerNorm):
            adapters += [None, None]
    return adapters


def _reads_first_tokens(network: nn.Module) -> bool:
    """Returns whether the head of a network reads only the first token of each window.

    The name of its architecture tells.
    """
    if isinstance(network, Network):
        name = network.architecture
    else:
        name = type(network).__name__
    return name.endswith(tuple(f"For{kind}" for kind in OF_TEXTS))


def _in_training(
    encoder: Any, layers: Sequence[_LayerWeights], reads_firsts: bool
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
        if layers[0].shape.dtype is torch.bfloat16:
            n_added = -len(x) % _MULTIPLES[len(x) > _FEW]
            # The added rows belong to no window, and give no gradient.
            x = functional.pad(x, (0, 0, 0, n_added))

        # All tokens of a window look at all of it. In the last layer it is enough to compute the
        # first tokens if the head reads no others: `selected` says which rows of x they are.
        all_tokens = list(zip(blocks, blocks, strict=True)), None
        firsts = None
        if reads_firsts:
            firsts = first_tokens(positions, hidden_states.shape[1], blocks)
        looks, selected = firsts or all_tokens

        with torch.autocast("cpu", enabled=False):
            for layer in layers[:-1]:
                x = _apply(x, layer.shape, *all_tokens, *layer.weights, *layer.adapters)
            last_layer = layers[-1]
            x = _apply(
                x,
                last_layer.shape,
                looks,
                selected,
                *last_layer.weights,
                *last_layer.adapters,
            )

        if selected is not None:
            positions = positions[selected]
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
    """(N, C) hidden states through a layer.

    See Devlin et al. 2019, section 3, and Vaswani et al. 2017, section 3.1. With x the hidden
    states, D1 to D3 the dropouts (each scales what it keeps by 1 / (1 - share)) and LN1 and LN2 the
    normalisations:

        q, k, v = x Wq + bq, x Wk + bk, x Wv + bv
        attended = D1(softmax(q k^T / sqrt(C / H))) v     head by head, within a window
        y = x + D2(attended Wo + bo)         x1 = LN1(y)
        h = x1 Wi + bi                       a = gelu(h)
        z = x1 + D3(a Wf + bf)               out = LN2(z)

    Torch's linear layers hold the transposed matrices. A letter with a b behind it is the same
    number in the dtype of the products; normalisations and residual sums stay in fp32. In
    `backward` the gradient with respect to a value has a g in front of its name.
    """

    @staticmethod
    def forward(
        context: Any,
        x: Tensor,
        shape: _Shape,
        looks: Looks,
        only: Tensor | None,
        *weights: Tensor,
    ) -> Tensor:
        """Returns (N, C), or (B, C) of first tokens only, which are these of the N."""
        wq, bq, wk, bk, wv, bv, wo, bo, g1, b1, wi, bi, wf, bf, g2, b2 = weights[:_N_WEIGHTS]
        updates = _Updates(weights[_N_WEIGHTS:], shape)
        w_qkv = torch.cat([weight.to(shape.dtype) for weight in (wq, wk, wv)])
        b_qkv = torch.cat([bias.to(shape.dtype) for bias in (bq, bk, bv)])
        wo, bo, wi, bi, wf, bf = (weight.to(shape.dtype) for weight in (wo, bo, wi, bi, wf, bf))
        c = x.shape[1]
        of_attention, of_output, of_layer = shape.shares
        xb = x.to(shape.dtype)
        qkv = functional.linear(xb, w_qkv, b_qkv)
        for number in range(_MIXED):
            updates.add(number, xb, qkv[:, number * c : (number + 1) * c])
        # The queries are scaled instead of the scores: C numbers per token, not H x L.
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
            dropout_mask=dropout_masks[0],
            scale=1 / (1 - of_attention),
        )
        mixed = functional.linear(attended, wo, bo)
        updates.add(_MIXED, attended, mixed)
        # y = x + D2(mixed): the mask only zeroes, and alpha scales what is kept.
        y = torch.add(
            x,
            keep(mixed, dropout_masks[1]),
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
        updates.add(_INNER, x1b, h)
        a = functional.gelu(h)
        outer = _product(a, wf.T).add_(bf)
        updates.add(_OUTER, a, outer)
        z = torch.add(x1, keep(outer, dropout_masks[2]), alpha=1 / (1 - of_layer))
        out, m2, r2 = torch.native_layer_norm(
            z,
            (c,),
            g2,
            b2,
            shape.epsilons[1],
        )
        # Of LN1 and LN2 their inputs, means and reciprocal deviations are kept; the attention's
        # weights are in `saved`.
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
            *updates.saved(),
            *saved,
        )
        context.shape = shape
        context.n_updates = len(updates.saved())
        context.looks = looks
        context.only = only
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        """Returns the gradients with respect to the hidden states and to the weights."""
        xb, qkv, attended, x1b, h, a, w_qkv, wo, wi, wf, *rest = context.saved_tensors
        y, m1, r1, g1, b1, z, m2, r2, g2, b2, of_attention, of_output, of_layer, *saved = rest
        shape = context.shape
        updates = _Updates.of_saved(saved[: context.n_updates], shape)
        saved = saved[context.n_updates :]
        needed = context.needs_input_grad[4:]
        scales = [1 / (1 - share) for share in shape.shares]
        size = gradient.shape[1:]
        # out = LN2(z); z = x1 + D3(gelu(h) Wf + bf): gz goes on to x1 and through the dropout.
        gz, dg2, db2 = _norm_backward(
            gradient,
            z,
            size,
            m2,
            r2,
            g2,
            b2,
            [True, needed[14], needed[15]],
        )
        gf = keep((gz * scales[2]).to(shape.dtype), of_layer)
        ga = gf @ wf
        updates.backward(_OUTER, a, gf, ga)
        gh = _gelu_backward(ga, h)
        g1b = _product(gh, wi)
        updates.backward(_INNER, x1b, gh, g1b)
        # x1 = LN1(y) has two gradients: of the residual sum (gz) and of h (g1b).
        gy, dg1, db1 = _norm_backward(
            gz.add_(g1b),
            y,
            size,
            m1,
            r1,
            g1,
            b1,
            [True, needed[8], needed[9]],
        )
        go = keep((gy * scales[1]).to(shape.dtype), of_output)
        g_attended = go @ wo
        updates.backward(_MIXED, attended, go, g_attended)
        g_qkv = attend_backward(
            g_attended,
            qkv=qkv,
            saved=saved,
            heads=shape.heads,
            looks=context.looks,
            dropout_mask=of_attention,
            scale=scales[0],
        )
        g_qkv[:, : len(wo)] *= (len(wo) / shape.heads) ** -0.5
        # x has two gradients as well: of query, key and value (gx), and of the residual sum (gy).
        # Where only first tokens go on, the second one is theirs alone.
        gx = None
        only = context.only
        if context.needs_input_grad[0]:
            gx = _product(g_qkv, w_qkv)
        c = len(wo)
        for number in range(_MIXED):
            updates.backward(number, xb, g_qkv[:, number * c : (number + 1) * c], gx)
        if gx is not None:
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
        gradients = *of_qkv, *of_wo, dg1, db1, *of_wi, *of_wf, dg2, db2, *updates.gradients
        return gx, None, None, None, *gradients


_apply: Any = _Layer.apply


class _Updates:
    """LoRA's updates of a layer, on the way forward and back; they do nothing where it has none.

    Args:
        adapters: As in `_LayerWeights`.
        shape: Of the layer.

    Attributes:
        gradients: With respect to the adapters, in fp32.
    """

    def __init__(self, adapters: Sequence[Tensor | None], shape: _Shape) -> None:
        self._adapters = [
            matrix if matrix is None else matrix.to(shape.dtype) for matrix in adapters
        ]
        self._scaling = shape.scaling
        self._narrow: list[Tensor | None] = [None] * (len(adapters) // 2)
        self.gradients: list[Tensor | None] = [None] * len(adapters)

    @classmethod
    def of_saved(cls, saved: Sequence[Tensor | None], shape: _Shape) -> "_Updates":
        """Returns the updates that `saved` came from."""
        n_adapters = len(saved) * 2 // 3
        updates = cls(saved[:n_adapters], shape)
        updates._narrow = [*saved[n_adapters:]]
        return updates

    def saved(self) -> list[Tensor | None]:
        """Returns what the backward pass needs: the adapters, and (N, R) their inner states."""
        return [*self._adapters, *self._narrow]

    def add(self, number: int, inputs: Tensor, outputs: Tensor) -> None:
        """Adds the update of a linear layer to its outputs, (N, C), in place; inputs are (N, D)."""
        down, up = self._matrices(number)
        if down is None or up is None:
            return
        narrow = inputs @ down.T
        outputs.addmm_(narrow, up.T, alpha=self._scaling)
        self._narrow[number] = narrow

    def backward(
        self, number: int, inputs: Tensor, gradient: Tensor, of_inputs: Tensor | None
    ) -> None:
        """Computes the gradients of an update, and adds what goes on to the inputs.

        Args:
            number: Of the linear layer.
            inputs: (N, D) that it read.
            gradient: (N, C) with respect to its outputs.
            of_inputs: (N, D) with respect to its inputs, changed in place; None if not needed.
        """
        down, up = self._matrices(number)
        narrow = self._narrow[number] if self._narrow else None
        if down is None or up is None or narrow is None:
            return
        of_narrow = (gradient @ up).mul_(self._scaling)
        if of_inputs is not None:
            of_inputs.addmm_(of_narrow, down)
        self.gradients[2 * number] = (of_narrow.T @ inputs).float()
        self.gradients[2 * number + 1] = (gradient.T @ narrow).float().mul_(self._scaling)

    def _matrices(self, number: int) -> Sequence[Tensor | None]:
        return self._adapters[2 * number : 2 * number + 2] or (None, None)


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
    twice = (weight.T if is_turned else weight).expand(2, -1, -1).contiguous()
    halves = x.view(2, -1, x.shape[1])
    return torch.bmm(halves, twice.mT if is_turned else twice).flatten(0, 1)


def _of_linear(
    gradient: Tensor, inputs: Tensor, needed: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of a linear layer's weight (C, D) and bias (C,), in fp32.

    Args:
        gradient: (N, C) of the layer's outputs.
        inputs: (N, D) of the layer.
        needed: Whether the layer is trained; None and None are returned if it is not.
    """
    if not needed:
        return None, None
    # oneDNN multiplies a transposed view slowly if the layer has fewer outputs than inputs: there,
    # copying it first takes less time.
    if gradient.shape[1] >= inputs.shape[1]:
        transposed = gradient.T
    else:
        transposed = gradient.T.contiguous()
    return (transposed @ inputs).float(), gradient.sum(0).float()
