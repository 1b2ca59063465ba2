"""TensorBoard, MLflow and Weights & Biases through accelerate's trackers; each is an extra."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from bertctl.errors import UsageError, said_of
from bertctl.progress import Listener
from bertctl.session import current


def check_trackers(names: Sequence[str]) -> None:
    """Refuses a tracker whose package is not installed, before anything is loaded.

    Raises:
        UsageError: with the install line.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            message = f"--log-to {name} needs a package that is not installed"
            raise UsageError(message, remedy=f"Install it: pip install 'bertctl[{name}]'")
    if "wandb" in names and "WANDB_API_KEY" not in os.environ:
        current().default_variable("WANDB_MODE", "offline")  # it would prompt for a key otherwise


def tell(trackers: list[Any], what: Callable[[Any], object], listener: Listener) -> None:
    """Tells each tracker something; one that fails is ended and left out from then on: no run is
    lost by it.
    """
    for tracker in [*trackers]:
        try:
            what(tracker)
        except Exception as error:  # noqa: BLE001 - each library has its own
            trackers.remove(tracker)
            listener.warn(f"{tracker.name} gets no more of this run: {said_of(error)[:300]}")
            with suppress(Exception):  # MLflow would refuse the next run of this process
                tracker.finish()
