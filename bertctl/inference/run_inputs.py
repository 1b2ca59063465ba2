"""What every run works out before it computes, fine-tuning and probes alike: its task, the splits it scores, its
primary metric.
"""

from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import LoadedData
from bertctl.errors import DataError, UsageError
from bertctl.runtime.device import Compute
from bertctl.tasks.base import Task
from bertctl.tasks.registry import TASKS
from bertctl.words import unknown


def fit_task(recipe: Recipe, data: LoadedData, *, labels_checked: bool = False) -> tuple[Task, tuple[str, ...]]:
    """Returns the task, fitted to the training rows, and the splits to score.

    Args:
        recipe: of the run.
        data: its splits.
        labels_checked: whether the labels of these rows were checked before.

    Raises:
        DataError: no training rows; a split without labels, or with labels that the task doesn't know.
        UsageError: a split that there is none of.
    """
    evaluated = tuple(recipe.evaluation.splits) or data.validation_splits
    if not len(data.splits["train"]):
        raise DataError("there are no training rows")
    for split in evaluated:
        if split not in data.splits:
            raise UsageError(
                f"evaluation.splits: there is no split '{split}'", remedy=f"Choose from {', '.join(data.splits)}."
            )
        if not data.splits[split].has("label"):
            raise DataError(
                f"the split '{split}' has no labels, so it can't be scored",
                remedy=f"Use `bertctl predict RUN --split {split}`, or name other splits in evaluation.splits.",
            )
    task = TASKS[recipe.task].from_data(recipe, data.splits["train"], data.labels)
    if not labels_checked:
        for split in dict.fromkeys((*evaluated, *data.validation_splits)):
            task.check(data.splits[split])
    return task, evaluated


def primary_metric(recipe: Recipe, data: LoadedData, task: Task) -> str:
    """Returns the metric that decides, the recipe's, else the data set's, else the task's.

    Raises:
        UsageError: the recipe names one that the selection split does not give.
    """
    known = [*task.baseline(data.splits["train"], data.splits[data.validation_splits[0]]), "loss"]
    asked = recipe.evaluation.primary_metric
    if asked is not None and asked not in known:
        raise UsageError(
            f"evaluation.primary_metric: {unknown('metric', asked, known)}", remedy=f"Choose from {', '.join(known)}."
        )
    catalog = data.dataset.primary_metric if data.dataset else None
    return asked or (catalog if catalog in known else None) or task.primary_metric


def resolved_for(recipe: Recipe, compute: Compute) -> Recipe:
    """Returns the recipe with the device, precision and threads that are used."""
    runtime = recipe.runtime.model_copy(
        update={"device": compute.device, "precision": compute.precision, "threads": compute.threads}
    )
    return recipe.model_copy(update={"runtime": runtime})
