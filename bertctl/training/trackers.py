"""TensorBoard, MLflow and Weights & Biases through accelerate's trackers; each is an extra."""

import importlib.util
import os
from collections.abc import Sequence

from bertctl.errors import UsageError


def check_trackers(names: Sequence[str]) -> None:
    """Refuses a tracker whose package is not installed, before anything is loaded.

    Raises:
        UsageError: with the install line.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            what = f"--log-to {name} needs a package that is not installed"
            raise UsageError(what, remedy=f"Install it: pip install 'bertctl[{name}]'")
    if "wandb" in names and "WANDB_API_KEY" not in os.environ:
        os.environ.setdefault("WANDB_MODE", "offline")  # it would prompt for a key otherwise
