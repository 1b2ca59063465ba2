"""Texts that are nearly the same: MinHash finds candidates (library `rensa`), an exact comparison
decides.

Two texts are near duplicates when their sets of 4-letter shingles have a Jaccard similarity of at
least 0.8, where only letters and digits count and what stands between them is one space: in a
sentence of 50 letters a changed letter is let through, a changed word is not.

Letters: N texts, K slots of a signature, S shingles.
"""

import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bertctl.arrays import Ints
from bertctl.data.packed_columns import column_of
from bertctl.data.table import in_chunks
from bertctl.data.word_splitting import words_alone
from bertctl.errors import UnavailableError
from bertctl.tokenization.reference import chunks
from bertctl.words import human_bytes

SIMILARITY = 0.8
"""Jaccard similarity from which two texts are near duplicates."""
SHORTEST = 20
"""Letters below which a text is left out: one word is most of it, so a similarity says little."""

_SHINGLE = 4
# a pair at 0.8 shares a band with probability 0.991, a pair at 0.3 with 0.029
_BANDS = 12
_IN_BAND = 5
_SLOTS = _BANDS * _IN_BAND
_NUMBER = np.dtype(np.uint32)  # of a signature
_HASHED_AT_ONCE = 8192  # texts
_PAIRS_AT_ONCE = 20_000_000  # of which it is looked up how alike they are
_SURELY_LESS = 0.55  # estimated similarity: 4 standard deviations below 0.8 with 60 slots
_NEIGHBOURS = (
    4  # of each text in a bucket, beside the bucket's first: a bucket of thousands stays affordable
)
# texts whose shingles are kept: candidates come sorted, so old ones are rarely asked for again
_CACHED = 20_000


def near_duplicates(texts: Sequence[str]) -> list[tuple[int, int, float]]:
    """Returns pairs of near duplicates; see `near_pairs`."""
    return list(near_pairs(texts))


def near_pairs(texts: Iterable[str]) -> Iterator[tuple[int, int, float]]:
    """Yields pairs of near duplicates: where the earlier and the later text stand, and how alike
    they are.

    That is the exact Jaccard similarity of their shingles, at least 0.8. Of texts that are alike in
    their hundreds not every pair is listed, but every text has a partner. A pair at the threshold
    is missed with a probability below 1 %, a pair of more than 0.9 practically never.

    Args:
        texts: N texts, normalised, each different from all others.
    """
    positions = array("q")
    chosen = column_of(_long_enough(texts, positions))
    if len(chosen) < 2:
        return
    long_enough = np.frombuffer(positions, dtype=np.int64)
    shingles = lru_cache(_CACHED)(lambda index: _shingle_set(chosen[index]))
    with _Signatures(chosen) as signatures:
        candidates = _candidates(signatures)
    for pair in candidates.tolist():
        earlier, later = divmod(pair, len(chosen))
        alike = _jaccard(shingles(earlier), shingles(later))
        if alike >= SIMILARITY:
            yield int(long_enough[earlier]), int(long_enough[later]), alike


def _long_enough(texts: Iterable[str], positions: "array[int]") -> Iterator[str]:
    """Yields the words of the texts that are compared; their positions go to `positions`."""
    for position, text in enumerate(texts):
        plain = words_alone(text)
        if len(plain) >= SHORTEST:
            positions.append(position)
            yield plain


def similarity(one: str, other: str) -> float:
    """Returns the Jaccard similarity of two texts' shingles, as `near_duplicates` compares them."""
    sets = [_shingle_set(words_alone(text)) for text in (one, other)]
    return _jaccard(*sets)


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    common = len(one & other)
    union = len(one) + len(other) - common
    return common / union if union else 0.0


def _shingle_set(text: str) -> frozenset[str]:
    return frozenset(text[i : i + _SHINGLE] for i in range(len(text) - _SHINGLE + 1))


class _Signatures:
    """MinHash signatures of texts, in a temporary file slot by slot: those of ten million texts are
    2.4 GB.

    Args:
        texts: N texts of at least one shingle each.

    Raises:
        UnavailableError: The disk is full.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        import rensa

        self.n_texts = len(texts)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
        first = 0
        for part in in_chunks(texts, _HASHED_AT_ONCE):
            for chunk in chunks(part):
                hashes, offsets = _hashes(chunk)
                matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(
                    hashes, offsets, _SLOTS, 1
                )
                self._write(np.array(matrix.to_rows(), dtype=np.uint32), first)
                first += len(chunk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def slot(self, number: int) -> NDArray[np.uint32]:
        """Returns (N,) one number of each signature."""
        self._file.seek(number * self.n_texts * _NUMBER.itemsize)
        return np.fromfile(self._file, dtype=_NUMBER, count=self.n_texts)

    def _write(self, rows: NDArray[np.uint32], first: int) -> None:
        try:
            for number, values in enumerate(np.ascontiguousarray(rows.T)):
                self._file.seek((number * self.n_texts + first) * _NUMBER.itemsize)
                self._file.write(values.data)
            self._file.flush()
        except OSError as error:
            self._file.close()
            size = human_bytes(_SLOTS * self.n_texts * _NUMBER.itemsize)
            message = (
                f"{tempfile.gettempdir()}: no room for {size}, by which near duplicates are found"
            )
            raise UnavailableError(
                message, remedy="Set TMPDIR to a folder on a disk with more room."
            ) from error


def _hashes(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Returns (S,) the hashes of all texts' shingles, and (N + 1,) where each text's begin."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    hashes = np.zeros(len(codes) - _SHINGLE + 1, dtype=np.uint64)
    for k in range(_SHINGLE):
        hashes = hashes * np.uint64(0x100000001B3) + codes[k : k + len(hashes)]
    hashes *= np.uint64(0x9E3779B97F4A7C15)  # spread over all 64 bits, wrapping round as it should
    hashes ^= hashes >> np.uint64(29)
    inside = np.ones(len(hashes), dtype=np.bool_)  # not across the border of two texts
    ends = np.cumsum(lengths)[:-1]
    for k in range(1, _SHINGLE):
        inside[ends - k] = False
    offsets = np.zeros(len(texts) + 1, dtype=np.uint64)
    offsets[1:] = np.cumsum(lengths - _SHINGLE + 1)
    return np.ascontiguousarray(hashes[inside]), offsets


def _candidates(signatures: _Signatures) -> Ints:
    """Returns pairs that share a band and look alike by their whole signatures, as earlier x N +
    later, sorted.
    """
    alike: list[Ints] = []
    waiting: list[Ints] = []
    for band in range(_BANDS):
        waiting.append(_pairs_of_band(signatures, band))
        if band == _BANDS - 1 or sum(map(len, waiting)) > _PAIRS_AT_ONCE:
            alike.append(_alike(np.unique(np.concatenate(waiting)), signatures))
            waiting = []
    return np.unique(np.concatenate(alike))


def _pairs_of_band(signatures: _Signatures, band: int) -> Ints:
    """Returns pairs of texts with equal numbers in a band: each with the first such text and some
    neighbours.
    """
    n = signatures.n_texts
    values = np.zeros(n, dtype=np.uint64)
    for slot in range(band * _IN_BAND, (band + 1) * _IN_BAND):
        values = (values ^ signatures.slot(slot)) * np.uint64(0x9E3779B97F4A7C15)
    order = np.argsort(values, kind="stable")
    is_first = np.ones(n, dtype=np.bool_)
    is_first[1:] = np.diff(values[order]) != 0
    has_company = ~is_first
    has_company[:-1] |= ~is_first[1:]
    order = order[has_company]  # most texts are alone
    is_first = is_first[has_company]

    positions = np.arange(len(order))
    heads = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    keys: list[Ints] = []
    for partner in (heads, *(np.maximum(positions - k, heads) for k in range(1, _NEIGHBOURS + 1))):
        apart = partner < positions
        one = order[partner[apart]]
        other = order[positions[apart]]
        keys.append(np.minimum(one, other) * n + np.maximum(one, other))
    return np.unique(np.concatenate(keys))


def _alike(pairs: Ints, signatures: _Signatures) -> Ints:
    """Returns the pairs that look alike by their whole signatures."""
    one = pairs // signatures.n_texts
    other = pairs % signatures.n_texts
    equal = np.zeros(len(pairs), dtype=np.uint8)
    for number in range(_SLOTS):
        slot = signatures.slot(number)
        equal += slot[one] == slot[other]
    return pairs[equal / _SLOTS >= _SURELY_LESS]
