"""What a training step costs and what the machine could do: operations, matrix rate, memory, time by kind of work.

Letters: B examples in a batch, T tokens each is padded to.
"""

import contextlib
import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.runtime.device import Compute

if TYPE_CHECKING:
    from torch import nn

_CPU_MATRIX = 2048
_GPU_MATRIX = 8192
_COUNTED_WIDTHS = (4, 8, 16)

_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("matrix products", ("mm", "addmm", "linear", "mkldnn_linear", "mkldnn_linear_backward", "matmul", "addmm_")),
    ("attention", ("bmm", "baddbmm", "_softmax", "_softmax_backward_data", "isneginf", "masked_fill", "all", "where")),
    ("dropout's random numbers", ("bernoulli_", "div_", "native_dropout", "native_dropout_backward")),
    (
        "embeddings, their gradients and zero fill",
        ("embedding", "index_select", "embedding_dense_backward", "fill_", "zero_", "zeros", "index_put_"),
    ),
    ("AdamW", ("_fused_adamw_", "_foreach_add_")),
    ("norm clipping", ("linalg_vector_norm", "norm", "_foreach_norm", "mul_", "_foreach_mul_", "stack")),
    ("copies and precision casts", ("copy_", "to", "_to_copy", "contiguous", "clone", "_foreach_copy_", "cat")),
    ("making and freeing tensors", ("empty", "empty_strided", "empty_like", "Optimizer.zero_grad#AdamW.zero_grad")),
    (
        "layer norms and activations",
        ("native_layer_norm", "native_layer_norm_backward", "gelu", "gelu_backward", "tanh", "tanh_backward"),
    ),
    ("additions, products, bias gradients", ("add", "add_", "mul", "sum")),
)
"""Operators of torch (without `aten::`) by what they do in a training step of an encoder. On a CPU attention with
dropout runs as bmm and softmax, a dropout mask is bernoulli_ and div_, and only clipping multiplies in place."""


class MatrixRate:
    """The rate of one large matrix product in one precision, measured again from time to time.

    Args:
        compute: device and precision.
    """

    def __init__(self, compute: Compute) -> None:
        import torch

        size = _CPU_MATRIX if compute.device == "cpu" else _GPU_MATRIX
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[compute.precision]
        self._device = compute.device
        self._matrix = torch.randn(size, size, device=compute.device).to(dtype)
        self._operations = 2 * size**3
        self._seconds: list[float] = []
        self._matrix @ self._matrix  # the first product sets things up

    def measure(self) -> None:
        """Time one product."""
        synchronize(self._device)
        started = time.perf_counter()
        self._matrix @ self._matrix
        synchronize(self._device)
        self._seconds.append(time.perf_counter() - started)

    @property
    def flops(self) -> float:
        """Operations a second, by the median of the times."""
        return self._operations / float(np.median(self._seconds))

    @property
    def spread(self) -> float:
        """The slowest product against the fastest: how busy the machine was meanwhile."""
        return max(self._seconds) / min(self._seconds)


def step_operations(network: "nn.Module", device: str) -> Callable[[int, int], float]:
    """A function (B, T) -> floating-point operations of the matrix products of a forward and backward pass.

    They are counted by torch at three widths and are a polynomial of degree 2 in T, attention being the square. For a
    BERT that is 6 x the weights x the tokens, and 12 x layers x T x hidden size for each token beside it.

    Args:
        network: its gradients are cleared after the counting.
        device: where it is.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    for width in _COUNTED_WIDTHS:
        ones = torch.ones(1, width, dtype=torch.long, device=device)
        with FlopCounterMode(display=False) as counter:
            network(input_ids=ones, attention_mask=ones).logits.float().sum().backward()
        counts.append(float(counter.get_total_flops()))
    network.zero_grad(set_to_none=True)
    polynomial = np.polynomial.Polynomial(np.linalg.solve(np.vander(_COUNTED_WIDTHS, increasing=True), counts))
    return lambda examples, width: examples * float(polynomial(width))


def synchronize(device: str) -> None:
    """Wait for the device, so that a clock can be read."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def reset_peak_memory(device: str) -> None:
    """Begin a new peak: memory of freed tensors is given back first, so that it isn't counted again."""
    import torch

    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux, proc(5): resets the peak resident size


def read_peak_memory(device: str) -> int | None:
    """Bytes at the peak since `reset_peak_memory`: allocated on a GPU, resident of this process on a Linux CPU.

    None elsewhere: other systems can't begin a new peak.
    """
    import torch

    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    if device != "cpu":
        return None
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def time_by_kind(step: Callable[[], None], compute: Compute, *, repeats: int) -> dict[str, float]:
    """Share of the time of `step` by kind of work, the largest first; the shares add up to 1.

    Args:
        step: one whole training step, called `repeats` times.
        compute: on a CPU what no operator took is Python and the batches' making; on a GPU the kernels' time is
            divided, and the time in which the GPU waits is not seen.
        repeats: how often.
    """
    from torch.profiler import ProfilerActivity, profile

    on_gpu = compute.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        started = time.perf_counter()
        for _ in range(repeats):
            step()
        synchronize(compute.device)
        total = time.perf_counter() - started
    seconds: dict[str, float] = {}
    for event in profiler.key_averages():
        kind = kind_of_operator(event.key)
        seconds[kind] = seconds.get(kind, 0.0) + _own_seconds(event, on_gpu=on_gpu)
    if not on_gpu:
        seconds["Python and making batches"] = max(0.0, total - sum(seconds.values()))
    whole = sum(seconds.values()) or 1.0
    return {kind: spent / whole for kind, spent in sorted(seconds.items(), key=lambda item: -item[1])}


def kind_of_operator(name: str) -> str:
    """The kind of work an operator does, by its name in torch's profiler; `other operators` for the rest."""
    operator = name.removeprefix("aten::")
    for kind, operators in _KINDS:
        if operator in operators:
            return kind
    return "attention" if "scaled_dot_product" in operator else "other operators"


def _own_seconds(event: Any, *, on_gpu: bool) -> float:
    return float(event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e6
