"""Bytes to portions of lines."""

import io
import itertools

import pytest

from bertctl.errors import DataError
from bertctl.tokenization.lines import BLOCK, LineReader


class Trickle(io.RawIOBase):
    """A pipe that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data = io.BytesIO(data)
        self._size = size

    def read1(self, _most: int) -> bytes:
        return self._data.read(self._size)


def lines(data: bytes, *, size: int | None = None, replace: bool = False) -> list[str]:
    file = io.BytesIO(data) if size is None else Trickle(data, size)
    portions = LineReader(file, "f.txt", replace=replace)
    return list(itertools.chain.from_iterable(portions))


@pytest.mark.parametrize("size", [None, 1, 2, 3, 7])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"a\n\n\nb\n", ["a", "", "", "b"]),
        ("é—中\n❤\u2028x\x0by\x1cz\n".encode(), ["é—中", "❤\u2028x\x0by\x1cz"]),
        (b"nul\x00\n", ["nul\x00"]),
    ],
)
def test_lines_however_the_bytes_arrive(data: bytes, expected: list[str], size: int | None) -> None:
    assert lines(data, size=size) == expected


def test_a_line_longer_than_a_block() -> None:
    long = "é" * BLOCK
    assert lines(f"a\n{long}\nb\n".encode()) == ["a", long, "b"]


def test_a_line_is_as_long_as_its_bytes_however_many_pieces_they_come_in() -> None:
    """A slow pipe's line of 800 bytes in 400 pieces was refused as one of more than 268 MB."""
    assert lines(b"a " * 400, size=2) == ["a " * 400]


@pytest.mark.parametrize("size", [None, 4])
def test_bytes_that_are_not_utf8_are_refused_with_line_and_byte(size: int | None) -> None:
    with pytest.raises(DataError) as caught:
        lines("erste\nzwei é\n".encode() + b"caf\xe9 au lait\n", size=size)
    assert caught.value.message.startswith(
        "f.txt:3: byte 4 of the line (0xe9, byte 18 of the file)"
    )
    assert "`errors=replace`" in caught.value.remedy


def test_utf16_is_named() -> None:
    with pytest.raises(DataError, match="UTF-16"):
        lines("hello".encode("utf-16"))


def test_replaced_bytes_are_counted_and_characters_that_were_there_are_not() -> None:
    reader = LineReader(io.BytesIO("\ufffd\n".encode() + b"a\xff\xfe\nb\n"), "f.txt", replace=True)
    assert list(reader) == [["\ufffd", "a\ufffd\ufffd", "b"]]
    assert reader.replaced == 2
