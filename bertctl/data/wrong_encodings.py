"""Files that are not in the encoding by which they are read: what is found, and what to do."""

import codecs
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bertctl.encodings import likely_encoding
from bertctl.errors import DataError
from bertctl.progress import Listener
from bertctl.words import count, first_difference

_SURVEYED = 32_000_000
"""Bytes that are looked at, where a line is not UTF-8, to see how many lines are not."""

_SURVEYED_LINES = 500
"""Lines that are not UTF-8 by which their encoding is guessed."""

UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def refuse_utf8(
    data: bytes, encoding: str, source: str, listener: Listener, *, is_wide: bool
) -> None:
    """Refuses a whole file of UTF-8 for which another encoding was named.

    Args:
        data: The bytes of the file.
        encoding: As it was named.
        source: Name of the file.
        listener: Warned of single lines that are UTF-8.
        is_wide: Whether the encoding is UTF-16 or UTF-32.

    Raises:
        DataError: It is UTF-8.
    """
    if is_wide:
        # In UTF-16 and UTF-32, any ASCII character has a byte 0.
        has_wide_characters = 0 in data or data.startswith(UTF16_BOMS)
        if not has_wide_characters and _is_utf8(data):
            message = f"{source} is UTF-8 or ASCII, and was to be read as {encoding}"
            raise DataError(message, remedy="Say that the file is UTF-8: `data.encoding=utf-8`.")
    elif not data.isascii():
        guard = MojibakeGuard(source, encoding, listener)
        for number, line in enumerate(data.splitlines(), start=1):
            if not line.isascii():
                guard.check(line, line.decode(encoding, "replace"), number)
        guard.finish()


def _is_utf8(data: bytes) -> bool:
    """Returns whether bytes can be decoded as UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class MojibakeGuard:
    """Finds out that a file is UTF-8 though another encoding was named for it, line by line.

    Args:
        source: The file, for messages.
        encoding: As it was named.
        listener: Warned of single lines that are UTF-8.

    Attributes:
        _is_guarded: Whether the encoding can be confused with UTF-8: it is not UTF-8, UTF-16,
            UTF-32 or ASCII itself.
        _n_utf8: Lines with letters beyond ASCII so far that are UTF-8.
        _n_others: Such lines that are not.
        _first: Number of the first line that is UTF-8, and its text by both encodings.
    """

    def __init__(self, source: str, encoding: str, listener: Listener) -> None:
        """Begins to compare the lines of a file with UTF-8, unless the encoding is like UTF-8."""
        self._source = source
        self._encoding = encoding
        self._listener = listener
        # UTF-8 and ASCII read the same characters. UTF-16 and UTF-32 can't be taken for UTF-8.
        self._is_guarded = not codecs.lookup(encoding).name.startswith(("utf", "ascii"))
        # Lines with letters beyond ASCII: those that are UTF-8, and the others.
        self._n_utf8 = 0
        self._n_others = 0
        # Of the first line that is UTF-8: its number, and its text by `encoding` and by UTF-8.
        self._first: tuple[int, str, str] | None = None

    def check(self, line: bytes, text: str, number: int) -> None:
        """Counts a line with letters beyond ASCII, and refuses the file once most are UTF-8.

        Args:
            line: Its bytes.
            text: The same line, decoded by the encoding that was named.
            number: Its number in the file.

        Raises:
            DataError: At least three of these lines are UTF-8, and less than half as many are not.
        """
        if not self._is_guarded:
            return
        try:
            text_in_utf8 = line.decode("utf-8")
        except UnicodeDecodeError:
            self._n_others += 1
            return
        self._n_utf8 += 1
        if self._first is None:
            self._first = (number, text, text_in_utf8)
        if self._n_utf8 > max(2, 2 * self._n_others):
            raise self._refusal()

    def finish(self) -> None:
        """Ends the check of a file for which another encoding than UTF-8 was named.

        If only some of its lines with letters beyond ASCII are UTF-8, the listener is warned.

        Raises:
            DataError: All lines with letters beyond ASCII are UTF-8.
        """
        if self._n_utf8 and not self._n_others:
            raise self._refusal()
        if self._n_utf8:
            total = self._n_utf8 + self._n_others
            self._listener.warn(
                f"{self._described()} ({self._n_utf8:,} of {total:,} lines with letters beyond "
                "ASCII are UTF-8)"
            )

    def _described(self) -> str:
        """Returns where the first line in UTF-8 is, and how both encodings read it."""
        number, text, text_in_utf8 = self._first or (0, "", "")
        position = first_difference(text, text_in_utf8)
        start = max(0, position - 10)
        # By the wrong encoding, a letter is two characters or more, so more characters are shown.
        excerpt = text[start : position + 12].strip()
        excerpt_in_utf8 = text_in_utf8[start : position + 10].strip()
        message = (
            f"this line is UTF-8, and is read as {self._encoding}: {excerpt!r} for "
            f"{excerpt_in_utf8!r}"
        )
        return f"{self._source}:{number}: {message}"

    def _refusal(self) -> DataError:
        """Returns the error for a file that is UTF-8."""
        return DataError(
            self._described(),
            remedy="Say that the file is UTF-8: `data.encoding=utf-8`. Where single lines are not, "
            "correct them.",
        )


class BadLines(NamedTuple):
    """Lines of a file that are not UTF-8.

    Attributes:
        numbers: Numbers of these lines, from 1.
        content: what stands in them, as far as it is looked at.
        n_good: lines with letters beyond ASCII that are UTF-8.
        is_all: whether the whole file was looked at.
    """

    numbers: Sequence[int]
    content: bytes
    n_good: int
    is_all: bool


def lines_not_utf8(lines: Iterable[bytes], *, first_line: int, beyond_ascii: int) -> BadLines:
    """Returns which lines of the rest of a file are not UTF-8.

    Args:
        lines: From the first one that is not UTF-8 on. At most `_SURVEYED` bytes are looked at.
        first_line: Number of the first one.
        beyond_ascii: Lines before it with letters beyond ASCII, which are UTF-8.
    """
    numbers: list[int] = []
    content: list[bytes] = []
    n_good = beyond_ascii
    n_bytes = 0
    for number, line in enumerate(lines, start=first_line):
        n_bytes += len(line)
        if n_bytes > _SURVEYED:
            return BadLines(numbers, b"".join(content), n_good, is_all=False)
        if line.isascii():
            continue
        try:
            line.decode("utf-8")
            n_good += 1
        except UnicodeDecodeError:
            numbers.append(number)
            if len(content) < _SURVEYED_LINES:
                content.append(line)
    return BadLines(numbers, b"".join(content), n_good, is_all=True)


def undecodable(
    data: bytes,
    at: int,
    encoding: str,
    source: str,
    before: tuple[int, int],
    bad: BadLines | None = None,
) -> DataError:
    """Returns the error for a byte that is not the encoding.

    Args:
        data: The file, or a part of it, with that byte.
        at: Place of the byte in `data`.
        encoding: The encoding that can't decode the byte.
        source: Name of the file, for messages.
        before: How many lines and how many bytes of the file come before `data`.
        bad: The lines that are not UTF-8, if the caller knows them.
    """
    n_lines_before, n_bytes_before = before
    line = n_lines_before + data.count(b"\n", 0, at) + 1
    byte_in_line = at - data.rfind(b"\n", 0, at)
    encoding_name = codecs.lookup(encoding).name
    remedy = "Leave data.encoding out for UTF-8, or name another encoding."
    if encoding_name not in ("utf-8", "ascii") and _is_utf8(data):
        remedy = "It is UTF-8: add `data.encoding=utf-8`."
    if encoding_name == "utf-8":
        bad = bad or lines_not_utf8(
            data.splitlines(keepends=True), first_line=n_lines_before + 1, beyond_ascii=0
        )
        remedy = _encoding_advice(bad)
    return DataError(
        f"{source}:{line}: byte 0x{data[at]:02x} is not {encoding_name} "
        f"(byte {byte_in_line} of the line, offset {n_bytes_before + at} in the file)",
        remedy=remedy,
    )


def _encoding_advice(bad: BadLines) -> str:
    """Returns what to do about lines that are not UTF-8.

    If most lines with letters beyond ASCII are UTF-8, correct the others; else read the file by
    another encoding.
    """
    likely = likely_encoding(bad.content)
    if likely is None:
        letters = ""
    else:
        letters = _shown_letters(likely.text)
    is_mostly_utf8 = bad.n_good >= max(1, len(bad.numbers))
    if is_mostly_utf8:
        reading = f" (by {likely.encoding} it reads {letters!r})" if likely else ""
        return (
            f"{_mixed_lines(bad, reading)}. Correct it there, or export the file again: no one "
            "encoding reads all of it."
        )
    verb = "is" if len(bad.numbers) == 1 else "are"
    looked_at = "" if bad.is_all else ", of those looked at"
    how_many = f"{count(len(bad.numbers), 'line')} {verb} not UTF-8{looked_at}"
    if likely is None:
        return (
            f"{how_many}. Which encoding it is can't be seen: name it with `data.encoding=`, such "
            "as latin-1, cp1251, shift_jis or gb18030, and look at the texts."
        )
    return (
        f"{how_many}. It looks like {likely.encoding} ({letters!r}): add "
        f"`data.encoding={likely.encoding}`"
    )


def _mixed_lines(bad: BadLines, reading: str) -> str:
    """Returns which lines are not UTF-8 among others that are, as a sentence without its point.

    Args:
        bad: The lines that are not UTF-8.
        reading: How they read by another encoding, in brackets; empty if none is likely.
    """
    if bad.n_good > 1:
        others = f"{bad.n_good:,} other lines with letters beyond ASCII"
        verb = "are"
    else:
        others = f"{bad.n_good:,} other line with letters beyond ASCII"
        verb = "is"
    if len(bad.numbers) == 1:
        return f"Line {bad.numbers[0]} alone is not UTF-8{reading}; {others} {verb}"

    line_numbers = ", ".join(map(str, bad.numbers[:5]))
    if len(bad.numbers) > 5:
        line_numbers += ", ..."
    return f"{len(bad.numbers):,} lines are not UTF-8 ({line_numbers}){reading}; {others} are"


def _shown_letters(text: str) -> str:
    """Returns about 30 characters around the first letter beyond ASCII, out of its line."""
    position = next((i for i, character in enumerate(text) if not character.isascii()), 0)
    line_start = text.rfind("\n", 0, position) + 1
    line = text[line_start:].partition("\n")[0]
    start = max(0, position - line_start - 12)
    return line[start : start + 30].strip()


def full_of_nul(head: bytes, source: str) -> DataError:
    """Returns the error for a file with many NUL bytes, which may be UTF-16 or no text at all.

    Args:
        head: Its first bytes.
        source: Its name.
    """
    n_nul_at_even = head[::2].count(0)
    n_nul_at_odd = head[1::2].count(0)
    # In UTF-16, the higher byte of an ASCII character is 0. In little-endian order it is the second
    # byte of the character.
    order = "le" if n_nul_at_odd > n_nul_at_even else "be"
    if 3 * (n_nul_at_even + n_nul_at_odd) > len(head):
        remedy = (
            f"It looks like UTF-16 without a byte-order mark: add `data.encoding=utf-16-{order}`."
        )
    else:
        remedy = "If it is UTF-16 without a byte-order mark, add `data.encoding=utf-16-le`."
    return DataError(f"{source} is not text: its beginning is full of NUL bytes", remedy=remedy)
