"""Estimates: the line through the timed steps, and what is said of a whole run."""

from pathlib import Path

import numpy as np
import pytest

from bertctl.config.load import load_recipe
from bertctl.errors import UsageError
from bertctl.training.estimate import Rehearsal, estimate_run, extrapolate
from bertctl.training.job import prepare
from bertctl.words import human_seconds


def shapes(seed: int, count: int) -> np.ndarray:
    """Padded tokens, and the sum of squares, of batches of 32 with widths from 4 to 400."""
    widths = np.random.default_rng(seed).integers(4, 400, size=count).astype(float)
    return np.column_stack([32 * widths, 32 * widths**2])


@pytest.mark.parametrize(
    "costs", [(0.05, 1e-4, 0.0), (0.0, 2e-4, 3e-7), (0.2, 0.0, 1e-7), (0.3, 0.0, 0.0)]
)
def test_a_line_and_a_parabola_are_read_off_exactly(costs: tuple[float, float, float]) -> None:
    timed = shapes(1, 8)
    every = shapes(2, 500)
    fixed, token, pair = costs
    seconds = fixed + timed @ [token, pair]
    complete, error = extrapolate(timed, seconds, every)
    assert complete == pytest.approx((fixed + every @ [token, pair]).sum(), rel=1e-6)
    assert error < 1e-6 * complete


def test_the_error_is_about_what_the_scatter_makes() -> None:
    """Noise of 10 % of the mean step.

    In 400 repetitions the error that is told is about the one that is made.
    """
    every = shapes(3, 1000)
    truth = 0.05 + every @ [1e-4, 0.0]
    rng = np.random.default_rng(4)
    made = []
    options = []
    for _ in range(400):
        picked = rng.permutation(1000)[:10]
        seconds = truth[picked] + rng.normal(0, 0.1 * truth.mean(), size=10)
        complete, error = extrapolate(every[picked], seconds, every)
        made.append(complete - truth.sum())
        options.append(error)
    assert 0.8 < np.sqrt(np.mean(np.square(options))) / np.std(made) < 1.6
    assert np.mean(np.abs(made) < 2 * np.array(options)) > 0.85


def test_one_timed_step_is_enough_for_a_figure() -> None:
    every = np.full((7, 2), 100.0)
    complete, error = extrapolate(every[:1], np.array([0.5]), every)
    assert complete == pytest.approx(3.5)
    assert error == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (59.9, "59.9 s"),
        (61, "1 min 1 s"),
        (3599.7, "1 h 0 min"),
        (12000, "3 h 20 min"),
        (187200, "2 d 4 h"),
    ],
)
def test_seconds_in_words(seconds: float, words: str) -> None:
    assert human_seconds(seconds) == words


def test_a_whole_run_is_estimated_and_nothing_is_left(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    recipe = load_recipe(
        "text-classification",
        sets=[
            "data.validation_fraction=0.25",
            "evaluation.bootstrap_resamples=100",
            "training.evaluate_every=2",
        ],
        options={
            "data.train_file": str(opinions),
            "model.name": str(tiny_model),
            "model.max_length": 32,
            "training.batch_size": 4,
            "training.epochs": 3,
        },
    )
    document = estimate_run(recipe, place=place / "runs", steps=2, cells=6)
    assert list(place.iterdir()) == []
    assert document["examples"] == {"train": 12, "validation": 4}
    assert document["steps"] == 9
    assert document["evaluations"] == 6
    assert document["timed_steps"] == 2
    seconds = document["seconds"]
    assert all(
        0 <= second["low"] <= second["estimate"] <= second["high"] for second in seconds.values()
    )
    assert seconds.keys() >= {"start", "head_start", "train", "evaluate", "save", "total"}
    parts = sum(phase["estimate"] for name, phase in seconds.items() if name != "total")
    assert seconds["total"]["estimate"] == pytest.approx(
        parts, abs=0.25
    )  # each is rounded to a tenth
    weights = (tiny_model / "model.safetensors").stat().st_size
    disk = document["disk_bytes"]
    assert weights < disk["model"] < disk["run"] < disk["while_running"]
    assert document["sweep"]["disk_bytes"] == 6 * disk["run"]
    run_of_a_sweep = seconds["total"]["estimate"] - seconds["baselines"]["estimate"]
    assert document["sweep"]["seconds"]["estimate"] == pytest.approx(6 * run_of_a_sweep, abs=0.5)


def test_weights_that_wait_for_their_mean_need_a_place(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """They need it beside the run, and in each checkpoint.

    These are the two checkpoints that are kept and a third that is being written.
    """
    options = {
        "data.train_file": str(opinions),
        "model.name": str(tiny_model),
        "model.max_length": 32,
    }
    recipe = load_recipe("text-classification", sets=["training.average_best=3"], options=options)
    disk = estimate_run(recipe, place=tmp_path / "runs", steps=2)["disk_bytes"]
    weights = (tiny_model / "model.safetensors").stat().st_size
    assert disk["while_running"] >= disk["run"] + 3 * disk["checkpoint"] + 4 * 3 * weights


@pytest.mark.parametrize("trained", ["training.freeze_layers=0", "training.freeze_layers=2"])
def test_a_checkpoint_has_moments_of_what_is_trained(
    trained: str, opinions: Path, tmp_path: Path
) -> None:
    """Of MiniLM's words a few texts use a tenth; the size is told before anything is trained."""
    options = {"data.train_file": str(opinions), "model.name": "minilm", "training.batch_size": 4}
    job = prepare(
        load_recipe(
            "text-classification", sets=["data.validation_fraction=0.25", trained], options=options
        )
    )
    rehearsal = Rehearsal(job, tmp_path)
    rehearsal.step(np.arange(4))
    rehearsal.saving(1)
    files = [
        path
        for path in (tmp_path / "checkpoints").rglob("*.safetensors")
        if path.parent.name != "best"
    ]
    assert len(files) == 3
    assert job.checkpoint_size == pytest.approx(
        sum(path.stat().st_size for path in files), rel=0.01
    )
    assert job.checkpoint_size < 2.3 * (tmp_path / "model" / "model.safetensors").stat().st_size


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"cells": 0}])
def test_numbers_below_one_are_refused_before_anything_is_read(
    wrong: dict[str, int], tmp_path: Path
) -> None:
    recipe = load_recipe("demo", options={"model.name": "org/nowhere"})
    with pytest.raises(UsageError, match="must be at least 1"):
        estimate_run(recipe, place=tmp_path, **wrong)
