"""Files of multiple choice.

Every layout gives the same rows, and what can't be right is refused with its line.
"""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.catalog.datasets import builtin_datasets
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.read_options import SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.recipe_data import load_data
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import Listener
from tests.heard import Heard

READER = READERS["multiple-choice"]
ROWS = [
    {"context": "he opens the jar", "choices": ["he eats a pickle", "he drives off"], "label": 0},
    {"context": "", "choices": ["one", "two", "three"], "label": 2},
    {"context": "it rains", "choices": ["she laughs", "she takes an umbrella"], "label": 1},
]
SWAG_HEADER = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)
SWAG_ROW = (
    '0,v1,7,"He opens a jar. He","He opens a jar.",He,gold,eats,sleeps,"drives, fast",sings,2'
)


def read(
    path: Path, *, label_needed: bool = True, listener: Listener | None = None, **settings: object
) -> Rows:
    section = DataSection(**settings)
    return READER.read(
        path, section, split="train", label_needed=label_needed, listener=listener or Heard()
    ).rows


def jsonl(folder: Path, *rows: object, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def as_dicts(rows: Rows) -> list[dict]:
    return [
        {
            "context": row["context"],
            "choices": row["choices"],
            "label": row["label"],
        }
        for row in rows
    ]


def _csv_of_columns(path: Path) -> None:
    lines = ["context,choice1,choice2,choice3,label"]
    lines += [
        ",".join([r["context"], *r["choices"], *[""] * (3 - len(r["choices"])), str(r["label"])])
        for r in ROWS
    ]
    path.write_text("\n".join(lines) + "\n")


def _tsv_of_lists(path: Path) -> None:
    lines = ["prompt\toptions\tanswer"]
    lines += ["\t".join([r["context"], json.dumps(r["choices"]), "ABC"[r["label"]]]) for r in ROWS]
    path.write_text("\n".join(lines) + "\n")


def _jsonl_of_lists(path: Path) -> None:
    jsonl(path.parent, *ROWS, name=path.name)


def _jsonl_of_columns(path: Path) -> None:
    rows = [
        {
            "question": r["context"],
            **{f"ending{i}": c for i, c in enumerate(r["choices"])},
            "gold": r["label"],
        }
        for r in ROWS
    ]
    jsonl(path.parent, *rows, name=path.name)


def _parquet_of_lists(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


def _parquet_of_columns(path: Path) -> None:
    rows = [
        {
            "premise": r["context"],
            **dict(zip("ABC", [*r["choices"], None], strict=False)),
            "label": float(r["label"]),
        }
        for r in ROWS
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (_csv_of_columns, "a.csv"),
        (_tsv_of_lists, "a.tsv"),
        (_jsonl_of_lists, "a.jsonl"),
        (_jsonl_of_columns, "b.jsonl"),
        (_parquet_of_lists, "a.parquet"),
        (_parquet_of_columns, "b.parquet"),
    ],
)
def test_every_layout_gives_the_same_rows(tmp_path, write, name):
    write(tmp_path / name)
    rows = read(tmp_path / name)
    assert as_dicts(rows) == ROWS
    assert list(rows.ids) == ["0", "1", "2"]
    streamed = list(READER.stream(tmp_path / name, DataSection(), chunk_rows=2))
    assert len(streamed) == 2, "the premise: the second portion has other keys than the first"
    assert [choices for part in streamed for choices in part.columns["choices"]] == [
        row["choices"] for row in ROWS
    ]
    assert [i for part in streamed for i in part.ids] == ["0", "1", "2"]
    assert not any(part.has("label") for part in streamed)


def test_swag_reads_its_second_sentence_before_every_ending(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text(f"{SWAG_HEADER}\n{SWAG_ROW}\n")
    listener = Heard()
    rows = read(path, listener=listener)
    assert rows.columns["context"] == ["He opens a jar."]
    assert rows.columns["choices"] == [["He eats", "He sleeps", "He drives, fast", "He sings"]]
    assert rows.columns["label"] == [2]
    assert rows.columns["video-id"] == ["v1"], "other columns stay, for evaluation.slice_columns"
    (message,) = [line for line in listener.said if "context from 'sent1'" in line]
    assert "beginning from 'sent2'" in message
    assert "choices from 'ending0, ending1, ending2, ending3'" in message


def test_swag_of_the_catalog_from_its_files_and_without_test_labels(tmp_path):
    (tmp_path / "SWAG").mkdir()
    for name in ("train.csv", "val.csv"):
        (tmp_path / "SWAG" / name).write_text(f"{SWAG_HEADER}\n{SWAG_ROW}\n")
    header = SWAG_HEADER.removesuffix(",label")
    row = SWAG_ROW.removesuffix(",2")
    (tmp_path / "SWAG" / "test.csv").write_text(f"{header}\n{row}\n")
    recipe = Recipe(task="multiple-choice", data=DataSection(name="swag", data_dir=str(tmp_path)))
    data = load_data(recipe, splits=["train", "validation", "test"])
    assert data.splits["train"].columns["choices"] == data.splits["test"].columns["choices"]
    assert data.splits["validation"].columns["label"] == [2]
    assert not data.splits["test"].has("label")
    assert data.labels is None


def test_the_hub_gives_the_rows_of_the_files(tmp_path):
    """The Parquet files of both sets, in the columns and types that the hub has."""
    import datasets

    (tmp_path / "SWAG").mkdir()
    (tmp_path / "SWAG" / "train.csv").write_text(f"{SWAG_HEADER}\n{SWAG_ROW}\n")
    swag = Recipe(task="multiple-choice", data=DataSection(name="swag", data_dir=str(tmp_path)))
    from_files = load_data(swag, splits=["train"]).splits["train"]
    hub_row = {
        "sent1": "He opens a jar.",
        "sent2": "He",
        "ending0": "eats",
        "ending1": "sleeps",
        "ending2": "drives, fast",
        "ending3": "sings",
        "label": 2,
    }
    features = datasets.Features(
        {name: datasets.Value("string") for name in hub_row}
        | {"label": datasets.ClassLabel(names=list("0123"))}
    )
    place = tmp_path / "hub" / builtin_datasets()["swag"].hub.file_of("train")
    place.parent.mkdir(parents=True)
    datasets.Dataset.from_list([hub_row], features=features).to_parquet(place)
    hub = Recipe(
        task="multiple-choice", data=DataSection(name="swag", data_dir=str(tmp_path / "hub"))
    )
    assert as_dicts(load_data(hub, splits=["train"]).splits["train"]) == as_dicts(from_files)

    place = tmp_path / "hub" / builtin_datasets()["codah"].hub.file_of("train")
    place.parent.mkdir(parents=True)
    row = {
        "question_propmt": "It",
        "candidate_answers": ["a", "b", "c", "d"],
        "correct_answer_idx": 3,
    }
    datasets.Dataset.from_list([row]).to_parquet(place)
    codah = Recipe(
        task="multiple-choice", data=DataSection(name="codah", data_dir=str(tmp_path / "hub"))
    )
    actual = load_data(codah, splits=["train"]).splits["train"]
    assert as_dicts(actual) == [{"context": "It", "choices": ["a", "b", "c", "d"], "label": 3}]


def test_offline_the_files_wanted_are_named():
    with pytest.raises(UnavailableError, match="offline") as caught:
        load_data(Recipe(task="multiple-choice", data=DataSection(name="swag")))
    assert "SWAG/train.csv, SWAG/val.csv, SWAG/test.csv" in caught.value.remedy


def test_real_codah_by_name_and_as_a_file_of_ones_own(shared_data):
    recipe = Recipe(
        task="multiple-choice", data=DataSection(name="codah", data_dir=str(shared_data))
    )
    data = load_data(recipe, splits=["train", "validation", "test"])
    assert [len(rows) for rows in data.splits.values()] == [1665, 556, 555]
    train = data.splits["train"]
    assert train.columns["context"][0] == "The chicken cannot fly. It"
    assert train.columns["choices"][0][1] == "spreads its wings and flies."
    assert train.columns["label"][:3] == [2, 1, 1]
    assert any('"' in context for context in train.columns["context"]), (
        "quotes are plain characters there"
    )
    listener = Heard()
    guessed = read(shared_data / "codah" / "train.tsv", listener=listener)
    assert as_dicts(guessed) == as_dicts(train)
    assert any("context from 'column2'" in line for line in listener.said)


def test_columns_named_by_the_person(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("frage,a1,a2,rest,richtig\nwho,me,you,x,1\nwhat,this,that,y,0\n")
    with pytest.raises(UsageError, match="columns hold the choices"):
        read(path)
    fields = {"text_column": "frage", "choice_columns": ["a2", "a1"], "label_column": "richtig"}
    rows = read(path, **fields)
    assert rows.columns["choices"] == [["you", "me"], ["that", "this"]]
    assert rows.columns["label"] == [1, 0]
    again = READER.read(path, DataSection(**fields), split="x", label_needed=True)
    assert again.settings.choice_columns == ["a2", "a1"]
    assert again.columns == {"context": "frage", "choices": "a2, a1", "label": "richtig"}


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"text_column": "contxt"}, DataError, "'contxt': .*context"),
        ({"choice_columns": ["a", "c"]}, DataError, "no column 'c'"),
        ({"text_column": "context", "choice_columns": ["a", "a"]}, UsageError, "'a' .*two"),
        ({"choice_columns": ["a", "b"], "label_column": "lable"}, DataError, "no column 'lable'"),
        ({"choice_columns": ["a", "b"], "id_column": "nr"}, DataError, "no column 'nr'"),
    ],
)
def test_named_columns_that_are_not_there(tmp_path, settings, error, message):
    path = tmp_path / "a.csv"
    path.write_text("context,a,b,label\nwho,me,you,1\n")
    with pytest.raises(error, match=message):
        read(path, **settings)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("text,choices,label", "'me' .*list of choices"),
        (
            "context,question,choice1,choice2,ending1,ending2,label",
            "columns could hold the choices",
        ),
        ("premise,stem,choice1,choice2,label", "context: premise, stem"),
        ("zzz,choice1,choice2,label", "no column .*the context"),
        ("context,choice1,choice2,zzz", "no column .*the label"),
        ("context,choice1,choice2,answer,target", "label: answer, target"),
    ],
)
def test_what_cannot_be_guessed_is_asked_for(tmp_path, header, message):
    cells = {"text": "who", "choices": "me", "label": "0"}
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{','.join(cells.get(name, 'x') for name in header.split(','))}\n")
    settings = {"choice_columns": ["choices"]} if "choices" in header else {}
    with pytest.raises((UsageError, DataError), match=message) as caught:
        read(path, **settings)
    assert (
        "`data.choice_columns=" in caught.value.remedy
        or "`data.label_column=" in caught.value.remedy
    )


def test_a_file_without_header_that_is_not_codahs_says_how_to_name_columns(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("who\tme\tyou\t1\nwhat\tthis\tthat\t0\nwho\tme\tyou\t1\n")
    with pytest.raises(UsageError, match="no header") as caught:
        read(path)
    assert "`data.text_column=column1` `data.label_column=column4`" in caught.value.remedy
    fields = {
        "text_column": "column1",
        "choice_columns": ["column2", "column3"],
        "label_column": "column4",
    }
    assert read(path, **fields).columns["label"] == [1, 0, 1]


def test_labels_that_fit_in_two_ways_are_refused(tmp_path):
    """A larger file of the same exercises is read as texts.

    Its answers would mean something else.
    """
    rows = [("1", ["1", "0", "2"]), ("0", ["2", "1", "0"]), ("2", ["0", "2", "1"])]
    path = jsonl(
        tmp_path, *({"context": "c", "choices": choices, "label": label} for label, choices in rows)
    )
    with pytest.raises(DataError, match="the number of one choice and as the text of another"):
        read(path)
    more = jsonl(
        tmp_path,
        *({"context": "c", "choices": c, "label": n} for n, c in [*rows, ("9", ["9", "3", "1"])]),
    )
    assert read(more).columns["label"] == [0, 2, 1, 0]


@pytest.mark.parametrize(
    ("rows", "numbers"),
    [
        ([("0", ["x", "y"]), ("1", ["x", "y"])], [0, 1]),
        ([("B", ["x", "y"]), ("a", ["x", "y"])], [1, 0]),
        ([("y", ["x", "y"]), ("x", ["x", "y"])], [1, 0]),
        ([(" it flies ", ["it flies", "it sits"])], [0]),
        ([(1.0, ["x", "y"]), (0, ["x", "y"])], [1, 0]),
        (
            [("4", ["2", "4", "8"]), ("8", ["2", "4", "8"])],
            [1, 2],
        ),  # the texts, since no choice has the number 4 or 8
        ([(8, [2, 4, 8]), (2, [2, 4, 8])], [2, 0]),
        (
            [(0, [2, 4, 8]), (2, [2, 4, 8])],
            [0, 2],
        ),  # the numbers: they fit both rows, the texts only one
        ([("b", ["c", "b", "a"]), ("c", ["c", "b", "a"])], [1, 0]),  # the texts before the letters
    ],
)
def test_labels_are_numbers_texts_or_letters_by_what_fits_most_rows(tmp_path, rows, numbers):
    path = jsonl(
        tmp_path, *({"context": "c", "choices": choices, "label": label} for label, choices in rows)
    )
    assert read(path).columns["label"] == numbers


@pytest.mark.parametrize(
    ("label", "choices", "message", "remedy"),
    [
        (2, ["x", "y"], r"label 2 .*2 choices.*0 to 1", "take 1 off"),
        ("-1", ["x", "y"], "label '-1' .*2 choices", "counted from 0"),
        ("D", ["xx", "yy", "zz"], "label 'D' is a letter, and 3 labels are numbers", "letter"),
        ("maybe", ["x", "y"], "label 'maybe' .*2 choices: 'x', 'y'", "its text"),
        ("same", ["same", "same"], "label 'same' .*several", "counted from 0"),
        (0.5, ["x", "y"], r"label 0\.5 .*2 choices", "counted from 0"),
        (None, ["x", "y"], "label is empty", "fill it in"),
        (True, ["x", "y"], "label True .*2 choices", "counted from 0"),
    ],
)
def test_a_label_that_points_outside_the_choices_is_refused_with_its_line(
    tmp_path, label, choices, message, remedy
):
    good = {"context": "c", "choices": ["x", "y"], "label": 1}
    path = jsonl(tmp_path, good, {"context": "c", "choices": choices, "label": label}, good, good)
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.message.startswith(f"{path}:2: ")
    assert re.search(message, caught.value.message)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"context": "c", "choices": ["x"], "label": 0}, "1 choice in choices"),
        ({"context": "c", "choices": [], "label": 0}, "0 choices in choices"),
        (
            {"context": "c", "choices": ["x", None], "label": 0},
            "column 'choices' has None as choice 1",
        ),
        ({"context": "c", "choices": "x or y", "label": 0}, "'x or y'"),
        ({"context": ["c"], "choices": ["x", "y"], "label": 0}, "holds list"),
    ],
)
def test_a_row_without_choices_is_refused_with_its_line(tmp_path, row, message):
    path = jsonl(tmp_path, ROWS[0], row)
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.message.startswith(f"{path}:2: ")
    assert message in caught.value.message


def test_a_blank_cell_at_the_end_is_no_choice_and_a_label_may_not_point_there(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("context,choice1,choice2,choice3,label\nwho,me,you,,1\nwhat,this,,that,2\n")
    assert read(path).columns["choices"] == [["me", "you"], ["this", "", "that"]]
    assert read(path).columns["label"] == [0, 1]  # no label is 0: they are the columns' numbers
    path.write_text("context,choice1,choice2,choice3,label\nwhat,this,,that,0\nwho,me,you,,2\n")
    with pytest.raises(DataError, match=r"a.csv:3: .*'2' .*2 choices"):
        read(path)


def test_where_no_labels_are_needed_missing_ones_are_left_out(tmp_path):
    rows = [{**row, "label": -1} for row in ROWS]
    assert not read(jsonl(tmp_path, *rows), label_needed=False).has("label")
    assert not read(
        jsonl(tmp_path, *({**row, "label": None} for row in ROWS)), label_needed=False
    ).has("label")
    with pytest.raises(DataError, match="label -1"):
        read(jsonl(tmp_path, *rows))


def test_a_prediction_file_is_read_whatever_columns_the_run_was_trained_with(tmp_path):
    line = {
        "id": "7",
        "context": "c",
        "choices": ["x", "y"],
        "gold": 1,
        "prediction": 0,
        "probabilities": [0.6, 0.4],
    }
    path = jsonl(tmp_path, line)
    rows = read(
        path, text_column="sent1", pair_column="sent2", choice_columns=["ending0", "ending1"]
    )
    assert as_dicts(rows) == [{"context": "c", "choices": ["x", "y"], "label": 1}]


def test_lines_have_no_choices(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    with pytest.raises(UsageError, match=r"lines of text .*choices"):
        list(READER.stream(path, DataSection()))


def test_labels_that_seem_to_count_from_1_are_refused_where_bad_rows_are_skipped(tmp_path):
    rows = [{"context": "c", "choices": ["x", "y"], "label": 1 + i % 2} for i in range(4)]
    skipped = SkippedRows()
    options = {"split": "train", "label_needed": True, "skipped": skipped}
    with pytest.raises(DataError, match=r"rows\.jsonl:2: the label 2 points outside its 2 choices"):
        READER.read(jsonl(tmp_path, *rows), DataSection(), **options)
    read_rows = READER.read(
        jsonl(tmp_path, {**rows[0], "label": 0}, *rows), DataSection(), **options
    ).rows
    assert read_rows.columns["label"] == [0, 1, 1]
    assert len(skipped.errors) == 2
