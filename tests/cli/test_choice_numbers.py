"""Where the numbers of choices begin, through the command line.

Training, the check of data, and scoring agree.
"""

import json

import pytest

LISTS = [
    {"context": f"c {i}", "choices": ["one a", "two b", "three c"], "label": 1 + i % 2}
    for i in range(6)
]
pytestmark = pytest.mark.in_process


def _write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


def test_a_file_that_does_not_say_it_is_refused_by_training_and_by_the_check(
    bertctl, tiny_model, tmp_path
):
    name = _write(tmp_path / "open.jsonl", LISTS)
    options = ("--model", tiny_model, "--max-length", "32")
    for command in (
        ("finetune", name, "--dry-run"),
        ("finetune", "multiple-choice", "--train-file", name, "--dry-run"),
    ):
        refused = bertctl(*command, *options)
        assert refused.returncode == 3
        assert "count from 0 or from 1 can't be seen" in refused.stderr
        assert "--set data.first_choice=1" in refused.stderr
    checked = bertctl("data", "check", name, "--model", tiny_model)
    assert checked.returncode == 3
    assert "count from 0 or from 1" in checked.stdout
    done = bertctl("finetune", name, "--dry-run", *options, "--set", "data.first_choice=1")
    assert done.returncode == 0, done.stderr
    assert "2: 0)" in done.stderr, "labels 1 and 2 are the first and the second choice"


def test_numbered_columns_say_it_and_it_is_told(bertctl, tiny_model, tmp_path):
    header = "question,option1,option2,option3,option4,answer"
    rows = [
        "Capital of France?,Paris,Lyon,Nice,Lille,1",
        "Capital of Norway?,Bergen,Oslo,Bodo,Moss,2",
    ]
    (tmp_path / "a.csv").write_text(
        "\n".join([header, *rows, "Capital of Italy?,Turin,Milan,Rome,Bari,3"]) + "\n"
    )
    files = ("--train-file", "a.csv", "--validation-file", "a.csv")
    run = bertctl(
        "finetune",
        "multiple-choice",
        *files,
        "--model",
        tiny_model,
        "--max-length",
        "32",
        "--dry-run",
    )
    assert run.returncode == 0, run.stderr
    assert "right one 0: 1, 1: 1, 2: 1, 3: 0" in run.stderr
    assert "count from 1, as the columns of the choices do" in run.stderr


def test_a_run_remembers_where_labels_begin_when_its_files_are_gone(bertctl, tiny_model, tmp_path):
    from_one = [{**row, "label": 1 + i % 3} for i, row in enumerate(LISTS)]
    name = _write(tmp_path / "from1.jsonl", from_one)
    files = ("--train-file", name, "--validation-file", name, "--set", "data.first_choice=1")
    options = (
        "--model",
        tiny_model,
        "--max-length",
        "32",
        "--epochs",
        "1",
        "--checkpoint-every",
        "off",
    )
    trained = bertctl("finetune", "multiple-choice", *files, *options, "-o", "run")
    assert trained.returncode == 0, trained.stderr
    (tmp_path / name).unlink()
    scored = bertctl(
        "evaluate", "run", "--file", _write(tmp_path / "open.jsonl", LISTS), "-o", "scored"
    )
    assert scored.returncode == 0, scored.stderr
    assert "the labels in 'label' count from 1 (data.first_choice)" in scored.stderr
    answers = (tmp_path / "scored" / "predictions" / "file.jsonl").read_text().splitlines()
    assert [json.loads(line)["gold"] for line in answers] == [row["label"] - 1 for row in LISTS]
    with_zero = _write(
        tmp_path / "zero.jsonl", [{**row, "label": i % 3} for i, row in enumerate(LISTS)]
    )
    refused = bertctl("evaluate", "run", "--file", with_zero, "-o", "zero")
    assert refused.returncode == 3
    assert "the label 0 points outside its 3 choices, which are numbers 1 to 3" in refused.stderr
