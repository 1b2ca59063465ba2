"""Jobs that `sbatch` does not take: an error at once, or a wait. tests/slow has a real Slurm."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertctl.errors import ExitCode
from bertctl.progress import SILENT, Listener
from bertctl.sweeps import executors
from bertctl.sweeps.executors import Jobs
from bertctl.sweeps.slurm_jobs import NoAnswerError, RefusedJobError, SlurmCluster
from bertctl.sweeps.worker import CellReply, WorkerSettings


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs: `squeue` prints the file `jobs`, `scancel` empties it."""
    pytest.importorskip("submitit")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "jobs").write_text("")
    _write_program(folder / "srun", "")
    _write_program(folder / "squeue", f"cat {folder}/jobs")
    _write_program(folder / "scancel", f"echo $@ >> {folder}/cancelled; : > {folder}/jobs")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr("bertctl.sweeps.slurm_queue._SECONDS_BETWEEN_POLLS", 0.0)
    for name in [name for name in os.environ if name.startswith("SBATCH_")]:
        monkeypatch.delenv(name)
    return folder


def _write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _submit(cluster: SlurmCluster, folder: Path) -> Any:
    return cluster.submit(WorkerSettings(folder, {}, "best", 0), "a")


def test_options_that_sbatch_refuses(
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    _write_program(
        programs / "sbatch",
        "echo 'sbatch: error: invalid partition specified: nowhere' >&2\n"
        "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2\n"
        "exit 1",
    )
    cluster = SlurmCluster(tmp_path / "jobs", ["a"], 3, None, SILENT)

    with pytest.raises(RefusedJobError) as refused:
        _submit(cluster, tmp_path)

    assert refused.value.exit_code == ExitCode.USAGE
    assert refused.value.message == (
        "sbatch refuses the jobs: invalid partition specified: nowhere; "
        "Batch job submission failed: Invalid partition name specified"
    )
    assert "SBATCH_PARTITION=nowhere" in refused.value.remedy
    assert capfd.readouterr().err == "", "submitit does not say it as well"


def test_a_job_that_may_have_been_taken_is_cancelled_before_it_is_submitted_again(
    programs: Path, tmp_path: Path
) -> None:
    """`sbatch` may lose the answer, not the job."""
    cluster = SlurmCluster(tmp_path / "jobs", ["a"], 3, None, SILENT)
    _write_program(
        programs / "sbatch",
        f'echo "5|PENDING|bertctl-a|None|$1" > {programs}/jobs\n'
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv "
        "operation' >&2\nexit 1",
    )
    with pytest.raises(NoAnswerError, match="Socket timed out"):
        _submit(cluster, tmp_path)
    _write_program(programs / "sbatch", "echo Submitted batch job 6")

    assert _submit(cluster, tmp_path).job_id == "6"

    assert (programs / "cancelled").read_text() == "5\n"


class _Warnings(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, text: str) -> None:
        self.lines.append(text)


class _LimitedCluster:
    """A cluster that takes some jobs at a time.

    Args:
        n_jobs: It takes so many.
        n_silent: It does not answer so many times at first.
        n_late: It still counts a job that has ended at so many submissions.
    """

    def __init__(self, n_jobs: int, n_silent: int = 0, n_late: int = 0) -> None:
        self._n_late = n_late
        self._n_to_refuse = 0
        self._free = threading.Semaphore(n_jobs)
        self._n_silent = n_silent
        self._refusal = threading.Event()
        self._first_job = ""
        self.n_submissions = 0
        self.refused_cells: list[str] = []
        self.cells_after_refusals: list[str] = []

    def submit(self, settings: WorkerSettings, cell: str) -> str:
        self.n_submissions += 1
        if self.n_submissions <= self._n_silent:
            message = "Unable to contact slurm controller"
            raise NoAnswerError(message)
        if self._n_to_refuse:
            self._n_to_refuse -= 1
            message = "sbatch refuses the jobs: too many"
            raise RefusedJobError(message)
        if len(self.cells_after_refusals) < len(self.refused_cells):
            self.cells_after_refusals.append(cell)
        if not self._free.acquire(blocking=False):
            self.refused_cells.append(cell)
            self._refusal.set()
            message = "sbatch refuses the jobs: too many"
            raise RefusedJobError(message)
        self._first_job = self._first_job or cell
        return cell

    def result(self, job: str) -> dict[str, Any]:
        if job == self._first_job:
            assert self._refusal.wait(60), "the others were submitted beside it"
        self._n_to_refuse = self._n_late
        self._free.release()
        return vars(CellReply(job, "failed", "it has run"))

    def leave(self) -> None:
        pass


def _run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, cluster: _LimitedCluster, cells: str
) -> tuple[list[CellReply], list[str]]:
    """Runs cells on a cluster; returns their replies and the warnings."""
    monkeypatch.setattr(executors, "SlurmCluster", lambda *_: cluster)
    monkeypatch.setattr(executors, "time", SimpleNamespace(sleep=lambda _: None))
    recipe = {"runtime": {"threads": 1, "device": "cpu"}}
    settings = WorkerSettings(folder, dict.fromkeys(cells, recipe), "best", 0)
    warnings = _Warnings()
    replies: list[CellReply] = []
    Jobs(settings, "slurm", len(cells), warnings).run(cells, replies.append)
    return replies, warnings.lines


def test_a_job_beyond_a_limit_waits_for_another_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replies, warnings = _run(monkeypatch, tmp_path, _LimitedCluster(1), "abc")

    assert sorted(reply.cell for reply in replies) == ["a", "b", "c"]
    assert warnings == [
        "sbatch refuses the jobs: too many; other runs wait until one of the jobs has ended"
    ]


def test_runs_behind_one_that_waits_are_not_submitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of them asked for itself whenever a job had ended."""
    cluster = _LimitedCluster(1)

    _run(monkeypatch, tmp_path, cluster, "abcdef")

    assert cluster.refused_cells
    assert cluster.cells_after_refusals == cluster.refused_cells


def test_a_job_that_has_ended_may_be_counted_for_a_while(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replies, _ = _run(monkeypatch, tmp_path, _LimitedCluster(1, n_late=4), "abc")

    assert len(replies) == 3


def test_a_job_that_is_refused_alone_is_submitted_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = _LimitedCluster(0)

    with pytest.raises(RefusedJobError, match="too many"):
        _run(monkeypatch, tmp_path, cluster, "abc")

    assert cluster.n_submissions == 1


def test_a_cluster_that_does_not_answer_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Five such answers within seconds were five lost jobs, and the run was given up."""
    cluster = _LimitedCluster(3, n_silent=7)
    cluster._refusal.set()

    replies, warnings = _run(monkeypatch, tmp_path, cluster, "abc")

    assert len(replies) == 3
    assert warnings == [
        "the cluster does not answer, and is asked again: Unable to contact slurm controller"
    ]
