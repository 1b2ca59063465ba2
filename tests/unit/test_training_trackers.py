"""Trackers that fail, and runs that do: neither takes the other with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertctl.errors import DivergedError, UnavailableError
from bertctl.jobs.run_recipe import run_recipe
from tests.heard import Heard
from tests.tiny_recipes import tiny_recipe

pytestmark = pytest.mark.filterwarnings("ignore:`log_with=")  # MLflow need not be installed


class _Tracker:
    """Stands for MLflow.

    Fails at one call; one that is not ended would refuse the next run of the process.
    """

    name = "mlflow"

    def __init__(self, fails_at: int = -1) -> None:
        self.fails_at = fails_at
        self.steps = list[int]()
        self.ended = False

    def log(self, values: dict[str, Any], step: int) -> None:
        if step == self.fails_at:
            raise OSError("nobody answers")
        self.steps.append(step)

    def finish(self) -> None:
        self.ended = True


@pytest.fixture
def tracked(monkeypatch: pytest.MonkeyPatch, tiny_model: Path, opinions: Path, tmp_path: Path):
    """Trains with these trackers, or with one that can't begin."""
    monkeypatch.setattr("bertctl.training.job.check_trackers", lambda _: None)

    def run(*trackers: _Tracker, heard: Heard | None = None, **options: object) -> None:
        def begin(accelerator: Any, *_: object, **__: object) -> None:
            if not trackers:
                raise RuntimeError("no such place")
            accelerator.trackers = list(trackers)

        monkeypatch.setattr("accelerate.Accelerator.init_trackers", begin)
        recipe = tiny_recipe(tiny_model, opinions, **{"runtime.log_to": ["mlflow"], **options})
        run_recipe(recipe, output=tmp_path / "run", listener=heard or Heard())

    return run


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(tracked, tmp_path: Path) -> None:
    bad = _Tracker(fails_at=3)
    good = _Tracker()
    listener = Heard()
    tracked(bad, good, heard=listener)
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "done"
    assert sorted({*good.steps}) == list(range(1, 9))
    assert sorted({*bad.steps}) == [1, 2]
    assert bad.ended
    assert good.ended
    assert [message for message in listener.warned if "mlflow" in message] == [
        "mlflow gets no more of this run: OSError: nobody answers"
    ]


def test_trackers_are_ended_where_training_diverges(tracked) -> None:
    tracker = _Tracker()
    with pytest.raises(DivergedError):
        tracked(tracker, **{"optimizer.learning_rate": 1e30, "optimizer.max_grad_norm": 1e9})
    assert tracker.ended


def test_a_tracker_that_can_not_begin_is_no_bug(tracked) -> None:
    with pytest.raises(
        UnavailableError,
        match=r"`runtime\.log_to=mlflow` can't be used: RuntimeError: no such place",
    ):
        tracked()
