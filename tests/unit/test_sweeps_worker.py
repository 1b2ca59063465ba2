"""What a worker makes of a run that fails."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from bertctl.config.schema import Recipe
from bertctl.errors import ExitCode
from bertctl.sweeps import worker
from bertctl.sweeps.pool import Pool
from bertctl.sweeps.worker import CellReply, WorkerSettings, run_cell
from bertctl.training.job import Encoded
from tests.nursery import Nursery


class Broken(dict[str, Encoded]):
    """Data that can't be had: whoever looks for it gets the error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def __contains__(self, key: object) -> bool:
        raise self._error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), ExitCode.DEVICE),
        (RuntimeError("std::bad_alloc"), ExitCode.DEVICE),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            ExitCode.DEVICE,
        ),
        (RuntimeError("the shapes do not fit"), ExitCode.BUG),
    ],
)
def test_lack_of_memory_is_no_bug_of_ours(tmp_path: Path, error: Exception, code: ExitCode) -> None:
    """The same signs as in training tell it."""
    recipe = Recipe.model_validate({"name": "r", "task": "text-classification"})
    settings = WorkerSettings(tmp_path, {"0123": recipe.model_dump()}, "best", os.getppid())
    reply = run_cell("0123", settings, Broken(error))
    assert reply.state == "failed"
    assert reply.code == code
    status = json.loads((tmp_path / "cells" / "0123" / "status.json").read_text())
    assert status["state"] == "failed"
    assert status["reason"] == "error"
    assert status["message"] == f"{type(error).__name__}: {error}"


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_ctrl_c_is_not_lost_on_a_worker_that_has_just_been_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has handlers of its own it has those of the sweep, which passes signals on to it."""

    def slow(_: int) -> None:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(0.5)  # the signal comes back here

    monkeypatch.setattr(worker, "die_when_parent_does", slow)
    replies: list[CellReply] = []
    encoded: dict[str, Encoded] = {"": None}
    pool = Pool(WorkerSettings(tmp_path, {}, "best", os.getpid()), encoded, jobs=1, devices=())
    pool.run(["0123"], replies.append)
    assert pool.stopped_by == signal.SIGINT
    assert replies == []


def test_a_job_leaves_the_import_of_torch_to_its_worker(nursery: Nursery, tmp_path: Path) -> None:
    """Each job of a cluster imported it twice: in the process that starts the worker as well."""
    code = """
import sys
from pathlib import Path
from bertctl.sweeps.pool import Pool
from bertctl.sweeps.worker import WorkerSettings

settings = WorkerSettings(Path.cwd(), {}, "best", 0)
pool = Pool(settings, {}, jobs=1, devices=())
print(pool.forks, "torch" in sys.modules)
"""
    process = nursery.run_code(code, cwd=tmp_path)
    assert process.stdout == "False False\n", process.stderr
