"""Small words for people, in one place.

They are counts with their noun, shares, sizes, durations, and shortened texts.
"""

import difflib
import math
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_ESCAPED = re.compile(
    # C0 and C1 controls, line separators, direction marks and overrides, what XML 1.0 forbids,
    # byte-order marks
    "[\x00-\x1f\x7f-\x9f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufeff\ufffe\uffff]"
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_BEGINNING = 3  # letters that say which word was meant
_COMMAND = re.compile(r"(?m)^[^\S\n]*::|##(?=[\w.]*\[)")


_UNIT = r"[%‰$€£¥₹]|EUR|USD|GBP|CHF|stars?|points?|pts?|percent"
_SIGNED_NUMBER = re.compile(
    rf"(?P<before>(?:{_UNIT})\s*)?(?P<number>[-+]?\d+(?:,\d{{3}})*(?:\.\d+)?)"
    rf"(?P<after>\s*(?:{_UNIT})|\s*(?:/|out of|von)\s*\d+)?",
    re.IGNORECASE,
)
_WITH_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3})+\.\d+|(?:,\d{3}){2,})")


def as_number(value: Any) -> float:
    """Returns the number that a value reads as.

    It is NaN for other values, and for whole numbers of more than 308 digits.
    """
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def number_with_sign(text: str) -> str | None:
    """Returns the number in a text such as `85.5%`, `$3.50`, `1,234.5` or `4.5/5`.

    It returns None for other texts, and for a number alone, such as `4.5`.
    """
    match = _SIGNED_NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    has_sign = match["before"] or match["after"] or _WITH_THOUSANDS.fullmatch(match["number"])
    if not has_sign:
        return None
    return match["number"].replace(",", "")


def nearly_all(number: int, total: int) -> bool:
    """Returns whether these are nine in ten of all, or all of a few but one.

    Values that are not among them are odd ones.
    """
    return 10 * number >= 9 * total or (total >= 4 and total - number == 1)


def count(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun, such as `1 run`, `3,000 runs` or `2 entities`.

    Args:
        number: How many there are.
        noun: The noun in the singular.
        plural: The plural, if it is neither the noun with an s nor one in -ties.
    """
    if number == 1:
        return f"1 {noun}"
    if not plural and noun.endswith("ty"):
        plural = f"{noun[:-2]}ties"
    elif not plural:
        plural = f"{noun}s"
    return f"{number:,} {plural}"


def count_of(number: int, total: int, noun: str) -> str:
    """Returns `12 of 872 rows (1.4 %)`."""
    return f"{number:,} of {count(total, noun)} ({percent(number, total)})"


def percent(number: int, total: int) -> str:
    """Returns a share as `1.4 %`, never 0 for something and never 100 for less than all."""
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
    """Returns a duration such as `4.2 s`, `12 min 35 s`, `3 h 20 min` or `2 d 4 h`.

    Args:
        seconds: The duration.
        brief: Whether minutes are rounded instead of followed by seconds: `13 min`.
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    # Rounded before it is compared, so that no duration is `60 min`.
    whole_seconds = round(seconds)
    minutes = round(seconds / 60)
    if whole_seconds < 3600 and not brief:
        return f"{whole_seconds // 60} min {whole_seconds % 60} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def floor_to_tenth(number: float) -> float:
    """Returns a number in tenths, rounded down, so that nearly all never reads as all."""
    return math.floor(10 * number) / 10


_SECONDS_OF_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_in(duration: str) -> float:
    """Returns the seconds in a duration such as `30s`, `20m` or `1.5h`."""
    return float(duration[:-1]) * _SECONDS_OF_UNIT[duration[-1]]


def visible(text: str) -> str:
    r"""Returns the text on one line.

    Control characters and line ends are written out (`\n`, `\x1b`).
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str, *, keep: str = "") -> str:
    r"""Returns a text whose control characters, direction marks and half surrogates are escaped.

    They become `\n`, `\t`, `\r` or `\u001b`, as in strings of JSON. So the values of a JSON
    document stay the same.

    Args:
        text: The text.
        keep: Characters that are not escaped, such as `\n`.
    """

    def written(match: re.Match[str]) -> str:
        """Returns the escape of a character, or the character itself if it is kept."""
        character = match[0]
        if character in keep:
            return character
        return _SHORT.get(character) or f"\\u{ord(character):04x}"

    return _ESCAPED.sub(written, text)


def spoken(text: str) -> str:
    """Returns lines whose control characters and workflow commands are escaped, for any log.

    GitHub's runner obeys `::error ...` at the start of a line and `##[error]...` anywhere in it,
    Azure's `##vso[...]`. The second colon or `#` is escaped, as in JSON.
    """

    def with_escaped_end(match: re.Match[str]) -> str:
        """Returns a workflow command whose last character is escaped."""
        last_character = match[0][-1]
        return f"{match[0][:-1]}\\u{ord(last_character):04x}"

    escaped = harmless(text, keep="\n\t")
    return _COMMAND.sub(with_escaped_end, escaped)


def first_difference(text: str, other: str) -> int:
    """Returns the first position at which two texts have different characters, or 0."""
    character_pairs = enumerate(zip(text, other, strict=False))
    return next((position for position, pair in character_pairs if pair[0] != pair[1]), 0)


def shorten(value: object, limit: int = 60) -> str:
    """Returns a value on one line, at most `limit` characters long (then an ellipsis)."""
    if isinstance(value, str):
        text = value
    else:
        text = repr(value)
    # A text may be very long, so only its beginning is written out; the rest would be cut anyway.
    beginning = text[: 4 * limit]
    visible_text = visible(beginning)
    is_whole = len(beginning) == len(text)
    if is_whole and len(visible_text) <= limit:
        return visible_text
    return visible_text[:limit] + "…"


def listing(names: Sequence[object], limit: int = 12) -> str:
    """Returns `'a', 'b', ... (40 in all)`: the first names in quotes."""
    head = ", ".join(repr(name) for name in names[:limit])
    return head + (f", ... ({len(names)} in all)" if len(names) > limit else "")


def did_you_mean(
    unknown_word: str, known: Iterable[str], *, mark: str = "", cutoff: float = 0.6
) -> str:
    """Returns the nearest of the known words as `did you mean a or b?`, or an empty string.

    Args:
        unknown_word: A word that is not known.
        known: The known words.
        mark: Characters that all known words begin with, such as `--`. They are not compared.
        cutoff: How alike two words have to be, from 0 to 1. If none is, known words that begin with
            the unknown one are taken.
    """
    by_lower = {word.lower().removeprefix(mark): word for word in known}
    typed = unknown_word.lower().removeprefix(mark)
    nearest = difflib.get_close_matches(
        typed,
        by_lower,
        n=3,
        cutoff=cutoff,
    )
    if not nearest and len(typed) >= _BEGINNING:
        nearest = [word for word in by_lower if word.startswith(typed)][:3]
    if nearest:
        return f"did you mean {' or '.join(by_lower[word] for word in nearest)}?"
    return ""


def unknown(noun: str, word: str, known: Iterable[str]) -> str:
    """Returns how a refusal begins: `unknown metric 'acc': did you mean accuracy?`.

    What fits belongs to the remedy.
    """
    return hinted(f"unknown {noun} '{word}'", word, known)


def hinted(message: str, word: str, known: Iterable[str]) -> str:
    """Returns a message about an unknown word, with a hint if known words are near.

    Args:
        message: The message.
        word: The unknown word.
        known: The known words.
    """
    hint = did_you_mean(word, known)
    if hint:
        return f"{message}: {hint}"
    return message


def command(*words: object, **options: object) -> str:
    """Returns a command of `bertctl` as it is typed in a shell.

    Args:
        words: The verb and its arguments. A string may hold several and is taken as it is; a path
            is quoted where it has to be.
        options: By their names in Python; True stands for an option without a value, a list for one
            that is repeated, and `output` for `-o`.
    """
    typed = ["bertctl", *(_quoted(word) for word in words)]
    for name, value_or_values in options.items():
        if name == "output":
            option = "-o"
        else:
            option = f"--{name.replace('_', '-')}"
        if isinstance(value_or_values, list):
            values = value_or_values
        else:
            values = [value_or_values]
        for value in values:
            typed.append(option)
            if value is not True:
                typed.append(shlex.quote(str(value)))
    return " ".join(typed)


def _quoted(word: object) -> str:
    """Returns a word of a command line: paths are quoted if a shell needs that."""
    if isinstance(word, Path):
        return shlex.quote(str(word))
    return str(word)


def label_order(name: str) -> tuple[int, float, str]:
    """Returns a sort key of labels: numbers first, by value, then words.

    Training numbers its labels in this order.
    """
    is_number = name.removeprefix("-").isdecimal()
    if is_number:
        return (0, as_number(name), "")
    return (1, 0.0, name)


def natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """Returns a sort key of names that may be numbered.

    `run-9` comes before `run-10`, `part-02` before `part-3`.
    """
    pieces = re.findall("[0-9]+|[^0-9]+", name)
    key = []
    for piece in pieces:
        is_number = piece[0] in "0123456789"
        if is_number:
            digits = piece.lstrip("0")
            key.append((len(digits), digits))  # a number with more digits is larger
        else:
            key.append((sys.maxsize, piece))  # after all numbers, as in plain text order
    return key, name


def without_secrets(text: str) -> str:
    """Returns a text in which addresses have no password, signature or token."""
    without_passwords = re.sub(r"://[^/\s@]*@", "://", text)
    return re.sub(
        r"([a-z][a-z0-9+.-]*://[^\s?]*)\?[^\s'\">]*", r"\1", without_passwords, flags=re.IGNORECASE
    )


def names_in(typed: str) -> list[str]:
    """Returns the names between the commas of `a, b`."""
    return [name.strip() for name in typed.split(",") if name.strip()]
