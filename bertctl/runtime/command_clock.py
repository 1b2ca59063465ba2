"""How long the command that was typed has been running.

It counts in this process and in those that it starts.
"""

import os
import time
from pathlib import Path

from bertctl.session import current

_STARTED = "BERTCTL_STARTED"
"""Variable with the time at which the command began, for the processes that it starts."""

_START_TIME = 19
"""Position of the start time, in clock ticks since boot, after the name in /proc/PID/stat."""


class _Clock:
    """Moment at which the command line of a session began; None where there was none."""

    begun_at: float | None = None


def begin_process() -> None:
    """Notes that the command began when this process was started, as `bertctl` on a shell's line.

    Python and its imports have taken time by then.
    """
    current().part(_Clock).begun_at = time.perf_counter() - _age_of_process()


def begin_command() -> None:
    """Notes that a command begins now, unless `begin_process` has noted its beginning."""
    clock = current().part(_Clock)
    if clock.begun_at is None:
        clock.begun_at = time.perf_counter()


def _age_of_process() -> float:
    """Returns the seconds since this process was started; 0 on systems that do not tell."""
    try:
        # The fields after the process's name, which is in parentheses and may contain spaces.
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        started_at = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_at)
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


def pass_on_start() -> None:
    """Passes on to the processes that this one starts when the command began."""
    current().default_variable(_STARTED, repr(time.time() - seconds_of_command()))


def seconds_of_command() -> float:
    """Returns the seconds since the command began; 0 where there was none."""
    launched_at = os.environ.get(_STARTED)
    if launched_at:
        return max(0.0, time.time() - float(launched_at))
    begun_at = current().part(_Clock).begun_at
    if begun_at is None:
        return 0.0
    return time.perf_counter() - begun_at
