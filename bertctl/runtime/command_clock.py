"""How long the command that was typed has been running, in this process and in those that it
starts.
"""

import os
import time

from bertctl.session import current

_STARTED = "BERTCTL_STARTED"
"""Variable with the time at which the command began, for the processes that it starts."""


class _Clock:
    """Moment at which the command line of a session began; None where there was none."""

    begun_at: float | None = None


def begin_command() -> None:
    """Notes that a command line begins now."""
    current().part(_Clock).begun_at = time.perf_counter()


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
