"""Runs of a sweep that can't win stop early: those that diverge and those that collapse.

Others wait at a rung.

A decision rests on the run's `TrainingState` alone, which is saved in checkpoints: an interrupted
sweep that is resumed decides as an undisturbed one.
"""

import math
import os

import numpy as np

from bertctl.errors import DivergedError
from bertctl.training.early_stopping import EarlyStopping
from bertctl.training.loop.loop import TrainingState

_SLOW = 1.5
"""How many times the mean of the first 5 losses the mean of the last 10 may be."""

_SLOW_AFTER = 15
"""Step from which these two are means of different steps."""

_LOSS_BY_CHANCE = math.log(2)
"""Negative log likelihood of guessing between two labels: a head that starts as a regression begins
far below it, and is not lost for coming up to it while the encoder moves."""

_SUDDEN = 5.0
"""How many times the first loss, and how many times 1, a single loss may be, where it is a mean of
log likelihoods."""

_STILL_LEARNING = 0.99
"""A validation loss below this share of the last epoch's has fallen."""


class SweepWatch(EarlyStopping):
    """Stops a run of a sweep that diverges or collapses.

    Divergence. The loop itself stops at a loss that is no number. Here a run is lost as well when
    the mean of its last 10 losses is above 1.5 times the mean of its first 5, and above 1.5 times
    what chance gives; and, because 15 steps can be more than a tenth of a short run, when a single
    loss is above 5 times the very first one, which is that of the untouched weights, and above 5:
    the right answers of a whole batch then have a probability of 0.7 % on average, which no hard
    batch explains. That holds for log likelihoods, not for squared errors, where one example can do
    it: those go by the first rule alone, without chance.

    Collapse. A run that answers one thing to everything at the end of its first epoch or two often
    learns later, the more so on small sets, so this alone stops nothing. It is stopped when it has
    done so at the ends of two epochs in a row, both after the warm-up, and its validation loss has
    not fallen by 1 % from the one to the other: the learning rate only falls from there on, so it
    will not get out (the failed runs of Mosbach et al. 2021 look like this). A run whose final
    weights answer one thing to everything is counted as collapsed in any case.

    Args:
        warmup: steps of the warm-up.
        parent: process that must be alive for this one to go on.
        likelihood: whether losses are log likelihoods.
        pause_at: Step of the rung where the run waits for the others, an evaluation; None to go on
            to the end.

    Attributes:
        is_paused: Whether the run has come to that rung.
    """

    def __init__(
        self, *, warmup: int, parent: int, likelihood: bool = True, pause_at: int | None = None
    ) -> None:
        self._warmup = warmup
        self._parent = parent
        self._likelihood = likelihood
        self._pause_at = pause_at
        self.is_paused = False

    def after_step(self, state: TrainingState) -> None:
        """Raises an error that ends the run after a step, if there is a reason.

        Raises:
            KeyboardInterrupt: The sweep's process is gone, or the run is at its rung; the training
                loop then saves a checkpoint.
            DivergedError: The losses say that the run is lost.
        """
        if os.getppid() != self._parent:
            raise KeyboardInterrupt
        trouble = divergence(state, likelihood=self._likelihood)
        if trouble:
            message = f"training diverged at step {state.step}: {trouble}"
            raise DivergedError(message, remedy="Try a lower learning rate.")
        if state.step == self._pause_at and not state.stopped_early:
            self.is_paused = True
            raise KeyboardInterrupt  # which saves a checkpoint

    def after_epoch(self, epoch: int, state: TrainingState) -> str:
        """Returns `collapsed` when the run will not learn any more, else an empty string."""
        # Validation losses of the latest epochs after which the model gave all validation rows the
        # same answer. An epoch with different answers has emptied the list.
        losses = state.collapsed_losses
        steps_per_epoch = state.step // epoch
        first_step_of_epoch = state.step - steps_per_epoch
        is_in_warmup = first_step_of_epoch < self._warmup
        if len(losses) < 2 or is_in_warmup:
            return ""
        has_hardly_fallen = losses[-1] > _STILL_LEARNING * losses[-2]
        if has_hardly_fallen:
            return "collapsed"
        return ""


def divergence(outcome: TrainingState, *, likelihood: bool = True) -> str:
    """Returns why a run is lost, judged by its losses so far; an empty string when it is not.

    It is lost if a single loss is far above the first one (only log likelihoods have a known
    scale), or if the mean of its last losses is well above the mean of its first ones.

    Args:
        outcome: State of the run so far, with its first 5 and its last 10 losses.
        likelihood: Whether the losses are negative log likelihoods.
    """
    if not outcome.last_losses:
        return ""
    first_loss = outcome.first_losses[0]
    loss = outcome.last_losses[-1]
    # A first loss near 0 counts as 1, as the loss of a hard batch can be many times as much.
    is_far_above_first = loss > _SUDDEN * max(1.0, first_loss)
    if likelihood and is_far_above_first:
        return f"the loss is {loss:.3g}, and was {first_loss:.3g} in the first step"

    first_mean = float(np.mean(outcome.first_losses))
    last_mean = float(np.mean(outcome.last_losses))
    # A run that begins with tiny losses is not lost while its losses are below that of guessing.
    lowest_reference = _LOSS_BY_CHANCE if likelihood else 0.0
    reference = max(lowest_reference, first_mean)
    if outcome.step >= _SLOW_AFTER and last_mean > _SLOW * reference:
        return (
            f"the last 10 losses are {last_mean:.3g} on average, the first 5 were {first_mean:.3g}"
        )
    return ""
