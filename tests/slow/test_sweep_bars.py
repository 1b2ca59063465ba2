"""What a sweep promises, on MiniLM and MRPC.

Overhead, divergence, the same table after a kill, best.yaml.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def _command(data: Path, folder: Path, *extra: object) -> list[str]:
    words = [
        "sweep",
        "mrpc",
        "--data-dir",
        data / "glue",
        "--model",
        "minilm",
        "-o",
        folder,
        "--jobs",
        2,
        "--offline",
    ]
    return [sys.executable, "-m", "bertctl", *map(str, words), *map(str, extra)]


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=3600, env=env, check=False
    )


def _result(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "sweep.json").read_text())
    document.pop("performance")
    return document


def test_the_papers_grid_with_two_seeds_wastes_little_time(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    done = _run(
        _command(shared_data, folder, "--max-train-rows", 600, "--grid", "paper", "--seeds", 2)
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tokenized once") == 1
    counts = _result(folder)["counts"]
    assert counts["runs"] == 36
    assert counts["failed"] == counts["missing"] == 0
    share = re.search(r"(\d+) % of the time of all jobs", done.stderr)
    assert share is not None
    print(done.stderr.splitlines()[-2:], done.stdout)  # noqa: T201
    assert int(share[1]) >= 91
    chosen = _result(folder)["chosen"]
    alone = _run(
        [
            sys.executable,
            "-m",
            "bertctl",
            "finetune",
            str(folder / "best.yaml"),
            "-o",
            str(tmp_path / "one"),
        ]
    )
    assert alone.returncode == 0, alone.stderr
    metrics = json.loads((tmp_path / "one" / "metrics.json").read_text())
    primary = metrics["primary"]
    assert metrics["metrics"][primary["split"]][primary["name"]]["value"] == chosen["run_value"]


def test_a_rate_of_1_is_stopped_within_a_tenth_of_the_steps(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    grid = "optimizer.learning_rate=1.0 training.batch_size=16,32 training.epochs=2,3,4"
    done = _run(_command(shared_data, folder, "--max-train-rows", 600, "--grid", grid))
    assert done.returncode == 0, done.stderr
    assert _result(folder)["counts"]["diverged"] == 6
    plan = json.loads((folder / "plan.json").read_text())
    for cell in plan["cells"]:
        setting = plan["settings"][cell["setting"]]
        status = json.loads((folder / "cells" / cell["name"] / "status.json").read_text())
        steps = setting["training.epochs"] * -(-600 // setting["training.batch_size"])
        assert status["state"] == "failed"
        assert status["reason"] == "diverged"
        assert status["step"] <= steps / 10


def test_a_sweep_killed_half_way_comes_to_the_same_table(shared_data: Path, tmp_path: Path) -> None:
    small = ["--max-train-rows", 100, "--max-eval-rows", 100, "--grid", "paper", "--seeds", 2]
    undisturbed = _run(_command(shared_data, tmp_path / "one", *small))
    assert undisturbed.returncode == 0, undisturbed.stderr
    command = _command(shared_data, tmp_path / "two", *small)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list((tmp_path / "two" / "cells").glob("*/metrics.json"))) < 18:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while len(list((tmp_path / "two" / "cells").glob("*/metrics.json"))) < 27:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    again = _run(command)
    assert again.returncode == 0, again.stderr
    assert " done before" in again.stderr
    assert _result(tmp_path / "two") == _result(tmp_path / "one")
