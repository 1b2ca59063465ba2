"""Slurm's queue by `squeue`, and what happens to jobs.

Signals come several times, and another job has finished runs meanwhile.
"""

import json
import os
import re
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertctl.errors import UnavailableError
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime import stopping
from bertctl.runtime.stopping import StopRequest
from bertctl.sweeps import slurm_queue, worker
from bertctl.sweeps.executors import _saved_step
from bertctl.sweeps.far_job import ignored_until_heard
from bertctl.sweeps.slurm_jobs import LostJobError, SlurmCluster
from bertctl.sweeps.slurm_queue import SlurmQueue, last_words, seconds_before_limit
from bertctl.sweeps.worker import TIME_IS_UP, WorkerSettings
from tests.conftest import TinyRun


class _Warnings(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs.

    `squeue` prints the file `jobs`, and `scancel` makes every job CANCELLED.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "jobs").write_text("")
    programs = {
        "squeue": f"cat {folder}/jobs",
        "scancel": f"echo $@ >> {folder}/cancelled; sed -i 's/|[A-Z_]*|/|CANCELLED|/' "
        f"{folder}/jobs",
    }
    for name, line in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(slurm_queue, "_SECONDS_BETWEEN_POLLS", 0.0)
    return folder


@pytest.mark.parametrize(
    ("state", "is_over"),
    [
        ("PENDING", False),
        ("RUNNING", False),
        ("COMPLETING", False),
        ("SUSPENDED", False),
        ("REQUEUED", False),
        ("NODE_FAIL", True),
        ("TIMEOUT", True),
        ("OUT_OF_MEMORY", True),
        ("CANCELLED", True),
        ("COMPLETED", True),
        ("PREEMPTED", True),
    ],
)
def test_states_of_jobs(slurm: Path, state: str, is_over: bool) -> None:
    (slurm / "jobs").write_text(
        f"7|{state}|bertctl-a|None|/x/jobs/s.sh\n8|RUNNING|other|None|/y|z.sh\n"
    )
    assert SlurmQueue(_Warnings()).is_over("7") == is_over


def test_a_job_that_has_left_the_queue_is_over_after_the_second_look(slurm: Path) -> None:
    """Without accounting nobody else knows what has become of it."""
    queue = SlurmQueue(_Warnings())
    assert [queue.is_over("7") for _ in range(3)] == [False, False, True]
    assert queue.state("7") == "gone"


def test_a_controller_that_does_not_answer_ends_no_job(slurm: Path) -> None:
    warnings = _Warnings()
    queue = SlurmQueue(warnings)
    (slurm / "squeue").write_text(
        "#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n"
    )
    assert not any(queue.is_over("7") for _ in range(5))
    assert warnings.lines == [
        "Slurm does not answer, and is asked again: Unable to contact slurm controller"
    ]
    with pytest.raises(UnavailableError, match="Unable to contact slurm controller"):
        queue.check()


def test_a_job_that_can_never_start_is_named_once(slurm: Path) -> None:
    """Most clusters accept jobs that ask for more than their partition has."""
    warnings = _Warnings()
    queue = SlurmQueue(warnings)
    lines = [
        "7|PENDING|bertctl-a|Resources|/x.sh",
        "8|PENDING|bertctl-b|PartitionTimeLimit|/x.sh",
        "9|PENDING|bertctl-c|PartitionTimeLimit|/x.sh",
    ]
    (slurm / "jobs").write_text("\n".join(lines) + "\n")

    assert [queue.state(job) for job in ("7", "8", "9", "8")] == ["PENDING"] * 4

    assert warnings.lines == [
        "job 8 waits, and will not start before something is changed: Slurm's reason is "
        "PartitionTimeLimit. See it with: scontrol show job 8"
    ]


def test_jobs_of_an_earlier_command_are_those_of_this_folder_and_these_cells(
    slurm: Path, tmp_path: Path
) -> None:
    ours = tmp_path / "jobs"
    lines = [
        f"1|RUNNING|bertctl-a|None|{ours}/s.sh",
        f"2|PENDING|bertctl-a|None|{ours}/t.sh",
        f"3|COMPLETED|bertctl-a|None|{ours}/u.sh",
        f"4|RUNNING|bertctl-b|None|{ours}/v.sh",  # another shard's
        "5|RUNNING|bertctl-a|None|/elsewhere/jobs/s.sh",
    ]
    (slurm / "jobs").write_text("\n".join(lines) + "\n")
    queue = SlurmQueue(_Warnings())
    below = queue.unfinished_below(ours, ["bertctl-a"])
    assert [job.id for job in below] == ["1", "2"]
    queue.cancel([job.id for job in below])
    assert (slurm / "cancelled").read_text() == "1 2\n"


def test_a_job_without_a_reply_is_lost_with_what_slurm_says(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slurm / "jobs").write_text("7|NODE_FAIL|bertctl-a|None|/x.sh\n")
    (tmp_path / "7.err").write_text("srun: error\nslurmstepd: the node is gone\n\n")
    monkeypatch.setattr("bertctl.sweeps.slurm_jobs.SECONDS_UNSEEN", 0)
    cluster = SlurmCluster.__new__(SlurmCluster)
    cluster._queue = SlurmQueue(_Warnings())
    job: Any = SimpleNamespace(
        job_id="7",
        paths=SimpleNamespace(result_pickle=tmp_path / "7.pkl", stderr=tmp_path / "7.err"),
    )
    with pytest.raises(
        LostJobError,
        match=re.escape("Slurm says NODE_FAIL; its last words: slurmstepd: the node is gone"),
    ):
        cluster.result(job)
    assert last_words(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("first", "second", "seconds", "is_second"),
    [
        (signal.SIGTERM, signal.SIGTERM, 0.1, False),  # Slurm's, and that of srun
        (signal.SIGTERM, signal.SIGHUP, 2.0, False),
        (signal.SIGINT, signal.SIGTERM, 0.1, False),
        (signal.SIGTERM, signal.SIGTERM, 60.0, True),
        (signal.SIGTERM, signal.SIGINT, 0.1, True),
        (signal.SIGINT, signal.SIGINT, 0.1, True),
    ],
)
def test_an_echo_is_no_second_signal(
    monkeypatch: pytest.MonkeyPatch, first: int, second: int, seconds: float, is_second: bool
) -> None:
    clock = iter([100.0, 100.0 + seconds, 100.0 + seconds])
    monkeypatch.setattr(stopping, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    request = StopRequest()
    assert not request.hear(first)
    assert request.hear(second) == is_second
    assert request.number == first


@pytest.mark.parametrize("number", [TIME_IS_UP, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_anything_is_there_is_not_lost(number: int) -> None:
    """Slurm's signal came while a job imported torch, and submitit passed SIGTERM by."""
    request = StopRequest()
    before = signal.getsignal(number)
    with ignored_until_heard(request):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    assert request.number == (signal.SIGTERM if number == TIME_IS_UP else number)
    assert signal.getsignal(number) == before


@pytest.fixture
def finished(tiny_run: TinyRun, tmp_path: Path) -> RunFolder:
    """A copy of a run that is done."""
    return RunFolder(Path(shutil.copytree(tiny_run.path, tmp_path / "run")))


def _job_of(run: RunFolder) -> Any:
    return SimpleNamespace(hash=run.read(run.environment)["recipe_hash"])


def test_a_run_that_is_done_is_not_trained_again(
    finished: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's job that was requeued erased the run of the job that was submitted in its place."""

    def start(*_: object, **__: object) -> None:
        raise AssertionError("it was trained again")

    monkeypatch.setattr(worker, "start", start)
    contents = {
        path: path.read_bytes()
        for path in finished.path.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    settings = WorkerSettings(tmp_path, {}, "best", 0)
    seconds = worker._train(_job_of(finished), finished, settings, None)
    assert seconds is not None
    assert seconds.keys() == {"train", "evaluate"}
    assert all(path.read_bytes() == content for path, content in contents.items())


@pytest.mark.parametrize(
    "change", ["another recipe", "failed", "running", "metrics", "performance"]
)
def test_another_run_or_one_that_is_not_done_is_no_result(finished: RunFolder, change: str) -> None:
    job = _job_of(finished)
    assert worker._seconds_of_done(job, finished)
    if change == "another recipe":
        job.hash = "another"
    elif change in ("metrics", "performance"):
        (finished.path / f"{change}.json").write_text("{")
    else:
        status = finished.read(finished.status) | {"state": change}
        finished.status.write_text(json.dumps(status))
    assert worker._seconds_of_done(job, finished) == {}


def test_the_step_of_the_newest_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert _saved_step(folder) == 0
    for name in ("step-00000040", "step-00000120", "average", "step-x"):
        (folder.checkpoints / name).mkdir(parents=True)
    assert _saved_step(folder) == 120


@pytest.mark.parametrize(
    ("time_limit", "seconds"),
    [
        ("", 90),
        ("UNLIMITED", 90),
        ("0", 90),
        ("soon", 90),
        ("1", 15),
        ("0:30", 7),
        ("2", 30),
        ("0:01:00", 15),
        ("4:00", 60),
        ("6", 90),
        ("2:00:00", 90),
        ("0-0:02", 30),
        ("0-0:02:40", 40),
        ("1-0", 90),
        ("0:01", 1),
    ],
)
def test_a_job_with_a_short_time_limit_is_told_later(time_limit: str, seconds: int) -> None:
    """It was told 90 s before a limit of a minute.

    Jobs stopped while they started, and the run was given up.
    """
    assert seconds_before_limit(time_limit) == seconds
