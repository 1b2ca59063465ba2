"""Number of steps with which a run ends in time, computed from what was measured so far.

The pace is measured on the latest steps. There are as many of them as steps are left: far from the
end that is a long mean, near the end it follows the machine.
"""

import math
from collections import deque
from itertools import islice

import numpy as np

from bertctl.arrays import Floats
from bertctl.training.run_costs import RunCosts

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
FEWEST_MEASURED = 4
"""Steps before the first plan, where there is time for more than a few."""
FEW_STEPS = 10
_SHARE_OF_FIRST_STEP = 0.25
"""Guess of a later step's time as a share of the first one's, which makes kernels and loads
libraries."""


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
        # "Work" is what the time of a batch is proportional to; see `RunWork`. This is the (B + 1,)
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
        # After the last step come its evaluation and the run's closing work.
        seconds_after_step = self.seconds_until(step, last=step, pace=self.pace())
        return used + seconds_after_step - self._limit

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
        is_too_early = self.steps_seen < FEWEST_MEASURED and steps - step > FEW_STEPS
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
