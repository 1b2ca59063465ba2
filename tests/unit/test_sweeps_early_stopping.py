"""When a run of a sweep is stopped, and when it isn't."""

import os

import pytest

from bertctl.errors import DivergedError
from bertctl.sweeps.early_stopping import SweepWatch, divergence
from bertctl.training.loop.loop import TrainingState


def _after(losses: list[float]) -> TrainingState:
    return TrainingState(
        step=len(losses),
        first_losses=losses[:5],
        last_losses=losses[-10:],
    )


def test_losses_that_rise_slowly_are_a_divergence_from_step_15() -> None:
    assert not divergence(_after([0.7] * 5 + [1.2] * 9))
    assert "last 10 losses are 1.2 " in divergence(_after([0.7] * 5 + [1.2] * 10))
    assert not divergence(_after([0.7] * 5 + [1.0] * 30)), "1.43 times"


def test_one_huge_loss_is_a_divergence_at_once_and_a_hard_batch_is_not() -> None:
    assert not divergence(_after([]))
    assert not divergence(_after([0.7]))
    assert "the loss is 80" in divergence(_after([0.7, 80.0]))
    assert not divergence(_after([0.7, 2.0, 0.1, 2.5]))
    assert "the loss is 6.86" in divergence(_after([0.69, 0.69, 6.86])), (
        "MiniLM on MRPC at rate 1.0"
    )
    assert not divergence(_after([6.0, 5.9, 9.0])), "question answering begins at log(length)"
    assert not divergence(_after([0.7, 80.0]), likelihood=False), "a squared error"
    with pytest.raises(DivergedError, match="at step 2"):
        _watch().after_step(_after([0.7, 80.0]))


def test_a_watch_ends_with_its_parent() -> None:
    with pytest.raises(KeyboardInterrupt):
        SweepWatch(warmup=0, parent=os.getpid()).after_step(_after([0.7]))


def _watch(warmup: int = 5) -> SweepWatch:
    return SweepWatch(warmup=warmup, parent=os.getppid())


def test_one_answer_to_everything_stops_a_run_only_when_it_has_stopped_learning() -> None:
    def after(epoch: int, losses: list[float], *, warmup: int = 5) -> str:
        return _watch(warmup=warmup).after_epoch(
            epoch, TrainingState(step=10 * epoch, collapsed_losses=losses)
        )

    assert after(1, [0.69]) == ""
    assert after(2, [0.69, 0.69]) == "collapsed"
    assert after(2, [0.69, 0.66]) == "", "the loss still falls"
    assert after(2, [0.69, 0.69], warmup=11) == "", "still warming up"
    assert after(2, []) == ""


def test_a_head_that_starts_well_may_come_up_to_chance() -> None:
    """A head that begins as a regression has losses near 0 in the first steps.

    The encoder moves only after them.
    """
    assert not divergence(_after([0.02] * 5 + [0.4] * 10))
    assert divergence(_after([0.02] * 5 + [1.2] * 10)), (
        "more than 1.5 times the loss of two labels by chance"
    )
    assert divergence(_after([0.02] * 5 + [0.4] * 10), likelihood=False), (
        "squared errors have no such floor"
    )
