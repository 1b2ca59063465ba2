"""The task types, by the name a recipe gives them."""

from collections.abc import Collection, Iterable

from bertctl.config.other_names import other_metric
from bertctl.config.task_names import PRETRAINING, add_task_name
from bertctl.data.readers import READERS
from bertctl.errors import UsageError
from bertctl.metrics.contributions import LOSS, Metric
from bertctl.plugins import all_plugins, plugin
from bertctl.tasks.answers import Answers
from bertctl.tasks.base import Task
from bertctl.tasks.choice.multiple_choice import MultipleChoice
from bertctl.tasks.classification.text_classification import TextClassification
from bertctl.tasks.pretraining.task import Pretraining
from bertctl.tasks.questions.question_answering import QuestionAnswering
from bertctl.tasks.regression.text_regression import TextRegression
from bertctl.tasks.sentences.sentence_embeddings import SentenceEmbeddings
from bertctl.tasks.tagging.token_classification import TokenClassification
from bertctl.words import unknown

TASKS: dict[str, type[Task]] = {}
"""The tasks that rows are labelled for."""


def register(task: type[Task]) -> None:
    """Makes a task one that recipes may name."""
    TASKS[task.name] = task
    READERS.setdefault(task.name, task.reader)
    add_task_name(task.name)


_LABELLED = (
    TextClassification,
    TextRegression,
    TokenClassification,
    QuestionAnswering,
    MultipleChoice,
)
for _task in (*_LABELLED, SentenceEmbeddings):
    register(_task)


READERS[PRETRAINING] = Pretraining.reader


def task_type(name: str) -> type[Task]:
    """Returns the task of a recipe, that of `bertctl pretrain` too.

    Raises:
        UsageError: There is no such task.
    """
    if name == PRETRAINING:
        return Pretraining
    if name not in TASKS:
        plugin_task = plugin("tasks", name)
        if plugin_task is not None:
            register(plugin_task)
    if name not in TASKS:
        raise UsageError(unknown("task", name, TASKS), remedy=f"Tasks: {', '.join(TASKS)}.")
    return TASKS[name]


def answer_type(task: str) -> type[Answers]:
    """Returns what the answers of a task mean, by the task's name in a recipe.

    Raises:
        UsageError: There is no such task.
    """
    return task_type(task).answer_type


def known_metrics() -> dict[str, Metric]:
    """Returns the definitions of all metrics by name.

    If several tasks define a metric of one name, the first task's definition is taken.
    """
    tasks: list[type[Task]] = [*TASKS.values(), Pretraining]
    metrics: list[Metric] = []
    for task in tasks:
        metrics += (*task.answer_type.metrics, LOSS)
    # A later entry of a dictionary replaces an earlier one, so the first definitions come last.
    return {metric.name: metric for metric in reversed(metrics)}


def find_metric(name: str) -> Metric | None:
    """Returns the definition of a metric; that of `entity_f1` for `entity_f1:PER`.

    None where there is none.
    """
    name = name.partition(":")[0]
    known = known_metrics().get(name)
    if known is not None:
        return known
    added = (plugin_metric.metric for plugin_metric in all_plugins("metrics").values())
    return next((metric for metric in added if metric.name == name), None)


def headline(names: Collection[str], primary: str | None) -> list[str]:
    """Returns the metrics that tables show, the primary one first.

    Details and metrics of a single label or type are left out.
    """
    details = {name for name, metric in known_metrics().items() if metric.is_detail}
    headline_names = []
    for name in names:
        is_of_one_label = ":" in name
        if name != primary and name not in details and not is_of_one_label:
            headline_names.append(name)
    if primary is not None and primary in names:
        headline_names.insert(0, primary)
    return headline_names


def no_such_metric(name: str, known: Iterable[str]) -> tuple[str, str]:
    """Returns the message and the remedy for a metric that a run does not have.

    Args:
        name: Metric that was asked for.
        known: Metrics of the run. Where they have several of this name, such as `f1_macro` and
            `f1:LABEL` for "f1", the remedy lists these.
    """
    known = list(known)
    several = [
        known_name for known_name in known if known_name.startswith((f"{name}_", f"{name}:"))
    ]
    if several:
        if name == "f1":
            message = "needs two labels, one of them positive"
        else:
            message = "is not one number here"
        choices = ", ".join(several[:12])
        if several[12:]:
            choices += ", ..."
        return f"'{name}' {message}", f"Choose from {choices}."
    message = unknown("metric", name, known)
    alternative = other_metric(name)  # our name of the metric that other libraries call `name`
    if alternative in known:
        message = f"unknown metric '{name}': did you mean {alternative}?"
    return message, f"Choose from {', '.join(headline(known, None))}."


def higher_is_better(metric: str) -> bool:
    """Returns the direction of a metric; up for one that is not ours."""
    definition = find_metric(metric)
    return definition is None or definition.higher_is_better
