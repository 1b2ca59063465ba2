"""A layer of a BERT in a training step on a CPU: one autograd function over packed tokens.

The layer converts each tensor once and saves it for its backward pass. A random 64-bit number
serves four elements of a dropout. `packed_encoder.py` says what this is for.

Letters: N tokens of all windows (in bf16 rounded up), B windows, C numbers of a hidden state, H
heads, F numbers of the feed-forward part, R ranks of a LoRA update.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertctl.modeling.fast.dropout_masks import draw_mask, drawn_share, keep
from bertctl.modeling.fast.packed_attention import Looks, attend, attend_backward
from bertctl.runtime.cpu import cpu_words

# The linear layers of a layer by number: query, key and value are 0, 1 and 2. The others are the
# attention's output and the two of the feed-forward part.
_N_QKV = 3
_MIXED = 3
_INNER = 4
_OUTER = 5

_norm_backward: Any = torch.ops.aten.native_layer_norm_backward
_gelu_backward: Any = torch.ops.aten.gelu_backward


@dataclass(frozen=True)
class LayerSettings:
    """Settings of a layer besides its weights.

    Attributes:
        heads: H.
        epsilons: Epsilons of the two normalisations.
        dropouts: Modules whose probabilities count: those of the attention's weights, of its output
            and of the feed-forward part.
        dtype: Dtype of the matrix products.
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
class LayerWeights:
    """Settings and weights of a layer.

    Attributes:
        settings: Settings besides the weights.
        weights: 16 weights and biases, in the order of `BERT_LAYER` and `_PerWeight`.
        adapters: Two matrices of LoRA for each of the six linear layers, R x inputs and
            outputs x R; None where a layer has no update. Empty without LoRA.
    """

    settings: LayerSettings
    weights: Sequence[Tensor]
    adapters: Sequence[Tensor | None] = ()


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
        settings: LayerSettings,
        looks: Looks,
        only: Tensor | None,
        *weights: Tensor,
    ) -> Tensor:
        """Computes the layer, and saves what its backward pass needs.

        Args:
            context: Autograd's, for what is saved.
            x: (N, C) hidden states in fp32.
            settings: Settings of the layer.
            looks: Pairs of blocks: the tokens that are keys and values, and those that are queries.
            only: (B,) rows of x that the layer computes, those of first tokens; None for all rows.
            *weights: 16 weights and biases, then LoRA's matrices, as in `LayerWeights`.

        Returns:
            (N, C) hidden states, or (B, C) with `only`.
        """
        layer = _PerWeight(*weights[: len(_PerWeight._fields)])
        updates = _Updates(weights[len(_PerWeight._fields) :], settings)
        dtype = settings.dtype
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
        qkv[:, :size] *= (size / settings.heads) ** -0.5
        if only is not None:
            x = x[only]
        n_attention_weights = 0
        for block, looking in looks:
            n_attention_weights += block.windows * settings.heads * block.width * looking.width
        share1, share2, share3 = settings.shares
        mask1 = draw_mask(n_attention_weights, share1)
        mask2 = draw_mask(x.numel(), share2)
        mask3 = draw_mask(x.numel(), share3)
        attended, attention_weights = attend(
            qkv,
            x.shape,
            settings.heads,
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
            settings.epsilons[0],
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
            settings.epsilons[1],
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
        context.settings = settings
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
        settings: LayerSettings = context.settings
        updates = _Updates.of_saved(saved_of_updates, settings)
        # The first four arguments are x, settings, looks and only.
        needs_x, _, _, _, *needs_weights = context.needs_input_grad
        needed = _PerWeight(*needs_weights[: len(_PerWeight._fields)])
        scale1, scale2, scale3 = (1 / (1 - share) for share in settings.shares)
        size = gradient.shape[1]

        # Below, `updates.backward` computes the gradients of a LoRA update. What flows through the
        # update to the inputs of the linear layer is added to the last argument.

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
        g_outer = keep((g_z * scale3).to(settings.dtype), saved.mask3)
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
        g_mixed = keep((g_y * scale2).to(settings.dtype), saved.mask2)
        g_attended = g_mixed @ saved.wo
        updates.backward(_MIXED, saved.attended, g_mixed, g_attended)
        g_qkv = attend_backward(
            g_attended,
            qkv=saved.qkv,
            saved=attention_weights,
            heads=settings.heads,
            looks=context.looks,
            dropout_mask=saved.mask1,
            scale=scale1,
        )
        # `forward` has scaled the queries.
        g_qkv[:, :size] *= (size / settings.heads) ** -0.5

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


compute_layer: Any = _Layer.apply
"""Computes a layer over packed tokens; its arguments are those of `_Layer.forward`."""


class _Updates:
    """LoRA's updates of the six linear layers of a layer, forward and backward.

    An update adds `scaling * inputs down^T up^T` to the outputs of a linear layer, with `down` of
    shape (R, inputs) and `up` of shape (outputs, R). A layer without an update is left alone.

    `add` notes the product `inputs down^T` of each update, which `backward` needs: `saved` and
    `of_saved` carry it through autograd.

    Args:
        adapters: Two matrices for each linear layer, as in `LayerWeights`.
        settings: Settings of the layer.

    Attributes:
        gradients: Filled by `backward`: gradients with respect to the adapters, in fp32.
    """

    def __init__(self, adapters: Sequence[Tensor | None], settings: LayerSettings) -> None:
        self._adapters = [
            matrix if matrix is None else matrix.to(settings.dtype) for matrix in adapters
        ]
        self._scaling = settings.scaling
        # (N, R) inner states of each update, once it was added.
        self._inner_states: list[Tensor | None] = [None] * (len(adapters) // 2)
        self.gradients: list[Tensor | None] = [None] * len(adapters)

    @classmethod
    def of_saved(cls, saved: Sequence[Tensor | None], settings: LayerSettings) -> "_Updates":
        """Returns updates for the backward pass, from what `saved` returned in the forward pass."""
        n_adapters = len(saved) * 2 // 3  # two matrices and one inner state for each linear layer
        updates = cls(saved[:n_adapters], settings)
        updates._inner_states = list(saved[n_adapters:])
        return updates

    def saved(self) -> list[Tensor | None]:
        """Returns what the backward pass needs: the adapters, and (N, R) their inner states."""
        return [*self._adapters, *self._inner_states]

    def add(self, number: int, inputs: Tensor, outputs: Tensor) -> None:
        """Adds the update of a linear layer to its outputs, and notes its inner states.

        Args:
            number: Number of the linear layer, 0 to 5.
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
            number: Number of the linear layer, 0 to 5.
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
