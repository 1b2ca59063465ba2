"""Ctrl-C and SIGTERM during a run: they wait for a place where nothing is cut in two."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

from bertctl.runtime.launch import ALONE, Workers


class Terminated(KeyboardInterrupt):
    """Says that SIGTERM arrived; whoever handles Ctrl-C handles it too, and can tell the two apart."""


class Signals:
    """Holds SIGINT and SIGTERM back until a place where nothing is cut in two.

    Within `handle_signals`, the first signal is held back until `check`, or raised at once in `interruptible`. The
    second one raises at once, wherever it is.

    Args:
        workers: the processes that share the job; `check` has them stop together.

    Attributes:
        together: whether all of them are stopping, at the same place.
    """

    def __init__(self, workers: Workers = ALONE) -> None:
        self.together = False
        self._workers = workers
        self._asked = 0
        self._is_interruptible = False
        self._seen = 0

    @property
    def impatient(self) -> bool:
        """Returns whether a second signal has come: the work is cut off where it is, and nothing more may be saved."""
        return self._seen > 1

    @contextlib.contextmanager
    def handle_signals(self) -> Iterator["Signals"]:
        """Handles both signals; what handled them before does so again afterwards."""
        before: dict[int, Any] = {
            number: signal.signal(number, self._arrived) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Lets a signal raise at any moment: nothing changes here that a checkpoint would have to know.

        Raises:
            KeyboardInterrupt: Ctrl-C, or `Terminated` for SIGTERM.
        """
        self._is_interruptible = True
        try:
            if self._asked:
                self._raise(self._asked)
            yield
        finally:
            self._is_interruptible = False

    def check(self) -> None:
        """Raises what was held back; several processes do so at the same step, whichever of them was asked.

        Raises:
            KeyboardInterrupt: Ctrl-C, or `Terminated` for SIGTERM.
        """
        terminated, interrupted = self._asked == signal.SIGTERM, self._asked == signal.SIGINT
        if self._workers.count > 1:
            asked = self._workers.sum(np.array([terminated, interrupted], dtype=np.int64))
            terminated, interrupted = bool(asked[0]), bool(asked[1])
        if terminated or interrupted:
            self.together = True
            self._raise(signal.SIGTERM if terminated else signal.SIGINT)

    def _arrived(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._seen += 1
        if self._seen == 1 and not self._is_interruptible:
            self._asked = number
            return
        self._raise(number)

    @staticmethod
    def _raise(number: int) -> None:
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
