"""Puts special tokens, first and second texts in their places, and truncates.

It does so for many texts at once, in numpy.

Letters: N rows, T tokens of all of them together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Self

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Bytes, Ints, Ints32, starts_of
from bertctl.documents import loading
from bertctl.errors import UnavailableError
from bertctl.tokenization.reference import OTHER_TOKENIZER


@dataclass(frozen=True)
class Ragged:
    """N rows of different lengths in one array; between two rows there may be values of neither.

    Attributes:
        flat: (T,) values.
        starts: (N,) where each row begins in `flat`.
        lengths: (N,) its length.
    """

    flat: Ints32
    starts: Ints
    lengths: Ints

    @classmethod
    def joined(cls, flat: Ints32, lengths: Ints) -> Self:
        """Returns rows that lie one behind the other."""
        return cls(flat, np.cumsum(lengths) - lengths, lengths)

    def count(self, value: int) -> Ints:
        """Returns (N,) how often `value` is in each row."""
        # How often the value occurs before each position of `flat`. A row's count is a difference.
        count_before = starts_of(self.flat == value)
        counts: Ints = count_before[self.starts + self.lengths] - count_before[self.starts]
        return counts

    def followed_by(self, others: "Ragged") -> "Ragged":
        """Returns these rows and then the others."""
        return Ragged(
            flat=np.concatenate([self.flat, others.flat]),
            starts=np.concatenate([self.starts, others.starts + len(self.flat)]),
            lengths=np.concatenate([self.lengths, others.lengths]),
        )

    def cut(self, lengths: Ints) -> "Ragged":
        """Returns the first `lengths` values of each row."""
        return Ragged(self.flat, self.starts, lengths)


@dataclass(frozen=True)
class Slot:
    """Part of a row: consecutive special tokens, or the place of a text.

    Attributes:
        ids: the special tokens; empty where `sequence` is given.
        type_id: segment of all its tokens.
        sequence: 0 for the first text, 1 for the second, None for special tokens.
    """

    ids: tuple[int, ...]
    type_id: int
    sequence: int | None


@dataclass(frozen=True)
class Layout:
    """Order of a row's parts: for a pair of BERT's [CLS] first [SEP] second [SEP]."""

    slots: tuple[Slot, ...]

    @property
    def special(self) -> int:
        """Returns the number of special tokens in each row."""
        return sum(len(slot.ids) for slot in self.slots)

    def before(self, sequence: int) -> int:
        """Returns the number of special tokens before the first text (0) or the second one (1)."""
        sequences = [slot.sequence for slot in self.slots]
        slots_before = self.slots[: sequences.index(sequence)]
        return sum(len(slot.ids) for slot in slots_before)

    @classmethod
    @loading("the tokenizer", kind=UnavailableError, remedy=OTHER_TOKENIZER)
    def of(cls, tokenizer: Tokenizer, *, pair: bool, special_tokens: bool = True) -> "Layout":
        """Returns where a tokenizer puts special tokens, as an encoded example shows.

        Args:
            tokenizer: With truncation and padding off.
            pair: Whether rows are pairs of texts.
            special_tokens: Whether special tokens are added.
        """
        example = tokenizer.encode("a", "b" if pair else None, add_special_tokens=special_tokens)
        tokens = zip(example.ids, example.type_ids, example.sequence_ids, strict=True)
        slots: list[Slot] = []
        # Neighbouring tokens of one segment and one text (or of none) are a slot.
        for (type_id, sequence), slot_tokens in groupby(tokens, key=lambda token: token[1:]):
            if sequence is None:
                ids = tuple(token_id for token_id, *_ in slot_tokens)
            else:
                ids = ()
            slots.append(Slot(ids, type_id, sequence))
        return cls(tuple(slots))

    def fill(self, sequences: Sequence[Ragged]) -> tuple[Ints32, Bytes, Ints]:
        """Puts the texts in their places between the special tokens.

        Args:
            sequences: The ids of N texts, and of N second texts of pairs.

        Returns:
            (T,) ids, (T,) type ids, (N + 1,) where each row starts.
        """
        lengths = self.special + sum(sequence.lengths for sequence in sequences)
        starts = starts_of(lengths)
        ids = np.empty(starts[-1], dtype=np.int32)
        type_ids = np.zeros(starts[-1], dtype=np.uint8)
        next_positions = starts[:-1].copy()  # (N,) in each row, behind what has been filled
        for slot in self.slots:
            if slot.sequence is None:
                for token in slot.ids:
                    ids[next_positions] = token
                    type_ids[next_positions] = slot.type_id
                    next_positions += 1
                continue
            sequence = sequences[slot.sequence]
            target = _positions(next_positions, sequence.lengths)
            ids[target] = sequence.flat[_positions(sequence.starts, sequence.lengths)]
            if slot.type_id:
                type_ids[target] = slot.type_id
            next_positions += sequence.lengths
        return ids, type_ids, starts


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """Returns the ids that the tokenizer puts around texts and between the two of a pair."""
    single = Layout.of(tokenizer, pair=False)
    pair = Layout.of(tokenizer, pair=True)
    return set(chain.from_iterable(slot.ids for slot in (*single.slots, *pair.slots)))


def longest_first(first: Ints, second: Ints | None, room: int) -> tuple[Ints, Ints | None]:
    """Returns the lengths after truncation, which takes tokens from the longer text first.

    This is the rule of the library `tokenizers` (`utils/truncation.rs`), which gives the odd token
    to the longer text: google-research/bert's `_truncate_seq_pair`, without its loop.

    Args:
        first: (N,) tokens of the first texts.
        second: (N,) tokens of the second texts, or None.
        room: tokens that fit, without special tokens.
    """
    if second is None:
        return np.minimum(first, room), None
    shorter = np.minimum(np.minimum(first, second), room // 2)
    longer = np.minimum(np.maximum(first, second), room - shorter)
    return np.where(first > second, longer, shorter), np.where(first > second, shorter, longer)


def lengths_in_room(texts: Sequence[Ragged], room: int) -> list[Ints]:
    """Returns the lengths of texts, or of both texts of pairs, after `longest_first`."""
    first = texts[0].lengths
    second = texts[1].lengths if len(texts) > 1 else None
    return [lengths for lengths in longest_first(first, second, room) if lengths is not None]


def merge(rows: int, parts: Sequence[tuple[Ints, Ragged]]) -> Ragged:
    """Returns rows of several sources in one order.

    Args:
        rows: Number of all rows.
        parts: Of each source the (n,) positions of its rows among all, and these rows.
    """
    flat = np.concatenate([part.flat for _, part in parts])
    starts = np.empty(rows, dtype=np.int64)
    lengths = np.empty(rows, dtype=np.int64)
    offset = 0
    for positions, part in parts:
        starts[positions] = part.starts + offset
        lengths[positions] = part.lengths
        offset += len(part.flat)
    return Ragged.joined(flat[_positions(starts, lengths)], lengths)


def _positions(starts: Ints, lengths: Ints) -> Ints:
    """Returns the indices start, start + 1, ... of each row, one row behind the other.

    Starts `[5, 20]` and lengths `[3, 2]` -> `[5, 6, 7, 20, 21]`.
    """
    n_before = np.cumsum(lengths) - lengths
    return np.repeat(starts - n_before, lengths) + np.arange(lengths.sum(), dtype=np.int64)
