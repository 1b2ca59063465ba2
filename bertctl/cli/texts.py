"""The texts that a command line names, as portions: arguments, lines, tables, a data set of the catalog."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bertctl.errors import UsageError
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.stream import Portion

if TYPE_CHECKING:
    from bertctl.data.text_files import Source

_BAR_FROM = 64 << 20  # bytes of input from which a job shows how far it is


@dataclass(frozen=True)
class TextSource:
    """Where texts come from: files (each a path or `-` for stdin), or a data set of the catalog.

    Attributes:
        files: read one after the other.
        data: name of a data set.
        split: its split.
        data_dir: folder with its official files.
        text_column: column of tables.
        pair_column: column with second sentences.
        input_format: lines, csv, tsv, jsonl or parquet; by the suffix when None, lines where that says nothing.
        replace: whether bytes that are not UTF-8 are replaced (lines only).
    """

    files: Sequence[str] = ()
    data: str | None = None
    split: str = "train"
    data_dir: Path | None = None
    text_column: str | None = None
    pair_column: str | None = None
    input_format: str | None = None
    replace: bool = False

    def portions(self, listener: Listener = SILENT) -> Iterator[Portion]:
        """The texts, in order, in portions.

        Raises:
            UsageError: an unknown format, data set or split; columns that can't be guessed.
            DataError: bytes or rows that are not what they should be.
            UnavailableError: a file that is not there.
        """
        if self.data is not None:
            yield from self._of_data_set(listener)
        for file in self.files:
            kind = self.input_format or _kind(file)
            if kind == "lines":
                yield from self._of_lines(file, listener)
            else:
                yield from self._of_table(file, kind, listener)

    @property
    def may_have_pairs(self) -> bool:
        """Whether second sentences can turn up."""
        return self.data is not None or any((self.input_format or _kind(file)) != "lines" for file in self.files)

    def _of_lines(self, file: str, listener: Listener) -> Iterator[Portion]:
        from bertctl.data.text_files import open_bytes, source_name
        from bertctl.tokenization.lines import LineReader

        source: Source = "-" if file == "-" else Path(file)
        total = _size(source)
        seen = False
        with open_bytes(source) as raw:
            reader = LineReader(raw, source_name(source), replace=self.replace)
            for lines in reader:
                seen = True
                yield Portion(lines)
                if total >= _BAR_FROM:
                    listener.advance("MiB", reader.bytes >> 20, total >> 20)
            listener.finish("MiB")
        if reader.replaced:
            listener.warn(f"{source_name(source)}: {reader.replaced:,} byte sequences that are not UTF-8 were replaced")
        if not seen:
            listener.warn(f"{source_name(source)} is empty")

    def _of_table(self, file: str, kind: str, listener: Listener) -> Iterator[Portion]:
        from bertctl.config.schema import DataSection
        from bertctl.data.stream import stream_rows

        if self.replace:
            raise UsageError(
                "--errors replace is for lines of text", remedy="Convert the table to UTF-8 first (iconv)."
            )
        settings = DataSection(text_column=self.text_column, pair_column=self.pair_column)
        source: Source = "-" if file == "-" else Path(file)
        for rows in stream_rows(source, settings, kind=kind, listener=listener):
            yield Portion(rows.columns["text"], rows.columns.get("pair"))

    def _of_data_set(self, listener: Listener) -> Iterator[Portion]:
        from bertctl.config.schema import DataSection, Recipe
        from bertctl.data.load import load_data

        folder = None if self.data_dir is None else str(self.data_dir)
        recipe = Recipe(data=DataSection(name=self.data, data_dir=folder))
        rows = load_data(recipe, listener=listener, splits=[self.split]).splits[self.split]
        yield Portion(rows.columns["text"], rows.columns.get("pair"))


def _kind(file: str) -> str:
    """By the suffix; a suffix that says nothing (`.log`, `.md`, none) means lines."""
    from bertctl.data.files import kind_of

    try:
        return "lines" if file == "-" else kind_of(Path(file))
    except UsageError:
        return "lines"


def _size(source: "Source") -> int:
    if source == "-" or not source.is_file() or source.suffix == ".gz":
        return 0
    return source.stat().st_size
