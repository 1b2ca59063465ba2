"""`bertctl probe` as a person types it, and the verbs that take its run."""

import json
import os
import signal
import time

import pytest

pytestmark = pytest.mark.in_process


def _opinions(count: int) -> str:
    rows = ["text,label"]
    for i in range(count):
        rows += [
            f"the film was good {'very ' * (i % 4)}{i},pos",
            f"it was bad food {'not ' * (i % 3)}{i},neg",
        ]
    return "\n".join(rows) + "\n"


def test_a_table_a_picture_and_a_run_that_evaluate_and_predict_take(bertctl, tiny_model, tmp_path):
    (tmp_path / "opinions.csv").write_text(_opinions(40))
    result = bertctl(
        "probe",
        "opinions.csv",
        "--model",
        tiny_model,
        "--max-length",
        40,
        "--layers",
        "all",
        "--pooling",
        "cls,mean",
        "-o",
        "run",
        "--set",
        "probe.folds=3",
    )
    assert result.returncode == 0, result.stderr
    assert "cross-validation" in result.stdout
    assert "majority" in result.stdout
    assert "best by cross-validation: layer" in result.stderr
    stages = [line.partition(":")[0] for line in result.stderr.splitlines()]
    assert [stage for stage in stages if stage in ("features", "training", "scoring")] == [
        "features",
        "training",
        "scoring",
    ]
    run = tmp_path / "run"
    assert (run / "probe.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (run / "probe.svg").read_text()
    metrics = json.loads((run / "metrics.json").read_text())
    assert len(metrics["probe"]["table"]) == 6
    scored = bertctl("evaluate", "run", "--json")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["metrics"] == metrics["metrics"]
    answered = bertctl("predict", "run", "-", input="the film was good\nit was bad food\n")
    assert answered.returncode == 0, answered.stderr
    assert [json.loads(line)["prediction"] for line in answered.stdout.splitlines()] == [
        "pos",
        "neg",
    ]
    replayed = bertctl("probe", "run/recipe.yaml", "-o", "again", "--json")
    assert replayed.returncode == 0, replayed.stderr
    assert (tmp_path / "again" / "metrics.json").read_bytes() == (run / "metrics.json").read_bytes()


def test_a_probe_that_is_computed_holds_its_folder(bertctl, nursery, tiny_model, tmp_path):
    (tmp_path / "opinions.csv").write_text(_opinions(40))
    words = ["probe", "opinions.csv", "--model", str(tiny_model), "--max-length", "40", "-o", "run"]
    probe = nursery.start(words, cwd=tmp_path, env=dict(os.environ))
    while not (tmp_path / "run" / "environment.json").exists():
        assert probe.poll() is None, probe.communicate()
        time.sleep(0.01)
    probe.send_signal(signal.SIGSTOP)
    seconds = [bertctl("runs", "rm", "run"), bertctl(*words, "--overwrite")]
    probe.send_signal(signal.SIGCONT)
    probe.communicate()
    for second in seconds:
        assert second.returncode == 2, second.stderr
        assert "run is in use by process" in second.stderr
    assert probe.returncode == 0
    assert (tmp_path / "run" / "metrics.json").exists()


def test_tags_of_words(bertctl, tiny_model, tmp_path):
    sentences = []
    for i in range(30):
        sentences += [f"the O\nfilm B-THING\nwas O\n{word} O\n{i} O\n" for word in ("good", "bad")]
    (tmp_path / "rows.conll").write_text("\n".join(sentences))
    result = bertctl(
        "probe",
        "rows.conll",
        "--model",
        tiny_model,
        "--max-length",
        40,
        "-o",
        "run",
        "--layers",
        "1,last",
    )
    assert result.returncode == 0, result.stderr
    assert "validation entity_f1" in result.stdout
    answered = bertctl("predict", "run", "-", input="the film was good\n")
    assert answered.returncode == 0, answered.stderr
    assert json.loads(answered.stdout)["prediction"] == ["O", "B-THING", "O", "O"]
    replayed = bertctl("probe", "run/recipe.yaml", "-o", "again", "-q")
    assert replayed.returncode == 0, replayed.stderr
    assert (tmp_path / "again" / "metrics.json").read_bytes() == (
        tmp_path / "run" / "metrics.json"
    ).read_bytes()
    wrong = bertctl("probe", "squad", "--model", tiny_model, "--max-length", 40)
    assert wrong.returncode == 2
    assert "task is question-answering" in wrong.stderr


@pytest.mark.slow
def test_the_tutorials_recipe_has_twenty_splits(bertctl, tiny_model, tmp_path):
    (tmp_path / "train.tsv").write_text(
        "".join(line.replace(",", "\t") for line in _opinions(40).splitlines(True)[1:])
    )
    result = bertctl(
        "probe",
        "probe-sst2-tutorial",
        "--train-file",
        "train.tsv",
        "--model",
        tiny_model,
        "--max-length",
        40,
        "--max-train-rows",
        40,
        "-o",
        "run",
        "--json",
    )
    assert result.returncode == 0, result.stderr
    table = json.loads(result.stdout)["probe"]["table"]
    assert [row["pooling"] for row in table] == ["cls", "mean"]
    assert [row["hold_outs"]["n"] for row in table] == [20, 20]


def test_what_is_no_input_is_refused(bertctl, tiny_model, tmp_path):
    result = bertctl("probe", "sst3")
    assert result.returncode == 2
    assert "recipe 'sst3'" in result.stderr
    (tmp_path / "squad.jsonl").write_text(
        '{"question": "Who?", "context": "Anna.", "answers": ["Anna"]}\n' * 4
    )
    result = bertctl("probe", tmp_path / "squad.jsonl", "--model", tiny_model, "--max-length", 32)
    assert result.returncode == 2
    assert "Fine-tune for it" in result.stderr
    assert "bertctl finetune squad." not in result.stderr  # the recipe of that name has other data


def test_the_table_counts_clusters_as_the_result_does(bertctl, tiny_model, tmp_path):
    lines = _opinions(40).splitlines()
    grouped = [f"{line},{'doc' if i == 0 else (i - 1) // 8}" for i, line in enumerate(lines)]
    (tmp_path / "opinions.csv").write_text("\n".join(grouped) + "\n")
    result = bertctl(
        "probe",
        "opinions.csv",
        "--model",
        tiny_model,
        "--max-length",
        40,
        "--layers",
        "last",
        "--pooling",
        "mean",
        "-o",
        "run",
        "--set",
        "probe.folds=3",
        "--set",
        "data.group_column=doc",
        "--set",
        "data.validation_fraction=0.4",
    )
    assert result.returncode == 0, result.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    (row,) = metrics["probe"]["table"]
    complete = metrics["metrics"]["validation"]["accuracy"]
    assert complete["clusters"] == 4
    assert {name: row["accuracy"][name] for name in ("value", "low", "high")} == {
        name: complete[name] for name in ("value", "low", "high")
    }
