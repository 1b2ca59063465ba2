"""Texts that are nearly the same: MinHash finds candidates (library `rensa`), an exact comparison decides.

Two texts are near duplicates when their sets of 4-letter shingles have a Jaccard similarity of at least 0.8, where
only letters and digits count and what stands between them is one space: in a sentence of 50 letters a changed letter is
let through, a changed word is not.

Letters: N texts, K slots of a signature, S shingles.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bertctl.arrays import Ints
from bertctl.data.word_splitting import words_alone
from bertctl.tokenization.reference import chunks

SIMILARITY = 0.8
"""Jaccard similarity from which two texts are near duplicates."""
SHORTEST = 20
"""Letters below which a text is left out: one word is most of it, so a similarity says little."""

_SHINGLE = 4
_BANDS, _IN_BAND = 12, 5  # a pair at 0.8 shares a band with probability 0.991, a pair at 0.3 with 0.029
_SLOTS = _BANDS * _IN_BAND
_SURELY_LESS = 0.55  # estimated similarity: 4 standard deviations below 0.8 with 60 slots
_NEIGHBOURS = 4  # of each text in a bucket, beside the bucket's first: a bucket of thousands stays affordable
_CACHED = 20_000  # texts whose shingles are kept: candidates come sorted, so old ones are rarely asked for again


def near_duplicates(texts: Sequence[str]) -> list[tuple[int, int, float]]:
    """Returns pairs of near duplicates: where the earlier and the later text stand, and how alike they are.

    That is the exact Jaccard similarity of their shingles, at least 0.8. Of texts that are alike in their hundreds not
    every pair is listed, but every text has a partner. A pair at the threshold is missed with a probability below 1 %,
    a pair of more than 0.9 practically never.

    Args:
        texts: N texts, normalised, each different from all others.
    """
    plain = [words_alone(text) for text in texts]
    long_enough = [i for i, text in enumerate(plain) if len(text) >= SHORTEST]
    if len(long_enough) < 2:
        return []
    chosen = [plain[i] for i in long_enough]
    signatures = _signatures(chosen)
    shingles = lru_cache(_CACHED)(lambda index: _shingle_set(chosen[index]))
    return [
        (long_enough[a], long_enough[b], alike)
        for a, b in _candidates(signatures)
        if (alike := _jaccard(shingles(a), shingles(b))) >= SIMILARITY
    ]


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


def _signatures(texts: Sequence[str]) -> NDArray[np.uint32]:
    """Returns (N, K) MinHash signatures of texts of at least one shingle each."""
    import rensa

    parts: list[NDArray[np.uint32]] = []
    for chunk in chunks(texts):
        hashes, offsets = _hashes(chunk)
        matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(hashes, offsets, _SLOTS, 1)
        parts.append(np.array(matrix.to_rows(), dtype=np.uint32))
    return np.concatenate(parts)


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


def _candidates(signatures: NDArray[np.uint32]) -> list[tuple[int, int]]:
    """Returns pairs (earlier, later) that share a band and look alike by their whole signatures, sorted."""
    n = len(signatures)
    keys: list[Ints] = []
    for band in range(_BANDS):
        values = np.zeros(n, dtype=np.uint64)
        for slot in range(band * _IN_BAND, (band + 1) * _IN_BAND):
            values = (values ^ signatures[:, slot]) * np.uint64(0x9E3779B97F4A7C15)
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        starts = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        bucket = np.cumsum(starts) - 1
        heads = np.flatnonzero(starts)[bucket]
        positions = np.arange(n)
        partners = [heads, *(np.maximum(positions - k, heads) for k in range(1, _NEIGHBOURS + 1))]
        for partner in partners:
            apart = partner < positions
            one, other = order[partner[apart]], order[positions[apart]]
            keys.append(np.minimum(one, other) * n + np.maximum(one, other))
    pairs = np.unique(np.concatenate(keys))
    alike: list[tuple[int, int]] = []
    for chunk in np.array_split(pairs, max(1, len(pairs) // 100_000)):
        one, other = chunk // n, chunk % n
        share = (signatures[one] == signatures[other]).mean(axis=1)
        close = share >= _SURELY_LESS
        alike += zip(one[close].tolist(), other[close].tolist(), strict=True)
    return alike
