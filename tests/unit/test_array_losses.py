"""Losses in numpy against those of torch's objectives, which training and evaluation report."""

import numpy as np
import pytest
import torch

from bertctl.runtime.batching import Padding
from bertctl.tasks.array_losses import (
    binary_cross_entropies,
    choice_cross_entropies,
    cross_entropies,
    span_cross_entropies,
    squared_errors,
)
from bertctl.tasks.batches import IGNORED, Batch
from bertctl.tasks.choice.choices import ChoiceBatch
from bertctl.tasks.objectives import (
    BinaryCrossEntropy,
    ChoiceCrossEntropy,
    CrossEntropy,
    SpanCrossEntropy,
    SquaredError,
)

RNG = np.random.default_rng(0)
PADDING = Padding(0)


def logits_of(*shape: int) -> np.ndarray:
    """Logits of which some are far from 0, where an exponential would overflow."""
    values = RNG.normal(size=shape).astype(np.float32) * 3
    values.reshape(-1)[::7] *= 100
    return values


def tensors(labels: np.ndarray, **inputs: np.ndarray) -> Batch:
    arrays = {name: torch.from_numpy(values) for name, values in inputs.items()}
    return Batch(arrays, torch.from_numpy(labels))


def assert_alike(ours: np.ndarray, theirs: torch.Tensor) -> None:
    assert ours.dtype == np.float32
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=2e-6, atol=2e-6)


def test_one_class_each() -> None:
    logits = logits_of(9, 4)
    labels = RNG.integers(4, size=9)
    theirs = CrossEntropy(PADDING).window_losses(torch.from_numpy(logits), tensors(labels))
    assert_alike(cross_entropies(logits, labels), theirs)


def test_a_class_for_each_word_that_has_one() -> None:
    logits = logits_of(3, 5, 4)
    labels = RNG.integers(4, size=(3, 5))
    labels[0, 2:] = IGNORED
    labels[1] = IGNORED
    theirs = CrossEntropy(PADDING).window_losses(torch.from_numpy(logits), tensors(labels))
    ours = cross_entropies(logits, labels)
    assert not ours[1].any()
    assert_alike(ours.sum(axis=1), theirs)


def test_several_labels() -> None:
    logits = logits_of(6, 3)
    labels = RNG.integers(2, size=(6, 3)).astype(np.float32)
    theirs = BinaryCrossEntropy(PADDING).window_losses(torch.from_numpy(logits), tensors(labels))
    assert_alike(binary_cross_entropies(logits, labels).mean(axis=1), theirs)


def test_choices_of_rows_that_have_different_numbers() -> None:
    counts = (2, 4, 1, 3)
    scores = logits_of(sum(counts))
    labels = np.array([1, 2, 0, 0])
    batch = ChoiceBatch({}, torch.from_numpy(labels), counts)
    theirs = ChoiceCrossEntropy(PADDING).window_losses(torch.from_numpy(scores), batch)
    assert_alike(choice_cross_entropies(scores, labels, counts), theirs)


def test_starts_and_ends_without_padding() -> None:
    scores = logits_of(4, 6, 2)
    labels = np.array([[1, 2], [0, 0], [IGNORED, IGNORED], [3, 3]])
    mask = np.arange(6) < np.array([6, 2, 5, 4])[:, None]
    batch = tensors(labels, attention_mask=mask.astype(np.int64))
    theirs = SpanCrossEntropy(PADDING).window_losses(torch.from_numpy(scores), batch)
    assert_alike(span_cross_entropies(scores, labels, mask), theirs)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (2.5, 0.3), (1e9, 0.5)])
def test_scores_on_any_scale(mean: float, deviation: float) -> None:
    scores = (mean + RNG.normal(size=(8, 1))).astype(np.float32)
    labels = mean + RNG.normal(size=8)
    objective = SquaredError(PADDING, deviation, mean)
    standardised = (torch.from_numpy(labels) - objective._center) / deviation
    batch = Batch({}, standardised.float())
    theirs = objective.window_losses(torch.from_numpy(scores), batch)
    assert_alike(squared_errors(scores[:, 0], labels, mean=mean, deviation=deviation), theirs)
