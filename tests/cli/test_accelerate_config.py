"""What a configuration file of accelerate may ask for, and what is refused.

The option is `--accelerate-config`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertctl.errors import UsageError
from bertctl.runtime.accelerate_config import check_environment
from tests.conftest import Run

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
    "training.log_every=1",
    "evaluation.bootstrap_resamples=100",
    "evaluation.batch_size=6",
    "model.dropout=0.0",
]
CONFIG = """compute_environment: LOCAL_MACHINE
distributed_type: {kind}
mixed_precision: 'no'
num_machines: 1
num_processes: 2
use_cpu: true
"""


def config(folder: Path, kind: str) -> Path:
    path = folder / f"{kind.lower()}.yaml"
    path.write_text(CONFIG.format(kind=kind), encoding="utf-8")
    return path


@pytest.fixture
def command(tiny_model: Path, opinions: Path) -> list[object]:
    files = ["--train-file", opinions, "--validation-file", opinions, "--model", tiny_model]
    return [
        "finetune",
        "text-classification",
        *files,
        *FIELDS,
        *(w for entry in SETS for w in ("--set", entry)),
    ]


@pytest.mark.slow
def test_several_processes_on_cpus_by_a_configuration(
    bertctl: Run, command: list[object], tmp_path: Path
) -> None:
    """`accelerate launch` itself would start one."""
    done = bertctl(*command, "-o", "run", "--accelerate-config", config(tmp_path, "MULTI_CPU"))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "performance.json").read_text())["processes"] == 2


@pytest.mark.in_process
@pytest.mark.parametrize("kind", ["DEEPSPEED", "MEGATRON_LM", "FSDP"])
def test_what_is_not_done_is_refused_before_anything_starts(
    bertctl: Run, command: list[object], tmp_path: Path, kind: str
) -> None:
    refused = bertctl(*command, "-o", "run", "--accelerate-config", config(tmp_path, kind))
    assert refused.returncode == 2, refused.stderr
    assert f"asks for distributed_type: {kind}" in refused.stderr
    assert "MULTI_GPU" in refused.stderr
    assert refused.stdout == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["DEEPSPEED", "FSDP"])
def test_what_somebodys_own_accelerate_launch_asks_for_is_refused_too(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv(f"ACCELERATE_USE_{kind}", "true")
    with pytest.raises(UsageError, match=kind):
        check_environment()


@pytest.mark.in_process
def test_a_configuration_that_is_missing_or_something_else_is_refused(
    bertctl: Run, command: list[object], opinions: Path
) -> None:
    missing = bertctl(*command, "--accelerate-config", "nowhere.yaml")
    assert missing.returncode == 4, missing.stderr
    other = bertctl(*command, "--accelerate-config", opinions)
    assert other.returncode == 2, other.stderr
    assert "configuration of accelerate" in other.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs sched_setaffinity")
def test_more_processes_than_cores_are_warned_of(command: list[object], tmp_path: Path) -> None:
    """On one core; the data file is not there, so that nothing long follows."""
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bertctl",
            *map(str, command),
            "--train-file",
            "none.csv",
            "--num-processes",
            "2",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3600,
        cwd=tmp_path,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "warning: 2 processes on 1 core" in done.stderr
    assert done.stderr.count("none.csv") == 1


@pytest.mark.parametrize(
    ("name", "value"), [("USE_CPU", ""), ("USE_FSDP", "perhaps"), ("DEBUG_MODE", "")]
)
def test_what_accelerate_takes_for_no_truth_value_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """It raised a ValueError, "a bug in bertctl", when the run folder was made."""
    monkeypatch.setenv(f"ACCELERATE_{name}", value)
    with pytest.raises(UsageError, match=f"ACCELERATE_{name}='{value}' in the environment"):
        check_environment()
    monkeypatch.setenv(f"ACCELERATE_{name}", "Off")
    check_environment()


def test_other_verbs_that_train_refuse_it_too(bertctl: Run, command: list[object]) -> None:
    refused = bertctl("estimate", *command[1:], env={"ACCELERATE_USE_CPU": ""})
    assert refused.returncode == 2, refused.stderr
    assert "error: ACCELERATE_USE_CPU='' in the environment: true or false fits" in refused.stderr
