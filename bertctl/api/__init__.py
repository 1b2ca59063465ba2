"""The Python API: what the verbs do, as functions that print nothing and raise `BertctlError`.

Import the names from `bertctl` itself. Recipe fields are given by their dotted names, as in
`--set`: {"model.name": "minilm", "training.epochs": 2}.
"""

from bertctl.api.run import Run, Runs, evaluate, load_run, load_runs, predict
from bertctl.api.training import finetune, load_recipe, probe, sweep
from bertctl.api.vectors import extract_features, index, search_index, similarity
from bertctl.config.schema import Recipe

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
