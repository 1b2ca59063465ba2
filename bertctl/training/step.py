"""A training step: the forward and backward passes of one global batch, in micro-batches and among processes.

Letters: B windows in a global batch.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import is_out_of_memory
from bertctl.runtime.launch import Workers
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import Features, Objective
from bertctl.tasks.batches import Batch
from bertctl.training.out_of_memory import MicroBatches, give_back_memory
from bertctl.training.training_engine import TrainingEngine

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class StepResult:
    """What a training step found.

    Attributes:
        losses: of the global batch, by name.
        grad_norm: the gradient's norm before the clipping.
    """

    losses: dict[str, float]
    grad_norm: float

    @property
    def loss(self) -> float:
        """Is the sum of the losses, which training minimises."""
        return sum(self.losses.values())


def step_with_oom_retry(
    engine: TrainingEngine,
    features: Features,
    indices: NDArray[np.int64],
    rng: WindowRandom,
    micro_batches: MicroBatches,
) -> StepResult:
    """Does a training step; where memory runs out, the same step in twice as many micro-batches, and so on."""
    while True:
        try:
            return training_step(engine, features, indices, rng, micro_batches=micro_batches.count)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            engine.optimizer.zero_grad(set_to_none=True)
            longest = int(features.lengths[indices].max())
            micro_batches.double(error, longest=longest, workers=engine.workers.count)
        give_back_memory()  # only now has the error let go of what the step had computed


def training_step(
    engine: TrainingEngine, features: Features, indices: NDArray[np.int64], rng: WindowRandom, *, micro_batches: int
) -> StepResult:
    """Does the forward and backward passes of one global batch, and the clipping; the optimizer's step is the caller's.

    Args:
        engine: the network and the processes among which the batch is dealt out.
        features: the training rows.
        indices: (B,) the global batch.
        rng: of this step.
        micro_batches: how many of them each process computes its share in; 1 where the objective spans the batch.
    """
    objective, workers = engine.objective, engine.workers
    if objective.spans_batch:
        micro_batches = 1
    parts = np.array_split(indices, micro_batches * workers.count)
    mine = parts[workers.rank * micro_batches : (workers.rank + 1) * micro_batches]
    if workers.count == 1:
        mine = [part for part in mine if len(part)]
    # Every process has to take part in the exchange of gradients, one without an example with a loss of nothing.
    batches = [objective.batch(features, part if len(part) else indices[:1], rng) for part in mine]
    whole = objective.batch(features, indices, rng) if objective.spans_batch else None
    counts = objective.counts(whole) if whole else _global_counts(objective, batches, mine, workers)
    totals = dict.fromkeys(counts, 0.0)
    for number, (batch, part) in enumerate(zip(batches, mine, strict=True)):
        last = number + 1 == len(mine)
        with contextlib.nullcontext() if last else engine.accelerator.no_sync(engine.network):
            here = batch.to(engine.compute.device)
            outputs = objective.forward(engine.backend, here)
            if whole is None:
                sums = objective.losses(outputs, here)
            else:
                gathered = _gathered(outputs, [len(part) for part in parts], workers)
                sums = objective.losses(gathered, whole.to(engine.compute.device))
            counted = 1.0 if len(part) or whole else 0.0
            losses = {name: loss / max(1, counts[name]) * counted for name, loss in sums.items()}
            first, *others = losses.values()
            # The exchange takes the mean over the processes, and the sum is meant.
            engine.accelerator.backward(sum(others, first) * workers.count)
        for name, loss in losses.items():
            totals[name] += float(loss.detach())
    norm = engine.accelerator.clip_grad_norm_(engine.network.parameters(), engine.max_grad_norm)
    share = 1.0 if whole is None or workers.is_first else 0.0  # each process has computed all of such a loss
    summed = workers.sum(np.array(list(totals.values())) * share)
    return StepResult(dict(zip(totals, summed.tolist(), strict=True)), float(norm))


def _global_counts(
    objective: Objective, batches: Sequence[Batch], parts: Sequence[NDArray[np.int64]], workers: Workers
) -> dict[str, float]:
    """Returns what the losses count in all micro-batches of all processes, so that an uneven split changes nothing."""
    found = [objective.counts(batch) for batch, part in zip(batches, parts, strict=True) if len(part)]
    names = list(objective.counts(batches[0]))
    mine = np.array([sum(counts[name] for counts in found) for name in names], dtype=np.float64)
    return dict(zip(names, workers.sum(mine).tolist(), strict=True))


def _gathered(outputs: "Tensor", sizes: Sequence[int], workers: Workers) -> "Tensor":
    """Returns the outputs of all processes in the order of the batch; gradients flow into this process's own.

    Args:
        outputs: of this process's windows, the first dimension runs over them.
        sizes: windows of each process.
        workers: the processes.
    """
    if workers.count == 1:
        return outputs
    import torch

    own = sizes[workers.rank]
    padded = torch.zeros((max(sizes), *outputs.shape[1:]))
    padded[:own] = outputs[:own].detach()
    pieces = [
        torch.from_numpy(values[:size]).to(outputs)
        for values, size in zip(workers.gather(padded.numpy()), sizes, strict=True)
    ]
    pieces[workers.rank] = outputs[:own]
    return torch.cat(pieces) + 0.0 * outputs.sum()  # which keeps a process without a window in the exchange
