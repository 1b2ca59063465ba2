"""A package that adds a metric, a loss, a reader and a verb by entry points, installed."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a process in which the example is installed beside bertctl."""
    site = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", site, ROOT / "tests" / "plugin"], check=True)
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def bertctl(environment, tmp_path):
    """Runs a command, and returns how it ended."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bertctl", *map(str, arguments)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def films(path: Path) -> Path:
    words = {"pos": "a fine and happy film", "neg": "a dull and sad film"}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([f"{words[label]} {n}", label] for n in range(24) for label in words)
    return path


def test_a_verb_is_listed_and_runs_and_a_broken_one_is_named(bertctl) -> None:
    listed = bertctl("--help")
    assert listed.returncode == 0, listed.stderr
    assert "Greet somebody." in listed.stdout
    assert "bertctl_example.absent" in listed.stderr
    greeted = bertctl("greet", "Anna")
    assert greeted.returncode == 0, greeted.stderr
    assert greeted.stdout == "hello Anna\n"
    answered = json.loads(bertctl("greet", "Anna", "--json").stdout)
    assert answered == {"greeting": "hello Anna"}
    assert bertctl("wave").returncode == 2


def test_a_loss_and_a_metric_are_those_of_a_run(bertctl, tiny_model, tmp_path) -> None:
    rows = films(tmp_path / "films.csv")
    trained = bertctl(
        *("finetune", "text-classification", "--train-file", rows, "--model", tiny_model),
        *("--max-length", "32", "--epochs", "2", "--set", "training.loss=poly", "-o", "run"),
    )
    assert trained.returncode == 0, trained.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert 0 <= metrics["metrics"]["validation"]["certainty"]["value"] <= 1
    done = bertctl("gate", "run", "--min", "certainty=0.0", "--allow-constant")
    assert "certainty" in done.stdout, done.stderr
    unknown = bertctl(
        *("finetune", "text-classification", "--train-file", rows, "--model", tiny_model),
        *("--max-length", "32", "--set", "training.loss=polly"),
    )
    assert unknown.returncode == 2


def test_a_file_of_the_plug_ins_suffix_has_rows(bertctl, tiny_model, tmp_path) -> None:
    sections = []
    for number in range(24):
        sections += [
            f"[{number}]\ntext = a {word} film {number}\nlabel = {label}\n"
            for word, label in [("fine", "pos") if number % 2 else ("dull", "neg")]
        ]
    (tmp_path / "films.ini").write_text("\n".join(sections), encoding="utf-8")
    checked = bertctl("data", "check", "films.ini", "--model", tiny_model, "--json")
    assert json.loads(checked.stdout)["splits"]["train"]["rows"] == 24, checked.stderr
    assert "films.ini" in bertctl("data", "check", "absent.ini").stderr.replace("absent", "films")


def test_without_the_package_its_names_are_unknown(bertctl, environment, tmp_path) -> None:
    environment = {**environment, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "bertctl", "greet"]
    done = subprocess.run(
        words,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
