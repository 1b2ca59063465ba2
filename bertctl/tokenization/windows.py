"""The reference library's own cut: windows, one-sided cuts, and records with offsets. No numpy but for a cut."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from tokenizers import Encoding, Tokenizer

from bertctl.errors import DataError, UsageError
from bertctl.tokenization.reference import chunks, load_tokenizer, unknown_id
from bertctl.tokenization.stream import Portion, Totals

if TYPE_CHECKING:
    from bertctl.tokenization.encode import EncodedTexts
    from bertctl.tokenization.formats import Writer

Strategy = Literal["longest_first", "only_first", "only_second"]


@dataclass(frozen=True)
class Cut:
    """How long a text may be, and what becomes of the rest.

    Attributes:
        max_length: longest row in tokens, special tokens included; None for no cut.
        strategy: which sentence of a pair is cut.
        stride: tokens that each window repeats of the one before; None for no windows, the rest is dropped.
    """

    max_length: int | None = None
    strategy: Strategy = "longest_first"
    stride: int | None = None

    def check(self, tokenizer: Tokenizer, *, pair: bool, special_tokens: bool) -> None:
        """Refuse lengths that leave no room.

        Raises:
            UsageError: no room for a token, a stride as long as the window, a stride without a length.
        """
        if self.max_length is None:
            if self.stride is not None or self.strategy != "longest_first":
                raise UsageError(
                    "--stride and --truncation cut at a length, and there is none", remedy="Add --max-length."
                )
            return
        special = tokenizer.num_special_tokens_to_add(pair) if special_tokens else 0
        room = self.max_length - special
        if room < 1:
            raise UsageError(
                f"--max-length {self.max_length} leaves no room beside {special} special tokens",
                remedy=f"Take at least {special + 1}, or add --no-special-tokens.",
            )
        if self.stride is not None and pair and self.strategy == "longest_first":
            raise UsageError(
                "--stride slides a window over one sentence of a pair, and it is open which",
                remedy="Add --truncation only_second (or only_first).",
            )
        if self.strategy != "longest_first" and not pair:
            raise UsageError(f"--truncation {self.strategy} is for pairs", remedy="Leave it out, or add the pair.")
        if self.stride is not None and not 0 <= self.stride < room:
            raise UsageError(
                f"--stride {self.stride} does not fit: a window has room for {room} tokens, and must move forward",
                remedy=f"Take a stride from 0 to {room - 1}.",
            )


class WindowJob:
    """By the reference library: windows, one-sided cuts, offsets.

    Args:
        tokenizer: with truncation and padding off; it is left that way.
        cut: length, strategy and stride, checked.
        special_tokens: whether they are added.
        writer: gets ids, a row for each window; or
        records: gets lines of JSON, one for each window.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        cut: Cut,
        *,
        special_tokens: bool = True,
        writer: "Writer | None" = None,
        records: BinaryIO | None = None,
    ) -> None:
        self.totals = Totals()
        self._cut = cut
        self._special_tokens = special_tokens
        self._writer = writer
        self._records = records
        self._unknown_id = -1 if (unknown := unknown_id(tokenizer)) is None else unknown
        self._tokenizer = self._cutting = tokenizer
        if cut.max_length is not None:
            from bertctl.tokenization.encode import TextEncoder

            self._uncut = TextEncoder(tokenizer, special_tokens=special_tokens)
            self._bare = TextEncoder(tokenizer, special_tokens=False)
            self._cutting = load_tokenizer(tokenizer.to_str())
            self._cutting.enable_truncation(cut.max_length, stride=cut.stride or 0, strategy=cut.strategy)

    def encode(self, portion: Portion) -> tuple[int, list[tuple[bool, list[Encoding]]]]:
        """Number of the first text; for each text whether it was cut, and its windows (without a stride: one)."""
        first = self.totals.texts
        full = None if self._cut.max_length is None else self._full_lengths(portion, self._cut.max_length)
        pairs = portion.pairs
        inputs: list[Any] = list(portion.texts) if pairs is None else list(zip(portion.texts, pairs, strict=True))
        encodings = [
            encoding
            for chunk in chunks(inputs)
            for encoding in self._cutting.encode_batch(chunk, add_special_tokens=self._special_tokens)
        ]
        striding = self._cut.stride is not None
        windows = [[e, *e.overflowing] if striding else [e] for e in encodings]
        is_cut = [False] * len(windows)
        if full is None:
            self.totals.unknown += sum(e.ids.count(self._unknown_id) for e in encodings)
        else:
            is_cut = [length > len(e) for length, e in zip(full, encodings, strict=True)]
            if not striding:
                self.totals.truncated += sum(is_cut)
                self.totals.lost += sum(full) - sum(map(len, encodings))
        self.totals.texts += len(windows)
        self.totals.rows += sum(map(len, windows))
        self.totals.tokens += sum(len(part) for parts in windows for part in parts)
        return first, list(zip(is_cut, windows, strict=True))

    def write(self, encoded: tuple[int, list[tuple[bool, list[Encoding]]]]) -> None:
        """Write the windows."""
        first, texts = encoded
        if self._writer is not None:
            self._writer.write(_flat([part for _, parts in texts for part in parts]))
        if self._records is not None:
            self._records.write(b"".join(self._lines(first, texts)))
            self._records.flush()

    def full_length(self, text: str, pair: str | None) -> int:
        """Tokens of one text, or pair, without the cut."""
        return len(self._tokenizer.encode(text, pair, add_special_tokens=self._special_tokens))

    def _lines(self, first: int, texts: list[tuple[bool, list[Encoding]]]) -> Iterable[bytes]:
        striding = self._cut.stride is not None
        for index, (is_cut, parts) in enumerate(texts, start=first):
            for number, part in enumerate(parts):
                truncated = is_cut if self._cut.max_length is not None and not striding else None
                yield json_line(record(part, index=index, window=number if striding else None, truncated=truncated))

    def _full_lengths(self, portion: Portion, max_length: int) -> list[int]:
        """Tokens of each text without the cut.

        Raises:
            DataError: the sentence that must stay whole leaves the other no room (the library panics there).
        """
        uncut = self._uncut.encode(portion.texts, portion.pairs)
        self.totals.unknown += int(uncut.unknown.sum())
        full: list[int] = uncut.full_lengths.tolist()
        cut = self._cut
        if cut.strategy == "longest_first" or portion.pairs is None:
            return full
        stays = self._bare.encode(portion.pairs if cut.strategy == "only_first" else portion.texts).lengths.tolist()
        special = self._tokenizer.num_special_tokens_to_add(True) if self._special_tokens else 0
        for row, (length, whole) in enumerate(zip(full, stays, strict=True)):
            if length > max_length and max_length - special - whole <= (cut.stride or 0):
                raise DataError(
                    f"text {self.totals.texts + row + 1}: with {cut.strategy}, the sentence that stays whole has "
                    f"{whole} tokens, which leaves too little of {max_length} for the other",
                    remedy="Take a larger --max-length" + (" or a smaller --stride." if cut.stride else "."),
                )
        return full


def record(
    encoding: Encoding, *, index: int, window: int | None = None, truncated: bool | None = None
) -> dict[str, Any]:
    """What the format jsonl says of one text (or of one window of it).

    `offsets` are where a piece begins and ends in the text that it comes from, in characters, `[0, 0]` for special
    tokens; `word_ids` number the words of each text, `null` for special tokens.
    """
    document: dict[str, Any] = {"index": index}
    if window is not None:
        document["window"] = window
    document |= {
        "pieces": encoding.tokens,
        "ids": encoding.ids,
        "type_ids": encoding.type_ids,
        "offsets": encoding.offsets,
        "word_ids": encoding.word_ids,
    }
    if truncated is not None:
        document["truncated"] = truncated
    return document


def json_line(document: dict[str, Any]) -> bytes:
    """A JSON document on one line."""
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _flat(encodings: Sequence[Encoding]) -> "EncodedTexts":
    """Windows as rows; nothing counts as cut."""
    import numpy as np

    from bertctl.tokenization.encode import EncodedTexts

    lengths = np.array([len(e) for e in encodings], dtype=np.int64)
    return EncodedTexts(
        ids=np.array([i for e in encodings for i in e.ids], dtype=np.int32),
        type_ids=np.array([i for e in encodings for i in e.type_ids], dtype=np.uint8),
        starts=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
        full_lengths=lengths,
        unknown=np.zeros(len(encodings), dtype=np.int64),
    )
