"""Where rows come from.

It is a file or stdin by its format, rows in memory, words that are given as such, or a data set by
its name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bertctl.catalog.datasets import builtin_datasets, find_dataset
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.file_lists import FileList, files_of
from bertctl.data.file_names import is_pattern, suffix_of
from bertctl.data.read_options import ReaderOptions, Reading, SkippedRows
from bertctl.data.reading import Reader
from bertctl.data.recipe_data import load_data
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile, Source
from bertctl.data.tagged_files import TaggingReader
from bertctl.data.text_files import for_a_text
from bertctl.data.text_rows import TEXT_READER
from bertctl.errors import UnavailableError, UsageError
from bertctl.features.chunks import READ_ROWS
from bertctl.progress import SILENT, Listener
from bertctl.words import command, did_you_mean

WORD_FORMATS = ("conll", "conllu")
"""Formats whose texts are split into words already."""

_WORD_SUFFIXES = (".conll", ".conllu", ".conllup", ".iob", ".iob2", ".bio")


@dataclass(frozen=True)
class Input:
    """Source of rows: files, stdin, a data set of the catalog, or rows in memory.

    Attributes:
        names: A path or a pattern, `-` for stdin, or a data set of the catalog; or several paths
            that are read as one file; or rows in memory.
        settings: Columns and folder, where they were named.
        kind: Format of a file; by its suffix when None.
        split: Split of a data set.
        skipped: Collects the rows of a file that can't be read.
        hints: Names of fields of `settings` that were given for another file, such as "text_column"
            for the training rows. They count only if this file has such a column.
    """

    names: str | Sequence[str] | MemoryFile
    settings: DataSection
    kind: str | None = None
    split: str | None = None
    skipped: SkippedRows | None = None
    hints: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What messages call the rows."""
        return input_name(self.names)

    def stream(self, *, listener: Listener = SILENT) -> Iterator[Rows]:
        """Returns the rows in order, `READ_ROWS` at once; see `readings`."""
        return (reading.rows for reading in self.readings(listener=listener))

    def readings(self, *, listener: Listener = SILENT) -> Iterator[Reading]:
        """Returns the rows in order, `READ_ROWS` at once, with the columns that they are from.

        The rows are in memory, in a data set of the catalog, in files, or come from stdin (`-`).

        Raises:
            UsageError: An unknown format, data set or split; columns that can't be guessed.
            DataError: Rows that are not what they should be.
            UnavailableError: The file or the data set does not exist, or can't be had.
        """
        if isinstance(self.names, MemoryFile):
            return self._read(self.names, TEXT_READER, listener)
        names = [self.names] if isinstance(self.names, str) else self.names
        is_one_name = len(names) == 1 and not is_pattern(names[0])
        # A name is that of a data set if there is no file of that name.
        if is_one_name and self.name != "-" and not Path(self.name).exists():
            rows = self._of_data_set(listener)
            listener.expect(len(rows))
            rows_at_once = _with_text(rows).parts(READ_ROWS)
            no_columns: dict[str, str] = {}  # only a file has columns that were named or guessed
            return (Reading(some_rows, no_columns, self.settings) for some_rows in rows_at_once)
        if self.split:
            raise UsageError(
                "`split=` is for a data set by its name", remedy="Leave it out for a file."
            )
        if self.kind is None:
            has_words = suffix_of(Path(names[0])) in _WORD_SUFFIXES
        else:
            has_words = self.kind in WORD_FORMATS
        reader: Reader = TaggingReader() if has_words else TEXT_READER
        return self._read(files_of(names), reader, listener)

    def _read(
        self, source: Source | FileList, reader: Reader, listener: Listener
    ) -> Iterator[Reading]:
        """Returns what a reader makes of a source, each row with a `text`."""
        reader_options = ReaderOptions(
            kind=self.kind,
            listener=listener,
            skipped=self.skipped,
            hints=self.hints,
        )
        readings = reader.stream_readings(
            source,
            self.settings,
            chunk_rows=READ_ROWS,
            **reader_options,
        )
        return (replace(reading, rows=_with_text(reading.rows)) for reading in readings)

    def _of_data_set(self, listener: Listener) -> Rows:
        """Returns a split of a data set by its name, `train` where none is named.

        Raises:
            UnavailableError: It looks like the name of a file that does not exist.
        """
        if self.name not in builtin_datasets() and ("/" in self.name or "." in self.name):
            hint = did_you_mean(self.name, builtin_datasets())
            raise UnavailableError(
                f"{self.name} does not exist" + (f"; for a data set: {hint}" if hint else ""),
                remedy="Give a file, - for stdin, or a data set's name "
                f"(`{command('recipes ls', data=True)}`). "
                f"{for_a_text(Path(self.name))}".rstrip(),
                file=self.name,
            )
        return rows_of_split(self.name, self.split or "train", self.settings, listener)


def input_name(names: str | Sequence[str] | MemoryFile) -> str:
    """Returns what messages and documents call an input: its one name, or all of them."""
    if isinstance(names, str | MemoryFile):
        return str(names)
    return " ".join(names)


def rows_of_split(
    name: str, split: str, settings: DataSection, listener: Listener = SILENT
) -> Rows:
    """Returns a split of a data set of the catalog, its columns and folder as the settings say.

    Raises:
        UsageError: An unknown data set or split.
        UnavailableError: Not there.
    """
    row = find_dataset(name)
    recipe = Recipe(task=row.task, data=settings.model_copy(update={"name": row.name}))
    return load_data(recipe, listener=listener, splits=[split]).splits[split]


def _with_text(rows: Rows) -> Rows:
    """Returns rows with a column `text`; if they have words instead, these are joined by blanks.

    Output files show the text of a row, and chunks are sized by the lengths of texts.
    """
    if rows.has("text") or not rows.has("words"):
        return rows
    texts = [" ".join(words) for words in rows.columns["words"]]
    return replace(rows, columns={"text": texts, **rows.columns})
