"""Which setting a sweep chooses, and whether the first two differ at all.

The setting with the best mean over its seeds on the selection split is chosen; with `best-run` the setting of the best
single run. Ties go to the setting with fewer epochs, then to the earlier one of the plan.

The first two settings are compared on the same examples, with seeds and examples both as samples of others
(`seeds_and_examples`): equal settings are called different in at most 6 % of sweeps, however far their seeds lie apart.
With one seed per setting nothing is said of settings. Where the best run chooses, the two best runs are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertctl.errors import UnavailableError
from bertctl.metrics.clusters import number_of
from bertctl.metrics.contributions import Contributions
from bertctl.metrics.paired import Difference
from bertctl.reporting.runs import aligned
from bertctl.sweeps.plan import Choose, SweepPlan
from bertctl.sweeps.results import CellResult, Score, SettingScores, read_lines, score_lines
from bertctl.sweeps.seeds_and_examples import scores_of_the_choice, two_way_difference
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
    told = difference.p < ALPHA and (len(compared) > 1 or plan.choose == "best-run")
    taken = {id(score) for pair in compared for score in pair}
    left_out = [score for one in (first, second) for score in one.scores if id(score) not in taken]
    seeds, verdict = tuple(a.seed for a, _ in compared), "different" if told else "undecided"
    return SettingComparison(seeds, difference, verdict, () if plan.choose == "best-run" else tuple(left_out))


def _answered(one: SettingScores) -> dict[int, Score]:
    """Returns the scores that stand on answers, by seed."""
    return {score.seed: score for score in one.scores if score.value is not None and score.state != "diverged"}


def _difference(plan: SweepPlan, compared: Sequence[tuple[Score, Score]]) -> Difference:
    scored = contributions_of(plan, [score for pair in compared for score in pair])
    if len(compared) == 1:
        return scored[0].difference(scored[1])
    a, b = (np.stack([one.linear_parts() for one in side], axis=1) for side in (scored[0::2], scored[1::2]))
    return two_way_difference(a, b, n=len(scored[0].rows), clusters=number_of(scored[0].clusters))


def contributions_of(plan: SweepPlan, scores: Sequence[Score]) -> list[Contributions]:
    """Returns what each example adds to each score, the examples in the same order.

    Raises:
        BertctlError: predictions that are not there, or are of other examples.
    """
    lines: list[list[Line]] = []
    for score in scores:
        read = read_lines(plan, score.cells)
        names = (scores[0].cells[0].name, score.cells[0].name)
        lines.append(aligned(lines[0], read, names=names) if lines else read)
    return [score_lines(plan, one) for one in lines]


@dataclass(frozen=True)
class Expected:
    """Holds what to expect of the choice, without the luck of having been the best of many.

    Attributes:
        of_new_seed: of the chosen setting with another seed, on other examples.
        of_best_run: of its best run, on other examples.
    """

    of_new_seed: float
    of_best_run: float


def expect(plan: SweepPlan, found: Sequence[SettingScores]) -> Expected:
    """Returns what to expect of the choice among these settings; diverged runs count with what they are worth.

    Raises:
        BertctlError: a score without predictions, or with others.
    """
    valued = [one for one in found if one.mean is not None]
    answered = [score for one in valued for score in _answered(one).values()]
    parts = {id(s): c.linear_parts() for s, c in zip(answered, contributions_of(plan, answered), strict=True)}
    if len({part.size for part in parts.values()}) != 1:
        raise UnavailableError("the runs were scored on different numbers of examples")
    size = next(iter(parts.values())).size
    tables = [
        np.stack([parts.get(id(s), np.full(size, s.value)) for s in one.scores if s.value is not None], axis=1)
        for one in valued
    ]
    return Expected(*scores_of_the_choice(tables, sign=-plan.sign, by_best_run=plan.choose == "best-run"))
