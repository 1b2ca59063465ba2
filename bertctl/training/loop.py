"""The training loop, to be read from top to bottom. It knows no task by name.

Letters: B examples in a global batch, C outputs of the head.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertctl.config.schema import Recipe
from bertctl.errors import DivergedError
from bertctl.inference.forward import batch_logits, on_device
from bertctl.progress import Listener
from bertctl.runtime.batching import Plan, padding_share, training_plan
from bertctl.runtime.device import Compute
from bertctl.tasks.base import Features, Task
from bertctl.training.optim import build_optimizer, build_schedule

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn

    from bertctl.modeling.load import LoadedModel

Evaluation = tuple[float, float]
"""Value of the primary metric, and the mean loss, on the validation rows."""


@dataclass
class Hooks:
    """What the loop calls, and never does itself: it writes no file and shows nothing.

    Attributes:
        on_log: one line of history, every `training.log_every` steps and at the end of each epoch.
        on_evaluate: scores the validation rows with the weights as they are.
        on_better: the weights are the best so far.
    """

    on_log: Callable[[dict[str, float]], None]
    on_evaluate: Callable[[int], Evaluation]
    on_better: Callable[[int], None]


@dataclass
class Outcome:
    """What a finished (or stopped) loop leaves.

    Attributes:
        step: optimizer steps taken.
        best_step: step whose weights are the best; 0 before the first evaluation.
        best_value: their primary metric.
        seconds: spent in training steps, evaluation not counted.
        examples: seen, epochs counted.
        tokens: real tokens seen.
        padding: share of the positions that were padding.
        stopped_early: whether patience ended it.
    """

    step: int = 0
    best_step: int = 0
    best_value: float = math.nan
    seconds: float = 0.0
    examples: int = 0
    tokens: int = 0
    padding: float = 0.0
    stopped_early: bool = False


def plan_epoch(recipe: Recipe, features: Features, epoch: int) -> Plan:
    """The global batches of an epoch, the same however many processes share them."""
    return training_plan(
        features.lengths,
        recipe.training.batch_size,
        seed=recipe.training.seed,
        epoch=epoch,
        group_by_length=recipe.training.group_by_length,
    )


def total_steps(recipe: Recipe, examples: int) -> int:
    """Optimizer steps of the whole run."""
    return recipe.training.epochs * math.ceil(examples / recipe.training.batch_size)


def train(
    loaded: "LoadedModel",
    task: Task,
    features: Features,
    ids: "list[str]",
    *,
    recipe: Recipe,
    compute: Compute,
    accelerator: "Accelerator",
    higher_is_better: bool,
    hooks: Hooks,
    outcome: Outcome,
    listener: Listener,
) -> "nn.Module":
    """Fine-tune `loaded.network`.

    Args:
        loaded: model and tokenizer; the network is moved and wrapped.
        task: collates batches and computes losses.
        features: the training rows, encoded.
        ids: of the training rows, for messages.
        recipe: everything else.
        compute: device and precision.
        accelerator: does devices, wrapping, precision and backward.
        higher_is_better: direction of the primary metric.
        hooks: what happens at a log line, an evaluation, a new best.
        outcome: filled in as it goes, so that an interruption leaves what was reached.
        listener: hears of progress.

    Returns:
        The wrapped network, with the last weights.

    Raises:
        DivergedError: a loss or gradient that is no finite number.
    """
    steps = total_steps(recipe, len(features))
    optimizer = build_optimizer(loaded.network, recipe.optimizer)
    network, optimizer = accelerator.prepare(loaded.network, optimizer)
    schedule = build_schedule(optimizer, recipe.optimizer, steps=steps)
    network.train()
    since_better = 0
    padded: list[float] = []
    for epoch in range(recipe.training.epochs):
        plan = plan_epoch(recipe, features, epoch)
        padded.append(padding_share(features.lengths, plan))
        outcome.padding = float(np.mean(padded))
        for position, indices in enumerate(plan):
            started = time.perf_counter()
            loss, norm = training_step(
                network,
                loaded,
                task,
                features,
                indices,
                parts=recipe.training.accumulation_steps,
                max_grad_norm=recipe.optimizer.max_grad_norm,
                compute=compute,
                accelerator=accelerator,
            )
            rate = float(schedule.get_last_lr()[0])
            # Under fp16 the scaler meets infinite gradients on purpose, skips the step and lowers its scale.
            if not (math.isfinite(loss) and (math.isfinite(norm) or compute.precision == "fp16")):
                raise _diverged(
                    loss, norm, rate, outcome.step + 1, [ids[i] for i in sorted(set(features.rows[indices]))]
                )
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            seconds = time.perf_counter() - started
            outcome.step += 1
            outcome.seconds += seconds
            outcome.examples += len(indices)
            outcome.tokens += int(features.lengths[indices].sum())
            figures = _figures(outcome, epoch + (position + 1) / len(plan), loss, rate, norm)
            epoch_over = position + 1 == len(plan)
            if epoch_over or outcome.step % recipe.training.log_every == 0:
                hooks.on_log(figures)
            listener.advance("training", outcome.step, steps, _for_bar(figures))
            due = recipe.training.evaluate_every
            if (outcome.step % due == 0 or outcome.step == steps) if due else epoch_over:
                better = _evaluate(hooks, outcome, higher_is_better=higher_is_better)
                since_better = 0 if better else since_better + 1
                if recipe.training.patience and since_better >= recipe.training.patience:
                    outcome.stopped_early = outcome.step < steps
                    listener.finish("training")
                    return network  # type: ignore[no-any-return]
    listener.finish("training")
    return network  # type: ignore[no-any-return]


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
) -> tuple[float, float]:
    """Forward and backward over one global batch, and the clipping; the optimizer's step is the caller's.

    Args:
        network: the model, perhaps wrapped.
        loaded: what it was loaded with.
        task: collates and computes losses.
        features: the training rows.
        indices: (B,) the batch.
        parts: how many parts it is computed in, one after the other.
        max_grad_norm: the gradient's norm is clipped to this.
        compute: device and precision.
        accelerator: does backward and clipping.
        width: T that every part is padded to; the longest of the part when left out.

    Returns:
        The batch's mean loss, and the gradient's norm before the clipping.
    """
    batches = [
        task.collate(features, part, pad_id=loaded.pad_id, pad_left=loaded.pad_left, width=width)
        for part in np.array_split(indices, parts)
        if len(part)
    ]
    # The sum over all parts is divided by the whole batch's count, so that an uneven split changes nothing.
    weight = max(1, int(features.weights[indices].sum()))
    total = 0.0
    for number, batch in enumerate(batches):
        last = number + 1 == len(batches)
        with contextlib.nullcontext() if last else accelerator.no_sync(network):
            logits = batch_logits(network, loaded, task, batch, compute)
            loss = task.loss(logits, on_device(batch, compute)).sum() / weight
            accelerator.backward(loss)
        total += float(loss.detach())
    norm = accelerator.clip_grad_norm_(network.parameters(), max_grad_norm)
    return total, float(norm)


def _evaluate(hooks: Hooks, outcome: Outcome, *, higher_is_better: bool) -> bool:
    """Score, and say whether these weights are the best so far; a tie goes to the earlier ones."""
    value, _ = hooks.on_evaluate(outcome.step)
    sign = 1.0 if higher_is_better else -1.0
    if outcome.best_step and not sign * value > sign * outcome.best_value:
        return False
    outcome.best_step, outcome.best_value = outcome.step, value
    hooks.on_better(outcome.step)
    return True


def _figures(outcome: Outcome, epoch: float, loss: float, rate: float, norm: float) -> dict[str, float]:
    return {
        "step": outcome.step,
        "epoch": round(epoch, 4),
        "loss": loss,
        "learning_rate": rate,
        "grad_norm": norm,
        "examples_per_second": round(outcome.examples / outcome.seconds, 2),
        "tokens_per_second": round(outcome.tokens / outcome.seconds, 1),
    }


def _for_bar(figures: Mapping[str, float]) -> dict[str, float | str]:
    return {
        "loss": f"{figures['loss']:.4f}",
        "rate": f"{figures['learning_rate']:.2e}",
        "examples/s": figures["examples_per_second"],
        "tokens/s": figures["tokens_per_second"],
    }


def _diverged(loss: float, norm: float, rate: float, step: int, ids: list[Any]) -> DivergedError:
    what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
    shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    return DivergedError(
        f"training diverged at step {step}: {what} (rate {rate:.2e}; batch with ids {shown})",
        remedy="Try a lower --learning-rate, a longer warm-up (--set optimizer.warmup_fraction=0.2) or "
        "--precision fp32; look at those examples.",
    )
