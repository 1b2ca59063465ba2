"""`bertctl predict RUN,RUN` and `load_runs`: each run answers as it does alone."""

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bertctl as package
from bertctl.errors import BertctlError, UsageError
from tests.conftest import Run
from tests.nursery import Nursery

TEXTS = ["the film was good", "bad food it was", "a very dull film", "not bad"]


@dataclass(frozen=True)
class Made:
    """Runs of one tiny model.

    Attributes:
        folder: It has them, by their names.
        rows: A file of texts with a column of its own.
    """

    folder: Path
    rows: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery) -> Made:
    """A run with a frozen encoder, one with a frozen layer, LoRA, two probes, tags, questions."""
    folder = tmp_path_factory.mktemp("several")
    feelings = [f"{text} {i},{i % 2}" for i, text in enumerate(TEXTS * 4)]
    (folder / "feelings.csv").write_text("\n".join(["text,label", *feelings]), encoding="utf-8")
    scores = [f"{text} {i},{i / 10}" for i, text in enumerate(TEXTS * 4)]
    (folder / "scores.csv").write_text("\n".join(["text,label", *scores]), encoding="utf-8")
    lines = [
        json.dumps({"words": ["the", "film", str(i)], "tags": ["O", "B-ART", "O"]})
        for i in range(16)
    ]
    (folder / "tags.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = folder / "rows.csv"
    rows.write_text("\n".join(["text,place", *(f"{text},row {i}" for i, text in enumerate(TEXTS))]))

    frozen = ["training.freeze_embeddings=true"]
    runs = {
        "feeling": ("feelings.csv", [*frozen, "training.freeze_layers=2"]),
        "score": ("scores.csv", [*frozen, "training.freeze_layers=1"]),
        "adapted": ("feelings.csv", ["lora.rank=2"]),
        "tags": ("tags.jsonl", [*frozen, "training.freeze_layers=2"]),
    }
    common = ["--model", str(tiny_model), "--max-length", "40", "--precision", "fp32"]
    quick = ["evaluation.bootstrap_resamples=100", "evaluation.baselines=false"]
    for name, (file, sets) in runs.items():
        settings: list[str] = []
        for entry in [*sets, *quick]:
            settings += ["--set", entry]
        options = ["--epochs", "1", "--checkpoint-every", "off", *settings, "-o", name]
        _succeed(nursery, folder, ["finetune", file, *common, *options])
    for name in ("first-probe", "second-probe"):
        file = "feelings.csv" if name == "first-probe" else "scores.csv"
        _succeed(nursery, folder, ["probe", file, *common, "--set", quick[0], "-o", name])
    return Made(folder, rows)


def _succeed(nursery: Nursery, folder: Path, words: Sequence[str]) -> None:
    done = nursery.run([*words], cwd=folder)
    assert done.returncode == 0, done.stderr


def _answers_alone(bertctl: Run, made: Made, name: str, rows: Path) -> list[dict[str, Any]]:
    done = bertctl("predict", name, rows, cwd=made.folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["feeling", "score", "adapted"],
            "score: the lowest 1 of 2 layers of its encoder are those of feeling",
        ),
        (
            ["first-probe", "second-probe"],
            "second-probe: all 2 layers of its encoder are those of first-probe",
        ),
        (["feeling", "first-probe"], "first-probe: its encoder is its own"),
    ],
)
def test_each_run_answers_as_it_does_alone_and_what_is_shared_is_told(
    names: list[str], message: str, bertctl: Run, made: Made
) -> None:
    done = bertctl("predict", ",".join(names), made.rows, cwd=made.folder)

    assert done.returncode == 0, done.stderr
    assert message in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    assert [line["place"] for line in lines] == ["row 0", "row 1", "row 2", "row 3"]
    for name in names:
        expected = _answers_alone(bertctl, made, name, made.rows)
        for answer in expected:
            del answer["id"], answer["text"], answer["place"]
        assert [line[name] for line in lines] == expected


@pytest.mark.in_process
def test_a_table_has_the_columns_of_each_run_under_its_name(bertctl: Run, made: Made) -> None:
    output = made.folder / "answers.csv"

    done = bertctl("predict", "feeling,score", made.rows, "-o", output, "--json", cwd=made.folder)

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["runs"]["score"]["shares_with"] == "feeling"
    assert answer["runs"]["score"]["shared_layers"] == 1
    assert answer["examples"] == len(TEXTS)
    with output.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    alone = _answers_alone(bertctl, made, "feeling", made.rows)
    assert [row["feeling_prediction"] for row in rows] == [row["prediction"] for row in alone]
    assert {"feeling_probability_0", "score_prediction", "score_tokens"} <= rows[0].keys()


@pytest.mark.in_process
def test_tags_and_classes_of_the_same_texts_stand_in_one_line(bertctl: Run, made: Made) -> None:
    done = bertctl("predict", "feeling,tags", made.rows, "--format", "json", cwd=made.folder)

    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    [first, *_] = _answers_alone(bertctl, made, "tags", made.rows)
    assert lines[0]["tags"]["prediction"] == first["prediction"]
    assert lines[0]["text"] == TEXTS[0]
    assert lines[0]["words"] == first["words"]


@pytest.mark.in_process
def test_typed_texts_and_stdin_are_answered_too(bertctl: Run, made: Made) -> None:
    typed = bertctl("predict", "feeling,adapted", "--text", TEXTS[0], cwd=made.folder)
    piped = bertctl("predict", "feeling,adapted", "-", input=f"{TEXTS[0]}\n", cwd=made.folder)

    assert typed.returncode == 0, typed.stderr
    assert piped.returncode == 0, piped.stderr
    assert json.loads(typed.stdout)["adapted"] == json.loads(piped.stdout)["adapted"]


@pytest.mark.in_process
def test_rows_that_runs_read_at_other_lengths_have_their_own_passes(
    bertctl: Run, made: Made
) -> None:
    rows = made.folder / "long.csv"
    rows.write_text(f"text\n{' '.join(['film'] * 60)}\na film\n", encoding="utf-8")

    done = bertctl("predict", "feeling,tags", rows, cwd=made.folder)

    assert done.returncode == 0, done.stderr
    assert "2 rows: the runs read these texts at other lengths" in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    alone = _answers_alone(bertctl, made, "tags", rows)
    assert [line["tags"]["prediction"] for line in lines] == [row["prediction"] for row in alone]


@pytest.mark.in_process
def test_rows_that_cannot_be_read_are_skipped_for_all_runs(bertctl: Run, made: Made) -> None:
    rows = made.folder / "broken.jsonl"
    rows.write_text('{"text": "a good film"}\n{"text": \n{"text": "bad"}\n', encoding="utf-8")

    done = bertctl("predict", "feeling,adapted", rows, "--on-error", "skip", cwd=made.folder)

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert "1 row left out" in done.stderr


def test_python_answers_alike_and_names_what_is_shared(made: Made, own_session: None) -> None:
    runs = package.load_runs([made.folder / "feeling", made.folder / "score"])

    lines = runs.predict(TEXTS)

    assert runs.names == ("feeling", "score")
    assert runs.sharing["score"]["shared_layers"] == 1
    for name in runs.names:
        alone = package.predict(made.folder / name, TEXTS)
        assert [line[name]["prediction"] for line in lines] == [row["prediction"] for row in alone]
    assert package.predict(runs, TEXTS) == lines
    assert next(runs.stream(iter(TEXTS)))["feeling"] == lines[0]["feeling"]


def test_runs_of_one_name_go_by_their_paths(made: Made, tmp_path: Path, own_session: None) -> None:
    other = tmp_path / "feeling"
    shutil.copytree(made.folder / "feeling", other)

    runs = package.load_runs([made.folder / "feeling", other])
    [line] = runs.predict(TEXTS[:1])

    assert runs.names == (str(made.folder / "feeling"), str(other))
    assert line[runs.names[0]] == line[runs.names[1]]
    assert runs.sharing[str(other)]["shared_layers"] == 2


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["feeling,nowhere", "TEXT"], 4, "nowhere does not exist"),
        (["feeling,", "TEXT"], 2, "a run is missing beside a comma"),
        (["feeling,./feeling", "TEXT"], 2, "the same run is given twice"),
        (["feeling,score", "--split", "test"], 2, "the data of one run"),
        (
            ["feeling,score", "--question", "who?", "--context", "He did."],
            2,
            "--question is for one",
        ),
        (["feeling,score", "TEXT", "--shard", "1/2", "-o", "x.jsonl"], 2, "--shard, --merge"),
        (["feeling,score", "TEXT", "--num-processes", "2"], 2, "the work of one run"),
        (
            ["feeling,tags", "TEXT", "--format", "conll"],
            2,
            "has no place for the answers of several",
        ),
        (["feeling,score", "TEXT", "--top-k", "1"], 2, "whose answers are not labels"),
        (["feeling,tags", "-"], 2, "can be read only once"),
        (["feeling,tags", "rows.csv", "--on-error", "skip"], 2, "may skip other rows"),
        (["feeling,score", "absent.csv"], 4, "absent.csv does not exist"),
    ],
)
def test_what_several_runs_cannot_answer_is_refused(
    arguments: list[str], code: int, words: str, bertctl: Run, made: Made
) -> None:
    typed = [TEXTS[0] if word == "TEXT" else word for word in arguments]

    done = bertctl("predict", *typed, cwd=made.folder, input="a film\n")

    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert not done.stdout


@pytest.mark.in_process
def test_an_export_among_them_is_refused(bertctl: Run, made: Made, tiny_export: Path) -> None:
    done = bertctl("predict", f"feeling,{tiny_export}", TEXTS[0], cwd=made.folder)

    assert done.returncode == 2, done.stderr
    assert "is an export" in done.stderr


@pytest.mark.in_process
def test_a_model_of_questions_among_them_is_refused(
    bertctl: Run, made: Made, tiny_model: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForQuestionAnswering

    questions = tmp_path / "questions"
    shutil.copytree(tiny_model, questions)
    AutoModelForQuestionAnswering.from_pretrained(tiny_model).save_pretrained(questions)

    done = bertctl("predict", f"feeling,{questions}", TEXTS[0], cwd=made.folder)

    assert done.returncode == 2, done.stderr
    assert "is a run of question-answering" in done.stderr


def test_files_that_runs_read_as_other_rows_are_refused(
    made: Made, tmp_path: Path, own_session: None
) -> None:
    columns = tmp_path / "columns.txt"
    columns.write_text("a O\nfilm B-ART\n\nit O\n", encoding="utf-8")

    with pytest.raises(BertctlError, match="read other rows"):
        _predict_file(made, columns)


def _predict_file(made: Made, file: Path) -> None:
    from bertctl.inference.several_runs import SeveralRows, open_runs

    runs = open_runs([made.folder / "feeling", made.folder / "tags"])
    for _ in SeveralRows([*runs.values()]).of_source(str(file)):
        pass


def test_python_refuses_one_path_and_none(own_session: None) -> None:
    with pytest.raises(UsageError, match="paths is one path"):
        package.load_runs("runs/one")
    with pytest.raises(UsageError, match="no run is given"):
        package.load_runs([])
