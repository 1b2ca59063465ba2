"""Attention of a training step in fp32 between bf16 layers.

It is for CPUs where torch's bf16 attention is the slower one.

Letters: B windows, H heads, T tokens, D numbers of a head.
"""

from typing import TYPE_CHECKING, Any

from bertctl.modeling.transformers_internals import attention_function
from bertctl.runtime.cpu import cpu_words
from bertctl.runtime.device import Compute

if TYPE_CHECKING:
    from torch import Tensor, nn

_NAME = "sdpa-fp32"
_LONGEST = 256  # tokens; the backward pass of longer windows is as fast in bf16


def use_fp32_attention(network: "nn.Module", compute: Compute) -> bool:
    """Makes a network that is trained in bf16 compute its attention in fp32, if that is faster.

    Without AMX, the backward pass of torch's bf16 attention takes twice the time of fp32 (Zen 4, 32
    x 12 heads x 32 tokens: 13.7 against 5.3 ms). Evaluation keeps bf16, whose forward pass is
    faster.

    Args:
        network: A network of transformers, or one that contains such a network; changed in place.
        compute: Device and precision of the training.

    Returns:
        Whether the network was changed.
    """
    is_bf16_on_cpu = (compute.device, compute.precision) == ("cpu", "bf16")
    if not is_bf16_on_cpu or "amx_bf16" in cpu_words():
        return False
    networks: list[Any] = [
        part for part in network.modules() if hasattr(part, "set_attn_implementation")
    ]
    if not networks:
        return False
    outermost = networks[0]
    if attention_function(outermost) != "sdpa":
        return False
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["sdpa"])
    outermost.set_attn_implementation(_NAME)
    return True


def _attend(
    module: "nn.Module",
    query: "Tensor",
    key: "Tensor",
    value: "Tensor",
    mask: "Tensor | None",
    **more: Any,
) -> "tuple[Tensor, None]":
    """Computes the attention by torch's function, in fp32 if that is faster.

    The signature is the one that transformers has for attention functions.

    Args:
        module: The attention's module.
        query: (B, H, T, D) queries.
        key: (B, H, T, D) keys.
        value: (B, H, T, D) values.
        mask: (B, 1, T, T), true where a token attends to another, or numbers that are added to the
            scores; None if all attend to all.
        **more: Further arguments of transformers' function.

    Returns:
        (B, T, H, D) outputs in the queries' precision, and None in place of the weights.
    """
    import torch
    from transformers import AttentionInterface

    attend = AttentionInterface()["sdpa"]
    # fp32 is only for scores to which nothing is added: T5's bias and masks of numbers are bf16 as
    # the queries are, and can't be added to fp32 scores.
    has_bias = more.get("position_bias") is not None
    adds_mask = mask is not None and mask.dtype != torch.bool
    is_bf16_training = torch.is_grad_enabled() and query.dtype == torch.bfloat16
    is_short = query.shape[-2] <= _LONGEST
    if is_bf16_training and is_short and not has_bias and not adds_mask:
        with torch.autocast(query.device.type, enabled=False):
            return attend(
                module,
                query.float(),
                key.float(),
                value.float(),
                mask,
                **more,
            )[0].to(query.dtype), None
    return attend(
        module,
        query,
        key,
        value,
        mask,
        **more,
    )[0], None
