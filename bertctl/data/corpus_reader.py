"""The documents of a corpus as rows: what a pretrained model is scored on."""

from collections.abc import Iterable, Iterator

from bertctl.data.columns import FileColumns
from bertctl.data.corpora import Document, open_corpora
from bertctl.data.reading import Reader, Reading, ReadOptions
from bertctl.data.rows import Rows
from bertctl.data.table import Table
from bertctl.data.text_files import Source, source_name
from bertctl.errors import DataError, UsageError


def corpus_rows(documents: Iterable[Document], *, split: str, source: str) -> Rows:
    """Returns documents as rows: `text` has a sentence per line, and is its own label."""
    found = [(document.id, "\n".join(document.sentences)) for document in documents if document.sentences]
    texts = [text for _, text in found]
    return Rows(split, {"text": texts, "label": texts}, [name for name, _ in found], source)


class CorpusReader(Reader):
    """Reads a file of any layout of corpora, whole."""

    columns = ("text",)

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the documents of a file.

        Raises:
            UsageError: stdin.
            DataError: no text.
        """
        if source == "-":
            raise UsageError("a corpus is not read from stdin", remedy="Give a file or a folder.")
        [corpus] = open_corpora([str(source)], options.settings)
        rows = corpus_rows(corpus.documents(options.listener), split=options.split, source=source_name(source))
        if not len(rows):
            raise DataError(f"{source} holds no text", remedy="Give a file with text.")
        yield Reading(rows, {}, options.settings)

    def guess(self, path: object, options: ReadOptions) -> None:  # noqa: ARG002
        """Returns None: any file could be a corpus."""
        return

    def columns_of(self, table: Table, options: ReadOptions) -> FileColumns:
        """Is never asked: rows of a hub data set are no corpus."""
        raise NotImplementedError

    def rows_of(self, table: Table, columns: object, options: ReadOptions, *, first_id: int) -> Rows:
        """Is never asked: see `columns_of`."""
        raise NotImplementedError
