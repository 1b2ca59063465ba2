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
    """Returns an estimate of the bytes that fine-tuning needs, good to about a fifth.

    On a GPU they are all bytes on the device. On a CPU they come on top of those that the process
    holds once the model is loaded (`resident_bytes`).

    Parameters are fp32. The trained ones also have a gradient and AdamW's two moments, in fp32. A
    transformer layer keeps about 34 T H + 5 A T^2 bytes for each example in half precision
    (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
    section 4.1), and twice that in fp32.

    On a CPU, autocast keeps fp32 copies, attention keeps all its steps, and batches of many shapes
    leave gaps in the heap. So the first of the two terms is 2.2 times as much as in half precision,
    and the second one 2.8 times. The first steps take another 150 MB, whatever their size, and a
    checkpoint is copied before it is written. Parameters are not counted, as the process holds them
    already. (MiniLM, batches of 4 to 32, up to 48 and 79 tokens: 0.82 to 1.21 times the peak of the
    whole run.)

    Args:
        config: The model's config.json: layers, hidden size H, heads A.
        parameters: Number of parameters in memory (rows of the word table that no text uses are
            not), and number of those that are trained.
        longest: T, tokens of the longest example as the model reads it.
        examples: Examples that go through the model at once: a batch, or a micro-batch.
        precision: fp32 or a half precision.
        device: cpu, cuda or mps.
        checkpoints: Whether checkpoints are saved.
    """
    held, trained = parameters
    sizes = model_sizes(config)
    layers = sizes["layers"] or 12
    hidden = sizes["hidden"] or 768
    heads = sizes["heads"] or 12
    # Bytes of an example in a layer: for each token and hidden number, and for each head and pair
    # of tokens.
    if device == "cpu":
        linear = 34 * 2.2
        attention = 5 * 2.8
    else:
        fp32_factor = 2.0 if precision == "fp32" else 1.0
        linear = 34 * fp32_factor
        attention = 5 * fp32_factor
    activations = examples * round(
        layers * (linear * longest * hidden + attention * heads * longest * longest)
    )
    gradients_and_moments = trained * 3
    if device != "cpu":
        return (held + gradients_and_moments) * 4 + activations
    copied = 0
    if checkpoints:
        copied = trained * 3  # the weights and their moments
    return (copied + gradients_and_moments) * 4 + 150_000_000 + activations


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
