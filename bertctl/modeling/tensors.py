"""Weights in memory: copied to the host, and aligned as the products want them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def align(network: Any) -> None:
    """Moves weights that begin beside a multiple of 16 bytes, as they may in a file that is mapped.

    There, a product of one row, or by one, is rounded otherwise: a run would answer otherwise than
    in its training. Tables, which may be large, stay where they are: their rows are looked up.
    """
    from torch.nn import Embedding

    for module in network.modules():
        if isinstance(module, Embedding):
            continue
        for parameter in module.parameters(recurse=False):
            if parameter.data_ptr() % 16:
                parameter.data = parameter.data.clone()


def copy_tensor(tensor: "Tensor") -> "Tensor":
    """Returns a copy of a tensor in host memory."""
    return tensor.detach().to("cpu", copy=True).contiguous()
