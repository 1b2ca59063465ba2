"""The training loop, to be read from top to bottom. It knows no task by name.

Letters: B units in a global batch, W processes that share the job, C outputs of the head.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertctl.config.schema import Recipe
from bertctl.errors import DivergedError
from bertctl.inference.forward import batch_logits, on_device
from bertctl.progress import Listener
from bertctl.runtime.batching import Plan, padding_share, training_plan
from bertctl.runtime.device import Compute
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import Features, Task
from bertctl.training.exhaustion import Parts, give_back_memory, is_out_of_memory

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from bertctl.modeling.load import LoadedModel

Evaluation = tuple[float, float]
"""Value of the primary metric, and the mean loss, on the validation rows."""

_EXPLODED = 10.0
"""How many times the first losses the last ones may be; a run that got there does not come back."""


@dataclass
class Hooks:
    """What the loop calls, and never does itself: it writes no file and shows nothing.

    Attributes:
        on_log: one line of history, every `training.log_every` steps and at the end of each epoch.
        on_evaluate: scores the validation rows with the weights as they are.
        on_better: the weights are the best so far.
        on_step: a step is over, and what it led to; whether it ends an epoch. May save, may raise to stop.
    """

    on_log: Callable[[dict[str, float]], None]
    on_evaluate: Callable[[int], Evaluation]
    on_better: Callable[[int], None]
    on_step: Callable[[bool], None] = lambda epoch_over: None  # noqa: ARG005


@dataclass
class Outcome:
    """Where a loop is, and what it leaves; all of it goes into a checkpoint as JSON.

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


@dataclass(frozen=True)
class Machine:
    """What the loop computes with.

    Attributes:
        loaded: model and tokenizer as they were loaded.
        network: the model, perhaps wrapped.
        optimizer: its optimizer, perhaps wrapped.
        schedule: of the rate.
        accelerator: does devices, wrapping, precision and backward.
        compute: device and precision.
        workers: the processes that share the job.
        begin_epoch: called with the number of each epoch (from 0) before it is trained, or gone on with.
    """

    loaded: "LoadedModel"
    network: "nn.Module"
    optimizer: "Optimizer"
    schedule: "LRScheduler"
    accelerator: "Accelerator"
    compute: Compute
    workers: Workers = ALONE
    begin_epoch: Callable[[int], None] | None = None


def plan_epoch(recipe: Recipe, features: Features, epoch: int) -> Plan:
    """The global batches of an epoch, the same however many processes share them."""
    return training_plan(
        features.lengths,
        recipe.training.batch_size,
        seed=recipe.training.seed_of_order,
        epoch=epoch,
        group_by_length=recipe.training.group_by_length,
    )


def total_steps(recipe: Recipe, examples: int) -> int:
    """Optimizer steps of the whole run."""
    return recipe.training.epochs * math.ceil(examples / recipe.training.batch_size)


def train(
    machine: Machine,
    task: Task,
    features: Features,
    ids: "Sequence[str]",
    *,
    recipe: Recipe,
    higher_is_better: bool,
    hooks: Hooks,
    outcome: Outcome,
    listener: Listener,
) -> None:
    """Fine-tune from where `outcome` says on, to the end or until patience ends it.

    Args:
        machine: network, optimizer, schedule.
        task: collates batches and computes losses.
        features: the training rows, encoded.
        ids: of the training rows, for messages.
        recipe: everything else.
        higher_is_better: direction of the primary metric.
        hooks: what happens at a log line, an evaluation, a new best, after a step.
        outcome: filled in as it goes, so that an interruption leaves what was reached.
        listener: hears of progress.

    Raises:
        DivergedError: a loss or gradient that is no finite number, or losses that have exploded.
        DeviceError: out of memory with one example at a time.
    """
    steps = total_steps(recipe, len(features))
    parts = Parts(
        recipe.training.accumulation_steps, recipe.training.batch_size, recipe.optimizer.max_grad_norm, listener
    )
    machine.network.train()
    while outcome.epoch < recipe.training.epochs and not outcome.stopped_early:
        if machine.begin_epoch is not None:
            machine.begin_epoch(outcome.epoch)
        plan = plan_epoch(recipe, features, outcome.epoch)
        if outcome.position == 0:
            outcome.paddings.append(padding_share(features.lengths, plan))
        while outcome.position < len(plan) or outcome.pending:
            if not outcome.pending:
                figures = _step(machine, task, features, ids, plan[outcome.position], parts, outcome)
                epoch_over = outcome.position == len(plan)
                figures["epoch"] = round(outcome.epoch + outcome.position / len(plan), 4)
                if epoch_over or outcome.step % recipe.training.log_every == 0:
                    hooks.on_log(figures)
                listener.advance("training", outcome.step, steps, _for_bar(figures))
                due = recipe.training.evaluate_every
                outcome.pending = (outcome.step % due == 0 or outcome.step == steps) if due else epoch_over
            if outcome.pending:
                _evaluate(hooks, outcome, higher_is_better=higher_is_better)
                if recipe.training.patience and outcome.since_better >= recipe.training.patience:
                    outcome.stopped_early = outcome.step < steps
                outcome.pending = False
            hooks.on_step(outcome.position == len(plan))
            if outcome.stopped_early:
                break
        else:
            outcome.epoch, outcome.position = outcome.epoch + 1, 0
    listener.finish("training")


def _step(
    machine: Machine,
    task: Task,
    features: Features,
    ids: "Sequence[str]",
    indices: NDArray[np.int64],
    parts: "Parts",
    outcome: Outcome,
) -> dict[str, float]:
    """One optimizer step; the figures of its line of history."""
    started = time.perf_counter()
    rate = float(machine.schedule.get_last_lr()[0])
    loss, norm = with_less_at_once(machine, task, features, indices, parts)
    outcome.first_losses = [*outcome.first_losses, loss][:5]
    outcome.last_losses = [*outcome.last_losses, loss][-10:]
    is_fp16 = machine.compute.precision == "fp16"
    # Under fp16 the scaler meets infinite gradients on purpose, skips the step and lowers its scale.
    if not (math.isfinite(loss) and (math.isfinite(norm) or is_fp16)) or _exploded(outcome):
        batch_ids = [ids[i] for i in np.unique(features.rows[indices])]
        raise _diverged(outcome, loss, norm, rate, batch_ids)
    machine.optimizer.step()
    if is_fp16 and machine.accelerator.optimizer_step_was_skipped:
        outcome.skipped_steps += 1
    machine.schedule.step()
    machine.optimizer.zero_grad(set_to_none=True)
    outcome.seconds += time.perf_counter() - started
    outcome.step += 1
    outcome.position += 1
    outcome.examples += len(indices)
    outcome.tokens += int(features.lengths[indices].sum())
    return {
        "step": outcome.step,
        "epoch": 0.0,
        "loss": loss,
        "learning_rate": rate,
        "grad_norm": norm,
        "examples_per_second": round(outcome.examples / outcome.seconds, 2),
        "tokens_per_second": round(outcome.tokens / outcome.seconds, 1),
    }


def with_less_at_once(
    machine: Machine, task: Task, features: Features, indices: NDArray[np.int64], parts: "Parts"
) -> tuple[float, float]:
    """A training step; where memory runs out, the same step in twice as many parts, and so on."""
    while True:
        try:
            return training_step(
                machine.network,
                machine.loaded,
                task,
                features,
                indices,
                parts=parts.count,
                max_grad_norm=parts.max_grad_norm,
                compute=machine.compute,
                accelerator=machine.accelerator,
                workers=machine.workers,
            )
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            machine.optimizer.zero_grad(set_to_none=True)
            parts.double(error, longest=int(features.lengths[indices].max()), workers=machine.workers.count)
        give_back_memory()  # only now has the error let go of what the step had computed


def training_step(
    network: "nn.Module",
    loaded: "LoadedModel",
    task: Task,
    features: Features,
    indices: NDArray[np.int64],
    *,
    parts: int,
    max_grad_norm: float,
    compute: Compute,
    accelerator: "Accelerator",
    width: int | None = None,
    workers: Workers = ALONE,
) -> tuple[float, float]:
    """Forward and backward over one global batch, and the clipping; the optimizer's step is the caller's.

    Args:
        network: the model, perhaps wrapped.
        loaded: what it was loaded with.
        task: collates and computes losses.
        features: the training rows.
        indices: (B,) the global batch.
        parts: how many parts each process computes its share in, one after the other.
        max_grad_norm: the gradient's norm is clipped to this.
        compute: device and precision.
        accelerator: does backward and clipping.
        width: T that every part is padded to; the longest of the part when left out.
        workers: the processes among which the batch is dealt out.

    Returns:
        The global batch's mean loss, and the gradient's norm before the clipping.
    """
    # The sum over all parts is divided by the whole batch's count, so that an uneven split changes nothing.
    weight = max(1, int(features.weights[indices].sum()))
    mine = np.array_split(indices, parts * workers.count)[workers.rank * parts : (workers.rank + 1) * parts]
    if workers.count == 1:
        mine = [part for part in mine if len(part)]
    total = 0.0
    for number, part in enumerate(mine):
        # Every process has to take part in the exchange of gradients, one without an example with a loss of nothing.
        batch = task.collate(
            features,
            part if len(part) else indices[:1],
            pad_id=loaded.pad_id,
            pad_left=loaded.pad_left,
            width=width,
        )
        last = number + 1 == len(mine)
        with contextlib.nullcontext() if last else accelerator.no_sync(network):
            logits = batch_logits(network, loaded, task, batch, compute)
            loss = task.loss(logits, on_device(batch, compute)).sum() / weight * (1.0 if len(part) else 0.0)
            # The exchange takes the mean over the processes, and the sum is meant.
            accelerator.backward(loss * workers.count)
        total += float(loss.detach())
    norm = accelerator.clip_grad_norm_(network.parameters(), max_grad_norm)
    return float(workers.sum(np.array([total]))[0]), float(norm)


def _evaluate(hooks: Hooks, outcome: Outcome, *, higher_is_better: bool) -> None:
    """Score, and keep the weights if they are the best so far; a tie goes to the earlier ones."""
    value, _ = hooks.on_evaluate(outcome.step)
    sign = 1.0 if higher_is_better else -1.0
    if outcome.best_step and not sign * value > sign * outcome.best_value:
        outcome.since_better += 1
        return
    hooks.on_better(outcome.step)
    outcome.best_step, outcome.best_value, outcome.since_better = outcome.step, value, 0


def _for_bar(figures: Mapping[str, float]) -> dict[str, float | str]:
    return {
        "loss": f"{figures['loss']:.4f}",
        "rate": f"{figures['learning_rate']:.2e}",
        "examples/s": figures["examples_per_second"],
        "tokens/s": figures["tokens_per_second"],
    }


def _exploded(outcome: Outcome) -> bool:
    if outcome.step < 15:
        return False
    return float(np.mean(outcome.last_losses)) > _EXPLODED * max(1.0, float(np.mean(outcome.first_losses)))


def _diverged(outcome: Outcome, loss: float, norm: float, rate: float, ids: list[Any]) -> DivergedError:
    if not math.isfinite(loss):
        what = f"the loss is {loss}"
    elif not math.isfinite(norm):
        what = f"the gradient's norm is {norm}"
    else:
        what = (
            f"the last losses are {np.mean(outcome.last_losses):.3g} on average, the first ones were "
            f"{np.mean(outcome.first_losses):.3g}"
        )
    shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    return DivergedError(
        f"training diverged at step {outcome.step + 1}: {what} (rate {rate:.2e}; batch with ids {shown})",
        remedy="Try a lower --learning-rate, a longer warm-up (--set optimizer.warmup_fraction=0.2) or "
        "--precision fp32; look at those examples.",
    )
