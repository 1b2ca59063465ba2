"""The texts that a command line names, as chunks (lines, tables, a data set of the catalog), and their options."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.stream import TextChunk
from bertctl.words import did_you_mean

if TYPE_CHECKING:
    from bertctl.data.text_files import Source

_BAR_FROM = 64 << 20  # bytes of input from which a job shows how far it is


DataOption = Annotated[
    str | None, typer.Option("--data", metavar="NAME", help="A data set of the catalog.", show_default=False)
]
SplitOption = Annotated[str, typer.Option("--split", help="Split of --data.")]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder with its official files.", show_default=False)
]
TextColumnOption = Annotated[
    str | None, typer.Option("--text-column", metavar="NAME", help="Column with the text.", show_default=False)
]
PairColumnOption = Annotated[
    str | None,
    typer.Option("--pair-column", metavar="NAME", help="Column with the second sentence.", show_default=False),
]
InputFormatOption = Annotated[
    str | None,
    typer.Option(
        "--input-format",
        metavar="lines|csv|tsv|jsonl|parquet",
        help="Layout of the input; by suffix when left out, else lines.",
        show_default=False,
    ),
]
ErrorsOption = Annotated[
    str, typer.Option("--errors", metavar="strict|replace", help="What to do with bytes that are not UTF-8.")
]
LowercaseOption = Annotated[
    bool | None,
    typer.Option("--lowercase/--cased", help="For a bare vocab.txt: whether text is lower-cased.", show_default=False),
]


def check_choice(option: str, given: str, known: Sequence[str]) -> None:
    """Refuse a value that is none of those known."""
    if given not in known:
        hint = did_you_mean(given, known)
        raise UsageError(
            f"{option} has no '{given}'" + (f": {hint}" if hint else ""), remedy=f"Choose from {', '.join(known)}."
        )


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

    def chunks(self, listener: Listener = SILENT) -> Iterator[TextChunk]:
        """Yields the texts, in order.

        Raises:
            UsageError: an unknown format, data set or split; columns that can't be guessed.
            DataError: bytes or rows that are not what they should be.
            UnavailableError: a file that is not there.
        """
        if self.data is not None:
            yield from self._of_data_set(self.data, listener)
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

    def _of_lines(self, file: str, listener: Listener) -> Iterator[TextChunk]:
        from bertctl.data.text_files import open_bytes, source_name
        from bertctl.tokenization.lines import LineReader

        source: Source = "-" if file == "-" else Path(file)
        total = _size(source)
        seen = False
        with open_bytes(source) as raw:
            reader = LineReader(raw, source_name(source), replace=self.replace)
            for lines in reader:
                seen = True
                yield TextChunk(lines)
                if total >= _BAR_FROM:
                    listener.advance("MiB", reader.bytes >> 20, total >> 20)
            listener.finish("MiB")
        if reader.replaced:
            listener.warn(f"{source_name(source)}: {reader.replaced:,} byte sequences that are not UTF-8 were replaced")
        if not seen:
            listener.warn(f"{source_name(source)} is empty")

    def _of_table(self, file: str, kind: str, listener: Listener) -> Iterator[TextChunk]:
        from bertctl.config.schema import DataSection
        from bertctl.data.texts import TEXT_READER

        if self.replace:
            raise UsageError(
                "--errors replace is for lines of text", remedy="Convert the table to UTF-8 first (iconv)."
            )
        settings = DataSection(text_column=self.text_column, pair_column=self.pair_column)
        source: Source = "-" if file == "-" else Path(file)
        for rows in TEXT_READER.stream(source, settings, kind=kind, listener=listener):
            yield TextChunk(rows.columns["text"], rows.columns.get("pair"))

    def _of_data_set(self, name: str, listener: Listener) -> Iterator[TextChunk]:
        from bertctl.catalog.datasets import find_dataset
        from bertctl.config.schema import DataSection, Recipe
        from bertctl.data.load import load_data

        folder = None if self.data_dir is None else str(self.data_dir)
        recipe = Recipe(task=find_dataset(name).task, data=DataSection(name=name, data_dir=folder))
        rows = load_data(recipe, listener=listener, splits=[self.split]).splits[self.split]
        if not rows.has("text"):
            raise DataError(
                f"the data set '{name}' has no column of texts (it has: {', '.join(rows.columns)})",
                remedy="Give its official file with --file and --text-column.",
            )
        yield TextChunk(rows.columns["text"], rows.columns.get("pair"))


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
