"""plan.json: written, read back, and compared with what a later call asks for."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertctl.config.schema import Recipe
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.sweeps.grid import read_grid
from bertctl.sweeps.plan import (
    PlannedCell,
    PrimaryMetric,
    SweepPlan,
    find_plan,
    read_plan,
    settle_plan,
)
from bertctl.sweeps.prepare import SweepRequest, make_sweep
from tests.tiny_recipes import tiny_recipe


def made_plan(**changed: Any) -> SweepPlan:
    fields: dict[str, Any] = {
        "name": "made",
        "recipe": Recipe(name="made", task="text-classification").model_dump(),
        "primary": PrimaryMetric(split="validation", name="accuracy", higher_is_better=True),
        "settings": [{"optimizer.learning_rate": 5e-5}, {"optimizer.learning_rate": 3e-5}],
        "seeds": [{"init": 42, "order": 42}],
        "baseline": {"accuracy": 0.5},
        "data_hashes": {"train": "aa", "validation": "bb"},
        "model_hash": "cc",
        "cells": [PlannedCell(name=f"{i:016x}", setting=i, seed=0) for i in range(2)],
    }
    return SweepPlan(**fields | changed)


def test_a_plan_is_read_back_equal_and_stays_what_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    assert find_plan(folder) is None
    assert settle_plan(made_plan(), folder) == made_plan()
    assert read_plan(folder) == find_plan(folder) == made_plan()
    document = json.loads((folder / "plan.json").read_text())
    assert next(iter(document)) == "schema"
    assert next(reversed(document)) == "cells"
    assert settle_plan(made_plan(jobs=4, keep="all"), folder).jobs == 4, (
        "what decides no number may change"
    )


def test_a_folder_of_several_shards_is_planned_as_a_whole(tmp_path: Path) -> None:
    assert settle_plan(made_plan(shard=(1, 2)), tmp_path).shard == (1, 2)
    assert settle_plan(made_plan(shard=(1, 2)), tmp_path).shard == (1, 2)
    assert settle_plan(made_plan(shard=(2, 2)), tmp_path).shard is None


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"seeds": [{"init": 1, "order": 1}]}, UsageError, "seeds: "),
        ({"folds": 3}, UsageError, "folds: null .*3"),
        ({"data_hashes": {"train": "zz", "validation": "bb"}}, DataError, "rows of train"),
        ({"model_hash": "zz"}, UnavailableError, "files of the model"),
        ({"cells": []}, UsageError, "plan.json"),
    ],
)
def test_another_sweep_in_the_folder_is_refused(
    tmp_path: Path, changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    settle_plan(made_plan(), tmp_path)
    with pytest.raises(error, match=message):
        settle_plan(made_plan(**changed), tmp_path)
    assert read_plan(tmp_path) == made_plan()


def test_a_plan_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    settle_plan(made_plan(), tmp_path)
    document = json.loads((tmp_path / "plan.json").read_text())
    document["early_kill"] = True
    document["recipe"]["question_answering"]["derive_unanswerable"] = 0.0
    (tmp_path / "plan.json").write_text(json.dumps(document))
    assert read_plan(tmp_path).base_recipe() == made_plan().base_recipe()
    assert read_plan(tmp_path).identity() == made_plan().identity()
    assert settle_plan(made_plan(), tmp_path) == made_plan()


def test_the_identity_is_that_of_earlier_versions_whatever_the_threads() -> None:
    """runs/sweep-NAME-HASH: a sweep that was started with an earlier version is found again."""
    recipe = Recipe(name="made", task="text-classification")
    threads = recipe.model_copy(
        update={"runtime": recipe.runtime.model_copy(update={"threads": 7})}
    )
    assert made_plan(recipe=threads.model_dump(), threads=7).identity() == made_plan().identity()
    assert made_plan(model_hash="zz").identity() != made_plan().identity()
    assert made_plan().identity().startswith("ee2e648e551c")


@pytest.mark.parametrize("damage", ["{", "{}", '{"recipe": 1}'])
def test_a_damaged_plan_and_another_folder_are_refused(tmp_path: Path, damage: str) -> None:
    with pytest.raises(UnavailableError, match="no sweep"):
        read_plan(tmp_path)
    (tmp_path / "notes.txt").write_text("of mine")
    with pytest.raises(UsageError, match="no sweep"):
        find_plan(tmp_path)
    (tmp_path / "plan.json").write_text(damage)
    with pytest.raises(
        DataError, match=r"plan\.json(: no JSON|, the plan of a sweep, can't be used)"
    ):
        find_plan(tmp_path)


def test_epochs_that_have_no_effect_are_no_axis(tiny_model: Path, opinions: Path) -> None:
    """All settings would be one run, and the table would say that epochs do not matter."""
    recipe = tiny_recipe(tiny_model, opinions, **{"training.max_steps": 3})
    for grid in ("training.epochs=1,2", "training.max_steps=3,null training.epochs=1,2"):
        with pytest.raises(
            UsageError, match=r"training\.epochs: of no effect beside training\.max_steps 3"
        ):
            make_sweep(SweepRequest(recipe, read_grid(grid), [{"init": 1, "order": 1}]), None)
    grid = "training.max_steps=null training.epochs=1,2"
    made = make_sweep(SweepRequest(recipe, read_grid(grid), [{"init": 1, "order": 1}]), None)
    assert [cell.recipe.training.epochs for cell in made.cells] == [1, 2]
