"""How fast ways of tokenizing are, measured against each other in one run, with proof that they give the same ids."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from bertctl.tokenization.encode import EncodedTexts, TextEncoder

Way = Callable[[Sequence[str]], Sequence[Sequence[int]] | EncodedTexts]
"""Takes texts, gives the ids of each, special tokens included."""

_PORTION = 8 << 20  # bytes of text that each way gets before the next one has its turn
_BATCH = 1000


@dataclass(frozen=True)
class Rate:
    """What one way did.

    Attributes:
        name: of the way.
        megabytes_per_second: bytes of UTF-8 text, in millions.
        tokens_per_second: special tokens included.
        seconds: all of its turns together.
        checksum: of all ids and row borders; ways with the same one gave the same ids.
    """

    name: str
    megabytes_per_second: float
    tokens_per_second: float
    seconds: float
    checksum: str


def measure(
    tokenizer: Tokenizer, texts: Sequence[str], *, others: Mapping[str, Way] | None = None, portion: int = _PORTION
) -> list[Rate]:
    """Time `TextEncoder` (as `bertctl`), `Tokenizer.encode_batch` on batches of 1,000, and what else is given.

    The ways take turns, portion by portion, so that a busy machine slows all of them alike.

    Args:
        tokenizer: with truncation and padding off.
        texts: what is tokenized, without any cut.
        others: more ways, by name.
        portion: bytes of a turn.
    """
    encoder = TextEncoder(tokenizer)
    ways: dict[str, Way] = {"bertctl": encoder.encode, "encode_batch": _Reference(tokenizer), **(others or {})}
    seconds = dict.fromkeys(ways, 0.0)
    hashes = {name: hashlib.sha256() for name in ways}
    tokens = size = 0
    for part, part_size in _portions(texts, portion):
        size += part_size
        for name, way in ways.items():
            began = time.perf_counter()
            encoded = way(part)
            seconds[name] += time.perf_counter() - began
            ids, lengths = _flat(encoded)
            hashes[name].update(ids.tobytes())
            hashes[name].update(lengths.tobytes())
            tokens += len(ids) if name == "bertctl" else 0
    return [
        Rate(name, size / 1e6 / spent, tokens / spent, spent, hashes[name].hexdigest())
        for name, spent in seconds.items()
    ]


class _Reference:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        rows: list[list[int]] = []
        for first in range(0, len(texts), _BATCH):
            rows += [encoding.ids for encoding in self._tokenizer.encode_batch(texts[first : first + _BATCH])]
        return rows


def _portions(texts: Sequence[str], size: int) -> Iterator[tuple[Sequence[str], int]]:
    first = used = 0
    for i, text in enumerate(texts):
        used += len(text.encode()) + 1
        if used >= size:
            yield texts[first : i + 1], used
            first, used = i + 1, 0
    if used:
        yield texts[first:], used


def _flat(encoded: Sequence[Sequence[int]] | EncodedTexts) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(encoded, EncodedTexts):
        return encoded.ids, encoded.lengths
    lengths = np.array([len(row) for row in encoded], dtype=np.int64)
    return np.array([i for row in encoded for i in row], dtype=np.int32), lengths
