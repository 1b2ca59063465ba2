"""Seeds of everything that draws random numbers."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bertctl.session import current

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class WindowRandom:
    """Random numbers of a training step, equal for a window in any micro-batch and process.

    Attributes:
        seed: of the run.
        epoch: counted from 0.
        step: optimizer steps before this one.
    """

    seed: int
    epoch: int = 0
    step: int = 0

    def of(self, window: int) -> np.random.Generator:
        """Returns the generator of a window, by its number in the split."""
        return np.random.default_rng([self.seed, self.epoch, self.step, int(window)])


def only_deterministic() -> None:
    """Makes torch use deterministic algorithms only, and raise where there is none.

    Call it before any computing.
    """
    import torch

    session = current()
    # cuBLAS is deterministic with a workspace of its own.
    session.default_variable("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    were_required = torch.are_deterministic_algorithms_enabled()
    # In its benchmark mode cuDNN tries algorithms out, and takes the one that is fastest then.
    were_tried_out = torch.backends.cudnn.benchmark

    def restore() -> None:
        """Sets torch's settings back to what they were."""
        torch.use_deterministic_algorithms(were_required)
        torch.backends.cudnn.benchmark = were_tried_out

    session.restore_later("deterministic algorithms", restore)
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False


def seed_everything(seed: int) -> None:
    """Seeds Python, NumPy and torch (all its devices)."""
    import torch

    current().restore_later("generators", _restore_generators())
    random.seed(seed)
    np.random.seed(seed % 2**32)  # for libraries that still draw from the global generator
    torch.manual_seed(seed)


def generator_states() -> "dict[str, Tensor]":
    """Returns the states of torch's generators, `cpu` and, where there is one, `cuda`."""
    import torch

    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_generators(states: "Mapping[str, Tensor]") -> None:
    """Makes torch's generators go on from what `generator_states` returned."""
    import torch

    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available() and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restores the generators of Python, NumPy and torch at the end of `with`."""
    restore = _restore_generators()
    try:
        yield
    finally:
        restore()


def _restore_generators() -> Callable[[], None]:
    """Returns a function that sets the generators of Python, NumPy and torch to their state now."""
    of_python = random.getstate()
    of_numpy = np.random.get_state()
    of_torch = generator_states()

    def restore() -> None:
        """Sets the generators back."""
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        set_generators(of_torch)

    return restore
