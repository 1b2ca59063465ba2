"""Files of token classification as rows.

They are CoNLL columns, CoNLL-U, JSON Lines, Parquet, and running text to predict on.

Canonical columns: `words` (a list of texts), `label` (a tag per word as the file has them; IOB2
where it has character spans), and where they are known `text`, `offsets` (start and end of each
word in it) and `document` (rows of one document have one value).
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast, get_args

from bertctl.data.annotations import bioc, brat, docbin, label_studio, pubtator
from bertctl.data.annotations.document import Document
from bertctl.data.conll import (
    Sentence,
    are_piped,
    conll_sentences,
    kinds_of_tags,
    piped_sentences,
)
from bertctl.data.conll_layout import ENTITY_KEY
from bertctl.data.decoding import decoded_lines, rows_expected
from bertctl.data.file_lines import text_lines
from bertctl.data.file_names import SUFFIXES, FileKind, suffix_of
from bertctl.data.files import KnownFormatError, detected_kind, read_tables
from bertctl.data.json_tables import document_or_tables, table_of_document
from bertctl.data.read_options import Reading, ReadOptions, SkippedRows, json_form
from bertctl.data.reading import Reader
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile, Source, is_read_once, source_name
from bertctl.data.table import Table, entries_of, in_chunks
from bertctl.data.tag_schemes import TagKind, tag_kind
from bertctl.data.tagged_tables import TaggedColumns, find_columns, rows_of_table
from bertctl.data.text_files import open_bytes, require_file
from bertctl.data.word_splitting import split_tagged_words
from bertctl.data.word_tables import sentence_column, sentences_of_words
from bertctl.data.written_values import with_lists
from bertctl.documents import loading
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT
from bertctl.words import count, unknown

TaggedKind = Literal[
    "lines", "conll", "conllu", "csv", "jsonl", "json", "parquet", "brat", "pubtator", "docbin"
]
TAGGED_KINDS: tuple[TaggedKind, ...] = get_args(TaggedKind)

_COLUMN_SUFFIXES = (".conll", ".iob", ".iob2", ".bio", ".tsv")
_UD_SUFFIXES = (".conllu", ".conllup")
_SNIFFED_LINES = 60
_TAG = re.compile(r"[Oo]|[BIESLUMbieslum][-_:./]\S+|\S{2,}[-_:/][BIESLUM]")
"""A tag of an entity; written otherwise than it should be, too, so that it is refused as such."""
_LONGEST_DOCUMENT = 8
"""Chunks that a document may fill. A longer one is cut."""

_ANNOTATED: Mapping[str, Callable[[Source, ReadOptions], Iterator[Document]]] = {
    "brat": brat.read,
    "pubtator": pubtator.read,
    "docbin": docbin.read,
}
_ANNOTATED_SUFFIXES = {".ann": "brat", ".pubtator": "pubtator", ".spacy": "docbin", ".json": "json"}
"""What a file of an annotation tool is by its suffix."""


_BIOC_COLUMNS = frozenset({"passages", "documents", "PubTator3"})
"""Columns of JSON Lines that may be BioC's."""
_PUBTATOR_TEXT = re.compile(r"[^\s|]+\|t\|")
_OTHER_FORMATS = (
    (
        re.compile(r"<\?xml|<!DOCTYPE|<collection|<annotations|<doc"),
        "XML",
        "BioC's XML can be converted to BioC's JSON: pip install bioc, then "
        "biocjson.dump(biocxml.load(open('in.xml')), open('out.json', 'w')). Of others export "
        "CoNLL columns or JSON.",
    ),
    (
        re.compile(r"#FORMAT=WebAnno"),
        "WebAnno TSV (INCEpTION, WebAnno)",
        "Export it as CoNLL 2002 or CoNLL 2003 (.conll), or as CoNLL-U (.conllu).",
    ),
)
"""First lines of formats that look like columns and are none, what they are, and what to export in
their place."""


class AnnotatedTable(Table):
    """Texts with their spans, under the names `id`, `text` and `spans`."""


@dataclass(frozen=True)
class TaggingReader(Reader):
    """Makes rows of sentences with a tag for each word."""

    columns: tuple[str, ...] = ("words", "label", "document")
    together: tuple[str, ...] = ("document", "words")
    form: str = json_form('"words": ["Anna", "sleeps"], "tags": ["B-PER", "O"]')

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin, with the kind of their tags if it is known.

        Only all tags of a file together show their kind, such as IOB2. So a file that is read in
        chunks is read twice. Chunks of stdin and pipes, which can be read only once, have no kind
        of tags, and running text has no tags.
        """
        kind = _kind(source, options)
        if options.reads_whole_file or is_read_once(source) or kind == "lines":
            yield from self._readings(source, kind, options)
            return
        tags = self._tags_of(source, kind, options)
        for reading in self._readings(source, kind, options):
            yield replace(reading, rows=replace(reading.rows, tag_kind=tags))

    def guess(self, path: Path | MemoryFile, options: ReadOptions) -> Reading | None:
        """Returns the first rows of a file with words and tags.

        It is None if the file's lines do not look like columns.

        Raises:
            KnownFormatError: The file is for this task, and something in it is wrong.
            DataError: The file can't be read as words and tags.
        """
        kind = _kind_by_content(path, options) or _kind_of(path)
        # A .tsv file, or one of an unknown suffix, may as well be a table with a text on each row.
        may_be_texts = kind is None or suffix_of(path) == ".tsv"
        if may_be_texts:
            lines = _first_lines(path, options)
            has_no_sentences = bool(lines) and not _are_sentences(lines)
            # A file whose first lines show no other format counts as `conll` by sight.
            if has_no_sentences and _kind_by_sight(path, options) == "conll":
                return None
        try:
            return next(self._readings(path, kind or "conll", options), None)
        except DataError as error:
            if isinstance(error, KnownFormatError) or not _has_spans(path, kind, options):
                raise
            # The file is for this task: after this kind of error, the caller tries no other task.
            raise KnownFormatError(error.message, remedy=error.remedy, file=error.file) from error

    def _tags_of(self, source: Source, kind: TaggedKind, options: ReadOptions) -> TagKind | None:
        """Returns the kind of tags in a file (entities or others); None without usable tags.

        For this the whole file is read, in chunks, as only all tags together show the scheme of
        entity tags (IOB1, IOB2, ...).
        """
        # Rows that are skipped are counted when the words are read, so they are not counted here.
        with_tags = replace(options, keep_labels=True, listener=SILENT)
        if options.skipped is not None:
            with_tags = with_tags.skipping(SkippedRows())
        chunks = (reading.rows for reading in self._readings(source, kind, with_tags))
        tagged = itertools.takewhile(lambda rows: rows.has("label"), chunks)
        tags_of_sentences = chain.from_iterable(rows.columns["label"] for rows in tagged)
        try:
            kind_of_tags = tag_kind(tags_of_sentences, where=str)  # nobody sees its messages
        except DataError:  # the file is read to predict on it, which needs no tags
            return None
        if kind_of_tags.entities:
            options.listener.say(f"{source}: {kind_of_tags.sentence()}")
        return kind_of_tags

    def _readings(self, source: Source, kind: str, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file whose kind is known, chunk by chunk.

        Args:
            source: The file.
            kind: Its kind; what is called `conll` may turn out as another one by its first lines.
            options: How it is read.
        """
        if kind == "conll" and isinstance(source, Path):
            kind = _kind_by_sight(source, options)
        if kind in ("parquet", "csv", "tsv"):
            tables = sentences_of_words(read_tables(source, cast(FileKind, kind), options))
            with_lists = (_with_lists(table, kind, options) for table in tables)
            yield from self.table_readings(with_lists, options)
            return
        if kind not in ("lines", "conll", "conllu", "piped"):
            tables = sentences_of_words(_annotated_tables(source, kind, options))
            yield from self.table_readings(tables, options)
            return
        yield from self._readings_of_lines(source, kind, options)

    def _readings_of_lines(
        self, source: Source, kind: str, options: ReadOptions
    ) -> Iterator[Reading]:
        """Yields the rows of running text (`lines`), `conll`, `conllu` or `piped`, by chunks."""
        name = source_name(source)
        # A CoNLL-U file may have named entities in place of UPOS tags, or beside them.
        if kind == "conllu" and isinstance(source, Path) and options.keep_labels:
            options = _with_entities(source, options)
        with open_bytes(source) as file:
            lines = text_lines(file, name, options)
            if kind == "lines":
                chunks = _rows_of_lines(lines, name, options)
            elif kind == "piped":
                chunks = _rows_of_sentences_in_chunks(piped_sentences(lines, name), name, options)
            else:
                sentences = conll_sentences(lines, name, options, ud=kind == "conllu")
                chunks = _rows_of_sentences_in_chunks(sentences, name, options)
            n_rows = 0
            for rows in chunks:
                n_rows += len(rows)
                options.listener.expect(rows_expected(file, n_rows))
                yield Reading(_with_tag_kind(rows, options), {}, options.settings)

    def columns_of(self, table: Table, options: ReadOptions) -> TaggedColumns:
        """Returns which column of a file is which."""
        if isinstance(table, AnnotatedTable):
            return TaggedColumns("id", None, "text", "spans")
        return find_columns(table, options.settings, label_needed=options.label_needed)

    def rows_of(
        self, table: Table, columns: TaggedColumns, options: ReadOptions, *, first_id: int
    ) -> Rows:
        """Returns the rows of a file, with `words`, perhaps `label`, and the kind of the tags."""
        return _with_tag_kind(rows_of_table(table, columns, options, first_id=first_id), options)


def _with_entities(source: Path, options: ReadOptions) -> ReadOptions:
    """Returns the options for a CoNLL-U file: its entities are the tags if it has no UPOS tags.

    `data.label_column` of the recipe stays. The listener receives which entities are not read.
    """
    # A hint was named for another file, such as the training file.
    is_hint = "label_column" in options.hints
    if options.settings.label_column is not None and not is_hint:
        return options
    with open_bytes(source) as file:
        lines = decoded_lines(
            file,
            str(source),
            options.settings.encoding,
            SILENT,
            errors="replace",
        )
        kinds = kinds_of_tags(lines)
    if ENTITY_KEY not in kinds:
        return options
    if "upos" in kinds:
        options.listener.say(
            f"{source}: there are entities, too ({ENTITY_KEY}= in MISC): "
            f"`data.label_column={ENTITY_KEY}`"
        )
        return options
    return replace(
        options, settings=options.settings.model_copy(update={"label_column": ENTITY_KEY})
    )


def _kind(source: Source, options: ReadOptions) -> TaggedKind:
    """Returns the kind of a file: `options.kind`, or by its content, suffix, or first lines.

    If none of them shows the kind, stdin is running text, and a file that is read whole, with its
    labels, is CoNLL.

    Raises:
        UnavailableError: The file does not exist.
        UsageError: `options.kind` is unknown.
    """
    if source != "-":
        require_file(source)
    if isinstance(source, MemoryFile):
        return source.kind
    requested = "conll" if options.kind == "tsv" else options.kind  # columns with tabs
    if requested is not None:
        if requested not in TAGGED_KINDS:
            message = f"{unknown('input format', requested, TAGGED_KINDS)} (for words and tags)"
            raise UsageError(message, remedy=f"Formats: {', '.join(TAGGED_KINDS)}.")
        return requested

    content_kind = _kind_by_content(source, options)
    if content_kind is not None:
        return content_kind
    if source == "-":
        return "lines"
    suffix_kind = _kind_of(source)
    if suffix_kind is not None:
        return suffix_kind
    if options.reads_whole_file:
        return "conll"
    return _sniffed_kind(source, options)


def _kind_by_content(source: Source, options: ReadOptions) -> TaggedKind | None:
    """Returns the kind of a file that has JSON or Parquet in it, but another suffix; else None."""
    if source == "-":
        suffix_kind = None
    else:
        suffix_kind = _kind_of(source)
    if suffix_kind in ("jsonl", "json", "parquet", "docbin"):
        return None
    content = detected_kind(source, replace(options, listener=SILENT))
    if content not in ("jsonl", "parquet"):
        return None
    detected_kind(source, options)  # once more, to tell the listener
    if content == "jsonl":
        return "json"  # which may be JSON Lines, or what an annotation tool has written
    return "parquet"


def _kind_of(path: Path | MemoryFile) -> TaggedKind | None:
    """Returns what a file is, by its suffix (before .gz); None where that says nothing."""
    suffix = suffix_of(path)
    if suffix in _COLUMN_SUFFIXES:
        return "conll"
    if suffix in _UD_SUFFIXES:
        return "conllu"
    kind = _ANNOTATED_SUFFIXES.get(suffix) or SUFFIXES.get(suffix)
    if kind in TAGGED_KINDS and kind != "lines":
        return cast(TaggedKind, kind)
    return None


def _with_lists(table: Table, kind: str, options: ReadOptions) -> Table:
    """Returns a table with lists in place of cells that write lists: `"['Anna', 'sleeps']"`.

    Raises:
        UsageError: A CSV file with labels has no lists.
    """
    columns = {name: with_lists(values) for name, values in table.columns.items()}
    cells = chain.from_iterable(columns.values())
    is_labelled_csv = kind in ("csv", "tsv") and options.label_needed
    if is_labelled_csv and not any(isinstance(cell, list) for cell in cells):
        raise UsageError(
            f"{table.source}: CSV has no place for a tag per word but lists: \"['Anna', "
            "'sleeps']\",\"['B-PER', 'O']\"; or a row for each word, with the number of its "
            "sentence: sentence_id,word,tag",
            remedy="Give CoNLL columns (.conll, .tsv), CoNLL-U (.conllu), JSONL, Parquet, or what "
            "an annotation tool writes (.json of Label Studio or BioC, .ann, .pubtator, .spacy).",
        )
    return replace(table, columns=columns)


def _sniffed_kind(source: Path, options: ReadOptions) -> TaggedKind:
    """Returns `conll` if a file's first lines look like columns, and reports it; else `lines`."""
    if not _look_like_columns(_first_lines(source, options)):
        return "lines"
    options.listener.say(
        f"{source}: read as CoNLL columns; `input_format=lines` reads it as running text"
    )
    return "conll"


def _first_lines(source: Path | MemoryFile, options: ReadOptions) -> list[str]:
    """Returns the first `_SNIFFED_LINES` lines of a file."""
    with open_bytes(source) as file:
        lines = decoded_lines(file, str(source), options.settings.encoding, SILENT)
        return list(itertools.islice(lines, _SNIFFED_LINES))


def _are_sentences(lines: Sequence[str]) -> bool:
    """Returns whether lines are columns of words and tags, and not a table with a text on each row.

    They look like columns, and blank lines part sentences or all lines end in a tag.
    """
    if not _look_like_columns(lines):
        return False
    has_blank_lines = any(not line.strip() for line in lines[:-1])
    filled = [line.split() for line in lines if line.strip()]
    return has_blank_lines or all(_TAG.fullmatch(fields[-1]) for fields in filled)


def _look_like_columns(lines: Sequence[str]) -> bool:
    """Returns whether lines look like CoNLL: all of them have the same number of columns.

    Columns are parted by tabs. Columns that are parted by spaces count only if the last one has
    tags, because running text has spaces, too. A line with `-DOCSTART-`, which begins a document of
    CoNLL, is enough.
    """
    filled = [line.rstrip("\r\n") for line in lines if line.strip()]
    if any(line.startswith("-DOCSTART-") for line in filled):
        return True

    tab_counts = {line.count("\t") for line in filled}
    has_equal_tabs = len(tab_counts) == 1 and 0 not in tab_counts
    if len(filled) > 1 and has_equal_tabs:
        return True

    rows = [line.split(" ") for line in filled]
    widths = {len(fields) for fields in rows}
    end_in_tags = all(len(fields) > 1 and _TAG.fullmatch(fields[-1]) for fields in rows)
    return len(widths) == 1 and end_in_tags


def _kind_by_sight(source: Path | MemoryFile, options: ReadOptions) -> str:
    """Returns what a file of columns is by its first lines.

    CoNLL (`conll`), a table with a word on each row (`tsv`), PubTator (`pubtator`), or spaCy's
    `.iob` (`piped`).

    Raises:
        KnownFormatError: XML or WebAnno's TSV, which look like columns.
    """
    lines = _first_lines(source, options)
    filled = [line for line in lines if line.strip()]
    first_line = filled[0].lstrip("\ufeff \t") if filled else ""
    for pattern, noun, remedy in _OTHER_FORMATS:
        if pattern.match(first_line):
            raise KnownFormatError(f"{source}: this is {noun}, which can't be read", remedy=remedy)
    if _PUBTATOR_TEXT.match(first_line):
        return "pubtator"
    if are_piped(lines):
        return "piped"
    if lines:
        header = lines[0].rstrip("\r\n").split("\t")
    else:
        header = []
    if sentence_column(header) is None:
        return "conll"
    return "tsv"


def _rows_of_sentences_in_chunks(
    sentences: Iterable[Sentence], name: str, options: ReadOptions
) -> Iterator[Rows]:
    """Yields sentences as rows, all at once or in chunks of whole documents.

    Args:
        sentences: In the order of the file.
        name: Name of the file.
        options: Rows per chunk, whether tags are kept, and the sentences that were skipped.
    """
    if options.chunk_rows is None:
        chunks = iter([list(sentences)])
    else:
        chunks = _whole_documents(sentences, options.chunk_rows)
    n_before = 0  # rows of the chunks before
    for chunk in chunks:
        if not options.keep_labels:
            chunk = [sentence._replace(tags=None) for sentence in chunk]
        rows = _rows_of_sentences(
            chunk,
            name,
            split=options.split,
            first_id=n_before,
        )
        if options.skipped is not None:
            # Sentences that were skipped have a number, too, so that ids are the same without them.
            rows = replace(rows, ids=options.skipped.ids(rows.lines, name, first_id=n_before))
        yield rows
        n_before += len(chunk)


def _whole_documents(sentences: Iterable[Sentence], size: int) -> Iterator[list[Sentence]]:
    """Yields chunks of at least `size` sentences, cut between documents where there are any."""
    chunk: list[Sentence] = []
    for sentence in sentences:
        if len(chunk) >= size:
            has_no_documents = sentence.document < 0
            begins_document = sentence.document != chunk[-1].document
            is_too_long = len(chunk) >= size * _LONGEST_DOCUMENT
            if has_no_documents or begins_document or is_too_long:
                yield chunk
                chunk = []
        chunk.append(sentence)
    if chunk:
        yield chunk


def _rows_of_lines(lines: Iterable[str], name: str, options: ReadOptions) -> Iterator[Rows]:
    """Yields lines of running text as rows: each with its words, and where these stand in it."""
    n_before = 0
    texts = (line.rstrip("\n").removesuffix("\r") for line in lines)
    for chunk in in_chunks(texts, options.chunk_rows):
        words_and_offsets = [split_tagged_words(text) for text in chunk]
        numbers = range(n_before, n_before + len(chunk))
        columns: dict[str, Sequence[Any]] = {
            "text": chunk,
            "words": [words for words, _ in words_and_offsets],
            "offsets": [offsets for _, offsets in words_and_offsets],
        }
        yield Rows(
            options.split,
            columns,
            ids=[str(i) for i in numbers],
            source=name,
            lines=[i + 1 for i in numbers],
        )
        n_before += len(chunk)


def _rows_of_sentences(
    sentences: Sequence[Sentence], source: str, *, split: str, first_id: int = 0
) -> Rows:
    """Returns sentences as rows, numbered from `first_id`.

    Tags are there if all sentences have them; the column `lines`, with all lines of each sentence
    as the file has them, and the column `document` are there if any sentence has them.
    """
    columns: dict[str, Sequence[Any]] = {"words": [sentence.words for sentence in sentences]}
    if all(sentence.tags is not None for sentence in sentences):
        columns["label"] = [sentence.tags for sentence in sentences]
    if any(sentence.lines for sentence in sentences):
        columns["lines"] = [sentence.lines for sentence in sentences]
    if any(sentence.document >= 0 for sentence in sentences):
        columns["document"] = [sentence.document for sentence in sentences]
    ids = [str(i) for i in range(first_id, first_id + len(sentences))]
    return Rows(
        split,
        columns=columns,
        ids=ids,
        source=source,
        lines=[sentence.line for sentence in sentences],
    )


def _with_tag_kind(rows: Rows, options: ReadOptions) -> Rows:
    """Returns the rows of a whole file with the kind of their tags, and tells the listener.

    Rows of a chunk stay as they are, since only the whole file shows the scheme.

    Raises:
        DataError: Tags of a scheme that is not known.
    """
    if not options.reads_whole_file or not rows.has("label"):
        return rows
    kind = tag_kind(rows.columns["label"], rows.where)
    options.listener.say(f"{rows.source}: {kind.sentence()}")
    return replace(rows, tag_kind=kind)


def _annotated_tables(source: Source, kind: str, options: ReadOptions) -> Iterator[Table]:
    """Yields texts with their spans, one table per chunk.

    Args:
        source: the file.
        kind: `brat`, `pubtator`, `docbin`, or JSON: that of Label Studio, BioC, a list of objects,
            or one per line.
        options: how it is read.
    """
    if kind not in ("json", "jsonl"):
        documents = _ANNOTATED[kind](source, options)
        yield from _tables_of_documents(documents, source_name(source), options)
        return
    name = source_name(source)
    with open_bytes(source) as file, loading(name, remedy=options.form):
        document, tables = document_or_tables(file, name, options)
        if document is None:
            for table in tables:
                yield from _tables_of_json_lines(table, name, options)
            return

        bioc_entries = bioc.entries_of(document)
        if bioc_entries is not None:
            documents = bioc.documents_of(bioc_entries, name, options)
            yield from _tables_of_documents(documents, name, options)
        elif isinstance(document, list) and document and all(map(label_studio.is_task, document)):
            no_lines = ()  # one document has all tasks, so they have no lines of their own
            yield from _tables_of_tasks(document, name, no_lines, options)
        else:
            table = table_of_document(document, name, options)
            _refuse_spacy_paragraphs(table)
            for chunk in table.chunks(options.chunk_rows):
                yield _with_lists(chunk, "jsonl", options)


def _tables_of_json_lines(table: Table, name: str, options: ReadOptions) -> Iterator[Table]:
    """Yields a chunk of JSON Lines as tables.

    Tasks of Label Studio and documents of BioC become texts with spans. Of other objects, only
    cells that write a list, such as `"['Anna', 'sleeps']"`, become lists.
    """
    if label_studio.has_tasks(table):
        yield from _tables_of_tasks(entries_of(table), name, table.lines, options)
        return
    may_be_bioc = bool(table.columns.keys() & _BIOC_COLUMNS)
    if may_be_bioc:
        bioc_entries = bioc.entries_of(entries_of(table))
        # A table that only has a column of BioC's name is read like any other.
        if bioc_entries is not None:
            documents = bioc.documents_of(bioc_entries, name, options)
            yield from _tables_of_documents(documents, name, options)
            return
    yield _with_lists(table, "jsonl", options)


def _has_spans(path: Path | MemoryFile, kind: str | None, options: ReadOptions) -> bool:
    """Returns whether a file that could not be read is one of an annotation tool with spans.

    Args:
        path: The file.
        kind: Its kind as `_kind_of` and `_kind_by_content` return it.
        options: How it is read.
    """
    if kind in _ANNOTATED:
        return True
    if kind not in ("json", "jsonl"):
        return False
    try:
        with open_bytes(path) as file:
            document, tables = document_or_tables(file, str(path), options)
            if document is not None:
                entries = document
            else:
                entries = entries_of(next(tables))
    except (DataError, StopIteration):
        return False
    return bioc.entries_of(entries) is not None or label_studio.have_spans(entries)


def _refuse_spacy_paragraphs(table: Table) -> None:
    """Refuses what spaCy 2 trained on: documents of paragraphs with tokens in sentences.

    Raises:
        DataError: with how to convert it.
    """
    if "paragraphs" not in table.columns:
        return
    paragraphs = table.columns["paragraphs"][0]  # of the first document
    if not isinstance(paragraphs, list) or not paragraphs:
        return
    if isinstance(paragraphs[0], dict) and "sentences" in paragraphs[0]:
        raise KnownFormatError(
            f"{table.source}: this is the JSON that spaCy 2 was trained on",
            remedy="Convert it: python -m spacy convert FILE.json . --converter json. The .spacy "
            "file can be read.",
        )


def _tables_of_tasks(
    tasks: Sequence[Mapping[str, Any]], name: str, lines: Sequence[int], options: ReadOptions
) -> Iterator[Table]:
    """Yields Label Studio's tasks as texts with spans.

    Args:
        tasks: As the file has them.
        name: Name of the file.
        lines: Number of each task's line, or nothing.
        options: How the file is read.

    Raises:
        DataError: Labels are needed, and the tasks have no spans.
    """
    if options.label_needed:
        label_studio.require_spans(tasks, name)
    documents = label_studio.documents_of(tasks, name, options)
    for table in _tables_of_documents(documents, name, options):
        yield replace(table, lines=lines[table.first : table.first + len(table)])


def _tables_of_documents(
    documents: Iterator[Document], name: str, options: ReadOptions
) -> Iterator[Table]:
    """Yields annotated documents as texts with their spans, a row each; warns of spans left out.

    Args:
        documents: The documents of the file.
        name: Name of the file.
        options: How it is read.
    """
    n_before = 0  # rows of the chunks before
    n_left_out = 0  # spans
    for chunk in in_chunks(documents, options.chunk_rows):
        n_left_out += sum(document.parted for document in chunk)
        columns: dict[str, list[Any]] = {
            "text": [document.text for document in chunk],
            "spans": [document.label for document in chunk],
            "id": [document.id for document in chunk],
        }
        yield AnnotatedTable(columns, name, first=n_before)
        n_before += len(chunk)
    if n_left_out:
        if n_left_out == 1:
            verb = "is"
            possessive = "its"
        else:
            verb = "are"
            possessive = "their"
        counted = f"{count(n_left_out, 'span')} of several parts with words between {verb} left out"
        options.listener.warn(f"{name}: {counted}; {possessive} words are learned as O")
