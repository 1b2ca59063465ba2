"""Tables of answers read back equal: by bertctl, by Python's csv, and by pandas."""

import csv
import io

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.text_rows import TEXT_READER
from bertctl.inference.layouts import write_answers

TEXTS = (
    [
        "line one\rline two",
        "line one\nline two",
        "line one\r\nline two",
        "\r",
        "ends in one\r",
        "\rbegins with one",
    ]
    + [f"a{character}b" for character in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00\t,;|'"]
    + ['"', 'she said "no"', '"all of it"', " blanks ", "#comment", "\ufeffmark", "plain"]
)


def written(layout: str, texts: list[str] = TEXTS) -> str:
    out = io.StringIO(newline="")
    answers = (
        {"id": str(i), "text": text, "prediction": "good", "other": [text]}
        for i, text in enumerate(texts)
    )
    write_answers(answers, out, layout=layout)
    return out.getvalue()


@pytest.mark.parametrize("layout", ["csv", "tsv"])
def test_a_written_table_has_line_feeds_and_reads_back_equal(tmp_path, layout):
    content = written(layout, ["plain", "two\rlines"])
    assert content.count("\r") == 1  # the list's one is written \r by JSON
    path = tmp_path / f"a.{layout}"
    path.write_text(written(layout), encoding="utf-8", newline="")
    [rows] = TEXT_READER.stream(path, DataSection(text_column="text"), chunk_rows=None)
    assert list(rows.columns["text"]) == TEXTS
    with path.open(encoding="utf-8", newline="") as file:
        actual = csv.DictReader(file, delimiter="\t" if layout == "tsv" else ",")
        assert [row["text"] for row in actual] == TEXTS


@pytest.mark.parametrize("layout", ["csv", "tsv"])
@pytest.mark.parametrize("engine", ["c", "python"])
def test_pandas_reads_a_written_table_back_equal(tmp_path, layout, engine):
    pandas = pytest.importorskip("pandas")
    texts = [text for text in TEXTS if "\x00" not in text]  # which pandas leaves out
    path = tmp_path / f"a.{layout}"
    path.write_text(written(layout, texts), encoding="utf-8", newline="")
    frame = pandas.read_csv(path, sep="\t" if layout == "tsv" else ",", engine=engine)
    assert list(frame["text"]) == texts
