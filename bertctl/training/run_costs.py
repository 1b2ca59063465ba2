"""What a run costs, in units of work and in seconds: guesses before anything was measured.

A step is counted by the work in its batch (padded tokens, and their pairs in the attention), as
batches of short texts take less time.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Floats, Ints
from bertctl.modeling.families import model_sizes
from bertctl.runtime.batching import Plan

if TYPE_CHECKING:
    from bertctl.training.job import Job

_WORK_OF_SCORING = 1 / 3
"""Time for a token that is scored, as a share of that for one that is trained on: there is no
backward pass."""
_BYTES_PER_SECOND = 250e6
"""Guess of how fast weights are written and hashed, until it is measured."""
_LEAST_CLOSING = 0.5  # seconds
_CLOSING_SHARE_OF_LOADING = 0.4
"""Time of reports, tables and the end of the process, as a share of that of loading the model: on a
busy machine both take longer."""
_MOST_BATCHES = 20_000
"""Batches of an epoch whose work is computed; the others are like them."""
_USUAL_WIDTH = 768
"""Width of an encoder whose config.json has none."""


@dataclass
class RunCosts:
    """What a run costs beside its training steps: guesses, until something was measured.

    Work is counted in units of training: an evaluation of work 5 takes as long as training batches
    of work 5.

    Attributes:
        scoring_work: Work of scoring the selection split.
        saving_seconds: Seconds of saving the weights, where an evaluation is the best one.
        others_share: Work of scoring the other splits, as a share of `scoring_work`.
        closing_seconds: Seconds after the last scoring: the last checkpoint, intervals, files, the
            end.
        scorings_at_end: How many times the selection split is scored after the last evaluation.
        evaluation_work: Work of an evaluation with all that belongs to it, once it was measured.
    """

    scoring_work: float
    saving_seconds: float = 0.0
    others_share: float = 0.0
    closing_seconds: float = 0.0
    scorings_at_end: int = 0
    evaluation_work: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether an evaluation was measured."""
        return self.evaluation_work is not None

    def note_evaluation(self, seconds: float, scoring_seconds: float, pace: float) -> None:
        """Notes the costs of an evaluation that was measured.

        Args:
            seconds: Of the whole evaluation, with saving the weights.
            scoring_seconds: Of the scoring alone.
            pace: Present seconds of a unit of work.
        """
        self.evaluation_work = seconds / pace
        self.scoring_work = scoring_seconds / pace

    def evaluation(self, pace: float) -> float:
        """Returns the seconds of an evaluation, at a pace (seconds for a unit of work)."""
        if self.evaluation_work is not None:
            return pace * self.evaluation_work
        return pace * self.scoring_work + self.saving_seconds

    def closing(self, pace: float) -> float:
        """Returns the seconds after the last evaluation, at a pace."""
        scoring = pace * self.scoring_work
        return scoring * (self.others_share + self.scorings_at_end) + self.closing_seconds


class RunWork:
    """Work of batches and rows: padded tokens, and their pairs as the attention computes them."""

    def __init__(self, job: "Job") -> None:
        self._lengths = job.training_features.lengths
        self._padding = job.loaded.padding
        self._parts = job.recipe.training.accumulation_steps
        self._hidden_size = model_sizes(job.source.config)["hidden"] or _USUAL_WIDTH

    def of_batches(self, batches: Plan) -> Floats:
        """Returns the (B,) work of training batches.

        Only the first of very many are computed; the others count as their mean.
        """
        computed = np.array([self._of_batch(batch) for batch in batches[:_MOST_BATCHES]])
        assumed = np.full(len(batches) - len(computed), computed.mean())
        return np.concatenate([computed, assumed])

    def of_rows(self, lengths: Any) -> float:
        """Returns the work of training on rows of these lengths, without padding."""
        widths = np.asarray(lengths, dtype=np.float64)
        return float(self._of_width(widths).sum())

    def _of_batch(self, batch: Ints) -> float:
        """Returns the work of a batch, padded in each of its micro-batches."""
        parts = [part for part in np.array_split(batch, self._parts) if len(part)]
        shapes = [self._padding.mask(self._lengths[part]).shape for part in parts]
        return float(sum(rows * self._of_width(width) for rows, width in shapes))

    def _of_width(self, width: Any) -> Any:
        """Returns the work of a row of `width` tokens, or of an array of them: tokens, and pairs.

        The unit is a token without its share of attention. A layer takes 24 d^2 operations for a
        token of d numbers, and 4 d for a pair of tokens. So a pair counts as 1 / (6 d) tokens.
        """
        return width * (1.0 + width / (6.0 * self._hidden_size))


def guessed_costs(job: "Job", work: RunWork) -> RunCosts:
    """Returns what a run costs beside its steps, guessed before anything was measured.

    These are the scoring of the splits and the saving of weights and checkpoints.

    Args:
        job: Made ready.
        work: Returns the work of training on rows. Its unit is a token.
    """
    training = job.recipe.training
    selected = work.of_rows(job.features[job.selection].lengths)
    # The selection split is scored at each evaluation, the others once, with the final weights.
    other_splits = [split for split in job.evaluated if split != job.selection]
    other_work = sum(work.of_rows(job.features[split].lengths) for split in other_splits)

    model_bytes = 4 * sum(parameter.numel() for parameter in job.loaded.network.parameters())
    # After the last scoring: intervals, files, and the end of the process.
    closing = max(_LEAST_CLOSING, _CLOSING_SHARE_OF_LOADING * job.seconds.get("load", 0.0))
    if training.checkpoint_every == "off":
        checkpoint_bytes = 0
    else:
        checkpoint_bytes = job.checkpoint_size
    return RunCosts(
        scoring_work=_WORK_OF_SCORING * max(1.0, selected),
        saving_seconds=model_bytes / _BYTES_PER_SECOND,
        others_share=other_work / max(1.0, selected),
        closing_seconds=checkpoint_bytes / _BYTES_PER_SECOND + closing,
        scorings_at_end=1 if training.average_best else 0,
    )
