"""Which runs of a sweep go on at a rung, by numbers alone."""

from collections.abc import Sequence

import pytest

from bertctl.config.load import load_recipe
from bertctl.sweeps.grid import axes_around, settings_around
from bertctl.sweeps.halving import (
    RungScore,
    climb,
    full_steps,
    most_steps,
    rung_steps,
    standard_error,
)
from bertctl.sweeps.plan import PrimaryMetric, SweepPlan

LENGTHS = [60, 120] * 6
"""Steps of 12 runs."""


def _plan(
    lengths: Sequence[int] = LENGTHS, *, n_examples: int = 10_000, higher_is_better: bool = True
) -> SweepPlan:
    rungs = {f"run-{i}": [steps // 6, steps // 2, steps] for i, steps in enumerate(lengths)}
    metric = PrimaryMetric(split="validation", name="accuracy", higher_is_better=higher_is_better)
    return SweepPlan(
        name="made",
        recipe={},
        primary=metric,
        settings=[],
        seeds=[],
        rungs=rungs,
        n_examples=n_examples,
    )


def _scores(plan: SweepPlan, rung: int, values: Sequence[float]) -> dict[str, dict[int, RungScore]]:
    """Scores of all runs after one rung, counted from 0."""
    scores = {}
    for name, value in zip(plan.rungs, values, strict=True):
        step = plan.rungs[name][rung]
        scores[name] = {step: RungScore(value, 1.0)}
    return scores


def test_all_runs_are_to_reach_the_first_rung() -> None:
    plan = _plan()

    rungs = climb(plan, {}, (), ())

    assert [rung.number for rung in rungs] == [1]
    assert rungs[0].waiting == tuple(plan.rungs)
    assert rungs[0].stopped == ()


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_the_best_third_goes_on(higher_is_better: bool) -> None:
    plan = _plan(higher_is_better=higher_is_better)
    sign = 1 if higher_is_better else -1
    values = [0.5 + sign * i / 100 for i in range(12)]

    rungs = climb(plan, _scores(plan, 0, values), (), ())

    assert rungs[0].promoted == ("run-11", "run-10", "run-9", "run-8")
    assert len(rungs[0].stopped) == 8
    assert rungs[1].waiting == rungs[0].promoted


def test_of_equal_scores_the_lower_loss_goes_on_then_the_shorter_run() -> None:
    plan = _plan([60, 120, 60])
    losses = {"run-0": 0.9, "run-1": 0.7, "run-2": 0.7}
    scores = {name: {plan.rungs[name][0]: RungScore(0.5, loss)} for name, loss in losses.items()}

    first = climb(plan, scores, (), ())[0]

    assert first.promoted == ("run-2",)


def test_runs_near_the_cut_go_on_while_there_are_steps_for_them() -> None:
    short = _plan([60] * 12, n_examples=100)
    values = [0.80, 0.79, 0.78, 0.77, 0.76, 0.75, 0.74, 0.73, 0.3, 0.3, 0.3, 0.3]

    promoted = climb(short, _scores(short, 0, values), (), ())[0].promoted
    many_examples = short.model_copy(update={"n_examples": 1_000_000})
    promoted_without_doubt = climb(many_examples, _scores(short, 0, values), (), ())[0].promoted

    assert promoted[:4] == promoted_without_doubt == ("run-0", "run-1", "run-2", "run-3")
    assert most_steps(short) <= 0.37 * full_steps(short)
    assert set(promoted) <= {f"run-{i}" for i in range(8)}


def test_a_lost_run_gives_its_place_to_the_next() -> None:
    plan = _plan()
    values = [0.9 - i / 100 for i in range(12)]
    scores = _scores(plan, 0, values)

    rungs = climb(plan, scores, (), lost={"run-1", "run-2"})

    assert rungs[0].promoted == ("run-0", "run-1", "run-2", "run-3", "run-4", "run-5")
    assert rungs[1].waiting == ("run-0", "run-3", "run-4", "run-5")


def test_a_ladder_that_was_climbed_is_read_again_as_it_was() -> None:
    plan = _plan()
    scores = _scores(plan, 0, [0.9 - i / 100 for i in range(12)])
    for name, value in (("run-0", 0.8), ("run-1", 0.95), ("run-2", 0.94), ("run-3", 0.7)):
        scores[name][plan.rungs[name][1]] = RungScore(value, 1.0)

    before = climb(plan, scores, (), ())
    after = climb(plan, scores, {"run-1", "run-2"}, ())

    assert before[-1].waiting == ("run-1", "run-2")
    assert after[-1].waiting == ()
    assert [rung.promoted for rung in before] == [rung.promoted for rung in after]


def test_the_default_grid_takes_little_more_than_a_third_of_the_steps_at_most() -> None:
    plan = _plan()

    assert most_steps(plan) / full_steps(plan) < 0.45


def test_a_standard_error_is_that_of_a_share() -> None:
    assert standard_error(0.5, 100) == pytest.approx(0.05)
    assert standard_error(2.3, 100) == 0.0


def test_rungs_are_evaluations_of_the_run() -> None:
    assert rung_steps(60, between=10) == [10, 30, 60]
    assert rung_steps(30, between=10) == [10, 20, 30]
    assert rung_steps(10, between=10) == [10, 10, 10]
    assert rung_steps(60, between=4) == [12, 32, 60]


def test_settings_lie_around_the_chosen_values() -> None:
    recipe = load_recipe("text-classification")
    resolved = recipe.with_fields("optimizer", learning_rate=1e-4, layer_decay=0.9).with_fields(
        "training", epochs=6
    )

    settings = settings_around(resolved, axes_around(recipe))

    assert len(settings) == 12
    assert {setting["optimizer.learning_rate"] for setting in settings} == {3e-5, 1e-4, 3e-4}
    assert {setting["optimizer.layer_decay"] for setting in settings} == {0.9, 1.0}
    assert {setting["training.epochs"] for setting in settings} == {6, 12}


def test_given_values_are_not_varied() -> None:
    recipe = load_recipe(
        "text-classification", sets=["optimizer.learning_rate=5e-5", "training.max_steps=100"]
    )

    assert axes_around(recipe) == ["optimizer.layer_decay"]
    assert axes_around(load_recipe("sst2")) == []
