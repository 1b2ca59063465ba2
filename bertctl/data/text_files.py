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
from contextlib import contextmanager, nullcontext, suppress
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

LONGEST_LINE, LONGEST_DOCUMENT = 16_000_000, 250_000_000
"""Bytes of a line, and of what can only be read as a whole (a JSON document, UTF-16), unless asked
for otherwise."""

_SIGNATURE = 512  # bytes by which packed files and other documents are known

_SURVEYED = (
    32_000_000  # bytes that are looked at, where a line is not UTF-8, to see how many are not
)
_SURVEYED_LINES = 500

_BETWEEN_CHECKS = 1_000_000  # bytes of lines, between two looks at the memory

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
    """Returns what to type where a text was meant that has the form of a path."""
    if not any(map(str.isspace, str(path))):
        return ""
    return "A text that looks like a file's name needs a blank before it and one behind it."


def names_in_folder(folder: Path) -> str:
    """Returns what there is in a folder, for a remedy."""
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    names = sorted((path.name + "/" * path.is_dir() for path in visible), key=natural_order)
    first_names = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    if names:
        return f"In {folder}: {first_names}."
    return f"{folder} is empty."


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
        stdin = cast(io.BufferedReader, sys.stdin.buffer)
        with nullcontext(stdin) if source == "-" else regular(source).open("rb") as raw:
            first = raw.peek(len(GZIP))
            is_packed = first.startswith(GZIP)
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
    if source != "-" and source.suffix.lower() == ".gz" and head and not is_packed:
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
    """Returns about how many rows an open file has, of which so many are read.

    It is 0 for what has no size (a pipe).
    """
    return rows_of_size(getattr(file, "fileobj", file), rows)  # of gzip the packed bytes count


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
    """Yields the lines of an open file with their ends.

    They are decoded one by one, without the byte-order mark.

    Whoever takes them may keep them: if the memory ends, or surely will (with `all_stay`), the file
    is refused.

    Only a file without any line feed is split at carriage returns. A line of more than `longest`
    bytes is refused before it is in memory; so is a file that is decoded as a whole and has more
    than `LONGEST_DOCUMENT`.

    Raises:
        UsageError: no such encoding.
        DataError: empty; a line that is too long; bytes that are not the encoding, where `errors`
            is strict.
        DeviceError: there is too little memory for all lines.
    """
    guard_memory = MemoryGuard(source, "lines")
    if encoding is not None and not is_encoding(encoding):
        message = f"data.encoding: unknown encoding '{encoding}'"
        raise UsageError(message, remedy="Usual ones: utf-8, utf-16, latin-1, cp1252.")
    first = file.readline(longest + 1)
    if not first:
        raise NoRowsError(f"{source} is empty: it has no rows", remedy="Give a file with rows.")
    used = encoding or _encoding_of(first[:4096], source, listener)
    is_wide = codecs.lookup(used).name.startswith(("utf-16", "utf-32"))
    if is_wide or not first.endswith(b"\n"):
        if is_wide or b"\r" in first:
            most = max(longest, LONGEST_DOCUMENT)
        else:
            most = longest
        data = first + file.read(most + 1 - len(first))
        if len(data) > most:
            raise _too_long(source, 1, most)
        if encoding is not None:
            _refuse_utf8(
                data,
                used,
                source,
                listener,
                is_wide=is_wide,
            )
        try:
            content = data.decode(used, errors).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise _undecodable(
                data,
                at=error.start,
                encoding=used,
                source=source,
                before=(0, 0),
            ) from error
        yield from io.StringIO(
            content if "\n" in content else content.replace("\r", "\n"), newline="\n"
        )
        return
    offset = 0
    next_check = 0
    beyond_ascii = 0
    if encoding is not None:
        guard = _MojibakeGuard(source, used, listener)
    else:
        guard = None
    for lines, line in enumerate(
        itertools.chain([first], iter(lambda: file.readline(longest + 1), b""))
    ):
        if len(line) > longest:
            raise _too_long(source, lines + 1, longest)
        try:
            text = line.decode(used, errors)
        except UnicodeDecodeError as error:
            rest = itertools.chain([line], iter(lambda: file.readline(longest + 1), b""))
            bad_lines = _lines_not_utf8(rest, first_line=lines + 1, beyond_ascii=beyond_ascii)
            raise _undecodable(
                line,
                at=error.start,
                encoding=used,
                source=source,
                before=(lines, offset),
                bad=bad_lines,
            ) from error
        if not text.isascii():
            beyond_ascii += 1
            if guard is not None:
                guard.check(line, text, lines + 1)
        yield text if lines else text.removeprefix("\ufeff")
        offset += len(line)
        if offset >= next_check:
            guard_memory.check(lines + 1, rows_expected(file, lines + 1) if all_stay else 0)
            next_check = offset + _BETWEEN_CHECKS
    if guard is not None:
        guard.finish()


def _refuse_utf8(
    data: bytes, encoding: str, source: str, listener: Listener, *, is_wide: bool
) -> None:
    """Refuses a whole file of UTF-8 for which another encoding was named.

    Raises:
        DataError: it is UTF-8.
    """
    if is_wide and 0 not in data and _is_utf8(data) and not data.startswith(_UTF16_BOMS):
        message = f"{source} is UTF-8 or ASCII, and was to be read as {encoding}"
        raise DataError(message, remedy="Say that the file is UTF-8: `data.encoding=utf-8`.")
    if not is_wide and not data.isascii():
        guard = _MojibakeGuard(source, encoding, listener)
        for number, line in enumerate(data.splitlines(), start=1):
            if not line.isascii():
                guard.check(line, line.decode(encoding, "replace"), number)
        guard.finish()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _MojibakeGuard:
    """Refuses a file of UTF-8 that is read by another encoding, as one was named for it.

    Args:
        source: the file, for messages.
        encoding: as it was named.
        listener: told of single lines.
    """

    def __init__(self, source: str, encoding: str, listener: Listener) -> None:
        self._source = source
        self._encoding = encoding
        self._listener = listener
        self._is_guarded = not codecs.lookup(encoding).name.startswith(("utf", "ascii"))
        self._n_utf8 = 0
        self._n_others = 0
        self._first: tuple[int, str, str] | None = None

    def check(self, line: bytes, text: str, number: int) -> None:
        """Counts a line with letters beyond ASCII.

        It refuses the file once most of such lines are UTF-8.

        Raises:
            DataError: three lines and most of all are UTF-8.
        """
        if not self._is_guarded:
            return
        try:
            right = line.decode("utf-8")
        except UnicodeDecodeError:
            self._n_others += 1
            return
        self._n_utf8 += 1
        self._first = self._first or (number, text, right)
        if self._n_utf8 > max(2, 2 * self._n_others):
            raise self._refusal()

    def finish(self) -> None:
        """Reports lines that are UTF-8, or refuses the file where there are no others.

        Raises:
            DataError: all lines with letters beyond ASCII are UTF-8.
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
        """Returns where the first such line is, and how it reads in both encodings."""
        number, text, right = self._first or (0, "", "")
        position = first_difference(text, right)
        start = max(0, position - 10)
        wrong_part = text[start : position + 12].strip()
        right_part = right[start : position + 10].strip()
        message = (
            f"this line is UTF-8, and is read as {self._encoding}: {wrong_part!r} for "
            f"{right_part!r}"
        )
        return f"{self._source}:{number}: {message}"

    def _refusal(self) -> DataError:
        return DataError(
            self._described(),
            remedy="Say that the file is UTF-8: `data.encoding=utf-8`. Where single lines are not, "
            "correct them.",
        )


class _BadLines(NamedTuple):
    """Lines of a file that are not UTF-8.

    Attributes:
        numbers: of these lines, from 1.
        content: what stands in them, as far as it is looked at.
        n_good: lines with letters beyond ASCII that are UTF-8.
        is_all: whether the whole file was looked at.
    """

    numbers: Sequence[int]
    content: bytes
    n_good: int
    is_all: bool


def _lines_not_utf8(lines: Iterable[bytes], *, first_line: int, beyond_ascii: int) -> _BadLines:
    """Returns which lines of the rest of a file are not UTF-8, the first one among them.

    Args:
        lines: from the first one that is not UTF-8 on.
        first_line: its number.
        beyond_ascii: lines before it with letters beyond ASCII.
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
    message = f"{source}:{line}: this line has more than {human_bytes(longest)}"
    return DataError(
        message,
        remedy="Cut it, or, if it is meant to, train with `data.longest_line=MEGABYTES`.",
    )


def _encoding_of(head: bytes, source: str, listener: Listener) -> str:
    """Returns UTF-8 unless the first bytes say UTF-16."""
    if head.startswith(_UTF16_BOMS):
        listener.say(f"{source}: read as UTF-16, as its byte-order mark says")
        return "utf-16"
    if head.startswith(PARQUET):
        message = f"{source} is not text, but Parquet"
        raise DataError(message, remedy="Name it .parquet, or add `input_format=parquet`.")
    if is_page(head) and not source.lower().removesuffix(".gz").endswith(
        (".txt", ".html", ".htm", ".log", ".md")
    ):
        message = f"{source} is a page of HTML: a page about the file was saved, or an error"
        raise DataError(message, remedy="Download the file itself (the raw one) again.")
    if head.count(0) > len(head) // 10:
        if head[1::2].count(0) > head[::2].count(0):
            order = "le"
        else:
            order = "be"
        if 3 * head.count(0) > len(head):
            remedy = (
                "It looks like UTF-16 without a byte-order mark: add "
                f"`data.encoding=utf-16-{order}`."
            )
        else:
            remedy = "If it is UTF-16 without a byte-order mark, add `data.encoding=utf-16-le`."
        raise DataError(f"{source} is not text: its beginning is full of NUL bytes", remedy=remedy)
    return "utf-8"


def _encoding_advice(bad: _BadLines) -> str:
    """Returns what to do about lines that are not UTF-8.

    Correct them, or read the file by another encoding.
    """
    likely = likely_encoding(bad.content)
    if likely is None:
        letters = ""
    else:
        letters = _shown_letters(likely.text)
    if bad.n_good >= max(1, len(bad.numbers)):
        if likely is None:
            as_read = ""
        else:
            as_read = f" (by {likely.encoding} it reads {letters!r})"
        others = f"{bad.n_good:,} other line{'s' * (bad.n_good > 1)} with letters beyond ASCII"
        if len(bad.numbers) == 1:
            which = (
                f"Line {bad.numbers[0]} alone is not UTF-8{as_read}; {others} "
                f"{'are' if bad.n_good > 1 else 'is'}"
            )
        else:
            if len(bad.numbers) > 5:
                more = ", ..."
            else:
                more = ""
            line_numbers = ", ".join(map(str, bad.numbers[:5])) + more
            which = (
                f"{len(bad.numbers):,} lines are not UTF-8 ({line_numbers}){as_read}; {others} are"
            )
        return (
            f"{which}. Correct it there, or export the file again: no one encoding reads all of it."
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


def _shown_letters(text: str) -> str:
    """Returns some text around its first letters beyond ASCII."""
    at = next((i for i, character in enumerate(text) if not character.isascii()), 0)
    line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]
    start = max(0, at - text.rfind("\n", 0, at) - 1 - 12)
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
        data: with that byte.
        at: its place in `data`.
        encoding: what it is not.
        source: the file, for messages.
        before: lines and bytes of the file before `data`.
        bad: the lines that are not UTF-8, where that was looked for.
    """
    line = before[0] + data.count(b"\n", 0, at) + 1
    in_line = at - data.rfind(b"\n", 0, at)
    known = codecs.lookup(encoding).name
    remedy = "Leave data.encoding out for UTF-8, or name another encoding."
    if known not in ("utf-8", "ascii") and _is_utf8(data):
        remedy = "It is UTF-8: add `data.encoding=utf-8`."
    if known == "utf-8":
        bad = bad or _lines_not_utf8(
            data.splitlines(keepends=True), first_line=before[0] + 1, beyond_ascii=0
        )
        remedy = _encoding_advice(bad)
    return DataError(
        f"{source}:{line}: byte 0x{data[at]:02x} is not {known} "
        f"(byte {in_line} of the line, offset {before[1] + at} in the file)",
        remedy=remedy,
    )
