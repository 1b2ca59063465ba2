"""Texts encoded with offsets by the reference library, truncated or cut into windows.

Needs no numpy.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from tokenizers import Encoding, Tokenizer

from bertctl.documents import loading
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.tokenization.reference import OTHER_TOKENIZER, chunks, truncating, unknown_id
from bertctl.tokenization.stream import TextChunk, Totals

Strategy = Literal["longest_first", "only_first", "only_second"]


def check_stride(stride: int, room: int) -> None:
    """Refuses windows that do not move forward.

    Args:
        stride: Tokens that each window repeats of the one before.
        room: Tokens of the text that fit into a window.

    Raises:
        UsageError: With what fits.
    """
    if not 0 <= stride < room:
        message = (
            f"`stride={stride}` does not fit: a window has room for {room} tokens, and must move "
            "forward"
        )
        raise UsageError(message, remedy=f"Take a stride from 0 to {room - 1}.")


@dataclass(frozen=True)
class Truncation:
    """Rule for how long a text may be, and what happens to the rest.

    Attributes:
        max_length: longest row in tokens, special tokens included; None for no limit.
        strategy: which text of a pair is truncated.
        stride: tokens that each window repeats of the one before; None drops the rest instead of
            making windows.
        special_tokens: whether they are added.
    """

    max_length: int | None = None
    strategy: Strategy = "longest_first"
    stride: int | None = None
    special_tokens: bool = True

    def checked(self, chunks: Iterable[TextChunk], tokenizer: Tokenizer) -> Iterator[TextChunk]:
        """Yields the chunks, each after `check`: only its rows show whether a file has pairs."""
        for chunk in chunks:
            self.check(tokenizer, pair=chunk.pairs is not None)
            yield chunk

    def check(self, tokenizer: Tokenizer, *, pair: bool) -> None:
        """Refuses options that contradict each other, and a length that leaves no room.

        Raises:
            UsageError: no room for a token, a stride as long as the window, a stride without a
                length.
        """
        if self.max_length is None:
            if self.stride is not None or self.strategy != "longest_first":
                message = "`stride=` and `truncation=` cut at a length, and there is none"
                raise UsageError(message, remedy="Add `max_length=`.")
            return
        if self.special_tokens:
            special = tokenizer.num_special_tokens_to_add(pair)
        else:
            special = 0
        room = self.max_length - special
        if room < 1:
            message = (
                f"`max_length={self.max_length}` leaves no room beside {special} special tokens"
            )
            raise UsageError(
                message, remedy=f"Take at least {special + 1}, or add `special_tokens=False`."
            )
        if self.stride is not None and pair and self.strategy == "longest_first":
            message = "`stride=` slides a window over one text of a pair, and does not know which"
            raise UsageError(message, remedy="Add `truncation=only_second` (or only_first).")
        if self.strategy != "longest_first" and not pair:
            raise UsageError(
                f"`truncation={self.strategy}` is for pairs",
                remedy="Leave it out, or add the pair.",
            )
        if self.stride is not None:
            check_stride(self.stride, room)


@dataclass(frozen=True)
class TextWindows:
    """Text, or pair, as the reference library encodes it.

    Attributes:
        index: number of the text in the input.
        windows: all windows with a stride, else one.
        full_length: tokens before truncation.
    """

    index: int
    windows: Sequence[Encoding]
    full_length: int

    def records(self, truncation: Truncation) -> list[dict[str, Any]]:
        """Returns the document that the format jsonl has for each window.

        `pieces` is the older name of `tokens`.

        `offsets` are where a token begins and ends in its text, in characters, `[0, 0]` for special
        tokens; `word_ids` number the words of each text, `null` for special tokens.
        """
        has_windows = truncation.stride is not None
        documents = []
        for number, window in enumerate(self.windows):
            document: dict[str, Any] = {"index": self.index}
            if has_windows:
                document["window"] = number
            document["tokens"] = window.tokens
            document["pieces"] = window.tokens
            document["ids"] = window.ids
            document["type_ids"] = window.type_ids
            document["offsets"] = window.offsets
            document["word_ids"] = window.word_ids
            if truncation.max_length is not None and not has_windows:
                document["truncated"] = self.full_length > len(window)
            documents.append(document)
        return documents


class WindowEncoder:
    """Encodes chunk after chunk by the reference library.

    It gives windows, truncation on one side of a pair, and offsets.

    Args:
        tokenizer: with truncation and padding off; it is left that way.
        truncation: checked length, strategy and stride.
    """

    def __init__(self, tokenizer: Tokenizer, truncation: Truncation) -> None:
        self.totals = Totals()
        self._tokenizer = tokenizer
        self._truncation = truncation
        self._unknown_id = unknown_id(tokenizer)

    @loading("the tokenizer", kind=UnavailableError, remedy=OTHER_TOKENIZER)
    def encode(self, chunk: TextChunk) -> list[TextWindows]:
        """Returns the windows of each text of the chunk.

        Raises:
            DataError: the text of a pair that must stay whole leaves no room for the other.
        """
        texts = chunk.texts
        pairs = chunk.pairs
        if pairs is None:
            inputs: list[Any] = list(texts)
        else:
            inputs = list(zip(texts, pairs, strict=True))
        encoded = list(chain.from_iterable(map(self._encode, chunks(inputs))))
        # With a stride, the windows of a text have all its tokens, so nothing is lost.
        if self._truncation.stride is None:
            lost = [text.full_length - len(text.windows[0]) for text in encoded]
            self.totals.truncated += sum(map(bool, lost))
            self.totals.lost += sum(lost)
        self.totals.rows += sum(len(text.windows) for text in encoded)
        windows = chain.from_iterable(text.windows for text in encoded)
        self.totals.tokens += sum(map(len, windows))
        return encoded

    def _encode(self, inputs: Sequence[Any]) -> list[TextWindows]:
        """Returns the windows of texts or pairs that the library can take at once.

        Those that are too long are encoded twice: only the first time shows how long they are.

        Raises:
            DataError: The text of a pair that must stay whole leaves no room for the other.
        """
        encodings = self._tokenizer.encode_batch(
            inputs, add_special_tokens=self._truncation.special_tokens
        )
        n_before = self.totals.texts
        self.totals.texts += len(encodings)
        if self._unknown_id is not None:
            self.totals.unknown += sum(
                encoding.ids.count(self._unknown_id) for encoding in encodings
            )
        # Each text in one window, as long as it is. Those that are too long are replaced below.
        texts = [
            TextWindows(n_before + i, [encoding], len(encoding))
            for i, encoding in enumerate(encodings)
        ]
        max_length = self._truncation.max_length
        stride = self._truncation.stride
        if max_length is None:
            return texts
        too_long = [i for i, text in enumerate(texts) if text.full_length > max_length]
        if not too_long:
            return texts
        for i in too_long:
            if isinstance(inputs[i], tuple):
                self._check_room(texts[i], max_length)
        with truncating(
            self._tokenizer,
            max_length,
            strategy=self._truncation.strategy,
            stride=stride or 0,
        ) as tokenizer:
            truncated = tokenizer.encode_batch(
                [inputs[i] for i in too_long], add_special_tokens=self._truncation.special_tokens
            )
        for i, encoding in zip(too_long, truncated, strict=True):
            if stride is None:
                windows = [encoding]
            else:
                windows = [encoding, *encoding.overflowing]
            texts[i] = TextWindows(n_before + i, windows, texts[i].full_length)
        return texts

    def _check_room(self, text: TextWindows, length: int) -> None:
        """Refuses a pair if the text that stays whole leaves no room for the other text.

        The library would crash on such a pair.

        Args:
            text: The pair, not truncated.
            length: Tokens of a row at most.

        Raises:
            DataError: With what would fit.
        """
        strategy = self._truncation.strategy
        stride = self._truncation.stride or 0
        if strategy == "longest_first":  # both texts are cut
            return
        sequences = text.windows[0].sequence_ids
        uncut_text = 1 if strategy == "only_first" else 0
        n_uncut = sequences.count(uncut_text)
        n_special = sequences.count(None)
        if length - n_special - n_uncut <= stride:
            raise DataError(
                f"text {text.index + 1}: with {strategy}, the text that stays whole has {n_uncut} "
                f"tokens, which leaves too little of {length} for the other",
                remedy="Take a larger `max_length=`"
                + (" or a smaller `stride=`." if stride else "."),
            )
