"""Measures what a tokenizer makes of texts: lengths, truncation, padding, unknown and split words.

Letters: N texts, T tokens of all of them together, L the longest text in tokens.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Ints
from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.layout import Layout
from bertctl.tokenization.long_texts import LongText
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.word_counts import WordCounter

LIMITS = (64, 128, 256, 512)
"""Lengths for which the loss by truncation is shown."""
_KEPT = 0.99
"""Share of texts, or of tokens, that a length is enough for."""
_QUANTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "longest": 1.0}


class StatsCollector:
    """Collects the numbers of one tokenizer chunk by chunk.

    It keeps one number per text, and the words that matter.

    Args:
        tokenizer: with truncation and padding off.
        special_tokens: whether they are added, and counted in the lengths.
        batch_size: for the padding figures.
        fixed_length: length of the fixed-length batches that they compare with.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        special_tokens: bool = True,
        batch_size: int = 32,
        fixed_length: int = 128,
    ) -> None:
        # Texts are encoded without special tokens, whose number is added to the lengths.
        self._encoder = TextEncoder(tokenizer, special_tokens=False)
        text_layout = Layout.of(tokenizer, pair=False, special_tokens=special_tokens)
        pair_layout = Layout.of(tokenizer, pair=True, special_tokens=special_tokens)
        self._special_of_text = text_layout.special
        self._special_of_pair = pair_layout.special
        self._words = WordCounter(tokenizer)
        self._batch_size = batch_size
        self._fixed_length = fixed_length
        # Tokens of each text, an array for each chunk. The empty one is for an input without texts.
        self._lengths = [np.zeros(0, dtype=np.int32)]
        self._bare_tokens = 0  # of all texts, without special tokens

    def add(self, chunk: TextChunk) -> None:
        """Counts a chunk."""
        if chunk.pairs is None:
            n_special = self._special_of_text
        else:
            n_special = self._special_of_pair
        lengths = np.full(len(chunk.texts), n_special, dtype=np.int64)
        for side in chunk.sides:
            encoded = self._encoder.encode(side)
            lengths += encoded.lengths
            self._bare_tokens += len(encoded.ids)
            self._words.add(side, encoded)
        self._lengths.append(lengths.astype(np.int32))

    def result(self, *, words: int = 20) -> dict[str, Any]:
        """Returns the statistics of all chunks as plain values.

        Args:
            words: How many unknown words, and how many split words, are listed.

        Returns:
            Among others: `length` has mean and quantiles in tokens, special tokens included.
            `histogram` has at most 20 equal steps. `losses` has what truncation to each of `LIMITS`
            would lose, and the `windows` of that length that would lose nothing.
            `enough_for_99_percent` has the smallest length that keeps 99 % of the texts whole, and
            the smallest one that keeps 99 % of the tokens. `padding` has the share of padding if
            each text is padded to a fixed `length`, if batches follow the order of the input, and
            if batches have texts of similar lengths.
        """
        lengths = np.concatenate(self._lengths).astype(np.int64)
        texts = len(lengths)
        tokens = int(lengths.sum())
        histogram = np.bincount(lengths, minlength=1)  # (L + 1,) how many texts have each length
        enough_for_tokens = 0
        if texts:
            tokens_kept = _tokens_kept(histogram)
            enough_for_tokens = int(np.searchsorted(tokens_kept, _KEPT * tokens))
        size = self._batch_size
        fixed = self._fixed_length
        quantiles = {name: quantile(histogram, share) for name, share in _QUANTILES.items()}
        return {
            "texts": texts,
            "tokens": tokens,
            "length": {"mean": tokens / max(texts, 1)} | quantiles,
            "histogram": [{"from": a, "to": b, "texts": n} for a, b, n in bins(histogram)],
            "losses": [self._loss(lengths, limit) for limit in LIMITS],
            "enough_for_99_percent": {
                "of_texts": quantile(histogram, _KEPT),
                "of_tokens": enough_for_tokens,
            },
            "words": self._words.words,
            "pieces_per_word": self._words.word_tokens / max(self._words.words, 1),
            "unknown": self._words.unknown,
            "unknown_share": self._words.unknown / max(self._bare_tokens, 1),
            "padding": {
                "batch_size": size,
                "length": fixed,
                "fixed": _waste(int(np.minimum(lengths, fixed).sum()), texts * fixed),
                "in_order": _waste(tokens, _padded(lengths, size)),
                "by_length": _waste(tokens, _padded(np.sort(lengths), size)),
            },
            "broken_words": [word.as_json() for word in self._words.most_split(words)],
            "unknown_words": [word.as_json() for word in self._words.most_unknown(words)],
            "rare_words_forgotten": self._words.forgotten,
        }

    def _loss(self, lengths: Ints, limit: int) -> dict[str, Any]:
        """Returns what truncation to a length would lose, and the windows that would keep all."""
        windows = LongText("window", limit, limit // 8)
        coverage = windows.kept(lengths, special=self._special_of_text)
        return {
            "length": limit,
            "texts": int((lengths > limit).sum()),
            "tokens": int(np.maximum(lengths - limit, 0).sum()),
            "windows": coverage["windows"],
            "most_windows": coverage["most_windows"],
        }


def _tokens_kept(histogram: Ints) -> Ints:
    """Returns (L + 1,) how many tokens truncation to each length from 0 on keeps.

    Truncation to n tokens keeps the first token of all texts that have one, the second token of all
    that have two, and so on to the n-th. So the result is a running sum of how many texts have at
    least each length.

    Args:
        histogram: (L + 1,) how many texts have each length.
    """
    texts_at_least: Ints = np.cumsum(histogram[::-1])[::-1]
    n_texts = texts_at_least[0]
    n_tokens: Ints = np.cumsum(texts_at_least) - n_texts  # all texts have length 0 at least
    return n_tokens


def _padded(lengths: Ints, size: int) -> int:
    """Returns the tokens of all batches when each is padded to its longest text.

    Lengths `[3, 5, 2]` in batches of 2 are 2 x 5 + 1 x 2 tokens.

    Args:
        lengths: (N,) tokens of each text, in the order of the batches.
        size: Texts of a batch.
    """
    starts = np.arange(0, len(lengths), size)
    longest = np.maximum.reduceat(lengths, starts)
    batch_sizes = np.diff(starts, append=len(lengths))
    return int((longest * batch_sizes).sum())


def collect(
    chunks: Iterable[TextChunk], tokenizers: Sequence[Tokenizer], **options: Any
) -> list[dict[str, Any]]:
    """Returns the numbers of several tokenizers on one input, read once.

    `options` go to `StatsCollector`.
    """
    collectors = [StatsCollector(tokenizer, **options) for tokenizer in tokenizers]
    for chunk in chunks:
        for collector in collectors:
            collector.add(chunk)
    return [collector.result() for collector in collectors]


def quantile(histogram: Ints, share: float) -> int:
    """Returns the smallest length that at least this share of the texts does not exceed.

    Args:
        histogram: (L + 1,) how many texts have each length.
        share: From 0 to 1.
    """
    texts_up_to = np.cumsum(histogram)
    return int(np.searchsorted(texts_up_to, np.ceil(share * texts_up_to[-1])))


def bins(histogram: Ints, steps: int = 20) -> list[tuple[int, int, int]]:
    """Returns at most `steps` equal steps of (first length, last length, texts), shortest first.

    The last step holds all that lies beyond the 99.5th percentile, so that one long text does not
    flatten the rest.
    """
    lengths = np.flatnonzero(histogram)
    if not len(lengths):
        return []
    shortest = int(lengths[0])
    longest = int(lengths[-1])
    most = quantile(histogram, 0.995)
    width = max(1, -(-(most - shortest + 1) // steps))  # rounded up
    bounds = [
        (first, min(first + width - 1, longest)) for first in range(shortest, most + 1, width)
    ]
    last_end = bounds[-1][1]
    if last_end < longest:
        bounds.append((last_end + 1, longest))
    return [(first, last, int(histogram[first : last + 1].sum())) for first, last in bounds]


def _waste(tokens: int, padded: int) -> float:
    """Returns the share of padding among `padded` tokens; `tokens` of them are no padding."""
    return 1 - tokens / padded if padded else 0.0
