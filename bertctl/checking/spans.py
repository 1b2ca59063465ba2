"""Entities as character spans: out of their text, off its words, over each other, blank.

A row has `text` and `spans` (or `entities`, ...): of each the start, the end (behind its last
character) and the type.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bertctl.checking.findings import NO_WORD, Finding, FindingRules, Places, around, codes_of
from bertctl.checking.subject import Subject
from bertctl.data.annotations.document import Span
from bertctl.data.annotations.surface import same_words
from bertctl.data.rows import Rows
from bertctl.data.spans import named_parts, surface_of
from bertctl.data.tagged_tables import SPAN_COLUMNS
from bertctl.data.word_splitting import cuts_word
from bertctl.words import count

_RULES = FindingRules("spans")


def check_spans(subject: Subject) -> Iterator[Finding]:
    """Yields spans out of their text, off its words, over each other, blank."""
    for split, rows in subject.splits.items():
        yield from _of_split(rows, split)


def _of_split(rows: Rows, split: str) -> Iterator[Finding]:
    """Yields the findings on spans of one split; each counts the faulty spans of all its spans."""
    span_column = next((name for name in SPAN_COLUMNS if rows.has(name)), None)
    if span_column is None or not rows.has("text"):
        return
    faults = Places(_RULES, rows, split)
    total = 0
    for row, (text, raw_spans) in enumerate(
        zip(rows.columns["text"], rows.columns[span_column], strict=True)
    ):
        text = str(text or "")
        if not isinstance(raw_spans, list | tuple):
            raw_spans = ()
        total += len(raw_spans)
        valid_spans: list[Span] = []
        for raw_span in raw_spans:
            span = _span(raw_span)
            if span is None or not 0 <= span[0] < span[1] <= len(text):
                length = count(len(text), "character")
                faults.add("span-out-of-text", row, f"{raw_span!r} in a text of {length}")
            else:
                valid_spans.append(span)
                _add_fault(faults, row, text=text, span=span, surface=surface_of(raw_span))
        _add_overlaps(faults, row, text, sorted(valid_spans))
    for code in codes_of("spans"):
        yield from faults.finding(code, total)


def _add_fault(faults: Places, row: int, *, text: str, span: Span, surface: str | None) -> None:
    """Adds the first fault of a span that is inside its text, if it has one.

    Args:
        faults: Faults of the split so far.
        row: The span's row.
        text: The text of the row.
        span: Start, end and type.
        surface: The span's text as the file gives it, if the file does. It should be the text
            between start and end.
    """
    start, end, kind = span
    actual = text[start:end]
    if surface and surface.strip() and not same_words(actual, surface):
        excerpt = f"{kind}: {start} to {end} is {actual!r}, not {surface!r}"
        faults.add("span-off-text", row, excerpt)
        return
    code = _span_fault(text, start, end)
    if code:
        faults.add(code, row, f"{kind}: {actual!r} in {around(text, start, end)}")


def _add_overlaps(faults: Places, row: int, text: str, spans: Sequence[Span]) -> None:
    """Adds a fault for each span that begins before an earlier span has ended.

    Args:
        faults: Faults of the split so far.
        row: The row of the spans.
        text: Its text.
        spans: Its valid spans, sorted by their starts.
    """
    furthest = 0  # end of the span that reaches furthest so far
    furthest_kind = ""
    for start, end, kind in spans:
        if start < furthest:
            shared = text[start : min(end, furthest)]
            faults.add("overlapping-spans", row, f"{furthest_kind} and {kind} share {shared!r}")
        if end > furthest:
            furthest = end
            furthest_kind = kind


def _span(raw_span: Any) -> Span | None:
    """Returns a span from `{start, end, label}` or `[start, end, label]`, else None."""
    if isinstance(raw_span, Mapping):
        start, end, kind = named_parts(raw_span)
    elif isinstance(raw_span, list | tuple) and len(raw_span) >= 2:
        start, end, kind = [*raw_span, None][:3]
    else:
        return None
    if isinstance(start, int) and isinstance(end, int):
        return (start, end, "" if kind is None else str(kind))
    return None


def _span_fault(text: str, start: int, end: int) -> str | None:
    """Returns the code of the fault in what a span covers, or None."""
    surface = text[start:end]
    if surface != surface.strip():
        return "blank-entity"
    if NO_WORD.fullmatch(surface):
        return "punctuation-entity"
    if cuts_word(text, start, end):
        return "span-off-word"
    return None
