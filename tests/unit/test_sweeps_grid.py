"""Grids, seeds and shards as they are typed; and the parts of a cross-validation."""

from pathlib import Path

import pytest

from bertctl.data.rows import Rows
from bertctl.data.splits import hold_out_fold
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.inference.shards import read_shard
from bertctl.sweeps.grid import pick, read_grid, read_seeds


def test_the_papers_grid_has_18_settings_and_glues_has_4() -> None:
    paper = read_grid("paper")
    assert len(paper) == 18
    assert {entry["optimizer.learning_rate"] for entry in paper} == {5e-5, 3e-5, 2e-5}
    assert {entry["training.batch_size"] for entry in paper} == {16, 32}
    assert {entry["training.epochs"] for entry in paper} == {2, 3, 4}
    assert [entry["optimizer.learning_rate"] for entry in read_grid("glue")] == [
        5e-5,
        4e-5,
        3e-5,
        2e-5,
    ]


def test_a_line_and_a_file_give_the_same_settings(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(
        "optimizer.learning_rate: [1e-5, 2e-5]\ntraining:\n  batch_size: [16, 32]\n  epochs: 2\n"
    )
    line = read_grid(
        "optimizer.learning_rate=1e-5,2e-5  training.batch_size=16,32 training.epochs=2"
    )
    assert read_grid(str(file)) == line
    assert len(line) == 4
    assert line[0] == {
        "optimizer.learning_rate": 1e-5,
        "training.batch_size": 16,
        "training.epochs": 2,
    }


def test_commas_in_brackets_belong_to_the_value() -> None:
    assert read_grid("training.class_weights=[1.0, 2.0],[1.0,3.0]") == [
        {"training.class_weights": [1.0, 2.0]},
        {"training.class_weights": [1.0, 3.0]},
    ]


def test_everything_wrong_with_a_grid_is_said_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        read_grid(
            "lr=1 training.epochs=two,0 training.epochs=3 data.fold=1 training=2 optimizer.beta1= "
            "word"
        )
    message = caught.value.message
    for place, fact in (
        ("lr: ", "did you mean optimizer.learning_rate?"),
        ("training.epochs: ", '"two" given'),
        ("training.epochs: ", "0 given"),
        ("training.epochs: ", "given twice"),
        ("data.fold: ", "`folds=`"),
        ("training: ", "section"),
        ("optimizer.beta1: ", "no value"),
        ("'word' ", "field=value"),
    ):
        assert any(place in line and fact in line for line in message.splitlines()), fact


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "is empty"),
        ("papr", "did you mean paper?"),
        ("training.epochs=2,2", "2 is given twice"),
        ("training.seed=1,2", "`seeds=`"),
        ("evaluation.splits=[test]", "scored on the same"),
    ],
)
def test_refused_grids(arguments: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected.replace("?", r"\?")):
        read_grid(arguments)


def test_a_grid_file_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("training.epochs: [2]\ntraining.epochs: [3]\nnonsense:\n  epochs: [2]\n")
    with pytest.raises(UsageError) as caught:
        read_grid(str(file))
    assert f"{file}:2: training.epochs: " in caught.value.message
    assert f"{file}:3: nonsense: " in caught.value.message
    with pytest.raises(UnavailableError, match=r"none\.yaml"):
        read_grid(str(tmp_path / "none.yaml"))
    file.write_text("# nothing\n")
    with pytest.raises(UsageError):
        read_grid(str(file))


def test_a_random_pick_is_seeded_and_in_order() -> None:
    settings = read_grid("paper")
    assert pick(settings, 5, seed=1) == pick(settings, 5, seed=1) != pick(settings, 5, seed=2)
    assert pick(settings, 99, seed=1) == settings
    with pytest.raises(UsageError, match="at least 1"):
        pick(settings, 0, seed=1)


def test_seeds_go_together_or_each_with_each() -> None:
    assert read_seeds("2", first=42) == [{"init": 42, "order": 42}, {"init": 43, "order": 43}]
    assert read_seeds("init=2,order=2", first=0) == [
        {"init": 0, "order": 0},
        {"init": 0, "order": 1},
        {"init": 1, "order": 0},
        {"init": 1, "order": 1},
    ]
    assert read_seeds("order=2", first=7) == [{"init": 7, "order": 7}, {"init": 7, "order": 8}]
    for wrong in ("0", "-1", "init=0", "init=2,init=3", "data=2", "many", ""):
        with pytest.raises(UsageError, match="seeds="):
            read_seeds(wrong, first=1)


def test_shards_are_in_range() -> None:
    assert read_shard(None) is None
    assert read_shard("2/8") == (2, 8)
    for wrong in ("0/8", "9/8", "1/0", "2", "a/b", "-1/2"):
        with pytest.raises(UsageError, match="shard="):
            read_shard(wrong)


def _rows(labels: list[str]) -> Rows:
    n = len(labels)
    columns = {"text": [f"text {i}" for i in range(n)], "label": labels}
    return Rows("train", columns, [str(i) for i in range(n)], "made.csv")


def test_each_row_is_held_out_once_and_parts_are_stratified() -> None:
    rows = _rows(["rare"] * 10 + ["often"] * 43)
    observed: list[str] = []
    for fold in range(1, 6):
        train, validation, stratified = hold_out_fold(
            rows, folds=5, fold=fold, seed=3, stratify=True
        )
        assert stratified
        assert validation.split == "validation"
        assert list(validation.columns["label"]).count("rare") == 2
        assert len(validation) in (10, 11)
        assert not set(train.ids) & set(validation.ids)
        assert len(train) + len(validation) == 53
        observed += validation.ids
    assert sorted(observed) == sorted(rows.ids)
    other = hold_out_fold(rows, folds=5, fold=1, seed=4, stratify=True)[1]
    assert other.ids != hold_out_fold(rows, folds=5, fold=1, seed=3, stratify=True)[1].ids


def test_what_belongs_together_stays_in_one_part() -> None:
    rows = _rows([str(i // 3) for i in range(30)])
    parts = [
        hold_out_fold(rows, folds=5, fold=k, seed=1, stratify=False, groups=rows.columns["label"])[
            1
        ]
        for k in range(1, 6)
    ]
    groups = [set(part.columns["label"]) for part in parts]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 10


def test_more_parts_than_rows_are_refused() -> None:
    with pytest.raises(DataError, match="5 folds"):
        hold_out_fold(
            _rows(["a", "b", "a"]),
            folds=5,
            fold=1,
            seed=1,
            stratify=True,
        )
