"""Which column is which.

The usual names, ambiguity, columns that aren't there; `load_data` on own files.
"""

import json
from pathlib import Path

import pytest

from bertctl.config.recipe_sections import DataSection, EvaluationSection, TrainingSection
from bertctl.config.schema import Recipe
from bertctl.data.columns import say_guesses
from bertctl.data.recipe_data import LoadedData, load_data
from bertctl.data.table import Table
from bertctl.data.text_columns import choose_columns, rows_from
from bertctl.data.text_rows import TEXT_READER
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import SILENT, Listener
from tests.heard import Heard


def table(*names: str) -> Table:
    return Table(
        {name: [f"{name} {i}" for i in range(4)] for name in names}, "file.csv", [2, 3, 4, 5]
    )


def choose(
    *names: str, label_needed: bool = True, listener: Listener = SILENT, **data: object
) -> dict[str, str]:
    section = DataSection(**data)
    columns = choose_columns(table(*names), section, label_needed=label_needed)
    say_guesses(table(*names), columns, section, listener)
    return columns.names()


@pytest.mark.parametrize(
    ("names", "actual"),
    [
        (("text", "label"), ("text", None, "label")),
        (("Review", "Sentiment"), ("Review", None, "Sentiment")),
        (("idx", "sentence", "label"), ("sentence", None, "label")),
        (("index", "sentence1", "sentence2", "score"), ("sentence1", "sentence2", "score")),
        (
            ("id", "qid1", "question1", "question2", "is_duplicate"),
            ("question1", "question2", "is_duplicate"),
        ),
        (
            ("premise", "hypothesis", "label1", "gold_label"),
            ("premise", "hypothesis", "gold_label"),
        ),
        (("question", "sentence", "label"), ("question", "sentence", "label")),
        (("text", "content", "label", "score"), ("text", None, "label")),  # the exact names win
        (("utterance", "label"), ("utterance", None, "label")),  # the only column left
    ],
)
def test_the_usual_names(names, actual):
    listener = Heard()
    expected = dict(zip(("text", "pair", "label"), actual, strict=True))
    assert choose(*names, listener=listener) == {
        role: name for role, name in expected.items() if name
    }
    assert "guessed" in listener.said[0]
    assert f"text from '{actual[0]}'" in listener.said[0]


def test_named_columns_are_not_guessed():
    listener = Heard()
    actual = choose("a", "b", "text", text_column="a", label_column="b", listener=listener)
    assert actual == {"text": "a", "label": "b"}
    assert listener.said == []


def test_a_pair_is_guessed_only_where_the_text_was():
    assert choose("sentence1", "sentence2", "label", text_column="sentence1") == {
        "text": "sentence1",
        "label": "label",
    }
    assert choose("sentence1", "sentence2", "label", pair_column="sentence2")["text"] == "sentence1"


@pytest.mark.parametrize(
    ("names", "message", "option"),
    [
        (("review", "comment", "label"), "the text: review, comment", "`data.text_column="),
        (("a", "b", "label"), "the text: a, b", "`data.text_column="),
        (
            ("sentence1", "sentence2", "premise", "hypothesis", "label"),
            "the text: sentence1, ",
            "`data.text_column=",
        ),
        (("text", "score", "rating"), "the label: score, rating", "`data.label_column="),
        (("text", "colour"), "no column .*the label", "`data.label_column="),
    ],
)
def test_what_can_not_be_guessed_is_asked_for(names, message, option):
    with pytest.raises(UsageError, match=message) as caught:
        choose(*names)
    assert option in caught.value.remedy
    assert f"Columns there: {', '.join(names)}." in caught.value.remedy


def test_columns_that_are_not_there():
    with pytest.raises(DataError, match=r"file.csv .*column 'reviews': .*review\?") as caught:
        choose("review", "label", text_column="reviews")
    assert "Columns there: review, label." in caught.value.remedy
    with pytest.raises(DataError, match="no column 'y'"):
        choose("review", "label", label_column="y")
    assert choose("review", "label", label_column="y", label_needed=False) == {"text": "review"}
    with pytest.raises(UsageError, match=r"'review' .*two"):
        choose("review", "label", text_column="review", label_column="review")


def test_other_columns_stay_and_never_clash():
    section = DataSection(text_column="review", label_column="stars")
    table_rows = table("review", "stars", "text", "genre")
    rows = rows_from(
        table_rows, choose_columns(table_rows, section, label_needed=True), split="train"
    )
    assert list(rows.columns) == ["text", "label", "file_text", "genre"]
    assert rows.columns["text"][0] == "review 0"
    assert rows.columns["file_text"][0] == "text 0"


def test_ids_come_from_their_column_and_are_unique():
    section = DataSection(id_column="key")
    rows = table("text", "label", "key")
    choice = choose_columns(rows, section, label_needed=True)
    assert rows_from(rows, choice, split="x").ids == ["key 0", "key 1", "key 2", "key 3"]
    twice = Table({**rows.columns, "key": [1, 2, 1, 3]}, "file.csv", [2, 3, 4, 5])
    with pytest.raises(DataError, match=r"file.csv:4: .*id '1' .*file.csv:2"):
        rows_from(twice, choice, split="x")
    blank = Table({**rows.columns, "key": [1, None, 2, 3]}, "file.csv", [2, 3, 4, 5])
    with pytest.raises(DataError, match=r"file.csv:3: .*id .*blank"):
        rows_from(blank, choice, split="x")


# load_data on a person's own files


def write(
    path: Path, size: int, *, text: str = "text", label: str = "label", start: int = 0
) -> str:
    lines = [
        f"{text},{label},genre",
        *(f"text {i},{'abc'[i % 3]},g{i}" for i in range(start, start + size)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def load(
    *,
    splits: list[str] | None = None,
    listener: Listener = SILENT,
    seed: int = 42,
    time_limit: str | None = None,
    **data: object,
) -> LoadedData:
    training = TrainingSection(seed=seed, time_limit=time_limit)
    recipe = Recipe(data=DataSection(**data), training=training)
    return load_data(recipe, splits=splits, listener=listener)


def test_files_of_ones_own(tmp_path):
    train = write(tmp_path / "a.csv", 9)
    validation = write(tmp_path / "b.csv", 3, start=9)
    test = write(tmp_path / "c.csv", 6, start=12)
    data = load(train_file=train, validation_file=validation, test_file=test)
    assert {split: len(rows) for split, rows in data.splits.items()} == {
        "train": 9,
        "validation": 3,
    }
    assert data.validation_splits == ("validation",)
    assert data.labels is None
    assert data.dataset is None
    assert data.columns == {"text": "text", "label": "label"}
    values = load(train_file=train, validation_file=validation, test_file=test, splits=["test"])
    assert list(values.splits) == ["test"]
    assert len(values.splits["test"]) == 6


def test_the_choice_of_the_first_file_holds_for_the_next(tmp_path):
    train = write(tmp_path / "a.csv", 9, text="review", label="sentiment")
    other = write(tmp_path / "b.csv", 3, text="comment", label="sentiment")
    with pytest.raises(DataError, match=r"b.csv .*column 'review'"):
        load(train_file=train, validation_file=other)


def test_two_files_without_header(tmp_path):
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text(
            "".join(f"words {i}\t{i % 2}\n" for i in range(8)), encoding="utf-8"
        )
    data = load(train_file=str(tmp_path / "a.tsv"), validation_file=str(tmp_path / "b.tsv"))
    assert [len(rows) for rows in data.splits.values()] == [8, 8]
    assert data.columns == {"text": "column1", "label": "column2"}


def test_a_hold_out_is_stratified_seeded_and_said(tmp_path):
    listener = Heard()
    train = write(tmp_path / "a.csv", 60)
    data = load(train_file=train, validation_fraction=0.2, listener=listener)
    held = data.splits["validation"]
    assert sorted(held.columns["label"]) == ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    assert sorted([*data.splits["train"].ids, *held.ids], key=int) == [str(i) for i in range(60)]
    assert list(held.ids) == sorted(held.ids, key=int)
    assert held.where(0) == f"{train}:{int(held.ids[0]) + 2}"
    first = next(text for text in listener.said if "held out" in text)
    assert "12 of the 60" in first
    assert "seed 42" in first
    assert "`data.validation_file=" in first
    again = load(train_file=train, validation_fraction=0.2)
    assert list(again.splits["validation"].ids) == list(held.ids)
    other = load(train_file=train, validation_fraction=0.2, split_seed=1)
    assert list(other.splits["validation"].ids) != list(held.ids)
    trained_from_another_seed = load(train_file=train, validation_fraction=0.2, seed=1)
    assert list(trained_from_another_seed.splits["validation"].ids) == list(held.ids)
    alone = load(train_file=train, validation_fraction=0.2, splits=["validation"])
    assert list(alone.splits) == ["validation"]
    assert alone.hashes["validation"] == data.hashes["validation"]


@pytest.mark.parametrize(
    ("time_limit", "fraction", "n_held_out"),
    [
        (None, 0.5, 600),
        ("1s", 0.5, 200),
        ("30s", 0.5, 300),
        ("2m", 0.5, 600),
        ("1s", 0.1, 120),
    ],
)
def test_a_time_limit_holds_out_no_more_rows_than_it_has_time_for(
    tmp_path, time_limit, fraction, n_held_out
):
    listener = Heard()
    train = write(tmp_path / "a.csv", 1200)

    data = load(
        train_file=train, validation_fraction=fraction, time_limit=time_limit, listener=listener
    )

    held_out = data.splits["validation"]
    assert len(held_out) == n_held_out
    sentence = next(text for text in listener.said if "held out" in text)
    is_capped = n_held_out < fraction * 1200
    assert ("so that the time limit leaves time to train" in sentence) == is_capped


def test_limits_draw_rows_of_each_split_in_file_order(tmp_path):
    train = write(tmp_path / "a.csv", 60)
    validation = write(tmp_path / "b.csv", 30)
    listener = Heard()
    data = load(
        train_file=train,
        validation_file=validation,
        max_train_rows=20,
        max_eval_rows=5,
        listener=listener,
    )
    ids = [int(i) for i in data.splits["train"].ids]
    assert len(ids) == 20
    assert ids == sorted(ids) != list(range(20))
    ids = [int(i) for i in data.splits["validation"].ids]
    assert len(ids) == 5
    assert ids == sorted(ids) != list(range(5))
    assert [
        text for text in listener.said if text.startswith("train: 20 of 60 ") and "seed 42" in text
    ]


def test_hashes_are_of_the_content(tmp_path):
    entry = write(tmp_path / "a.csv", 9)
    two = write(tmp_path / "other.csv", 9)
    objects = [{"genre": 1, "text": f"text {i}", "label": "abc"[i % 3]} for i in range(9)]
    lines = tmp_path / "c.jsonl"
    lines.write_text("\n".join(map(json.dumps, objects)), encoding="utf-8")
    hashes = {
        load(train_file=f, validation_file=f).hashes["train"] for f in (entry, two, str(lines))
    }
    assert len(hashes) == 1
    other = write(tmp_path / "d.csv", 9, start=1)
    assert load(train_file=other, validation_file=other).hashes["train"] not in hashes


def test_what_load_data_refuses(tmp_path):
    train = write(tmp_path / "a.csv", 9)
    with pytest.raises(UsageError, match="no data"):
        load()
    with pytest.raises(UsageError, match="no test rows"):
        load(train_file=train, splits=["test"])
    with pytest.raises(UsageError, match="no train rows"):
        load(validation_file=train)
    with pytest.raises(UsageError, match=r"split 'tset': .*test\?"):
        load(train_file=train, splits=["tset"])
    with pytest.raises(UnavailableError, match="does not exist"):
        load(train_file=str(tmp_path / "none.csv"))
    recipe = Recipe(
        data=DataSection(train_file=train), evaluation=EvaluationSection(slice_columns=["gnre"])
    )
    with pytest.raises(DataError, match=r"column 'gnre': .*genre\?"):
        load_data(recipe)


def test_groups_are_those_of_the_files_own_column_whatever_else_has_its_name(tmp_path):
    lines = [f"question {i},g{i // 4},{i % 2}" for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["question,text,label", *lines]) + "\n")
    fields = {"text_column": "question", "group_column": "text", "validation_fraction": 0.3}
    data = load(train_file=str(tmp_path / "a.csv"), **fields)
    left = {text.split(" ")[1] for text in data.splits["train"].columns["text"]}
    held = {text.split(" ")[1] for text in data.splits["validation"].columns["text"]}
    assert held
    assert not {int(entry) // 4 for entry in left} & {int(entry) // 4 for entry in held}


def test_who_belongs_together_is_part_of_the_hash(tmp_path):
    """It decides every interval."""
    results = []
    for size in (2, 4):
        lines = [f"text {i},{i % 2},{i // size}" for i in range(40)]
        (tmp_path / "a.csv").write_text("\n".join(["text,label,g", *lines]) + "\n")
        files = {"train_file": str(tmp_path / "a.csv"), "validation_file": str(tmp_path / "a.csv")}
        results += [load(**files).hashes, load(**files, group_column="g").hashes]
    plain, grouped, plain_again, regrouped = results
    assert plain == plain_again
    assert len({hashes["validation"] for hashes in (plain, grouped, regrouped)}) == 3


def test_nothing_beside_names_in_a_list_is_refused(tmp_path):
    labels = [["x", None], ["y"]] * 9
    lines = (
        json.dumps({"text": f"text {i}", "label": label}) + "\n" for i, label in enumerate(labels)
    )
    (tmp_path / "a.jsonl").write_text("".join(lines))
    recipe = Recipe(data=DataSection(train_file=str(tmp_path / "a.jsonl")))
    with pytest.raises(DataError, match="a list with 1 null among its names"):
        load_data(recipe)


def test_no_number_is_no_text_and_no_label(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"text": NaN, "label": "x"}\n{"text": "a", "label": "y"}\n' * 9
    )
    recipe = Recipe(data=DataSection(train_file=str(tmp_path / "a.jsonl")))
    assert {
        text for rows in load_data(recipe).splits.values() for text in rows.columns["text"]
    } == {"", "a"}


@pytest.mark.parametrize(
    "name", ["prediction", "gold", "loss", "tokens", "cluster", "match", "ranks"]
)
def test_a_slice_never_takes_the_place_of_what_the_model_answered(tmp_path, name):
    with pytest.raises(
        ValueError, match=f"prediction files have their own '{name}'; rename the column"
    ):
        Recipe(
            data=DataSection(train_file=write(tmp_path / "a.csv", 9)),
            evaluation=EvaluationSection(slice_columns=["genre", name]),
        )


def test_a_test_file_needs_no_labels(tmp_path):
    train = write(tmp_path / "a.csv", 9)
    (tmp_path / "t.csv").write_text("text\nsome words\n", encoding="utf-8")
    data = load(train_file=train, test_file=str(tmp_path / "t.csv"), splits=["train", "test"])
    assert not data.splits["test"].has("label")


@pytest.mark.parametrize(
    "more",
    [{"id": 7}, {"meta": "x"}, {"source": "web", "lang": "en"}, {"uid": "a"}, {"stars_by": 3.5}],
)
def test_rows_that_are_only_answered_get_no_label_by_what_a_column_holds(tmp_path, more):
    path = tmp_path / "a.jsonl"
    rows = [{**more, "text": f"a fine film {i}"} for i in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    listener = Heard()
    [actual] = TEXT_READER.stream(path, DataSection(), listener=listener)
    assert not actual.has("label")
    assert not any("label from" in message for message in listener.said)
