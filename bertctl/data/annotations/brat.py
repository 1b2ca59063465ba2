"""brat's standoff files (brat.nlplab.org/standoff.html).

`x.ann` has a span per line, and `x.txt` its text.

T1	PER 0 9	Anna Berg
T2	LOC 21 26;27 31	Royal Hall     parts with only blanks between them are one span
T3	LOC 21 25;30 34	Oslo Lyon      parts with words between them are none that tags can mark
A1	Negation T1                    attributes, relations, events and notes are counted, and not read
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from bertctl.data.annotations.document import Document, Span, joined_parts
from bertctl.data.pipes import regular
from bertctl.data.read_options import ReadOptions
from bertctl.data.sources import Source
from bertctl.data.text_files import read_text
from bertctl.errors import DataError, UsageError
from bertctl.words import count

_SPAN = re.compile(r"T\S*\t(\S+) (\d+ \d+(?:;\d+ \d+)*)(?:\t(.*))?")
_OTHER_LINES = {
    "R": "relation",
    "*": "equivalence",
    "E": "event",
    "A": "attribute",
    "M": "attribute",
    "N": "normalization",
    "#": "note",
}
"""What a line is by its first character."""


def read(source: Source, options: ReadOptions) -> Iterator[Document]:
    """Yields the one document of an .ann file, whose text is in the .txt file beside it.

    Raises:
        UsageError: It is no file, so that no other one is beside it.
        DataError: A line that should be a span, and is not.
    """
    if not isinstance(source, Path):
        raise UsageError(
            "brat's annotations need their text beside them",
            remedy="Give a file, x.ann, beside x.txt.",
        )
    encoding = options.settings.encoding
    listener = options.listener
    text = read_text(source.with_suffix(".txt"), encoding, listener)
    has_annotations = regular(source).stat().st_size > 0
    if has_annotations:
        annotations = read_text(source, encoding, listener)
    else:  # `read_text` refuses an empty file, but a text may have no spans
        annotations = ""

    spans: list[Span] = []
    surfaces: list[str | None] = []
    n_parted = 0
    other_lines: Counter[str] = Counter()
    for number, line in enumerate(annotations.replace("\r\n", "\n").split("\n"), start=1):
        if not line.startswith("T"):
            other_lines.update(_described(line))
            continue
        match = _SPAN.fullmatch(line)
        if match is None:
            raise DataError(
                f"{source}:{number}: this is not a span of brat: {line!r:.80}",
                remedy="A span is `T1<TAB>PER 0 9<TAB>Anna Berg`, with tabs between its three "
                "parts.",
            )
        kind, offsets, surface = match.groups()
        parts = [(int(start), int(end)) for start, end in map(str.split, offsets.split(";"))]
        joined = joined_parts(text, parts)
        if joined is None:  # words between the parts do not belong to the span
            n_parted += 1
            continue
        spans.append((*joined, kind))
        surfaces.append(surface)
    if other_lines and options.label_needed:
        counted = ", ".join(count(number, name) for name, number in other_lines.items())
        listener.warn(f"{source}: {counted} are not read: entities are learned without them")
    yield Document(
        source.stem,
        text=text,
        spans=spans,
        scores=[],
        parted=n_parted,
        surfaces=surfaces,
    )


def _described(line: str) -> list[str]:
    """Returns what a line is that is no span: `["Negation attribute"]`, `["note"]`; [] if blank."""
    name = _OTHER_LINES.get(line[:1])
    if name is None:
        return []
    _, _, content = line.partition("\t")
    kind, _, _ = content.partition(" ")
    if name == "attribute" and kind:
        return [f"{kind} {name}"]
    return [name]


def write(documents: Iterable[Document], out: TextIO) -> None:
    """Writes the annotations of texts, with offsets in the one file that `write_texts` writes."""
    text_offset = 0
    number = 0
    for document in documents:
        for start, end, kind in document.spans:
            number += 1
            kind_name = "_".join(kind.split())  # a blank would end it
            surface = " ".join(document.text[start:end].splitlines())
            out.write(
                f"T{number}\t{kind_name} {text_offset + start} {text_offset + end}\t{surface}\n"
            )
        text_offset += len(document.text) + 1  # with the line end behind it


def write_texts(documents: Iterable[Document], out: TextIO) -> None:
    """Writes the texts, a line end after each."""
    out.writelines(f"{document.text}\n" for document in documents)
