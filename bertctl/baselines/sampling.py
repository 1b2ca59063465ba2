"""How many rows a baseline may read: a tenth of the run's time for all of them together."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertctl.arrays import Array, Ints
from bertctl.data.rows import Rows
from bertctl.training.job import Job
from bertctl.training.time_shares import FEWEST_ROWS as FEWEST_IN_TIME
from bertctl.training.time_shares import WORDS_SHARE, NoTimeError, seconds_for

READING_SHARE = 0.08
"""Share of the run's time that the frozen encoder may read; fitting and TF-IDF come on top."""

_READING = 1 / 3
"""Time for a token that is read, as a share of that for one that is trained on: there is no
backward pass."""

FEWEST_ROWS = 500
"""Rows that are read however short the run is: fewer would make a baseline that is easy to beat."""

MOST_ROWS = 20_000
_MOST_OUTPUTS = 1_000_000
"""Training rows times labels: a logistic regression takes a few seconds for so many."""

MOST_WORDS = 20_000
"""Tagged words that a classifier is fitted to."""

_MOST_CHARACTERS = 10_000_000
"""Characters that TF-IDF reads for its vocabulary: a few seconds."""

_SECONDS_OF_CHARACTER = 1e-6
"""Time of counting the words of a character: 0.7 to 1.0 microseconds of one thread of an AMD EPYC,
for four sets of 800 to 20,000 rows."""

_SECONDS_OF_OUTPUT = 0.1e-6
"""Time of fitting to a character and one label: 0.04 to 0.09 microseconds, for the same sets."""

TOO_SHORT = "reading enough rows would take over a tenth of the time limit"
"""Why a time limit leaves a baseline out."""


def affordable_tokens(job: Job) -> int:
    """Returns how many tokens the frozen encoder may read in its share of the run's time."""
    epochs = job.steps / job.steps_per_epoch
    readings = READING_SHARE / _READING * epochs  # how often it may read all training rows
    return int(readings * int(job.features["train"].lengths.sum()))


def frozen_sample(
    job: Job,
    labels: Array,
    *,
    tokens: int,
    n_outputs: int,
    by_word: bool,
    at_most: int = MOST_ROWS,
) -> Ints:
    """Returns (n,) training rows that the frozen encoder reads, ascending.

    These are all rows, or a sample with each label's share.

    Args:
        job: The fine-tuning run, with its data and model loaded.
        labels: (N,) number of each row's label, as `row_labels` gives them: all the same if rows
            have sets of labels, or none.
        tokens: Tokens that may be read.
        n_outputs: Number of labels.
        by_word: Whether each word has a label.
        at_most: Rows that a time limit leaves time for.
    """
    features = job.features["train"]
    n_rows = len(labels)
    tokens_per_row = max(1.0, features.lengths.sum() / n_rows)
    # Fitting takes time in proportion to rows times labels, or words times labels.
    most = min(MOST_ROWS, _MOST_OUTPUTS // n_outputs)
    if by_word:
        words_per_row = max(1.0, features.num_predictions / n_rows)
        most = min(most, int(MOST_WORDS / words_per_row))
    affordable = max(FEWEST_ROWS, int(tokens / tokens_per_row))
    size = min(affordable, most, at_most)
    return stratified(labels, size, seed=job.recipe.data.split_seed)


def text_sample(job: Job, labels: Array, texts: Sequence[Any], *, n_outputs: int) -> Ints:
    """Returns (n,) the training rows that TF-IDF reads, ascending.

    These are all rows, or a sample with each label's share.

    Args:
        job: The fine-tuning run, with its data and model loaded.
        labels: (N,) number of each row's label, as `row_labels` gives them.
        texts: (N,) texts of the training rows; for pairs the first texts.
        n_outputs: Number of labels.

    Raises:
        NoTimeError: A time limit leaves time for too few rows.
    """
    n_rows = len(labels)
    characters_of_row = max(1.0, sum(len(str(text)) for text in texts) / n_rows)
    most_readable = int(_MOST_CHARACTERS / characters_of_row)
    most_fitted = _MOST_OUTPUTS // n_outputs  # fitting takes time in proportion to rows * labels
    size = max(FEWEST_ROWS, min(n_rows, most_fitted, most_readable))
    seconds = seconds_for(job, WORDS_SHARE)
    if seconds is not None:
        in_time = countable_rows(seconds, characters_of_row=characters_of_row, n_outputs=n_outputs)
        if in_time < min(n_rows, FEWEST_IN_TIME):
            raise NoTimeError(TOO_SHORT)
        size = min(size, in_time)
    return stratified(labels, size, seed=job.recipe.data.split_seed)


def countable_rows(seconds: float, *, characters_of_row: float, n_outputs: int) -> int:
    """Returns how many rows TF-IDF can count and fit in so many seconds.

    Args:
        seconds: Seconds that may be spent.
        characters_of_row: Mean characters of a row.
        n_outputs: Number of labels.
    """
    of_character = _SECONDS_OF_CHARACTER + n_outputs * _SECONDS_OF_OUTPUT
    return int(seconds / (characters_of_row * of_character))


def stratified(labels: Array, size: int, *, seed: int) -> Ints:
    """Returns (size,) row numbers, ascending, with each label's share and at least one row of each.

    Args:
        labels: (N,) number of each row's label.
        size: Number of rows to draw; all are returned if there are no more.
        seed: Seed of the order within a label.
    """
    n_rows = len(labels)
    if n_rows <= size:
        return np.arange(n_rows)

    order = np.random.default_rng(seed).permutation(n_rows)
    _, numbers, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    # The rank of a row among those of its label, in the shuffled order.
    by_label = np.argsort(numbers, kind="stable")
    first_of_label = np.cumsum(counts) - counts
    ranks = np.empty(n_rows, dtype=np.int64)
    ranks[by_label] = np.arange(n_rows) - np.repeat(first_of_label, counts)
    # The rank as a share of the label's rows: the lowest shares have all labels in proportion, and
    # the first row of each label has share 0.
    share_of_label = ranks / counts[numbers]
    drawn = np.argsort(share_of_label, kind="stable")[:size]
    return np.sort(order[drawn])


def row_labels(rows: Rows, labels: Array | None) -> Array:
    """Returns (N,) label numbers by which rows are stratified.

    They are all zero for rows without labels, with several labels or with scores.

    Args:
        rows: N rows.
        labels: As features have them: (N,) numbers or scores, (N, C) of several labels, one per
            word, or None.
    """
    if labels is None:
        return np.zeros(len(rows), dtype=np.int64)
    has_label_per_row = labels.ndim == 1 and len(labels) == len(rows)
    are_numbers = np.issubdtype(labels.dtype, np.integer)
    if has_label_per_row and are_numbers:
        return labels
    return np.zeros(len(rows), dtype=np.int64)
