"""The encoder of a BERT in a training step on a CPU.

Each layer is one autograd function over the tokens of the batch.

The library's layers also compute padding, convert weights and hidden states to bf16 for each
product, and draw a random number per element by `bernoulli_`, in one thread. Here the tokens of a
batch lie one after the other without padding, a layer converts each tensor once and saves it for
its backward pass, and a random 64-bit number serves four elements.

Letters: B windows, T tokens of the longest, N tokens of all windows (in bf16 rounded up), C numbers
of a hidden state, H heads, F numbers of the feed-forward part, R ranks of a LoRA update.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

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
from bertctl.modeling.transformers_internals import configured_attention
from bertctl.runtime.cpu import cpu_words
from bertctl.runtime.device import Compute

_LIKE_BERT = ("BertLayer", "RobertaLayer", "XLMRobertaLayer", "CamembertLayer", "ElectraLayer")
# oneDNN makes code for each shape of a bf16 product, which takes 25 ms (AMX) in the first step with
# a new number of tokens. So the number is rounded up: to a multiple of 32 up to 512 tokens, to one
# of 64 above.
_FEW_TOKENS = 512
_MULTIPLE_OF_FEW = 32
_MULTIPLE_OF_MANY = 64

# The linear layers of a layer by number: query, key and value are 0, 1 and 2. The others are the
# attention's output and the two of the feed-forward part.
_N_QKV = 3
_MIXED = 3
_INNER = 4
_OUTER = 5

_norm_backward: Any = torch.ops.aten.native_layer_norm_backward
_gelu_backward: Any = torch.ops.aten.gelu_backward


@dataclass(frozen=True)
class _Shape:
    """Settings of a layer besides its weights.

    Attributes:
        heads: H.
        epsilons: Of the two normalisations.
        dropouts: Modules whose probabilities count: those of the attention's weights, of its output
            and of the feed-forward part.
        dtype: Of the matrix products.
        scaling: Factor of LoRA's updates.
    """

    heads: int
    epsilons: tuple[float, float]
    dropouts: tuple[nn.Dropout, nn.Dropout, nn.Dropout]
    dtype: torch.dtype
    scaling: float = 1.0

    @property
    def shares(self) -> list[float]:
        """Shares of elements that the three dropouts set to 0, rounded as they are drawn."""
        return [drawn_share(dropout) for dropout in self.dropouts]


@dataclass(frozen=True)
class _LayerWeights:
    """Settings and weights of a layer.

    Attributes:
        shape: Settings besides the weights.
        weights: 16 weights and biases, in the order of `BERT_LAYER` and `_PerWeight`.
        adapters: Two matrices of LoRA for each of the six linear layers, R x inputs and
            outputs x R; None where a layer has no update. Empty without LoRA.
    """

    shape: _Shape
    weights: Sequence[Tensor]
    adapters: Sequence[Tensor | None] = ()


def use_packed_encoder(network: nn.Module, compute: Compute) -> bool:
    """Makes the encoder of a network compute its training steps over packed tokens, if it can.

    Weights, their names, evaluation and saved files stay the library's.

    Args:
        network: A network of transformers, one that contains such a network, or one of
            `torch_bert.py`. Changed in place.
        compute: Where it is trained, and in which precision.

    Returns:
        Whether the network was changed. It is not on a GPU, in fp16, or if its layers are of
        another kind than BERT's or DistilBERT's.
    """
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}.get(compute.precision)
    if compute.device != "cpu" or dtype is None or not _is_usual(network.config):
        return False
    for encoder in network.modules():
        layers = _read_layers(encoder, dtype)
        if layers:
            encoder.forward = _in_training(encoder, layers, _reads_first_tokens(network))
            _use_fast_dropout(network)
            return True
    return False


def _use_fast_dropout(network: nn.Module) -> None:
    """Makes all dropouts of a network draw their masks as the packed layers do.

    This matters for those of the embeddings and the head. The dropouts of the layers are not called
    in training: a layer only reads their probabilities.
    """
    for module in network.modules():
        if type(module) is nn.Dropout:
            forward: Any = dropout_in_training(module)
            module.forward = forward  # type: ignore[method-assign]


def _is_usual(config: Any) -> bool:
    """Returns whether the packed encoder computes what a network with this config does.

    Each token must look at all others, by torch's own attention. The head must not read a state
    where padding may stand, which ELECTRA's `summary_type` can ask for.
    """
    looks_back = any(getattr(config, name, None) for name in LOOKS_BACK)
    attention = configured_attention(config)
    summary = getattr(config, "summary_type", None)
    return not looks_back and attention in (None, "sdpa") and summary in (None, "first")


def _read_layers(encoder: Any, dtype: torch.dtype) -> list[_LayerWeights]:
    """Returns the settings and weights of all layers of a module, from the first to the last.

    Empty if the module has no layers, or one that the packed encoder can't compute.
    """
    layers = []
    for module in getattr(encoder, "layer", ()):
        layer = _read_layer(module, dtype)
        if layer is None:
            return []
        layers.append(layer)
    return layers


def _read_layer(layer: Any, dtype: torch.dtype) -> _LayerWeights | None:
    """Returns the settings and the weights of a layer of BERT's or DistilBERT's kind.

    None for a layer of another kind, one whose activation is not gelu, one that recomputes its
    activations, and one with modules that `_Layer` doesn't compute.

    Args:
        layer: A module of transformers, or a `torch_bert.Layer`.
        dtype: Of its matrix products.
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
    """Returns whether `_Layer` computes what this module of a layer does."""
    if isinstance(part, LoraLayer):
        return part.is_plain_update
    # A subclass may compute something else.
    return type(part) in (nn.Linear, nn.LayerNorm)


def _adapters(parts: Sequence[Any]) -> list[Tensor | None]:
    """Returns two LoRA matrices for each linear layer of `parts`, None and None without an update.

    Args:
        parts: Linear layers and normalisations of a layer, in the order of `BERT_LAYER`.
    """
    adapters: list[Tensor | None] = []
    for part in parts:
        if isinstance(part, LoraLayer):
            adapters += [part.lora_A, part.lora_B]
        elif not isinstance(part, nn.LayerNorm):
            adapters += [None, None]
    return adapters


def _reads_first_tokens(network: nn.Module) -> bool:
    """Returns whether the head of a network reads only the first token of each window.

    The architecture's name says so, such as `BertForSequenceClassification`.
    """
    if isinstance(network, Network):
        name = network.architecture
    else:
        name = type(network).__name__
    return name.endswith(tuple(f"For{kind}" for kind in OF_TEXTS))


def _in_training(
    encoder: Any, layers: Sequence[_LayerWeights], reads_firsts: bool
) -> Callable[..., Any]:
    """Returns the encoder's new forward pass: over packed tokens in training, else the old one.

    Args:
        encoder: Module whose `forward` is replaced.
        layers: Of the encoder.
        reads_firsts: Whether the head reads only the states of first tokens. The states of all
            other tokens are then 0.
    """
    plain = encoder.forward
    outputs = _outputs_of(encoder)

    def forward(
        hidden_states: Tensor, attention_mask: Tensor | None = None, *rest: Any, **more: Any
    ) -> Any:
        """Returns (B, T, C) states of the last layer, of (B, T, C) embeddings and their mask."""
        if not encoder.training:
            return plain(hidden_states, attention_mask, *rest, **more)

        positions, blocks = pack(hidden_states, attention_mask)
        flat = hidden_states.flatten(0, 1)
        x = flat.index_select(0, positions).float()
        computes_in_bf16 = layers[0].shape.dtype is torch.bfloat16
        if computes_in_bf16:
            # For each new number of rows, oneDNN takes time to make code for its bf16 products.
            # Rounded up, batches have few different numbers.
            multiple = _MULTIPLE_OF_MANY if len(x) > _FEW_TOKENS else _MULTIPLE_OF_FEW
            n_added = -len(x) % multiple
            # The added rows belong to no window, and give no gradient.
            x = functional.pad(x, (0, 0, 0, n_added))

        # In each layer all tokens of a window look at all of it.
        looks: Looks = list(zip(blocks, blocks, strict=True))
        # The last layer computes only the first tokens if the head reads no others and each window
        # has one: `selected` are their rows in x.
        last_looks = looks
        selected = None
        if reads_firsts:
            looks_and_rows = first_tokens(positions, hidden_states.shape[1], blocks)
            if looks_and_rows is not None:
                last_looks, selected = looks_and_rows

        # The layers convert to bf16 themselves.
        with torch.autocast("cpu", enabled=False):
            for layer in layers[:-1]:
                x = _apply(
                    x,
                    layer.shape,
                    looks,
                    None,
                    *layer.weights,
                    *layer.adapters,
                )
            last_layer = layers[-1]
            x = _apply(
                x,
                last_layer.shape,
                last_looks,
                selected,
                *last_layer.weights,
                *last_layer.adapters,
            )

        if selected is not None:
            positions = positions[selected]
        # Back to (B, T, C), without the rows that were added for bf16.
        padded = (
            x.new_zeros(flat.shape)
            .index_copy(0, positions, x[: len(positions)])
            .view(hidden_states.shape)
        )
        return outputs(last_hidden_state=padded)

    return forward


def _outputs_of(encoder: Any) -> Any:
    """Returns the class of an encoder's outputs, which takes `last_hidden_state`."""
    if isinstance(encoder, Stack):
        return SimpleNamespace
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

    return BaseModelOutputWithPastAndCrossAttentions


class _PerWeight(NamedTuple):
    """A value for each of the 16 weights and biases of a layer, in the order of `BERT_LAYER`.

    The value is the tensor itself, its gradient, or whether that is needed. The letters are those
    of the formulas in `_Layer`.
    """

    wq: Any
    bq: Any
    wk: Any
    bk: Any
    wv: Any
    bv: Any
    wo: Any
    bo: Any
    gain1: Any
    bias1: Any
    wi: Any
    bi: Any
    wf: Any
    bf: Any
    gain2: Any
    bias2: Any


class _Saved(NamedTuple):
    """Tensors that a layer's forward pass saves for its backward pass.

    Besides these it saves those of LoRA and the weights of the attention, as many as there are.

    Attributes:
        xb, qkv, attended, x1b, h, a: Inputs of the products and of gelu, in the products' dtype.
        w_qkv, wo, wi, wf: Matrices of the products, in their dtype.
        y, mean1, rstd1, gain1, bias1: Inputs of LN1, their means and reciprocal deviations, and
            LN1's weights.
        z, mean2, rstd2, gain2, bias2: The same of LN2.
        mask1, mask2, mask3: Masks of D1 to D3; None where nothing is dropped.
    """

    xb: Tensor
    qkv: Tensor
    attended: Tensor
    x1b: Tensor
    h: Tensor
    a: Tensor
    w_qkv: Tensor
    wo: Tensor
    wi: Tensor
    wf: Tensor
    y: Tensor
    mean1: Tensor
    rstd1: Tensor
    gain1: Tensor
    bias1: Tensor
    z: Tensor
    mean2: Tensor
    rstd2: Tensor
    gain2: Tensor
    bias2: Tensor
    mask1: Tensor | None
    mask2: Tensor | None
    mask3: Tensor | None


class _Layer(torch.autograd.Function):
    """(N, C) hidden states through a layer.

    See Devlin et al. 2019, section 3, and Vaswani et al. 2017, section 3.1. With x the hidden
    states, D1 to D3 the dropouts (each scales what it keeps by 1 / (1 - share)) and LN1 and LN2 the
    normalisations:

        q, k, v = x Wq + bq, x Wk + bk, x Wv + bv
        attended = D1(softmax(q k^T / sqrt(C / H))) v     head by head, within a window
        mixed = attended Wo + bo
        y = x + D2(mixed)                    x1 = LN1(y)
        h = x1 Wi + bi                       a = gelu(h)
        outer = a Wf + bf
        z = x1 + D3(outer)                   out = LN2(z)

    LoRA's updates are added to each of the six products with a matrix. Torch's linear layers hold
    the transposed matrices. A letter with a b behind it is the same number in the dtype of the
    products; normalisations and residual sums stay in fp32. In `backward`, `g_` and a name is the
    gradient with respect to that value.
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
        """Computes the layer, and saves what its backward pass needs.

        Args:
            context: Autograd's, for what is saved.
            x: (N, C) hidden states in fp32.
            shape: Settings of the layer.
            looks: Which tokens look at which ones.
            only: (B,) rows of x that the layer computes, those of first tokens; None for all rows.
            *weights: 16 weights and biases, then LoRA's matrices, as in `_LayerWeights`.

        Returns:
            (N, C) hidden states, or (B, C) with `only`.
        """
        layer = _PerWeight(*weights[: len(_PerWeight._fields)])
        updates = _Updates(weights[len(_PerWeight._fields) :], shape)
        dtype = shape.dtype
        w_qkv = torch.cat([weight.to(dtype) for weight in (layer.wq, layer.wk, layer.wv)])
        b_qkv = torch.cat([bias.to(dtype) for bias in (layer.bq, layer.bk, layer.bv)])
        wo = layer.wo.to(dtype)
        wi = layer.wi.to(dtype)
        wf = layer.wf.to(dtype)
        size = x.shape[1]

        # The attention: queries, keys and values of all tokens side by side.
        xb = x.to(dtype)
        qkv = functional.linear(xb, w_qkv, b_qkv)
        for number in range(_N_QKV):
            updates.add(number, xb, qkv[:, number * size : (number + 1) * size])
        # The queries are scaled instead of the scores: C numbers per token, not H x L.
        qkv[:, :size] *= (size / shape.heads) ** -0.5
        if only is not None:
            x = x[only]
        n_attention_weights = 0
        for block, looking in looks:
            n_attention_weights += block.windows * shape.heads * block.width * looking.width
        share1, share2, share3 = shape.shares
        mask1 = draw_mask(n_attention_weights, share1)
        mask2 = draw_mask(x.numel(), share2)
        mask3 = draw_mask(x.numel(), share3)
        attended, attention_weights = attend(
            qkv,
            x.shape,
            shape.heads,
            looks,
            dropout_mask=mask1,
            scale=1 / (1 - share1),
        )
        mixed = functional.linear(attended, wo, layer.bo.to(dtype))
        updates.add(_MIXED, attended, mixed)
        # y = x + D2(mixed): the mask only zeroes, and alpha scales what is kept.
        y = torch.add(x, keep(mixed, mask2), alpha=1 / (1 - share2))
        x1, mean1, rstd1 = torch.native_layer_norm(
            y,
            (size,),
            layer.gain1,
            layer.bias1,
            shape.epsilons[0],
        )

        # The feed-forward part.
        x1b = x1.to(dtype)
        h = functional.linear(x1b, wi, layer.bi.to(dtype))
        updates.add(_INNER, x1b, h)
        a = functional.gelu(h)
        outer = _product(a, wf.T).add_(layer.bf.to(dtype))
        updates.add(_OUTER, a, outer)
        z = torch.add(x1, keep(outer, mask3), alpha=1 / (1 - share3))
        out, mean2, rstd2 = torch.native_layer_norm(
            z,
            (size,),
            layer.gain2,
            layer.bias2,
            shape.epsilons[1],
        )

        saved = _Saved(
            xb=xb,
            qkv=qkv,
            attended=attended,
            x1b=x1b,
            h=h,
            a=a,
            w_qkv=w_qkv,
            wo=wo,
            wi=wi,
            wf=wf,
            y=y,
            mean1=mean1,
            rstd1=rstd1,
            gain1=layer.gain1,
            bias1=layer.bias1,
            z=z,
            mean2=mean2,
            rstd2=rstd2,
            gain2=layer.gain2,
            bias2=layer.bias2,
            mask1=mask1,
            mask2=mask2,
            mask3=mask3,
        )
        saved_of_updates = updates.saved()
        context.save_for_backward(*saved, *saved_of_updates, *attention_weights)
        context.shape = shape
        context.n_of_updates = len(saved_of_updates)
        context.looks = looks
        context.only = only
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        """Computes the gradients of a layer, from its outputs back to its inputs.

        Args:
            context: Autograd's, with what `forward` saved.
            gradient: (N, C), or (B, C), with respect to the outputs of `forward`.

        Returns:
            A gradient for each argument of `forward`, None for those that have or need none.
        """
        tensors = context.saved_tensors  # may be read once only, under gradient checkpointing
        n_fixed = len(_Saved._fields)
        n_before_attention = n_fixed + context.n_of_updates
        saved = _Saved(*tensors[:n_fixed])
        saved_of_updates = tensors[n_fixed:n_before_attention]
        attention_weights = tensors[n_before_attention:]
        shape: _Shape = context.shape
        updates = _Updates.of_saved(saved_of_updates, shape)
        # The first four arguments are x, shape, looks and only.
        needs_x, _, _, _, *needs_weights = context.needs_input_grad
        needed = _PerWeight(*needs_weights[: len(_PerWeight._fields)])
        scale1, scale2, scale3 = (1 / (1 - share) for share in shape.shares)
        size = gradient.shape[1]

        # out = LN2(z); z = x1 + D3(gelu(h) Wf + bf): g_z goes on to x1 and through the dropout.
        g_z, g_gain2, g_bias2 = _norm_backward(
            gradient,
            saved.z,
            (size,),
            saved.mean2,
            saved.rstd2,
            saved.gain2,
            saved.bias2,
            [True, needed.gain2, needed.bias2],
        )
        g_outer = keep((g_z * scale3).to(shape.dtype), saved.mask3)
        g_a = g_outer @ saved.wf
        updates.backward(_OUTER, saved.a, g_outer, g_a)
        g_h = _gelu_backward(g_a, saved.h)
        g_x1b = _product(g_h, saved.wi)
        updates.backward(_INNER, saved.x1b, g_h, g_x1b)

        # x1 = LN1(y) has two gradients: of the residual sum (g_z) and of h (g_x1b).
        g_x1 = g_z.add_(g_x1b)
        g_y, g_gain1, g_bias1 = _norm_backward(
            g_x1,
            saved.y,
            (size,),
            saved.mean1,
            saved.rstd1,
            saved.gain1,
            saved.bias1,
            [True, needed.gain1, needed.bias1],
        )
        g_mixed = keep((g_y * scale2).to(shape.dtype), saved.mask2)
        g_attended = g_mixed @ saved.wo
        updates.backward(_MIXED, saved.attended, g_mixed, g_attended)
        g_qkv = attend_backward(
            g_attended,
            qkv=saved.qkv,
            saved=attention_weights,
            heads=shape.heads,
            looks=context.looks,
            dropout_mask=saved.mask1,
            scale=scale1,
        )
        # `forward` has scaled the queries.
        g_qkv[:, :size] *= (size / shape.heads) ** -0.5

        # x has two gradients as well: of query, key and value (g_x), and of the residual sum (g_y).
        # With `only`, the second one has rows of first tokens alone.
        g_x = _product(g_qkv, saved.w_qkv) if needs_x else None
        for number in range(_N_QKV):
            g_outputs = g_qkv[:, number * size : (number + 1) * size]
            updates.backward(number, saved.xb, g_outputs, g_x)
        if g_x is not None:
            if context.only is None:
                g_x = g_y.add_(g_x)
            else:
                g_x = g_x.float().index_add_(0, context.only, g_y)

        g_wq = g_wk = g_wv = None
        g_bq = g_bk = g_bv = None
        g_w_qkv, g_b_qkv = _of_linear(g_qkv, saved.xb, any(needed[: 2 * _N_QKV]))
        if g_w_qkv is not None and g_b_qkv is not None:
            g_wq, g_wk, g_wv = g_w_qkv.chunk(_N_QKV)
            g_bq, g_bk, g_bv = g_b_qkv.chunk(_N_QKV)
        g_wo, g_bo = _of_linear(g_mixed, saved.attended, needed.wo)
        g_wi, g_bi = _of_linear(g_h, saved.x1b, needed.wi)
        g_wf, g_bf = _of_linear(g_outer, saved.a, needed.wf)
        gradients = _PerWeight(
            wq=g_wq,
            bq=g_bq,
            wk=g_wk,
            bk=g_bk,
            wv=g_wv,
            bv=g_bv,
            wo=g_wo,
            bo=g_bo,
            gain1=g_gain1,
            bias1=g_bias1,
            wi=g_wi,
            bi=g_bi,
            wf=g_wf,
            bf=g_bf,
            gain2=g_gain2,
            bias2=g_bias2,
        )
        return g_x, None, None, None, *gradients, *updates.gradients


_apply: Any = _Layer.apply


class _Updates:
    """LoRA's updates of the six linear layers of a layer, forward and backward.

    An update adds `scaling * inputs down^T up^T` to the outputs of a linear layer, with `down` of
    shape (R, inputs) and `up` of shape (outputs, R). A layer without an update is left alone.

    `add` notes the product `inputs down^T` of each update, which `backward` needs: `saved` and
    `of_saved` carry it through autograd.

    Args:
        adapters: As in `_LayerWeights`.
        shape: Settings of the layer.

    Attributes:
        gradients: Filled by `backward`: gradients with respect to the adapters, in fp32.
    """

    def __init__(self, adapters: Sequence[Tensor | None], shape: _Shape) -> None:
        self._adapters = [
            matrix if matrix is None else matrix.to(shape.dtype) for matrix in adapters
        ]
        self._scaling = shape.scaling
        # (N, R) inner states of each update, once it was added.
        self._inner_states: list[Tensor | None] = [None] * (len(adapters) // 2)
        self.gradients: list[Tensor | None] = [None] * len(adapters)

    @classmethod
    def of_saved(cls, saved: Sequence[Tensor | None], shape: _Shape) -> "_Updates":
        """Returns updates for the backward pass, from what `saved` returned in the forward pass."""
        n_adapters = len(saved) * 2 // 3  # two matrices and one inner state for each linear layer
        updates = cls(saved[:n_adapters], shape)
        updates._inner_states = list(saved[n_adapters:])
        return updates

    def saved(self) -> list[Tensor | None]:
        """Returns what the backward pass needs: the adapters, and (N, R) their inner states."""
        return [*self._adapters, *self._inner_states]

    def add(self, number: int, inputs: Tensor, outputs: Tensor) -> None:
        """Adds the update of a linear layer to its outputs, and notes its inner states.

        Args:
            number: Of the linear layer, 0 to 5.
            inputs: (N, D) of the linear layer.
            outputs: (N, O) of the linear layer, changed in place.
        """
        down, up = self._matrices(number)
        if down is None or up is None:
            return
        inner_states = inputs @ down.T
        outputs.addmm_(inner_states, up.T, alpha=self._scaling)
        self._inner_states[number] = inner_states

    def backward(
        self, number: int, inputs: Tensor, gradient: Tensor, of_inputs: Tensor | None
    ) -> None:
        """Computes the gradients of an update's two matrices, and adds to that of its inputs.

        Nothing is done for a linear layer without an update. The (N, R) inner states are what the
        forward pass has computed between the two matrices.

        Args:
            number: Of the linear layer, 0 to 5.
            inputs: (N, D) of the linear layer.
            gradient: (N, O) with respect to the outputs of the linear layer.
            of_inputs: (N, D) gradient with respect to the inputs, changed in place; None if it is
                not needed.
        """
        down, up = self._matrices(number)
        if down is None or up is None:
            return
        inner_states = self._inner_states[number]
        if inner_states is None:
            return
        of_inner_states = (gradient @ up).mul_(self._scaling)
        if of_inputs is not None:
            of_inputs.addmm_(of_inner_states, down)
        self.gradients[2 * number] = (of_inner_states.T @ inputs).float()
        of_up = (gradient.T @ inner_states).float()
        self.gradients[2 * number + 1] = of_up.mul_(self._scaling)

    def _matrices(self, number: int) -> tuple[Tensor | None, Tensor | None]:
        """Returns the two matrices `down` and `up` of a linear layer's update, None without one."""
        if not self._adapters:
            return None, None
        return self._adapters[2 * number], self._adapters[2 * number + 1]


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """Returns `x @ weight`, (N, O) of (N, K) and (K, O), in a way that keeps two threads busy.

    With AMX and two threads, oneDNN (3.12) computes a bf16 product in one thread if O is below K.
    Two products of half the rows, in one call, take 0.55 of the time.
    """
    has_fewer_outputs = weight.shape[1] < len(weight)
    uses_one_thread = (
        x.dtype is torch.bfloat16 and has_fewer_outputs and torch.get_num_threads() == 2
    )
    has_halves = len(x) % 2 == 0
    if not uses_one_thread or not has_halves or "amx_bf16" not in cpu_words():
        return x @ weight

    halves = x.view(2, -1, x.shape[1])
    # Copies in the layout that the weight has: oneDNN is quick with either.
    if weight.is_contiguous():
        twice = weight.expand(2, -1, -1).contiguous()
    else:
        twice = weight.T.expand(2, -1, -1).contiguous().mT
    return torch.bmm(halves, twice).flatten(0, 1)


def _of_linear(
    gradient: Tensor, inputs: Tensor, needed: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of a linear layer's weight (O, D) and bias (O,), in fp32.

    Args:
        gradient: (N, O) with respect to the layer's outputs.
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
