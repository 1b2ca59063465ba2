"""BioC's JSON (bioc.sourceforge.net): a collection of documents with passages, whose offsets count the document."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TextIO

from bertctl.data.annotations.document import Document, Span, joined_parts, part
from bertctl.errors import DataError
from bertctl.writing import write_array

_LONGEST_GAP = 10_000  # characters between two passages


def documents_of(collection: Mapping[str, Any], source: str) -> Iterator[Document]:
    """Yields the documents, passages placed by their offsets; spans whose parts have words between are left out."""
    for number, entry in enumerate(part(collection, "documents", list, source), start=1):
        where = f"{source}, document {number}"
        passages = part(entry, "passages", list, where)
        text, first = _text(passages, where)
        spans: list[Span] = []
        surfaces: list[str | None] = []
        in_parts = 0
        for annotation in _annotations(entry, passages):
            locations = part(annotation, "locations", list, where)
            parts = [_place(location, first, where) for location in locations]
            joined = joined_parts(text, parts) if parts else None
            if joined is None:
                in_parts += len(parts) > 1
                continue
            spans.append((*joined, str(part(annotation, "infons", dict, where).get("type", ""))))
            surface = annotation.get("text")
            surfaces.append(surface if isinstance(surface, str) else None)
        yield Document(str(entry.get("id", number - 1)), text, spans, [], in_parts, surfaces=surfaces)


def _text(passages: Sequence[Any], where: str) -> tuple[str, int]:
    """Returns the text of a document, and the offset at which it begins."""
    text = ""
    first = None
    for passage in chain.from_iterable(map(_texts, passages)):
        offset = part(passage, "offset", int, where)
        first = offset if first is None else first
        gap = offset - first - len(text)
        if not 0 <= gap <= _LONGEST_GAP:
            raise DataError(
                f"{where}: a passage begins at {offset}, within or far behind the one before, which ends at "
                f"{first + len(text)}",
                remedy="Count the offsets of passages in characters (not bytes) of the document.",
            )
        text += " " * gap + (passage.get("text") or "")
    return text, first or 0


def _annotations(entry: Mapping[str, Any], passages: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the annotations of a document, wherever they stand: at it, its passages or their sentences."""
    seen: set[str] = set()
    sentences = chain.from_iterable(passage.get("sentences") or () for passage in passages)
    for holder in chain([entry], passages, sentences):
        for annotation in holder.get("annotations") or ():
            written = json.dumps(annotation, sort_keys=True)
            if written not in seen:  # some tools repeat those of a sentence at its passage
                seen.add(written)
                yield annotation


def _place(location: Any, first: int, where: str) -> tuple[int, int]:
    """Returns start and end of a location in the text."""
    start = part(location, "offset", int, where) - first
    return start, start + part(location, "length", int, where)


def _texts(passage: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Returns the passage, or its sentences where they have its text."""
    return [passage] if passage.get("text") else passage.get("sentences") or [passage]


def write(documents: Iterable[Document], out: TextIO) -> None:
    """Writes a collection, a passage per document."""
    out.write('{"source": "bertctl", "date": "", "key": "", "infons": {}, "documents": ')
    write_array(map(_entry, documents), out)
    out.write("}\n")


def _entry(document: Document) -> dict[str, Any]:
    annotations = [
        {
            "id": str(number),
            "infons": {"type": kind, **({} if score is None else {"score": score})},
            "text": document.text[start:end],
            "locations": [{"offset": start, "length": end - start}],
        }
        for number, ((start, end, kind), score) in enumerate(document.scored, start=1)
    ]
    passage = {"offset": 0, "infons": {}, "text": document.text, "sentences": [], "annotations": annotations}
    return {"id": document.id, "infons": {}, "passages": [{**passage, "relations": []}], "relations": []}
