"""Ctrl-C while jobs of a cluster run: cells that were not begun are waited for by nobody."""

import os
import signal
import sys
import threading
from concurrent.futures import as_completed
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertctl.progress import SILENT
from bertctl.sweeps import executors
from bertctl.sweeps.worker import CellReply, WorkerSettings


class _Job:
    """Runs until it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def result(self) -> dict[str, Any]:
        assert self.cancelled.wait(20), "nobody has cancelled it"
        return vars(CellReply("", "interrupted", "a checkpoint was saved"))

    def cancel(self, *, check: bool) -> None:
        assert not check, "one that is over can't be cancelled"
        self.cancelled.set()


@pytest.mark.parametrize("while_submitted", [False, True])
def test_a_signal_ends_the_wait_for_all_cells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, while_submitted: bool
) -> None:
    def submit(*_: object) -> _Job:
        stop = partial(os.kill, os.getpid(), signal.SIGINT)
        if while_submitted:
            stop()
            assert stopped.wait(10)
        else:
            threading.Timer(0.2, stop).start()
        return _Job()

    engine = SimpleNamespace(
        cluster="local", parameters={}, update_parameters=lambda **_: None, submit=submit
    )
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=lambda _: engine))
    monkeypatch.setattr(
        executors, "as_completed", partial(as_completed, timeout=15)
    )  # else it would wait for ever
    stopped = threading.Event()
    recipe = {"runtime": {"threads": 1, "device": "cpu"}}
    jobs = executors.Jobs(
        WorkerSettings(tmp_path, dict.fromkeys("abc", recipe), "best", 0), "slurm", 1, SILENT
    )
    before = jobs._stop
    monkeypatch.setattr(jobs, "_stop", lambda number, frame: (before(number, frame), stopped.set()))
    replies: list[CellReply] = []
    jobs.run("abc", replies.append)
    assert jobs.stopped_by == signal.SIGINT
    assert [reply.state for reply in replies] == ["interrupted"], "b and c were not begun"
