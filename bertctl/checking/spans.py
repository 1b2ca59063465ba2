"""Entities as character spans: out of their text, off its words, over each other, blank.

A row has `text` and `spans` (or `entities`, ...): of each the start, the end (behind its last
character) and the type.
"""

from collections.abc import Iterator, Mapping
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
    column = next((name for name in SPAN_COLUMNS if rows.has(name)), None)
    if column is None or not rows.has("text"):
        return
    problems = Places(_RULES, rows, split)
    total = 0
    for row, (text, spans) in enumerate(
        zip(rows.columns["text"], rows.columns[column], strict=True)
    ):
        text = str(text or "")
        if not isinstance(spans, list | tuple):
            spans = ()
        read = [_span(span) for span in spans]
        total += len(read)
        valid_spans: list[Span] = []
        for span, raw_span in zip(read, spans, strict=True):
            if span is None or not 0 <= span[0] < span[1] <= len(text):
                length = count(len(text), "character")
                problems.add("span-out-of-text", row, f"{raw_span!r} in a text of {length}")
            else:
                valid_spans.append(span)
                surface = surface_of(raw_span)
                if surface and surface.strip() and not same_words(text[span[0] : span[1]], surface):
                    excerpt = (
                        f"{span[2]}: {span[0]} to {span[1]} is {text[span[0] : span[1]]!r}, not "
                        f"{surface!r}"
                    )
                    problems.add("span-off-text", row, excerpt)
                    continue
                code = _span_fault(text, span[0], span[1])
                if code:
                    problems.add(
                        code,
                        row,
                        f"{span[2]}: {text[span[0] : span[1]]!r} in {around(text, *span[:2])}",
                    )
        valid_spans.sort()
        furthest = 0
        furthest_kind = ""
        for start, end, kind in valid_spans:
            if start < furthest:
                problems.add(
                    "overlapping-spans",
                    row,
                    f"{furthest_kind} and {kind} share {text[start : min(end, furthest)]!r}",
                )
            if end > furthest:
                furthest = end
                furthest_kind = kind
    for code in codes_of("spans"):
        yield from problems.finding(code, total)


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
    surface = text[start:end]
    if surface != surface.strip():
        return "blank-entity"
    if NO_WORD.fullmatch(surface):
        return "punctuation-entity"
    if cuts_word(text, start, end):
        return "span-off-word"
    return None
