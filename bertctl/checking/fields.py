"""Fields without content, and fields that are damaged.

They are stand-ins for missing values, cut-off exports, and rows that a stray quote has swallowed.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from bertctl.checking.findings import NO_WORD, Finding, FindingRules, examples_at, shorten
from bertctl.checking.subject import Subject
from bertctl.data.packed_columns import different_values
from bertctl.data.rows import Rows

_RULES = FindingRules("fields")

_PLACEHOLDERS = frozenset(
    (
        *(
            "NaN",
            "nan",
            "NAN",
            "<NA>",
            "NA",
            "N/A",
            "n/a",
            "#N/A",
            "NULL",
            "null",
            "None",
            "nil",
            "undefined",
        ),
        *(
            "#NAME?",
            "#REF!",
            "#VALUE!",
            "#DIV/0!",
            "#NULL!",
            "#NUM!",
            "[deleted]",
            "[removed]",
            "[object Object]",
        ),
    )
)
_NUMBER = re.compile(r"\s*[-+]?\d+([.,]\d+)*\s*")
_MOSTLY_NUMBERS = 0.5
_EXPORT_LIMITS = (255, 256, 280, 512, 1000, 1024, 2000, 2048, 4000, 4096, 8192, 32767, 65535)
# This many texts, and this share of them, of one such length are not there by chance.
_AT_LIMIT = 5
_AT_LIMIT_SHARE = 0.002


def check_fields(subject: Subject) -> Iterator[Finding]:
    """Yields what is wrong with a field as a whole, before its letters are looked at."""
    for split, rows in subject.splits.items():
        columns = subject.texts[split]
        for name, column in columns.items():
            # Choices may stand by themselves, without a context.
            may_be_blank = name == "context" and "choices" in columns
            if not may_be_blank:
                yield from _blank(rows, split, name, column)
            if name in ("text", "pair", "question", "context"):
                yield from _contentless(rows, split, name, column)
                yield from _cut_off(rows, split, name, column)
                yield from _swallowed(
                    subject,
                    rows,
                    split,
                    name,
                    column,
                )
        yield from _same_sides(subject, split)


def _blank(rows: Rows, split: str, name: str, column: Sequence[str]) -> Iterator[Finding]:
    """Yields the rows in which a field is empty or nothing but spaces."""
    blank = [i for i, text in enumerate(column) if not text or text.isspace()]
    yield from _RULES.of_rows(
        "empty-text",
        rows,
        split,
        blank,
        lambda i: _others(rows, i),
        says=f"have a blank {name}",
    )


def _contentless(rows: Rows, split: str, name: str, column: Sequence[str]) -> Iterator[Finding]:
    """Yields fields that are mostly numbers, stand-ins for a missing value, or only signs."""
    numbers = [i for i, text in enumerate(column) if _NUMBER.fullmatch(text)]
    are_mostly_numbers = len(numbers) > _MOSTLY_NUMBERS * len(rows)
    if are_mostly_numbers:
        examples = examples_at(rows, numbers, column.__getitem__)
        noun = f"{name} field"
        if name == "pair":
            option = "`data.pair_column=`"
        else:
            option = "`data.text_column=`"
        remedy = f"Is it the right column? Name it with {option}."
        yield _RULES.finding(
            "text-is-numbers",
            split,
            (len(numbers), len(rows)),
            examples,
            noun=noun,
            remedy=remedy,
        )
    placeholders: list[int] = []
    wordless: list[int] = []
    for i, text in enumerate(column):
        bare = text.strip() if len(text) < 40 else ""  # longer texts are no stand-ins
        if bare in _PLACEHOLDERS:
            placeholders.append(i)
        elif bare and NO_WORD.fullmatch(bare):
            wordless.append(i)
    for code, row_numbers in {"placeholder-text": placeholders, "no-words": wordless}.items():
        yield from _RULES.of_rows(
            code,
            rows,
            split,
            row_numbers,
            lambda i: repr(column[i]),
            noun=f"{name} field",
        )


def _cut_off(rows: Rows, split: str, name: str, column: Sequence[str]) -> Iterator[Finding]:
    """Yields the longest texts, if many of them end after a round number of characters.

    That number is a limit of Excel, a database or a platform, which cut them off.
    """
    lengths = Counter(map(len, column))
    longest = max(lengths, default=0)
    too_many = max(_AT_LIMIT, _AT_LIMIT_SHARE * len(rows))
    if longest in _EXPORT_LIMITS and lengths[longest] >= too_many:
        cut = [i for i, text in enumerate(column) if len(text) == longest]
        examples = examples_at(rows, cut, lambda i: "…" + column[i][-60:])
        noun = f"{name} field"
        says = f"end after exactly {longest:,} characters, and none is longer"
        yield _RULES.finding(
            "cut-off-export",
            split,
            (len(cut), len(rows)),
            examples,
            noun=noun,
            says=says,
        )


def _swallowed(
    subject: Subject, rows: Rows, split: str, name: str, column: Sequence[str]
) -> Iterator[Finding]:
    """Yields fields that seem to have several rows of the file in them.

    They have more than one line, and a line that ends or begins with a label beside a separator: a
    stray quote has made the reader take these rows for one text.
    """
    label_sets = different_values(subject.label_sets[split] or ())
    labels = sorted(set(chain.from_iterable(label_sets)), key=len, reverse=True)
    if not labels or len(labels) > 1000:  # a pattern of very many labels would be slow
        return
    if not any("\n" in text for text in column):
        return
    words = "|".join(map(re.escape, labels))
    # A label at the end of a line or at the beginning of the next one, beside a separator.
    row_in_field = re.compile(
        rf"^(?:.*[,;\t|])?\"?(?:{words})\"?[ ]*\r?\n|\n\"?(?:{words})\"?[,;\t|]", re.MULTILINE
    )
    row_numbers = [i for i, text in enumerate(column) if "\n" in text and row_in_field.search(text)]
    noun = f"{name} field"
    yield from _RULES.of_rows(
        "swallowed-rows",
        rows,
        split,
        row_numbers,
        lambda i: shorten(column[i], limit=90),
        noun=noun,
    )


def _same_sides(subject: Subject, split: str) -> Iterator[Finding]:
    """Yields the rows whose two texts are the same.

    Some such rows may be meant. If they are more than half, a wrong column was probably named.
    """
    texts = subject.texts[split]
    if "pair" not in texts or "text" not in texts:
        return
    rows = subject.splits[split]
    same_rows = [
        i
        for i, (a, b) in enumerate(zip(texts["text"], texts["pair"], strict=True))
        if a == b and a.strip()
    ]
    severity = "note"
    remedy = "Fine where it is meant (an extreme of similarity); else correct them."
    if len(same_rows) > len(rows) // 2:
        severity = "warning"
        remedy = "Are `data.text_column=` and `data.pair_column=` the right ones?"
    examples = examples_at(rows, same_rows, texts["text"].__getitem__)
    counts = (len(same_rows), len(rows))
    if same_rows:
        yield _RULES.finding(
            "same-text-twice",
            split,
            counts,
            examples,
            severity=severity,
            remedy=remedy,
        )


def _others(rows: Rows, index: int) -> str:
    """Returns the other columns of a row whose text is blank, so that it can be recognised."""
    return ", ".join(
        f"{name}={shorten(values[index], limit=30)}" for name, values in rows.columns.items()
    )
