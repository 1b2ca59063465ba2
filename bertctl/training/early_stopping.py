"""Early-stopping callbacks.

The default one never stops a run; sweeps use `sweeps/early_stopping.py`.
"""

from bertctl.training.loop.loop import TrainingState


class EarlyStopping:
    """Never ends a run; subclasses may.

    A decision rests on `TrainingState` alone, so that a resumed run decides the same. A run that
    `after_epoch` stops ends as any other: its best weights are scored, and status.json says why it
    stopped.
    """

    def after_step(self, state: TrainingState) -> None:
        """Looks at the loss of a step, the last of `state.last_losses`.

        Raises:
            DivergedError: the run is lost.
        """

    def after_epoch(self, epoch: int, state: TrainingState) -> str:  # noqa: ARG002
        """Returns why the run ends after this epoch; an empty string to go on.

        The epoch (counted from 1) was scored.
        """
        return ""


NO_EARLY_STOPPING = EarlyStopping()
