"""Shares of a time limit that are spent before the first training step.

They are those of the head start and of the baselines.

Without a limit, how many rows are read follows from the length of the whole run. With one, a few
rows are read and timed, and no more are read and fitted than the share of the time that is left
pays for. The arithmetic is here; the clock is its callers'.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bertctl.arrays import Ints
from bertctl.training.job import Job

HEAD_START_SHARE = 0.2
"""Share of the time left that the head start may take: of a short run, no step is worth as much."""

FROZEN_SHARE = 0.07
"""Share of the time left that the frozen encoder's classifier may take."""

WORDS_SHARE = 0.03
"""Share of the time left that TF-IDF may take."""

FEWEST_ROWS = 50
"""Rows below which nothing is fitted: the time goes to the training instead."""

_SECONDS_OF_OUTPUT = 40e-6
"""Time of fitting a regression to one row and one label, with the choice of its strength: between
5 and 60 microseconds for 384 dimensions and 2 to 200 labels, on one thread of an AMD EPYC."""

_FEW_WINDOWS = 8
_MORE_WINDOWS = 32
_TIMING_SHARE = 0.1
"""Share of the seconds that may be spent which the timing itself may take."""


class NoTimeError(Exception):
    """The time limit is too short for something; the message says for what."""


@dataclass(frozen=True)
class ReadingPace:
    """Measured speed of reading with the frozen encoder.

    Attributes:
        seconds_of_token: Wall-clock seconds of a token.
        slowdown: Wall-clock seconds of a second of work: above 1 where other processes share the
            machine.
    """

    seconds_of_token: float
    slowdown: float = 1.0

    @classmethod
    def of(cls, *, tokens: int, seconds: float, cpu_seconds: float) -> "ReadingPace":
        """Returns the pace at which a number of tokens was read.

        Args:
            tokens: How many tokens were read.
            seconds: By the wall clock.
            cpu_seconds: Of all threads of this process.
        """
        if cpu_seconds > 0:
            slowdown = seconds / cpu_seconds
        else:
            slowdown = 1.0
        return cls(seconds / max(1, tokens), max(1.0, slowdown))

    def seconds_of(self, tokens: int) -> float:
        """Returns the seconds that reading a number of tokens takes."""
        return self.seconds_of_token * tokens

    def affordable_rows(self, seconds: float, *, tokens_of_row: float, n_outputs: int) -> int:
        """Returns how many rows can be read, and a regression fitted to them, in a given time.

        Args:
            seconds: Seconds that may be spent.
            tokens_of_row: Mean tokens of a row.
            n_outputs: Labels, times the words of a row where each word has one.
        """
        fitting = _SECONDS_OF_OUTPUT * self.slowdown * n_outputs
        of_row = self.seconds_of_token * tokens_of_row + fitting
        return max(0, int(seconds / of_row))


def seconds_for(job: Job, share: float) -> float | None:
    """Returns a share of the seconds that are left of a job's time limit; None without a limit."""
    if job.deadline is None:
        return None
    return share * max(0.0, job.deadline - time.perf_counter())


def time_reading(
    read: Callable[[Ints], None], windows: Ints, lengths: Ints, *, seconds: float
) -> ReadingPace:
    """Times the reading of a few windows, and of some more where the first were quick.

    Args:
        read: Reads windows with these numbers.
        windows: Numbers of windows in a random order.
        lengths: (U,) tokens of each window of the split.
        seconds: That the reading may take in all.
    """
    pace = _time_once(read, windows[:_FEW_WINDOWS], lengths)
    larger_sample = windows[:_MORE_WINDOWS]
    if pace.seconds_of_token * int(lengths[larger_sample].sum()) > _TIMING_SHARE * seconds:
        return pace
    # The first reading was slowed by kernels that had to be compiled, so this one is more exact.
    return _time_once(read, larger_sample, lengths)


def _time_once(read: Callable[[Ints], None], windows: Ints, lengths: Ints) -> ReadingPace:
    """Returns the pace at which these windows are read, by the clock and by CPU time."""
    started = time.perf_counter()
    cpu_started = time.process_time()
    read(windows)
    return ReadingPace.of(
        tokens=int(lengths[windows].sum()),
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu_started,
    )
