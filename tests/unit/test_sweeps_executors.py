"""What becomes of jobs that are lost, or run where the sweep's folder is not seen.

tests/slow has the real engines.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertctl.config.schema import Recipe
from bertctl.errors import ExitCode, UnavailableError
from bertctl.progress import Listener
from bertctl.sweeps import executors
from bertctl.sweeps.executors import PACKAGES, Jobs, check_executor
from bertctl.sweeps.far_job import run_far
from bertctl.sweeps.worker import CellReply, WorkerSettings


def _settings(folder: Path) -> WorkerSettings:
    recipe = Recipe.model_validate(
        {"name": "r", "task": "text-classification", "runtime": {"threads": 3}}
    )
    return WorkerSettings(
        folder, {name: recipe.model_dump() for name in ("a", "b")}, "best", os.getpid()
    )


class _Heard(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, text: str) -> None:
        self.lines.append(text)


def _run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, results: dict[str, list[Any]]
) -> tuple[list[CellReply], list[str]]:
    """The replies of cells `a` and `b`, whose jobs give these results one after the other.

    And what was said.
    """

    def result(cell: str) -> Any:
        actual = results[cell].pop(0)
        if isinstance(actual, Exception):
            raise actual
        return actual

    def remote(**needs: Any) -> Any:
        assert needs == {"num_cpus": 3, "num_gpus": None, "max_retries": 0}
        return lambda _: SimpleNamespace(
            remote=lambda settings, cell, *_: list(settings.recipes) == [cell] and cell
        )

    listener = _Heard()
    replies = list[CellReply]()
    left = list[bool]()
    engine = SimpleNamespace(
        init=lambda **_: None,
        remote=remote,
        get=result,
        cancel=None,
        shutdown=lambda: left.append(True),
    )
    monkeypatch.setitem(sys.modules, "ray", engine)
    Jobs(_settings(folder), "ray", 2, listener).run(["a", "b"], replies.append)
    assert left == [True]  # or it would print what it logs behind the sweep's answer
    return sorted(replies, key=lambda reply: reply.cell), listener.lines


def _finish(folder: Path, cell: str) -> dict[str, Any]:
    (folder / "cells" / cell).mkdir(parents=True)
    status = {"schema": 1, "state": "done", "step": 1, "pid": 1, "host": "elsewhere"}
    (folder / "cells" / cell / "status.json").write_text(json.dumps(status))
    return vars(CellReply(cell, "done"))


def test_a_job_that_is_lost_is_submitted_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    interrupted = vars(CellReply("a", "interrupted", "time is up"))
    done = _finish(tmp_path, "a")
    results = {
        "a": [RuntimeError("the node\nis gone"), interrupted, done],
        "b": [RuntimeError("gone")] * 5,
    }
    (first, second), message = _run(monkeypatch, tmp_path, results)
    assert first.state == "done"
    assert second.state == "failed"
    assert second.code == ExitCode.DEVICE
    assert json.loads((tmp_path / "cells" / "b" / "status.json").read_text())["message"].startswith(
        "5 jobs in a row were lost"
    )
    assert len(message) == 2 + 5
    assert (
        "a: job ended before the run did (the node is gone); it starts again in another job"
        in message
    )
    assert "a: job ended before the run did (time is up); it starts again in another job" in message
    assert "b: job ended before the run did (gone); it is given up" in message


def test_a_run_that_fails_is_not_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed = [vars(CellReply(cell, "failed", "no memory", ExitCode.DEVICE)) for cell in ("a", "b")]
    replies, message = _run(monkeypatch, tmp_path, {"a": failed[:1], "b": failed[1:]})
    assert [reply.message for reply in replies] == ["no memory", "no memory"]
    assert message == []


def test_the_machines_share_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine does not see the sweep; and what one says that it has done is not seen here."""
    others = run_far(_settings(tmp_path), "a", tmp_path, "0")
    assert others["state"] == "failed"
    assert others["code"] == ExitCode.UNAVAILABLE
    assert f"{os.uname().nodename} does not see {tmp_path}, as all must" in others["message"]
    monkeypatch.setattr(executors.time, "sleep", lambda _: None)
    (first, _), _ = _run(
        monkeypatch, tmp_path, {"a": [vars(CellReply("a", "done"))], "b": [_finish(tmp_path, "b")]}
    )
    assert first.state == "failed"
    assert first.code == ExitCode.UNAVAILABLE
    assert "cells/a, as all must" in first.message


def test_an_executor_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    check_executor("local")
    monkeypatch.setitem(PACKAGES, "slurm", "no_such_package")
    with pytest.raises(UnavailableError, match="`executor=slurm` needs the package") as refused:
        check_executor("slurm")
    assert "pip install 'bertctl[slurm]'" in refused.value.remedy
