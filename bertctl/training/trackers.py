"""Experiment trackers of accelerate: TensorBoard, MLflow, Weights & Biases, Trackio and more."""

import contextlib
import importlib.util
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from bertctl.errors import UsageError, said_of
from bertctl.progress import Listener
from bertctl.session import current

EXTRAS = frozenset({"tensorboard", "mlflow", "wandb", "trackio"})
"""Trackers that are installed as an extra of bertctl; the others by their own package."""

_OFFLINE_WITHOUT_KEY = {
    "wandb": ("WANDB_API_KEY", "WANDB_MODE", "offline"),
    "comet_ml": ("COMET_API_KEY", "COMET_START_ONLINE", "0"),
    "clearml": ("CLEARML_API_ACCESS_KEY", "CLEARML_OFFLINE_MODE", "1"),
    "swanlab": ("SWANLAB_API_KEY", "SWANLAB_MODE", "offline"),
}
"""Trackers that would prompt for a key: its variable, and the variable and value that keep the
tracker offline if there is no key."""


def check_trackers(names: Sequence[str]) -> None:
    """Refuses a tracker whose package is not installed, before anything is loaded.

    A tracker that would ask for a key, and has none, is set to work offline.

    Raises:
        UsageError: with the install line.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            package = f"'bertctl[{name}]'" if name in EXTRAS else name
            message = f"`runtime.log_to={name}` needs a package that is not installed"
            raise UsageError(message, remedy=f"Install it: pip install {package}")
        key, offline_variable, value = _OFFLINE_WITHOUT_KEY.get(name, ("", "", ""))
        if key and key not in os.environ:
            current().default_variable(offline_variable, value)


@contextlib.contextmanager
def stdout_kept() -> Iterator[None]:
    """Drops what a tracker prints: stdout is for the answer of the command."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def tell(trackers: list[Any], send: Callable[[Any], object], listener: Listener) -> None:
    """Sends something to each tracker.

    A tracker that fails is ended and left out from then on: no run is lost by it.
    """
    for tracker in [*trackers]:
        try:
            with stdout_kept():
                send(tracker)
        except Exception as error:  # noqa: BLE001 - each library has its own
            trackers.remove(tracker)
            listener.warn(f"{tracker.name} gets no more of this run: {said_of(error)[:300]}")
            with suppress(Exception), stdout_kept():  # MLflow would refuse the process's next run
                tracker.finish()
