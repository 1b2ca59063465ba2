"""Examples that are one text or one pair: their numbers, and their batches."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertctl.data.rows import Rows
from bertctl.errors import DataError
from bertctl.runtime.batching import Padding
from bertctl.tasks.batches import Batch, padded_inputs
from bertctl.tokenization.encode import EncodedTexts, encode_texts

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor


class RowFeatures(Sized):
    """A split in which each row is a window; the basis of features."""

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """(N,) each row is a window."""
        return np.arange(len(self))

    @cached_property
    def weights(self) -> NDArray[np.int64]:
        """(N,) ones."""
        return np.ones(len(self), dtype=np.int64)


@dataclass(frozen=True)
class SequenceFeatures(RowFeatures):
    """A split of texts or pairs as numbers.

    Attributes:
        encoded: ids, segments, lengths.
        labels: (N,) int64 class numbers, (N, C) float32 several-label rows, (N,) float32 scores, or None.
    """

    encoded: EncodedTexts
    labels: NDArray[np.generic] | None

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) tokens of each example."""
        return self.encoded.lengths

    @property
    def num_predictions(self) -> int:
        """N: a row has one answer."""
        return len(self)

    def prediction_indices(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the rows themselves."""
        return indices

    @property
    def tokens(self) -> NDArray[np.int64]:
        """(N,) tokens of each example."""
        return self.encoded.lengths

    @property
    def truncated_tokens(self) -> NDArray[np.int64]:
        """(N,) tokens cut off."""
        return self.encoded.full_lengths - self.encoded.lengths

    @property
    def unknown(self) -> NDArray[np.int64]:
        """(N,) unknown tokens."""
        return self.encoded.unknown

    def collate(self, indices: NDArray[np.int64], padding: Padding) -> Batch:
        """Returns some examples as padded tensors."""
        import torch

        labels = None if self.labels is None else torch.from_numpy(self.labels[indices])
        return Batch(padded_texts(self.encoded, indices, padding), labels)


def encode_rows(
    rows: Rows, labels: NDArray[np.generic] | None, tokenizer: "Tokenizer", *, max_length: int
) -> SequenceFeatures:
    """Returns the `text` (and `pair`) columns as numbers, beside the labels given."""
    pairs: Sequence[str] | None = rows.columns["pair"] if rows.has("pair") else None
    return SequenceFeatures(encode_texts(tokenizer, rows.columns["text"], pairs, max_length=max_length), labels)


def padded_texts(encoded: EncodedTexts, indices: NDArray[np.int64], padding: Padding) -> "dict[str, Tensor]":
    """Returns the model's inputs for some texts, (B, T) each.

    Args:
        encoded: the texts of a split.
        indices: (B,) which of them.
        padding: what fills up the shorter ones.
    """
    flat = np.concatenate([np.arange(encoded.starts[i], encoded.starts[i + 1]) for i in indices])
    return padded_inputs(encoded.ids[flat], encoded.type_ids[flat], encoded.lengths[indices], padding)


def require_label(rows: Rows, index: int) -> object:
    """Returns the label of a row.

    Raises:
        DataError: it is missing (empty, null or NaN).
    """
    label = rows.columns["label"][index]
    if label is None or label == "" or (isinstance(label, float) and label != label):
        shown = "NaN" if isinstance(label, float) else "empty"
        raise DataError(
            f"{rows.where(index)}: the label is {shown}",
            remedy="Every row of a labelled split needs a label: fill it in, or take the row out.",
        )
    return label
