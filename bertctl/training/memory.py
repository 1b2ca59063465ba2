"""The memory of a run: an estimate before it is started, and its peak."""

import resource
import sys
from typing import Any

from bertctl.config.schema import Recipe


def estimate_memory(
    recipe: Recipe, config: dict[str, Any], *, parameters: int, longest: int, precision: str, device: str
) -> int:
    """Returns the bytes that fine-tuning needs, good to about a fifth: on a CPU all of this process, else the device's.

    Parameters, their gradients and AdamW's two moments are fp32. A transformer layer keeps about 34 T H + 5 A T^2 bytes
    for each example in half precision (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer
    Models", section 4.1), twice that in fp32. On a CPU autocast keeps fp32 copies, attention keeps all its steps, and
    batches of many shapes leave gaps in the heap: 2.2 and 2.8 times as much, and 150 MB that the first steps take
    whatever their size. There the process holds the parameters already, with all that Python has imported, and a
    checkpoint is copied before it is written. (MiniLM, batches of 4 to 32, up to 48 and 79 tokens: 0.82 to 1.21 times
    the peak of the whole run.)

    Args:
        recipe: batch size and accumulation, and whether checkpoints are saved.
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
    linear, attention = (34 * 2.2, 5 * 2.8) if device == "cpu" else (34 * wider, 5 * wider)
    activations = examples * round(layers * (linear * longest * hidden + attention * heads * longest * longest))
    if device != "cpu":
        return parameters * 4 * 4 + activations
    copies = 3 if recipe.training.checkpoint_every == "off" else 6
    return resident_bytes() + parameters * 4 * copies + 150_000_000 + activations


def resident_bytes() -> int:
    """Returns the resident size of this process."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_memory_bytes() -> int:
    """Returns the largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
