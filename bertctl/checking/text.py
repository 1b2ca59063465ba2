r"""Faults in the letters.

They are wrong decoding, lost and invisible characters, markup, escapes and quotes left over.
"""

import codecs
import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

from bertctl.checking.findings import Finding, FindingRules, MatchedRows, around, shorten
from bertctl.checking.subject import BETWEEN_FIELDS, Subject
from bertctl.data.rows import Rows
from bertctl.data.table import in_chunks
from bertctl.words import first_difference

_RULES = FindingRules("letters")

_MAYBE_MOJIBAKE = re.compile(
    r"[\u0080-\u00ff\u0152-\u0178\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]{2}|[ÃÂÐÑâ]"
)
_LOOKED_AT = 1024  # texts that are looked at together
_LONGEST_REPAIR = 5000  # characters of a text in which wrong decoding is looked for


@dataclass(frozen=True)
class Pattern:
    """A fault that a regular expression finds.

    Attributes:
        code: Code of the finding.
        pattern: What is searched for; its first match is shown.
        hint: Substring that every match contains, so that most texts are skipped fast; empty if
            there is none.
    """

    code: str
    pattern: re.Pattern[str]
    hint: str


_TAGS = (
    "a|abbr|article|b|blockquote|body|br|button|center|code|dd|div|dl|dt|em|font|footer|form|"
    "h[1-6]|head|header|hr|html|i|iframe|img|input|ins|label|li|link|meta|nav|ol|option|p|pre|q|"
    "s|script|section|select|small|span|strike|strong|style|sub|"
    "sup|svg|table|tbody|td|textarea|tfoot|th|thead|title|tr|tt|u|ul|video"
)

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")

PATTERNS = (
    Pattern("replacement-character", re.compile("\ufffd"), "\ufffd"),
    Pattern("control-character", _CONTROL, ""),
    Pattern(
        "invisible-character",
        re.compile("[\u200b\u2060\ufeff\u00ad\u202a-\u202e\u2066-\u2069]"),
        "",
    ),
    Pattern(
        "html-tag",
        re.compile(
            rf"</(?:{_TAGS})\s*>|<(?:{_TAGS})(?:\s+[a-z-]+\s*=\s*[\"'][^<>]*)?\s*/?>|<!--",
            re.IGNORECASE,
        ),
        "<",
    ),
    Pattern(
        "html-entity",
        re.compile(
            r"&(?:amp|lt|gt|quot|apos|nbsp|ndash|mdash|[lr][sd]quo|hellip|copy|eacute|[aou]uml|"
            r"szlig|#\d{2,6}|#x[0-9a-f]{2,6});",
            re.IGNORECASE,
        ),
        "&",
    ),
    Pattern(
        "escape-sequence",
        re.compile(r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}(?![0-9a-zA-Z])|\\[nrt](?![a-z])"),
        "\\",
    ),
    Pattern(
        "csv-quotes", re.compile(r'^"[^"]*""[^"]+""|^"(?:[^"]|"")*""[^"]+""(?:[^"]|"")*"$'), '""'
    ),
)


def check_text(subject: Subject) -> Iterator[Finding]:
    """Yields wrong decoding, invisible characters, markup, escapes and quotes left in texts."""
    for split, rows in subject.splits.items():
        columns = subject.texts[split]
        matches = _pattern_matches(columns.values())
        for pattern in PATTERNS:
            of_control = pattern.pattern is _CONTROL
            if of_control:
                remedy = _better_encoding(subject.recipe.data.encoding, columns)
            else:
                remedy = None
            yield from matches[pattern.code].findings(pattern.code, rows, split, remedy=remedy)
        yield from _mojibake(rows, split, columns)


def _pattern_matches(columns: Iterable[Sequence[str]]) -> dict[str, MatchedRows]:
    """Returns the rows that each pattern matches, by its code, in all columns of a split.

    A pattern's hint is a string that each match contains; it is empty if there is no such string.
    """
    matches = {pattern.code: MatchedRows(_RULES) for pattern in PATTERNS}
    for column in columns:
        n_read = 0
        for texts in in_chunks(column, _LOOKED_AT):
            # The field separator of joined columns is a control character of ours.
            together = "".join(texts).replace(BETWEEN_FIELDS, " ")
            for pattern in PATTERNS:
                # One search in all texts is faster than one in each.
                if pattern.hint not in together:
                    continue
                # Control characters have no hint, so the pattern itself is searched for.
                if pattern.pattern is _CONTROL and not _CONTROL.search(together):
                    continue
                for row, text in enumerate(texts, start=n_read):
                    if pattern.hint not in text:
                        continue
                    match = pattern.pattern.search(text.replace(BETWEEN_FIELDS, " "))
                    if match:
                        matches[pattern.code].add(row, around(match.string, *match.span()))
            n_read += len(texts)
    return matches


def _better_encoding(encoding: str | None, columns: dict[str, Sequence[str]]) -> str | None:
    """Returns a remedy that names the encoding of a file that was read as latin-1, or None.

    It is the first encoding by which no control character is left in the texts.
    """
    if not encoding or codecs.lookup(encoding).name != "iso8859-1":
        return None
    # The separator of joined fields is a control character of ours.
    text = "".join(itertools.chain(*columns.values())).replace(BETWEEN_FIELDS, "")
    for better in ("utf-8", "cp1252"):
        with contextlib.suppress(UnicodeError):
            if not _CONTROL.search(text.encode("latin-1").decode(better)):
                return f"Read the file as it was written: `data.encoding={better}`."
    return None


def _mojibake(rows: Rows, split: str, columns: dict[str, Sequence[str]]) -> Iterator[Finding]:
    """Yields a finding on UTF-8 that was read as something else, such as `Â£5` for `£5`.

    The library ftfy repairs such texts, and leaves words like `MÂCON` as they are.
    """
    matches = MatchedRows(_RULES)
    for column in columns.values():
        for i, text in enumerate(column):
            if not text.isascii() and _MAYBE_MOJIBAKE.search(text):
                beginning = text[:_LONGEST_REPAIR]  # repairing a long text takes long
                repaired = _repairer()(beginning)
                if repaired != beginning:
                    matches.add(i, _difference(text, repaired))
    yield from matches.findings("mojibake", rows, split)


@cache
def _repairer() -> Callable[[str], str]:
    """Returns a function that undoes wrong decoding.

    It leaves quotes, entities and ligatures alone, which ftfy would change by default.
    """
    import ftfy

    settings = ftfy.TextFixerConfig(
        restore_byte_a0=True,
        replace_lossy_sequences=False,
        decode_inconsistent_utf8=True,
        fix_c1_controls=False,
    )
    return partial(ftfy.fix_encoding, config=settings)


def _difference(text: str, repaired: str) -> str:
    """Returns the part around the first letter that changes, before and after."""
    position = first_difference(text, repaired)
    start = max(0, position - 20)
    text_part = shorten(text[start : position + 30], limit=60)
    # Wrong decoding makes two letters and more of one: the repaired part is a little shorter.
    repaired_part = shorten(repaired[start : position + 28], limit=60)
    return f"{text_part}  (meant: {repaired_part})"
