"""Texts as one long row of token ids.

It knows the places where words, sentences, documents and corpora begin.

On a disk they are numpy arrays, which are mapped. Places are bits, so that the folder has 1.13
times the size of its ids, however short the sentences are:

    ids.npy         (N,) uint16, or uint32 where the vocabulary needs it; no special tokens
    words.npy       a bit for each token: whether it begins a word
    sentences.npy   a bit for each token: whether it begins a sentence
    documents.npy   a bit for each sentence: whether it begins a document
    corpora.npy     (K + 1,) where corpora begin in documents

Letters: N tokens, S sentences, D documents, K corpora.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertctl.appended import AppendedArray, open_array
from bertctl.arrays import Array, Bytes, Ints, starts_of
from bertctl.documents import loading
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.reference import CHUNK_CHARACTERS, chunks, cut_at_spaces, tokens_by_id
from bertctl.tokenization.word_starts import WordStarts
from bertctl.writing import replacing

_CHARACTERS = 4_000_000
"""Characters of documents that are encoded at once."""

_BLOCK = 1 << 20
"""Bytes of bits that are unpacked at once."""

Documents = Iterable[Sequence[str]]
"""Each as its sentences."""


@dataclass(frozen=True)
class PackedText:
    """Text as ids, one sentence behind the other.

    Each array of places ends with the length of what it cuts.

    Attributes:
        ids: (N,) uint16, or uint32 where the vocabulary has more than 65,536 tokens; in a file, or
            in memory.
        begins: (ceil(N / 8),) bits, the lowest first (`np.unpackbits(..., bitorder="little")`): 1
            where a token begins a word as the tokenizer's pre-tokenizer sees words.
        sentences: (S + 1,) where sentences begin in `ids`; none is empty.
        documents: (D + 1,) where documents begin in `sentences`.
        corpora: (K + 1,) where corpora begin in `documents`.
    """

    ids: Array
    begins: Bytes
    sentences: Ints
    documents: Ints
    corpora: Ints


def pack(
    corpora: Iterable[Documents],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    documents: int = 0,
    listener: Listener = SILENT,
) -> PackedText:
    """Encodes corpora and writes their ids into a new folder, which is returned opened.

    The folder has its name only when it is complete.

    Args:
        corpora: documents of each corpus, and sentences of each document. Documents without a token
            are left out.
        tokenizer: with truncation and padding off.
        folder: The new folder; the same texts give the same bytes.
        documents: how many there are, for the progress; 0 where nobody knows.
        listener: told of the progress.

    Raises:
        UnavailableError: the tokenizer fails at a text, or the folder can't be written.
    """
    word_starts = WordStarts(tokenizer)
    corpus_ends = [0]  # in documents; the last one grows while its corpus is packed
    n_done = 0
    n_tokens = 0
    with replacing(folder) as aside:
        with ExitStack() as files:
            ids = files.enter_context(
                closing(AppendedArray(aside / "ids.npy", (), _id_type(tokenizer), None))
            )
            words = files.enter_context(closing(_Bits(aside / "words.npy")))
            sentences = files.enter_context(closing(_Bits(aside / "sentences.npy")))
            document_starts = files.enter_context(closing(_Bits(aside / "documents.npy")))
            for corpus in corpora:
                corpus_ends.append(corpus_ends[-1])  # no documents yet
                for batch in _batches(corpus):
                    packed = _packed(batch, word_starts)
                    n_ids = len(packed.ids)
                    ids.append(packed.ids)
                    words.append(np.unpackbits(packed.begins, count=n_ids, bitorder="little"))
                    sentences.append(_flags(packed.sentences))
                    document_starts.append(_flags(packed.documents))
                    # Documents without a token begin where the next one does, and are left out.
                    corpus_ends[-1] += len(np.unique(packed.documents)) - 1
                    n_done += len(batch)
                    n_tokens += n_ids
                    listener.advance("packing", n_done, documents, {"tokens": n_tokens})
            ids.sync()  # the arrays of bits sync when they are closed
        np.save(aside / "corpora.npy", np.array(corpus_ends, dtype=np.int64))
    listener.finish("packing")
    return open_packed(folder)


def pack_in_memory(documents: Documents, tokenizer: Tokenizer) -> PackedText:
    """Returns documents, given as sentences, as one corpus in memory.

    Each document stays, also one without a token.

    Raises:
        UnavailableError: the tokenizer fails at a text.
    """
    packed = _packed(list(documents), WordStarts(tokenizer))
    return replace(packed, ids=packed.ids.astype(_id_type(tokenizer)))


def open_packed(folder: Path) -> PackedText:
    """Returns what `pack` wrote into a folder: ids that stay in the file, positions in memory.

    Raises:
        DataError: the folder is not as `pack` wrote it.
    """
    with loading(folder, remedy="Delete it: it is made anew."):
        names = ("ids", "words", "sentences", "documents", "corpora")
        ids, begins, sentences, documents, corpora = (
            open_array(folder / f"{name}.npy") for name in names
        )
        sentence_starts = _positions_of_bits(sentences, len(ids))
        return PackedText(
            ids,
            begins,
            sentences=sentence_starts,
            documents=_positions_of_bits(documents, len(sentence_starts) - 1),
            corpora=np.asarray(corpora),
        )


def _batches(documents: Documents) -> Iterator[list[Sequence[str]]]:
    """Yields the documents in batches of about `_CHARACTERS`; the last batch may be empty."""
    batch: list[Sequence[str]] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += sum(map(len, document))
        if characters > _CHARACTERS:
            yield batch
            batch = []
            characters = 0
    yield batch


def _cut(document: Sequence[str]) -> list[str]:
    """Returns the sentences of a document, the longest of them in parts."""
    parts: list[str] = []
    for sentence in document:
        parts.extend(cut_at_spaces(sentence, CHUNK_CHARACTERS))
    return parts


def _packed(documents: Sequence[Sequence[str]], starts: WordStarts) -> PackedText:
    """Returns documents as one corpus, with ids of 32 bits.

    Sentences without a token are left out. A very long sentence becomes several ones, since the
    library needs 600 bytes of memory for each token of a text that it encodes.

    Args:
        documents: Each as its sentences.
        starts: Encodes them.
    """
    documents = [_cut(document) for document in documents]
    texts = list(chain.from_iterable(documents))
    parts = [starts.encode(chunk) for chunk in (*chunks(texts), [])]  # [] gives arrays their types
    ids = np.concatenate([part_ids for part_ids, _, _ in parts])
    lengths = np.concatenate([part_lengths for _, part_lengths, _ in parts])
    begins = np.concatenate([part_begins for _, _, part_begins in parts])

    has_tokens = lengths > 0
    sentences = starts_of(lengths[has_tokens])
    document_numbers = np.arange(len(documents))
    document_of_sentence = np.repeat(document_numbers, list(map(len, documents)))[has_tokens]
    # A document without a sentence begins where the next one does.
    first_sentences = np.searchsorted(document_of_sentence, np.arange(len(documents) + 1))
    return PackedText(
        ids,
        begins=np.packbits(begins, bitorder="little"),
        sentences=sentences,
        documents=first_sentences,
        corpora=np.array([0, len(documents)]),
    )


def _flags(starts: Ints) -> Bytes:
    """Returns (L,) 1 at each of the starts; the last start is the length L.

    `[0, 2, 3]` -> `[1, 0, 1]`.
    """
    length = int(starts[-1])
    counts = np.bincount(starts[starts < length], minlength=length)
    return (counts > 0).view(np.uint8)


def _id_type(tokenizer: Tokenizer) -> type[np.unsignedinteger[Any]]:
    """Returns the smallest type that the ids of a vocabulary fit into."""
    if len(tokens_by_id(tokenizer)) <= 2**16:
        return np.uint16
    return np.uint32


class _Bits:
    """Array of bits that grows in a file, whole bytes at a time.

    Up to seven bits, which do not fill a byte yet, wait in memory for the next ones.
    """

    def __init__(self, path: Path) -> None:
        self._file = AppendedArray(path, (), np.uint8, None)
        self._rest = np.zeros(0, dtype=np.uint8)  # bits that do not fill a byte yet

    def append(self, bits: Bytes) -> None:
        """Adds (n,) bits, each a 0 or 1 in a byte of its own."""
        bits = np.concatenate([self._rest, bits])
        n_whole = len(bits) // 8 * 8
        self._file.append(np.packbits(bits[:n_whole], bitorder="little"))
        self._rest = bits[n_whole:]

    def close(self) -> None:
        """Writes the bits that are left, filled up with 0, and closes the file."""
        self._file.append(np.packbits(self._rest, bitorder="little"))
        self._file.sync()
        self._file.close()


def _positions_of_bits(bits: Bytes, length: int) -> Ints:
    """Returns where bits are 1, and `length` as the last position: the inverse of `_flags`.

    A byte is unpacked into eight, so this is done block by block, to hold little memory.
    """
    blocks = ((first, bits[first : first + _BLOCK]) for first in range(0, len(bits), _BLOCK))
    positions = [
        8 * first + np.flatnonzero(np.unpackbits(block, bitorder="little"))
        for first, block in blocks
    ]
    return np.concatenate([*positions, [length]])
