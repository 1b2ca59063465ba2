"""A sweep as tasks of a Ray cluster, a node of which is killed, and as jobs of submitit.

The table of one process.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def opinions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "opinions.csv"
    lines = [
        f"the film was {'good fine' if i % 2 else 'bad dull'} {i},{'pos' if i % 2 else 'neg'}"
        for i in range(128)
    ]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


def _start(
    opinions: Path, model: Path, folder: Path, *extra: str, **environment: str
) -> "subprocess.Popen[str]":
    """Four cells, in a process of its own: the paths are relative to where it was started."""
    words = [
        "sweep",
        "text-classification",
        "--train-file",
        opinions.name,
        "--model",
        str(model),
        "-o",
        str(folder),
    ]
    words += [
        "--grid",
        "optimizer.learning_rate=5e-3,1e-3",
        "--seeds",
        "2",
        "--batch-size",
        "8",
        "--epochs",
        "40",
    ]
    words += [
        "--max-length",
        "32",
        "--precision",
        "fp32",
        "--threads",
        "1",
        "--set",
        "data.validation_fraction=0.25",
    ]
    words += [
        "--set",
        "evaluation.bootstrap_resamples=100",
        "--set",
        "training.log_every=1",
        *extra,
    ]
    command = [sys.executable, "-m", "bertctl", *words]
    pipe = subprocess.PIPE
    environment = {**os.environ, **environment}
    return subprocess.Popen(
        command, cwd=opinions.parent, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def _table(folder: Path) -> str:
    """sweep.json without what differs from one equal sweep to the next, as text."""
    document: dict[str, Any] = json.loads((folder / "sweep.json").read_text())
    document.pop("performance")
    return json.dumps(document)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, opinions: Path, tiny_model: Path) -> str:
    """The table of one process."""
    folder = tmp_path_factory.mktemp("alone") / "sweep"
    process = _start(opinions, tiny_model, folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return _table(folder)


def test_one_of_two_nodes_is_killed(
    opinions: Path, tiny_model: Path, tmp_path: Path, alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv(
        "RAY_worker_niceness", "0"
    )  # it is 15, and a busy machine leaves such workers nothing
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        node = cluster.add_node(num_cpus=1)
        process = _start(
            opinions,
            tiny_model,
            tmp_path / "sweep",
            "--executor",
            "ray",
            "--json",
            RAY_ADDRESS=cluster.address,
        )
        _until_two_train(tmp_path / "sweep", process)
        cluster.remove_node(node, allow_graceful=False)
        out, err = process.communicate()
    finally:
        cluster.shutdown()
    assert process.returncode == 0, err
    assert "job 1 was lost" in err
    assert json.loads(out)["counts"]["runs"] == 4, (
        "what Ray says of the node is no part of the answer"
    )
    assert _table(tmp_path / "sweep") == alone


def _until_two_train(folder: Path, process: "subprocess.Popen[str]") -> None:
    while process.poll() is None:
        running = [
            path
            for path in folder.glob("cells/*/status.json")
            if json.loads(path.read_text())["state"] == "running"
        ]
        if len(running) == 2:
            return
        time.sleep(0.02)


def test_jobs_of_submitit_on_this_machine(
    opinions: Path, tiny_model: Path, tmp_path: Path, alone: str
) -> None:
    pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
    process = _start(opinions, tiny_model, tmp_path / "sweep", "--executor", "slurm", "--jobs", "2")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "Slurm is not here" in err
    assert _table(tmp_path / "sweep") == alone
