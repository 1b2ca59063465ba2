"""The task types, by the name a recipe gives them."""

from bertctl.config.task_names import add_task_name
from bertctl.data.readers import READERS
from bertctl.errors import UsageError
from bertctl.metrics.contributions import LOSS, Metric
from bertctl.tasks.answers import Answers
from bertctl.tasks.base import Task
from bertctl.tasks.multiple_choice import MultipleChoice
from bertctl.tasks.question_answering import QuestionAnswering
from bertctl.tasks.text_classification import TextClassification
from bertctl.tasks.text_regression import TextRegression
from bertctl.tasks.token_classification import TokenClassification
from bertctl.words import unknown

TASKS: dict[str, type[Task]] = {}


def register(task: type[Task]) -> None:
    """Makes a task one that recipes may name."""
    TASKS[task.name] = task
    READERS.setdefault(task.name, task.reader)
    add_task_name(task.name)


for _task in (TextClassification, TextRegression, TokenClassification, QuestionAnswering, MultipleChoice):
    register(_task)


def answer_type(task: str) -> type[Answers]:
    """Returns what the answers of a task mean, by the task's name in a recipe.

    Raises:
        UsageError: there is no such task.
    """
    if task not in TASKS:
        raise UsageError(unknown("task", task, TASKS), remedy=f"Tasks: {', '.join(TASKS)}.")
    return TASKS[task].answer_type


def known_metrics() -> dict[str, Metric]:
    """Returns the definitions of all metrics by name; where tasks share a name, that of the first."""
    rows = [metric for task in TASKS.values() for metric in (*task.answer_type.metrics, LOSS)]
    return {metric.name: metric for metric in reversed(rows)}


def find_metric(name: str) -> Metric | None:
    """Returns the definition of a metric; that of `entity_f1` for `entity_f1:PER`. None where there is none."""
    return known_metrics().get(name.partition(":")[0])


def higher_is_better(metric: str) -> bool:
    """Returns the direction of a metric; up for one that is not ours."""
    found = find_metric(metric)
    return found is None or found.higher_is_better
