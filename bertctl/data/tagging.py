"""Files of token classification as rows: CoNLL columns, CoNLL-U, JSON Lines, Parquet, and running text to predict on.

Canonical columns: `words` (a list of texts), `label` (a tag a word as the file has them; IOB2 where it has character
spans), and where they are known `text`, `offsets` (start and end of each word in it) and `document` (rows of one
document have one value).
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from bertctl.config.schema import DataSection
from bertctl.data.conll import Sentence, conll_sentences
from bertctl.data.files import read_table
from bertctl.data.reading import Reading
from bertctl.data.rows import Rows
from bertctl.data.stream import stream_tables
from bertctl.data.table import Table
from bertctl.data.tag_schemes import tag_kind
from bertctl.data.tagged_tables import TaggedColumns, find_columns, rows_of_table
from bertctl.data.text_files import Source, open_bytes, read_text, require_file, source_name, stream_lines, text_lines
from bertctl.data.words import split_words
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.words import did_you_mean

Kind = Literal["lines", "conll", "conllu", "jsonl", "parquet"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SUFFIXES: dict[str, Kind] = {
    ".conll": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".bio": "conll",
    ".tsv": "conll",
    ".conllu": "conllu",
    ".conllup": "conllu",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_SNIFFED_LINES = 60
_TAG = re.compile(r"O|[BIESLU]-\S+")
_LONGEST_DOCUMENT = 8  # portions; a document is cut into several only beyond


@dataclass(frozen=True)
class TaggingReader:
    """Sentences with a tag for each word."""

    columns: tuple[str, ...] = ("words", "label", "document")
    stratify: bool = False
    together: str | None = "document"

    def read(
        self, path: Path, settings: DataSection, *, split: str, label_needed: bool, listener: Listener = SILENT
    ) -> Reading:
        """See `Reader.read`. A file whose suffix says nothing is one of CoNLL columns."""
        require_file(path)
        kind = _kind_of(path) or "conll"
        if kind in ("jsonl", "parquet"):
            table = read_table(path, settings, listener)
            return self.from_table(table, settings, split=split, label_needed=label_needed, listener=listener)
        lines = text_lines(read_text(path, settings.encoding, listener))
        sentences = conll_sentences(
            lines, str(path), settings, ud=kind == "conllu", tags_needed=label_needed, listener=listener
        )
        rows = _rows_of_sentences(list(sentences), str(path), split=split)
        _tell_scheme(rows, listener)
        return Reading(rows, {}, settings)

    def stream(
        self,
        source: Source,
        settings: DataSection,
        *,
        kind: str | None = None,
        chunk_rows: int = 2048,
        listener: Listener = SILENT,
    ) -> Iterator[Rows]:
        """See `Reader.stream`. Labels are left out: nothing that streams looks at them.

        Stdin is running text, a sentence (or any text) a line, unless `kind` says otherwise; so is a file whose suffix
        says nothing, unless its first lines look like columns.
        """
        read_as = _stream_kind(source, kind, settings, listener)
        count = 0
        for rows in _portions(source, settings, kind=read_as, chunk_rows=chunk_rows, listener=listener):
            count += len(rows)
            yield rows
        if not count:
            raise DataError(f"{source_name(source)} has no rows", remedy="Give texts, one a line, or a file with rows.")

    def from_table(
        self, table: Table, settings: DataSection, *, split: str, label_needed: bool, listener: Listener = SILENT
    ) -> Reading:
        """See `Reader.from_table`."""
        columns = find_columns(table, settings, label_needed=label_needed, listener=listener)
        rows = rows_of_table(table, columns, split=split, label_needed=label_needed, listener=listener)
        _tell_scheme(rows, listener)
        return Reading(rows, columns.names(), settings)


def _kind_of(path: Path) -> Kind | None:
    """What a file is, by its suffix (before .gz); None where that says nothing.

    Raises:
        UsageError: a suffix of a file that has no place for words and tags.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else (suffixes or [""])[-1]
    if suffix == ".csv":
        raise UsageError(
            f"{path}: CSV has no place for a tag a word",
            remedy="Give CoNLL columns (.conll, .tsv), CoNLL-U (.conllu), JSONL or Parquet.",
        )
    return _SUFFIXES.get(suffix)


def _stream_kind(source: Source, given: str | None, settings: DataSection, listener: Listener) -> Kind:
    if source != "-":
        require_file(source)
    if given == "tsv":
        return "conll"
    if given is not None:
        if given not in KINDS:
            hint = did_you_mean(given, KINDS)
            raise UsageError(
                f"there is no input format '{given}' for words and tags" + (f": {hint}" if hint else ""),
                remedy=f"Formats: {', '.join(KINDS)}.",
            )
        return given
    if source == "-":
        return "lines"
    kind = _kind_of(source)
    if kind is not None:
        return kind
    with open_bytes(source) as file:
        first = list(itertools.islice(stream_lines(file, str(source), settings.encoding, SILENT), _SNIFFED_LINES))
    if not _look_like_columns(first):
        return "lines"
    listener.say(f"{source}: read as CoNLL columns; --input-format lines reads it as running text")
    return "conll"


def _look_like_columns(lines: Sequence[str]) -> bool:
    filled = [line.rstrip("\r\n") for line in lines if line.strip()]
    if any(line.startswith("-DOCSTART-") for line in filled):
        return True
    by_tabs = {line.count("\t") for line in filled}
    if len(filled) > 1 and len(by_tabs) == 1 and by_tabs != {0}:
        return True
    parts = [line.split(" ") for line in filled]
    return len({len(fields) for fields in parts}) == 1 and all(len(f) > 1 and _TAG.fullmatch(f[-1]) for f in parts)


def _portions(
    source: Source, settings: DataSection, *, kind: Kind, chunk_rows: int, listener: Listener
) -> Iterator[Rows]:
    name = source_name(source)
    if kind in ("jsonl", "parquet"):
        columns: TaggedColumns | None = None
        count = 0
        for table in stream_tables(source, settings, kind=kind, rows=chunk_rows, listener=listener):
            if columns is None:
                found = find_columns(table, settings, label_needed=False, listener=SILENT)
                columns = TaggedColumns(found.words, found.text, None, found.id)
            yield rows_of_table(table, columns, split="predict", label_needed=False, listener=listener, first_id=count)
            count += len(table)
        return
    with open_bytes(source) as file:
        lines = stream_lines(file, name, settings.encoding, listener)
        if kind == "lines":
            yield from _rows_of_lines(lines, name, chunk_rows)
            return
        sentences = conll_sentences(lines, name, settings, ud=kind == "conllu", tags_needed=False, listener=listener)
        count = 0
        for portion in _whole_documents(sentences, chunk_rows):
            bare = [sentence._replace(tags=None) for sentence in portion]
            yield _rows_of_sentences(bare, name, split="predict", first_id=count)
            count += len(portion)


def _whole_documents(sentences: Iterable[Sentence], size: int) -> Iterator[list[Sentence]]:
    """Portions of at least `size` sentences, cut between documents where there are any."""
    portion: list[Sentence] = []
    for sentence in sentences:
        if len(portion) >= size and (
            sentence.document < 0
            or sentence.document != portion[-1].document
            or len(portion) >= size * _LONGEST_DOCUMENT
        ):
            yield portion
            portion = []
        portion.append(sentence)
    if portion:
        yield portion


def _rows_of_lines(lines: Iterable[str], name: str, size: int) -> Iterator[Rows]:
    left = iter(lines)
    count = 0
    while portion := [line.rstrip("\n").removesuffix("\r") for line in itertools.islice(left, size)]:
        split = [split_words(text) for text in portion]
        numbers = range(count, count + len(portion))
        columns: dict[str, Sequence[Any]] = {
            "text": portion,
            "words": [words for words, _ in split],
            "offsets": [offsets for _, offsets in split],
        }
        yield Rows("predict", columns, [str(i) for i in numbers], name, [i + 1 for i in numbers])
        count += len(portion)


def _rows_of_sentences(sentences: Sequence[Sentence], source: str, *, split: str, first_id: int = 0) -> Rows:
    columns: dict[str, Sequence[Any]] = {"words": [sentence.words for sentence in sentences]}
    if all(sentence.tags is not None for sentence in sentences):
        columns["label"] = [sentence.tags for sentence in sentences]
    if any(sentence.document >= 0 for sentence in sentences):
        columns["document"] = [sentence.document for sentence in sentences]
    ids = [str(i) for i in range(first_id, first_id + len(sentences))]
    return Rows(split, columns, ids, source, [sentence.line for sentence in sentences])


def _tell_scheme(rows: Rows, listener: Listener) -> None:
    """Say which scheme the tags are in.

    Raises:
        DataError: tags of a scheme that is not known.
    """
    if rows.has("label"):
        listener.say(f"{rows.source}: {tag_kind(rows.columns['label'], rows.where).sentence()}")
