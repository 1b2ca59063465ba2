"""Every built-in recipe starts from Python as it does from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from task_examples import EXAMPLES

from bertctl import finetune, load_recipe
from bertctl.config.recipe_files import builtin_recipes
from bertctl.config.schema import Recipe
from bertctl.config.task_names import PRETRAINING
from bertctl.jobs.prepare import kind_of
from tests.conftest import Run

ONE_STEP = {
    "model.max_length": 40,
    "training.epochs": 1,
    "training.max_steps": 1,
    "training.batch_size": 8,
    "training.accumulation_steps": 1,
    "training.checkpoint_every": "off",
    "training.average_best": None,
    "runtime.device": "cpu",
    "runtime.precision": "fp32",
    "runtime.threads": 1,
    "evaluation.bootstrap_resamples": 100,
}
"""Fields that make any recipe a run of a second, on the rows that stand in the contract of its
task."""

BY_DEFAULT = {"demo", "few-shot", "pretrain-demo", "token-classification"}
"""Recipes that the default run takes: one of each kind, and a generic one. The others are slow by
their number."""


def rows_of(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Returns the fields that name a few rows of the recipe's task in place of its own data."""
    if recipe.task == PRETRAINING:
        corpus = folder / "corpus.txt"
        sentences = [
            f"the film number {i} was good .\nthe food number {i} was bad .\n" for i in range(400)
        ]
        corpus.write_text("\n".join(sentences), encoding="utf-8")
        return {
            "pretraining.corpus": [str(corpus)],
            "pretraining.from_scratch": None,
            "pretraining.vocab": None,
        }

    file = folder / "rows.jsonl"
    lines = [json.dumps(row) for row in EXAMPLES[recipe.task].rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    fields: dict[str, Any] = {
        "data.name": None,
        "data.train_file": str(file),
        "data.validation_file": str(file),
    }
    fields |= {"data.first_train_rows": None, "data.max_train_rows": None, "evaluation.splits": []}
    return fields | EXAMPLES[recipe.task].settings


@pytest.mark.parametrize(
    "name",
    [
        name if name in BY_DEFAULT else pytest.param(name, marks=pytest.mark.slow)
        for name in builtin_recipes()
    ],
)
def test_a_built_in_recipe_takes_one_step_from_python(
    name: str, tiny_model: Path, tmp_path: Path
) -> None:
    rows = rows_of(load_recipe(name), tmp_path)

    run = finetune(
        name, {"model.name": str(tiny_model), **ONE_STEP, **rows}, output=tmp_path / "run"
    )

    assert run.metrics["validation"]["loss"] > 0
    assert run.recipe.task == load_recipe(name).task


def test_few_shot_training_from_python_gives_the_scores_of_the_verb(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    fields = {
        "model.name": str(tiny_model),
        **ONE_STEP,
        **rows_of(load_recipe("few-shot"), tmp_path),
    }
    settings = [f"--set={name}={json.dumps(value)}" for name, value in fields.items()]

    finetune("few-shot", fields, output=tmp_path / "python")
    bertctl("finetune", "few-shot", *settings, "-o", tmp_path / "verb", "-q")

    for file in ("metrics.json", "predictions/validation.jsonl"):
        assert (tmp_path / "python" / file).read_bytes() == (tmp_path / "verb" / file).read_bytes()


def test_every_recipe_has_one_kind_that_prepares_it() -> None:
    kinds = {name: kind_of(load_recipe(name)).name for name in builtin_recipes()}

    assert kinds["few-shot"] == "few-shot training"
    assert {name for name, kind in kinds.items() if kind == "pretraining"} == {
        "adapt-medical",
        "pretrain",
        "pretrain-demo",
    }
    assert kinds["sst2"] == kinds["demo-qa"] == "fine-tuning"
