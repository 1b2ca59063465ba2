"""Batches of like lengths: each example once, an order fixed by seed and epoch, little padding."""

import numpy as np
import pytest

from bertctl.runtime.batching import evaluation_plan, padding_share, training_plan

LENGTHS = np.random.default_rng(1).integers(3, 60, size=1003).astype(np.int64)


@pytest.mark.parametrize("group", [True, False])
def test_every_example_comes_once_an_epoch(group: bool) -> None:
    plan = training_plan(LENGTHS, 32, seed=7, epoch=0, group_by_length=group)
    assert sorted(np.concatenate(plan)) == list(range(1003))
    assert sorted(map(len, plan)) == [11, *[32] * 31]


def test_seed_and_epoch_fix_the_order() -> None:
    first = training_plan(LENGTHS, 32, seed=7, epoch=0)
    again = training_plan(LENGTHS, 32, seed=7, epoch=0)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    for other in (
        training_plan(LENGTHS, 32, seed=7, epoch=1),
        training_plan(LENGTHS, 32, seed=8, epoch=0),
    ):
        assert np.concatenate(first).tolist() != np.concatenate(other).tolist()


def test_like_lengths_leave_a_fraction_of_the_padding() -> None:
    random = padding_share(
        LENGTHS, training_plan(LENGTHS, 32, seed=7, epoch=0, group_by_length=False)
    )
    grouped = padding_share(LENGTHS, training_plan(LENGTHS, 32, seed=7, epoch=0))
    assert random > 0.4
    assert grouped < 0.05


def test_batches_are_not_in_order_of_length() -> None:
    plan = training_plan(LENGTHS, 32, seed=7, epoch=0)
    longest = [int(LENGTHS[batch].max()) for batch in plan]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_evaluation_begins_with_the_longest() -> None:
    plan = evaluation_plan(LENGTHS, 64)
    assert sorted(np.concatenate(plan)) == list(range(1003))
    assert LENGTHS[plan[0]].max() == LENGTHS.max()
    assert LENGTHS[plan[0]].min() >= LENGTHS[plan[-1]].max()


def test_padding_share_by_hand() -> None:
    lengths = np.array([2, 4, 3, 3])
    assert padding_share(lengths, [np.array([0, 1]), np.array([2, 3])]) == pytest.approx(2 / 14)
    assert padding_share(lengths, []) == 0.0
