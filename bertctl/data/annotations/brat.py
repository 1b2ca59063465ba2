"""brat's standoff files (brat.nlplab.org/standoff.html): `x.ann` with a span per line, and its text in `x.txt`.

T1	PER 0 9	Anna Berg
T2	LOC 21 25;30 34	Oslo Lyon      a span of several parts is none that tags can mark
"""

import re
from collections.abc import Iterable, Iterator
from typing import TextIO

from bertctl.data.annotations.document import Document, Span
from bertctl.data.reading import ReadOptions
from bertctl.data.text_files import Source, read_text
from bertctl.errors import DataError, UsageError

_SPAN = re.compile(r"T\S*\t(\S+) (\d+) (\d+)((?:;\d+ \d+)*)(?:\t.*)?")


def read(source: Source, options: ReadOptions) -> Iterator[Document]:
    """Yields the one document of an .ann file, whose text is in the .txt file beside it."""
    if source == "-":
        raise UsageError("brat's annotations need their text beside them", remedy="Give a file, x.ann, beside x.txt.")
    spans: list[Span] = []
    parted = 0
    encoding, listener = options.settings.encoding, options.listener
    annotations = read_text(source, encoding, listener) if source.stat().st_size else ""
    for number, line in enumerate(annotations.replace("\r\n", "\n").split("\n"), start=1):
        if not line.startswith("T"):  # relations, events, attributes, notes
            continue
        found = _SPAN.fullmatch(line)
        if found is None:
            raise DataError(f"{source}:{number}: this is no span of brat: {line!r:.80}")
        if found[4]:
            parted += 1
        else:
            spans.append((int(found[2]), int(found[3]), found[1]))
    yield Document(source.stem, read_text(source.with_suffix(".txt"), encoding, listener), spans, [], parted)


def write(documents: Iterable[Document], out: TextIO) -> None:
    """Writes the annotations of texts that `write_texts` joins."""
    before = number = 0
    for document in documents:
        for start, end, kind in document.spans:
            number += 1
            shown = " ".join(document.text[start:end].splitlines())
            out.write(f"T{number}\t{'_'.join(kind.split())} {before + start} {before + end}\t{shown}\n")
        before += len(document.text) + 1


def write_texts(documents: Iterable[Document], out: TextIO) -> None:
    """Writes the texts, a line end after each."""
    out.writelines(f"{document.text}\n" for document in documents)
