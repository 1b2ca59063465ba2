"""Sweeps whose runs are jobs of a real Slurm, for tests: started, held, killed, and compared."""

import json
import pickle
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import psutil

from tests.slurm_cluster import SlurmCluster, until

_TRAINING = """--batch-size 8 --max-length 32 --precision fp32
--set data.validation_fraction=0.25 --set training.log_every=1 --set training.preset=null
--set model.head_start=random --set evaluation.bootstrap_resamples=100"""


def write_opinions(path: Path) -> None:
    """Writes 128 texts with labels, some of them wrong: no two settings have the same scores."""
    lines = ["text,label"]
    for number in range(128):
        is_positive = number % 2 == 1
        words = "good fine" if is_positive else "bad dull"
        is_right = number % 7 != 0
        label = "pos" if is_positive == is_right else "neg"
        lines.append(f"the film was {words} {number},{label}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def training_words(opinions: Path, model: Path, epochs: int) -> list[str]:
    """Returns the arguments of a training of 12 steps per epoch."""
    words = ["text-classification", "--train-file", str(opinions), "--model", str(model)]
    return [*words, "--epochs", str(epochs), *_TRAINING.split()]


class Sweep:
    """A sweep over learning rates, computed by Slurm.

    Args:
        opinions: Training file.
        model: Folder of the model.
        rates: Learning rates, one run each.
        epochs: Of each run.
    """

    def __init__(self, opinions: Path, model: Path, *, rates: str, epochs: int) -> None:
        self._folder = opinions.parent
        self._processes: list[subprocess.Popen[str]] = []
        words = ["sweep", *training_words(opinions, model, epochs)]
        self.words = [*words, "--threads", "1", "--grid", f"optimizer.learning_rate={rates}"]

    def start(self, folder: Path, slurm: SlurmCluster, **variables: str) -> "subprocess.Popen[str]":
        """Starts the command with its runs as jobs, under environment variables of `sbatch`.

        Its output lies in a folder.
        """
        process = subprocess.Popen(
            ["bertctl", *self.words, "-o", str(folder), "--executor", "slurm"],
            cwd=self._folder,
            env={**slurm.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def kill_all(self) -> None:
        """Kills what a test that failed has left: such a command waits for its jobs for ever."""
        for process in self._processes:
            if process.poll() is None:
                kill(process)


def wait(process: "subprocess.Popen[str]") -> str:
    """Returns the messages of a command that ends well."""
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    return messages


def kill(process: "subprocess.Popen[str]") -> str:
    """Kills a command; returns its messages so far."""
    process.kill()
    return process.communicate()[1]


def cells(folder: Path) -> list[Path]:
    """Returns the folders of a sweep's runs."""
    return sorted(folder.glob("cells/*"))


def done_cells(folder: Path) -> list[Path]:
    """Returns the runs that are over."""
    return [cell for cell in cells(folder) if is_done(cell)]


def is_done(run: Path) -> bool:
    """Returns whether a run has come to its end."""
    status = run / "status.json"
    return status.exists() and json.loads(status.read_text())["state"] == "done"


def last_step(run: Path) -> int:
    """Returns the step that a run has logged last; 0 before the first."""
    history = run / "history.jsonl"
    if not history.exists():
        return 0
    lines = [line for line in history.read_text().splitlines() if line.endswith("}")]
    return max((json.loads(line).get("step", 0) for line in lines), default=0)


def hold_a_run(folder: Path, slurm: SlurmCluster, sweep: "subprocess.Popen[str]") -> str:
    """Suspends the first run that trains, so that it cannot end; returns its job."""

    def training_cell() -> Path | None:
        for cell in cells(folder):
            if last_step(cell) > 20 and not is_done(cell):
                return cell
        return None

    cell = until(training_cell, process=sweep)
    job = slurm.ask("squeue", "-h", "-t", "R", "-n", f"bertctl-{cell.name}", "-o", "%i")
    worker_of(slurm, job).suspend()
    assert not is_done(cell), "the run was over before it could be held"
    return job


def worker_of(slurm: SlurmCluster, job: str) -> psutil.Process:
    """Returns the process of a job that trains."""
    children = slurm.job_process(job).children()
    return next(child for child in children if "resource_tracker" not in " ".join(child.cmdline()))


def is_pending(number: signal.Signals, process: psutil.Process) -> bool:
    """Returns whether a signal waits for a suspended process, or has woken and ended it.

    Slurm sends SIGCONT as well.
    """
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return True
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", status, flags=re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def results(folder: Path) -> dict[str, str]:
    """Returns what a sweep has computed.

    Its table without times, and scores and predictions of all runs.
    """
    document = json.loads((folder / "sweep.json").read_text())
    document.pop("performance")
    contents = {"sweep.json": json.dumps(document)}
    for pattern in ("cells/*/metrics.json", "cells/*/predictions/*", "cells/*/model/*.safetensors"):
        for path in sorted(folder.glob(pattern)):
            contents[str(path.relative_to(folder))] = path.read_bytes().hex()
    return contents


def times_of(runs: list[Path]) -> dict[Path, int]:
    """Returns when the results of runs were written. The model may be taken away later."""
    names = ("history.jsonl", "metrics.json", "status.json")
    times = {}
    for run in runs:
        for name in names:
            file = run / name
            times[file] = file.stat().st_mtime_ns
    return times


def assert_each_run_ended_once(folder: Path, slurm: SlurmCluster) -> None:
    """Checks that one job has brought each run to its end, by the replies of all jobs."""
    counts: Counter[str] = Counter()
    for path in (folder / "jobs").glob("*_result.pkl"):
        outcome, reply = pickle.loads(path.read_bytes())  # noqa: S301 - our own
        if outcome == "success" and reply["state"] == "done":
            counts[reply["cell"]] += 1
    assert counts == dict.fromkeys((cell.name for cell in cells(folder)), 1)
    assert slurm.jobs("R", "PD") == []
