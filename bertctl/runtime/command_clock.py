"""How long the command that was typed has been running, in this process and in those that it
starts.
"""

import os
import time

_STARTED = "BERTCTL_STARTED"
"""Variable with the time at which the command began, for the processes that it starts."""

_begun_at: float | None = None


def begin_command() -> None:
    """Notes that a command line begins now."""
    global _begun_at
    _begun_at = time.perf_counter()


def pass_on_start() -> None:
    """Passes on to the processes that this one starts when the command began."""
    os.environ.setdefault(_STARTED, repr(time.time() - seconds_of_command()))


def seconds_of_command() -> float:
    """Returns the seconds since the command began; 0 where there was none."""
    launched_at = os.environ.get(_STARTED)
    if launched_at:
        return max(0.0, time.time() - float(launched_at))
    if _begun_at is None:
        return 0.0
    return time.perf_counter() - _begun_at
