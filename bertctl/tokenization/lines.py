"""Reads a stream of bytes as chunks of lines, in bounded memory."""

from collections.abc import Iterator
from typing import BinaryIO

from bertctl.encodings import likely_encoding
from bertctl.errors import DataError
from bertctl.words import human_bytes

BLOCK = 1 << 20
"""Bytes read at once."""

LONGEST_LINE = 256 << 20
"""Bytes that a line may have."""


class LineReader:
    """Reads the lines of one file, chunk by chunk.

    Lines end with a line feed, or carriage return and line feed; a byte-order mark at the beginning
    is dropped. A chunk is what one read gave, so lines from a slow pipe come as they are written.

    Args:
        file: opened for bytes.
        source: its name, for messages.
        replace: whether bytes that are not UTF-8 become U+FFFD; they are counted in `replaced`.

    Attributes:
        replaced: how many byte sequences were replaced.
        bytes: how many were read so far.
    """

    def __init__(self, file: BinaryIO, source: str, *, replace: bool = False) -> None:
        self._file = file
        self._source = source
        self._replace = replace
        self.replaced = 0  # characters that stand for bytes that are not UTF-8
        self.bytes = 0  # of the lines read so far
        self._lines = 0  # read so far

    def __iter__(self) -> Iterator[list[str]]:
        """Yields chunks of lines, without their ends.

        Raises:
            DataError: bytes that are not UTF-8, with line and byte.
        """
        # `read1` returns what a pipe has by now, where `read` waits for a whole block.
        read = getattr(self._file, "read1", self._file.read)
        rest = bytearray()
        while chunk := read(BLOCK):
            end = chunk.rfind(b"\n")
            if end < 0:
                rest += chunk
                if len(rest) > LONGEST_LINE:
                    message = (
                        f"{self._source}:{self._lines + 1}: this line has more than "
                        f"{human_bytes(LONGEST_LINE)}"
                    )
                    raise DataError(message, remedy="Cut it at the ends of sentences or documents.")
                continue
            yield self._split(bytes(rest + chunk[:end]))
            rest = bytearray(chunk[end + 1 :])
        if rest:
            yield self._split(bytes(rest))

    def _split(self, block: bytes) -> list[str]:
        """Returns the lines of a block of whole lines, without their ends.

        Raises:
            DataError: Bytes that are not UTF-8, unless they are replaced.
        """
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError as error:
            if not self._replace:
                raise self._refusal(block, error.start) from error
            text = block.decode("utf-8", "replace")
            # A U+FFFD that is in the file itself replaces nothing.
            self.replaced += text.count("\ufffd") - block.count("\ufffd".encode())
        if self.bytes == 0:
            text = text.removeprefix("\ufeff")
        lines = text.split("\n")
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        self._lines += len(lines)
        self.bytes += len(block) + 1  # with the line feed behind the block
        return lines

    def _refusal(self, block: bytes, at: int) -> DataError:
        """Returns the error for a byte that is not UTF-8, with a likely encoding of the file.

        Args:
            block: Lines; one of them has that byte.
            at: Position of the byte in the block.
        """
        line = self._lines + block.count(b"\n", 0, at) + 1
        byte_in_line = at - (block.rfind(b"\n", 0, at) + 1) + 1
        message = (
            f"{self._source}:{line}: byte {byte_in_line} of the line (0x{block[at]:02x}, byte "
            f"{self.bytes + at + 1} of the file) is not UTF-8"
        )
        encoding = "NAME"
        is_utf16 = block[:2] in (b"\xff\xfe", b"\xfe\xff") and self.bytes == 0
        if is_utf16:
            message += ": the file begins like UTF-16"
            encoding = "utf-16"
        else:
            likely = likely_encoding(b"\n".join(_not_utf8(block)))
            if likely is not None:
                encoding = likely.encoding
        return DataError(
            message,
            remedy=f"Name its encoding: `encoding={encoding}`. Or add `errors=replace`, which "
            "counts the replacements.",
        )


def _not_utf8(block: bytes) -> Iterator[bytes]:
    """Yields the lines of a block that are not UTF-8."""
    for line in block.split(b"\n"):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            yield line
