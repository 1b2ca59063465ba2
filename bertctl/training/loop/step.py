"""A training step: the forward and backward passes of one global batch.

They are split in micro-batches and among processes.

Letters: B windows in a global batch.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bertctl.arrays import Ints
from bertctl.errors import is_out_of_memory
from bertctl.runtime.launch import Workers
from bertctl.runtime.seeding import WindowRandom, generator_states, set_generators
from bertctl.tasks.base import Features, TaskObjective
from bertctl.tasks.batches import Batch
from bertctl.training.loop.out_of_memory import MicroBatches, give_back_memory
from bertctl.training.loop.training_engine import TrainingEngine

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
        """Sum of the losses, which training minimises."""
        return sum(self.losses.values())


def step_with_oom_retry(
    engine: TrainingEngine,
    features: Features,
    batch: Ints,
    rng: WindowRandom,
    micro_batches: MicroBatches,
) -> StepResult:
    """Does a training step, and again in twice as many micro-batches if memory runs out.

    The result is that of one batch.
    """
    while True:
        try:
            return training_step(
                engine,
                features,
                batch,
                rng,
                micro_batches=micro_batches.count,
            )
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            engine.optimizer.zero_grad(set_to_none=True)
            if engine.graphs is None or not engine.graphs.turn_off():
                longest = int(features.lengths[batch].max())
                micro_batches.double(error, longest=longest, workers=engine.workers.count)
        give_back_memory()  # only now has the error let go of what the step had computed


def training_step(
    engine: TrainingEngine,
    features: Features,
    indices: Ints,
    rng: WindowRandom,
    *,
    micro_batches: int,
) -> StepResult:
    """Does the forward and backward passes of one global batch, and the clipping.

    The optimizer's step is the caller's.

    Args:
        engine: the network and the processes among which the batch is dealt out.
        features: the training rows.
        indices: (B,) the global batch.
        rng: of this step.
        micro_batches: how many of them each process computes its share in.
    """
    objective = engine.objective
    workers = engine.workers
    parts = np.array_split(indices, micro_batches * workers.count)
    mine = parts[workers.rank * micro_batches : (workers.rank + 1) * micro_batches]
    if workers.count == 1:
        mine = [part for part in mine if len(part)]
    # Every process has to take part in the exchange of gradients, one without an example with a
    # loss of nothing.
    batches = [objective.batch(features, part if len(part) else indices[:1], rng) for part in mine]
    if objective.spans_batch:
        if len(mine[0]) == len(indices):
            global_batch = batches[0]
        else:
            global_batch = objective.batch(features, indices, rng)
        sizes = [
            sum(map(len, parts[k * micro_batches : (k + 1) * micro_batches]))
            for k in range(workers.count)
        ]
        names, losses = _across_batch(
            engine,
            global_batch,
            batches,
            [len(part) for part in mine],
            sizes,
        )
    else:
        names, losses = _part_by_part(engine, batches, mine)
    norm = _clip(engine)  # before the losses are read, for which a CPU waits until the GPU is done
    # Each process has computed all of a loss that spans it.
    share = workers.is_first or not objective.spans_batch
    summed = workers.sum(np.sum([loss.tolist() for loss in losses], axis=0) * share)
    return StepResult(dict(zip(names, summed.tolist(), strict=True)), norm)


def _clip(engine: TrainingEngine) -> float:
    """Scales the gradients down to the largest norm allowed, and returns their norm before."""
    import torch

    if engine.compute.device != "cpu":
        return float(
            engine.accelerator.clip_grad_norm_(engine.network.parameters(), engine.max_grad_norm)
        )
    parameters = [
        parameter for parameter in engine.network.parameters() if parameter.grad is not None
    ]
    # A norm of a whole tensor is one thread's work, those of its rows are all threads'.
    norm = torch.cat(
        [torch.linalg.vector_norm(parameter.grad, dim=-1).flatten() for parameter in parameters]
    ).norm()
    if norm > engine.max_grad_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, engine.max_grad_norm, norm)
    return float(norm)


def _part_by_part(
    engine: TrainingEngine, batches: Sequence[Batch], parts: Sequence[Ints]
) -> "tuple[list[str], list[Tensor]]":
    """Adds up the gradients of micro-batches.

    It returns the names of the losses, and what each batch adds to them.
    """
    import torch

    objective = engine.objective
    workers = engine.workers
    device = engine.compute.device
    counts = _global_counts(objective, batches, parts, workers)

    def passes(device_batch: Batch, divisors: "Tensor") -> "Tensor":
        outputs = objective.forward(engine.backend, device_batch)
        sums = objective.losses(outputs, device_batch)
        means = torch.stack([sums[name] for name in counts]) / divisors
        # The exchange takes the mean over the processes, and the sum is meant.
        engine.accelerator.backward(means.sum() * workers.count)
        return means.detach()

    losses = []
    for number, (batch, part) in enumerate(zip(batches, parts, strict=True)):
        # A process without examples of its own computes a stand-in, which infinity makes a 0.
        divisors = torch.tensor(
            [float(max(1, count)) if len(part) else math.inf for count in counts.values()]
        )
        with _exchanged(engine, last=number + 1 == len(batches)):
            if engine.graphs is not None:
                losses.append(engine.graphs.run(passes, batch, divisors))
            else:
                losses.append(passes(batch.to(device), divisors.to(device)))
    return list(counts), losses


def _across_batch(
    engine: TrainingEngine,
    global_batch: Batch,
    batches: Sequence[Batch],
    counted: Sequence[int],
    sizes: Sequence[int],
) -> "tuple[list[str], list[Tensor]]":
    """Computes the gradients of losses that look across the whole batch.

    It returns their names, and them.

    Several micro-batches are computed twice: once for their outputs, of which the losses and the
    gradients with respect to them are computed, and once more, with the same random numbers, to
    take these gradients on to the weights (Gao et al. 2021, "Scaling Deep Contrastive Learning
    Batch Size under Memory Limited Setup", section 3).

    Args:
        engine: the network and the processes.
        global_batch: the global batch, for what its losses look at besides outputs.
        batches: this process's micro-batches.
        counted: windows of each of them that are its own.
        sizes: windows of each process.
    """
    import torch

    objective = engine.objective
    workers = engine.workers
    device = engine.compute.device
    is_cached = len(batches) > 1
    states = []
    outputs = []
    with torch.set_grad_enabled(not is_cached):
        for batch in batches:
            states.append(generator_states())
            outputs.append(objective.forward(engine.backend, batch.to(device)))
    local_outputs = outputs[0]
    if is_cached:
        local_outputs = torch.cat(
            [output[:count] for output, count in zip(outputs, counted, strict=True)]
        ).requires_grad_()
    device_batch = global_batch.to(device)
    sums = objective.losses(_gathered(local_outputs, sizes, workers), device_batch)
    counts = objective.counts(device_batch)
    losses = {name: loss / max(1, counts[name]) for name, loss in sums.items()}
    # The exchange takes the mean over the processes, and the sum is meant.
    total = torch.stack([*losses.values()]).sum() * workers.count
    if not is_cached:
        engine.accelerator.backward(total)
    else:
        (gradient,) = torch.autograd.grad(total, local_outputs)
        gradients = torch.split(gradient, list(counted))
        for number, (batch, part, state) in enumerate(zip(batches, gradients, states, strict=True)):
            with _exchanged(engine, last=number + 1 == len(batches)), torch.random.fork_rng():
                set_generators(state)
                output = objective.forward(engine.backend, batch.to(device))
                # The gradient of this product with respect to `output` is `part`. The second term
                # adds nothing: it keeps all of the output in the graph.
                product = (output[: len(part)] * part).sum()
                engine.accelerator.backward(product + 0.0 * output.sum())
    return list(losses), [torch.stack([loss.detach() for loss in losses.values()])]


def _exchanged(engine: TrainingEngine, *, last: bool) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which gradients are exchanged among the processes, or not yet."""
    if last:
        return contextlib.nullcontext()
    without_exchange: contextlib.AbstractContextManager[None] = engine.accelerator.no_sync(
        engine.network
    )
    return without_exchange


def _global_counts(
    objective: TaskObjective, batches: Sequence[Batch], parts: Sequence[Ints], workers: Workers
) -> dict[str, float]:
    """Returns what the losses count in all micro-batches of all processes.

    An uneven split then changes nothing.
    """
    counts = dict.fromkeys(objective.counts(batches[0]), 0.0)
    for batch, part in zip(batches, parts, strict=True):
        if len(part):
            for name, number in objective.counts(batch).items():
                counts[name] += number
    mine = np.array(list(counts.values()), dtype=np.float64)
    return dict(zip(counts, workers.sum(mine).tolist(), strict=True))


def _gathered(outputs: "Tensor", sizes: Sequence[int], workers: Workers) -> "Tensor":
    """Returns the outputs of all processes in the order of the batch.

    Gradients flow into this process's own.

    Args:
        outputs: of this process's windows, the first dimension runs over them.
        sizes: windows of each process.
        workers: the processes.
    """
    if workers.count == 1:
        return outputs
    import torch

    n_local = sizes[workers.rank]
    padded = torch.zeros((max(sizes), *outputs.shape[1:]))
    padded[:n_local] = outputs[:n_local].detach()
    pieces = [
        torch.from_numpy(values[:size]).to(outputs)
        for values, size in zip(workers.gather(padded.numpy()), sizes, strict=True)
    ]
    pieces[workers.rank] = outputs[:n_local]
    # Adding 0 keeps a process without a window in the exchange of gradients.
    return torch.cat(pieces) + 0.0 * outputs.sum()
