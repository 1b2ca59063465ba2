"""Weights in memory: copied to the host, and aligned as the products want them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def align(network: Any) -> None:
    """Copies weights whose memory doesn't begin at a multiple of 16 bytes, in place.

    Weights that are mapped from a file may begin anywhere. With such weights, products with a
    single row are rounded in another way, so a run would answer differently than in its training.
    Embedding tables, which may be large, are not copied: they are in no product.
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
