"""Lines of a file, decoded one by one or as a whole.

Bytes that are not the encoding are refused with file, line and byte.
"""

import codecs
import io
import itertools
from collections.abc import Iterator
from typing import BinaryIO, Literal

from bertctl.data.file_contents import PARQUET, is_page
from bertctl.data.wrong_encodings import (
    UTF16_BOMS,
    MojibakeGuard,
    full_of_nul,
    lines_not_utf8,
    refuse_utf8,
    undecodable,
)
from bertctl.documents import is_encoding
from bertctl.errors import DataError, UsageError
from bertctl.memory import MemoryGuard, rows_of_size
from bertctl.progress import Listener
from bertctl.words import human_bytes

LONGEST_LINE = 16_000_000
"""Bytes that a line may have, unless the recipe says otherwise."""

LONGEST_DOCUMENT = 250_000_000
"""Bytes of what can only be read as a whole (a JSON document, UTF-16), unless the recipe says
otherwise."""

_BYTES_BETWEEN_CHECKS = 1_000_000
"""Bytes of lines between two looks at the memory."""


class NoRowsError(DataError):
    """A file that is whole and has no rows."""


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
            refuse_utf8(
                data,
                encoding_used,
                source,
                listener,
                is_wide=is_wide,
            )
        yield from _decoded_whole(data, encoding_used, source, errors)
        return

    memory_guard = MemoryGuard(source, "lines")
    offset = 0  # bytes of the lines so far
    next_check = 0  # offset from which the memory is checked again
    n_beyond_ascii = 0  # lines with other characters than ASCII
    mojibake_guard = None
    if encoding is not None:  # a named encoding may be the wrong one
        mojibake_guard = MojibakeGuard(source, encoding_used, listener)
    later_lines = iter(lambda: file.readline(longest + 1), b"")  # until the file ends
    for n_before, line in enumerate(itertools.chain([first_line], later_lines)):
        if len(line) > longest:
            raise _too_long(source, n_before + 1, longest)
        try:
            text = line.decode(encoding_used, errors)
        except UnicodeDecodeError as error:
            # The message shows further lines that are not UTF-8, so the next lines are read, too.
            bad_lines = lines_not_utf8(
                itertools.chain([line], later_lines),
                first_line=n_before + 1,
                beyond_ascii=n_beyond_ascii,
            )
            raise undecodable(
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
            n_expected = 0  # for lines that do not stay in memory
            if all_stay:
                n_expected = rows_expected(file, n_lines)
            memory_guard.check(n_lines, n_expected)
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
        raise undecodable(
            data,
            at=error.start,
            encoding=encoding,
            source=source,
            before=(0, 0),
        ) from error
    if "\n" not in content:
        content = content.replace("\r", "\n")
    return iter(io.StringIO(content, newline="\n"))


def _encoding_of(head: bytes, source: str, listener: Listener) -> str:
    """Returns the encoding of a file by its first bytes: UTF-16 by its byte-order mark, else UTF-8.

    Args:
        head: The first bytes.
        source: Name of the file.
        listener: Told if it is UTF-16.

    Raises:
        DataError: They are no text: Parquet, a page of HTML, or NUL bytes.
    """
    if head.startswith(UTF16_BOMS):
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
        raise full_of_nul(head, source)
    return "utf-8"


def _too_long(source: str, line: int, longest: int) -> DataError:
    """Returns the error for a line with more than `longest` bytes."""
    message = f"{source}:{line}: this line has more than {human_bytes(longest)}"
    return DataError(
        message,
        remedy="Cut it, or, if it is meant to, train with `data.longest_line=MEGABYTES`.",
    )


def rows_expected(file: BinaryIO, rows: int) -> int:
    """Returns about how many rows an open file has; 0 for one without a size, such as a pipe.

    Args:
        file: The file. The share of its bytes that has been read tells how many rows are left.
        rows: How many rows have been read.
    """
    # The size of an unpacked gzip file is unknown, so the share is that of its packed bytes.
    bytes_on_disk = getattr(file, "fileobj", file)
    return rows_of_size(bytes_on_disk, rows)
