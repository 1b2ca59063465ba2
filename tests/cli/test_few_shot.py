"""`bertctl finetune few-shot` by the real process.

A run like any classifier's, whose draws are gone on with.
"""

import json
import os
import signal
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertctl.jobs.few_shot import judge_training
from tests.conftest import Run
from tests.nursery import Nursery

SETS = (
    "data.train_rows_per_label=4",
    "few_shot.draws=2",
    "training.max_steps=4",
    "training.batch_size=8",
    "evaluation.bootstrap_resamples=100",
    "model.max_length=32",
    "runtime.threads=1",
    "runtime.precision=fp32",
    "optimizer.learning_rate=0.001",
)


def _words(model: Path, rows: Path, *more: object) -> list[str]:
    sets = (word for entry in SETS for word in ("--set", entry))
    return [
        *map(str, ("finetune", "few-shot", "--train-file", rows, "--model", model, *more)),
        *sets,
    ]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    lines = ["text,label"]
    for i in range(20):
        lines += [
            f"the film was good {'very ' * (i % 3)}fine {i},pos",
            f"it was bad food {'not ' * (i % 4)}dull {i},neg",
        ]
    path.write_text("\n".join(lines) + "\n")
    return path


def _metrics(run: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    return document


def test_a_run_that_is_scored_told_and_used_like_any_classifier(
    bertctl: Run, tiny_model: Path, rows: Path, tmp_path: Path
) -> None:
    made = bertctl(*_words(tiny_model, rows, "-o", "run"))
    assert made.returncode == 0, made.stderr
    metrics = _metrics(tmp_path / "run")
    actual = metrics["few_shot"]
    assert actual["sentence"] in made.stdout.replace("\n", " ")
    assert [row["seed"] for row in actual["draws"]] == [42, 43]
    assert actual["draws"][0]["few_shot"] == metrics["metrics"]["validation"]["accuracy"]["value"]
    for arm in ("few_shot", "frozen"):
        assert actual["mean"][arm] == pytest.approx(sum(row[arm] for row in actual["draws"]) / 2)
    assert actual["verdict"] in ("pays", "does not pay")
    assert not (tmp_path / "run/checkpoints").exists()

    scored = bertctl("evaluate", "run", "--json")
    assert json.loads(scored.stdout)["metrics"] == metrics["metrics"]
    answered = bertctl("predict", "run", "-", input="the film was good\nit was bad food\n")
    assert [json.loads(line)["prediction"] for line in answered.stdout.splitlines()] == [
        "pos",
        "neg",
    ]
    replayed = bertctl("finetune", "run/recipe.yaml", "-o", "replayed", "-q")
    assert replayed.returncode == 0, replayed.stderr
    assert (tmp_path / "replayed/metrics.json").read_bytes() == (
        tmp_path / "run/metrics.json"
    ).read_bytes()
    page = bertctl("report", "run", "-o", "page.html")
    assert page.returncode == 0, page.stderr
    assert "Few-shot training" in (tmp_path / "page.html").read_text()
    assert bertctl("gate", "run", "--min", "accuracy=0.01").returncode in (
        0,
        8,
    )  # so few rows may tell nothing
    # The frozen encoder's score is that of vectors which nobody has trained: other steps leave it.
    other = bertctl(*_words(tiny_model, rows, "-o", "other", "-q"), "--set", "training.max_steps=2")
    assert other.returncode == 0, other.stderr
    assert [row["frozen"] for row in _metrics(tmp_path / "other")["few_shot"]["draws"]] == [
        row["frozen"] for row in actual["draws"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_a_killed_run_goes_on_with_the_draw_that_is_not_finished(
    nursery: Nursery,
    bertctl: Run,
    tiny_model: Path,
    rows: Path,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    undisturbed = bertctl(*_words(tiny_model, rows, "-o", "undisturbed", "-q"))
    assert undisturbed.returncode == 0, undisturbed.stderr
    run = tmp_path / "run"
    child = nursery.start(_words(tiny_model, rows, "-o", run), cwd=tmp_path, env={**os.environ})
    while not (run / "checkpoints/draw-2.json").exists() and child.poll() is None:
        time.sleep(0.01)
    child.send_signal(number)
    _, message = child.communicate(timeout=600)
    if child.returncode != 0:  # or it had finished before the signal came
        assert number == signal.SIGKILL or "--resume" in message
        resumed = bertctl(*_words(tiny_model, rows, "-o", run, "--resume"))
        assert resumed.returncode == 0, resumed.stderr
        assert "draw 2 of 2" not in resumed.stderr
    assert (run / "metrics.json").read_bytes() == (
        tmp_path / "undisturbed/metrics.json"
    ).read_bytes()
    finished = bertctl(*_words(tiny_model, rows, "-o", run, "--resume"))
    assert "finished already" in finished.stderr


@pytest.mark.slow
def test_long_texts_are_learned_from_as_they_are_read(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    """Texts that differ in their ends alone."""
    for name, words in {
        "one": ("good fine", "bad dull"),
        "other": ("food film", "was the"),
    }.items():
        lines = [f"{'the film was it ' * 9}{words[i % 2]} {i},{'pn'[i % 2]}" for i in range(16)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
        for mode in ("tail", "head"):
            out = f"{name}-{mode}"
            made = bertctl(
                *_words(tiny_model, tmp_path / f"{name}.csv", "-o", out, "-q", "--long-text", mode)
            )
            assert made.returncode == 0, made.stderr
    encoders = {
        run: (tmp_path / run / "encoder/model.safetensors").read_bytes()
        for run in ("one-tail", "other-tail", "one-head", "other-head")
    }
    assert encoders["one-head"] == encoders["other-head"], "the premise"
    assert encoders["one-tail"] != encoders["other-tail"]


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("content", "sets", "code", "message"),
    [
        ("text,pair,label\na,b,x\nc,d,y\ne,f,x\ng,h,y\n", (), 2, "one label for each single text"),
        (
            "text,label\na film,0.5\nfood,0.7\nbad food,0.1\ngood,0.2\n",
            ("data.train_rows_per_label=1",),
            3,
            "label",
        ),
        (
            "text,label\na,x\nb,y\nc,x\nd,y\n",
            ("few_shot.draws=3",),
            2,
            "several draws of all training rows",
        ),
        ("text,label\na,x\nb,y\nc,x\nd,y\n", ("few_shot.loss=cosent",), 2, "few_shot.loss"),
        (
            "text,label\na,x\nb,y\nc,x\nd,y\n",
            ("training.class_weights=balanced",),
            2,
            "learns pairs",
        ),
        ("text\na\nb\nc\nd\n", (), 2, "label"),
        ("text,label\na,x\nb,x\nc,x\nd,x\n", (), 3, "x"),
    ],
)
def test_what_can_not_be_learned_is_refused(
    bertctl: Run,
    tiny_model: Path,
    tmp_path: Path,
    content: str,
    sets: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    (tmp_path / "bad.csv").write_text(content)
    words = (
        "finetune",
        "few-shot",
        "--train-file",
        "bad.csv",
        "--model",
        tiny_model,
        "--max-length",
        32,
        "-o",
        "run",
    )
    done = bertctl(*words, *(word for entry in sets for word in ("--set", entry)), "--json")
    assert done.returncode == code, done.stderr
    assert message in json.loads(done.stdout)["error"]["message"]
    assert not (tmp_path / "run").exists()


def test_several_processes_are_refused_before_there_is_a_folder(
    bertctl: Run, tiny_model: Path, rows: Path, tmp_path: Path
) -> None:
    done = bertctl(*_words(tiny_model, rows, "-o", "run", "--num-processes", 2, "--device", "cpu"))
    assert done.returncode == 2, done.stderr
    assert "Leave --num-processes out" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.in_process
def test_other_verbs_say_which_one_runs_the_recipe(
    bertctl: Run, tiny_model: Path, rows: Path
) -> None:
    for verb in ("estimate", "lr-find"):
        done = bertctl(verb, *_words(tiny_model, rows)[1:])
        assert done.returncode == 2, done.stdout
        assert "bertctl finetune" in done.stderr
    without = bertctl(
        "finetune", rows, "--model", tiny_model, "--set", "few_shot.draws=2", "--dry-run"
    )
    assert without.returncode == 2
    assert "of use only with few_shot.loss" in without.stderr


def test_so_many_rows_of_each_label_in_any_training(
    bertctl: Run, tiny_model: Path, rows: Path
) -> None:
    words = (
        "--model",
        tiny_model,
        "--max-length",
        32,
        "--dry-run",
        "--json",
        "--set",
        "data.train_rows_per_label=3",
    )
    done = bertctl("finetune", rows, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["examples"]["train"] == 6


@pytest.mark.parametrize(
    ("primary", "ours", "verdict"),
    [
        ("accuracy", (0.85, 0.84, 0.86, 0.83, 0.87, 0.84, 0.85), "pays"),
        ("accuracy", (0.82, 0.81, 0.83, 0.80, 0.84, 0.81, 0.82), "does not pay"),  # by too little
        ("accuracy", (0.95, 0.70, 0.95, 0.70, 0.95, 0.90, 0.95), "does not pay"),  # by chance
        ("accuracy", (0.75, 0.74, 0.76, 0.73, 0.77, 0.74, 0.75), "does not pay"),
        ("loss", (0.75, 0.74, 0.76, 0.73, 0.77, 0.74, 0.75), "pays"),
    ],
)
def test_the_verdict_needs_three_points_and_an_interval_without_zero(
    primary: str, ours: tuple[float, ...], verdict: str
) -> None:
    frozen = (0.80, 0.79, 0.80, 0.79, 0.81, 0.80, 0.79)
    recipe = SimpleNamespace(data=SimpleNamespace(split_seed=5))
    job: Any = SimpleNamespace(
        recipe=recipe, primary=primary, selection="validation", draws=[range(8)]
    )
    actual = judge_training(job, ours, frozen, None)
    assert actual["verdict"] == verdict, actual["sentence"]
    assert actual["sentence"].startswith(f"{verdict}: ")
    assert "fewer than 6 draws" not in actual["sentence"]
    few = judge_training(job, (0.95, 0.94, 0.95, 0.94, 0.96), frozen[:5], None)
    assert few["verdict"] == "does not pay"
    assert few["sentence"].endswith("; fewer than 6 draws can't show it")
    assert [row["seed"] for row in actual["draws"]] == [*range(5, 12)]
    assert actual["deviation"]["few_shot"] == pytest.approx(statistics.stdev(ours))
    assert actual["difference"]["value"] == pytest.approx(
        statistics.mean(ours) - statistics.mean(frozen)
    )
