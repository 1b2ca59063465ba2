"""Hold-outs and samples: shares, seeds, and labels that never leave training."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertctl.data.packed_columns import MANY_ROWS, column_of, is_packed, numbered_ids
from bertctl.data.rows import Rows
from bertctl.data.splits import content_hash, first_rows, hold_out, joined, sample
from bertctl.errors import DataError


def rows_with(labels: list[object]) -> Rows:
    texts = [f"text {i}" for i in range(len(labels))]
    return Rows(
        "train", {"text": texts, "label": labels}, [str(i) for i in range(len(labels))], "f", ()
    )


def test_each_label_gives_its_share():
    labels = ["a"] * 700 + ["b"] * 200 + ["c"] * 100
    left, held, stratified = hold_out(
        rows_with(labels),
        fraction=0.1,
        seed=3,
        stratify=True,
    )
    assert stratified
    assert Counter(held.columns["label"]) == {"a": 70, "b": 20, "c": 10}
    assert Counter(left.columns["label"]) == {"a": 630, "b": 180, "c": 90}
    assert left.split == "train"
    assert held.split == "validation"


def test_a_label_that_stands_once_stays_in_training():
    labels = ["a"] * 50 + ["b"] * 49 + ["rare"]
    for seed in range(20):
        left, held, stratified = hold_out(
            rows_with(labels),
            fraction=0.3,
            seed=seed,
            stratify=True,
        )
        assert stratified
        assert "rare" in left.columns["label"]
        assert len(held) == 30


def test_groups_with_labels_of_their_own_are_held_out_all_the_same():
    for seed in range(200):
        groups = [i // 3 for i in range(30)]
        rows = rows_with([f"label {group}" for group in groups])
        left, held, stratified = hold_out(
            rows, fraction=0.1, seed=seed, stratify=True, groups=groups
        )
        assert len(left) == 27
        assert len(held) == 3
        assert not stratified


def test_a_group_with_most_of_the_rows_is_not_held_out():
    scores = [float(i) for i in range(100)]
    groups = ["large"] * 70 + [f"small {i // 3}" for i in range(30)]
    for seed in range(50):
        left, held, _ = hold_out(
            rows_with(scores), fraction=0.1, seed=seed, stratify=False, groups=groups
        )
        assert len(left) == 88
        assert len(held) == 12
        two = [i < 30 for i in range(100)]
        left, held, _ = hold_out(
            rows_with(scores), fraction=0.1, seed=seed, stratify=False, groups=two
        )
        assert len(left) == 70
        assert len(held) == 30


@pytest.mark.parametrize("labels", [[["a"], ["b"]] * 20, [float(i) for i in range(40)]])
def test_labels_that_can_not_be_counted_are_not_stratified(labels):
    left, held, stratified = hold_out(
        rows_with(labels),
        fraction=0.25,
        seed=0,
        stratify=True,
    )
    assert not stratified
    assert len(left) == 30
    assert len(held) == 10


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    fraction=st.floats(0.01, 0.9),
    seed=st.integers(0, 99),
    stratify=st.booleans(),
)
def test_nothing_is_lost_or_doubled(counts, fraction, seed, stratify):
    labels = []
    for name, count in zip("abcdef", counts, strict=False):
        labels += [name for _ in range(count)]
    rows = rows_with(labels)
    if len(labels) < 2:
        with pytest.raises(DataError, match="none can be held out"):
            hold_out(rows, fraction=fraction, seed=seed, stratify=stratify)
        return
    left, held, stratified = hold_out(rows, fraction=fraction, seed=seed, stratify=stratify)
    assert len(held) == min(max(1, round(len(labels) * fraction)), len(labels) - 1)
    assert sorted([*left.ids, *held.ids], key=int) == list(rows.ids)
    if stratified:
        assert set(left.columns["label"]) == set(labels)
    again = hold_out(rows, fraction=fraction, seed=seed, stratify=stratify)
    assert list(again[1].ids) == list(held.ids)


def test_a_sample_keeps_the_order_and_depends_on_the_seed_alone():
    rows = rows_with(["a"] * 100)
    some = sample(rows, 10, seed=1)
    assert [int(i) for i in some.ids] == sorted(int(i) for i in some.ids)
    assert (
        list(some.ids) == list(sample(rows, 10, seed=1).ids) != list(sample(rows, 10, seed=2).ids)
    )
    assert sample(rows, 100, seed=1) is rows
    assert list(first_rows(rows, 3).ids) == ["0", "1", "2"]
    assert first_rows(rows, 100) is rows


def test_the_draws_are_the_same_everywhere():
    """Recorded: another library version or machine must not deal out other rows."""
    rows_of_two_labels = rows_with(["a", "b"] * 20)
    rows_of_one_label = rows_with(["a"] * 40)

    _, held_out, _ = hold_out(rows_of_two_labels, fraction=0.1, seed=42, stratify=True)
    drawn = sample(rows_of_one_label, 4, seed=42)

    assert list(held_out.ids) == ["8", "27", "35", "38"]
    assert list(drawn.ids) == ["8", "11", "34", "38"]


def test_hashes_tell_values_types_and_columns_apart():
    different = [
        rows_with(["1", "2"]),
        rows_with([1, 2]),
        rows_with([1.0, 2.0]),
        Rows("train", {"text": ["text 0", "text 1"]}, ["0", "1"], "f"),
        Rows("train", {"text": ["text 0", "text 1"], "pair": ["1", "2"]}, ["0", "1"], "f"),
    ]
    assert len({content_hash(rows) for rows in different}) == len(different)
    same = Rows(
        "test",
        {"text": ["text 0", "text 1"], "label": [1, 2], "other": [0, 0]},
        ["x", "y"],
        "g",
        [5, 9],
    )
    assert content_hash(same) == content_hash(rows_with([1, 2]))


def test_joined_splits_have_the_columns_that_any_of_them_has() -> None:
    first_rows = Rows("train", {"text": ["a", "b"], "label": ["x", "y"]}, ["0", "1"], "f")
    others = Rows("train", {"text": ["c"], "topic": ["sport"]}, ["0"], "f")

    rows = joined([first_rows, others])

    assert {name: list(values) for name, values in rows.columns.items()} == {
        "text": ["a", "b", "c"],
        "label": ["x", "y", None],
        "topic": [None, None, "sport"],
    }
    assert list(rows.ids) == ["0", "1", "2"]


def test_many_joined_rows_stay_packed() -> None:
    n_rows = MANY_ROWS // 2 + 1
    texts = column_of(f"text {i}" for i in range(n_rows))
    rows = Rows("train", {"text": texts}, numbered_ids(n_rows), "f")
    without_topic = Rows("train", {"text": texts, "topic": ["sport"] * n_rows}, rows.ids, "f")

    both = joined([rows, without_topic])

    assert all(is_packed(values) for values in both.columns.values())
    assert both.columns["topic"][n_rows - 1 : n_rows + 1] == [None, "sport"]
