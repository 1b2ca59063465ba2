"""Texts to ids, for training, evaluation, prediction and features: no padding, no torch.

Ids are those of the library `tokenizers`, always; texts for which a faster library is exact go
there (`route.py`).

Letters: N texts, T tokens of all of them together.
"""

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import IO, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from bertctl.arrays import Bools, Bytes, Ints, Ints32, in_a_file, starts_of
from bertctl.documents import loading
from bertctl.errors import UnavailableError
from bertctl.tokenization import reference
from bertctl.tokenization.layout import Layout, Ragged, lengths_in_room, merge
from bertctl.tokenization.route import Route, find_route
from bertctl.tokenization.stream import TextChunk, Totals
from bertctl.tokenization.windows import TextWindows
from bertctl.words import human_bytes

_Number = TypeVar("_Number", bound=np.integer[Any])

LARGE = 2**28
"""Tokens from which the ids of a split lie in a file: 1.3 GB."""

_AT_ONCE = 50_000
"""Texts that are encoded at once. More are encoded in parts, to hold little memory."""

_MANY_TOKENS = 2**24
"""Tokens of texts encoded in parts from which their ids stay in a file."""

_WORTH_ROUTING = 8
"""Characters per token of the vocabulary from which the faster library is worth loading: to load it
takes as long as to encode these."""


@dataclass(frozen=True)
class EncodedTexts:
    """N texts (or pairs) as one flat array of ids.

    Attributes:
        ids: (T,) token ids, special tokens included.
        type_ids: (T,) segment of each token: 0 first sentence, 1 second.
        starts: (N + 1,) where each text begins in `ids`; the last entry is T.
        full_lengths: (N,) tokens each text would have had without truncation.
        unknown: (N,) unknown tokens in each text, before truncation.

        # pair    [CLS] it rained . [SEP] the ground is wet . [SEP]
        # segment   0    0    0   0   0    1    1    1  1   1   1
    """

    ids: Ints32
    type_ids: Bytes
    starts: Ints
    full_lengths: Ints
    unknown: Ints

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def lengths(self) -> Ints:
        """Returns the (N,) numbers of tokens of each text, after truncation.

        They are computed once, since every training step needs them.
        """
        return np.diff(self.starts)

    @property
    def truncated(self) -> Bools:
        """Returns (N,) whether tokens of each text were cut off."""
        return self.full_lengths > self.lengths

    def release_pages(self) -> None:
        """Frees the memory of ids that are mapped from a file; their next use reads them again."""
        for values in (self.ids, self.type_ids):
            pages = values.base  # the map that the array is a view of, if it is mapped at all
            if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)

    def mapped(self) -> Self:
        """Returns the same texts. `LARGE` tokens or more are moved from memory into a file.

        It is a temporary file, which is read when the ids are used.

        Raises:
            UnavailableError: the disk of the temporary folder is full.
        """
        if len(self.ids) < LARGE:
            return self
        return replace(self, ids=_in_a_file(self.ids), type_ids=_in_a_file(self.type_ids))

    def part(self, first: int, last: int) -> Self:
        """Returns the texts from `first` up to the one before `last`."""
        begin = int(self.starts[first])
        tokens = slice(begin, int(self.starts[last]))
        return replace(
            self,
            ids=self.ids[tokens],
            type_ids=self.type_ids[tokens],
            starts=self.starts[first : last + 1] - begin,
            full_lengths=self.full_lengths[first:last],
            unknown=self.unknown[first:last],
        )

    def followed_by(self, others: "EncodedTexts") -> Self:
        """Returns these texts and then the others. Many ids are moved from memory into a file."""
        joined = replace(
            self,
            ids=np.concatenate([self.ids, others.ids]),
            type_ids=np.concatenate([self.type_ids, others.type_ids]),
            starts=np.concatenate([self.starts, others.starts[1:] + self.starts[-1]]),
            full_lengths=np.concatenate([self.full_lengths, others.full_lengths]),
            unknown=np.concatenate([self.unknown, others.unknown]),
        )
        return joined.mapped()

    @classmethod
    def joined(
        cls, ids: list[Ints32], type_ids: list[Bytes], full: list[int], unknown: list[int]
    ) -> Self:
        """Returns texts that were encoded one by one.

        Args:
            ids: For each text its ids, special tokens included.
            type_ids: For each text the segment of each token.
            full: Tokens each text would have had without truncation.
            unknown: Unknown tokens of each text, before truncation.
        """
        return cls(
            # The empty arrays give no texts at all their type.
            ids=np.concatenate([np.zeros(0, dtype=np.int32), *ids]),
            type_ids=np.concatenate([np.zeros(0, dtype=np.uint8), *type_ids]),
            starts=starts_of([len(text_ids) for text_ids in ids]),
            full_lengths=np.array(full, dtype=np.int64),
            unknown=np.array(unknown, dtype=np.int64),
        )

    @classmethod
    def of_windows(cls, texts: Sequence[TextWindows]) -> Self:
        """Returns the windows of texts as N texts of their own, for writers.

        If a text has several windows, they count as uncut, since together they have all its tokens.
        Unknown tokens, which writers do not need, are not counted.
        """
        windows: list[Encoding] = []
        full_lengths: list[int] = []
        for text in texts:
            windows += text.windows
            if len(text.windows) == 1:
                full_lengths.append(text.full_length)
            else:
                full_lengths += map(len, text.windows)
        ids, type_ids = _arrays(windows)
        return cls.joined(
            ids,
            type_ids,
            full=full_lengths,
            unknown=[0] * len(windows),
        )


def _arrays(encodings: Sequence[Encoding]) -> tuple[list[Ints32], list[Bytes]]:
    """Returns the ids of each encoding, and the type ids of each, as arrays."""
    ids = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
    type_ids = [np.array(encoding.type_ids, dtype=np.uint8) for encoding in encodings]
    return ids, type_ids


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_length: int | None,
) -> EncodedTexts:
    """Returns the encoded texts or pairs; the longer text of a pair is truncated first.

    Args:
        tokenizer: with truncation and padding off; it is left that way.
        texts: N first (or only) texts.
        pairs: N second texts, or None.
        max_length: longest result in tokens (google-research/bert
            `run_classifier.py::_truncate_seq_pair`); None for no limit.
    """
    encoder = TextEncoder(tokenizer, max_length=max_length)
    if len(texts) <= _AT_ONCE:
        return encoder.encode(texts, pairs).mapped()
    return _encode_in_parts(encoder, texts, pairs)


def _encode_in_parts(
    encoder: "TextEncoder", texts: Sequence[str], pairs: Sequence[str] | None
) -> EncodedTexts:
    """Returns many encoded texts or pairs, whose ids are written to a file part by part.

    Args:
        encoder: Encodes them.
        texts: N first or only texts.
        pairs: N second texts, or None.

    Raises:
        UnavailableError: The disk of the temporary folder is full.
    """
    starts = [np.zeros(1, dtype=np.int64)]
    full_lengths: list[Ints] = []
    unknown: list[Ints] = []
    n_tokens = 0
    with tempfile.TemporaryFile() as ids_file, tempfile.TemporaryFile() as types_file:
        for first in range(0, len(texts), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            if pairs is None:
                encoded = encoder.encode(list(texts[part]))
            else:
                encoded = encoder.encode(list(texts[part]), list(pairs[part]))
            with _room_for(n_tokens + len(encoded.ids)):
                ids_file.write(encoded.ids.data)
                types_file.write(encoded.type_ids.data)
            starts.append(encoded.starts[1:] + n_tokens)
            full_lengths.append(encoded.full_lengths)
            unknown.append(encoded.unknown)
            n_tokens += len(encoded.ids)
        with _room_for(n_tokens):
            ids_file.flush()
            types_file.flush()
        return EncodedTexts(
            ids=_read_back(ids_file, np.int32, n_tokens),
            type_ids=_read_back(types_file, np.uint8, n_tokens),
            starts=np.concatenate(starts),
            full_lengths=np.concatenate(full_lengths),
            unknown=np.concatenate(unknown),
        )


def _read_back(file: IO[bytes], dtype: type[_Number], n_tokens: int) -> NDArray[_Number]:
    """Returns the numbers in a temporary file; many stay there and are read when used.

    Args:
        file: The file, which the caller closes; a map of it remains readable.
        dtype: Type of the numbers.
        n_tokens: How many they are.
    """
    if n_tokens >= _MANY_TOKENS:
        return np.memmap(
            file,
            dtype=dtype,
            mode="r",
            shape=(n_tokens,),
        )
    file.seek(0)
    return np.fromfile(file, dtype=dtype)


@contextmanager
def _room_for(n_tokens: int) -> Iterator[None]:
    """Turns errors of the file system into one that names the bytes of the tokens, within `with`.

    Raises:
        UnavailableError: In place of each `OSError`.
    """
    try:
        yield
    except OSError as error:
        # 4 bytes for the id of a token and 1 for its type id.
        raise _no_room(5 * n_tokens) from error


def _in_a_file(values: NDArray[_Number]) -> NDArray[_Number]:
    """Returns an array in a temporary file.

    Raises:
        UnavailableError: The disk of the temporary folder is full.
    """
    try:
        return in_a_file(values)
    except OSError as error:
        raise _no_room(values.nbytes) from error


def _no_room(n_bytes: int) -> UnavailableError:
    """Returns the error for a temporary folder that has no room for the ids of texts."""
    return UnavailableError(
        f"{tempfile.gettempdir()}: no room for {human_bytes(n_bytes)} of token ids",
        remedy="Free some space there, or set TMPDIR to a folder with more.",
    )


class TextEncoder:
    """Encodes chunk after chunk with the same settings.

    Args:
        tokenizer: with truncation and padding off; it must not change as long as this lives.
        max_length: as in `encode_texts`.
        special_tokens: whether [CLS], [SEP] or what stands for them are added.
        routed: whether the faster library is used where it is exact, once there is enough text to
            be worth loading it. Off, everything takes the reference.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_length: int | None = None,
        special_tokens: bool = True,
        routed: bool = True,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.special_tokens = special_tokens
        self.route: Route | None = None  # the faster library, once it is loaded
        self._undecided = routed  # whether it is still open if the faster library is used
        self._characters = 0  # encoded so far
        self._unknown_id = reference.unknown_id(tokenizer)

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> EncodedTexts:
        """Returns N encoded texts, or N pairs."""
        # `_encode` reports each error as one of the tokenizer. This one is the caller's.
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f"{len(texts)} texts and {len(pairs)} second sentences")
        return self._encode(texts, pairs)

    @loading("the tokenizer", kind=UnavailableError, remedy=reference.OTHER_TOKENIZER)
    def _encode(self, texts: Sequence[str], pairs: Sequence[str] | None) -> EncodedTexts:
        """Returns N encoded texts, or N pairs, by the faster library once there is enough text."""
        if self._undecided:
            self._decide(texts, pairs or ())
        if self.route is None:
            return self._encode_by_reference(texts, pairs)
        return self._encode_by_route(self.route, texts, pairs)

    def _encode_by_route(
        self, route: Route, texts: Sequence[str], pairs: Sequence[str] | None
    ) -> EncodedTexts:
        """Returns N encoded texts, or N pairs, by the faster library.

        It gives the ids of texts alone. They are truncated, and put between the special tokens, in
        numpy.
        """
        sequences = [self._flat(route, texts)]
        if pairs is not None:
            sequences.append(self._flat(route, pairs))
        layout = Layout.of(
            self.tokenizer, pair=pairs is not None, special_tokens=self.special_tokens
        )
        full_lengths = np.full(len(texts), layout.special, dtype=np.int64)
        unknown = np.zeros(len(texts), dtype=np.int64)
        for sequence in sequences:
            full_lengths += sequence.lengths
            if self._unknown_id is not None:
                unknown += sequence.count(self._unknown_id)
        if self.max_length is not None and full_lengths.max(initial=0) > self.max_length:
            kept_lengths = lengths_in_room(sequences, self.max_length - layout.special)
            sequences = [
                sequence.cut(lengths)
                for sequence, lengths in zip(sequences, kept_lengths, strict=True)
            ]
        ids, type_ids, starts = layout.fill(sequences)
        return EncodedTexts(
            ids=ids,
            type_ids=type_ids,
            starts=starts,
            full_lengths=full_lengths,
            unknown=unknown,
        )

    def _decide(self, *sides: Sequence[str]) -> None:
        """Looks for the faster library once enough text has come to make loading it worthwhile."""
        self._characters += sum(map(len, chain.from_iterable(sides)))
        if self._characters > _WORTH_ROUTING * self.tokenizer.get_vocab_size():
            self.route = find_route(self.tokenizer)
            self._undecided = False

    def _flat(self, route: Route, texts: Sequence[str]) -> Ragged:
        """Returns the ids of texts without special tokens, in the order of the texts.

        Args:
            route: The faster library. Texts that it may not encode exactly go to the reference.
            texts: N texts.
        """
        unsafe = route.unsafe(texts)  # positions of texts
        if not unsafe:
            ids, lengths = route.encode(texts)
            return Ragged.joined(ids.view(np.int32), lengths)
        safe = np.delete(np.arange(len(texts)), unsafe)  # all other positions
        ids, lengths = route.encode([texts[i] for i in safe.tolist()])
        fast = Ragged.joined(ids.view(np.int32), lengths)
        slow = self._flat_by_reference([texts[i] for i in unsafe])
        return merge(len(texts), [(safe, fast), (np.array(unsafe), slow)])

    def _flat_by_reference(self, texts: Sequence[str]) -> Ragged:
        """Returns the ids of texts without special tokens, by the reference library.

        Long texts are encoded in parts, whose ids are joined again.
        """
        parts = [reference.cut_at_spaces(text, reference.CHUNK_CHARACTERS) for text in texts]
        ids: list[Ints32] = []
        for chunk in reference.chunks(list(chain.from_iterable(parts))):
            encodings = self.tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
            ids += [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        part_lengths = np.array([len(part_ids) for part_ids in ids], dtype=np.int64)
        # The parts of a text follow each other, so its length is the sum of theirs.
        first_parts = np.cumsum([0, *map(len, parts[:-1])])
        text_lengths = np.add.reduceat(part_lengths, first_parts)
        return Ragged.joined(np.concatenate(ids), text_lengths)

    def _encode_by_reference(
        self, texts: Sequence[str], pairs: Sequence[str] | None
    ) -> EncodedTexts:
        """Returns N encoded texts, or N pairs, by the reference library alone."""
        inputs: Sequence[str | tuple[str, str]]
        if pairs is None:
            inputs = texts
        else:
            inputs = list(zip(texts, pairs, strict=True))
        ids: list[Ints32] = []
        type_ids: list[Bytes] = []
        full_lengths: list[int] = []
        unknown: list[int] = []
        for chunk in reference.chunks(inputs):
            encodings = self.tokenizer.encode_batch_fast(
                chunk, add_special_tokens=self.special_tokens
            )
            full_lengths += map(len, encodings)
            if self._unknown_id is None:
                unknown += [0] * len(encodings)
            else:
                unknown += [encoding.ids.count(self._unknown_id) for encoding in encodings]
            if self.max_length is not None:
                self._cut(chunk, encodings, self.max_length)
            chunk_ids, chunk_type_ids = _arrays(encodings)
            ids += chunk_ids
            type_ids += chunk_type_ids
        return EncodedTexts.joined(
            ids,
            type_ids,
            full=full_lengths,
            unknown=unknown,
        )

    def _cut(
        self, inputs: Sequence[str | tuple[str, str]], encodings: list[Encoding], max_length: int
    ) -> None:
        """Replaces encodings that are too long by truncated ones, in the list itself.

        These texts are encoded twice, since only the first time shows how long they are.

        Args:
            inputs: N texts or pairs.
            encodings: N encodings of them, which are changed.
            max_length: Tokens of an encoding at most.
        """
        too_long = [i for i, encoding in enumerate(encodings) if len(encoding) > max_length]
        if not too_long:
            return
        with reference.truncating(self.tokenizer, max_length) as tokenizer:
            truncated = tokenizer.encode_batch_fast(
                [inputs[i] for i in too_long], add_special_tokens=self.special_tokens
            )
        for i, encoding in zip(too_long, truncated, strict=True):
            encodings[i] = encoding


class FlatEncoder:
    """Encodes chunks to ids without offsets, by the fastest exact way.

    Attributes:
        totals: Counts of all chunks so far.
    """

    def __init__(self, encoder: TextEncoder) -> None:
        self.totals = Totals()
        self._encoder = encoder

    def encode(self, chunk: TextChunk) -> EncodedTexts:
        """Returns the ids of a chunk."""
        encoded = self._encoder.encode(chunk.texts, chunk.pairs)
        n_lost = encoded.full_lengths - encoded.lengths  # (N,) tokens that were cut off
        self.totals.texts += len(encoded)
        self.totals.rows += len(encoded)
        self.totals.tokens += len(encoded.ids)
        self.totals.unknown += int(encoded.unknown.sum())
        self.totals.truncated += int((n_lost > 0).sum())
        self.totals.lost += int(n_lost.sum())
        return encoded
