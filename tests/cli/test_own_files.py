"""A file says itself how it is read.

Encoding, separator, header and columns of the training file stay with it.

What a run was trained on, and how many of its rows were scored then, decides nothing about a later
call's file.
"""

import csv
import gzip
import json
from pathlib import Path

import pytest

from tests.conftest import Run, TinyRun
from tests.nursery import Nursery

pytestmark = pytest.mark.in_process

TWO = ["Zürich war good", "Genève était bad"]


@pytest.fixture(scope="module")
def latin(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery) -> Path:
    """A run on Latin-1 rows between semicolons without a header, of which four were scored."""
    folder = tmp_path_factory.mktemp("latin")
    opinions = [("Zürich war good", "pos"), ("Genève était bad", "neg")]
    rows = []
    for i in range(8):
        rows += [f"{text} {i};{label}" for text, label in opinions]
    for name in ("train", "test"):
        (folder / f"{name}.txt").write_bytes("\n".join(rows).encode("latin-1"))
    words = [
        "finetune",
        "text-classification",
        "--train-file",
        "train.txt",
        "--validation-file",
        "train.txt",
    ]
    words += [
        "--test-file",
        "test.txt",
        "--model",
        tiny_model,
        "-o",
        "run",
        "--epochs",
        "1",
        "--max-length",
        "16",
    ]
    words += ["--encoding", "latin-1", "--delimiter", ";", "--no-header", "--max-eval-rows", "4"]
    words += [
        "--text-column",
        "column1",
        "--label-column",
        "column2",
        "--set",
        "evaluation.bootstrap_resamples=100",
    ]
    done = nursery.run(words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_later_file_is_read_as_it_is(latin: Path, bertctl: Run, tmp_path: Path) -> None:
    line = '{"text": "Zürich war good"}\n'
    answered = bertctl("predict", latin, "-", "--input-format", "jsonl", input=line)
    assert json.loads(answered.stdout)["text"] == "Zürich war good"

    with_header = tmp_path / "new.csv"
    with_header.write_text(
        "review,label\nZürich war good,pos\nGenève était bad,neg\n", encoding="utf-8"
    )
    answered = bertctl("predict", latin, with_header)
    assert [json.loads(line)["text"] for line in answered.stdout.splitlines()] == [
        "Zürich war good",
        "Genève était bad",
    ]
    scored = bertctl("evaluate", latin, "--file", with_header, "--json")
    assert json.loads(scored.stdout)["metrics"]["file"]["accuracy"]["n"] == 2, scored.stderr


def test_a_call_says_itself_how_its_file_is_read(latin: Path, bertctl: Run, tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.write_bytes("Zürich war good|pos\nGenève était bad|neg\n".encode("cp1252"))
    form = ("--encoding", "cp1252", "--delimiter", "|", "--no-header", "--text-column", "column1")
    answered = bertctl("predict", latin, old, *form)
    assert [json.loads(line)["text"] for line in answered.stdout.splitlines()] == [
        "Zürich war good",
        "Genève était bad",
    ]
    refused = bertctl(
        "predict", latin, old, "--delimiter", "|", "--no-header", "--text-column", "column1"
    )
    assert refused.returncode == 3
    assert "add --encoding latin-1" in refused.stderr
    scored = bertctl("evaluate", latin, "--file", old, *form, "--label-column", "column2", "--json")
    assert json.loads(scored.stdout)["metrics"]["file"]["accuracy"]["n"] == 2, scored.stderr


@pytest.mark.parametrize("verb", ["tokenize", "extract-features", "data check", "vocab train"])
def test_every_verb_that_reads_files_takes_their_encoding(
    verb: str, tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    (tmp_path / "old.csv").write_text(
        "text;label\nZürich war good;pos\nGenève était bad;neg\nKöln war gut;pos\nÎle bad;neg\n",
        encoding="latin-1",
    )
    words = {
        "tokenize": ["tokenize", "--model", tiny_model, "--file", "old.csv"],
        "extract-features": [
            "extract-features",
            "old.csv",
            "--model",
            tiny_model,
            "-o",
            "v.npy",
            "--max-length",
            "16",
        ],
        "data check": ["data", "check", "old.csv", "--model", tiny_model, "--max-length", "16"],
        "vocab train": ["vocab", "train", "old.csv", "--size", "60", "-o", "vocabulary"],
    }[verb]
    refused = bertctl(*words)
    assert refused.returncode == 3
    assert "--encoding latin-1" in refused.stderr + refused.stdout
    read = bertctl(*words, "--encoding", "latin-1", "--delimiter", ";")
    assert read.returncode == 0, read.stderr


def test_a_row_of_a_file_without_lines_keeps_its_number(
    tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    rows = [{"text": f"film {i}", "label": "ab"[i % 2] if i < 39 else None} for i in range(40)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    refused = bertctl(
        "finetune", tmp_path / "rows.json", "--model", tiny_model, "--max-length", "32", "--dry-run"
    )
    assert refused.returncode == 3
    assert "rows.json, row 40: the label is empty" in refused.stderr


def test_a_limit_holds_for_the_call_that_named_it(latin: Path, bertctl: Run) -> None:
    assert (
        json.loads((latin / "metrics.json").read_text())["metrics"]["validation"]["accuracy"]["n"]
        == 4
    )
    answered = bertctl("predict", latin, "--split", "test", cwd=latin.parent)
    assert len(answered.stdout.splitlines()) == 16
    answered = bertctl(
        "predict", latin, "--split", "test", "--max-eval-rows", "5", cwd=latin.parent
    )
    assert len(answered.stdout.splitlines()) == 5
    assert "test: 5 of 16 rows (a sample, seed 42)" in answered.stderr
    assert [json.loads(line)["id"] for line in answered.stdout.splitlines()] != [
        str(i) for i in range(5)
    ]
    how = ["--encoding", "latin-1", "--delimiter", ";", "--no-header", "--label-column", "column2"]
    scored = bertctl(
        "evaluate",
        latin,
        "--file",
        "test.txt",
        *how,
        "--max-eval-rows",
        "5",
        "--json",
        cwd=latin.parent,
    )
    assert json.loads(scored.stdout)["metrics"]["file"]["accuracy"]["n"] == 5, scored.stderr


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_a_sample_of_a_file_is_refused_and_not_forgotten(
    verb: str, tiny_run: TinyRun, bertctl: Run
) -> None:
    refused = bertctl(verb, tiny_run.path, tiny_run.data, "--max-eval-rows", "3")
    assert refused.returncode == 2
    assert "--max-eval-rows" in refused.stderr
    assert "--split NAME" in refused.stderr


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv", "a.csv.gz", "a.jsonl.gz"])
def test_the_suffix_decides_how_answers_are_written(
    name: str, tiny_run: TinyRun, bertctl: Run, tmp_path: Path
) -> None:
    done = bertctl("predict", tiny_run.path, tiny_run.data, "-o", tmp_path / name)
    assert done.returncode == 0, done.stderr
    raw = (tmp_path / name).read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    if ".json" in name:
        rows = (
            json.loads(text)
            if ".jsonl" not in name
            else [json.loads(line) for line in text.splitlines()]
        )
    else:
        rows = list(csv.DictReader(text.splitlines(), delimiter="\t" if ".tsv" in name else ","))
    assert len(rows) == 16
    assert {row["prediction"] for row in rows} == {"pos", "neg"}
    if name != "a.json":
        again = bertctl(
            "predict",
            tiny_run.path,
            tmp_path / name,
            "--text-column",
            "text",
            "-o",
            tmp_path / "b.jsonl",
        )
        assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    "row", [{"label": "POS"}, {"spans": [{"start": 0, "end": 4, "label": "X"}]}]
)
def test_what_was_rejected_in_prodigy_is_not_learned(
    row: dict, tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    labels = [row, {**row, "label": "NEG"}] if "label" in row else [row, row]
    rows = [{"text": f"film {i} was fine", **labels[i % 2], "answer": "accept"} for i in range(12)]
    (tmp_path / "accepted.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    rows[7]["answer"] = "reject"
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    options = ("--model", tiny_model, "--max-length", "32", "--dry-run")
    assert bertctl("finetune", tmp_path / "accepted.jsonl", *options).returncode == 0
    refused = bertctl("finetune", tmp_path / "all.jsonl", *options)
    assert refused.returncode == 3, refused.stderr
    assert "all.jsonl:8: 'answer' is 'reject'" in refused.stderr
    del rows[3]["answer"]  # of another tool
    (tmp_path / "mixed.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    refused = bertctl("finetune", tmp_path / "mixed.jsonl", *options)
    assert refused.returncode == 3, refused.stderr
    assert "mixed.jsonl:8: 'answer' is 'reject'" in refused.stderr
    if "label" in row:
        learned = bertctl("finetune", tmp_path / "all.jsonl", "--label-column", "answer", *options)
        assert "accept: " in learned.stderr, learned.stderr


def test_a_column_of_other_answers_rejects_no_row_where_bad_ones_are_skipped(
    tiny_run: TinyRun, bertctl: Run, tmp_path: Path
) -> None:
    labels = ("neg", "pos")
    rows: list[dict[str, object]] = [
        {"text": f"film {i}", "label": labels[i % 2], "answer": ("reject", "maybe")[i % 3 > 0]}
        for i in range(12)
    ]
    rows[5]["text"] = {"de": "film"}
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    done = bertctl(
        "evaluate",
        tiny_run.path,
        "--file",
        "rows.jsonl",
        "-o",
        "scores",
        "--on-error",
        "skip",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["file"]["accuracy"]["n"] == 11, (
        "the row without a text alone is skipped"
    )


def test_columns_that_are_named_make_a_table_of_plain_text(
    tiny_run: TinyRun, tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table = tmp_path / "reviews.txt"
    table.write_text("id|review\n1|a good film\n2|bad food\n", encoding="utf-8")
    for by_name in (["--text-column", "review"], ["--delimiter", "|"]):
        answered = bertctl("predict", tiny_run.path, table, *by_name)
        assert [json.loads(line)["text"] for line in answered.stdout.splitlines()] == [
            "a good film",
            "bad food",
        ]
    refused = bertctl(
        "predict", tiny_run.path, "-", "--text-column", "no such", input=table.read_text()
    )
    assert refused.returncode == 3
    assert "no column 'no such'" in refused.stderr
    counted = bertctl(
        "tokenize",
        "--file",
        table,
        "--text-column",
        "review",
        "--stats",
        "--model",
        tiny_model,
        "--json",
    )
    assert json.loads(counted.stdout)["texts"] == 2
