"""What the numbers were computed with: versions, machine, seeds, content hashes."""

import importlib.metadata
import platform
import shlex
from typing import Any

from bertctl.config.dump import recipe_hash
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import LoadedData
from bertctl.run_folder import SCHEMA
from bertctl.runtime.device import Compute
from bertctl.session import command_words
from bertctl.version import __version__

_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "accelerate",
    "datasets",
    "safetensors",
    "numpy",
    "scikit-learn",
    "scipy",
)


def describe_environment(
    recipe: Recipe, compute: Compute, *, data: LoadedData, model_hash: str
) -> dict[str, Any]:
    """Returns the content of environment.json: what a run's numbers depend on besides its recipe.

    Args:
        recipe: Recipe of the run.
        compute: Device, precision and threads.
        data: The rows; their `columns` are empty for data sets of the catalog.
        model_hash: Hash of the files of the model that is fine-tuned.
    """
    differ = (
        "another kind of processor, another number of threads and other versions of torch round "
        "otherwise"
    )
    if compute.device != "cpu" and not recipe.runtime.deterministic:
        differ = (
            f"without `deterministic=True` sums on the {compute.device} device are made in any "
            f"order; {differ}"
        )
    return {
        "schema": SCHEMA,
        "bertctl": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "device": compute.device,
        "precision": compute.precision,
        "threads": compute.threads,
        "seed": recipe.training.seed,
        "deterministic": recipe.runtime.deterministic,
        "may_differ": differ,
        "recipe_hash": recipe_hash(recipe, data_hashes=data.hashes, model_hash=model_hash),
        "model_hash": model_hash,
        "data_hashes": dict(data.hashes),
        **({"slice_hashes": dict(data.slice_hashes)} if data.slice_hashes else {}),
        "columns": dict(data.columns),
        "command": shlex.join(["bertctl", *command_words()]),
    }
