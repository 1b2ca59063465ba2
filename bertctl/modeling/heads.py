"""What stands on top of an encoder. It computes in fp32, whatever the encoder does.

A number of bf16 has 8 bits: 5,000 answers would share 256 probabilities, up to 0.02 off. The encoder's last states are
read in the precision that they have.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


def head_test(network: nn.Module) -> Callable[[str], bool]:
    """Returns what tells a weight of the head, by its name, from one of the encoder.

    A bare encoder has no head; T5's for questions holds the parts of its encoder itself, beside a linear layer.
    """
    inside = f"{network.base_model_prefix}."
    if hasattr(network, str(network.base_model_prefix)):
        return lambda name: not name.startswith(inside)
    is_bare = "For" not in type(network).__name__
    heads = [name for name, child in network.named_children() if isinstance(child, nn.Linear) and not is_bare]
    return lambda name: name.partition(".")[0] in (*heads, "sentence_head")


def head_modules(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yields all modules that do not belong to the encoder, by name, those within others too."""
    is_head = head_test(network)
    for name, module in network.named_modules():
        if name and is_head(f"{name}."):
            yield name, module


def last_layer(network: nn.Module) -> tuple[str, nn.Linear]:
    """Returns the linear layer whose outputs are the answers, by name."""
    *_, last = ((name, one) for name, one in head_modules(network) if isinstance(one, nn.Linear))
    return last


def keep_in_fp32(network: nn.Module) -> None:
    """Has everything on top of the encoder compute in fp32 under autocast, in training and in scoring."""
    for name, module in head_modules(network):
        if "." not in name:
            module.forward = _in_fp32(module.forward)


def _in_fp32(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def in_fp32(states: Tensor, *others: Any, **named: Any) -> Any:
        with torch.autocast(states.device.type, enabled=False):
            return forward(states.float(), *others, **named)

    return in_fp32
