"""The forward and backward passes of a step as CUDA graphs.

A CPU takes ten times as long to start the kernels of a BERT's step, some hundred small ones, as a
GPU to compute them. Those of a batch whose shape was met before are recorded once, and from then on
started all at once: the same kernels, with the same random numbers
(https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs).

Letters: K losses.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bertctl.runtime.torch_internals import fill_with_zeros
from bertctl.tasks.batches import Batch

if TYPE_CHECKING:
    from torch import Tensor, nn

Passes = Callable[[Batch, "Tensor"], "Tensor"]
"""Takes a batch and what each of its losses is divided by, (K,), both on the device; adds to the
gradients and returns the losses, (K,)."""


@dataclass(frozen=True)
class _Recorded:
    """Recorded passes for batches of one shape. They compute on fixed tensors.

    Attributes:
        graph: The CUDA graph.
        inputs: Tensors that a batch and its divisors are copied into before the graph is replayed.
        losses: (K,) tensor that the graph writes the losses to.
    """

    graph: Any
    inputs: "list[Tensor]"
    losses: "Tensor"


@dataclass
class StepGraphs:
    """Runs the passes of a step, as recorded CUDA graphs where the shape of the batch recurs.

    The first batch of a shape is computed as usual, which makes its kernels. The second one is
    recorded, and all later ones are replayed.

    Attributes:
        parameters: Parameters that are trained.
        is_off: Whether nothing is recorded any more.
    """

    parameters: "Iterable[nn.Parameter]"
    is_off: bool = False
    # By shape; None for a shape that was computed once.
    _recorded: dict[Any, _Recorded | None] = field(default_factory=dict)
    # Tensors that the recorded kernels add gradients to.
    _gradients: "dict[nn.Parameter, Tensor]" = field(default_factory=dict)

    def run(self, passes: Passes, batch: Batch, divisors: "Tensor") -> "Tensor":
        """Does what `passes` does, and returns its (K,) losses.

        The first batch of a shape is computed as usual. The second one is recorded as a CUDA graph,
        which is replayed for it and for all later ones.

        Args:
            passes: The same in each call.
            batch: On the CPU or the device.
            divisors: (K,) what each loss is divided by, on the CPU or the device.
        """
        tensors = [*batch.tensors().values(), divisors]
        # What differs between kernels: the shapes, and the batch's fields that are no tensors.
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        constants = tuple(value for value in vars(batch).values() if type(value) is tuple)
        key = (shapes, constants)
        self._keep_gradients()  # recorded kernels need the same gradient tensors in each step
        is_first_of_shape = key not in self._recorded
        if self.is_off or is_first_of_shape:
            self._recorded[key] = None  # seen, and not yet recorded
            losses = passes(batch.to("cuda"), divisors.to("cuda"))
            self._gradients |= {
                parameter: parameter.grad
                for parameter in self.parameters
                if parameter.grad is not None
            }
            return losses
        recorded = self._recorded[key] or self._record(key, passes, batch, divisors)
        for fixed, tensor in zip(recorded.inputs, tensors, strict=True):
            fixed.copy_(tensor, non_blocking=True)
        recorded.graph.replay()
        return recorded.losses.clone()

    def _record(self, key: Any, passes: Passes, batch: Batch, divisors: "Tensor") -> _Recorded:
        """Records the passes of a batch as a CUDA graph, and keeps it for batches of its shape."""
        import torch

        device_batch = batch.to("cuda")
        divisors = divisors.to("cuda")
        graph = torch.cuda.CUDAGraph()
        # Only one graph runs at a time, so all share the memory of the first one. The entry of a
        # shape that was seen once, and not yet recorded, is None.
        earlier_graphs = [entry.graph for entry in self._recorded.values() if entry is not None]
        if earlier_graphs:
            pool = earlier_graphs[0].pool()
        else:
            pool = None
        # Another thread may write a checkpoint meanwhile, which a capture for all threads refuses.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            losses = passes(device_batch, divisors)
        self._recorded[key] = recorded = _Recorded(
            graph, [*device_batch.tensors().values(), divisors], losses
        )
        return recorded

    def turn_off(self) -> bool:
        """Deletes all graphs, and records none any more. Returns whether any existed."""
        had_some = any(self._recorded.values())
        self.is_off = True
        self._recorded.clear()
        return had_some

    def _keep_gradients(self) -> None:
        """Gives cleared parameters their old gradient tensors, filled with zeros.

        `zero_grad` sets gradients to None, but recorded kernels add to the tensors that were there.
        """
        cleared = {
            parameter: gradient
            for parameter, gradient in self._gradients.items()
            if parameter.grad is None
        }
        if cleared:
            fill_with_zeros([*cleared.values()])
        for parameter, gradient in cleared.items():
            parameter.grad = gradient
