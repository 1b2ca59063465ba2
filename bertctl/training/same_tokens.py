"""Whether a student reads the same tokens and windows as its teacher.

It matters where the student learns position by position.
"""

import json
from typing import Any

from tokenizers import Tokenizer

from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.inference.trained import NetworkRun
from bertctl.modeling.source import ModelSource
from bertctl.tasks.base import Task

_PARTS = (
    "normalizer",
    "pre_tokenizer",
    "model",
    "added_tokens",
    "post_processor",
)
"""Parts of a tokenizer's JSON that decide the tokens of a text."""


def window_settings(recipe: Recipe) -> dict[str, int]:
    """Returns the fields that decide the windows of a question and its context."""
    settings = recipe.question_answering
    return {
        "model.max_length": recipe.model.max_length,
        "question_answering.doc_stride": settings.doc_stride,
        "question_answering.max_question_length": settings.max_question_length,
    }


def check_windows(recipe: Recipe, teacher: NetworkRun) -> None:
    """Refuses a student of questions that reads other windows than its teacher.

    Args:
        recipe: Recipe of the student.
        teacher: The run that it learns from.

    Raises:
        UsageError: With the field, both values and what to type.
    """
    for name, value in window_settings(teacher.recipe).items():
        own_value = window_settings(recipe)[name]
        if own_value != value:
            raise UsageError(
                f"distillation.teacher: {teacher.folder.path} reads windows with {name} {value}, "
                f"and the student {own_value}; a student learns the scores of each position, so "
                "both read the same windows",
                remedy=f"Set {name} to {value}, or train the teacher with {own_value}.",
            )


def check_tokens(teacher: NetworkRun, source: ModelSource, task: Task, *, reason: str) -> None:
    """Refuses a student with another tokenizer than its teacher.

    Args:
        teacher: The run that the student learns from.
        source: Files of the model that the student starts from.
        task: Task of the student.
        reason: What needs the same tokens, as the end of a sentence.

    Raises:
        UsageError: The tokenizers differ.
    """
    from bertctl.modeling.build import build_tokenizer

    of_teacher = build_tokenizer(teacher.source, task.auto_class, task.head())
    of_student = build_tokenizer(source, task.auto_class, task.head())
    teacher_parts = _parts(of_teacher)
    student_parts = _parts(of_student)
    differing = [name for name in _PARTS if teacher_parts[name] != student_parts[name]]
    if differing:
        raise UsageError(
            f"distillation.teacher: the tokenizers of {teacher.folder.path} and {source.name} "
            f"differ ({', '.join(differing)}); {reason}",
            remedy="Start the student from layers of its teacher (model.keep_layers), or from a "
            "model with the same tokenizer.",
        )


def _parts(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the parts of a tokenizer's tokenizer.json, such as `model` and `normalizer`."""
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    return document
