"""Small words for people, in one place: counts with their noun, shares, sizes, durations, shortened texts."""

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

_MOVING = re.compile(
    # C0 and C1 controls, line separators, direction marks and overrides, what XML 1.0 forbids, byte-order marks
    "[\x00-\x1f\x7f-\x9f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_COMMAND = re.compile(r"(?m)^[^\S\n]*::|##(?=[\w.]*\[)")


def as_number(value: Any) -> float:
    """Returns what a value reads as; NaN where it is no number, or a whole one of more than 308 digits."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def nearly_all(number: int, total: int) -> bool:
    """Returns whether these are nine in ten of all, or all of a few but one: what a column is, others are odd in it."""
    return 10 * number >= 9 * total or (total >= 4 and total - number == 1)


def count(number: int, noun: str, plural: str = "") -> str:
    """Returns `1 run` or `3,000 runs`; `plural` is for nouns that take neither s nor, as entity does, ies."""
    plural = plural or (f"{noun[:-2]}ties" if noun.endswith("ty") else f"{noun}s")
    return f"{number:,} {noun if number == 1 else plural}"


def count_of(number: int, total: int, noun: str) -> str:
    """Returns `12 of 872 rows (1.4 %)`."""
    return f"{number:,} of {count(total, noun)} ({percent(number, total)})"


def percent(number: int, total: int) -> str:
    """Returns a share as `1.4 %`: never 0 where there is something, never 100 where something is left."""
    share = 100 * number / total if total else 0.0
    if 0 < share < 0.05:
        return "under 0.1 %"
    if 99.95 <= share < 100:
        return "over 99.9 %"
    return f"{share:.1f} %"


def human_bytes(number: float) -> str:
    """Returns `1.2 GB`."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def human_seconds(seconds: float, *, brief: bool = False) -> str:
    """Returns `4.2 s`, `12 min 5 s` (brief: `12 min`), `3 h 20 min` or `2 d 4 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min" if brief else f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def visible(text: str) -> str:
    r"""Returns the text on one line: control characters and line ends are written out (`\n`, `\x1b`)."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str, *, keep: str = "") -> str:
    r"""Returns a text with control characters, direction marks and half surrogates, but for those in `keep`, as codes.

    They are written `\n`, `\t`, `\r` or `\u001b`, as in JSON, so JSON stays what it was.
    """

    def written(match: re.Match[str]) -> str:
        one = match[0]
        return one if one in keep else _SHORT.get(one) or f"\\u{ord(one):04x}"

    return _MOVING.sub(written, text)


def spoken(text: str) -> str:
    """Returns lines as they may stand in any log: nothing in them is a control character or a workflow command.

    GitHub's runner obeys `::error ...` at the start of a line and `##[error]...` anywhere in it, Azure's
    `##vso[...]`. Their second character is written as a code, as in JSON.
    """
    shown = harmless(text, keep="\n\t")
    return _COMMAND.sub(lambda match: f"{match[0][:-1]}\\u{ord(match[0][-1]):04x}", shown)


def shorten(value: object, limit: int = 60) -> str:
    """Returns a value on one line, at most `limit` characters long (then an ellipsis)."""
    text = value if isinstance(value, str) else repr(value)
    shown = visible(text[: 4 * limit])
    return shown if len(shown) <= limit and len(text) <= 4 * limit else shown[:limit] + "…"


def listing(names: Sequence[object], limit: int = 12) -> str:
    """Returns `'a', 'b', ... (40 in all)`: the first names in quotes."""
    head = ", ".join(repr(name) for name in names[:limit])
    return head + (f", ... ({len(names)} in all)" if len(names) > limit else "")


def did_you_mean(given: str, known: Iterable[str], *, mark: str = "") -> str:
    """Returns the nearest of the known words as `did you mean a or b?`, or an empty string; all begin with `mark`."""
    by_lower = {word.lower().removeprefix(mark): word for word in known}
    nearest = difflib.get_close_matches(given.lower().removeprefix(mark), by_lower, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(by_lower[word] for word in nearest)}?" if nearest else ""


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """Returns `there is no metric 'acc': did you mean accuracy?`, the head of a refusal; what fits is the remedy's."""
    return hinted(f"there is no {what} '{given}'", given, known)


def hinted(said: str, given: str, known: Iterable[str]) -> str:
    """Returns what is said of something given, and the nearest of the known words, where there are near ones."""
    hint = did_you_mean(given, known)
    return f"{said}: {hint}" if hint else said


def without_secrets(text: str) -> str:
    """Returns a text in which addresses have no password, signature or token."""
    without_passwords = re.sub(r"://[^/\s@]*@", "://", text)
    return re.sub(r"([a-z][a-z0-9+.-]*://[^\s?]*)\?[^\s'\">]*", r"\1", without_passwords, flags=re.IGNORECASE)


def names_in(typed: str) -> list[str]:
    """Returns the names between the commas of `a, b`."""
    return [name.strip() for name in typed.split(",") if name.strip()]
