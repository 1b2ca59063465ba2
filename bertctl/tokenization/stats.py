"""Measures what a tokenizer makes of texts: lengths, truncation, padding, unknown and split words.

Letters: N texts, T tokens of all of them together, L the longest text in tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.layout import Layout
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.word_counts import CountedWord, WordCounter

LIMITS = (64, 128, 256, 512)
"""Lengths for which the loss by truncation is shown."""
_KEPT = 0.99
_QUANTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "longest": 1.0}


@dataclass(frozen=True)
class TruncationLoss:
    """Is what truncation to `length` tokens would lose.

    Attributes:
        length: longest row in tokens, special tokens included.
        texts: texts that would be truncated.
        tokens: tokens that would be dropped.
    """

    length: int
    texts: int
    tokens: int


@dataclass(frozen=True)
class PaddingShares:
    """Is the share of padding among all tokens of a batch, by how batches are formed.

    Attributes:
        batch_size: texts per batch.
        length: the length of `fixed`, to which longer texts are truncated.
        fixed: share when every text is padded to `length`.
        in_order: share in batches in the order of the input, padded to their longest text.
        by_length: share in batches of similar lengths, padded to their longest text.
    """

    batch_size: int
    length: int
    fixed: float
    in_order: float
    by_length: float


@dataclass(frozen=True)
class TokenStats:
    """Holds the numbers of one tokenizer on one input.

    Attributes:
        texts: N, texts or pairs.
        tokens: T, special tokens included.
        lengths: mean, median, p90, p95, p99 and longest of the lengths in tokens.
        histogram: (L + 1,) how many texts have each length.
        losses: what truncation to each of `LIMITS` would lose.
        enough_for_texts: smallest length at which 99 % of the texts stay whole.
        enough_for_tokens: smallest length at which 99 % of the tokens stay.
        words: words seen, without punctuation.
        tokens_per_word: their average number of tokens.
        unknown: unknown tokens.
        unknown_share: their share of all tokens that are not special.
        padding: of batches.
        split_words: words of several tokens, those first that cost the most tokens.
        unknown_words: words that became the unknown token, the most frequent first.
        forgotten: rare words no longer counted because there were too many different words.
    """

    texts: int
    tokens: int
    lengths: Mapping[str, float]
    histogram: NDArray[np.int64]
    losses: tuple[TruncationLoss, ...]
    enough_for_texts: int
    enough_for_tokens: int
    words: int
    tokens_per_word: float
    unknown: int
    unknown_share: float
    padding: PaddingShares
    split_words: tuple[CountedWord, ...]
    unknown_words: tuple[CountedWord, ...]
    forgotten: int

    def as_json(self) -> dict[str, Any]:
        """Returns all of it as plain values, with the histogram in 20 equal steps."""
        return {
            "texts": self.texts,
            "tokens": self.tokens,
            "length": dict(self.lengths),
            "histogram": [{"from": a, "to": b, "texts": n} for a, b, n in bins(self.histogram)],
            "losses": [vars(loss) for loss in self.losses],
            "enough_for_99_percent": {"of_texts": self.enough_for_texts, "of_tokens": self.enough_for_tokens},
            "words": self.words,
            "pieces_per_word": self.tokens_per_word,
            "unknown": self.unknown,
            "unknown_share": self.unknown_share,
            "padding": vars(self.padding),
            "broken_words": [_word_json(word) for word in self.split_words],
            "unknown_words": [_word_json(word) for word in self.unknown_words],
            "rare_words_forgotten": self.forgotten,
        }


class StatsCollector:
    """Collects `TokenStats` chunk by chunk; it keeps one number per text, and the words that matter.

    Args:
        tokenizer: with truncation and padding off.
        special_tokens: whether they are added, and counted in the lengths.
        batch_size: for the padding figures.
        fixed_length: length of the fixed-length batches that they compare with.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, special_tokens: bool = True, batch_size: int = 32, fixed_length: int = 128
    ) -> None:
        self._encoder = TextEncoder(tokenizer, special_tokens=False)
        self._special = [
            Layout.of(tokenizer, pair=pair, special_tokens=special_tokens).special for pair in (False, True)
        ]
        self._words = WordCounter(tokenizer, special_tokens=False)
        self._batch_size = batch_size
        self._fixed_length = fixed_length
        self._lengths = [np.zeros(0, dtype=np.int32)]
        self._bare_tokens = 0

    def add(self, chunk: TextChunk) -> None:
        """Counts a chunk."""
        lengths = np.full(len(chunk.texts), self._special[chunk.pairs is not None], dtype=np.int64)
        for side in chunk.sides:
            encoded = self._encoder.encode(side)
            lengths += encoded.lengths
            self._bare_tokens += len(encoded.ids)
            self._words.add(side, encoded)
        self._lengths.append(lengths.astype(np.int32))

    def result(self, *, words: int = 20) -> TokenStats:
        """Returns the numbers of all chunks, with this many unknown and this many split words."""
        lengths = np.concatenate(self._lengths).astype(np.int64)
        texts, tokens = len(lengths), int(lengths.sum())
        histogram = np.bincount(lengths, minlength=1)
        kept = np.cumsum(np.cumsum(histogram[::-1])[::-1]) - texts  # (L + 1,) tokens kept by truncation to each length
        size, fixed = self._batch_size, self._fixed_length
        return TokenStats(
            texts=texts,
            tokens=tokens,
            lengths={
                "mean": tokens / max(texts, 1),
                **{name: quantile(histogram, share) for name, share in _QUANTILES.items()},
            },
            histogram=histogram,
            losses=tuple(
                TruncationLoss(n, int((lengths > n).sum()), int(np.maximum(lengths - n, 0).sum())) for n in LIMITS
            ),
            enough_for_texts=quantile(histogram, _KEPT),
            enough_for_tokens=int(np.searchsorted(kept, _KEPT * tokens)) if texts else 0,
            words=self._words.words,
            tokens_per_word=self._words.word_tokens / max(self._words.words, 1),
            unknown=self._words.unknown,
            unknown_share=self._words.unknown / max(self._bare_tokens, 1),
            padding=PaddingShares(
                size,
                fixed,
                fixed=_waste(int(np.minimum(lengths, fixed).sum()), texts * fixed),
                in_order=_waste(tokens, _padded(lengths, size)),
                by_length=_waste(tokens, _padded(np.sort(lengths), size)),
            ),
            split_words=tuple(self._words.most_split(words)),
            unknown_words=tuple(self._words.most_unknown(words)),
            forgotten=self._words.forgotten,
        )


def _padded(lengths: NDArray[np.int64], size: int) -> int:
    """Returns the tokens of all batches, in this order, when each is padded to its longest text."""
    if not len(lengths):
        return 0
    begins = np.arange(0, len(lengths), size)
    return int((np.maximum.reduceat(lengths, begins) * np.diff(begins, append=len(lengths))).sum())


def collect(chunks: Iterable[TextChunk], tokenizers: Sequence[Tokenizer], **options: Any) -> list[TokenStats]:
    """Returns the numbers of several tokenizers on one input, read once; `options` go to `StatsCollector`."""
    collectors = [StatsCollector(tokenizer, **options) for tokenizer in tokenizers]
    for chunk in chunks:
        for collector in collectors:
            collector.add(chunk)
    return [collector.result() for collector in collectors]


def quantile(histogram: NDArray[np.int64], share: float) -> int:
    """Returns the smallest length that at least this share of the texts does not exceed."""
    running = np.cumsum(histogram)
    if not len(running) or running[-1] == 0:
        return 0
    return int(np.searchsorted(running, np.ceil(share * running[-1])))


def bins(histogram: NDArray[np.int64], steps: int = 20) -> list[tuple[int, int, int]]:
    """Returns (first length, last length, texts) of at most `steps` equal steps from the shortest to the longest text.

    The last step holds all that lies beyond the 99.5th percentile, so that one long text does not flatten the rest.
    """
    used = np.flatnonzero(histogram)
    if not len(used):
        return []
    first, last = int(used[0]), int(used[-1])
    most = quantile(histogram, 0.995)
    width = max(1, -(-(most - first + 1) // steps))
    edges = list(range(first, most + 1, width))
    parts = [(a, min(a + width - 1, last)) for a in edges]
    if parts[-1][1] < last:
        parts.append((parts[-1][1] + 1, last))
    return [(a, b, int(histogram[a : b + 1].sum())) for a, b in parts]


def _waste(tokens: int, padded: int) -> float:
    return 1 - tokens / padded if padded else 0.0


def _word_json(word: CountedWord) -> dict[str, Any]:
    return {"word": word.word, "pieces": list(word.tokens), "count": word.count}
