"""A job of Slurm asks for no time of its own: no partition would take a month."""

from pathlib import Path

import pytest

from bertctl.progress import SILENT
from bertctl.sweeps.executors import Jobs
from bertctl.sweeps.worker import WorkerSettings


def test_the_script_names_no_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("submitit")

    (tmp_path / "srun").touch(mode=0o755)
    script = "#!/bin/sh\ncp $1 $0.sh; echo Submitted batch job 1\n"
    (tmp_path / "sbatch").write_text(script)
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    recipe = {"runtime": {"threads": 3, "device": "cpu"}}
    Jobs(WorkerSettings(tmp_path, {"a": recipe}, "best", 0), "slurm", 1, SILENT)._submit(1)
    written = (tmp_path / "sbatch.sh").read_text()
    assert "--cpus-per-task=3" in written
    assert "--time" not in written
