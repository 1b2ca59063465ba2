"""The texts that a command line names, and the options that name them.

The texts are lines, tables, or a data set of the catalog.
"""

import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertctl.cli.framework.completion import dataset_names, model_names
from bertctl.cli.framework.folding import folds, option, parameter
from bertctl.cli.framework.recipe_options import by_field, picked
from bertctl.data.decoding import rows_expected
from bertctl.data.file_lists import expand_patterns
from bertctl.data.file_names import is_text, names_a_file
from bertctl.data.sources import source_name, source_of
from bertctl.data.text_files import open_bytes, require_file
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.stream import TextChunk

_Format = Literal["lines", "csv", "tsv", "jsonl", "parquet"]
_Errors = Literal["strict", "replace"]
_OnError = Literal["stop", "skip"]

_option = partial(option, rich_help_panel="Texts")
_OPTIONS = [
    _option(
        "data",
        "--data",
        "Data set of the catalog.",
        metavar="NAME",
        autocompletion=dataset_names,
    ),
    _option("split", "--split", "Split of --data. Default: train."),
    _option(
        "data_dir",
        "--data-dir",
        "Folder with its official files.",
        Path,
        metavar="DIR",
    ),
    _option(
        "input_format",
        "--input-format",
        "Format of the input. Default: by the suffix, else lines.",
        _Format,
    ),
    _option(
        "on_error",
        "--on-error",
        "What to do with table rows that can't be read. Default: stop.",
        _OnError,
    ),
    _option(
        "errors", "--errors", "What to do with bytes that are not UTF-8. Default: strict.", _Errors
    ),
]
_TABLES = picked("--text-column", "--pair-column", "layout")
LowercaseOption = Annotated[
    bool | None,
    typer.Option("--lowercase/--cased", help="Whether text is lower-cased, for a bare vocab.txt."),
]
_FILES = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE ...|-]", help="Lines, CSV, TSV, JSONL or Parquet (.gz too); - is stdin."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|PATH|HUB-ID",
        help="Model name, folder, run, hub id, tokenizer.json or vocab.txt. Default: bert-base.",
        autocompletion=model_names,
    ),
]


@dataclass(frozen=True)
class TextSource:
    """Source of texts: files (each a path or `-` for stdin), or a data set of the catalog.

    Attributes:
        files: Files, which are read one after the other.
        data: Name of a data set.
        split: Split of the data set.
        data_dir: Folder with the official files of the data set.
        settings: Columns, encoding, delimiter and header of tables, as fields of `DataSection`.
        input_format: lines, csv, tsv, jsonl or parquet. None guesses it from the content, else
            from the suffix; else the file has lines.
        replace: Whether bytes that are not UTF-8 are replaced (lines only).
        skip: Whether rows of tables that can't be read are left out, reported, and written beside
            the answers.
        beside: File of the answers, if there is one.
    """

    files: Sequence[str] = ()
    data: str | None = None
    split: str = "train"
    data_dir: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    input_format: str | None = None
    replace: bool = False
    skip: bool = False
    beside: Path | None = None

    def chunks(self, listener: Listener = SILENT) -> Iterator[TextChunk]:
        """Yields the texts in chunks, in order.

        Raises:
            UsageError: An unknown format, data set or split; columns that can't be guessed.
            DataError: Bytes or rows that can't be read.
            UnavailableError: A file does not exist.
        """
        if self.data is not None:
            yield from self._of_data_set(self.data, listener)
        for file in self.files:
            kind = self.input_format or _kind(file, self.settings, listener)
            # Lines with settings, such as an encoding, are read by the reader of tables.
            if kind == "lines" and not self.settings:
                yield from self._of_lines(file, listener)
            else:
                yield from self._of_table(file, kind, listener)

    def watched(self, listener: Listener) -> Iterator[TextChunk]:
        """Yields the texts as `chunks` does, and says how many have been worked on."""
        done = 0
        for chunk in self.chunks(listener):
            yield chunk
            done += len(chunk.texts)
            listener.advance("texts", done, 0)
        listener.finish("texts")

    def _of_lines(self, file: str, listener: Listener) -> Iterator[TextChunk]:
        """Yields the lines of a file, each a text; warns of bytes replaced and of an empty file."""
        from bertctl.data.file_contents import begins_like_json_row
        from bertctl.data.files import tell_json_lines
        from bertctl.tokenization.lines import LineReader

        source = source_of(file)
        n_lines = 0
        n_json_lines = 0
        with open_bytes(source) as raw:
            reader = LineReader(raw, source_name(source), replace=self.replace)
            for lines in reader:
                n_lines += len(lines)
                n_json_lines += sum(map(begins_like_json_row, lines))
                listener.expect(rows_expected(raw, n_lines))
                yield TextChunk(lines)
        if reader.replaced:
            listener.warn(
                f"{source_name(source)}: {reader.replaced:,} byte sequences that are not UTF-8 "
                "were replaced"
            )
        if not n_lines:
            listener.warn(f"{source_name(source)} is empty")
        if self.input_format is None:  # lines was our guess, and JSON lines may be what was meant
            tell_json_lines(n_json_lines, n_lines, source_name(source), listener)

    def _of_table(self, file: str, kind: str, listener: Listener) -> Iterator[TextChunk]:
        """Yields the texts of a table, with pairs and ids if the table has such columns."""
        from bertctl.config.recipe_sections import DataSection
        from bertctl.data.read_options import SkippedRows
        from bertctl.data.text_rows import TEXT_READER

        if self.replace:
            message = "--errors replace is for lines of UTF-8"
            raise UsageError(message, remedy="Name the encoding instead: --encoding NAME.")
        settings = DataSection(**self.settings)
        skipped = SkippedRows() if self.skip else None
        source = source_of(file)
        for rows in TEXT_READER.stream(
            source,
            settings,
            kind=kind,
            listener=listener,
            skipped=skipped,
        ):
            yield TextChunk(rows.columns["text"], rows.columns.get("pair"), rows.file_ids or None)
        if skipped is not None:
            skipped.finish(self.beside, listener)

    def _of_data_set(self, name: str, listener: Listener) -> Iterator[TextChunk]:
        """Yields all texts of a data set's split as one chunk, with second texts if it has any."""
        from bertctl.config.recipe_sections import DataSection
        from bertctl.features.source import rows_of_split

        if self.data_dir is None:
            folder = None
        else:
            folder = str(self.data_dir)
        rows = rows_of_split(name, self.split, DataSection(data_dir=folder), listener)
        if not rows.has("text"):
            message = (
                f"the data set '{name}' has no column of texts (it has: {', '.join(rows.columns)})"
            )
            raise DataError(message, remedy="Give its official file with --file and --text-column.")
        yield TextChunk(rows.columns["text"], rows.columns.get("pair"))


class InputIds:
    """Ids of the texts of an input, for the answers to the texts, which come in the same order.

    A model that answers texts doesn't see their ids: `collect` takes them from the chunks that the
    model reads, and `restore` puts them into its answers.
    """

    def __init__(self) -> None:
        self._ids: deque[Any] = deque()  # of the texts that have no answer yet
        self._has_ids = False

    def collect(self, chunks: Iterable[TextChunk]) -> Iterator[TextChunk]:
        """Yields chunks, and keeps their ids."""
        for chunk in chunks:
            self._has_ids = chunk.ids is not None
            self._ids.extend(chunk.ids or ())
            yield chunk

    def restore(self, answers: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yields answers, one for each text, with the ids of the input in place of numbers."""
        for answer in answers:
            if self._has_ids:
                yield {**answer, "id": self._ids.popleft()}
            else:
                yield answer


def _fold(arguments: dict[str, Any]) -> TextSource:
    """Removes the options of texts from a verb's arguments; returns them as a source without files.

    Args:
        arguments: All arguments of the verb, by the names of its parameters.
    """
    typed = {}
    for text_option in _OPTIONS:
        value = arguments.pop(text_option.name)
        if value is not None:
            typed[text_option.name] = value
    errors = typed.pop("errors", "strict")
    on_error = typed.pop("on_error", "stop")
    table_fields = by_field(_TABLES, arguments)  # such as `data.text_column`
    return TextSource(
        settings={name.removeprefix("data."): value for name, value in table_fields.items()},
        replace=errors == "replace",
        skip=on_error == "skip",
        **typed,  # the other options are attributes of the same names
    )


def _fold_files(arguments: dict[str, Any]) -> TextSource:
    """Removes FILE ... and the options of texts from a verb's arguments; returns their source.

    Raises:
        UsageError: Both files and --data were given, or neither.
    """
    files = arguments.pop("files")
    source = _fold(arguments)
    has_files = bool(files)
    has_data_set = source.data is not None
    if has_files == has_data_set:
        if files:
            message = "files and --data exclude each other"
        else:
            message = "no texts were given"
        raise UsageError(message, remedy="Give files (- is stdin), or --data NAME.")
    return replace(source, files=expand_patterns(files or ()))


_READ = [*_OPTIONS, *(row.parameter() for row in _TABLES)]
takes_texts = folds([], _READ, _fold)
"""Gives a verb `verb(out, source, ...)` the options that say how texts are read: a `TextSource`
without files."""
takes_files = folds([], [parameter("files", _FILES, None), *_READ], _fold_files)
"""Gives a verb the argument FILE ... too, behind its own."""


def _kind(file: str, settings: Mapping[str, Any], listener: Listener) -> str:
    """Returns the format of a file: by its content, else by its suffix, else lines."""
    from bertctl.config.recipe_sections import DataSection
    from bertctl.data.files import detected_kind
    from bertctl.data.read_options import ReadOptions

    # Only the first rows are looked at, so name and size of chunks don't matter.
    options = ReadOptions(
        DataSection(**settings),
        split="predict",
        chunk_rows=1,
        listener=listener,
    )
    return detected_kind(source_of(file), options) or "lines"


def typed_text(argument: str, source: TextSource, *, to: str, such_as: str) -> str | None:
    """Returns the text that was typed; None if the texts are in a file, on stdin or in a data set.

    Args:
        argument: What was typed: a text, a file, or -.
        source: The options of texts. They may name a data set.
        to: What the verb does with a text, such as `score`, for the message.
        such_as: A text that fits, for the message.

    Raises:
        UsageError: Neither a text, nor a file, nor a data set was typed.
        UnavailableError: The file does not exist.
    """
    if not argument.strip() and source.data is None:
        raise UsageError(
            f"nothing to {to}", remedy=f'Give a text ("{such_as}"), a file, or - for stdin.'
        )
    if argument and is_text(argument):
        return argument
    if argument not in ("", "-"):
        require_file(Path(argument))
    return None


def check_typed_texts(texts: Sequence[str]) -> None:
    """Refuses the name of a file where a verb takes texts and has --file for files.

    Raises:
        UsageError: A text has the form of a path, and the file exists.
        UnavailableError: A text has the form of a path, and no such file exists.
    """
    for text in filter(names_a_file, texts):
        require_file(Path(text))
        raise UsageError(
            f"{text} is a file, and stands where a text does",
            remedy=f"For its texts: --file {shlex.quote(text)}. For a text, put a blank before it "
            "and one behind it.",
        )
