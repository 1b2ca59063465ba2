"""Rows that hang together stay on one side: equal texts, premises, the rows of one author."""

from collections import Counter
from pathlib import Path

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.groups import normalised
from bertctl.data.recipe_data import load_data
from bertctl.data.rows import Rows
from bertctl.data.splits import hold_out, hold_out_fold
from tests.conftest import Run


def _medical(shared_data: Path, **settings: object) -> Recipe:
    file = shared_data / "medical-abstracts" / "medical_tc_test.csv"
    columns = {"text_column": "medical_abstract", "label_column": "condition_label"}
    return Recipe(data=DataSection(train_file=str(file), **columns, **settings))


def test_no_abstract_is_on_both_sides(shared_data: Path) -> None:
    """Some of these abstracts stand twice, with two labels.

    Each row is held out once, and labels keep their share.
    """
    counts: Counter[str] = Counter()
    for fold in (None, 1, 2, 3, 4, 5):
        data = load_data(_medical(shared_data, folds=fold and 5, fold=fold))
        train = data.splits["train"]
        held = data.splits["validation"]
        texts = {normalised(text) for text in train.columns["text"]}
        held_texts = {normalised(text) for text in held.columns["text"]}
        assert len(train) + len(held) == 2888
        assert len(texts) + len(held_texts) < 2888
        assert not texts & held_texts
        shares = Counter(map(str, train.columns["label"]))
        held_shares = Counter(map(str, held.columns["label"]))
        for label, count in held_shares.items():
            assert abs(count / len(held) - shares[label] / len(train)) < 0.02
        if fold is not None:
            assert abs(len(held) - 2888 / 5) <= 3
            counts.update(held.ids)
    assert len(counts) == 2888
    assert set(counts.values()) == {1}


def test_no_premise_is_on_both_sides(shared_data: Path) -> None:
    file = shared_data / "glue" / "RTE" / "train.tsv"
    data = load_data(
        Recipe(
            data=DataSection(train_file=str(file), text_column="sentence1", pair_column="sentence2")
        )
    )
    premises = [set(data.splits[name].columns["text"]) for name in ("train", "validation")]
    assert sum(map(len, premises)) < sum(map(len, data.splits.values()))
    assert not premises[0] & premises[1]


@pytest.mark.parametrize(
    "labels", [["a", "b"] * 30, list(range(60))], ids=["stratified", "not stratified"]
)
def test_rows_without_groups_are_dealt_out_as_ever(labels: list[object]) -> None:
    """Each row its own group gives the rows that no groups give.

    A group on one side moves nobody.
    """
    rows = Rows(
        "train",
        {"text": [str(i) for i in range(60)], "label": labels},
        [str(i) for i in range(60)],
        "f",
    )
    plain = hold_out(rows, fraction=0.2, seed=7, stratify=True)
    again = hold_out(
        rows,
        fraction=0.2,
        seed=7,
        stratify=True,
        groups=[str(i) for i in range(60)],
    )
    assert list(plain[1].ids) == list(again[1].ids)
    fold = hold_out_fold(
        rows,
        folds=3,
        fold=2,
        seed=7,
        stratify=True,
        groups=None,
    )
    same = hold_out_fold(
        rows,
        folds=3,
        fold=2,
        seed=7,
        stratify=True,
        groups=range(60),
    )
    assert list(fold[1].ids) == list(same[1].ids)


def test_groups_that_stratifying_would_break_go_whole() -> None:
    rows = Rows("train", {"label": ["a", "b"] * 50}, [str(i) for i in range(100)], "f")
    groups = [i // 25 for i in range(100)]
    left, held, stratified = hold_out(
        rows,
        fraction=0.1,
        seed=1,
        stratify=True,
        groups=groups,
    )
    assert len(left) == 75
    assert len(held) == 25
    assert not stratified
    assert len({int(i) // 25 for i in held.ids}) == 1


@pytest.mark.in_process
def test_a_column_says_what_hangs_together(bertctl: Run, tiny_model: Path, tmp_path: Path) -> None:
    lines = [f"note {i},{'ab'[i % 2]},{i // 4}" for i in range(80)]
    (tmp_path / "notes.csv").write_text("\n".join(["text,label,patient", *lines]) + "\n")
    words = [
        "--train-file",
        tmp_path / "notes.csv",
        "--model",
        tiny_model,
        "--max-length",
        32,
        "--dry-run",
    ]
    done = bertctl(
        "finetune", "text-classification", *words, "--set", "data.group_column=patient", "--seed", 5
    )
    assert done.returncode == 0, done.stderr
    assert "8 of the 80 training rows are held out" in done.stderr
    how = "stratified by label; 20 groups of related rows, each on one side whatever its labels"
    assert f"(seed 42, {how})" in done.stderr
    refused = bertctl(
        "finetune", "text-classification", *words, "--set", "data.group_column=patent"
    )
    assert refused.returncode == 3
    assert "data.group_column" in refused.stderr
    assert "did you mean patient" in refused.stderr
