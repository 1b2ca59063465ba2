"""`bertctl finetune` through the real process.

What it leaves behind, what it says, and that it can be done again.
"""

import hashlib
import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import yaml

from bertctl import __version__
from bertctl.cli.main import main
from bertctl.config.load import load_recipe

METRICS = {"accuracy", "f1", "f1_macro", "roc_auc", "average_precision", "matthews", "loss"}


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_run_folder_holds_what_is_promised_and_nothing_else(tiny_run):
    actual = {
        str(path.relative_to(tiny_run.path)) for path in tiny_run.path.rglob("*") if path.is_file()
    }
    model = {
        "model/config.json",
        "model/model.safetensors",
        "model/tokenizer.json",
        "model/tokenizer_config.json",
    }
    run = {
        "status.json",
        "recipe.yaml",
        "environment.json",
        "metrics.json",
        "performance.json",
        "history.jsonl",
    }
    assert actual == run | model | {"predictions/validation.jsonl", "model/README.md", ".lock"}


def test_status_says_done_with_the_last_step(tiny_run):
    status = read(tiny_run.path / "status.json")
    assert status.pop("pid") != os.getpid()
    assert status == {"schema": 1, "state": "done", "step": 20, "host": socket.gethostname()}


def test_metrics_have_values_intervals_and_counts(tiny_run):
    metrics = read(tiny_run.path / "metrics.json")
    assert metrics["schema"] == 1
    assert metrics["primary"] == {"split": "validation", "name": "accuracy"}
    assert set(metrics["metrics"]) == {"validation"}, (
        "the test split is scored only where it is named"
    )
    scored = metrics["metrics"]["validation"]
    of_labels = {
        f"{name}:{label}" for name in ("precision", "recall", "f1") for label in ("neg", "pos")
    }
    assert set(scored) == METRICS | {"f1_micro", "f1_weighted"} | of_labels
    for name, metric in scored.items():
        assert set(metric) == {"value", "low", "high", "n", "higher_is_better"}
        assert metric["n"] == 4
        assert metric["higher_is_better"] == (name != "loss")
        assert metric["low"] <= metric["value"] <= metric["high"]
    assert scored["accuracy"]["value"] == 1.0, "the opinions are easy enough to be learned by heart"
    assert metrics["baseline"]["validation"]["accuracy"] == 0.5
    assert metrics["data"]["train"]["examples"] == 12
    assert metrics["steps"] == 20
    assert metrics["selected_on"] == {"epoch": {"split": "validation", "of": 20}}
    card = (tiny_run.path / "model" / "README.md").read_text()
    assert (
        "Chosen on validation: epoch (best of 20), so its scores are slightly optimistic." in card
    )


def test_metrics_hold_no_time_no_path_no_date(tiny_run):
    content = (tiny_run.path / "metrics.json").read_text()
    assert str(tiny_run.path.parent) not in content
    assert "seconds" not in content


def test_predictions_are_one_line_an_example(tiny_run):
    rows = lines(tiny_run.path / "predictions" / "validation.jsonl")
    source = tiny_run.data.read_text().splitlines()[1:]
    keys = ["id", "text", "gold", "prediction", "probabilities", "loss", "tokens", "truncated"]
    assert len(rows) == 4
    for row in rows:
        assert list(row) == keys
        assert source[int(row["id"])] == f"{row['text']},{row['gold']}"
        assert list(row["probabilities"]) == ["neg", "pos"]
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        assert row["prediction"] == max(row["probabilities"], key=row["probabilities"].get)
        assert row["loss"] == pytest.approx(-np.log(row["probabilities"][row["gold"]]), abs=1e-5)
        assert row["truncated"] is False


def test_history_is_one_line_a_logging_step_and_one_an_evaluation(tiny_run):
    history = lines(tiny_run.path / "history.jsonl")
    steps = [line for line in history if "learning_rate" in line]
    assert [line["step"] for line in steps] == list(range(1, 21)), (
        "each epoch is one step, and ends with a line"
    )
    keys = {
        "step",
        "epoch",
        "loss",
        "learning_rate",
        "grad_norm",
        "examples_per_second",
        "tokens_per_second",
    }
    assert all(set(line) == keys for line in steps)
    assert steps[0]["learning_rate"] == 0.0, "the first of two warm-up steps"
    assert max(line["learning_rate"] for line in steps) == 5e-3
    assert steps[-1]["loss"] < steps[0]["loss"] / 5
    evaluations = [line for line in history if "validation_accuracy" in line]
    assert [line["step"] for line in evaluations] == list(range(1, 21))


def test_environment_says_what_the_numbers_were_computed_with(tiny_run, tiny_model):
    environment = read(tiny_run.path / "environment.json")
    assert environment["bertctl"] == __version__
    assert environment["device"] == "cpu"
    assert environment["precision"] == "fp32"
    assert environment["seed"] == 42
    assert environment["packages"]["torch"]
    assert set(environment["data_hashes"]) == {"train", "validation"}
    assert environment["columns"] == {"text": "text", "label": "label"}
    assert environment["command"].startswith("bertctl finetune text-classification --train-file ")
    assert str(tiny_model) in environment["command"]


def test_performance_has_the_timings(tiny_run):
    performance = read(tiny_run.path / "performance.json")
    assert set(performance["seconds"]) == {"read", "load", "encode", "train", "evaluate"}
    assert performance["examples_per_second"] > 0
    assert 0 <= performance["padding_share"] < 1
    assert performance["peak_memory_bytes"] > 100e6


def test_the_saved_recipe_is_whole_and_replayable(tiny_run):
    saved = tiny_run.path / "recipe.yaml"
    recipe = load_recipe(str(saved))
    document = yaml.safe_load(saved.read_text())
    fields = recipe.model_dump()
    assert document == {name: fields[name] for name in document}
    assert {"task", "data", "model", "training", "optimizer", "evaluation", "runtime"} <= set(
        document
    )
    assert recipe.runtime.precision == "fp32"
    assert isinstance(recipe.runtime.threads, int), "resolved, not left to the next machine"
    assert recipe.training.epochs == 20
    assert saved.read_text().startswith(f"# bertctl finetune {saved}\n")


def test_what_is_said_before_and_after(tiny_run):
    """Device and why, counts, hold-out, steps, the first example as the model reads it.

    The folder as the last line.
    """
    talk = tiny_run.process.stderr
    for message in (
        "text from 'text', label from 'label' (guessed)",
        "no validation file: 4 of the 16 training rows are held out for validation (seed 42, "
        "stratified by label)",
        "compute: cpu (",
        "fp32 (as set)",
        "train: 12 examples (neg: 6, pos: 6)",
        "validation: 4 examples (neg: 2, pos: 2)",
        "training: 20 epochs of 12 examples in batches of 16: 20 steps, learning rate 0.005",
        "memory: about ",
        "first example (label ",
        "tokens  [CLS]",
        "segment     0",
        "step 1: validation accuracy ",
        "examples/s",
    ):
        assert message in talk
    assert talk.splitlines()[-2:] == [
        f"run folder: {tiny_run.path}",
        f"Next: bertctl predict {tiny_run.path} FILE",
    ]


def test_the_answer_is_one_table(tiny_run):
    table = tiny_run.process.stdout.splitlines()
    assert table[0].split() == ["split", "metric", "value", "95", "%", "interval", "n", "majority"]
    assert table[1].split()[:4] == ["validation", "accuracy", "*", "1.0000"]
    assert "0.5000" in table[1], "the majority class stands beside it"
    assert {line.split()[1] for line in table[1:-1]} == METRICS
    assert (
        table[-1].strip()
        == "Chosen on validation: epoch (best of 20), so its scores are slightly optimistic."
    )


def test_a_replay_gives_the_same_bytes_and_weights_and_json_is_one_document(
    bertctl, tiny_run, tmp_path
):
    """`--quiet` leaves nothing on stderr but warnings, too.

    Early on the model answers one thing to everything.
    """
    result = bertctl("finetune", tiny_run.path / "recipe.yaml", "-o", "again", "--json", "-q")
    assert result.returncode == 0, result.stderr
    assert all(line.startswith("warning: step ") for line in result.stderr.splitlines())
    again = tmp_path / "again"
    assert (again / "metrics.json").read_bytes() == (tiny_run.path / "metrics.json").read_bytes()
    for name in ("model/model.safetensors", "model/config.json", "predictions/validation.jsonl"):
        assert _sha(again / name) == _sha(tiny_run.path / name), name
    assert json.loads(result.stdout) == {"run": "again", **read(again / "metrics.json")}
    first = read(tiny_run.path / "environment.json")
    second = read(again / "environment.json")
    assert first["recipe_hash"] == second["recipe_hash"]
    assert first["model_hash"] == second["model_hash"]


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_dry_run_does_everything_but_the_training(bertctl, opinions, tiny_model, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    arguments = [
        "--train-file",
        opinions,
        "--model",
        tiny_model,
        "--max-length",
        "32",
        "--dry-run",
        "--json",
    ]
    result = bertctl("finetune", "text-classification", *arguments, "--set", "training.epochs=2")
    assert result.returncode == 0, result.stderr
    assert "auto: learning rate 0.0005 (" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert "dry run: " in result.stderr
    plan = json.loads(result.stdout)
    assert plan["steps"] == 4
    assert plan["recipe"]["training"]["batch_size"] == 8
    assert plan["examples"] == {"train": 14, "validation": 2}
    assert plan["memory_bytes"] > 0
    assert plan["recipe"]["training"]["epochs"] == 2
    assert plan["run"].startswith("runs/opinions-"), "a run is named after its data"


def test_a_dry_run_prints_a_recipe_for_other_machines(
    opinions, tiny_model, tmp_path, capsys, monkeypatch
):
    """Through the same boundary, inside this process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(tiny_model)
    arguments = [
        "--train-file",
        opinions.name,
        "--model",
        "model",
        "--max-length",
        "32",
        "--dry-run",
    ]
    assert main(["finetune", "text-classification", *arguments]) == 0
    text = capsys.readouterr().out
    (tmp_path / "shown.yaml").write_text(text)
    read = yaml.safe_load(text)
    assert read["data"]["train_file"] == opinions.name
    assert read["model"] == {"name": "./model", "max_length": 32, "head_start": "probe"}
    assert read["optimizer"]["learning_rate"] == 5e-4, "as auto chose it"
    assert "runtime" not in read, "device, precision and threads are left to the machine"
    recipe = load_recipe("shown.yaml")
    assert recipe.data.train_file == str(opinions)
    assert recipe.model.name == str(tmp_path / "model")


PAIRS = [
    ("good film", "very good", "same"),
    ("good food", "bad food", "other"),
    ("dull film", "it was dull", "same"),
    ("bright film", "poor film", "other"),
    ("fine food", "", "unclear"),
    ("  ", "not very good", "unclear"),
]


def test_pairs_with_other_labels_from_the_weights_of_another_run(bertctl, tiny_run, tmp_path):
    """Three labels where the run had two: its encoder is kept, its head is new.

    A blank text is an example.
    """
    with (tmp_path / "pairs.csv").open("w") as out:
        out.write("question,answer,kind\n")
        out.writelines(f"{a},{b},{label}\n" for a, b, label in PAIRS)
    arguments = [
        "--train-file",
        "pairs.csv",
        "--validation-file",
        "pairs.csv",
        "--model",
        tiny_run.path,
    ]
    columns = ["--text-column", "question", "--pair-column", "answer", "--label-column", "kind"]
    settings = [
        "--max-length",
        "32",
        "--epochs",
        "1",
        "--precision",
        "fp32",
        "--set",
        "training.evaluate_every=1",
    ]
    result = bertctl(
        "finetune", "text-classification", *arguments, *columns, *settings, "-o", "pairs"
    )
    assert result.returncode == 0, result.stderr
    assert "1 of 6 texts" in result.stderr
    assert "train: 6 examples (other: 2, same: 2, unclear: 2)" in result.stderr
    rows = lines(tmp_path / "pairs" / "predictions" / "validation.jsonl")
    assert [(row["text"], row["pair"], row["gold"]) for row in rows] == PAIRS
    assert rows[5]["tokens"] == 3 + len(["not", "very", "good"]), (
        "a blank text leaves [CLS] [SEP] ... [SEP]"
    )
    config = read(tmp_path / "pairs" / "model" / "config.json")
    assert config["id2label"] == {"0": "other", "1": "same", "2": "unclear"}
    from safetensors import safe_open

    def layer(path: Path) -> np.ndarray:
        with safe_open(path, "np") as file:
            return file.get_tensor("bert.embeddings.position_embeddings.weight")

    new = layer(tmp_path / "pairs/model/model.safetensors")
    old = layer(tiny_run.path / "model/model.safetensors")
    assert np.abs(new - old).max() < 1e-3, "one step away from the run it started from"
    wrong = bertctl("predict", "pairs", "-", input="good film\n")
    assert wrong.returncode == 2
    assert "pairs of texts, and stdin" in wrong.stderr
    assert "--pair-column NAME" in wrong.stderr


def test_scores_that_are_all_about_the_mean_are_warned_of(bertctl, tiny_model, tmp_path):
    """A new head that learns nothing; its answers are no two the same."""
    rows = [f"the film was good {i},{100 * i}" for i in range(16)]
    (tmp_path / "scores.csv").write_text("\n".join(["text,score", *rows]) + "\n")
    arguments = [
        "--train-file",
        "scores.csv",
        "--label-column",
        "score",
        "--model",
        tiny_model,
        "-o",
        "run",
    ]
    settings = [
        "--max-length",
        "32",
        "--epochs",
        "1",
        "--learning-rate",
        "1e-9",
        "--precision",
        "fp32",
    ]
    result = bertctl("finetune", "text-regression", *arguments, *settings)
    assert result.returncode == 0, result.stderr
    answers = {
        row["prediction"] for row in lines(tmp_path / "run" / "predictions" / "validation.jsonl")
    }
    assert len(answers) > 1
    assert (
        f"the model answers about {np.mean(list(answers)):.3g} to every example of validation"
        in result.stderr
    )


def test_several_labels_from_a_separator_and_from_lists(bertctl, tiny_model, tmp_path):
    """Training rows are a CSV with `a|b`, validation rows JSONL with lists: the same labels."""
    (tmp_path / "train.csv").write_text(
        "text,labels\ngood film,film|good\nbad food,food|bad\ngood food,food|good\nit was,\nbad "
        "film, bad | film\n"
    )
    gold = [["good", "film"], [], ["bad"]]
    objects = [{"text": f"film {i}", "labels": labels} for i, labels in enumerate(gold)]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in objects))
    arguments = [
        "--train-file",
        "train.csv",
        "--validation-file",
        "dev.jsonl",
        "--model",
        tiny_model,
    ]
    settings = [
        "--max-length",
        "32",
        "--epochs",
        "1",
        "--set",
        "text_classification.label_separator=|",
    ]
    result = bertctl("finetune", "text-classification", *arguments, *settings, "-o", "run")
    assert result.returncode == 0, result.stderr
    assert "train: 5 examples (bad: 2, film: 2, food: 2, good: 2)" in result.stderr
    metrics = read(tmp_path / "run" / "metrics.json")
    assert metrics["primary"]["name"] == "f1_micro"
    assert "f1" not in metrics["metrics"]["validation"]
    rows = lines(tmp_path / "run" / "predictions" / "validation.jsonl")
    assert [sorted(row["gold"]) for row in rows] == [sorted(labels) for labels in gold]
    for row in rows:
        assert list(row["probabilities"]) == ["bad", "film", "food", "good"]
        assert row["prediction"] == [name for name, p in row["probabilities"].items() if p >= 0.5]
    assert (
        read(tmp_path / "run" / "model" / "config.json")["problem_type"]
        == "multi_label_classification"
    )
    from transformers import pipeline

    theirs = pipeline(
        "text-classification", str(tmp_path / "run" / "model"), device=-1, top_k=None
    )(["film 0"])[0]
    assert {entry["label"]: entry["score"] for entry in theirs} == pytest.approx(
        rows[0]["probabilities"], abs=5e-3
    )
