"""Files with questions: SQuAD's JSON and flat rows, what is refused, the bundled set."""

import csv
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.catalog.datasets import bundled_folder, find_dataset
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.question_files import questions_about
from bertctl.data.read_options import ReadOptions
from bertctl.data.readers import READERS
from bertctl.data.recipe_data import load_data
from bertctl.data.table import Table
from bertctl.errors import DataError, UsageError
from bertctl.progress import Listener

READER = READERS["question-answering"]
CONTEXT = "Ada lives in Rome. Ben lives in Oslo."
NESTED = {
    "version": "v2.0",
    "data": [
        {
            "title": "Towns",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "a",
                            "question": "Where is Ada?",
                            "answers": [{"text": "Rome", "answer_start": 13}],
                        },
                        {
                            "id": "b",
                            "question": "Where is Eve?",
                            "answers": [],
                            "is_impossible": True,
                        },
                    ],
                },
                {
                    "context": "Eve is in Bern.",
                    "qas": [
                        {
                            "id": "c",
                            "question": "Where is Eve?",
                            "is_impossible": False,
                            "answers": [
                                {"text": "Bern", "answer_start": 10},
                                {"text": "in Bern", "answer_start": 7},
                            ],
                        }
                    ],
                },
            ],
        }
    ],
}
LABELS = [
    {"text": ["Rome"], "answer_start": [13]},
    {"text": [], "answer_start": []},
    {"text": ["Bern", "in Bern"], "answer_start": [10, 7]},
]


class _Heard(Listener):
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    warn = say


def _read(path, listener=None, *, label_needed=True, **settings):
    section = DataSection(**settings)
    return READER.read(
        path, section, split="train", label_needed=label_needed, listener=listener or _Heard()
    )


def _flat():
    contexts = [CONTEXT, CONTEXT, "Eve is in Bern."]
    questions = ["Where is Ada?", "Where is Eve?", "Where is Eve?"]
    return [
        {"id": i, "question": q, "context": c, "answers": a, "title": "Towns"}
        for i, q, c, a in zip("abc", questions, contexts, LABELS, strict=True)
    ]


def _write(folder, form):
    path = folder / f"{form}.{'json' if 'json' in form and form != 'jsonl' else form}"
    if form == "json-nested":
        path.write_text(json.dumps(NESTED))
    elif form == "json-pretty":
        path.write_text(json.dumps(NESTED, indent=2))
    elif form == "json-list":
        path.write_text(json.dumps(_flat()))
    elif form == "json-data":  # as the hub's own JSON files are
        path.write_text(json.dumps({"version": 1, "data": _flat()}))
    elif form == "jsonl":
        path.write_text("\n".join(map(json.dumps, _flat())) + "\n")
    elif form == "gz":
        path = folder / "x.json.gz"
        path.write_bytes(gzip.compress(json.dumps(NESTED).encode()))
    else:
        pq.write_table(pa.Table.from_pylist(_flat()), path)
    return path


@pytest.mark.parametrize(
    "form", ["json-nested", "json-pretty", "json-list", "json-data", "jsonl", "gz", "parquet"]
)
def test_every_form_gives_the_same_rows(tmp_path, form):
    listener = _Heard()
    rows = _read(_write(tmp_path, form), listener).rows
    assert list(rows.ids) == ["a", "b", "c"]
    assert rows.columns["question"] == ["Where is Ada?", "Where is Eve?", "Where is Eve?"]
    assert rows.columns["context"] == [CONTEXT, CONTEXT, "Eve is in Bern."]
    assert rows.columns["label"] == LABELS
    assert rows.columns["title"] == ["Towns"] * 3
    flat = "question from 'question', context from 'context', label from 'answers' (guessed"
    assert [flat in line for line in listener.lines] == [True] * (
        form in ("json-list", "json-data", "jsonl", "parquet")
    )


@pytest.mark.parametrize(
    "form", ["json-nested", "json-pretty", "json-list", "jsonl", "gz", "parquet"]
)
def test_streams_give_the_questions_without_answers_in_portions(tmp_path, form):
    portions = list(READER.stream(_write(tmp_path, form), DataSection(), chunk_rows=2))
    assert [len(rows) for rows in portions] == [2, 1]
    assert [i for rows in portions for i in rows.ids] == ["a", "b", "c"]
    assert not any(rows.has("label") for rows in portions)
    assert portions[1].columns["context"] == ["Eve is in Bern."]


@pytest.mark.parametrize("text", ["nested", "lines"])
def test_stdin_is_json_of_either_form(monkeypatch, text):
    data = json.dumps(NESTED) if text == "nested" else "\n".join(map(json.dumps, _flat()))
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data.encode())))
    )
    assert [i for rows in READER.stream("-", DataSection()) for i in rows.ids] == ["a", "b", "c"]


def test_lines_of_json_lines_are_known(tmp_path):
    rows = _read(_write(tmp_path, "jsonl")).rows
    assert rows.where(2).endswith("jsonl.jsonl:3")


@pytest.mark.parametrize(
    ("answers", "label"),
    [
        ([], LABELS[1]),
        ("Rome", LABELS[0]),  # no offset: where it stands first
        (["Oslo", "in Oslo"], {"text": ["Oslo", "in Oslo"], "answer_start": [32, 29]}),
        ({"text": "Rome", "answer_start": 13}, LABELS[0]),
        ({"text": [], "answer_start": []}, LABELS[1]),
        ([{"text": "Rome", "answer_start": 13.0}], LABELS[0]),
        ("Paris", {"text": ["Paris"], "answer_start": [-1]}),
    ],
)
def test_answers_may_be_written_in_several_ways(tmp_path, answers, label):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"question": "q", "context": CONTEXT, "answers": answers}))
    assert _read(path).rows.columns["label"] == [label]


@pytest.mark.parametrize(
    "written",
    [{"text": ["Rome"], "answer_start": [13]}, ["Rome"], {"text": [], "answer_start": []}],
)
def test_a_cell_may_hold_answers_as_json_or_python_has_them(tmp_path, written):
    for cell in (json.dumps(written), repr(written)):
        with (tmp_path / "x.csv").open("w") as file:
            csv.writer(file).writerows([["question", "context", "answers"], ["q", CONTEXT, cell]])
        label = _read(tmp_path / "x.csv").rows.columns["label"]
        assert label == [
            LABELS[1] if isinstance(written, dict) and not written["text"] else LABELS[0]
        ]


def test_an_offset_may_have_a_column_of_its_own(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(
        f'question,context,answer,answer_start\nWhere?,"{CONTEXT}",Rome,13\nWhen?,"{CONTEXT}",,\n'
    )
    assert _read(path).rows.columns["label"] == LABELS[:2]


def test_other_column_names_are_guessed_and_said_or_named(tmp_path):
    path = tmp_path / "x.jsonl"
    row = {"query": "q", "passage": CONTEXT, "answers": "Rome", "label": "other"}
    path.write_text(json.dumps(row))
    listener = _Heard()
    reading = _read(path, listener)
    assert reading.columns == {"question": "query", "context": "passage", "label": "answers"}
    assert "question from 'query', context from 'passage'" in listener.lines[0]
    assert reading.rows.columns["file_label"] == ["other"]
    rows = _read(path, text_column="query", pair_column="passage", label_column="label").rows
    assert rows.columns["label"] == [{"text": ["other"], "answer_start": [-1]}]


def test_a_prediction_file_is_read_whatever_the_settings_name(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(
        json.dumps(
            {"id": "a", "question": "q", "context": CONTEXT, "gold": ["Rome"], "prediction": "x"}
        )
    )
    rows = _read(path, text_column="query", pair_column="passage", label_column="response").rows
    assert rows.ids == ["a"]
    assert rows.columns["label"] == [LABELS[0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": None}, r"x\.jsonl:1 \(id 'k'\): .*no context"),
        ({"context": "  "}, "no context"),
        ({"question": None}, "no question"),
        ({"question": ["q"]}, "question is list"),
        ({"answers": None}, r"x\.jsonl:1 \(id 'k'\): .*no answers"),
        ({"answers": 7}, "these answers .*: 7"),
        ({"answers": {"text": ["a", "b"], "answer_start": [1]}}, "these answers"),
        ({"answers": [{"text": "a", "answer_start": "x"}]}, "these answers"),
        ({"context": "\ud800"}, r"half of a surrogate pair"),
    ],
)
def test_what_can_not_be_read_is_refused_with_line_and_id(tmp_path, change, message):
    path = tmp_path / "x.jsonl"
    path.write_text(
        json.dumps({"id": "k", "question": "q", "context": CONTEXT, "answers": []} | change)
    )
    with pytest.raises(DataError, match=message):
        _read(path)


def test_documents_that_are_no_questions_are_refused(tmp_path):
    path = tmp_path / "x.json"
    for text, message in (
        ("{\n", r"x\.json:2: this is not JSON"),
        ('{"data": 3}', "no column .*the question"),
        ('{"data": []}', "has no rows"),
        (
            '{"data": [{"title": "t", "paragraphs": [{"context": "c"}]}]}',
            r"article 1 \('t'\), paragraph 1.*'qas'",
        ),
        ('{"data": [{"title": "t", "paragraphs": 3}]}', "'paragraphs'"),
    ):
        path.write_text(text)
        with pytest.raises((DataError, UsageError), match=message):
            _read(path)
    (tmp_path / "x.txt").write_text("q\n")
    with pytest.raises(UsageError, match=r"lines of text .*questions"):
        _read(tmp_path / "x.txt")


def test_ids_that_stand_twice_are_said_and_numbered(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [
        {"id": "k", "question": question, "context": CONTEXT, "answers": []}
        for question in ("q", "r")
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    listener = _Heard()
    assert list(_read(path, listener).rows.ids) == ["0", "1"]
    assert any("stand twice" in line for line in listener.lines)
    with pytest.raises(DataError, match="id 'k'"):
        _read(path, id_column="id")


def test_a_test_file_needs_no_answers(tmp_path):
    path = tmp_path / "x.json"
    questions = [{"id": "a", "question": "Where is Ada?"}]
    path.write_text(
        json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": questions}]}]})
    )
    assert not _read(path, label_needed=False).rows.has("label")
    with pytest.raises(DataError, match="answers"):
        _read(path)


def test_the_hubs_columns_are_read():
    table = Table({name: [row[name] for row in _flat()] for name in _flat()[0]}, "hub")
    settings = DataSection(text_column="question", pair_column="context", label_column="answers")
    [reading] = READER.table_readings([table], ReadOptions(settings, "train", label_needed=True))
    rows = reading.rows
    assert rows.columns["label"] == LABELS
    assert rows.ids == ["a", "b", "c"]


def test_one_question_is_a_row_and_needs_a_context():
    rows = questions_about(["Where is Ada?"], CONTEXT)
    assert len(rows) == 1
    assert rows.columns["question"] == ["Where is Ada?"]
    assert not rows.has("label")
    with pytest.raises(DataError, match="no context"):
        questions_about(["Where is Ada?"], "\n")


def test_questions_about_one_text_stay_on_one_side_of_a_hold_out(tmp_path):
    path = tmp_path / "x.jsonl"
    lines = [{"question": f"q{i}", "context": f"text {i // 3}", "answers": []} for i in range(60)]
    path.write_text("\n".join(map(json.dumps, lines)))
    data = load_data(Recipe(task="question-answering", data=DataSection(train_file=str(path))))
    sides = [set(data.splits[name].columns["context"]) for name in ("train", "validation")]
    assert not sides[0] & sides[1]
    assert len(data.splits["validation"]) == 6


def test_the_bundled_set_is_what_its_readme_says():
    folder = bundled_folder(find_dataset("demo-qa"))
    train_titles, train = _articles(folder / "train.json")
    validation_titles, validation = _articles(folder / "validation.json")
    assert find_dataset("demo-qa").split_names == ("train", "validation")
    assert train_titles.isdisjoint(validation_titles)
    assert len(train) == 48
    assert len(validation) == 16

    questions = []
    for paragraph in train + validation:
        assert len(paragraph["qas"]) == 3
        for question in paragraph["qas"]:
            questions.append(question)
            assert question["is_impossible"] == (not question["answers"])
            for answer in question["answers"]:
                _check_answer(answer, paragraph["context"])
    assert len({question["id"] for question in questions}) == 192
    assert len({question["question"] for question in questions}) == 192
    assert sum(question["is_impossible"] for question in questions) == 39


def _articles(path: Path) -> tuple[set[str], list[dict[str, Any]]]:
    """Titles of the articles of a SQuAD file, and their paragraphs."""
    titles = set()
    paragraphs = []
    for article in json.loads(path.read_text())["data"]:
        titles.add(article["title"])
        paragraphs += article["paragraphs"]
    return titles, paragraphs


def _check_answer(answer: dict[str, Any], context: str) -> None:
    """Checks that an answer is in its context, and consists of whole words."""
    start = answer["answer_start"]
    end = start + len(answer["text"])
    assert context[start:end] == answer["text"]
    character_before = context[start - 1 : start]
    character_after = context[end : end + 1]
    assert not (character_before + character_after).strip().isalnum()


def test_official_files_have_the_official_numbers_of_questions(shared_data):
    for name, split, questions, without in (
        ("squad", "train", 11_877, 0),
        ("squad", "validation", 10_570, 0),
        ("squad2", "validation", 6_078, 3_168),
    ):
        recipe = Recipe(
            task="question-answering", data=DataSection(name=name, data_dir=str(shared_data))
        )
        labels = load_data(recipe, splits=[split]).splits[split].columns["label"]
        assert len(labels) == questions
        assert sum(not label["text"] for label in labels) == without
