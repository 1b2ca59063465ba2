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
from bertctl.catalog.lock import FilesToRead, check_or_record
from bertctl.config.recipe_files import expanded_path
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.file_lines import text_lines
from bertctl.data.file_names import SUFFIXES, suffix_of
from bertctl.data.files import detected_kind
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

_ROWS = 256  # rows that are read at once, few because documents may be long
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")
_READER = TextReader(stratify=False, streams_labels=False, nouns=())


class Document(NamedTuple):
    """One document of a corpus.

    Attributes:
        id: The file, and the line where the document begins (in Parquet the row): `file.txt:17`.
        lines: The document's lines as the file has them, without blank ones.
        cut: Whether lines have to be cut into sentences. If False, each line is a sentence.
    """

    id: str
    lines: list[str]
    cut: bool

    @property
    def sentences(self) -> list[str]:
        """Returns the sentences, none of them blank.

        If lines are cut, `["It rains. Stay!"]` -> `["It rains.", "Stay!"]`.
        """
        parts: Iterable[str] = self.lines
        if self.cut:
            parts = chain.from_iterable(map(_SENTENCE_END.split, self.lines))
        stripped = (part.strip() for part in parts)
        return [sentence for sentence in stripped if sentence]


@dataclass(frozen=True)
class Corpus:
    """Texts to pretrain on: one file, or the files of a folder.

    Attributes:
        name: Name of the corpus where corpora are weighed: that of the folder, or of the file
            without suffixes.
        files: Name of a file in the ids of documents -> the file, in the order of reading.
        settings: How the files are read: text column, encoding, delimiter, header, longest line.
    """

    name: str
    files: Mapping[str, Path]
    settings: DataSection

    def documents(self, listener: Listener = SILENT) -> Iterator[Document]:
        """Yields the documents in order; a document without text has no lines.

        Raises:
            UsageError: The text column of a file can't be guessed.
            DataError: Bytes, records, columns or a line are not what they should be; with file and
                line.
            UnavailableError: A file no longer exists.
        """
        for label, path in self.files.items():
            options = ReadOptions(self.settings, "train", listener=listener)
            kind = detected_kind(path, options)
            if kind is None or kind == "lines":
                read = _texts
            else:
                read = _rows
            for line_or_row, lines, cut in read(path, self.settings, listener):
                yield Document(f"{label}:{line_or_row}", lines, cut)

    @loading("the corpus", kind=UnavailableError)
    def fingerprint(self) -> dict[str, str]:
        """Returns the hash (SHA-256) of each file's bytes by the name that documents have for it.

        Raises:
            UnavailableError: A file can't be read.
        """
        return {label: sha256_of(regular(path)) for label, path in self.files.items()}


def open_corpora(corpus_names: Sequence[str], settings: DataSection) -> list[Corpus]:
    """Returns the corpora that were named, with their files.

    Args:
        corpus_names: Paths of files or folders, or names of corpora that the package contains. Of a
            folder, all files with a known suffix count, also in folders inside it.
        settings: How the files are read.

    Raises:
        UnavailableError: A path does not exist, or a folder has no such file.
    """
    settings = settings.model_copy(update={"id_column": None})  # documents are numbered
    names_and_paths = [_name_and_path(corpus) for corpus in corpus_names]
    short_names = [name for name, _ in names_and_paths]
    corpora = []
    for typed, (short_name, path) in zip(corpus_names, names_and_paths, strict=True):
        is_unique = short_names.count(short_name) == 1
        name = short_name if is_unique else typed  # so that no two corpora have one name
        files = _files(path)
        if len(corpus_names) > 1:
            files = {f"{name}/{label}": file for label, file in files.items()}
        corpora.append(Corpus(name, files, settings))
    return corpora


def corpora_of(recipe: Recipe) -> tuple[list[Corpus], list[Corpus]]:
    """Returns the corpora that a recipe trains on, and those that it is scored on.

    The second list contains only the validation file, or nothing if the recipe has no such file.

    Raises:
        UnavailableError: A path does not exist, a folder has no file of text, or the files are not
            those of the lock that is in force.
    """
    validation_file = recipe.data.validation_file
    corpora = open_corpora(recipe.pretraining.corpus, recipe.data)
    if validation_file:
        scored = open_corpora([validation_file], recipe.data)
    else:
        scored = []
    files = chain.from_iterable(corpus.files.items() for corpus in (*corpora, *scored))
    for name, path in files:
        check_or_record(FilesToRead("dataset", name, {name: regular(path)}))
    return corpora, scored


def _name_and_path(corpus: str) -> tuple[str, Path]:
    """Returns what a corpus is called, and where it is: `news/a.txt.gz` is called `a`."""
    if corpus in BUNDLED_CORPORA:
        return corpus, BUNDLED_CORPORA[corpus]
    path = expanded_path(corpus)
    if path.is_dir():
        return path.resolve().name, path
    return Path(path.name.removesuffix(".gz")).stem, path


def _files(path: Path) -> dict[str, Path]:
    """Returns the files of a corpus by their names in it: `{"news/a.txt": folder/news/a.txt}`.

    Of a folder these are the files with known suffixes, in alphabetical order, without hidden ones.

    Raises:
        UnavailableError: The path does not exist, or a folder has no such file.
    """
    if not path.is_dir():
        require_file(path)
        return {path.name: path}
    members = {
        file.relative_to(path).as_posix(): file
        for file in path.rglob("*")
        if suffix_of(file) in SUFFIXES
    }
    files = {
        name: file
        for name, file in sorted(members.items())
        if file.is_file() and not _is_hidden(name)
    }
    if not files:
        raise UnavailableError(
            f"{path} holds no file of text", remedy=f"Suffixes: {', '.join(SUFFIXES)}.", file=path
        )
    return files


def _is_hidden(name: str) -> bool:
    """Returns whether a file, or a folder that it is in, has a name that begins with a dot."""
    return any(part.startswith(".") for part in name.split("/"))


def _texts(
    path: Path, settings: DataSection, listener: Listener
) -> Iterator[tuple[int, list[str], bool]]:
    """Yields the documents of a text file.

    If empty lines part texts, a document is a text, and its lines are its sentences. Otherwise each
    line is a document, to be cut into sentences.

    Yields:
        The number of the document's first line, its lines, and whether the lines have to be cut
        into sentences.
    """
    options = ReadOptions(
        settings,
        "train",
        listener=listener,
        chunk_rows=_ROWS,
    )
    with open_bytes(path) as file:
        has_line_documents = not _are_parted_by_blanks(text_lines(file, str(path), options))
    unit = "document" if has_line_documents else "sentence"
    listener.say(f"{path}: one {unit} a line")
    silent = replace(options, listener=SILENT)  # the first reading has reported the encoding
    with open_bytes(path) as file:
        sentences: list[str] = []  # of the text that has begun
        first_number = 0  # number of its first line
        for number, line in enumerate(text_lines(file, str(path), silent), start=1):
            text = line.strip()
            if text and has_line_documents:
                yield number, [text], True
            elif text:
                if not sentences:
                    first_number = number
                sentences.append(text)
            elif sentences:
                yield first_number, sentences, False
                sentences = []
        if sentences:
            yield first_number, sentences, False


def _are_parted_by_blanks(lines: Iterable[str]) -> bool:
    """Returns whether there are blank lines between two filled ones; reads no further than that."""
    # Blank lines and filled lines alternate, so the first four runs contain two of filled lines.
    runs = itertools.groupby(lines, str.isspace)
    first_runs = [is_blank for is_blank, _ in itertools.islice(runs, 4)]
    return first_runs.count(False) == 2


def _rows(
    path: Path, settings: DataSection, listener: Listener
) -> Iterator[tuple[int, list[str], bool]]:
    """Yields the documents of a file with columns: each row is a document.

    Yields:
        The number of the row's line (or of the row), the lines of its text, and True: the lines
        have to be cut into sentences.
    """
    for rows in _READER.stream(
        path,
        settings,
        chunk_rows=_ROWS,
        listener=listener,
    ):
        row_numbers = rows.lines or rows.numbers or range(1, len(rows) + 1)
        for row_number, text in zip(row_numbers, rows.columns["text"], strict=True):
            lines = map(str.strip, text.splitlines())
            yield row_number, [line for line in lines if line], True


class Survey(NamedTuple):
    """Facts about corpora that were read once.

    Attributes:
        documents: Number of documents, also of those without text.
        held_out: Numbers of the documents held out for validation, counted over all corpora.
        notes: Sentences about what is left out, held out and repeated.
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
    """Reads corpora once, chooses the documents for validation, and checks for repeated lines.

    Documents with the smallest hashes of their texts are held out for validation. So the choice
    depends on nothing but the texts, and documents with equal texts are never on both sides.

    Args:
        corpora: The corpora, at least one.
        fraction: Share of the documents to hold out for validation. At least one document is held
            out, and at most `MOST_HELD_OUT`. None holds out no document.
        allow_duplicates: Whether a larger share of repeated lines than `MOST_REPEATED` is only
            reported. If False, it is an error.
        listener: Receives guesses about the files, and the progress.

    Raises:
        UsageError: The text column of a file can't be guessed.
        DataError: A file is not what it should be, a corpus has no text to train on, or too many
            lines are repeated.
    """
    hashes, line_hashes, ends = _hashes_of(corpora, listener)
    has_text = hashes >= 0  # a document without text has the hash -1
    different_hashes = sorted_unique(hashes[has_text])
    n_held_out = 0  # counts equal texts once
    if fraction is not None:
        n_requested = max(1, round(fraction * has_text.sum()))
        n_spare = max(len(different_hashes) - 1, 0)  # one text is left to train on
        n_held_out = min(MOST_HELD_OUT, n_requested, n_spare)
    is_held_out = np.isin(hashes, different_hashes[:n_held_out])
    # With fewer than two different texts, none can be held out beside one to train on.
    lacks_validation = fraction is not None and n_held_out == 0

    # Each corpus must have a text to train on that is not held out. If `lacks_validation`, all
    # corpora together have too few texts, and the message is about the first corpus.
    for corpus, (start, end) in zip(corpora, itertools.pairwise(ends), strict=True):
        has_nothing_to_train_on = (is_held_out[start:end] == has_text[start:end]).all()
        if has_nothing_to_train_on or lacks_validation:
            n_documents = count(int(has_text[start:end].sum()), "document")
            message = (
                f"the corpus '{corpus.name}' has {n_documents} with text, and none to train on "
                "beside one for validation"
            )
            remedy = (
                "Give more documents, with empty lines between them, or a file with "
                "`data.validation_file=`."
            )
            raise DataError(message, remedy=remedy)
    notes = _repeated(corpora, line_hashes, allowed=allow_duplicates)
    masks = {
        "have no text and are left out": ~has_text,
        "are held out for validation, by the hashes of their texts": is_held_out,
    }
    notes += [
        f"{count_of(int(mask.sum()), len(mask), 'document')} {message}"
        for message, mask in masks.items()
        if mask.any()
    ]
    return Survey(
        documents=len(has_text), held_out=np.flatnonzero(is_held_out).tolist(), notes=notes
    )


def _hashes_of(corpora: Sequence[Corpus], listener: Listener) -> tuple[Ints, Ints, list[int]]:
    """Reads corpora once, and returns hashes of their documents and lines.

    Returns:
        The hash of each document's text, (N,), -1 for a document without text. The hash of each
        line but short ones, (M,): equal hashes show repeated lines. And the positions between
        corpora: 0, then the number of documents up to the end of each corpus.
    """
    line_hashes = array("q")
    text_hashes = array("q")
    ends = [0]
    for corpus in corpora:
        for document in corpus.documents(listener):
            line_hashes.extend(
                hash(line) for line in document.lines if _can_count_as_repeated(line)
            )
            text_hashes.append(_hash(document.lines) if document.lines else -1)
            if len(text_hashes) % _ROWS == 0:
                listener.advance("reading the corpus", len(text_hashes), 0)
        ends.append(len(text_hashes))
    listener.finish("reading the corpus")
    return (
        np.frombuffer(text_hashes, dtype=np.int64),
        np.frombuffer(line_hashes, dtype=np.int64),
        ends,
    )


def _can_count_as_repeated(line: str) -> bool:
    """Returns whether a line counts as repeated if it occurs again.

    Headings ("Results", "Case report") recur in sound corpora; so a line counts from three words
    on, or 25 characters, for languages without spaces.
    """
    return len(line) >= 25 or line.count(" ") >= 2


def _hash(lines: Sequence[str]) -> int:
    """Returns a hash of a document, the same positive number in every process, unlike `hash`."""
    text = "\n".join(lines)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1  # 63 bits: it fits a signed number, and -1 stays free


def _repeated(corpora: Sequence[Corpus], hashes: Ints, *, allowed: bool) -> list[str]:
    """Returns a sentence about repeated lines in a list; an empty list if they are few.

    Args:
        corpora: The corpora, which are read once more for examples.
        hashes: Hashes of their lines; sorted in place.
        allowed: Whether too many repeated lines are only reported.

    Raises:
        DataError: Too many lines are repeated, and this is not allowed.
    """
    hashes.sort()
    is_repeated = hashes[1:] == hashes[:-1]
    n_repeated = int(is_repeated.sum())
    if n_repeated <= MOST_REPEATED * len(hashes):
        return []

    repeated_hashes = hashes[1:][is_repeated]
    documents = chain.from_iterable(corpus.documents() for corpus in corpora)
    lines = chain.from_iterable(document.lines for document in documents)
    repeated_lines = (line for line in lines if _is_among(hash(line), repeated_hashes))
    # One line may recur many times, so two different ones are looked for among the first 1000.
    first_lines = [repr(shorten(line)) for line in itertools.islice(repeated_lines, 1000)]
    different_lines = list(dict.fromkeys(first_lines))
    examples = " and ".join(different_lines[:2])
    message = (
        f"{count_of(n_repeated, len(hashes), 'line')} of the corpus stand further up already, such "
        f"as {examples}"
    )
    if not allowed:
        raise DataError(
            message,
            remedy="A model learns them by heart. Take them out, or add "
            "`pretraining.allow_duplicates=True`.",
        )
    return [message]


def _is_among(number: int, sorted_numbers: Ints) -> bool:
    """Returns whether a number is among sorted numbers, of which there is at least one."""
    position = np.searchsorted(sorted_numbers, number)
    is_above_all = position == len(sorted_numbers)
    return not is_above_all and bool(sorted_numbers[position] == number)


def corpus_rows(documents: Iterable[Document], *, split: str, source: str) -> Rows:
    """Returns documents as rows: `text` has a sentence per line, and is its own label.

    Documents without sentences are left out.

    Args:
        documents: The documents.
        split: Name of the split that the rows are.
        source: Name of their file in messages.
    """
    ids: list[str] = []
    texts: list[str] = []
    for document in documents:
        sentences = document.sentences
        if sentences:
            ids.append(document.id)
            texts.append("\n".join(sentences))
    return Rows(split, {"text": texts, "label": texts}, ids, source)


def held_out_rows(recipe: Recipe, listener: Listener) -> Rows:
    """Returns the documents that a pretrained run was scored on.

    These are the documents of its validation file, or else the documents of its corpora that it
    held out. The same documents are held out whenever the corpora are read.

    Raises:
        BertctlError: A file no longer exists or has changed.
    """
    data = recipe.data
    if data.validation_file:
        scored = open_corpora([data.validation_file], data)
        documents = chain.from_iterable(corpus.documents(listener) for corpus in scored)
        return corpus_rows(documents, split="validation", source=data.validation_file)
    corpora = open_corpora(recipe.pretraining.corpus, data)
    facts = survey(corpora, fraction=data.validation_fraction, allow_duplicates=True)
    held_out_numbers = set(facts.held_out)
    numbered = enumerate(chain.from_iterable(corpus.documents(listener) for corpus in corpora))
    held_out = (document for number, document in numbered if number in held_out_numbers)
    return corpus_rows(held_out, split="validation", source="the documents held out")


class CorpusReader(Reader):
    """Reads a file of any layout of corpora, whole."""

    columns = ("text",)

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the documents of a file.

        Raises:
            UsageError: The source is stdin.
            DataError: The file has no text.
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
