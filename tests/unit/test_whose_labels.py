"""Labels are those of people who agree: predictions, skipped tasks and disputed rows are none."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.read_options import ReadOptions, SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from tests.heard import Heard

TEXTS = READERS["text-classification"]
TAGS = READERS["token-classification"]


def read(
    path: Path,
    content: str,
    reader: Any = TEXTS,
    *,
    needed: bool = True,
    heard: Heard | None = None,
    **said: Any,
):
    path.write_text(content, encoding="utf-8")
    settings = DataSection(**said)
    return reader.read(
        path, settings, split="train", label_needed=needed, listener=heard or Heard()
    ).rows


def chosen(*labels: str, **entry: Any) -> dict[str, Any]:
    result = {
        "type": "choices",
        "from_name": "mood",
        "to_name": "text",
        "value": {"choices": list(labels)},
    }
    return {"result": [result], **entry}


def marked(*spans: tuple[int, int, str], **entry: Any) -> dict[str, Any]:
    results = []
    for start, end, kind in spans:
        value = {"start": start, "end": end, "labels": [kind]}
        results.append({"type": "labels", "value": value})
    return {"result": results, **entry}


def task(
    text: str, *annotations: Any, predictions: Any = (), key: str = "annotations"
) -> dict[str, Any]:
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
    complete = (
        json.dumps(tasks)
        if name == "a.json"
        else "".join(json.dumps(entry) + "\n" for entry in tasks)
    )
    listener = Heard()
    rows = read(tmp_path / name, complete, heard=listener)
    assert labels_of(rows) == ["good", "bad"]
    assert list(rows.ids) == ["0", "3"]
    [warning] = listener.warned
    assert "2 of 4 rows (50.0 %) have no label" in warning
    assert "(skipped: 1, predictions alone: 1)" in warning
    unlabelled = read(tmp_path / name, complete, needed=False)
    assert len(unlabelled) == 4, "every task can be answered"


def test_predictions_and_skipped_tasks_are_no_tags(tmp_path):
    tasks = [
        task("Anna sleeps", SKIPPED, predictions=[marked(PERSON)]),
        task("Anna sings", predictions=[marked(PERSON)]),
        task("Anna reads", marked(PERSON), predictions=[marked((5, 10, "LOC"))]),
    ]
    listener = Heard()
    rows = read(tmp_path / "a.json", json.dumps(tasks), TAGS, heard=listener)
    assert labels_of(rows) == [["B-PER", "O"]]
    assert rows.where(0).endswith("row 3")
    assert "(skipped: 1, predictions alone: 1)" in listener.warned[0]


def test_predictions_are_learned_where_they_are_asked_for(tmp_path):
    tasks = [
        task("good", predictions=[chosen("good", model_version="v1")]),
        task("bad", chosen("bad")),
    ]
    for annotator in ("predictions", "v1"):
        rows = read(tmp_path / "a.json", json.dumps(tasks), annotator=annotator)
        assert labels_of(rows) == ["good"]
    tags = [task("Anna sleeps", predictions=[marked(PERSON)])]
    rows = read(tmp_path / "b.json", json.dumps(tags), TAGS, annotator="predictions")
    assert labels_of(rows) == [["B-PER", "O"]]
    with pytest.raises(DataError, match=r"1 of 1 row .* have no label") as caught:
        read(tmp_path / "b.json", json.dumps(tags), TAGS)
    assert (
        "`data.annotator=NAME` (data.annotator in a recipe); `predictions` takes"
        in caught.value.remedy
    )


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
    rows = read(
        tmp_path / "a.json", json.dumps([task("x", *annotations, key=key)]), annotator=annotator
    )
    assert labels_of(rows) == [label]


def test_annotators_who_disagree_are_refused_or_skipped(tmp_path):
    tasks = [task("fine", chosen("good")), task("x", chosen("good", **ANNA), chosen("bad", **BOB))]
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.json", json.dumps(tasks))
    assert (
        "a.json, row 2: its 2 annotations are not the same (anna@x.org: good; 8: bad)"
        in caught.value.message
    )
    assert (
        "`data.annotator=NAME` (data.annotator in a recipe), such as 'anna@x.org', '8'"
        in caught.value.remedy
    )
    skipped = SkippedRows()
    options = ReadOptions(DataSection(), "file", label_needed=True).skipping(skipped)
    assert len(TEXTS.read_whole(tmp_path / "a.json", options).rows) == 1
    assert len(skipped.errors) == 1


def test_spans_on_which_annotators_disagree(tmp_path):
    disputed = task("Anna sleeps", marked(PERSON, **ANNA), marked((0, 4, "LOC"), **BOB))
    with pytest.raises(DataError, match=r"row 1: its 2 annotations .*0 to 4 PER.*0 to 4 LOC"):
        read(tmp_path / "a.json", json.dumps([disputed]), TAGS)
    assert labels_of(read(tmp_path / "a.json", json.dumps([disputed]), TAGS, annotator="8")) == [
        ["B-LOC", "O"]
    ]


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
    short = json.dumps(
        [{"id": 1, "text": "Anna sleeps", "label": [value], "annotator": 1, "annotation_id": 1}]
    )
    with pytest.raises(DataError, match="2 labels: PER, ORG" if labels else "no label"):
        read(tmp_path / "b.json", short, TAGS)


def test_questions_of_one_task_are_columns_of_their_own(tmp_path):
    topic = {"type": "choices", "from_name": "topic", "value": {"choices": ["film"]}}
    of_region = {
        "type": "choices",
        "from_name": "sure",
        "value": {"start": 0, "end": 1, "choices": ["yes"]},
    }
    annotation = {"result": [*chosen("good")["result"], topic, of_region]}
    content = json.dumps([task("x", annotation), task("y", annotation)])
    assert labels_of(read(tmp_path / "a.json", content, label_column="topic")) == ["film", "film"]
    assert labels_of(read(tmp_path / "a.json", content, label_column="mood")) == ["good", "good"]
    rated = {"result": [{"type": "rating", "from_name": "r", "value": {"rating": 4}}]}
    assert labels_of(read(tmp_path / "b.json", json.dumps([task("x", rated)]))) == [4]


def rows_by_annotators(names: tuple[str, str], labels: tuple[Any, Any], **more: Any) -> str:
    key, annotator = names
    rows = [
        {key: 5, annotator: f"{who}", "text": "Anna sleeps", "label": label, **more}
        for who, label in zip("ab", labels, strict=True)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    "names", [("_task_hash", "_annotator_id"), ("_input_hash", "_session_id"), ("id", "annotator")]
)
@pytest.mark.parametrize("reader", [TEXTS, TAGS])
def test_rows_of_several_annotators_about_one_task_are_one_row(tmp_path, names, reader):
    entry, other = ("good", "bad") if reader is TEXTS else ([[0, 4, "PER"]], [[0, 4, "LOC"]])
    same = rows_by_annotators(names, (entry, entry), annotation_id=1)
    listener = Heard()
    assert len(read(tmp_path / "a.jsonl", same, reader, heard=listener)) == 1
    assert "same row by another annotator: 1" in listener.warned[0]
    disputed = rows_by_annotators(names, (entry, other), annotation_id=1)
    with pytest.raises(DataError, match=r"a\.jsonl:1: its 2 annotations are not the same \(a: "):
        read(tmp_path / "a.jsonl", disputed, reader)
    assert len(read(tmp_path / "a.jsonl", disputed, reader, annotator="b")) == 1


def test_users_of_an_old_doccano_export(tmp_path):
    def spans(*users: int) -> str:
        kinds = ("PER", "LOC")
        supplied = [
            {"label": kinds[user % 2], "start_offset": 0, "end_offset": 4, "user": user}
            for user in users
        ]
        return (
            json.dumps(
                {"text": "Anna sleeps", "annotations": supplied, "annotation_approver": None}
            )
            + "\n"
        )

    assert labels_of(read(tmp_path / "a.jsonl", spans(2, 4), TAGS)) == [["B-PER", "O"]]
    with pytest.raises(DataError, match=r"a\.jsonl:1: its 2 annotations are not the same"):
        read(tmp_path / "a.jsonl", spans(2, 3), TAGS)
    assert labels_of(read(tmp_path / "a.jsonl", spans(2, 3), TAGS, annotator="3")) == [
        ["B-LOC", "O"]
    ]


def test_rows_of_doccano_that_nobody_approved_are_counted(tmp_path):
    rows = [
        {"text": "a", "label": ["x"], "annotation_approver": who} for who in ("anna", None, None)
    ]
    listener = Heard()
    read(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows), heard=listener)
    assert "2 of 3 rows (66.7 %) are not approved (annotation_approver)" in listener.warned[0]
    listener = Heard()
    read(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows[1:]), heard=listener)
    assert not listener.warned


def test_several_choices_of_the_short_json_are_a_list(tmp_path):
    rows = [{"text": "a", "mood": {"choices": ["x", "y"]}, "annotation_id": 1}]
    assert labels_of(read(tmp_path / "a.json", json.dumps(rows), label_column="mood")) == [
        ["x", "y"]
    ]


OPTIONS = [{"id": "GOOD", "text": "good"}, {"id": "BAD", "text": "bad"}]


def choice_rows(*accepted: list[str], **more: Any) -> str:
    rows = [
        {"text": f"film {i}", "options": OPTIONS, "accept": names, "answer": "accept", **more}
        for i, names in enumerate(accepted)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("accepted", "more", "labels"),
    [
        ([["GOOD"], ["BAD"]], {}, ["GOOD", "BAD"]),
        ([["GOOD"], ["BAD", "GOOD"], []], {}, [["GOOD"], ["BAD", "GOOD"], []]),
        (
            [["GOOD"], ["BAD"], []],
            {"config": {"choice_style": "multiple"}},
            [["GOOD"], ["BAD"], []],
        ),
        ([["GOOD"], [], ["BAD"]], {"config": {"choice_style": "single"}}, ["GOOD", "BAD"]),
        ([[2], [1]], {}, ["2", "1"]),
    ],
)
def test_options_that_were_taken_in_prodigy_are_the_labels(tmp_path, accepted, more, labels):
    content = choice_rows(*accepted, **more)
    assert labels_of(read(tmp_path / "a.jsonl", content)) == labels
    assert labels_of(read(tmp_path / "a.jsonl", content, label_column="accept")) == labels


def test_options_of_rows_that_were_rejected_are_no_labels(tmp_path):
    accepted = choice_rows(["GOOD"], ["BAD"])
    with pytest.raises(DataError, match=r"a\.jsonl:3: 'answer' is 'reject'"):
        read(tmp_path / "a.jsonl", accepted + choice_rows(["BAD"], answer="reject"))
    listener = Heard()
    ignored = read(
        tmp_path / "a.jsonl", accepted + choice_rows([], answer="ignore"), heard=listener
    )
    assert labels_of(ignored) == ["GOOD", "BAD"]
    assert "no option taken: 1" in listener.warned[0]


def of_type(name: str, **value: Any) -> dict[str, Any]:
    region = {
        "type": name,
        "from_name": "q",
        "to_name": "text",
        "value": value,
    }
    return {"result": [region]}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pairwise", {"selected": "left"}, r"no label of a whole text, but pairwise \(2\)"),
        ("textarea", {"text": ["nice"]}, r"no label of a whole text, but textarea \(2\)"),
        (
            "labels",
            {"start": 0, "end": 1, "labels": ["PER"]},
            r"no label of a whole text, but labels \(2\)",
        ),
        (
            "choices",
            {"start": 0, "end": 1, "choices": ["x"]},
            r"no label of a whole text, but choices of regions \(2\)",
        ),
    ],
)
def test_a_part_of_the_data_is_no_label_where_the_annotations_are_something_else(
    tmp_path, name, value, message
):
    tasks = [
        {"data": {"text": f"film {i}", "text2": "x"}, "annotations": [of_type(name, **value)]}
        for i in range(2)
    ]
    with pytest.raises(UsageError, match=message) as caught:
        read(tmp_path / "a.json", json.dumps(tasks))
    assert "`data.label_column=NAME`" in caught.value.remedy
    assert len(read(tmp_path / "a.json", json.dumps(tasks), needed=False)) == 2
    assert labels_of(read(tmp_path / "a.json", json.dumps(tasks), label_column="text2")) == [
        "x",
        "x",
    ]


def test_a_taxonomy_is_named_by_its_path(tmp_path):
    tasks = [
        task("a", of_type("taxonomy", taxonomy=[["Art", "Film"]])),
        task("b", of_type("taxonomy", taxonomy=[["Art"]])),
    ]
    assert labels_of(read(tmp_path / "a.json", json.dumps(tasks))) == ["Art/Film", "Art"]


def test_one_text_with_several_choices_makes_all_labels_lists(tmp_path):
    tasks = [task("a", chosen("x")), task("b", chosen("x", "y")), task("c", {"result": []})]
    assert labels_of(read(tmp_path / "a.json", json.dumps(tasks))) == [["x"], ["x", "y"], []]
    short = [
        {"text": text, "mood": mood, "annotator": 1, "annotation_id": number}
        for number, (text, mood) in enumerate(
            [("a", "x"), ("b", {"choices": ["x", "y"]}), ("c", "y")]
        )
    ]
    expected = [["x"], ["x", "y"], ["y"]]
    assert labels_of(read(tmp_path / "b.json", json.dumps(short), label_column="mood")) == expected
    table = (
        'annotation_id,annotator,sentiment,text\n1,1,x,a\n2,1,"{""choices"": [""x"", '
        '""y""]}",b\n3,1,y,c\n'
    )
    assert labels_of(read(tmp_path / "c.csv", table)) == expected


def bioc_document(*annotations: tuple[int, int, str, str | None]) -> dict[str, Any]:
    entries = [
        {
            "infons": {"type": kind, **({} if annotator is None else {"annotator": annotator})},
            "locations": [{"offset": start, "length": end - start}],
        }
        for start, end, kind, annotator in annotations
    ]
    return {"id": "d", "passages": [{"offset": 0, "text": "Anna met Carl", "annotations": entries}]}


@pytest.mark.parametrize("form", ["collection", "collections", "documents", "lines", "PubTator3"])
def test_annotators_of_bioc_have_to_agree(tmp_path, form):
    def written(*annotations):
        document = bioc_document(*annotations)
        complete = {
            "collection": {"documents": [document]},
            "collections": [{"documents": [document]}],
            "documents": [document],
            "PubTator3": {"PubTator3": [document]},
            "lines": document,
        }[form]
        return json.dumps(complete) + "\n"

    path = tmp_path / ("a.jsonl" if form == "lines" else "a.json")
    alike = written((0, 4, "PER", "ann@x"), (0, 4, "PER", "bob@x"))
    assert labels_of(read(path, alike, TAGS)) == [["B-PER", "O", "O"]]
    disputed = written((0, 4, "PER", "ann@x"), (9, 13, "PER", "bob@x"))
    with pytest.raises(DataError, match="its 2 annotations are not the same") as caught:
        read(path, disputed, TAGS)
    assert "'ann@x', 'bob@x'" in caught.value.remedy
    assert labels_of(read(path, disputed, TAGS, annotator="bob@x")) == [["O", "O", "B-PER"]]
    alone = written((0, 4, "PER", None), (9, 13, "ORG", None))
    assert labels_of(read(path, alone, TAGS)) == [["B-PER", "O", "B-ORG"]]


def test_spans_that_annotators_disagree_on_are_shown_as_people_read_them(tmp_path):
    spans = [
        {"label": kind, "start_offset": 0, "end_offset": 4, "user": user}
        for user, kind in ((1, "PER"), (2, "ORG"))
    ]
    with pytest.raises(DataError, match=r"not the same \(1: 0 to 4 PER; 2: 0 to 4 ORG\)"):
        read(tmp_path / "a.jsonl", json.dumps({"text": "Anna met", "annotations": spans}), TAGS)
    regions = [{"start": 0, "end": 4, "labels": ["PER"]}]
    rows = [
        {"id": 1, "text": "Anna met", "label": label, "annotator": who, "annotation_id": who}
        for who, label in ((1, regions), (2, []))
    ]
    with pytest.raises(DataError, match=r"not the same \(1: 0 to 4 PER; 2: \[\]\)"):
        read(tmp_path / "b.json", json.dumps(rows), TAGS)
