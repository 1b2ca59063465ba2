"""A sweep through the real process.

The numbers of single runs, kills, signals, shards, refusals.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tests.nursery import Child, Nursery

FIELDS = ("--batch-size", "8", "--set", "training.epochs=2")
SETS = (
    "evaluation.bootstrap_resamples=100",
    "data.validation_fraction=0.25",
    "training.log_every=1",
    "model.head_start=random",
)
GRID = "optimizer.learning_rate=5e-3,1e-3"


@pytest.fixture(scope="session")
def many_opinions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 opinions, of which 16 are held out: 6 steps an epoch in batches of 8."""
    path = tmp_path_factory.mktemp("sweep-data") / "opinions.csv"
    rows = ["text,label"]
    for i in range(32):
        rows.append(f"the film was good {'very ' * (i % 3)}fine {i},pos")
        rows.append(f"it was bad food {'not ' * (i % 4)}dull {i},neg")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def _words(
    data: Path, model: Path, output: Path, *extra: object, grid: str | None = GRID
) -> list[str]:
    fields = {
        "--train-file": data,
        "--model": model,
        "-o": output,
        "--max-length": 32,
        "--precision": "fp32",
    }
    words = []
    for pair in fields.items():
        words += [str(word) for word in pair]
    words += [word for entry in SETS for word in ("--set", entry)]
    words += ["--grid", grid] if grid else []
    return ["sweep", "text-classification", *words, *FIELDS, *map(str, extra)]


def _popen(nursery: Nursery, words: list[str]) -> Child:
    """A process that can be killed, in a session of its own as a terminal's would be."""
    return nursery.start(words, cwd=Path.cwd(), env=nursery.env)


def _result(folder: Path) -> dict[str, Any]:
    """sweep.json without what differs from one equal sweep to the next."""
    document: dict[str, Any] = json.loads((folder / "sweep.json").read_text())
    document.pop("performance")
    return document


def _states(folder: Path) -> dict[str, str]:
    cells = sorted((folder / "cells").iterdir())
    return {cell.name: json.loads((cell / "status.json").read_text())["state"] for cell in cells}


@pytest.fixture(scope="session")
def swept(
    tmp_path_factory: pytest.TempPathFactory,
    many_opinions: Path,
    tiny_model: Path,
    nursery: Nursery,
) -> Path:
    """Two settings with two seeds, in two workers. Tests that change it work on a copy."""
    folder = tmp_path_factory.mktemp("swept") / "sweep"
    process = _popen(
        nursery,
        _words(many_opinions, tiny_model, folder, "--seeds", 2, "--jobs", 2, "--keep", "all"),
    )
    out, err = process.communicate(timeout=3600)
    assert process.returncode == 0, err
    (folder / "stdout").write_text(out)
    (folder / "stderr").write_text(err)
    return folder


def test_a_sweep_says_what_it_does_and_leaves_ordinary_runs(swept: Path) -> None:
    text = (swept / "stderr").read_text()
    assert "tokenized once: 48 train rows, 16 validation rows" in text
    assert "4 runs: 2 settings x 2 seeds; 2 at a time with " in text
    assert text.count(" of 4: learning_rate ") == 4
    assert "4 runs in " in text
    assert "disk: up to " in text
    plan = json.loads((swept / "plan.json").read_text())
    assert [seed["init"] for seed in plan["seeds"]] == [42, 43]
    assert sorted(cell["name"] for cell in plan["cells"]) == sorted(_states(swept))
    assert set(_states(swept).values()) == {"done"}
    for cell in (swept / "cells").iterdir():
        environment = json.loads((cell / "environment.json").read_text())
        assert environment["recipe_hash"].startswith(cell.name)
        assert environment["threads"] == plan["threads"]
        assert (cell / "model" / "model.safetensors").exists()
    assert (swept / "best.yaml").exists()


def test_a_cell_is_what_finetune_makes_of_its_recipe(
    bertctl: Run, swept: Path, tmp_path: Path
) -> None:
    plan = json.loads((swept / "plan.json").read_text())
    for cell in (plan["cells"][0]["name"], plan["cells"][3]["name"]):
        alone = bertctl("finetune", swept / "cells" / cell / "recipe.yaml", "-o", tmp_path / cell)
        assert alone.returncode == 0, alone.stderr
        for name in ("metrics.json", "predictions/validation.jsonl", "model/model.safetensors"):
            assert (tmp_path / cell / name).read_bytes() == (
                swept / "cells" / cell / name
            ).read_bytes(), name
    best = bertctl("finetune", swept / "best.yaml", "-o", tmp_path / "best", "--json")
    primary = plan["primary"]
    chosen = json.loads((swept / "sweep.json").read_text())["chosen"]
    metrics = json.loads(best.stdout)
    assert metrics["metrics"][primary["split"]][primary["name"]]["value"] == chosen["run_value"]
    assert metrics["selected_on"]["setting"] == {"split": primary["split"], "of": 2}
    gate = bertctl(
        "gate", tmp_path / "best", "--min", f"{primary['name']}=0", "--allow-constant", "--json"
    )
    assert "setting (best of 2)" in " ".join(json.loads(gate.stdout)["notes"]), (
        gate.stdout + gate.stderr
    )


def test_a_second_call_runs_nothing_and_other_settings_are_refused(
    bertctl: Run, swept: Path, many_opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    shutil.copytree(swept, folder)
    data = tmp_path / "opinions.csv"
    shutil.copy(many_opinions, data)
    before = {path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("metrics.json")}
    again = bertctl(*_words(data, tiny_model, folder, "--seeds", 2, "--jobs", 1))
    assert again.returncode == 0, again.stderr
    assert "4 runs: 2 settings x 2 seeds; 4 done before" in again.stderr
    assert before == {
        path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("metrics.json")
    }
    assert _result(folder) == _result(swept)
    assert len(list((folder / "cells").glob("*/model"))) == 4, "all were to be kept"
    (folder / "sweep.json").unlink()  # as after a kill between the last run and the result
    assert bertctl(*_words(data, tiny_model, folder, "--seeds", 2, "--jobs", 1)).returncode == 0
    assert len(list((folder / "cells").glob("*/model"))) == 1
    assert _result(folder) == _result(swept)
    other = bertctl(
        *_words(data, tiny_model, folder, "--seeds", 3, "--set", "optimizer.weight_decay=0.1")
    )
    assert other.returncode == 2, other.stderr
    assert "optimizer.weight_decay: 0.01 then, 0.1 now" in other.stderr
    assert "seeds: " in other.stderr
    data.write_text(data.read_text().replace("fine 3,", "fine thirty,"))
    changed = bertctl(*_words(data, tiny_model, folder, "--seeds", 2))
    assert changed.returncode == 3, changed.stderr
    assert "the rows of " in changed.stderr
    assert "train" in changed.stderr


def test_a_sweep_is_not_taken_for_a_run(bertctl: Run, swept: Path) -> None:
    done = bertctl("report", swept)
    assert done.returncode == 4
    assert str(swept / "cells") in done.stderr


def test_two_sweeps_in_one_folder(
    bertctl: Run, swept: Path, many_opinions: Path, tiny_model: Path
) -> None:
    with (swept / ".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write("process 4711 on elsewhere\n")
        lock.flush()
        refused = bertctl(*_words(many_opinions, tiny_model, swept, "--seeds", 2))
    assert refused.returncode == 2
    assert "process 4711 on elsewhere" in refused.stderr


def _wait_for(folder: Path, done: int, process: Child) -> None:
    """Until so many cells are done and another one has taken some steps."""
    end = time.monotonic() + 3600
    while time.monotonic() < end and process.poll() is None:
        states = {}
        for cell in (folder / "cells").glob("*"):
            if (cell / "status.json").exists():
                states[cell] = json.loads((cell / "status.json").read_text())["state"]
        running = [cell for cell, state in states.items() if state == "running"]
        if sum(state == "done" for state in states.values()) >= done and any(
            (cell / "history.jsonl").exists() for cell in running
        ):
            return
        time.sleep(0.01)


def _children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in listed.stdout.split()]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="workers are found by Linux's process table")
def test_a_killed_sweep_goes_on_to_the_same_result(
    bertctl: Run,
    nursery: Nursery,
    swept: Path,
    many_opinions: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    words = _words(many_opinions, tiny_model, tmp_path / "sweep", "--seeds", 2, "--jobs", 2)
    process = _popen(nursery, words)
    _wait_for(tmp_path / "sweep", 1, process)
    workers = _children(process.pid)
    process.kill()
    process.communicate()
    end = time.monotonic() + 3600
    while any(map(_is_alive, workers)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(_is_alive, workers)), "no worker outlives its parent"
    locks = [(cell / ".lock").open("a") for cell in (tmp_path / "sweep" / "cells").iterdir()]
    for lock in (
        locks
    ):  # on a busy machine a killed worker still holds its cell when the next sweep comes to it
        fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(2.0, lambda: [lock.close() for lock in locks]).start()
    again = bertctl(*words)
    assert again.returncode == 0, again.stderr
    assert _result(tmp_path / "sweep") == _result(swept)
    assert len(list((tmp_path / "sweep" / "cells").glob("*/model"))) == 1, "--keep best"


@pytest.mark.slow
def test_a_signal_saves_and_the_same_command_goes_on(
    bertctl: Run,
    nursery: Nursery,
    swept: Path,
    many_opinions: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    """SIGTERM; Ctrl-C takes the same way (tests/slow/test_sweep_bars.py)."""
    words = _words(many_opinions, tiny_model, tmp_path / "sweep", "--seeds", 2, "--jobs", 2)
    process = _popen(nursery, words)
    _wait_for(tmp_path / "sweep", 0, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=3600)
    assert process.returncode == 143, err
    assert "The same command" in err
    again = bertctl(*words)
    assert again.returncode == 0, again.stderr
    assert _result(tmp_path / "sweep") == _result(swept)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are found by Linux's process table")
def test_a_second_ctrl_c_ends_at_once_and_does_not_say_that_anything_was_saved(
    nursery: Nursery, many_opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    process = _popen(
        nursery, _words(many_opinions, tiny_model, tmp_path / "sweep", "--seeds", 2, "--jobs", 2)
    )
    _wait_for(tmp_path / "sweep", 0, process)
    workers = _children(process.pid)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # so that none saves anything
    while not all(
        task.read_text().rpartition(")")[2].split()[0] == "T" for task in _tasks(workers)
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    while not all(_is_pending(signal.SIGINT, worker) for worker in workers):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=3600)
    assert process.returncode == 130, err
    assert "interrupted again: it ended at once" in err
    assert "saved" not in err
    while any(map(_is_alive, workers)):
        time.sleep(0.01)


def _tasks(pids: list[int]) -> list[Path]:
    tasks: list[Path] = []
    for pid in pids:
        threads = Path(f"/proc/{pid}/task")
        tasks.extend(threads.glob("*/stat"))
    return tasks


def _is_pending(number: int, pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("ShdPnd:")[2].split()[0], 16) >> (number - 1) & 1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are found by Linux's process table")
def test_a_worker_that_dies_fails_its_cell_and_the_others_go_on(
    bertctl: Run,
    nursery: Nursery,
    swept: Path,
    many_opinions: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    words = _words(many_opinions, tiny_model, tmp_path / "sweep", "--seeds", 2, "--jobs", 1)
    process = _popen(
        nursery,
        [*words, "--threads", str(json.loads((swept / "plan.json").read_text())["threads"])],
    )
    _wait_for(tmp_path / "sweep", 0, process)
    for worker in _children(process.pid):
        os.kill(worker, signal.SIGKILL)
    _, err = process.communicate(timeout=3600)
    assert process.returncode == 5, err
    assert "signal 9 (SIGKILL)" in err
    states = list(_states(tmp_path / "sweep").values())
    assert sorted(states) == ["done", "done", "done", "failed"]
    assert _result(tmp_path / "sweep")["counts"]["failed"] == 1
    again = bertctl(*words)
    assert again.returncode == 0, again.stderr
    assert _result(tmp_path / "sweep") == _result(swept)


@pytest.mark.slow
def test_two_shards_merged_are_the_whole(
    bertctl: Run, swept: Path, many_opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    threads = json.loads((swept / "plan.json").read_text())["threads"]
    for part in (1, 2):
        done = bertctl(
            *_words(many_opinions, tiny_model, tmp_path / f"part{part}", "--seeds", 2),
            *("--shard", f"{part}/2", "--threads", threads),
        )
        assert done.returncode == 0, done.stderr
        assert "2 of them here" in done.stderr
    half = bertctl("sweep-merge", tmp_path / "part1", "-o", tmp_path / "whole")
    assert "2 of 4 runs" in half.stderr
    completed = bertctl(
        "sweep-merge", tmp_path / "part1", tmp_path / "part2", "-o", tmp_path / "whole"
    )
    assert completed.returncode == 0, completed.stderr
    assert _result(tmp_path / "whole") == _result(swept)
    plan = tmp_path / "part2" / "plan.json"
    document = json.loads(plan.read_text())
    document["recipe"]["optimizer"]["weight_decay"] = 0.5
    plan.write_text(json.dumps(document))
    refused = bertctl(
        "sweep-merge", tmp_path / "part1", tmp_path / "part2", "-o", tmp_path / "other"
    )
    assert refused.returncode == 2
    assert "optimizer.weight_decay: 0.01 then, 0.5 now" in refused.stderr
    assert bertctl("sweep-merge", tmp_path, "-o", tmp_path / "other").returncode == 4


@pytest.mark.slow
def test_divergence_folds_and_a_cell_that_fails(
    bertctl: Run, many_opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Rate 1.0 diverges, which is a result.

    2 frozen layers fit, 9 don't, which is refused before anything runs.
    """
    words = _words(
        many_opinions, tiny_model, tmp_path / "sweep", grid="optimizer.learning_rate=5e-3,1.0"
    )
    done = bertctl(*words, "--folds", 2, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["counts"]["runs"] == 4
    assert document["counts"]["diverged"] == 2
    assert document["folds"] == 2
    assert "diverged at step " in done.stderr
    held_out = {}
    for cell in (tmp_path / "sweep" / "cells").iterdir():
        if (cell / "predictions").exists():
            lines = (cell / "predictions" / "validation.jsonl").read_text().splitlines()
            held_out[cell] = {json.loads(line)["id"] for line in lines}
    entry, other = held_out.values()
    assert not entry & other
    assert len(entry | other) == 64
    layers = bertctl(
        *_words(many_opinions, tiny_model, tmp_path / "layers", grid="training.freeze_layers=2,9")
    )
    assert layers.returncode == 2, layers.stderr
    assert not (tmp_path / "layers" / "cells").exists()


@pytest.fixture(scope="session")
def halved(
    tmp_path_factory: pytest.TempPathFactory,
    many_opinions: Path,
    tiny_model: Path,
    nursery: Nursery,
) -> Path:
    """Three settings by successive halving: one of them is trained to its end."""
    folder = tmp_path_factory.mktemp("halved") / "sweep"
    process = _popen(nursery, _halving_words(many_opinions, tiny_model, folder))
    _, err = process.communicate(timeout=3600)
    assert process.returncode == 0, err
    (folder / "stderr").write_text(err)
    return folder


def _halving_words(data: Path, model: Path, folder: Path) -> list[str]:
    words = _words(data, model, folder, "--halving", "--jobs", 1, "--threads", 1)
    words[words.index(GRID)] = "optimizer.learning_rate=1e-4,1e-5,1e-6"
    # A head that starts as a regression tells the labels apart from the first step on, so no run
    # collapses.
    return [word.replace("head_start=random", "head_start=probe") for word in words]


def test_halving_stops_the_worse_runs_and_says_so(halved: Path) -> None:
    document = _result(halved)

    states = [run["state"] for run in document["runs"]]
    stopped = [run for run in document["runs"] if run["state"] == "stopped"]

    assert states.count("stopped") == 2
    assert all(
        run["step"] == 6 and 0 <= run["rung_value"] <= 1 and run["value"] is None for run in stopped
    )
    assert document["counts"]["failed"] == document["counts"]["missing"] == 0
    assert document["chosen"]["run"] in [
        run["run"] for run in document["runs"] if run["state"] == "done"
    ]
    assert document["halving"]["steps"] == 6 + 6 + 12
    assert document["halving"]["full_steps"] == 3 * 12
    assert "rung 1: 1 run of 3 continue" in (halved / "stderr").read_text()
    assert "stopped at step 6 of 12" in (halved / "sweep.html").read_text()
    assert not list((halved / "cells").glob("*/checkpoints/step-*"))


def test_a_run_that_was_promoted_is_that_of_an_unbroken_one(
    bertctl: Run, halved: Path, tmp_path: Path
) -> None:
    chosen = halved / "cells" / _result(halved)["chosen"]["run"]

    alone = bertctl("finetune", halved / "best.yaml", "-o", tmp_path / "run")

    assert alone.returncode == 0, alone.stderr
    for name in ("metrics.json", "predictions/validation.jsonl", "model/model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (chosen / name).read_bytes(), name


@pytest.mark.slow
def test_halving_that_was_killed_decides_as_an_undisturbed_one(
    bertctl: Run,
    nursery: Nursery,
    halved: Path,
    many_opinions: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    words = _halving_words(many_opinions, tiny_model, tmp_path / "sweep")
    process = _popen(nursery, words)
    _wait_for(tmp_path / "sweep", 0, process)
    process.kill()
    process.communicate()

    again = bertctl(*words)

    assert again.returncode == 0, again.stderr
    assert _result(tmp_path / "sweep") == _result(halved)


@pytest.mark.slow
def test_the_full_grid_trains_what_halving_has_stopped(
    bertctl: Run, halved: Path, many_opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    shutil.copytree(halved, folder)
    words = [
        word for word in _halving_words(many_opinions, tiny_model, folder) if word != "--halving"
    ]

    done = bertctl(*words)

    assert done.returncode == 0, done.stderr
    document = _result(folder)
    assert document["counts"]["stopped"] == 0
    assert document["halving"] is None
    assert document["counts"]["scores"] == 3


def test_without_a_grid_settings_lie_around_what_auto_chooses(
    bertctl: Run, many_opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    words = [many_opinions, "--model", tiny_model, "--max-length", 32, "-o", tmp_path / "sweep"]
    sets = ["--set", "data.validation_fraction=0.25", "--set", "model.head_start=random"]

    dry = bertctl("sweep", *words, *sets, "--epochs", 2, "--halving", "--dry-run", "--json")

    assert dry.returncode == 0, dry.stderr
    document = json.loads(dry.stdout)
    assert document["to_run"] == 6
    assert document["halving"]["promoted"] == [2, 1]
    assert document["halving"]["most_steps"] < document["halving"]["full_steps"]


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("extra", "grid", "message"),
    [
        ((), "lr=1e-5", "did you mean optimizer.learning_rate?"),
        ((), "training.epochs=two", "training.epochs: "),
        ((), "", "is empty"),
        (("--set", "training.preset=null"), None, "nothing to vary"),
        (("--set", "training.preset=null"), "auto", "--grid auto varies"),
        (("--halving", "--folds", "2"), GRID, "does not go with --folds"),
        (("--halving", "--seeds", "2"), GRID, "does not go with --seeds"),
        (("--halving", "--shard", "1/2"), GRID, "does not go with --shard"),
        (("--halving", "--time-limit", "1m"), GRID, "does not go with --time-limit"),
        (("--shard", "3/2"), GRID, "--shard 3/2"),
        (("--jobs", "0"), GRID, "--jobs 0"),
        (("--folds", "1"), GRID, "--folds 1"),
        (("--random", "0"), GRID, "--random 0"),
        (("--seeds", "init=x"), GRID, "--seeds init=x"),
        (("--learning-rate", "1e-4"), GRID, "in the grid"),
        (("--keep", "none", "--test"), GRID, "--test needs"),
        (("--test",), GRID, "no test rows"),
        (("--test", "--shard", "1/2"), GRID, "--test chooses"),
        (("--set", "training.accumulation_steps=3"), GRID, "3 does not divide training.batch_size"),
        (("--folds", "3", "--validation-file", "opinions.csv"), GRID, "validation file"),
    ],
)
def test_what_does_not_fit_a_sweep_is_refused_before_its_folder_is_made(
    bertctl: Run,
    opinions: Path,
    tiny_model: Path,
    tmp_path: Path,
    extra: tuple[str, ...],
    grid: str | None,
    message: str,
) -> None:
    words = _words(opinions, tiny_model, tmp_path / "sweep", *extra, grid=None)
    refused = bertctl(*words, *(["--grid", grid] if grid is not None else []))
    assert refused.returncode == 2, refused.stderr
    assert message in refused.stderr
    assert not (tmp_path / "sweep").exists()


def test_a_dry_run_trains_nothing(
    bertctl: Run, opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    words = _words(opinions, tiny_model, tmp_path / "sweep", "--seeds", 3, "--dry-run", "--json")
    done = bertctl(*words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["to_run"] == 6
    assert len(document["cells"]) == 6
    assert (
        0
        <= document["seconds"]["low"]
        <= document["seconds"]["estimate"]
        <= document["seconds"]["high"]
        > 0
    )
    assert document["disk_bytes"]["needed"] > 0
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
def test_the_chosen_model_is_scored_on_test_only_if_asked(
    bertctl: Run, many_opinions: Path, opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    words = _words(
        many_opinions,
        tiny_model,
        tmp_path / "sweep",
        "--test-file",
        opinions,
        "--seeds",
        2,
        grid=None,
    )
    words += ["--set", "evaluation.splits=[validation, test]", "--learning-rate", "5e-3"]
    plain = bertctl(*words, "--keep", "none", "--json")
    assert plain.returncode == 0, plain.stderr
    assert json.loads(plain.stdout)["test"] is None
    assert "--test scores" in plain.stderr
    assert not list((tmp_path / "sweep" / "cells").glob("*/model"))
    tested = bertctl(*words, "--test", "--json")
    assert tested.returncode == 0, tested.stderr
    assert "trained again" in tested.stderr
    actual = json.loads(tested.stdout)["test"]
    assert [entry["split"] for entry in actual] == ["test"]
    assert actual[0]["n"] == 16
    lines = opinions.read_text().splitlines(keepends=True)
    (tmp_path / "fewer.csv").write_text("".join(lines[:11]))
    other = ["fewer.csv" if str(word) == str(opinions) else word for word in words]
    again = bertctl(*other, "--test", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["test"][0]["n"] == 10
