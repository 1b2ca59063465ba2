"""A corpus as windows: what the model reads of it.

Each epoch has other masks and other pairs of sentences.

Letters: U windows, D documents, B windows of a batch, T tokens of the longest of them.
"""

import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from bertctl.arrays import Bools, Ints
from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.batches import IGNORED, Batch, padded_inputs
from bertctl.tasks.features import OneAnswer
from bertctl.tasks.pretraining.masking import Masking
from bertctl.tokenization.layout import Layout
from bertctl.tokenization.packing import PackedText

if TYPE_CHECKING:
    from torch import Tensor

_EVALUATION = WindowRandom(0)
_CHUNK = 2**24  # tokens that are looked at together


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Windows with masked tokens.

    The labels are (B, T): the token that was there, or `IGNORED` where none was chosen.

    Attributes:
        order: (B,) 0 where the second part of a window follows the first one, else 1; None without
            pairs.
    """

    order: "Tensor | None" = None


@dataclass(frozen=True)
class CorpusWindows(OneAnswer):
    """The windows of a packed corpus; `Features` of the task `pretraining`.

    Attributes:
        text: the corpus.
        starts: (U,) first token of each window.
        sizes: (U,) its tokens, without special ones.
        rows: (U,) its document.
        layout: where special tokens stand.
        masking: which tokens are masked.
        pairs: what the second part of a window is, half of the time: another document's text, or
            the first part; None has windows of one part.
        held_out: whether masks are drawn by a window's text alone, so that every evaluation has the
            same.
        unknown_id: of the token for what the tokenizer does not know.
    """

    text: PackedText
    starts: Ints
    sizes: Ints
    rows: Ints
    layout: Layout
    masking: Masking
    pairs: Literal["next", "order"] | None = None
    held_out: bool = False
    unknown_id: int | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def lengths(self) -> Ints:
        """(U,) tokens of each window, special ones included.

        A pair from two documents may have fewer.
        """
        return self.sizes + self.layout.special

    @cached_property
    def weights(self) -> Ints:
        """(U,) how many tokens of each window are chosen in an evaluation."""
        counts = [int((self.window(i)[2] != IGNORED).sum()) for i in range(len(self))]
        return np.array(counts, dtype=np.int64)

    def windows_of_rows(self) -> Ints:
        """Returns (D,) ones: windows are what is scored, and no document is read as a whole."""
        return np.ones(len(self.tokens), dtype=np.int64)

    @cached_property
    def _ends(self) -> Ints:
        """(D + 1,) where documents begin in the ids."""
        return self.text.sentences[self.text.documents]

    @cached_property
    def tokens(self) -> Ints:
        """(D,) tokens of each document."""
        return np.diff(self._ends)

    @cached_property
    def truncated_tokens(self) -> Ints:
        """(D,) zeros: windows leave nothing out."""
        return np.zeros(len(self._ends) - 1, dtype=np.int64)

    @cached_property
    def unknown(self) -> Ints:
        """(D,) unknown tokens of each document."""
        counts = np.zeros(len(self._ends) - 1, dtype=np.int64)
        for begin in range(0, len(self.text.ids) if self.unknown_id is not None else 0, _CHUNK):
            positions = begin + np.flatnonzero(
                self.text.ids[begin : begin + _CHUNK] == self.unknown_id
            )
            counts += np.bincount(
                np.searchsorted(self._ends, positions, side="right") - 1, minlength=len(counts)
            )
        return counts

    def collate(self, indices: Ints, padding: Padding) -> MaskedBatch:
        """Returns some windows as an evaluation has them, or the first epoch."""
        return self.masked(indices, padding, _EVALUATION)

    def masked(self, indices: Ints, padding: Padding, rng: WindowRandom) -> MaskedBatch:
        """Returns some windows as padded tensors with masks.

        The seed, the epoch and the window alone decide the masks.

        Args:
            indices: (B,) which.
            padding: how they are filled up.
            rng: of the step.
        """
        import torch

        ids, types, labels, order = zip(
            *(self.window(i, rng) for i in indices.tolist()), strict=True
        )
        lengths = np.array([len(window_ids) for window_ids in ids], dtype=np.int64)
        mask = padding.mask(lengths)
        padded = np.full(mask.shape, IGNORED, dtype=np.int64)
        padded[mask] = np.concatenate(labels)
        return MaskedBatch(
            padded_inputs(np.concatenate(ids), np.concatenate(types), lengths, padding),
            torch.from_numpy(padded),
            torch.tensor(order) if self.pairs else None,
        )

    def window(self, index: int, step: WindowRandom = _EVALUATION) -> tuple[Ints, Ints, Ints, int]:
        """Returns a window's ids with masks, segments and labels, and the order of its parts.

        Ids, segments and labels have an entry for each token.
        """
        begin = int(self.starts[index])
        span = (begin, begin + int(self.sizes[index]))
        if self.held_out:
            rng = np.random.default_rng(zlib.crc32(self.text.ids[slice(*span)].tobytes()))
        else:
            rng = np.random.default_rng([step.seed, step.epoch, index])
        if self.pairs:
            parts, order = self._parts(span, int(self.rows[index]), rng)
        else:
            parts = [span]
            order = 0
        tokens = np.concatenate([self.text.ids[a:b] for a, b in parts]).astype(np.int64)
        begins = np.concatenate([word_begins(self.text, a, b) for a, b in parts])
        positions, groups = self.masking.choose(begins, rng)
        labels = np.full(len(tokens), IGNORED, dtype=np.int64)
        labels[positions] = tokens[positions]
        tokens[positions] = self.masking.disguise(tokens[positions], groups, rng)
        cut = parts[0][1] - parts[0][0]
        slots = [
            (slot, slice(0, cut) if slot.sequence == 0 else slice(cut, None))
            for slot in self.layout.slots
        ]
        ids = [
            tokens[part] if slot.sequence is not None else np.array(slot.ids)
            for slot, part in slots
        ]
        golds = [
            labels[part] if slot.sequence is not None else np.full(len(slot.ids), IGNORED)
            for slot, part in slots
        ]
        types = np.repeat([slot.type_id for slot, _ in slots], [len(slot_ids) for slot_ids in ids])
        return np.concatenate(ids), types, np.concatenate(golds), order

    def _parts(
        self, span: tuple[int, int], document: int, rng: np.random.Generator
    ) -> tuple[list[tuple[int, int]], int]:
        """Returns the two parts of a window as places in the ids, and their order.

        The order is 1 where the second does not follow the first.

        A window is cut where a sentence ends, at random; one of a single sentence where a word
        ends.
        """
        begin, end = span
        bounds = self.text.sentences
        cuts = bounds[np.searchsorted(bounds, begin, side="right") : np.searchsorted(bounds, end)]
        if not len(cuts):
            cuts = begin + 1 + np.flatnonzero(word_begins(self.text, begin + 1, end))
        if len(cuts):
            cut = int(rng.choice(cuts))
        else:
            cut = (begin + end) // 2
        if rng.random() < 0.5:
            return [(begin, cut), (cut, end)], 0
        if self.pairs == "order":
            return [(cut, end), (begin, cut)], 1
        others = len(self.text.documents) - 1
        if others < 2:
            return [(begin, cut), (cut, end)], 0
        other = int(rng.integers(others - 1))
        other += other >= document
        first = int(self.text.documents[other])
        last = int(self.text.documents[other + 1])
        if first == last:  # a held-out document without a token
            return [(begin, cut), (cut, end)], 0
        start = int(bounds[rng.integers(first, last)])
        stop = min(start + end - cut, int(bounds[last]))
        return [(begin, cut), (start, _at_word(self.text, start, stop))], 1


def word_begins(text: PackedText, begin: int, end: int) -> Bools:
    """Returns whether the tokens from `begin` to `end` begin words."""
    first_byte = begin // 8
    end_byte = (end + 7) // 8
    bits = np.unpackbits(text.begins[first_byte:end_byte], bitorder="little")
    offset = begin % 8
    return bits[offset : offset + end - begin].astype(np.bool_)


def _at_word(text: PackedText, begin: int, end: int) -> int:
    """Returns the last end of a word in front of `end`.

    It is `end` itself where there is none behind `begin`.
    """
    if end >= len(text.ids) or word_begins(text, end, end + 1)[0]:
        return end
    word_ends = np.flatnonzero(word_begins(text, begin + 1, end))
    if len(word_ends):
        return begin + 1 + int(word_ends[-1])
    return end


def cut_windows(
    text: PackedText, room: int, *, least: int = 1, short: float = 0.0, seed: int = 0
) -> tuple[Ints, Ints, Ints]:
    """Returns where windows begin, their tokens, and their documents, (U,) each.

    A window has whole sentences, as many as fit.

    A longer sentence is cut between words. No window has text of two documents (DOC-SENTENCES of
    RoBERTa, Liu et al. 2019, section 4.2); short ones share batches with their like.

    Args:
        text: the corpus.
        room: tokens of a window, without special ones.
        least: tokens that a window must have.
        short: share of windows with room for a random number of tokens only.
        seed: of these numbers.
    """
    rng = np.random.default_rng(seed)
    starts = list[int]()
    sizes = list[int]()
    rows = list[int]()
    for document in range(len(text.documents) - 1):
        first = int(text.documents[document])
        last = int(text.documents[document + 1])
        bounds = text.sentences[first : last + 1].tolist()
        at = bounds[0]
        end = bounds[-1]
        while at < end:
            if short and rng.random() < short:
                here = int(rng.integers(min(2, room), room + 1))
            else:
                here = room
            stop = bounds[bisect_right(bounds, at + here) - 1]
            if stop <= at:
                stop = _at_word(text, at, at + here)
            if stop - at >= least:
                starts.append(at)
                sizes.append(stop - at)
                rows.append(document)
            at = stop
    return (
        np.array(starts, dtype=np.int64),
        np.array(sizes, dtype=np.int64),
        np.array(rows, dtype=np.int64),
    )


def mixed(corpora: Ints, weights: Sequence[float]) -> Ints:
    """Returns which windows an epoch reads so that corpora have these weights.

    None is left out, some come again.

    Args:
        corpora: (U,) corpus of each window.
        weights: of each corpus.
    """
    counts = np.bincount(corpora, minlength=len(weights))
    total = max(count / weight for count, weight in zip(counts.tolist(), weights, strict=True))
    n_windows = [
        max(count, round(total * weight))
        for count, weight in zip(counts.tolist(), weights, strict=True)
    ]
    return np.concatenate(
        [np.resize(np.flatnonzero(corpora == i), n) for i, n in enumerate(n_windows)]
    )


def weights_of(
    sizes: Mapping[str, int], mix: Sequence[str], temperature: float | None
) -> list[float] | None:
    """Returns the weight of each corpus, in all 1.

    It is None where they are read in proportion to their sizes.

    Args:
        sizes: windows by the corpus's name.
        mix: NAME=WEIGHT for each corpus.
        temperature: of sampling.

    Raises:
        KeyError: a corpus without a weight or with two, or a weight without a corpus.
    """
    if temperature is not None:
        raw = [size ** (1 / temperature) for size in sizes.values()]
    elif mix:
        parts = [entry.rpartition("=") for entry in mix]
        by_name = {name: float(weight) for name, _, weight in parts}
        if sorted(name for name, *_ in parts) != sorted(sizes):
            raise KeyError(*(set(by_name) ^ set(sizes)))
        raw = [by_name[name] for name in sizes]
    else:
        return None
    return [raw_weight / sum(raw) for raw_weight in raw]
