"""Columns without a name and hardly a value are no columns of texts, and do not hide a header."""

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.guessing import guess_task
from bertctl.data.text_rows import TEXT_READER
from tests.heard import Heard

ROWS = [
    ("ham", f"see you at {i} tonight") if i % 3 else ("spam", f"win {i} in cash now")
    for i in range(30)
]


def table(header: str, rest: str, delimiter: str = ",", *, strays: int = 0) -> str:
    lines = [
        f"{label},{text},{'and more of it' if i < strays else ''}{rest}"
        for i, (label, text) in enumerate(ROWS)
    ]
    return "\n".join([header, *lines]).replace(",", delimiter) + "\n"


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
@pytest.mark.parametrize(
    ("header", "rest", "strays"),
    [("v1,v2,,,", ",,", 0), ("v1,v2,,,", ",,", 2), ("v1,v2,", "", 1), ("kind,words,,", ",", 0)],
)
def test_the_header_and_the_columns_with_values_are_found(tmp_path, name, header, rest, strays):
    path = tmp_path / name
    delimiter = "\t" if name == "a.tsv" else ","
    path.write_text(table(header, rest, delimiter, strays=strays), encoding="utf-8")
    task, fields, _ = guess_task(path, DataSection())
    label, text = header.split(",")[:2]
    assert task == "text-classification"
    assert fields["data.text_column"] == text
    assert fields["data.label_column"] == label
    listener = Heard()
    rows = TEXT_READER.read(
        path, DataSection(), split="train", label_needed=True, listener=listener
    ).rows
    assert len(rows) == len(ROWS)
    assert any(
        f"{strays} row" in message and "without a name" in message for message in listener.said
    ) == bool(strays)


def test_rows_with_empty_columns_and_no_header_stay_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(table("ham,what a day,,,", ",,"), encoding="utf-8")
    rows = TEXT_READER.read(path, DataSection(), split="train", label_needed=True).rows
    assert len(rows) == len(ROWS) + 1
    assert rows.columns["text"][0] == "what a day"


def test_a_named_column_that_is_hardly_filled_is_not_taken_for_the_text(tmp_path):
    path = tmp_path / "a.csv"
    lines = [
        f"{label},{text},{'seen by two people, no doubt' if i == 4 else ''}"
        for i, (label, text) in enumerate(ROWS)
    ]
    lines[4] = f'{ROWS[4][0]},{ROWS[4][1]},"seen by two people, no doubt"'
    path.write_text("\n".join(["kind,words,remarks", *lines]) + "\n", encoding="utf-8")
    assert guess_task(path, DataSection())[1]["data.text_column"] == "words"
