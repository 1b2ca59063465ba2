"""A probe from a recipe to a run folder, and what `evaluate` and `predict` make of it."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file

from bertctl.config.load import load_recipe
from bertctl.errors import BertctlError, DataError, UsageError
from bertctl.features.probe import prepare, run
from bertctl.inference.score_run import evaluate_run
from bertctl.inference.trained import open_run
from bertctl.run_folder import RunFolder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 opinions whose label is in one word of theirs."""
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    lines = ["text,label"]
    for i in range(30):
        lines.append(f"the film was good {'very ' * (i % 4)}{i},pos")
        lines.append(f"it was bad food {'not ' * (i % 3)}{i},neg")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class Finished(NamedTuple):
    """A run folder and its metrics.json."""

    folder: RunFolder
    metrics: dict[str, Any]


def probe(model: Path, rows: Path, out: Path, **more: object) -> Finished:
    options = {
        "data.train_file": str(rows),
        "model.name": str(model),
        "model.max_length": 40,
        "runtime.precision": "fp32",
        "runtime.device": "cpu",
        "evaluation.bootstrap_resamples": 100,
        "probe.folds": 3,
        "data.validation_fraction": 0.25,
    }
    task = more.pop("task", "text-classification")
    recipe = load_recipe(
        task, options=options | {name.replace("__", "."): value for name, value in more.items()}
    )
    folder = RunFolder.create(out)
    return Finished(folder, run(prepare(recipe), folder))


@pytest.fixture(scope="module")
def finished(tiny_model: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    out = tmp_path_factory.mktemp("probe") / "run"
    return probe(
        tiny_model, rows, out, probe__layers=["all"], probe__pooling=["cls", "mean", "max"]
    )


def test_one_table_has_every_layer_in_every_pooling_and_the_best_named(finished):
    document = finished.metrics.as_json()["probe"]
    assert [(row["layer"], row["pooling"]) for row in document["table"]] == [
        (str(layer), pooling) for layer in range(3) for pooling in ("cls", "mean", "max")
    ]
    best = max(document["table"], key=lambda row: row["cross_validation"])
    assert document["best"] == {"layer": best["layer"], "pooling": best["pooling"]}
    cls_of_embeddings = document["table"][0]
    assert cls_of_embeddings["accuracy"]["value"] <= 0.6, (
        "[CLS] before the first layer is the same for every text"
    )
    assert best["accuracy"]["value"] >= 0.9
    assert best["accuracy"]["low"] < best["accuracy"]["value"]


def test_the_run_holds_the_head_the_encoders_hash_and_a_baseline(finished):
    folder = finished.folder
    document = json.loads((folder.path / "probe.json").read_text())
    weights = load_file(folder.path / "probe.safetensors")
    assert weights["weight"].shape == (2, 36)
    assert document["head"]["id2label"] == {"0": "neg", "1": "pos"}
    assert len(document["encoder_hash"]) == 64
    assert not folder.model.exists()
    assert finished.metrics.as_json()["baseline"]["validation"]["accuracy"] == pytest.approx(
        0.5, abs=0.1
    )
    assert json.loads(folder.status.read_text())["state"] == "done"


def test_evaluate_gives_the_very_same_numbers(finished):
    before = finished.folder.metrics.read_bytes()
    predictions = finished.folder.predictions("validation").read_bytes()
    evaluate_run(open_run(finished.folder.path))
    assert finished.folder.metrics.read_bytes() == before
    assert finished.folder.predictions("validation").read_bytes() == predictions


def test_the_table_scores_what_the_kept_probe_scores(finished):
    document = finished.metrics.as_json()["probe"]
    (best,) = [
        r
        for r in document["table"]
        if {"layer": r["layer"], "pooling": r["pooling"]} == document["best"]
    ]
    assert finished.metrics.as_json()["metrics"]["validation"]["accuracy"] == best["accuracy"]


def test_another_encoder_in_its_place_is_refused(tiny_model, rows, tmp_path):
    folder = tmp_path / "encoder"
    folder.mkdir()
    for file in tiny_model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    result = probe(folder, rows, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    with pytest.raises(DataError, match="not the encoder"):
        open_run(result.folder.path).load()


@pytest.mark.parametrize(
    ("layers", "more"),
    [
        (["weighted-all"], {}),
        (["last"], {"probe__classifier": "ridge", "probe__class_weight": "balanced"}),
        (["1"], {"probe__normalize": True, "probe__special_tokens": False}),
        (["sum-all"], {"probe__pooling": ["mean-max"]}),
    ],
)
def test_every_kind_of_probe_is_kept_and_scored_alike(tiny_model, rows, tmp_path, layers, more):
    result = probe(tiny_model, rows, tmp_path / "run", probe__layers=layers, **more)
    (row,) = result.metrics.as_json()["probe"]["table"]
    assert result.metrics.as_json()["metrics"]["validation"]["accuracy"] == row["accuracy"]
    assert row["accuracy"]["value"] >= 0.8
    assert ("mix" in row) == (layers == ["weighted-all"])


def test_scores_are_learned_by_ridge(tiny_model, tmp_path):
    path = tmp_path / "scores.csv"
    texts = [(f"the film was {'very ' * (i % 5)}good", i % 5) for i in range(60)]
    path.write_text("text,score\n" + "".join(f"{text},{score}.5\n" for text, score in texts))
    result = probe(
        tiny_model, path, tmp_path / "run", task="text-regression", data__label_column="score"
    )
    assert result.metrics.as_json()["probe"]["classifier"] == "ridge"
    assert result.metrics.as_json()["metrics"]["validation"]["spearman"]["value"] > 0.9
    with pytest.raises(UsageError, match=r"logistic-regression.*text-regression"):
        probe(
            tiny_model,
            path,
            tmp_path / "no",
            task="text-regression",
            data__label_column="score",
            probe__classifier="logistic-regression",
        )


def test_repeated_hold_outs_give_mean_and_deviation(tiny_model, rows, tmp_path):
    result = probe(tiny_model, rows, tmp_path / "run", probe__repeats=4)
    (row,) = result.metrics.as_json()["probe"]["table"]
    values = row["hold_outs"]["values"]
    assert len(values) == 4
    assert values[0] == row["accuracy"]["value"]
    assert row["hold_outs"]["mean"] == pytest.approx(np.mean(values))
    assert row["hold_outs"]["deviation"] == pytest.approx(np.std(values, ddof=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probe__layers": ["7"]}, "no layer 7"),
        ({"probe__pooling": ["pooler"], "probe__layers": ["1"]}, "'pooler' reads the last layer"),
    ],
)
def test_what_can_not_be_is_refused(tiny_model, rows, tmp_path, change, message):
    with pytest.raises(BertctlError, match=message):
        probe(tiny_model, rows, tmp_path / "run", **change)


def test_a_single_label_is_refused(tiny_model, tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("text,label\n" + "good film,pos\n" * 20)
    with pytest.raises(DataError, match="nothing can be learned"):
        probe(tiny_model, path, tmp_path / "run")
