"""Files that others wrote, as the one reader takes them."""

import tracemalloc
from pathlib import Path

import pytest

from bertctl.documents import read_json_lines, read_text
from bertctl.errors import DataError


def test_a_small_file_takes_little_memory_however_large_one_may_be(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\n' * 3, encoding="utf-8")
    tracemalloc.start()
    try:
        assert read_json_lines(path, limit=2**32) == [{"a": 1}] * 3
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"x" * 100)
    assert read_text(path, limit=100) == "x" * 100
    with pytest.raises(DataError, match=r"lines\.jsonl is larger than 99 B"):
        read_text(path, limit=99, kind=DataError)
