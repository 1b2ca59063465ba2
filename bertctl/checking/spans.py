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

_RULES = FindingRules("spans")


def check_spans(subject: Subject) -> Iterator[Finding]:
    """Yields spans out of their text, off its words, over each other, blank."""
    for split, rows in subject.splits.items():
        yield from _of_split(rows, split)


def _of_split(rows: Rows, split: str) -> Iterator[Finding]:
    column = next((name for name in SPAN_COLUMNS if rows.has(name)), None)
    if column is None or not rows.has("text"):
        return
    places = Places(_RULES, rows, split)
    total = 0
    for row, (text, spans) in enumerate(
        zip(rows.columns["text"], rows.columns[column], strict=True)
    ):
        text = str(text or "")
        if isinstance(spans, list | tuple):
            spans = spans
        else:
            spans = ()
        read = [_span(span) for span in spans]
        total += len(read)
        inside: list[Span] = []
        for span, given in zip(read, spans, strict=True):
            if span is None or not 0 <= span[0] < span[1] <= len(text):
                places.add(
                    "span-out-of-text", row, f"{given!r} in a text of {len(text)} characters"
                )
            else:
                inside.append(span)
                surface = surface_of(given)
                if surface and surface.strip() and not same_words(text[span[0] : span[1]], surface):
                    shown = (
                        f"{span[2]}: {span[0]} to {span[1]} is {text[span[0] : span[1]]!r}, not "
                        f"{surface!r}"
                    )
                    places.add("span-off-text", row, shown)
                    continue
                code = _span_fault(text, span[0], span[1])
                if code:
                    places.add(
                        code,
                        row,
                        f"{span[2]}: {text[span[0] : span[1]]!r} in {around(text, *span[:2])}",
                    )
        inside.sort()
        furthest = 0
        one = ""
        for start, end, kind in inside:
            if start < furthest:
                places.add(
                    "overlapping-spans",
                    row,
                    f"{one} and {kind} share {text[start : min(end, furthest)]!r}",
                )
            if end > furthest:
                furthest = end
                one = kind
    for code in codes_of("spans"):
        yield from places.finding(code, total)


def _span(given: Any) -> Span | None:
    """Returns a span from `{start, end, label}` or `[start, end, label]`; None where it is
    neither.
    """
    if isinstance(given, Mapping):
        start, end, kind = named_parts(given)
    elif isinstance(given, list | tuple) and len(given) >= 2:
        start, end, kind = [*given, None][:3]
    else:
        return None
    if isinstance(start, int) and isinstance(end, int):
        return (start, end, "" if kind is None else str(kind))
    return None


def _span_fault(text: str, start: int, end: int) -> str | None:
    inside = text[start:end]
    if inside != inside.strip():
        return "blank-entity"
    if NO_WORD.fullmatch(inside):
        return "punctuation-entity"
    if cuts_word(text, start, end):
        return "span-off-word"
    return None
