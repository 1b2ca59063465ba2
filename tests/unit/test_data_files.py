"""A person's own files.

Every format reads the same, what is detected is said, what is wrong is refused.
"""

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.read_options import ReadOptions, SkippedRows
from bertctl.data.recipe_data import load_data
from bertctl.data.rows import Rows
from bertctl.data.text_rows import TEXT_READER
from bertctl.errors import BertctlError, DataError, UnavailableError, UsageError
from bertctl.progress import Listener
from tests.heard import Heard

TEXTS = ["plain", 'with "quotes", comma', "two\nlines", "naïve – 10 €", " spaces ", "x"]
LABELS = ["pos", "neg", "pos", "neg", "pos", "neg"]


def write(path: Path, content: str | bytes, *, encoding: str = "utf-8") -> Path:
    data = content if isinstance(content, bytes) else content.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(
    path: Path, *, listener: Listener | None = None, label_needed: bool = True, **data: object
) -> Rows:
    section = DataSection(**data)
    reading = TEXT_READER.read(
        path, section, split="train", label_needed=label_needed, listener=listener or Listener()
    )
    return reading.rows


def refusal(path: Path, kind: type[BertctlError], **data: object) -> str:
    with pytest.raises(kind) as caught:
        read(path, **data)
    assert isinstance(caught.value, kind)
    return f"{caught.value.message}\n{caught.value.remedy}"


def as_csv(delimiter: str = ",", line_end: str = "\n") -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=line_end)
    writer.writerow(["text", "label", "genre"])
    writer.writerows([text, label, "g"] for text, label in zip(TEXTS, LABELS, strict=True))
    return out.getvalue()


def content_of(suffix: str) -> bytes:
    columns = {"text": TEXTS, "label": LABELS, "genre": ["g"] * len(TEXTS)}
    if suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(pa.table(columns), buffer)
        return buffer.getvalue()
    if suffix == ".jsonl":
        objects = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in objects).encode()
    return as_csv("\t" if suffix == ".tsv" else ",").encode()


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_rows(tmp_path, suffix, packed):
    rows = read(write(tmp_path / f"a{suffix}{packed}", content_of(suffix)))
    assert list(rows.columns["text"]) == TEXTS
    assert list(rows.columns["label"]) == LABELS
    assert list(rows.columns["genre"]) == ["g"] * 6
    assert list(rows.ids) == list("012345")
    lines = {
        ".csv": [2, 3, 4, 6, 7, 8],
        ".tsv": [2, 3, 4, 6, 7, 8],
        ".jsonl": [1, 2, 3, 4, 5, 6],
        ".parquet": [],
    }
    assert list(rows.lines) == lines[suffix]  # the third text has two lines
    assert rows.where(3).startswith(rows.source)
    if suffix in (".csv", ".tsv"):
        assert rows.where(3) == f"{rows.source}:6"


@pytest.mark.parametrize("chunk_rows", [None, 1])
def test_numbers_that_datasets_wrote_for_labels_are_read_as_their_names(tmp_path, chunk_rows):
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    columns = {
        "text": [*TEXTS, "y", "z"],
        "label": [*(int(label == "pos") for label in LABELS), None, -1],
    }
    Dataset.from_dict(columns, features=features).to_parquet(tmp_path / "a.parquet")
    options = ReadOptions(DataSection(), "train", label_needed=False, chunk_rows=chunk_rows)
    readings = list(TEXT_READER.readings(tmp_path / "a.parquet", options))
    assert [label for reading in readings for label in reading.rows.columns["label"]] == [
        *LABELS,
        None,
        None,
    ]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", None),
        ("latin-1", "latin-1"),
        ("cp1252", "cp1252"),
    ],
)
def test_encodings_and_line_ends(tmp_path, encoding, message, line_end):
    text = as_csv(line_end=line_end).replace("€", "é").replace("–", "-")
    rows = read(
        write(tmp_path / "a.csv", text, encoding=encoding),
        **({"encoding": message} if message else {}),
    )
    assert list(rows.columns["text"]) == [t.replace("€", "é").replace("–", "-") for t in TEXTS]
    assert list(rows.columns)[:2] == ["text", "label"]


def test_a_note_to_a_spreadsheet_is_no_header(tmp_path):
    with pytest.raises(DataError, match="'sep=;' is a note to a spreadsheet"):
        read(write(tmp_path / "a.csv", "sep=;\n" + as_csv(";")))


@pytest.mark.parametrize(
    "head", [b"PK\3\4\x14\0\x08\x08\x08\0\n\x83", bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512)]
)
def test_a_spreadsheet_is_refused_as_one(tmp_path, head):
    (tmp_path / "a.csv").write_bytes(head)
    with pytest.raises(DataError, match="not text but a spreadsheet") as raised:
        read(tmp_path / "a.csv")
    assert "Save the sheet as CSV" in (raised.value.remedy or "")


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt"])
def test_delimiters_are_detected_and_said_where_the_suffix_says_another(
    tmp_path, delimiter, suffix
):
    listener = Heard()
    rows = read(write(tmp_path / f"a{suffix}", as_csv(delimiter)), listener=listener)
    assert list(rows.columns["text"]) == TEXTS
    usual = {".csv": ","}.get(suffix, "\t")
    assert any("separated by" in text for text in listener.said) == (delimiter != usual)


def test_old_carriage_return_files_are_read(tmp_path):
    rows = read(write(tmp_path / "a.csv", "text,label\rone,1\rtwo,2\r"))
    assert list(rows.columns["text"]) == ["one", "two"]


def test_old_carriage_return_files_with_a_line_feed_in_a_cell_are_refused_for_that(tmp_path):
    with pytest.raises(
        DataError, match=r"a\.csv:1: a carriage return stands inside a field"
    ) as raised:
        read(write(tmp_path / "a.csv", 'text,label\rone,1\r"two\nlines",2\r'))
    assert "CSV (Macintosh)" in (raised.value.remedy or "")


def test_a_very_long_field_is_read(tmp_path):
    text = "word " * 100_000
    assert (
        read(write(tmp_path / "a.csv", f'text,label\n"{text}",1\nb,2\n')).columns["text"][0] == text
    )


# Quotes between tabs


def test_tab_separated_quotes_that_are_not_balanced_stay(tmp_path):
    listener = Heard()
    content = 'text\tlabel\n"the start\t1\nmiddle\t0\nthe "end"\t1\n" alone\t0\n'
    rows = read(write(tmp_path / "a.tsv", content), listener=listener)
    assert list(rows.columns["text"]) == ['"the start', "middle", 'the "end"', '" alone']
    assert any("plain characters" in text for text in listener.said)


def test_tab_separated_quotes_do_not_glue_even_lines(tmp_path):
    # quote-aware, this would be one record of two fields
    content = 'text\tlabel\n"opened\t1\nmiddle\t0\nclosed"\t1\n'
    rows = read(write(tmp_path / "a.tsv", content))
    assert list(rows.columns["text"]) == ['"opened', "middle", 'closed"']


def test_tab_separated_csv_quotes_are_understood(tmp_path):
    rows = read(write(tmp_path / "a.tsv", 'text\tlabel\n"a ""b"" c"\t1\n"two\nlines"\t0\n'))
    assert list(rows.columns["text"]) == ['a "b" c', "two\nlines"]
    assert list(rows.lines) == [2, 3]


# Headers


def test_a_file_without_header_is_detected_and_said(tmp_path):
    listener = Heard()
    rows = read(
        write(tmp_path / "a.tsv", "a fine film\t1\nbad , bad\t0\nso good\t1\n"), listener=listener
    )
    assert list(rows.columns["text"]) == ["a fine film", "bad , bad", "so good"]
    assert list(rows.columns["label"]) == ["1", "0", "1"]
    assert rows.lines[0] == 1
    assert "no header found" in listener.said[0]
    assert "text from 'column1', label from 'column2'" in listener.said[1]


def test_the_label_may_come_first_without_header(tmp_path):
    rows = read(write(tmp_path / "a.tsv", "ham\thow are you\nspam\twin now\nham\tsee you\n"))
    assert list(rows.columns["text"]) == ["how are you", "win now", "see you"]


@pytest.mark.parametrize(
    ("content", "header"),
    [
        ("text,label\na,1\nb,0\n", True),
        ("utterance,intent\na,1\nb,0\n", True),  # unknown names over a column of numbers
        (",utterance,intent\n0,a,x\n1,b,y\n", True),  # as pandas writes its index
        ("good,pos\nbad,neg\nfine,pos\n", False),  # a label comes again
        ("good,1\nbad,0\n", False),
        ("comment,1\nother,0\n", True),  # a usual name, and it does not come again
        (
            "comment,a\nother,b\ncomment,c\n",
            False,
        ),  # it comes again, in a row that is not the first again
    ],
)
def test_a_first_line_is_a_header_or_a_row_by_what_it_holds(tmp_path, content, header):
    path = write(tmp_path / "a.csv", content)
    names = content.splitlines()[0].split(",") if header else ["column1", "column2"]
    names = [name or "column1" for name in names]
    rows = read(path, text_column=names[-2], label_column=names[-1])
    assert len(rows) == content.count("\n") - header


def test_header_can_be_said(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\na,1\nb,0\n")
    assert list(read(path, header=False, text_column="column1").columns["text"]) == [
        "text",
        "a",
        "b",
    ]


def test_sentences_of_the_real_file(shared_data):
    rows = read(shared_data / "sst2-sentences" / "train.tsv")
    assert len(rows) == 6920
    assert set(rows.columns["label"]) == {"0", "1"}


# Refusals


def test_too_few_and_too_many_fields(tmp_path):
    few = refusal(write(tmp_path / "few.csv", 'text,label\n"two\nlines",1\nalone\n'), DataError)
    assert f"{tmp_path}/few.csv:4: 1 field " in few
    assert "2 (text, label): 'alone'" in few
    many = refusal(write(tmp_path / "many.csv", "text,label\na,1\nb, and c,0\nd,1\n"), DataError)
    assert "many.csv:3: 3 fields " in many
    assert "2 (text, label): 'b, and c,0'" in many
    assert "quotes" in many
    tab = refusal(write(tmp_path / "a.tsv", "text\tlabel\na\t1\nb\tc\t0\n"), DataError)
    assert "a.tsv:3: 3 fields " in tab


def test_quotes_that_are_not_closed_or_followed_by_text(tmp_path):
    opened = refusal(
        write(tmp_path / "a.csv", 'text,label\na,1\n"never closed,0\nb,1\n'), DataError
    )
    assert "a.csv:3: " in opened
    assert "never closed" in opened
    followed = refusal(write(tmp_path / "b.csv", 'text,label\na,1\n"said" he,0\n'), DataError)
    assert "b.csv:3: " in followed
    assert "closing quote (line 3)" in followed
    assert '""no""' in followed


@pytest.mark.parametrize(
    ("content", "lines", "message"),
    [
        (
            'text,label\na,x\nb,"x\nc,y\nd,y\n',
            [2],
            "a.csv:3: a quoted field is opened in this record and never closed",
        ),
        (
            'text,label\na,x\n"b" he said,x\nc,y\n"d\ne",y\n',
            [2, 4, 5],
            "a.csv:3: after a closing quote (line 3)",
        ),
    ],
)
def test_records_with_wrong_quotes_that_are_skipped_are_told_of(tmp_path, content, lines, message):
    skipped = SkippedRows()
    [rows] = TEXT_READER.stream(write(tmp_path / "a.csv", content), DataSection(), skipped=skipped)
    assert list(rows.lines) == lines
    [error] = skipped.errors
    assert message in error.message


def test_bytes_that_are_not_utf8(tmp_path):
    message = refusal(write(tmp_path / "a.csv", b"text,label\nok,1\ncaf\xe9 here,0\n"), DataError)
    assert "a.csv:3: byte 0xe9 " in message
    assert "(byte 4 of the line, offset 19 " in message
    assert "`data.encoding=latin-1`" in message
    windows = refusal(write(tmp_path / "b.csv", b"text,label\nit\x92s,1\ncaf\xe9,0\n"), DataError)
    assert "`data.encoding=cp1252`" in windows


def test_bytes_that_are_not_the_encoding_that_was_said(tmp_path):
    message = refusal(
        write(tmp_path / "a.csv", "text,label\ncafé,1\n"), DataError, encoding="ascii"
    )
    assert "a.csv:2: byte 0xc3 " in message
    assert "ascii" in message
    assert "'utf9'" in refusal(tmp_path / "a.csv", UsageError, encoding="utf9")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".csv.gz"])
def test_empty_files(tmp_path, suffix):
    assert "is empty" in refusal(write(tmp_path / f"a{suffix}", ""), DataError)


def test_files_without_rows(tmp_path):
    assert "header but no rows" in refusal(write(tmp_path / "a.csv", "text,label\n"), DataError)
    assert "blank lines" in refusal(write(tmp_path / "b.csv", "\n\n"), DataError)
    assert "no rows" in refusal(write(tmp_path / "c.jsonl", "\n"), DataError)


def test_missing_files_show_the_nearest_names(tmp_path):
    write(tmp_path / "train.csv", as_csv())
    message = refusal(tmp_path / "trian.csv", UnavailableError)
    assert "did you mean train.csv?" in message
    assert f"In {tmp_path}: train.csv." in message
    assert "did you mean train.csv?" in refusal(tmp_path / "train.cvs", UnavailableError)
    assert "nor does the folder" in refusal(tmp_path / "nowhere" / "a.csv", UnavailableError)
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in refusal(tmp_path / "folder.csv", UnavailableError)


def test_unknown_suffixes(tmp_path):
    assert "'.xlsx'" in refusal(write(tmp_path / "a.xlsx", b"PK"), UsageError)
    assert "has no suffix" in refusal(write(tmp_path / "a", b"text"), UsageError)


def test_files_that_are_not_what_their_suffix_says(tmp_path):
    assert "not gzip" in refusal(
        write(tmp_path / "a.csv", b"text").rename(tmp_path / "a.csv.gz"), DataError
    )
    packed = gzip.compress(as_csv().encode() * 50)
    (tmp_path / "b.csv.gz").write_bytes(packed[: len(packed) // 2])
    assert "breaks off" in refusal(tmp_path / "b.csv.gz", DataError)
    assert "Parquet" in refusal(
        write(tmp_path / "c.parquet", b"a fine film\na dull one\n"), DataError
    )
    assert "is not text" in refusal(
        write(tmp_path / "d.csv", as_csv(), encoding="utf-16-le"), DataError
    )


def test_json_lines_that_are_no_objects(tmp_path):
    good = '{"text": "a", "label": 1}\n'
    assert "a.jsonl:3: " in refusal(write(tmp_path / "a.jsonl", good + "\n{text: b}\n"), DataError)
    assert "b.jsonl:2: list " in refusal(
        write(tmp_path / "b.jsonl", good + '["b", 1]\n'), DataError
    )
    assert "c.json:3: " in refusal(write(tmp_path / "c.json", f"[\n{good}}}]\n"), DataError)
    half = refusal(
        write(tmp_path / "d.jsonl", good + '{"text": "\\ud83d", "label": 1}\n'), DataError
    )
    assert "d.jsonl:2: " in half
    assert "half of a surrogate pair" in half


def test_texts_that_are_no_texts(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": 1}\n{"text": ["b"], "label": 1}\n')
    assert "a.jsonl:2: column 'text' holds list" in refusal(path, DataError)


# Values


def test_json_values_pass_as_they_are(tmp_path):
    labels = [1, 0.5, "word", True, ["a", "b"], None]
    objects = [{"text": i, "label": label} for i, label in enumerate(labels)]
    rows = read(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, objects))))
    assert list(rows.columns["label"]) == labels
    assert list(rows.columns["text"]) == list("012345")


def test_blank_and_null_texts_are_examples_and_counted(tmp_path):
    listener = Heard()
    lines = [
        '{"text": null, "label": 1}',
        '{"text": "  ", "label": 1}',
        '{"label": 0}',
        '{"text": "x", "label": 0}',
    ]
    rows = read(write(tmp_path / "a.jsonl", "\n".join(lines)), listener=listener)
    assert list(rows.columns["text"]) == ["", "  ", "", "x"]
    assert any("3 of 4 texts" in text for text in listener.said)
    assert list(read(write(tmp_path / "b.csv", "text,label\n,1\nx,0\n")).columns["text"]) == [
        "",
        "x",
    ]


def test_blank_lines_between_rows_are_counted(tmp_path):
    listener = Heard()
    rows = read(write(tmp_path / "a.csv", "text,label\na,1\n\n\nb,0\n\n"), listener=listener)
    assert list(rows.lines) == [2, 5]
    (warning,) = listener.warned
    assert warning.startswith(f"{tmp_path}/a.csv: 2 blank lines")


cells = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=12
)


@settings(max_examples=150, deadline=None)
@given(
    records=st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=8),
    line_end=st.sampled_from(["\n", "\r\n"]),
    delimiter=st.sampled_from([",", "\t", ";"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_the_csv_module_writes_reads_back(
    tmp_path_factory, records, line_end, delimiter, quoting
):
    if (
        line_end == "\n" and quoting == csv.QUOTE_MINIMAL
    ):  # the module then leaves \r unquoted, and can't read it either
        assume(not any("\r" in cell for record in records for cell in record))
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=line_end, quoting=quoting)
    writer.writerow(["text", "note", "other"])
    writer.writerows(records)
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(out.getvalue().encode())
    rows = read(path, delimiter=delimiter, header=True, label_needed=False, label_column="absent")
    assert (
        list(zip(*(rows.columns[name] for name in ("text", "note", "other")), strict=True))
        == records
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "{bad\n{worse\n", r"a\.jsonl:2: this is not JSON"),
        ("a.csv", 'text,label\n"good,x\nbad,y\n', r"a\.csv:2: a quoted field is opened"),
    ],
)
def test_where_every_record_is_bad_and_left_out_it_is_said_what_is_wrong(
    tmp_path, name, content, message
):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        list(TEXT_READER.stream(tmp_path / name, DataSection(), skipped=SkippedRows()))


def test_numbers_of_rows_count_the_records_that_were_left_out_of_their_own_file(tmp_path):
    row = '{"text": "a", "label": "x"}\n'
    (tmp_path / "train.jsonl").write_text(f"{row}{{bad\n{{worse\n{row}")
    (tmp_path / "validation.jsonl").write_text(f"{row}{row}{{no\n{row}")
    files = DataSection(
        **{f"{name}_file": str(tmp_path / f"{name}.jsonl") for name in ("train", "validation")}
    )
    skipped = SkippedRows()
    read = load_data(Recipe(task="text-classification", data=files), skipped=skipped)
    assert {name: rows.ids for name, rows in read.splits.items()} == {
        "train": ["0", "3"],
        "validation": ["0", "1", "3"],
    }
    assert len(skipped.errors) == 3
