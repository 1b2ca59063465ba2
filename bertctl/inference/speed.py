"""Rows per second of several models, measured side by side."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

_ROUNDS = 3
"""Passes of each model; the fastest counts."""

_Name = TypeVar("_Name")


def rows_per_second(
    passes: Mapping[_Name, Callable[[], object]], *, n_rows: int
) -> dict[_Name, float]:
    """Returns how many rows each model answers in a second, the best of some rounds.

    The models take turns, so that other work of the machine slows all of them.

    Args:
        passes: A forward pass over the rows, by the model's name.
        n_rows: Rows of a pass.
    """
    seconds = dict.fromkeys(passes, float("inf"))
    for _ in range(_ROUNDS):
        for name, forward in passes.items():
            started = time.perf_counter()
            forward()
            seconds[name] = min(seconds[name], time.perf_counter() - started)
    return {name: n_rows / fastest for name, fastest in seconds.items()}
