"""PubTator (ncbi.nlm.nih.gov/research/pubtator).

Title and abstract, then a line with tabs for each span.

1|t|Naloxone reverses the effect of clonidine.
1|a|In rats, ...
1	0	8	Naloxone	Chemical	D009270
"""

import re
from collections.abc import Iterable, Iterator
from typing import TextIO

from bertctl.data.annotations.document import Document, Span
from bertctl.data.read_options import ReadOptions
from bertctl.data.sources import Source, source_name
from bertctl.data.text_files import read_text
from bertctl.errors import DataError

_SPAN_COLUMNS = 5  # identifiers may follow; lines of other widths are relations


def read(source: Source, options: ReadOptions) -> Iterator[Document]:
    """Yields the documents. Offsets count title and abstract as one text, with a blank between.

    Raises:
        DataError: A line that is neither a text nor a span, with file and line.
    """
    # Name of a document -> its title and abstract, its spans, and the words of each span.
    texts: dict[str, list[str]] = {}
    spans: dict[str, list[Span]] = {}
    surfaces: dict[str, list[str | None]] = {}
    text = read_text(source, options.settings.encoding, options.listener)
    for number, line in enumerate(text.split("\n"), start=1):
        where = f"{source_name(source)}:{number}"
        name, bar, rest = line.removesuffix("\r").partition("|")
        if bar and rest[:2] in ("t|", "a|") and "\t" not in name:
            texts.setdefault(name, []).append(rest[2:])
            continue
        columns = line.removesuffix("\r").split("\t")
        if len(columns) < _SPAN_COLUMNS:
            # A blank line parts documents; a relation has fewer columns than a span.
            if line.strip() and len(columns) == 1:
                raise DataError(
                    f"{where}: this is neither a text nor a span of PubTator: {line!r:.80}"
                )
            continue
        text_name, start, end, surface, kind = columns[:_SPAN_COLUMNS]
        is_relation = start.replace("_", "").isalpha()  # in BioRED: `Positive_Correlation`
        if is_relation:
            continue
        has_offsets = start.isdecimal() and end.isdecimal()
        if text_name not in texts or not has_offsets:
            raise DataError(f"{where}: this is not a span of a text above it: {line!r:.80}")
        spans.setdefault(text_name, []).append((int(start), int(end), kind))
        surfaces.setdefault(text_name, []).append(surface)
    for name, parts in texts.items():
        yield Document(
            id=name,
            text=" ".join(parts).rstrip(),
            spans=spans.get(name, []),
            scores=[],
            surfaces=surfaces.get(name, ()),
        )


def write(documents: Iterable[Document], out: TextIO) -> None:
    """Writes texts as titles, and their spans."""
    for document in documents:
        text = "".join(" " if character in "\r\n" else character for character in document.text)
        name = re.sub(r"[|\s]+", "_", document.id)
        out.write(f"{name}|t|{text}\n{name}|a|\n")
        for start, end, kind in document.spans:
            out.write(f"{name}\t{start}\t{end}\t{' '.join(text[start:end].split())}\t{kind}\n")
        out.write("\n")
