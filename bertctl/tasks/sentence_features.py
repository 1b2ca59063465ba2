"""Rows of texts that are near or far: their numbers, and their batches.

Letters: N rows, K texts of a row, B rows in a batch, T tokens, C labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.batches import Batch
from bertctl.tasks.sequences import RowFeatures, padded_texts
from bertctl.tokenization.encode import EncodedTexts

if TYPE_CHECKING:
    from torch import Tensor


Numbers = NDArray[np.int64]
_Chosen = Sequence[tuple[EncodedTexts, Numbers]]
"""Some of the texts of each of several columns."""


@dataclass(frozen=True)
class SentenceBatch(Batch):
    """Tensors of B rows.

    Attributes:
        inputs: input_ids, attention_mask, token_type_ids: (B, K, T) int64 each.
        labels: (B,) how near a row's first two texts are, 0 to 1; None without labels.
        classes: (B,) number of the pair's label, or of the single text's.
        keys: (B, K) the same number for equal texts; -1 for a text that there is none of.
        kind: see `SentenceFeatures`.
    """

    classes: "Tensor"
    keys: "Tensor"
    kind: str


@dataclass(frozen=True)
class SentenceFeatures(RowFeatures):
    """A split as numbers; a window is a row with all its texts.

    Attributes:
        sides: the first texts of all rows, the second ones, and so on: K of them, each by itself.
        keys: (N, K) see `SentenceBatch`.
        labels: (N,) float32, or None.
        classes: (N,) see `SentenceBatch`; zeros where there are none.
        kind: what the labels are: scores, classes, matches; or texts, which have no second one.
        apart: whether equal texts should be in different batches.
    """

    sides: tuple[EncodedTexts, ...]
    keys: NDArray[np.int64]
    labels: NDArray[np.float32] | None
    classes: NDArray[np.int64]
    kind: str
    apart: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) tokens of each row's longest text."""
        longest: NDArray[np.int64] = np.max([side.lengths for side in self.sides], axis=0)
        return longest

    @property
    def num_predictions(self) -> int:
        """N: a row has one answer."""
        return len(self)

    def prediction_indices(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the rows themselves."""
        return indices

    @cached_property
    def tokens(self) -> NDArray[np.int64]:
        """(N,) tokens of all texts of each row."""
        return self._summed("lengths")

    @cached_property
    def truncated_tokens(self) -> NDArray[np.int64]:
        """(N,) tokens cut off them."""
        return self._summed("full_lengths") - self.tokens

    @cached_property
    def unknown(self) -> NDArray[np.int64]:
        """(N,) unknown tokens of them."""
        return self._summed("unknown")

    def _summed(self, name: str) -> NDArray[np.int64]:
        summed: NDArray[np.int64] = np.sum([getattr(side, name) for side in self.sides], axis=0)
        return summed

    @property
    def distinct(self) -> NDArray[np.int64] | None:
        """(N, K) numbers of which none should stand twice in a batch; None where it may."""
        return self.keys if self.apart else None

    @cached_property
    def members(self) -> list[NDArray[np.int64]]:
        """The rows of each label."""
        return [np.flatnonzero(self.classes == number) for number in range(int(self.classes.max(initial=0)) + 1)]

    def collate(self, indices: NDArray[np.int64], padding: Padding) -> SentenceBatch:
        """Returns some rows as padded tensors."""
        return self._batch([(side, indices) for side in self.sides], indices, self.keys[indices], padding)

    def drawn(self, indices: NDArray[np.int64], padding: Padding, rng: WindowRandom, loss: str) -> SentenceBatch:
        """Returns single texts with a partner each, drawn anew in every step: one of the same label.

        Of `contrastive` every other partner has another label; of `triplet` there is a third text, which has one.
        """
        same, other, near = indices.copy(), indices.copy(), np.ones(len(indices), dtype=np.float32)
        for i, row in enumerate(indices):
            random, mates = rng.of(int(row)), self.members[self.classes[row]]
            place = int(np.searchsorted(mates, row))
            same[i] = mates[(place + random.integers(1, max(2, len(mates)))) % len(mates)]
            away = int(random.integers(len(self) - len(mates)))  # number of a row among those of other labels
            other[i] = away + np.searchsorted(mates - np.arange(len(mates)), away, side="right")
            if loss == "contrastive" and random.random() < 0.5:
                same[i], near[i] = other[i], 0.0
        chosen = [indices, same, *([other] if loss == "triplet" else [])]
        keys = np.stack([self.keys[rows, 0] for rows in chosen], axis=1)
        batch = self._batch([(self.sides[0], rows) for rows in chosen], indices, keys, padding)
        import torch

        return replace(batch, labels=torch.from_numpy(near))

    def _batch(self, texts: _Chosen, indices: Numbers, keys: Numbers, padding: Padding) -> SentenceBatch:
        import torch

        width = padding.width or max(int(side.lengths[rows].max()) for side, rows in texts)
        columns = [padded_texts(side, rows, replace(padding, width=width)) for side, rows in texts]
        return SentenceBatch(
            {name: torch.stack([column[name] for column in columns], dim=1) for name in columns[0]},
            None if self.labels is None else torch.from_numpy(self.labels[indices]),
            torch.from_numpy(self.classes[indices]),
            torch.from_numpy(keys),
            self.kind,
        )


def text_keys(columns: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Returns (N, K) numbers, the same for equal texts; -1 for a blank third text."""
    numbers: dict[str, int] = {}
    keys = [[numbers.setdefault(text, len(numbers)) for text in column] for column in columns]
    found = np.array(keys, dtype=np.int64).reshape(len(columns), -1).T
    for k, column in enumerate(columns[2:], start=2):
        found[[not text.strip() for text in column], k] = -1
    return found
