"""Layouts of tags as people have them.

Of spaCy, ner-annotator, Kaggle, OntoNotes, doccano, Label Studio.
"""

import csv
import gzip
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.guessing import guess_task
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from tests.heard import Heard

READER = READERS["token-classification"]
WORDS = [["Anna", "sings"], ["Oslo"]]
TAGS = [["B-PER", "O"], ["B-LOC"]]
EXAMPLES = [["Anna sings", {"entities": [[0, 4, "PER"]]}], ["Oslo", {"entities": [[0, 4, "LOC"]]}]]
REGIONS = [
    {"start": 0, "end": 4, "text": "Anna", "labels": ["PER"]},
    {"start": 0, "end": 4, "labels": ["LOC"]},
]


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def tasks(key: str = "text", given: str = "annotations", **data: str) -> list[dict[str, Any]]:
    results = [{"result": [{"type": "labels", "value": region}]} for region in REGIONS]
    texts = [" ".join(words) for words in WORDS]
    return [
        {"data": {key: text, **data}, given: [result]}
        for text, result in zip(texts, results, strict=True)
    ]


def bioc() -> dict[str, Any]:
    documents = []
    for text, kind in (("Anna sings", "PER"), ("Oslo", "LOC")):
        annotation = {
            "infons": {"type": kind},
            "text": text[:4],
            "locations": [{"offset": 0, "length": 4}],
        }
        documents.append(
            {"id": text, "passages": [{"offset": 0, "text": text, "annotations": [annotation]}]}
        )
    return {"source": "", "documents": documents}


def short_rows() -> list[dict[str, Any]]:
    pairs = zip(WORDS, REGIONS, strict=True)
    return [
        {"text": " ".join(words), "label": [region], "annotation_id": 1} for words, region in pairs
    ]


def short_csv() -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["text", "label", "annotation_id"])
    writer.writeheader()
    writer.writerows({**row, "label": json.dumps(row["label"])} for row in short_rows())
    return out.getvalue()


LAYOUTS = {
    "spacy.json": json.dumps(EXAMPLES),
    "spacy-indented.json": json.dumps(EXAMPLES, indent=1),
    "spacy.jsonl": lines(*EXAMPLES),
    "annotator.json": json.dumps({"classes": ["PER", "LOC"], "annotations": [*EXAMPLES, None]}),
    "annotator-indented.json": json.dumps(
        {"classes": ["PER", "LOC"], "annotations": EXAMPLES}, indent=1
    ),
    "kaggle.csv": "Sentence #,Word,POS,Tag\nSentence: 1,Anna,NNP,B-PER\n,sings,VBZ,O\nSentence: "
    "2,Oslo,NNP,B-LOC\n",
    "simple.csv": "sentence_id,words,labels\n0,Anna,B-PER\n0,sings,O\n1,Oslo,B-LOC\n",
    "simple.tsv": "sentence_id\twords\tlabels\n0\tAnna\tB-PER\n0\tsings\tO\n1\tOslo\tB-LOC\n",
    "simple.jsonl": lines(
        {"sentence_id": 0, "token": "Anna", "ner_tag": "B-PER"},
        {"sentence_id": 0, "token": "sings", "ner_tag": "O"},
        {"sentence_id": 1, "token": "Oslo", "ner_tag": "B-LOC"},
    ),
    "spacy.iob": "Anna|B-PER sings|O\n\nOslo|B-LOC\n",
    "tagged.iob": "Anna|NNP|B-PER sings|VBZ|O\nOslo|NNP|B-LOC\n",
    "brackets.conll": "Anna (PER)\nsings *\n\nOslo (LOC*)\n",
    "conll2012.conll": "#begin document (x); part 000\nx 0 0 Anna NNP * - - - s (PER) (0)\n"
    "x 0 1 sings VBZ * sing 1 1 s * (V*) -\n\nx 0 0 Oslo NNP * - - - s (LOC) -\n\n#end document\n",
    "doccano.jsonl": lines(
        {"id": 1, "data": "Anna sings", "label": [[0, 4, "PER"]]},
        {"id": 2, "data": "Oslo", "label": [[0, 4, "LOC"]]},
    ),
    "bioc.json": json.dumps(bioc()),
    "bioc-indented.json": json.dumps(bioc(), indent=1),
    "tasks.json": json.dumps(tasks()),
    "tasks.jsonl": lines(*tasks()),
    "content.json": json.dumps(tasks("content", url="http://x.org/a")),
    "named.json": json.dumps(tasks("r_TEXT")),
    "old.json": json.dumps(tasks(given="completions")),
    "short.json": json.dumps(short_rows()),
    "short.csv": short_csv(),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_guessed_and_read_as_tags(tmp_path, name):
    path = tmp_path / name
    path.write_text(LAYOUTS[name], encoding="utf-8")
    assert guess_task(path, DataSection())[0] == "token-classification"
    rows = READER.read(path, DataSection(), split="train", label_needed=True).rows
    assert [list(words) for words in rows.columns["words"]] == WORDS
    assert rows.columns["label"] == TAGS


def read(
    path: Path, content: str, heard: Heard | None = None, *, needed: bool = True, **said: Any
) -> Rows:
    path.write_text(content, encoding="utf-8")
    settings = DataSection(**said)
    return READER.read(
        path, settings, split="train", label_needed=needed, listener=heard or Heard()
    ).rows


def test_a_packed_table_of_words(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(LAYOUTS["kaggle.csv"].encode()))
    rows = READER.read(tmp_path / "a.csv.gz", DataSection(), split="train", label_needed=True).rows
    assert rows.columns["label"] == TAGS
    assert list(rows.lines) == [2, 4]
    streamed = READER.stream(tmp_path / "a.csv.gz", DataSection(), chunk_rows=1)
    assert [words for part in streamed for words in part.columns["words"]] == WORDS


def test_sentences_of_a_table_of_words_stand_together(tmp_path):
    with pytest.raises(DataError, match=r"a\.csv:4: the sentence '0' has begun before another one"):
        read(tmp_path / "a.csv", "sentence_id,word,tag\n0,Anna,B-PER\n1,Oslo,B-LOC\n0,sings,O\n")
    with pytest.raises(DataError, match=r"a\.csv:3: no word in the column 'word'"):
        read(tmp_path / "a.csv", "sentence_id,word,tag\n0,Anna,B-PER\n0,,O\n")
    with pytest.raises(UsageError, match="sentence_id,word,tag"):
        read(tmp_path / "a.csv", "word,tag\nAnna,B-PER\n")


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ("(PER* (LOC) *)", "stand inside each other"),
        ("(PER* *", "the bracket of PER is not closed"),
    ],
)
def test_brackets_that_are_no_spans_are_refused(tmp_path, tags, message):
    content = "".join(f"word {tag}\n" for tag in tags.split())
    with pytest.raises(DataError, match=rf"a\.conll:1: .*{message}"):
        read(tmp_path / "a.conll", content)


def test_the_text_of_tasks_is_named_or_guessed(tmp_path):
    both = json.dumps(tasks("title", body="Anna sings"))
    listener = Heard()
    assert (
        read(tmp_path / "a.json", both, listener, text_column="body").columns["text"]
        == ["Anna sings"] * 2
    )
    with pytest.raises(DataError, match="has no 'bdy' in the data of its tasks: did you mean body"):
        read(tmp_path / "a.json", both, text_column="bdy")
    lacking = [*tasks("content"), {"data": {"other": "x"}, "annotations": []}]
    with pytest.raises(DataError, match=r"task 3: no text 'content' in its data") as caught:
        read(tmp_path / "a.json", json.dumps(lacking))
    assert "`data.text_column=NAME`" in caught.value.remedy


def test_lists_of_spans_that_are_all_empty_are_tags(tmp_path):
    rows = read(
        tmp_path / "a.jsonl", lines({"text": "It rains", "label": []}, {"text": "So", "label": []})
    )
    assert rows.columns["label"] == [["O", "O"], ["O"]]


def test_rows_that_prodigy_accepted_without_spans_have_none(tmp_path):
    span = {"start": 0, "end": 4, "label": "PER"}
    accepted = {"text": "Anna sings", "spans": [span], "answer": "accept"}
    rows = read(tmp_path / "a.jsonl", lines(accepted, {"text": "It rains", "answer": "accept"}))
    assert rows.columns["label"] == [["B-PER", "O"], ["O", "O"]]
    for answer in ("ignore", "reject"):
        with pytest.raises(DataError, match=rf"a\.jsonl:2: 'answer' is '{answer}'"):
            read(tmp_path / "a.jsonl", lines(accepted, {"text": "It rains", "answer": answer}))
    with pytest.raises(DataError, match=r"a\.jsonl:2: the sentence has no tags"):
        read(tmp_path / "a.jsonl", lines(accepted, {"text": "It rains"}))


def test_the_json_of_spacy_2_is_refused_by_name(tmp_path):
    path = tmp_path / "a.json"
    sentence = {"tokens": [{"orth": "Anna", "ner": "U-PER"}]}
    path.write_text(
        json.dumps([{"id": 0, "paragraphs": [{"raw": "Anna", "sentences": [sentence]}]}])
    )
    with pytest.raises(DataError, match="the JSON that spaCy 2 was trained on") as caught:
        guess_task(path, DataSection())
    assert "spacy convert" in caught.value.remedy
    assert caught.value.task == "token-classification"


def test_categories_of_spacy_are_labels_of_texts(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps(
            [["fine", {"cats": {"POS": 1.0, "NEG": 0.0}}], ["dull", {"cats": {"POS": 0, "NEG": 1}}]]
        )
    )
    rows = (
        READERS["text-classification"]
        .read(path, DataSection(), split="train", label_needed=True)
        .rows
    )
    assert rows.columns["label"] == ["POS", "NEG"]


def test_attributes_and_notes_of_brat_are_counted(tmp_path):
    (tmp_path / "a.txt").write_text("No Anna here")
    listener = Heard()
    notes = (
        "T1\tPER 3 7\tAnna\nA1\tNegation T1\nA2\tNegation T1\nR1\tknows Arg1:T1 "
        "Arg2:T1\n#1\tAnnotatorNotes T1\tsure?\n"
    )
    rows = read(tmp_path / "a.ann", notes, listener)
    assert rows.columns["label"] == [["O", "B-PER", "O"]]
    [warning] = listener.warned
    assert (
        "2 Negation attributes, 1 relation, 1 note are not read: entities are learned without them"
        in warning
    )


def test_tasks_that_nobody_annotated_can_be_answered(tmp_path):
    for name, content in (
        ("a.json", json.dumps([{"data": {"text": "Oslo"}}])),
        ("a.jsonl", lines({"data": {"text": "Oslo"}})),
    ):
        (tmp_path / name).write_text(content)
        [rows] = READER.stream(tmp_path / name, DataSection())
        assert rows.columns["words"] == [["Oslo"]]


def test_columns_from_a_pipe_are_all_read(tmp_path):
    path = tmp_path / "a.conll"
    os.mkfifo(path)
    content = "\n\n".join(["Anna B-PER\nsings O"] * 500) + "\n"
    writer = threading.Thread(target=path.write_text, args=(content,))
    writer.start()
    rows = READER.read(path, DataSection(), split="train", label_needed=True).rows
    writer.join()
    assert len(rows) == 500


@pytest.mark.parametrize("name", ["CDR_TrainingSet.PubTator.txt", "a.txt", "a.tsv"])
def test_pubtator_is_known_by_its_first_line(tmp_path, name):
    (tmp_path / name).write_text(
        "7|t|Naloxone helps\n7|a|In rats.\n7\t0\t8\tNaloxone\tChemical\tD1\n7\tCID\tD1\tD2\n"
    )
    rows = READER.read(tmp_path / name, DataSection(), split="train", label_needed=True).rows
    assert rows.columns["label"][0][:2] == ["B-Chemical", "O"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xml", "<?xml version='1.0'?><collection><document/></collection>\n", "this is XML"),
        ("a.conll", "\n<collection> <source/>\n</collection> x\n", "this is XML"),
        (
            "a.tsv",
            "#FORMAT=WebAnno TSV 3.3\n#T_SP=x|value\n\n1-1\t0-4\tAnna\tPER\n",
            "this is WebAnno TSV",
        ),
    ],
)
def test_formats_that_only_look_like_columns_are_refused_by_name(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        READER.read(tmp_path / name, DataSection(), split="train", label_needed=True)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "span",
    [
        ["PER", 0, 4],
        [0, 4],
        {"start": "0", "end": "4", "label": "PER"},
        {"start": 0, "end": 4, "label": 7},
    ],
)
def test_a_span_that_is_none_is_refused_with_how_spans_are_written(tmp_path, span):
    path = tmp_path / "doccano.jsonl"
    path.write_text(
        lines(
            {"text": "Anna sings", "label": [[0, 4, "PER"]]},
            {"text": "Anna sings", "label": [span]},
        )
    )
    with pytest.raises(DataError, match=r"doccano\.jsonl:2: this is not a span: ") as caught:
        READER.read(path, DataSection(), split="train", label_needed=True)
    assert (
        '{"start": 0, "end": 4, "label": "PER"}, counted in characters, or [0, 4, "PER"]'
        in caught.value.remedy
    )


SHIFTED_TASK = {
    "data": {"text": "Anna"},
    "annotations": [
        {
            "result": [
                {
                    "type": "labels",
                    "value": {"start": 1, "end": 4, "text": "Anna", "labels": ["PER"]},
                }
            ]
        }
    ],
}
SHIFTED_DOCUMENT = {
    "id": "d",
    "passages": [
        {
            "offset": 0,
            "text": "Anna",
            "annotations": [
                {
                    "infons": {"type": "PER"},
                    "text": "Anna",
                    "locations": [{"offset": 1, "length": 3}],
                }
            ],
        }
    ],
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tasks.json", json.dumps([SHIFTED_TASK])),
        ("tasks.jsonl", lines(SHIFTED_TASK)),
        ("bioc.json", json.dumps({"documents": [SHIFTED_DOCUMENT]})),
        ("bioc.jsonl", lines(SHIFTED_DOCUMENT)),
        ("a.pubtator", "7|t|Anna\n7|a|\n7\t1\t4\tAnna\tPER\n"),
    ],
)
def test_what_is_wrong_with_a_file_of_spans_is_said_without_a_named_task(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match="the span 1 to 4 is 'nna', the file says 'Anna'") as caught:
        guess_task(tmp_path / name, DataSection())
    assert caught.value.task == "token-classification"


@pytest.mark.parametrize("kind", ["pairwise", "taxonomy", "rating", "textarea"])
def test_results_of_other_types_are_no_empty_lists_of_spans(tmp_path, kind):
    (tmp_path / "a.json").write_text(
        json.dumps([{"data": {"text": "x"}, "annotations": [{"result": [{"type": kind}]}]}])
    )
    with pytest.raises(DataError, match=f"its annotations are {kind}, and no spans"):
        READER.read(tmp_path / "a.json", DataSection(), split="train", label_needed=True)


def test_what_is_made_of_a_file_is_not_said_to_be_left_out(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        lines({"text": "Anna sings", "spans": [{"start": 0, "end": 4, "label": "PER"}], "meta": 1})
    )
    _, _, sentence = guess_task(tmp_path / "a.jsonl", DataSection())
    assert sentence.endswith("(not read: meta)")


def test_tags_with_a_blank_in_them_are_refused_as_tags_of_entities(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        lines({"tokens": ["Anna", "Berg", "sings"], "tags": ["B PER", "I PER", "O"]})
    )
    with pytest.raises(DataError, match="the tag 'B PER' looks like one of a scheme") as caught:
        READER.read(tmp_path / "a.jsonl", DataSection(), split="train", label_needed=True)
    assert "B-PER for B PER" in caught.value.remedy
