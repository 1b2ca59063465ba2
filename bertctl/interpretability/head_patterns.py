"""What each head attends to over a corpus: the patterns of "Deconstructing BERT" (Vig 2019), measured.

A share is the mean attention that a token pays to what the pattern names, over the tokens that have such a thing: the
last word has no next one, most words stand once in a text. Only tokens of the texts count as those that attend, not
special ones (as in Clark et al. 2019, "What Does BERT Look At?", section 3).

Letters: L layers, H heads, B texts, T tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from bertctl.errors import UsageError
from bertctl.interpretability.attention import AttentionReader, sides_of
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.stream import TextChunk

if TYPE_CHECKING:
    from tokenizers import Encoding

Floats = NDArray[np.float64]

PATTERNS = {
    "next": "the next token",
    "previous": "the previous token",
    "itself": "the token itself",
    "same": "the same token elsewhere in the text",
    "cls": "[CLS]",
    "delimiters": "[SEP] and other special tokens",
    "other": "the other sentence",
}
"""What a head may attend to, and how a person is told."""

BROAD, MIXED = "broad", "mixed"
"""What else a head may be: spread nearly evenly over all tokens, or neither that nor any pattern."""

MAJORITY = 0.5
_EVEN = 0.9  # of the entropy of attention that is the same for all


@dataclass(frozen=True)
class HeadPatterns:
    """What each head attends to, on the mean over a corpus.

    Attributes:
        texts: that were read.
        tokens: that attend.
        cut: texts that were cut.
        counts: how many tokens have what a pattern names; patterns that no token has are left out everywhere.
        columns: (L, H) shares by pattern, the mean distance in tokens, the entropy of a token's attention in nats.
        even: the same where all tokens get the same attention.
    """

    texts: int
    tokens: int
    cut: int
    counts: dict[str, int]
    columns: dict[str, Floats]
    even: dict[str, float]

    def names(self) -> NDArray[np.str_]:
        """Returns each head's pattern, (L, H): what gets most of its attention, else `broad` or `mixed`."""
        names = [name for name in self.columns if name in PATTERNS]
        shares = np.stack([self.columns[name] for name in names])
        broad = self.columns["entropy"] >= _EVEN * self.even["entropy"]
        best = np.array(names)[shares.argmax(axis=0)]
        return np.where(shares.max(axis=0) > MAJORITY, best, np.where(broad, BROAD, MIXED))


def measure_patterns(
    reader: AttentionReader, chunks: Iterable[TextChunk], *, max_texts: int, listener: Listener = SILENT
) -> HeadPatterns:
    """Returns what each head attends to over the first texts of a corpus that have something in them.

    Raises:
        UsageError: no text; a family without attention.
    """
    names = [*PATTERNS, "distance", "entropy"]
    sums, even, numbers = np.zeros((reader.layers, 1, len(names))), np.zeros(len(names)), np.zeros(len(names), int)
    texts = cut = 0
    for chunk in chunks:
        part = _with_text(chunk, max_texts - texts)
        if not part.texts:
            continue
        encodings, lost = reader.encode(part)
        cut += sum(map(bool, lost))
        for indices, layers in reader.read(encodings):
            batch = _Batch.of([encodings[i] for i in indices], reader.model.saved_tokenizer.cls_token_id)
            sums = sums + np.stack([batch.sums(layer.cpu().numpy()) for layer in layers])
            even, numbers = even + batch.sums(batch.even)[0], numbers + batch.counts
            texts += len(indices)
            listener.advance("texts", texts, max_texts)
        if texts >= max_texts:
            break
    listener.finish("texts")
    if not numbers[-1]:
        raise UsageError("there are no texts to read", remedy="Give a file with a text on each line, or in a column.")
    there = {name: i for i, name in enumerate(names) if numbers[i]}
    counts = {name: int(numbers[i]) for name, i in there.items()}
    columns = {name: sums[:, :, i] / numbers[i] for name, i in there.items()}
    chance = {name: float(even[i] / numbers[i]) for name, i in there.items()}
    return HeadPatterns(texts, int(numbers[-1]), cut, counts, columns, chance)


def _with_text(chunk: TextChunk, most: int) -> TextChunk:
    kept = [i for i, text in enumerate(chunk.texts) if text.strip()][: max(0, most)]
    pairs = None if chunk.pairs is None else [chunk.pairs[i] for i in kept]
    return TextChunk([chunk.texts[i] for i in kept], pairs)


@dataclass(frozen=True)
class _Batch:
    """Which token of a batch is what to the N tokens that attend.

    Attributes:
        attending: (B, T) tokens of a text.
        relations: (R, N, T) for each pattern, then for the distance, what the attention is multiplied by.
        counts: (R + 1,) tokens that have what each pattern names; all of them for distance and entropy.
        even: (B, 1, 1, T) attention that is the same for all tokens.
    """

    attending: NDArray[np.bool_]
    relations: NDArray[np.float32]
    counts: NDArray[np.int64]
    even: NDArray[np.float32]

    @classmethod
    def of(cls, encodings: "Sequence[Encoding]", cls_id: int | None) -> "_Batch":
        width = max(len(one) for one in encodings)
        sides, ids = (np.full((len(encodings), width), fill, dtype=np.int64) for fill in (-2, -1))
        for i, one in enumerate(encodings):
            sides[i, : len(one)], ids[i, : len(one)] = sides_of(one), one.ids
        attending, special, is_cls = sides >= 0, sides == -1, (sides == -1) & (ids == cls_id)
        text, at = np.nonzero(attending)
        step = np.arange(width) - at[:, None]  # from the token that attends
        inside, to = attending[text], {"side": sides[text], "id": ids[text]}
        of_token = {
            "next": inside & (step == 1),
            "previous": inside & (step == -1),
            "itself": step == 0,
            "same": inside & (step != 0) & (to["id"] == ids[text, at][:, None]),
            "cls": is_cls[text],
            "delimiters": (special & ~is_cls)[text],
            "other": inside & (to["side"] != sides[text, at][:, None]),
        }
        counts = [int(of_token[name].any(axis=1).sum()) for name in PATTERNS]
        relations = np.stack([*(of_token[name] for name in PATTERNS), np.abs(step)]).astype(np.float32)
        there = (sides > -2).astype(np.float32)
        even = (there / there.sum(axis=1, keepdims=True))[:, None, None]
        return cls(attending, relations, np.array([*counts, len(text), len(text)]), even)

    def sums(self, weights: NDArray[np.float32]) -> Floats:
        """Returns (H, R + 1) sums over the tokens that attend: by pattern, of distances, of entropies in nats.

        Args:
            weights: (B, H, T, T), or what spreads to it.
        """
        shape = (*weights.shape[:2], *2 * self.attending.shape[1:])
        rows = np.broadcast_to(weights, shape).transpose(0, 2, 1, 3)[self.attending]  # (N, H, T)
        related = np.einsum("nht,rnt->hr", rows, self.relations, optimize=True)
        return np.column_stack([related, entr(rows).sum(axis=(0, 2))]).astype(np.float64)
