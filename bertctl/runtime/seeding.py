"""Seeds of everything that draws random numbers."""

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class WindowRandom:
    """The random numbers of a training step, the same for a window whatever micro-batch or process
    it is in.

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
    """Makes torch use deterministic algorithms only, and raise where there is none; call it before
    any computing.
    """
    import torch

    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # cuBLAS is deterministic with a workspace of its own
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False


def seed_everything(seed: int) -> None:
    """Seeds Python, NumPy and torch (all its devices)."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # for libraries that still draw from the global generator
    torch.manual_seed(seed)


def generator_states() -> "dict[str, Tensor]":
    """Returns the states of torch's generators, `cpu` and, where there is one, `cuda`."""
    import torch

    return {"cpu": torch.get_rng_state()} | (
        {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}
    )


def set_generators(states: "Mapping[str, Tensor]") -> None:
    """Makes torch's generators go on from what `generator_states` returned."""
    import torch

    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available() and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])


@contextmanager
def generators_kept() -> Iterator[None]:
    """Makes the generators of Python, NumPy and torch go on afterwards as if nothing had been drawn
    or seeded within.
    """
    of_python = random.getstate()
    of_numpy = np.random.get_state()
    of_torch = generator_states()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        set_generators(of_torch)
