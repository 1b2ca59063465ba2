"""Rows of texts that are near or far: their numbers, and their batches.

Letters: N rows, K texts of a row, B rows in a batch, T tokens, C labels.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from bertctl.arrays import Array, Floats32, Ints, numbers_of
from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.batches import ArrayBatch, Batch, tensor_of, tensors_of
from bertctl.tasks.sequences import RowFeatures, SequenceFeatures, padded_text_arrays
from bertctl.tokenization.encode import EncodedTexts

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SentenceArrays(ArrayBatch):
    """Arrays of `SentenceBatch`.

    Attributes:
        classes: (B,) number of the pair's label, or of the single text's.
        keys: (B, K) the same number for equal texts; -1 for a text that there is none of.
        kind: See `SentenceFeatures`.
    """

    classes: Ints
    keys: Ints
    kind: str

    def as_tensors(self) -> "SentenceBatch":
        """Returns the batch for torch."""
        import torch

        return SentenceBatch(
            tensors_of(self.inputs),
            tensor_of(self.labels),
            torch.from_numpy(self.classes),
            torch.from_numpy(self.keys),
            self.kind,
        )


@dataclass(frozen=True)
class SentenceBatch(Batch):
    """Tensors of B rows.

    Attributes:
        inputs: input_ids, attention_mask, token_type_ids: (B, K, T) int64 each.
        labels: (B,) how near a row's first two texts are, 0 to 1; None without labels.
        classes: (B,) number of the pair's label, or of the single text's.
        keys: (B, K) the same number for equal texts; -1 for a text that there is none of.
        kind: See `SentenceFeatures`.
    """

    classes: "Tensor"
    keys: "Tensor"
    kind: str


@dataclass(frozen=True)
class SentenceFeatures(RowFeatures):
    """A split as numbers; a window is a row with all its texts.

    Attributes:
        encoded: The M different texts of all rows.
        places: (N, K) which of them are a row's.
        keys: (N, K) see `SentenceBatch`; the same for a question and a document that are equal,
            whatever their prompts.
        labels: (N,) float32, or None.
        classes: (N,) see `SentenceBatch`; zeros where there are none.
        kind: What the labels are: scores, classes, matches; or texts, which have no second one.
        apart: Whether equal texts should be in different batches.
    """

    places: Ints
    keys: Ints
    labels: Floats32 | None
    classes: Ints
    kind: str
    apart: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def lengths(self) -> Ints:
        """(N,) tokens of each row's longest text."""
        longest: Ints = self.encoded.lengths[self.places].max(axis=1)
        return longest

    def of_rows(self, of_texts: Ints) -> Ints:
        """Returns (N,) sums over each row's texts."""
        sums: Ints = of_texts[self.places].sum(axis=1)
        return sums

    def texts_to_keep_apart(self) -> Ints | None:
        """Returns the keys, where equal texts should be in different batches."""
        return self.keys if self.apart else None

    @cached_property
    def members(self) -> list[Ints]:
        """The rows of each label."""
        return [
            np.flatnonzero(self.classes == number)
            for number in range(int(self.classes.max(initial=0)) + 1)
        ]

    @cached_property
    def first_alike(self) -> Ints:
        """(M,) number of the first text with the same ids, for each text.

        "Film" and "film" have the same ids in an uncased model, and so one vector. If both vectors
        were computed, in different batches, they would differ in the last digits, and it would be
        luck which one is ranked first.
        """
        starts = self.encoded.starts.tolist()
        inputs = (
            self.encoded.ids[begin:end].tobytes() for begin, end in itertools.pairwise(starts)
        )
        numbers, _ = numbers_of(inputs)
        first_positions = np.unique(numbers, return_index=True)[1]
        alike: Ints = first_positions[numbers]
        return alike

    def arrays(self, indices: Ints, padding: Padding) -> SentenceArrays:
        """Returns some rows as padded arrays."""
        return self._arrays(self.places[indices], indices, self.keys[indices], padding)

    def collate(self, indices: Ints, padding: Padding) -> SentenceBatch:
        """Returns some rows as padded tensors."""
        return self.arrays(indices, padding).as_tensors()

    def drawn(
        self,
        indices: Ints,
        padding: Padding,
        rng: WindowRandom,
        *,
        with_negatives: bool = False,
        with_third_text: bool = False,
    ) -> SentenceBatch:
        """Returns single texts with a partner each, drawn anew in every step.

        The partner is another text of the same label, or the text itself if it is the only one.

        Args:
            indices: (B,) rows.
            padding: How batches are filled up.
            rng: Draws, for each row by itself.
            with_negatives: Whether half of the partners, drawn at random, have another label; the
                target of these is 0.
            with_third_text: Whether each row has a third text, which has another label.
        """
        partners = indices.copy()
        contrasts = indices.copy()  # a text with another label for each row
        targets = np.ones(len(indices), dtype=np.float32)
        for i, row in enumerate(indices.tolist()):
            random = rng.of(row)
            partners[i] = self._draw_mate(row, random)
            # It is drawn even if no loss uses it, so that all losses see the same partners.
            contrasts[i] = self._draw_contrast(row, random)
            if with_negatives and random.random() < 0.5:
                partners[i] = contrasts[i]
                targets[i] = 0.0

        texts = [indices, partners]
        if with_third_text:
            texts.append(contrasts)
        chosen = np.stack(texts, axis=1)
        arrays = self._arrays(self.places[chosen, 0], indices, self.keys[chosen, 0], padding)
        return replace(arrays, labels=targets).as_tensors()

    def _draw_mate(self, row: int, random: np.random.Generator) -> int:
        """Returns another row of the same label, or the row itself if it is the only one."""
        mates = self.members[self.classes[row]]  # ascending
        position = int(np.searchsorted(mates, row))
        # 1 to len(mates) - 1 places further, from the last one on to the first.
        step = int(random.integers(1, max(2, len(mates))))
        return int(mates[(position + step) % len(mates)])

    def _draw_contrast(self, row: int, random: np.random.Generator) -> int:
        """Returns a row of another label.

        Rows of other labels are numbered in their order. A number drawn among them becomes a row if
        the rows of the same label that come before it are added.
        """
        mates = self.members[self.classes[row]]
        number = int(random.integers(len(self) - len(mates)))
        n_others_before_mates = mates - np.arange(len(mates))
        n_mates_before = int(np.searchsorted(n_others_before_mates, number, side="right"))
        return number + n_mates_before

    def _arrays(
        self, text_numbers: Ints, rows: Ints, keys: Ints, padding: Padding
    ) -> SentenceArrays:
        """Returns B rows as padded arrays.

        Args:
            text_numbers: (B, K) numbers of the texts of each row.
            rows: (B,) rows, whose labels and classes are taken.
            keys: (B, K) the same number for equal texts; -1 for a text that is missing.
            padding: How texts are filled up to one length.
        """
        return SentenceArrays(
            inputs_of(self.encoded, text_numbers, padding),
            labels=None if self.labels is None else self.labels[rows],
            classes=self.classes[rows],
            keys=keys,
            kind=self.kind,
        )


class DifferentTexts(SequenceFeatures):
    """The different texts of a split, a window each.

    A paragraph is read once, however many questions have it.
    """

    def arrays(self, indices: Ints, padding: Padding) -> ArrayBatch:
        """Returns some texts as padded arrays, (B, 1, T)."""
        return ArrayBatch(inputs_of(self.encoded, indices[:, None], padding), None)


def inputs_of(texts: EncodedTexts, text_numbers: Ints, padding: Padding) -> dict[str, Array]:
    """Returns the model's inputs for the texts at (B, K) places, (B, K, T) each."""
    inputs = padded_text_arrays(texts, text_numbers.flatten(), padding)
    return {name: values.reshape(*text_numbers.shape, -1) for name, values in inputs.items()}


def text_keys(columns: Sequence[Sequence[str]]) -> Ints:
    """Returns (N, K) numbers, the same for equal texts; -1 for a blank third text."""
    keys, _ = different(columns)
    for k, column in enumerate(columns[2:], start=2):
        keys[[not text.strip() for text in column], k] = -1
    return keys


def different(columns: Sequence[Sequence[str]]) -> tuple[Ints, list[str]]:
    """Returns (N, K) the number of each cell's text, and the different texts by their numbers.

    Texts are numbered in the order in which they occur, column after column.

    Args:
        columns: K columns of N texts.
    """
    numbers, texts = numbers_of(chain.from_iterable(columns))
    return numbers.reshape(len(columns), -1).T, texts
