"""A time limit for a run.

How many steps fit is measured while it trains, and planned anew as the pace changes.

The time that is left pays for the steps, for the evaluations between them, and for what comes after
the last step: the last evaluation, the other splits, the files (`run_costs.py`). From these costs
and the pace of the steps, `step_planner.py` computes how many steps fit.

Looks at the clock become more frequent towards the end. A plan that would miss the limit by less
than can be measured stays, so a quiet machine changes it a few times in its first steps and then
hardly ever. Each change is written down (`TrainingState.plan_changes`). The first process decides,
the others follow.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertctl.config.recipe_sections import TrainingSection
from bertctl.config.task_names import PRETRAINING
from bertctl.progress import Listener
from bertctl.run_documents.performance_document import TimeLimitUse
from bertctl.runtime.batching import Plan
from bertctl.training.loop.loop import StepPlan, TrainingState, plan_epoch
from bertctl.training.loop.optim import change_steps
from bertctl.training.run_costs import RunWork, guessed_costs
from bertctl.training.step_planner import FEW_STEPS, FEWEST_MEASURED, Planner
from bertctl.training.timed_scoring import time_scoring
from bertctl.words import count, floor_to_tenth, human_seconds, seconds_in

if TYPE_CHECKING:
    from bertctl.training.job import Job
    from bertctl.training.loop.training_engine import TrainingEngine

_SAMPLE_SHARE = 0.01
"""Share of the limit that may be spent on timing the evaluation of a few rows."""
_FEWEST_SAMPLED = 8  # rows
_MOST_SAMPLED = 256


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
        self._work = RunWork(job)
        self._planner = Planner(
            self._limit,
            whole_steps=job.steps,
            evaluate_every=job.recipe.training.evaluate_every or job.steps_per_epoch,
            costs=guessed_costs(job, self._work),
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
        is_reliable = self._planner.steps_seen >= FEWEST_MEASURED or steps != self.steps
        is_small_change = abs(steps - self.steps) <= max(FEW_STEPS, self.steps // 4)
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
        # The run takes no further step. It ends `overrun` seconds after the limit, and the limit is
        # `time_left` seconds from now.
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
        if self._planner.costs.is_measured or self._planner.steps_seen < FEWEST_MEASURED:
            return False
        is_first_time = self._sampled_at == 0
        middle = self.steps // 2
        # A middle close to the first sample would tell nothing new. After the second sample, in the
        # middle or later, this is false, so that there is no third one.
        is_far_from_last_sample = middle > 2 * self._sampled_at
        is_halfway = state.step >= middle and is_far_from_last_sample
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
