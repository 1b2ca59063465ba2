"""BioC's JSON (bioc.sourceforge.net).

A collection of documents with passages, whose offsets count the document.

Read are a collection, a list of them, documents alone (in a list, or one per line), and what
PubTator3 answers. Where annotations name their `annotator`, those of several people about one
document have to be the same.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TextIO

from bertctl.data.annotations.annotators import Annotation, agreed_label
from bertctl.data.annotations.document import Document, Span, joined_parts, part, show_spans
from bertctl.data.read_options import ReadOptions
from bertctl.errors import DataError
from bertctl.words import shorten
from bertctl.writing import write_array

_LONGEST_GAP = 10_000
"""Characters that may lie between two passages. More would fill the memory with blanks."""

_DOCUMENT_FIELDS = ("documents", "PubTator3")
"""Keys of an object with documents: of BioC's own, and of PubTator3's."""


def entries_of(document: Any) -> list[Mapping[str, Any]] | None:
    """Returns the documents of a JSON file as objects; None where it is no BioC.

    Args:
        document: A collection of documents, a list of collections, or a list of documents.
    """
    if isinstance(document, Mapping):
        lists = [
            document[name] for name in _DOCUMENT_FIELDS if isinstance(document.get(name), list)
        ]
        return list(lists[0]) if lists else None
    if not isinstance(document, list) or not document:
        return None
    if not all(isinstance(entry, Mapping) for entry in document):
        return None
    if all(map(_is_entry, document)):
        return list(document)
    entries: list[Mapping[str, Any]] = []
    for collection in document:
        # A document among collections is kept. With anything else, the list is no BioC.
        entries += entries_of(collection) or [collection]
    if all(map(_is_entry, entries)):
        return entries
    return None


def _is_entry(value: Any) -> bool:
    """Returns whether a value is a document: an object with passages."""
    return isinstance(value, Mapping) and isinstance(value.get("passages"), list)


def documents_of(
    entries: Iterable[Mapping[str, Any]], source: str, options: ReadOptions
) -> Iterator[Document]:
    """Yields the documents, with blanks between passages as their offsets say.

    Spans whose parts have words between are left out.

    Args:
        entries: The documents of one file.
        source: Its name.
        options: Whose annotations count.

    Raises:
        DataError: Passages or annotations that are not what they should be.
    """
    for number, entry in enumerate(entries, start=1):
        where = f"{source}, document {number}"
        passages = part(entry, "passages", list, where)
        text, text_offset = _text(passages, where)
        annotations_by_annotator: dict[str, list[Mapping[str, Any]]] = {}
        for annotation in _annotations(entry, passages):
            annotator = part(annotation, "infons", dict, where).get("annotator")
            name = "" if annotator is None else str(annotator)
            annotations_by_annotator.setdefault(name, []).append(annotation)
        documents = {
            name: _read(annotations, text, text_offset, where)
            for name, annotations in annotations_by_annotator.items()
        }
        chosen = _chosen(documents, options)
        yield chosen._replace(id=str(entry.get("id", number - 1)), text=text)


def _read(
    annotations: Iterable[Mapping[str, Any]], text: str, text_offset: int, where: str
) -> Document:
    """Returns the spans of annotations, in a document without a name.

    Args:
        annotations: The annotations of one annotator.
        text: Text of the document.
        text_offset: Offset at which the text begins, as the annotations' locations count.
        where: File and document.

    Raises:
        DataError: An annotation without locations or a type.
    """
    spans: list[Span] = []
    surfaces: list[str | None] = []
    n_parted = 0
    for annotation in annotations:
        locations = part(annotation, "locations", list, where)
        parts = [_span_of_location(location, text_offset, where) for location in locations]
        if not parts:  # the annotation has no place in the text
            continue
        joined = joined_parts(text, parts)
        if joined is None:  # words between the parts do not belong to the span
            n_parted += 1
            continue
        kind = annotation["infons"].get("type")
        if not kind:
            start, end = joined
            raise DataError(
                f"{where}: the annotation {shorten(repr(text[start:end]))} ({start} to {end}) has "
                "no type",
                remedy='Its `infons` need a "type", such as {"type": "Chemical"}.',
            )
        spans.append((*joined, str(kind)))
        surface = annotation.get("text")
        surfaces.append(surface if isinstance(surface, str) else None)
    return Document(
        id="",
        text=text,
        spans=spans,
        scores=[],
        parted=n_parted,
        surfaces=surfaces,
    )


def _chosen(documents: Mapping[str, Document], options: ReadOptions) -> Document:
    """Returns the spans that annotators of a document agree on, or of a named annotator.

    They are in a document without a name, to which the caller gives name and text.

    Args:
        documents: Name of each annotator -> the document with the annotator's spans. The name is
            empty where annotations name nobody.
        options: `data.annotator` may name one.
    """
    annotator = options.settings.annotator
    if not documents:  # no annotations
        return Document(id="", text="", spans=[], scores=[])
    names_nobody = documents.keys() == {""}
    if names_nobody or (annotator is None and len(documents) == 1):
        [document] = documents.values()
        return document
    annotations = [
        Annotation((name,) if name else (), document) for name, document in documents.items()
    ]
    agreed = agreed_label(
        annotations,
        annotator,
        key=lambda document: frozenset(document.spans),
        show=_show,
    )
    if isinstance(agreed, Document):
        return agreed
    return Document(
        id="",
        text="",
        spans=[],
        scores=[],
        problem=agreed,
    )


def _show(document: Document) -> str:
    """Returns the spans of a document as a person reads them."""
    return show_spans(document.spans)


def _text(passages: Sequence[Any], where: str) -> tuple[str, int]:
    """Returns the text of a document, and the offset at which it begins.

    Passages at 0 (`A title.`) and 9 (`A text.`) are `A title. A text.`, from 0.

    Raises:
        DataError: Passages overlap, or are far from each other.
    """
    text = ""
    text_offset = None
    # A passage has its text itself, or in its sentences.
    for text_part in chain.from_iterable(map(_parts_with_text, passages)):
        offset = part(text_part, "offset", int, where)
        if text_offset is None:
            text_offset = offset
        gap = offset - text_offset - len(text)
        if not 0 <= gap <= _LONGEST_GAP:
            raise DataError(
                f"{where}: a passage begins at {offset}, within or far behind the one before, "
                f"which ends at {text_offset + len(text)}",
                remedy="Count the offsets of passages in characters (not bytes) of the document.",
            )
        text += " " * gap + (text_part.get("text") or "")
    return text, text_offset or 0


def _annotations(entry: Mapping[str, Any], passages: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the annotations of a document, of its passages and of their sentences."""
    yielded: set[str] = set()
    sentences = chain.from_iterable(passage.get("sentences") or () for passage in passages)
    for holder in chain([entry], passages, sentences):
        for annotation in holder.get("annotations") or ():
            written = json.dumps(annotation, sort_keys=True)
            if written not in yielded:  # some tools repeat those of a sentence at its passage
                yielded.add(written)
                yield annotation


def _span_of_location(location: Any, text_offset: int, where: str) -> tuple[int, int]:
    """Returns start and end of a location in a text that begins at an offset."""
    start = part(location, "offset", int, where) - text_offset
    return start, start + part(location, "length", int, where)


def _parts_with_text(passage: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Returns the parts of a passage that have its text: the passage itself, or its sentences."""
    if passage.get("text"):
        return [passage]
    return passage.get("sentences") or [passage]


def write(documents: Iterable[Document], out: TextIO) -> None:
    """Writes a collection, a passage per document."""
    out.write('{"source": "bertctl", "date": "", "key": "", "infons": {}, "documents": ')
    write_array(map(_entry, documents), out)
    out.write("}\n")


def _entry(document: Document) -> dict[str, Any]:
    """Returns a text with its spans as a document of BioC with one passage."""
    annotations: list[dict[str, Any]] = []
    for number, (span, score) in enumerate(document.scored, start=1):
        start, end, kind = span
        infons: dict[str, Any] = {"type": kind}
        if score is not None:
            infons["score"] = score
        annotations.append(
            {
                "id": str(number),
                "infons": infons,
                "text": document.text[start:end],
                "locations": [{"offset": start, "length": end - start}],
            }
        )
    passage = {
        "offset": 0,
        "infons": {},
        "text": document.text,
        "sentences": [],
        "annotations": annotations,
        "relations": [],
    }
    return {
        "id": document.id,
        "infons": {},
        "passages": [passage],
        "relations": [],
    }
