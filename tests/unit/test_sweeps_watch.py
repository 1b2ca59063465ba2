"""When a run of a sweep is stopped, and when it isn't."""

import json
import os
from pathlib import Path

import pytest

from bertctl.errors import DivergedError
from bertctl.sweeps.watch import COLLAPSED, HOPELESS, Rung, SweepWatch, divergence, is_hopeless, is_rung, value_at
from bertctl.training.loop import Outcome
from bertctl.training.watching import EpochEnd


def _after(losses: list[float]) -> Outcome:
    return Outcome(step=len(losses), first_losses=losses[:5], last_losses=losses[-10:])


def test_losses_that_rise_slowly_are_a_divergence_from_step_15() -> None:
    assert not divergence(_after([0.7] * 5 + [1.2] * 9))
    assert "the last 10 losses are 1.2 on average" in divergence(_after([0.7] * 5 + [1.2] * 10))
    assert not divergence(_after([0.7] * 5 + [1.0] * 30)), "1.43 times"


def test_one_huge_loss_is_a_divergence_at_once_and_a_hard_batch_is_not() -> None:
    assert not divergence(_after([]))
    assert not divergence(_after([0.7]))
    assert "the loss is 80" in divergence(_after([0.7, 80.0]))
    assert not divergence(_after([0.7, 2.0, 0.1, 2.5]))
    assert "the loss is 6.86" in divergence(_after([0.69, 0.69, 6.86])), "MiniLM on MRPC at rate 1.0"
    assert not divergence(_after([6.0, 5.9, 9.0])), "question answering begins at log(length)"
    assert not divergence(_after([0.7, 80.0]), likelihood=False), "a squared error"
    with pytest.raises(DivergedError, match="at step 2"):
        _watch().after_step(_after([0.7, 80.0]))


def test_a_watch_ends_with_its_parent() -> None:
    with pytest.raises(KeyboardInterrupt):
        SweepWatch(warmup=0, rung=None, parent=os.getpid()).after_step(_after([0.7]))


def _watch(warmup: int = 5, rung: Rung | None = None) -> SweepWatch:
    return SweepWatch(warmup=warmup, rung=rung, parent=os.getppid())


def test_one_answer_to_everything_stops_a_run_only_when_it_has_stopped_learning() -> None:
    second = EpochEnd(2, 20, 0.5)
    assert _watch().after_epoch(EpochEnd(1, 10, 0.5), Outcome(collapsed_losses=[0.69])) == ""
    assert _watch().after_epoch(second, Outcome(collapsed_losses=[0.69, 0.69])) == COLLAPSED
    assert _watch().after_epoch(second, Outcome(collapsed_losses=[0.69, 0.66])) == "", "the loss still falls"
    assert _watch(warmup=11).after_epoch(second, Outcome(collapsed_losses=[0.69, 0.69])) == "", "still warming up"
    assert _watch().after_epoch(second, Outcome(collapsed_losses=[])) == ""


def _history(path: Path, *values: float) -> Path:
    lines = []
    for epoch, value in enumerate(values, 1):
        lines += [{"step": 10 * epoch - 5, "epoch": epoch - 0.5, "loss": 0.5}, {"step": 10 * epoch, "epoch": epoch}]
        lines.append({"step": 10 * epoch, "validation_f1": value, "validation_loss": 0.5})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 99, "epo')
    return path


def test_a_history_gives_the_value_at_an_epoch(tmp_path: Path) -> None:
    path = _history(tmp_path / "history.jsonl", 0.5, 0.75)
    assert [value_at(path, epoch, "validation_f1") for epoch in (1, 2, 3)] == [0.5, 0.75, None]
    assert value_at(tmp_path / "none", 1, "validation_f1") is None


def test_the_better_half_goes_on(tmp_path: Path) -> None:
    histories = [_history(tmp_path / f"{value}", value) for value in (0.6, 0.7, 0.8)]
    rung = Rung([*histories, tmp_path / "not started"], "validation_f1", higher_is_better=True)
    verdicts = {value: is_hopeless(EpochEnd(1, 10, value), rung) for value in (0.55, 0.65, 0.75, 0.85)}
    assert verdicts == {0.55: True, 0.65: True, 0.75: False, 0.85: False}
    lower = Rung(histories, "validation_f1", higher_is_better=False)
    assert not is_hopeless(EpochEnd(1, 10, 0.55), lower)
    assert not is_hopeless(EpochEnd(1, 10, 0.1), Rung([], "validation_f1", higher_is_better=True)), "the first one"
    assert _watch(rung=rung).after_epoch(EpochEnd(1, 10, 0.1), Outcome()) == HOPELESS
    assert _watch(rung=rung).after_epoch(EpochEnd(3, 30, 0.1), Outcome()) == "", "no rung"
    assert [epoch for epoch in range(1, 10) if is_rung(epoch)] == [1, 2, 4, 8]
