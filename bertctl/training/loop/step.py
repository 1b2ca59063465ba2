"""A training step: the forward and backward passes of one global batch.

A global batch is split among the processes, and each process splits its part into micro-batches.
The gradients are the gradients of the whole batch, however it is split.

Letters: B windows in a global batch.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """Losses and gradient norm of a training step.

    Attributes:
        losses: Of the global batch, by name.
        grad_norm: Norm of the gradient before it is clipped.
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
    """Takes a training step; if memory runs out, repeats it with twice the number of micro-batches.

    The result does not depend on the number of micro-batches.

    Args:
        engine: The network and the processes.
        features: The training rows.
        batch: (B,) numbers of the windows of the global batch.
        rng: Random numbers of this step.
        micro_batches: Number of micro-batches that each process splits its part of the batch into.
            It is doubled in place when memory runs out, also for later steps.
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
            # Recorded CUDA graphs hold memory: without them the batch may fit as it is.
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
    """Does the forward and backward passes of one global batch, and clips the gradients.

    The caller steps the optimizer.

    Args:
        engine: The network, and the processes among which the batch is split.
        features: The training rows.
        indices: (B,) numbers of the windows of the global batch.
        rng: Random numbers of this step.
        micro_batches: Number of micro-batches that each process splits its part of the batch into.
    """
    objective = engine.objective
    workers = engine.workers
    parts = np.array_split(indices, micro_batches * workers.count)
    local_parts = parts[workers.rank * micro_batches : (workers.rank + 1) * micro_batches]
    if workers.count == 1:
        local_parts = [part for part in local_parts if len(part)]
    # A small batch leaves parts empty. Every process has to take part in the exchange of gradients,
    # so an empty part is replaced by one window, whose loss counts nothing.
    batches = []
    for part in local_parts:
        windows = part if len(part) else indices[:1]
        batches.append(objective.batch(features, windows, rng))

    # A loss spans the batch if it compares the windows with each other, as with negatives from the
    # same batch. It needs the outputs of all windows at once.
    if objective.spans_batch:
        if len(local_parts[0]) == len(indices):
            global_batch = batches[0]
        else:
            global_batch = objective.batch(features, indices, rng)
        names, losses = _across_batch(
            engine,
            global_batch,
            batches,
            counted=[len(part) for part in local_parts],
            sizes=_windows_by_process(parts, micro_batches),
        )
    else:
        names, losses = _part_by_part(engine, batches, local_parts)

    norm = _clip(engine)  # before the losses are read, for which a CPU waits until the GPU is done
    local_losses = np.sum([loss.tolist() for loss in losses], axis=0)
    if objective.spans_batch and not workers.is_first:
        # Each process has computed the losses of the whole batch. They must be counted once.
        local_losses = np.zeros_like(local_losses)
    global_losses = workers.sum(local_losses)
    return StepResult(dict(zip(names, global_losses.tolist(), strict=True)), norm)


def _windows_by_process(parts: Sequence[Ints], micro_batches: int) -> list[int]:
    """Returns how many windows of a global batch each process has.

    Args:
        parts: Micro-batches of all processes, in the order of the processes.
        micro_batches: How many of them a process has.
    """
    lengths = [len(part) for part in parts]
    return [
        sum(lengths[start : start + micro_batches])
        for start in range(0, len(lengths), micro_batches)
    ]


def _clip(engine: TrainingEngine) -> float:
    """Scales the gradients down to the norm that the recipe allows, and returns their old norm."""
    import torch

    if engine.compute.device != "cpu":
        return float(
            engine.accelerator.clip_grad_norm_(engine.network.parameters(), engine.max_grad_norm)
        )
    parameters = [
        parameter for parameter in engine.network.parameters() if parameter.grad is not None
    ]
    # The norm of a whole tensor is computed by one thread, the norms of its rows by all threads.
    norm = torch.cat(
        [torch.linalg.vector_norm(parameter.grad, dim=-1).flatten() for parameter in parameters]
    ).norm()
    if norm > engine.max_grad_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, engine.max_grad_norm, norm)
    return float(norm)


def _part_by_part(
    engine: TrainingEngine, batches: Sequence[Batch], parts: Sequence[Ints]
) -> "tuple[list[str], list[Tensor]]":
    """Adds up the gradients of micro-batches whose losses are means over their windows.

    Each micro-batch goes through the network and back before the next one. A micro-batch without
    windows is computed with a stand-in, as all processes must take part in the exchange of
    gradients; a stand-in adds nothing.

    Args:
        engine: The network and the processes.
        batches: This process's micro-batches.
        parts: Numbers of the windows of each micro-batch; none if the micro-batch is a stand-in.

    Returns:
        The names of the losses, and for each micro-batch what it adds to them, in that order.
    """
    import torch

    objective = engine.objective
    workers = engine.workers
    device = engine.compute.device
    counts = _global_counts(objective, batches, parts, workers)

    def passes(device_batch: Batch, divisors: "Tensor") -> "Tensor":
        """Takes a micro-batch forward and back; returns what it adds to the losses."""
        outputs = objective.forward(engine.backend, device_batch)
        sums = objective.losses(outputs, device_batch)
        means = torch.stack([sums[name] for name in counts]) / divisors
        # The exchange averages the gradients over the processes. The factor makes it a sum.
        engine.accelerator.backward(means.sum() * workers.count)
        return means.detach()

    losses = []
    for number, (batch, part) in enumerate(zip(batches, parts, strict=True)):
        # The losses are sums over the micro-batch, divided by the count of the global batch. A
        # stand-in for an empty part is divided by infinity, and adds 0.
        if len(part):
            divisors = torch.tensor([float(max(1, count)) for count in counts.values()])
        else:
            divisors = torch.full((len(counts),), math.inf)
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
    """Computes the gradients of losses that compare windows of the whole batch with each other.

    If there are several micro-batches, each is computed twice: first for its outputs, from which
    the losses and the gradients with respect to the outputs are computed; then again, with the same
    random numbers, to carry these gradients on to the weights (Gao et al. 2021, "Scaling Deep
    Contrastive Learning Batch Size under Memory Limited Setup", section 3).

    Args:
        engine: The network and the processes.
        global_batch: The global batch, with the labels that the losses need besides the outputs.
        batches: This process's micro-batches.
        counted: Windows of each micro-batch that belong to the batch: 0 for a stand-in.
        sizes: Windows of each process.

    Returns:
        The names of the losses, and their values in that order, as a list of one tensor.
    """
    import torch

    objective = engine.objective
    workers = engine.workers
    device = engine.compute.device
    # Gao et al. call this gradient caching.
    is_cached = len(batches) > 1
    random_states = []
    outputs = []
    with torch.set_grad_enabled(not is_cached):
        for batch in batches:
            random_states.append(generator_states())
            outputs.append(objective.forward(engine.backend, batch.to(device)))
    if is_cached:
        real_outputs = [output[:count] for output, count in zip(outputs, counted, strict=True)]
        local_outputs = torch.cat(real_outputs).requires_grad_()
    else:
        local_outputs = outputs[0]

    device_batch = global_batch.to(device)
    sums = objective.losses(_gathered(local_outputs, sizes, workers), device_batch)
    counts = objective.counts(device_batch)
    losses = {name: loss / max(1, counts[name]) for name, loss in sums.items()}
    # The exchange averages the gradients over the processes. The factor makes it a sum.
    total = torch.stack(list(losses.values())).sum() * workers.count
    if is_cached:
        (gradient,) = torch.autograd.grad(total, local_outputs)
        gradients = torch.split(gradient, list(counted))
        _carry_on_gradients(engine, batches, gradients, random_states)
    else:
        engine.accelerator.backward(total)
    return list(losses), [torch.stack([loss.detach() for loss in losses.values()])]


def _carry_on_gradients(
    engine: TrainingEngine,
    batches: Sequence[Batch],
    gradients: "Sequence[Tensor]",
    random_states: Sequence[Any],
) -> None:
    """Computes micro-batches again, and carries gradients of their outputs on to the weights.

    Args:
        engine: The network and the processes.
        batches: This process's micro-batches.
        gradients: For each micro-batch, the gradient with respect to the outputs of its windows. It
            is empty for a stand-in, whose output counts nothing.
        random_states: States of the generators when each micro-batch was computed first.
    """
    import torch

    for number, batch in enumerate(batches):
        gradient = gradients[number]
        is_last = number + 1 == len(batches)
        with _exchanged(engine, last=is_last), torch.random.fork_rng():
            set_generators(random_states[number])
            output = engine.objective.forward(engine.backend, batch.to(engine.compute.device))
            # The gradient of this product with respect to `output` is `gradient`.
            product = (output[: len(gradient)] * gradient).sum()
            # The product of a stand-in has no terms. The exchange of gradients still needs a graph
            # that reaches all weights, so 0 times the output is added.
            engine.accelerator.backward(product + 0.0 * output.sum())


def _exchanged(engine: TrainingEngine, *, last: bool) -> contextlib.AbstractContextManager[None]:
    """Returns the context of a backward pass. Only the last pass of a step exchanges gradients.

    The processes add up the gradients of their micro-batches, and exchange the sums once.

    Args:
        engine: The network and the processes.
        last: Whether this is the last micro-batch.
    """
    if last:
        return contextlib.nullcontext()
    without_exchange: contextlib.AbstractContextManager[None] = engine.accelerator.no_sync(
        engine.network
    )
    return without_exchange


def _global_counts(
    objective: TaskObjective, batches: Sequence[Batch], parts: Sequence[Ints], workers: Workers
) -> dict[str, float]:
    """Returns, for each loss, how many terms it has in the global batch, such as rows or tokens.

    Each micro-batch divides its sum of terms by this number, so that an uneven split of the batch
    changes nothing.

    Args:
        objective: Counts the terms of a micro-batch.
        batches: This process's micro-batches.
        parts: Numbers of the windows of each micro-batch; none for a stand-in, which isn't counted.
        workers: The processes, whose counts are added up.
    """
    counts = dict.fromkeys(objective.counts(batches[0]), 0.0)
    for batch, part in zip(batches, parts, strict=True):
        if len(part):
            for name, number in objective.counts(batch).items():
                counts[name] += number
    local_counts = np.array(list(counts.values()), dtype=np.float64)
    return dict(zip(counts, workers.sum(local_counts).tolist(), strict=True))


def _gathered(outputs: "Tensor", sizes: Sequence[int], workers: Workers) -> "Tensor":
    """Returns the outputs of all processes in the order of the batch.

    Gradients flow into the outputs of this process only: the others are constants here.

    Args:
        outputs: Of this process's windows, which are the first dimension.
        sizes: Windows of each process.
        workers: The processes.
    """
    if workers.count == 1:
        return outputs
    import torch

    n_local = sizes[workers.rank]
    # Arrays of one shape are exchanged, so each is filled up to the largest number of windows.
    padded = torch.zeros((max(sizes), *outputs.shape[1:]))
    padded[:n_local] = outputs[:n_local].detach()
    pieces = [
        torch.from_numpy(values[:size]).to(outputs)
        for values, size in zip(workers.gather(padded.numpy()), sizes, strict=True)
    ]
    pieces[workers.rank] = outputs[:n_local]
    # The outputs of a process without a window are a stand-in's and were cut off above. Adding 0
    # times them keeps the process in the exchange of gradients.
    return torch.cat(pieces) + 0.0 * outputs.sum()
