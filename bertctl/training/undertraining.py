"""Signs that a training ended before the model was done learning."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertctl.training.job import Job

_LAST_SHARE = 0.25
"""Share of the logged training losses, the last ones, whose mean stands for the end of the training."""


def undertrained_losses(history: Sequence[Mapping[str, Any]], *, selection: str, best_step: int) -> list[float]:
    """Returns the validation losses of a training that ended too early; an empty list where nothing says so.

    It did if the last evaluation was the best one, the validation loss still fell there, and the training loss is not
    lower than it: nothing was learned by heart yet.

    Args:
        history: Lines of history.jsonl.
        selection: The split that picks the weights.
        best_step: The step whose weights were kept.
    """
    held_out = [(line["step"], line[f"{selection}_loss"]) for line in history if f"{selection}_loss" in line]
    training = [float(line["loss"]) for line in history if "loss" in line]
    if len(held_out) < 2 or not training:
        return []

    losses = [float(loss) for _, loss in held_out]
    last = training[-max(1, round(_LAST_SHARE * len(training))) :]
    is_best_last = held_out[-1][0] == best_step
    falls = losses[-1] < losses[-2] and losses[-1] < losses[0]
    is_learned_by_heart = sum(last) / len(last) < losses[-1]
    return losses if is_best_last and falls and not is_learned_by_heart else []


def undertraining_words(job: Job, losses: Sequence[float], *, recipe_file: str) -> str:
    """Returns the warning about these losses, with what to type."""
    shown = ", ".join(f"{loss:.4f}" for loss in losses[-4:])
    epochs = job.recipe.training.epochs
    return (
        f"the last evaluation was the best one, and the {job.selection} loss still fell ({shown}): the model may not "
        f"be done learning. Train longer (--epochs {2 * epochs:g}), or with the learning rate that "
        f"`bertctl lr-find {recipe_file}` suggests"
    )
