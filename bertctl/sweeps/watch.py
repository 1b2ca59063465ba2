"""Runs of a sweep that can't win stop early: those that diverge, those that collapse, and with `--early-kill` those
that are hopeless against the others. All that a decision about divergence or collapse goes by is in `Outcome`, which is
saved in checkpoints: an interrupted sweep that goes on decides as an undisturbed one.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertctl.errors import DivergedError
from bertctl.training.loop import Outcome
from bertctl.training.watching import EpochEnd, Watch

COLLAPSED, HOPELESS = "collapsed", "hopeless"

ETA = 2
"""Of the runs that have come as far, one in so many goes on."""

_SLOW, _SLOW_AFTER = 1.5, 15
"""How many times the mean of the first 5 losses the mean of the last 10 may be, once these are other steps."""

_SUDDEN = 5.0
"""How many times the first loss, and how many times 1, a single loss may be, where it is a mean of log likelihoods."""

_STILL_LEARNING = 0.99
"""A validation loss below this share of the last epoch's has fallen."""


@dataclass(frozen=True)
class Rung:
    """What the early kill goes by.

    Attributes:
        histories: history.jsonl of the other runs that are scored on the same rows.
        metric: name of the line's value, such as `validation_f1`.
        higher_is_better: its direction.
    """

    histories: Sequence[Path]
    metric: str
    higher_is_better: bool


class SweepWatch(Watch):
    """Watches one run of a sweep.

    Divergence. The loop itself stops at a loss that is no number. Here a run is lost as well when the mean of its last
    10 losses is above 1.5 times the mean of its first 5; and, because 15 steps can be more than a tenth of a short run,
    when a single loss is above 5 times the very first one, which is that of the untouched weights, and above 5: the
    right answers of a whole batch then have a probability of 0.7 % on average, which no hard batch explains. That holds
    for log likelihoods, not for the squared errors of text-regression, where one example can do it: those go by
    the first rule alone.

    Collapse. A run that answers one thing to everything at the end of its first epoch or two often learns later,
    the more so on small sets, so this alone stops nothing. It is stopped when it has done so at the ends of two
    epochs in a row, both after the warm-up, and its validation loss has not fallen by 1 % from the one to the other:
    the rate only falls from there on, so it will not get out (the failed runs of Mosbach et al. 2021 look like this).
    A run whose final weights answer one thing to everything is counted as collapsed in any case.

    Early kill. Asynchronous successive halving (Li et al. 2018), as a rule for stopping, eta 2: after 1, 2, 4, ...
    epochs a run goes on if it is among the best half (rounded up) of those that have come as far, by the primary metric
    at that epoch. It depends on which runs were quicker, so two such sweeps can differ.

    Args:
        warmup: steps of the warm-up.
        rung: of the early kill; None without.
        parent: process that must be alive for this one to go on.
        likelihood: whether losses are log likelihoods.
    """

    def __init__(self, *, warmup: int, rung: Rung | None, parent: int, likelihood: bool = True) -> None:
        self._warmup = warmup
        self._likelihood = likelihood
        self._rung = rung
        self._parent = parent

    def after_step(self, outcome: Outcome) -> None:
        """See the class.

        Raises:
            DivergedError: the run is lost.
            KeyboardInterrupt: the sweep's process is gone.
        """
        if os.getppid() != self._parent:
            raise KeyboardInterrupt
        trouble = divergence(outcome, likelihood=self._likelihood)
        if trouble:
            raise DivergedError(f"training diverged at step {outcome.step}: {trouble}", remedy="Try a lower rate.")

    def after_epoch(self, end: EpochEnd, outcome: Outcome) -> str:
        """See the class."""
        losses = outcome.collapsed_losses
        # The end of the epoch before is as many steps ago as an epoch has.
        before = end.step - end.step // end.epoch
        if len(losses) > 1 and before >= self._warmup and losses[-1] > _STILL_LEARNING * losses[-2]:
            return COLLAPSED
        if self._rung is not None and is_rung(end.epoch) and is_hopeless(end, self._rung):
            return HOPELESS
        return ""


def divergence(outcome: Outcome, *, likelihood: bool = True) -> str:
    """Why a run is lost, by its losses so far; empty where it is not.

    Args:
        outcome: of the run.
        likelihood: whether the losses are log likelihoods, so that a single one can tell.
    """
    if not outcome.last_losses:
        return ""
    first, loss = outcome.first_losses, outcome.last_losses[-1]
    if likelihood and loss > _SUDDEN * max(1.0, first[0]):
        return f"the loss is {loss:.3g}, and was {first[0]:.3g} in the first step"
    last = float(np.mean(outcome.last_losses))
    if outcome.step >= _SLOW_AFTER and last > _SLOW * float(np.mean(first)):
        return f"the last 10 losses are {last:.3g} on average, the first 5 were {np.mean(first):.3g}"
    return ""


def is_rung(epoch: int) -> bool:
    """Whether runs are compared after so many epochs: 1, 2, 4, 8, ..."""
    return epoch & (epoch - 1) == 0


def is_hopeless(end: EpochEnd, rung: Rung) -> bool:
    """Whether a run is outside the best half of those that have come as far; equals are not told apart."""
    found = [value_at(path, end.epoch, rung.metric) for path in rung.histories]
    others = [value for value in found if value is not None]
    sign = 1.0 if rung.higher_is_better else -1.0
    better = sum(sign * value > sign * end.value for value in others)
    return better >= -(-(len(others) + 1) // ETA)


def value_at(history: Path, epoch: int, metric: str) -> float | None:
    """A run's metric at the end of an epoch, by its history.jsonl; None where it has not come as far."""
    try:
        lines = history.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError:
        return None
    at = None
    for line in lines:
        if not line.endswith("\n"):  # is being written
            break
        row = json.loads(line)
        if row.get("epoch") == epoch:
            at = row["step"]
        elif metric in row and row["step"] == at:
            return float(row[metric])
    return None
