"""The loop's numbers.

Recorded losses, replay to the byte, accumulation that changes nothing, what diverges.
"""

import json
import os
from pathlib import Path

import pytest

from bertctl.config.load import load_recipe
from bertctl.errors import DivergedError
from bertctl.run_folder import RunFolder
from bertctl.sweeps.early_stopping import SweepWatch
from bertctl.training.finetune import RunOptions, run
from bertctl.training.job import prepare
from tests.tiny_recipes import tiny_recipe

RECORDED = [0.693177, 0.693151, 0.691519, 0.696683, 0.696403, 0.690402, 0.692934, 0.692884]
"""Losses of the first steps on the tiny BERT, fp32, one thread, dropout off (made by this very
test's recipe)."""


def losses_of(folder: RunFolder) -> list[float]:
    lines = [json.loads(line) for line in folder.history.read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_recorded_losses(tiny_model: Path, opinions: Path, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    run(prepare(tiny_recipe(tiny_model, opinions)), folder)
    assert losses_of(folder) == pytest.approx(RECORDED, abs=1e-4)


@pytest.mark.parametrize(
    "parts", [4, *(pytest.param(parts, marks=pytest.mark.slow) for parts in (2, 8))]
)
def test_accumulation_sees_the_same_batches_and_losses(
    tiny_model: Path, opinions: Path, tmp_path: Path, parts: int
) -> None:
    complete = RunFolder.create(tmp_path / "whole")
    in_parts = RunFolder.create(tmp_path / "parts")
    run(prepare(tiny_recipe(tiny_model, opinions, **{"training.epochs": 2})), complete)
    split = {"training.epochs": 2, "training.accumulation_steps": parts}
    run(prepare(tiny_recipe(tiny_model, opinions, **split)), in_parts)
    assert losses_of(in_parts) == pytest.approx(losses_of(complete), abs=1e-5)


def test_a_last_batch_that_is_smaller_is_averaged_over_its_own_examples(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """16 examples in batches of 10, in 5 parts.

    10 and 6; the uneven parts of the 6 must change nothing.
    """
    complete = RunFolder.create(tmp_path / "whole")
    in_parts = RunFolder.create(tmp_path / "parts")
    common = {"training.batch_size": 10, "training.epochs": 2}
    run(prepare(tiny_recipe(tiny_model, opinions, **common)), complete)
    run(
        prepare(tiny_recipe(tiny_model, opinions, **common, **{"training.accumulation_steps": 5})),
        in_parts,
    )
    assert len(losses_of(complete)) == 4
    assert losses_of(in_parts) == pytest.approx(losses_of(complete), abs=1e-5)


def test_replay_of_the_resolved_recipe_gives_the_same_bytes(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    first = RunFolder.create(tmp_path / "first")
    again = RunFolder.create(tmp_path / "again")
    recipe = tiny_recipe(tiny_model, opinions, **{"model.dropout": 0.1, "runtime.threads": 2})
    run(prepare(recipe), first)
    run(prepare(load_recipe(str(first.recipe))), again)
    assert first.metrics.read_bytes() == again.metrics.read_bytes()
    assert (first.model / "model.safetensors").read_bytes() == (
        again.model / "model.safetensors"
    ).read_bytes()
    assert (
        first.predictions("validation").read_bytes() == again.predictions("validation").read_bytes()
    )
    assert (
        json.loads(first.environment.read_text())["recipe_hash"]
        == json.loads(again.environment.read_text())["recipe_hash"]
    )


@pytest.mark.slow
def test_another_seed_gives_other_numbers(tiny_model: Path, opinions: Path, tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path / "first")
    other = RunFolder.create(tmp_path / "other")
    run(prepare(tiny_recipe(tiny_model, opinions)), first)
    run(prepare(tiny_recipe(tiny_model, opinions, **{"training.seed": 43})), other)
    assert losses_of(first) != losses_of(other)


def test_the_best_weights_are_the_ones_kept(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """A rate that ruins the model after its best epoch: what is saved is the best, not the last."""
    folder = RunFolder.create(tmp_path / "run")
    recipe = tiny_recipe(
        tiny_model,
        opinions,
        **{
            "training.epochs": 12,
            "optimizer.learning_rate": 8e-2,
            "evaluation.primary_metric": "loss",
        },
    )
    result = run(prepare(recipe), folder)
    lines = [json.loads(line) for line in folder.history.read_text().splitlines()]
    observed = {
        line["step"]: line["validation_loss"] for line in lines if "validation_loss" in line
    }
    best = min(observed, key=lambda step: observed[step])
    assert best != max(observed), "the premise: the last epoch is not the best"
    assert result.metrics.as_json()["best_step"] == best
    assert result.metrics.as_json()["metrics"]["validation"]["loss"]["value"] == pytest.approx(
        observed[best], rel=1e-6
    )


def test_patience_stops_early(tiny_model: Path, opinions: Path, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    options = {
        "training.epochs": 30,
        "training.patience": 2,
        "optimizer.learning_rate": 8e-2,
        "evaluation.primary_metric": "loss",
    }
    result = run(prepare(tiny_recipe(tiny_model, opinions, **options)), folder)
    assert result.performance.as_json()["stopped_early"]
    assert result.metrics.as_json()["steps"] == result.metrics.as_json()["best_step"] + 2 * 2


def test_evaluation_every_n_steps(tiny_model: Path, opinions: Path, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    run(prepare(tiny_recipe(tiny_model, opinions, **{"training.evaluate_every": 3})), folder)
    lines = [json.loads(line) for line in folder.history.read_text().splitlines()]
    assert [line["step"] for line in lines if "validation_accuracy" in line] == [3, 6, 8]


@pytest.mark.parametrize(("every", "stopped"), [(3, False), (2, True), (None, True)])
def test_a_sweep_stops_a_collapse_at_the_ends_of_two_epochs_in_a_row(
    tiny_model: Path, opinions: Path, tmp_path: Path, every: int | None, stopped: bool
) -> None:
    """An epoch has two steps.

    Scored every three, the ends of the third epoch and of the sixth one are known alone.
    """
    fields = {
        "training.epochs": 8,
        "training.evaluate_every": every,
        "optimizer.learning_rate": 1e-12,
    }
    options = RunOptions(early_stopping=SweepWatch(warmup=1, parent=os.getppid()))
    result = run(
        prepare(tiny_recipe(tiny_model, opinions, **fields)),
        RunFolder.create(tmp_path / "run"),
        options=options,
    )
    assert result.performance.as_json()["stopped_early"] == stopped
    assert result.metrics.as_json()["steps"] == (4 if stopped else 16)


def test_a_rate_that_explodes_is_reported_with_step_and_ids(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    recipe = tiny_recipe(tiny_model, opinions, **{"optimizer.learning_rate": 1e30})
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(
        DivergedError, match=r"diverged at step \d: the loss is nan .*ids \d"
    ) as caught:
        run(prepare(recipe), folder)
    assert caught.value.exit_code == 6
    assert json.loads(folder.status.read_text())["state"] == "failed"
