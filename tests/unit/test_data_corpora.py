"""What a document and a sentence of a corpus is in each layout.

It also tests which documents are held out, and which lines are refused.
"""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.config.recipe_sections import DataSection, PretrainingSection
from bertctl.data.corpora import MOST_HELD_OUT, Document, Survey, open_corpora, survey
from bertctl.errors import BertctlError, DataError, ExitCode, UnavailableError
from bertctl.tasks.pretraining.corpus_windows import weights_of

TEXTS = ["The cat sat. It slept! Did it?", "A second text. It ends here."]
CUT = [["The cat sat.", "It slept!", "Did it?"], ["A second text.", "It ends here."]]


def _documents(path: Path, **settings: object) -> list[tuple[str, list[str]]]:
    section = DataSection(**settings)
    [corpus] = open_corpora([str(path)], section)
    return [(document.id, document.sentences) for document in corpus.documents()]


def _written(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a", "a.text"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_empty_lines_between_texts_make_a_line_a_sentence(
    tmp_path: Path, name: str, end: str
) -> None:
    lines = ["", "One. Two.", "Three.", "", " \t", "", "Four.", ""]
    path = _written(tmp_path / name, end.join(lines))
    assert _documents(path) == [(f"{name}:2", ["One. Two.", "Three."]), (f"{name}:7", ["Four."])]


@pytest.mark.parametrize("around", ["", "\n\n"])
def test_without_them_a_line_is_a_document(tmp_path: Path, around: str) -> None:
    path = _written(tmp_path / "a.txt", around + "\n".join(TEXTS) + around)
    first = 1 + around.count("\n")
    assert _documents(path) == [(f"a.txt:{first}", CUT[0]), (f"a.txt:{first + 1}", CUT[1])]


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.csv", "a.tsv.gz", "a.parquet"]
)
def test_a_row_with_a_text_column_is_a_document(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = [{"n": i, "body": text} for i, text in enumerate([*TEXTS, "", "Two\n\nlines. No"])]
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif "json" in name:
        lines = [json.dumps(row) for row in rows]
        _written(path, "\n".join(lines) if "jsonl" in name else f"[{', '.join(lines)}]")
    else:
        tab = "\t" if "tsv" in name else ","
        _written(
            path, f"n{tab}body\n" + "".join(f'{row["n"]}{tab}"{row["body"]}"\n' for row in rows)
        )
    documents = _documents(path, text_column="body")
    assert [sentences for _, sentences in documents] == [*CUT, [], ["Two", "lines.", "No"]]
    first = 2 if name in ("a.csv", "a.tsv.gz") else 1
    assert [name for name, _ in documents] == [f"{name}:{first + i}" for i in range(4)]


def test_more_rows_than_are_read_at_once_keep_their_numbers(tmp_path: Path) -> None:
    columns = {"text": [f"text {i}" for i in range(700)], "id": ["same"] * 700}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    expected = [(f"a.parquet:{i + 1}", [f"text {i}"]) for i in range(700)]
    assert _documents(tmp_path / "a.parquet", id_column="id") == expected


def test_a_folder_is_its_files_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.jsonl", ".hidden/c.txt", "a/.d.txt", "e.png"):
        _written(
            tmp_path / "texts" / name, '{"text": "in json"}' if "json" in name else f"in {name}"
        )
    assert _documents(tmp_path / "texts") == [
        ("a/z.jsonl:1", ["in json"]),
        ("b.txt:1", ["in b.txt"]),
    ]


def test_corpora_of_one_name_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/train.txt", "b/train.txt.gz", "b/other.txt"):
        _written(tmp_path / name, "text")
    opened = open_corpora(["a/train.txt", "b/train.txt.gz", "b", "b/other.txt"], DataSection())
    assert [corpus.name for corpus in opened] == ["a/train.txt", "b/train.txt.gz", "b", "other"]
    ids = [document.id for corpus in opened for document in corpus.documents()]
    assert len(set(ids)) == len(ids) == 5


def test_sentences_end_at_their_marks() -> None:
    line = "He said 3.14. She left... 真的吗？是的。 End"
    assert Document("", [line], cut=True).sentences == [
        "He said 3.14.",
        "She left...",
        "真的吗？",
        "是的。",
        "End",
    ]
    assert Document("", [line], cut=False).sentences == [line]


@pytest.mark.parametrize(
    ("name", "content", "settings", "message", "code"),
    [
        ("a.txt", b"", {}, "a.txt is empty", ExitCode.DATA),
        ("a.txt", b"fine\nb\xe4d\n", {}, "a.txt:2: byte 0xe4 is not utf-8", ExitCode.DATA),
        (
            "a.txt",
            b"fine\n" + b"x" * 1_100_000,
            {"longest_line": 1},
            "a.txt:2: this line has more",
            ExitCode.DATA,
        ),
        ("a.txt.gz", b"no gzip", {}, "is not gzip", ExitCode.DATA),
        ("a.pdf", b"%PDF" + bytes(500), {}, "is not text", ExitCode.DATA),
        ("a.jsonl", b'{"text": 1}\n{"text"', {}, "a.jsonl:2: this is not JSON", ExitCode.DATA),
        (
            "a.jsonl",
            b'{"text": "a"}',
            {"text_column": "txt"},
            "no column 'txt': did you mean text",
            ExitCode.DATA,
        ),
        (
            "a.jsonl",
            b'{"p": "a b c", "q": "c d e", "r": "e f g"}',
            {},
            "`data.text_column=",
            ExitCode.USAGE,
        ),
        ("a.parquet", b"PAR1", {}, "a.parquet", ExitCode.DATA),
        ("a.txt", b"text", {"encoding": "utf-99"}, "unknown encoding", ExitCode.USAGE),
    ],
)
def test_what_is_no_text_is_refused(
    tmp_path: Path,
    name: str,
    content: bytes,
    settings: dict[str, object],
    message: str,
    code: ExitCode,
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BertctlError) as refused:
        _documents(tmp_path / name, **settings)
    assert message in refused.value.message + refused.value.remedy
    assert refused.value.exit_code == code


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    _written(tmp_path / "folder" / "a.png", "")
    with pytest.raises(UnavailableError, match="holds no file of text"):
        open_corpora([str(tmp_path / "folder")], DataSection())
    with pytest.raises(UnavailableError, match="does not exist: did you mean folder"):
        open_corpora([str(tmp_path / "foldr")], DataSection())


def _survey(
    tmp_path: Path, *contents: str, fraction: float | None = 0.1, allowed: bool = True
) -> Survey:
    paths = [str(_written(tmp_path / f"{i}.txt", content)) for i, content in enumerate(contents)]
    return survey(open_corpora(paths, DataSection()), fraction=fraction, allow_duplicates=allowed)


def _lines(number: int) -> list[str]:
    return [f"text number {i}" for i in range(number)]


def test_held_out_documents_depend_on_their_texts_alone(tmp_path: Path) -> None:
    lines = _lines(500)
    actual = _survey(tmp_path, "\n".join(lines))
    assert actual.documents == 500
    assert len(actual.held_out) == 50
    assert "50 of 500 documents (10.0 %) are held out" in actual.notes[0]
    turned = _survey(tmp_path, "\n".join(lines[:123:-1]), "\n".join(lines[:124]))
    both = [*lines[:123:-1], *lines[:124]]
    assert {both[i] for i in turned.held_out} == {lines[i] for i in actual.held_out}
    assert not _survey(tmp_path, "\n".join(lines), fraction=None).held_out


def test_equal_texts_are_on_one_side(tmp_path: Path) -> None:
    lines = _lines(300) * 2
    held = set(_survey(tmp_path, "\n".join(lines)).held_out)
    texts = {lines[i] for i in held}
    assert held == {i for i, line in enumerate(lines) if line in texts}
    assert len(held) == 120  # 60 different ones


def test_no_more_are_held_out_than_tell_anything(tmp_path: Path) -> None:
    long_corpus = "\n".join(_lines(MOST_HELD_OUT * 11))
    short_corpus = "\n".join(_lines(2))

    of_long = _survey(tmp_path, long_corpus)
    assert len(of_long.held_out) == MOST_HELD_OUT

    of_short = _survey(tmp_path, short_corpus, fraction=0.9)
    assert len(of_short.held_out) == 1


@pytest.mark.parametrize(
    "content", ["One text. Two sentences.", "Same text here\nSame text here\n", "\n \n"]
)
def test_one_document_is_not_enough_to_hold_one_out(tmp_path: Path, content: str) -> None:
    with pytest.raises(
        DataError, match=r"'0' has [012] documents? with text, and none to train on"
    ):
        _survey(tmp_path, content)
    if content.strip():
        assert not _survey(tmp_path, content, fraction=None).held_out


def test_each_corpus_keeps_something_to_train_on(tmp_path: Path) -> None:
    lines = _lines(500)
    held = lines[_survey(tmp_path, "\n".join(lines)).held_out[0]]
    with pytest.raises(DataError, match="'1' has 1 document with text"):
        _survey(tmp_path, "\n".join(line for line in lines if line != held), held)


def test_texts_that_are_blank_are_counted(tmp_path: Path) -> None:
    rows = [{"text": text} for text in ("", "one text here", " \n", "another text here")]
    path = _written(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    actual = survey(open_corpora([str(path)], DataSection()), fraction=0.5)
    assert actual.held_out in ([1], [3])
    assert actual.notes[0] == "2 of 4 documents (50.0 %) have no text and are left out"


def test_repeated_lines_are_refused(tmp_path: Path) -> None:
    ends = [*["All rights reserved by us"] * 6, "Another line of text", "text number 7"] * 2
    content = "\n".join([*_lines(1000), *ends])
    with pytest.raises(DataError) as refused:
        _survey(tmp_path, content, allowed=False)
    assert "14 of 1,016 lines (1.4 %)" in refused.value.message
    assert "'text number 7' and 'All rights reserved by us'" in refused.value.message
    assert "`pretraining.allow_duplicates=True`" in refused.value.remedy
    assert _survey(tmp_path, content).notes[0] == refused.value.message


def test_a_few_repeated_lines_and_headings_are_let_through(tmp_path: Path) -> None:
    headings = ["Results", "Case report", "参考文献"] * 300
    content = "\n".join([*_lines(1000), *["A line of text"] * 11, *headings])
    assert len(_survey(tmp_path, content, fraction=None, allowed=False).notes) == 0
    with pytest.raises(DataError, match=r"11 of 1,012 lines .* such as 'A line of text'$"):
        _survey(tmp_path, content + "\nA line of text", allowed=False)


def test_repeated_lines_are_found_within_documents_too(tmp_path: Path) -> None:
    blocks = [f"{line}\nprinted on recycled paper" for line in _lines(50)]
    with pytest.raises(DataError, match="49 of 100 lines"):
        _survey(tmp_path, "\n\n".join(blocks), allowed=False)


@pytest.mark.parametrize(
    "field",
    [
        {"mix": ["a=0", "b=1"]},
        {"mix": ["a=0.00", "b=1"]},
        {"mix_temperature": 0.002},
        {"mix_temperature": math.inf},
    ],
)
def test_no_corpus_weighs_nothing(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"pattern|greater|finite"):
        PretrainingSection(**field)


def test_a_corpus_has_one_weight() -> None:
    PretrainingSection(mix=["a=10", "b=.5", "c=1.0", "d=0.05"])
    with pytest.raises(KeyError):
        weights_of({"a": 1, "b": 1}, ["a=0.5", "a=0.1", "b=0.5"], None)
