"""The training loop, to be read from top to bottom. It knows no task by name."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bertctl.arrays import Ints
from bertctl.config.schema import Recipe
from bertctl.errors import DivergedError
from bertctl.progress import Listener
from bertctl.runtime.batching import Plan, padding_share, repeated, set_apart, training_plan
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import Features
from bertctl.training.loop.out_of_memory import MicroBatches
from bertctl.training.loop.step import step_with_oom_retry
from bertctl.training.loop.training_engine import TrainingEngine
from bertctl.training.steps import total_steps
from bertctl.words import count

_EXPLODED = 10.0
"""How many times as large as the first losses the last ones may be; beyond it no run recovers."""
_N_FIRST_LOSSES = 5
_N_LAST_LOSSES = 10


class Evaluation(NamedTuple):
    """Scores of the validation rows.

    Attributes:
        value: Primary metric.
        loss: Validation loss.
    """

    value: float
    loss: float


@dataclass
class Hooks:
    """What the loop calls: it writes no file and shows nothing itself.

    Attributes:
        on_log: Receives the figures of a line of history, every `training.log_every` steps and at
            the end of each epoch.
        on_evaluate: Scores the validation rows with the present weights; called with the step.
        is_better: Returns whether the first value of the primary metric is better than the second.
        on_better: Called when the weights of this step are the best so far.
        on_step: Called after each step and its evaluation, with whether that ends an epoch. May
            save a checkpoint, and may raise to stop.
        names: Returns the ids of the rows with these numbers, for messages.
        evaluation_cost: Time of an evaluation, counted in steps, to estimate the time left.
        scores_start: Whether the weights are scored before the first step, and may be the best
            ones.
        breaks_ties: Whether the lower loss is better where the primary metric is the same. Else the
            first one is.
    """

    on_log: Callable[[dict[str, float]], None]
    on_evaluate: Callable[[int], Evaluation]
    is_better: Callable[[float, float], bool]
    on_better: Callable[[int], None]
    on_step: Callable[[bool], None]
    names: Callable[[Ints], Sequence[str]]
    evaluation_cost: float = 0.0
    scores_start: bool = False
    breaks_ties: bool = False


@dataclass
class TrainingState:
    """Progress of a training run: position, scores so far, random state.

    Saved in every checkpoint as JSON.

    Attributes:
        epoch: passes over the rows that are complete.
        position: batches of the current pass that are done.
        step: optimizer steps taken.
        pending: whether the evaluation that this step calls for is still to be done.
        best_step: step whose weights are the best; 0 before the first evaluation, or with
            `scored_start` those before the first step.
        scored_start: Whether the weights before the first step were scored.
        best_value: their primary metric.
        best_loss: Their validation loss.
        since_better: evaluations since then.
        seconds: spent in training steps, evaluation not counted.
        examples: seen, epochs counted.
        tokens: real tokens seen.
        paddings: share of the positions that were padding, for each pass.
        first_losses: of the first 5 steps.
        last_losses: of the last 10 steps.
        skipped_steps: steps that fp16's scaler left out.
        stopped_early: whether it ended before its last step.
        stop_reason: why early stopping ended it; empty otherwise.
        collapsed_losses: validation losses at the ends of the last epochs in which every example
            got the same answer.
        ranked: primary metric and step of the best evaluations, the best first, where their weights
            will be averaged.
        ranked_losses: Their validation losses.
        clock_seconds: Seconds of the time limit that were used, those of interrupted commands too;
            0 without a limit.
        plan_changes: Changes of the number of steps by a time limit: the step where it was changed,
            the new number.
    """

    epoch: int = 0
    position: int = 0
    step: int = 0
    pending: bool = False
    best_step: int = 0
    scored_start: bool = False
    best_value: float = 0.0
    best_loss: float = 0.0
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
    ranked_losses: list[float] = field(default_factory=list)
    clock_seconds: float = 0.0
    plan_changes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def has_best(self) -> bool:
        """Whether any weights were scored."""
        return self.best_step > 0 or self.scored_start

    @property
    def padding(self) -> float:
        """Mean share of padding."""
        if self.paddings:
            return float(np.mean(self.paddings))
        return 0.0


def plan_epoch(recipe: Recipe, features: Features, epoch: int) -> Plan:
    """Returns the global batches of an epoch, in order.

    They do not depend on the number of processes that share them. For losses that compare the rows
    of a batch, rows with equal texts are put into different batches where that is possible.

    Args:
        recipe: Has the batch size, the seed and whether texts of like lengths share a batch.
        features: The training rows.
        epoch: From 0.
    """
    training = recipe.training
    plan = training_plan(
        features.lengths,
        training.batch_size,
        seed=training.seed_of_order,
        epoch=epoch,
        group_by_length=training.group_by_length,
    )
    text_numbers = features.texts_to_keep_apart()
    if text_numbers is None:
        return plan
    return set_apart(plan, text_numbers)


class StepPlan:
    """Number of steps that a run is planned for.

    Here that of its recipe; a time limit may change it on the way.

    Args:
        steps: Optimizer steps.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def begin_epoch(self, batches: Plan) -> None:
        """Receives the batches of an epoch that begins, or in which a run is resumed."""

    def after_step(self, state: TrainingState) -> None:
        """Called after each step; may change `steps`."""

    def after_evaluation(self, state: TrainingState) -> None:
        """Notes that an evaluation is over."""


def train(
    engine: TrainingEngine,
    features: Features,
    recipe: Recipe,
    hooks: Hooks,
    state: TrainingState,
    listener: Listener,
    step_plan: StepPlan | None = None,
) -> None:
    """Trains from the position in `state` to the last step, or until early stopping ends it.

    Args:
        engine: Network, optimizer, schedule.
        features: The training rows, encoded.
        recipe: Everything else.
        hooks: Called at a log line, an evaluation, a new best, and after a step.
        state: Updated after each step, so that an interruption leaves what was reached.
        listener: Receives progress.
        step_plan: Number of steps. Default: as many as the recipe says.

    Raises:
        DivergedError: A loss or gradient is no finite number, or the losses have exploded.
        DeviceError: Memory runs out with one example at a time.
    """
    training = recipe.training
    goal = step_plan or StepPlan(total_steps(recipe, len(features)))
    micro_batches = MicroBatches(training.accumulation_steps, training.batch_size, listener)
    if hooks.scores_start and state.step == 0:
        _evaluate(hooks, state)
        state.scored_start = True
    engine.network.train()

    # A resumed run may begin within an epoch (`position`), or with an evaluation that its last step
    # called for (`pending`).
    while (state.step < goal.steps or state.pending) and not state.stopped_early:
        if engine.begin_epoch is not None:
            engine.begin_epoch(state.epoch)
        plan = plan_epoch(recipe, features, state.epoch)
        goal.begin_epoch(plan)
        if state.position == 0:
            _report_batches(plan, features, state, listener)

        while (state.position < len(plan) and state.step < goal.steps) or state.pending:
            if not state.pending:
                rng = WindowRandom(training.seed, state.epoch, state.step)
                figures = _step(
                    engine,
                    features,
                    plan[state.position],
                    rng,
                    micro_batches,
                    state,
                    hooks,
                )
                goal.after_step(state)  # may change `goal.steps`
                is_epoch_over = state.position == len(plan) or state.step == goal.steps
                figures["epoch"] = round(state.epoch + state.position / len(plan), 4)
                if is_epoch_over or state.step % training.log_every == 0:
                    hooks.on_log(figures)
                # The progress bar counts evaluations as work, too.
                share_of_work_done = _share_of_work(
                    state.step,
                    goal.steps,
                    training.evaluate_every or len(plan),
                    hooks.evaluation_cost,
                )
                listener.advance(
                    "training",
                    state.step,
                    goal.steps,
                    _for_bar(figures),
                    share=share_of_work_done,
                )
                if training.evaluate_every:
                    is_due = state.step % training.evaluate_every == 0
                    state.pending = is_due or state.step == goal.steps
                else:
                    state.pending = is_epoch_over

            if state.pending:
                _evaluate(hooks, state)
                goal.after_evaluation(state)
                if training.patience and state.since_better >= training.patience:
                    state.stopped_early = state.step < goal.steps
                state.pending = False
            # Computed again, since a run that resumes with an evaluation takes no step above.
            ends_epoch = state.position == len(plan) or state.step == goal.steps
            hooks.on_step(ends_epoch)
            if state.stopped_early:
                break

        if not state.stopped_early:
            state.epoch += 1
            state.position = 0
    listener.finish("training")


def _report_batches(
    plan: Plan, features: Features, state: TrainingState, listener: Listener
) -> None:
    """Notes the padding of an epoch that begins, and reports equal texts that share a batch.

    Some losses take the other texts of a batch as negatives. A text that equals the row's own is
    no negative, so these losses mask it.

    Args:
        plan: Batches of the epoch.
        features: The training rows.
        state: Receives the share of padding.
        listener: Receives a line if the loss compares the rows of a batch.
    """
    state.paddings.append(padding_share(features.lengths, plan))
    text_numbers = features.texts_to_keep_apart()
    if text_numbers is not None:
        equal = count(repeated(plan, text_numbers), "row")
        listener.say(
            f"epoch {state.epoch + 1}: {equal} with a text of another row of the batch, masked "
            "there"
        )


def _step(
    engine: TrainingEngine,
    features: Features,
    indices: Ints,
    rng: WindowRandom,
    micro_batches: MicroBatches,
    state: TrainingState,
    hooks: Hooks,
) -> dict[str, float]:
    """Takes one optimizer step, and moves `state` on by it.

    Args:
        engine: Network, optimizer, schedule.
        features: The training rows.
        indices: (B,) numbers of the windows of the batch.
        rng: Random numbers of this step.
        micro_batches: Their number grows if memory runs out.
        state: Updated in place.
        hooks: Name the rows in an error.

    Returns:
        The figures of the step's line of history. `epoch` is 0: the caller fills it in.

    Raises:
        DivergedError: The loss or the gradient is no finite number, or the losses have exploded.
    """
    started = time.perf_counter()
    rate = float(engine.schedule.get_last_lr()[0])
    result = step_with_oom_retry(
        engine,
        features,
        indices,
        rng,
        micro_batches,
    )
    loss = result.loss
    norm = result.grad_norm
    state.first_losses = [*state.first_losses, loss][:_N_FIRST_LOSSES]
    state.last_losses = [*state.last_losses, loss][-_N_LAST_LOSSES:]
    is_fp16 = engine.compute.precision == "fp16"
    # Under fp16 the scaler meets infinite gradients on purpose, skips the step and lowers its
    # scale.
    is_finite = math.isfinite(loss) and (math.isfinite(norm) or is_fp16)
    if not is_finite or _exploded(state):
        raise _diverged(
            state,
            loss,
            norm,
            rate,
            hooks.names(np.unique(features.rows[indices])),
        )
    engine.optimizer.step()
    if is_fp16 and engine.accelerator.optimizer_step_was_skipped:
        state.skipped_steps += 1
    engine.schedule.step()
    engine.optimizer.zero_grad(set_to_none=True)

    state.seconds += time.perf_counter() - started
    state.step += 1
    state.position += 1
    state.examples += len(indices)
    state.tokens += features.tokens_in(indices)
    part_losses = {}
    if len(result.losses) > 1:
        part_losses = {f"{name}_loss": part_loss for name, part_loss in result.losses.items()}
    return {
        "step": state.step,
        "epoch": 0.0,
        "loss": loss,
        **part_losses,
        "learning_rate": rate,
        "grad_norm": norm,
        "examples_per_second": round(state.examples / state.seconds, 2),
        "tokens_per_second": round(state.tokens / state.seconds, 1),
    }


def _evaluate(hooks: Hooks, state: TrainingState) -> None:
    """Scores, and keeps the weights if they are the best so far."""
    evaluation = hooks.on_evaluate(state.step)
    if state.has_best and not _is_new_best(evaluation, hooks, state):
        state.since_better += 1
        return
    hooks.on_better(state.step)
    state.best_step = state.step
    state.best_value = evaluation.value
    state.best_loss = evaluation.loss
    state.since_better = 0


def _is_new_best(evaluation: Evaluation, hooks: Hooks, state: TrainingState) -> bool:
    """Returns whether the weights are better than the best so far.

    Of equal values, the one with the lower loss is better if `hooks.breaks_ties`, else the earlier
    one.
    """
    if hooks.breaks_ties and evaluation.value == state.best_value:
        return evaluation.loss < state.best_loss
    return hooks.is_better(evaluation.value, state.best_value)


def _share_of_work(step: int, steps: int, between: int, evaluation_cost: float) -> float:
    """Returns the share of the work that is done after a step and before its evaluation.

    Args:
        step: The step, from 1.
        steps: Of the whole run.
        between: Steps from one evaluation to the next.
        evaluation_cost: Of an evaluation, in steps.
    """
    evaluations = math.ceil(steps / between)
    evaluations_done = (step - 1) // between
    work_done = step + evaluation_cost * evaluations_done
    return work_done / (steps + evaluation_cost * evaluations)


def _for_bar(figures: Mapping[str, float]) -> dict[str, float | str]:
    """Returns the figures of a step that a progress bar shows, by their labels."""
    return {
        "loss": f"{figures['loss']:.4f}",
        "learning rate": f"{figures['learning_rate']:.2e}",
        "examples/s": figures["examples_per_second"],
        "tokens/s": figures["tokens_per_second"],
    }


def _exploded(state: TrainingState) -> bool:
    """Returns whether the last losses are many times as large as the first ones.

    First losses below 1 count as 1, so that the noise of a small loss is no explosion. The first
    and the last losses must not overlap.
    """
    if state.step < _N_FIRST_LOSSES + _N_LAST_LOSSES:
        return False
    first_mean = float(np.mean(state.first_losses))
    last_mean = float(np.mean(state.last_losses))
    return last_mean > _EXPLODED * max(1.0, first_mean)


def _diverged(
    state: TrainingState, loss: float, norm: float, rate: float, ids: Sequence[str]
) -> DivergedError:
    """Returns the error for a training that diverged in the step after `state.step`.

    Args:
        state: Before the step.
        loss: Of the step.
        norm: Of its gradient, before clipping.
        rate: Its learning rate.
        ids: Of the examples of its batch; the message has the first 8.
    """
    if not math.isfinite(loss):
        message = f"the loss is {loss}"
    elif not math.isfinite(norm):
        message = f"the gradient's norm is {norm}"
    else:
        last_mean = f"{np.mean(state.last_losses):.3g}"
        first_mean = f"{np.mean(state.first_losses):.3g}"
        message = f"the last losses are {last_mean} on average, the first ones were {first_mean}"
    visible_ids = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    return DivergedError(
        f"training diverged at step {state.step + 1}: {message} (learning rate {rate:.2e}; batch "
        f"with ids {visible_ids})",
        remedy="Try a lower `optimizer.learning_rate=`, a longer warm-up "
        "(`optimizer.warmup_fraction=0.2`) or `runtime.precision=fp32`; look at those examples.",
    )
