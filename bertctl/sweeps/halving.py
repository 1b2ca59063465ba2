"""Successive halving: all runs train to a first rung, the best third goes on, and so on to the end.

Jamieson & Talwalkar 2016, "Non-stochastic Best Arm Identification"; Li et al. 2018, "Hyperband". A
rung is an evaluation that the run makes anyway, and the learning rate is that of the whole run: a
run that is promoted goes on from its checkpoint and ends with the same bytes as an unbroken one.

A decision rests on the plan and on the scores in the runs' histories alone, so a sweep that was
interrupted decides as an undisturbed one.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bertctl.sweeps.plan import SweepPlan
from bertctl.words import count

RUNG_SHARES = (1 / 6, 1 / 2)
"""Share of its steps after which a run waits for the others; the next evaluation is the rung."""

REDUCTION = 3
"""One in so many runs of a rung goes on, rounded up."""

BUDGET = 1 / 3
"""Share of the steps of the full grid that runs near the cut may fill up."""


@dataclass(frozen=True)
class RungScore:
    """What a run has reached at a rung.

    Attributes:
        value: Primary metric.
        loss: Loss on the same rows. It decides between equal values, such as those of runs that
            still answer one thing to everything.
    """

    value: float
    loss: float


Scores = Mapping[str, Mapping[int, RungScore]]
"""Run -> step -> scores of the evaluation after it."""


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder, as far as its runs have come.

    Attributes:
        number: From 1; the last rung is the end of the runs.
        runs: Names of the runs that are to reach it.
        waiting: Those of them that still have to be trained to it.
        scores: Scores of the runs that have reached it and could go on; empty at the last rung.
        promoted: Names of the runs that go on, the best first; empty while some are waiting.
    """

    number: int
    runs: tuple[str, ...]
    waiting: tuple[str, ...]
    scores: Mapping[str, RungScore]
    promoted: tuple[str, ...] = ()

    @property
    def stopped(self) -> tuple[str, ...]:
        """Returns the names of the runs that were stopped at this rung."""
        if self.waiting:
            return ()
        return tuple(name for name in self.scores if name not in self.promoted)


def rung_steps(steps: int, between: int) -> list[int]:
    """Returns the steps at which a run waits, and its last step.

    Args:
        steps: Steps of the run to its end.
        between: Steps from one evaluation to the next.

    Example:
        >>> rung_steps(60, 10)
        [10, 30, 60]
    """
    rungs = []
    for share in RUNG_SHARES:
        # A rung is at the first evaluation behind its share of the steps. Without the rounding, a
        # share that is exactly at an evaluation might come out as 3.0000000001 evaluations.
        evaluations = math.ceil(round(share * steps / between, 6))
        rungs.append(min(evaluations * between, steps))
    return [*rungs, steps]


def climb(
    plan: SweepPlan, scores: Scores, over: Collection[str], lost: Collection[str]
) -> list[Rung]:
    """Returns the rungs up to the first one that some runs still have to reach, or the last.

    The last rung is the end of the runs, where nothing is decided: it has no scores.

    Args:
        plan: Plan of a sweep with rungs.
        scores: Scores of all evaluations, from the runs' histories.
        over: Runs that have ended well: at their last step, or early by themselves.
        lost: Runs that diverged, collapsed, or failed and are not tried again. For each of them
            another run goes on.
    """
    runs = tuple(plan.rungs)  # all take part in the first rung, then those that were promoted
    rungs: list[Rung] = []
    spent = 0
    for index in range(len(RUNG_SHARES)):
        spent += _steps_to_rung(plan, runs, index)
        rung_scores: dict[str, RungScore] = {}
        for name in runs:
            rung_score = scores.get(name, {}).get(plan.rungs[name][index])
            if rung_score is not None:
                rung_scores[name] = rung_score
        # A run that is over or lost may have ended before the rung: nobody waits for it.
        unscored = [name for name in runs if name not in rung_scores]
        waiting = tuple(name for name in unscored if name not in over and name not in lost)
        promoted: tuple[str, ...] = ()
        if not waiting:
            promoted = promote(
                plan,
                index,
                scores=rung_scores,
                lost=lost,
                n_runs=len(runs),
                spent=spent,
            )
        rungs.append(
            Rung(
                number=index + 1,
                runs=runs,
                waiting=waiting,
                scores=rung_scores,
                promoted=promoted,
            )
        )
        if waiting:
            return rungs
        runs = promoted

    waiting = tuple(name for name in runs if name not in over and name not in lost)
    return [*rungs, Rung(len(RUNG_SHARES) + 1, runs, waiting, {})]


def promote(
    plan: SweepPlan,
    index: int,
    scores: Mapping[str, RungScore],
    lost: Collection[str],
    n_runs: int,
    spent: int,
) -> tuple[str, ...]:
    """Returns the names of the runs that go on from a rung, the best first.

    These are the best third. Runs that score within a standard error of the last of them go on too,
    as long as the steps of the sweep stay within the budget. Ties go to the run with the lower
    loss, then with fewer steps, then to the earlier one of the plan.

    A promoted run may fail later. Then this function is called again with the run in `lost`: the
    run still counts as promoted, and the next best one goes on in addition.

    Args:
        plan: Plan of the sweep.
        index: Number of the rung, from 0.
        scores: Scores of the runs that can go on.
        lost: Runs that have failed, also those that failed after this rung.
        n_runs: Number of runs that were to reach the rung, whether they did or failed.
        spent: Steps of the sweep up to this rung, all runs together.
    """
    position = {name: number for number, name in enumerate(plan.rungs)}

    def sort_key(name: str) -> tuple[float, float, int, int]:
        """Returns a smaller key for the better run; `plan.sign` makes the best value the lowest."""
        score = scores[name]
        return plan.sign * score.value, score.loss, plan.rungs[name][-1], position[name]

    ordered = sorted(scores, key=sort_key)
    n_open = math.ceil(n_runs / REDUCTION)  # places that are not taken yet
    promoted = []
    for name in ordered:
        if n_open <= 0:
            break
        promoted.append(name)
        if name not in lost:
            n_open -= 1
    if not promoted:
        return ()

    cut = scores[promoted[-1]].value
    tolerance = standard_error(cut, plan.n_examples)
    budget = BUDGET * full_steps(plan)
    for name in ordered[len(promoted) :]:
        is_near = abs(scores[name].value - cut) <= tolerance
        if is_near and spent + _steps_ahead(plan, index, [*promoted, name]) <= budget:
            promoted.append(name)
    return tuple(promoted)


def rung_text(plan: SweepPlan, rung: Rung) -> str:
    """Returns what was decided at a rung, for people."""
    text = f"rung {rung.number}: {count(len(rung.promoted), 'run')} of {len(rung.runs)} continue"
    if rung.promoted:
        # `plan.sign` makes the best score the lowest, and so its negative the worst one.
        worst_promoted = min(rung.promoted, key=lambda name: -plan.sign * rung.scores[name].value)
        text += f", the last with {plan.primary} {rung.scores[worst_promoted].value:.4f}"
    if rung.stopped:
        best_stopped = min(rung.stopped, key=lambda name: plan.sign * rung.scores[name].value)
        text += (
            f"; {count(len(rung.stopped), 'run')} stopped, the best with "
            f"{rung.scores[best_stopped].value:.4f}"
        )
    return text


def standard_error(value: float, n_examples: int) -> float:
    """Returns the standard error of a metric that is a share of the examples, such as an accuracy.

    It is 0 for values outside of 0 to 1, which are no shares, such as a loss.

    Args:
        value: The metric.
        n_examples: Number of examples that it was computed on.
    """
    if n_examples < 1 or not 0.0 <= value <= 1.0:
        return 0.0
    return math.sqrt(value * (1 - value) / n_examples)


def full_steps(plan: SweepPlan) -> int:
    """Returns the steps of the full grid: of all runs to their ends, together."""
    return sum(steps[-1] for steps in plan.rungs.values())


def most_steps(plan: SweepPlan) -> int:
    """Returns the steps that all runs of successive halving take together at most.

    Usually this is the budget. It is more if training all runs to the first rung, and the longest
    third of them further, takes more.
    """
    budget = math.floor(BUDGET * full_steps(plan))

    longest = sorted(plan.rungs, key=lambda name: plan.rungs[name][-1], reverse=True)
    n_promoted = math.ceil(len(longest) / REDUCTION)
    up_to_first_rung = _steps_to_rung(plan, longest, 0)
    above_first_rung = _steps_ahead(plan, 0, longest[:n_promoted])
    return max(budget, up_to_first_rung + above_first_rung)


def _steps_to_rung(plan: SweepPlan, runs: Sequence[str], index: int) -> int:
    """Returns the steps that some runs take together from the rung before to a rung.

    Args:
        plan: Plan of the sweep.
        runs: Names of the runs.
        index: Number of the rung, from 0. To the first rung the runs come from step 0.
    """
    steps = 0
    for name in runs:
        if index:
            below = plan.rungs[name][index - 1]
        else:
            below = 0
        steps += plan.rungs[name][index] - below
    return steps


def _steps_ahead(plan: SweepPlan, index: int, promoted: Sequence[str]) -> int:
    """Returns the most steps that these runs can take together if they go on from a rung.

    Which of them go on from the rungs above is not known yet, so the longest third is counted.

    Args:
        plan: Plan of the sweep.
        index: Number of the rung, from 0.
        promoted: Names of the runs.
    """
    longest = sorted(promoted, key=lambda name: plan.rungs[name][-1], reverse=True)
    steps = 0
    for rung in range(index + 1, len(RUNG_SHARES) + 1):
        steps += _steps_to_rung(plan, longest, rung)
        longest = longest[: math.ceil(len(longest) / REDUCTION)]
    return steps
