"""`bertctl adapt` by the real process, and what it says of the two arms."""

import json
import shutil
from pathlib import Path

import pytest

from bertctl.run_documents.sweep_document import SweepDocument
from bertctl.sweeps.adaptation import compare_arms
from tests.cli.test_pretrain import write_corpus
from tests.conftest import Run
from tests.nursery import Nursery

PRETRAIN = (
    "--max-steps",
    "3",
    "--max-length",
    "32",
    "--batch-size",
    "8",
    "--threads",
    "1",
    "--precision",
    "fp32",
)
SETS = ("training.max_steps=2", "model.max_length=32", "evaluation.bootstrap_resamples=100")
THEN = tuple(word for one in SETS for word in ("--then-set", one))


def _document(
    first: int,
    *,
    higher: bool = True,
    verdict: str = "different",
    means: tuple[float, float] = (0.8, 0.75),
) -> SweepDocument:
    """sweep.json of two settings, of which the better one comes first in the comparison."""
    best, other = means if higher else means[::-1]
    states = ("collapsed", "diverged", "stopped", "failed", "missing")
    row = {"deviation": 0.01, "min": 0.1, "max": 0.9, "n": 5, **dict.fromkeys(states, 0)}
    row |= {"values": {}, "best_seed": 0, "rung_value": None, "step": None}
    empty = ("axes", "seeds", "scores", "runs", "expected_best", "notes")
    absent = ("baseline", "folds", "shard", "halving", "chosen", "test")
    sign = 1.0 if higher else -1.0
    document = {
        "schema": 1,
        "name": "adapt",
        "task": "text-classification",
        "model": "bert",
        **{key: [] for key in empty},
        **dict.fromkeys(absent, None),
        "counts": {"runs": 10, "scores": 10, "done": 10, **dict.fromkeys(states, 0)},
        "selected_on": {"setting": {"split": "validation", "of": 2}},
        "performance": {"seconds": 0.0, "settings": {}, "runs": {}},
        "primary": {
            "split": "validation",
            "name": "accuracy" if higher else "loss",
            "higher_is_better": higher,
        },
        "settings": [
            {"setting": first, "mean": best, **row},
            {"setting": 1 - first, "mean": other, **row},
        ],
        "comparison": {
            "first": first,
            "second": 1 - first,
            "seeds": [0, 1, 2, 3, 4],
            "difference": 0.05 * sign,
            "low": min(0.01 * sign, 0.09 * sign),
            "high": max(0.01 * sign, 0.09 * sign),
            "p": 0.02,
            "n": 200,
            "method": "seeds and examples",
            "clusters": None,
            "of": 2,
            "verdict": verdict,
            "sentence": "the first two settings are not compared: no seed in common",
        },
    }
    return SweepDocument.model_validate(document)


@pytest.mark.parametrize(
    ("first", "higher", "verdict", "value", "ends"),
    [
        (1, True, "gain", 0.05, (0.01, 0.09)),
        (0, True, "worse", -0.05, (-0.09, -0.01)),
        (1, False, "gain", -0.05, (-0.09, -0.01)),
        (0, False, "worse", 0.05, (0.01, 0.09)),
    ],
)
def test_the_difference_is_with_less_without(
    first: int, higher: bool, verdict: str, value: float, ends: tuple[float, float]
) -> None:
    arms = compare_arms(_document(first, higher=higher))
    assert arms["verdict"] == verdict
    difference = arms["difference"]
    assert (difference["value"], difference["low"], difference["high"]) == pytest.approx(
        (value, *ends)
    )
    assert arms["arms"]["with"]["mean"] == (0.8 if (first == 1) == higher else 0.75)
    assert arms["sentence"].startswith(f"{verdict}: ")
    assert "5 seeds, 200 examples" in arms["sentence"]


def test_runs_that_diverged_are_in_the_means_and_not_in_the_difference() -> None:
    """With pretraining two seeds of five diverged.

    What the other three show does not make it a gain.
    """
    document = _document(1, means=(0.6, 0.75))
    fewer = document.comparison.model_copy(update={"seeds": [0, 1, 2]})
    arms = compare_arms(document.model_copy(update={"comparison": fewer}))
    assert arms["verdict"] == "no gain"
    assert arms["difference"]["value"] == pytest.approx(0.05)
    assert arms["sentence"].endswith("; 4 runs that diverged in the means alone")
    assert "diverged" not in compare_arms(_document(1))["sentence"]


def test_what_is_not_told_apart_is_no_gain_and_what_is_not_compared_is_said() -> None:
    assert compare_arms(_document(1, verdict="undecided"))["verdict"] == "no gain"
    arms = compare_arms(_document(1, verdict="not compared"))
    assert arms["verdict"] == "not compared"
    assert arms["difference"] is None
    assert arms["sentence"] == "not compared: no seed in common"


def test_threads_of_the_task_are_none_of_the_pretraining(
    nursery: Nursery, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """Workers are forked where the pretraining has one thread.

    Had it those of the task, they would wait forever.
    """
    corpus = write_corpus(tmp_path / "towns.txt")
    words = [
        "adapt",
        corpus,
        "--model",
        tiny_model,
        "--objective",
        "mlm",
        "--then",
        opinions,
        *THEN,
        "--seeds",
        2,
    ]
    words += [
        "--max-steps",
        3,
        "--max-length",
        32,
        "--batch-size",
        64,
        "--precision",
        "fp32",
        "-o",
        "out",
    ]
    words += ["--set", "runtime.threads=1", "--then-set", "runtime.threads=2"]
    started = nursery.start([*map(str, words)], cwd=tmp_path, env=nursery.env)
    output = started.communicate(3600)
    assert started.returncode == 0, output


@pytest.mark.parametrize("lost", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_model_with_and_without_reading_first(
    bertctl: Run, tiny_model: Path, opinions: Path, tmp_path: Path, lost: bool
) -> None:
    corpus = write_corpus(tmp_path / "towns.txt")
    words = (
        "adapt",
        corpus,
        "--model",
        tiny_model,
        "--objective",
        "mlm",
        *PRETRAIN,
        "--then",
        opinions,
        *THEN,
    )
    done = bertctl(*words, "--seeds", 2, "-o", "out", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer == json.loads((tmp_path / "out/adapt.json").read_text())
    assert answer["verdict"] in ("gain", "worse", "no gain")
    plan = json.loads((tmp_path / "out/sweep/plan.json").read_text())
    models = [setting["model.name"] for setting in plan["settings"]]
    assert models == [str(tiny_model), str(tmp_path / "out/pretrain")]
    cells = {cell["name"]: cell for cell in plan["cells"]}
    for arm, number in (("without", 0), ("with", 1)):
        personal = [
            tmp_path / "out/sweep/cells" / name
            for name, cell in cells.items()
            if cell["setting"] == number
        ]
        values = [
            json.loads((path / "metrics.json").read_text())["metrics"]["validation"]
            for path in personal
        ]
        mean = sum(value[answer["primary"]["name"]]["value"] for value in values) / 2
        assert answer["arms"][arm]["mean"] == pytest.approx(mean)
    document = (tmp_path / "out/adapt.json").read_bytes()
    if lost:  # as a kill would leave it
        shutil.rmtree(tmp_path / "out/sweep/cells" / next(iter(cells)))
    again = bertctl(*words, "--seeds", 2, "-o", "out")
    assert again.returncode == 0, again.stderr
    assert "it is finished already" in again.stderr
    assert f"4 runs: 2 settings x 2 seeds; {3 if lost else 4} done before" in again.stderr
    assert (tmp_path / "out/adapt.json").read_bytes() == document
    assert answer["sentence"].split(" (")[0] in " ".join(again.stdout.split())


@pytest.mark.in_process
def test_what_can_not_be_judged_is_refused_before_anything_is_trained(
    bertctl: Run, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "towns.txt")
    words = (
        "adapt",
        corpus,
        "--model",
        tiny_model,
        "--objective",
        "mlm",
        *PRETRAIN,
        *THEN,
        "-o",
        "out",
    )
    for supplied, code, message in (
        (("--then", opinions, "--seeds", 1), 2, "one seed can't tell a gain from luck"),
        (("--then", "pretrain-demo"), 2, "'pretrain-demo' is a recipe of pretrain"),
        (("--then", opinions, "--then-set", "data.text_column=nowhere"), 3, "nowhere"),
        (("--then", "nowhere.csv"), 4, "nowhere.csv"),
    ):
        done = bertctl(*words, *supplied)
        assert done.returncode == code, done.stderr
        assert message in done.stderr
        assert not (tmp_path / "out").exists()


def test_a_dry_run_trains_nothing(bertctl: Run, opinions: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "towns.txt")
    new = ("--from-scratch", "tiny", "--vocab-size", 300)
    done = bertctl(
        "adapt",
        corpus,
        *new,
        *PRETRAIN,
        "--then",
        opinions,
        *THEN,
        "--seeds",
        2,
        "--dry-run",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["pretraining"]["steps"] == 3
    assert plan["finetuning"]["runs"] == 4
    assert not Path(tmp_path, plan["folder"]).exists()
