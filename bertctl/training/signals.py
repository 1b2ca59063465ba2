"""Signals during a run: they wait for a place where nothing is cut in two."""

import contextlib
from collections.abc import Iterator
from signal import SIGINT
from types import FrameType

import numpy as np

from bertctl.runtime.launch import ALONE, Workers
from bertctl.runtime.stopping import STOPS, StopRequest, end_now, handled_by, raise_for


class Signals:
    """Keeps Ctrl-C, SIGTERM and SIGHUP back until a place where nothing is cut in two.

    Within `handle_signals`, the first signal is held back until `check`, or raised at once in
    `interruptible`. The second one ends the process, wherever it is; what the last checkpoint holds
    is not lost.

    Args:
        workers: the processes that share the job; `check` has them stop together.

    Attributes:
        together: whether all of them are stopping, at the same place.
    """

    def __init__(self, workers: Workers = ALONE) -> None:
        self.together = False  # whether all processes are stopping, at the same place
        self._workers = workers
        self._asked = 0  # number of the signal that is held back; 0 without one
        self._request = StopRequest()  # tells a second request from an echo of the first one
        self._is_interruptible = False  # whether a signal may raise at once

    def handle_signals(self) -> handled_by:
        """Handles signals within `with`; afterwards the handlers of before are back."""
        return handled_by(self._arrived)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Lets a signal raise at any moment within `with`.

        It is for code that changes nothing that a checkpoint would have to contain.

        Raises:
            KeyboardInterrupt: Ctrl-C, or `Terminated` for SIGTERM and SIGHUP.
        """
        self._is_interruptible = True
        try:
            if self._asked:
                raise_for(self._asked)
            yield
        finally:
            self._is_interruptible = False

    def check(self) -> None:
        """Raises the signal that was held back, if there is one.

        All processes raise at the same step, even if only one of them received a signal.

        Raises:
            KeyboardInterrupt: Ctrl-C, or `Terminated` for SIGTERM and SIGHUP.
        """
        requests = self._workers.sum(
            np.array([self._asked == number for number in STOPS], dtype=np.int64)
        )
        if requests.any():
            self.together = True
            # Ctrl-C, the first one of `STOPS`, comes before the other signals.
            raise_for(SIGINT if requests[0] else STOPS[int(requests.argmax())])

    def _arrived(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Handles a signal: the first one stops the run, a second one ends the process.

        The run stops at once where nothing is left half done (`interruptible`), else at its next
        check. SIGTERM or SIGHUP within seconds of the first signal only repeats it, and is ignored.
        """
        is_first = not self._request.number
        is_second_request = self._request.hear(number)
        if is_second_request:
            end_now(number)
        if not is_first:
            return
        self._asked = number
        if self._is_interruptible:
            raise_for(number)
