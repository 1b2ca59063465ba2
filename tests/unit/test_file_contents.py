"""What a file is stands in its bytes.

It is read as that and said to be, or refused with what to type.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import shlex
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.guessing import guess_task
from bertctl.data.readers import READERS
from bertctl.data.text_rows import TEXT_READER
from bertctl.errors import DataError
from tests.heard import Heard

ROWS = [{"text": f"a fine film, number {i}", "label": "good" if i % 2 else "bad"} for i in range(8)]


def as_table(delimiter: str) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["text", "label"], delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(ROWS)
    return out.getvalue()


def as_parquet() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), buffer)
    return buffer.getvalue()


LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
CONTENTS: dict[str, bytes] = {
    "JSON lines": LINES.encode(),
    "JSON lines behind a blank line": b"\n" + LINES.encode("utf-8-sig")[3:],
    "a JSON array": json.dumps(ROWS).encode(),
    "a JSON array over lines": json.dumps(ROWS, indent=2).encode(),
    "JSON objects over lines": "\n".join(json.dumps(row, indent=2) for row in ROWS).encode(),
    "JSON objects begun on their first line": "\n".join(
        json.dumps(row, indent=2).replace("{\n ", "{", 1) for row in ROWS
    ).encode(),
    "UTF-16": LINES.encode("utf-16"),
    "CSV": as_table(",").encode(),
    "CSV with semicolons": as_table(";").encode(),
    "TSV": as_table("\t").encode(),
    "Parquet": as_parquet(),
}
NAMES = [".txt", ".csv", ".tsv", ".jsonl", ".json", ".parquet", ".dat", ""]


@pytest.mark.parametrize("is_gzip", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("suffix", NAMES)
@pytest.mark.parametrize("content", CONTENTS)
def test_rows_are_the_same_whatever_the_file_is_called(tmp_path, content, suffix, is_gzip):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(CONTENTS[content]) if is_gzip else CONTENTS[content])
    for rows in (
        TEXT_READER.read(path, DataSection(), split="train", label_needed=True).rows,
        next(TEXT_READER.stream(path, DataSection())),
    ):
        assert list(rows.columns["text"]) == [row["text"] for row in ROWS]
        assert list(rows.columns["label"]) == [row["label"] for row in ROWS]


@pytest.mark.parametrize(
    ("content", "message"), [("JSON lines", "JSON"), ("Parquet", "Parquet"), ("CSV", "a table")]
)
def test_another_content_than_the_name_says_is_told(tmp_path, content, message):
    path = tmp_path / "a.txt"
    path.write_bytes(CONTENTS[content])
    listener = Heard()
    list(TEXT_READER.stream(path, DataSection(), listener=listener))
    assert f"read as {message} by its content, though it is named .txt" in listener.said[0]
    assert "`input_format=lines`" in listener.said[0]


def test_lines_of_text_stay_lines_and_those_like_json_are_told(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text('one, two\n{"text": "three"}\n[four] {five}\n', encoding="utf-8")
    listener = Heard()
    [rows] = TEXT_READER.stream(path, DataSection(), listener=listener)
    assert list(rows.columns["text"]) == ["one, two", '{"text": "three"}', "[four] {five}"]
    assert "1 of 3 lines looks like JSON" in listener.warned[0]
    listener = Heard()
    list(TEXT_READER.stream(path, DataSection(), kind="lines", listener=listener))
    assert not listener.warned


def zipped(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, as_table(","))
    return buffer.getvalue()


def damaged() -> bytes:
    data = bytearray(gzip.compress(as_table(",").encode()))
    data[-6] ^= 255
    return bytes(data)


REFUSED: dict[str, tuple[bytes, str, str]] = {
    "xz": (lzma.compress(b"text,label\n"), "packed with xz", "xz -dc"),
    "bzip2": (bz2.compress(b"text,label\n"), "packed with bzip2", "bzip2 -dc"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(20), "packed with zstd", "zstd -dc"),
    "zip": (zipped("a.csv"), "zip archive", "unzip"),
    "a workbook": (zipped("xl/workbook.xml"), "a spreadsheet", "Save the sheet as CSV"),
    "gzip twice": (
        gzip.compress(gzip.compress(b"text,label\n")),
        "packed with gzip twice",
        "gzip -d",
    ),
    "a wrong checksum": (damaged(), "breaks off or is damaged", "gzip -t"),
    "half of a gzip": (damaged()[:40], "breaks off or is damaged", "gzip -t"),
    "UTF-16 without a mark": (
        as_table(",").encode("utf-16-le"),
        "full of NUL bytes",
        "`data.encoding=utf-16-le`",
    ),
    "UTF-16 of the other order": (
        as_table(",").encode("utf-16-be"),
        "full of NUL bytes",
        "`data.encoding=utf-16-be`",
    ),
    "a page": (
        b"<!DOCTYPE html>\n<html>404</html>\n",
        "a page of HTML",
        "Download the file itself",
    ),
    "a pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
        "Git LFS",
        "git lfs pull",
    ),
    "a pickle": (b"\x80\x04\x95" + bytes(40), "a pickle", "CSV"),
    "Feather": (b"ARROW1\0\0" + bytes(40), "Feather", "to_parquet"),
    "SQLite": (b"SQLite format 3\0" + bytes(40), "SQLite", "sqlite3"),
    "a tar archive": (
        b"a.csv".ljust(257, b"\0") + b"ustar" + bytes(40),
        "a tar archive",
        "tar -xf",
    ),
}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.csv.gz", "two words.txt"])
@pytest.mark.parametrize("content", REFUSED)
def test_what_holds_no_rows_as_it_is_is_refused_with_what_to_type(tmp_path, content, name):
    data, message, remedy = REFUSED[content]
    path = tmp_path / name
    is_packed = name.endswith(".gz") and not data.startswith(b"\x1f\x8b")
    path.write_bytes(gzip.compress(data) if is_packed else data)
    kind = "csv" if content == "a page" else None  # in lines of text, markup is nothing strange
    if content == "a page" and name.endswith(".txt"):
        return
    with pytest.raises(DataError, match=message) as caught:
        list(TEXT_READER.stream(path, DataSection(), kind=kind))
    assert remedy in caught.value.remedy
    assert str(path) not in caught.value.remedy.replace(shlex.quote(str(path)), "")


def test_a_plain_file_that_is_named_gz_is_refused_with_what_it_begins_with(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_text(as_table(","), encoding="utf-8")
    with pytest.raises(
        DataError, match=r"named \.gz but is not gzip: it begins with b'text,label"
    ) as caught:
        list(TEXT_READER.stream(path, DataSection()))
    assert f"mv {path} {path.with_suffix('')}" in caught.value.remedy


COLUMNS = {name: [row[name] for row in ROWS] for name in ("text", "label")}
TABLES = {
    "columns": {name: dict(enumerate(values)) for name, values in COLUMNS.items()},
    "index": dict(enumerate(ROWS)),
    "split": {"columns": ["text", "label"], "index": [0], "data": [["a", "good"]]},
    "dictionary of lists": COLUMNS,
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("orient", TABLES)
def test_json_of_columns_is_refused_with_the_way_to_write_rows(tmp_path, orient, indent):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(TABLES[orient], indent=indent), encoding="utf-8")
    with pytest.raises(DataError, match="this JSON has a table by its columns") as caught:
        guess_task(path, DataSection())
    assert "orient='records'" in caught.value.remedy


def test_a_row_of_words_and_tags_is_no_table_by_its_columns(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"words": ["Anna", "sleeps"], "tags": ["B-PER", "O"]}\n', encoding="utf-8")
    assert guess_task(path, DataSection())[0] == "token-classification"


@pytest.mark.parametrize("name", ["a.txt", "a.conll", "a.csv"])
def test_words_and_tags_in_json_are_known_by_any_name(tmp_path, name):
    path = tmp_path / name
    path.write_text('{"words": ["Anna", "sleeps"], "tags": ["B-PER", "O"]}\n' * 3, encoding="utf-8")
    rows = (
        READERS["token-classification"]
        .read(path, DataSection(), split="train", label_needed=True)
        .rows
    )
    assert list(rows.columns["words"]) == [["Anna", "sleeps"]] * 3


@pytest.mark.parametrize(
    "content", ["hello there\n", "\n".join(json.dumps(row, indent=2) for row in ROWS)[:-9]]
)
def test_what_is_no_json_shows_an_example_of_texts(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match="this is not JSON") as caught:
        guess_task(path, DataSection())
    assert '{"text": "...", "label": "..."}' in caught.value.remedy


@pytest.mark.parametrize("text", ["data", "Review Text", "body_of_mail"])
@pytest.mark.parametrize("spans", ["label", "labels", "entities", "spans"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.txt"])
def test_spans_are_known_whatever_their_text_is_called(tmp_path, text, spans, name):
    """As doccano exports them: a list of starts, ends and names."""
    rows = [
        {"id": 1, text: "I like ramen with Anna", spans: [[7, 12, "FOOD"], [18, 22, "PER"]]},
        {"id": 2, text: "Bob is here", spans: [[0, 3, "PER"]]},
        {"id": 3, text: "nothing to see here", spans: []},
    ]
    path = tmp_path / name
    joined = (
        json.dumps(rows) if name == "a.json" else "".join(json.dumps(row) + "\n" for row in rows)
    )
    path.write_text(joined, encoding="utf-8")
    assert guess_task(path, DataSection())[0] == "token-classification"
    read_rows = (
        READERS["token-classification"]
        .read(path, DataSection(), split="train", label_needed=True)
        .rows
    )
    assert read_rows.columns["label"][0] == ["O", "O", "B-FOOD", "O", "B-PER"]
