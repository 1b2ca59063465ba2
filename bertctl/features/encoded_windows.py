"""Texts as what the encoder reads.

There is one window per text, or several of a long one, with the words they are made of.

Letters: N rows, U windows, T tokens of all windows together.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Bools, Ints, Ints32
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.modeling.sentence_folder import SentenceModules
from bertctl.tasks.sequences import SequenceFeatures, encode_rows
from bertctl.tokenization.encode import EncodedTexts
from bertctl.tokenization.layout import Layout, Ragged, longest_first
from bertctl.tokenization.long_texts import LongText
from bertctl.tokenization.reference import chunks, needs_space, unknown_id
from bertctl.tokenization.sliding_windows import SlidingWindows, sliding_windows
from bertctl.tokenization.windows import check_stride


@dataclass(frozen=True)
class TokenPlaces:
    """Origin of the tokens of windows.

    Attributes:
        kept: (T,) whether a token's own vector is read here; of two windows that share a token, in
            the one where it has more context.
        spans: (T, 2) first and last + 1 character of each token in its text (in its word, where
            words were given).
        words: (T,) number of each token's word in its row, -1 for special tokens.
        word_counts: (N,) words of each row, where they were given; those that were cut off have no
            tokens.
        second: (T,) whether it is of the second text.
    """

    kept: Bools
    spans: Ints32
    words: Ints
    word_counts: Ints | None
    second: Bools


@dataclass(frozen=True)
class EncodedWindows:
    """N texts (or pairs, or lists of words) as numbers.

    Attributes:
        encoded: (U,) windows as ids, special tokens included.
        owner: (U,) row that each window belongs to; ascending where tokens are asked for one by
            one.
        rows: How many texts there are, N.
        truncated: Number of rows from which something was cut off.
        truncated_tokens: Tokens that were cut off.
        unknown: Unknown tokens.
        places: Where tokens come from, if vectors of single tokens are asked for; else None.
        all_unknown: Numbers of the rows that have tokens and not one that the vocabulary knows.
    """

    encoded: EncodedTexts
    owner: Ints
    rows: int
    truncated: int
    truncated_tokens: int
    unknown: int
    places: TokenPlaces | None = None
    all_unknown: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, texts: SequenceFeatures, *, n_special: int | None = None) -> Self:
        """Returns the windows of encoded texts: one of each text, or several of a long one.

        Args:
            texts: Encoded texts, with their counts of tokens that were cut off or are unknown.
            n_special: Special tokens of a text. If it is None, the rows whose tokens are all
                unknown are not looked for, and `all_unknown` is empty.
        """
        encoded, owner = texts.texts_and_rows()
        lost = texts.truncated_tokens
        all_unknown = np.empty(0, dtype=np.int64)
        if n_special is not None:
            # `unknown` counts the tokens of a text before it was cut, so all of these are counted
            # here, too. Special tokens are always known.
            n_tokens = texts.tokens + lost - n_special
            all_unknown = np.flatnonzero((texts.unknown > 0) & (texts.unknown == n_tokens))
        return cls(
            encoded,
            owner,
            len(texts),
            truncated=int((lost > 0).sum()),
            truncated_tokens=int(lost.sum()),
            unknown=int(texts.unknown.sum()),
            all_unknown=all_unknown,
        )


class RowEncoder:
    """Encodes one chunk of rows after the other.

    Args:
        tokenizer: With truncation and padding off.
        long: The longest window in tokens, and what is read of longer texts.
        by_token: Whether tokens are asked for one by one, with their places in the text.
        sentence_modules: What the model's folder has put before each text.

    Raises:
        UsageError: Windows that can't move forward; both ends of texts, token by token.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        long: LongText,
        *,
        by_token: bool,
        sentence_modules: SentenceModules | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._long = long
        self._by_token = by_token
        self._sentence_modules = sentence_modules
        room = long.max_length - tokenizer.num_special_tokens_to_add(False)
        if long.mode == "window":
            check_stride(long.stride, room)
        if by_token and long.mode.endswith("tail"):
            raise UsageError(
                f"`long_text={long.mode}` is for one vector per text",
                remedy="Use `long_text=window`.",
            )

    def encode(self, rows: Rows) -> EncodedWindows:
        """Returns the windows of these rows.

        Raises:
            UsageError: Windows over pairs.
        """
        prompt_length = 0  # in characters; offsets of tokens count from behind the prompt
        if self._sentence_modules is not None:
            prompt_length = len(self._sentence_modules.prompt())
            prompted_texts = self._sentence_modules.prepared(rows.columns["text"])
            rows = replace(rows, columns={**rows.columns, "text": prompted_texts})
        texts = rows.columns["text"]
        if rows.has("pair"):
            pairs = rows.columns["pair"]
        else:
            pairs = None
        if rows.has("words"):
            words = rows.columns["words"]
        else:
            words = None
        if pairs is not None and self._long.mode == "window":
            message = "`stride=` slides a window over one text, and these are pairs"
            raise UsageError(message, remedy="Leave it out: pairs are cut.")
        # Offsets of tokens are needed for vectors of tokens and for words. If they are not needed,
        # a quicker encoder, which has no offsets, is used.
        if not self._by_token and words is None:
            n_special = self._tokenizer.num_special_tokens_to_add(pairs is not None)
            return EncodedWindows.of(
                encode_rows(rows, None, self._tokenizer, self._long), n_special=n_special
            )
        sides = [
            _Side.of(
                self._tokenizer,
                words or texts,
                are_words=words is not None,
                before=prompt_length,
            )
        ]
        if pairs is not None:
            sides.append(_Side.of(self._tokenizer, pairs, are_words=False))
        return self._windows(
            sides,
            None if words is None else np.array([len(word) for word in words], dtype=np.int64),
        )

    def _windows(self, sides: "Sequence[_Side]", word_counts: Ints | None) -> EncodedWindows:
        """Returns the windows of N rows whose tokens have offsets.

        Args:
            sides: The first texts of the rows, and for pairs the second ones.
            word_counts: (N,) words of each row; None where rows are texts.
        """
        layout = Layout.of(self._tokenizer, pair=len(sides) > 1)
        room = self._long.max_length - layout.special
        lengths = [side.tokens.lengths for side in sides]
        n_rows = len(lengths[0])
        zeros = np.zeros(n_rows, dtype=np.int64)
        # Tokens of the first and the second texts that are read. Windows read all of them.
        kept_lengths = lengths[0]
        kept_pair_lengths = lengths[1] if len(sides) > 1 else None
        if self._long.mode != "window":
            kept_lengths, kept_pair_lengths = longest_first(kept_lengths, kept_pair_lengths, room)
            windows = SlidingWindows(np.arange(n_rows), zeros, kept_lengths)  # one for each row
        else:
            step = zeros + (room - self._long.stride)
            windows = sliding_windows(
                zeros,
                kept_lengths,
                room=zeros + room,
                step=step,
                reach_back=True,
            )
        first_texts = sides[0].tokens
        window_starts = first_texts.starts[windows.rows] + windows.first
        side_tokens = [Ragged(first_texts.flat, window_starts, windows.last - windows.first)]
        if kept_pair_lengths is not None:
            side_tokens.append(sides[1].tokens.cut(kept_pair_lengths))
        ids, type_ids, starts = layout.fill(side_tokens)
        lost = sum(lengths) - kept_lengths
        if kept_pair_lengths is not None:
            lost = lost - kept_pair_lengths
        unknown = unknown_id(self._tokenizer)
        token_places = None
        if self._by_token:
            token_places = _token_places(layout, sides, side_tokens, windows, word_counts)
        return EncodedWindows(
            EncodedTexts(
                ids,
                type_ids,
                starts,
                full_lengths=np.diff(starts),
                unknown=np.zeros(len(starts) - 1, dtype=np.int64),
            ),
            owner=windows.rows,
            rows=n_rows,
            truncated=int((lost > 0).sum()),
            truncated_tokens=int(lost.sum()),
            unknown=sum(int((side.tokens.flat == unknown).sum()) for side in sides),
            places=token_places,
        )


_Token = tuple[int, tuple[int, int], int | None]
"""Id of a token, its characters, and the number of its word."""


@dataclass(frozen=True)
class _Side:
    """First or second text of each row, without special tokens.

    Attributes:
        tokens: (N,) ids of each text.
        spans: (T, 2) characters of each token; nothing of the prompt before a text.
        words: (T,) number of each token's word in its text.
    """

    tokens: Ragged
    spans: Ints32
    words: Ints

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, texts: Sequence[Any], *, are_words: bool, before: int = 0
    ) -> Self:
        """Encodes texts, or lists of words.

        A tokenizer may have other tokens for a word after a space. For such a tokenizer, each word
        gets a space before it, as in a text.

        Args:
            tokenizer: With truncation and padding off.
            texts: N texts, or N lists of words.
            are_words: Whether they are lists of words.
            before: Characters of the prompt at the beginning of each text (not of lists of words).
                The spans of tokens are counted from behind it.
        """
        # Characters in front of a text (the prompt) or of a word (its space). The spans of tokens
        # are counted without them.
        n_put_before = 0 if are_words else before
        if are_words and needs_space(tokenizer):
            texts = [_with_spaces(words) for words in texts]
            n_put_before = 1
        tokens_by_text: list[list[_Token]] = []
        text_chunks = [texts] if are_words else chunks(texts)
        for chunk in text_chunks:
            encodings = tokenizer.encode_batch(
                list(chunk), is_pretokenized=are_words, add_special_tokens=False
            )
            tokens_by_text.extend(
                list(zip(encoding.ids, encoding.offsets, encoding.word_ids, strict=True))
                for encoding in encodings
            )
        # The normalizer may leave nothing of a word. It gets an unknown token, so that each word
        # has a vector.
        unknown = unknown_id(tokenizer)
        if are_words and unknown is not None:
            for words_of_text, tokens in zip(texts, tokens_by_text, strict=True):
                _add_lost_words(tokens, words_of_text, unknown)

        flat = list(itertools.chain.from_iterable(tokens_by_text))
        ids = np.array([token_id for token_id, _, _ in flat], np.int32)
        spans = np.array([span for _, span, _ in flat], np.int32).reshape(-1, 2)
        words = np.array([word for _, _, word in flat], dtype=np.int64)
        lengths = np.array([*map(len, tokens_by_text)], np.int64)
        return cls(Ragged.joined(ids, lengths), np.maximum(spans - n_put_before, 0), words)


def _add_lost_words(tokens: list[_Token], words: Sequence[str], unknown: int) -> None:
    """Adds an unknown token for each word that the normalizer has made empty, in place.

    Args:
        tokens: Tokens of a text, in the order of its words; the new ones are put between them.
        words: All words of the text.
        unknown: Id of the unknown token.
    """
    words_with_tokens = {word for *_, word in tokens}
    for number, word in enumerate(words):
        if number not in words_with_tokens:
            tokens.append((unknown, (0, len(word)), number))
    tokens.sort(key=lambda token: token[2] or 0)


def _with_spaces(words: Sequence[str]) -> list[str]:
    """Returns words as they stand within a text, each behind a space."""
    return [f" {word}" for word in words]


def _token_places(
    layout: Layout,
    sides: Sequence[_Side],
    side_tokens: Sequence[Ragged],
    windows: SlidingWindows,
    word_counts: Ints | None,
) -> TokenPlaces:
    """Returns where each token of the windows comes from: its characters, its word, its text.

    Tokens get running numbers: first the tokens of all first texts, then the tokens of all second
    texts. `Layout.fill` puts these numbers where it otherwise puts ids, so that each token of a
    window leads back to its span and word in `_Side`.

    Args:
        layout: Order of special tokens and texts in a window.
        sides: The first texts of the rows, and for pairs the second ones.
        side_tokens: For each side the tokens of each window.
        windows: Windows over the first texts.
        word_counts: (N,) words of each row, which the result passes on; None where rows are texts.
    """
    # Special tokens come from no text: their number is -1.
    unnumbered_slots = [replace(slot, ids=(-1,) * len(slot.ids)) for slot in layout.slots]
    number_layout = Layout(tuple(unnumbered_slots))
    n_first_tokens = len(sides[0].spans)
    numbered_tokens = []
    n_numbered = 0
    for tokens in side_tokens:
        n_tokens = len(tokens.flat)
        numbers = np.arange(n_numbered, n_numbered + n_tokens, dtype=np.int32)
        numbered_tokens.append(replace(tokens, flat=numbers))
        n_numbered += n_tokens
    source, _, starts = number_layout.fill(numbered_tokens)

    is_kept = _is_read_here(
        source,
        starts,
        windows=windows,
        first_texts=sides[0],
        n_before=layout.before(0),
    )
    words = [side.words for side in sides]
    if len(sides) > 1:
        words[1] = _words_after_first_text(sides, side_tokens[0])
    # Special tokens have the number -1, which reads the last entry of these arrays.
    no_span = np.zeros((1, 2), dtype=np.int32)
    spans = np.concatenate([*(side.spans for side in sides), no_span])
    return TokenPlaces(
        is_kept,
        spans=spans[source],
        words=np.concatenate([*words, [-1]])[source],
        word_counts=word_counts,
        second=source >= n_first_tokens,
    )


def _is_read_here(
    source: Ints32, starts: Ints, *, windows: SlidingWindows, first_texts: _Side, n_before: int
) -> Bools:
    """Returns (T,) whether a token's vector is read in its window, so that each is read once.

    A token of a first text is read in the window that answers for it. Of a row with several
    windows, special tokens before the text are read in the first window. What stands behind the
    text is read in the last one.

    Args:
        source: (T,) running number of each token of the windows; -1 for special tokens.
        starts: (U + 1,) where each window begins in `source`.
        windows: Windows over the first texts.
        first_texts: The first texts, whose tokens have the lowest numbers.
        n_before: Number of special tokens before the first text.
    """
    window = np.repeat(np.arange(len(windows.rows)), np.diff(starts))
    is_first_of_row = np.diff(windows.rows, prepend=-1) > 0  # rows of windows are ascending
    is_last_of_row = np.append(is_first_of_row[1:], True)
    column = np.arange(len(source)) - starts[window]
    stands_before_text = column < n_before
    is_read = np.where(stands_before_text, is_first_of_row[window], is_last_of_row[window])

    row_starts = first_texts.tokens.starts[windows.rows]
    first_answered, end_answered = windows.answered()
    begin = (row_starts + first_answered)[window]
    end = (row_starts + end_answered)[window]
    is_answered = (source >= begin) & (source < end)
    is_of_first_text = (source >= 0) & (source < len(first_texts.spans))
    is_kept: Bools = np.where(is_of_first_text, is_answered, is_read)
    return is_kept


def _words_after_first_text(sides: Sequence[_Side], first_tokens: Ragged) -> Ints:
    """Returns (T,) word numbers of the second texts, which follow those of the row's first text.

    Args:
        sides: The first and the second texts of N rows.
        first_tokens: (N,) tokens of the first texts that are read, in one window per row.
    """
    first_texts, second_texts = sides
    is_empty = first_tokens.lengths == 0
    last_tokens = np.where(is_empty, 0, first_tokens.starts + first_tokens.lengths - 1)
    if len(first_texts.words):
        n_words_before = np.where(is_empty, 0, 1 + first_texts.words[last_tokens])
    else:  # all first texts are empty, and no token could be looked up
        n_words_before = np.zeros_like(last_tokens)
    words: Ints = second_texts.words + np.repeat(n_words_before, second_texts.tokens.lengths)
    return words
