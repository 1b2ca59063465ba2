"""What makes a recipe ready to run: one table from the kind of a recipe to its preparation.

The command line, the workers of a sweep and `bertctl.finetune` in Python all choose here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bertctl.config.schema import Recipe
from bertctl.config.task_names import PRETRAINING
from bertctl.data.recipe_data import NO_ROWS
from bertctl.data.sources import MemoryFile
from bertctl.progress import SILENT, Listener
from bertctl.training.job import Encoded, Job


class Preparation(Protocol):
    """Reads and checks everything that a run needs."""

    def __call__(
        self,
        recipe: Recipe,
        *,
        rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
        listener: Listener = SILENT,
    ) -> Job:
        """Returns the run, ready to start."""


@dataclass(frozen=True)
class RecipeKind:
    """A kind of recipe that trains.

    Attributes:
        name: For people.
        matches: Returns whether a recipe is of this kind.
        load: Returns its preparation. Imports nothing that another kind needs.
    """

    name: str
    matches: Callable[[Recipe], bool]
    load: Callable[[], Preparation]


def _load_pretraining() -> Preparation:
    """Returns the preparation of pretraining."""
    from bertctl.training.pretrain import prepare

    return prepare


def _load_few_shot() -> Preparation:
    """Returns the preparation of few-shot training."""
    from bertctl.jobs.few_shot import prepare

    return prepare


def _load_fine_tuning() -> Preparation:
    """Returns the preparation of fine-tuning."""
    from bertctl.training.job import prepare

    return prepare


KINDS: Sequence[RecipeKind] = (
    RecipeKind("pretraining", lambda recipe: recipe.task == PRETRAINING, _load_pretraining),
    RecipeKind(
        "few-shot training", lambda recipe: recipe.few_shot.loss is not None, _load_few_shot
    ),
    RecipeKind("fine-tuning", lambda _: True, _load_fine_tuning),
)
"""Kinds of recipes; the first that matches is taken."""


def kind_of(recipe: Recipe) -> RecipeKind:
    """Returns the kind of a recipe."""
    return next(kind for kind in KINDS if kind.matches(recipe))


def prepare(
    recipe: Recipe,
    *,
    encoded: Encoded | None = None,
    rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
    listener: Listener = SILENT,
) -> Job:
    """Reads and checks everything that a run needs, by the kind of its recipe.

    Args:
        recipe: What to run.
        encoded: Rows that were read and tokenized before, as in a sweep, whose runs are all
            fine-tuning.
        rows_in_memory: Split name -> rows in place of those in the recipe's files.
        listener: Receives progress messages.

    Raises:
        BertctlError: Any refusal of recipe, files, labels, model, device or number of processes.
    """
    if encoded is not None:
        from bertctl.training.job import prepare as prepare_encoded

        return prepare_encoded(recipe, encoded=encoded, listener=listener)
    prepare_kind = kind_of(recipe).load()
    return prepare_kind(recipe, rows_in_memory=rows_in_memory, listener=listener)
