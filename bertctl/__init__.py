"""bertctl: one command for the whole life of a BERT encoder on a labelled task.

It has the same as Python functions.

    from bertctl import finetune, predict

    run = finetune("sst2", {"model.name": "minilm", "data.data_dir": "glue"})
    predict(run, ["a fine film"])

The names come from `bertctl.api`, which is imported when the first of them is used:
`import bertctl` costs nothing.
"""

from bertctl.version import __version__ as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from bertctl.api import (
        Recipe,
        Run,
        Runs,
        evaluate,
        extract_features,
        finetune,
        index,
        load_recipe,
        load_run,
        load_runs,
        predict,
        probe,
        search_index,
        similarity,
        sweep,
    )

__all__ = [
    "Recipe",
    "Run",
    "Runs",
    "evaluate",
    "extract_features",
    "finetune",
    "index",
    "load_recipe",
    "load_run",
    "load_runs",
    "predict",
    "probe",
    "search_index",
    "similarity",
    "sweep",
]


def __getattr__(name: str) -> "Any":
    """Returns a name of `bertctl.api`, which is imported only when one of them is used."""
    import importlib

    if name in __all__:
        return getattr(importlib.import_module("bertctl.api"), name)
    raise AttributeError(f"module 'bertctl' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Returns the names for completion, with those that are not imported yet."""
    return [*globals(), *__all__]
