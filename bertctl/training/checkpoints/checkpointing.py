"""When a run saves checkpoints: as the recipe says, and once more when it is interrupted."""

import time
from collections.abc import Callable

import numpy as np

from bertctl.runtime.heap import trim_heap
from bertctl.training.checkpoints.checkpoint import Checkpoints
from bertctl.training.checkpoints.snapshot import random_states, take
from bertctl.training.loop.loop import TrainingState
from bertctl.training.loop.training_engine import TrainingEngine


class Due:
    """Schedule of a run's checkpoints.

    Args:
        every: `200 steps`, `10 minutes`, `off`, or None for the ends of epochs alone.
        pause: Seconds from the start, and from each checkpoint, before the end of an epoch calls
            for the next one.
    """

    def __init__(self, every: str | None, *, pause: float) -> None:
        self._pause = pause  # seconds that must have passed before the end of an epoch counts
        self._off = every == "off"
        if every and not self._off:
            amount, unit = every.split()  # such as `500 steps` or `10 minutes`
        else:
            amount = "0"
            unit = ""
        # The interval is in steps or in seconds. The other number is 0, which means no interval.
        self._steps = int(amount) if unit == "steps" else 0
        if unit == "minutes":
            self._seconds = 60.0 * int(amount)
        else:
            self._seconds = 0.0
        self._last = time.monotonic()  # when the last checkpoint was due, or the run began

    def __call__(self, step: int, *, epoch_over: bool) -> bool:
        """Returns whether a checkpoint is due after this step; if it is, the clock starts again.

        Args:
            step: Steps that were taken.
            epoch_over: Whether this step ends an epoch.
        """
        if self._off:
            return False
        since_last = time.monotonic() - self._last
        is_due_by_epoch = epoch_over and since_last >= self._pause
        is_due_by_steps = self._steps > 0 and step % self._steps == 0
        is_due_by_time = 0 < self._seconds <= since_last
        is_due = is_due_by_epoch or is_due_by_steps or is_due_by_time
        if is_due:
            self._last = time.monotonic()
        return is_due


class Checkpointing:
    """Saves the checkpoints of one run; only the first of several processes writes.

    Args:
        engine: Has weights, optimizer and generators.
        checkpoints: Writes the files.
        due: Schedule of the checkpoints.
        flush: Writes RUN/model, which may wait to be written, before a checkpoint copies it.
    """

    def __init__(
        self,
        engine: TrainingEngine,
        checkpoints: Checkpoints,
        due: Due,
        *,
        flush: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._due = due
        self._flush = flush  # writes RUN/model, which a checkpoint copies
        # For a checkpoint that is saved before `note_random_states` is called.
        self._random = random_states(engine.workers)

    def note_random_states(self) -> None:
        """Notes the random states of all processes, which the next checkpoint saves.

        All processes must call it at the same step, before any later random number is drawn.
        """
        self._random = random_states(self._engine.workers)

    def after_step(self, state: TrainingState, *, epoch_over: bool) -> None:
        """Saves a checkpoint if one is due after this step."""
        # The clocks of the processes differ, so an interval in minutes ends at another step in each
        # process. All save a checkpoint as soon as it is due in one of them.
        is_due = np.array([self._due(state.step, epoch_over=epoch_over)], dtype=np.int64)
        if self._engine.workers.sum(is_due)[0]:
            self.note_random_states()
            self.save(state, behind=True)

    def save(self, state: TrainingState, *, behind: bool) -> None:
        """Saves a checkpoint while training goes on (`behind`), or before this returns."""
        if not self._engine.workers.is_first:
            return
        self._flush()
        self._checkpoints.wait()
        trim_heap()  # steps and scorings have left free memory in it, and the copy needs some
        self._checkpoints.save(take(self._engine, state, self._random), behind=behind)
