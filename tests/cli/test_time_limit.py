"""`--time-limit` as a person types it. No test depends on how fast the machine is."""

import json
from pathlib import Path

import pytest

from tests.conftest import Run

pytestmark = pytest.mark.in_process


@pytest.fixture
def words(tiny_model: Path, tmp_path: Path) -> tuple[object, ...]:
    rows = ["text,label"]
    for i in range(40):
        rows += [f"good film {i},pos", f"bad food {i},neg"]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    return ("rows.csv", "--model", tiny_model, "--max-length", 16, "--batch-size", 8)


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_a_run_that_does_not_fit_is_cut_and_says_so(
    bertctl: Run, words: tuple[object, ...], tmp_path: Path
) -> None:
    result = bertctl("finetune", *words, "--epochs", 50_000, "--time-limit", "2s", "-o", "run")

    assert result.returncode == 0, result.stderr
    metrics = read(tmp_path / "run" / "metrics.json")
    assert 1 <= metrics["steps"] < metrics["time_limit"]["whole_steps"]
    assert metrics["time_limit"]["limit"] == "2s"
    assert "of 50,000 epochs by the time limit of 2s (step" in result.stderr
    performance = read(tmp_path / "run" / "performance.json")
    assert performance["time_limit"]["plan_changes"][-1][1] == metrics["steps"]
    assert "stopped at" in read(tmp_path / "run" / "status.json")["message"]
    assert (
        "The time limit of 2s ended the training"
        in (tmp_path / "run" / "model" / "README.md").read_text()
    )


def test_a_run_that_fits_is_the_run_without_a_limit(
    bertctl: Run, words: tuple[object, ...], tmp_path: Path
) -> None:
    limited = bertctl("finetune", *words, "--epochs", 2, "--time-limit", "10h", "-o", "limited")
    plain = bertctl("finetune", *words, "--epochs", 2, "-o", "plain")

    assert limited.returncode == plain.returncode == 0, limited.stderr
    assert "time limit 10h: the whole run fits" in limited.stderr
    for name in ("metrics.json", "predictions/validation.jsonl", "model/model.safetensors"):
        assert (tmp_path / "limited" / name).read_bytes() == (
            tmp_path / "plain" / name
        ).read_bytes()


def test_a_limit_without_time_for_them_leaves_out_what_comes_before_the_training(
    bertctl: Run, words: tuple[object, ...], tmp_path: Path
) -> None:
    halved = ("--set", "data.validation_fraction=0.5", "--epochs", 50_000)

    result = bertctl("finetune", *words, *halved, "--time-limit", "0.01s", "-o", "run")

    assert result.returncode == 0, result.stderr
    assert "the frozen encoder's classifier is left out" in result.stderr
    assert "TF-IDF with a linear model is left out" in result.stderr
    assert "head: starts with random weights: reading enough rows would take" in result.stderr
    assert "baselines" not in read(tmp_path / "run" / "metrics.json")


def test_a_dry_run_and_an_estimate_say_what_fits(bertctl: Run, words: tuple[object, ...]) -> None:
    limit = ("--epochs", 100_000, "--time-limit", "30s", "--json")

    planned = bertctl("finetune", *words, *limit, "--dry-run")
    estimated = bertctl("estimate", *words, *limit)

    for result in (planned, estimated):
        assert result.returncode == 0, result.stderr
        fit = json.loads(result.stdout)["time_limit"]
        assert fit["seconds"] == 30.0
        assert not fit["fits"]
        assert 1 <= fit["steps"] < 1_000_000


def test_bad_limits_are_refused_with_examples(bertctl: Run, words: tuple[object, ...]) -> None:
    result = bertctl("finetune", *words, "--time-limit", "20")

    assert result.returncode == 2
    assert 'training.time_limit: "20" given, a text such as 30s, 20m, 2h' in result.stderr
