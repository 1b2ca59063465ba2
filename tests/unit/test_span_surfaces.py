"""What a file says beside its spans' offsets is compared with what they mark."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.annotations.surface import require_surface
from bertctl.data.read_options import ReadOptions, SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.errors import DataError
from tests.heard import Heard

READER = READERS["token-classification"]
TEXT = "In Bern we met Anna today"
SHIFTED = (16, 20)
"""Offsets that mark `nna ` in place of `Anna`."""


def read(path: Path, content: str, heard: Heard | None = None, **settings: Any) -> Rows:
    path.write_text(content, encoding="utf-8", newline="")
    section = DataSection(**settings)
    return READER.read(
        path, section, split="train", label_needed=True, listener=heard or Heard()
    ).rows


def label_studio(start: int, end: int, surface: str, text: str = TEXT) -> str:
    value = {"start": start, "end": end, "text": surface, "labels": ["PER"]}
    task = {
        "id": 1,
        "data": {"text": text},
        "annotations": [{"result": [{"type": "labels", "value": value}]}],
    }
    return json.dumps([task])


def bioc(start: int, end: int, surface: str) -> str:
    positions = [{"offset": start, "length": end - start}]
    annotation = {"infons": {"type": "PER"}, "text": surface, "locations": positions}
    passage = {"offset": 0, "text": TEXT, "annotations": [annotation]}
    return json.dumps({"source": "", "documents": [{"id": "1", "passages": [passage]}]})


def pubtator(start: int, end: int, surface: str) -> str:
    return f"1|t|{TEXT}\n1|a|\n1\t{start}\t{end}\t{surface}\tPER\tD1\n"


def spans(start: int, end: int, surface: str) -> str:
    return (
        json.dumps(
            {"text": TEXT, "spans": [{"start": start, "end": end, "label": "PER", "text": surface}]}
        )
        + "\n"
    )


def entities(start: int, end: int, surface: str) -> str:
    entity = {"start_offset": start, "end_offset": end, "label": "PER", "mention": surface}
    return json.dumps({"text": TEXT, "entities": [entity]}) + "\n"


def prodigy_tokens(start: int, end: int, surface: str) -> str:
    first_token = {"text": "In", "start": 0, "end": 2}
    second_token = {"text": surface, "start": start, "end": end}
    record = {"text": TEXT, "tokens": [first_token, second_token], "spans": []}
    return json.dumps(record) + "\n"


FORMATS = {
    "a.json": label_studio,
    "b.json": bioc,
    "c.pubtator": pubtator,
    "d.jsonl": spans,
    "e.jsonl": entities,
    "f.jsonl": prodigy_tokens,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_compares_the_words_beside_a_span(tmp_path, name):
    assert read(tmp_path / name, FORMATS[name](15, 19, "Anna")).has("label")
    with pytest.raises(
        DataError,
        match=r"the span 16 to 20 is 'nna ', the file says 'Anna', which is at 15 to 19",
    ):
        read(tmp_path / name, FORMATS[name](*SHIFTED, "Anna"))


def test_brat_compares_its_third_column(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    assert read(tmp_path / "a.ann", "T1\tPER 15 19\tAnna\n").has("label")
    with pytest.raises(DataError, match=r"the span 16 to 20 is 'nna ', the file says 'Anna'"):
        read(tmp_path / "a.ann", "T1\tPER 16 20\tAnna\n")


@pytest.mark.parametrize(
    ("text", "start", "end", "surface", "counting"),
    [
        ("😀😀安娜从奥斯陆", 4, 6, "安娜", "is at 2 to 4: the offsets count UTF-16 code units"),
        ("Zoë und Søren", 9, 15, "Søren", "is at 8 to 13: the offsets count bytes"),
        (
            "one\r\ntwo\r\nAnna",
            8,
            12,
            "Anna",
            "is at 10 to 14: the offsets count a line end (CR LF) as one",
        ),
        (
            "one\ntwo\nAnna",
            10,
            14,
            "Anna",
            "is at 8 to 12: the offsets count a line end as two",
        ),
        ("met Anna today", 5, 9, "Anna", "is at 4 to 8: the offsets count from 1"),
        ("met Anna today", 4, 7, "Anna", "is at 4 to 8: the end is counted in"),
        ("we saw Anna and Anna", 1, 5, "Anna", "is at 7 to 11 (6 later)"),
        ("we saw Anna", 40, 44, "Anna", "is at 7 to 11 (33 earlier)"),
        ("we saw Oslo.", 6, 10, "Oslo", "is at 7 to 11 (1 later)"),
        ("we saw Anna", 7, 11, "Berg", "which is nowhere in the text"),
    ],
)
def test_the_way_in_which_offsets_are_counted_is_named(text, start, end, surface, counting):
    with pytest.raises(DataError) as caught:
        require_surface(text, start, end, surface, "a.json, row 1")
    assert counting in caught.value.message
    assert caught.value.message.startswith("a.json, row 1: the span ")


@pytest.mark.parametrize(
    ("text", "surface"),
    [
        ("Royal\nDanish", "Royal Danish"),
        ("Café", "Cafe\u0301"),
        ("ANNA", "Anna"),
        ("Anna ", "Anna"),
        ("Anna", ""),
    ],
)
def test_blanks_case_and_composition_of_accents_may_differ(text, surface):
    require_surface(text, 0, len(text), surface, "a")


def test_a_shifted_span_is_skipped_and_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(spans(15, 19, "Anna") + spans(*SHIFTED, "Anna"))
    skipped = SkippedRows()
    options = ReadOptions(DataSection(), "file", label_needed=True).skipping(skipped)
    assert len(READER.read_whole(path, options).rows) == 1
    assert [error.line for error in skipped.errors] == [2]


def test_token_numbers_of_prodigy_are_compared_with_the_characters(tmp_path):
    tokens = [
        {"text": "In", "start": 0, "end": 2, "id": 0},
        {"text": "Bern", "start": 3, "end": 7, "id": 1},
    ]
    span = {"start": 3, "end": 7, "token_start": 1, "token_end": 1, "label": "LOC"}
    row = {"text": "In Bern", "tokens": tokens, "spans": [span]}
    assert read(tmp_path / "a.jsonl", json.dumps(row) + "\n").columns["label"] == [["O", "B-LOC"]]
    span["token_start"] = 0
    with pytest.raises(
        DataError, match=r"the span 3 to 7 has the tokens 0 to 1, which are characters 0 to 7"
    ):
        read(tmp_path / "a.jsonl", json.dumps(row) + "\n")


UD = (
    "# text = "
    "{}\n1-2\tdel\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\t_\tADP{}\n2\tel\t_\tDET{}\n3\tmar\t_\tNOUN{}\n\n"
)
REST = "\t_" * 6


def test_the_text_of_a_conllu_sentence_is_compared_with_its_words(tmp_path):
    rows = read(tmp_path / "a.conllu", UD.format("del mar", *[REST] * 3))
    assert rows.columns["words"] == [["de", "el", "mar"]]
    with pytest.raises(
        DataError, match=r"a\.conllu:2: '# text' is 'del sol', its words are 'del mar'"
    ):
        read(tmp_path / "a.conllu", UD.format("del sol", *[REST] * 3))
    with pytest.raises(
        DataError, match=r"a\.conllu:4: the word 'mar' has the number 3, where 2 is next"
    ):
        read(
            tmp_path / "a.conllu",
            UD.format("del mar", *[REST] * 3).replace(f"2\tel\t_\tDET{REST}\n", ""),
        )


def test_parts_of_a_span_with_blanks_alone_between_are_one(tmp_path):
    (tmp_path / "a.txt").write_text("The Royal\nDanish Theatre met Anna  Berg and Oslo.\n")
    listener = Heard()
    rows = read(
        tmp_path / "a.ann",
        "T1\tORG 4 9;10 24\tRoyal Danish Theatre\nT2\tPER 29 33;35 39\tAnna Berg\n"
        "T3\tLOC 0 3;44 48\tThe Oslo\nT4\tLOC 4 9;44 48\tRoyal Oslo\n",
        listener,
    )
    assert rows.columns["label"] == [
        ["O", "B-ORG", "I-ORG", "I-ORG", "O", "B-PER", "I-PER", "O", "O", "O"]
    ]
    assert any(
        "2 spans of several parts with words between are left out" in text
        for text in listener.warned
    )


@pytest.mark.parametrize("word", ["anna", "Anna", "\u0120Anna", "\u2581Anna", "##anna"])
def test_words_of_transformers_pipelines_are_compared_as_words(tmp_path, word):
    span = {"entity_group": "PER", "word": word}
    right = json.dumps({"text": TEXT, "entities": [{**span, "start": 15, "end": 19}]}) + "\n"
    assert "B-PER" in read(tmp_path / "a.jsonl", right).columns["label"][0]
    shifted = json.dumps({"text": TEXT, "entities": [{**span, "start": 16, "end": 20}]}) + "\n"
    with pytest.raises(DataError, match="the span 16 to 20 is 'nna '"):
        read(tmp_path / "a.jsonl", shifted)
