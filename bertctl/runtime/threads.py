"""The number of CPU threads that torch computes with: set here, and nowhere else."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bertctl.session import current


def set_threads(count: int) -> None:
    """Sets the number of torch's threads, until the command ends."""
    import torch

    restore = partial(torch.set_num_threads, torch.get_num_threads())
    current().restore_later("threads of torch", restore)
    torch.set_num_threads(count)


@contextmanager
def threads_set(count: int, *, afterwards: int | None = None) -> Iterator[None]:
    """Sets the number of torch's threads within `with`.

    Args:
        count: Threads within.
        afterwards: Threads from then on; as many as before where it is None.
    """
    import torch

    if afterwards is None:
        afterwards = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(afterwards)
