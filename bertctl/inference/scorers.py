"""How batches of a task's windows are scored: by a network of torch, or by a converted model.

The forward pass of `engine.py` knows neither: it asks the backend for a scorer, and gets arrays.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from bertctl.arrays import Array, Floats32, Ints
from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import ConvertibleFeatures, Features, Task, TaskObjective
from bertctl.tasks.batches import ArrayBatch, Batch

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Scorer(Protocol):
    """What scores the batches of one forward pass."""

    def batch(self, features: Any, indices: Ints) -> Any:
        """Returns some windows, padded, where the model reads them."""

    def forward(self, batch: Any) -> Any:
        """Returns the numbers that answers and losses are made of: a tensor or an array."""

    def losses(self, outputs: Any, batch: Any) -> Floats32 | None:
        """Returns the (B,) losses of the windows.

        It is None where they have no labels, or no losses of their own.
        """

    def each(
        self, work: Callable[[_In], _Out], items: Iterable[_In], threads: int
    ) -> Iterator[_Out]:
        """Yields what some work makes of each item, in their order.

        Args:
            work: A forward pass over an item.
            items: Batches.
            threads: Number of threads that may each compute an item of their own.
        """


@dataclass(frozen=True)
class TorchScorer:
    """Scores with torch.

    Attributes:
        objective: Makes batches, reads the outputs, and computes the losses.
        backend: Called with tensors by name.
        device: Where the tensors go.
    """

    objective: TaskObjective
    backend: Callable[..., Any]
    device: str

    def batch(self, features: Features, indices: Ints) -> Batch:
        """Returns some windows as tensors on the device."""
        rng = WindowRandom(0)  # what an objective draws is the same in every evaluation
        batch: Batch = self.objective.batch(features, indices, rng)
        return batch.to(self.device)

    def forward(self, batch: Batch) -> Any:
        """Returns what the objective reads of the network's outputs."""
        return self.objective.forward(self.backend, batch)

    def losses(self, outputs: Any, batch: Batch) -> Floats32 | None:
        """Returns the losses that the objective reports."""
        if batch.labels is None:
            return None
        losses = self.objective.window_losses(outputs, batch)
        if losses is None:
            return None
        return np.asarray(losses.cpu().numpy())

    def each(
        self, work: Callable[[_In], _Out], items: Iterable[_In], threads: int
    ) -> Iterator[_Out]:
        """Yields the result of each item. With 2 to 4 threads, each thread computes whole items."""
        from bertctl.runtime.side_by_side import side_by_side

        return side_by_side(work, items, threads)


class TensorBackend:
    """Base of the backends that are called with tensors of torch."""

    def __call__(self, **inputs: Any) -> Any:
        """Returns the outputs for a batch as attributes."""
        raise NotImplementedError

    def scorer(self, task: Task, padding: Padding, device: str) -> Scorer:
        """Returns what scores a task's batches by its objective."""
        return TorchScorer(task.objective(padding), self, device)


@dataclass(frozen=True)
class ArrayScorer:
    """Scores with a converted model, in arrays alone.

    Attributes:
        task: Reads the outputs, and computes the losses.
        backend: Called with arrays by name.
        padding: How batches are filled up.
    """

    task: Task
    backend: Callable[..., Any]
    padding: Padding

    def batch(self, features: ConvertibleFeatures, indices: Ints) -> ArrayBatch:
        """Returns some windows as arrays."""
        return features.arrays(indices, self.padding)

    def forward(self, batch: ArrayBatch) -> Array:
        """Returns what the task reads of the outputs."""
        return self.task.array_outputs(self.backend(**batch.inputs))

    def losses(self, outputs: Array, batch: ArrayBatch) -> Floats32 | None:
        """Returns the losses that the task reports."""
        if batch.labels is None:
            return None
        return self.task.array_losses(outputs, batch)

    def each(
        self,
        work: Callable[[_In], _Out],
        items: Iterable[_In],
        threads: int,  # noqa: ARG002
    ) -> Iterator[_Out]:
        """Yields results of one item after the other: the runtime has threads of its own."""
        return map(work, items)
