"""What a file calls its columns is kept in its answers, and the fields of answers give way."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.cli.inputs.texts import InputIds, TextSource

pytestmark = pytest.mark.in_process

ROWS = [
    {"id": 2, "text": "the film was good", "label": "pos", "note": "a, b"},
    {"id": 1, "text": "the film was bad", "label": "neg", "note": "=1+1"},
    {"id": 0, "text": "the food was good", "label": "pos", "note": ""},
]


def write(path: Path, rows: list[dict]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as out:
            writer = csv.DictWriter(
                out, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ","
            )
            writer.writeheader()
            writer.writerows(rows)
    return path


def table(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    return list(reader)


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("rows.csv", "csv"),
        ("rows.tsv", "tsv"),
        ("rows.jsonl", "csv"),
        ("rows.parquet", "jsonl"),
        ("rows.csv", "jsonl"),
    ],
)
def test_a_join_by_id_gives_each_row_its_own_answer(bertctl, tiny_run, tmp_path, name, layout):
    done = bertctl("predict", tiny_run.path, write(tmp_path / name, ROWS), "--format", layout)
    assert done.returncode == 0, done.stderr
    answers = (
        lines(done.stdout)
        if layout == "jsonl"
        else table(done.stdout, "\t" if layout == "tsv" else ",")
    )
    by_id = {int(answer["id"]): answer for answer in answers}
    for row in ROWS:
        answer = by_id[row["id"]]
        assert answer["text"] == row["text"]
        assert answer["label"] == row["label"]
        assert answer["note"] == row["note"]


@pytest.mark.parametrize("verb", ["evaluate", "explain", "cluster", "mine", "similarity", "search"])
def test_every_verb_answers_by_the_ids_of_the_file(bertctl, tiny_run, tmp_path, verb):
    path = write(tmp_path / "rows.jsonl", [{**row, "id": f"0{row['id']}"} for row in ROWS])
    commands = {
        "evaluate": ("evaluate", tiny_run.path, "--file", path, "-o", tmp_path / "scores"),
        "explain": (
            "explain",
            tiny_run.path,
            path,
            "--faithfulness",
            "0",
            "-o",
            tmp_path / "out.jsonl",
        ),
        "cluster": ("cluster", path, "--clusters", "2", "-o", tmp_path / "out.jsonl"),
        "mine": ("mine", path, "--threshold", "-1", "-o", tmp_path / "out.jsonl"),
        "similarity": ("similarity", path, path, "-o", tmp_path / "out.jsonl"),
        "search": ("search", tmp_path / "index", path, "-k", "1", "-o", tmp_path / "out.jsonl"),
    }
    model = ("--model", tiny_run.path / "model", "--max-length", 32)
    if verb == "search":
        assert bertctl("index", path, "-o", tmp_path / "index", *model).returncode == 0
    own_model = () if verb in ("evaluate", "explain") else model
    done = bertctl(*commands[verb], *own_model)
    assert done.returncode == 0, done.stderr

    output = tmp_path / ("scores/predictions/file.jsonl" if verb == "evaluate" else "out.jsonl")
    key = "query_id" if verb == "search" else "id"
    actual = {line[key] for line in lines(output.read_text())}
    assert actual <= {"00", "01", "02"}
    assert len(actual) >= 2


def test_features_have_the_ids_of_the_file(bertctl, tiny_run, tmp_path):
    path = write(tmp_path / "rows.csv", ROWS)
    output = tmp_path / "vectors.parquet"
    done = bertctl(
        "extract-features",
        path,
        "-o",
        output,
        "--model",
        tiny_run.path / "model",
        "--max-length",
        32,
    )
    assert done.returncode == 0, done.stderr
    assert pq.read_table(output).column("id").to_pylist() == ["2", "1", "0"]


def test_fields_of_answers_give_way_to_columns_of_their_name(bertctl, tiny_run, tmp_path):
    fields = {"prediction": "old", "probability": "0.1", "tokens": "9", "probability_pos": "7"}
    path = write(tmp_path / "rows.csv", [{**ROWS[0], **fields}])
    done = bertctl("predict", tiny_run.path, path, "--format", "csv")
    [answer] = table(done.stdout)
    assert {name: answer[name] for name in fields} == fields
    assert answer["prediction_bertctl"] in ("pos", "neg")
    assert 0 < float(answer["probability_pos_bertctl"]) < 1
    assert "its own 'prediction', 'probability', 'tokens'" in done.stderr

    [plain] = lines(bertctl("predict", tiny_run.path, path, "--keep-columns", "none").stdout)
    assert plain["prediction"] == answer["prediction_bertctl"]


def test_a_text_read_from_another_column_leaves_text_to_the_file(bertctl, tiny_run, tmp_path):
    path = write(tmp_path / "rows.jsonl", [{"text": "a title", "body": "the film was good"}])
    [answer] = lines(bertctl("predict", tiny_run.path, path, "--text-column", "body").stdout)
    assert answer["text"] == "a title"
    assert answer["body"] == "the film was good"


def test_columns_to_keep_can_be_named(bertctl, tiny_run, tmp_path):
    path = write(tmp_path / "rows.csv", ROWS)
    [first, *_] = lines(bertctl("predict", tiny_run.path, path, "--keep-columns", "note").stdout)
    assert "note" in first
    assert "label" not in first
    wrong = bertctl("predict", tiny_run.path, path, "--keep-columns", "nte")
    assert wrong.returncode == 2
    assert "did you mean note?" in wrong.stderr


def test_no_text_keeps_no_other_column_either(bertctl, tiny_run, tmp_path):
    path = write(tmp_path / "rows.csv", ROWS)
    [first, *_] = lines(bertctl("predict", tiny_run.path, path, "--no-text").stdout)
    assert not {"text", "note", "label"} & set(first)
    assert first["id"] == "2"


def test_a_table_has_the_probability_of_the_answer_in_few_digits(bertctl, tiny_run, tmp_path):
    path = write(tmp_path / "rows.csv", ROWS)
    for answer in table(bertctl("predict", tiny_run.path, path, "--format", "csv").stdout):
        assert answer["probability"] == answer[f"probability_{answer['prediction']}"]
        assert len(answer["probability"].removeprefix("0.").lstrip("0")) <= 9


def test_the_likeliest_labels_are_columns_of_a_table(bertctl, tiny_run, tmp_path):
    path = write(tmp_path / "rows.csv", ROWS)
    done = bertctl("predict", tiny_run.path, path, "--format", "csv", "--top-k", "2")
    for answer in table(done.stdout):
        assert answer["top_1"] == answer["prediction"]
        assert {answer["top_1"], answer["top_2"]} == {"pos", "neg"}
        assert float(answer["top_1_probability"]) >= float(answer["top_2_probability"])
        assert not any("[" in (cell or "") for cell in answer.values())


def test_columns_that_begin_later_are_told_where_a_table_has_no_place(bertctl, tiny_run, tmp_path):
    rows = [{"text": f"good film {number}"} for number in range(2100)]
    rows[2090]["late"] = "x"
    path = write(tmp_path / "rows.jsonl", rows)
    done = bertctl("predict", tiny_run.path, path, "--format", "csv", "-o", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    assert "no place for columns that begin after its first rows: 'late'" in done.stderr
    assert len(table((tmp_path / "out.csv").read_text())) == 2100


def test_values_that_json_has_no_type_for_are_written_as_text(bertctl, tiny_run, tmp_path):
    import datetime
    import decimal

    row = {
        "text": "good",
        "when": datetime.date(2024, 5, 1),
        "price": decimal.Decimal("1.50"),
        "raw": b"x",
    }
    path = write(tmp_path / "rows.parquet", [row])
    done = bertctl("predict", tiny_run.path, path)
    [answer] = lines(done.stdout)
    assert answer["when"] == "2024-05-01"
    assert answer["price"] == "1.50"


@pytest.mark.parametrize("verb", ["cluster", "mine"])
def test_other_verbs_leave_text_to_the_file_too(bertctl, tiny_run, tmp_path, verb):
    rows = [
        {"id": f"r{number}", "text": "a title", "body": f"good film {number}"}
        for number in range(4)
    ]
    path = write(tmp_path / "rows.jsonl", rows)
    more = ("--clusters", "2") if verb == "cluster" else ("--threshold", "-1")
    done = bertctl(verb, path, "--text-column", "body", "--model", tiny_run.path / "model", *more)
    assert done.returncode == 0, done.stderr
    first, *_ = lines(done.stdout)
    assert first["body"].startswith("good film")
    assert "text" not in first


@pytest.mark.parametrize("verb", ["finetune", "probe"])
def test_predictions_of_a_run_have_the_ids_of_the_file(bertctl, tiny_model, tmp_path, verb):
    rows = [
        {"id": f"0{number}", "text": f"{('good', 'bad')[number % 2]} film {number}"}
        for number in range(20)
    ]
    rows = [row | {"label": ("pos", "neg")[number % 2]} for number, row in enumerate(rows)]
    path = write(tmp_path / "rows.csv", rows)
    training = ("--epochs", "1", "--checkpoint-every", "off") if verb == "finetune" else ()
    done = bertctl(
        verb, path, "--model", tiny_model, "--max-length", 32, "-o", tmp_path / "run", *training
    )
    assert done.returncode == 0, done.stderr
    texts = {row["id"]: row["text"] for row in rows}
    predicted = lines((tmp_path / "run" / "predictions" / "validation.jsonl").read_text())
    assert predicted
    for line in predicted:
        assert texts[line["id"]] == line["text"]


def test_texts_of_a_table_have_the_ids_of_the_file(tmp_path):
    source = TextSource(files=[str(write(tmp_path / "rows.csv", ROWS))])
    ids = InputIds()
    numbered = []
    for chunk in ids.collect(source.chunks()):
        numbered += [{"id": 0, "text": text} for text in chunk.texts]
    assert [answer["id"] for answer in ids.restore(numbered)] == ["2", "1", "0"]


def test_lines_have_numbers(tmp_path):
    (tmp_path / "rows.txt").write_text("good\nbad\n")
    ids = InputIds()
    source = TextSource(files=[str(tmp_path / "rows.txt")])
    numbered = []
    for chunk in ids.collect(source.chunks()):
        numbered += [{"id": number} for number in range(len(chunk.texts))]
    assert list(ids.restore(numbered)) == numbered
