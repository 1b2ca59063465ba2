"""Out of memory: the same step in more and smaller micro-batches.

That goes on until one example at a time is too much.
"""

import gc

from bertctl.errors import DeviceError
from bertctl.progress import Listener
from bertctl.runtime.heap import trim_heap


def give_back_memory() -> None:
    """Returns unused memory to the system.

    The micro-batches of the next attempt need blocks of other sizes.
    """
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim_heap()  # glibc keeps freed blocks of some MB for equal ones


class MicroBatches:
    """Number of micro-batches in which each process computes its share of a global batch.

    Args:
        count: at the start of training (`training.accumulation_steps`).
        batch_size: windows of a global batch.
        listener: hears of every change.
    """

    def __init__(self, count: int, batch_size: int, listener: Listener) -> None:
        self.count = count
        self._batch_size = batch_size
        self._listener = listener

    def double(self, error: BaseException, *, longest: int, workers: int) -> None:
        """Doubles the number of micro-batches; the global batch and its loss stay what they are.

        Raises:
            DeviceError: a micro-batch is one example already, or several processes would have to
                agree.
        """
        at_once = -(-self._batch_size // (self.count * workers))
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
        halved = -(-self._batch_size // self.count)
        self._listener.warn(
            f"out of memory with {at_once} examples of {longest} tokens at once: the step is "
            f"repeated with {halved} at once (accumulation {self.count}); the global batch stays "
            f"{self._batch_size}"
        )
