"""Which setting a sweep chooses, and whether the first two differ at all.

The setting with the best mean over its seeds on the selection split is chosen; with `best-run` the
setting of the best single run. One whose runs have all collapsed is chosen only where all others
have too. Ties go to the setting with fewer epochs, then to the earlier one of the plan.

The first two settings are compared on the same examples, with seeds and examples both as samples of
others (`two_way_difference`): equal settings are called different in at most 6 % of sweeps, however
far their seeds lie apart. From four seeds on, the two runs of a seed that begin with the same head
and see the same batches are compared with each other (`paired_difference`): where they end alike,
the interval is up to five times as short. With one seed per setting nothing is said of settings.
Where the best run chooses, the two best runs are compared.

Scores of a setting are a table, examples down and seeds across, whose mean is the score:
`Contributions.linear_parts` of each run. Letters: G examples (or clusters, or blocks of many
examples), S seeds, R draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from scipy.special import stdtr, stdtrit

from bertctl.arrays import Floats
from bertctl.errors import UnavailableError
from bertctl.metrics.clusters import number_of
from bertctl.metrics.contributions import Contributions
from bertctl.metrics.paired import Difference
from bertctl.metrics.statistics import CONFIDENCE, SAME
from bertctl.reporting.runs import aligned
from bertctl.run_documents.sweep_document import Verdict
from bertctl.sweeps.plan import Choose, SweepPlan
from bertctl.sweeps.results import CellResult, Score, SettingScores, read_lines, score_lines
from bertctl.tasks.answers import Line

ALPHA = 0.05
_FEWEST_PAIRED = 4
"""Seeds from which runs of equal seeds are compared in pairs. The spread of 2 or 3 differences is
hardly known: up to 10 % of equal settings would be called different."""

_START_AND_ORDER = ("model.", "data.", "task", "training.batch_size")
"""Fields, or their sections, with which equal seeds give another initial head or other batches."""

_DRAWS = 1_000
_SEED = 0  # of PCG64: the same sweep says the same


@dataclass(frozen=True)
class SettingComparison:
    """Comparison of the first setting with the second.

    Attributes:
        seeds: those that were compared: in both settings, with predictions.
        difference: first minus second.
        verdict: `different` where p is below 0.05, else `undecided`.
        left_out: scores that have no predictions to compare.
    """

    seeds: tuple[int, ...]
    difference: Difference
    verdict: Verdict
    left_out: tuple[Score, ...]


def ranked(
    plan: SweepPlan, settings: Sequence[SettingScores], *, by: Choose = "mean"
) -> list[SettingScores]:
    """Returns the settings, the best one first; by their mean or by their best score.

    Settings whose runs have all collapsed come after all others: one answer to everything can score
    well where one label is frequent. Those without any value come last, of them first those that
    were stopped at the later rung, the best score there first.
    """
    return sorted(settings, key=lambda setting: _sort_key(plan, setting, by))


def _sort_key(
    plan: SweepPlan, setting: SettingScores, by: Choose
) -> tuple[bool, bool, float, float, float, int]:
    """Returns the key that puts the best setting first; the smaller of two keys is the better.

    `plan.sign` times a metric is smaller for the better value. Of equal scores, fewer epochs come
    first, then the setting that was planned first.
    """
    best = best_score(plan, setting)
    if by == "mean" or best is None:
        value = setting.mean
    else:
        value = best.value
    has_collapsed = best is not None and best.state == "collapsed"
    stopped_at = 0.0
    if value is None:
        # Without a score, the later rung counts as better, then the best score at that rung.
        stopped_at = -max((_rung_share(plan, cell) for cell in setting.cells), default=0.0)
        signed_value = min(
            (plan.sign * (cell.rung_value or 0.0) for cell in setting.cells), default=0.0
        )
    else:
        signed_value = plan.sign * value
    epochs = float(setting.values.get("training.epochs", 0))
    return value is None, has_collapsed, stopped_at, signed_value, epochs, setting.index


def _rung_share(plan: SweepPlan, cell: CellResult) -> float:
    """Returns the number of the rung where a run was stopped; 0 where it was not."""
    if cell.step is None:
        return 0.0
    return 1.0 + plan.rungs[cell.name].index(cell.step)


def best_score(plan: SweepPlan, setting: SettingScores) -> Score | None:
    """Returns the best score of a setting.

    It is chosen among the seeds that went well, else among those trained to their end, else among
    all.
    """
    valued = [score for score in setting.scores if score.value is not None]
    succeeded = [score for score in valued if score.state == "done"]
    completed = [score for score in valued if is_whole(score)]
    return min(
        succeeded or completed or valued,
        key=lambda score: plan.sign * (score.value or 0.0),
        default=None,
    )


def is_whole(score: Score) -> bool:
    """Returns whether its runs were trained to their end.

    Their recipe alone then gives the same. A collapsed run that was not stopped early was.
    """
    return all(cell.state in ("done", "collapsed") and not cell.message for cell in score.cells)


def best_cell(plan: SweepPlan, settings: Sequence[SettingScores]) -> CellResult | None:
    """Returns the run that the sweep recommends.

    Of the chosen setting it is that with its best score, of folds the first. It is None when no run
    has been trained to its end.
    """
    score = best_score(plan, ranked(plan, settings, by=plan.choose)[0])
    if score is not None and is_whole(score):
        return score.cells[0]
    return None


def compare_settings(
    plan: SweepPlan, first: SettingScores, second: SettingScores
) -> SettingComparison:
    """Compares two settings example by example, over the seeds that both have.

    With `best-run` it compares their best runs alone.

    Raises:
        BertctlError: no seed with predictions in both, other examples, or predictions that don't
            give the metric.
    """
    ours = _answered(first)
    theirs = _answered(second)
    if plan.choose == "best-run":
        pairs = [(best_score(plan, first), best_score(plan, second))]
    else:
        pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    score_pairs = [
        (a, b)
        for a, b in pairs
        if a is not None and b is not None and a.seed in ours and b.seed in theirs
    ]
    if not score_pairs:
        raise UnavailableError("the two have no seed with predictions in common")

    is_paired = len(score_pairs) >= _FEWEST_PAIRED and _start_alike(first, second)
    difference = _difference(plan, score_pairs, is_paired=is_paired)
    # A single seed shows nothing of how a mean varies over seeds. A best run is one run anyway.
    has_enough_seeds = len(score_pairs) > 1 or plan.choose == "best-run"
    is_significant = difference.p < ALPHA and has_enough_seeds

    left_out: tuple[Score, ...] = ()
    if plan.choose != "best-run":
        paired_ids = {id(score) for score in chain.from_iterable(score_pairs)}
        all_scores = (*first.scores, *second.scores)
        left_out = tuple(score for score in all_scores if id(score) not in paired_ids)
    return SettingComparison(
        seeds=tuple(score.seed for score, _ in score_pairs),
        difference=difference,
        verdict="different" if is_significant else "undecided",
        left_out=left_out,
    )


def _answered(setting: SettingScores) -> dict[int, Score]:
    """Returns the scores that stand on answers, by seed."""
    return {
        score.seed: score
        for score in setting.scores
        if score.value is not None and score.state != "diverged"
    }


def _start_alike(first: SettingScores, second: SettingScores) -> bool:
    """Returns whether runs of equal seeds start alike in both settings.

    They begin with the same head and see the same batches.
    """
    fields = first.values.keys() | second.values.keys()
    differing = [field for field in fields if first.values.get(field) != second.values.get(field)]
    return not any(field.startswith(_START_AND_ORDER) for field in differing)


def _difference(
    plan: SweepPlan, score_pairs: Sequence[tuple[Score, Score]], *, is_paired: bool
) -> Difference:
    """Returns the primary metric of the first setting minus the second's, with interval and p.

    Args:
        plan: Of the sweep.
        score_pairs: The first setting's score and the second's, for each seed.
        is_paired: Whether runs of equal seeds are compared with each other; otherwise the seeds of
            the two settings count as independent.
    """
    # First and second setting take turns: even positions are the first's, odd ones the second's.
    scored = contributions_of(plan, list(chain.from_iterable(score_pairs)))
    if len(score_pairs) == 1:
        return scored[0].difference(scored[1])
    if is_paired:
        compute_difference = paired_difference
    else:
        compute_difference = two_way_difference
    return compute_difference(
        _linear_table(scored[0::2]),
        _linear_table(scored[1::2]),
        n=len(scored[0].rows),
        clusters=number_of(scored[0].clusters),
    )


def _linear_table(scored: Sequence[Contributions]) -> Floats:
    """Returns (G, S): what each of G examples or clusters adds to each of S scores."""
    return np.stack([contributions.linear_parts() for contributions in scored], axis=1)


def contributions_of(plan: SweepPlan, scores: Sequence[Score]) -> list[Contributions]:
    """Returns what each example adds to each score, the examples in the same order.

    Raises:
        BertctlError: predictions that are not there, are of other examples, or of a single example
            or cluster.
    """
    lines: list[list[Line]] = []
    for score in scores:
        read = read_lines(plan, score.cells)
        names = (scores[0].cells[0].name, score.cells[0].name)
        lines.append(aligned(lines[0], read, names=names) if lines else read)
    contributions = [score_lines(plan, line) for line in lines]
    if (
        not contributions
        or (number_of(contributions[0].clusters) or len(contributions[0].rows)) < 2
    ):
        raise UnavailableError("no run has answers to two unrelated examples")
    return contributions


def expect(plan: SweepPlan, settings: Sequence[SettingScores]) -> tuple[float, float]:
    """Returns what to expect of the choice among these settings.

    It leaves out the luck of having been the best of many: of the chosen setting with another seed,
    and of its best run, on other examples. Diverged runs count with what they are worth.

    Raises:
        BertctlError: a score without predictions, or with others.
    """
    valued = [setting for setting in settings if setting.mean is not None]
    answered = list(chain.from_iterable(_answered(setting).values() for setting in valued))
    contributions = contributions_of(plan, answered)
    by_score = {
        id(score): contribution.linear_parts()
        for score, contribution in zip(answered, contributions, strict=True)
    }
    if len({values.size for values in by_score.values()}) != 1:
        raise UnavailableError("the runs were scored on different numbers of examples")
    # What a diverged run is worth moves with the examples as the others' scores do: a constant
    # would be chosen wherever hard ones are drawn, and be scored on the easy ones.
    usual = np.mean(list(by_score.values()), axis=0)
    tables = []
    for setting in valued:
        columns = [
            by_score.get(id(score), usual - usual.mean() + score.value)
            for score in setting.scores
            if score.value is not None
        ]
        tables.append(np.stack(columns, axis=1))
    return scores_of_the_choice(tables, sign=-plan.sign, by_best_run=plan.choose == "best-run")


def two_way_difference(a_GS: Floats, b_GS: Floats, *, n: int, clusters: int | None) -> Difference:
    """Returns the difference of two settings, a's mean less b's.

    It is for other seeds and other examples than these.

    The variance over examples (both settings' answers to one together) and that over seeds are
    added; what is in both, the noise of single answers, is taken off once. Student's distribution
    with Satterthwaite's degrees of freedom (1946) gives interval and p. Drawing seeds again (Sellam
    et al. 2022, "The MultiBERTs") needs more of them.

    Args:
        a_GS: at least two seeds.
        b_GS: the same examples.
        n: examples.
        clusters: G where examples hang together.
    """
    # A score is modelled as mean + example + seed + noise. With their variances Ve, Vs and Vn:
    #     of_examples estimates Ve / G + Vn / (G S)    of both settings together
    #     of_seeds    estimates Vs / S + Vn / (G S)    of each setting
    #     _noise      estimates          Vn / (G S)    of each setting
    # The difference has the variance Ve / G + Vs / S + Vn / (G S): the noise, which is in both
    # estimates, is taken off once. What is left of the seeds' variance may not become negative.
    of_examples = float((a_GS.mean(axis=1) - b_GS.mean(axis=1)).var(ddof=1)) / len(a_GS)
    tables = (a_GS, b_GS)
    of_seeds = [float(table.mean(axis=0).var(ddof=1)) / table.shape[1] for table in tables]
    variance = of_examples + max(0.0, sum(of_seeds) - sum(map(_noise, tables)))
    value = float(a_GS.mean() - b_GS.mean())
    if variance <= SAME**2:
        return _difference_without_spread(value, n=n, clusters=clusters)
    # Satterthwaite 1946: degrees = variance^2 / sum of (part^2 / degrees of the part).
    uncertain = [of_examples**2 / (len(a_GS) - 1)]
    uncertain += [
        of_seed**2 / (table.shape[1] - 1) for of_seed, table in zip(of_seeds, tables, strict=True)
    ]
    # What is taken off must not leave fewer degrees than each part has.
    freedom = max(variance**2 / sum(uncertain), min(*a_GS.shape, *b_GS.shape) - 1)
    return _difference_by_student(
        value,
        variance,
        freedom,
        method="seeds and examples, Satterthwaite",
        n=n,
        clusters=clusters,
    )


def paired_difference(a_GS: Floats, b_GS: Floats, *, n: int, clusters: int | None) -> Difference:
    """Returns the difference of two settings like `two_way_difference`.

    It is computed from the differences of equal seeds.

    What a seed does to both settings alike is in none of them. Their variance over examples and
    that over seeds are added, and the noise of single answers, which is in both, is left in twice:
    of a few seeds it is not known well.

    Args:
        a_GS: at least two seeds.
        b_GS: the same examples and seeds.
        n: examples.
        clusters: G where examples hang together.
    """
    differences_GS = a_GS - b_GS
    G, S = differences_GS.shape
    value = float(differences_GS.mean())
    of_examples = float(differences_GS.mean(axis=1).var(ddof=1)) / G
    of_seeds = float(differences_GS.mean(axis=0).var(ddof=1)) / S
    variance = of_examples + of_seeds
    if variance <= SAME**2:
        return _difference_without_spread(value, n=n, clusters=clusters)

    # Satterthwaite 1946, as above.
    uncertainty = of_examples**2 / (G - 1) + of_seeds**2 / (S - 1)
    degrees = variance**2 / uncertainty
    return _difference_by_student(
        value,
        variance,
        degrees,
        method="paired seeds and examples, Satterthwaite",
        n=n,
        clusters=clusters,
    )


def _difference_without_spread(value: float, *, n: int, clusters: int | None) -> Difference:
    """Returns a difference that is the same in every example and with every seed."""
    return Difference(
        value=value,
        low=value,
        high=value,
        p=float(abs(value) <= SAME),
        n=n,
        method="no spread",
        changed=None,
        clusters=clusters,
    )


def _difference_by_student(
    value: float,
    variance: float,
    degrees: float,
    *,
    method: str,
    n: int,
    clusters: int | None,
) -> Difference:
    """Returns a difference with the interval and the p value of Student's distribution.

    Args:
        value: The difference.
        variance: Of it.
        degrees: Degrees of freedom.
        method: How the variance and the degrees were found.
        n: Examples.
        clusters: Groups of examples that hang together; None where there are none.
    """
    error = math.sqrt(variance)
    half = float(stdtrit(degrees, (1 + CONFIDENCE) / 2)) * error
    return Difference(
        value=value,
        low=value - half,
        high=value + half,
        p=2 * float(stdtr(degrees, -abs(value) / error)),
        n=n,
        method=method,
        changed=None,
        clusters=clusters,
    )


def _noise(table_GS: Floats) -> float:
    """Returns the variance of the table's mean that is neither of its examples nor of its seeds."""
    # The residuals of the two-way layout, cell - row mean - column mean + grand mean, have
    # (G - 1) (S - 1) degrees of freedom. The mean of G S cells has 1 / (G S) of their variance.
    G, S = table_GS.shape
    of_examples = table_GS.mean(axis=1, keepdims=True)
    of_seeds = table_GS.mean(axis=0)
    residuals = table_GS - of_examples - of_seeds + table_GS.mean()
    return float((residuals**2).sum() / ((G - 1) * (S - 1) * G * S))


def scores_of_the_choice(
    settings: Sequence[Floats], *, sign: float, by_best_run: bool
) -> tuple[float, float]:
    """Returns what to expect of the choice.

    It is the score of the chosen setting with a new seed, and of its best run on new examples.

    The best of many was lucky too. So the choice is made again and again, on examples drawn with
    replacement and without one of the seeds, and scored on the examples that were not drawn, with
    that seed (or for the best run, as it is): Tsamardinos, Greasidou and Borboudakis 2018,
    "Bootstrapping the out-of-sample predictions for efficient and accurate cross-validation". Of a
    single seed its luck stays in the score.

    Args:
        settings: (G, S) of each.
        sign: 1 where higher is better, else -1.
        by_best_run: whether the setting of the best single run is chosen, not that of the best
            mean.
    """
    # `drawn` counts how often a draw holds an example: (R, G). A draw that holds all of them leaves
    # none to be scored on.
    G = len(settings[0])
    score_function = np.max if by_best_run else np.mean
    drawn = (
        np.random.Generator(np.random.PCG64(_SEED))
        .multinomial(G, np.full(G, 1 / G), size=_DRAWS)
        .astype(float)
    )
    drawn = drawn[(drawn == 0).any(axis=1)]
    is_left_out = (drawn == 0).astype(np.float64)
    draws = np.arange(len(drawn))
    # einsum, not a matrix product: the same bits with any number of BLAS threads.
    scores_drawn = [sign * np.einsum("rg,gs->rs", drawn, table) for table in settings]
    scores_left_out = []
    for table in settings:
        n_left_out = is_left_out.sum(axis=1, keepdims=True)
        scores = np.einsum("rg,gs->rs", is_left_out, table) / n_left_out
        # About the mean that they are drawn around: where nothing was chosen, nothing is corrected.
        scores_left_out.append(scores - scores.mean(axis=0) + table.mean(axis=0))

    new_seed = []
    for number in range(max(table.shape[1] for table in settings)):
        other_seeds = [_without_seed(scores, number) for scores in scores_drawn]
        chosen = np.argmax([score_function(scores, axis=1) for scores in other_seeds], axis=0)
        of_seed = [scores[:, number % scores.shape[1]] for scores in scores_left_out]
        new_seed.append(np.stack(of_seed)[chosen, draws])

    chosen = np.argmax([score_function(scores, axis=1) for scores in scores_drawn], axis=0)
    best = [
        left_out[draws, scores.argmax(axis=1)]
        for left_out, scores in zip(scores_left_out, scores_drawn, strict=True)
    ]
    return float(np.mean(new_seed)), float(np.stack(best)[chosen, draws].mean())


def _without_seed(scores: Floats, number: int) -> Floats:
    """Returns the scores of a setting without those of one seed, unless it is the only one.

    Args:
        scores: (R, S) by draw and seed.
        number: Of the seed; settings with fewer seeds begin again at their first.
    """
    n_seeds = scores.shape[1]
    if n_seeds == 1:
        return scores
    return np.delete(scores, number % n_seeds, axis=1)
