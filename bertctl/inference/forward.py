"""The one forward pass over a split, used by training, evaluate and predict."""

import contextlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertctl.progress import SILENT, Listener
from bertctl.runtime.batching import evaluation_plan
from bertctl.runtime.device import Compute
from bertctl.tasks.base import Batch, Features, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertctl.modeling.load import LoadedModel


def forward(
    network: "nn.Module",
    loaded: "LoadedModel",
    task: Task,
    features: Features,
    *,
    compute: Compute,
    batch_size: int,
    phase: str = "evaluating",
    listener: Listener = SILENT,
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Logits of every example, and their losses where the examples have labels.

    Args:
        network: the model, perhaps wrapped; put into evaluation mode for the pass and back after it.
        loaded: what it was loaded with.
        task: collates and computes losses.
        features: N examples.
        compute: device and precision.
        batch_size: examples for each forward pass, batches of like lengths.
        phase: what progress calls it.
        listener: hears of progress.

    Returns:
        (N, C) float32 logits and (N,) float32 losses (or None), in the order of `features`.
    """
    import torch

    plan = evaluation_plan(features.lengths, batch_size)
    logits: NDArray[np.float32] | None = None
    losses: NDArray[np.float32] | None = None
    was_training = network.training
    network.eval()
    done = 0
    try:
        with torch.inference_mode():
            for indices in plan:
                batch = task.collate(features, indices, pad_id=loaded.pad_id, pad_left=loaded.pad_left)
                out = batch_logits(network, loaded, batch, compute)
                if logits is None:
                    logits = np.empty((len(features), out.shape[1]), dtype=np.float32)
                logits[indices] = out.cpu().numpy()
                if batch.labels is not None:
                    losses = np.empty(len(features), dtype=np.float32) if losses is None else losses
                    losses[indices] = task.loss(out, on_device(batch, compute)).cpu().numpy()
                done += len(indices)
                listener.advance(phase, done, len(features))
    finally:
        network.train(was_training)
        listener.finish(phase)
    return logits if logits is not None else np.empty((0, 1), dtype=np.float32), losses


def batch_logits(network: "nn.Module", loaded: "LoadedModel", batch: Batch, compute: Compute) -> "Tensor":
    """(B, C) float32 logits of one batch, on the compute device; gradients flow if they are on."""
    import torch

    inputs = {
        name: tensor.to(compute.device)
        for name, tensor in batch.inputs.items()
        if name != "token_type_ids" or loaded.has_segments
    }
    with autocast(compute) if not torch.is_grad_enabled() else contextlib.nullcontext():
        logits: Tensor = network(**inputs).logits.float()
    return logits


def autocast(compute: Compute) -> contextlib.AbstractContextManager[object]:
    """The mixed-precision context of a forward pass outside training (in training accelerate wraps it)."""
    import torch

    if compute.precision == "fp32":
        return contextlib.nullcontext()
    dtype = torch.bfloat16 if compute.precision == "bf16" else torch.float16
    return torch.autocast(device_type=compute.device, dtype=dtype)


def on_device(batch: Batch, compute: Compute) -> Batch:
    """The batch with its labels on the compute device."""
    from dataclasses import replace

    if batch.labels is None or compute.device == "cpu":
        return batch
    return replace(batch, labels=batch.labels.to(compute.device))  # type: ignore[type-var]
