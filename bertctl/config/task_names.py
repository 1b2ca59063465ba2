"""The names of the tasks, for recipes. The tasks themselves are in `tasks/registry.py`."""

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
    """Returns the verb that trains a task: `pretrain` or `finetune`."""
    if task == PRETRAINING:
        return "pretrain"
    return "finetune"


def task_names() -> tuple[str, ...]:
    """Returns what a recipe's `task` may be."""
    return tuple(_NAMES)


def add_task_name(name: str) -> None:
    """Lets recipes name a further task. The registry of tasks calls this for a plug-in's task."""
    if name not in _NAMES:
        _NAMES.append(name)


def require_task_name(name: str) -> str:
    """Returns a task's name unchanged, if a built-in task or a plug-in's has it.

    Raises:
        ValueError: No task has this name.
    """
    if name not in _NAMES and name not in installed("tasks"):
        raise ValueError(unknown("task", name, _NAMES))
    return name


def write_task_names(schema: dict[str, Any]) -> None:
    """Writes the names into the JSON Schema of the field `task`."""
    schema["enum"] = list(_NAMES)
