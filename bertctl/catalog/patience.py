"""How long a hub is waited for: until nothing more is to be expected of it, and no longer.

The timeouts of an HTTP library count from one byte to the next, so a server that sends a byte each
second is never given up. Here a piece of work runs in a thread of its own, and the one who waits
for it looks at a watch, which every sign of life winds up again: headers of an answer, a piece of a
file, a retry that was announced.
"""

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from bertctl.errors import UnavailableError

ANSWER_SECONDS = 40.0
"""Time for a whole answer that is no file, from the request to its last byte."""

PIECE_SECONDS = 60.0
"""Time for the next piece of a file: 64 kB in a minute is the least rate, about 1 kB/s."""

_LOOK_SECONDS = 0.1
"""Time between two looks at the watch."""

_Result = TypeVar("_Result")


class Watch:
    """Moment at which a piece of work is given up.

    Attributes:
        is_over: whether the work was given up. It ends at its next sign of life then.
    """

    def __init__(self) -> None:
        """Gives the work the time for a first answer."""
        self.is_over = False
        self._end = 0.0
        self.wind(ANSWER_SECONDS)

    def wind(self, seconds: float) -> None:
        """Gives the work at least so many seconds from now on."""
        self._end = max(self._end, time.monotonic() + seconds)

    @property
    def has_run_out(self) -> bool:
        """Returns whether the work has taken longer than its time."""
        return time.monotonic() > self._end


_watch: contextvars.ContextVar[Watch | None] = contextvars.ContextVar("watch", default=None)


def sign_of_life(seconds: float) -> None:
    """Gives the work of this thread so many seconds more, if it has a time limit.

    Raises:
        UnavailableError: the work was given up meanwhile.
    """
    watch = _watch.get()
    if watch is None:
        return
    if watch.is_over:
        raise UnavailableError("it was given up")
    watch.wind(seconds)


def within_patience(work: Callable[[], _Result], noun: str) -> _Result:
    """Returns what the work returns, unless it takes longer than its signs of life allow.

    The work runs in a thread of its own. It calls `sign_of_life` for each answer and each piece of
    a file, and each call gives it more time. A thread that was given up ends at its next call; if
    there is none, it ends with the process.

    Args:
        work: Function that asks a hub.
        noun: Name of what the user waits for, for messages.

    Raises:
        UnavailableError: the hub has been silent, or has dripped, for too long.
        Exception: whatever the work raises.
    """
    watch = Watch()
    # Only the work has the watch: it runs in a copy of this context that was made with it.
    _watch.set(watch)
    context = contextvars.copy_context()
    _watch.set(None)
    outcome: dict[str, Any] = {}

    def run() -> None:
        """Does the work in the thread, and keeps its result or its error."""
        try:
            outcome["result"] = context.run(work)
        except BaseException as error:  # noqa: BLE001 - raised again where the work is waited for
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            if watch.has_run_out and thread.is_alive():
                raise UnavailableError(
                    f"{noun} comes so slowly that it was given up, or not at all"
                )
    finally:
        watch.is_over = True
    if "error" in outcome:
        raise outcome["error"]
    result: _Result = outcome["result"]
    return result
