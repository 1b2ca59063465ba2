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
class _Tally:
    """Counts of a split's answers and the faulty ones, filled in row by row.

    Attributes:
        places: Faulty answers, by the kind of fault.
        total: Answers that were looked at.
        unanswerable: Rows whose context has no answer.
        shifts: Characters from the offset to where the answer really begins, for each answer that
            is elsewhere; positive where it begins later.
        units: Units ("bytes of UTF-8", ...) in which each of these offsets would be right.
    """

    places: Places
    total: int = 0
    unanswerable: int = 0
    shifts: list[int] = field(default_factory=list)
    units: list[set[str]] = field(default_factory=list)


def check_answers(subject: Subject) -> Iterator[Finding]:
    """Yields answers that are not at their offsets, cut off, or long.

    It also yields questions without an answer that only one split has.
    """
    shares: dict[str, float] = {}
    for split, rows in subject.splits.items():
        if not rows.has("label"):
            continue
        tally = _Tally(Places(_RULES, rows, split, limit=140))
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


def _look_at(tally: _Tally, row: int, context: str, label: Mapping[str, Any]) -> None:
    """Adds the answers of a row to the tally, with their faults.

    An answer has the first fault of these: it is not at its offset, is only punctuation, has spaces
    at an end, cuts a word. A long answer is a fault besides.

    Args:
        tally: The split's answers so far.
        row: Number of the row.
        context: Paragraph that has the answers.
        label: {"text": [...], "answer_start": [...]}; both lists are empty if the context has no
            answer.
    """
    faults = tally.places
    if not label["text"]:
        tally.unanswerable += 1
    for answer, start in zip(label["text"], label["answer_start"], strict=True):
        tally.total += 1
        span = answer_span(context, answer, start)
        if span is None:
            _add_misplaced(tally, row, context=context, answer=answer, start=start)
            continue
        excerpt = f"{answer!r} in {around(context, *span, margin=25)}"
        if NO_WORD.fullmatch(answer):
            faults.add("punctuation-answer", row, excerpt)
        elif answer != answer.strip():
            faults.add("untrimmed-answer", row, excerpt)
        elif cuts_word(context, *span):
            faults.add("answer-off-word", row, excerpt)
        n_words = len(answer.split())
        is_long = n_words > _LONG
        if is_long:
            faults.add("long-answer", row, f"{n_words} words: {answer}")


def _add_misplaced(tally: _Tally, row: int, *, context: str, answer: str, start: int) -> None:
    """Adds an answer that is not at its offset, with the place where the context has it.

    If it is not in the context at all, or only in another case, that is a fault of its own.
    """
    faults = tally.places
    window_start = max(0, start - _NEAR)
    window = context[window_start : start + _NEAR]
    nearby_starts = [
        match.start() + window_start for match in re.finditer(re.escape(answer), window)
    ]
    # -1 if the context has the answer nowhere.
    actual_start = min(
        nearby_starts,
        key=lambda position: abs(position - start),
        default=context.find(answer),
    )
    if start >= 0:
        text_at_start = context[start : start + len(answer)]
    else:
        text_at_start = ""
    if actual_start >= 0:
        tally.shifts.append(actual_start - start)
        tally.units.append(offset_units(context, answer, start))
        faults.add(
            "answer-off-offset",
            row,
            f"{answer!r} begins at {actual_start}, not at {start}, where {text_at_start!r} stands",
        )
    elif answer.casefold() in context.casefold():
        faults.add(
            "answer-other-case",
            row,
            f"{answer!r}; the context has it in another case; at {start}: {text_at_start!r}",
        )
    else:
        faults.add("answer-not-in-context", row, f"{answer!r}; at {start} stands {text_at_start!r}")


def _findings(tally: _Tally) -> Iterator[Finding]:
    """Yields the findings of a split; the remedy for offsets begins with a guess at the cause."""
    for code in codes_of("answers"):
        for finding in tally.places.finding(code, tally.total):
            if code == "answer-off-offset":
                explanation = f"{_shift_explanation(tally.shifts, tally.units)} "
            else:
                explanation = ""
            yield replace(finding, remedy=explanation + finding.remedy)


def _shift_explanation(shifts: Sequence[int], units: Sequence[set[str]]) -> str:
    """Returns a guess at why answers are off their offsets: bytes counted, or all shifted alike.

    The guess is empty where the shifts have nothing in common.

    Args:
        shifts: Characters from each offset to where its answer begins.
        units: Units in which each offset would be right.
    """
    if units:
        common_units = sorted(set.intersection(*units))
    else:
        common_units = []
    if common_units:
        return f"All of them count {common_units[0]}."
    most_common_shift = max(set(shifts), key=shifts.count)
    if shifts.count(most_common_shift) > len(shifts) / 2 and len(shifts) > 1:
        direction = "later" if most_common_shift > 0 else "earlier"
        return f"Most stand {count(abs(most_common_shift), 'character')} {direction} than it says."
    if len(shifts) > 1 and (min(shifts) > 0 or max(shifts) < 0):
        return (
            "All are off to one side: offsets counted in bytes, or in a text with other line ends "
            "or spaces."
        )
    return ""


def _one_side(subject: Subject, shares: Mapping[str, float]) -> Iterator[Finding]:
    """Yields the splits that have unanswerable questions where train has none, or the reverse.

    `shares` has the share of the unanswerable rows of each split.
    """
    train_share = shares.get("train")
    if train_share is None:
        return
    for split, share in shares.items():
        is_one_sided = (train_share == 0) != (share == 0)
        if split != "train" and is_one_sided:
            rows = len(subject.splits[split])
            counts = (round(share * rows), rows)
            if train_share:
                side_with = "train"
                side_without = split
            else:
                side_with = split
                side_without = "train"
            # One of the two shares is 0. `percent` takes a number and a total, not a share.
            larger_share = percent(round(1000 * max(share, train_share)), 1000)
            message = (
                f"{side_with} has questions without an answer ({larger_share}), "
                f"{side_without} has none"
            )
            remedy = (
                f"Add such questions to {side_without} too, or remove them from {side_with}. "
                "Otherwise, recognising a question without an answer is not "
                + ("learned." if train_share == 0 else "measured.")
            )
            yield _RULES.finding(
                "unanswerable-on-one-side",
                split,
                counts,
                message=message,
                remedy=remedy,
            )
