"""Bytes of a file (plain, .gz, stdin) to text.

Bytes that are not the encoding are refused with file, line and byte.
"""

import codecs
import gzip
import io
import itertools
import shlex
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

from bertctl.data.file_contents import GZIP, HEAD, PARQUET, is_page, no_rows_in
from bertctl.data.pipes import is_read_once, regular
from bertctl.data.sources import MemoryFile, Source, source_name
from bertctl.documents import is_encoding
from bertctl.encodings import likely_encoding
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.memory import MemoryGuard, rows_of_size
from bertctl.progress import Listener
from bertctl.unpacking import unpacked
from bertctl.words import count, first_difference, hinted, human_bytes, natural_order

LONGEST_LINE = 16_000_000
"""Bytes that a line may have, unless the recipe says otherwise."""

LONGEST_DOCUMENT = 250_000_000
"""Bytes of what can only be read as a whole (a JSON document, UTF-16), unless the recipe says
otherwise."""

_SIGNATURE = 512  # bytes by which packed files and other documents are known

_SURVEYED = 32_000_000
"""Bytes that are looked at, where a line is not UTF-8, to see how many lines are not."""

_SURVEYED_LINES = 500
"""Lines that are not UTF-8 by which their encoding is guessed."""

_BYTES_BETWEEN_CHECKS = 1_000_000
"""Bytes of lines between two looks at the memory."""

_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class NoRowsError(DataError):
    """A file that is whole and has no rows."""


def require_file(path: Path | MemoryFile) -> None:
    """Refuses a path that is no file; rows in memory are there.

    Raises:
        UnavailableError: nothing there (the nearest names in its folder are shown), or a folder.
    """
    if isinstance(path, MemoryFile) or path.is_file():
        return
    if path.is_dir():
        raise UnavailableError(
            f"{path} is a folder, not a file", remedy=names_in_folder(path), file=path
        )
    if path.exists():  # a pipe, /dev/stdin
        return
    if not path.parent.is_dir():
        message = f"{path} does not exist, nor does the folder {path.parent}"
        raise UnavailableError(message, remedy=for_a_text(path), file=path)
    message = hinted(f"{path} does not exist", path.name, (p.name for p in path.parent.iterdir()))
    raise UnavailableError(
        message, remedy=f"{names_in_folder(path.parent)} {for_a_text(path)}".strip(), file=path
    )


def for_a_text(path: Path) -> str:
    """Returns what to type if a text with blanks was meant, not a file; empty for other paths."""
    if not any(map(str.isspace, str(path))):
        return ""
    return "A text that looks like a file's name needs a blank before it and one behind it."


def names_in_folder(folder: Path) -> str:
    """Returns what there is in a folder, for a remedy: `In data: a.csv, old/.`."""
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if not visible:
        return f"{folder} is empty."
    names = sorted(
        (f"{path.name}/" if path.is_dir() else path.name for path in visible), key=natural_order
    )
    first_names = ", ".join(names[:12])
    if len(names) > 12:
        first_names += ", ..."
    return f"In {folder}: {first_names}."


@contextmanager
def open_bytes(source: Source) -> Iterator[BinaryIO]:
    """Opens the bytes of a file or of stdin.

    They are unpacked where they are gzip, whatever the file is called.

    Raises:
        UnavailableError: it is not there or can't be read.
        DataError: it is packed otherwise, damaged, or a document that holds no rows, such as a
            spreadsheet; or it is named .gz and is not gzip.
    """
    if isinstance(source, MemoryFile):
        with source.open() as opened:
            yield opened
        return
    name = source_name(source)
    if source != "-":
        require_file(source)
    try:
        with _opened(source) as raw:
            is_packed = raw.peek(len(GZIP)).startswith(GZIP)
            if is_packed:
                file: io.BufferedReader = unpacked(raw, name)
            else:
                file = raw
            head = file.peek(_SIGNATURE)
            _check_signature(head, source, is_packed=is_packed)
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        message = f"{name} breaks off or is damaged: {error}"
        raise DataError(
            message, remedy=f"Get the file again; gzip -t {shlex.quote(name)} tests it."
        ) from error
    except OSError as error:
        raise UnavailableError(f"{name} can't be read: {error.strerror or error}") from error


def _opened(source: Path | Literal["-"]) -> AbstractContextManager[io.BufferedReader]:
    """Opens the bytes of a file as they are, or of stdin, which is not closed at the end."""
    if source == "-":
        return nullcontext(cast(io.BufferedReader, sys.stdin.buffer))
    return regular(source).open("rb")


def _check_signature(head: bytes, source: Path | Literal["-"], *, is_packed: bool) -> None:
    """Refuses a file by its first bytes.

    Raises:
        DataError: it is packed twice, or in a way that is not read here; or it is no file of rows.
    """
    name = source_name(source)
    if is_packed and head.startswith(GZIP):
        raise DataError(f"{name} is packed with gzip twice", remedy="Unpack it once: gzip -d.")
    signature = no_rows_in(head)
    if signature is not None:
        noun, remedy = signature
        raise DataError(f"{name} is {noun}", remedy=remedy.format(file=shlex.quote(name)))
    is_plain = len(head) > 0 and not is_packed
    if is_plain and source != "-" and source.suffix.lower() == ".gz":
        plain = source.with_suffix("")
        remedy = (
            f"Rename it: mv {shlex.quote(name)} {shlex.quote(str(plain))}. Or pack it: gzip "
            f"{shlex.quote(plain.name)}."
        )
        raise DataError(
            f"{name} is named .gz but is not gzip: it begins with {head[:24]!r}", remedy=remedy
        )


def is_gzip(path: Path) -> bool:
    """Returns whether a file is gzip by its first bytes.

    It is False for what is neither a file nor a pipe.
    """
    if not path.is_file() and not is_read_once(path):
        return False
    with regular(path).open("rb") as file:
        return file.read(len(GZIP)) == GZIP


def first_bytes(source: Source) -> bytes:
    """Returns the first bytes of a file or of stdin, unpacked, and leaves stdin as it is.

    For stdin these are the bytes that have come by now.

    Raises:
        UnavailableError: the file is not there or can't be read.
        DataError: it is packed in a way that is not read here, or is no file of rows.
    """
    if source != "-":
        with open_bytes(source) as file:
            return file.read(HEAD)
    head = cast(io.BufferedReader, sys.stdin.buffer).peek(1)
    if not head.startswith(GZIP):
        return head
    with suppress(zlib.error):  # refused where it is read
        return zlib.decompressobj(wbits=31).decompress(head, HEAD)
    return b""


def rows_expected(file: BinaryIO, rows: int) -> int:
    """Returns about how many rows an open file has; 0 for one without a size, such as a pipe.

    Args:
        file: The file. The share of its bytes that has been read tells how many rows are left.
        rows: How many rows have been read.
    """
    # The size of an unpacked gzip file is unknown, so the share is that of its packed bytes.
    bytes_on_disk = getattr(file, "fileobj", file)
    return rows_of_size(bytes_on_disk, rows)


def read_text(source: Source, encoding: str | None, listener: Listener) -> str:
    """Returns a whole text file, without its byte-order mark.

    Raises:
        UsageError: no such encoding.
        UnavailableError: the file does not exist.
        DataError: empty, or bytes that are not the encoding.
    """
    with open_bytes(source) as file:
        return "".join(
            decoded_lines(
                file,
                source_name(source),
                encoding,
                listener,
                all_stay=True,
            )
        )


def decoded_lines(
    file: BinaryIO,
    source: str,
    encoding: str | None,
    listener: Listener,
    *,
    errors: Literal["strict", "replace"] = "strict",
    longest: int = LONGEST_LINE,
    all_stay: bool = False,
) -> Iterator[str]:
    """Yields the lines of an open file with their ends, without the byte-order mark.

    They are decoded one by one. UTF-16, UTF-32 and files without a line feed are decoded as a
    whole, the latter split at carriage returns.

    Args:
        file: The open file.
        source: Its name, for messages.
        encoding: As it was named; None for UTF-8, or UTF-16 by its byte-order mark.
        listener: Told of the encoding that was found.
        errors: Whether bytes that are not the encoding are refused, or replaced by U+FFFD.
        longest: Bytes of a line. A longer one is refused before it is in memory; so is a file that
            is decoded as a whole and has more than `LONGEST_DOCUMENT`.
        all_stay: Whether the caller keeps all lines. If there will be too little memory for them,
            the file is refused early.

    Raises:
        UsageError: No such encoding.
        DataError: The file is empty; a line is too long; bytes are not the encoding.
        DeviceError: There is too little memory for all lines.
    """
    memory_guard = MemoryGuard(source, "lines")
    if encoding is not None and not is_encoding(encoding):
        message = f"data.encoding: unknown encoding '{encoding}'"
        raise UsageError(message, remedy="Usual ones: utf-8, utf-16, latin-1, cp1252.")
    first_line = file.readline(longest + 1)
    if not first_line:
        raise NoRowsError(f"{source} is empty: it has no rows", remedy="Give a file with rows.")
    encoding_used = encoding or _encoding_of(first_line[:4096], source, listener)
    is_wide = codecs.lookup(encoding_used).name.startswith(("utf-16", "utf-32"))
    has_no_lines = not first_line.endswith(b"\n")
    if is_wide or has_no_lines:
        data = _whole_document(
            file,
            first_line,
            source,
            longest=longest,
            is_wide=is_wide,
        )
        if encoding is not None:  # a named encoding may be the wrong one
            _refuse_utf8(
                data,
                encoding_used,
                source,
                listener,
                is_wide=is_wide,
            )
        yield from _decoded_whole(data, encoding_used, source, errors)
        return

    offset = 0  # bytes of the lines so far
    next_check = 0  # offset from which the memory is checked again
    n_beyond_ascii = 0  # lines with other characters than ASCII
    mojibake_guard = None
    if encoding is not None:  # a named encoding may be the wrong one
        mojibake_guard = _MojibakeGuard(source, encoding_used, listener)
    later_lines = iter(lambda: file.readline(longest + 1), b"")  # until the file ends
    for n_before, line in enumerate(itertools.chain([first_line], later_lines)):
        if len(line) > longest:
            raise _too_long(source, n_before + 1, longest)
        try:
            text = line.decode(encoding_used, errors)
        except UnicodeDecodeError as error:
            bad_lines = _lines_not_utf8(
                itertools.chain([line], later_lines),
                first_line=n_before + 1,
                beyond_ascii=n_beyond_ascii,
            )
            raise _undecodable(
                line,
                at=error.start,
                encoding=encoding_used,
                source=source,
                before=(n_before, offset),
                bad=bad_lines,
            ) from error
        if not text.isascii():
            n_beyond_ascii += 1
            if mojibake_guard is not None:
                mojibake_guard.check(line, text, n_before + 1)
        yield text if n_before else text.removeprefix("\ufeff")
        offset += len(line)
        if offset >= next_check:
            n_lines = n_before + 1
            memory_guard.check(n_lines, rows_expected(file, n_lines) if all_stay else 0)
            next_check = offset + _BYTES_BETWEEN_CHECKS
    if mojibake_guard is not None:
        mojibake_guard.finish()


def _whole_document(
    file: BinaryIO, first_line: bytes, source: str, *, longest: int, is_wide: bool
) -> bytes:
    """Returns all bytes of a file that is decoded as a whole.

    Args:
        file: The open file, behind its first line.
        first_line: Its bytes up to the first line feed, or to the end.
        source: Name of the file.
        longest: Bytes that a line may have. A file of several lines may have more.
        is_wide: Whether the encoding is UTF-16 or UTF-32.

    Raises:
        DataError: The file is too long.
    """
    may_have_lines = is_wide or b"\r" in first_line
    if may_have_lines:
        longest = max(longest, LONGEST_DOCUMENT)
    data = first_line + file.read(longest + 1 - len(first_line))
    if len(data) > longest:
        raise _too_long(source, 1, longest)
    return data


def _decoded_whole(
    data: bytes, encoding: str, source: str, errors: Literal["strict", "replace"]
) -> Iterator[str]:
    """Returns the lines of a whole file, split at carriage returns if it has no line feed.

    Args:
        data: The bytes of the file.
        encoding: Encoding by which they are decoded.
        source: Name of the file.
        errors: Whether bytes that are not the encoding are refused, or replaced by U+FFFD.

    Raises:
        DataError: Bytes that are not the encoding.
    """
    try:
        content = data.decode(encoding, errors).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _undecodable(
            data,
            at=error.start,
            encoding=encoding,
            source=source,
            before=(0, 0),
        ) from error
    if "\n" not in content:
        content = content.replace("\r", "\n")
    return iter(io.StringIO(content, newline="\n"))


def _refuse_utf8(
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
        has_wide_characters = 0 in data or data.startswith(_UTF16_BOMS)
        if not has_wide_characters and _is_utf8(data):
            message = f"{source} is UTF-8 or ASCII, and was to be read as {encoding}"
            raise DataError(message, remedy="Say that the file is UTF-8: `data.encoding=utf-8`.")
    elif not data.isascii():
        guard = _MojibakeGuard(source, encoding, listener)
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


class _MojibakeGuard:
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
        self._source = source
        self._encoding = encoding
        self._listener = listener
        # UTF-8 and ASCII read the same characters. UTF-16 and UTF-32 can't be taken for UTF-8.
        self._is_guarded = not codecs.lookup(encoding).name.startswith(("utf", "ascii"))
        self._n_utf8 = 0
        self._n_others = 0
        self._first: tuple[int, str, str] | None = None

    def check(self, line: bytes, text: str, number: int) -> None:
        """Counts a line with letters beyond ASCII, and refuses the file once most are UTF-8.

        Args:
            line: Its bytes.
            text: The same line, decoded by the encoding that was named.
            number: Its number in the file.

        Raises:
            DataError: At least three lines are UTF-8, and more than twice as many as are not.
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


class _BadLines(NamedTuple):
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


def _lines_not_utf8(lines: Iterable[bytes], *, first_line: int, beyond_ascii: int) -> _BadLines:
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
            return _BadLines(numbers, b"".join(content), n_good, is_all=False)
        if line.isascii():
            continue
        try:
            line.decode("utf-8")
            n_good += 1
        except UnicodeDecodeError:
            numbers.append(number)
            if len(content) < _SURVEYED_LINES:
                content.append(line)
    return _BadLines(numbers, b"".join(content), n_good, is_all=True)


def _too_long(source: str, line: int, longest: int) -> DataError:
    """Returns the error for a line with more than so many bytes."""
    message = f"{source}:{line}: this line has more than {human_bytes(longest)}"
    return DataError(
        message,
        remedy="Cut it, or, if it is meant to, train with `data.longest_line=MEGABYTES`.",
    )


def _encoding_of(head: bytes, source: str, listener: Listener) -> str:
    """Returns the encoding of a file by its first bytes: UTF-16 by its byte-order mark, else UTF-8.

    Args:
        head: The first bytes.
        source: Name of the file.
        listener: Told if it is UTF-16.

    Raises:
        DataError: They are no text: Parquet, a page of HTML, or NUL bytes.
    """
    if head.startswith(_UTF16_BOMS):
        listener.say(f"{source}: read as UTF-16, as its byte-order mark says")
        return "utf-16"
    if head.startswith(PARQUET):
        message = f"{source} is not text, but Parquet"
        raise DataError(message, remedy="Name it .parquet, or add `input_format=parquet`.")
    unpacked_name = source.lower().removesuffix(".gz")
    may_be_page = unpacked_name.endswith((".txt", ".html", ".htm", ".log", ".md"))
    if is_page(head) and not may_be_page:
        message = f"{source} is a page of HTML: a page about the file was saved, or an error"
        raise DataError(message, remedy="Download the file itself (the raw one) again.")
    n_nul = head.count(0)
    if n_nul > len(head) // 10:
        raise _full_of_nul(head, source)
    return "utf-8"


def _full_of_nul(head: bytes, source: str) -> DataError:
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


def _encoding_advice(bad: _BadLines) -> str:
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
        as_read = f" (by {likely.encoding} it reads {letters!r})" if likely else ""
        return (
            f"{_mixed_lines(bad, as_read)}. Correct it there, or export the file again: no one "
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


def _mixed_lines(bad: _BadLines, as_read: str) -> str:
    """Returns which lines are not UTF-8 among others that are, as a sentence without its point.

    Args:
        bad: The lines that are not UTF-8.
        as_read: How they read by another encoding, in brackets; empty if none is likely.
    """
    if bad.n_good > 1:
        others = f"{bad.n_good:,} other lines with letters beyond ASCII"
        verb = "are"
    else:
        others = f"{bad.n_good:,} other line with letters beyond ASCII"
        verb = "is"
    if len(bad.numbers) == 1:
        return f"Line {bad.numbers[0]} alone is not UTF-8{as_read}; {others} {verb}"

    line_numbers = ", ".join(map(str, bad.numbers[:5]))
    if len(bad.numbers) > 5:
        line_numbers += ", ..."
    return f"{len(bad.numbers):,} lines are not UTF-8 ({line_numbers}){as_read}; {others} are"


def _shown_letters(text: str) -> str:
    """Returns about 30 characters around the first letter beyond ASCII, out of its line."""
    position = next((i for i, character in enumerate(text) if not character.isascii()), 0)
    line_start = text.rfind("\n", 0, position) + 1
    line = text[line_start:].partition("\n")[0]
    start = max(0, position - line_start - 12)
    return line[start : start + 30].strip()


def _undecodable(
    data: bytes,
    at: int,
    encoding: str,
    source: str,
    before: tuple[int, int],
    bad: _BadLines | None = None,
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
        bad = bad or _lines_not_utf8(
            data.splitlines(keepends=True), first_line=n_lines_before + 1, beyond_ascii=0
        )
        remedy = _encoding_advice(bad)
    return DataError(
        f"{source}:{line}: byte 0x{data[at]:02x} is not {encoding_name} "
        f"(byte {byte_in_line} of the line, offset {n_bytes_before + at} in the file)",
        remedy=remedy,
    )
