"""Bytes of a file (plain, .gz, stdin) to text; bytes that are not the encoding are refused with file, line and byte."""

import codecs
import gzip
import io
import itertools
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Literal, cast

from bertctl.documents import is_encoding
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import Listener
from bertctl.words import hinted, human_bytes, natural_order

Source = Path | Literal["-"]
"""A file, or `-` for stdin."""

LONGEST_LINE, LONGEST_DOCUMENT = 16_000_000, 250_000_000
"""Bytes of a line, and of what can only be read as a whole (a JSON document, UTF-16), unless asked for otherwise."""

_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def source_of(typed: str) -> Source:
    """Returns the file that was typed, or stdin."""
    return "-" if typed == "-" else Path(typed)


def source_name(source: Source) -> str:
    """Returns what messages call it."""
    return "stdin" if source == "-" else str(source)


def is_text(typed: str) -> bool:
    """Whether a text was typed, not a file: none is there, and it has a blank, or no suffix and no slash."""
    if typed == "-" or os.path.exists(typed):  # noqa: PTH110  # Path.exists raises where a text is too long for a name
        return False
    return any(map(str.isspace, typed)) or not (Path(typed).suffix or "/" in typed)


def require_file(path: Path) -> None:
    """Refuses a path that is no file.

    Raises:
        UnavailableError: nothing there (the nearest names in its folder are shown), or a folder.
    """
    if path.is_file():
        return
    if path.is_dir():
        raise UnavailableError(f"{path} is a folder, not a file", remedy=_names_in(path), file=path)
    if path.exists():  # a pipe, /dev/stdin
        return
    if not path.parent.is_dir():
        raise UnavailableError(f"{path} does not exist, nor does the folder {path.parent}", file=path)
    what = hinted(f"{path} does not exist", path.name, (p.name for p in path.parent.iterdir()))
    raise UnavailableError(what, remedy=_names_in(path.parent), file=path)


def _names_in(folder: Path) -> str:
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    names = sorted((path.name + "/" * path.is_dir() for path in visible), key=natural_order)
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"In {folder}: {shown}." if names else f"{folder} is empty."


@contextmanager
def open_bytes(source: Source) -> Iterator[BinaryIO]:
    """Opens the bytes of a file, unpacked where it is gzip by name; of stdin, where it is gzip by its first bytes.

    Raises:
        UnavailableError: it is not there or can't be read.
        DataError: it is named .gz but is not gzip, or breaks off.
    """
    name = source_name(source)
    if source != "-":
        require_file(source)
    try:
        with nullcontext(cast(io.BufferedReader, sys.stdin.buffer)) if source == "-" else source.open("rb") as raw:
            packed = source.suffix == ".gz" if source != "-" else raw.peek(2)[:2] == b"\x1f\x8b"
            yield cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw  # a GzipFile reads as one
    except gzip.BadGzipFile as error:
        raise DataError(f"{name} is named .gz but is not gzip: {error}", remedy="Rename it, or pack it.") from error
    except (EOFError, zlib.error) as error:
        raise DataError(f"{name} breaks off or is damaged: {error}", remedy="Get the file again.") from error
    except OSError as error:
        raise UnavailableError(f"{name} can't be read: {error.strerror or error}") from error


def rows_expected(file: BinaryIO, rows: int) -> int:
    """Returns about how many rows an open file has, of which so many are read; 0 for what has no size (a pipe)."""
    with suppress(OSError):  # what is no file of the system
        size = os.fstat(file.fileno()).st_size
        read = getattr(file, "fileobj", file).tell() if size else 0  # of gzip the packed bytes
        return rows * size // read if read else 0
    return 0


def read_text(source: Source, encoding: str | None, listener: Listener) -> str:
    """Returns a whole text file, without its byte-order mark.

    Raises:
        UsageError: no such encoding.
        UnavailableError: the file does not exist.
        DataError: empty, or bytes that are not the encoding.
    """
    with open_bytes(source) as file:
        return "".join(decoded_lines(file, source_name(source), encoding, listener))


def decoded_lines(
    file: BinaryIO,
    source: str,
    encoding: str | None,
    listener: Listener,
    *,
    errors: Literal["strict", "replace"] = "strict",
    longest: int = LONGEST_LINE,
) -> Iterator[str]:
    """Yields the lines of an open file with their ends, decoded one by one, without the byte-order mark.

    Only a file without any line feed is split at carriage returns. A line of more than `longest` bytes is refused
    before it is in memory; so is a file that is decoded as a whole and has more than `LONGEST_DOCUMENT`.

    Raises:
        UsageError: no such encoding.
        DataError: empty; a line that is too long; bytes that are not the encoding, where `errors` is strict.
    """
    if encoding is not None and not is_encoding(encoding):
        what = f"data.encoding: there is no encoding '{encoding}'"
        raise UsageError(what, remedy="Usual ones: utf-8, utf-16, latin-1, cp1252.")
    first = file.readline(longest + 1)
    if not first:
        raise DataError(f"{source} is empty: it has no rows", remedy="Give a file with rows.")
    used = encoding or _encoding_of(first[:4096], source, listener)
    is_wide = codecs.lookup(used).name.startswith(("utf-16", "utf-32"))
    if is_wide or not first.endswith(b"\n"):
        most = max(longest, LONGEST_DOCUMENT) if is_wide or b"\r" in first else longest
        data = first + file.read(most + 1 - len(first))
        if len(data) > most:
            raise _too_long(source, 1, most)
        try:
            whole = data.decode(used, errors).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise _undecodable(data, error.start, used, source, (0, 0)) from error
        yield from io.StringIO(whole if "\n" in whole else whole.replace("\r", "\n"), newline="\n")
        return
    offset = 0
    for lines, line in enumerate(itertools.chain([first], iter(lambda: file.readline(longest + 1), b""))):
        if len(line) > longest:
            raise _too_long(source, lines + 1, longest)
        try:
            text = line.decode(used, errors)
        except UnicodeDecodeError as error:
            raise _undecodable(line + file.read(4096), error.start, used, source, (lines, offset)) from error
        yield text if lines else text.removeprefix("\ufeff")
        offset += len(line)


def _too_long(source: str, line: int, longest: int) -> DataError:
    what = f"{source}:{line}: this line has more than {human_bytes(longest)}"
    return DataError(what, remedy="Cut it, or, if it is meant to, train with --set data.longest_line=MEGABYTES.")


def _encoding_of(head: bytes, source: str, listener: Listener) -> str:
    """Returns UTF-8 unless the first bytes say UTF-16."""
    if head.startswith(_UTF16_BOMS):
        listener.say(f"{source}: read as UTF-16, as its byte-order mark says")
        return "utf-16"
    if head.startswith((b"PK\3\4", b"\xd0\xcf\x11\xe0")):  # zip, as .xlsx and .ods are, and what .xls is
        what = f"{source} is no text, but a spreadsheet or an archive"
        raise DataError(what, remedy="Save the sheet as CSV (UTF-8), or unpack the archive.")
    if head.count(0) > len(head) // 10:
        raise DataError(
            f"{source} is not text: its beginning is full of NUL bytes",
            remedy="If it is UTF-16 without a byte-order mark, add --encoding utf-16-le; "
            "if it is Parquet or packed, give it the suffix .parquet or .gz.",
        )
    return "utf-8"


def _looks_like(data: bytes) -> str:
    """Returns what to do about bytes that are not all UTF-8: what these are read as well by."""
    text = data.decode("utf-8", "replace")
    damaged, letters = text.count("\ufffd"), sum(map(str.isalpha, text))
    if sum(char > "\x7f" for char in text) > 2 * damaged:
        return "The bytes around it are UTF-8: correct it there, or export the file again."
    if damaged > letters:  # hardly an ASCII letter between them
        return "It is no Western encoding: name it with --encoding, such as cp1251, shift_jis or gb18030."
    likely = "cp1252" if any(0x80 <= byte < 0xA0 for byte in data) else "latin-1"
    return f"It looks like {likely}: add --encoding {likely}"


def _undecodable(data: bytes, at: int, encoding: str, source: str, before: tuple[int, int]) -> DataError:
    """Returns the error for a byte that is not the encoding.

    Args:
        data: with that byte, and what comes after it.
        at: its place in `data`.
        encoding: what it is not.
        source: the file, for messages.
        before: lines and bytes of the file before `data`.
    """
    line = before[0] + data.count(b"\n", 0, at) + 1
    in_line = at - data.rfind(b"\n", 0, at)
    known = codecs.lookup(encoding).name
    remedy = "Leave data.encoding out for UTF-8, or name another encoding."
    if known == "utf-8":
        remedy = _looks_like(data[max(0, at - 4096) : at + 4096])
    return DataError(
        f"{source}:{line}: byte 0x{data[at]:02x} is not {known} "
        f"(byte {in_line} of the line, offset {before[1] + at} in the file)",
        remedy=remedy,
    )
