"""How fast this machine multiplies matrices in fp32 and in bf16.

It is measured, since a CPU's flags don't say it.

A CPU may have `avx512_bf16` and multiply bf16 at half the speed of fp32; a library may be told to
leave a flag unused.
"""

import functools
import time
from concurrent.futures import ThreadPoolExecutor

from bertctl.runtime.measured import Speeds, measured_once
from bertctl.runtime.threads import threads_set

# Shapes of MiniLM's feed-forward layer, for a batch of 1,024 tokens.
_TOKENS = 1024
_HIDDEN = 384
_WIDER = 1536
_ROUNDS = 8
"""Times that each product is computed; the fastest one counts."""


def measured_products(threads: int) -> Speeds:
    """Returns 10^9 operations per second of products in `fp32` and in `bf16`.

    They are measured on this machine, once.

    Args:
        threads: Number of threads that multiply.
    """
    return measured_once(
        kind="products",
        names=("fp32", "bf16"),
        about=(),
        threads=threads,
        measure=lambda: _measure(threads),
    )


@functools.cache  # where the file can't be kept, a process chooses once all the same
def _measure(threads: int) -> Speeds:
    """Returns the speeds, measured in a thread of its own.

    OpenMP's threads end with that thread. If they lived on, a forked process would wait for them
    forever.
    """
    import torch

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(_multiply, threads, torch.get_num_threads()).result()


def _multiply(threads: int, before: int) -> Speeds:
    """Multiplies matrices of an encoder's shapes, forward and for the weight's gradient.

    The precisions take turns, so that a slow moment of the machine hits both.

    Args:
        threads: Number of threads that multiply.
        before: Number of torch's threads before, which is set again at the end.
    """
    import torch

    with threads_set(threads, afterwards=before), torch.no_grad():
        operands = {}
        for dtype in (torch.float32, torch.bfloat16):
            shapes = (_TOKENS, _HIDDEN), (_WIDER, _HIDDEN), (_TOKENS, _WIDER)
            operands[dtype] = [torch.full(shape, 0.5, dtype=dtype) for shape in shapes]
        seconds: dict[torch.dtype, list[float]] = {dtype: [] for dtype in operands}
        for _ in range(_ROUNDS):
            for dtype, (x, weight, gradient) in operands.items():
                started = time.perf_counter()
                torch.nn.functional.linear(x, weight)
                gradient.T @ x
                seconds[dtype].append(time.perf_counter() - started)
    # Two products, each with 2 operations (a product and a sum) per element of the three sizes.
    fp32, bf16 = (
        4 * _TOKENS * _HIDDEN * _WIDER / min(round_seconds) / 1e9
        for round_seconds in seconds.values()
    )
    return {"fp32": fp32, "bf16": bf16}
