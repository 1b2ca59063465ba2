"""`Finding` and `DataReport`: what a check found, how bad it is, where, and what to do about it."""

import functools
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertctl import words
from bertctl.arrays import sorted_unique
from bertctl.config.strict_yaml import read_document
from bertctl.data.packed_columns import int_column
from bertctl.data.rows import Rows
from bertctl.words import count_of

Severity = Literal["error", "warning", "note"]
"""error: training would refuse the rows, or learns something that is not there. warning: training
goes through, but the score or the model suffers. note: true of the data, and good to know."""

WORST_FIRST: tuple[Severity, ...] = ("error", "warning", "note")

SHOWN_EXAMPLES = 5
NO_WORD = re.compile(r"[\W_]*")
"""What is no word, whole: signs and spaces."""
shorten = functools.partial(words.shorten, limit=100)
"""Returns a value on one line, cut where it is long."""


@dataclass(frozen=True)
class Example:
    """One place in the data.

    Attributes:
        where: `file:line` (or `file, row n`).
        text: what stands there, cut to a line.
    """

    where: str
    text: str


@dataclass(frozen=True)
class Finding:
    """One thing that is true of a split and should be known.

    Attributes:
        code: what kind of thing, in kebab-case; stable from version to version.
        severity: how bad.
        split: the split it is about; empty where it is about all of them.
        count: rows (or words, spans, answers) it is true of.
        total: out of how many.
        message: one sentence, with the numbers in it.
        examples: some of the places, the first ones of the file.
        remedy: what to do.
    """

    code: str
    severity: Severity
    split: str
    count: int
    total: int
    message: str
    examples: tuple[Example, ...] = ()
    remedy: str = ""


@dataclass(frozen=True)
class DataReport:
    """All that was found.

    Attributes:
        splits: what was read: split -> its `source` (a file or hub address), its number of `rows`,
            and its `labels`: label (or tag) -> rows (or words), the most frequent first; empty
                where there are none to count.
        findings: the worst first.
        skipped: checks that could not be made, each with the reason.
        checked: the kinds of things that were looked for.
    """

    splits: dict[str, dict[str, Any]]
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()

    def of(self, severity: Severity) -> list[Finding]:
        """Returns the findings of one severity."""
        return [finding for finding in self.findings if finding.severity == severity]

    def codes(self) -> set[str]:
        """Returns the kinds of things that were found."""
        return {finding.code for finding in self.findings}


def examples_at(
    rows: Rows, indices: Sequence[int], show: Callable[[int], object]
) -> tuple[Example, ...]:
    """Returns the first few rows as examples; `show` gives what is shown of a row."""
    return tuple(
        Example(rows.where(index), shorten(show(index))) for index in indices[:SHOWN_EXAMPLES]
    )


def around(text: str, start: int, end: int, *, margin: int = 40) -> str:
    """Returns the part of a text around a span, so that a fault deep in a long text is seen.

    Args:
        text: The whole text.
        start: First character of the span.
        end: Behind its last character.
        margin: Characters that are shown before and after it.
    """
    shown_start = max(0, start - margin)
    shown_end = min(len(text), end + margin)
    before = "…" if shown_start else ""
    after = "…" if shown_end < len(text) else ""
    return before + text[shown_start:shown_end] + after


def listed(names: Sequence[object], *, limit: int = 8) -> str:
    """Returns names as `'a', 'b' and 3 more`: quoted, and only the first ones of many."""
    quoted_names = ", ".join(f"'{name}'" for name in names[:limit])
    return quoted_names + (f" and {len(names) - limit} more" if len(names) > limit else "")


@functools.cache
def _rules() -> Mapping[str, Mapping[str, Any]]:
    """Returns the table `findings.yaml`: family -> code -> what is said."""
    return read_document(
        Path(__file__).with_name("findings.yaml").read_text(encoding="utf-8")
    ).values


def codes_of(*families: str) -> tuple[str, ...]:
    """Returns the kinds of things that these families look for."""
    return tuple(dict.fromkeys(chain.from_iterable(_rules()[family] for family in families)))


class FindingRules:
    """Makes the findings of one family.

    Their severity, words and remedies stand in `findings.yaml`.
    """

    def __init__(self, family: str) -> None:
        self._family = family

    def finding(
        self,
        code: str,
        split: str,
        counts: tuple[int, int],
        examples: tuple[Example, ...] = (),
        **replacements: str | None,
    ) -> Finding:
        """Returns a finding.

        Args:
            code: Kind of the finding, a row of `findings.yaml`.
            split: Split that it is about; empty for all splits.
            counts: How many rows (or words, ...) it is true of, and out of how many.
            examples: Some of the places.
            replacements: `message` (in place of the counted one), `severity`, `says`, `remedy` or
                `noun`, if they are others than in the table.
        """
        rule = {
            **_rules()[self._family][code],
            **{name: text for name, text in replacements.items() if text is not None},
        }
        message = (
            rule.get("message")
            or f"{count_of(*counts, rule.get('noun', 'row'))} of {split} {rule['says']}"
        )
        matching, total = counts
        return Finding(
            code=code,
            severity=rule["severity"],
            split=split,
            count=matching,
            total=total,
            message=message,
            examples=examples,
            remedy=rule["remedy"],
        )

    def of_rows(
        self,
        code: str,
        rows: Rows,
        split: str,
        which: Sequence[int],
        show: Callable[[int], object],
        **replacements: str | None,
    ) -> Iterator[Finding]:
        """Yields the finding about some rows, or nothing if there are none.

        Args:
            code: Its kind, a row of the table.
            rows: The split's rows.
            split: Its name.
            which: Indices of the rows that the finding is about.
            show: Gives what is shown of the row at an index.
            replacements: As in `finding`.
        """
        if which:
            yield self.finding(
                code,
                split,
                (len(which), len(rows)),
                examples_at(rows, which, show),
                **replacements,
            )


class Places:
    """Collects the places of several kinds of faults in a split, then makes findings of them."""

    def __init__(self, rules: FindingRules, rows: Rows, split: str, *, limit: int = 100) -> None:
        self._rules = rules
        self._rows = rows
        self._split = split
        self._limit = limit  # characters shown of a place
        self._found: dict[str, list[tuple[int, str]]] = {}

    def add(self, code: str, row: int, excerpt: str) -> None:
        """Adds one place with a fault.

        Args:
            code: Kind of the fault, a row of `findings.yaml`.
            row: Number of the row.
            excerpt: What is shown of the row.
        """
        self._found.setdefault(code, []).append((row, excerpt))

    def finding(self, code: str, total: int, *, says: str | None = None) -> Iterator[Finding]:
        """Yields the finding on a kind of fault; nothing if it has no places.

        Args:
            code: Kind of the fault.
            total: How many things were looked at, such as rows or words.
            says: End of the message, in place of that in `findings.yaml`.
        """
        places = self._found.get(code, [])
        if places:
            examples = tuple(
                Example(self._rows.where(row), shorten(excerpt, limit=self._limit))
                for row, excerpt in places[:5]
            )
            yield self._rules.finding(
                code,
                self._split,
                (len(places), total),
                examples,
                says=says,
            )


class MatchedRows:
    """Rows of a split that have a fault, with an excerpt of the first ones for the examples.

    A split is searched column by column, so a row may be added several times. Few excerpts are
    kept, as very many rows may match.

    Args:
        rules: Rules of the family that the fault belongs to.
    """

    def __init__(self, rules: FindingRules) -> None:
        self._rules = rules
        self._shown: dict[int, str] = {}  # row -> excerpt, of the first rows of each column
        self._rows = array("q")  # all rows that were added, some several times
        self._last = -1  # row that was added last
        self._n_of_column = 0  # rows that the column being searched has so far

    def add(self, row: int, excerpt: str) -> None:
        """Adds a row. Columns come one after the other, each in the order of its rows.

        Args:
            row: Number of the row.
            excerpt: Text that shows the fault. If the row was added before, the excerpt of its
                earlier column stays.
        """
        # The rows of a column ascend, so a row that is not greater than the last one begins the
        # next column. A column that happens to begin with a greater row is counted as a part of the
        # column before. That does no harm, as the rows of the two together ascend as well.
        is_same_column = row > self._last
        if is_same_column:
            self._n_of_column += 1
        else:
            self._n_of_column = 1
        self._last = row
        self._rows.append(row)
        # Only the first rows of the split are shown, and these are among the first rows of their
        # columns. So the later rows of a column need no excerpt.
        if self._n_of_column <= SHOWN_EXAMPLES:
            self._shown.setdefault(row, excerpt)

    def findings(
        self, code: str, rows: Rows, split: str, *, remedy: str | None = None
    ) -> Iterator[Finding]:
        """Yields the finding about the rows that were added; nothing if there are none.

        Its examples are the first rows, and `add` has kept the excerpts of these.
        """
        matched = int_column(sorted_unique(np.frombuffer(self._rows, dtype=np.int64)))
        yield from self._rules.of_rows(
            code,
            rows,
            split,
            matched,
            self._shown.__getitem__,
            remedy=remedy,
        )
