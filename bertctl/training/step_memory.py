"""The memory of a run: an estimate before it is started, and its peak."""

import resource
import sys
from collections.abc import Mapping
from typing import Any

from bertctl.modeling.families import model_sizes


def estimate_memory(
    config: Mapping[str, Any],
    *,
    parameters: tuple[int, int],
    longest: int,
    examples: int,
    precision: str = "fp32",
    device: str = "cpu",
    checkpoints: bool = True,
) -> int:
    """Returns the bytes that fine-tuning needs, good to about a fifth.

    They are those of the device, or what it adds to those that a process on a CPU holds once the
    model is loaded (`resident_bytes`).

    Parameters are fp32, and so are gradients and AdamW's two moments of those that are trained. A
    transformer layer keeps about 34 T H + 5 A T^2 bytes for each example in half precision
    (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
    section 4.1), twice that in fp32. On a CPU autocast keeps fp32 copies, attention keeps all its
    steps, and batches of many shapes leave gaps in the heap: 2.2 and 2.8 times as much, and 150 MB
    that the first steps take whatever their size. There the process holds the parameters already,
    with all that Python has imported; a checkpoint is copied before it is written. (MiniLM, batches
    of 4 to 32, up to 48 and 79 tokens: 0.82 to 1.21 times the peak of the whole run.)

    Args:
        config: the model's config.json: layers, hidden size H, heads A.
        parameters: of the model, but for rows of its word table that no text uses, and those that
            training changes.
        longest: T, tokens of the longest example as the model reads it.
        examples: of a batch on its way through the model at once.
        precision: fp32 or a half precision.
        device: cpu, cuda or mps.
        checkpoints: whether they are saved.
    """
    held, trained = parameters
    sizes = model_sizes(config)
    layers = sizes["layers"] or 12
    hidden = sizes["hidden"] or 768
    heads = sizes["heads"] or 12
    wider = 2.0 if precision == "fp32" else 1.0
    if device == "cpu":
        linear = 34 * 2.2
        attention = 5 * 2.8
    else:
        linear = 34 * wider
        attention = 5 * wider
    activations = examples * round(
        layers * (linear * longest * hidden + attention * heads * longest * longest)
    )
    if device != "cpu":
        return (held + trained * 3) * 4 + activations
    if checkpoints:
        copied = trained * 3
    else:
        copied = 0
    return (copied + trained * 3) * 4 + 150_000_000 + activations


def resident_bytes() -> int:
    """Returns the resident size of this process."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_memory_bytes() -> int:
    """Returns the largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    return peak * 1024
