"""A time limit.

How many steps fit, on simulated machines, and what the learning rate does meanwhile.
"""

from collections.abc import Callable

import numpy as np
import pytest
from torch import nn

from bertctl.baselines.sampling import countable_rows
from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import OptimizerSection, TrainingSection
from bertctl.errors import UsageError
from bertctl.training.loop.optim import LinearRates, build_optimizer, build_schedule, change_steps
from bertctl.training.run_costs import RunCosts
from bertctl.training.step_planner import Planner
from bertctl.training.time_limit import TimeLimitOutcome, longer_training
from bertctl.training.time_shares import HEAD_START_SHARE, ReadingPace, time_reading
from bertctl.words import seconds_in

BATCHES = 150
EPOCHS = 3
START = 4.0
SAVING = 0.3
CLOSING = 1.0


def simulate(
    limit: float, step_seconds: float, speed: Callable[[float], float]
) -> tuple[float, int]:
    """Returns when a simulated run ends, and its steps.

    Batches of unlike size, evaluations, a slow first step.
    """
    rng = np.random.default_rng(0)
    scoring_work = 0.03 * BATCHES
    costs = RunCosts(
        scoring_work=1.3 * scoring_work, saving_seconds=SAVING, closing_seconds=CLOSING
    )
    planner = Planner(limit, whole_steps=EPOCHS * BATCHES, evaluate_every=BATCHES, costs=costs)
    planned = EPOCHS * BATCHES
    now = START
    step = 0
    next_check = 0
    work = np.ones(BATCHES)
    while step < planned:
        position = step % BATCHES
        if position == 0:
            work = rng.uniform(0.5, 1.5, BATCHES)
            planner.begin_epoch(work)
        seconds = step_seconds * work[position] * speed(now) * rng.lognormal(0.0, 0.1)
        if step == 0:
            seconds *= 5.0
        now += seconds
        step += 1
        planner.note_step(seconds, position + 1)
        if step >= next_check:
            planned = planner.fitting_steps(step, planned, now)
            next_check = planner.next_check(step, planned)
        if step % BATCHES == 0 or step == planned:
            scoring = step_seconds * scoring_work * speed(now)
            now += scoring + SAVING
            costs.note_evaluation(scoring + SAVING, scoring, planner.pace())
    return now + CLOSING, step


@pytest.mark.parametrize("limit", [30.0, 120.0, 1200.0])
@pytest.mark.parametrize(
    ("tolerance", "speed"),
    [
        (1.0, lambda _: 1.0),
        (1.0, lambda share: 1.0 if share < 0.5 else 1.7),
        (1.0, lambda share: 1.7 if share < 0.5 else 1.0),
        (1.5, lambda share: 1.7 if int(8 * share) % 2 else 1.0),
    ],
    ids=["steady", "slows down", "speeds up", "comes and goes"],
)
def test_a_run_ends_within_five_percent_of_its_limit(
    limit: float, tolerance: float, speed: Callable[[float], float]
) -> None:
    step_seconds = limit / (1.8 * BATCHES)

    end, steps = simulate(limit, step_seconds, lambda now: speed(now / limit))

    assert abs(end - limit) < tolerance * 0.05 * limit
    assert steps < EPOCHS * BATCHES


@pytest.mark.parametrize(
    ("seconds_of_token", "tokens_of_row", "n_outputs"),
    [(2e-5, 12, 2), (1e-4, 128, 5), (1e-4, 12, 77), (1e-3, 256, 2), (5e-5, 12, 200)],
    ids=["short rows", "long rows", "77 labels", "a large encoder", "200 labels"],
)
@pytest.mark.parametrize("limit", [30.0, 120.0, 1200.0])
def test_what_comes_before_the_training_keeps_to_its_share(
    limit: float, seconds_of_token: float, tokens_of_row: int, n_outputs: int
) -> None:
    pace = ReadingPace(seconds_of_token)
    seconds = HEAD_START_SHARE * limit

    rows = pace.affordable_rows(seconds, tokens_of_row=tokens_of_row, n_outputs=n_outputs)

    reading = pace.seconds_of(rows * tokens_of_row)
    assert reading <= seconds
    one_more = pace.affordable_rows(2 * seconds, tokens_of_row=tokens_of_row, n_outputs=n_outputs)
    assert one_more == pytest.approx(2 * rows, abs=1), "twice the time pays for twice the rows"


def test_a_slow_machine_reads_and_fits_fewer_rows() -> None:
    alone = ReadingPace.of(tokens=1_000, seconds=0.1, cpu_seconds=0.1)
    shared = ReadingPace.of(tokens=1_000, seconds=0.4, cpu_seconds=0.1)

    rows_alone = alone.affordable_rows(6.0, tokens_of_row=20, n_outputs=48)
    rows_shared = shared.affordable_rows(6.0, tokens_of_row=20, n_outputs=48)

    assert shared.slowdown == pytest.approx(4.0)
    assert rows_shared == pytest.approx(rows_alone / 4, abs=1)


def test_many_threads_are_no_reason_to_fit_more() -> None:
    pace = ReadingPace.of(tokens=1_000, seconds=0.1, cpu_seconds=0.8)

    assert pace.slowdown == 1.0


def test_a_second_timing_is_made_only_where_the_first_was_quick() -> None:
    lengths = np.full(100, 10)
    read: list[int] = []

    time_reading(lambda some: read.append(len(some)), np.arange(100), lengths, seconds=1e6)
    time_reading(lambda some: read.append(len(some)), np.arange(100), lengths, seconds=0.0)

    assert read == [8, 32, 8]


def test_tfidf_counts_fewer_rows_where_texts_are_long_or_labels_many() -> None:
    short = countable_rows(1.0, characters_of_row=50.0, n_outputs=2)
    long = countable_rows(1.0, characters_of_row=1_000.0, n_outputs=2)
    many_labels = countable_rows(1.0, characters_of_row=50.0, n_outputs=77)

    assert short == pytest.approx(20 * long, rel=0.01)
    assert 0 < many_labels < short


def test_a_run_that_fits_is_not_shortened() -> None:
    end, steps = simulate(1200.0, 1.0, lambda _: 1.0)

    assert steps == EPOCHS * BATCHES
    assert end < 1200.0


def test_a_limit_below_the_first_step_leaves_one_step() -> None:
    _, steps = simulate(3.0, 1.0, lambda _: 1.0)

    assert steps == 1


def test_a_resumed_run_knows_its_pace_before_its_first_step() -> None:
    costs = RunCosts(scoring_work=5.0, closing_seconds=CLOSING)
    planner = Planner(100.0, whole_steps=EPOCHS * BATCHES, evaluate_every=BATCHES, costs=costs)
    planner.begin_epoch(np.full(BATCHES, 2.0))

    planner.resume(seconds=40.0, steps=20)

    assert planner.pace() == pytest.approx(1.0)
    assert planner.fitting_steps(20, planned=EPOCHS * BATCHES, used=50.0) == EPOCHS * BATCHES, (
        "no step was seen"
    )


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(
    "changes", [[(4, 60)], [(4, 400)], [(50, 70)], [(4, 60), (30, 200), (150, 151)], [(4, 5)]]
)
def test_the_rate_goes_on_from_where_it_stands_and_ends_at_zero(
    fraction: float, changes: list[tuple[int, int]]
) -> None:
    rates = LinearRates(OptimizerSection(warmup_fraction=fraction), 100)
    for at, steps in changes:
        before = rates(at)
        is_in_warmup = any(rates(step) < rates(step + 1) for step in range(at))
        rates.change(at=at, steps=steps)
        assert rates(at) == pytest.approx(before) or is_in_warmup

    last = changes[-1][1]
    shares = [rates(step) for step in range(last + 1)]

    assert rates(last) == 0.0
    assert 0.0 < rates(last - 1) <= 1.0
    assert max(shares) <= 1.0


def test_a_warmup_that_was_planned_too_long_reaches_the_peak() -> None:
    rates = LinearRates(OptimizerSection(warmup_fraction=0.1), 10_000)

    rates.change(at=4, steps=40)

    assert rates(4) == pytest.approx(0.004)
    assert rates(7) == pytest.approx(1.0)
    assert rates(40) == 0.0


def test_a_schedule_follows_its_changes_and_unchanged_it_is_the_paper_s() -> None:
    settings = OptimizerSection(warmup_fraction=0.1)
    schedule = build_schedule(build_optimizer(nn.Linear(2, 2), settings), settings, steps=50)
    share = schedule.lr_lambdas[0]
    unchanged = [share(step) for step in range(51)]

    change_steps(schedule, at=20, steps=30)

    assert unchanged == [step / 5 if step < 5 else (50 - step) / 45 for step in range(51)]
    assert [share(step) for step in range(20)] == unchanged[:20]
    assert share(25) == pytest.approx(unchanged[20] / 2)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("20m", 1200.0), ("1.5h", 5400.0), ("0.5m", 30.0)]
)
def test_limits_that_are_understood(text: str, seconds: float) -> None:
    recipe = load_recipe("text-classification", options={"training.time_limit": text})

    assert seconds_in(recipe.training.time_limit or "") == seconds


@pytest.mark.parametrize(
    "text", ["20", "-5m", "0s", "0.0h", "forever", "20 m", "20min", "m", "1h30m", ""]
)
def test_limits_that_are_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="a text such as 30s, 20m, 2h"):
        load_recipe("text-classification", options={"training.time_limit": text})


def outcome(*, is_cut: bool) -> TimeLimitOutcome:
    return TimeLimitOutcome(
        limit="20m",
        steps=512,
        whole_steps=1098,
        epochs=1.4,
        whole_epochs=3,
        whole_seconds=3000.0,
        used_seconds=1190.0,
        plan_changes=((4, 500), (64, 512)),
        is_cut=is_cut,
    )


def test_a_run_that_was_cut_says_how_far_it_came() -> None:
    assert outcome(is_cut=True).sentence == (
        "stopped at 1.4 of 3 epochs by the time limit of 20m (step 512 of 1,098); the whole run "
        "would take about 50 min"
    )


@pytest.mark.parametrize(
    ("training", "is_cut", "option"),
    [
        (TrainingSection(), False, "training.epochs=6"),
        (TrainingSection(), True, "training.time_limit=55m"),
        (TrainingSection(max_steps=100), False, "training.max_steps=200"),
    ],
)
def test_the_option_to_train_longer(training: TrainingSection, is_cut: bool, option: str) -> None:
    assert longer_training(training, outcome(is_cut=is_cut)) == option
