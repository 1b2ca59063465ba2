"""Rows with several choices: their numbers, and their batches.

Letters: N rows, S choices of all of them, B rows in a batch, K choices of a batch's rows, T tokens.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Ints, positions_of, starts_of
from bertctl.data.rows import Rows
from bertctl.runtime.batching import Padding
from bertctl.tasks.batches import ArrayBatch, Batch, tensor_of, tensors_of
from bertctl.tasks.sequences import RowFeatures, padded_text_arrays
from bertctl.tokenization.encode import encode_texts


@dataclass(frozen=True)
class ChoiceArrays(ArrayBatch):
    """Arrays of `ChoiceBatch`.

    Attributes:
        counts: Choices of each of the B rows.
    """

    counts: tuple[int, ...]

    def as_tensors(self) -> "ChoiceBatch":
        """Returns the batch for torch."""
        return ChoiceBatch(tensors_of(self.inputs), tensor_of(self.labels), self.counts)


@dataclass(frozen=True)
class ChoiceBatch(Batch):
    """Tensors of B rows with K choices in all, padded to the longest among them.

    A row's choices follow each other in the first dimension, each as the only choice of its own: so
    rows may differ in how many they have, and the heads of transformers score each pair by itself
    anyway.

    Attributes:
        inputs: input_ids, attention_mask, token_type_ids: (K, 1, T) int64 each.
        labels: (B,) number of the right choice within its row, or None.
        counts: Choices of each of the B rows.
    """

    counts: tuple[int, ...]


@dataclass(frozen=True)
class ChoiceFeatures(RowFeatures):
    """A split as numbers; a window is a row with all its choices, a prediction is one choice.

    Attributes:
        encoded: S pairs of context and choice, row after row.
        starts: (N + 1,) first choice of each row; the last entry is S.
        labels: (N,) number of the right choice within its row, or None.

        # choice 0    [CLS] he opens the jar . [SEP] he eats a pickle . [SEP]
        # choice 1    [CLS] he opens the jar . [SEP] he drives off . [SEP]
    """

    prediction_noun: ClassVar[str] = "choice"

    starts: Ints
    labels: Ints | None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def counts(self) -> Ints:
        """(N,) choices of each row."""
        return np.diff(self.starts)

    @cached_property
    def lengths(self) -> Ints:
        """(N,) tokens of each row's longest choice."""
        if len(self):
            return np.maximum.reduceat(self.encoded.lengths, self.starts[:-1])
        return np.zeros(0, dtype=np.int64)

    @property
    def num_predictions(self) -> int:
        """How many predictions there are."""
        return len(self.encoded)

    def prediction_indices(self, indices: Ints) -> Ints:
        """Returns all choices of these rows, row after row."""
        return positions_of(indices, self.starts)

    def prediction_labels(self) -> Ints | None:
        """Returns (S,) whether each choice is the right one of its row, 1 or 0."""
        if self.labels is None:
            return None
        is_right = np.zeros(self.num_predictions, dtype=np.int64)
        is_right[self.starts[:-1] + self.labels] = 1
        return is_right

    def of_rows(self, of_texts: Ints) -> Ints:
        """Returns (N,) sums over each row's choices."""
        sums_before = starts_of(of_texts)
        return np.diff(sums_before[self.starts])

    def arrays(self, indices: Ints, padding: Padding) -> ChoiceArrays:
        """Returns some rows with all their choices as padded arrays."""
        inputs = padded_text_arrays(self.encoded, self.prediction_indices(indices), padding)
        return ChoiceArrays(
            # (choices of all rows, 1, T): each is the only choice of an example to transformers.
            inputs={name: values[:, None] for name, values in inputs.items()},
            labels=None if self.labels is None else self.labels[indices],
            counts=tuple(self.counts[indices].tolist()),
        )

    def collate(self, indices: Ints, padding: Padding) -> ChoiceBatch:
        """Returns some rows with all their choices as padded tensors."""
        return self.arrays(indices, padding).as_tensors()


def encode_choices(
    rows: Rows, labels: Ints | None, tokenizer: Tokenizer, *, max_length: int
) -> ChoiceFeatures:
    """Returns the columns `context` and `choices` as ids, together with the labels.

    The model reads each choice in a pair with its context: a row of 4 choices is 4 pairs of texts.

    Args:
        rows: N rows.
        labels: (N,) numbers of the right choices; None without.
        tokenizer: Tokenizer with truncation and padding off.
        max_length: Longest pair in tokens, special tokens included.
    """
    choices = rows.columns["choices"]
    starts = starts_of([len(row) for row in choices])
    contexts: list[str] = []
    endings: list[str] = []
    for context, row in zip(rows.columns["context"], choices, strict=True):
        contexts += [context] * len(row)
        endings += row
    return ChoiceFeatures(
        encode_texts(
            tokenizer,
            contexts,
            endings,
            max_length=max_length,
        ),
        starts,
        labels,
    )
