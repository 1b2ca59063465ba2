"""Labels are those of people who agree: predictions, skipped tasks and disputed rows are none."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.readers import READERS
from bertctl.data.reading import ReadOptions, SkippedRows
from bertctl.data.rows import Rows
from bertctl.errors import DataError
from tests.heard import Heard

TEXTS = READERS["text-classification"]
TAGS = READERS["token-classification"]


def read(
    path: Path, content: str, reader: Any = TEXTS, *, needed: bool = True, heard: Heard | None = None, **said: Any
):
    path.write_text(content, encoding="utf-8")
    settings = DataSection(**said)
    return reader.read(path, settings, split="train", label_needed=needed, listener=heard or Heard()).rows


def chosen(*labels: str, **entry: Any) -> dict[str, Any]:
    result = {"type": "choices", "from_name": "mood", "to_name": "text", "value": {"choices": list(labels)}}
    return {"result": [result], **entry}


def marked(*spans: tuple[int, int, str], **entry: Any) -> dict[str, Any]:
    values = [{"start": start, "end": end, "labels": [kind]} for start, end, kind in spans]
    return {"result": [{"type": "labels", "value": value} for value in values], **entry}


def task(text: str, *annotations: Any, predictions: Any = (), key: str = "annotations") -> dict[str, Any]:
    return {"data": {"text": text}, key: list(annotations), "predictions": list(predictions)}


PERSON = (0, 4, "PER")
SKIPPED = {"was_cancelled": True, "result": []}


def labels_of(rows: Rows) -> list[Any]:
    return list(rows.columns["label"])


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.lines.jsonl"])
def test_predictions_and_skipped_tasks_are_no_labels_of_texts(tmp_path, name):
    tasks = [
        task("a great film", chosen("good")),
        task("a dreadful film", SKIPPED, predictions=[chosen("good")]),
        task("a hateful film", predictions=[chosen("good")]),
        task("an awful film", chosen("bad")),
    ]
    whole = json.dumps(tasks) if name == "a.json" else "".join(json.dumps(each) + "\n" for each in tasks)
    heard = Heard()
    rows = read(tmp_path / name, whole, heard=heard)
    assert labels_of(rows) == ["good", "bad"]
    assert list(rows.ids) == ["0", "3"]
    [warning] = heard.warned
    assert "2 of 4 rows (50.0 %) have no label" in warning
    assert "(skipped: 1, predictions alone: 1)" in warning
    unlabelled = read(tmp_path / name, whole, needed=False)
    assert len(unlabelled) == 4, "every task can be answered"


def test_predictions_and_skipped_tasks_are_no_tags(tmp_path):
    tasks = [
        task("Anna sleeps", SKIPPED, predictions=[marked(PERSON)]),
        task("Anna sings", predictions=[marked(PERSON)]),
        task("Anna reads", marked(PERSON), predictions=[marked((5, 10, "LOC"))]),
    ]
    heard = Heard()
    rows = read(tmp_path / "a.json", json.dumps(tasks), TAGS, heard=heard)
    assert labels_of(rows) == [["B-PER", "O"]]
    assert rows.where(0).endswith("row 3")
    assert "(skipped: 1, predictions alone: 1)" in heard.warned[0]


def test_predictions_are_learned_where_they_are_asked_for(tmp_path):
    tasks = [task("good", predictions=[chosen("good", model_version="v1")]), task("bad", chosen("bad"))]
    for annotator in ("predictions", "v1"):
        rows = read(tmp_path / "a.json", json.dumps(tasks), annotator=annotator)
        assert labels_of(rows) == ["good"]
    tags = [task("Anna sleeps", predictions=[marked(PERSON)])]
    rows = read(tmp_path / "b.json", json.dumps(tags), TAGS, annotator="predictions")
    assert labels_of(rows) == [["B-PER", "O"]]
    with pytest.raises(DataError, match=r"1 of 1 row .* have no label") as caught:
        read(tmp_path / "b.json", json.dumps(tags), TAGS)
    assert "--annotator NAME (data.annotator in a recipe); `predictions` takes" in caught.value.remedy


ANNA = {"completed_by": {"id": 7, "email": "anna@x.org", "first_name": "Anna", "last_name": "Berg"}}
BOB = {"completed_by": 8}


@pytest.mark.parametrize(
    ("annotations", "annotator", "label"),
    [
        ((chosen("good", **ANNA), chosen("good", **BOB)), None, "good"),
        ((chosen("good", **ANNA), chosen("bad", **BOB)), "8", "bad"),
        ((chosen("good", **ANNA), chosen("bad", **BOB)), "ANNA@x.org", "good"),
        ((chosen("good", **ANNA), chosen("bad", **BOB)), "Anna Berg", "good"),
        ((chosen("good", **ANNA), chosen("bad", ground_truth=True, **BOB)), None, "bad"),
        ((chosen("good", **ANNA), chosen("bad", was_cancelled=True, **BOB)), None, "good"),
        ((chosen("good", **ANNA), chosen("bad", last_action="rejected", **BOB)), None, "good"),
        ((chosen("good", **ANNA), chosen("bad", last_action="prediction", **BOB)), None, "good"),
        ((chosen("a", "b", **ANNA), chosen("b", "a", **BOB)), None, ["a", "b"]),
    ],
)
@pytest.mark.parametrize("key", ["annotations", "completions"])
def test_one_label_of_several_annotators(tmp_path, annotations, annotator, label, key):
    rows = read(tmp_path / "a.json", json.dumps([task("x", *annotations, key=key)]), annotator=annotator)
    assert labels_of(rows) == [label]


def test_annotators_who_disagree_are_refused_or_skipped(tmp_path):
    tasks = [task("fine", chosen("good")), task("x", chosen("good", **ANNA), chosen("bad", **BOB))]
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.json", json.dumps(tasks))
    assert "a.json, row 2: its 2 annotations are not the same (anna@x.org: good; 8: bad)" in caught.value.message
    assert "--annotator NAME (data.annotator in a recipe), such as 'anna@x.org', '8'" in caught.value.remedy
    skipped = SkippedRows()
    options = ReadOptions(DataSection(), "file", label_needed=True).skipping(skipped)
    assert len(TEXTS.read_whole(tmp_path / "a.json", options).rows) == 1
    assert len(skipped.errors) == 1


def test_spans_on_which_annotators_disagree(tmp_path):
    disputed = task("Anna sleeps", marked(PERSON, **ANNA), marked((0, 4, "LOC"), **BOB))
    with pytest.raises(DataError, match=r"row 1: its 2 annotations .*0 to 4 PER.*0 to 4 LOC"):
        read(tmp_path / "a.json", json.dumps([disputed]), TAGS)
    assert labels_of(read(tmp_path / "a.json", json.dumps([disputed]), TAGS, annotator="8")) == [["B-LOC", "O"]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["PER", "ORG"], "the region 0 to 4 ('Anna') has 2 labels: PER, ORG"),
        ([], "the region 0 to 4 ('Anna') has no label"),
    ],
)
def test_a_region_has_one_label(tmp_path, labels, message):
    value = {"start": 0, "end": 4, "text": "Anna", "labels": labels}
    region = {"result": [{"type": "labels", "value": value}]}
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.json", json.dumps([task("Anna sleeps", region)]), TAGS)
    assert message in caught.value.message
    short = json.dumps([{"id": 1, "text": "Anna sleeps", "label": [value], "annotator": 1, "annotation_id": 1}])
    with pytest.raises(DataError, match="2 labels: PER, ORG" if labels else "no label"):
        read(tmp_path / "b.json", short, TAGS)


def test_questions_of_one_task_are_columns_of_their_own(tmp_path):
    topic = {"type": "choices", "from_name": "topic", "value": {"choices": ["film"]}}
    of_region = {"type": "choices", "from_name": "sure", "value": {"start": 0, "end": 1, "choices": ["yes"]}}
    annotation = {"result": [*chosen("good")["result"], topic, of_region]}
    content = json.dumps([task("x", annotation), task("y", annotation)])
    assert labels_of(read(tmp_path / "a.json", content, label_column="topic")) == ["film", "film"]
    assert labels_of(read(tmp_path / "a.json", content, label_column="mood")) == ["good", "good"]
    rated = {"result": [{"type": "rating", "from_name": "r", "value": {"rating": 4}}]}
    assert labels_of(read(tmp_path / "b.json", json.dumps([task("x", rated)]))) == [4]


def rows_by_annotators(names: tuple[str, str], labels: tuple[Any, Any], **more: Any) -> str:
    key, annotator = names
    rows = [{key: 5, annotator: f"{who}", "text": "Anna sleeps", "label": label, **more}
            for who, label in zip("ab", labels, strict=True)]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    "names", [("_task_hash", "_annotator_id"), ("_input_hash", "_session_id"), ("id", "annotator")]
)
@pytest.mark.parametrize("reader", [TEXTS, TAGS])
def test_rows_of_several_annotators_about_one_task_are_one_row(tmp_path, names, reader):
    one, other = ("good", "bad") if reader is TEXTS else ([[0, 4, "PER"]], [[0, 4, "LOC"]])
    same = rows_by_annotators(names, (one, one), annotation_id=1)
    heard = Heard()
    assert len(read(tmp_path / "a.jsonl", same, reader, heard=heard)) == 1
    assert "same row by another annotator: 1" in heard.warned[0]
    disputed = rows_by_annotators(names, (one, other), annotation_id=1)
    with pytest.raises(DataError, match=r"a\.jsonl:1: its 2 annotations are not the same \(a: "):
        read(tmp_path / "a.jsonl", disputed, reader)
    assert len(read(tmp_path / "a.jsonl", disputed, reader, annotator="b")) == 1


def test_users_of_an_old_doccano_export(tmp_path):
    def spans(*users: int) -> str:
        kinds = ("PER", "LOC")
        given = [{"label": kinds[user % 2], "start_offset": 0, "end_offset": 4, "user": user} for user in users]
        return json.dumps({"text": "Anna sleeps", "annotations": given, "annotation_approver": None}) + "\n"

    assert labels_of(read(tmp_path / "a.jsonl", spans(2, 4), TAGS)) == [["B-PER", "O"]]
    with pytest.raises(DataError, match=r"a\.jsonl:1: its 2 annotations are not the same"):
        read(tmp_path / "a.jsonl", spans(2, 3), TAGS)
    assert labels_of(read(tmp_path / "a.jsonl", spans(2, 3), TAGS, annotator="3")) == [["B-LOC", "O"]]


def test_rows_of_doccano_that_nobody_approved_are_counted(tmp_path):
    rows = [{"text": "a", "label": ["x"], "annotation_approver": who} for who in ("anna", None, None)]
    heard = Heard()
    read(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows), heard=heard)
    assert "2 of 3 rows (66.7 %) are not approved (annotation_approver)" in heard.warned[0]
    heard = Heard()
    read(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows[1:]), heard=heard)
    assert not heard.warned


def test_several_choices_of_the_short_json_are_a_list(tmp_path):
    rows = [{"text": "a", "mood": {"choices": ["x", "y"]}, "annotation_id": 1}]
    assert labels_of(read(tmp_path / "a.json", json.dumps(rows), label_column="mood")) == [["x", "y"]]
