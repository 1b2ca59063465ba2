"""What is said before and while a model is trained.

Early stopping, epochs, shared rows, labels that a sample lost.
"""

import json
from pathlib import Path

import pytest

from tests.conftest import Run, TinyRun

pytestmark = pytest.mark.in_process

DRY = ("--dry-run", "--max-length", 32)


def rows(path: Path, labels: list[str], *, start: int = 0) -> Path:
    lines = [f"the film was {label} {i},{label}" for i, label in enumerate(labels, start)]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (
            ["training.patience=2"],
            "training ends after 2 evaluations on validation without a better accuracy",
        ),
        (["training.patience=1"], "training ends after 1 evaluation on validation without"),
        (
            ["training.patience=2", "evaluation.primary_metric=loss"],
            "training ends after 2 evaluations on validation without a better loss, so 9",
        ),
    ],
)
def test_early_stopping_is_announced(
    sets: list[str], sentence: str, bertctl: Run, tiny_model: Path, opinions: Path
) -> None:
    words = []
    for name in sets:
        words += ("--set", name)
    done = bertctl("finetune", opinions, "--model", tiny_model, "--epochs", 9, *DRY, *words)
    assert done.returncode == 0, done.stderr
    assert f"early stopping: {sentence}" in done.stderr
    plain = bertctl("finetune", opinions, "--model", tiny_model, "--epochs", 9, *DRY)
    assert "early stopping" not in plain.stderr


def test_progress_is_told_in_epochs_too(tiny_run: TinyRun) -> None:
    stderr = tiny_run.process.stderr
    epochs = json.loads((tiny_run.path / "history.jsonl").read_text().splitlines()[-1])
    assert epochs
    assert "epoch 1 of " in stderr
    assert ", step " in stderr.partition("epoch 1 of ")[2].partition("\n")[0]


@pytest.mark.parametrize("how", ["the same file", "another order", "most of it"])
def test_validation_rows_that_are_training_rows_are_named(
    how: str, bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    train = rows(tmp_path / "train.csv", ["good", "bad"] * 8)
    lines = train.read_text().splitlines()
    others = {
        "the same file": lines,
        "another order": [lines[0], *reversed(lines[1:])],
        "most of it": [*lines[:9], "something else,good"],
    }
    (tmp_path / "dev.csv").write_text("\n".join(others[how]) + "\n")
    command = [
        "finetune",
        train,
        "--validation-file",
        tmp_path / "dev.csv",
        "--model",
        tiny_model,
        *DRY,
    ]
    done = bertctl(*command)
    assert done.returncode == 0, done.stderr
    assert (
        "of validation are training rows, too, so its scores say nothing about new ones"
        in done.stderr
    )
    rows(tmp_path / "dev.csv", ["good", "bad"] * 4, start=100)
    assert "are training rows, too" not in bertctl(*command).stderr


@pytest.mark.parametrize("option", [["--max-train-rows", 4], ["--set", "data.first_train_rows=4"]])
def test_a_label_that_a_sample_of_the_training_rows_lost_is_explained(
    option: list[object], bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    train = rows(tmp_path / "train.csv", ["good", "bad"] * 20 + ["rare"])
    dev = rows(tmp_path / "dev.csv", ["good", "bad", "rare"], start=100)
    refused = bertctl(
        "finetune", train, "--validation-file", dev, "--model", tiny_model, *DRY, *option
    )
    assert refused.returncode == 3, refused.stderr
    assert (
        "no training row has the label 'rare': the sample of 4 training rows has lost it"
        in refused.stderr
    )
    assert "data.train_rows_per_label=N" in refused.stderr
    done = bertctl("finetune", train, "--validation-file", dev, "--model", tiny_model, *DRY)
    assert done.returncode == 0, done.stderr


def test_more_epochs_for_a_finished_run_name_what_to_type(tiny_run: TinyRun, bertctl: Run) -> None:
    recipe = tiny_run.path / "recipe.yaml"
    refused = bertctl("finetune", recipe, "-o", tiny_run.path, "--resume", "--epochs", 50)
    assert refused.returncode == 2, refused.stderr
    assert f"--model {tiny_run.path} -o NEW" in refused.stderr
    other = bertctl("finetune", recipe, "-o", tiny_run.path, "--resume", "--learning-rate", 0.5)
    assert "-o NEW" not in other.stderr


def test_what_nobody_asked_for_is_not_called_asked(tiny_run: TinyRun, bertctl: Run) -> None:
    scored = bertctl("evaluate", tiny_run.path, "--file", tiny_run.data, "-o", "scored")
    assert scored.returncode == 0, scored.stderr
    assert "compute: cpu (as in training)" in scored.stderr
    assert "as asked" not in scored.stderr
    done = bertctl(
        "evaluate", tiny_run.path, "--file", tiny_run.data, "-o", "asked", "--device", "cpu"
    )
    assert "compute: cpu (as set), fp32 (as in training)" in done.stderr
