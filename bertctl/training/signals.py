"""SIGTERM, brought to where Ctrl-C is handled."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; whoever handles Ctrl-C handles it too, and can tell the two apart."""


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Within this block SIGTERM raises `Terminated`, as Ctrl-C raises `KeyboardInterrupt`."""

    def terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise Terminated

    before: Any = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
