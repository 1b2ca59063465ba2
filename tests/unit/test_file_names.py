"""A word on the command line is a file or a text by one rule, for every verb that takes both."""

import pytest

from bertctl.data.file_names import is_text

FILES = [
    "my reviews.csv",
    "/data/my file.jsonl",
    "my file.tsv",
    "My Table.CSV",
    "all my data.jsonl.gz",
    "a b.parquet",
    "./my reviews",
    "../two words",
    "~/two words",
    "/var/two words",
    "~anna/my notes",
    "my sentences.conllu",
    "my sheet.xlsx",
    "my archive.csv.zip",
    "reviews.csv",
    "new/file",
    "-",
]
TEXTS = [
    "a fine film",
    "film",
    "It was 3.5 of 5",
    "it was fine.",
    "one/two or both",
    "~30 people came",
    "I like it. No",
    "saved as .csv",
    "see data.csv for more",
    "and/or maybe",
    "a line\nthen data.csv",
    " reviews.csv ",
    " /home ",
    "word " * 2000 + "end.csv",
]


@pytest.mark.parametrize("typed", FILES)
def test_a_path_is_no_text_whether_or_not_its_name_has_blanks(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not is_text(typed)


@pytest.mark.parametrize("typed", TEXTS)
def test_a_text_is_one_though_it_names_a_file_in_passing(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_text(typed)


def test_a_file_that_exists_is_no_text_whatever_it_is_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a fine film").write_text("x\n", encoding="utf-8")
    assert not is_text("a fine film")
