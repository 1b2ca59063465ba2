"""What a head start reads: a sample of the training windows, as vectors of the last layer.

Letters: U windows of the sample, N predictions (rows, words or choices), D size of a vector.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from bertctl.arrays import Array, Floats32, Ints
from bertctl.inference.engine import Engine
from bertctl.progress import Listener
from bertctl.runtime.batching import Padding
from bertctl.runtime.launch import Workers
from bertctl.tasks.base import Features, Task
from bertctl.tasks.batches import Batch
from bertctl.training.job import Job

_SHARE = 0.08
"""Share of the run's time that reading the sample may take; fitting comes on top."""

_READING = 1 / 3
"""Time for a token that is read, as a share of that for one that is trained on: there is no
backward pass."""

_FEWEST = 200
"""Rows that are read of a run however short it is."""

_MOST_ROWS = 20_000

_MOST_NUMBERS = 1 << 24
"""Of the vectors: 64 MB."""

_BATCH = 64


def sampled_windows(job: Job, *, at_most: int = _MOST_ROWS) -> Ints:
    """Returns the numbers of the training windows that may be read, ascending.

    These are all windows, or a sample that can be read in about a tenth of the run's time. Each
    label has about its share in the sample, and at least one row.

    Args:
        job: Made ready.
        at_most: Windows that a time limit leaves time for.
    """
    from bertctl.modeling.heads import last_layer

    features = job.features["train"]
    _, last = last_layer(job.loaded.network)
    # Reading may take `_SHARE` of the time of all training steps. To read a window takes `_READING`
    # of the time that it takes to train on it.
    n_in_time = int(_SHARE / _READING * job.steps * job.recipe.training.batch_size)
    n_windows = len(features)
    predictions_per_window = max(1.0, features.num_predictions / max(1, n_windows))
    n_in_memory = int(_MOST_NUMBERS / last.in_features / predictions_per_window)
    size = min(_MOST_ROWS, max(_FEWEST, n_in_time), at_most, n_in_memory)
    if n_windows <= size:
        return np.arange(n_windows)

    rng = np.random.default_rng(job.recipe.training.seed_of_init)
    order = rng.permutation(n_windows)
    labels = features.prediction_labels()
    # Windows with one class label each are sampled by label. Scores, or a label for each word or
    # choice, give no label to a window.
    is_class = labels is not None and labels.dtype.kind == "i"
    if labels is not None and is_class and len(labels) == n_windows:
        order = _stratified(order, labels)
    return np.sort(order[:size])


def _stratified(order: Ints, labels: Ints) -> Ints:
    """Returns rows in an order in which the first n have about the label shares of all rows.

    The first row of each label comes before all others, so that a rare label is not missed.

    Args:
        order: (N,) row numbers in a random order.
        labels: (N,) label numbers by row number.
    """
    shuffled = labels[order]
    by_label = np.argsort(shuffled, kind="stable")
    counts = np.bincount(shuffled)
    starts = np.cumsum(counts) - counts
    # The rank of a row counts the earlier rows of its label. Divided by the label's number of rows,
    # it spreads the rows of each label evenly from 0 to 1.
    rank = np.empty(len(order), dtype=np.float64)
    rank[by_label] = np.arange(len(order)) - np.repeat(starts, counts)
    position = rank / counts[shuffled]
    return order[np.argsort(position, kind="stable")]


class SampledFeatures:
    """Some windows of a split, without their labels.

    Args:
        features: The split.
        windows: (U,) numbers of its windows, ascending.
    """

    def __init__(self, features: Features, windows: Ints) -> None:
        self._features = features
        self._windows = windows

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def lengths(self) -> Ints:
        """(U,) tokens of each window."""
        return self._features.lengths[self._windows]

    @cached_property
    def predictions(self) -> Ints:
        """(N,) numbers of the split's predictions that these windows make, ascending."""
        if not len(self._windows):
            return np.zeros(0, dtype=np.int64)
        return np.sort(self._features.prediction_indices(self._windows))

    @property
    def num_predictions(self) -> int:
        """How many predictions these windows make."""
        return len(self.predictions)

    def prediction_indices(self, indices: Ints) -> Ints:
        """Returns which of `predictions` some of these windows make, as indices.

        Args:
            indices: Numbers among these windows.
        """
        return np.searchsorted(
            self.predictions, self._features.prediction_indices(self._windows[indices])
        )

    def collate(self, indices: Ints, padding: Padding) -> Batch:
        """Returns some windows as padded tensors."""
        return replace(self._features.collate(self._windows[indices], padding), labels=None)

    @property
    def labels(self) -> Array:
        """(N,) or (N, C) labels of the predictions; of choices, whether each is the right one.

        Raises:
            ValueError: The split has no labels.
        """
        labels = self._features.prediction_labels()
        if labels is None:
            raise ValueError("the split has no labels")
        return labels[self.predictions]


def head_vectors(
    job: Job,
    features: SampledFeatures,
    workers: Workers,
    listener: Listener,
    *,
    dense: Any = None,
) -> Floats32:
    """Returns the (N, D) vectors that the network's last layer reads, one for each prediction.

    The windows go through the network without dropout.

    Args:
        job: Made ready; its network is where it computes.
        features: The windows.
        workers: The processes that share the job; each gets the vectors of all windows.
        listener: Receives progress.
        dense: A layer before the last one. If it is given, its inputs are returned as well, as the
            second half of (N, 2 D) vectors.
    """
    from bertctl.modeling.heads import reading_vectors

    engine = Engine.of(job.loaded, job.compute, workers)
    # Within this context the network returns those vectors in place of logits.
    with reading_vectors(job.loaded.network, dense) as last:
        task = cast(Task, _VectorTask(job.task, last.in_features))
        read = cast(Features, features)
        result = engine.forward(
            task,
            read,
            batch_size=_BATCH,
            phase="starting the head",
            listener=listener,
        )
    return cast(Floats32, result.outputs["logits"].astype(np.float32))


class _VectorTask:
    """A task whose network returns vectors in place of logits, as within `reading_vectors`.

    Args:
        task: The job's task.
        size: D.
    """

    def __init__(self, task: Task, size: int) -> None:
        self._task = task
        self._size = size

    def scored(self, features: Features) -> Features:
        """Returns the windows as they are."""
        return features

    def objective(self, padding: Padding) -> "_VectorObjective":
        """Returns what makes batches and passes them through the network."""
        return _VectorObjective(self._task.objective(padding).batch)

    def collect_outputs(
        self, outputs: Any, batch: Batch, features: SampledFeatures, indices: Ints
    ) -> dict[str, Array]:
        """Returns (P, D) vectors of the windows' predictions."""
        # A network for multiple choice returns one score for each choice, so it reshapes the
        # outputs of its last layer into a column. Here they are vectors, and get their shape back.
        is_column = outputs.dim() == 2 and outputs.shape[1] == 1
        if is_column and self._size != 1:
            outputs = outputs.reshape(-1, self._size)
        return dict(self._task.collect_outputs(outputs, batch, features, indices))


@dataclass(frozen=True)
class _VectorObjective:
    """What makes batches and passes them through the network, and knows no loss."""

    batch: Callable[..., Any]

    def forward(self, network: Any, batch: Batch) -> Any:
        """Returns what the network gives in place of logits, in float32."""
        return network(**batch.inputs).logits.float()
