"""A recipe for tests of the plain functions.

The tiny model on a file of opinions, fp32, one thread, no dropout.
"""

from pathlib import Path
from typing import Any

from bertctl.config.load import NULL, load_recipe
from bertctl.config.schema import Recipe


def tiny_recipe(tiny_model: Path, data: Path, **options: Any) -> Recipe:
    """Four epochs of 16 opinions in batches of 8, each logged, no checkpoint.

    `options` by dotted name say more.
    """
    fields = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(tiny_model),
        "model.max_length": 40,
        "model.dropout": 0.0,
        "model.head_start": "random",
        "training.preset": NULL,
        "training.epochs": 4,
        "training.batch_size": 8,
        "training.log_every": 1,
        "training.checkpoint_every": "off",
        "optimizer.learning_rate": 1e-3,
        "runtime.precision": "fp32",
        "runtime.device": "cpu",
        "runtime.threads": 1,
        "evaluation.bootstrap_resamples": 100,
    }
    return load_recipe("text-classification", options={**fields, **options})
