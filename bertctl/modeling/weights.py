"""Copies of a network's weights in host memory."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


def copy_weights(network: "nn.Module", *, into: "Mapping[str, Tensor] | None" = None) -> "dict[str, Tensor]":
    """Returns copies of all weights in host memory, by name; tied weights are copied once.

    Args:
        network: the model without accelerate's wrapping.
        into: an earlier copy, whose memory is written over.
    """
    weights: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in network.state_dict(keep_vars=True).items():
        if tensor.data_ptr() in seen and tensor.numel():
            continue
        seen.add(tensor.data_ptr())
        weights[name] = copy_tensor(tensor, into.get(name) if into else None)
    return weights


def copy_tensor(tensor: "Tensor", into: "Tensor | None" = None) -> "Tensor":
    """Returns a copy of a tensor in host memory, written over `into` if that has the same shape and type."""
    if into is not None and (into.shape, into.dtype) == (tensor.shape, tensor.dtype):
        return into.copy_(tensor.detach())
    return tensor.detach().to("cpu", copy=True).contiguous()
