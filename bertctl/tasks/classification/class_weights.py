"""How much each class counts in the training loss."""

from collections.abc import Sequence

import numpy as np

from bertctl.arrays import Array
from bertctl.config.recipe_sections import TrainingSection
from bertctl.errors import UsageError
from bertctl.words import listing


def check_weights(training: TrainingSection, labels: Sequence[str]) -> None:
    """Refuses a list of class weights that is not one per label.

    Args:
        training: Section of the recipe that may have the list.
        labels: Names in the model's order.

    Raises:
        UsageError: The numbers differ; the message has both, and the order of the labels.
    """
    weights = training.class_weights
    if isinstance(weights, list) and len(weights) != len(labels):
        message = f"training.class_weights: {len(weights)} given, for {len(labels)} labels"
        raise UsageError(
            message, remedy=f"Give one for each, in this order: {listing(labels)}; or `balanced`."
        )


def class_weights(
    training: TrainingSection, gold: Array, labels: Sequence[str]
) -> tuple[float, ...] | None:
    """Returns the weight of each of C labels in the loss, or None where all count the same.

    Balanced weights make rare labels count as much as frequent ones. A label that no example has
    gets 1.

    Args:
        training: Section of the recipe whose `class_weights` is a list of C weights, "balanced" or
            None.
        gold: (N,) numbers of the labels of the training examples; or (N, C) 0 and 1, several labels
            per example.
        labels: C names, in the model's order.

    Raises:
        UsageError: A list that is not one for each label.
    """
    check_weights(training, labels)
    weights = training.class_weights
    if weights is None:
        return None
    if isinstance(weights, list):
        return tuple(weights)

    if gold.ndim == 2:
        # The examples that have a label weigh as much together as those that lack it.
        present = gold.astype(np.float64).sum(axis=0)
        absent = len(gold) - present
        return tuple(float(a / p) if p and a else 1.0 for p, a in zip(present, absent, strict=True))

    # All labels weigh the same together: N / (number of labels that occur * count of the label).
    counts = np.bincount(gold.astype(np.int64), minlength=len(labels))
    n_present = int((counts > 0).sum())
    return tuple(float(counts.sum() / (n_present * count)) if count else 1.0 for count in counts)
