"""`Finding` and `DataReport`: what a check found, how bad it is, where, and what to do about it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bertctl.data.rows import Rows

Severity = Literal["error", "warning", "note"]
"""error: training would refuse the rows, or learns something that is not there. warning: training goes through, but
the score or the model suffers. note: true of the data, and good to know."""

WORST_FIRST: tuple[Severity, ...] = ("error", "warning", "note")

SHOWN_EXAMPLES = 5
_SHOWN_CHARACTERS = 100


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
class SplitSummary:
    """A split in numbers.

    Attributes:
        split: its name.
        source: the file or hub address.
        rows: how many.
        labels: label (or tag) -> rows (or words), the most frequent first; empty where there are none to count.
    """

    split: str
    source: str
    rows: int
    labels: dict[str, int]


@dataclass(frozen=True)
class DataReport:
    """All that was found.

    Attributes:
        splits: what was read.
        findings: the worst first.
        skipped: checks that could not be made, each with the reason.
    """

    splits: tuple[SplitSummary, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()

    def of(self, severity: Severity) -> list[Finding]:
        """The findings of one severity."""
        return [finding for finding in self.findings if finding.severity == severity]

    def codes(self) -> set[str]:
        """The kinds of things that were found."""
        return {finding.code for finding in self.findings}


def examples_at(
    rows: Rows, indices: Iterable[int], show: Callable[[int], object], *, limit: int = SHOWN_EXAMPLES
) -> tuple[Example, ...]:
    """The first few rows as examples; `show` gives what is shown of a row."""
    found: list[Example] = []
    for index in indices:
        if len(found) == limit:
            break
        found.append(Example(rows.where(index), shorten(show(index))))
    return tuple(found)


def shorten(value: object, *, limit: int = _SHOWN_CHARACTERS) -> str:
    """A value on one line, control characters written out, cut in the middle of a long text."""
    text = value if isinstance(value, str) else repr(value)
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: 4 * limit])
    return visible if len(visible) <= limit and len(text) <= 4 * limit else visible[:limit] + "…"


def around(text: str, start: int, end: int, *, margin: int = 40) -> str:
    """The part of a text around a place, so that a fault deep in a long text is seen."""
    first, last = max(0, start - margin), min(len(text), end + margin)
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")


def count_of(count: int, total: int, noun: str) -> str:
    """`12 of 872 rows (1.4 %)`, the head of most messages."""
    return f"{count:,} of {total:,} {noun if total == 1 else noun + 's'} ({percent(count, total)})"


def percent(count: int, total: int) -> str:
    """A share as `1.4 %`; never 0 where there is something, never 100 where something is left."""
    share = 100 * count / total if total else 0.0
    if 0 < share < 0.05:
        return "under 0.1 %"
    if 99.95 <= share < 100:
        return "over 99.9 %"
    return f"{share:.1f} %"


def listed(names: Sequence[Any], *, limit: int = 8) -> str:
    """Names in a row, cut where there are many."""
    shown = ", ".join(f"'{name}'" for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


class Places:
    """Collects the places of several kinds of faults in a split, then makes findings of them."""

    def __init__(self, rows: Rows, split: str) -> None:
        self._rows = rows
        self._split = split
        self._found: dict[str, list[tuple[int, str]]] = {}

    def add(self, code: str, row: int, shown: str) -> None:
        """One place: its row, and what is shown of it."""
        self._found.setdefault(code, []).append((row, shown))

    def finding(
        self, code: str, severity: Severity, total: int, noun: str, says: str, remedy: str
    ) -> Iterator[Finding]:
        """The finding `n of TOTAL NOUNs of SPLIT SAYS`, where there is a place."""
        found = self._found.get(code, [])
        if found:
            yield Finding(
                code,
                severity,
                self._split,
                len(found),
                total,
                f"{count_of(len(found), total, noun)} of {self._split} {says}",
                tuple(Example(self._rows.where(row), shorten(shown)) for row, shown in found[:5]),
                remedy,
            )
