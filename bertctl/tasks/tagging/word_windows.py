"""Sentences of words as numbers.

Tokens, windows over what is too long, neighbours, and the place of each word.

Letters: N rows (sentences), U windows (what the model reads in one pass), W words of all rows, V
different words, T tokens of a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Ints, Ints32, numbers_of, starts_of
from bertctl.runtime.batching import Padding
from bertctl.tasks.batches import (
    IGNORED,
    ArrayBatch,
    Batch,
    labels_of_none,
    present,
    tensor_of,
    tensors_of,
)
from bertctl.tasks.features import SplitFeatures
from bertctl.tasks.sequences import padded_text_arrays
from bertctl.tokenization.encode import EncodedTexts
from bertctl.tokenization.layout import Layout, Ragged, merge
from bertctl.tokenization.reference import needs_space, unknown_id
from bertctl.tokenization.sliding_windows import sliding_windows

_WORDS_AT_ONCE = 100_000


@dataclass(frozen=True)
class WordArrays(ArrayBatch):
    """Arrays of `WordBatch`.

    Attributes:
        windows: (P,) for each word answered for, its window in the batch, ...
        columns: (P,) ... and the place of its first token.
    """

    windows: Ints
    columns: Ints

    def as_tensors(self) -> "WordBatch":
        """Returns the batch for torch."""
        return WordBatch(
            tensors_of(self.inputs),
            tensor_of(self.labels),
            self.windows,
            self.columns,
        )


@dataclass(frozen=True)
class WordBatch(Batch):
    """Tensors of B windows, padded to the longest among them.

    Attributes:
        inputs: input_ids, attention_mask, token_type_ids: (B, T) int64 each.
        labels: (B, T) label of each first token, `IGNORED` elsewhere; or None.
        windows: (P,) for each word answered for, its window in the batch, ...
        columns: (P,) ... and the place of its first token.
    """

    windows: Ints
    columns: Ints


@dataclass(frozen=True)
class WordFeatures(SplitFeatures):
    """A split of sentences as the model reads it. A prediction is a word.

    A window reads words and answers for some of them: all of its sentence; or, where the sentence
    is longer than the model, those that have most context in it. Words that are only read are
    context.

    Attributes:
        encoded: Ids of the windows.
        rows: (U,) sentence of each window, ascending.
        first: (U,) first word that it answers for, ...
        last: (U,) ... and the word after the last one.
        places: (W,) position of each word's first token in the window that answers for it.
        sizes: (W,) tokens of each word.
        starts: (N + 1,) first word of each row.
        tokens: (N,) tokens read of each row's own words, special tokens included.
        truncated_tokens: (N,) tokens cut off words that are longer than the model; long sentences
            get windows.
        unknown: (N,) unknown tokens.
        labels: (W,) label numbers, or None.
    """

    prediction_noun: ClassVar[str] = "word"

    encoded: EncodedTexts
    rows: Ints
    first: Ints
    last: Ints
    places: Ints
    sizes: Ints
    starts: Ints
    tokens: Ints
    truncated_tokens: Ints
    unknown: Ints
    labels: Ints | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Ints:
        """(U,) tokens of each window."""
        return self.encoded.lengths

    @cached_property
    def weights(self) -> Ints:
        """(U,) words each window answers for."""
        return self.last - self.first

    def windows_of_rows(self) -> Ints:
        """Returns (N,) windows that each row is read in."""
        return np.bincount(self.rows, minlength=len(self.tokens))

    def release_memory(self) -> None:
        """Gives back the pages of mapped token ids."""
        self.encoded.release_pages()

    def prediction_labels(self) -> Ints | None:
        """Returns the labels of the words."""
        return self.labels

    @property
    def num_predictions(self) -> int:
        """W: a word has one answer."""
        return int(self.starts[-1])

    def prediction_indices(self, indices: Ints) -> Ints:
        """Returns the words that these windows answer for, window by window."""
        return np.concatenate([np.arange(self.first[i], self.last[i]) for i in indices])

    def with_unlabelled(self, unlabelled: "WordFeatures") -> "WordFeatures":
        """Returns these sentences, and then others whose words have no label.

        The numbers of the others' rows and words are moved up, as they come behind.
        """
        labels = present(self.labels)
        n_rows = len(self.tokens)
        n_words = self.num_predictions
        return WordFeatures(
            encoded=self.encoded.followed_by(unlabelled.encoded),
            rows=np.concatenate([self.rows, unlabelled.rows + n_rows]),
            first=np.concatenate([self.first, unlabelled.first + n_words]),
            last=np.concatenate([self.last, unlabelled.last + n_words]),
            places=np.concatenate([self.places, unlabelled.places]),
            sizes=np.concatenate([self.sizes, unlabelled.sizes]),
            starts=np.concatenate([self.starts, unlabelled.starts[1:] + n_words]),
            tokens=np.concatenate([self.tokens, unlabelled.tokens]),
            truncated_tokens=np.concatenate([self.truncated_tokens, unlabelled.truncated_tokens]),
            unknown=np.concatenate([self.unknown, unlabelled.unknown]),
            labels=np.concatenate([labels, labels_of_none(labels, unlabelled.num_predictions)]),
        )

    def places_beside(self, word: int) -> tuple[int, Ints]:
        """Returns the window that answers for a word, and where all words are that it answers for.

        Returns:
            The window, and (W, 2) positions in it: of each word's first token, and the one after
            its last.
        """
        # Windows are sorted by the first word that they answer for.
        window = int(np.searchsorted(self.first, word, side="right")) - 1
        words = slice(self.first[window], self.last[window])
        begins = self.places[words]
        ends = begins + self.sizes[words]
        return window, np.stack([begins, ends], axis=1)

    def collate(self, indices: Ints, padding: Padding) -> WordBatch:
        """Returns some windows as padded tensors."""
        return self.arrays(indices, padding).as_tensors()

    def arrays(self, indices: Ints, padding: Padding) -> WordArrays:
        """Returns some windows as padded arrays, with the place of each word that is answered.

        A word's place is that of its first token: (window, column).
        """
        inputs = padded_text_arrays(self.encoded, indices, padding)
        shape = inputs["input_ids"].shape
        words = self.prediction_indices(indices)
        n_words_of_window = self.weights[indices]
        windows = np.repeat(np.arange(len(indices)), n_words_of_window)
        columns = self.places[words]
        if padding.left:
            n_padding = shape[1] - self.lengths[indices]
            columns = columns + n_padding[windows]
        labels = None
        if self.labels is not None:
            labels = np.full(shape, IGNORED, dtype=np.int64)
            labels[windows, columns] = self.labels[words]
        return WordArrays(inputs, labels, windows, columns)


def encode_words(
    sentences: Sequence[Sequence[str]],
    documents: Sequence[Any] | None,
    tokenizer: Tokenizer,
    *,
    max_length: int,
) -> WordFeatures:
    """Returns words as ids, without labels.

    Every word has at least one token: one that the tokenizer turns into nothing (a zero-width
    space) becomes the unknown token. A word longer than the model is cut to what fits.

    Args:
        sentences: N lists of words; empty ones have no window.
        documents: (N,) value of each row's document: rows beside each other with the same value are
            one document, and fill up each other's windows with context. None: sentences are read
            alone.
        tokenizer: Tokenizer with truncation and padding off.
        max_length: Longest window in tokens, special tokens included.
    """
    layout = Layout.of(tokenizer, pair=False)
    room = max_length - layout.special
    # Each different word is encoded once; `numbers` has its number for each of the W words.
    numbers, vocabulary = numbers_of(chain.from_iterable(sentences))
    tokens, n_cut, n_unknown = _tokens_of(vocabulary, tokenizer, layout, room)
    tokens_of_words = Ragged(tokens.flat, tokens.starts[numbers], tokens.lengths[numbers])
    # The tokens of all words are copied one behind the other, so that windows are slices of them.
    words = merge(len(numbers), [(np.arange(len(numbers)), tokens_of_words)])
    tokens_before = starts_of(words.lengths)  # (W + 1,) tokens before each word
    starts = starts_of([len(sentence) for sentence in sentences])
    windows = _windows(tokens_before, starts, _bounds(starts, documents), room)
    rows, read_begin, read_end, first_answered, end_answered = windows.T
    n_read = tokens_before[read_end] - tokens_before[read_begin]
    ids, type_ids, window_starts = layout.fill(
        [Ragged(words.flat, tokens_before[read_begin], n_read)]
    )
    # Each word is answered for by one window, and windows are sorted by these words, so repeating
    # each window for its words gives the windows of all words in order.
    window_of_word = np.repeat(np.arange(len(rows)), end_answered - first_answered)
    # (W,) tokens of the window's words that are read before the word.
    n_in_front = tokens_before[:-1] - tokens_before[read_begin[window_of_word]]
    positions = layout.before(0) + n_in_front

    n_tokens = np.diff(tokens_before[starts])
    return WordFeatures(
        encoded=EncodedTexts(
            ids,
            type_ids,
            starts=window_starts,
            full_lengths=np.diff(window_starts),
            # Not counted by window, as several windows can read a word; `WordFeatures.unknown`
            # counts each word once.
            unknown=np.zeros(len(rows), dtype=np.int64),
        ).mapped(),
        rows=rows,
        first=first_answered,
        last=end_answered,
        places=positions,
        sizes=words.lengths,
        starts=starts,
        tokens=np.where(n_tokens > 0, n_tokens + layout.special, 0),
        truncated_tokens=_sums_of_rows(n_cut[numbers], starts),
        unknown=_sums_of_rows(n_unknown[numbers], starts),
    )


def _sums_of_rows(values: Ints, starts: Ints) -> Ints:
    """Returns (N,) sums of (W,) values over the words of each row.

    Args:
        values: (W,) value of each word.
        starts: (N + 1,) first word of each row.
    """
    sums_before = starts_of(values)
    return np.diff(sums_before[starts])


def _tokens_of(
    vocabulary: list[str], tokenizer: Tokenizer, layout: Layout, room: int
) -> tuple[Ragged, Ints, Ints]:
    """Returns the tokens of V words, (V,) how many were cut off, and (V,) how many are unknown.

    A word's tokens are the same in any sentence of words that were split before (`is_pretokenized`
    normalises and splits each by itself), so each different word is encoded once.
    """
    unknown = _unknown(tokenizer, layout)
    prefix = " " if needs_space(tokenizer) else ""
    lengths: list[int] = []
    flat: list[Ints32] = [np.zeros(0, dtype=np.int32)]
    for begin in range(0, len(vocabulary), _WORDS_AT_ONCE):
        chunk = [prefix + word for word in vocabulary[begin : begin + _WORDS_AT_ONCE]]
        encodings = tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
        ids = [encoding.ids or [unknown] for encoding in encodings]
        lengths += map(len, ids)
        flat.append(np.array(list(chain.from_iterable(ids)), dtype=np.int32))
    full = np.array(lengths, dtype=np.int64)
    tokens = Ragged.joined(np.concatenate(flat), full)
    n_kept = np.minimum(full, room)
    return tokens.cut(n_kept), full - n_kept, tokens.count(unknown)


def _unknown(tokenizer: Tokenizer, layout: Layout) -> int:
    """Returns the id of the token that stands for a word of which the tokenizer leaves nothing.

    It is the unknown token, or a special token if the vocabulary has no unknown token, as a
    vocabulary of bytes needs none.
    """
    candidates: list[int | None] = [
        unknown_id(tokenizer),
        tokenizer.token_to_id("[UNK]"),
        tokenizer.token_to_id("<unk>"),
    ]
    for slot in layout.slots:
        candidates += slot.ids
    for token_id in candidates:
        if token_id is not None:
            return token_id
    return 0


def _bounds(starts: Ints, documents: Sequence[Any] | None) -> tuple[Ints, Ints]:
    """Returns (N,) first word of what each row may read, and (N,) the word after the last one.

    That is the row itself, or all rows of its document.

    Args:
        starts: (N + 1,) first word of each row.
        documents: (N,) document of each row; None if rows are read alone.
    """
    if documents is None or len(documents) == 0:
        return starts[:-1], starts[1:]
    changes = [i == 0 or documents[i] != documents[i - 1] for i in range(len(documents))]
    number = np.cumsum(changes) - 1
    begins = np.flatnonzero(changes)
    ends = np.append(begins[1:], len(documents))
    return starts[begins][number], starts[ends][number]


def _windows(tokens_before: Ints, starts: Ints, bounds: tuple[Ints, Ints], room: int) -> Ints:
    """Returns (U, 5) what each window reads and answers for, sorted by the words answered for.

    The columns are the row, the first word read, the word after the last one read, the first word
    answered for, and the word after the last one answered for. A row without words has no window.

    Args:
        tokens_before: (W + 1,) tokens before each word, in all rows together.
        starts: (N + 1,) first word of each row.
        bounds: (N,) first word that each row may read, and (N,) the word after the last one.
        room: Tokens that fit into a window.
    """
    n_tokens_of_rows = np.diff(tokens_before[starts])
    fits = (n_tokens_of_rows > 0) & (n_tokens_of_rows <= room)
    windows_of_short = _windows_of_short_rows(
        np.flatnonzero(fits), tokens_before, starts, bounds, room
    )
    windows_of_long = _windows_of_long_rows(
        np.flatnonzero(n_tokens_of_rows > room), tokens_before, starts, room
    )
    windows = np.concatenate([windows_of_short, windows_of_long]).astype(np.int64)
    first_answered = windows[:, 3]
    return windows[np.argsort(first_answered, kind="stable")]


def _windows_of_short_rows(
    rows: Ints, tokens_before: Ints, starts: Ints, bounds: tuple[Ints, Ints], room: int
) -> Ints:
    """Returns one window for each row that fits, filled up with context from its document.

    The result has the columns of `_windows`: the row, the words that are read, and the words of the
    row itself, which the window answers for.

    Args:
        rows: Numbers of the rows that fit. The other arguments are those of `_windows`.
        tokens_before: (W + 1,) tokens before each word.
        starts: (N + 1,) first word of each row.
        bounds: (N,) first word that each row may read, and (N,) the word after the last one.
        room: Tokens that fit into a window.
    """
    begin = starts[rows]
    end = starts[rows + 1]
    first_readable, end_readable = (bound[rows] for bound in bounds)
    # Tokens of the document before the row and behind it.
    n_before = tokens_before[begin] - tokens_before[first_readable]
    n_behind = tokens_before[end_readable] - tokens_before[end]
    free = room - (tokens_before[end] - tokens_before[begin])
    # Half of the free room on each side; what one side has no words for goes to the other.
    room_before = np.minimum(n_before, np.maximum(free // 2, free - n_behind))
    # Only whole words are read, so there may be room left, which the side behind gets.
    read_begin = np.searchsorted(tokens_before, tokens_before[begin] - room_before, side="left")
    n_read_before = tokens_before[begin] - tokens_before[read_begin]
    room_behind = np.minimum(n_behind, free - n_read_before)
    read_end = np.searchsorted(tokens_before, tokens_before[end] + room_behind, side="right") - 1
    return np.stack([rows, read_begin, read_end, begin, end], axis=1)


def _windows_of_long_rows(rows: Ints, tokens_before: Ints, starts: Ints, room: int) -> Ints:
    """Returns windows over rows that are longer than the model; they begin half a window apart.

    The last window of a row reaches back, so that it is full.

    Args:
        rows: Numbers of the long rows. The other arguments are those of `_windows`.
        tokens_before: (W + 1,) tokens before each word.
        starts: (N + 1,) first word of each row.
        room: Tokens that fit into a window.
    """
    rooms = np.full_like(rows, room)
    windows = sliding_windows(
        starts[rows],
        starts[rows + 1],
        room=rooms,
        step=rooms // 2,
        tokens_before=tokens_before,
        reach_back=True,
    )
    first_answered, end_answered = windows.answered(tokens_before)
    columns = [rows[windows.rows], windows.first, windows.last, first_answered, end_answered]
    # A window whose words all have more context in its neighbours answers for none.
    return np.stack(columns, axis=1)[first_answered < end_answered]
