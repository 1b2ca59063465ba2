"""`bertctl estimate` as a process.

What it says holds for the run that is then made, and nothing is kept.
"""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]

SETTINGS = (
    "--max-length",
    32,
    "--epochs",
    2,
    "--batch-size",
    4,
    "--set",
    "evaluation.bootstrap_resamples=100",
)


def test_steps_disk_and_memory_are_those_of_the_run(
    bertctl: Run, opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    arguments = ("text-classification", "--train-file", opinions, "--model", tiny_model, *SETTINGS)
    before = sorted(tmp_path.rglob("*"))
    done = bertctl("estimate", *arguments, "--cells", 18, "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    document = json.loads(done.stdout)
    run = tmp_path / "run"
    made = bertctl("finetune", *arguments, "-o", run)
    assert made.returncode == 0, made.stderr
    steps = json.loads((run / "metrics.json").read_text())["steps"]
    assert document["steps"] == steps
    weights = (run / "model" / "model.safetensors").stat().st_size
    checkpoint = document["disk_bytes"]["checkpoint"]
    assert (
        3.5 * weights < checkpoint < 4.1 * weights
    )  # weights, the best weights, two moments of what is trained
    model = sum(
        path.stat().st_size for path in (run / "model").iterdir() if path.name != "README.md"
    )
    assert abs(document["disk_bytes"]["model"] - model) < 0.01 * model
    assert document["disk_bytes"]["while_running"] >= document["disk_bytes"]["run"] + 2 * checkpoint
    peak = json.loads((run / "performance.json").read_text())["peak_memory_bytes"]
    assert 0.7 * peak < document["peak_memory_bytes"]["process"] < 1.3 * peak
    planned = json.loads(bertctl("finetune", *arguments, "--dry-run", "--json").stdout)[
        "memory_bytes"
    ]
    assert 0.7 * peak < planned < 1.5 * peak
    line = next(line for line in made.stderr.splitlines() if line.startswith("memory: "))
    assert (
        0.7 * peak < float(line.split()[2]) * {"MB": 1e6, "GB": 1e9}[line.split()[3]] < 1.5 * peak
    )
    assert document["detectable"]["validation"]["runs"] == pytest.approx(
        2.802 * (0.1 / 2) ** 0.5, abs=1e-3
    )
    assert document["sweep"]["cells"] == 18
    assert document["sweep"]["disk_bytes"] == 18 * document["disk_bytes"]["run"]


def test_a_person_gets_a_table_with_the_sweep(
    bertctl: Run, opinions: Path, tiny_model: Path
) -> None:
    arguments = ("text-classification", "--train-file", opinions, "--model", tiny_model, *SETTINGS)
    done = bertctl("estimate", *arguments, "--steps", 1, "--cells", 3)
    assert done.returncode == 0, done.stderr
    lines = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert lines == [
        "opinions",
        "read, encode, load",
        "start the head",
        "train 8 steps",
        "score 3 times",
        "save weights, 2 checkpoints",
        "baselines beside it, at most",
        "the whole run",
        "3 such runs",
        "memory",
        "disk",
        "disk of 3 such runs",
        "2 validation rows tell apart",
    ]


@pytest.mark.slow
def test_an_absurd_number_of_epochs_takes_no_longer(
    bertctl: Run, opinions: Path, tiny_model: Path
) -> None:
    """Its batches are not all laid out: that took memory without an end."""
    arguments = ("text-classification", "--train-file", opinions, "--model", tiny_model, *SETTINGS)
    done = bertctl("estimate", *arguments, "--steps", 1, "--epochs", 2**31, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["steps"] == 4 * 2**31
    assert document["seconds"]["train"]["estimate"] > 1e6


@pytest.mark.in_process
def test_what_finetune_would_refuse_is_refused(bertctl: Run) -> None:
    done = bertctl("estimate", "sst2", "--offline")
    assert done.returncode == 4
    assert done.stdout == ""
    assert "--data-dir DIR" in done.stderr
    done = bertctl("estimate", "demo", "--cells", 0)
    assert done.returncode == 2
    assert "--cells 0" in done.stderr


@pytest.mark.parametrize(
    "words", [("estimate",), ("sweep", "--grid", "training.epochs=1,2", "--seeds", "1")]
)
def test_a_place_that_cannot_be_written_is_named_with_what_to_do(
    bertctl: Run, opinions: Path, tiny_model: Path, words: tuple[str, ...]
) -> None:
    """Nobody makes a file in /proc, not even root."""
    recipe = opinions.with_name("mine.yaml")
    recipe.write_text(
        f"task: text-classification\ndata: {{train_file: {opinions}}}\nmodel: {{name: "
        f"{tiny_model}}}\n"
    )
    refused = bertctl(words[0], recipe, *words[1:], "--max-length", 32, "-o", "/proc/made")
    assert refused.returncode == 4, refused.stderr
    assert "error: /proc/made: can't be written" in refused.stderr
    assert "choose another with -o" in refused.stderr
