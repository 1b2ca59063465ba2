"""The losses that evaluation reports, in numpy: for converted models, which answer without torch.

Letters: B windows in a batch, C classes.
"""

from collections.abc import Sequence

import numpy as np

from bertctl.arrays import Array, Floats32, Ints
from bertctl.tasks.batches import IGNORED


def cross_entropies(logits: Array, labels: Ints) -> Floats32:
    """Returns (...) losses of one class each; 0 where the label is `IGNORED`.

    Args:
        logits: (..., C).
        labels: (...) numbers of classes.
    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    is_counted = labels != IGNORED
    gold = np.where(is_counted, labels, 0)[..., None]
    of_gold = np.take_along_axis(shifted, gold, axis=-1)[..., 0]
    losses = np.log(np.exp(shifted).sum(axis=-1)) - of_gold
    return np.where(is_counted, losses, 0.0).astype(np.float32)


def binary_cross_entropies(logits: Array, targets: Array) -> Floats32:
    """Returns the binary cross-entropy of each logit with its target, 0 or 1, in their shape.

    It is log(1 + e^x) - x t, in the form that does not overflow.
    """
    losses = np.maximum(logits, 0) - logits * targets + np.log1p(np.exp(-np.abs(logits)))
    return np.asarray(losses, dtype=np.float32)


def choice_cross_entropies(scores: Array, labels: Ints, counts: Sequence[int]) -> Floats32:
    """Returns (B,) losses of rows over their own choices.

    Args:
        scores: Scores of the choices of all rows, row after row.
        labels: (B,) number of the right choice within its row.
        counts: Choices of each row.
    """
    # (B, most choices): minus infinity, a probability of 0, where a row has fewer choices.
    by_row = np.full((len(counts), max(counts)), -np.inf, dtype=np.float32)
    is_choice = np.arange(max(counts)) < np.array(counts)[:, None]
    by_row[is_choice] = scores
    return cross_entropies(by_row, labels)


def span_cross_entropies(scores: Array, labels: Ints, mask: Array) -> Floats32:
    """Returns (B,) losses of windows: the mean over start and end.

    Args:
        scores: (B, T, 2) of each token as start and as end.
        labels: (B, 2) positions of start and end, or `IGNORED`.
        mask: (B, T) 1 where there is no padding.
    """
    is_token = mask[:, :, None] > 0
    masked_scores = np.where(is_token, scores, -np.inf)
    losses = cross_entropies(masked_scores.transpose(0, 2, 1), labels)
    return np.asarray(losses.mean(axis=1), dtype=np.float32)


def squared_errors(scores: Array, labels: Array, *, mean: float, deviation: float) -> Floats32:
    """Returns (B,) squared errors of standardised scores.

    Args:
        scores: (B,) answers.
        labels: (B,) gold scores, float64.
        mean: Mean of the training scores.
        deviation: Standard deviation of the training scores.
    """
    center = float(np.float32(mean))  # as torch has it, so that both losses are equal
    gold = ((labels.astype(np.float64) - center) / deviation).astype(np.float32)
    answers = ((scores - np.float32(center)) / np.float32(deviation)).astype(np.float32)
    return np.asarray((answers - gold) ** 2)
