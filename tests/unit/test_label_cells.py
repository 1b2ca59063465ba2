"""What label cells say.

A column is what nearly all of its cells are; structure is read, or refused by its line.
"""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.label_cells import LabelRules, joined_labels, words_for_nothing
from bertctl.data.read_options import Reading, SkippedRows
from bertctl.data.readers import READERS
from bertctl.errors import DataError, UsageError
from bertctl.runtime.batching import Padding
from bertctl.tasks.batches import Batch
from bertctl.tasks.classification.text_classification import TextClassification
from bertctl.tasks.objectives import SquaredError
from bertctl.tasks.regression.text_regression import TextRegression
from tests.heard import Heard

NAMED = LabelRules(names=("good", "film", "garden"))
UNNAMED = LabelRules()


def write(path: Path, labels: list[Any], **more: list[Any]) -> Path:
    """Writes rows with these labels as CSV, TSV, JSON Lines or Parquet, by the suffix."""
    columns = {
        "text": [f"a text {i} of words" for i in range(len(labels))],
        "label": labels,
        **more,
    }
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        rows = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return path


def read(
    path: Path, rules: LabelRules = UNNAMED, *, task: str = "text-classification", **told: Any
) -> Reading:
    data = told.pop("data", DataSection())
    return READERS[task].read(
        path,
        data,
        split="train",
        label_needed=True,
        labels=rules,
        **told,
    )


def labels(path: Path, rules: LabelRules = UNNAMED, **reported: Any) -> list[Any]:
    rows = read(path, rules, **reported).rows
    return list(rows.columns["label"])


def refusal(path: Path, rules: LabelRules = UNNAMED, **reported: Any) -> str:
    with pytest.raises(DataError) as caught:
        read(path, rules, **reported)
    return f"{caught.value.message}\n{caught.value.remedy}"


VECTORS = {
    "numbers": ("a.jsonl", [[1, 0, 1], [0, 1, 0], [0, 0, 0]]),
    "floats": ("a.jsonl", [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
    "booleans": ("a.jsonl", [[True, False, True], [False, True, False], [False, False, False]]),
    "texts": ("a.jsonl", [["1", "0", "1"], ["0", "1", "0"], ["0", "0", "0"]]),
    "parquet": ("a.parquet", [[1, 0, 1], [0, 1, 0], [0, 0, 0]]),
    "csv": ("a.csv", ["[1, 0, 1]", "[0, 1, 0]", "[0, 0, 0]"]),
    "python": ("a.tsv", ["(True, False, True)", "(False, True, False)", "(False, False, False)"]),
    "numpy": ("a.csv", ["[1 0 1]", "[0 1 0]", "[0 0 0]"]),
    "numpy floats": ("a.csv", ["[1. 0. 1.]", "[0. 1. 0.]", "[0. 0. 0.]"]),
    "numpy booleans": (
        "a.csv",
        ["[ True False  True]", "[False  True False]", "[False False False]"],
    ),
    "tensor": ("a.csv", ["tensor([1., 0., 1.])", "tensor([0., 1., 0.])", "tensor([0., 0., 0.])"]),
    "scalars": (
        "a.csv",
        ["[np.int64(1), np.int64(0), np.int64(1)]", "[np.int64(0), np.int64(1), np.int64(0)]"],
    ),
    "digits": ("a.csv", ["101", "010", "000"]),
    "between blanks": ("a.tsv", ["1 0 1", "0 1 0", "0 0 0"]),
    "between bars": ("a.csv", ["1|0|1", "0|1|0", "0|0|0"]),
}
READ = [["good", "garden"], ["film"], []]


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_read_by_the_names_of_its_places_and_refused_without(
    name: str, tmp_path: Path
) -> None:
    file, cells = VECTORS[name]
    path = write(tmp_path / file, cells)
    assert labels(path, NAMED) == READ[: len(cells)]
    message = refusal(path)
    assert "a vector of 0 and 1" in message
    assert "`text_classification.labels='[a, b, c]'`" in message
    assert "3 places" in refusal(path, LabelRules(names=("good", "film")))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (
            [[0], [1], [0, 1]],
            [[0], [1], [0, 1]],
        ),  # numbers of classes, of which a row can have several
        (["10", "11", "10"], ["10", "11", "10"]),
        (["0", "1", "1"], ["0", "1", "1"]),
        ([["0", "1"], ["1"], ["0"]], [["0", "1"], ["1"], ["0"]]),
    ],
)
def test_classes_called_0_and_1_are_no_vectors(
    cells: list[Any], expected: list[Any], tmp_path: Path
) -> None:
    assert labels(write(tmp_path / "a.jsonl", cells)) == expected


@pytest.mark.parametrize("others", [["good"] * 2, [["good", "bad"]] * 2, [[0.2, 0.5, 0.3]] * 2])
def test_a_vector_among_half_other_cells_is_never_the_labels_0_and_1(
    others: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    rows = [*others, [1, 0, 1], [0, 0, 1]]
    path.write_text(
        "".join(json.dumps({"text": "a text", "label": label}) + "\n" for label in rows)
    )
    assert "a.jsonl:" in refusal(path)


def test_lists_of_the_names_0_and_1_are_names_where_these_are_the_labels(tmp_path: Path) -> None:
    cells = [["0", "1"], ["1", "0"]]
    path = write(tmp_path / "a.jsonl", cells)
    rules = LabelRules(names=("0", "1"))

    assert labels(path, rules) == cells


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("['a', 'b']", ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ("['a' 'b']", ["a", "b"]),
        ("{'b', 'a'}", ["a", "b"]),
        ("('a', 'b')", ["a", "b"]),
        ("('a',)", ["a"]),
        ("array(['a', 'b'], dtype=object)", ["a", "b"]),
        ("[np.str_('a'), np.str_('b')]", ["a", "b"]),
        ("{'a': 1, 'b': 0}", ["a"]),
        ('{"a": true, "b": false}', ["a"]),
        ("{'a': 1.0, 'b': 1.0}", ["a", "b"]),
        ("[' a', 'b ']", ["a", "b"]),
        ("set()", []),
        ("[]", []),
    ],
)
def test_written_lists_sets_tuples_and_flags_are_read(
    written: str, expected: list[str], tmp_path: Path
) -> None:
    assert labels(write(tmp_path / "a.csv", [written, "['c']", "['c']"])) == [
        expected,
        ["c"],
        ["c"],
    ]


@pytest.mark.parametrize(
    "cell",
    [
        {"name": "good", "score": 0.9},
        {"label": "good"},
        [{"label": "good"}],
        [["good"]],
        [0.2, 0.8],
        {"good": 0.9, "bad": 0.1},
    ],
)
@pytest.mark.parametrize("file", ["a.jsonl", "a.csv"])
def test_what_names_no_label_is_refused_with_what_to_write(
    cell: Any, file: str, tmp_path: Path
) -> None:
    cells = [cell] * 3 if file == "a.jsonl" else [str(cell)] * 3
    message = refusal(write(tmp_path / file, cells))
    assert f"{file}:{1 if file == 'a.jsonl' else 2}: the label is a" in message
    assert '["a", "b"]' in message


ODD = {
    "a name among lists": (["['a', 'b']"] * 11, "good", "a list of labels"),
    "None among lists": (["['a', 'b']"] * 11, "None", "a list of labels"),
    "a list without quotes": (["['a', 'b']"] * 11, "[good, film]", "can't be read as one"),
    "a list without its end": (["['a', 'b']"] * 11, "['a', 'b'", "can't be read as one"),
    "a list without its beginning": (["['a', 'b']"] * 11, "'a', 'b']", "can't be read as one"),
    "a list among names": (["good", "bad"] * 6, "['good', 'bad']", "one label"),
    "an object among names": (["good", "bad"] * 6, '{"good": 0.7}', "an object"),
    "a number among words": (["good", "bad"] * 6, "7", "a word"),
    "a decimal among words": (["good", "bad"] * 6, "3.5", "a word"),
    "a word among numbers": (["0", "1", "2"] * 4, "n/a", "a number"),
    "a vector that is too short": (["[1, 0, 1]"] * 11, "[1, 0]", "a vector of 3"),
    "a 2 in a vector": (["[1, 0, 1]"] * 11, "[1, 0, 2]", "a vector of 3"),
    "a word among vectors": (["1 0 1"] * 11, "good", "a vector of 3"),
}


@pytest.mark.parametrize("file", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("name", ODD)
def test_one_odd_cell_is_refused_by_its_line_and_changes_no_other(
    name: str, file: str, tmp_path: Path
) -> None:
    cells, odd, expected = ODD[name]
    rules = LabelRules(names=("x", "y", "z")) if "vector" in name else UNNAMED
    path = write(tmp_path / file, [*cells[:8], odd, *cells[8:]])
    line = {"a.jsonl": "a.jsonl:9:", "a.parquet": "a.parquet, row 9:"}.get(file, f"{file}:10:")
    message = refusal(path, rules)
    assert f"{line} the label" in message
    assert expected in message

    skipped = SkippedRows()
    rest = labels(path, rules, skipped=skipped)
    assert len(rest) == len(cells)
    assert [error.message for error in skipped.errors] == [message.splitlines()[0]]


@pytest.mark.parametrize("file", ["a.jsonl", "a.csv"])
@pytest.mark.parametrize("odd", ["yes", 1, 0.5, "good"])
def test_a_cell_among_booleans_is_refused_unless_it_is_one(
    odd: Any, file: str, tmp_path: Path
) -> None:
    path = write(
        tmp_path / file,
        [True, False, "true", True, "False", odd, True, False, True, False, True, True],
    )
    message = refusal(path, UNNAMED)
    line = {"a.jsonl": 6, "a.csv": 7}[file]
    assert f"{file}:{line}: the label" in message
    assert "true or false" in message


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "a;b", "b"], (";", {"a", "b"})),
        (["a", "a, b", "b"], (",", {"a", "b"})),
        (["x|y", "x", "y"], ("|", {"x", "y"})),
        (["in/out", "left", "right"], None),
        (["yes, a lot", "no", "a bit"], None),
    ],
)
def test_labels_whose_parts_are_labels_are_seen(
    names: list[str], expected: tuple[str, set[str]] | None
) -> None:
    assert joined_labels(names) == expected


def test_a_word_for_nothing_is_doubted_only_where_it_is_rare() -> None:
    assert words_for_nothing(Counter({"good": 50, "bad": 40, "None": 1, "null": 1})) == [
        "None",
        "null",
    ]
    assert words_for_nothing(Counter({"mild": 50, "severe": 40, "none": 45})) == []


@pytest.mark.parametrize("odd", ["good", "7", "[other]"])
def test_a_cell_that_is_a_label_by_its_name_is_no_odd_one(odd: str, tmp_path: Path) -> None:
    cells = ["good", "bad"] * 6
    path = write(tmp_path / "a.csv", [*cells, odd])
    rules = LabelRules(names=("good", "bad", "7", "[other]"))

    assert labels(path, rules)[-1] == odd


@pytest.mark.parametrize("several", [LabelRules(several=True), LabelRules(separator="|")])
def test_no_label_is_none_to_skip_where_a_row_can_have_none(
    several: LabelRules, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.csv", ["good|bad", "", "bad"])
    skipped = SkippedRows()
    assert len(labels(path, several, skipped=skipped)) == 3
    assert len(labels(path, skipped=skipped)) == 2
    assert "the label is empty" in skipped.errors[0].message


@pytest.mark.parametrize("bad", ["n/a", "", "inf", "85.5%", "four"])
def test_a_score_that_is_none_is_skipped_by_its_line(bad: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ["1.25", bad, " 2.5", "3.75 ", "1.0"])
    skipped = SkippedRows()
    assert labels(path, task="text-regression", skipped=skipped) == ["1.25", "2.5", "3.75", "1.0"]
    (error,) = skipped.errors
    assert error.line == 3


@pytest.mark.parametrize("file", ["a.csv", "a.jsonl", "a.tsv"])
def test_blanks_around_a_label_are_not_part_of_it(file: str, tmp_path: Path) -> None:
    assert labels(write(tmp_path / file, [" good", "bad ", "good", "\tbad"])) == [
        "good",
        "bad",
        "good",
        "bad",
    ]


def without_label(path: Path, columns: dict[str, list[Any]]) -> Path:
    """Writes a text and these columns, without one that is called label."""
    texts = [f"a text {i} of words" for i in range(len(next(iter(columns.values()))))]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", *columns])
        writer.writerows(zip(texts, *columns.values(), strict=True))
    return path


@pytest.mark.parametrize("bad", ["2", "", "yes", "-1"])
def test_a_column_of_0_and_1_with_one_bad_cell_stays_a_label(bad: str, tmp_path: Path) -> None:
    columns = {
        "good": ["0", "1"] * 6,
        "film": ["1", "1", bad, *["0"] * 9],
        "garden": ["0", "1"] * 6,
    }
    path = without_label(tmp_path / "a.csv", columns)
    message = refusal(path)
    assert "a.csv:4: column 'film' holds" in message
    skipped = SkippedRows()
    rest = labels(path, skipped=skipped)
    assert rest[:3] == [["film"], ["good", "film", "garden"], ["good", "garden"]]
    assert len(rest) == 11
    assert len(skipped.errors) == 1


@pytest.mark.parametrize("name", ["outcome", "result", "Kind of case"])
def test_columns_of_0_and_1_are_no_labels_where_another_column_has_names(
    name: str, tmp_path: Path
) -> None:
    path = without_label(
        tmp_path / "a.csv",
        {name: ["won", "lost"] * 6, "verified": ["0", "1"] * 6, "has_image": ["1", "1", "0"] * 4},
    )
    with pytest.raises(UsageError, match="verified, has_image") as caught:
        read(path)
    assert "`data.label_column=" in caught.value.remedy
    assert "data.label_columns='[verified, has_image]'" in caught.value.remedy


@pytest.mark.parametrize("name", ["verified", "has_image", "is_reply"])
def test_a_flag_that_may_be_about_the_row_is_asked_for(name: str, tmp_path: Path) -> None:
    flags = {"good": ["0", "1"] * 6, "film": ["1", "1", "0"] * 4, name: ["0", "1", "0"] * 4}
    path = without_label(tmp_path / "a.csv", flags)
    with pytest.raises(UsageError, match=name) as caught:
        read(path)
    assert "data.label_columns='[good, film]'" in caught.value.remedy
    reading = read(path, data=DataSection(label_columns=["good", "film"]))
    assert reading.rows.columns["label"][0] == ["film"]


def test_flags_that_are_all_called_alike_are_labels(tmp_path: Path) -> None:
    flags = {"is_good": ["0", "1"] * 6, "is_film": ["1", "1", "0"] * 4}
    assert labels(without_label(tmp_path / "a.csv", flags))[:2] == [
        ["is_film"],
        ["is_good", "is_film"],
    ]


def test_a_flag_of_a_split_is_no_label(tmp_path: Path) -> None:
    columns = {"good": ["0", "1"] * 6, "film": ["1", "1", "0"] * 4, "is_valid": ["0", "1", "0"] * 4}
    listener = Heard()
    read(without_label(tmp_path / "a.csv", columns), listener=listener)
    assert any("labels from good, film, 0 or 1 in each" in text for text in listener.said)


@pytest.mark.parametrize(
    ("file", "cells", "is_refused"),
    [
        ("a.parquet", [0, 1, -1] * 4, True),
        ("a.parquet", [0, 1, 2, -1] * 4, True),
        ("a.jsonl", [0, 1, 2, -1] * 4, True),
        ("a.csv", [*[0, 1] * 10, -1], True),
        ("a.csv", [0, 1, -1] * 4, False),  # three sentiments
        ("a.parquet", [1, -1] * 4, False),
        ("a.parquet", [-2, -1, 0, 1] * 4, False),
    ],
)
def test_minus_one_beside_class_numbers_is_no_label(
    file: str, cells: list[int], is_refused: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / file, cells)
    if is_refused:
        message = refusal(path)
        assert "-1, which means no label" in message
        assert "text_classification.labels" in message
        names = LabelRules(names=tuple(map(str, sorted(set(cells)))))
        assert len(labels(path, names)) == len(cells)
    else:
        assert list(map(int, labels(path))) == cells


@pytest.mark.parametrize(
    ("scores", "is_refused"),
    [
        ([1e9 + 0.5, 1e9 + 1.5], True),
        ([1.7e9, 1.7e9 + 3600], True),
        ([-1e12, -1e12 + 1e4], True),
        ([0.1 + 1e7, 0.2 + 1e7], True),
        ([1.7e9, 1.7e9 + 86400 * 30], False),
        ([400.0, 406.0], False),
        ([0.0, 1e30], False),
    ],
)
def test_scores_that_differ_beyond_32_bits_are_refused_with_what_to_subtract(
    scores: list[float], is_refused: bool, tmp_path: Path
) -> None:
    rows = read(write(tmp_path / "a.jsonl", scores * 3), task="text-regression").rows
    if is_refused:
        with pytest.raises(DataError, match="models answer in steps of") as caught:
            TextRegression.from_data(Recipe(task="text-regression"), rows, None)
        assert "Subtract" in caught.value.remedy
    else:
        task = TextRegression.from_data(Recipe(task="text-regression"), rows, None)
        assert [task.gold(rows, index) for index in range(2)] == scores


def test_the_loss_standardises_gold_scores_before_it_rounds_them() -> None:
    import torch

    gold = np.array([0.1, 0.3, 5e8])
    objective = SquaredError(Padding(0), deviation=0.1, mean=0.2)
    features = Mock(collate=lambda indices, _: Batch({}, torch.from_numpy(gold[indices])))
    batch = objective.batch(features, np.arange(2), Mock())
    assert batch.gold.dtype == torch.float32
    losses = objective.window_losses(torch.tensor([[0.2], [0.3]]), batch)
    assert losses.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)

    far = SquaredError(Padding(0), deviation=1e5, mean=1.7e9 + 3)
    batch = far.batch(
        Mock(collate=lambda *_: Batch({}, torch.tensor([1.7e9 + 3.5], dtype=torch.float64))),
        np.arange(1),
        Mock(),
    )
    answer = torch.tensor([[1.7e9]])  # as near as 32 bits come
    expected = ((float(answer) - (1.7e9 + 3.5)) / 1e5) ** 2
    assert far.window_losses(answer, batch).item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("a.jsonl", [["good"], ["good", None], ["film"]]),
        ("a.parquet", [["good"], [None, "film", None], ["film"]]),
        ("a.csv", ['["good"]', '["good", null]', '["film"]']),
    ],
)
def test_a_null_beside_names_is_refused_by_its_line(
    name: str, cells: list[Any], tmp_path: Path
) -> None:
    message = refusal(write(tmp_path / name, cells))
    assert "among its names" in message
    assert 'take the null out: ["a"] in place of ["a", null]' in message
    assert ("row 2" if name.endswith("parquet") else f"{name}:") in message


def test_a_list_of_nulls_alone_has_no_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [["good"], [None], []])

    assert labels(path) == [["good"], [], []]


@pytest.mark.parametrize("odd", ["1e3", "1_000", "1E0"])
def test_a_number_in_another_spelling_is_no_class_beside_0_and_1(odd: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [*"0101010101", odd])
    rows = read(path).rows
    with pytest.raises(DataError, match=rf"a\.csv:12: the label '{odd}' is a number") as caught:
        TextClassification.from_data(Recipe(), rows, None)
    assert "text_classification.labels" in str(caught.value.remedy)
    by_name = ("0", "1", odd)
    assert TextClassification.from_data(Recipe(), rows, by_name).labels == by_name


@pytest.mark.parametrize(
    "names",
    [["+1", "-1"], ["0", "01"], ["1e3", "2b4"], ["1e3", "2e3"], ["0", "1e3"], ["0", "1", "None"]],
)
def test_names_that_are_no_odd_numbers_stay_classes(names: list[str], tmp_path: Path) -> None:
    rows = read(write(tmp_path / "a.csv", names * 10)).rows
    data = TextClassification.from_data(Recipe(), rows, None)
    assert sorted(data.labels) == sorted(names)
