"""Vectors of texts, on MiniLM and real pairs.

What they are worth before training, and what training brings.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.conftest import Run

pytestmark = pytest.mark.slow

SEEDS = (42, 43, 44)


def train(bertctl: Run, recipe: str, run: Path, *more: object) -> None:
    done = bertctl("finetune", recipe, "--offline", "-o", run, *more)
    assert done.returncode == 0, done.stderr


def evaluated(bertctl: Run, model: object, file: Path, into: Path) -> float:
    done = bertctl("evaluate", model, "--file", file, "-o", into, "--json")
    assert done.returncode == 0, done.stderr
    (actual,) = json.loads(done.stdout)["metrics"].values()
    return float(actual["spearman"]["value"])


def test_minilm_and_the_mean_of_its_word_pieces_before_any_training(
    bertctl: Run, shared_data: Path, tmp_path: Path
) -> None:
    dev = shared_data / "glue" / "STS-B" / "dev.tsv"
    done = bertctl(
        "evaluate",
        "minilm",
        "--file",
        dev,
        "--precision",
        "fp32",
        "-o",
        tmp_path / "before",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    (actual,) = json.loads(done.stdout)["metrics"].values()
    assert actual["spearman"]["value"] == pytest.approx(0.867, abs=5e-4)
    rows = [line.split("\t") for line in dev.read_text(encoding="utf-8").splitlines()[1:]]
    unit = []
    for side in (7, 8):
        file = tmp_path / f"{side}.txt"
        file.write_text("".join(f"{row[side]}\n" for row in rows), encoding="utf-8")
        how = (
            "--layers",
            "word-embeddings",
            "--pooling",
            "mean",
            "--no-special-tokens",
            "--normalize",
        )
        done = bertctl(
            "extract-features", file, "-o", tmp_path / f"{side}.npy", "--model", "minilm", *how
        )
        assert done.returncode == 0, done.stderr
        unit.append(np.load(tmp_path / f"{side}.npy"))
    from scipy.stats import spearmanr

    cosines = (unit[0] * unit[1]).sum(axis=1)
    assert spearmanr(cosines, [float(row[9]) for row in rows]).statistic == pytest.approx(
        0.645, abs=1e-3
    )


@pytest.mark.parametrize("loss", ["cosent", "cosine"])
def test_64_at_once_are_4_times_16_are_2_processes_of_32(
    loss: str, bertctl: Run, shared_data: Path, tmp_path: Path
) -> None:
    same = [
        "--data-dir",
        shared_data / "glue",
        "--model",
        "minilm",
        "--max-train-rows",
        128,
        "--max-eval-rows",
        32,
    ]
    same += ["--batch-size", 64, "--epochs", 1, "--precision", "fp32", "--set", "model.dropout=0"]
    same += ["--set", f"sentence_embeddings.loss={loss}"]
    ways = {
        "whole": [],
        "parts": ["--set", "training.accumulation_steps=4"],
        "processes": ["--num-processes", 2],
    }
    weights = {}
    losses = {}
    for name, way in ways.items():
        train(bertctl, "stsb-embeddings", tmp_path / name, *same, *way)
        weights[name] = load_file(tmp_path / name / "model" / "model.safetensors")
        losses[name] = json.loads((tmp_path / name / "history.jsonl").read_text().splitlines()[0])[
            "loss"
        ]
    for name in ("parts", "processes"):
        assert losses[name] == pytest.approx(losses["whole"], rel=1e-6)
        assert (
            max(
                np.abs(weights[name][entry] - weights["whole"][entry]).max()
                for entry in weights["whole"]
            )
            < 2e-6
        )


def test_training_on_scores_is_better_than_no_training(
    bertctl: Run, shared_data: Path, tmp_path: Path
) -> None:
    dev = shared_data / "glue" / "STS-B" / "dev.tsv"
    evaluated(bertctl, "minilm", dev, tmp_path / "before")
    for seed in SEEDS:
        run = tmp_path / str(seed)
        how = (
            "--data-dir",
            shared_data / "glue",
            "--model",
            "minilm",
            "--epochs",
            1,
            "--seed",
            seed,
        )
        train(bertctl, "stsb-embeddings", run, *how)
        evaluated(bertctl, run, dev, tmp_path / f"after-{seed}")
    after = [tmp_path / f"after-{seed}" for seed in SEEDS]
    done = bertctl("compare", tmp_path / "before", *after, "--json")
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout)["differences"]
    print(differences)  # noqa: T201
    assert len(differences) >= len(SEEDS)
    assert all(
        difference["low"] > 0 for difference in differences if difference["metric"] == "spearman"
    )
