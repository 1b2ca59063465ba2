"""What stands on top of an encoder. It computes in fp32, whatever the encoder does.

A number of bf16 has 8 bits: 5,000 answers would share 256 probabilities, up to 0.02 off. The encoder's last states are
read in the precision that they have.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


def head_modules(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yields all modules that do not belong to the encoder, by name, those within others too."""
    encoder = f"{network.base_model_prefix}."
    for name, module in network.named_modules():
        if name and not f"{name}.".startswith(encoder):
            yield name, module


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
