"""A time limit for a run.

How many steps fit is measured while it trains, and planned anew as the pace changes.

The time that is left pays for the steps, for the evaluations between them, and for what comes after
the last step: the last evaluation, the other splits, the files. A step is counted by the work in
its batch (padded tokens, and their pairs in the attention), as batches of short texts take less
time. The pace is that of the latest steps, as many as are left: far from the end that is a long
mean, near the end it follows the machine.

Looks at the clock become more frequent towards the end. A plan that would miss the limit by less
than can be measured stays, so a quiet machine changes it a few times in its first steps and then
hardly ever. Each change is written down (`TrainingState.plan_changes`). The first process decides,
the others follow.
"""

import json
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Floats, Ints
from bertctl.config.recipe_sections import TrainingSection
from bertctl.config.task_names import PRETRAINING
from bertctl.modeling.families import model_sizes
from bertctl.progress import Listener
from bertctl.run_documents.performance_document import TimeLimitUse
from bertctl.runtime.batching import Plan
from bertctl.training.loop.loop import StepPlan, TrainingState, plan_epoch
from bertctl.training.loop.optim import change_steps
from bertctl.training.timed_scoring import time_scoring
from bertctl.words import count, floor_to_tenth, human_seconds, seconds_in

if TYPE_CHECKING:
    from bertctl.training.job import Job
    from bertctl.training.loop.training_engine import TrainingEngine

_RESERVE_SHARE = 0.01
"""Share of the limit that is left free, for what no measurement shows."""
_LARGEST_RESERVE = 2.0  # seconds
_NEGLIGIBLE_SHARE = 0.004
"""Share of the limit by which a plan may miss it without being changed."""
_STEP_NOISE = 0.5
"""Scatter of the time of a unit of work from step to step, as a share; the mean of n steps has 1 /
sqrt(n) of it."""
_MOST_MEASURED = 5_000  # steps
_FEWEST_OF_PACE = 8
"""Steps by which a pace is measured at least."""
_FEWEST_MEASURED = 4
"""Steps before the first plan, where there is time for more than a few."""
_FEW_STEPS = 10
_SHARE_OF_FIRST_STEP = 0.25
"""Guess of a later step's time as a share of the first one's, which makes kernels and loads
libraries."""
_WORK_OF_SCORING = 1 / 3
"""Time for a token that is scored, as a share of that for one that is trained on: there is no
backward pass."""
_SAMPLE_SHARE = 0.01
"""Share of the limit that may be spent on timing the evaluation of a few rows."""
_FEWEST_SAMPLED = 8  # rows
_MOST_SAMPLED = 256
_BYTES_PER_SECOND = 250e6
"""Guess of how fast weights are written and hashed, until it is measured."""
_LEAST_CLOSING = 0.5  # seconds
_CLOSING_SHARE_OF_LOADING = 0.4
"""Time of reports, tables and the end of the process, as a share of that of loading the model: on a
busy machine both take longer."""
_MOST_BATCHES = 20_000
"""Batches of an epoch whose work is computed; the others are like them."""

_USUAL_WIDTH = 768
"""Width of an encoder whose config.json has none."""


@dataclass(frozen=True)
class TimeLimitOutcome:
    """What a time limit did to a run.

    Attributes:
        limit: As it was given, such as `20m`.
        steps: Steps that were taken.
        whole_steps: Steps of the whole run.
        epochs: Epochs that were trained, in tenths.
        whole_epochs: Epochs of the whole run.
        whole_seconds: Estimated seconds of the whole run.
        used_seconds: Seconds that were used so far.
        plan_changes: See `TrainingState`.
        is_cut: Whether the limit ended the run before its last step.
    """

    limit: str
    steps: int
    whole_steps: int
    epochs: float
    whole_epochs: int
    whole_seconds: float
    used_seconds: float
    plan_changes: tuple[tuple[int, int], ...]
    is_cut: bool

    @property
    def sentence(self) -> str:
        """The outcome of a run that was cut, for people."""
        whole_time = human_seconds(self.whole_seconds, brief=True)
        return (
            f"stopped at {self.epochs:g} of {count(self.whole_epochs, 'epoch')} by the time limit "
            f"of {self.limit} (step {self.steps:,} of {self.whole_steps:,}); the whole run would "
            f"take about {whole_time}"
        )

    def for_metrics(self) -> dict[str, Any]:
        """Returns what metrics.json has of it: only what follows from the number of steps.

        Measured seconds differ between runs with the same numbers, and are in performance.json.
        """
        return {
            "limit": self.limit,
            "steps": self.steps,
            "whole_steps": self.whole_steps,
            "epochs": self.epochs,
            "whole_epochs": self.whole_epochs,
        }

    def for_performance(self) -> TimeLimitUse:
        """Returns what performance.json has of it."""
        return TimeLimitUse(
            seconds=seconds_in(self.limit),
            used_seconds=round(self.used_seconds, 3),
            whole_seconds=round(self.whole_seconds, 1),
            plan_changes=[list(change) for change in self.plan_changes],
        )


@dataclass
class RunCosts:
    """What a run costs beside its training steps: guesses, until something was measured.

    Work is counted in units of training: an evaluation of work 5 takes as long as training batches
    of work 5.

    Attributes:
        scoring_work: Work of scoring the selection split.
        saving_seconds: Seconds of saving the weights, where an evaluation is the best one.
        others_share: Work of scoring the other splits, as a share of `scoring_work`.
        closing_seconds: Seconds after the last scoring: the last checkpoint, intervals, files, the
            end.
        scorings_at_end: How many times the selection split is scored after the last evaluation.
        evaluation_work: Work of an evaluation with all that belongs to it, once it was measured.
    """

    scoring_work: float
    saving_seconds: float = 0.0
    others_share: float = 0.0
    closing_seconds: float = 0.0
    scorings_at_end: int = 0
    evaluation_work: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether an evaluation was measured."""
        return self.evaluation_work is not None

    def note_evaluation(self, seconds: float, scoring_seconds: float, pace: float) -> None:
        """Notes the costs of an evaluation that was measured.

        Args:
            seconds: Of the whole evaluation, with saving the weights.
            scoring_seconds: Of the scoring alone.
            pace: Present seconds of a unit of work.
        """
        self.evaluation_work = seconds / pace
        self.scoring_work = scoring_seconds / pace

    def evaluation(self, pace: float) -> float:
        """Returns the seconds of an evaluation, at a pace (seconds for a unit of work)."""
        if self.evaluation_work is not None:
            return pace * self.evaluation_work
        return pace * self.scoring_work + self.saving_seconds

    def closing(self, pace: float) -> float:
        """Returns the seconds after the last evaluation, at a pace."""
        scoring = pace * self.scoring_work
        return scoring * (self.others_share + self.scorings_at_end) + self.closing_seconds


class Planner:
    """Number of steps with which a run ends in time: arithmetic alone, the clock is its caller's.

    Call `begin_epoch` with the work of an epoch's batches, then `note_step` after each step.

    Args:
        limit: Seconds of the limit.
        whole_steps: Steps of the whole run.
        evaluate_every: Steps from one evaluation to the next.
        costs: Costs beside the steps.

    Attributes:
        costs: The same; updated by whoever measures them.
        steps_seen: Steps that were noted since the command began.
    """

    def __init__(
        self, limit: float, *, whole_steps: int, evaluate_every: int, costs: RunCosts
    ) -> None:
        self.costs = costs
        self.steps_seen = 0
        self._limit = limit
        # Seconds that are planned with: a little less than the limit, as a reserve.
        self._target = limit - min(_RESERVE_SHARE * limit, _LARGEST_RESERVE)
        self._whole_steps = whole_steps
        self._evaluate_every = evaluate_every
        # "Work" is what the time of a batch is proportional to; see `_Work`. This is the (B + 1,)
        # work of the first 0, 1, ..., B batches of the epoch together. `begin_epoch` replaces the
        # values, which are those of an epoch of one batch.
        self._work_before: Floats = np.array([0.0, 1.0])
        # Seconds and work of each step, but the first one, which is slower.
        self._measured: deque[tuple[float, float]] = deque(maxlen=_MOST_MEASURED)
        self._first_step = (0.0, 1.0)  # its seconds and work
        self._pace_before: float | None = None  # of the steps before an interruption

    def resume(self, seconds: float, steps: int) -> None:
        """Notes the pace of the steps before an interruption, until new steps are measured.

        Call it after `begin_epoch`, which tells the work of these steps.

        Args:
            seconds: Of all these steps.
            steps: Their number.
        """
        if steps:
            self._pace_before = seconds / self._work_between(0, steps)

    def begin_epoch(self, work: Floats) -> None:
        """Notes the (B,) work of the batches of the epoch that begins.

        All other epochs are assumed to be like it.
        """
        self._work_before = np.concatenate([[0.0], np.cumsum(work)])

    def note_step(self, seconds: float, position: int) -> None:
        """Notes the seconds of a step.

        Args:
            seconds: Of the step.
            position: Batches of the epoch that are done, the step's batch included.
        """
        work = float(self._work_before[position] - self._work_before[position - 1])
        self.steps_seen += 1
        if self.steps_seen == 1:
            self._first_step = (seconds, work)
        else:
            self._measured.append((seconds, work))

    def pace(self, steps: int = 0) -> float:
        """Returns the seconds that a unit of work takes, by the latest steps that were measured.

        The work of a step is the size of its batch, as `begin_epoch` received it. The first step
        is slower and doesn't count. Before a second step was measured, the pace before an
        interruption is returned, or a guess from the first step.

        Args:
            steps: How many of the latest steps count; at least `_FEWEST_OF_PACE` do.
        """
        if not self._measured:
            if self._pace_before is not None:
                return self._pace_before
            seconds, work = self._first_step
            return _SHARE_OF_FIRST_STEP * seconds / work

        n_latest = min(len(self._measured), max(_FEWEST_OF_PACE, steps))
        latest = islice(reversed(self._measured), n_latest)
        seconds, work = np.sum(list(latest), axis=0)
        return float(seconds / work)

    def seconds_until(self, step: int, last: int, pace: float) -> float:
        """Returns the seconds from the end of a step to the end of the run.

        Args:
            step: Steps that were taken; its evaluation is still to come.
            last: The run's last step.
            pace: Seconds of a unit of work.
        """
        # An evaluation is due after each step from `step` on that is a multiple of
        # `evaluate_every`, and after the last step.
        evaluations = 1 + (last - 1) // self._evaluate_every - (step - 1) // self._evaluate_every
        training = pace * self._work_between(step, last)
        return training + evaluations * self.costs.evaluation(pace) + self.costs.closing(pace)

    def whole_seconds(self, step: int, used: float) -> float:
        """Returns the seconds that the run would take without a limit.

        Args:
            step: Steps that were taken.
            used: Seconds that were used so far.
        """
        return used + self.seconds_until(step, self._whole_steps, self.pace(_MOST_MEASURED))

    def overrun(self, step: int, used: float) -> float:
        """Returns by how many seconds a run that ends with this step misses the limit.

        Negative if it ends in time.

        Args:
            step: Steps that were taken.
            used: Seconds that were used so far.
        """
        return used + self.seconds_until(step, step, self.pace()) - self._limit

    def fitting_steps(self, step: int, planned: int, used: float) -> int:
        """Returns how many steps the run should have: as planned, if that ends near the limit.

        Args:
            step: Steps that were taken.
            planned: Present number of steps.
            used: Seconds that were used so far.
        """
        pace = self.pace(planned - step)
        time_left = self._target - used
        steps = self._most_steps_in(time_left, step, pace)
        is_too_early = self.steps_seen < _FEWEST_MEASURED and steps - step > _FEW_STEPS
        if is_too_early:
            return planned

        planned_seconds = self.seconds_until(step, planned, pace)
        # Half a standard error of the pace: a smaller miss can't be told from noise.
        noise = 0.5 * _STEP_NOISE / math.sqrt(self.steps_seen) * planned_seconds
        tolerance = max(_NEGLIGIBLE_SHARE * self._limit, noise)
        is_close_enough = abs(planned_seconds - time_left) <= tolerance
        return planned if is_close_enough else steps

    def next_check(self, step: int, planned: int) -> int:
        """Returns the step after which the plan is checked again.

        At first the intervals grow with the steps that were measured. Later each is a quarter of
        the steps that are left, so they shrink towards the end.

        Args:
            step: Steps that were taken.
            planned: Present number of steps.
        """
        quarter = (planned - step) // 4
        return step + max(1, min(self.steps_seen, quarter))

    def _most_steps_in(self, time_left: float, step: int, pace: float) -> int:
        """Returns the largest number of steps with which the run ends in time.

        If no further step fits, it is `step`.

        Args:
            time_left: Seconds from now to the end of the run.
            step: Steps that were taken.
            pace: Seconds of a unit of work.
        """
        # Bisection: more steps always take longer.
        lowest = step
        highest = self._whole_steps
        while lowest < highest:
            middle = (lowest + highest + 1) // 2
            if self.seconds_until(step, middle, pace) <= time_left:
                lowest = middle
            else:
                highest = middle - 1
        return lowest

    def _work_between(self, step: int, last: int) -> float:
        """Returns the work of the steps after `step`, up to `last`."""
        per_epoch = len(self._work_before) - 1

        def work_until(number: int) -> float:
            """Returns the work of the first `number` steps, in epochs like this one."""
            epochs, batches = divmod(number, per_epoch)
            return float(epochs * self._work_before[-1] + self._work_before[batches])

        return work_until(last) - work_until(step)


class TimeLimitedSteps(StepPlan):
    """Number of steps that fit into the time limit of a run, planned anew while it trains.

    It measures steps and evaluations by the clock, and a `Planner` computes the number from them.

    Args:
        job: The run, made ready.
        engine: Network, optimizer and schedule; the schedule follows the plan.
        used_seconds: Returns the seconds that the command has used so far, in this process.
        scoring_seconds: Returns the seconds that went into scoring so far.
        listener: Receives the plan and what is wrong with it.
    """

    def __init__(
        self,
        job: "Job",
        engine: "TrainingEngine",
        *,
        used_seconds: Callable[[], float],
        scoring_seconds: Callable[[], float],
        listener: Listener,
    ) -> None:
        super().__init__(job.steps)
        self._job = job
        self._engine = engine
        self._workers = engine.workers
        self._listener = listener
        self._used_here = used_seconds
        self._used_before = 0.0  # by commands that were interrupted
        self._scoring_seconds = scoring_seconds
        self._limit_text = job.recipe.training.time_limit or ""
        self._limit = seconds_in(self._limit_text)
        self._work = _Work(job)
        self._planner = Planner(
            self._limit,
            whole_steps=job.steps,
            evaluate_every=job.recipe.training.evaluate_every or job.steps_per_epoch,
            costs=_guessed_costs(job, self._work),
        )
        self._mark = time.perf_counter()  # when the present step or evaluation began
        self._scored_before = 0.0  # seconds of scoring until the last evaluation
        self._next_check = 0  # step
        self._sampled_at = 0  # step where scoring was timed on a sample last
        self._is_announced = False
        self._is_warned = False

    def resume(self, state: TrainingState) -> None:
        """Takes the plan and the time that a run had used before it was interrupted."""
        self._used_before = state.clock_seconds
        if state.plan_changes:
            self.steps = state.plan_changes[-1][1]
        self.begin_epoch(plan_epoch(self._job.recipe, self._job.training_features, state.epoch))
        self._planner.resume(state.seconds, state.step)

    def begin_epoch(self, batches: Plan) -> None:
        """Computes the work of the batches of an epoch."""
        self._planner.begin_epoch(self._work.of_batches(batches))
        self._mark = time.perf_counter()

    def after_step(self, state: TrainingState) -> None:
        """Notes the seconds of a step, and plans the number of steps anew if a check is due.

        A new number is noted in `state.plan_changes`, and the learning rate's schedule follows it.
        """
        now = time.perf_counter()
        self._planner.note_step(now - self._mark, state.position)
        self._mark = now
        state.clock_seconds = self._used()

        is_check_due = self._next_check <= state.step < self._job.steps
        if not is_check_due:
            return
        if self._is_sample_due(state):
            self._sample_scoring(state)
        steps, self._next_check = self._decide(state)
        if steps != self.steps:
            state.plan_changes = [*state.plan_changes, (state.step, steps)]
            change_steps(self._engine.schedule, at=state.step, steps=steps)
            self.steps = steps
        self._mark = time.perf_counter()

    def after_evaluation(self, state: TrainingState) -> None:
        """Notes how long the evaluation that just ended took, and how long the scoring in it.

        An evaluation also saves the weights if they are the best so far.
        """
        now = time.perf_counter()
        scoring_seconds = self._scoring_seconds()  # of all evaluations so far
        self._planner.costs.note_evaluation(
            now - self._mark, scoring_seconds - self._scored_before, self._planner.pace()
        )
        self._scored_before = scoring_seconds
        self._mark = now  # the next step begins
        state.clock_seconds = self._used()

    def outcome(self, state: TrainingState) -> TimeLimitOutcome:
        """Returns what the limit did, once the run is trained."""
        used = self._used()
        return TimeLimitOutcome(
            limit=self._limit_text,
            steps=state.step,
            whole_steps=self._job.steps,
            epochs=floor_to_tenth(state.step / self._job.steps_per_epoch),
            whole_epochs=self._job.epochs,
            whole_seconds=self._planner.whole_seconds(state.step, state.clock_seconds),
            used_seconds=used,
            plan_changes=tuple(state.plan_changes),
            is_cut=state.step < self._job.steps and not state.stopped_early,
        )

    def _used(self) -> float:
        """Returns the seconds of the limit that were used, by interrupted commands as well."""
        return self._used_before + self._used_here()

    def _decide(self, state: TrainingState) -> tuple[int, int]:
        """Returns the number of steps of the run, and the step after which that is checked again.

        The first process decides, as the clocks of the processes differ, and tells the others.
        """
        decision = ""
        if self._workers.is_first:
            steps = self._planner.fitting_steps(state.step, self.steps, self._used())
            self._announce(steps, state)
            decision = json.dumps([steps, self._planner.next_check(state.step, steps)])
        steps, next_check = json.loads(self._workers.share(decision))
        return int(steps), int(next_check)

    def _announce(self, steps: int, state: TrainingState) -> None:
        """Reports how many steps fit into the limit, or warns that the limit is too short.

        The number is reported once a few steps were measured, and again if it changes by more than
        a quarter. The warning is for a run that must stop now and will still be clearly late, as
        the last scoring and the files take time, too.

        Args:
            steps: The new plan: number of steps of the run. `self.steps` is the present one.
            state: Of the training.
        """
        used = self._used()
        no_step_fits = steps == state.step
        if no_step_fits and self._planner.overrun(state.step, used) > 0.05 * self._limit:
            self._warn_too_short(state, used)
            return
        # Before a few steps were measured, the planner changes a plan only if hardly any step fits.
        is_reliable = self._planner.steps_seen >= _FEWEST_MEASURED or steps != self.steps
        is_small_change = abs(steps - self.steps) <= max(_FEW_STEPS, self.steps // 4)
        if not is_reliable or (self._is_announced and is_small_change):
            return

        self._is_announced = True
        whole_time = human_seconds(self._planner.whole_seconds(state.step, used), brief=True)
        if steps == self._job.steps:
            self._listener.say(
                f"time limit {self._limit_text}: the whole run fits, it takes about {whole_time}"
            )
            return
        epochs = floor_to_tenth(steps / self._job.steps_per_epoch)
        self._listener.say(
            f"time limit {self._limit_text}: about {steps:,} of {self._job.steps:,} steps fit "
            f"({epochs:g} of {count(self._job.epochs, 'epoch')}); the whole run would take about "
            f"{whole_time}"
        )

    def _warn_too_short(self, state: TrainingState, used: float) -> None:
        """Warns, once in a run, that the end will be later than the limit.

        Args:
            state: Of the training.
            used: Seconds of the limit that were used.
        """
        if self._is_warned:
            return
        self._is_warned = True
        # The run ends now: what it takes until its end is the overrun and the time that is left.
        time_left = self._limit - used
        closing = self._planner.overrun(state.step, used) + time_left
        self._listener.warn(
            f"the time limit of {self._limit_text} is too short: {human_seconds(used)} are used "
            f"after {count(state.step, 'step')}, and scoring and writing take about "
            f"{human_seconds(closing)} more"
        )

    def _is_sample_due(self, state: TrainingState) -> bool:
        """Returns whether the scoring of a sample should be timed now.

        It is timed after a few steps, and again once the run has come from there to the middle of
        the plan. When an evaluation was measured, no sample is needed any more.
        """
        if self._planner.costs.is_measured or self._planner.steps_seen < _FEWEST_MEASURED:
            return False
        is_first_time = self._sampled_at == 0
        middle = self.steps // 2
        # A middle close to the first sample would tell nothing new.
        is_halfway = state.step >= middle > 2 * self._sampled_at
        return is_first_time or is_halfway

    def _sample_scoring(self, state: TrainingState) -> None:
        """Times the scoring of a few rows, to know before the last step what comes after it.

        The first process decides how many, and the others follow. Where the sample would be too
        small, nothing is timed. Pretraining has no sample.
        """
        self._sampled_at = state.step
        n_rows = 0
        if self._workers.is_first and self._job.recipe.task != PRETRAINING:
            rows_in_split = len(self._job.data.splits[self._job.selection])
            seconds_of_row = self._planner.pace() * self._planner.costs.scoring_work / rows_in_split
            n_rows = min(_MOST_SAMPLED, int(_SAMPLE_SHARE * self._limit / seconds_of_row))
        n_rows = int(self._workers.share(str(n_rows)))
        if n_rows >= _FEWEST_SAMPLED:
            seconds = self._time_scoring(n_rows)
            self._planner.costs.scoring_work = seconds / self._planner.pace()

    def _time_scoring(self, n_rows: int) -> float:
        """Returns the seconds of scoring the selection split, extrapolated from a sample of rows.

        Args:
            n_rows: Size of the sample.
        """
        job = self._job
        sample, seconds = time_scoring(job, n_rows, workers=self._workers, choose=True)
        whole_work = self._work.of_rows(job.features[job.selection].lengths)
        return seconds * whole_work / self._work.of_rows(sample.features.lengths)


class _Work:
    """Work of batches and rows: padded tokens, and their pairs as the attention computes them."""

    def __init__(self, job: "Job") -> None:
        self._lengths = job.training_features.lengths
        self._padding = job.loaded.padding
        self._parts = job.recipe.training.accumulation_steps
        self._hidden_size = model_sizes(job.source.config)["hidden"] or _USUAL_WIDTH

    def of_batches(self, batches: Plan) -> Floats:
        """Returns the (B,) work of training batches.

        Only the first of very many are computed; the others count as their mean.
        """
        computed = np.array([self._of_batch(batch) for batch in batches[:_MOST_BATCHES]])
        assumed = np.full(len(batches) - len(computed), computed.mean())
        return np.concatenate([computed, assumed])

    def of_rows(self, lengths: Any) -> float:
        """Returns the work of training on rows of these lengths, without padding."""
        widths = np.asarray(lengths, dtype=np.float64)
        return float(self._of_width(widths).sum())

    def _of_batch(self, batch: Ints) -> float:
        """Returns the work of a batch, padded in each of its micro-batches."""
        parts = [part for part in np.array_split(batch, self._parts) if len(part)]
        shapes = [self._padding.mask(self._lengths[part]).shape for part in parts]
        return float(sum(rows * self._of_width(width) for rows, width in shapes))

    def _of_width(self, width: Any) -> Any:
        """Returns the work of a row of `width` tokens, or of an array of them: tokens, and pairs.

        The unit is a token without its share of attention. A layer takes 24 d^2 operations for a
        token of d numbers, and 4 d for a pair of tokens. So a pair counts as 1 / (6 d) tokens.
        """
        return width * (1.0 + width / (6.0 * self._hidden_size))


def _guessed_costs(job: "Job", work: _Work) -> RunCosts:
    """Returns what a run costs beside its steps, guessed before anything was measured.

    Args:
        job: Made ready.
        work: Measures rows in units of training.
    """
    training = job.recipe.training
    selected = work.of_rows(job.features[job.selection].lengths)
    # These are scored once, with the final weights.
    other_splits = [split for split in job.evaluated if split != job.selection]
    other_work = sum(work.of_rows(job.features[split].lengths) for split in other_splits)

    model_bytes = 4 * sum(parameter.numel() for parameter in job.loaded.network.parameters())
    closing = max(_LEAST_CLOSING, _CLOSING_SHARE_OF_LOADING * job.seconds.get("load", 0.0))
    if training.checkpoint_every == "off":
        checkpoint_bytes = 0
    else:
        checkpoint_bytes = job.checkpoint_size
    return RunCosts(
        scoring_work=_WORK_OF_SCORING * max(1.0, selected),
        saving_seconds=model_bytes / _BYTES_PER_SECOND,
        others_share=other_work / max(1.0, selected),
        closing_seconds=checkpoint_bytes / _BYTES_PER_SECOND + closing,
        scorings_at_end=1 if training.average_best else 0,
    )


def longer_training(training: TrainingSection, limited: TimeLimitOutcome | None) -> str:
    """Returns the recipe field and its value with which a run like this one trains longer."""
    if limited is not None and limited.is_cut:
        return f"training.time_limit={_as_limit(limited.whole_seconds)}"
    if training.max_steps is not None:
        return f"training.max_steps={2 * training.max_steps}"
    return f"training.epochs={2 * training.epochs}"


def _as_limit(seconds: float) -> str:
    """Returns seconds as a time limit with a tenth to spare: `45s`, `12m` or `3h`."""
    generous = round(1.1 * seconds)
    if generous < 120:
        return f"{generous}s"
    if generous < 2 * 3600:
        return f"{math.ceil(generous / 60)}m"
    return f"{math.ceil(generous / 3600)}h"
