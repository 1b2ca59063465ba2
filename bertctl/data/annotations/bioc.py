"""BioC's JSON (bioc.sourceforge.net): a collection of documents with passages, whose offsets count the document."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TextIO

from bertctl.data.annotations.document import Document, Span, part
from bertctl.errors import DataError
from bertctl.writing import write_array

_LONGEST_GAP = 10_000  # characters between two passages


def documents_of(collection: Mapping[str, Any], source: str) -> Iterator[Document]:
    """Yields the documents, passages placed by their offsets; spans of several parts are left out."""
    for number, entry in enumerate(part(collection, "documents", list, source), start=1):
        where = f"{source}, document {number}"
        text, spans, parted = "", list[Span](), 0
        first = None
        for passage in chain.from_iterable(map(_texts, part(entry, "passages", list, where))):
            offset = part(passage, "offset", int, where)
            first = offset if first is None else first
            gap = offset - first - len(text)
            if not 0 <= gap <= _LONGEST_GAP:
                raise DataError(f"{where}: a passage begins at {offset}, within or far behind the one before")
            text += " " * gap + (passage.get("text") or "")
            for annotation in passage.get("annotations") or ():
                places = part(annotation, "locations", list, where)
                parted += len(places) > 1
                if len(places) == 1:
                    start = part(places[0], "offset", int, where) - first
                    kind = str(part(annotation, "infons", dict, where).get("type", ""))
                    spans.append((start, start + part(places[0], "length", int, where), kind))
        yield Document(str(entry.get("id", number - 1)), text, spans, [], parted)


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
