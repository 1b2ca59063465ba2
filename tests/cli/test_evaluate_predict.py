"""`bertctl evaluate` and `bertctl predict`.

The same numbers as in training, the same answers through every door.
"""

import csv
import gzip
import io
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bertctl.catalog.datasets import builtin_datasets
from bertctl.cli.main import main
from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import DataSection
from bertctl.errors import UsageError
from bertctl.inference.layouts import glue_splits, write_answers, write_glue
from bertctl.inference.predict import Destination, predict_glue, predict_rows
from bertctl.inference.rows_to_answer import unlabelled_rows
from bertctl.inference.score_run import evaluate_run
from bertctl.inference.trained import TrainedRun, open_run
from bertctl.run_folder import RunFolder
from bertctl.training.finetune import run
from bertctl.training.job import prepare

pytestmark = pytest.mark.in_process

GOOD = "the film was good fine 9"
BAD = "it was bad food dull 9"
TEXTS = [GOOD, BAD, "", "very dull, not good", "fine " * 40, "good"]


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def copied_run(tiny_run, tmp_path) -> Path:
    """The tiny run, to be changed."""
    return Path(shutil.copytree(tiny_run.path, tmp_path / "run"))


@pytest.fixture(scope="module")
def opened(tiny_run) -> TrainedRun:
    return open_run(tiny_run.path)


def test_evaluate_gives_the_numbers_of_the_training(bertctl, copied_run):
    before = (copied_run / "metrics.json").read_bytes()
    predictions = copied_run / "predictions" / "validation.jsonl"
    answers = predictions.read_bytes()
    result = bertctl("evaluate", copied_run, "--json")
    assert result.returncode == 0, result.stderr
    assert (copied_run / "metrics.json").read_bytes() == before
    assert predictions.read_bytes() == answers
    assert json.loads(result.stdout) == {"run": str(copied_run), **json.loads(before)}


def test_the_help_names_the_folder_of_a_files_scores(bertctl, copied_run, tiny_run):
    assert "Default: beside RUN, such as RUN-on-new for new.csv." in " ".join(
        bertctl("evaluate", "-h").stdout.split()
    )
    assert bertctl("evaluate", copied_run, "--file", tiny_run.data, "-q").returncode == 0
    assert (copied_run.parent / "run-on-opinions" / "metrics.json").exists()


def test_a_split_that_is_named_is_added_to_the_run(copied_run):
    before = read(copied_run / "metrics.json")
    metrics = evaluate_run(open_run(copied_run), split="test").as_json()
    assert metrics == read(copied_run / "metrics.json")
    assert metrics["metrics"]["validation"] == before["metrics"]["validation"]
    assert metrics["metrics"]["test"]["accuracy"]["n"] == 16
    assert metrics["baseline"]["test"]["accuracy"] == 0.5, (
        "the answer that training rows gave, on these"
    )
    assert metrics["primary"] == before["primary"]
    assert len((copied_run / "predictions" / "test.jsonl").read_text().splitlines()) == 16


def test_a_file_of_ones_own_is_scored_into_a_folder_of_its_own(bertctl, tiny_run, tmp_path):
    before = {path: path.read_bytes() for path in tiny_run.path.rglob("*") if path.is_file()}
    (tmp_path / "mine.csv").write_text(f"review,sentiment\n{GOOD},pos\n{BAD},neg\n{GOOD},neg\n")
    columns = ["--text-column", "review", "--label-column", "sentiment"]
    result = bertctl(
        "evaluate", tiny_run.path, "--file", "mine.csv", *columns, "-o", "scores", "--no-text"
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"accuracy \*\s+0\.6667", result.stdout)
    constant = read(tmp_path / "scores" / "metrics.json")["baseline"]["file"]["accuracy"]
    answer = read(tiny_run.path / "metrics.json")["constant_answer"]
    assert constant == pytest.approx({"pos": 1 / 3, "neg": 2 / 3}[answer])
    assert (
        f"{constant:.4f}"
        in next(line for line in result.stdout.splitlines() if "accuracy" in line).split()[-1]
    )
    assert "written to scores" in result.stderr
    assert read(tmp_path / "scores" / "status.json")["state"] == "done"
    assert read(tmp_path / "scores" / "metrics.json")["primary"] == {
        "split": "file",
        "name": "accuracy",
    }
    rows = [
        json.loads(line)
        for line in (tmp_path / "scores/predictions/file.jsonl").read_text().splitlines()
    ]
    assert [(row["id"], row["gold"], row["prediction"]) for row in rows] == [
        ("0", "pos", "pos"),
        ("1", "neg", "neg"),
        ("2", "neg", "pos"),
    ]
    assert "text" not in rows[0]
    assert before == {
        path: path.read_bytes() for path in tiny_run.path.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--split", "tst"), 2, "did you mean test?"),
        (("--file", "unseen.csv"), 3, "unseen.csv:3: the label 'meh'"),
        (("--file", "unlabelled.csv"), 2, "--label-column"),
        (("--file", "none.csv"), 4, "none.csv does not exist"),
        (("--file", "pairs.csv"), 2, "pairs.csv was read as pairs"),
    ],
)
def test_what_evaluate_refuses(arguments, code, message, tiny_run, tmp_path, monkeypatch, capsys):
    """Through the same boundary, inside this process."""
    (tmp_path / "unseen.csv").write_text("text,label\na,pos\nb,meh\n")
    (tmp_path / "unlabelled.csv").write_text("text,when\na,today\n")
    (tmp_path / "pairs.csv").write_text("question,answer,label\na,b,pos\n")
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(tiny_run.path), *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pairs.csv",
        "unlabelled.csv",
        "unseen.csv",
    ]


@pytest.mark.parametrize("constant", ["evil", [[]], 0.5])
def test_a_constant_answer_that_the_task_does_not_have_is_a_damaged_run(
    constant, copied_run, capsys
):
    file = copied_run / "metrics.json"
    metrics = json.loads(file.read_text())
    file.write_text(json.dumps({**metrics, "constant_answer": constant}))

    code = main(["evaluate", str(copied_run)])

    assert code == 3
    assert f"constant_answer in {file}" in capsys.readouterr().err


def test_a_run_that_was_cut_off_before_its_model_is_refused_with_its_state(bertctl, copied_run):
    shutil.rmtree(copied_run / "model")
    RunFolder(copied_run).set_status("interrupted", step=3)
    for verb in (["evaluate", copied_run], ["predict", copied_run, "-"]):
        result = bertctl(*verb, input="good\n")
        assert result.returncode == 4
        assert "'interrupted'" in result.stderr


def test_lines_from_stdin_are_answered_in_order(bertctl, tiny_run):
    result = bertctl("predict", tiny_run.path, "-", input="\n".join(TEXTS) + "\n")
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == TEXTS
    assert [answer["id"] for answer in answers] == list("012345")
    assert [answer["prediction"] for answer in answers[:2]] == ["pos", "neg"]
    fields = ["id", "text", "prediction", "probability", "probabilities", "tokens", "truncated"]
    assert list(answers[0]) == fields
    assert [answer["truncated"] for answer in answers] == [False, False, False, False, True, False]
    assert answers[4]["tokens"] == 32
    assert "1 of 6 texts" in result.stderr
    assert "1 of 6 examples (16.7 %) are longer than 32 tokens" in result.stderr


def test_answers_in_bf16_are_as_many_as_there_are_texts(bertctl, tiny_run):
    texts = [
        f"the {entry} was {other} {i}"
        for i in range(40)
        for entry in ("film", "food")
        for other in ("a", "not", "z")
    ]
    words = ["predict", tiny_run.path, "-", "--precision", "bf16", "--json"]
    answers = json.loads(bertctl(*words, input="\n".join(texts) + "\n").stdout)
    assert len({answer["probabilities"]["pos"] for answer in answers}) > 0.95 * len(texts)


def test_json_is_one_document_and_quiet_leaves_warnings_only(tiny_run, tmp_path, capsys):
    """Through the same boundary, inside this process."""
    _write(tmp_path / "rows.csv", [GOOD, BAD])
    assert main(["predict", str(tiny_run.path), str(tmp_path / "rows.csv"), "--json", "-q"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert [answer["prediction"] for answer in json.loads(captured.out)] == ["pos", "neg"]


def _write(path: Path, texts: list[str]) -> None:
    """Writes the texts as a file of the kind that the suffix says.

    It has a label column that holds unknown labels.
    """
    table = [{"text": text, "label": "who knows"} for text in texts]
    kind = path.suffixes[0]
    if kind == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
        return
    out = io.StringIO()
    if kind in (".csv", ".tsv"):
        writer = csv.DictWriter(out, ["text", "label"], delimiter="," if kind == ".csv" else "\t")
        writer.writeheader()
        writer.writerows(table)
    elif kind == ".jsonl":
        out.writelines(json.dumps(row) + "\n" for row in table)
    else:
        out.writelines(f"{text}\n" for text in texts)
    content = out.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("layout", ["jsonl", "csv"])
@pytest.mark.parametrize(
    "door", ["rows.txt", "rows.csv", "rows.tsv", "rows.jsonl", "rows.parquet", "rows.csv.gz"]
)
def test_every_door_gives_the_same_answers(door, layout, opened, tmp_path):
    _write(tmp_path / door, TEXTS)
    kind = "lines" if door == "rows.txt" else None
    direct = io.StringIO()
    written = predict_rows(
        opened,
        unlabelled_rows(opened, str(tmp_path / door), kind=kind),
        Destination(None, layout, direct),
    )
    assert written["files"] == []
    answers = _parsed(direct.getvalue(), layout)
    assert [text for text, _, _ in answers] == TEXTS
    expected = open_run(opened.folder.path)
    reference = io.StringIO()
    _write(tmp_path / "reference.jsonl", TEXTS)
    path = str(tmp_path / "reference.jsonl")
    predict_rows(expected, unlabelled_rows(expected, path), Destination(None, "jsonl", reference))
    for (text, label, probability), expected_answer in zip(
        answers, _parsed(reference.getvalue(), "jsonl"), strict=True
    ):
        assert (text, label) == expected_answer[:2]
        assert np.float32(probability) == np.float32(
            expected_answer[2]
        )  # CSV has the digits of 32 bits
    output = tmp_path / "out" / "answers"
    written = predict_rows(
        opened,
        unlabelled_rows(opened, str(tmp_path / door), kind=kind),
        Destination(output, layout, io.StringIO()),
    )
    assert output.read_text() == direct.getvalue()
    assert written["examples"] == len(TEXTS)
    assert written["files"] == [str(output)]


def _parsed(content: str, layout: str) -> list[tuple[str, str, float]]:
    if layout == "csv":
        table = csv.DictReader(io.StringIO(content))
        return [(row["text"], row["prediction"], float(row["probability_pos"])) for row in table]
    return [
        (row["text"], row["prediction"], row["probabilities"]["pos"])
        for row in map(json.loads, content.splitlines())
    ]


def test_several_labels_and_truth_values_are_json_in_a_csv():
    out = io.StringIO()
    answer = {
        "id": "0",
        "prediction": ["a", "b"],
        "probabilities": {"a": 0.75, "b": 0.5},
        "truncated": False,
    }
    write_answers([answer], out, layout="csv")
    header, row = csv.reader(io.StringIO(out.getvalue()))
    assert header == ["id", "prediction", "truncated", "probability_a", "probability_b"]
    assert row == ["0", '["a", "b"]', "false", "0.75", "0.5"]


@pytest.mark.parametrize("answers", [[], [{"id": "0"}], [{"id": "0"}, {"id": "1"}]])
def test_answers_as_json_are_one_array(answers):
    out = io.StringIO()
    write_answers(answers, out, layout="json")
    assert json.loads(out.getvalue()) == answers
    assert out.getvalue().endswith("]\n")


def test_plain_transformers_gives_the_same_names_and_probabilities(bertctl, tiny_run):
    from transformers import pipeline

    theirs = pipeline("text-classification", str(tiny_run.path / "model"), device=-1, top_k=None)
    rows = [
        json.loads(line)
        for line in (tiny_run.path / "predictions/validation.jsonl").read_text().splitlines()
    ]
    for row in rows:
        scores = {entry["label"]: entry["score"] for entry in theirs([row["text"]])[0]}
        assert scores == pytest.approx(row["probabilities"], abs=1e-5)
        assert max(scores, key=lambda label: scores[label]) == row["prediction"]


def _peak_kilobytes(run_folder: Path, count: int, folder: Path) -> int:
    """Largest resident size of a process that predicts so many lines."""
    source = folder / f"{count}.txt"
    out = folder / f"{count}.jsonl"
    source.write_text("a good film it was\n" * count)
    command = [
        sys.executable,
        "-m",
        "bertctl",
        "predict",
        run_folder,
        source,
        "--input-format",
        "lines",
        "-o",
        out,
        "-q",
    ]
    process = subprocess.Popen(
        [str(word) for word in command], stderr=subprocess.PIPE, env={**os.environ}
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    reading = process.stderr.read()
    process.stderr.close()
    assert process.returncode == 0, reading
    with out.open() as lines:
        assert sum(1 for _ in lines) == count
    assert isinstance(usage, resource.struct_rusage)
    return usage.ru_maxrss


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tiny_run, tmp_path):
    """16,000 more answers are 2.5 MB of JSON and 16 MB as objects.

    What is held is a portion of 2,048.
    """
    few = _peak_kilobytes(tiny_run.path, 4_000, tmp_path)
    many = _peak_kilobytes(tiny_run.path, 20_000, tmp_path)
    assert many - few < 8_000


# The GLUE server's files.

STSB_HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
MNLI_HEADER = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
)
NLI = ("entailment", "neutral", "contradiction")


def _official_files(folder: Path) -> None:
    """Small files in the official layout of three tasks and the diagnostic set."""

    def put(name: str, header: str, lines: list[str]) -> None:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        content = "\n".join([header, *lines])
        file.write_text(content + "\n")

    opinions = [("good film ", 1), ("bad food ", 0)] * 6
    for split in ("train", "dev"):
        put(
            f"SST-2/{split}.tsv",
            "sentence\tlabel",
            [f"{text}\t{label}" for text, label in opinions],
        )
        scores = [f"{i}\tg\tf\ty\t{i}\tn\tn\tgood film\tfilm {i}\t{i % 6}.000" for i in range(12)]
        put(f"STS-B/{split}.tsv", f"{STSB_HEADER}\tscore", scores)
    put(
        "SST-2/test.tsv",
        "index\tsentence",
        [f"{i}\t{text}" for i, (text, _) in enumerate(opinions[:5])],
    )
    put(
        "STS-B/test.tsv",
        STSB_HEADER,
        [f"{i}\tg\tf\ty\t{i}\tn\tn\tbad film\tfood {i}" for i in range(3)],
    )
    parses = "p\tp\tg\t( )\t( )\t( )\t( )"
    for name in ("train", "dev_matched", "dev_mismatched"):
        rows = [f"{i}\t{parses}\tgood film\tfilm {i}\tneutral\t{NLI[i % 3]}" for i in range(9)]
        put(f"MNLI/{name}.tsv", f"{MNLI_HEADER}\tlabel1\tgold_label", rows)
    for name, count in (("test_matched", 4), ("test_mismatched", 2)):
        put(
            f"MNLI/{name}.tsv",
            MNLI_HEADER,
            [f"{i}\t{parses}\tbad food\tfood {i}" for i in range(count)],
        )
    put(
        "diagnostic/diagnostic.tsv",
        "index\tsentence1\tsentence2",
        [f"{i}\tgood film\tfilm {i}" for i in range(3)],
    )


@pytest.fixture(scope="module")
def glue_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("glue")
    _official_files(folder)
    return folder


def _glue_run(name: str, glue_folder: Path, model: Path, path: Path) -> TrainedRun:
    recipe = load_recipe(
        name,
        options={
            "data.data_dir": str(glue_folder),
            "model.name": str(model),
            "model.max_length": 32,
            "training.epochs": 1,
            "runtime.precision": "fp32",
            "runtime.device": "cpu",
            "evaluation.bootstrap_resamples": 100,
        },
    )
    run(prepare(recipe), RunFolder.create(path))
    return open_run(path)


def _submission(path: Path) -> list[str]:
    """The predictions of a submission file, its header and its index checked."""
    header, *lines = path.read_text().splitlines()
    assert header == "index\tprediction"
    assert [line.split("\t")[0] for line in lines] == [str(i) for i in range(len(lines))]
    return [line.split("\t")[1] for line in lines]


def test_a_submission_for_sst2_through_the_process(
    bertctl, glue_folder, tiny_model, tmp_path, capsys
):
    settings = [
        "--data-dir",
        glue_folder,
        "--model",
        tiny_model,
        "--max-length",
        "32",
        "--epochs",
        "1",
        "-o",
        "run",
    ]
    result = bertctl("finetune", "sst2", *settings)
    assert result.returncode == 0, result.stderr
    assert "0.9350 (test)" in result.stdout, "the published score stands beside it"
    assert "ublished: Devlin et al. 2019" in result.stdout
    assert set(read(tmp_path / "run" / "metrics.json")["metrics"]) == {"validation"}
    submission = str(tmp_path / "submission")
    verb = [
        "predict",
        str(tmp_path / "run"),
        "--split",
        "test",
        "--format",
        "glue",
        "-o",
        submission,
        "--json",
    ]
    assert main(verb) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [f"{submission}/SST-2.tsv"]
    predictions = _submission(tmp_path / "submission" / "SST-2.tsv")
    assert len(predictions) == 5
    assert set(predictions) <= {"0", "1"}
    official = glue_folder / "SST-2" / "test.tsv"
    before = official.read_bytes()
    assert bertctl("predict", "run", "--split", "test", "-o", official).returncode == 2, (
        "it is read"
    )
    assert official.read_bytes() == before
    result = bertctl("evaluate", "run", "--split", "test")
    assert result.returncode == 3, "the server keeps the labels"
    assert "no labels" in result.stderr
    assert "bertctl predict run" in result.stderr


def test_a_submission_for_stsb_has_three_decimals_from_0_to_5(glue_folder, tiny_model, tmp_path):
    trained = _glue_run("stsb", glue_folder, tiny_model, tmp_path / "run")
    written = predict_glue(trained, "test", data=None, output=tmp_path / "out")
    assert written["files"] == [str(tmp_path / "out" / "STS-B.tsv")]
    predictions = _submission(tmp_path / "out" / "STS-B.tsv")
    assert len(predictions) == 3
    assert all(0 <= float(score) <= 5 and len(score) == 5 for score in predictions)
    answers = [{"prediction": -0.3}, {"prediction": 2.34567}, {"prediction": 5.2}]
    write_glue(answers, tmp_path / "clipped.tsv", dataset=builtin_datasets()["stsb"])
    assert _submission(tmp_path / "clipped.tsv") == ["0.000", "2.346", "5.000"]


def test_a_submission_for_mnli_is_two_files_and_the_diagnostic_set_a_third(
    glue_folder, tiny_model, tmp_path
):
    trained = _glue_run("mnli", glue_folder, tiny_model, tmp_path / "run")
    metrics = read(tmp_path / "run" / "metrics.json")
    assert set(metrics["metrics"]) == {"validation_matched", "validation_mismatched"}
    assert metrics["primary"] == {"split": "validation_matched", "name": "accuracy"}
    predict_glue(trained, "test", data=None, output=tmp_path / "out")
    predict_glue(trained, "test", data="ax", output=tmp_path / "out")
    counts = {path.name: len(_submission(path)) for path in (tmp_path / "out").iterdir()}
    assert counts == {"MNLI-m.tsv": 4, "MNLI-mm.tsv": 2, "AX.tsv": 3}
    for path in (tmp_path / "out").iterdir():
        assert set(_submission(path)) <= set(NLI)
    with pytest.raises(UsageError, match=r"AX\.tsv exists"):
        predict_glue(trained, "test", data="ax", output=tmp_path / "out")
    predict_glue(trained, "test", data="ax", output=tmp_path / "out", overwrite=True)


def test_the_diagnostic_set_is_refused_for_a_model_with_other_labels(bertctl, tiny_run):
    result = bertctl("predict", tiny_run.path, "--data", "ax", "--format", "glue", "-o", "out")
    assert result.returncode == 2
    assert "'ax' (entailment, neutral, contradiction)" in result.stderr
    assert "(neg, pos)" in result.stderr


FORMS = {
    "cola": ("CoLA.tsv", ["0", "1"]),
    "sst2": ("SST-2.tsv", ["0", "1"]),
    "mrpc": ("MRPC.tsv", ["0", "1"]),
    "qqp": ("QQP.tsv", ["0", "1"]),
    "wnli": ("WNLI.tsv", ["0", "1"]),
    "qnli": ("QNLI.tsv", ["entailment", "not_entailment"]),
    "rte": ("RTE.tsv", ["entailment", "not_entailment"]),
    "ax": ("AX.tsv", ["entailment", "neutral", "contradiction"]),
}


@pytest.mark.parametrize("name", FORMS)
def test_labels_have_the_form_and_the_file_the_name_that_the_server_takes(name, tmp_path):
    file, form = FORMS[name]
    dataset, (split,) = glue_splits(DataSection(name=name), "test")
    assert split.glue_file == file
    write_glue(
        [{"prediction": label} for label in dataset.labels], tmp_path / file, dataset=dataset
    )
    assert _submission(tmp_path / file) == form


@pytest.mark.parametrize(
    ("name", "split"), [("sst2", "validation"), ("demo", "test"), (None, "test")]
)
def test_what_the_server_takes_no_predictions_for_is_refused(name, split):
    with pytest.raises(UsageError, match="takes no predictions"):
        glue_splits(DataSection(name=name), split)


def test_a_decision_is_stored_and_applied_by_predict(bertctl, tiny_run, tmp_path):
    """On a file where 6 of 16 labels are wrong.

    The tiny model, which hardly prefers an answer, is too modest there.
    """
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    other = tmp_path / "other.csv"
    swapped_labels = {"pos": "neg", "neg": "pos"}
    rows = tiny_run.data.read_text().splitlines()
    for number in range(1, 7):
        text, _, label = rows[number].rpartition(",")
        rows[number] = f"{text},{swapped_labels[label]}"
    other.write_text("\n".join(rows) + "\n")
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe.replace(str(tiny_run.data), str(other)))

    def odds_of_a_film() -> float:
        line = json.loads(bertctl("predict", run, "-", input="a fine film\n").stdout)
        return math.log(line["probabilities"]["pos"] / line["probabilities"]["neg"])

    odds_before = odds_of_a_film()
    options = ("--calibrate", "--threshold", "f1")
    chosen = bertctl("evaluate", run, "--split", "test", *options, "--json")
    assert chosen.returncode == 0, chosen.stderr
    document = json.loads(chosen.stdout)
    decision = document["decision"]
    assert decision == json.loads((run / "decision.json").read_text())
    assert decision["fitted_on"] == "test"
    assert decision["positive"] == "pos"
    assert decision["temperature"] < 0.5
    for name in ("calibration_error", "classwise_calibration_error", "brier"):
        assert set(document[name]) == {"before", "after"}
    assert document["brier"]["after"] <= 2
    assert odds_before / odds_of_a_film() == pytest.approx(decision["temperature"], rel=1e-3)
    assert (run / "metrics.json").read_bytes() == (tiny_run.path / "metrics.json").read_bytes()
    assert bertctl("evaluate", run, "--file", tiny_run.data, "--calibrate").returncode == 2

    def predictions() -> list[str]:
        lines = bertctl("predict", run, other).stdout.splitlines()
        return [json.loads(line)["prediction"] for line in lines]

    shutil.copy(tiny_run.path / "metrics.json", run / "metrics.json")
    (run / "decision.json").unlink()
    assert bertctl("evaluate", run, "--split", "test", "--threshold", "f1").returncode == 0
    predictions_by_threshold = predictions()
    calibrated = bertctl("evaluate", run, "--split", "test", "--calibrate", "--json")
    decision = json.loads(calibrated.stdout)["decision"]
    assert decision["threshold"] is not None, calibrated.stderr
    assert predictions() == predictions_by_threshold


def test_splits_that_another_evaluate_adds_meanwhile_stay(tiny_run, tmp_path, monkeypatch):
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    held = RunFolder.held

    def other_first(folder):
        metrics = json.loads(folder.metrics.read_text())
        metrics["metrics"]["other"] = metrics["metrics"]["validation"]
        folder.metrics.write_text(json.dumps(metrics))
        return held(folder)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "held", other_first)
        evaluate_run(open_run(run), split="test")
    assert set(json.loads((run / "metrics.json").read_text())["metrics"]) == {
        "validation",
        "other",
        "test",
    }


def test_answers_of_a_run_that_is_not_finished_are_said_to_be(bertctl, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    assert "not finished" not in bertctl("predict", run, "fine").stderr
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"state": "interrupted"}))
    done = bertctl("predict", run, "fine")
    assert done.returncode == 0
    assert (
        f"{run} is not finished (its state is 'interrupted'): this is its best model so far"
        in done.stderr
    )


def test_the_loss_of_a_calibrated_run_is_that_of_its_probabilities(bertctl, tiny_run, tmp_path):
    """It was that of the probabilities before, and stood beside the calibrated ones."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    (run / "decision.json").write_text(
        '{"schema": 1, "temperature": 2.5, "fitted_on": "validation"}'
    )
    done = bertctl("evaluate", run, "--file", tiny_run.data, "-o", tmp_path / "scores", "--json")
    assert done.returncode == 0, done.stderr
    lines = [
        json.loads(line)
        for line in (tmp_path / "scores/predictions/file.jsonl").read_text().splitlines()
    ]
    right = [-math.log(line["probabilities"][line["gold"]]) for line in lines]
    assert [line["loss"] for line in lines] == pytest.approx(right, rel=1e-4)
    assert json.loads(done.stdout)["metrics"]["file"]["loss"]["value"] == pytest.approx(
        sum(right) / 16, rel=1e-4
    )
