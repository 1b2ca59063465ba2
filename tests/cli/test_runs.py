"""`bertctl runs`: what is listed, and that nothing is deleted but runs that were named for it."""

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from bertctl.reporting.run_list import beyond_best, list_runs
from bertctl.run_folder import RunFolder
from tests.conftest import Run, TinyRun
from tests.made_runs import classified, made_run, scored

pytestmark = pytest.mark.in_process


def set_status(run: Path, **values: Any) -> None:
    path = run / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def everything(folder: Path) -> dict[str, bytes | str]:
    """What is in a folder, links as what they say; locks are nobody's."""
    results: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            results[name] = str(path.readlink())
        elif path.is_file() and path.name != ".lock":
            results[name] = path.read_bytes()
    return results


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Six runs on the same rows, the later the better and the newer, and much that is none."""
    folder = tmp_path / "runs"
    for number in range(6):
        run = made_run(folder / f"made-{number}", classified(20), value=0.7 + number / 30)
        os.utime(run / "status.json", (1e9 + number, 1e9 + number))
    made_run(tmp_path / "elsewhere", classified(20), value=0.1)
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.txt").write_text("two years")
    (folder / "other-program").mkdir()
    (folder / "other-program" / "status.json").write_text('{"state": "done"}')
    (folder / "notes.txt").write_text("mine")
    return folder


def test_ls_quiet_prints_folders_alone(runs: Path, bertctl: Run) -> None:
    done = bertctl("runs", "ls", "-q", "--sort", "name")
    assert done.stdout.splitlines() == [f"runs/made-{number}" for number in range(6)]
    document = json.loads(bertctl("runs", "ls", "-q", "--json").stdout)
    assert len(document["runs"]) == 6


def test_ls_shows_what_each_run_has_reached(runs: Path, bertctl: Run) -> None:
    set_status(
        runs / "made-0",
        state="running",
        host=socket.gethostname(),
        pid=2**30,
    )
    set_status(runs / "made-1", state="failed")
    (runs / "made-2" / "metrics.json").write_text("{")
    os.utime(runs / "made-0" / "status.json", (1e9, 1e9))
    os.utime(runs / "made-1" / "status.json", (1e9 + 1, 1e9 + 1))
    done = bertctl("runs", "ls")
    lines = [line.split() for line in done.stdout.splitlines()]
    header = [
        "run",
        "kind",
        "recipe",
        "model",
        "split",
        "score",
        "95",
        "%",
        "interval",
        "state",
        "size",
        "age",
    ]
    assert lines[0] == header
    assert [line[0] for line in lines[1:-1]] == [
        f"runs/made-{number}" for number in (5, 4, 3, 2, 1, 0)
    ], "newest first"
    scored = [
        "fine-tuning",
        "made",
        "minilm",
        "validation",
        "accuracy",
        "0.8667",
        "0.8367",
        "to",
        "0.8867",
        "done",
    ]
    assert lines[1][1:11] == scored
    assert lines[4][1:5] == ["fine-tuning", "made", "minilm", "done"], (
        "a score that can't be read is none"
    )
    assert "failed" in lines[5]
    assert "killed" in lines[6]
    assert done.stdout.splitlines()[-1].startswith("6 runs in runs, ")
    document = json.loads(bertctl("runs", "ls", "runs", "--json").stdout)
    (entry,) = [row for row in document["runs"] if row["run"] == "runs/made-5"]
    assert entry["recipe"] == "made"
    assert entry["split"] == "validation"
    assert entry["metric"] == "accuracy"
    assert entry["state"] == "done"
    assert entry["score"]["value"] == pytest.approx(0.8667, abs=1e-4)
    assert entry["bytes"] == sum(
        path.stat().st_size for path in (runs / "made-5").rglob("*") if path.is_file()
    )
    assert entry["age_seconds"] > 1e7


@pytest.mark.parametrize(
    ("order", "first"), [("name", 0), ("age", 4), ("score", 5), ("size", 1), ("state", 3)]
)
def test_ls_is_sorted(runs: Path, bertctl: Run, order: str, first: int) -> None:
    for number in (0, 2, 3, 4, 5):
        (runs / f"made-{number}" / "log.txt").write_text("x" * 1000)
        if order == "state":
            set_status(runs / f"made-{number}", state="done" if number == 3 else "interrupted")
    if order == "state":
        set_status(runs / "made-1", state="failed")
    os.utime(runs / "made-4" / "status.json", (2e9, 2e9))
    listed = json.loads(bertctl("runs", "ls", "--sort", order, "--json").stdout)["runs"]
    assert listed[0]["run"] == f"runs/made-{first}"


def test_rm_deletes_what_is_named(runs: Path, bertctl: Run) -> None:
    (runs / "made-1" / "mine.txt").write_text("mine")
    done = bertctl("runs", "rm", "runs/made-0/", "runs/made-1", "runs/made-0")
    assert done.returncode == 0
    assert done.stdout == "2 runs deleted\n"
    assert "its folder stays" in done.stderr
    assert not (runs / "made-0").exists()
    assert everything(runs / "made-1") == {"mine.txt": b"mine"}
    assert (runs / "made-2" / "metrics.json").exists()


def test_rm_deletes_a_run_once_that_is_named_in_two_ways(runs: Path, bertctl: Run) -> None:
    """It was deleted under the first name, and refused as missing under the second."""
    run = runs / "made-2"
    done = bertctl(
        "runs", "rm", run, run.relative_to(runs.parent), f"{runs.name}/../{runs.name}/{run.name}"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 run deleted\n"
    assert not run.exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "RUN"),
        (("runs",), "is not a run"),
        (("runs/foreign",), "is not a run"),
        (("runs/other-program",), "is not a run"),
        (("runs/notes.txt",), "is not a run"),
        (("runs/nowhere",), "does not exist"),
        (("runs/linked",), "is a link"),
        (("runs/linked/",), "is a link"),
        (("runs/made-0", "runs/foreign"), "nothing was deleted"),
        (("runs/there",), "is running on another-machine"),
    ],
)
def test_rm_deletes_nothing_where_a_name_is_no_run(
    runs: Path, bertctl: Run, names: tuple[str, ...], message: str
) -> None:
    made_run(runs / "there", classified(4))
    set_status(runs / "there", state="running", host="another-machine")
    before = everything(runs.parent)
    done = bertctl("runs", "rm", *names)
    assert done.returncode == 2
    assert message in done.stderr
    assert everything(runs.parent) == before


def test_a_run_that_is_being_written_stays(runs: Path, bertctl: Run) -> None:
    with RunFolder(runs / "made-0").held():
        before = everything(runs)
        done = bertctl("runs", "rm", "runs/made-0")
        assert done.returncode == 2
        assert f"in use by process {os.getpid()}" in done.stderr
        assert everything(runs) == before
        done = bertctl("runs", "gc", "--keep-best", "5", "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout)["deleted"] == []
        assert json.loads(done.stdout)["kept"][0]["run"] == "runs/made-0"
        assert everything(runs) == before


def test_a_link_in_a_run_is_not_followed(runs: Path, bertctl: Run, tmp_path: Path) -> None:
    shutil.rmtree(runs / "made-0" / "model")
    (runs / "made-0" / "model").symlink_to(tmp_path / "elsewhere" / "model")
    (runs / "made-1" / "trackers").mkdir()
    (runs / "made-1" / "trackers" / "far").symlink_to(tmp_path / "elsewhere")
    before = everything(tmp_path / "elsewhere")
    assert bertctl("runs", "rm", "runs/made-0").returncode == 2
    assert bertctl("runs", "rm", "runs/made-1").returncode == 0
    assert everything(tmp_path / "elsewhere") == before
    assert not (runs / "made-1").exists()


def test_gc_deletes_only_finished_runs_beyond_the_best(runs: Path, bertctl: Run) -> None:
    set_status(
        runs / "made-0",
        state="running",
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    set_status(runs / "made-1", state="interrupted")
    before = everything(runs.parent)
    dry = json.loads(bertctl("runs", "gc", "--keep-best", "3", "--dry-run", "--json").stdout)
    assert [run["run"] for run in dry["deleted"]] == ["runs/made-2"]
    assert everything(runs.parent) == before
    done = bertctl("runs", "gc", "--keep-best", "3")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("1 run of 6 deleted, ")
    left = {
        name: content for name, content in before.items() if not name.startswith("runs/made-2/")
    }
    assert everything(runs.parent) == left
    assert bertctl("runs", "gc").returncode == 2, "how many stay must be said"
    assert bertctl("runs", "gc", "--keep-best", "0").returncode == 2
    assert everything(runs.parent) == left


def test_gc_ranks_runs_among_their_like(tmp_path: Path) -> None:
    """Another recipe, metric or set of rows is another kind.

    A loss is better where it is lower; newer wins ties.
    """

    def make(name: str, value: float, **fields: Any) -> Path:
        run = made_run(tmp_path / name, classified(8), value=value, **fields)
        os.utime(run / "status.json", (1e9, 1e9))
        return run

    make("a-low", 0.5)
    make("a-high", 0.9)
    newer = make("a-same", 0.9)
    os.utime(newer / "status.json", (1e9 + 1, 1e9 + 1))
    make("b-low", 0.1, recipe={"name": "other"})
    make("c-low", 0.2, primary="loss")
    environment = make("d-low", 0.3) / "environment.json"
    document = json.loads(environment.read_text())
    document["data_hashes"] = {"validation": "other"}
    environment.write_text(json.dumps(document))
    for name in ("f-low", "f-high"):  # of another file, perhaps not of the same
        (make(name, 0.1) / "environment.json").unlink()
    without_value = made_run(tmp_path / "e", scored(8), primary="spearman")
    _change_metric(without_value, "spearman", value=None)

    surplus = beyond_best(list_runs(tmp_path), 1)

    assert [Path(run.run).name for run in surplus] == ["a-high", "a-low"]


def test_gc_keeps_the_run_with_the_lowest_loss(tmp_path: Path) -> None:
    for name, value in (("l-1", 0.3), ("l-2", 0.2)):
        run = made_run(tmp_path / name, classified(8), primary="nll", value=value)
        _change_metric(run, "nll", higher_is_better=False)

    surplus = beyond_best(list_runs(tmp_path), 1)

    assert [Path(run.run).name for run in surplus] == ["l-1"]


def _change_metric(run: Path, name: str, **fields: Any) -> None:
    path = run / "metrics.json"
    document = json.loads(path.read_text())
    document["metrics"]["validation"][name] |= fields
    path.write_text(json.dumps(document))


def test_the_runs_of_a_sweep_are_listed_and_stay(tmp_path: Path, bertctl: Run) -> None:
    for name in ("a", "b"):
        made_run(tmp_path / "sweep" / "cells" / name, classified(8))
    (tmp_path / "sweep" / "plan.json").write_text("{}")
    before = everything(tmp_path)
    assert len(json.loads(bertctl("runs", "ls", "sweep/cells", "--json").stdout)["runs"]) == 2
    done = bertctl("runs", "rm", "sweep/cells/a")
    assert done.returncode == 2
    assert "is a part of the sweep" in done.stderr
    done = bertctl("runs", "gc", "sweep/cells", "--keep-best", "1")
    assert done.returncode == 0
    assert "is a part of the sweep" in done.stderr
    assert everything(tmp_path) == before
    (tmp_path / "linked").symlink_to("sweep/cells")
    assert bertctl("runs", "rm", "linked/a").returncode == 2
    assert "is a part of the sweep" in bertctl("runs", "gc", "linked", "--keep-best", "1").stderr
    assert {path.name for path in (tmp_path / "sweep" / "cells").iterdir()} == {"a", "b"}


def test_a_run_scored_on_other_rows_since_stands_by_itself(runs: Path, bertctl: Run) -> None:
    """As `evaluate` leaves it where its validation file has changed."""
    document = json.loads((runs / "made-0" / "metrics.json").read_text())
    document["data"]["validation"]["sha256"] = "f" * 64
    (runs / "made-0" / "metrics.json").write_text(json.dumps(document))
    assert bertctl("runs", "gc", "runs", "--keep-best", "1").returncode == 0
    assert {path.name for path in runs.glob("made-*")} == {"made-0", "made-5"}


def test_a_run_of_the_real_process_is_listed_and_deleted_whole(
    tmp_path: Path, bertctl: Run, tiny_run: TinyRun
) -> None:
    shutil.copytree(tiny_run.path, tmp_path / "runs" / "real")
    (row,) = json.loads(bertctl("runs", "ls", "--json").stdout)["runs"]
    metrics = json.loads((tiny_run.path / "metrics.json").read_text())["metrics"]["validation"]
    assert row["score"]["value"] == metrics["accuracy"]["value"]
    hashes = json.loads((tiny_run.path / "environment.json").read_text())["data_hashes"]
    data = json.loads((tiny_run.path / "metrics.json").read_text())["data"]
    assert row["scored_on"] == hashes["validation"] == data["validation"]["sha256"]
    done = bertctl("runs", "rm", ".", cwd=tmp_path / "runs" / "real")
    assert done.returncode == 0, done.stderr
    assert [*(tmp_path / "runs").iterdir()] == []
    done = bertctl("runs", "ls", "nowhere")
    assert done.returncode == 4
    assert "nowhere" in done.stderr


@pytest.mark.parametrize(
    "words", [("finetune", "demo"), ("probe", "demo"), ("evaluate", "{run}", "--file", "{data}")]
)
def test_no_other_run_takes_the_place_of_one_of_a_sweep(
    tmp_path: Path, bertctl: Run, tiny_run: TinyRun, words: tuple[str, ...]
) -> None:
    """The sweep took the other run's score for that of its own setting."""
    made_run(tmp_path / "sweep" / "cells" / "a", classified(8))
    (tmp_path / "sweep" / "plan.json").write_text("{}")
    before = everything(tmp_path)
    typed = [word.format(run=tiny_run.path, data=tiny_run.data) for word in words]
    done = bertctl(*typed, "-o", "sweep/cells/a", "--overwrite")
    assert done.returncode == 2, done.stderr
    assert "is a part of the sweep" in done.stderr
    assert everything(tmp_path) == before


def test_a_file_of_a_run_that_is_a_link_to_itself_is_no_bug(
    tmp_path: Path, bertctl: Run, tiny_run: TinyRun
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    weights = run / "model" / "model.safetensors"
    weights.unlink()
    weights.symlink_to(weights.name)
    for verb, code in (
        (("report", run, "-o", "page.md"), 0),
        (("predict", run, "good", "-o", "out.jsonl"), 4),
    ):
        done = bertctl(*verb)
        assert done.returncode == code, done.stderr


def test_ls_tells_a_probe_and_the_scores_of_a_file_from_a_fine_tuning(
    runs: Path, bertctl: Run
) -> None:
    (runs / "made-0" / "probe.safetensors").touch()
    (runs / "made-1" / "environment.json").unlink()
    kinds = {
        Path(row["run"]).name: row["kind"]
        for row in json.loads(bertctl("runs", "ls", "--json").stdout)["runs"]
    }
    assert [kinds[f"made-{number}"] for number in range(3)] == ["probe", "scores", "fine-tuning"]
