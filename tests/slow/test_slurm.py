"""A real Slurm without accounting: a controller and two nodes on this machine, started by hand.

Needs `apt install slurm-wlm munge`, root, and for sweeps the extra `slurm`. A job is killed, told
that its time is up, requeued, and left behind by a sweep that was killed; the table is that of one
process. The batch file of the documentation trains over a requeue to the bytes of an unbroken run.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "srun")
_CONFIGURATION = """ClusterName=trial
SlurmctldHost={host}
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1
ReturnToService=2
MpiDefault=none
KillWait=5
SlurmdTimeout=10
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobRequeue=1
NodeName={host} NodeHostname={host} Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName=zz-second NodeHostname={host} Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """The environment in which commands reach a Slurm of two nodes."""
    search = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [name for name in _PROGRAMS if shutil.which(name, path=search) is None]
    if missing:
        pytest.skip(f"no Slurm here (apt install slurm-wlm munge): {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of one's own needs root")

    host = socket.gethostname().partition(".")[0]
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # the path of a socket is short
    for name in ("state", "spool-zz-second", f"spool-{host}"):
        (folder / name).mkdir()
    configuration = folder / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(host=host, ports=_free_ports(3), folder=folder))
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    (folder / "bertctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m bertctl "$@"\n')
    (folder / "bertctl").chmod(0o755)
    paths = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    environment = {
        **os.environ,
        "SLURM_CONF": str(configuration),
        "PATH": f"{folder}:{search}",
        "PYTHONPATH": paths,
    }
    munged = [
        f"--{name}={folder}/munge.{suffix}"
        for name, suffix in (("key-file", "key"), ("socket", "socket"))
    ]
    munged += [f"--{name}-file={folder}/munged.{name}" for name in ("pid", "log", "seed")]
    try:
        for command in (
            ["munged", "--force", *munged],
            ["slurmctld", "-f", str(configuration)],
            *(["slurmd", "-f", str(configuration), "-N", node] for node in (host, "zz-second")),
        ):
            subprocess.run(command, env=environment, check=True, capture_output=True)
        _until(lambda: _ask(environment, "sinfo", "-h", "-o", "%T %D") == "idle 2")
        yield environment
    finally:
        subprocess.run(
            ["scancel", "--state=RUNNING"], env=environment, check=False, capture_output=True
        )
        subprocess.run(
            ["scancel", "--state=PENDING"], env=environment, check=False, capture_output=True
        )
        for pid in folder.glob("*.pid"):
            _stop(pid)
        shutil.rmtree(folder, ignore_errors=True)


def _stop(pid_file: Path) -> None:
    try:
        process = psutil.Process(int(pid_file.read_text()))
        process.terminate()
        process.wait(20)
    except (OSError, ValueError, psutil.Error):
        pass


def _ask(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    ).stdout.strip()


def _until(condition: Callable[[], Any], *, process: "subprocess.Popen[str] | None" = None) -> Any:
    """What the condition gives, once that is something; a process that ends before it is an
    error.
    """
    for _ in range(36_000):
        value = condition()
        if value:
            return value
        if process is not None and process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        time.sleep(0.1)
    raise AssertionError("it has not come")


@pytest.fixture(scope="module")
def opinions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "opinions.csv"
    lines = [
        f"the film was {'good fine' if i % 2 else 'bad dull'} {i},{'pos' if i % 2 else 'neg'}"
        for i in range(128)
    ]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


def _words(verb: str, opinions: Path, model: Path, output: str, epochs: int) -> list[str]:
    words = [
        verb,
        "text-classification",
        "--train-file",
        str(opinions),
        "--model",
        str(model),
        "-o",
        output,
    ]
    words += [
        "--batch-size",
        "8",
        "--epochs",
        str(epochs),
        "--max-length",
        "32",
        "--precision",
        "fp32",
    ]
    words += [
        "--threads",
        "1",
        "--set",
        "data.validation_fraction=0.25",
        "--set",
        "training.log_every=1",
    ]
    return [*words, "--set", "evaluation.bootstrap_resamples=100"]


def _sweep(
    environment: dict[str, str],
    folder: Path,
    opinions: Path,
    model: Path,
    rates: str,
    epochs: int,
    *extra: str,
) -> "subprocess.Popen[str]":
    grid = ["--grid", f"optimizer.learning_rate={rates}"]
    words = [*_words("sweep", opinions, model, str(folder), epochs), *grid, *extra]
    command = [sys.executable, "-m", "bertctl", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=opinions.parent, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def _done(process: "subprocess.Popen[str]") -> str:
    """What a command that ends well says."""
    _, said = process.communicate()
    assert process.returncode == 0, said
    return said


def _running(environment: dict[str, str], *others: str) -> str:
    jobs = _ask(environment, "squeue", "-h", "-t", "R", "-o", "%i").split()
    return next((job for job in jobs if job not in others), "")


def _step(folder: Path) -> int:
    """The step that the one run of a sweep has logged last."""
    for history in folder.glob("cells/*/history.jsonl"):
        lines = history.read_text().splitlines()
        return max(
            (json.loads(line).get("step", 0) for line in lines if line.endswith("}")), default=0
        )
    return 0


def _process_of(job: str) -> psutil.Process | None:
    """The Python process of a job, that of submitit."""
    for process in psutil.process_iter(["cmdline"]):
        try:
            is_submitit = "submitit.core._submit" in (process.info["cmdline"] or [])
            if (
                is_submitit
                and process.environ().get("SLURM_JOB_ID") == job
                and process.name() != "srun"
            ):
                return process
        except psutil.Error:
            continue
    return None


def _results(folder: Path) -> str:
    document = json.loads((folder / "sweep.json").read_text())
    document.pop("performance")
    return json.dumps(document)


def test_each_run_is_trained_once_whatever_becomes_of_its_jobs(
    slurm: dict[str, str], opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Time is up, a job is killed, the sweep is killed: each goes on from a checkpoint, to the same
    table.
    """
    pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
    alone = _sweep(dict(os.environ), tmp_path / "alone", opinions, tiny_model, "5e-3", 150)
    _done(alone)
    folder = tmp_path / "sweep"
    sweep = _sweep(slurm, folder, opinions, tiny_model, "5e-3", 150, "--executor", "slurm")

    _until(lambda: _step(folder) > 20, process=sweep)
    first = _running(slurm)
    for _ in range(3):  # as batch systems do
        _ask(slurm, "scancel", "--signal=USR2", first)
    second = _until(lambda: _running(slurm, first), process=sweep)
    saved = [
        int(path.name.removeprefix("step-")) for path in folder.glob("cells/*/checkpoints/step-*")
    ]
    assert max(saved) > 20, "the time limit saved a checkpoint"

    process = _until(lambda: _process_of(second), process=sweep)
    process.kill()
    third = _until(lambda: _running(slurm, first, second), process=sweep)
    refused = subprocess.run(
        ["scontrol", "requeue", third], env=slurm, capture_output=True, check=False
    )
    assert refused.returncode != 0, "Slurm starts no job of its own beside those of the sweep"

    _until(lambda: _step(folder) > max(saved), process=sweep)
    sweep.kill()
    _, said = sweep.communicate()
    assert "job " + first + " ended before the run did" in said
    assert "sacct" not in said
    assert _running(slurm) == third
    said = _done(_sweep(slurm, folder, opinions, tiny_model, "5e-3", 150, "--executor", "slurm"))
    assert f"1 job of an earlier command cancelled: {third}" in said
    assert _results(folder) == _results(tmp_path / "alone")
    assert _ask(slurm, "squeue", "-h", "-t", "R,PD") == ""
    environments = [
        json.loads(path.read_text()) for path in folder.glob("cells/*/environment.json")
    ]
    assert all(
        one["command"].startswith("bertctl sweep text-classification") for one in environments
    )


def test_several_jobs_at_once(
    slurm: dict[str, str], opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
    _done(_sweep(dict(os.environ), tmp_path / "alone", opinions, tiny_model, "5e-3,1e-3", 3))
    _done(
        _sweep(
            slurm, tmp_path / "sweep", opinions, tiny_model, "5e-3,1e-3", 3, "--executor", "slurm"
        )
    )
    assert _results(tmp_path / "sweep") == _results(tmp_path / "alone")


def _batch_file(command: Sequence[str]) -> str:
    """The batch file of the documentation, with another command and for this machine."""
    page = (ROOT / "bertctl" / "docs" / "many-devices.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```sh\n(#!/bin/bash\n.*?)```", page, flags=re.DOTALL)
    for line, replacement in {
        "--ntasks-per-node=8": "--ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8\n": "",
        "--cpus-per-task=6": "--cpus-per-task=1",
        "bertctl finetune mnli -o RUN --resume-if-any": f"{' '.join(command)} --resume-if-any",
    }.items():
        assert line in script
        script = script.replace(line, replacement)
    return str(script)


def test_the_batch_file_of_the_documentation(
    slurm: dict[str, str], opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Two tasks on two nodes meet; told that their time is up they save, are requeued, and end as
    if nothing was.
    """
    several = ["--set", "model.dropout=0.0"]
    script = tmp_path / "train.sh"
    for run in ("unbroken", "broken"):
        words = [*_words("finetune", opinions, tiny_model, str(tmp_path / run), 12), *several]
        script.write_text(_batch_file(["bertctl", *words]))
        job = _ask(slurm, "sbatch", "--parsable", f"--chdir={tmp_path}", str(script))
        assert job
        if run == "broken":
            history = tmp_path / run / "history.jsonl"
            _until(lambda path=history: path.exists() and len(path.read_text().splitlines()) > 20)
            _ask(slurm, "scancel", "--signal=TERM", job)
        status = tmp_path / run / "status.json"
        _until(
            lambda path=status: path.exists() and json.loads(path.read_text())["state"] == "done"
        )
        _until(lambda number=job: not _ask(slurm, "squeue", "-h", "-t", "R,PD,CG", "-j", number))
    log = (tmp_path / f"slurm-{job}.out").read_text()
    assert "a checkpoint was saved" in log
    assert json.loads((tmp_path / "broken" / "performance.json").read_text())["processes"] == 2
    models = [
        (tmp_path / run / "model" / "model.safetensors").read_bytes()
        for run in ("unbroken", "broken")
    ]
    assert models[0] == models[1]
