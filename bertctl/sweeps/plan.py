"""plan.json: what a sweep is, fixed by the first call.

A later call that asks for something else is refused.
"""

import hashlib
import json
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bertctl.config.dump import differing, recipe_hash
from bertctl.config.removed import drop_removed
from bertctl.config.schema import Recipe
from bertctl.documents import loading, read_json
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.run_folder import SCHEMA
from bertctl.writing import write_json

PLAN = "plan.json"
CELLS = "cells"

Choose = Literal["mean", "best-run"]
Keep = Literal["best", "all", "none"]


class PrimaryMetric(BaseModel):
    """Names the metric that settings are judged by, and the split that selects."""

    split: str
    name: str
    higher_is_better: bool

    def __str__(self) -> str:
        return f"{self.name} on {self.split}"


class PlannedCell(BaseModel):
    """One run of the plan.

    It names the folder, the numbers of setting and seed, and the fold (from 1).
    """

    name: str
    setting: int
    seed: int
    fold: int | None = None


class SweepPlan(BaseModel):
    """Content of plan.json. Fields of earlier versions that are gone are ignored.

    Attributes:
        recipe: the base recipe, as `model_dump` gives it.
        settings: dotted field -> value, for each setting.
        seeds: `init` and `order`, for each seed.
        folds: number of folds of the training rows, each held out once; None for the validation
            rows as they are.
        baseline: metrics of the answer that ignores the input; the mean over the folds.
        shard: number and count, where one call was to run a part of the sweep alone.
        jobs: number of parallel runs.
        rungs: Steps at which each run waits for the others, and its last one, by name; empty where
            all are trained to their ends.
        n_examples: Rows of the split that selects.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_number: int = Field(default=SCHEMA, alias="schema")
    name: str
    recipe: dict[str, Any]
    primary: PrimaryMetric
    settings: list[dict[str, Any]]
    seeds: list[dict[str, int]]
    folds: int | None = None
    baseline: dict[str, float] = {}
    choose: Choose = "mean"
    keep: Keep = "best"
    shard: tuple[int, int] | None = None
    data_hashes: dict[str, str] = {}
    model_hash: str = ""
    jobs: int = 1
    threads: int = 1
    rungs: dict[str, list[int]] = {}
    n_examples: int = 0
    cells: list[PlannedCell] = []

    @property
    def task(self) -> str:
        """Returns the name of the task."""
        return str(self.recipe["task"])

    @cached_property
    def axes(self) -> list[str]:
        """Returns the fields that are varied."""
        return list(dict.fromkeys(chain.from_iterable(self.settings)))

    @property
    def sign(self) -> float:
        """Returns the factor that makes the best score the lowest."""
        if self.primary.higher_is_better:
            return -1.0
        return 1.0

    def base_recipe(self) -> Recipe:
        """Returns the base recipe.

        A plan of an earlier version may have fields that recipes no longer have. They are left out
        if they have their old defaults.
        """
        document = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in self.recipe.items()
        }
        drop_removed(document)
        return Recipe.model_validate(document)

    def identity(self) -> str:
        """Returns a hash that names the sweep's folder, the same on every machine.

        It is made of the base recipe without threads, the data, the model, the settings, the seeds
        and the folds.
        """
        recipe = self.base_recipe().with_fields("runtime", threads=None)
        identity_values = self.model_dump(include={"settings", "seeds", "folds", "model_hash"})
        # An option of earlier versions; it stays in the hash so that folders keep their names.
        identity_values["early_kill"] = False
        text = recipe_hash(recipe, data_hashes=self.data_hashes, model_hash="") + json.dumps(
            identity_values, sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()


def read_plan(folder: Path) -> SweepPlan:
    """Reads the plan of the sweep in a folder.

    Raises:
        UnavailableError: there is no sweep.
        DataError: the plan is damaged.
    """
    path = folder / PLAN
    remedy = "Give the folder that `bertctl sweep` was given with `output=`."
    if not path.exists():
        raise UnavailableError(
            f"{folder} holds no sweep: it has no {path}", remedy=remedy, file=path
        )
    document = read_json(path, kind=DataError, remedy=remedy)
    with loading(f"{path}, the plan of a sweep,", remedy=remedy):
        plan = SweepPlan.model_validate(document)
        plan.base_recipe()  # raises if the recipe in it is damaged
    return plan


ROWS_FOLDER = "rows"
"""Folder of a sweep with rows that were given in memory. They are there before the plan is."""


def find_plan(folder: Path) -> SweepPlan | None:
    """Returns the plan of the sweep in a folder; None if the folder is empty or does not exist.

    Hidden files, and rows that were given in memory, may be there before the plan.

    Raises:
        UsageError: The folder has other files and no plan.
        DataError: The plan is damaged.
    """
    if (folder / PLAN).exists():
        return read_plan(folder)
    if folder.is_dir():
        names = {path.name for path in folder.iterdir()}
    else:
        names = set()
    has_other_files = any(not name.startswith(".") and name != ROWS_FOLDER for name in names)
    if has_other_files:
        raise UsageError(
            f"the folder {folder} is not empty and holds no sweep",
            remedy="Choose another with `output=`.",
        )
    return None


def write_plan(folder: Path, plan: SweepPlan) -> None:
    """Writes plan.json; the folder is made."""
    write_json(folder / PLAN, plan.model_dump(by_alias=True))


def settle_plan(plan: SweepPlan, folder: Path) -> SweepPlan:
    """Writes the plan of a new sweep, or compares it with the plan that the folder has already.

    Commands for several shards of a sweep may share a folder. The plan in the folder then becomes
    that of the whole sweep, without a shard.

    Args:
        plan: Plan of the present command.
        folder: SWEEP.

    Returns:
        The plan that is in the folder now.

    Raises:
        DataError: The data has changed since the sweep was started.
        UnavailableError: The model's files have changed since then.
        UsageError: The plan has other settings (each is shown with both values), or the folder has
            files and no sweep.
    """
    before = find_plan(folder)
    if before is not None:
        remedy = (
            "Start a new sweep with `output=ANOTHER_FOLDER`, "
            f"or continue {folder} as it was started."
        )
        refuse_other_plan(before, plan, f"the sweep in {folder} was started", remedy)
        if before.shard != plan.shard:
            plan = plan.model_copy(update={"shard": None})
    if plan != before:
        write_plan(folder, plan)
    return plan


def refuse_other_plan(before: SweepPlan, now: SweepPlan, opening: str, remedy: str) -> None:
    """Refuses a plan that would give other numbers than an earlier one.

    Args:
        before: Plan that the sweep was started with.
        now: Plan of the present command.
        opening: Begins the message, such as `the sweep in DIR was started`.
        remedy: What to do about it.

    Raises:
        DataError: other data.
        UnavailableError: other model files.
        UsageError: other settings, seeds or folds.
    """
    changed_settings = _changed_settings(before, now)
    if changed_settings:
        lines = "".join(f"\n  {change}" for change in changed_settings)
        raise UsageError(f"{opening} with other settings:{lines}", remedy=remedy)

    changed_splits = [
        split
        for split, digest in now.data_hashes.items()
        if before.data_hashes.get(split, digest) != digest
    ]
    if changed_splits:
        raise DataError(
            f"{opening} with other data: the rows of {', '.join(changed_splits)} have changed",
            remedy=remedy,
        )
    if before.model_hash != now.model_hash:
        raise UnavailableError(
            f"{opening} with other files of the model '{now.base_recipe().model.name}'",
            remedy=remedy,
        )
    # Names of cells are hashes of complete recipes, which also have what the preset `auto` chose.
    if before.cells != now.cells:
        raise UsageError(f"{opening} with other settings: see its {PLAN}", remedy=remedy)


def _changed_settings(before: SweepPlan, now: SweepPlan) -> list[str]:
    """Returns a sentence for each field of the recipe, and each part of the plan, that differs."""
    fields = differing(before.base_recipe(), now.base_recipe())
    changes = [f"{name}: {earlier} then, {present} now" for name, earlier, present in fields]

    old_plan = before.model_dump()
    new_plan = now.model_dump()
    for name in ("primary", "settings", "seeds", "folds"):
        if old_plan[name] != new_plan[name]:
            old_text = _short_text(old_plan[name])
            new_text = _short_text(new_plan[name])
            changes.append(f"{name}: {old_text} then, {new_text} now")
    return changes


def _short_text(value: Any) -> str:
    """Returns a value of the plan, cut to a line."""
    if isinstance(value, list) and len(value) > 3:
        return f"{len(value)} of them"
    text = json.dumps(value)
    if len(text) <= 120:
        return text
    return f"{text[:117]}..."
