"""The training loop, to be read from top to bottom. It knows no task by name.

Letters: B windows in a global batch.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertctl.config.schema import Recipe
from bertctl.errors import DivergedError
from bertctl.progress import Listener
from bertctl.runtime.batching import Plan, padding_share, training_plan
from bertctl.runtime.launch import Workers
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import Features
from bertctl.training.out_of_memory import MicroBatches, give_back_memory, is_out_of_memory
from bertctl.training.training_engine import TrainingEngine

if TYPE_CHECKING:
    from torch import Tensor

_EXPLODED = 10.0
"""How many times the first losses the last ones may be; a run that got there does not come back."""


@dataclass
class Hooks:
    """What the loop calls, and never does itself: it writes no file and shows nothing.

    Attributes:
        on_log: one line of history, every `training.log_every` steps and at the end of each epoch.
        on_evaluate: scores the validation rows with the weights as they are; returns the primary metric.
        is_better: whether one value of the primary metric is better than another.
        on_better: the weights are the best so far.
        on_step: a step is over, and what it led to; whether it ends an epoch. May save, may raise to stop.
        names: ids of the rows with these numbers, for messages.
    """

    on_log: Callable[[dict[str, float]], None]
    on_evaluate: Callable[[int], float]
    is_better: Callable[[float, float], bool]
    on_better: Callable[[int], None]
    on_step: Callable[[bool], None]
    names: Callable[[NDArray[np.int64]], Sequence[str]]


@dataclass
class TrainingState:
    """Is how far a training run has come, and what it has found; all of it goes into a checkpoint as JSON.

    Attributes:
        epoch: passes over the rows that are complete.
        position: batches of the current pass that are done.
        step: optimizer steps taken.
        pending: whether the evaluation that this step calls for is still to be done.
        best_step: step whose weights are the best; 0 before the first evaluation.
        best_value: their primary metric.
        since_better: evaluations since then.
        seconds: spent in training steps, evaluation not counted.
        examples: seen, epochs counted.
        tokens: real tokens seen.
        paddings: share of the positions that were padding, for each pass.
        first_losses: of the first 5 steps.
        last_losses: of the last 10 steps.
        skipped_steps: steps that fp16's scaler left out.
        stopped_early: whether patience or a watch ended it.
        stop_reason: why a watch ended it; empty otherwise.
        collapsed_losses: validation losses of the last ends of epochs in a row where one answer went to everything.
        ranked: primary metric and step of the best evaluations, the best first, where their weights will be averaged.
    """

    epoch: int = 0
    position: int = 0
    step: int = 0
    pending: bool = False
    best_step: int = 0
    best_value: float = 0.0
    since_better: int = 0
    seconds: float = 0.0
    examples: int = 0
    tokens: int = 0
    paddings: list[float] = field(default_factory=list)
    first_losses: list[float] = field(default_factory=list)
    last_losses: list[float] = field(default_factory=list)
    skipped_steps: int = 0
    stopped_early: bool = False
    stop_reason: str = ""
    collapsed_losses: list[float] = field(default_factory=list)
    ranked: list[tuple[float, int]] = field(default_factory=list)

    @property
    def padding(self) -> float:
        """Mean share of padding."""
        return float(np.mean(self.paddings)) if self.paddings else 0.0


def plan_epoch(recipe: Recipe, features: Features, epoch: int) -> Plan:
    """The global batches of an epoch, the same however many processes share them."""
    return training_plan(
        features.lengths,
        recipe.training.batch_size,
        seed=recipe.training.seed_of_order,
        epoch=epoch,
        group_by_length=recipe.training.group_by_length,
    )


def steps_per_epoch(recipe: Recipe, examples: int) -> int:
    """Returns the optimizer steps of a pass over so many examples."""
    return math.ceil(examples / recipe.training.batch_size)


def total_steps(recipe: Recipe, examples: int) -> int:
    """Returns the optimizer steps of the whole run."""
    return recipe.training.max_steps or recipe.training.epochs * steps_per_epoch(recipe, examples)


def train(
    engine: TrainingEngine,
    features: Features,
    *,
    recipe: Recipe,
    hooks: Hooks,
    state: TrainingState,
    listener: Listener,
) -> None:
    """Trains from where `state` says on, to the end or until patience ends it.

    Args:
        engine: network, optimizer, schedule.
        features: the training rows, encoded.
        recipe: everything else.
        hooks: what happens at a log line, an evaluation, a new best, after a step.
        state: filled in as it goes, so that an interruption leaves what was reached.
        listener: hears of progress.

    Raises:
        DivergedError: a loss or gradient that is no finite number, or losses that have exploded.
        DeviceError: out of memory with one example at a time.
    """
    steps = total_steps(recipe, len(features))
    micro_batches = MicroBatches(
        recipe.training.accumulation_steps,
        recipe.training.batch_size,
        listener,
        can_split=not engine.objective.spans_batch,
    )
    engine.network.train()
    while (state.step < steps or state.pending) and not state.stopped_early:
        if engine.begin_epoch is not None:
            engine.begin_epoch(state.epoch)
        plan = plan_epoch(recipe, features, state.epoch)
        if state.position == 0:
            state.paddings.append(padding_share(features.lengths, plan))
        while (state.position < len(plan) and state.step < steps) or state.pending:
            if not state.pending:
                rng = WindowRandom(recipe.training.seed, state.epoch, state.step)
                figures = _step(engine, features, plan[state.position], rng, micro_batches, state, hooks)
                epoch_over = state.position == len(plan) or state.step == steps
                figures["epoch"] = round(state.epoch + state.position / len(plan), 4)
                if epoch_over or state.step % recipe.training.log_every == 0:
                    hooks.on_log(figures)
                listener.advance("training", state.step, steps, _for_bar(figures))
                due = recipe.training.evaluate_every
                state.pending = (state.step % due == 0 or state.step == steps) if due else epoch_over
            if state.pending:
                _evaluate(hooks, state)
                if recipe.training.patience and state.since_better >= recipe.training.patience:
                    state.stopped_early = state.step < steps
                state.pending = False
            hooks.on_step(state.position == len(plan) or state.step == steps)
            if state.stopped_early:
                break
        else:
            state.epoch, state.position = state.epoch + 1, 0
    listener.finish("training")


def _step(
    engine: TrainingEngine,
    features: Features,
    indices: NDArray[np.int64],
    rng: WindowRandom,
    micro_batches: MicroBatches,
    state: TrainingState,
    hooks: Hooks,
) -> dict[str, float]:
    """Takes one optimizer step; returns the figures of its line of history."""
    started = time.perf_counter()
    rate = float(engine.schedule.get_last_lr()[0])
    loss, norm = step_with_oom_retry(engine, features, indices, rng, micro_batches)
    state.first_losses = [*state.first_losses, loss][:5]
    state.last_losses = [*state.last_losses, loss][-10:]
    is_fp16 = engine.compute.precision == "fp16"
    # Under fp16 the scaler meets infinite gradients on purpose, skips the step and lowers its scale.
    if not (math.isfinite(loss) and (math.isfinite(norm) or is_fp16)) or _exploded(state):
        raise _diverged(state, loss, norm, rate, hooks.names(np.unique(features.rows[indices])))
    engine.optimizer.step()
    if is_fp16 and engine.accelerator.optimizer_step_was_skipped:
        state.skipped_steps += 1
    engine.schedule.step()
    engine.optimizer.zero_grad(set_to_none=True)
    state.seconds += time.perf_counter() - started
    state.step += 1
    state.position += 1
    state.examples += len(indices)
    state.tokens += int(features.lengths[indices].sum())
    return {
        "step": state.step,
        "epoch": 0.0,
        "loss": loss,
        "learning_rate": rate,
        "grad_norm": norm,
        "examples_per_second": round(state.examples / state.seconds, 2),
        "tokens_per_second": round(state.tokens / state.seconds, 1),
    }


def step_with_oom_retry(
    engine: TrainingEngine,
    features: Features,
    indices: NDArray[np.int64],
    rng: WindowRandom,
    micro_batches: MicroBatches,
) -> tuple[float, float]:
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
    engine: TrainingEngine,
    features: Features,
    indices: NDArray[np.int64],
    rng: WindowRandom,
    *,
    micro_batches: int,
) -> tuple[float, float]:
    """Does the forward and backward passes of one global batch, and the clipping; the optimizer's step is the caller's.

    Args:
        engine: the network and the processes among which the batch is dealt out.
        features: the training rows.
        indices: (B,) the global batch.
        rng: of this step.
        micro_batches: how many of them each process computes its share in; 1 where the objective spans the batch.

    Returns:
        The global batch's loss, and the gradient's norm before the clipping.
    """
    objective, workers, device = engine.objective, engine.workers, engine.compute.device
    if objective.spans_batch:
        micro_batches = 1
    parts = np.array_split(indices, micro_batches * workers.count)
    mine = parts[workers.rank * micro_batches : (workers.rank + 1) * micro_batches]
    if workers.count == 1:
        mine = [part for part in mine if len(part)]
    # Every process has to take part in the exchange of gradients, one without an example with a loss of nothing.
    batches = [objective.batch(features, part if len(part) else indices[:1], rng) for part in mine]
    if objective.spans_batch:
        whole = objective.batch(features, indices, rng)
        counts = objective.counts(whole)
    else:
        # A sum over all micro-batches is divided by the whole batch's count, so that an uneven split changes nothing.
        counts = _summed(
            [objective.counts(batch) for batch, part in zip(batches, mine, strict=True) if len(part)],
            names=list(objective.counts(batches[0])),
            workers=workers,
        )
    total = 0.0
    for number, (batch, part) in enumerate(zip(batches, mine, strict=True)):
        last = number + 1 == len(mine)
        with contextlib.nullcontext() if last else engine.accelerator.no_sync(engine.network):
            outputs = objective.forward(engine.backend, batch.to(device))
            if objective.spans_batch:
                gathered = _gathered(outputs, [len(part) for part in parts], workers)
                loss = _mean(objective.losses(gathered, whole.to(device)), counts) + 0.0 * outputs.sum()
            else:
                loss = _mean(objective.losses(outputs, batch.to(device)), counts) * (1.0 if len(part) else 0.0)
            # The exchange takes the mean over the processes, and the sum is meant.
            engine.accelerator.backward(loss * workers.count)
        total += float(loss.detach())
    norm = engine.accelerator.clip_grad_norm_(engine.network.parameters(), engine.max_grad_norm)
    if objective.spans_batch:
        return total, float(norm)
    return float(workers.sum(np.array([total]))[0]), float(norm)


def _summed(counts: Sequence[Mapping[str, int]], *, names: Sequence[str], workers: Workers) -> dict[str, int]:
    """Returns the counts of all micro-batches of all processes together, by name."""
    mine = np.array([sum(count[name] for count in counts) for name in names], dtype=np.int64)
    return dict(zip(names, workers.sum(mine).tolist(), strict=True))


def _mean(losses: "Mapping[str, Tensor]", counts: Mapping[str, int]) -> "Tensor":
    """Returns the sum of the losses, each divided by its count."""
    first, *others = (loss / max(1, counts[name]) for name, loss in losses.items())
    return sum(others, first)


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
    return torch.cat(pieces)


def _evaluate(hooks: Hooks, state: TrainingState) -> None:
    """Scores, and keeps the weights if they are the best so far; a tie goes to the earlier ones."""
    value = hooks.on_evaluate(state.step)
    if state.best_step and not hooks.is_better(value, state.best_value):
        state.since_better += 1
        return
    hooks.on_better(state.step)
    state.best_step, state.best_value, state.since_better = state.step, value, 0


def _for_bar(figures: Mapping[str, float]) -> dict[str, float | str]:
    return {
        "loss": f"{figures['loss']:.4f}",
        "rate": f"{figures['learning_rate']:.2e}",
        "examples/s": figures["examples_per_second"],
        "tokens/s": figures["tokens_per_second"],
    }


def _exploded(state: TrainingState) -> bool:
    if state.step < 15:
        return False
    return float(np.mean(state.last_losses)) > _EXPLODED * max(1.0, float(np.mean(state.first_losses)))


def _diverged(state: TrainingState, loss: float, norm: float, rate: float, ids: Sequence[str]) -> DivergedError:
    if not math.isfinite(loss):
        what = f"the loss is {loss}"
    elif not math.isfinite(norm):
        what = f"the gradient's norm is {norm}"
    else:
        what = (
            f"the last losses are {np.mean(state.last_losses):.3g} on average, the first ones were "
            f"{np.mean(state.first_losses):.3g}"
        )
    shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    return DivergedError(
        f"training diverged at step {state.step + 1}: {what} (rate {rate:.2e}; batch with ids {shown})",
        remedy="Try a lower --learning-rate, a longer warm-up (--set optimizer.warmup_fraction=0.2) or "
        "--precision fp32; look at those examples.",
    )
