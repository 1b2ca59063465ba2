"""One seed for everything that draws numbers."""

import os
import random

import numpy as np


def only_deterministic() -> None:
    """Have torch use deterministic algorithms alone, and say so where there is none; call it before any computing."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with a workspace of its own
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (all its devices)."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # for libraries that still draw from the global generator
    torch.manual_seed(seed)
