"""One seed for everything that draws numbers."""

import random

import numpy as np


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (all its devices)."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # for libraries that still draw from the global generator
    torch.manual_seed(seed)
