"""Ctrl-C and SIGTERM during a run: they wait for a place where nothing is cut in two."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

from bertctl.runtime.launch import ALONE, Workers


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; whoever handles Ctrl-C handles it too, and can tell the two apart."""


class Signals:
    """Within `listening`, the first SIGINT or SIGTERM is held back until `check`, or raised at once in `welcome`.

    The second one raises at once, wherever it is.

    Attributes:
        workers: the processes that share the job; `check` has them stop together.
        together: whether all of them are stopping, at the same place.
    """

    def __init__(self) -> None:
        self.workers: Workers = ALONE
        self.together = False
        self._asked = 0
        self._is_welcome = False
        self._seen = 0

    @property
    def impatient(self) -> bool:
        """Whether a second signal has come: what goes on is cut where it is, and nothing more may be saved."""
        return self._seen > 1

    @contextlib.contextmanager
    def listening(self) -> Iterator["Signals"]:
        """Handle both signals; what handled them before does so again afterwards."""
        before: dict[int, Any] = {
            number: signal.signal(number, self._arrived) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def welcome(self) -> Iterator[None]:
        """Here a signal may raise at any moment: nothing changes that a checkpoint would have to know.

        Raises:
            KeyboardInterrupt: Ctrl-C, or `Terminated` for SIGTERM.
        """
        self._is_welcome = True
        try:
            if self._asked:
                self._raise(self._asked)
            yield
        finally:
            self._is_welcome = False

    def check(self) -> None:
        """Raise what was held back; several processes do so at the same step, whichever of them was asked.

        Raises:
            KeyboardInterrupt: Ctrl-C, or `Terminated` for SIGTERM.
        """
        terminated, interrupted = self._asked == signal.SIGTERM, self._asked == signal.SIGINT
        if self.workers.count > 1:
            asked = self.workers.sum(np.array([terminated, interrupted], dtype=np.int64))
            terminated, interrupted = bool(asked[0]), bool(asked[1])
        if terminated or interrupted:
            self.together = True
            self._raise(signal.SIGTERM if terminated else signal.SIGINT)

    def _arrived(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._seen += 1
        if self._seen == 1 and not self._is_welcome:
            self._asked = number
            return
        self._raise(number)

    @staticmethod
    def _raise(number: int) -> None:
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
