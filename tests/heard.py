"""Listeners that tests look at, or that disturb a run."""

import signal
from typing import Any

from bertctl.progress import Listener


class Heard(Listener):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []

    def say(self, text: str) -> None:
        """Keeps a line of talk."""
        self.said.append(text)

    def warn(self, text: str) -> None:
        """Keeps a warning."""
        self.warned.append(text)


class Interrupting(Listener):
    """Presses Ctrl-C at a step of the training."""

    def __init__(self, step: int) -> None:
        self._step = step

    def advance(self, phase: str, done: int, *more: Any, **others: Any) -> None:
        """Sends the signal, of which the run takes notice after the step."""
        if phase == "training" and done == self._step:
            signal.raise_signal(signal.SIGINT)
