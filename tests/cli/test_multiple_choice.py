"""Multiple choice through the real process: trained, scored again, predicted, refused."""

import json
from pathlib import Path

import pytest

from tests.nursery import Nursery

pytestmark = pytest.mark.in_process

ROWS = [
    ("the film was good", ["it was fine", "it was dull"], 0),
    ("the food was bad", ["very fine", "very poor", "bright"], 1),
    ("not a good film", ["bright", "fine", "dull", "good"], 2),
    ("", ["a film was the food", "it was a film"], 1),
    ("a bright film", ["very bright", "dull", "poor food"], 0),
    ("dull", ["good", "very good", "fine indeed it was", "very dull"], 3),
    ("the food was not good", ["good food", "bad food"], 1),
    ("was it a good film?", ["it was food", "the dull", "it was a very good film"], 2),
]


def write_rows(path: Path) -> Path:
    lines = [
        json.dumps({"context": c, "choices": choices, "label": label}) for c, choices, label in ROWS
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery) -> Path:
    """The rows learned by heart."""
    folder = tmp_path_factory.mktemp("choices")
    data = write_rows(folder / "rows.jsonl")
    settings = ["training.batch_size=4", "model.dropout=0.0", "evaluation.bootstrap_resamples=100"]
    command = [
        "finetune",
        "multiple-choice",
        "--train-file",
        str(data),
        "--validation-file",
        str(data),
        "--model",
        str(tiny_model),
        "--max-length",
        "40",
        "--epochs",
        "60",
        "--learning-rate",
        "3e-3",
        "--checkpoint-every",
        "off",
        "--precision",
        "fp32",
        "-o",
        str(folder / "run"),
        "--set",
        "training.evaluate_every=120",
    ]
    done = nursery.run(
        [*command, *(word for setting in settings for word in ("--set", setting))], cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "2 to 4 choices; right one 0: 2, 1: 3, 2: 2, 3: 1" in done.stderr
    return folder / "run"


def test_a_run_holds_a_prediction_for_every_row(run):
    lines = [
        json.loads(line)
        for line in (run / "predictions" / "validation.jsonl").read_text().splitlines()
    ]
    assert (
        [line["prediction"] for line in lines]
        == [line["gold"] for line in lines]
        == [row[2] for row in ROWS]
    )
    assert [len(line["probabilities"]) for line in lines] == [len(row[1]) for row in ROWS]
    assert list(lines[0]) == [
        "id",
        "context",
        "choices",
        "gold",
        "prediction",
        "probabilities",
        "loss",
        "tokens",
        "truncated",
    ]
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["primary"] == {"split": "validation", "name": "accuracy"}
    assert metrics["metrics"]["validation"]["accuracy"]["value"] == 1.0
    assert metrics["baseline"]["validation"] == {"accuracy": pytest.approx(3 / 8)}
    assert json.loads((run / "model" / "config.json").read_text())["architectures"] == [
        "BertForMultipleChoice"
    ]


def test_its_own_prediction_file_is_scored_without_naming_a_column(run, bertctl, tmp_path):
    predictions = run / "predictions" / "validation.jsonl"
    result = bertctl("evaluate", run, "--file", predictions, "-o", tmp_path / "again", "--json")
    assert result.returncode == 0, result.stderr
    ours = json.loads((run / "metrics.json").read_text())["metrics"]["validation"]
    assert json.loads(result.stdout)["metrics"]["file"] == ours


def test_predict_reads_stdin_and_other_layouts_and_writes_csv_that_reads_back(
    run, bertctl, tmp_path
):
    question = {
        "prompt": "the film was good",
        "options": ["it was fine", "it was dull"],
        "answer": "nonsense",
    }
    result = bertctl(
        "predict", run, "-", "--input-format", "jsonl", input=json.dumps(question) + "\n"
    )
    assert result.returncode == 0, result.stderr
    (answer,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert answer["prediction"] == 0, "and the label, which is wrong, is not looked at"
    assert answer["context"] == "the film was good"
    assert "gold" not in answer

    table = tmp_path / "rows.csv"
    table.write_text(
        "context,A,B,C\nthe film was good,it was fine,it was dull,\nthe food was bad,very "
        "fine,very poor,bright\n"
    )
    result = bertctl("predict", run, table, "--format", "csv", "-o", tmp_path / "answers.csv")
    assert result.returncode == 0, result.stderr
    again = bertctl("predict", run, tmp_path / "answers.csv")
    assert [json.loads(line)["prediction_bertctl"] for line in again.stdout.splitlines()] == [0, 1]


def test_a_label_outside_the_choices_ends_with_file_line_and_code_3(bertctl, tiny_model, tmp_path):
    data = write_rows(tmp_path / "rows.jsonl")
    lines = data.read_text().splitlines()
    lines[4] = json.dumps({"context": "x", "choices": ["a", "b"], "label": 2})
    data.write_text("\n".join(lines))
    result = bertctl("finetune", "multiple-choice", "--train-file", data, "--model", tiny_model)
    assert result.returncode == 3
    assert f"{data}:5: the label 2 " in result.stderr
    assert "counted from 0" in result.stderr
    assert "Traceback" not in result.stderr


def test_lines_on_stdin_are_refused(run, bertctl):
    result = bertctl("predict", run, "-", input="the film was good\n")
    assert result.returncode == 2
    assert "lines of text" in result.stderr
    assert "--input-format jsonl" in result.stderr


def test_codah_by_name(bertctl, tiny_model, shared_data, tmp_path):
    result = bertctl(
        "finetune",
        "codah",
        "--data-dir",
        shared_data,
        "--model",
        tiny_model,
        "--max-length",
        "40",
        "--epochs",
        "1",
        "--max-train-rows",
        "32",
        "--max-eval-rows",
        "16",
        "-o",
        tmp_path / "run",
        "--json",
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["metrics"]["validation"]["accuracy"]["n"] == 16
    lines = (tmp_path / "run" / "predictions" / "validation.jsonl").read_text().splitlines()
    assert all(len(json.loads(line)["choices"]) == 4 for line in lines)
