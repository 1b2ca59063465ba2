"""Ctrl-C and SIGTERM during a run: they wait for the step to end, or leave what they find at once."""

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
    """Within `listening`, the first SIGINT or SIGTERM raises `KeyboardInterrupt` or `Terminated`.

    In a block of `busy` it is held back until `check`. The second signal raises at once, wherever it is.
    """

    def __init__(self) -> None:
        self.workers: Workers = ALONE
        self._asked: int = 0
        self._is_busy = False
        self._seen = 0

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
    def busy(self) -> Iterator[None]:
        """Hold the first signal back: what goes on here can't be cut in two."""
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def check(self) -> None:
        """Raise what was held back; several processes do so at the same step, whichever was asked.

        Raises:
            KeyboardInterrupt: Ctrl-C, or `Terminated` for SIGTERM.
        """
        terminated, interrupted = self._asked == signal.SIGTERM, self._asked == signal.SIGINT
        if self.workers.count > 1:
            asked = self.workers.sum(np.array([terminated, interrupted], dtype=np.int64))
            terminated, interrupted = bool(asked[0]), bool(asked[1])
        if terminated or interrupted:
            self._asked = 0
            self._seen = 1
            self._raise(signal.SIGTERM if terminated else signal.SIGINT)

    def _arrived(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._seen += 1
        if self._is_busy and self._seen == 1:
            self._asked = number
            return
        self._raise(number)

    @staticmethod
    def _raise(number: int) -> None:
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
