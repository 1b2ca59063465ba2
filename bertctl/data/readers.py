"""How the files of each task become rows: a table of readers, one for each task."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bertctl.config.schema import DataSection
from bertctl.data.choices import ChoiceReader
from bertctl.data.columns import as_settings, choose_columns, rows_from, say_blank
from bertctl.data.files import read_file_choosing
from bertctl.data.reading import Reading as Reading
from bertctl.data.rows import Rows
from bertctl.data.squad import QuestionReader
from bertctl.data.stream import stream_rows
from bertctl.data.table import Table
from bertctl.data.tagging import TaggingReader
from bertctl.data.text_files import Source
from bertctl.progress import SILENT, Listener


class Reader(Protocol):
    """Files of one task to rows."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Canonical columns it fills; they decide a split's content hash."""

    @property
    def stratify(self) -> bool:
        """Whether rows held out for validation keep the shares of the labels."""

    @property
    def together(self) -> str | None:
        """Column whose equal values stay on one side of a hold-out (the questions about one text), or None."""

    def read(
        self, path: Path, settings: DataSection, *, split: str, label_needed: bool, listener: Listener = SILENT
    ) -> Reading:
        """A whole file.

        Raises:
            UsageError: an unknown suffix, columns that can't be guessed.
            DataError: an empty file, bytes, records or columns that are not what they should be, with file and line.
            UnavailableError: not there.
        """

    def stream(
        self,
        source: Source,
        settings: DataSection,
        *,
        kind: str | None = None,
        chunk_rows: int = 2048,
        listener: Listener = SILENT,
    ) -> Iterator[Rows]:
        """The rows of a file or of stdin (`-`) in portions, labels optional.

        Raises:
            UsageError: an unknown kind or suffix, columns that can't be guessed.
            DataError: nothing there, or not what it should be, with file and line.
            UnavailableError: not there.
        """

    def from_table(
        self, table: Table, settings: DataSection, *, split: str, label_needed: bool, listener: Listener = SILENT
    ) -> Reading:
        """Columns that are read already, such as the hub's."""


@dataclass(frozen=True)
class TextReader:
    """Texts or pairs with a label or a score: CSV, TSV, JSONL, Parquet, lines."""

    stratify: bool
    columns: tuple[str, ...] = ("text", "pair", "label")
    together: str | None = None

    def read(
        self, path: Path, settings: DataSection, *, split: str, label_needed: bool, listener: Listener = SILENT
    ) -> Reading:
        """See `Reader.read`."""
        rows, choice, header = read_file_choosing(
            path, settings, split=split, label_needed=label_needed, listener=listener
        )
        return Reading(rows, choice.names(), as_settings(settings, choice, header=header))

    def stream(
        self,
        source: Source,
        settings: DataSection,
        *,
        kind: str | None = None,
        chunk_rows: int = 2048,
        listener: Listener = SILENT,
    ) -> Iterator[Rows]:
        """See `Reader.stream`."""
        return stream_rows(source, settings, kind=kind, chunk_rows=chunk_rows, listener=listener)

    def from_table(
        self, table: Table, settings: DataSection, *, split: str, label_needed: bool, listener: Listener = SILENT
    ) -> Reading:
        """See `Reader.from_table`."""
        choice = choose_columns(table, settings, label_needed=label_needed, listener=listener)
        rows, blank = rows_from(table, choice, split=split)
        say_blank(blank, len(rows), table.source, listener)
        return Reading(rows, choice.names(), as_settings(settings, choice, header=table.header))


READERS: dict[str, Reader] = {
    "text-classification": TextReader(stratify=True),
    "text-regression": TextReader(stratify=False),
    "token-classification": TaggingReader(),
    "question-answering": QuestionReader(),
    "multiple-choice": ChoiceReader(),
}
"""Task name -> reader."""
