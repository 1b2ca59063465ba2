"""A header that stands twice, as in files joined by `cat`.

It is refused by file and line, or left out and counted.
"""

import gzip
from pathlib import Path

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.read_options import SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.text_rows import TEXT_READER
from bertctl.errors import DataError, WholeFileError

HEADER = "text,label\n"
ROWS = "a fine film,good\na dull film,bad\nbright and warm,good\ncold and grey,bad\n"
JOINED = {
    "in the middle": HEADER + ROWS + HEADER + ROWS,
    "at the end": HEADER + ROWS + HEADER,
    "at once": HEADER + HEADER + ROWS,
    "without a line feed": (HEADER + ROWS + HEADER).rstrip("\n"),
    "in another case, with blanks": HEADER + ROWS + "Text, Label \n" + ROWS,
    "after a byte-order mark": HEADER + ROWS + "\ufeff" + HEADER + ROWS,
    "quoted after a byte-order mark": HEADER + ROWS + '\ufeff"text","label"\n' + ROWS,
    "with names nobody knows": ("stuff,outcome\n" + ROWS) * 2,
    "with an index column": ",stuff,outcome\n0,fine "
    "film,good\n1,dull,bad\n,stuff,outcome\n0,warm,good\n",
}


def lines_of_headers(content: str) -> list[int]:
    lines = content.splitlines()
    header = lines[0].casefold()
    numbers = []
    for number, line in enumerate(lines, start=1):
        plain = line.removeprefix("\ufeff").replace('"', "").casefold()
        cells = [cell.strip() for cell in plain.split(",")]
        if ",".join(cells) == header:
            numbers.append(number)
    return numbers[1:]


def write(path: Path, content: str) -> Path:
    data = content.replace(",", "\t") if ".tsv" in path.name else content
    path.write_bytes(gzip.compress(data.encode()) if path.suffix == ".gz" else data.encode())
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
@pytest.mark.parametrize("content", JOINED.values(), ids=JOINED)
def test_a_second_header_is_refused_with_its_line(tmp_path, name, content):
    path = write(tmp_path / name, content)
    with pytest.raises(DataError, match="the header is repeated here") as caught:
        TEXT_READER.read(path, DataSection(), split="train", label_needed=True)
    assert caught.value.line == lines_of_headers(content)[0]


@pytest.mark.parametrize("chunk_rows", [None, 2])
def test_every_further_header_can_be_left_out_and_is_counted(tmp_path, chunk_rows):
    path = write(tmp_path / "a.csv", HEADER + (ROWS + HEADER) * 3)
    skipped = SkippedRows()
    chunks = list(TEXT_READER.stream(path, DataSection(), chunk_rows=chunk_rows, skipped=skipped))
    assert sum(map(len, chunks)) == 12
    assert [error.line for error in skipped.errors] == [6, 11, 16]


def test_a_header_behind_the_lines_that_formats_are_detected_from_is_found(tmp_path):
    path = write(tmp_path / "a.csv", HEADER + ROWS * 300 + HEADER)
    with pytest.raises(DataError, match=":1202: the header is repeated here"):
        list(TEXT_READER.stream(path, DataSection()))


def test_a_second_header_in_another_order_is_refused_even_where_rows_are_skipped(tmp_path):
    """The rows behind it have their label in the column of the text."""
    path = write(tmp_path / "a.csv", HEADER + ROWS + "label,text\ngood,a fine book\n")
    with pytest.raises(
        WholeFileError, match=":6: a second header has its columns in another order: label, text"
    ):
        list(TEXT_READER.stream(path, DataSection(), skipped=SkippedRows()))


def test_a_text_may_be_the_name_of_its_column_in_another_case(tmp_path):
    path = write(tmp_path / "a.csv", "text\na fine film\nText\nanother\n")
    [rows] = TEXT_READER.stream(path, DataSection())
    assert list(rows.columns["text"]) == ["a fine film", "Text", "another"]


@pytest.mark.parametrize(
    ("task", "content"),
    [
        (
            "question-answering",
            "question,context,answers\nWho?,Anna wrote it.,Anna\nquestion,context,answers\n",
        ),
        (
            "multiple-choice",
            "context,choice1,choice2,label\na,b,c,0\ncontext,choice1,choice2,label\n",
        ),
        (
            "sentence-embeddings",
            "sentence1,sentence2,score\na b,c d,0.5\nsentence1,sentence2,score\n",
        ),
        ("text-regression", "text,score\na fine film,0.5\ntext,score\n"),
    ],
)
def test_the_tables_of_every_task_have_one_header(tmp_path, task, content):
    path = write(tmp_path / "a.csv", content)
    with pytest.raises(DataError, match=":3: the header is repeated here"):
        READERS[task].read(path, DataSection(), split="train", label_needed=True)


@pytest.mark.parametrize("header", [None, True])
def test_tagged_columns_have_their_names_once(tmp_path, header):
    sentence = "token\tner\nAnna\tB-PER\nsleeps\tO\n\n"
    path = tmp_path / "a.tsv"
    path.write_text(sentence + "\ufeff" + sentence, encoding="utf-8")
    reader = READERS["token-classification"]
    with pytest.raises(DataError, match=":5: the names of the columns stand here again"):
        reader.read(path, DataSection(header=header), split="train", label_needed=True)
    skipped = SkippedRows()
    rows = reader.read(
        path, DataSection(header=header), split="train", label_needed=True, skipped=skipped
    ).rows
    assert list(rows.columns["words"]) == [["Anna", "sleeps"]] * 2
    assert [error.line for error in skipped.errors] == [5]
