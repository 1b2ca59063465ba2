"""Signs that a training ended before the model was done learning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LAST_SHARE = 0.25
"""Share of the logged training losses, the last ones, whose mean stands for the end of the
training."""

_LEARNED_BY_HEART = 0.9
"""Training loss, as a share of the validation loss, below which rows are learned by heart. Runs of
3 epochs that more training helped by 20 points and more ended at 0.96 to 0.99, one that it did not
help ended at 0.85."""

_REFERENCE_SHARE = 2 / 3
"""Share of the training after which a score is compared with the last one."""

_PAIRED_NOISE = 0.7
"""Standard error of the difference of two evaluations of one run, over the one of a single score:
most examples get the same answer in both."""

_STANDARD_ERRORS = 2.0
"""Standard errors by which a score has to rise for more than chance."""

_SHARE_OF_RISE = 0.2
"""Share of the whole rise that the last part must have: a curve that has flattened is done."""

_INTERVAL_WIDTH = 3.92
"""Standard errors in a 95 % interval."""


@dataclass(frozen=True)
class StillImproving:
    """Evidence that a run ended while it was still improving.

    Attributes:
        split: The split that picks the weights.
        metric: What improved: the primary metric, or `loss`.
        values: Its values at the last evaluations, the last one last.
        option: What to type to train longer.
    """

    split: str
    metric: str
    values: tuple[float, ...]
    option: str

    @property
    def sentence(self) -> str:
        """The warning, for people."""
        values = ", ".join(f"{value:.4f}" for value in self.values[-4:])
        if self.metric == "loss":
            evidence = f"the {self.split} loss still fell ({values})"
        else:
            evidence = f"{self.split} {self.metric} still rose ({values})"
        return (
            f"the last evaluation was the best one, and {evidence}: the model may not be done "
            f"learning. Train longer with `{self.option}`, or with the learning rate that `bertctl "
            "lr-find` suggests"
        )

    def as_json(self) -> dict[str, Any]:
        """Returns what metrics.json has of it."""
        values = [round(value, 6) for value in self.values]
        return {"split": self.split, "metric": self.metric, "values": values, "option": self.option}


def undertrained_losses(
    history: Sequence[Mapping[str, Any]], *, selection: str, best_step: int
) -> list[float]:
    """Returns the validation losses of a training that ended too early; else none.

    It ended too early if the last evaluation was the best one, if the validation loss still fell
    there, and if the training loss is hardly lower than the validation loss: nothing was learned by
    heart yet.

    Args:
        history: Lines of history.jsonl.
        selection: The split that picks the weights.
        best_step: The step whose weights were kept.
    """
    held_out = [
        (line["step"], line[f"{selection}_loss"]) for line in history if f"{selection}_loss" in line
    ]
    training = [float(line["loss"]) for line in history if "loss" in line]
    if len(held_out) < 2 or not training:
        return []

    losses = [float(loss) for _, loss in held_out]
    last_losses = training[-max(1, round(_LAST_SHARE * len(training))) :]
    is_best_last = held_out[-1][0] == best_step
    falls = losses[-1] < losses[-2] and losses[-1] < losses[0]
    is_learned_by_heart = sum(last_losses) / len(last_losses) < _LEARNED_BY_HEART * losses[-1]
    if is_best_last and falls and not is_learned_by_heart:
        return losses
    return []


def rising_scores(
    history: Sequence[Mapping[str, Any]],
    *,
    selection: str,
    metric: str,
    best_step: int,
    interval_width: float,
    sign: float = 1.0,
) -> list[float]:
    """Returns the scores of a training whose primary metric still rose at its end; else none.

    Three things must be true. The last evaluation was the best one. It beats the best score of the
    first two thirds of the training by more than two standard errors. And the last third brought a
    fifth of the whole rise or more.

    Args:
        history: Lines of history.jsonl.
        selection: The split that picks the weights.
        metric: The primary metric.
        best_step: The step whose weights were kept.
        interval_width: Width of the 95 % interval of the last score.
        sign: 1 where a higher score is better, -1 where a lower one is.
    """
    name = f"{selection}_{metric}"
    scored = [
        (int(line["step"]), sign * float(line[name]))
        for line in history
        if line.get(name) is not None
    ]
    if len(scored) < 3 or scored[-1][0] != best_step:
        return []

    last_step, last_score = scored[-1]
    earlier = [value for step, value in scored[:-1] if step <= _REFERENCE_SHARE * last_step + 0.5]
    if not earlier:
        return []
    # Standard error of one score, from its interval, and then of the difference of two scores.
    standard_error = interval_width / _INTERVAL_WIDTH
    noise = _PAIRED_NOISE * standard_error
    rise = last_score - max(earlier)
    whole_rise = last_score - scored[0][1]
    is_beyond_noise = rise > _STANDARD_ERRORS * noise
    has_flattened = rise < _SHARE_OF_RISE * whole_rise
    if not is_beyond_noise or has_flattened:
        return []
    return [sign * value for _, value in scored]
