"""Corpora: files and folders of text as documents of sentences.

They are read as a stream, and looked over before they are used.

one sentence a line      a text file with an empty line between texts: documents end there
one document a line      any other text file; sentences end behind . ! ? and a space
one document a row       JSONL, Parquet, CSV, TSV: the text column, cut into sentences too
"""

import hashlib
import itertools
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertctl.arrays import Ints, sorted_unique
from bertctl.catalog.datasets import BUNDLED_CORPORA
from bertctl.catalog.lock import Found, noted
from bertctl.config.recipe_files import expanded_path
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.file_names import SUFFIXES, suffix_of
from bertctl.data.files import detected_kind, text_lines
from bertctl.data.pipes import regular
from bertctl.data.read_options import Reading, ReadOptions
from bertctl.data.reading import Reader
from bertctl.data.rows import Rows
from bertctl.data.sources import Source, source_name
from bertctl.data.text_files import open_bytes, require_file
from bertctl.data.text_rows import TextReader
from bertctl.documents import loading, sha256_of
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.words import count, count_of, shorten

MOST_HELD_OUT = 1000
"""Documents held out at most: more take longer to score, and tell no more."""
MOST_REPEATED = 0.01
"""Share of the lines that may be repeated: a model learns them by heart
(google-research/bert#746)."""

_ROWS = 256  # of a file with columns, read at once: documents may be long; and told as progress
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")
_READER = TextReader(stratify=False, streams_labels=False, nouns=())


class Document(NamedTuple):
    """Text of a corpus.

    Attributes:
        id: the file and the line where it begins (Parquet: the row): `file.txt:17`.
        lines: as the file has them, without those that are blank.
        cut: whether a line is a text, which is cut into sentences; else it is a sentence.
    """

    id: str
    lines: list[str]
    cut: bool

    @property
    def sentences(self) -> list[str]:
        """Returns the sentences, none of them blank."""
        cut: Iterable[str] = self.lines
        if self.cut:
            cut = chain.from_iterable(map(_SENTENCE_END.split, self.lines))
        return [sentence for part in cut if (sentence := part.strip())]


@dataclass(frozen=True)
class Corpus:
    """File, or the files of a folder.

    Attributes:
        name: what it is called where corpora are weighed: the file's name without suffixes, or the
            folder's.
        files: what the ids of documents call a file -> the file, in the order in which they are
            read.
        settings: text column, encoding, delimiter, header and longest line, as a recipe's section
            says them.
    """

    name: str
    files: Mapping[str, Path]
    settings: DataSection

    def documents(self, listener: Listener = SILENT) -> Iterator[Document]:
        """Yields the documents in order; those without a text have no lines.

        Raises:
            UsageError: a text column that can't be guessed.
            DataError: bytes, records, columns or a line that are not what they should be, with file
                and line.
            UnavailableError: a file that is gone.
        """
        for label, path in self.files.items():
            options = ReadOptions(self.settings, "train", listener=listener)
            if (detected_kind(path, options) or "lines") == "lines":
                read = _texts
            else:
                read = _rows
            for place, lines, cut in read(path, self.settings, listener):
                yield Document(f"{label}:{place}", lines, cut)

    @loading("the corpus", kind=UnavailableError)
    def fingerprint(self) -> dict[str, str]:
        """Returns what decides the text.

        It maps the name of each file as documents have it to the SHA-256 of its bytes.

        Raises:
            UnavailableError: one can't be read.
        """
        return {label: sha256_of(regular(path)) for label, path in self.files.items()}


def open_corpora(corpus_names: Sequence[str], settings: DataSection) -> list[Corpus]:
    """Returns the corpora that were named, with their files.

    Args:
        corpus_names: files, or folders, of which every file with a known suffix counts, in folders
            inside too; or the name of a corpus inside the package.
        settings: how files are read.

    Raises:
        UnavailableError: nothing there, or a folder without such a file.
    """
    settings = settings.model_copy(update={"id_column": None})  # documents are numbered
    names_and_paths = [_place(corpus) for corpus in corpus_names]
    known = [name for name, _ in names_and_paths]
    corpora = []
    for typed, (short, path) in zip(corpus_names, names_and_paths, strict=True):
        if known.count(short) == 1:
            name = short
        else:
            name = typed
        files = {
            label if len(corpus_names) == 1 else f"{name}/{label}": file
            for label, file in _files(path).items()
        }
        corpora.append(Corpus(name, files, settings))
    return corpora


def corpora_of(recipe: Recipe) -> tuple[list[Corpus], list[Corpus]]:
    """Returns the corpora that a recipe names.

    The second is the one that it is scored on, where that has a file of its own.

    Raises:
        UnavailableError: nothing there, or a folder without such a file; or a lock is in force that
            has not these.
    """
    validation_file = recipe.data.validation_file
    corpora = open_corpora(recipe.pretraining.corpus, recipe.data)
    if validation_file:
        scored = open_corpora([validation_file], recipe.data)
    else:
        scored = []
    files = chain.from_iterable(corpus.files.items() for corpus in (*corpora, *scored))
    for name, path in files:
        noted(Found("dataset", name, {name: regular(path)}))
    return corpora, scored


def _place(corpus: str) -> tuple[str, Path]:
    """Returns what a corpus is called, and where it is."""
    if corpus in BUNDLED_CORPORA:
        return corpus, BUNDLED_CORPORA[corpus]
    path = expanded_path(corpus)
    return (
        path.resolve().name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem
    ), path


def _files(path: Path) -> dict[str, Path]:
    if not path.is_dir():
        require_file(path)
        return {path.name: path}
    members = {
        f"/{file.relative_to(path).as_posix()}": file
        for file in path.rglob("*")
        if suffix_of(file) in SUFFIXES
    }
    files = {
        name[1:]: members[name]
        for name in sorted(members)
        if members[name].is_file() and "/." not in name
    }
    if not files:
        raise UnavailableError(
            f"{path} holds no file of text", remedy=f"Suffixes: {', '.join(SUFFIXES)}.", file=path
        )
    return files


def _texts(
    path: Path, settings: DataSection, listener: Listener
) -> Iterator[tuple[int, list[str], bool]]:
    """Yields the documents of a text file.

    Blank lines part documents that have a sentence on each line. In a file without such lines each
    line is a document, to be cut into sentences.

    Yields:
        The number of the document's first line, its lines, and whether they are to be cut.
    """
    options = ReadOptions(
        settings,
        "train",
        listener=listener,
        chunk_rows=_ROWS,
    )
    with open_bytes(path) as file:
        runs = itertools.groupby(text_lines(file, str(path), options), str.isspace)
        first_runs = [is_blank for is_blank, _ in itertools.islice(runs, 4)]
        # One run of text at most, perhaps between empty lines.
        has_line_documents = first_runs.count(False) < 2
    unit = "document" if has_line_documents else "sentence"
    listener.say(f"{path}: one {unit} a line")
    with open_bytes(path) as file:
        lines = enumerate(
            map(str.strip, text_lines(file, str(path), replace(options, listener=SILENT))), start=1
        )
        for is_text, group in itertools.groupby(lines, key=lambda numbered: numbered[1] != ""):
            if is_text and has_line_documents:
                yield from ((number, [line], True) for number, line in group)
            elif is_text:
                numbers, texts = zip(*group, strict=True)
                yield numbers[0], list(texts), False


def _rows(
    path: Path, settings: DataSection, listener: Listener
) -> Iterator[tuple[int, list[str], bool]]:
    """Yields line (or row), lines and `cut` of each row of a file with columns."""
    for rows in _READER.stream(
        path,
        settings,
        chunk_rows=_ROWS,
        listener=listener,
    ):
        row_numbers = rows.lines or rows.numbers or range(1, len(rows) + 1)
        for row_number, text in zip(row_numbers, rows.columns["text"], strict=True):
            yield row_number, [line for part in text.splitlines() if (line := part.strip())], True


class Survey(NamedTuple):
    """Facts about corpora that were read once.

    Attributes:
        documents: how many there are, those without a text too.
        held_out: numbers of those held out for validation, counted over all that the corpora yield.
        notes: what is left out, held out and repeated, in words.
    """

    documents: int
    held_out: Sequence[int]
    notes: Sequence[str]


def survey(
    corpora: Sequence[Corpus],
    *,
    fraction: float | None,
    allow_duplicates: bool = False,
    listener: Listener = SILENT,
) -> Survey:
    """Reads corpora once and returns what has to be known of them before they are packed.

    Documents with the smallest hashes of their texts are held out: which these are depends on
    nothing but the texts, and equal texts are on one side.

    Args:
        corpora: at least one.
        fraction: share of the documents to hold out, at most `MOST_HELD_OUT`, at least one; None
            holds out none.
        allow_duplicates: whether more repeated lines than `MOST_REPEATED` are told, and not
            refused.
        listener: told of what is guessed about the files, and of the progress.

    Raises:
        UsageError: a text column that can't be guessed.
        DataError: files that are not what they should be; a corpus without text, or with none left
            for training; too many repeated lines.
    """
    lines = array("q")
    texts = array("q")
    ends = [0]
    for corpus in corpora:
        for document in corpus.documents(listener):
            lines.extend(hash(line) for line in document.lines if _counts(line))
            texts.append(_hash(document.lines) if document.lines else -1)
            if len(texts) % _ROWS == 0:
                listener.advance("reading the corpus", len(texts), 0)
        ends.append(len(texts))
    listener.finish("reading the corpus")
    hashes = np.frombuffer(texts, dtype=np.int64)
    full = hashes >= 0
    different = sorted_unique(hashes[full])
    if fraction is None:
        most = 0
    else:
        most = min(MOST_HELD_OUT, max(1, round(fraction * full.sum())), len(different) - 1)
    held = np.isin(hashes, different[: max(most, 0)])
    for corpus, (a, b) in zip(corpora, itertools.pairwise(ends), strict=True):
        if (held[a:b] == full[a:b]).all() or (fraction is not None and most < 1):
            n_documents = count(int(full[a:b].sum()), "document")
            message = (
                f"the corpus '{corpus.name}' has {n_documents} with text, and none to train on "
                "beside "
                "one for validation"
            )
            remedy = (
                "Give more documents, with empty lines between them, or a file with "
                "`data.validation_file=`."
            )
            raise DataError(message, remedy=remedy)
    notes = _repeated(corpora, np.frombuffer(lines, dtype=np.int64), allowed=allow_duplicates)
    kinds = {
        "have no text and are left out": ~full,
        "are held out for validation, by the hashes of their texts": held,
    }
    notes += [
        f"{count_of(int(of.sum()), len(full), 'document')} {message}"
        for message, of in kinds.items()
        if of.any()
    ]
    return Survey(len(full), np.flatnonzero(held).tolist(), notes)


def _counts(line: str) -> bool:
    """Whether a repeated line is one too many.

    Headings ("Results", "Case report") recur in sound corpora; so a line counts from three words
    on, or 25 characters, for languages without spaces.
    """
    return len(line) >= 25 or line.count(" ") >= 2


def _hash(lines: Sequence[str]) -> int:
    """Returns the same positive number everywhere, unlike `hash`."""
    text = "\n".join(lines)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def _repeated(corpora: Sequence[Corpus], hashes: Ints, *, allowed: bool) -> list[str]:
    """Returns how many lines are repeated, in words; nothing where they are few.

    Sorts the hashes of all in place.

    Raises:
        DataError: they are too many, and not allowed.
    """
    hashes.sort()
    again = hashes[1:] == hashes[:-1]
    if again.sum() <= MOST_REPEATED * len(hashes):
        return []
    known = hashes[1:][again]
    every = (
        line for corpus in corpora for document in corpus.documents() for line in document.lines
    )
    lines = (
        line
        for line in every
        if known[np.searchsorted(known, hash(line)) % len(known)] == hash(line)
    )
    examples = " and ".join(
        [*dict.fromkeys(repr(shorten(line)) for line in itertools.islice(lines, 1000))][:2]
    )
    message = (
        f"{count_of(int(again.sum()), len(hashes), 'line')} of the corpus stand further up "
        f"already, such as {examples}"
    )
    if not allowed:
        raise DataError(
            message,
            remedy="A model learns them by heart. Take them out, or add "
            "`pretraining.allow_duplicates=True`.",
        )
    return [message]


def corpus_rows(documents: Iterable[Document], *, split: str, source: str) -> Rows:
    """Returns documents as rows: `text` has a sentence per line, and is its own label."""
    named_texts = [
        (document.id, "\n".join(document.sentences)) for document in documents if document.sentences
    ]
    texts = [text for _, text in named_texts]
    return Rows(split, {"text": texts, "label": texts}, [name for name, _ in named_texts], source)


def held_out_rows(recipe: Recipe, listener: Listener) -> Rows:
    """Returns the documents that a pretrained run was scored on.

    They are its validation file, or what it held out.

    Raises:
        BertctlError: files that are not there, or no longer what they were.
    """
    data = recipe.data
    if data.validation_file:
        scored = open_corpora([data.validation_file], data)
        documents = chain.from_iterable(corpus.documents(listener) for corpus in scored)
        return corpus_rows(documents, split="validation", source=data.validation_file)
    corpora = open_corpora(recipe.pretraining.corpus, data)
    held = set(survey(corpora, fraction=data.validation_fraction, allow_duplicates=True).held_out)
    numbered = enumerate(chain.from_iterable(corpus.documents(listener) for corpus in corpora))
    held_out = (document for number, document in numbered if number in held)
    return corpus_rows(held_out, split="validation", source="the documents held out")


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
        rows = corpus_rows(
            corpus.documents(options.listener), split=options.split, source=source_name(source)
        )
        if not len(rows):
            raise DataError(f"{source} holds no text", remedy="Give a file with text.")
        yield Reading(rows, {}, options.settings)

    def guess(self, path: object, options: ReadOptions) -> None:  # noqa: ARG002
        """Returns None: any file could be a corpus."""
        return
