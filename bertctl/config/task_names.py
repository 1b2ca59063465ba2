"""The names of the tasks, for recipes. What the tasks do stands above, in `tasks/registry.py`."""

from typing import Any

from bertctl.plugins import installed
from bertctl.words import unknown

PRETRAINING = "pretraining"
"""The task of `bertctl pretrain`, whose rows are a corpus and have no labels."""

_NAMES = [
    "text-classification",
    "text-regression",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "sentence-embeddings",
    PRETRAINING,
]


def verb_of(task: str) -> str:
    """Returns the verb that trains for a task."""
    if task == PRETRAINING:
        return "pretrain"
    return "finetune"


def task_names() -> tuple[str, ...]:
    """Returns what a recipe's `task` may be."""
    return tuple(_NAMES)


def add_task_name(name: str) -> None:
    """Lets recipes name a further task; the registry of tasks says so."""
    if name not in _NAMES:
        _NAMES.append(name)


def require_task_name(name: str) -> str:
    """Returns the name.

    Raises:
        ValueError: No task is called so, and no plug-in adds one.
    """
    if name not in _NAMES and name not in installed("tasks"):
        raise ValueError(unknown("task", name, _NAMES))
    return name


def write_task_names(schema: dict[str, Any]) -> None:
    """Writes the names into the JSON Schema of the field `task`."""
    schema["enum"] = list(_NAMES)
