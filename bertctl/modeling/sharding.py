"""A network whose parameters are dealt out to the processes (FSDP 2): seen whole, and put back in parts.

Every process has to call these functions, in the same order: what one of them lacks the others send.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.distributed.tensor import DTensor


def is_sharded(network: "nn.Module") -> bool:
    """Whether each process holds only its part of the parameters."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # whoever has dealt them out has imported it
    return fsdp is not None and isinstance(network, fsdp.FSDPModule)


def whole(tensor: "Tensor") -> "Tensor":
    """All of a tensor that may be dealt out."""
    gather = getattr(tensor, "full_tensor", None)
    found: Tensor = tensor if gather is None else gather()
    return found


def part_of(tensor: "Tensor", like: "Tensor") -> "Tensor":
    """The tensor as `like` of the same shape is laid out: on its device, and dealt out if `like` is."""
    tensor = tensor.to(like.device)
    if not hasattr(like, "device_mesh"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    dealt: DTensor = distribute_tensor(tensor, like.device_mesh, like.placements)  # type: ignore[attr-defined]
    return dealt


def copied(tensor: "Tensor", room: "Tensor | None" = None) -> "Tensor":
    """A copy on the host, written over `room` where that fits."""
    if room is not None and (room.shape, room.dtype) == (tensor.shape, tensor.dtype):
        return room.copy_(tensor.detach())
    return tensor.detach().to("cpu", copy=True).contiguous()


def whole_weights(
    network: "nn.Module", *, keep: bool = True, into: "Mapping[str, Tensor] | None" = None
) -> "dict[str, Tensor]":
    """Copies of all weights on the host, by name; tied ones stand once.

    Args:
        network: perhaps dealt out.
        keep: whether this process wants them, or only sends its part to the others.
        into: an earlier copy, to be written over.
    """
    sharded = is_sharded(network)
    weights: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in network.state_dict(keep_vars=True).items():
        mark = id(tensor) if sharded else tensor.data_ptr()  # a part may be empty, in some processes and not in others
        if mark in seen and tensor.numel():
            continue
        seen.add(mark)
        found = whole(tensor.detach())
        if keep:
            weights[name] = copied(found, into.get(name) if into else None)
    return weights


def load_whole(network: "nn.Module", weights: "Mapping[str, Tensor]", *, strict: bool) -> None:
    """Put whole weights, of which each process has all, into a network that may be dealt out.

    Args:
        network: to be changed.
        weights: by name.
        strict: whether names that are missing or not the network's are an error.

    Raises:
        RuntimeError: weights that are not this network's.
    """
    if is_sharded(network):
        own = network.state_dict()
        weights = {name: part_of(value, own[name]) if name in own else value for name, value in weights.items()}
    network.load_state_dict(weights, strict=strict)
