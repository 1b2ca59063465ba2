"""The reader of token classification: every kind of file to the same rows, and what is refused."""

import csv
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertctl.catalog.datasets import builtin_datasets, bundled_folder
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.annotations import pubtator
from bertctl.data.annotations.document import Document
from bertctl.data.read_options import ReadOptions
from bertctl.data.readers import READERS
from bertctl.data.recipe_data import load_data
from bertctl.data.table import Table
from bertctl.data.word_splitting import cuts_word, find_words, split_tagged_words, split_words
from bertctl.errors import DataError, UsageError
from bertctl.metrics.tagging import entities
from bertctl.progress import Listener
from tests.heard import Heard

READER = READERS["token-classification"]
DAMAGED = [
    '[{"data": {"text": "a"}, "annotations": 5}]',
    '[{"data": {"text": "a"}, "annotations": [3]}]',
    '[{"data": {"text": "a"}, "annotations": [{"result": [5]}]}]',
    '{"documents": [{"passages": [{"offset": 0, "text": 5}]}]}',
    '{"documents": [{"passages": [{"offset": 0, "text": "a", "annotations": 5}]}]}',
]
WORDS = [["Anna", "'s", "in", "New", "York", "."], ["Rain"]]
TAGS = [["B-PER", "O", "O", "B-LOC", "I-LOC", "O"], ["O"]]
TEXT = "Anna's in New York."


def columns_file(separator: str = "\t") -> str:
    sentences = (
        "\n".join(map(separator.join, zip(*pair, strict=True)))
        for pair in zip(WORDS, TAGS, strict=True)
    )
    return "\n\n".join(sentences) + "\n"


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read(
    path: Path,
    content: str | bytes,
    *,
    needed: bool = True,
    heard: Listener | None = None,
    **settings: object,
):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    section = DataSection(**settings)
    return READER.read(
        path, section, split="train", label_needed=needed, listener=heard or Listener()
    ).rows


def spans_row(*spans: Any, text: str = TEXT, key: str = "spans") -> str:
    return lines({"text": text, key: list(spans)})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.conll", columns_file()),
        ("eng.train", columns_file(" ")),
        ("a.txt", columns_file().replace("\n", "\r\n")),
        ("a.tsv", "\ufeff" + columns_file()),
        ("a.conll.gz", gzip.compress(columns_file().encode(), mtime=0)),
        (
            "a.jsonl",
            lines(*({"tokens": w, "ner_tags": t} for w, t in zip(WORDS, TAGS, strict=True))),
        ),
        ("a.json", lines(*({"words": w, "label": t} for w, t in zip(WORDS, TAGS, strict=True)))),
        (
            "b.jsonl",
            lines(
                *({"sentence": " ".join(w), "tags": t} for w, t in zip(WORDS, TAGS, strict=True))
            ),
        ),
        (
            "c.jsonl",
            lines(
                {
                    "text": TEXT,
                    "spans": [
                        {"start": 10, "end": 18, "label": "LOC"},
                        {"start": 0, "end": 4, "label": "PER"},
                    ],
                },
                {"text": "Rain", "spans": []},
            ),
        ),
        (
            "d.jsonl",
            lines(
                {"text": TEXT, "label": [[0, 4, "PER"], [10, 18, "LOC"]]},
                {"text": "Rain", "label": []},
            ),
        ),
        (
            "e.jsonl",
            lines(
                {
                    "text": TEXT,
                    "entities": [
                        {"start_offset": 0, "end_offset": 4, "label": "PER"},
                        [10, 18, "LOC"],
                    ],
                },
                {"text": "Rain", "entities": []},
            ),
        ),
    ],
)
def test_every_layout_gives_the_same_words_and_tags(tmp_path, name, content):
    rows = read(tmp_path / name, content)
    assert list(map(list, rows.columns["words"])) == WORDS
    assert list(map(list, rows.columns["label"])) == TAGS


def test_parquet_and_a_table_of_the_hubs(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"tokens": WORDS, "pos_tags": WORDS, "ner_tags": TAGS}), tmp_path / "a.parquet"
    )
    settings = DataSection()
    rows = READER.read(tmp_path / "a.parquet", settings, split="train", label_needed=True).rows
    assert rows.columns["words"] == WORDS
    assert rows.columns["label"] == TAGS
    table = Table({"tokens": [["do", "n't", "don't"]], "upos": [["AUX", "PART", "_"]]}, "hub")
    settings = DataSection(text_column="tokens", label_column="upos")
    [reading] = READER.table_readings([table], ReadOptions(settings, "train", label_needed=True))
    rows = reading.rows
    assert rows.columns["words"] == [["do", "n't"]]
    assert rows.columns["label"] == [["AUX", "PART"]]


def test_the_scheme_is_told(tmp_path):
    heard = Heard()
    read(tmp_path / "a.conll", "a I-X\nb O\n", heard=heard)
    assert heard.said[-1] == f"{tmp_path / 'a.conll'}: tags in IOB1"


def test_offsets_and_text_are_kept_and_other_columns_too(tmp_path):
    rows = read(
        tmp_path / "a.jsonl", lines({"text": TEXT, "spans": [], "source": "me", "document": 7})
    )
    assert rows.columns["text"] == [TEXT]
    (offsets,) = rows.columns["offsets"]
    assert [TEXT[a:b] for a, b in offsets] == WORDS[0]
    assert rows.columns["source"] == ["me"]
    assert rows.columns["document"] == [7]
    rows = read(tmp_path / "b.jsonl", lines({"text": TEXT, "words": WORDS[0], "tags": TAGS[0]}))
    assert rows.columns["offsets"] == [offsets]


def test_a_document_beside_words_is_no_text(tmp_path):
    rows = read(tmp_path / "d.jsonl", lines({"words": WORDS[0], "tags": TAGS[0], "document": "d1"}))
    assert rows.columns["document"] == ["d1"]
    assert rows.columns["words"] == WORDS[:1]
    assert "text" not in rows.columns


def test_tokens_as_prodigy_writes_them(tmp_path):
    tokens = [
        {"text": "Anna", "start": 0, "end": 4, "id": 0},
        {"text": "'s", "start": 4, "end": 6, "id": 1},
    ]
    rows = read(
        tmp_path / "a.jsonl",
        lines(
            {"text": "Anna's", "tokens": tokens, "spans": [{"start": 4, "end": 6, "label": "X"}]}
        ),
    )
    assert rows.columns["words"] == [["Anna", "'s"]]
    assert rows.columns["label"] == [["O", "B-X"]]


def test_misaligned_spans_are_widened_and_listed(tmp_path):
    heard = Heard()
    path = tmp_path / "a.jsonl"
    rows = read(
        path,
        lines(
            {"text": "Rain in Yorkshire", "spans": [{"start": 8, "end": 12, "label": "LOC"}]},
            {"text": "5mg of it", "spans": [[0, 1, "N"], [1, 3, "U"]]},
            {"text": "all well", "spans": [[0, 4, "A"]]},
        ),
        heard=heard,
    )
    assert rows.columns["label"] == [["O", "O", "B-LOC"], ["B-N", "O", "O"], ["B-A", "O"]]
    (warning,) = heard.warned
    assert "3 of 4 spans " in warning
    assert "; 2 are taken as the whole words, 1 " in warning
    assert re.search(rf"{path}:1: 'York' \(8 to 12, LOC\): .*'Yorkshire'", warning)
    assert re.search(rf"{path}:2: '5' \(0 to 1, N\): .*'5mg'", warning)
    assert f"{path}:2: 'mg' (1 to 3, U)" in warning


def test_blanks_around_a_span_are_no_matter(tmp_path):
    heard = Heard()
    rows = read(
        tmp_path / "a.jsonl", spans_row([9, 19, "LOC"], text="Anna's in New York ."), heard=heard
    )
    assert rows.columns["label"] == [["O", "O", "O", "B-LOC", "I-LOC", "O"]]
    assert not heard.warned


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (spans_row([0, 99, "A"]), "a.jsonl:1: the span"),
        (spans_row([0, 2, "A"], text="a"), "not in its text of 1 character, "),
        (spans_row([4, 4, "A"]), "or is empty"),
        (spans_row([9, 10, "A"]), "or is empty"),
        (spans_row([0, 10, "A"], [3, 12, "B"]), "overlap"),
        (spans_row({"start": 0, "label": "A"}), "this is not a span"),
        (
            lines({"words": ["a"], "tags": ["O"]}, {"words": ["a", "b"], "tags": ["O"]}),
            "a.jsonl:2: 2 words and 1 tag: ",
        ),
        (
            lines({"words": ["a"], "tags": ["O"]}, {"words": ["a"], "tags": None}),
            "a.jsonl:2: the sentence has no tags",
        ),
        (
            lines({"words": ["a"], "tags": ["O"]}, {"words": ["a"], "tags": []}),
            "a.jsonl:2: the sentence has no tags",
        ),
        (
            lines({"words": ["a", None], "tags": ["O", "O"]}),
            "a.jsonl:1: None in the column 'words'",
        ),
        (lines({"words": ["a"], "tags": ["O"]}, {"words": "a", "tags": ["O"]}), "list of words"),
        (lines({"words": ["a"], "spans": [[0, 1, "A"]]}), "the words' places"),
        (lines({"words": ["a", "b"], "tags": ["B-A", "M-A"]}), "of no scheme"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path, content, said):
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.jsonl", content)
    assert said in caught.value.message
    assert "a.jsonl:" in caught.value.message
    assert caught.value.remedy


def test_columns_that_cannot_be_guessed(tmp_path):
    with pytest.raises(UsageError, match=r"no column .*words or a text"):
        read(tmp_path / "a.jsonl", lines({"x": 1}))
    with pytest.raises(UsageError, match=r"no column .*the tags") as caught:
        read(tmp_path / "a.jsonl", lines({"words": ["a"], "mine": ["O"]}))
    assert "Columns there: words, mine." in caught.value.remedy
    assert read(
        tmp_path / "a.jsonl", lines({"words": ["a"], "mine": ["O"]}), label_column="mine"
    ).has("label")
    with pytest.raises(DataError, match=r"column 'tgas': .*tags"):
        read(tmp_path / "a.jsonl", lines({"words": ["a"], "tags": ["O"]}), label_column="tgas")
    with pytest.raises(UsageError, match="CSV"):
        read(tmp_path / "a.csv", "a,b\nAnna,O\n")


def test_rows_without_tags_where_none_are_needed(tmp_path):
    assert not read(tmp_path / "a.jsonl", lines({"words": ["a"]}), needed=False).has("label")
    assert not read(tmp_path / "a.jsonl", lines({"words": ["a"], "tags": None}), needed=False).has(
        "label"
    )
    assert not read(tmp_path / "a.conll", "a\nb\n", needed=False).has("label")
    assert read(tmp_path / "a.conll", "a O\n", needed=False).has("label")


def test_a_prediction_file_is_a_labelled_file(tmp_path):
    line = {
        "id": "0",
        "words": WORDS[0],
        "gold": TAGS[0],
        "prediction": ["O"] * 6,
        "entities": [{"type": "PER", "start": 0, "end": 1}],
    }
    for settings in (
        {},
        {"label_column": "gold"},
        {"label_column": "3"},
        {"text_column": "tokens", "label_column": "tags"},
    ):
        rows = read(tmp_path / "p.jsonl", lines(line), **settings)
        assert rows.columns["label"] == [TAGS[0]]


def test_places_that_count_words_do_not_stand_for_those_that_count_characters(tmp_path):
    """As in our own predictions: both are there."""
    entity = {"type": "LOC", "start": 3, "end": 5, "start_char": 10, "end_char": 18}
    rows = read(tmp_path / "p.jsonl", lines({"text": TEXT, "entities": [entity]}))
    assert rows.columns["label"] == [["O", "O", "O", "B-LOC", "I-LOC", "O"]]


def test_a_list_that_numpy_wrote_keeps_the_commas_of_its_items(tmp_path):
    words = ["EU", ",", "it's", 'a "b"']
    tags = ["B-X", "O", "O", "O"]
    written = [" ".join(map(repr, each)).join("[]") for each in (words, tags)]
    with (tmp_path / "a.csv").open("w") as file:
        csv.writer(file).writerows([["words", "tags"], written])
    rows = READER.read(
        tmp_path / "a.csv", DataSection(), split="train", label_needed=True, listener=Listener()
    ).rows
    assert [list(rows.columns[name][0]) for name in ("words", "label")] == [words, tags]


SPAN = {"infons": {"type": "PER"}, "locations": [{"offset": 0, "length": 4}]}


def test_bioc_with_its_text_in_sentences_and_spans_of_parts(tmp_path):
    parts = {
        "infons": {"type": "LOC"},
        "locations": [{"offset": 7, "length": 2}, {"offset": 14, "length": 4}],
    }
    sentence = {"offset": 0, "text": TEXT, "annotations": [SPAN, parts]}
    passage = {"offset": 0, "infons": {}, "sentences": [sentence], "annotations": []}
    heard = Heard()
    document = {"documents": [{"id": "1", "passages": [passage]}], "source": ""}
    rows = read(tmp_path / "a.json", json.dumps(document), heard=heard)
    assert rows.columns["label"] == [["B-PER", *["O"] * 5]]
    assert [
        text
        for text in heard.warned
        if "1 span of several parts with words between is left out" in text
    ]


def test_spans_that_count_what_a_browser_shows_are_refused(tmp_path):
    place = {"start": "/p[1]/text()[1]", "startOffset": 0, "globalOffsets": {"start": 0, "end": 4}}
    result = {"type": "hypertextlabels", "value": {**place, "hypertextlabels": ["PER"]}}
    task = {"id": 1, "data": {"text": f"<p>{TEXT}</p>"}, "annotations": [{"result": [result]}]}
    with pytest.raises(DataError, match="what a browser shows of HTML"):
        read(tmp_path / "a.json", json.dumps([task]))


def test_relations_of_pubtator_are_no_spans(tmp_path):
    text = f"1|t|{TEXT}\n1|a|\n1\t0\t4\tAnna\tPER\tD1\n"
    rows = read(tmp_path / "a.pubtator", f"{text}1\tPositive_Correlation\t22\tD2\tNovel\n\n")
    assert rows.columns["label"] == [["B-PER", *["O"] * 5]]
    with pytest.raises(DataError, match="not a span of a text above it"):
        read(tmp_path / "a.pubtator", text.replace("\t0\t", "\t0x\t"))


def test_brat_cuts_lines_at_line_feeds_alone(tmp_path):
    (tmp_path / "a.txt").write_text(f"Anna\u2028T x. {TEXT}")
    rows = read(tmp_path / "a.ann", "T1\tPER 0 8\tAnna\u2028T x\n")
    assert rows.columns["label"][0][0] == "B-PER"


@pytest.mark.parametrize("name", ["data", "documents"])
def test_lines_with_a_list_of_such_a_name_are_lines(tmp_path, name):
    rows = read(
        tmp_path / "a.jsonl",
        lines(*({"words": w, "tags": t, name: [1, 2]} for w, t in zip(WORDS, TAGS, strict=True))),
    )
    assert rows.columns["words"] == WORDS


def stream(path: Path | str, **options: Any) -> list[Any]:
    source = path if path == "-" else Path(path)
    return list(READER.stream(source, DataSection(), **options))


def test_running_text_is_split_and_its_words_know_their_places(tmp_path):
    (tmp_path / "a.txt").write_text(f"{TEXT}\n\nRain \u200b.\r\n", encoding="utf-8", newline="")
    first, second = stream(tmp_path / "a.txt", chunk_rows=2)
    assert first.columns["words"] == [WORDS[0], []]
    assert second.columns["words"] == [["Rain", "\u200b", "."]]
    assert second.columns["text"] == ["Rain \u200b."]
    assert second.columns["offsets"] == [[(0, 4), (5, 6), (6, 7)]]
    assert list(first.ids) == ["0", "1"]
    assert list(second.ids) == ["2"]
    assert list(second.lines) == [3]


@pytest.mark.parametrize("name", ["a.txt", "a.conll", "eng.testb"])
def test_columns_are_known_by_suffix_or_by_sight_and_their_tags_left_out(tmp_path, name):
    (tmp_path / name).write_text("-DOCSTART- O\n\n" + columns_file(" "))
    (rows,) = stream(tmp_path / name)
    assert rows.columns["words"] == WORDS
    assert not rows.has("label")
    assert rows.columns["document"] == [0, 0]


def test_words_alone_need_to_be_named(tmp_path):
    (tmp_path / "a.txt").write_text("Anna\ncame\n\nYes\n")
    assert [r.columns["words"] for r in stream(tmp_path / "a.txt")] == [
        [["Anna"], ["came"], [], ["Yes"]]
    ]
    assert [r.columns["words"] for r in stream(tmp_path / "a.txt", kind="conll")] == [
        [["Anna", "came"], ["Yes"]]
    ]
    with pytest.raises(UsageError, match="did you mean conll"):
        stream(tmp_path / "a.txt", kind="connl")


def test_jsonl_streams_texts_and_words(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(lines({"text": TEXT}, {"text": "Rain"}))
    (rows,) = stream(path)
    assert rows.columns["words"] == WORDS
    path.write_text(lines({"words": WORDS[0], "tags": "nonsense"}))
    assert stream(path)[0].columns["words"] == [WORDS[0]]


def test_portions_end_between_documents(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("".join("-DOCSTART- O\n\n" + "w O\n\n" * n for n in (3, 1, 2)))
    assert [len(rows) for rows in stream(path, chunk_rows=2)] == [3, 3]
    path.write_text("w O\n\n" * 5)
    assert [len(rows) for rows in stream(path, chunk_rows=2)] == [2, 2, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I can't, you won't.", ["I", "ca", "n't", ",", "you", "wo", "n't", "."]),
        (
            "The U.S. at 10:30 a.m. for $1,000.50!",
            ["The", "U.S.", "at", "10:30", "a.m.", "for", "$", "1,000.50", "!"],
        ),
        ("O'Brien-Smith's", ["O'Brien", "-", "Smith", "'s"]),
        (
            "see https://a.b/c?d=e, @me #tag me@a.co",
            ["see", "https://a.b/c?d=e", ",", "@me", "#tag", "me@a.co"],
        ),
        ("हिन्दी 北京 x", ["हिन्दी", "北", "京", "x"]),
        ("wait...what?!", ["wait", "...", "what", "?", "!"]),
    ],
)
def test_words_of_running_text(text, words):
    found, offsets = split_words(text)
    assert found == words
    assert [text[a:b] for a, b in offsets] == words
    assert find_words(words, text) == offsets


@pytest.mark.parametrize(
    ("text", "surface"),
    [
        ("คุณสมชายไปกรุงเทพเมื่อวาน", "สมชาย"),
        ("ຂ້ອຍຢູ່ວຽງຈັນ", "ວຽງຈັນ"),
        ("ខ្ញុំរស់នៅភ្នំពេញ", "ភ្នំពេញ"),
        ("ကျွန်တော်ရန်ကုန်မှာနေတယ်", "ရန်ကုန်"),
        ("彼はトヨタで働く", "トヨタ"),
        ("わたしはおおさかです", "おおさか"),
        ("東京タワーへ行く", "東京タワー"),
        ("김철수는 서울에 갔다", "김철수"),
        ("བོད་ལ་འགྲོ", "བོད"),
        ("詳しくはhttps://a.b/cで", "https://a.b/c"),
        ("10:30に会う", "10:30"),
    ],
)
def test_a_span_ends_at_any_grapheme_where_no_blank_shows_the_end_of_a_name(
    tmp_path, text, surface
):
    start = text.index(surface)
    span = [start, start + len(surface), "X"]
    heard = Heard()
    rows = read(tmp_path / "a.jsonl", spans_row(span, text=text), heard=heard)
    [words] = rows.columns["words"]
    [tags] = rows.columns["label"]
    [offsets] = rows.columns["offsets"]
    marked = [place for place, tag in zip(offsets, tags, strict=True) if tag != "O"]
    assert text[marked[0][0] : marked[-1][1]] == surface
    assert [text[first:last] for first, last in offsets] == list(words)
    assert not heard.warned


def test_a_widened_span_comes_with_the_way_out(tmp_path):
    heard = Heard()
    read(tmp_path / "a.jsonl", spans_row([0, 4, "A"], text="Dampfschiff"), heard=heard)
    assert "give the words yourself: a column `tokens`" in heard.warned[0]


def test_words_that_are_not_in_the_text_are_not_found():
    assert find_words(["a", "c"], "a b c") is None
    assert find_words(["x"], "a") is None


def of_catalog(name: str, folder: Path | None = None, heard: Heard | None = None, **data: object):
    data_dir = None if folder is None else str(folder)
    section = DataSection(name=name, data_dir=data_dir, **data)
    recipe = Recipe(task="token-classification", data=section)
    listener = heard or Listener()
    loaded = load_data(recipe, splits=["train"], listener=listener)
    return loaded.splits["train"]


@pytest.mark.parametrize("place", ["conll2003/eng.train", "eng.train", "CoNLL-2003/eng.train"])
def test_conll2003_in_its_official_files(tmp_path, place):
    folder = tmp_path / "CoNLL-2003" if place.startswith("CoNLL") else tmp_path
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text(
        "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n"
    )
    heard = Heard()
    rows = of_catalog("conll2003", folder, heard)
    assert rows.columns["words"] == [["EU", "rejects"]]
    assert rows.columns["label"] == [["I-ORG", "O"]]
    assert heard.said[-1].endswith("eng.train: tags in IOB1")


def test_bc5cdr_by_its_columns_and_by_the_hubs_class_numbers(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    heard = Heard()
    (tmp_path / "train.txt").write_text(
        "-DOCSTART- (1)\n\na\tN\tO\tI-Entity\n\nb\tN\tO\tB-Entity\nc\tN\tO\tI-Entity\n"
    )
    assert of_catalog("bc5cdr", tmp_path, heard).columns["label"] == [
        ["I-Entity"],
        ["B-Entity", "I-Entity"],
    ]
    assert "(1 times not IOB2, first I-Entity after O; 1 times not IOB1" in heard.said[-1]
    (tmp_path / "train.txt").unlink()
    path = tmp_path / builtin_datasets()["bc5cdr"].hub.file_of("train")
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"tokens": [["a", "b", "c"]], "tags": [[1, 2, 3]]}), path)
    assert of_catalog("bc5cdr", tmp_path).columns["label"] == [
        ["B-Chemical", "B-Disease", "I-Disease"]
    ]


def test_a_single_document_can_be_held_out_from(tmp_path):
    path = tmp_path / "a.conll"
    for documents in (1, 4):
        path.write_text(
            "".join("-DOCSTART- O\n\n" + "a O\nb B-X\n\n" * 5 for _ in range(documents))
        )
        recipe = Recipe(
            task="token-classification",
            data=DataSection(train_file=str(path), validation_fraction=0.2),
        )
        splits = load_data(recipe).splits
        held = set(splits["validation"].columns["document"])
        left = set(splits["train"].columns["document"])
        assert (len(splits["validation"]), bool(held & left)) == (
            (1, True) if documents == 1 else (5, False)
        )


def test_the_bundled_set_is_as_its_readme_says():
    recipe = Recipe(task="token-classification", data=DataSection(name="demo-ner"))
    folder = bundled_folder(builtin_datasets()["demo-ner"])

    splits = load_data(recipe, splits=["train", "validation", "test"]).splits

    assert len(splits["train"]) == 202
    assert len(splits["validation"]) == 43
    assert len(splits["test"]) == 43
    sentences = set()
    n_without_entities = 0
    entity_lengths = []
    entities_by_kind = Counter()
    for rows in splits.values():
        sentences |= {tuple(words) for words in rows.columns["words"]}
        kinds = set()
        for tags in rows.columns["label"]:
            kinds |= {tag[2:] for tag in tags}
            spans = entities(tags)
            n_without_entities += not spans
            for kind, start, end in spans:
                entities_by_kind[kind] += 1
                entity_lengths.append(end - start)
        assert kinds == {"", "PER", "LOC", "ORG", "DATE"}
    assert len(sentences) == 288
    assert n_without_entities == 79
    share_of_several_words = np.mean(np.array(entity_lengths) > 1)
    assert 0.45 < share_of_several_words < 0.55
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "Apache-2.0" in readme
    people = entities_by_kind["PER"]
    places = entities_by_kind["LOC"]
    organisations = entities_by_kind["ORG"]
    dates = entities_by_kind["DATE"]
    sentence = f"{people} people, {places} places, {organisations} organisations, {dates} dates"
    assert sentence in readme.replace("\n", " ")


def test_pubtator_is_written_so_that_it_can_be_read_whatever_the_ids_hold(tmp_path):
    with (tmp_path / "a.pubtator").open("w") as out:
        pubtator.write([Document("a|1\tb", "Anna sleeps", [(0, 4, "PER")], [])], out)
    found = READER.read(
        tmp_path / "a.pubtator", DataSection(), split="train", label_needed=True
    ).rows
    assert found.columns["id"] == ["a_1_b"]
    assert found.columns["label"] == [["B-PER", "O"]]


@pytest.mark.parametrize("content", DAMAGED)
def test_files_of_annotation_tools_in_another_shape_are_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=r"a\.json can't be used"):
        list(READER.stream(tmp_path / "a.json", DataSection()))


def test_choices_of_label_studio_in_another_shape_are_refused(tmp_path):
    (tmp_path / "a.json").write_text(
        '[{"data": {"text": "a"}, "annotations": [{"result": [{"type": "choices", "value": {}}]}]}]'
    )
    with pytest.raises(DataError, match=r"a\.json can't be used: KeyError"):
        list(READERS["text-classification"].stream(tmp_path / "a.json", DataSection()))


def test_a_task_of_label_studio_that_was_skipped_or_is_new_is_no_row(tmp_path):
    said = {"result": [{"type": "labels", "value": {"start": 0, "end": 4, "labels": ["PER"]}}]}
    given = [[{"result": [], "was_cancelled": True}], [said], [], [{"result": []}]]
    content = json.dumps([{"data": {"text": "Anna sleeps"}, "annotations": each} for each in given])
    heard = Heard()
    rows = read(tmp_path / "a.json", content, heard=heard)
    assert rows.columns["label"] == [["B-PER", "O"], ["O", "O"]]
    assert [rows.where(index).rpartition(", ")[2] for index in range(2)] == ["row 2", "row 4"]
    [warning] = heard.warned
    assert (
        "2 of 4 rows (50.0 %) have no label and are left out (skipped: 1, not annotated: 1)"
        in warning
    )
    assert not read(tmp_path / "a.json", content, needed=False).has("label")


UD_LINE = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t{}\n"


def ud(*words: tuple[str, str, str]) -> str:
    return (
        "".join(UD_LINE.format(number, *word) for number, word in enumerate(words, start=1)) + "\n"
    )


def test_entities_in_misc_are_the_tags_of_conllu_without_parts_of_speech(tmp_path):
    heard = Heard()
    path = tmp_path / "a.conllu"
    rows = read(
        path,
        ud(("It", "_", "_"), ("rains", "_", "_")) + ud(("Anna", "_", "NER=B-PER|X=1")),
        heard=heard,
    )
    assert rows.columns["label"] == [["O", "O"], ["B-PER"]]
    assert "tags from NER= in column 9 (misc)" in heard.said[0]
    both = ud(("Anna", "PROPN", "X=1|ner=B-PER"), ("sings", "VERB", "ner=O"))
    assert read(path, both, heard=heard).columns["label"] == [["PROPN", "VERB"]]
    assert "`data.label_column=NER`" in " ".join(heard.said)
    assert read(path, both, label_column="NER").columns["label"] == [["B-PER", "O"]]
    (tmp_path / "b.conllu.gz").write_bytes(gzip.compress(ud(("Anna", "_", "NER=B-PER")).encode()))
    packed = READER.read(
        tmp_path / "b.conllu.gz", DataSection(), split="train", label_needed=True
    ).rows
    assert packed.columns["label"] == [["B-PER"]]


UNSPACED = {
    "Han": "漢字",
    "iteration mark": "人々",
    "Hiragana": "ひら",
    "Katakana": "カタ",
    "halfwidth Katakana": "ｶﾀ",
    "prolonged sound": "カー",
    "Thai": "กข",
    "Lao": "ກຂ",
    "Khmer": "កខ",
    "Myanmar": "ကခ",
    "Tibetan": "ཀཁ",
    "Tai Le": "ᥐᥑ",
    "New Tai Lue": "ᦀᦁ",
    "Tai Tham": "ᨠᨡ",
    "Javanese": "ꦏꦐ",
    "Balinese": "ᬓᬔ",
}


@pytest.mark.parametrize("script", UNSPACED)
def test_words_of_a_script_without_blanks_end_anywhere(script: str) -> None:
    text = UNSPACED[script]
    assert split_tagged_words(text)[0] == list(text)
    assert not cuts_word(text, 0, 1)


@pytest.mark.parametrize("text", ["film", "фильм", "한국"])
def test_words_of_a_script_with_blanks_are_cut_inside(text: str) -> None:
    assert cuts_word(text, 0, 1)
