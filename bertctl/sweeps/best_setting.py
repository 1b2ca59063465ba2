"""Which setting a sweep chooses, and whether the first two differ at all.

The setting with the best mean over its seeds on the selection split is chosen; with `best-run` the setting of the best
single run. Ties go to the setting with fewer epochs, then to the earlier one of the plan.

The first two settings are compared on the same examples: examples are drawn with replacement, a setting's score is the
mean over its seeds (the seeds stay as they are), both settings' answers to an example are drawn together, and the p
value comes from exchanging them (`metrics.paired`). Both were picked on these very examples, the first as the best of
all: p is rather too small than too large.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import UnavailableError
from bertctl.metrics.contributions import Contributions
from bertctl.metrics.paired import MANY, RESAMPLES, Difference
from bertctl.metrics.statistics import Statistic
from bertctl.reporting.runs import aligned
from bertctl.sweeps.plan import Choose, SweepPlan
from bertctl.sweeps.results import CellResult, Score, SettingScores, read_lines, score_lines
from bertctl.tasks.answers import Line

ALPHA = 0.05


@dataclass(frozen=True)
class SettingComparison:
    """Holds the comparison of the first setting with the second.

    Attributes:
        seeds: those that were compared: in both settings, with predictions.
        difference: first minus second.
        verdict: `different` where p is below 0.05, else `undecided`.
        left_out: scores that have no predictions to compare.
    """

    seeds: tuple[int, ...]
    difference: Difference
    verdict: str
    left_out: tuple[Score, ...]


def ranked(plan: SweepPlan, found: Sequence[SettingScores], *, by: Choose = "mean") -> list[SettingScores]:
    """Returns the settings, the best one first, those without any value last; by their mean or by their best score."""

    def place(one: SettingScores) -> tuple[bool, float, float, int]:
        best = best_score(plan, one)
        value = one.mean if by == "mean" or best is None else best.value
        epochs = one.values.get("training.epochs", 0)
        return value is None, 0.0 if value is None else plan.sign * value, float(epochs), one.index

    return sorted(found, key=place)


def best_score(plan: SweepPlan, one: SettingScores) -> Score | None:
    """Returns the best score of a setting: among the seeds that went well, else among those trained to their end, else
    among all. Ties go to the first seed.
    """
    valued = [score for score in one.scores if score.value is not None]
    well = [score for score in valued if score.state == "done"]
    whole = [score for score in valued if is_whole(score)]
    return min(well or whole or valued, key=lambda score: plan.sign * (score.value or 0.0), default=None)


def is_whole(score: Score) -> bool:
    """Returns whether its runs were trained to their end, so that their recipe alone gives the same. A collapsed run
    that was not stopped early was.
    """
    return all(cell.state in ("done", "collapsed") and not cell.message for cell in score.cells)


def best_cell(plan: SweepPlan, found: Sequence[SettingScores]) -> CellResult | None:
    """Returns the run that the sweep recommends: of the chosen setting that with its best score, of folds the first;
    None when no run has been trained to its end.
    """
    score = best_score(plan, ranked(plan, found, by=plan.choose)[0])
    return score.cells[0] if score is not None and is_whole(score) else None


def compare_settings(plan: SweepPlan, first: SettingScores, second: SettingScores) -> SettingComparison:
    """Compares two settings example by example, over the seeds that both have; with `best-run` their best runs alone.

    Raises:
        BertctlError: no seed with predictions in both, other examples, or predictions that don't give the metric.
    """
    ours, theirs = _answered(first), _answered(second)
    if plan.choose == "best-run":
        pairs = [(best_score(plan, first), best_score(plan, second))]
    else:
        pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    compared = [(a, b) for a, b in pairs if a is not None and b is not None and a.seed in ours and b.seed in theirs]
    if not compared:
        raise UnavailableError("the two have no seed with predictions in common")
    difference = _difference(plan, compared)
    taken = {id(score) for pair in compared for score in pair}
    left_out = [score for one in (first, second) for score in one.scores if id(score) not in taken]
    return SettingComparison(
        tuple(a.seed for a, _ in compared),
        difference,
        "different" if difference.p < ALPHA else "undecided",
        () if plan.choose == "best-run" else tuple(left_out),
    )


def _answered(one: SettingScores) -> dict[int, Score]:
    """Returns the scores that stand on answers, by seed."""
    return {score.seed: score for score in one.scores if score.value is not None and score.state != "diverged"}


def _difference(plan: SweepPlan, compared: Sequence[tuple[Score, Score]]) -> Difference:
    lines: list[list[Line]] = []
    for score in (score for pair in compared for score in pair):
        read = read_lines(plan, score.cells)
        names = (compared[0][0].cells[0].name, score.cells[0].name)
        lines.append(aligned(lines[0], read, names=names) if lines else read)
    scored = [score_lines(plan, one) for one in lines]
    many = len(scored) // 2 * len(lines[0]) > MANY  # each resample takes as many metrics as there are seeds
    return averaged(scored[0::2]).difference(averaged(scored[1::2]), resamples=RESAMPLES // 2 if many else RESAMPLES)


def averaged(scored: Sequence[Contributions]) -> Contributions:
    """Returns the mean of a metric over several models on the same examples, again as what each example adds to it.

    Args:
        scored: one per model, at least one, with the same metric and the same examples in the same order.
    """
    first, k = scored[0], len(scored)
    if k == 1:
        return first
    if first.family in ("share", "mean"):  # a mean of means is the mean over the examples of what they add on average
        rows = np.mean([one.rows for one in scored], axis=0)
        return replace(first, rows=rows, family="mean" if first.family == "mean" else "fraction")
    S = first.rows.shape[1]

    def make(rows_MS: NDArray[np.float64]) -> Statistic:
        blocks = [first.make(rows_MS[:, S * i : S * (i + 1)]) for i in range(k)]
        return lambda counts: np.mean([block(counts) for block in blocks], axis=0)

    possible = np.hstack([np.tile(first.possible[:, :S], k), np.tile(first.possible[:, S:], k)])
    rows, unseen = np.hstack([one.rows for one in scored]), np.empty((0, S * k))
    return replace(first, rows=rows, family="statistic", make=make, unseen=unseen, possible=possible, kinds="apart")
