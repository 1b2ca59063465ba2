"""Rows in portions: the same as the whole file, from a file and from stdin, in bounded memory."""

import gzip
import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.read_options import SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.text_rows import TEXT_READER
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import Listener

TEXTS = [f'text {i}, "quoted"\nmore' if i % 7 == 3 else f"text {i} é" for i in range(50)]


def write(path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    suffix = path.suffixes[0]
    columns = {"text": TEXTS, "label": [str(i % 2) for i in range(50)]}
    if suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
        data = path.read_bytes()
    elif suffix == ".jsonl":
        data = "".join(
            json.dumps({"text": t, "label": y}) + "\n"
            for t, y in zip(*columns.values(), strict=True)
        ).encode()
    else:
        delimiter = "\t" if suffix == ".tsv" else ","
        quoted = ['"' + text.replace('"', '""') + '"' for text in TEXTS]
        lines = [f"text{delimiter}label", *(f"{t}{delimiter}{i % 2}" for i, t in enumerate(quoted))]
        data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_portions_together_are_the_file(tmp_path, suffix, packed):
    path = write(tmp_path / f"a{suffix}{packed}")
    read_rows = TEXT_READER.read(path, DataSection(), split="predict", label_needed=True).rows

    portions = list(TEXT_READER.stream(path, DataSection(), chunk_rows=8))

    assert [len(rows) for rows in portions] == [8] * 6 + [2]
    for name in ("text", "label"):
        column = chain.from_iterable(rows.columns[name] for rows in portions)
        assert list(column) == list(read_rows.columns[name])
    assert list(read_rows.columns["text"]) == TEXTS
    ids = chain.from_iterable(rows.ids for rows in portions)
    assert list(ids) == list(read_rows.ids)
    line_numbers = chain.from_iterable(rows.lines for rows in portions)
    assert list(line_numbers) == list(read_rows.lines)


def test_plain_lines(tmp_path):
    (tmp_path / "a.txt").write_bytes(b'one, two\tthree\r\n\n"quoted\nlast')
    of_the_run = DataSection(text_column="review")
    rows = list(
        TEXT_READER.stream(tmp_path / "a.txt", of_the_run, hints=frozenset({"text_column"}))
    )
    assert list(rows[0].columns["text"]) == ["one, two\tthree", "", '"quoted', "last"]
    assert list(rows[0].lines) == [1, 2, 3, 4]


def test_columns_are_chosen_once_and_labels_are_optional(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(f'{{"review": "t{i}", "n": {i}}}\n' for i in range(5)), encoding="utf-8"
    )
    portions = list(TEXT_READER.stream(path, DataSection(label_column="sentiment"), chunk_rows=2))
    assert [list(rows.columns) for rows in portions] == [["text", "n"]] * 3
    path.write_text('{"text": "a"}\n{"words": "b"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="no column 'text'"):
        list(TEXT_READER.stream(path, DataSection(), chunk_rows=1))


def test_a_key_that_later_lines_lack_is_missing_there_as_in_the_whole_file(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(
            json.dumps({"text": f"t{i}", **({"label": "x"} if i < 2 else {})}) + "\n"
            for i in range(5)
        )
    )
    portions = list(TEXT_READER.stream(path, DataSection(), chunk_rows=2))
    assert [text for rows in portions for text in rows.columns["text"]] == [
        f"t{i}" for i in range(5)
    ]


def test_quoting_between_tabs_is_judged_by_the_whole_file(tmp_path):
    lines = ["text\tlabel", *(f'"text {i}"\t1' for i in range(2000)), '"not closed\t1', "end\t0"]
    (tmp_path / "a.tsv").write_text("\n".join(lines), encoding="utf-8")
    texts = []
    for rows in TEXT_READER.stream(tmp_path / "a.tsv", DataSection()):
        texts += rows.columns["text"]
    assert texts == list(
        TEXT_READER.read(
            tmp_path / "a.tsv", DataSection(), split="x", label_needed=True
        ).rows.columns["text"]
    )
    assert texts[0] == '"text 0"'
    assert texts[-2:] == ['"not closed', "end"]


@pytest.mark.parametrize("kind", [None, "lines", "csv"])
def test_bytes_that_are_not_utf8_in_a_stream(tmp_path, kind):
    path = tmp_path / ("a.txt" if kind is None else "a.csv")
    path.write_bytes(b"text\n" + b"fine\n" * 5000 + b"caf\xe9 here\n")
    with pytest.raises(DataError, match=r":5002: byte 0xe9 .*\(byte 4 of the line, offset 25008"):
        list(TEXT_READER.stream(path, DataSection(), kind=kind))


def test_streams_without_rows_or_with_bad_records_are_refused(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "header.csv").write_bytes(b"text,label\n")
    (tmp_path / "wide.csv").write_bytes(b"text,label\na,1\nb,c,0\n")
    with pytest.raises(DataError, match="no rows"):
        list(TEXT_READER.stream(tmp_path / "empty.txt", DataSection()))
    with pytest.raises(DataError, match="no rows"):
        list(TEXT_READER.stream(tmp_path / "header.csv", DataSection()))
    with pytest.raises(DataError, match=r"wide.csv:3: 3 fields"):
        list(TEXT_READER.stream(tmp_path / "wide.csv", DataSection()))
    with pytest.raises(DataError, match="is empty"):
        list(TEXT_READER.stream(tmp_path / "empty.txt", DataSection(), kind="csv"))
    with pytest.raises(UsageError, match=r"format 'json': .*jsonl\?"):
        list(TEXT_READER.stream(tmp_path / "empty.txt", DataSection(), kind="json"))
    with pytest.raises(UnavailableError, match="does not exist"):
        list(TEXT_READER.stream(tmp_path / "none.csv", DataSection()))


def test_utf16_and_latin1_streams(tmp_path):
    (tmp_path / "a.txt").write_bytes("één\ntwee\n".encode("utf-16"))
    assert list(next(TEXT_READER.stream(tmp_path / "a.txt", DataSection())).columns["text"]) == [
        "één",
        "twee",
    ]
    (tmp_path / "b.txt").write_bytes("één\n".encode("latin-1"))
    assert list(
        next(TEXT_READER.stream(tmp_path / "b.txt", DataSection(encoding="latin-1"))).columns[
            "text"
        ]
    ) == ["één"]


def test_blank_texts_are_counted_over_all_portions(tmp_path):
    messages: list[str] = []

    class Heard(Listener):
        def say(self, text: str) -> None:
            messages.append(text)

    (tmp_path / "a.txt").write_text("a\n\n" * 10, encoding="utf-8")
    assert (
        sum(
            len(rows)
            for rows in TEXT_READER.stream(
                tmp_path / "a.txt", DataSection(), chunk_rows=3, listener=Heard()
            )
        )
        == 20
    )
    (options,) = messages
    assert options.startswith(f"{tmp_path}/a.txt: 10 of 20 texts ")


_FROM_STDIN = """
import resource, sys
from bertctl.config.recipe_sections import DataSection
from bertctl.data.text_rows import TEXT_READER
count = 0
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for rows in TEXT_READER.stream("-", DataSection(), kind=sys.argv[1] or None):
    if not count:
        print(list(rows.columns), rows.columns["text"][0], rows.where(0))
    count += len(rows)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(count, rows.ids[-1], (after - before) // 1024)
"""


def from_stdin(data: bytes, kind: str) -> list[str]:
    command = [sys.executable, "-c", _FROM_STDIN, kind]
    return (
        subprocess.run(command, input=data, capture_output=True, timeout=3600, check=True)
        .stdout.decode()
        .splitlines()
    )


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".csv.gz"])
def test_stdin_in_every_format(tmp_path, suffix):
    data = write(tmp_path / f"a{suffix}").read_bytes()
    output, counted = from_stdin(data, suffix.split(".")[1])
    assert output.startswith("['text', 'label'] text 0 é stdin")
    assert counted.startswith("50 49 ")


@pytest.mark.slow
def test_a_large_stream_stays_in_bounded_memory():
    line = b"a line of words that is long enough to count as one \n"
    output, counted = from_stdin(line * 600_000, "")  # 32 MB
    assert output == "['text'] a line of words that is long enough to count as one  stdin:1"
    count, last, grown = map(int, counted.split())
    assert count == 600_000
    assert last == 599_999
    assert grown < 8


@pytest.mark.parametrize(
    ("task", "good", "bad"),
    [
        ("text-classification", '{"text": "a"}', r'{"text": "\uD800"}'),
        ("token-classification", '{"words": ["a"]}', r'{"words": ["a", "\ud800"]}'),
        (
            "multiple-choice",
            '{"context": "a", "choices": ["b", "c"]}',
            r'{"context": "a", "choices": ["b", "\ud800"]}',
        ),
    ],
)
def test_half_a_surrogate_pair_is_refused_wherever_it_stands_or_left_out_with_its_row(
    tmp_path, task, good, bad
):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{good}\n{bad}\n{good}\n")
    with pytest.raises(DataError, match=r"a\.jsonl:2: .* half of a surrogate pair"):
        list(READERS[task].stream(path, DataSection()))
    skipped = SkippedRows()
    [rows] = READERS[task].stream(path, DataSection(), skipped=skipped)
    assert list(rows.lines) == [1, 3]
    assert [error.message.split(": ")[0] for error in skipped.errors] == [f"{path}:2"]
    (tmp_path / "a.json").write_text(f"[\n{good},\n{bad}\n]")
    with pytest.raises(DataError, match=r"a\.json:3: .* half of a surrogate pair"):
        list(READERS[task].stream(tmp_path / "a.json", DataSection()))


def test_half_a_surrogate_pair_in_a_text_of_an_annotation_tool_is_refused(tmp_path):
    (tmp_path / "a.json").write_text(r'[{"id": 7, "data": {"text": "\ud800"}, "annotations": []}]')
    with pytest.raises(DataError, match="half of a surrogate pair"):
        list(READERS["token-classification"].stream(tmp_path / "a.json", DataSection()))


def test_rows_of_a_file_without_lines_keep_their_numbers_where_others_are_skipped_and_in_chunks(
    tmp_path,
):
    rows = [
        {"text": ["no text"] if number in (2, 5) else "a", "label": "x"} for number in range(1, 7)
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    reader = READERS["text-classification"]
    section = DataSection()
    read_rows = reader.read(
        tmp_path / "rows.json", section, split="train", label_needed=True, skipped=SkippedRows()
    ).rows
    parts = reader.stream(tmp_path / "rows.json", section, chunk_rows=2, skipped=SkippedRows())
    for actual in ([read_rows], parts):
        values = []
        for part in actual:
            values += [part.where(index) for index in range(len(part))]
        assert values == [f"{tmp_path / 'rows.json'}, row {number}" for number in (1, 3, 4, 6)]
