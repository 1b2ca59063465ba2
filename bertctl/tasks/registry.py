"""The task types, by the name a recipe gives them."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.tasks.base import Task
from bertctl.tasks.multiple_choice import MultipleChoice
from bertctl.tasks.question_answering import QuestionAnswering
from bertctl.tasks.text_classification import TextClassification
from bertctl.tasks.text_regression import TextRegression
from bertctl.tasks.token_classification import TokenClassification

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (TextClassification, TextRegression, TokenClassification, QuestionAnswering, MultipleChoice)
}


def task_from_data(recipe: Recipe, train: Rows, labels: Sequence[str] | None) -> Task:
    """The recipe's task, fitted to its training rows."""
    return TASKS[recipe.task].from_data(recipe, train, labels)


def task_from_model(recipe: Recipe, model_config: Mapping[str, Any]) -> Task:
    """The task of a trained model."""
    return TASKS[recipe.task].from_model(recipe, model_config)
