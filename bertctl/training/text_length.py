"""How many tokens of a text `auto` reads: as many as nearly all rows of the data have."""

import math

import numpy as np

from bertctl.arrays import Ints
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import LoadedData
from bertctl.data.rows import Rows
from bertctl.data.splits import sample
from bertctl.modeling.families import read_length
from bertctl.modeling.source import ModelSource
from bertctl.tasks.base import Task

_SHARE = 95.0
"""Percentage of the rows that are to be read whole."""

_SAMPLED = 2_000
"""Rows that are encoded, so that a large file is not encoded twice."""

_BYTES_PER_TOKEN = 2.5
"""A token has more UTF-8 bytes than this in nearly all languages, so that shorter rows need not be
encoded to know that they are short."""

_LONGEST = 256
"""Tokens that are read of a text at most. With 512, BERT-base takes about 17 GB for a step of 16
rows, with 256 about 8."""

_STEP = 64
"""Lengths differ by this much, so that a few rows more or less seldom change them."""

_TASKS = ("text-classification", "text-regression", "multiple-choice")
"""Tasks that cut long texts off; the others read them in windows."""

_TEXTS = ("text", "pair", "context", "choices")


def length_for_rows(
    recipe: Recipe, data: LoadedData, task: Task, source: ModelSource
) -> int | None:
    """Returns the tokens to read of a text, so that 95 % of the training rows are read whole.

    It is a multiple of 64, at most 256 and what the encoder can read. It is None where the default
    of `model.max_length` is long enough, and where long texts are read in windows.

    Args:
        recipe: Of the run; its `model.max_length` is the default.
        data: Its rows. With folds, the rows of the fold that is held out are counted, too, so that
            all folds get the same length.
        task: Fitted to the rows.
        source: The encoder, whose positions are the limit.
    """
    if recipe.model.long_text == "window" or task.name not in _TASKS:
        return None
    splits = ["train"]
    if recipe.data.folds is not None:
        splits += data.validation_splits
    sampled = [sample(data.splits[name], _SAMPLED, seed=recipe.data.split_seed) for name in splits]
    n_bytes = np.concatenate([_bytes_of(rows) for rows in sampled])
    # A token nearly always has more bytes than this, so short rows are known without a tokenizer.
    if np.percentile(n_bytes, _SHARE) <= _BYTES_PER_TOKEN * recipe.model.max_length:
        return None

    from bertctl.modeling.build import build_tokenizer

    tokenizer = build_tokenizer(source, task.auto_class, task.head())
    longest = min(_LONGEST, read_length(source.config))
    lengths = [task.encode(rows, tokenizer, max_length=longest).lengths for rows in sampled]
    needed = np.percentile(np.concatenate(lengths), _SHARE)
    if needed <= recipe.model.max_length:
        return None
    return min(longest, math.ceil(needed / _STEP) * _STEP)


def _bytes_of(rows: Rows) -> Ints:
    """Returns the (N,) UTF-8 bytes of all texts of each row."""
    n_bytes = np.zeros(len(rows), dtype=np.int64)
    for name in _TEXTS:
        if rows.has(name):
            n_bytes += [len(str(text).encode()) for text in rows.columns[name]]
    return n_bytes
