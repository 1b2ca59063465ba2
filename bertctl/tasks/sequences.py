"""Examples that are one text or one pair: their numbers, and their batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Array, Ints, positions_of
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.runtime.batching import Padding
from bertctl.tasks.batches import (
    ArrayBatch,
    Batch,
    labels_of_none,
    padded_arrays,
    present,
    tensors_of,
)
from bertctl.tasks.features import OneAnswer
from bertctl.tokenization.encode import EncodedTexts, encode_texts
from bertctl.tokenization.long_texts import LongText, all_windows, ends_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RowFeatures(OneAnswer):
    """A split in which each row is a window of `Features`, and by default has one answer.

    Attributes:
        encoded: The texts of the rows.
    """

    encoded: EncodedTexts

    def of_rows(self, of_texts: Ints) -> Ints:
        """Returns (N,) sums over each row's texts; here a row is one text, or one pair."""
        return of_texts

    @cached_property
    def rows(self) -> Ints:
        """(N,) each row is a window."""
        return np.arange(len(self))

    @cached_property
    def weights(self) -> Ints:
        """(N,) ones."""
        return np.ones(len(self), dtype=np.int64)

    def release_memory(self) -> None:
        """Gives back the pages of mapped token ids."""
        self.encoded.release_pages()

    def windows_of_rows(self) -> Ints:
        """Returns (N,) ones."""
        return np.ones(len(self), dtype=np.int64)

    @cached_property
    def tokens(self) -> Ints:
        """(N,) tokens of all texts of each row.

        A context counts with each of its choices, as it is read with each.
        """
        return self.of_rows(self.encoded.lengths)

    @cached_property
    def truncated_tokens(self) -> Ints:
        """(N,) tokens cut off them."""
        return self.of_rows(self.encoded.full_lengths) - self.tokens

    @cached_property
    def unknown(self) -> Ints:
        """(N,) unknown tokens of them."""
        return self.of_rows(self.encoded.unknown)


@dataclass(frozen=True)
class SequenceFeatures(RowFeatures):
    """A split of texts or pairs as numbers.

    Attributes:
        encoded: Ids, segments, lengths.
        labels: (N,) int64 class numbers, (N, C) float32 several-label rows, (N,) float64 scores, or
            None.
    """

    labels: Array | None

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def lengths(self) -> Ints:
        """(N,) tokens of each example."""
        return self.encoded.lengths

    def prediction_labels(self) -> Array | None:
        """Returns the labels."""
        return self.labels

    def texts_and_rows(self) -> tuple[EncodedTexts, Ints]:
        """Returns all texts that are read, (U,), and the row of each."""
        return self.encoded, self.rows

    def with_unlabelled(self, unlabelled: "SequenceFeatures") -> "SequenceFeatures":
        """Returns these rows, and then others that have no label."""
        labels = present(self.labels)
        labels = np.concatenate([labels, labels_of_none(labels, len(unlabelled))])
        if isinstance(self, DocumentFeatures) or isinstance(unlabelled, DocumentFeatures):
            documents = _as_documents(self).followed_by(_as_documents(unlabelled))
            return replace(documents, labels=labels)
        return SequenceFeatures(self.encoded.followed_by(unlabelled.encoded), labels)

    def arrays(self, indices: Ints, padding: Padding) -> ArrayBatch:
        """Returns some examples as padded arrays."""
        if self.labels is None:
            labels = None
        else:
            labels = self.labels[indices]
        return ArrayBatch(padded_text_arrays(self.encoded, indices, padding), labels)

    def collate(self, indices: Ints, padding: Padding) -> Batch:
        """Returns some examples as padded tensors."""
        return self.arrays(indices, padding).as_tensors()


@dataclass(frozen=True)
class DocumentFeatures(SequenceFeatures):
    """A split in which long texts are read in several windows.

    A row stays one window of `Features`: it has one loss.

    Attributes:
        encoded: The first window of each row, which is all that is read without windows; its
            lengths form the batches.
        all_windows: (U,) windows: these first ones, then the others, row after row, each as long as
            the first one of its row.
        owners: (U,) the row of each.
    """

    all_windows: EncodedTexts
    owners: Ints

    def followed_by(self, appended: "DocumentFeatures") -> "DocumentFeatures":
        """Returns these rows and then the appended ones, without labels.

        The order of windows stays: the first ones of all rows, then the further ones of all rows.
        """
        first_windows = self.encoded.followed_by(appended.encoded)
        further_windows = self._further_windows().followed_by(appended._further_windows())
        owners = [
            self.owners[: len(self)],
            appended.owners[: len(appended)] + len(self),
            self.owners[len(self) :],
            appended.owners[len(appended) :] + len(self),
        ]
        return DocumentFeatures(
            first_windows,
            labels=None,
            all_windows=first_windows.followed_by(further_windows),
            owners=np.concatenate(owners),
        )

    def _further_windows(self) -> EncodedTexts:
        """Returns the windows that are not the first one of their row."""
        return self.all_windows.part(len(self), len(self.all_windows))

    @property
    def tokens(self) -> Ints:
        """(N,) tokens of each example; what windows share counts once."""
        return self.encoded.full_lengths

    @property
    def truncated_tokens(self) -> Ints:
        """(N,) zeros."""
        return np.zeros_like(self.tokens)

    @cached_property
    def windows(self) -> Ints:
        """(N,) windows of each example."""
        return np.bincount(self.owners)

    def windows_of_rows(self) -> Ints:
        """Returns (N,) windows that each row is read in."""
        return self.windows

    @property
    def splits_long_texts(self) -> bool:
        """True: the windows of a row share its loss."""
        return True

    def texts_and_rows(self) -> tuple[EncodedTexts, Ints]:
        """Returns all windows, (U,), and the row of each."""
        return self.all_windows, self.owners

    def tokens_in(self, indices: Ints) -> int:
        """Returns how many tokens all windows of these rows have; each is as long as the first."""
        return int((self.lengths[indices] * self.windows[indices]).sum())

    def arrays(self, indices: Ints, padding: Padding) -> ArrayBatch:
        """Returns the first windows of B examples, then their further ones, as padded arrays.

        The input `owners` has the example, 0 to B - 1, of each of these windows.
        """
        n_further = self.windows[indices] - 1
        # Where each example's further windows end in `all_windows`; they lie behind the first ones.
        ends = np.cumsum(self.windows - 1)[indices] + len(self)
        chosen = np.concatenate([indices, *map(np.arange, ends - n_further, ends)])
        examples = np.arange(len(indices))
        owners = np.concatenate([examples, np.repeat(examples, n_further)])
        inputs = padded_text_arrays(self.all_windows, chosen, padding) | {"owners": owners}
        first_windows = super().arrays(indices, padding)  # with the labels, one per example
        return replace(first_windows, inputs=inputs)


def _as_documents(features: SequenceFeatures) -> DocumentFeatures:
    """Returns features as `DocumentFeatures`, whose rows may have several windows each.

    Rows of plain `SequenceFeatures` have one window each.
    """
    if isinstance(features, DocumentFeatures):
        return features
    return DocumentFeatures(features.encoded, features.labels, features.encoded, features.rows)


def encode_rows(
    rows: Rows, labels: Array | None, tokenizer: Tokenizer, long: LongText
) -> SequenceFeatures:
    """Returns the `text` (and `pair`) columns as ids, together with the labels.

    If any text is longer than the model, `long` decides what is read of it: its beginning ("head"),
    other ends of it, or all of it in windows.

    Args:
        rows: N rows of texts, or of pairs of texts.
        labels: Labels of the rows as numbers; None without.
        tokenizer: Tokenizer with truncation and padding off.
        long: How texts that are too long are read.
    """
    columns: list[Sequence[str]] = [
        rows.columns[name] for name in ("text", "pair") if rows.has(name)
    ]
    encoded = encode_texts(tokenizer, *columns, max_length=long.max_length)
    if long.mode == "head" or not encoded.truncated.any():
        return SequenceFeatures(encoded, labels)
    if long.mode != "window":
        return SequenceFeatures(ends_of(encoded, tokenizer, columns, long.mode), labels)
    return DocumentFeatures(encoded, labels, *all_windows(encoded, tokenizer, columns[0], long))


def long_text_of(recipe: Recipe, train: Rows | None = None) -> LongText:
    """Returns how a task reads texts that are too long.

    Args:
        recipe: Recipe, whose section `model` says it.
        train: Training rows; None for a trained model, whose rows are not checked.

    Raises:
        UsageError: Windows over pairs of texts.
    """
    if train is not None and train.has("pair") and recipe.model.long_text == "window":
        message = "model.long_text: window slides over one text, and these are pairs of texts"
        raise UsageError(
            message,
            remedy="Use `model.long_text=head-tail` or tail, or a larger `model.max_length=`.",
        )
    return replace(LongText.of(recipe.model), pooling=recipe.model.window_pooling or "attention")


def padded_texts(encoded: EncodedTexts, indices: Ints, padding: Padding) -> "dict[str, Tensor]":
    """Returns `padded_text_arrays` as tensors."""
    return tensors_of(padded_text_arrays(encoded, indices, padding))


def padded_text_arrays(encoded: EncodedTexts, indices: Ints, padding: Padding) -> dict[str, Array]:
    """Returns the model's inputs for some texts, (B, T) each.

    Args:
        encoded: The texts of a split.
        indices: (B,) which of them.
        padding: What fills up the shorter ones.
    """
    flat = positions_of(indices, encoded.starts)
    return padded_arrays(
        encoded.ids[flat], encoded.type_ids[flat], encoded.lengths[indices], padding
    )
