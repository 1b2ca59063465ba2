"""A time limit for a run: how many steps fit is measured while it trains, and planned anew as the pace changes.

The time that is left pays for the steps, for the evaluations between them, and for what comes after the last step: the
last evaluation, the other splits, the files. A step is counted by the work in its batch (padded tokens, and their pairs
in the attention), as batches of short texts take less time. The pace is that of the latest steps, as many as are left:
far from the end that is a long mean, near the end it follows the machine.

Looks at the clock become more frequent towards the end. A plan that would miss the limit by less than can be measured
stays, so a quiet machine changes it a few times in its first steps and then hardly ever. Each change is written down
(`TrainingState.plan_changes`). The first process decides, the others follow.
"""

import json
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Floats
from bertctl.config.task_names import PRETRAINING
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import evaluate_split
from bertctl.progress import SILENT, Listener
from bertctl.runtime.batching import Plan
from bertctl.runtime.launch import Workers
from bertctl.training.loop import StepPlan, TrainingState
from bertctl.training.optim import change_steps
from bertctl.words import count, human_seconds, seconds_in

if TYPE_CHECKING:
    from bertctl.training.job import Job
    from bertctl.training.training_engine import TrainingEngine

_RESERVE_SHARE = 0.01
"""Share of the limit that is left free, for what no measurement shows."""
_LARGEST_RESERVE = 2.0  # seconds
_NEGLIGIBLE_SHARE = 0.004
"""Share of the limit by which a plan may miss it without being changed."""
_STEP_NOISE = 0.5
"""Scatter of the time of a unit of work from step to step, as a share; the mean of n steps has 1 / sqrt(n) of it."""
_FEWEST_MEASURED = 4
"""Steps before the first plan, where there is time for more than a few."""
_FEW_STEPS = 10
_SHARE_OF_FIRST_STEP = 0.25
"""Time of a later step as a share of the first one's, which makes kernels and loads libraries: until one is measured."""
_WORK_OF_SCORING = 1 / 3
"""Time for a token that is scored, as a share of that for one that is trained on: there is no backward pass."""
_SAMPLE_SHARE = 0.01
"""Share of the limit that may be spent on timing the evaluation of a few rows."""
_MOST_SAMPLED = 256  # rows
_BYTES_PER_SECOND = 250e6
"""Guess of how fast weights are written and hashed, until it is measured."""
_SECONDS_OF_CLOSING = 0.6
"""Reports, tables and the end of the process."""
_MOST_BATCHES = 20_000
"""Batches of an epoch whose work is computed; the others are like them."""


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
            f"stopped at {self.epochs:g} of {count(self.whole_epochs, 'epoch')} by the time limit of {self.limit} (step "
            f"{self.steps:,} of {self.whole_steps:,}); the whole run would take about {whole_time}"
        )

    def for_metrics(self) -> dict[str, Any]:
        """Returns what metrics.json has of it: nothing that another clock would change for the same plan."""
        return {
            "limit": self.limit,
            "steps": self.steps,
            "whole_steps": self.whole_steps,
            "epochs": self.epochs,
            "whole_epochs": self.whole_epochs,
        }

    def for_performance(self) -> dict[str, Any]:
        """Returns what performance.json has of it."""
        return {
            "seconds": seconds_in(self.limit),
            "used_seconds": round(self.used_seconds, 3),
            "whole_seconds": round(self.whole_seconds, 1),
            "plan_changes": [list(change) for change in self.plan_changes],
        }


class TimeLimitedSteps(StepPlan):
    """Number of steps that fit into the time limit of a run.

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
        self._workers: Workers = engine.workers
        self._listener = listener
        self._used_here = used_seconds
        self._used_before = 0.0
        self._scoring_seconds = scoring_seconds

        self._limit_text = job.recipe.training.time_limit or ""
        self._limit = seconds_in(self._limit_text)
        self._target = self._limit - min(_RESERVE_SHARE * self._limit, _LARGEST_RESERVE)
        self._every = job.recipe.training.evaluate_every or job.steps_per_epoch

        self._work_ahead: Floats = np.zeros(1)  # (B + 1,) work of the first batches of this epoch
        self._measured: deque[tuple[float, float]] = deque(maxlen=5_000)  # seconds and work of steps
        self._first_step: tuple[float, float] | None = None
        self._steps_seen = 0
        self._mark = time.perf_counter()
        self._next_check = 0
        self._is_announced = False
        self._is_warned = False
        self._sampled_scoring: float | None = None
        self._costs = _Costs(job)

    def resume(self, state: TrainingState) -> None:
        """Takes the plan and the time that a run had used before it was interrupted."""
        self._used_before = state.clock_seconds
        if state.plan_changes:
            self.steps = state.plan_changes[-1][1]
        self._next_check = state.step

    def begin_epoch(self, batches: Plan) -> None:
        """Computes the work of the batches of an epoch."""
        computed = np.array([self._costs.work_of(batch) for batch in batches[:_MOST_BATCHES]])
        missing = len(batches) - len(computed)
        work = np.concatenate([computed, np.full(missing, computed.mean())])
        self._work_ahead = np.concatenate([[0.0], np.cumsum(work)])
        self._mark = time.perf_counter()

    def after_step(self, state: TrainingState) -> None:
        """Notes what the step took and, where a look at the clock is due, plans the number of steps anew."""
        now = time.perf_counter()
        work = float(self._work_ahead[state.position] - self._work_ahead[state.position - 1])
        self._note_step(now - self._mark, work)
        self._mark = now
        state.clock_seconds = self._used()

        if state.step < self._next_check or state.step >= self._job.steps:
            return
        if self._sampled_scoring is None and self._steps_seen >= 2:
            self._sample_scoring()
        steps, next_check = self._decide(state)
        self._next_check = next_check
        if steps != self.steps:
            state.plan_changes = [*state.plan_changes, (state.step, steps)]
            change_steps(self._engine.schedule, at=state.step, steps=steps)  # type: ignore[arg-type]
            self.steps = steps
        self._mark = time.perf_counter()

    def after_evaluation(self, state: TrainingState) -> None:
        """Notes what the evaluation took."""
        now = time.perf_counter()
        self._costs.note_evaluation(now - self._mark, self._scoring_seconds(), self._pace(1))
        self._mark = now
        state.clock_seconds = self._used()

    def outcome(self, state: TrainingState) -> TimeLimitOutcome:
        """Returns what the limit did, once the run is trained."""
        whole_seconds = self._used() + self._seconds_until(state.step, self._job.steps, self._pace(len(self._measured)))
        return TimeLimitOutcome(
            limit=self._limit_text,
            steps=state.step,
            whole_steps=self._job.steps,
            epochs=_in_tenths(state.step / self._job.steps_per_epoch),
            whole_epochs=self._job.epochs,
            whole_seconds=whole_seconds,
            used_seconds=self._used(),
            plan_changes=tuple(state.plan_changes),
            is_cut=state.step < self._job.steps and not state.stopped_early,
        )

    def _used(self) -> float:
        return self._used_before + self._used_here()

    def _note_step(self, seconds: float, work: float) -> None:
        """Notes the time of a step. The first one makes its kernels, and is counted only while there is no other."""
        self._steps_seen += 1
        if self._first_step is None:
            self._first_step = (seconds, work)
            return
        self._measured.append((seconds, work))

    def _pace(self, steps: int) -> float:
        """Returns the seconds of a unit of work, by the latest steps: so many, but no fewer than eight."""
        if not self._measured:
            seconds, work = self._first_step or (0.0, 1.0)
            return _SHARE_OF_FIRST_STEP * seconds / work
        latest = list(self._measured)[-max(8, steps) :]
        total_seconds = sum(seconds for seconds, _ in latest)
        total_work = sum(work for _, work in latest)
        return total_seconds / total_work

    def _work_between(self, step: int, last: int) -> float:
        """Returns the work of the steps after `step`, up to `last`; epochs to come are like this one."""
        per_epoch = len(self._work_ahead) - 1
        whole_epochs, batches = divmod(last, per_epoch)
        epochs_done, batches_done = divmod(step, per_epoch)
        epoch_work = self._work_ahead[-1]
        until_last = whole_epochs * epoch_work + self._work_ahead[batches]
        until_now = epochs_done * epoch_work + self._work_ahead[batches_done]
        return float(until_last - until_now)

    def _seconds_until(self, step: int, last: int, pace: float) -> float:
        """Returns the seconds from the end of a step to the end of a run that ends with the step `last`."""
        evaluations_before = (last - 1) // self._every - (step - 1) // self._every
        training = pace * self._work_between(step, last)
        evaluating = (evaluations_before + 1) * self._costs.evaluation(pace, self._sampled_scoring)
        return training + evaluating + self._costs.closing(pace, self._sampled_scoring)

    def _decide(self, state: TrainingState) -> tuple[int, int]:
        """Returns the number of steps, and the step of the next look at the clock: as the first process sees it."""
        decision = ""
        if self._workers.is_first:
            steps = self._fitting_steps(state)
            seen = max(1, self._steps_seen)
            pause = max(1, min(seen, (steps - state.step) // 4))
            decision = json.dumps([steps, state.step + pause])
        steps, next_check = json.loads(self._workers.share(decision))
        return int(steps), int(next_check)

    def _fitting_steps(self, state: TrainingState) -> int:
        """Returns how many steps the run should have: the present number unless that misses the limit."""
        step = state.step
        pace = self._pace(self.steps - step)
        time_left = self._target - self._used()
        planned_seconds = self._seconds_until(step, self.steps, pace)
        steps = self._most_steps_in(time_left, step, pace)

        is_early = self._steps_seen < _FEWEST_MEASURED and steps - step > _FEW_STEPS
        if is_early:
            return self.steps
        noise = _STEP_NOISE / math.sqrt(self._steps_seen) * planned_seconds / 2
        is_close_enough = abs(planned_seconds - time_left) <= max(_NEGLIGIBLE_SHARE * self._limit, noise)
        if is_close_enough:
            steps = self.steps
        self._announce(steps, state, pace, is_too_short=steps == step and planned_seconds > time_left)
        return steps

    def _most_steps_in(self, time_left: float, step: int, pace: float) -> int:
        """Returns the largest number of steps with which the run ends in time; the present step if none is left."""
        fewest = step
        most = self._job.steps
        while fewest < most:
            middle = (fewest + most + 1) // 2
            if self._seconds_until(step, middle, pace) <= time_left:
                fewest = middle
            else:
                most = middle - 1
        return fewest

    def _announce(self, steps: int, state: TrainingState, pace: float, *, is_too_short: bool) -> None:
        """Says what fits into the limit; once, and again where that changes by more than a tenth."""
        closing = self._seconds_until(state.step, state.step, pace)
        misses = self._used() + closing - self._limit
        if is_too_short and misses > 0.05 * self._limit and not self._is_warned:
            self._is_warned = True
            self._listener.warn(
                f"the time limit of {self._limit_text} is too short: {human_seconds(self._used())} are used after "
                f"{count(state.step, 'step')}, and scoring and writing take about {human_seconds(closing)} more"
            )
            return

        is_small_change = abs(steps - self.steps) <= max(_FEW_STEPS, self.steps // 10)
        if self._is_announced and is_small_change:
            return
        whole_seconds = self._used() + self._seconds_until(state.step, self._job.steps, pace)
        whole_time = human_seconds(whole_seconds, brief=True)
        if steps == self._job.steps:
            self._listener.say(f"time limit {self._limit_text}: the whole run fits, it takes about {whole_time}")
        else:
            epochs = _in_tenths(steps / self._job.steps_per_epoch)
            self._listener.say(
                f"time limit {self._limit_text}: about {steps:,} of {self._job.steps:,} steps fit ({epochs:g} of "
                f"{count(self._job.epochs, 'epoch')}); the whole run would take about {whole_time}"
            )
        self._is_announced = True

    def _sample_scoring(self) -> None:
        """Times the evaluation of a few rows, so that what comes after the last step is known before it comes."""
        n_rows = 0
        if self._workers.is_first and self._job.recipe.task != PRETRAINING:
            seconds_of_row = max(self._pace(8) * self._costs.scoring_work_of_row, 1e-9)
            affordable = int(_SAMPLE_SHARE * self._limit / seconds_of_row)
            n_rows = min(affordable, _MOST_SAMPLED)
        n_rows = int(self._workers.share(str(n_rows)))
        if n_rows < 8:
            self._sampled_scoring = self._costs.scoring_work
            return

        seconds, thorough_seconds = self._costs.time_scoring(self._engine, n_rows)
        self._sampled_scoring = seconds / self._pace(8)
        self._costs.thorough_seconds = thorough_seconds


class _Costs:
    """What the parts of a run cost beside its training steps, guessed until they are measured."""

    def __init__(self, job: "Job") -> None:
        self._job = job
        self._lengths = job.features["train"].lengths
        self._hidden_size = int(getattr(job.source.config, "hidden_size", 0) or 768)
        selected = job.features[job.selection].lengths
        self.scoring_work = _WORK_OF_SCORING * float(self._row_work(selected).sum())
        self.scoring_work_of_row = self.scoring_work / max(1, len(selected))
        others = [split for split in job.evaluated if split != job.selection]
        other_work = sum(float(self._row_work(job.features[split].lengths).sum()) for split in others)
        self._others_share = _WORK_OF_SCORING * other_work / max(1.0, self.scoring_work)
        self._rows_share = 1.0 + sum(len(job.data.splits[split]) for split in others) / len(job.data.splits[job.selection])
        self.thorough_seconds = 0.0
        self._measured_work: float | None = None
        self._measured_scoring_work: float | None = None
        self._scoring_seconds_before = 0.0

    def work_of(self, batch: Any) -> float:
        """Returns the work of a training batch: its padded tokens, and their pairs as the attention computes them."""
        parts = np.array_split(batch, self._job.recipe.training.accumulation_steps)
        widths = [self._job.loaded.padding.mask(self._lengths[part]).shape for part in parts if len(part)]
        return sum(rows * self._width_work(width) for rows, width in widths)

    def note_evaluation(self, seconds: float, scoring_seconds: float, pace: float) -> None:
        """Notes what an evaluation took: all of it with the weights that are saved, and the scoring alone."""
        scoring = scoring_seconds - self._scoring_seconds_before
        self._scoring_seconds_before = scoring_seconds
        self._measured_work = seconds / pace
        self._measured_scoring_work = scoring / pace

    def evaluation(self, pace: float, sampled: float | None) -> float:
        """Returns the seconds of an evaluation and of saving its weights, at a pace."""
        if self._measured_work is not None:
            return pace * self._measured_work
        scoring = self.scoring_work if sampled is None else sampled
        saving = self._model_bytes() / _BYTES_PER_SECOND
        return pace * scoring + saving

    def closing(self, pace: float, sampled: float | None) -> float:
        """Returns the seconds after the last evaluation, at a pace: a checkpoint, other splits, files, the end."""
        scoring = self.scoring_work if sampled is None else sampled
        if self._measured_scoring_work is not None:
            scoring = self._measured_scoring_work
        checkpoint = 0.0
        if self._job.recipe.training.checkpoint_every != "off":
            checkpoint = self._job.checkpoint_size / _BYTES_PER_SECOND
        average = 0.0
        if self._job.recipe.training.average_best:
            average = self.evaluation(pace, sampled)
        others = pace * scoring * self._others_share
        return checkpoint + average + others + self.thorough_seconds * self._rows_share + _SECONDS_OF_CLOSING

    def time_scoring(self, engine: "TrainingEngine", n_rows: int) -> tuple[float, float]:
        """Times the scoring of a few rows.

        Returns:
            The seconds of the selection split, and of its thorough intervals, as these rows say.
        """
        job = self._job
        rows = job.data.splits[job.selection]
        drawn = np.random.default_rng(job.recipe.training.seed).permutation(len(rows))[:n_rows]
        sample = rows.select(sorted(drawn.tolist()))
        features = job.task.encode(sample, job.loaded.tokenizer, max_length=job.recipe.model.max_length)
        scorer = Engine.of(job.loaded, job.compute, engine.workers)
        evaluate_split(scorer, job.task, sample, features, recipe=job.recipe, choose=True, listener=SILENT)  # warms up
        started = time.perf_counter()
        result = evaluate_split(scorer, job.task, sample, features, recipe=job.recipe, choose=True, listener=SILENT)
        scored = time.perf_counter()
        result.thorough(job.recipe)
        ended = time.perf_counter()

        tokens = float(self._row_work(job.features[job.selection].lengths).sum())
        scale = tokens / max(1.0, float(self._row_work(features.lengths).sum()))
        return scale * (scored - started), len(rows) / len(sample) * (ended - scored)

    def _width_work(self, width: Any) -> Any:
        """Returns the work of rows of a width: a layer takes 24 d^2 products for a token, and 4 d for each pair."""
        return width * (1.0 + width / (6.0 * self._hidden_size))

    def _row_work(self, lengths: Any) -> Any:
        return self._width_work(np.asarray(lengths, dtype=np.float64))

    def _model_bytes(self) -> int:
        return 4 * sum(parameter.numel() for parameter in self._job.loaded.network.parameters())


def _in_tenths(epochs: float) -> float:
    """Returns epochs in tenths, rounded down: a run that misses its last step has not had all of them."""
    return math.floor(10 * epochs) / 10
