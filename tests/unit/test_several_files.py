"""Several files that are read as one.

The rows, numbers and chunks of the concatenated file, and refusals.
"""

import gzip
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.file_lists import FileList, files_of
from bertctl.data.read_options import SkippedRows
from bertctl.data.tagged_files import TaggingReader
from bertctl.data.text_rows import TEXT_READER
from bertctl.errors import BertctlError, DataError, UnavailableError, UsageError

Texts = Sequence[str]


def _write_csv(path: Path, texts: Texts) -> None:
    path.write_text(
        "".join(["review,stars\n", *(f'"{text}",{i % 5}\n' for i, text in enumerate(texts))])
    )


def _write_csv_gz(path: Path, texts: Texts) -> None:
    _write_csv(path, texts)
    path.write_bytes(gzip.compress(path.read_bytes()))


def _write_jsonl(path: Path, texts: Texts) -> None:
    path.write_text(
        "".join(json.dumps({"review": text, "stars": i % 5}) + "\n" for i, text in enumerate(texts))
    )


def _write_parquet(path: Path, texts: Texts) -> None:
    pq.write_table(
        pa.table({"review": list(texts), "stars": [i % 5 for i in range(len(texts))]}), path
    )


def _write_lines(path: Path, texts: Texts) -> None:
    path.write_text("".join(f"{text}\n" for text in texts))


_WRITERS: dict[str, Callable[[Path, Texts], None]] = {
    "csv": _write_csv,
    "csv.gz": _write_csv_gz,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
    "txt": _write_lines,
}


def _texts(first: int, last: int) -> list[str]:
    return [f"the film was good, said number {i}" for i in range(first, last)]


def _rows(
    source: FileList | Path, chunk_rows: int | None = 8
) -> list[tuple[list[str], dict[str, list[object]]]]:
    stream = TEXT_READER.stream(source, DataSection(), chunk_rows=chunk_rows)
    return [
        (list(rows.ids), {name: list(values) for name, values in rows.columns.items()})
        for rows in stream
    ]


@pytest.mark.parametrize("chunk_rows", [8, 5, 100, None])
@pytest.mark.parametrize("kind", _WRITERS)
def test_the_rows_numbers_and_chunks_are_those_of_the_concatenated_file(
    tmp_path: Path, kind: str, chunk_rows: int | None
) -> None:
    write = _WRITERS[kind]
    (tmp_path / "parts").mkdir()
    bounds = [0, 5, 21, 22, 30]
    for number, (first, last) in enumerate(itertools.pairwise(bounds), start=8):
        write(tmp_path / "parts" / f"part-{number}.{kind}", _texts(first, last))
    if kind != "txt":
        (tmp_path / "parts" / f"part-7.{kind}").write_bytes(
            (tmp_path / "parts" / f"part-8.{kind}").read_bytes()
        )
        write(tmp_path / "parts" / f"part-7.{kind}", [])
    write(tmp_path / f"all.{kind}", _texts(0, 30))
    expected = _rows(tmp_path / f"all.{kind}", chunk_rows)
    if chunk_rows is None and kind == "txt":
        pytest.skip("a whole text file is a table")

    files = files_of([str(tmp_path / "parts" / f"part-*.{kind}")])
    rows = _rows(files, chunk_rows)

    assert [ids for ids, _ in rows] == [ids for ids, _ in expected]
    assert [columns["text"] for _, columns in rows] == [columns["text"] for _, columns in expected]


def test_a_pattern_sorts_numbers_by_their_size(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        (tmp_path / f"part-{number}.txt").write_text("a line\n")

    files = files_of([str(tmp_path / "part-*.txt")])

    assert [path.name for path in files.paths] == ["part-1.txt", "part-9.txt", "part-10.txt"]


def test_sentences_of_several_files_of_columns_go_on_in_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Anna B-PER\nsings O\n\nWell O\n\n")
    (tmp_path / "b.conll").write_text("Rome B-LOC\n\n")
    files = files_of([str(tmp_path / "a.conll"), str(tmp_path / "b.conll")])

    rows = list(TaggingReader().stream(files, DataSection()))

    assert [list(part.ids) for part in rows] == [["0", "1", "2"]]


def test_rows_that_are_left_out_count_in_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"text": "one"}\nno JSON\n{"text": "two", "label": 2}\nno JSON\n'
    )
    (tmp_path / "b.jsonl").write_text('{"text": "three"}\nno JSON\n{"text": "four"}\n')
    (tmp_path / "all.jsonl").write_bytes(
        (tmp_path / "a.jsonl").read_bytes() + (tmp_path / "b.jsonl").read_bytes()
    )

    def ids(source: FileList | Path) -> list[str]:
        skipped = SkippedRows()
        parts = list(TEXT_READER.stream(source, DataSection(), skipped=skipped))
        assert len(skipped.errors) == 3
        return [row_id for rows in parts for row_id in rows.ids]

    expected = ids(tmp_path / "all.jsonl")

    assert ids(files_of([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])) == expected


def test_ids_of_the_files_own_stay(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n17,one\n")
    (tmp_path / "b.csv").write_text("id,text\n3,two\n")
    files = files_of([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")])

    (rows,) = TEXT_READER.stream(files, DataSection(id_column="id"))

    assert list(rows.ids) == ["17", "3"]


@pytest.mark.parametrize(
    ("names", "contents", "message"),
    [
        (
            ("a.csv", "b.csv"),
            ("text,stars\nfine,1\n", "sentence,stars\nfine,1\n"),
            "is read by its columns 'text'",
        ),
        (
            ("a.csv", "b.csv"),
            ("text,stars\nfine,1\n", "text\nfine\n"),
            "different columns: 'stars' in one of them only",
        ),
        (
            ("a.csv", "b.csv"),
            ("text\nfine\n", "text,stars\nfine,1\n"),
            "different columns: 'stars' in one of them only",
        ),
        (
            ("a.csv", "b.jsonl"),
            ("text,stars\nfine,1\n", '{"text": "x", "stars": 1}\n'),
            "is csv and",
        ),
        (
            ("a.jsonl", "b.jsonl"),
            ('{"text": "x"}\n', '{"sentence": "x"}\n'),
            "is read by its columns 'text'",
        ),
    ],
)
def test_files_with_different_columns_are_refused_with_both_names(
    tmp_path: Path, names: Sequence[str], contents: Sequence[str], message: str
) -> None:
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_text(content)

    with pytest.raises(UsageError) as refused:
        _rows(files_of([str(tmp_path / name) for name in names]))

    assert message in refused.value.message
    assert all(str(tmp_path / name) in refused.value.message for name in names)


def test_objects_may_lack_a_column_that_nobody_reads(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one", "label": 1, "note": "x"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": "two", "label": 2}\n')

    [(ids, columns)] = _rows(files_of([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]))

    assert ids == ["0", "1"]
    assert columns["note"] == ["x", None]


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        (["part-*.csv"], UnavailableError),
        (["-", "a.csv"], UsageError),
        (["a.csv", "none.csv"], UnavailableError),
    ],
)
def test_inputs_that_are_none_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str], kind: type[BertctlError]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("text\nfine\n")

    with pytest.raises(kind):
        _rows(files_of(typed))


def test_files_of_which_none_has_rows_are_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("text,stars\n")

    with pytest.raises(DataError, match="no rows"):
        _rows(files_of([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]))
