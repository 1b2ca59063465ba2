"""The documents of a corpus as rows: what a pretrained model is scored on."""

from collections.abc import Iterable, Iterator

from bertctl.config.schema import Recipe
from bertctl.data.columns import FileColumns
from bertctl.data.corpora import Document, open_corpora, survey
from bertctl.data.reading import Reader, Reading, ReadOptions
from bertctl.data.rows import Rows
from bertctl.data.table import Table
from bertctl.data.text_files import Source, source_name
from bertctl.errors import DataError, UsageError
from bertctl.progress import Listener


def corpus_rows(documents: Iterable[Document], *, split: str, source: str) -> Rows:
    """Returns documents as rows: `text` has a sentence per line, and is its own label."""
    found = [(document.id, "\n".join(document.sentences)) for document in documents if document.sentences]
    texts = [text for _, text in found]
    return Rows(split, {"text": texts, "label": texts}, [name for name, _ in found], source)


def held_out_rows(recipe: Recipe, listener: Listener) -> Rows:
    """Returns the documents that a pretrained run was scored on: its validation file, or what it held out.

    Raises:
        BertctlError: files that are not there, or no longer what they were.
    """
    data = recipe.data
    if data.validation_file:
        documents = (d for corpus in open_corpora([data.validation_file], data) for d in corpus.documents(listener))
        return corpus_rows(documents, split="validation", source=data.validation_file)
    corpora = open_corpora(recipe.pretraining.corpus, data)
    held = set(survey(corpora, fraction=data.validation_fraction, allow_duplicates=True).held_out)
    numbered = enumerate(document for corpus in corpora for document in corpus.documents(listener))
    kept = (document for number, document in numbered if number in held)
    return corpus_rows(kept, split="validation", source="the documents held out")


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
