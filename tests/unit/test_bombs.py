"""Files of a few bytes that become very many: refused before they fill the memory."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl import memory
from bertctl.catalog.word_vectors import word_vectors_folder
from bertctl.config.recipe_sections import DataSection
from bertctl.data.parquet_batches import bytes_of_rows
from bertctl.data.table import HEAVIEST_CHUNK, in_chunks
from bertctl.data.text_files import open_bytes
from bertctl.data.text_rows import TEXT_READER
from bertctl.documents import require_room_for_json
from bertctl.errors import DataError, DeviceError
from bertctl.memory import Limits

LONG_CELL = "x " * 9_000_000


def rows_of(path: Path, *, chunk_rows: int | None = 2048) -> int:
    return sum(
        len(rows)
        for rows in TEXT_READER.stream(path, DataSection(text_column="text"), chunk_rows=chunk_rows)
    )


def repeated(text: str, n_rows: int) -> pa.Table:
    indices = pa.array(np.zeros(n_rows, np.int32))
    dictionary = pa.array([text])
    texts = pa.DictionaryArray.from_arrays(indices, dictionary)
    return pa.table({"text": texts})


def write_plain_cell(path: Path) -> None:
    table = pa.table({"text": ["short", LONG_CELL]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)


def write_dictionary_cell(path: Path) -> None:
    pq.write_table(repeated(LONG_CELL, 3000), path, compression="zstd")


def write_repeated_cells(path: Path) -> None:
    pq.write_table(
        repeated("x " * 500_000, 100_000), path, compression="zstd", write_statistics=False
    )


def write_many_rows(path: Path) -> None:
    pq.write_table(repeated("good film", 1_100_000), path)


def write_nested_cells(path: Path) -> None:
    words = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(100_000, np.int32)), pa.array(["y" * 10_000])
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 100_000], pa.int32()), words)
    pq.write_table(pa.table({"text": ["a"], "words": lists}), path, compression="zstd")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_plain_cell, "row 2: the cell of 'text' has 18 MB, more than 16 MB"),
        (write_dictionary_cell, "column 'text': a cell has more than 16 MB"),
        (write_repeated_cells, "becomes more than 1,000 times its size"),
        (write_many_rows, "1,100,000 rows in .*: more rows than bytes"),
        (write_nested_cells, "the cell of 'words' has 1.0 GB, more than 16 MB"),
    ],
)
@pytest.mark.parametrize("chunk_rows", [None, 2048])
def test_parquet_that_becomes_too_much_is_refused(
    write: Callable[[Path], None], message: str, chunk_rows: int | None, tmp_path: Path
) -> None:
    write(tmp_path / "bomb.parquet")

    with pytest.raises(DataError, match=message):
        rows_of(tmp_path / "bomb.parquet", chunk_rows=chunk_rows)


def test_a_longer_cell_is_read_where_the_recipe_allows_it(tmp_path: Path) -> None:
    write_plain_cell(tmp_path / "long.parquet")

    [rows] = TEXT_READER.stream(
        tmp_path / "long.parquet", DataSection(text_column="text", longest_line=20)
    )

    assert rows.columns["text"] == ["short", LONG_CELL]


@pytest.mark.parametrize("block", [b"\n" * 2**20, b"x " * 2**19])
def test_gzip_that_becomes_too_much_is_refused(block: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.txt.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(70):
            file.write(block)

    with (
        pytest.raises(
            DataError, match=r"has more lines than packed bytes|unpacks to more than 200"
        ),
        open_bytes(path) as file,
    ):
        file.read(1)


def test_small_gzip_may_repeat_as_much_as_it_likes(tmp_path: Path) -> None:
    content = b"good film\n" * 90_000
    (tmp_path / "rows.txt.gz").write_bytes(gzip.compress(content))

    with open_bytes(tmp_path / "rows.txt.gz") as file:
        assert file.read() == content


def test_word_vectors_have_no_line_without_end(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("word" + " 0.5" * 300_000 + "\n")

    with pytest.raises(DataError, match=r"vectors.txt:1: .*a line of more than 1 MB"):
        word_vectors_folder(tmp_path / "vectors.txt")


def test_a_quoted_cell_ends_where_a_line_would(tmp_path: Path) -> None:
    (tmp_path / "open.csv").write_text('text,label\n"' + ("good film\n" * 110_000))

    with pytest.raises(DataError, match="a field of this record has more than 1 MB"):
        list(TEXT_READER.stream(tmp_path / "open.csv", DataSection(longest_line=1)))


def test_json_that_takes_more_than_is_free_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "group_limits", lambda: Limits(memory=30_000_000, used=0))
    text = json.dumps([[]] * 300_000)

    with pytest.raises(DeviceError, match=r"the JSON of a\.json needs"):
        require_room_for_json(text, "a.json")


def test_a_chunk_of_long_rows_is_shorter() -> None:
    rows = [(i, "x" * (HEAVIEST_CHUNK // 32)) for i in range(100)]

    chunks = list(in_chunks(rows, 80, weight=lambda row: len(row[1])))

    assert [len(chunk) for chunk in chunks] == [48, 48, 4]
    assert [row for chunk in chunks for row in chunk] == rows


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["abc", None, "é"]), [3, 0, 2]),
        (pa.array(["abc", None, "abc"]).dictionary_encode(), [3, 0, 3]),
        (pa.array([["a", "bc"], [], None]), [35, 0, 0]),
        (pa.array([{"a": "xy"}, {"a": ""}]), [2, 0]),
        (pa.array([1, 2], pa.int64()), [8, 8]),
    ],
)
def test_bytes_of_rows(column: pa.Array, expected: list[int]) -> None:
    assert bytes_of_rows(column).tolist() == expected
