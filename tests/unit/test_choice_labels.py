"""Labels of multiple choice.

Where their numbers begin, what stands beside them, and the forms of published sets.
"""

import csv
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.config.recipe_sections import DataSection, EvaluationSection
from bertctl.config.schema import Recipe
from bertctl.data.read_options import SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.recipe_data import load_data
from bertctl.errors import DataError, UsageError

READER = READERS["multiple-choice"]
OPTIONS = ("w", "x", "y", "z")


def _read(path, **settings):
    return READER.read(path, DataSection(**settings), split="train", label_needed=True).rows


def _labels(path, **settings):
    return list(_read(path, **settings).columns["label"])


def _table(folder, labels, columns, suffix=".csv", name="a"):
    """A file with a column for each choice."""
    rows = [
        {"question": f"q{i}", **dict(zip(columns, OPTIONS, strict=False)), "answer": label}
        for i, label in enumerate(labels)
    ]
    path = folder / f"{name}{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif suffix.startswith(".jsonl"):
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(lines) if suffix.endswith(".gz") else lines)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


def _lists(folder, labels, name="a.jsonl", **more):
    path = folder / name
    rows = [
        {"context": f"c{i}", "choices": list(OPTIONS), "label": label, **more}
        for i, label in enumerate(labels)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


FROM_1 = ("option1", "option2", "option3", "option4")
FROM_0 = ("ending0", "ending1", "ending2", "ending3")
LETTERS = ("A", "B", "C", "D")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".jsonl.gz", ".parquet"])
@pytest.mark.parametrize(("labels", "numbers"), [([1, 2, 3], [0, 1, 2]), ([4, 1, 2], [3, 0, 1])])
def test_label_k_is_the_column_with_the_number_k(tmp_path, suffix, labels, numbers):
    assert _labels(_table(tmp_path, labels, FROM_1, suffix)) == numbers


@pytest.mark.parametrize(
    ("labels", "columns", "numbers"),
    [
        (
            [0, 1, 3],
            FROM_1,
            [0, 1, 3],
        ),  # as in COPA and PIQA: a label 0 counts from 0, whatever the columns are called
        ([1, 2, 3], FROM_0, [1, 2, 3]),
        ([1, 2], ("sol1", "sol2"), [0, 1]),
        ([0, 3, 1], ("opa", "opb", "opc", "opd"), [0, 3, 1]),
        (["1.0", "2.0", "3.0"], FROM_1, [0, 1, 2]),  # as pandas writes numbers beside a missing one
        (["A", "C", "B"], FROM_1, [0, 2, 1]),
        (["(A)", "c.", "B"], LETTERS, [0, 2, 1]),
        (["w", "y", "x"], FROM_1, [0, 2, 1]),
    ],
)
def test_how_labels_beside_columns_are_read(tmp_path, labels, columns, numbers):
    assert _labels(_table(tmp_path, labels, columns)) == numbers


@pytest.mark.parametrize(
    "columns", [LETTERS, ("choice_a", "choice_b", "choice_c", "choice_d"), None]
)
def test_numbers_that_may_count_from_0_or_from_1_are_asked_for(tmp_path, columns):
    path = _table(tmp_path, [1, 2, 3], columns) if columns else _lists(tmp_path, [1, 2, 3])
    with pytest.raises(DataError, match="count from 0 or from 1") as caught:
        _labels(path)
    assert "`data.first_choice=1`" in caught.value.remedy
    assert _labels(path, first_choice=1) == [0, 1, 2]
    assert _labels(path, first_choice=0) == [1, 2, 3]


def test_what_the_person_says_of_the_counting_comes_first(tmp_path):
    assert _labels(_table(tmp_path, [1, 2, 3], FROM_1), first_choice=0) == [1, 2, 3]
    with pytest.raises(
        DataError, match=r":2: the label '0' points outside its 4 choices, which are numbers 1 to 4"
    ):
        _labels(_table(tmp_path, [0, 1, 2], FROM_1), first_choice=1)


def test_one_wrong_number_does_not_move_where_the_others_begin(tmp_path):
    path = _table(tmp_path, [1, 4, 2, 4, 0, 3, 4], FROM_1)
    with pytest.raises(DataError, match=r"a\.csv:6: the label '0'"):
        _labels(path)
    skipped = SkippedRows()
    rows = READER.read(path, DataSection(), split="train", label_needed=True, skipped=skipped).rows
    assert list(rows.columns["label"]) == [0, 3, 1, 3, 2, 3]
    assert len(skipped.errors) == 1


def _splits(train, validation):
    data = DataSection(train_file=str(train), validation_file=str(validation))
    recipe = Recipe(task="multiple-choice", data=data, evaluation=EvaluationSection())
    return {name: list(rows.columns["label"]) for name, rows in load_data(recipe).splits.items()}


@pytest.mark.parametrize("decides", ["train", "validation"])
def test_the_files_of_a_recipe_count_alike(tmp_path, decides):
    open_file = _lists(tmp_path, [1, 2, 1], "open.jsonl")
    with_zero = _lists(tmp_path, [0, 2, 1], "zero.jsonl")
    files = (with_zero, open_file) if decides == "train" else (open_file, with_zero)
    other = "validation" if decides == "train" else "train"
    assert _splits(*files) == {decides: [0, 2, 1], other: [1, 2, 1]}


def test_a_file_is_counted_as_another_file_of_its_recipe_where_that_is_there(tmp_path):
    gone = tmp_path / "gone.jsonl"
    open_file = _lists(tmp_path, [1, 2, 1], "open.jsonl")
    with_zero = _lists(tmp_path, [0, 2, 1], "zero.jsonl")
    assert READER.settled(DataSection(), [open_file, gone, with_zero]).first_choice == 0
    assert READER.settled(DataSection(), [open_file, gone]).first_choice is None
    assert READER.settled(DataSection(), [_table(tmp_path, [4, 2], FROM_1)]).first_choice == 1
    assert READER.settled(DataSection(first_choice=1), [with_zero]).first_choice == 1


def test_a_file_that_counts_otherwise_than_the_training_file_is_refused(tmp_path):
    train = _table(tmp_path, [0, 1, 2], FROM_1, name="train")
    validation = _table(tmp_path, [4, 1, 2], FROM_1, name="validation")
    with pytest.raises(DataError, match=r"validation\.csv:2: the label '4' points outside"):
        _splits(train, validation)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["A", "B", "2"], "the label '2' is a number, and 2 labels are letters"),
        ([0, 1, "B"], "the label 'B' is a letter, and 2 labels are numbers"),
        (["w", "y", 2], "the label 2 is a number, and 2 labels are texts of choices"),
        (["w", "y", "b"], "the label 'b' is a letter, and 2 labels are texts of choices"),
    ],
)
def test_a_label_of_another_kind_is_called_so(tmp_path, labels, message):
    with pytest.raises(DataError) as caught:
        _labels(_lists(tmp_path, labels))
    assert message in caught.value.message
    assert ":3: " in caught.value.message


def test_columns_that_say_the_right_choice_twice_must_agree(tmp_path):
    rows = [
        {"question": "q", "options": {"A": "x y", "B": "y z"}, "answer": "y z", "answer_idx": "B"},
        {"question": "r", "options": {"A": "x y", "B": "y z"}, "answer": "x y", "answer_idx": "A"},
    ]
    path = tmp_path / "medqa.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert _labels(path) == [1, 0]
    rows[1]["answer_idx"] = "B"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        DataError, match=r":2: the right choice is 'x y' by 'answer' and 'y z' by 'answer_idx'"
    ):
        _labels(path)
    with pytest.raises(
        DataError, match=r":1: the right choice is 'w' by 'label' and 'y' by 'answer'"
    ):
        _labels(_lists(tmp_path, [0, 1], answer="y"))
    with pytest.raises(DataError, match=r":1: 4 choices, where 'num_choices' says 5"):
        _labels(_lists(tmp_path, [0, 1], num_choices=5))
    assert _labels(_lists(tmp_path, [0, 1], answer="because it is so", num_choices="4")) == [0, 1]


ARC = [
    {
        "id": "a",
        "question": "q",
        "choices": {"text": ["x", "y", "z"], "label": ["A", "B", "C"]},
        "answerKey": "B",
    },
    {
        "id": "b",
        "question": "r",
        "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]},
        "answerKey": "3",
    },
]


def _of_authors(row):
    keyed = [
        {"text": text, "label": key} for text, key in zip(*row["choices"].values(), strict=True)
    ]
    return {
        "id": row["id"],
        "question": {"stem": row["question"], "choices": keyed},
        "answerKey": row["answerKey"],
    }


SHOWN = "{'text': array(['x', 'y', 'z'], dtype=object),\n 'label': array(%s, dtype=object)}"
RACE = {
    "answers": ["B", "C"],
    "options": [["x", "y", "z"]] * 2,
    "questions": ["q", "r"],
    "article": "a",
    "id": "high1.txt",
}


def _write_arc(folder, form):
    path = folder / f"arc.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(ARC), path)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(_of_authors(row)) + "\n" for row in ARC))
    elif form == "json":
        path.write_text(json.dumps(ARC))
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["question", "choices", "answerKey"])
            writer.writerows(
                [r["question"], SHOWN % r["choices"]["label"], r["answerKey"]] for r in ARC
            )
    return path


@pytest.mark.parametrize("form", ["parquet", "jsonl", "json", "csv"])
def test_choices_with_labels_of_their_own(tmp_path, form):
    file = _write_arc(tmp_path, form)

    rows = _read(file)

    assert [list(row["choices"]) for row in rows] == [["x", "y", "z"]] * 2
    assert [row["context"] for row in rows] == ["q", "r"]
    assert [row["label"] for row in rows] == [1, 2]


@pytest.mark.parametrize("name", ["race.jsonl", "race.json", "high1.txt"])
def test_articles_of_race_have_several_questions(tmp_path, name):
    path = tmp_path / name
    path.write_text(json.dumps([RACE] if name.endswith(".json") else RACE))
    rows = _read(path)
    assert [(row["context"], row["label"], row["choices"]) for row in rows] == [
        ("a", 1, ["q x", "q y", "q z"]),
        ("a", 2, ["r x", "r y", "r z"]),
    ]
    path.write_text(json.dumps({**RACE, "answers": ["B"]}))
    with pytest.raises(
        (DataError, UsageError), match=r"not lists of one length|no list of objects"
    ):
        _read(path)


@pytest.mark.parametrize(
    ("cell", "choices"),
    [
        ("[1 2 0]", ["1", "2", "0"]),
        ("['a' 'b c']", ["a", "b c"]),
        ("array(['a', 'b'], dtype=object)", ["a", "b"]),
        ("[np.str_('a'), np.str_('b')]", ["a", "b"]),
        ("['a', \"b's\"]", ["a", "b's"]),
    ],
)
def test_lists_as_numpy_shows_them(tmp_path, cell, choices):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["question", "choices", "answer"], ["q", cell, "A"]])
    assert _read(path).columns["choices"] == [choices]


def test_an_array_that_numpy_has_shortened_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["question", "choices", "answer"], ["q", "array(['a', ..., 'b'])", "A"]]
        )
    with pytest.raises(DataError, match=r":2: column 'choices'") as caught:
        _read(path)
    assert "numpy has left a part out" in caught.value.remedy


def test_the_training_file_says_to_its_run_where_labels_begin(tmp_path):
    def first_choice(path):
        data = DataSection(train_file=str(path), validation_file=str(path))
        recipe = Recipe(task="multiple-choice", data=data, evaluation=EvaluationSection())
        return load_data(recipe).recipe.data.first_choice

    assert first_choice(_lists(tmp_path, [0, 2, 1])) == 0
    assert first_choice(_table(tmp_path, [1, 2, 3], FROM_1)) == 1
    assert first_choice(_table(tmp_path, [4, 2, 3], FROM_1)) == 1
    assert first_choice(_table(tmp_path, ["A", "C"], FROM_1)) is None
    assert first_choice(_lists(tmp_path, ["w", "x"])) is None


def test_a_run_that_counts_from_0_refuses_columns_that_count_from_1_without_a_0(tmp_path):
    path = _table(tmp_path, [1, 2, 1], FROM_1)
    options = {"split": "file", "label_needed": True, "hints": frozenset({"label_column"})}
    with pytest.raises(DataError, match="would count from 0, as those the run was trained on"):
        READER.read(path, DataSection(first_choice=0), **options)
    zero = READER.read(_table(tmp_path, [1, 0, 1], FROM_1), DataSection(first_choice=0), **options)
    assert list(zero.rows.columns["label"]) == [1, 0, 1]
    reading = READER.read(
        _table(tmp_path, [1, 2, 1], FROM_1), DataSection(first_choice=1), **options
    )
    assert list(reading.rows.columns["label"]) == [0, 1, 0]


PIQA = {"goal": "g", "sol1": "a", "sol2": "b"}
COPA = {"premise": "p", "choice1": "a", "choice2": "b", "question": "cause"}


@pytest.mark.parametrize("row", [PIQA, COPA])
@pytest.mark.parametrize("labels", [[1, 1], [0, 1]])
def test_labels_of_piqa_and_copa_count_from_0_whatever_their_columns_are_called(
    tmp_path, row, labels
):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({**row, "label": label}) + "\n" for label in labels))
    assert _labels(path) == labels


def test_a_right_answer_and_its_distractors_are_choices_in_the_order_of_the_alphabet(tmp_path):
    sciq = {
        "question": "q",
        "distractor1": "c",
        "distractor2": "a",
        "correct_answer": "b",
        "support": "s",
    }
    path = tmp_path / "sciq.json"
    path.write_text(json.dumps([sciq, {**sciq, "correct_answer": "d", "distractor2": None}]))
    rows = _read(path)
    assert list(rows.columns["choices"]) == [["a", "b", "c"], ["c", "d"]]
    assert list(rows.columns["label"]) == [1, 1]
    path = tmp_path / "swag.csv"
    path.write_text(
        "sent1,sent2,gold-ending,distractor-0,distractor-1\nAnna goes.,She,runs,eats,\nAnna "
        "goes.,She,a,b,a\n"
    )
    rows = _read(path)
    assert list(rows.columns["choices"]) == [["She eats", "She runs"], ["She a", "She b"]]
    assert list(rows.columns["label"]) == [1, 0]
    path.write_text(
        "sent1,sent2,gold-ending,distractor-0,distractor-1\nAnna goes.,She,,eats,runs\n"
    )
    with pytest.raises(DataError, match=r"swag\.csv:2: the label is empty"):
        _read(path)


@pytest.mark.parametrize("name", ["dream.json", "dream.jsonl"])
def test_dialogues_of_dream_are_read(tmp_path, name):
    turns = ["M: hi", "W: ho"]
    question = {"question": "who?", "choice": ["x", "y", "z"], "answer": "y"}
    raw = [[turns, [question, {**question, "answer": "z"}], "4-199"]]
    flat = [
        {"dialogue_id": "4", "dialogue": turns, **question},
        {"dialogue": turns, **question, "answer": "z"},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in flat)
    (tmp_path / name).write_text(json.dumps(raw) if name == "dream.json" else lines)
    rows = _read(tmp_path / name)
    assert list(rows.columns["label"]) == [1, 2]
    assert rows.columns["context"][0] == "M: hi\nW: ho"
    assert rows.columns["choices"][0] == ["who? x", "who? y", "who? z"]


def test_questions_of_yes_and_no_are_told_to_be_pairs(tmp_path):
    path = tmp_path / "boolq.jsonl"
    path.write_text(json.dumps({"question": "is x", "passage": "p", "answer": True}) + "\n")
    with pytest.raises(UsageError) as caught:
        _read(path)
    assert (
        "text-classification, `data.text_column=QUESTION` `data.pair_column=PASSAGE`"
        in caught.value.remedy
    )
