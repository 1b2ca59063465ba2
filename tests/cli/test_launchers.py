"""Processes that others start.

Torchrun, on one machine and on two, and a job system with its own variables.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.stopping import history_losses

pytestmark = pytest.mark.slow

FIELDS = [
    "--max-length",
    "32",
    "--epochs",
    "2",
    "--batch-size",
    "6",
    "--precision",
    "fp32",
    "--threads",
    "1",
]
SETS = [
    "--set",
    "model.dropout=0.0",
    "--set",
    "training.log_every=1",
    "--set",
    "evaluation.bootstrap_resamples=100",
]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def free_port() -> str:
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        return str(connection.getsockname()[1])


def side_by_side(
    folder: Path, commands: Sequence[tuple[Sequence[str], dict[str, str]]]
) -> list["subprocess.CompletedProcess[str]"]:
    started = [
        subprocess.Popen(
            command,
            cwd=folder,
            env={
                **os.environ,
                "HF_HUB_OFFLINE": "1",
                "NO_COLOR": "1",
                "OMP_NUM_THREADS": "1",
                **variables,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command, variables in commands
    ]
    outputs = [process.communicate(timeout=3600) for process in started]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *streams)
        for process, streams in zip(started, outputs, strict=True)
    ]


def finetune(model: Path, data: Path, run: str) -> list[str]:
    words = [
        "finetune",
        "text-classification",
        "--train-file",
        data,
        "--validation-file",
        data,
        "--model",
        model,
    ]
    return ["-m", "bertctl", *map(str, words), *FIELDS, *SETS, "-o", run]


def by_hand(rank: int, port: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }


@pytest.fixture
def alone(tiny_model: Path, opinions: Path, tmp_path: Path) -> list[float]:
    (done,) = side_by_side(
        tmp_path, [([sys.executable, *finetune(tiny_model, opinions, "alone")], {})]
    )
    assert done.returncode == 0, done.stderr
    return history_losses(tmp_path / "alone")


@pytest.mark.parametrize("how", ["torchrun", "two machines", "variables"])
def test_two_processes_are_one_job_whoever_starts_them(
    alone: list[float], tiny_model: Path, opinions: Path, tmp_path: Path, how: str
) -> None:
    command = finetune(tiny_model, opinions, "shared")
    port = free_port()
    if how == "torchrun":
        commands = [([*TORCHRUN, "--standalone", "--nproc_per_node=2", *command], {})]
    elif how == "two machines":
        meeting = [
            "--nnodes=2",
            "--nproc_per_node=1",
            "--master_addr=127.0.0.1",
            f"--master_port={port}",
        ]
        commands = [
            ([*TORCHRUN, *meeting, f"--node_rank={rank}", *command], {}) for rank in range(2)
        ]
    else:
        commands = [([sys.executable, *command], by_hand(rank, port)) for rank in range(2)]
    done = side_by_side(tmp_path, commands)
    text = "".join(entry.stderr for entry in done)
    assert [entry.returncode for entry in done] == [0] * len(done), text
    assert history_losses(tmp_path / "shared") == pytest.approx(alone, abs=1e-4)
    assert json.loads((tmp_path / "shared" / "performance.json").read_text())["processes"] == 2
    assert text.count("run folder: shared") == 2, (
        "one process speaks, at the beginning and at the end"
    )


def test_the_process_that_fails_says_why_and_the_other_follows(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    port = free_port()
    files = (opinions, tmp_path / "none.csv")
    commands = [
        ([sys.executable, *finetune(tiny_model, file, "run")], by_hand(rank, port))
        for rank, file in enumerate(files)
    ]
    first, second = side_by_side(tmp_path, commands)
    assert first.returncode == 5, first.stderr
    assert second.returncode == 4
    assert "none.csv does not exist" in second.stderr
    assert "error" not in first.stderr


@pytest.mark.parametrize(
    "left",
    [
        {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"},
        {"LOCAL_RANK": "1"},
        {"WORLD_SIZE": "4"},
        {"OMPI_COMM_WORLD_SIZE": "2"},
    ],
)
def test_variables_that_others_have_left_make_no_others(
    alone: list[float], tiny_model: Path, opinions: Path, tmp_path: Path, left: dict[str, str]
) -> None:
    (done,) = side_by_side(
        tmp_path, [([sys.executable, *finetune(tiny_model, opinions, "run")], left)]
    )
    assert done.returncode == 0, done.stderr
    assert history_losses(tmp_path / "run") == alone


def test_where_the_processes_meet_has_to_be_said(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "", "MASTER_PORT": ""}
    (done,) = side_by_side(
        tmp_path, [([sys.executable, *finetune(tiny_model, opinions, "run")], variables)]
    )
    assert done.returncode == 2, done.stderr
    assert "MASTER_ADDR and MASTER_PORT" in done.stderr


def test_who_waits_for_the_others_hears_a_signal(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    port = free_port()
    words = [sys.executable, *finetune(tiny_model, opinions, "run")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **by_hand(0, port)}
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not any(
        place.status == psutil.CONN_LISTEN and place.laddr.port == int(port)
        for place in psutil.Process(process.pid).net_connections()
    ):
        time.sleep(0.05)
    process.terminate()
    _, err = process.communicate(timeout=3600)
    assert process.returncode == 143, err
    assert "terminated" in err


def test_threads_are_those_of_the_option_whoever_starts_them(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """Without OMP_NUM_THREADS, which torchrun sets, accelerate took all cores: other bytes."""
    port = free_port()
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("OMP_NUM_THREADS", raising=False)
        by_variables = [
            subprocess.Popen(
                [sys.executable, *finetune(tiny_model, opinions, "hand")],
                cwd=tmp_path,
                env={**os.environ, "HF_HUB_OFFLINE": "1", **by_hand(rank, port)},
            )
            for rank in range(2)
        ]
        assert [process.wait() for process in by_variables] == [0, 0]
    torchrun = [
        *TORCHRUN,
        "--standalone",
        "--nproc_per_node=2",
        *finetune(tiny_model, opinions, "torchrun"),
    ]
    (done,) = side_by_side(tmp_path, [(torchrun, {})])
    assert done.returncode == 0, done.stderr
    models = [tmp_path / run / "model" / "model.safetensors" for run in ("hand", "torchrun")]
    assert models[0].read_bytes() == models[1].read_bytes()


@pytest.mark.parametrize("options", [[], ["--cpu"]])
def test_accelerate_on_cpus_starts_one_and_it_is_said(
    tiny_model: Path, opinions: Path, tmp_path: Path, options: list[str]
) -> None:
    launch = [sys.executable, "-m", "accelerate.commands.launch", *options, "--num_processes=2"]
    (done,) = side_by_side(tmp_path, [([*launch, *finetune(tiny_model, opinions, "run")], {})])
    assert done.returncode == 0, done.stderr
    assert "one process on CPUs" in done.stderr
