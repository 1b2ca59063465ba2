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
from bertctl.metrics.resampling import SAME
from bertctl.metrics.statistics import CONFIDENCE
from bertctl.reporting.runs import aligned
from bertctl.run_documents.sweep_document import Verdict
from bertctl.sweeps.plan import Choose, SweepPlan
from bertctl.sweeps.results import CellResult, Score, SettingScores, read_lines, score_lines
from bertctl.tasks.answers import Line

ALPHA = 0.05
"""A difference with a p value below this is called significant."""

_FEWEST_PAIRED = 4
"""Seeds from which runs of equal seeds are compared in pairs. The spread of 2 or 3 differences is
hardly known: up to 10 % of equal settings would be called different."""

_START_AND_ORDER = ("model.", "data.", "task", "training.batch_size")
"""Fields, or their sections, with which equal seeds give another initial head or other batches."""

_DRAWS = 1_000
"""Draws of the bootstrap that corrects the best score for the choice."""

_SEED = 0  # of the draws: the same sweep always gives the same figures


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
    well where one label is frequent. Settings without any score come last. Among these, one that
    successive halving stopped at a later rung comes first, then the one with the better score at
    that rung.

    Args:
        plan: Plan of the sweep.
        settings: Scores of each setting, in any order.
        by: `mean` over the seeds, or `best-run`.
    """
    return sorted(settings, key=lambda setting: _sort_key(plan, setting, by))


def _sort_key(
    plan: SweepPlan, setting: SettingScores, by: Choose
) -> tuple[bool, bool, float, float, float, int]:
    """Returns the key by which `ranked` sorts a setting: the better one has the smaller key.

    `plan.sign` times a metric is smaller for the better value. Of equal scores, fewer epochs come
    first, then the setting that was planned first.

    Args:
        plan: Plan of the sweep.
        setting: The setting with its scores.
        by: See `ranked`.
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
        rungs = [_rung_number(plan, cell) for cell in setting.cells]
        rung_values = [plan.sign * (cell.rung_value or 0.0) for cell in setting.cells]
        stopped_at = -max(rungs, default=0.0)
        signed_value = min(rung_values, default=0.0)
    else:
        signed_value = plan.sign * value
    epochs = float(setting.values.get("training.epochs", 0))
    return value is None, has_collapsed, stopped_at, signed_value, epochs, setting.index


def _rung_number(plan: SweepPlan, cell: CellResult) -> float:
    """Returns the number, from 1, of the rung where a run was stopped; 0 if it was not stopped."""
    if cell.step is None:
        return 0.0
    return 1.0 + plan.rungs[cell.name].index(cell.step)


def best_score(plan: SweepPlan, setting: SettingScores) -> Score | None:
    """Returns the best score of a setting; None if it has none.

    Scores of runs in the state `done` count first. If the setting has none, scores of other runs
    that were trained to their end count, such as collapsed runs. If it has none of these either,
    all its scores count.
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
    """Returns whether the runs of a score were trained to their end.

    Only such a run can be recommended: `finetune` with its recipe gives the same score again, but
    never stops a run early. A collapsed run that the sweep stopped early has a message.
    """
    return all(cell.state in ("done", "collapsed") and not cell.message for cell in score.cells)


def best_cell(plan: SweepPlan, settings: Sequence[SettingScores]) -> CellResult | None:
    """Returns the run that the sweep recommends: the best run of the chosen setting.

    With folds it is the run of the first fold. It is None if that run was not trained to its end.
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

    Args:
        plan: Plan of the sweep.
        first: The setting whose score is the minuend of the difference.
        second: The other setting.

    Raises:
        BertctlError: no seed with predictions in both, other examples, or predictions that don't
            give the metric.
    """
    score_pairs = _comparable_scores(plan, first, second)
    if not score_pairs:
        raise UnavailableError("the two have no seed with predictions in common")

    # Runs of equal seeds can be compared with each other if their start is the same, and if there
    # are enough of them. Otherwise the seeds of the two settings count as unrelated.
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


def _comparable_scores(
    plan: SweepPlan, first: SettingScores, second: SettingScores
) -> list[tuple[Score, Score]]:
    """Returns the pairs of scores by which two settings are compared.

    There is a pair for each seed with predictions in both settings; with `best-run` only the pair
    of the best runs, if both have predictions.
    """
    first_by_seed = _scores_with_predictions(first)
    second_by_seed = _scores_with_predictions(second)
    if plan.choose == "best-run":
        best_of_first = best_score(plan, first)
        best_of_second = best_score(plan, second)
        if best_of_first is None or best_of_second is None:
            return []
        if best_of_first.seed in first_by_seed and best_of_second.seed in second_by_seed:
            return [(best_of_first, best_of_second)]
        return []
    return [
        (score, second_by_seed[seed])
        for seed, score in first_by_seed.items()
        if seed in second_by_seed
    ]


def _scores_with_predictions(setting: SettingScores) -> dict[int, Score]:
    """Returns the scores of a setting that come from predictions, by seed.

    A diverged run has no predictions: its score is that of the best constant prediction, or the
    worst one of the sweep.
    """
    return {
        score.seed: score
        for score in setting.scores
        if score.value is not None and score.state != "diverged"
    }


def _start_alike(first: SettingScores, second: SettingScores) -> bool:
    """Returns whether runs of equal seeds begin with the same head and see the same batches.

    This holds if the two settings differ in no field that decides head or batches.
    """
    fields = first.values.keys() | second.values.keys()
    differing = [field for field in fields if first.values.get(field) != second.values.get(field)]
    return not any(field.startswith(_START_AND_ORDER) for field in differing)


def _difference(
    plan: SweepPlan, score_pairs: Sequence[tuple[Score, Score]], *, is_paired: bool
) -> Difference:
    """Returns the primary metric of the first setting minus the second's, with interval and p.

    Args:
        plan: Plan of the sweep.
        score_pairs: The first setting's score and the second's, for each seed.
        is_paired: Whether runs of equal seeds are compared with each other; otherwise the seeds of
            the two settings count as independent.
    """
    # All scores in one call, so that their examples have one order. The settings take turns: even
    # positions are the first's, odd ones the second's.
    scored = contributions_of(plan, list(chain.from_iterable(score_pairs)))
    if len(score_pairs) == 1:  # two runs are compared over their examples alone
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
    """Returns for each score what each example adds to it, from the predictions of its runs.

    The examples have the order of the first score in all of them.

    Raises:
        BertctlError: Predictions are missing, are of other examples than the first score's, or are
            of a single example or cluster.
    """
    lines_by_score: list[list[Line]] = []
    for score in scores:
        lines = read_lines(plan, score.cells)
        if lines_by_score:
            run_names = (scores[0].cells[0].name, score.cells[0].name)
            lines = aligned(lines_by_score[0], lines, names=run_names)
        lines_by_score.append(lines)
    contributions = [score_lines(plan, lines) for lines in lines_by_score]

    n_unrelated = 0
    if contributions:
        n_unrelated = number_of(contributions[0].clusters) or len(contributions[0].rows)
    if n_unrelated < 2:
        raise UnavailableError("no run has answers to two unrelated examples")
    return contributions


def expect(plan: SweepPlan, settings: Sequence[SettingScores]) -> tuple[float, float]:
    """Returns the scores to expect of the chosen setting on other examples.

    The first score is to be expected of the setting with a new seed, the second of its best run.
    Both are corrected for the luck of the setting that was the best of many. A diverged run counts
    with the score of the best constant prediction, or else with the worst score of the sweep.

    Args:
        plan: Plan of the sweep.
        settings: Scores of all its settings.

    Raises:
        BertctlError: A run that is not diverged has no predictions, or predictions of other
            examples.
    """
    scored_settings = [setting for setting in settings if setting.mean is not None]
    scores: list[Score] = []
    for setting in scored_settings:
        scores.extend(_scores_with_predictions(setting).values())
    contributions = contributions_of(plan, scores)
    # The parts of a score are what each example (or cluster) adds to it: their mean is the score.
    parts_by_score = {
        id(score): contribution.linear_parts()
        for score, contribution in zip(scores, contributions, strict=True)
    }
    if len({parts.size for parts in parts_by_score.values()}) != 1:
        raise UnavailableError("the runs were scored on different numbers of examples")

    # A diverged run gets parts that vary over the examples like the mean of all runs. If they were
    # constant, it would be chosen wherever hard examples are drawn, and be scored on the easy ones.
    mean_parts = np.mean(list(parts_by_score.values()), axis=0)
    tables = []
    for setting in scored_settings:
        columns = []
        for score in setting.scores:
            if score.value is not None:
                diverged_parts = mean_parts - mean_parts.mean() + score.value
                columns.append(parts_by_score.get(id(score), diverged_parts))
        tables.append(np.stack(columns, axis=1))
    return scores_of_the_choice(tables, sign=-plan.sign, by_best_run=plan.choose == "best-run")


def two_way_difference(a_GS: Floats, b_GS: Floats, *, n: int, clusters: int | None) -> Difference:
    """Returns the mean of setting a minus that of b, with interval and p for the seeds as unpaired.

    The interval is for other seeds and other examples than these. Its variance is that over
    examples (of the difference of both settings) plus that over the seeds of each setting. Both
    contain the noise of single answers, which is subtracted once. Student's distribution with
    Satterthwaite's degrees of freedom (1946) gives interval and p. Drawing seeds again (Sellam et
    al. 2022, "The MultiBERTs") would need more of them.

    Args:
        a_GS: What each of G examples or clusters adds to each of S scores of setting a, S >= 2.
        b_GS: The same for setting b: the same examples, other seeds or the same.
        n: Number of examples.
        clusters: Number of clusters of related examples; None if the examples are unrelated.
    """
    # A score is modelled as mean + example + seed + noise. With their variances Ve, Vs and Vn:
    #     of_examples estimates Ve / G + Vn / (G S)    of both settings together
    #     of_seeds    estimates Vs / S + Vn / (G S)    of each setting
    #     _noise      estimates          Vn / (G S)    of each setting
    # The difference has the variance Ve / G + Vs / S + Vn / (G S): the noise, which is in both
    # estimates, is taken off once. What is left of the seeds' variance may not become negative.
    example_differences = a_GS.mean(axis=1) - b_GS.mean(axis=1)
    of_examples = float(example_differences.var(ddof=1)) / len(a_GS)
    tables = (a_GS, b_GS)
    of_seeds = [float(table.mean(axis=0).var(ddof=1)) / table.shape[1] for table in tables]
    noise = sum(_noise(table) for table in tables)
    variance = of_examples + max(0.0, sum(of_seeds) - noise)
    value = float(a_GS.mean() - b_GS.mean())
    has_no_spread = variance <= SAME**2  # what is left is rounding
    if has_no_spread:
        return _difference_without_spread(value, n=n, clusters=clusters)
    # Satterthwaite 1946: degrees = variance^2 / sum of (part^2 / degrees of the part).
    terms = [of_examples**2 / (len(a_GS) - 1)]
    for of_seed, table in zip(of_seeds, tables, strict=True):
        terms.append(of_seed**2 / (table.shape[1] - 1))
    # As the noise is subtracted, the formula may give too few degrees: the variance is at least as
    # certain as its part with the fewest degrees.
    fewest_degrees = min(*a_GS.shape, *b_GS.shape) - 1
    degrees = max(variance**2 / sum(terms), fewest_degrees)
    return _difference_by_student(
        value,
        variance,
        degrees,
        method="seeds and examples, Satterthwaite",
        n=n,
        clusters=clusters,
    )


def paired_difference(a_GS: Floats, b_GS: Floats, *, n: int, clusters: int | None) -> Difference:
    """Returns the mean of setting a minus that of b, with interval and p from pairs of equal seeds.

    Unlike in `two_way_difference`, what a seed does to both settings alike cancels out. The
    variance of the differences over examples and that over seeds are added. The noise of single
    answers is in both and is not subtracted, as it can't be estimated well from a few seeds: the
    interval is a little too wide.

    Args:
        a_GS: What each of G examples or clusters adds to each of S scores of setting a, S >= 2.
        b_GS: The same for setting b, with the same examples and seeds.
        n: Number of examples.
        clusters: Number of clusters of related examples; None if the examples are unrelated.
    """
    differences_GS = a_GS - b_GS
    G, S = differences_GS.shape
    value = float(differences_GS.mean())
    of_examples = float(differences_GS.mean(axis=1).var(ddof=1)) / G
    of_seeds = float(differences_GS.mean(axis=0).var(ddof=1)) / S
    variance = of_examples + of_seeds
    if variance <= SAME**2:
        return _difference_without_spread(value, n=n, clusters=clusters)

    # Satterthwaite 1946: degrees = variance^2 / sum of (part^2 / degrees of the part).
    degrees = variance**2 / (of_examples**2 / (G - 1) + of_seeds**2 / (S - 1))
    return _difference_by_student(
        value,
        variance,
        degrees,
        method="paired seeds and examples, Satterthwaite",
        n=n,
        clusters=clusters,
    )


def _difference_without_spread(value: float, *, n: int, clusters: int | None) -> Difference:
    """Returns a difference that does not vary: its interval is one value, and its p is 0 or 1."""
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
        variance: Variance of the difference.
        degrees: Degrees of freedom.
        method: How variance and degrees were estimated, for people.
        n: Number of examples.
        clusters: Number of clusters of related examples; None if the examples are unrelated.
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
    """Returns the variance of a table's mean that comes from neither its examples nor its seeds.

    It is the noise of single answers, Vn / (G S) in `two_way_difference`.

    Args:
        table_GS: What each example adds to each seed's score.
    """
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
    """Returns the scores to expect of the chosen setting with a new seed, and of its best run.

    The best of many settings was lucky, so its own score is too high. Instead the choice is
    repeated on examples that are drawn with replacement, and the chosen setting is scored on the
    examples that were not drawn: Tsamardinos, Greasidou and Borboudakis 2018, "Bootstrapping the
    out-of-sample predictions for efficient and accurate cross-validation". For a new seed, one seed
    is left out of the choice, and the setting is scored with that one. If there is only one seed,
    its luck stays in the score.

    Args:
        settings: For each setting a table (G, S): what each of the G examples adds to the score of
            each of the S seeds.
        sign: 1 if higher scores are better, else -1.
        by_best_run: Whether the setting with the best single run is chosen, instead of the one with
            the best mean.
    """
    score_function = np.max if by_best_run else np.mean
    # (R, G): how often each draw has each example, and whether it has left the example out.
    drawn = _bootstrap_draws(n_examples=len(settings[0]))
    is_left_out = (drawn == 0).astype(np.float64)
    draws = np.arange(len(drawn))
    # The scores of each setting, (R, S): of each draw and seed. Sums over the G examples of a draw
    # choose the same setting as means, so they are not divided by G.
    # einsum, not a matrix product: the same bits with any number of BLAS threads.
    scores_drawn = [sign * np.einsum("rg,gs->rs", drawn, table) for table in settings]
    scores_left_out = []
    for table in settings:
        n_left_out = is_left_out.sum(axis=1, keepdims=True)
        scores = np.einsum("rg,gs->rs", is_left_out, table) / n_left_out
        # Scores are shifted so that their mean over all draws is the score on all examples: with
        # a single setting, where nothing was chosen, nothing is corrected.
        scores_left_out.append(scores - scores.mean(axis=0) + table.mean(axis=0))

    # The score with a new seed. Each seed is the new one in turn, and the others choose.
    scores_of_new_seed = []
    n_seeds = max(table.shape[1] for table in settings)
    for number in range(n_seeds):
        other_seeds = [_without_seed(scores, number) for scores in scores_drawn]
        chosen = np.argmax([score_function(scores, axis=1) for scores in other_seeds], axis=0)
        # A setting with fewer seeds begins again at its first seed.
        of_seed = [scores[:, number % scores.shape[1]] for scores in scores_left_out]
        scores_of_new_seed.append(np.stack(of_seed)[chosen, draws])

    # The score of the best run: the run of the chosen setting that scores best on the draw.
    chosen = np.argmax([score_function(scores, axis=1) for scores in scores_drawn], axis=0)
    scores_of_best_run = []
    for left_out, scores in zip(scores_left_out, scores_drawn, strict=True):
        best_seeds = scores.argmax(axis=1)
        scores_of_best_run.append(left_out[draws, best_seeds])
    best_run = np.stack(scores_of_best_run)[chosen, draws]
    return float(np.mean(scores_of_new_seed)), float(best_run.mean())


def _bootstrap_draws(n_examples: int) -> Floats:
    """Returns (R, G) how often each example is in each draw of G examples with replacement.

    A draw that has every example is dropped, as it leaves none to score the choice on.

    Args:
        n_examples: G, the number of examples.
    """
    equal_chances = np.full(n_examples, 1 / n_examples)
    generator = np.random.Generator(np.random.PCG64(_SEED))
    draws: Floats = generator.multinomial(n_examples, equal_chances, size=_DRAWS).astype(float)
    leaves_some_out = (draws == 0).any(axis=1)
    selected: Floats = draws[leaves_some_out]
    return selected


def _without_seed(scores: Floats, number: int) -> Floats:
    """Returns the scores of a setting without those of one seed, unless it is the only one.

    Args:
        scores: (R, S) by draw and seed.
        number: Number of the seed; settings with fewer seeds begin again at their first.
    """
    n_seeds = scores.shape[1]
    if n_seeds == 1:
        return scores
    return np.delete(scores, number % n_seeds, axis=1)
