"""The one forward pass, used by training, evaluate, predict and all that reads a model's outputs.

An engine is a model ready to compute: what turns padded tensors into outputs (a network of torch,
or a session of another runtime), the tokenizer and padding that go with it, the device, and the
processes that share the work.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from bertctl.arrays import Array, Floats32, Ints
from bertctl.inference.scorers import Scorer, TensorBackend
from bertctl.progress import SILENT, Listener
from bertctl.runtime.batching import Padding, evaluation_plan, token_budget_plan
from bertctl.runtime.device import Compute
from bertctl.runtime.heap import keep_freed_memory
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import Features, Task
from bertctl.tasks.batches import padded_inputs

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor, nn

    from bertctl.modeling.model import Model

_SHORT = 1 << 21
"""Most numbers in the hidden states of a batch that one thread computes alone: 5,461 tokens of
MiniLM, which take it a second."""


class Backend(Protocol):
    """What computes a model's outputs."""

    def __call__(self, **inputs: Any) -> Any:
        """Returns the outputs for a batch as attributes, named as in transformers (`logits`).

        Args:
            inputs: (B, T) input_ids, attention_mask and token_type_ids, as the scorer has them:
                tensors or arrays. Inputs that the model doesn't have are ignored.
        """

    def scorer(self, task: Task, padding: Padding, device: str) -> Scorer:
        """Returns what scores a task's batches."""

    def inference(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which nothing is random and no gradient is kept."""


@dataclass(frozen=True)
class TorchBackend(TensorBackend):
    """A network of torch.

    Attributes:
        network: The model, perhaps wrapped by accelerate.
        has_segments: Whether it takes token type ids.
        compute: Device and precision.
    """

    network: "nn.Module"
    has_segments: bool
    compute: Compute

    def __post_init__(self) -> None:
        """Keeps the memory of a forward pass on a CPU for the next one."""
        if self.compute.device == "cpu":
            keep_freed_memory()

    def __call__(self, **inputs: "Tensor") -> Any:
        """Returns what the network's forward returns; gradients flow if they are on."""
        import torch

        if not self.has_segments:
            inputs.pop("token_type_ids", None)
        # In training (gradients are on) accelerate has already put mixed precision around the
        # network's forward.
        with contextlib.nullcontext() if torch.is_grad_enabled() else autocast(self.compute):
            return self.network(**inputs)

    @contextlib.contextmanager
    def inference(self) -> Iterator[None]:
        """Puts the network into evaluation mode, and back to where it was."""
        import torch

        was_training = self.network.training
        self.network.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            self.network.train(was_training)


@dataclass(frozen=True)
class ForwardResult:
    """What a forward pass over a split gave.

    Attributes:
        outputs: What the task collects, arrays by name with one entry per prediction; empty where
            there was no window.
        losses: (U,) loss of each window, or None where the windows have no labels.
    """

    outputs: dict[str, Array]
    losses: Floats32 | None


@dataclass(frozen=True)
class Engine:
    """A model ready to compute.

    Attributes:
        backend: Turns padded tensors into outputs.
        tokenizer: Turns texts into ids; truncation and padding are off.
        padding: How the model's batches are filled up.
        compute: Device and precision.
        workers: The processes that share the work.
    """

    backend: Backend
    tokenizer: "Tokenizer"
    padding: Padding
    compute: Compute
    workers: Workers = ALONE

    @classmethod
    def of(cls, loaded: "Model", compute: Compute, workers: Workers = ALONE) -> Self:
        """Returns the engine of a loaded model on torch.

        Args:
            loaded: The model; its network is where `compute` says.
            compute: Device and precision.
            workers: The processes that share the work.
        """
        backend = TorchBackend(loaded.network, loaded.has_segments, compute)
        return cls(
            backend,
            loaded.tokenizer,
            loaded.padding,
            compute,
            workers,
        )

    @property
    def network(self) -> Any:
        """Network of torch; None where another runtime computes."""
        return getattr(self.backend, "network", None)

    def at_once(self, tokens: int) -> int:
        """Returns how many batches may be computed at once, each by a thread of its own.

        It is 1, and one batch gets all threads, where that is as fast or safer: on a GPU or another
        runtime, for long batches, for a network in training, whose memory is needed, and for
        networks that may keep state between two calls.

        Args:
            tokens: Most tokens of a batch, padding included.
        """
        network = self.network
        if self.compute.device != "cpu" or network is None:
            return 1
        from bertctl.modeling.fast.torch_bert import Encoder, Network

        if not isinstance(network, Encoder | Network) or network.training:
            return 1
        if tokens * network.config.hidden_size <= _SHORT:
            return self.compute.threads
        return 1

    def forward(
        self,
        task: Task,
        features: Features,
        *,
        batch_size: int,
        phase: str = "evaluating",
        listener: Listener = SILENT,
    ) -> ForwardResult:
        """Returns what the task collects of every window, and the losses of windows with labels.

        Whole batches are dealt out to the processes; each of them gets the whole result.

        Args:
            task: Collects outputs, and knows its losses.
            features: U windows.
            batch_size: Windows per forward pass, of similar lengths.
            phase: What progress calls it.
            listener: Receives progress messages.
        """
        [result] = forward_together(
            [self],
            [task],
            [features],
            batch_size=batch_size,
            phase=phase,
            listener=listener,
        )
        return result

    def line_batches(
        self, lines: Sequence[Any], budget: int
    ) -> "Iterator[tuple[Ints, dict[str, Tensor]]]":
        """Yields batches of lines of similar lengths: (B,) which lines, and their (B, T) inputs.

        The inputs are on the device, by their names.

        Args:
            lines: Each with `ids` and `type_ids`, one for each of its tokens.
            budget: Tokens of a batch, padding included.
        """
        lengths = np.array([len(line.ids) for line in lines], dtype=np.int64)
        for indices in token_budget_plan(lengths, budget, one_length=self.padding.unwanted):
            ids = np.concatenate([lines[i].ids for i in indices])
            type_ids = np.concatenate([lines[i].type_ids for i in indices])
            inputs = padded_inputs(ids, type_ids, lengths[indices], self.padding)
            yield indices, {name: tensor.to(self.compute.device) for name, tensor in inputs.items()}

    def line_outputs(
        self, lines: Sequence[Any], budget: int, **network_options: Any
    ) -> "Iterator[tuple[Ints, Tensor, Any]]":
        """Yields for each batch of `line_batches` which B lines, their (B, T) mask, and outputs.

        Args:
            lines: Lines of tokens.
            budget: Tokens of a batch, padding included.
            network_options: Further arguments of the network, such as `output_attentions`.
        """
        for indices, inputs in self.line_batches(lines, budget):
            with self.backend.inference():
                outputs = self.backend(**inputs, **network_options)
            yield indices, inputs["attention_mask"], outputs


class _Collected:
    """What one engine gives of a split, filled in batch by batch.

    Args:
        engine: Computes.
        task: Collects outputs, and knows its losses.
        features: U windows, as the task scores them.
    """

    def __init__(self, engine: Engine, task: Task, features: Features) -> None:
        self.engine = engine
        self.features = features
        self._task = task
        self._scorer = engine.backend.scorer(task, engine.padding, engine.compute.device)
        # Name of an output -> its array, with an entry for each prediction of the whole split.
        self._outputs: dict[str, Array] = {}
        # (U,) losses of all windows; None if the task has no loss of a single window.
        self._losses: Floats32 | None = None

    @property
    def scorer(self) -> Scorer:
        """What scores the batches."""
        return self._scorer

    def add(self, indices: Ints, batch: Any, batch_outputs: Any) -> None:
        """Puts the outputs and losses of a batch into the arrays of the whole split.

        Args:
            indices: (B,) numbers of the batch's windows.
            batch: The batch.
            batch_outputs: What the network gave for it.
        """
        features = self.features
        # A window may have several predictions, such as one for each word, or none.
        prediction_indices = features.prediction_indices(indices)
        arrays = self._task.collect_outputs(batch_outputs, batch, features, indices)
        for name, values in arrays.items():
            if name not in self._outputs:
                shape = (features.num_predictions, *values.shape[1:])
                self._outputs[name] = np.zeros(shape, dtype=values.dtype)
            self._outputs[name][prediction_indices] = values
        window_losses = self._scorer.losses(batch_outputs, batch)
        if window_losses is not None:
            if self._losses is None:
                self._losses = np.zeros(len(features), dtype=np.float32)
            self._losses[indices] = window_losses

    def result(self, *, has_batches: bool) -> ForwardResult:
        """Returns outputs and losses of all windows, put together from all processes.

        Each batch was computed by one process and is 0 in the arrays of the others. So their sum
        has the results of all batches.

        Args:
            has_batches: Whether this process has batches of its own. Otherwise its arrays are set
                to 0, as it has computed a batch of another process, to know their shapes.
        """
        arrays = [*self._outputs.values()]
        if self._losses is not None:
            arrays.append(self._losses)
        if not has_batches:
            for values in arrays:
                values.fill(0)

        workers = self.engine.workers
        outputs = {name: workers.sum(values) for name, values in self._outputs.items()}
        losses = self._losses
        if losses is not None:
            losses = workers.sum(losses)
        return ForwardResult(outputs, losses)


def forward_together(
    engines: Sequence[Engine],
    tasks: Sequence[Task],
    features: Sequence[Features],
    *,
    batch_size: int,
    phase: str = "evaluating",
    listener: Listener = SILENT,
) -> list[ForwardResult]:
    """Returns what each task collects of every window; see `Engine.forward`.

    Every engine computes a batch before the next one begins, so that networks can share what they
    compute alike. The steps of a batch are a function each, `batches_of` and `forward`, as threads
    may run them for several batches at once. Results are added up here, by one thread.

    Args:
        engines: Engines on the same device and processes, with the same padding.
        tasks: One for each engine.
        features: One for each engine, with windows of the same lengths.
        batch_size: Windows per forward pass, of similar lengths.
        phase: What progress calls it.
        listener: Receives progress.
    """
    first_engine = engines[0]
    workers = first_engine.workers
    # One for each engine: its features, and the results of its batches so far.
    collectors = [
        _Collected(engine, task, task.scored(windows))
        for engine, task, windows in zip(engines, tasks, features, strict=True)
    ]
    # The plan has the windows of each batch. It is one plan, as all lengths are the same.
    windows = collectors[0].features
    plan = evaluation_plan(windows.lengths, batch_size, one_length=first_engine.padding.unwanted)
    mine = plan[workers.rank :: workers.count]
    has_batches = bool(mine)
    if not has_batches:
        # This process computes the first batch, too, to know the shapes of the results. It adds
        # zeros to the sum.
        mine = plan[:1]
    n_windows_done = 0
    n_tokens_done = 0
    n_tokens = sum(int(windows.lengths[indices].sum()) for indices in mine)

    def batches_of(indices: Ints) -> tuple[Ints, list[Any]]:
        """Returns the numbers of windows, and the batch that each engine makes of them."""
        batches = [collector.scorer.batch(collector.features, indices) for collector in collectors]
        return indices, batches

    def forward(numbered: tuple[Ints, list[Any]]) -> tuple[Ints, list[Any], list[Any]]:
        """Returns what `batches_of` gave, and the outputs of each engine for its batch."""
        indices, batches = numbered
        outputs = [
            collector.scorer.forward(batch)
            for collector, batch in zip(collectors, batches, strict=True)
        ]
        return indices, batches, outputs

    try:
        # The longest batch decides whether batches are small enough to be computed side by side.
        padded_tokens = (int(windows.lengths[indices].max()) * len(indices) for indices in mine)
        most_tokens = max(padded_tokens, default=0)
        threads = min(engine.at_once(most_tokens) for engine in engines)
        with contextlib.ExitStack() as stack:
            for engine in engines:
                stack.enter_context(engine.backend.inference())
            numbered_batches = map(batches_of, mine)
            scorer = collectors[0].scorer
            for indices, batches, outputs in scorer.each(forward, numbered_batches, threads):
                for collector, batch, batch_outputs in zip(
                    collectors, batches, outputs, strict=True
                ):
                    collector.add(indices, batch, batch_outputs)
                # Other processes are about as far as this one.
                n_windows_done = min(n_windows_done + len(indices) * workers.count, len(windows))
                # Long windows come first and take longest, so tokens tell how much time is left.
                n_tokens_done += int(windows.lengths[indices].sum())
                share = n_tokens_done / max(1, n_tokens)
                listener.advance(phase, n_windows_done, len(windows), share=share)
    finally:
        listener.finish(phase)
    return [collector.result(has_batches=has_batches) for collector in collectors]


def autocast(compute: Compute) -> contextlib.AbstractContextManager[object]:
    """Returns the mixed-precision context of a forward pass."""
    import torch

    if compute.precision == "fp32":
        return contextlib.nullcontext()
    if compute.precision == "bf16":
        dtype = torch.bfloat16
    else:
        dtype = torch.float16
    return torch.autocast(device_type=compute.device, dtype=dtype)
