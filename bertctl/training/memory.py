"""The memory of a run: an estimate before it is started, and its peak."""

import resource
import sys
from typing import Any

from bertctl.config.schema import Recipe


def estimate_memory(
    recipe: Recipe, config: dict[str, Any], *, parameters: int, longest: int, precision: str, device: str
) -> int:
    """Returns the bytes that fine-tuning needs, good to about a third; Python and its libraries take 0.7 GB more.

    Parameters, their gradients and AdamW's two moments are fp32. A transformer layer keeps about 34 T H + 5 A T^2 bytes
    for each example in half precision (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer
    Models", section 4.1), twice that in fp32. On a CPU autocast keeps fp32 copies and attention keeps all its steps:
    3.4 and 2 times as much in one step of MiniLM at 64 to 384 tokens, and batches of many shapes leave gaps in the
    heap; 4 and 2.8 times are taken.

    Args:
        recipe: batch size and accumulation.
        config: the model's config.json: layers, hidden size H, heads A.
        parameters: of the model.
        longest: T, tokens of the longest example as the model reads it.
        precision: fp32 or a half precision.
        device: cpu, cuda or mps.
    """
    layers = int(config.get("num_hidden_layers") or config.get("n_layers") or config.get("n_layer") or 12)
    hidden = int(config.get("hidden_size") or config.get("dim") or config.get("d_model") or 768)
    heads = int(config.get("num_attention_heads") or config.get("n_heads") or config.get("n_head") or 12)
    examples = -(-recipe.training.batch_size // recipe.training.accumulation_steps)
    wider = 2.0 if precision == "fp32" else 1.0
    linear, attention = (34 * 4.0, 5 * 2.8) if device == "cpu" else (34 * wider, 5 * wider)
    each = round(layers * (linear * longest * hidden + attention * heads * longest * longest))
    return parameters * 4 * 4 + examples * each


def peak_memory_bytes() -> int:
    """Returns the largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
