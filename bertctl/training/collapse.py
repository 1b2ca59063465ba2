"""Collapse: a model that gives every example the same answer."""

from bertctl.errors import CollapsedError
from bertctl.inference.evaluate import SplitResult
from bertctl.progress import Listener
from bertctl.training.loop.loop import TrainingState


def look_for_collapse(
    result: SplitResult, state: TrainingState, *, epoch_over: bool, strict: bool, listener: Listener
) -> None:
    """Warns if the model has collapsed: if it gives every example the same answer.

    The losses of the last epochs, as long as they all ended in a collapse, are kept in the training
    state.

    Args:
        result: of the evaluation.
        state: of the training.
        epoch_over: whether an epoch ends here.
        strict: whether a collapse is an error.
        listener: receives the warning, if a collapse is no error.

    Raises:
        CollapsedError: a collapse, under `strict`.
    """
    answer = result.task.answers.constant_prediction(result.lines)
    if epoch_over:
        loss = result.metrics["loss"].value
        if answer is not None:
            state.collapsed_losses = [*state.collapsed_losses, loss]
        else:
            state.collapsed_losses = []
    if answer is None:
        return
    message = (
        f"step {state.step}: the model answers {answer} to every example of {result.rows.split}"
    )
    if strict:
        raise CollapsedError(
            message,
            remedy="Try a lower `optimizer.learning_rate=`, another `training.seed=`, a longer "
            "warm-up (`optimizer.warmup_fraction=0.2`); without `strict=True` this is a warning.",
        )
    listener.warn(message)
