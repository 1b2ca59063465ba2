"""Corpora: files and folders of text as documents of sentences, read as a stream, and looked over before they are used.

one sentence a line      a text file with an empty line between texts: documents end there
one document a line      any other text file; sentences end behind . ! ? and a space
one document a row       JSONL, Parquet, CSV, TSV: the text column, cut into sentences too
"""

import hashlib
import itertools
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertctl.catalog.datasets import BUNDLED_CORPORA
from bertctl.config.recipe_sections import DataSection
from bertctl.data.files import SUFFIXES, suffix_of, text_lines
from bertctl.data.reading import ReadOptions
from bertctl.data.text_files import open_bytes, require_file
from bertctl.data.text_rows import TextReader
from bertctl.documents import sha256_of
from bertctl.errors import DataError, UnavailableError
from bertctl.progress import SILENT, Listener
from bertctl.words import count, count_of, listing, shorten

MOST_HELD_OUT = 1000
"""Documents held out at most: more take longer to score, and tell no more."""
MOST_REPEATED = 0.01
"""Share of the lines that may be repeated: a model learns them by heart (google-research/bert#746)."""

_ROWS = 256  # of a file with columns, read at once: documents may be long
_NO_TEXT = -1  # in place of a hash, which is positive
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")
_READER = TextReader(stratify=False, streams_labels=False, noun="")


class Document(NamedTuple):
    """Is one text of a corpus.

    Attributes:
        id: the file and the line where it begins (Parquet: the row): `file.txt:17`.
        lines: as the file has them, without those that are blank.
        cut: whether a line is a text, which is cut into sentences; else it is a sentence.
    """

    id: str
    lines: Sequence[str]
    cut: bool

    @property
    def sentences(self) -> list[str]:
        """Returns the sentences, none of them blank."""
        if not self.cut:
            return list(self.lines)
        return [found for line in self.lines for sentence in _SENTENCE_END.split(line) if (found := sentence.strip())]


@dataclass(frozen=True)
class Corpus:
    """Is a file, or the files of a folder.

    Attributes:
        name: what it is called where corpora are weighed: the file's name without suffixes, or the folder's.
        files: what the ids of documents call a file -> the file, in the order in which they are read.
        settings: text column, encoding, delimiter, header and longest line, as a recipe's section says them.
    """

    name: str
    files: Mapping[str, Path]
    settings: DataSection

    def documents(self, listener: Listener = SILENT) -> Iterator[Document]:
        """Yields the documents in order; those without a text have no lines.

        Raises:
            UsageError: a text column that can't be guessed.
            DataError: bytes, records, columns or a line that are not what they should be, with file and line.
            UnavailableError: a file that is gone.
        """
        for label, path in self.files.items():
            rows = SUFFIXES.get(suffix_of(path), "lines") != "lines"
            for line, lines, cut in (_rows if rows else _texts)(path, self.settings, listener):
                yield Document(f"{label}:{line}", lines, cut)

    def fingerprint(self) -> list[list[str]]:
        """Returns what decides the text of each file: how it is read by its suffix, and the SHA-256 of its bytes."""
        try:
            return [[suffix_of(path), path.suffix.lower(), sha256_of(path)] for path in self.files.values()]
        except OSError as error:
            raise UnavailableError(f"{error.filename} can't be read: {error.strerror}", file=error.filename) from error


def open_corpora(given: Sequence[str], settings: DataSection) -> list[Corpus]:
    """Returns the corpora that were named, with their files.

    Args:
        given: files, or folders, of which every file with a known suffix counts, in folders inside too; or the name of
            a corpus inside the package.
        settings: how files are read.

    Raises:
        UnavailableError: nothing there, or a folder without such a file.
    """
    places = [_place(each) for each in given]
    names = [name for name, _ in places]
    found = [_files(path) for _, path in places]
    labels = [label for files in found for label in files]
    corpora = []
    for typed, name, files in zip(given, names, found, strict=True):
        unique = {label if labels.count(label) == 1 else f"{typed}/{label}": path for label, path in files.items()}
        corpora.append(Corpus(name if names.count(name) == 1 else typed, unique, settings))
    return corpora


def _place(given: str) -> tuple[str, Path]:
    """Returns what a corpus is called, and where it is."""
    if given in BUNDLED_CORPORA:
        return given, BUNDLED_CORPORA[given]
    path = Path(given).expanduser()
    return (path.resolve().name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem), path


def _files(path: Path) -> dict[str, Path]:
    if not path.is_dir():
        require_file(path)
        return {path.name: path}
    inside = {f"/{file.relative_to(path).as_posix()}": file for file in path.rglob("*") if suffix_of(file) in SUFFIXES}
    found = {name[1:]: inside[name] for name in sorted(inside) if inside[name].is_file() and "/." not in name}
    if not found:
        raise UnavailableError(
            f"{path} holds no file of text", remedy=f"Suffixes: {', '.join(SUFFIXES)}, each also with .gz.", file=path
        )
    return found


def _texts(path: Path, settings: DataSection, listener: Listener) -> Iterator[tuple[int, list[str], bool]]:
    """Yields line, lines and `cut` of each document of a text file."""
    options = ReadOptions(settings, "train", chunk_rows=_ROWS, listener=listener)
    with open_bytes(path) as file:
        one_a_line = not _has_gaps(text_lines(file, str(path), options))
    listener.say(f"{path}: one {'document' if one_a_line else 'sentence'} a line")
    begins, lines = 0, list[str]()
    with open_bytes(path) as file:
        for number, raw in enumerate(text_lines(file, str(path), ReadOptions(settings, "train")), start=1):
            line = raw.strip()
            if line and one_a_line:
                yield number, [line], True
            elif line:
                begins = begins if lines else number
                lines.append(line)
            elif lines:
                yield begins, lines, False
                lines = []
    if lines:
        yield begins, lines, False


def _has_gaps(lines: Iterator[str]) -> bool:
    """Whether an empty line stands between two others."""
    text = gap = False
    for line in lines:
        if line.isspace():
            gap = text
        elif gap:
            return True
        else:
            text = True
    return False


def _rows(path: Path, settings: DataSection, listener: Listener) -> Iterator[tuple[int, list[str], bool]]:
    """Yields line (or row), lines and `cut` of each row of a file with columns."""
    before = 0
    for rows in _READER.stream(path, settings, chunk_rows=_ROWS, listener=listener):
        places = rows.lines or range(before + 1, before + len(rows) + 1)
        for place, text in zip(places, rows.columns["text"], strict=True):
            yield place, [line for each in text.splitlines() if (line := each.strip())], True
        before += len(rows)


@dataclass(frozen=True)
class Survey:
    """Is what is known of corpora after they were read once.

    Attributes:
        documents: with a text, of each corpus.
        blank: documents without one, which are left out.
        lines: that count as one that may be repeated.
        repeated: how many of them stand further up already.
        examples: two of those, the most frequent first; none where they are few.
        held_out: numbers of the documents held out for validation, counted over all that the corpora yield.
    """

    documents: tuple[int, ...]
    blank: int
    lines: int
    repeated: int
    examples: tuple[str, ...]
    held_out: frozenset[int]

    def check_repeated(self, *, allowed: bool, listener: Listener) -> None:
        """Refuses more repeated lines than `MOST_REPEATED`; where they are allowed, they are told.

        Raises:
            DataError: how many, two of them, and the way out.
        """
        if self.repeated <= MOST_REPEATED * self.lines:
            return
        shown = listing([shorten(line) for line in self.examples])
        what = f"{count_of(self.repeated, self.lines, 'line')} of the corpus stand further up already, such as {shown}"
        if not allowed:
            raise DataError(
                what,
                remedy="A model learns such lines by heart, and little else. Take them out, or add --allow-duplicates.",
            )
        listener.warn(what)


def survey(corpora: Sequence[Corpus], *, fraction: float | None, listener: Listener = SILENT) -> Survey:
    """Reads corpora once and returns what has to be known of them before they are packed.

    Documents with the smallest hashes of their texts are held out: which these are depends on nothing but the texts,
    and equal texts are on one side.

    Args:
        corpora: at least one.
        fraction: share of the documents to hold out, at most `MOST_HELD_OUT`, at least one; None holds out none.
        listener: told of what is guessed about the files.

    Raises:
        UsageError: a text column that can't be guessed.
        DataError: files that are not what they should be; a corpus without text, or with none left for training.
    """
    lines, texts, ends = array("q"), array("q"), [0]
    for corpus in corpora:
        for document in corpus.documents(listener):
            lines.extend(hash(line) for line in document.lines if _counts(line))
            texts.append(_text_hash(document.lines) if document.lines else _NO_TEXT)
        ends.append(len(texts))
    hashes = np.frombuffer(texts, dtype=np.int64)
    has_text = hashes != _NO_TEXT
    held = has_text & (hashes <= _highest_held_out(hashes[has_text], fraction))
    spans = [slice(a, b) for a, b in itertools.pairwise(ends)]
    sizes = [int(has_text[span].sum()) for span in spans]
    for corpus, size, span in zip(corpora, sizes, spans, strict=True):
        if not size:
            raise DataError(f"the corpus '{corpus.name}' holds no text", remedy="Give a file with text.")
        if held[span].sum() == size or (fraction is not None and not held.any()):
            raise DataError(
                f"the corpus '{corpus.name}' has {count(size, 'document')}, and none to train on beside those that are "
                "held out for validation",
                remedy="Give more documents, with empty lines between them, or a file with --validation-file.",
            )
    repeated, most = _repeated(np.frombuffer(lines, dtype=np.int64))
    return Survey(
        documents=tuple(sizes),
        blank=int((~has_text).sum()),
        lines=len(lines),
        repeated=repeated,
        examples=_lines_of(corpora, most) if repeated > MOST_REPEATED * len(lines) else (),
        held_out=frozenset(np.flatnonzero(held).tolist()),
    )


def _counts(line: str) -> bool:
    """Whether a repeated line is one too many. Headings ("Results", "Case report") recur in sound corpora; so a line
    counts from three words on, or 25 characters, for languages without spaces.
    """
    return len(line) >= 25 or line.count(" ") >= 2


def _text_hash(lines: Sequence[str]) -> int:
    return int.from_bytes(hashlib.blake2b("\n".join(lines).encode(), digest_size=8).digest()) & (2**63 - 1)


def _highest_held_out(hashes: NDArray[np.int64], fraction: float | None) -> int:
    """Returns the hash up to which documents are held out; `_NO_TEXT` for none."""
    different = np.unique(hashes)
    wanted = 0 if fraction is None else min(MOST_HELD_OUT, max(1, round(fraction * len(hashes))), len(different) - 1)
    return int(different[wanted - 1]) if wanted > 0 else _NO_TEXT


def _repeated(hashes: NDArray[np.int64]) -> tuple[int, list[int]]:
    """Returns how many values stand further up already, and the two most frequent values. Sorts them in place."""
    hashes.sort()
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])) if len(hashes) else hashes
    most = np.argsort(np.diff(first, append=len(hashes)), kind="stable")[:-3:-1]
    return len(hashes) - len(first), hashes[first[most]].tolist()


def _lines_of(corpora: Sequence[Corpus], hashes: Sequence[int]) -> tuple[str, ...]:
    """Returns the lines with these hashes."""
    found: dict[int, str] = {}
    for corpus in corpora:
        for document in corpus.documents():
            found |= {hash(line): line for line in document.lines if hash(line) in hashes}
            if len(found) == len(hashes):
                return tuple(found[each] for each in hashes)
    return tuple(found.values())
