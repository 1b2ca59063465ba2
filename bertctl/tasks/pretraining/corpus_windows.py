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
        text: The corpus.
        starts: (U,) first token of each window.
        sizes: (U,) its tokens, without special ones.
        rows: (U,) its document.
        layout: Where special tokens stand.
        masking: Which tokens are masked.
        pairs: What the second part of a window is, half of the time: another document's text, or
            the first part; None has windows of one part.
        held_out: Whether masks are drawn by a window's text alone, so that every evaluation has the
            same.
        unknown_id: Id of the token for what the tokenizer does not know.
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
        if self.unknown_id is None:
            return counts

        # In chunks, as the ids may be a mapped file that is larger than memory.
        for begin in range(0, len(self.text.ids), _CHUNK):
            chunk = self.text.ids[begin : begin + _CHUNK]
            positions = begin + np.flatnonzero(chunk == self.unknown_id)
            documents = np.searchsorted(self._ends, positions, side="right") - 1
            counts += np.bincount(documents, minlength=len(counts))
        return counts

    def collate(self, indices: Ints, padding: Padding) -> MaskedBatch:
        """Returns some windows as an evaluation has them, or the first epoch."""
        return self.masked(indices, padding, _EVALUATION)

    def masked(self, indices: Ints, padding: Padding, rng: WindowRandom) -> MaskedBatch:
        """Returns some windows as padded tensors, some of their tokens replaced by the mask.

        The seed, the epoch and the window alone decide which, whatever batch a window is in.

        Args:
            indices: (B,) numbers of the windows.
            padding: How windows are filled up to one length.
            rng: Random numbers of the step.
        """
        import torch

        windows = [self.window(i, rng) for i in indices.tolist()]
        ids, types, labels, order = zip(*windows, strict=True)
        lengths = np.array([len(window_ids) for window_ids in ids], dtype=np.int64)
        mask = padding.mask(lengths)
        padded_labels = np.full(mask.shape, IGNORED, dtype=np.int64)
        padded_labels[mask] = np.concatenate(labels)
        return MaskedBatch(
            padded_inputs(np.concatenate(ids), np.concatenate(types), lengths, padding),
            torch.from_numpy(padded_labels),
            torch.tensor(order) if self.pairs else None,
        )

    def window(self, index: int, step: WindowRandom = _EVALUATION) -> tuple[Ints, Ints, Ints, int]:
        """Returns a window's ids with masks, segments and labels, and the order of its parts.

        Ids, segments and labels have an entry for each token, special ones included. The label of a
        token that is not masked is `IGNORED`. The order is 1 where the second part of a pair does
        not follow the first, and 0 otherwise.
        """
        begin = int(self.starts[index])
        span = (begin, begin + int(self.sizes[index]))
        if self.held_out:
            # By the text alone, so that its masks are the same in every evaluation.
            rng = np.random.default_rng(zlib.crc32(self.text.ids[slice(*span)].tobytes()))
        else:
            rng = np.random.default_rng([step.seed, step.epoch, index])
        if self.pairs:
            text_spans, order = self._draw_pair(span, int(self.rows[index]), rng)
        else:
            text_spans = [span]
            order = 0
        tokens = np.concatenate([self.text.ids[a:b] for a, b in text_spans]).astype(np.int64)
        begins = np.concatenate([word_begins(self.text, a, b) for a, b in text_spans])

        positions, groups = self.masking.choose(begins, rng)
        labels = np.full(len(tokens), IGNORED, dtype=np.int64)
        labels[positions] = tokens[positions]
        tokens[positions] = self.masking.disguise(tokens[positions], groups, rng)

        first_begin, first_end = text_spans[0]
        return *self._with_special_tokens(tokens, labels, first_end - first_begin), order

    def _with_special_tokens(
        self, tokens: Ints, labels: Ints, n_first: int
    ) -> tuple[Ints, Ints, Ints]:
        """Returns ids, segments and labels of a window: [CLS] first [SEP] second [SEP].

        Args:
            tokens: Ids of the first part, and then of the second one, without special tokens.
            labels: Their labels.
            n_first: How many of these tokens are of the first part.
        """
        ids_of_slots = []
        labels_of_slots = []
        for slot in self.layout.slots:
            if slot.sequence is None:
                ids_of_slots.append(np.array(slot.ids))
                labels_of_slots.append(np.full(len(slot.ids), IGNORED))
            else:
                in_slot = slice(0, n_first) if slot.sequence == 0 else slice(n_first, None)
                ids_of_slots.append(tokens[in_slot])
                labels_of_slots.append(labels[in_slot])
        slot_types = [slot.type_id for slot in self.layout.slots]
        types = np.repeat(slot_types, [len(slot_ids) for slot_ids in ids_of_slots])
        return np.concatenate(ids_of_slots), types, np.concatenate(labels_of_slots)

    def _draw_pair(
        self, span: tuple[int, int], document: int, rng: np.random.Generator
    ) -> tuple[list[tuple[int, int]], int]:
        """Returns the two parts of a window, for the prediction of their order, and this order.

        A part is (begin, end) in the corpus's ids. In half of the windows the second part follows
        the first, and the order is 0. Otherwise it is 1: the parts are swapped (`pairs` is
        "order"), or the second one is text of another document ("next"). A window is cut at random
        where a sentence ends; one of a single sentence where a word ends.

        Args:
            span: Begin and end of the window in the ids.
            document: Number of the document that the window is from.
            rng: Draws the cut, the order and the other document.
        """
        begin, end = span
        bounds = self.text.sentences  # where sentences begin in the ids
        first_cut = np.searchsorted(bounds, begin, side="right")
        end_cut = np.searchsorted(bounds, end)
        cuts = bounds[first_cut:end_cut]  # sentences that begin within the window
        if not len(cuts):
            cuts = begin + 1 + np.flatnonzero(word_begins(self.text, begin + 1, end))
        if len(cuts):
            cut = int(rng.choice(cuts))
        else:
            cut = (begin + end) // 2
        in_order = [(begin, cut), (cut, end)]

        if rng.random() < 0.5:
            return in_order, 0
        if self.pairs == "order":
            return [(cut, end), (begin, cut)], 1

        n_documents = len(self.text.documents) - 1
        if n_documents < 2:  # there is no text of another document
            return in_order, 0
        # One number less is drawn, and those from `document` on are moved up, which skips it.
        foreign = int(rng.integers(n_documents - 1))
        if foreign >= document:
            foreign += 1
        first_sentence = int(self.text.documents[foreign])
        sentences_end = int(self.text.documents[foreign + 1])
        if first_sentence == sentences_end:  # a held-out document without a token
            return in_order, 0
        # From a random sentence on as many tokens as the second part had, or all that there are.
        start = int(bounds[rng.integers(first_sentence, sentences_end)])
        stop = min(start + end - cut, int(bounds[sentences_end]))
        return [(begin, cut), (start, _back_to_word_boundary(self.text, start, stop))], 1


def word_begins(text: PackedText, begin: int, end: int) -> Bools:
    """Returns whether each token from `begin` up to `end` begins a word.

    The packed text has one bit per token for this. Whole bytes are unpacked and then cut.
    """
    first_byte = begin // 8
    end_byte = (end + 7) // 8
    bits = np.unpackbits(text.begins[first_byte:end_byte], bitorder="little")
    offset = begin % 8
    return bits[offset : offset + end - begin].astype(np.bool_)


def _back_to_word_boundary(text: PackedText, begin: int, end: int) -> int:
    """Returns `end`, moved back to the nearest word boundary if it would cut a word.

    It stays where it is if it cuts none, or if no word begins between `begin` and `end`: there, a
    single long word is cut.
    """
    if end >= len(text.ids) or word_begins(text, end, end + 1)[0]:
        return end
    # A word ends where the next one begins.
    word_ends = np.flatnonzero(word_begins(text, begin + 1, end))
    if len(word_ends):
        return begin + 1 + int(word_ends[-1])
    return end


def cut_windows(
    text: PackedText, room: int, *, least: int = 1, short: float = 0.0, seed: int = 0
) -> tuple[Ints, Ints, Ints]:
    """Returns the first token of each window, its number of tokens, and its document, (U,) each.

    A window has whole sentences of one document, as many as fit (DOC-SENTENCES of RoBERTa, Liu et
    al. 2019, section 4.2). A sentence that is longer than a window is cut between words.

    Args:
        text: The corpus.
        room: Most tokens of a window, without special ones.
        least: Fewest tokens of a window; shorter ones are left out.
        short: Share of windows that get a random number of tokens at most, from 2 to `room`, so
            that the model learns short texts, too.
        seed: Seed of these random numbers.
    """
    rng = np.random.default_rng(seed)
    starts = list[int]()
    sizes = list[int]()
    rows = list[int]()
    for document in range(len(text.documents) - 1):
        first_sentence = int(text.documents[document])
        sentences_end = int(text.documents[document + 1])
        # Where the document's sentences begin in the ids, and where the last one ends.
        bounds = text.sentences[first_sentence : sentences_end + 1].tolist()
        start = bounds[0]
        end = bounds[-1]
        while start < end:
            if short and rng.random() < short:
                longest = int(rng.integers(min(2, room), room + 1))
            else:
                longest = room
            stop = bounds[bisect_right(bounds, start + longest) - 1]
            if stop <= start:  # not even one sentence fits
                stop = _back_to_word_boundary(text, start, start + longest)
            if stop - start >= least:
                starts.append(start)
                sizes.append(stop - start)
                rows.append(document)
            start = stop
    return (
        np.array(starts, dtype=np.int64),
        np.array(sizes, dtype=np.int64),
        np.array(rows, dtype=np.int64),
    )


def mixed(corpora: Ints, weights: Sequence[float]) -> Ints:
    """Returns which windows an epoch reads so that corpora have these weights.

    Each window is read at least once. Windows of a corpus that is too small for its weight are read
    again: corpora (0, 0, 0, 1) with equal weights are windows (0, 1, 2, 3, 3, 3).

    Args:
        corpora: (U,) number of the corpus of each window.
        weights: Share of each corpus in the windows that are read.
    """
    counts = np.bincount(corpora, minlength=len(weights)).tolist()
    # So large that the corpus with most windows for its weight is read just once.
    total = max(count / weight for count, weight in zip(counts, weights, strict=True))
    windows_read = []
    for corpus, (count, weight) in enumerate(zip(counts, weights, strict=True)):
        windows = np.flatnonzero(corpora == corpus)
        n_read = max(count, round(total * weight))
        windows_read.append(np.resize(windows, n_read))  # repeats them from the first one on
    return np.concatenate(windows_read)


def weights_of(
    sizes: Mapping[str, int], mix: Sequence[str], temperature: float | None
) -> list[float] | None:
    """Returns the weight of each corpus, in all 1.

    It is None where they are read in proportion to their sizes.

    Args:
        sizes: Name of a corpus -> number of its windows.
        mix: NAME=WEIGHT for each corpus, such as ["wiki=3", "books=1"].
        temperature: Weights are the sizes to the power of 1 / temperature. Above 1, small corpora
            are read more often than their size says.

    Raises:
        KeyError: A corpus without a weight or with two, or a weight without a corpus.
    """
    if temperature is not None:
        raw = [size ** (1 / temperature) for size in sizes.values()]
    elif mix:
        entries = [entry.rpartition("=") for entry in mix]
        by_name = {name: float(weight) for name, _, weight in entries}
        if sorted(name for name, *_ in entries) != sorted(sizes):
            raise KeyError(*(set(by_name) ^ set(sizes)))
        raw = [by_name[name] for name in sizes]
    else:
        return None
    return [raw_weight / sum(raw) for raw_weight in raw]
