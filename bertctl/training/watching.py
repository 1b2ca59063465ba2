"""Who looks on while a run trains and may end it early: nobody by itself, in a sweep `sweeps/early_stopping.py`."""

from dataclasses import dataclass

from bertctl.training.loop import TrainingState


@dataclass(frozen=True)
class EpochEnd:
    """An evaluation that fell on the end of an epoch.

    Attributes:
        epoch: passes that are complete, from 1.
        step: optimizer steps taken.
        value: primary metric on the selection split.
    """

    epoch: int
    step: int
    value: float


class Watch:
    """Looks on and never interferes. Whatever a watch goes by is in `TrainingState`, so that a resumed run
    decides the same.

    An end decided by `after_epoch` is an ordinary end: the best weights so far are scored, and status.json says why.
    """

    def after_step(self, outcome: TrainingState) -> None:
        """A step is over; its loss is the last of `outcome.last_losses`.

        Raises:
            DivergedError: the run is lost.
        """

    def after_epoch(self, end: EpochEnd, outcome: TrainingState) -> str:  # noqa: ARG002
        """An epoch is over and scored. Empty to go on, else the reason why the run ends here."""
        return ""


NOBODY = Watch()
