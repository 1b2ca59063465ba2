"""The weights of the best evaluations, and their mean (Izmailov et al. 2018).

They are kept while a run goes on.

They are files in RUN/checkpoints/average, each written atomically; a checkpoint has copies of those
that count at its step, so that a killed run finds them again.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertctl.modeling.model import Model
from bertctl.run_folder import RunFolder
from bertctl.training.checkpoints.checkpoint import average_file
from bertctl.training.loop.loop import Evaluation, TrainingState
from bertctl.writing import replacing

if TYPE_CHECKING:
    from torch import Tensor


class BestWeights:
    """Weights of the best `keep` evaluations of a run.

    Args:
        folder: the run.
        keep: how many.
        higher_is_better: direction of the primary metric.
        writes: whether this process writes the files.
        breaks_ties: Whether the lower loss is better where the metric is the same. Else the earlier
            one is.
    """

    def __init__(
        self,
        folder: RunFolder,
        keep: int,
        *,
        higher_is_better: bool,
        writes: bool,
        breaks_ties: bool = False,
    ) -> None:
        self._folder = folder
        self._keep = keep  # weights of how many evaluations are kept
        self._sign = 1.0 if higher_is_better else -1.0
        self._writes = writes  # whether this process writes the files
        self._breaks_ties = breaks_ties  # of two equal values, the one with the lower loss is best

    def offer(self, state: TrainingState, evaluation: Evaluation, model: Model) -> None:
        """Keeps the weights as they are if this evaluation is one of the best so far.

        Args:
            state: its `ranked` is changed.
            evaluation: Scores of the weights at its `step`.
            model: has these weights.

        Raises:
            UnavailableError: the disk is full, or the place can't be written.
        """
        if not math.isfinite(evaluation.value):
            return
        before = {step for _, step in state.ranked}
        # A checkpoint of an earlier release has no losses; a missing one counts as the highest.
        loss_of = dict(zip((step for _, step in state.ranked), state.ranked_losses, strict=False))
        loss_of[state.step] = evaluation.loss

        def order(entry: tuple[float, int]) -> tuple[float, float, int]:
            """Sorts evaluations from the best to the worst; of equal ones the earlier is first."""
            value, step = entry
            if self._breaks_ties:
                loss = loss_of.get(step, math.inf)
            else:
                loss = 0.0
            return -self._sign * value, loss, step

        ranked = sorted([*state.ranked, (evaluation.value, state.step)], key=order)
        ranked = ranked[: self._keep]
        kept_steps = {step for _, step in ranked}
        if self._writes and state.step in kept_steps:
            from safetensors.torch import save_file

            from bertctl.modeling.fast.used_tokens import save_with_tables

            with replacing(average_file(self._folder, state.step)) as aside:
                save_with_tables(
                    lambda tensors: save_file(tensors, aside), model.copy_weights(), aside
                )
        state.ranked = ranked
        state.ranked_losses = [loss_of.get(step, math.inf) for _, step in ranked]
        if self._writes:
            for step in before - kept_steps:
                average_file(self._folder, step).unlink(missing_ok=True)

    def average_into(self, model: Model, state: TrainingState) -> None:
        """Gives the model the mean of the weights that were kept, in fp32."""
        model.set_weights(mean_of([average_file(self._folder, step) for _, step in state.ranked]))


def mean_of(paths: Sequence[Path]) -> "dict[str, Tensor]":
    """Returns the mean of the tensors of equal names in safetensors files, in fp32.

    Tensors of integers are those of the first file.
    """
    from safetensors.torch import load_file

    mean = load_file(paths[0])
    floats = [name for name, tensor in mean.items() if tensor.is_floating_point()]
    for path in paths[1:]:
        tensors = load_file(path)
        for name in floats:
            mean[name] += tensors[name]
    for name in floats:
        mean[name] /= len(paths)
    return mean
