"""Files of annotation tools as tables of texts with spans."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bertctl.data.annotations import bioc, brat, docbin, label_studio, pubtator
from bertctl.data.annotations.document import Document
from bertctl.data.files import document_or_tables, table_of_document
from bertctl.data.reading import ReadOptions
from bertctl.data.table import Table, in_chunks
from bertctl.data.text_files import Source, open_bytes, source_name

_READERS: Mapping[str, Callable[[Source, ReadOptions], Iterator[Document]]] = {
    "brat": brat.read,
    "pubtator": pubtator.read,
    "docbin": docbin.read,
}
SUFFIXES = {".ann": "brat", ".pubtator": "pubtator", ".spacy": "docbin", ".json": "json"}
"""What a file of an annotation tool is by its suffix."""


class AnnotatedTable(Table):
    """Texts with their spans, under the names `id`, `text` and `spans`."""


def annotated_tables(source: Source, kind: str, options: ReadOptions) -> Iterator[Table]:
    """Yields texts with their spans, one table per chunk.

    Args:
        source: the file.
        kind: `brat`, `pubtator`, `docbin`, or `json`: that of Label Studio, BioC, a list of objects, or one per line.
        options: how it is read.
    """
    if kind != "json":
        yield from _tables(_READERS[kind](source, options), source_name(source), options)
        return
    name = source_name(source)
    with open_bytes(source) as file:
        document, tables = document_or_tables(file, name, options)
        if document is None:
            yield from tables
        elif isinstance(document, dict) and "documents" in document:
            yield from _tables(bioc.documents_of(document, name), name, options)
        elif isinstance(document, list) and document and isinstance(document[0], dict) and "data" in document[0]:
            yield from _tables(label_studio.documents_of(document, name), name, options)
        else:
            yield from table_of_document(document, name, options).chunks(options.chunk_rows)


def _tables(documents: Iterator[Document], name: str, options: ReadOptions) -> Iterator[Table]:
    first = 0
    for chunk in in_chunks(documents, options.chunk_rows):
        columns: dict[str, list[Any]] = {
            "text": [document.text for document in chunk],
            "spans": [document.spans for document in chunk],
            "id": [document.id for document in chunk],
        }
        yield AnnotatedTable(columns, name, first=first)
        first += len(chunk)
