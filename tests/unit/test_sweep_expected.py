"""The expected best of n runs against every possible draw, and against a simulation."""

import itertools

import numpy as np
import pytest

from bertctl.sweeps.expected import expected_best

VALUES = [0.61, 0.84, 0.79, 0.84]


@pytest.mark.parametrize("higher", [True, False])
def test_it_is_the_mean_over_all_draws_with_replacement(higher: bool) -> None:
    best = max if higher else min
    for entry in expected_best(VALUES, higher_is_better=higher):
        draws = [best(draw) for draw in itertools.product(VALUES, repeat=entry.runs)]
        assert entry.value == pytest.approx(np.mean(draws), abs=1e-14)
        assert entry.deviation == pytest.approx(np.std(draws), abs=1e-14)


def test_it_agrees_with_a_simulation() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0.8, 0.05, 30).tolist()
    actual = {entry.runs: entry for entry in expected_best(values)}
    for n in (1, 5, 30):
        drawn = rng.choice(values, (200_000, n)).max(axis=1)
        assert actual[n].value == pytest.approx(drawn.mean(), abs=5e-4)
        assert actual[n].deviation == pytest.approx(drawn.std(), abs=5e-4)


def test_one_run_is_the_mean_and_more_are_better() -> None:
    actual = expected_best(VALUES)
    assert [entry.runs for entry in actual] == [1, 2, 3, 4]
    assert actual[0].value == pytest.approx(np.mean(VALUES))
    assert [entry.value for entry in actual] == sorted(entry.value for entry in actual)
    assert all(entry.value < max(VALUES) for entry in actual)


def test_the_order_of_the_runs_does_not_matter() -> None:
    assert expected_best(VALUES) == expected_best(VALUES[::-1])


def test_equal_runs_one_run_and_none() -> None:
    equal = expected_best([0.7, 0.7, 0.7])
    assert len(equal) == 3
    for entry in equal:
        assert entry.value == 0.7
        assert entry.deviation == 0.0
    [single] = expected_best([0.7])
    assert single.runs == 1
    assert single.value == 0.7
    assert expected_best([]) == []
    counts = [entry.runs for entry in expected_best(VALUES)]
    assert counts == list(range(1, len(VALUES) + 1))
