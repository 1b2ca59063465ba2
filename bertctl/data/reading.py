"""`Reader`: how the files of a task become rows, in one way for whole files, for streams and for the hub's columns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertctl.config.recipe_sections import DataSection
from bertctl.data.groups import group_keys
from bertctl.data.rows import Rows
from bertctl.data.table import Table
from bertctl.data.text_files import Source
from bertctl.errors import DataError
from bertctl.progress import SILENT, Listener

OnBadRecord = Callable[[DataError], None]
"""Is told of a record that can't be read, which is then left out."""


@dataclass(frozen=True)
class Reading:
    """What a reader made of a file, or of a chunk of one.

    Attributes:
        rows: the split.
        columns: canonical name -> name in the file, as given or guessed.
        settings: the person's settings with the guesses written in, so that the next file is read as this one was.
    """

    rows: Rows
    columns: Mapping[str, str]
    settings: DataSection


@dataclass(frozen=True)
class ReadOptions:
    """How a file is to be read.

    Attributes:
        settings: columns, delimiter, header and encoding, where the person said them.
        split: what the rows are to be called.
        label_needed: whether to refuse rows without labels.
        keep_labels: whether labels are kept where only texts are asked for, too.
        kind: what the file is; by its suffix where None.
        chunk_rows: rows per chunk; None for the whole file at once.
        listener: told of what is guessed and detected.
        on_bad_record: told of records that can't be read; without it they refuse the file.
    """

    settings: DataSection
    split: str
    label_needed: bool = False
    keep_labels: bool = True
    kind: str | None = None
    chunk_rows: int | None = None
    listener: Listener = SILENT
    on_bad_record: OnBadRecord | None = None

    @property
    def whole(self) -> bool:
        """Whether the file is read at once."""
        return self.chunk_rows is None


class Reader(ABC):
    """Makes rows of the files of one task.

    Attributes:
        columns: canonical columns it fills; they decide a split's content hash.
        stratify: whether rows held out for validation keep the shares of the labels.
        together: columns whose equal values hang together, the widest first: the questions about one article.
        streams_labels: whether `stream` keeps labels.
    """

    columns: tuple[str, ...]
    stratify: bool = False
    together: tuple[str, ...] = ()
    streams_labels: bool = False

    def groups(self, rows: Rows) -> list[Hashable]:
        """Returns one key per row, the same for rows that hang together."""
        return group_keys(rows, self.together)

    @abstractmethod
    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin, chunk by chunk."""

    @abstractmethod
    def table_readings(self, tables: Iterable[Table], options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of columns that are read already; the first table decides which column is which."""

    def read(
        self,
        path: Path,
        settings: DataSection,
        *,
        split: str,
        label_needed: bool,
        listener: Listener = SILENT,
        on_bad_record: OnBadRecord | None = None,
    ) -> Reading:
        """Returns a whole file.

        Raises:
            UsageError: an unknown suffix, columns that can't be guessed.
            DataError: an empty file, bytes, records or columns that are not what they should be, with file and line.
            UnavailableError: the file does not exist.
        """
        options = ReadOptions(
            settings, split, label_needed=label_needed, listener=listener, on_bad_record=on_bad_record
        )
        [reading] = self.readings(path, options)
        return reading

    def stream(
        self,
        source: Source,
        settings: DataSection,
        *,
        kind: str | None = None,
        chunk_rows: int = 2048,
        listener: Listener = SILENT,
    ) -> Iterator[Rows]:
        """Yields the rows of a file or of stdin (`-`) in chunks of at most `chunk_rows`, labels optional.

        Raises:
            UsageError: an unknown kind or suffix, columns that can't be guessed.
            DataError: nothing there, or not what it should be, with file and line.
            UnavailableError: the file does not exist.
        """
        options = ReadOptions(
            settings, "predict", keep_labels=self.streams_labels, kind=kind, chunk_rows=chunk_rows, listener=listener
        )
        for reading in self.readings(source, options):
            yield reading.rows
