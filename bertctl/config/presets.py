"""Presets: values of several fields under one name, for those that nothing nearer says."""

from collections.abc import Mapping
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Mosbach et al. 2021, "On the Stability of Fine-tuning BERT": rate 2e-5 with bias correction, warm-up over the
    # first 10 % of the steps, 20 epochs. Zhang et al. 2021, "Revisiting Few-sample BERT Fine-tuning": bias correction
    # (torch's AdamW always has it) and more steps. Patience is ours: half of the epochs, as the first two are warm-up
    # and the metric often stays where it is for some more (MiniLM on 600 rows of MRPC: the majority class for three or
    # four).
    "small-data": {
        "training.epochs": 20,
        "training.patience": 10,
        "optimizer.learning_rate": 2e-5,
        "optimizer.warmup_fraction": 0.1,
    }
}
"""What `training.preset` may be -> dotted field -> value."""
