"""Texts that are nearly the same.

MinHash finds candidates (library `rensa`), and an exact comparison decides.

Two texts are near duplicates when their sets of 4-letter shingles have a Jaccard similarity of at
least 0.8, where only letters and digits count and what stands between them is one space: in a
sentence of 50 letters a changed letter is let through, a changed word is not.

Letters: N texts, K slots of a signature, S shingles, P pairs.
"""

import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from bertctl.arrays import Floats, Ints, sorted_unique
from bertctl.data.packed_columns import column_of, selected
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
_SLOT = np.dtype(np.uint32)
_HASHED_AT_ONCE = 8192  # texts whose signatures are computed together
_BLOCK = 500_000  # earlier texts whose pairs are looked at together
_LEAST_ESTIMATE = 0.55  # of the similarity: 4 standard deviations below 0.8 with 60 slots
_NEIGHBOURS = (
    4  # of each text in a bucket, beside the bucket's first: a bucket of thousands stays affordable
)
# letters of the pairs whose texts are read together, and are compared together
_READ_LETTERS = 20_000_000
_COMPARED_LETTERS = 2_000_000
# A shingle is known by 40 bits of its hash. The bits above say which text or pair it is of.
_HASH_BITS = np.uint64(46)
_HASH_MASK = np.uint64(2**46 - 1)


def near_duplicates(texts: Sequence[str]) -> list[tuple[int, int, float]]:
    """Returns pairs of near duplicates; see `near_pairs`."""
    pairs: list[tuple[int, int, float]] = []
    for earlier, later, alike in near_pairs(texts):
        pairs += zip(earlier.tolist(), later.tolist(), alike.tolist(), strict=True)
    return pairs


def near_pairs(texts: Iterable[str]) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yields pairs of near duplicates, some at a time.

    Each part has three (P,) arrays: positions of the earlier texts, positions of the later ones,
    and the Jaccard similarities of their shingles, at least 0.8.

    A pair at the threshold is missed with a probability below 1 %, a pair of more than 0.9
    practically never. If hundreds of texts are alike, not every pair of them is listed, but every
    text has a partner.

    Args:
        texts: N texts, normalised, each different from all others.
    """
    positions = array("q")
    lengths = array("q")
    chosen = column_of(_long_enough(texts, positions, lengths))
    if len(chosen) < 2:
        return
    long_enough = np.frombuffer(positions, dtype=np.int64)
    n_letters = np.frombuffer(lengths, dtype=np.int64)
    with _Signatures(chosen) as signatures, _Candidates(len(chosen)) as candidates:
        for band in range(_BANDS):
            for pairs in _pairs_of_band(signatures, band):
                candidates.add(pairs)
        for pairs in candidates.blocks():
            alike_pairs = _alike(pairs, signatures)
            for earlier, later, similarities in _compared(alike_pairs, chosen, n_letters):
                yield long_enough[earlier], long_enough[later], similarities


def _long_enough(
    texts: Iterable[str], positions: "array[int]", lengths: "array[int]"
) -> Iterator[str]:
    """Yields the words of those texts that are long enough to be compared.

    Appends their positions to `positions`, and their numbers of letters to `lengths`.
    """
    for position, text in enumerate(texts):
        plain = words_alone(text)
        if len(plain) >= SHORTEST:
            positions.append(position)
            lengths.append(len(plain))
            yield plain


def similarity(left: str, right: str) -> float:
    """Returns the Jaccard similarity of two texts' shingles, as `near_duplicates` compares them."""
    return _jaccard(_shingle_set(words_alone(left)), _shingle_set(words_alone(right)))


def _jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Returns the share of the shingles of either side that both have; 0 if there are none."""
    n_common = len(left & right)
    n_all = len(left) + len(right) - n_common
    return n_common / n_all if n_all else 0.0


def _shingle_set(text: str) -> frozenset[str]:
    """Returns the substrings of 4 letters: "abcde" -> {"abcd", "bcde"}."""
    return frozenset(text[i : i + _SHINGLE] for i in range(len(text) - _SHINGLE + 1))


class _Signatures:
    """MinHash signatures of texts: K numbers of each, in a temporary file.

    The numbers of one slot of all texts are side by side in the file, as they are read together.
    The signatures of ten million texts are 2.4 GB.

    Args:
        texts: N texts of at least one shingle each.

    Raises:
        UnavailableError: The disk is full.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        import rensa

        self.n_texts = len(texts)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
        n_written = 0  # texts whose signatures are in the file
        for part in in_chunks(texts, _HASHED_AT_ONCE):
            # Smaller chunks if texts are long: all their shingles are hashed at once.
            for chunk in chunks(part):
                hashes, offsets = _hashes(chunk)
                matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(
                    hashes, offsets, _SLOTS, 1
                )
                self._write(np.array(matrix.to_rows(), dtype=np.uint32), n_written)
                n_written += len(chunk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def slot(self, number: int) -> NDArray[np.uint32]:
        """Returns (N,) the numbers that all signatures have in one slot."""
        self._file.seek(number * self.n_texts * _SLOT.itemsize)
        return np.fromfile(self._file, dtype=_SLOT, count=self.n_texts)

    def _write(self, rows: NDArray[np.uint32], n_written: int) -> None:
        """Writes the signatures (n, K) of the next texts, behind the `n_written` before them.

        The file has N numbers of the first slot, then N of the second: it is read slot by slot.
        """
        try:
            with _room_for(_SLOTS * self.n_texts * _SLOT.itemsize):
                for number, values in enumerate(np.ascontiguousarray(rows.T)):
                    self._file.seek((number * self.n_texts + n_written) * _SLOT.itemsize)
                    self._file.write(values.data)
                self._file.flush()
        except UnavailableError:
            self._file.close()
            raise


def _hashes(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Returns the hashes of the shingles of all texts.

    The first array has (S,) the hashes, text after text. The second array has (N + 1,) the index
    in the first array at which the hashes of each text begin, and S at its end.

    Args:
        texts: N texts of at least one shingle (`_SHINGLE` letters) each.
    """
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    hashes = np.zeros(len(codes) - _SHINGLE + 1, dtype=np.uint64)
    # The polynomial hash of each shingle, for all shingles at once.
    for k in range(_SHINGLE):
        hashes = hashes * np.uint64(0x100000001B3) + codes[k : k + len(hashes)]
    hashes *= np.uint64(0x9E3779B97F4A7C15)  # spread over all 64 bits, wrapping round as it should
    hashes ^= hashes >> np.uint64(29)
    # All texts were hashed as one, so shingles across the border of two texts are taken out.
    is_in_text = np.ones(len(hashes), dtype=np.bool_)
    ends = np.cumsum(lengths)[:-1]
    for k in range(1, _SHINGLE):
        is_in_text[ends - k] = False
    offsets = np.zeros(len(texts) + 1, dtype=np.uint64)
    offsets[1:] = np.cumsum(lengths - _SHINGLE + 1)
    return np.ascontiguousarray(hashes[is_in_text]), offsets


class _Candidates:
    """Pairs of texts that may be near duplicates, in temporary files.

    A pair is one number: earlier text x N + later text. There is a file for each block of earlier
    texts. Ten million texts, all alike, have 600 million pairs: 4.8 GB.

    Args:
        n_texts: N.

    Raises:
        UnavailableError: The disk is full.
    """

    def __init__(self, n_texts: int) -> None:
        self._n_bytes = 0  # of the pairs that were added so far
        # The pair of texts (i, j), with i < j, is the number i * N + j. A block has the pairs of
        # `_BLOCK` values of i. The smallest number in it would be that of the first i, with j = 0.
        first_texts = np.arange(0, n_texts, _BLOCK)
        self._smallest_pairs = first_texts * n_texts
        self._open_files = ExitStack()
        self._files: list[IO[bytes]] = []  # a file for each block
        for _ in self._smallest_pairs:
            file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
            self._files.append(self._open_files.enter_context(file))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open_files.close()

    def add(self, pairs: Ints) -> None:
        """Adds pairs to the files of their blocks; the same pair may be added several times.

        Args:
            pairs: (P,) numbers of pairs. A block has a range of numbers, blocks in ascending order.
        """
        self._n_bytes += pairs.nbytes
        ordered = np.sort(pairs)
        borders = np.searchsorted(ordered, self._smallest_pairs[1:])
        for file, part in zip(self._files, np.split(ordered, borders), strict=True):
            with _room_for(self._n_bytes):
                file.write(part.data)
                file.flush()

    def blocks(self) -> Iterator[Ints]:
        """Yields the different pairs of each block, sorted; blocks come in ascending order."""
        for file in self._files:
            file.seek(0)
            yield sorted_unique(np.fromfile(file, dtype=np.int64))


def _pairs_of_band(signatures: _Signatures, band: int) -> Iterator[Ints]:
    """Yields pairs of texts whose signatures are equal in a band of slots, as earlier x N + later.

    Texts with an equal band form a bucket. Each is paired with the first text of the bucket, and
    with the few just before it: all pairs of a large bucket would be too many.
    """
    n = signatures.n_texts
    texts, is_first = _buckets(signatures, band)
    # `texts` has bucket after bucket. Below, a text is known by its index in this array.
    indices = np.arange(len(texts))
    bucket_numbers = np.cumsum(is_first) - 1
    first_of_bucket = np.flatnonzero(is_first)[bucket_numbers]  # for each text

    later = indices[indices > first_of_bucket]
    yield _numbered(texts[first_of_bucket[later]], texts[later], n)
    for k in range(1, _NEIGHBOURS + 1):
        # The text k places before is in the same bucket, and not its first, which is paired above.
        later = indices[indices - k > first_of_bucket]
        yield _numbered(texts[later - k], texts[later], n)


def _buckets(signatures: _Signatures, band: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Returns the texts of all buckets of two and more, bucket after bucket.

    A bucket has the texts whose signatures are equal in a band of slots. The second array says
    which texts are the first ones of their buckets.
    """
    n = signatures.n_texts
    values = np.zeros(n, dtype=np.uint64)  # a hash of the band's slots
    for slot in range(band * _IN_BAND, (band + 1) * _IN_BAND):
        values = (values ^ signatures.slot(slot)) * np.uint64(0x9E3779B97F4A7C15)
    order = np.argsort(values, kind="stable")
    is_first = np.ones(n, dtype=np.bool_)
    is_first[1:] = np.diff(values[order]) != 0
    # Most texts are alone in their bucket. A text is not alone if it is not the first of its
    # bucket, or if the next text is not the first.
    has_company = ~is_first
    has_company[:-1] |= ~is_first[1:]
    return order[has_company], is_first[has_company]


def _numbered(left: Ints, right: Ints, n_texts: int) -> Ints:
    """Returns pairs of texts as one number each: earlier x N + later.

    A pair has one number, whichever of its texts is on which side.
    """
    pairs: Ints = np.minimum(left, right) * n_texts + np.maximum(left, right)
    return pairs


def _alike(pairs: Ints, signatures: _Signatures) -> Ints:
    """Returns the pairs that may be near duplicates, judged by their signatures.

    A signature has a number in each of K slots. The share of slots in which two signatures are
    equal estimates the Jaccard similarity of the texts.

    Args:
        pairs: (P,) as earlier x N + later.
        signatures: Signatures of the N texts.
    """
    earlier, later = np.divmod(pairs, signatures.n_texts)
    n_equal = np.zeros(len(pairs), dtype=np.uint8)
    for number in range(_SLOTS):
        slot = signatures.slot(number)
        n_equal += slot[earlier] == slot[later]
    estimates = n_equal / _SLOTS
    return pairs[estimates >= _LEAST_ESTIMATE]


def _compared(
    pairs: Ints, texts: Sequence[str], n_letters: Ints
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yields the pairs that are near duplicates, some at a time, and how alike they are.

    The texts of many pairs are read at once, so that a text of several pairs is read once. Fewer
    pairs are compared at a time, as the shingles of a text take more memory than the text.

    Args:
        pairs: (P,) as earlier x N + later.
        texts: N texts.
        n_letters: (N,) their lengths.
    """
    for to_read in _parts(pairs, n_letters, _READ_LETTERS):
        indices_read = sorted_unique(np.concatenate(np.divmod(to_read, len(texts))))
        texts_read = list(selected(texts, indices_read))
        for to_compare in _parts(to_read, n_letters, _COMPARED_LETTERS):
            earlier, later = np.divmod(to_compare, len(texts))
            # Each text once, and each pair as two positions among these texts.
            texts_of_pairs = np.concatenate([earlier, later])
            indices, inverse = np.unique(texts_of_pairs, return_inverse=True)
            positions = np.searchsorted(indices_read, indices)
            different_texts = [texts_read[i] for i in positions.tolist()]
            similarities = _similarities(different_texts, inverse.reshape(2, -1))

            is_near = similarities >= SIMILARITY
            yield earlier[is_near], later[is_near], similarities[is_near]


def _parts(pairs: Ints, n_letters: Ints, most_letters: int) -> Iterator[Ints]:
    """Yields pairs in parts whose texts have at most about `most_letters` letters together.

    Args:
        pairs: (P,) as earlier x N + later.
        n_letters: (N,) lengths of the texts.
        most_letters: Letters of a part.
    """
    earlier, later = np.divmod(pairs, len(n_letters))
    ends = np.cumsum(n_letters[earlier] + n_letters[later])
    n_all = int(ends[-1]) if len(ends) else 0
    borders = np.searchsorted(ends, np.arange(most_letters, n_all, most_letters))
    for part in np.split(pairs, sorted_unique(borders)):
        if len(part):
            yield part


def _similarities(texts: Sequence[str], pairs: Ints) -> Floats:
    """Returns (P,) the Jaccard similarities of pairs of texts, computed from hashes of shingles.

    They are exact unless two different shingles have the same hash.

    Args:
        texts: All texts of the pairs, each once.
        pairs: (2, P) for both sides of each pair, the index of its text in `texts`.
    """
    hashes, offsets = _hashes(texts)
    # Each text's different shingles, as numbers: the text in the high bits, the hash in the low.
    numbers = np.repeat(np.arange(len(texts), dtype=np.uint64), np.diff(offsets).astype(np.int64))
    shingles = sorted_unique((numbers << _HASH_BITS) | (hashes & _HASH_MASK))
    n_shingles = np.bincount((shingles >> _HASH_BITS).astype(np.int64), minlength=len(texts))
    starts = np.cumsum(n_shingles) - n_shingles

    # The shingles of both sides of all pairs, one pair after the other, now with the number of the
    # pair in the high bits.
    of_pairs: list[NDArray[np.uint64]] = []
    for text_numbers in pairs:
        sizes = n_shingles[text_numbers]
        # Shingle i of the result is `shingles[i + distance]`. All shingles of a pair have the same
        # distance: where they begin in `shingles`, less where they begin in the result.
        begins_in_result = np.cumsum(sizes) - sizes
        distances = starts[text_numbers] - begins_in_result
        indices = np.arange(sizes.sum()) + np.repeat(distances, sizes)
        pair_numbers = np.repeat(np.arange(len(text_numbers), dtype=np.uint64), sizes)
        of_pairs.append((pair_numbers << _HASH_BITS) | (shingles[indices] & _HASH_MASK))
    # A shingle that both texts of a pair have is now there twice, one next to the other.
    ordered = np.sort(np.concatenate(of_pairs))
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    n_common = np.bincount((shared >> _HASH_BITS).astype(np.int64), minlength=pairs.shape[1])
    n_of_both = n_shingles[pairs].sum(axis=0) - n_common  # shingles of either text
    similarities: Floats = n_common / n_of_both
    return similarities


@contextmanager
def _room_for(n_bytes: int) -> Iterator[None]:
    """Turns an error in writing temporary files into one that says how much room is needed."""
    try:
        yield
    except OSError as error:
        message = (
            f"{tempfile.gettempdir()}: no room for {human_bytes(n_bytes)}, by which near "
            "duplicates are found"
        )
        raise UnavailableError(
            message, remedy="Set TMPDIR to a folder on a disk with more room."
        ) from error
