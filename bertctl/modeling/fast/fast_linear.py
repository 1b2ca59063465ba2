"""Products of a frozen encoder by oneDNN, with the weights laid out for it once.

In fp32 torch takes MKL, which leaves AVX-512 unused on AMD: on a Zen 5 the same products take 0.43
of the time (500 instead of 215 GFLOP/s), with the usual error of fp32. In bf16 torch takes oneDNN
too, but lays the weights out anew in each call: 0.94 of the time, and the same numbers to the bit
but for GELU, which comes before the rounding.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from bertctl.modeling.fast.torch_bert import Layer
from bertctl.runtime.cpu import has_bf16, leaves_mkl_behind
from bertctl.runtime.device import Compute
from bertctl.runtime.torch_internals import OneDnn

_ROWS = 2048  # the layout of the weights is chosen for about as many tokens
_TOLERANCE = 1e-4  # of fp32; far more than rounding, far less than a layout read wrongly


def use_fast_linears(network: nn.Module, compute: Compute) -> int:
    """Makes linear layers compute their products by oneDNN, if that is faster.

    The network is then only good for inference: its weights are laid out anew, and can't be saved
    or trained any more. Gradients with respect to its inputs can still be computed.

    Args:
        network: The network on its device, in its precision, in evaluation mode; changed in place.
        compute: Device and precision.

    Returns:
        How many layers were replaced; 0 where torch's own product is as good.
    """
    if not _is_faster(compute):
        return 0
    # A family's own kinds of linear layers are left alone.
    linears = [
        (name, part) for name, part in network.named_modules() if name and type(part) is nn.Linear
    ]
    with torch.no_grad():
        for number, (name, plain) in enumerate(linears):
            fast = FastLinear(plain)
            # One layer shows whether oneDNN's product is right here.
            if number == 0 and not _agree(plain, fast):
                return 0
            network.set_submodule(name, fast)
    # In the layers of `torch_bert.py`, oneDNN computes the GELU with the product before it.
    for layer in network.modules():
        if isinstance(layer, Layer):
            layer.part("inner").has_gelu = True
            layer.activation = nn.Identity()
    return len(linears)


def _is_faster(compute: Compute) -> bool:
    """Returns whether oneDNN is faster than torch's own product, and can be had."""
    faster = {"fp32": leaves_mkl_behind, "bf16": has_bf16}.get(compute.precision)
    if compute.device != "cpu" or faster is None or not faster():
        return False
    if not OneDnn.is_available():
        return False
    return compute.precision == "fp32" or OneDnn.has_bf16()


class FastLinear(nn.Module):
    """`nn.Linear` with its weight in oneDNN's layout."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.has_gelu = False
        self.weight = OneDnn.lay_out(plain.weight.detach(), _ROWS)
        self.bias = None if plain.bias is None else plain.bias.detach()

    @cached_property
    def transposed(self) -> Tensor:
        """Weight of the gradient's product."""
        return OneDnn.lay_out(self.weight.to_dense().T.contiguous(), _ROWS)

    def forward(self, x: Tensor) -> Tensor:
        """Returns (..., C) products of (..., D) inputs."""
        if not torch.is_grad_enabled():
            return self.product(x, self.weight, self.bias, "gelu" if self.has_gelu else "none")
        # With a gradient. The function gets a matrix: with more dimensions it would return a view,
        # and torch forbids changing such a view in place.
        outputs: Tensor = _through(x.flatten(0, -2), self).unflatten(0, x.shape[:-1])
        if self.has_gelu:
            return nn.functional.gelu(outputs)
        return outputs

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None, then: str = "none") -> Tensor:
        """Returns the product, with `gelu` or nothing after it."""
        return OneDnn.product(x, weight, bias, then)


class _Product(torch.autograd.Function):
    """The product of such a layer, with its gradient with respect to the input alone."""

    @staticmethod
    def forward(context: Any, x: Tensor, layer: FastLinear) -> Tensor:
        context.layer = layer
        return layer.product(x, layer.weight, layer.bias)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.layer.product(gradient, context.layer.transposed, None), None


_through: Any = _Product.apply


def _agree(plain: nn.Linear, fast: FastLinear) -> bool:
    """Returns whether both give the same numbers, but for rounding."""
    x = torch.randn(5, plain.in_features, generator=torch.Generator().manual_seed(0)).to(
        plain.weight.dtype
    )
    expected = plain(x)
    tolerance = max(_TOLERANCE, 4 * torch.finfo(expected.dtype).eps)
    return bool((fast(x) - expected).abs().max() <= tolerance * expected.abs().max().clamp(min=1.0))
