"""Out of memory: the same step is taken in more and smaller micro-batches.

It is repeated until it fits, or until one example at a time is too much.
"""

import gc
import math

from bertctl.errors import DeviceError
from bertctl.progress import Listener
from bertctl.runtime.heap import trim_heap


def give_back_memory() -> None:
    """Gives unused memory back to the system or the GPU.

    The smaller micro-batches of the next attempt need blocks of other sizes than those that were
    freed.
    """
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim_heap()  # glibc keeps freed blocks of some MB for equal ones


class MicroBatches:
    """Number of micro-batches in which each process computes its part of a global batch.

    Args:
        count: Number at the start of training (`training.accumulation_steps`).
        batch_size: Windows of a global batch.
        listener: Receives a warning at each change.

    Attributes:
        count: The present number.
    """

    def __init__(self, count: int, batch_size: int, listener: Listener) -> None:
        self.count = count
        self._batch_size = batch_size
        self._listener = listener

    def double(self, error: BaseException, *, longest: int, workers: int) -> None:
        """Doubles the number of micro-batches; the global batch and its loss stay the same.

        Args:
            error: The error about memory.
            longest: Tokens of the longest example of the batch.
            workers: Number of processes that share the batch.

        Raises:
            DeviceError: A micro-batch is one example already, or several processes would have to
                change the number together.
        """
        at_once = math.ceil(self._batch_size / (self.count * workers))
        if at_once <= 1 or workers > 1:
            examples = "examples" if at_once > 1 else "example"
            message = f"out of memory with {at_once} {examples} of {longest} tokens at once"
            if workers > 1:
                message += f" in each of {workers} processes"
            raise DeviceError(
                message,
                remedy="What helps: a smaller `model.max_length=`; "
                "`training.gradient_checkpointing=True`; "
                f"`training.accumulation_steps={self.count * 2}` "
                "(changes only the random numbers of dropout); "
                "a smaller model.",
            ) from error
        self.count *= 2
        halved = math.ceil(self._batch_size / self.count)
        self._listener.warn(
            f"out of memory with {at_once} examples of {longest} tokens at once: the step is "
            f"repeated with {halved} at once (accumulation {self.count}); the global batch stays "
            f"{self._batch_size}"
        )
