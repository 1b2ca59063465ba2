"""Vectors of texts, on MiniLM and real pairs: what they are worth before training, and what training brings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from bertctl.catalog.models import locate_model
from tests.conftest import Run

pytestmark = pytest.mark.slow

SEEDS = (42, 43, 44)


def metrics_of(run: Path) -> dict[str, float]:
    """The primary split's metrics by name."""
    found = json.loads((run / "metrics.json").read_text())["metrics"]
    return {name: metric["value"] for name, metric in next(iter(found.values())).items()}


def train(bertctl: Run, recipe: str, run: Path, *more: object) -> dict[str, Any]:
    done = bertctl("finetune", recipe, "--offline", "-o", run, *more)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    return document["metrics"]["validation"]  # type: ignore[no-any-return]


def evaluated(bertctl: Run, model: object, file: Path, into: Path) -> float:
    done = bertctl("evaluate", model, "--file", file, "-o", into, "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["metrics"].values()
    return float(found["spearman"]["value"])


def test_minilm_and_the_mean_of_its_word_pieces_before_any_training(
    bertctl: Run, shared_data: Path, tmp_path: Path
) -> None:
    dev = shared_data / "glue" / "STS-B" / "dev.tsv"
    done = bertctl("evaluate", "minilm", "--file", dev, "--precision", "fp32", "-o", tmp_path / "before", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["metrics"].values()
    assert found["spearman"]["value"] == pytest.approx(0.867, abs=5e-4)
    rows = [line.split("\t") for line in dev.read_text(encoding="utf-8").splitlines()[1:]]
    unit = []
    for side in (7, 8):
        file = tmp_path / f"{side}.txt"
        file.write_text("".join(f"{row[side]}\n" for row in rows), encoding="utf-8")
        how = ("--layers", "word-embeddings", "--pooling", "mean", "--no-special-tokens", "--normalize")
        done = bertctl("extract-features", file, "-o", tmp_path / f"{side}.npy", "--model", "minilm", *how)
        assert done.returncode == 0, done.stderr
        unit.append(np.load(tmp_path / f"{side}.npy"))
    from scipy.stats import spearmanr

    cosines = (unit[0] * unit[1]).sum(axis=1)
    assert spearmanr(cosines, [float(row[9]) for row in rows]).statistic == pytest.approx(0.645, abs=1e-3)


@pytest.mark.parametrize("loss", ["cosent", "cosine"])
def test_64_at_once_are_4_times_16_are_2_processes_of_32(
    loss: str, bertctl: Run, shared_data: Path, tmp_path: Path
) -> None:
    same = ["--data-dir", shared_data / "glue", "--model", "minilm", "--max-train-rows", 128, "--max-eval-rows", 32]
    same += ["--batch-size", 64, "--epochs", 1, "--precision", "fp32", "--set", "model.dropout=0"]
    same += ["--set", f"sentence_embeddings.loss={loss}"]
    ways = {"whole": [], "parts": ["--set", "training.accumulation_steps=4"], "processes": ["--num-processes", 2]}
    weights, losses = {}, {}
    for name, way in ways.items():
        train(bertctl, "stsb-embeddings", tmp_path / name, *same, *way)
        weights[name] = load_file(tmp_path / name / "model" / "model.safetensors")
        losses[name] = json.loads((tmp_path / name / "history.jsonl").read_text().splitlines()[0])["loss"]
    for name in ("parts", "processes"):
        assert losses[name] == pytest.approx(losses["whole"], rel=1e-6)
        assert max(np.abs(weights[name][one] - weights["whole"][one]).max() for one in weights["whole"]) < 2e-6


def test_training_on_scores_is_better_than_no_training(bertctl: Run, shared_data: Path, tmp_path: Path) -> None:
    dev = shared_data / "glue" / "STS-B" / "dev.tsv"
    evaluated(bertctl, "minilm", dev, tmp_path / "before")
    for seed in SEEDS:
        run = tmp_path / str(seed)
        how = ("--data-dir", shared_data / "glue", "--model", "minilm", "--epochs", 1, "--seed", seed)
        train(bertctl, "stsb-embeddings", run, *how)
        evaluated(bertctl, run, dev, tmp_path / f"after-{seed}")
    after = [tmp_path / f"after-{seed}" for seed in SEEDS]
    done = bertctl("compare", tmp_path / "before", *after, "--json")
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout)["differences"]
    print(differences)  # noqa: T201
    assert len(differences) >= len(SEEDS)
    assert all(one["low"] > 0 for one in differences if one["metric"] == "spearman")


def forgetful_minilm(folder: Path, layers: int = 3) -> Path:
    """MiniLM whose upper layers are drawn anew."""
    import shutil

    shutil.copytree(locate_model("minilm").folder, folder)
    network = transformers.BertModel.from_pretrained(folder)
    torch.manual_seed(0)
    for layer in network.encoder.layer[-layers:]:
        for part in layer.modules():
            if isinstance(part, torch.nn.Linear):
                torch.nn.init.normal_(part.weight, std=0.02)
                torch.nn.init.zeros_(part.bias)
            elif isinstance(part, torch.nn.LayerNorm):
                torch.nn.init.ones_(part.weight)
                torch.nn.init.zeros_(part.bias)
    network.save_pretrained(folder)
    return folder


def test_what_follows_from_sentences_gives_back_what_upper_layers_knew(
    bertctl: Run, shared_data: Path, tmp_path: Path
) -> None:
    dev = shared_data / "glue" / "STS-B" / "dev.tsv"
    model = forgetful_minilm(tmp_path / "model")
    before = evaluated(bertctl, model, dev, tmp_path / "before")
    after = {}
    for loss in ("multiple-negatives", "softmax"):
        files = ["--train-file", shared_data / "glue-samples" / "MNLI" / "train.tsv", "--validation-file", dev]
        how = ["--set", f"sentence_embeddings.loss={loss}", "--set", "evaluation.positive_label=entailment"]
        found = train(bertctl, "sentence-embeddings", tmp_path / loss, *files, *how, "--model", model)
        after[loss] = found["spearman"]["value"]
    print(before, after)  # noqa: T201
    assert after["multiple-negatives"] >= before + 0.15
    assert after["multiple-negatives"] >= after["softmax"] + 0.02


def test_questions_find_their_paragraphs_better_after_an_epoch(bertctl: Run, shared_data: Path, tmp_path: Path) -> None:
    dev = shared_data / "squad" / "dev-v1.1.json"
    done = bertctl("evaluate", "minilm", "--file", dev, "-o", tmp_path / "before")
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    train(bertctl, "squad-retrieval", run, "--data-dir", shared_data / "squad", "--model", "minilm")
    done = bertctl("evaluate", run, "--file", dev, "-o", tmp_path / "after")
    assert done.returncode == 0, done.stderr
    done = bertctl("compare", tmp_path / "before", tmp_path / "after", "--json")
    (found,) = [one for one in json.loads(done.stdout)["differences"] if one["metric"] == "mrr_at_10"]
    print(found)  # noqa: T201
    assert found["low"] > 0
