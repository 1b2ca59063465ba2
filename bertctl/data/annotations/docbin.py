"""spaCy's DocBin (`.spacy`), by spaCy itself, which comes with the extra `spacy`."""

import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, TextIO

from bertctl.data.annotations.document import Document
from bertctl.data.decoding import LONGEST_DOCUMENT
from bertctl.data.read_options import ReadOptions
from bertctl.data.sources import Source, source_name
from bertctl.data.text_files import open_bytes
from bertctl.data.unlabelled import NoLabel
from bertctl.documents import loading
from bertctl.errors import DataError, UnavailableError
from bertctl.words import human_bytes

_BLOCK = 2**20


def read(source: Source, options: ReadOptions) -> Iterator[Document]:  # noqa: ARG001
    """Yields the documents with their entities. It has the arguments of the other formats' `read`.

    Raises:
        DataError: The file is too large, or no DocBin.
        UnavailableError: spaCy is not installed.
    """
    spacy = _spacy()
    name = source_name(source)
    with open_bytes(source) as file:
        data = file.read(LONGEST_DOCUMENT + 1)
    _refuse_large(data, name)
    with loading(name, kind=DataError, remedy="Write it anew with DocBin.to_disk of spaCy."):
        docs = list(spacy.tokens.DocBin().from_bytes(data).get_docs(spacy.blank("xx").vocab))
    for number, doc in enumerate(docs):
        spans = [(entity.start_char, entity.end_char, entity.label_) for entity in doc.ents]
        if doc.has_annotation("ENT_IOB"):
            problem = None
        else:
            problem = NoLabel("not annotated")
        yield Document(
            id=str(number),
            text=doc.text,
            spans=spans,
            scores=[],
            problem=problem,
        )


def _refuse_large(data: bytes, name: str) -> None:
    """Refuses a DocBin, packed with zlib, that is too large, before spaCy unpacks it.

    Raises:
        DataError: it is.
    """
    n_unpacked = 0
    unpacker = zlib.decompressobj()
    packed = data  # what is not unpacked yet
    with suppress(zlib.error):  # data that is not zlib: refused where it is read
        while packed and not unpacker.eof and n_unpacked <= LONGEST_DOCUMENT:
            n_unpacked += len(unpacker.decompress(packed, _BLOCK))
            packed = unpacker.unconsumed_tail
    if max(n_unpacked, len(data)) > LONGEST_DOCUMENT:
        message = (
            f"{name} is larger than {human_bytes(LONGEST_DOCUMENT)}, the most that is read of a "
            "DocBin"
        )
        raise DataError(message, remedy="Write the documents into several files.")


def write(documents: Iterable[Document], out: TextIO) -> None:
    """Writes the bytes of a DocBin.

    In spaCy, entities consist of whole tokens. So a token is cut where a span begins or ends inside
    it. Of spans that overlap the longer one is written.
    """
    spacy = _spacy()
    nlp = spacy.blank("xx")
    doc_bin = spacy.tokens.DocBin()
    for document in documents:
        text = document.text
        borders: set[int] = set()
        for token in nlp.make_doc(text):
            borders.update((token.idx, token.idx + len(token)))
        for start, end, _ in document.spans:
            borders.update((start, end))
        parts = (text[start:end].strip() for start, end in pairwise(sorted(borders)))
        words = [part for part in parts if part]
        doc = spacy.tokens.Doc(nlp.vocab, *spacy.util.get_words_and_spaces(words, text))
        spans = [
            doc.char_span(start, end, kind, alignment_mode="expand")
            for start, end, kind in document.spans
        ]
        doc.set_ents(spacy.util.filter_spans([span for span in spans if span is not None]))
        doc_bin.add(doc)
    out.buffer.write(doc_bin.to_bytes())


def _spacy() -> Any:
    """Returns the module spaCy.

    Raises:
        UnavailableError: It is not installed.
    """
    try:
        import spacy.tokens
        import spacy.util
    except ImportError as error:
        remedy = (
            "Install it: pip install 'bertctl[spacy]'; or take `format=spacy`, which is JSON Lines."
        )
        raise UnavailableError("spaCy's DocBin needs the package spacy", remedy=remedy) from error
    return spacy
