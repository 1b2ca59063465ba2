"""A job of Slurm asks for no time of its own, and is not requeued.

No partition would take a month.
"""

from pathlib import Path

import pytest

from bertctl.progress import SILENT
from bertctl.sweeps.slurm_jobs import SlurmCluster
from bertctl.sweeps.worker import WorkerSettings


def test_the_script_names_no_time_and_no_requeue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("submitit")

    for name, script in {
        "srun": "",
        "squeue": "",
        "sbatch": "cp $1 $0.sh; echo Submitted batch job 1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "0:01:00")
    cluster = SlurmCluster(tmp_path / "jobs", ["a"], 3, None, SILENT)
    cluster.submit(WorkerSettings(tmp_path, {}, "best", 0), "a")
    written = (tmp_path / "sbatch.sh").read_text()
    assert "--cpus-per-task=3" in written
    assert "--time" not in written
    assert "#SBATCH --no-requeue\n" in written, "a lost job is submitted again here"
    assert "#SBATCH --signal=USR2@15\n" in written, "a short time limit leaves time to train"
    assert "--job-name=bertctl-a\n" in written
