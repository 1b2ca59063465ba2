"""A file's own ids stand for its rows, in every format, task and way of reading."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.read_options import SkippedRows
from bertctl.data.readers import READERS
from bertctl.errors import DataError
from tests.heard import Heard

TEXTS = ["a fine film", "a dull film", "a warm song"]
TEXT_READER = READERS["text-classification"]


def write(path: Path, ids: list[Any], name: str = "id", **more: list[Any]) -> Path:
    """Writes three labelled texts with their ids in the format that the suffix says."""
    columns: dict[str, list[Any]] = {
        name: ids,
        "text": TEXTS,
        "label": ["pos", "neg", "pos"],
        **more,
    }
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        separator = "\t" if ".tsv" in path.name else ","
        lines = [separator.join(columns), *(separator.join(map(str, row.values())) for row in rows)]
        content = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def answer_ids(path: Path, listener: Heard | None = None, **settings: Any) -> list[Any]:
    """Returns the ids under which `predict` answers the rows of a file."""
    chunks = TEXT_READER.stream(
        path, DataSection(**settings), listener=listener or Heard(), chunk_rows=2
    )
    return [rows.answer_id(index) for rows in chunks for index in range(len(rows))]


@pytest.mark.parametrize(
    "name", ["rows.csv", "rows.tsv", "rows.csv.gz", "rows.jsonl", "rows.json", "rows.parquet"]
)
def test_ids_of_a_file_are_those_of_its_answers(tmp_path, name):
    ids = ["00012", "7", "b-3"]
    assert answer_ids(write(tmp_path / name, ids)) == ids


@pytest.mark.parametrize("column", ["id", "ID", "Id", "_id", "guid", "UID", "uuid"])
def test_usual_names_of_ids_are_known(tmp_path, column):
    assert answer_ids(write(tmp_path / "rows.csv", [3, 2, 1], column)) == ["3", "2", "1"]


@pytest.mark.parametrize("column", ["idx", "index", "nr"])
def test_counters_and_unknown_names_are_no_ids_until_they_are_named(tmp_path, column):
    path = write(tmp_path / "rows.csv", [30, 20, 10], column)
    assert answer_ids(path) == ["0", "1", "2"]
    assert answer_ids(path, id_column=column) == ["30", "20", "10"]


@pytest.mark.parametrize(
    "ids", [[7, 5, 6], [{"$oid": "x"}, {"$oid": "y"}, {"$oid": "z"}], [1.5, "b", None], [[1], 2, 3]]
)
def test_ids_of_json_keep_their_type(tmp_path, ids):
    assert answer_ids(write(tmp_path / "rows.jsonl", ids)) == ids


def test_an_id_among_several_names_is_the_one_called_id(tmp_path):
    assert answer_ids(write(tmp_path / "rows.csv", ["a", "b", "c"], "guid", id=[3, 2, 1])) == [
        "3",
        "2",
        "1",
    ]


def test_a_column_of_blank_ids_is_none(tmp_path):
    assert answer_ids(write(tmp_path / "rows.csv", ["", "", ""])) == ["0", "1", "2"]


def test_ids_that_repeat_across_chunks_are_kept_and_told(tmp_path):
    listener = Heard()
    assert answer_ids(write(tmp_path / "rows.csv", ["a", "b", "a"]), listener) == ["a", "b", "a"]
    [warning] = listener.warned
    assert "1 of 3 ids in 'id' repeat an earlier one" in warning


def test_named_ids_that_repeat_across_chunks_are_refused(tmp_path):
    with pytest.raises(DataError, match="the id 'a' occurs in 'id' twice"):
        answer_ids(write(tmp_path / "rows.csv", ["a", "b", "a"]), id_column="id")


@pytest.mark.parametrize("ids", [["a", "b", "a"], ["a", "", "c"]])
def test_labelled_rows_whose_ids_are_not_distinct_are_numbered_and_told(tmp_path, ids):
    listener = Heard()
    path = write(tmp_path / "rows.csv", ids)
    rows = TEXT_READER.read(
        path, DataSection(), split="file", label_needed=True, listener=listener
    ).rows
    assert rows.ids == ["0", "1", "2"]
    assert not rows.file_ids
    assert any("so the rows are numbered instead" in warning for warning in listener.warned)


def test_labelled_rows_have_the_ids_of_their_file(tmp_path):
    path = write(tmp_path / "rows.csv", ["00012", "7", "b"])
    rows = TEXT_READER.read(path, DataSection(), split="file", label_needed=True).rows
    assert rows.ids == rows.file_ids == ["00012", "7", "b"]


def test_ids_stay_with_their_rows_where_others_are_skipped(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,text\n9,a\n8,b,c\n7,d\n")
    skipped = SkippedRows()
    chunks = TEXT_READER.stream(path, DataSection(), skipped=skipped)
    assert [rows.answer_id(index) for rows in chunks for index in range(len(rows))] == ["9", "7"]
    assert len(skipped.errors) == 1


@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("token-classification", {"words": ["Anna", "sleeps"]}),
        ("token-classification", {"text": "Anna sleeps"}),
        ("multiple-choice", {"context": "Who?", "choices": ["Anna", "Carl"]}),
        ("question-answering", {"question": "Who?", "context": "Anna sleeps"}),
        ("text-regression", {"text": "a film"}),
    ],
)
def test_ids_of_other_tasks_are_kept(tmp_path, task, row):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"id": number, **row}) + "\n" for number in (12, 5)))
    [rows] = READERS[task].stream(path, DataSection())
    assert [rows.answer_id(index) for index in range(2)] == [12, 5]


def test_ids_of_annotation_tools_are_kept(tmp_path):
    path = tmp_path / "tasks.json"
    path.write_text(
        json.dumps([{"id": number, "data": {"text": "Anna sleeps"}} for number in (31, 12)])
    )
    [rows] = READERS["token-classification"].stream(path, DataSection())
    assert [rows.answer_id(index) for index in range(2)] == ["31", "12"]


def test_an_id_is_no_label(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,text\n" + "".join(f"{number % 2},a fine film {number}\n" for number in range(6))
    )
    [rows] = TEXT_READER.stream(path, DataSection())
    assert not rows.has("label")
