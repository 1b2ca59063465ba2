"""Question answering: answers that are not at their offsets, or cut; what only one side has.

A row has `question`, `context` and, where it is labelled, `label`: {"text": [...], "answer_start":
[...]}, both empty where the context has no answer.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bertctl.checking.findings import NO_WORD, Finding, FindingRules, Places, around, codes_of
from bertctl.checking.subject import Subject
from bertctl.data.word_splitting import cuts_word
from bertctl.tasks.questions.answer_offsets import answer_span, offset_units
from bertctl.words import count, percent

_RULES = FindingRules("answers")

_LONG = 30  # words; longer answers are not found with the usual max_answer_length of 30 tokens
_NEAR = 400  # characters around the offset in which a slipped answer is looked for first


@dataclass
class _Found:
    """The answers of a split: how many, and the faulty ones."""

    places: Places
    total: int = 0
    unanswerable: int = 0
    shifts: list[int] = field(default_factory=list)
    units: list[set[str]] = field(default_factory=list)


def check_answers(subject: Subject) -> Iterator[Finding]:
    """Yields everything about questions and answers."""
    shares: dict[str, float] = {}
    for split, rows in subject.splits.items():
        if not rows.has("label"):
            continue
        tally = _Found(Places(_RULES, rows, split, limit=140))
        for row, (context, label) in enumerate(
            zip(rows.columns["context"], rows.columns["label"], strict=True)
        ):
            _look_at(tally, row, str(context or ""), label)
        yield from _findings(tally)
        if len(rows):
            shares[split] = tally.unanswerable / len(rows)
        else:
            shares[split] = 0.0
    yield from _one_side(subject, shares)


def _look_at(tally: _Found, row: int, context: str, label: Mapping[str, Any]) -> None:
    problems = tally.places
    if not label["text"]:
        tally.unanswerable += 1
    for answer, start in zip(label["text"], label["answer_start"], strict=True):
        tally.total += 1
        span = answer_span(context, answer, start)
        if span is None:
            _off(
                tally,
                row,
                context,
                answer,
                start,
            )
            continue
        excerpt = f"{answer!r} in {around(context, *span, margin=25)}"
        if NO_WORD.fullmatch(answer):
            problems.add("punctuation-answer", row, excerpt)
        elif answer != answer.strip():
            problems.add("untrimmed-answer", row, excerpt)
        elif cuts_word(context, *span):
            problems.add("answer-off-word", row, excerpt)
        if len(answer.split()) > _LONG:
            problems.add("long-answer", row, f"{len(answer.split())} words: {answer}")


def _off(tally: _Found, row: int, context: str, answer: str, start: int) -> None:
    problems = tally.places
    first = max(0, start - _NEAR)
    near = [
        m.start() + first for m in re.finditer(re.escape(answer), context[first : start + _NEAR])
    ]
    at = min(near, key=lambda place: abs(place - start), default=context.find(answer))
    if start >= 0:
        stands = context[start : start + len(answer)]
    else:
        stands = ""
    if at >= 0:
        tally.shifts.append(at - start)
        tally.units.append(offset_units(context, answer, start))
        problems.add(
            "answer-off-offset",
            row,
            f"{answer!r} begins at {at}, not at {start}, where {stands!r} stands",
        )
    elif answer.casefold() in context.casefold():
        problems.add(
            "answer-other-case",
            row,
            f"{answer!r}; the context has it in another case; at {start}: {stands!r}",
        )
    else:
        problems.add("answer-not-in-context", row, f"{answer!r}; at {start} stands {stands!r}")


def _findings(tally: _Found) -> Iterator[Finding]:
    for code in codes_of("answers"):
        for finding in tally.places.finding(code, tally.total):
            if code == "answer-off-offset":
                slipped = f"{_slipped(tally.shifts, tally.units)} "
            else:
                slipped = ""
            yield replace(finding, remedy=slipped + finding.remedy)


def _slipped(shifts: Sequence[int], units: Sequence[set[str]]) -> str:
    if units:
        common = sorted(set.intersection(*units))
    else:
        common = []
    if common:
        return f"All of them count {common[0]}."
    alike = max(set(shifts), key=shifts.count)
    if shifts.count(alike) > len(shifts) / 2 and len(shifts) > 1:
        direction = "later" if alike > 0 else "earlier"
        return f"Most stand {count(abs(alike), 'character')} {direction} than it says."
    if len(shifts) > 1 and (min(shifts) > 0 or max(shifts) < 0):
        return (
            "All are off to one side: offsets counted in bytes, or in a text with other line ends "
            "or spaces."
        )
    return ""


def _one_side(subject: Subject, shares: Mapping[str, float]) -> Iterator[Finding]:
    train = shares.get("train")
    if train is None:
        return
    for split, share in shares.items():
        if split != "train" and (train == 0) != (share == 0):
            rows = len(subject.splits[split])
            of = (round(share * rows), rows)
            if train:
                has = "train"
                lacks = split
            else:
                has = split
                lacks = "train"
            some = percent(round(1000 * max(share, train)), 1000)
            message = f"{has} has questions without an answer ({some}), {lacks} has none"
            remedy = (
                f"Add such questions to {lacks} too, or remove them from {has}. Otherwise, "
                "recognising a question without an answer is not "
                + ("learned." if train == 0 else "measured.")
            )
            yield _RULES.finding(
                "unanswerable-on-one-side",
                split,
                of,
                message=message,
                remedy=remedy,
            )
