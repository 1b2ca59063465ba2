"""Questions as other tools write them, and what their files say beside the offsets."""

import csv
import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.readers import READERS
from bertctl.errors import DataError
from tests.heard import Heard

READER = READERS["question-answering"]
CONTEXT = "Anna moved to Oslo in 1998."
QAS = [
    {"id": "q1", "question": "Where?", "answers": [{"text": "Oslo", "answer_start": 14}]},
    {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True},
]
LABELS = [{"text": ["Oslo"], "answer_start": [14]}, {"text": [], "answer_start": []}]


def _read(path, listener=None, **settings):
    options = {"listener": listener} if listener else {}
    return READER.read(
        path, DataSection(**settings), split="train", label_needed=True, **options
    ).rows


def _jsonl(folder, *rows, name="a.jsonl"):
    path = folder / name
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def _csv(folder, *rows, name="a.csv"):
    path = folder / name
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter="\t" if name.endswith(".tsv") else ",")
        writer.writeheader()
        writer.writerows(rows)
    return path


PARAGRAPH = {"context": CONTEXT, "qas": QAS}
NESTED = {
    "a list of paragraphs": [PARAGRAPH],
    "paragraphs under data": {"data": [PARAGRAPH]},
    "one paragraph": PARAGRAPH,
    "one article": {"title": "Anna", "paragraphs": [PARAGRAPH]},
    "articles": [{"title": "Anna", "paragraphs": [PARAGRAPH]}],
}


@pytest.mark.parametrize("form", NESTED)
@pytest.mark.parametrize("indent", [None, 1])
def test_paragraphs_are_read_with_and_without_articles(tmp_path, form, indent):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(NESTED[form], indent=indent))
    rows = _read(path)
    assert list(rows.ids) == ["q1", "q2"]
    assert list(rows.columns["label"]) == LABELS
    assert set(rows.columns["context"]) == {CONTEXT}


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_paragraphs_may_stand_on_lines(tmp_path, name):
    rows = _read(
        _jsonl(
            tmp_path,
            PARAGRAPH,
            {"title": "B", "paragraphs": [PARAGRAPH | {"context": CONTEXT + " "}]},
            name=name,
        ),
        id_column=None,
    )
    assert list(rows.columns["label"]) == LABELS * 2
    assert list(rows.lines) == [1, 1, 2, 2]


def test_mrqa_is_read(tmp_path):
    answer = {"text": "Oslo", "char_spans": [[14, 17]], "token_spans": [[3, 3]]}
    line = {
        "context": CONTEXT,
        "qas": [
            {"qid": "m", "question": "Where?", "answers": ["Oslo"], "detected_answers": [answer]}
        ],
    }
    rows = _read(_jsonl(tmp_path, line))
    assert list(rows.ids) == ["m"]
    assert list(rows.columns["label"]) == LABELS[:1]


SHOWN = [
    "{'text': array(['Oslo'], dtype=object), 'answer_start': array([14], dtype=int32)}",
    "{'text': array(['Oslo'],\n      dtype=object), 'answer_start': array([14])}",
    "[{'text': np.str_('Oslo'), 'answer_start': np.int64(14)}]",
    "{'text': ['Oslo'], 'answer_start': [14.0]}",
    '{"text": ["Oslo"], "answer_start": [14]}',
    "array(['Oslo'], dtype=object)",
]


@pytest.mark.parametrize("cell", SHOWN)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_answers_as_pandas_and_numpy_show_them(tmp_path, cell, name):
    path = _csv(tmp_path, {"question": "Where?", "context": CONTEXT, "answers": cell}, name=name)
    assert list(_read(path).columns["label"]) == LABELS[:1]


def test_no_answers_as_numpy_shows_them(tmp_path):
    cell = "{'text': array([], dtype=object), 'answer_start': array([], dtype=int32)}"
    path = _csv(tmp_path, {"question": "Where?", "context": CONTEXT, "answers": cell})
    assert list(_read(path).columns["label"]) == LABELS[1:]


def test_an_array_that_is_shortened_is_refused(tmp_path):
    cell = (
        "{'text': array(['Oslo', ..., 'Oslo'], dtype=object), 'answer_start': array([14, ..., 14])}"
    )
    with pytest.raises(
        DataError, match=r"a\.csv:2 \(id '0'\): these answers can't be read"
    ) as caught:
        _read(_csv(tmp_path, {"question": "Where?", "context": CONTEXT, "answers": cell}))
    assert "numpy has left a part out" in caught.value.remedy


ROW = {"id": "q", "question": "Where?", "context": CONTEXT}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"answers": ["Oslo"], "is_impossible": True},
            "`is_impossible` is true, and there is an answer: 'Oslo'",
        ),
        (
            {"answers": "Oslo", "is_impossible": "true"},
            "`is_impossible` is true, and there is an answer: 'Oslo'",
        ),
        (
            {"answers": [], "is_impossible": False},
            "no answer, and `is_impossible` is false",
        ),
        (
            {"answers": [{"text": "Oslo", "answer_start": 14, "answer_end": 25}]},
            "the answer 'Oslo' has 4 characters, and its offsets say 14 to 25",
        ),
        (
            {"answer": "Oslo", "answer_start": 14, "answer_end": 16},
            "has 4 characters, and its offsets say 14 to 16",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_with_line_and_id(tmp_path, more, message):
    with pytest.raises(DataError) as caught:
        _read(_jsonl(tmp_path, ROW | more))
    assert caught.value.message.startswith(f"{tmp_path / 'a.jsonl'}:1 (id 'q'): ")
    assert message in caught.value.message


def test_a_nested_file_that_contradicts_itself_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps(
            {
                "data": [
                    {
                        "title": "t",
                        "paragraphs": [
                            {"context": CONTEXT, "qas": [QAS[0] | {"is_impossible": True}]}
                        ],
                    }
                ]
            }
        )
    )
    with pytest.raises(DataError, match="is true, and there is an answer: 'Oslo'"):
        _read(path)


@pytest.mark.parametrize(
    "more",
    [
        {"answers": [{"text": "Oslo", "answer_start": 14, "answer_end": 18}]},
        {
            "answers": [{"text": "Oslo", "start": 14, "end": 17}]
        },  # the last character, as some tools count
        {"answers": {"text": ["Oslo"], "answer_start": ["14"], "answer_end": ["18"]}},
        {"answer": "Oslo", "answer_start": 14.0, "answer_end": 18.0},
        {
            "answers": [{"text": "Oslo", "answer_start": 14}],
            "plausible_answers": [{"text": "1998", "answer_start": 22}],
        },
        {
            "answers": [{"text": "Oslo", "answer_start": 14}],
            "is_impossible": False,
            "prediction": "1998",
        },
    ],
)
def test_what_agrees_is_read(tmp_path, more):
    assert list(_read(_jsonl(tmp_path, ROW | more)).columns["label"]) == LABELS[:1]


def _annotators():
    return [{**ROW, "answers": [answer]} for answer in ("Oslo", "to Oslo", "Oslo")]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("id_column", [None, "id"])
def test_rows_of_one_question_are_one_question_with_several_answers(tmp_path, form, id_column):
    rows = [*_annotators(), {**ROW, "id": "r", "question": "When?", "answers": ["1998"]}]
    if form == "parquet":
        path = tmp_path / "a.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif form == "csv":
        path = _csv(tmp_path, *({**row, "answers": str(row["answers"])} for row in rows))
    else:
        path = _jsonl(tmp_path, *rows)
    listener = Heard()
    reading = _read(path, listener, id_column=id_column)
    assert list(reading.ids) == ["q", "r"]
    assert [label["text"] for label in reading.columns["label"]] == [["Oslo", "to Oslo"], ["1998"]]
    assert "2 rows with the id, the question and the context of an earlier row" in "".join(
        listener.warned
    )


def test_equal_ids_of_different_questions_are_no_one_question(tmp_path):
    rows = [{**ROW, "answers": ["Oslo"]}, {**ROW, "question": "When?", "answers": ["1998"]}]
    listener = Heard()
    assert list(_read(_jsonl(tmp_path, *rows), listener).ids) == ["0", "1"]
    assert "numbered instead" in "".join(listener.warned)
    with pytest.raises(DataError, match="the id 'q' is at"):
        _read(_jsonl(tmp_path, *rows), id_column="id")


TWICE = "Oslo is big. Anna moved to Oslo."


@pytest.mark.parametrize(
    "names", [("start", "end"), ("start_idx", "end_idx"), ("start_char", "end_char"), ("offset",)]
)
def test_where_an_answer_stands_is_read_under_other_names(tmp_path, names):
    offsets = dict(zip(names, (27, 31), strict=False))
    listener = Heard()
    flat = {"question": "Where?", "context": TWICE, "answer": "Oslo", **offsets}
    inner = {"question": "Where?", "context": TWICE, "answers": [{"text": "Oslo", **offsets}]}
    for path in (_jsonl(tmp_path, flat), _jsonl(tmp_path, inner), _csv(tmp_path, flat)):
        assert list(_read(path, listener).columns["label"]) == [
            {"text": ["Oslo"], "answer_start": [27]}
        ]
    assert not listener.warned


def test_places_of_another_answer_are_kept_and_those_of_tokens_are_not(tmp_path):
    flat = {"question": "Where?", "context": TWICE, "answer": "Oslo"}
    wrong = _read(_jsonl(tmp_path, {**flat, "start": 13, "end": 17}))
    assert wrong.columns["label"][0]["answer_start"] == [13], (
        "and refused where the answers are compared"
    )
    tokens = _read(_jsonl(tmp_path, {**flat, "start_position": 6, "end_position": 6}))
    assert tokens.columns["label"][0]["answer_start"] == [0]


def test_the_head_of_mrqa_and_the_names_of_cmrc_are_read(tmp_path):
    answers = [{"text": "Oslo", "char_spans": [[14, 17]]}]
    paragraph = {
        "context": CONTEXT,
        "qas": [{"qid": "q", "question": "Where?", "detected_answers": answers}],
    }
    rows = _read(_jsonl(tmp_path, {"header": {"dataset": "NewsQA"}}, paragraph))
    assert list(rows.columns["label"]) == LABELS[:1]
    path = tmp_path / "cmrc.json"
    path.write_text(
        json.dumps(
            [
                {
                    "context_text": CONTEXT,
                    "qas": [{"query_id": "q", "query_text": "Where?", "answers": ["Oslo"]}],
                }
            ]
        )
    )
    assert list(_read(path).columns["label"]) == LABELS[:1]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"document_plaintext": "x", "question_text": "q", "annotations": {}}, "TyDi QA"),
        ({"document_text": "x", "question_text": "q", "annotations": [{}]}, "Natural Questions"),
        ({"story": "x", "questions": ["q"], "answers": {}}, "CoQA"),
        ({"passage": "x", "question": "q", "answers_spans": {}}, "DROP"),
        ({"p1": {"passage": "x", "qa_pairs": []}}, "DROP"),
        ({"question": "q", "answer": "x", "context": {}, "supporting_facts": {}}, "HotpotQA"),
        ({"Question": "q", "Answer": {"Value": "x"}, "EntityPages": []}, "TriviaQA"),
    ],
)
def test_other_forms_of_questions_are_refused_by_name(tmp_path, row, name):
    with pytest.raises(DataError, match=f"this is the form of {name}"):
        _read(_jsonl(tmp_path, row))


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            ["Oslo", "Oslo"],
            "1 row with the id, .* the answers are the same, too, so each question counts once .1 "
            "quest",
        ),
        (
            ["Oslo", "moved"],
            "1 row with the id, .* their answers are further answers to it .1 question in all",
        ),
        (
            ["Oslo", "moved", "Oslo"],
            "2 rows with the id, .* further answers to it .1 row with the same answers",
        ),
    ],
)
def test_questions_that_repeat_are_counted_with_what_they_repeat(tmp_path, answers, message):
    listener = Heard()
    rows = [
        {"id": "q", "question": "Where?", "context": CONTEXT, "answers": {"text": [answer]}}
        for answer in answers
    ]
    assert len(_read(_jsonl(tmp_path, *rows), listener)) == 1
    [warning] = listener.warned
    assert re.search(message, warning)
