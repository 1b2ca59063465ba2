"""Texts as what the encoder is given: one unit a text, or several windows of a long one; the words they are made of.

Letters: N rows, U units, T tokens of all units together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.tokenization.encode import EncodedTexts, TextEncoder
from bertctl.tokenization.reference import chunks, load_tokenizer

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Units:
    """N texts (or pairs, or lists of words) as numbers.

    Attributes:
        ids: (T,) pieces, special tokens included.
        type_ids: (T,) segments.
        starts: (U + 1,) where each unit begins.
        owner: (U,) row that each unit belongs to, ascending.
        rows: N.
        truncated: rows of which something was cut off.
        lost_tokens: tokens that were cut off.
        unknown: unknown tokens.
        kept: (T,) whether a token's own vector is wanted here; a piece that stands in two windows is wanted from the
            one where it has more context. None where tokens are not asked for one by one.
        spans: (T, 2) first and last + 1 character of each piece in its text (in its word, where words were given);
            with `kept`.
        words: (T,) number of each piece's word in its row, -1 for special tokens; with `kept`.
        word_counts: (N,) words of each row, where they were given; those that were cut off have no pieces.
    """

    ids: NDArray[np.int32]
    type_ids: NDArray[np.uint8]
    starts: Ints
    owner: Ints
    rows: int
    truncated: int
    lost_tokens: int
    unknown: int
    kept: NDArray[np.bool_] | None = None
    spans: NDArray[np.int32] | None = None
    words: Ints | None = None
    word_counts: Ints | None = None

    @classmethod
    def of(cls, encoded: EncodedTexts) -> Self:
        """Encoded texts, one unit each."""
        return cls(
            ids=encoded.ids,
            type_ids=encoded.type_ids,
            starts=encoded.starts,
            owner=np.arange(len(encoded)),
            rows=len(encoded),
            truncated=int(encoded.truncated.sum()),
            lost_tokens=int((encoded.full_lengths - encoded.lengths).sum()),
            unknown=int(encoded.unknown.sum()),
        )

    @property
    def lengths(self) -> Ints:
        """(U,) tokens of each unit."""
        return np.diff(self.starts)


class UnitMaker:
    """Makes units of portion after portion of rows.

    Args:
        tokenizer: with truncation and padding off.
        max_length: longest unit in tokens.
        stride: tokens that each window of a long text repeats of the one before; None cuts long texts.
        by_token: whether tokens are asked for one by one, with their places in the text.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_length: int, stride: int | None, by_token: bool) -> None:
        self._flat = TextEncoder(tokenizer, max_length=max_length)
        self._max_length = max_length
        self._stride = stride
        self._by_token = by_token
        self._whole = tokenizer
        self._cutting = load_tokenizer(tokenizer.to_str())
        room = max_length - tokenizer.num_special_tokens_to_add(False)
        if stride is not None and not 0 <= stride < room:
            raise UsageError(
                f"--stride {stride} does not fit: a window has room for {room} tokens, and must move forward",
                remedy=f"Take a stride from 0 to {room - 1}.",
            )
        self._cutting.enable_truncation(max_length, stride=stride or 0)

    def make(self, rows: Rows) -> Units:
        """Units of these rows.

        Raises:
            UsageError: windows over pairs.
        """
        texts = rows.columns["text"]
        pairs = rows.columns["pair"] if rows.has("pair") else None
        given_words = rows.columns["words"] if rows.has("words") else None
        if pairs is not None and self._stride is not None:
            raise UsageError(
                "--stride slides a window over one text, and these are pairs", remedy="Leave it out: pairs are cut."
            )
        if not self._by_token and self._stride is None and given_words is None:
            return Units.of(self._flat.encode(texts, pairs))
        return self._with_places(texts, pairs, given_words)

    def _with_places(
        self, texts: Sequence[str], pairs: Sequence[str] | None, words: Sequence[Sequence[str]] | None
    ) -> Units:
        found: list[tuple[int, int, Encoding]] = []  # row, first piece of the window in the text, window
        truncated = lost = 0
        special = self._whole.num_special_tokens_to_add(pairs is not None)
        step = self._max_length - special - (self._stride or 0)
        inputs: Sequence[Any] = (
            words if words is not None else texts if pairs is None else list(zip(texts, pairs, strict=True))
        )
        row = 0
        for portion in chunks(list(inputs)) if words is None else [inputs]:
            encodings = self._cutting.encode_batch(list(portion), is_pretokenized=words is not None)
            for encoding in encodings:
                windows = [encoding, *encoding.overflowing]
                if len(windows) > 1 and self._stride is None:
                    truncated += 1
                    lost += sum(len(window) - special for window in windows[1:])
                    windows = windows[:1]
                found += [(row, number * step, window) for number, window in enumerate(windows)]
                row += 1
        owner = np.array([row for row, _, _ in found], dtype=np.int64)
        encodings = [encoding for _, _, encoding in found]
        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
        ids = _joined([encoding.ids for encoding in encodings], np.int32)
        unknown = self._flat_unknown(ids)
        places = [-1 if w is None else w for encoding in encodings for w in encoding.word_ids]
        if pairs is not None:  # the second sentence's words are counted on
            places = _pair_words(encodings)
        return Units(
            ids=ids,
            type_ids=_joined([encoding.type_ids for encoding in encodings], np.uint8),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            owner=owner,
            rows=row,
            truncated=truncated,
            lost_tokens=lost,
            unknown=unknown,
            kept=_kept(found) if self._by_token else None,
            spans=np.array([o for e in encodings for o in e.offsets], dtype=np.int32).reshape(-1, 2),
            words=np.array(places, dtype=np.int64),
            word_counts=None if words is None else np.array([len(each) for each in words], dtype=np.int64),
        )

    def _flat_unknown(self, ids: NDArray[np.int32]) -> int:
        from bertctl.tokenization.reference import unknown_id

        number = unknown_id(self._whole)
        return 0 if number is None else int((ids == number).sum())


def _joined(parts: Sequence[Sequence[int]], dtype: Any) -> NDArray[Any]:
    return np.array([value for part in parts for value in part], dtype=dtype)


def _pair_words(encodings: Sequence[Encoding]) -> list[int]:
    numbers: list[int] = []
    for encoding in encodings:
        first = [w for w, s in zip(encoding.word_ids, encoding.sequence_ids, strict=True) if s == 0 and w is not None]
        shift = max(first, default=-1) + 1
        numbers += [
            -1 if w is None else w + (shift if s == 1 else 0)
            for w, s in zip(encoding.word_ids, encoding.sequence_ids, strict=True)
        ]
    return numbers


def _kept(found: Sequence[tuple[int, int, Encoding]]) -> NDArray[np.bool_]:
    """Each piece once: from the window in which the nearer end is farther off (google-research/bert
    `run_squad.py::_check_is_max_context`), the earlier one on a tie. Special tokens: of the first window the ones
    before the text, of the last those behind it.
    """
    best: dict[tuple[int, int], tuple[int, int]] = {}  # (row, piece) -> (context, place in the flat arrays)
    kept: list[bool] = []
    place = 0
    for index, (row, first, encoding) in enumerate(found):
        is_first = index == 0 or found[index - 1][0] != row
        is_last = index + 1 == len(found) or found[index + 1][0] != row
        special = encoding.special_tokens_mask
        inside = [i for i, flag in enumerate(special) if not flag]
        begin, end = (inside[0], inside[-1]) if inside else (len(special), -1)
        number = first
        for i, flag in enumerate(special):
            kept.append(bool(flag) and ((i < begin and is_first) or (i > end and is_last) or (is_first and is_last)))
            if not flag:
                context = min(i - begin, end - i)
                before = best.get((row, number))
                if before is None or context > before[0]:
                    if before is not None:
                        kept[before[1]] = False
                    best[row, number] = (context, place + i)
                    kept[-1] = True
                number += 1
        place += len(special)
    return np.array(kept, dtype=np.bool_)
