"""The one forward pass over a split, used by training, evaluate and predict."""

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertctl.progress import SILENT, Listener
from bertctl.runtime.batching import evaluation_plan
from bertctl.runtime.device import Compute
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import Batch, Features, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertctl.modeling.load import LoadedModel


@dataclass(frozen=True)
class Passed:
    """What a forward pass over a split gave.

    Attributes:
        outputs: what the task keeps, (S, ...) arrays by name; empty where there was no unit.
        losses: (U,) loss of each unit, or None where the units have no labels.
    """

    outputs: dict[str, NDArray[Any]]
    losses: NDArray[np.float32] | None


def forward(
    network: "nn.Module",
    loaded: "LoadedModel",
    task: Task,
    features: Features,
    *,
    compute: Compute,
    batch_size: int,
    phase: str = "evaluating",
    workers: Workers = ALONE,
    listener: Listener = SILENT,
) -> Passed:
    """What the task keeps of every unit, and the units' losses where they have labels.

    Args:
        network: the model, perhaps wrapped; put into evaluation mode for the pass and back after it.
        loaded: what it was loaded with.
        task: collates, keeps, and computes losses.
        features: U units.
        compute: device and precision.
        batch_size: units for each forward pass, batches of like lengths.
        phase: what progress calls it.
        workers: the processes among which whole batches are dealt out; each gets everything back.
        listener: hears of progress.
    """
    import torch

    plan = evaluation_plan(features.lengths, batch_size)
    own = plan[workers.rank :: workers.count]
    outputs: dict[str, NDArray[Any]] = {}
    losses: NDArray[np.float32] | None = None
    was_training = network.training
    network.eval()
    done = 0
    try:
        with torch.inference_mode():
            for indices in own or plan[:1]:
                batch = on_device(
                    task.collate(features, indices, pad_id=loaded.pad_id, pad_left=loaded.pad_left), compute
                )
                logits = batch_logits(network, loaded, task, batch, compute)
                slots = features.slots(indices)
                for name, kept in task.keep(logits, batch, features, indices).items():
                    if name not in outputs:
                        outputs[name] = np.zeros((features.n_slots, *kept.shape[1:]), dtype=kept.dtype)
                    outputs[name][slots] = kept
                if batch.labels is not None:
                    losses = np.zeros(len(features), dtype=np.float32) if losses is None else losses
                    losses[indices] = task.loss(logits, batch).cpu().numpy()
                done = min(done + len(indices) * workers.count, len(features))
                listener.advance(phase, done, len(features))
    finally:
        network.train(was_training)
        listener.finish(phase)
    if workers.count > 1:
        # Each batch was computed by one process: the sum of all, zero elsewhere, is the whole. A process without a
        # batch of its own has computed the first one to know the shapes, and adds nothing.
        factor = 1 if workers.rank < len(plan) else 0
        outputs = {name: workers.sum(values if factor else np.zeros_like(values)) for name, values in outputs.items()}
        losses = losses if losses is None else workers.sum(losses if factor else np.zeros_like(losses))
    return Passed(outputs, losses)


def batch_logits(network: "nn.Module", loaded: "LoadedModel", task: Task, batch: Batch, compute: Compute) -> "Tensor":
    """The head's float32 numbers for one batch, on the compute device; gradients flow if they are on."""
    import torch

    inputs = {
        name: tensor.to(compute.device)
        for name, tensor in batch.inputs.items()
        if name != "token_type_ids" or loaded.has_segments
    }
    with contextlib.nullcontext() if torch.is_grad_enabled() else autocast(compute):
        return task.logits(network(**inputs)).float()


def autocast(compute: Compute) -> contextlib.AbstractContextManager[object]:
    """The mixed-precision context of a forward pass; accelerate wraps that of training itself."""
    import torch

    if compute.precision == "fp32":
        return contextlib.nullcontext()
    dtype = torch.bfloat16 if compute.precision == "bf16" else torch.float16
    return torch.autocast(device_type=compute.device, dtype=dtype)


_B = TypeVar("_B", bound=Batch)


def on_device(batch: _B, compute: Compute) -> _B:
    """The batch with its labels on the compute device."""
    from dataclasses import replace

    if batch.labels is None or compute.device == "cpu":
        return batch
    return replace(batch, labels=batch.labels.to(compute.device))  # type: ignore[type-var]
