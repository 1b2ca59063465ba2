"""The document of a sweep, the content of sweep.json, from its plan and the results of its runs.

The document holds nothing that differs between two equal sweeps, except under `performance`: a
sweep that was stopped and continued has the same one as an undisturbed sweep.
"""

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from bertctl.errors import BertctlError
from bertctl.reporting.summary import figure
from bertctl.run_documents.metrics_document import Choice
from bertctl.run_documents.sweep_document import (
    ChosenSetting,
    Comparison,
    HalvingSteps,
    NoComparison,
    RunCounts,
    RunRow,
    SeedScore,
    SettingRow,
    SweepDocument,
    SweepMetric,
    SweepTimes,
    TestScore,
)
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.sweeps.best_setting import (
    ALPHA,
    SettingComparison,
    best_score,
    compare_settings,
    expect,
    is_whole,
    ranked,
)
from bertctl.sweeps.expected import expected_best
from bertctl.sweeps.halving import full_steps
from bertctl.sweeps.notes import footnotes
from bertctl.sweeps.plan import SweepPlan
from bertctl.sweeps.results import CellResult, Score, SettingScores, by_setting, count_states
from bertctl.sweeps.setting_text import setting_text
from bertctl.words import count

_FOLDERS = re.compile(r"(?<![\w.~/])(?!//)~?/(?:[^\s:;,'\"()]+/)+")
"""Folders of an absolute path in a message, such as `/home/me/` in `/home/me/a.txt`."""


def describe(
    plan: SweepPlan, cells: Sequence[CellResult], *, test_split: bool = False
) -> SweepDocument:
    """Returns the document of a sweep.

    Args:
        plan: Plan of the sweep.
        cells: Results of its runs, as `read_cells` gives them.
        test_split: see `conclude`.
    """
    setting_scores = by_setting(plan, cells)
    by_choice = ranked(plan, setting_scores, by=plan.choose)
    values = list(chain.from_iterable(setting.reached for setting in setting_scores))
    chosen = _chosen(plan, by_choice, len(values))
    if chosen is not None:
        chosen = chosen.model_copy(update=_expected(plan, setting_scores))
    document = SweepDocument(
        schema_number=SCHEMA,
        name=plan.name,
        task=plan.task,
        model=Path(plan.recipe["model"]["name"]).name,
        primary=SweepMetric.model_validate(plan.primary.model_dump()),
        baseline=plan.baseline.get(plan.primary.name),
        axes=plan.axes,
        seeds=plan.seeds,
        folds=plan.folds,
        shard=None if plan.shard is None else list(plan.shard),
        counts=RunCounts(runs=len(cells), scores=len(values), **count_states(cells)),
        settings=[_setting(plan, setting) for setting in ranked(plan, setting_scores)],
        scores=[
            _score(score)
            for score in chain.from_iterable(setting.scores for setting in setting_scores)
        ],
        runs=[_run(cell) for cell in cells],
        halving=_halving(plan, cells),
        chosen=chosen,
        selected_on={"setting": Choice(split=plan.primary.split, of=len(plan.settings))},
        comparison=_comparison(plan, by_choice),
        expected_best=expected_best(values, higher_is_better=plan.primary.higher_is_better),
        test=_test(plan, cells, chosen) if test_split else None,
        notes=[],
        performance=_times(setting_scores, cells),
    )
    return document.model_copy(update={"notes": footnotes(document)})


def _times(setting_scores: Sequence[SettingScores], cells: Sequence[CellResult]) -> SweepTimes:
    """Returns the computing time of the sweep, of each setting and of each run, in seconds.

    A setting's time is None if none of its runs has one.
    """
    settings: dict[str, float | None] = {}
    for setting in setting_scores:
        seconds = setting.seconds
        if seconds is None:
            settings[str(setting.index)] = None
        else:
            settings[str(setting.index)] = round(seconds, 3)
    return SweepTimes(
        seconds=round(sum(cell.seconds for cell in cells), 3),
        settings=settings,
        runs={cell.name: round(cell.seconds, 3) for cell in cells},
    )


def _setting(plan: SweepPlan, scores: SettingScores) -> SettingRow:
    """Returns a setting's entry in sweep.json: mean, spread, best seed, and runs by state."""
    best = best_score(plan, scores)
    # Runs that are done have no field of their own: `n` counts the scores.
    counts = {
        state: number for state, number in count_states(scores.cells).items() if state != "done"
    }
    return SettingRow(
        setting=scores.index,
        values=dict(scores.values),
        mean=scores.mean,
        deviation=scores.deviation,
        min=min(scores.reached, default=None),
        max=max(scores.reached, default=None),
        n=len(scores.reached),
        best_seed=None if best is None else best.seed,
        **counts,
        # Halving trains one run per setting, so the first cell is the only one.
        rung_value=scores.cells[0].rung_value if scores.cells else None,
        step=scores.cells[0].step if scores.cells else None,
    )


def _score(score: Score) -> SeedScore:
    """Returns the entry in sweep.json of one setting and seed."""
    return SeedScore(
        setting=score.setting,
        seed=score.seed,
        state=score.state,
        value=score.value,
        how=score.how,
        runs=[cell.name for cell in score.cells],
    )


def _run(cell: CellResult) -> RunRow:
    """Returns a run's entry in sweep.json, with the reason if it did not end well."""
    has_ended_badly = cell.state in ("failed", "diverged", "collapsed", "stopped")
    message = ""
    if has_ended_badly:
        # sweep.json is passed on, so it has no paths of this machine.
        message = _FOLDERS.sub("", cell.message)
    row = RunRow(
        run=cell.name,
        setting=cell.setting,
        seed=cell.seed,
        fold=cell.fold,
        state=cell.state,
        value=cell.value,
        message=message,
    )
    if cell.step is None:
        return row
    # Successive halving has stopped the run at this step, with this score.
    return row.model_copy(update={"step": cell.step, "rung_value": cell.rung_value})


def _halving(plan: SweepPlan, cells: Sequence[CellResult]) -> HalvingSteps | None:
    """Returns the rungs of successive halving, its steps and the steps of the full grid.

    The result is None without halving.
    """
    if not plan.rungs:
        return None
    n_steps = 0
    for cell in cells:
        if cell.step is None:  # trained to its end
            n_steps += plan.rungs[cell.name][-1]
        else:
            n_steps += cell.step
    return HalvingSteps(rungs=plan.rungs, steps=n_steps, full_steps=full_steps(plan))


def _chosen(plan: SweepPlan, order: Sequence[SettingScores], n_scores: int) -> ChosenSetting | None:
    """Returns the entry in sweep.json of the chosen setting; None if no setting has a score.

    It has the setting's scores and the run that the sweep recommends. What to expect of a new seed
    is filled in later (`_expected`).

    Args:
        plan: Plan of the sweep.
        order: All settings, the chosen one first.
        n_scores: Number of scores, of all settings and seeds, among which the best one was chosen.
    """
    setting = order[0]
    best = best_score(plan, setting)
    if setting.mean is None or best is None or best.value is None:
        return None
    cell = best.cells[0]  # with folds, the run of the first fold is recommended
    is_trained = is_whole(best)  # a run that was stopped early is not recommended
    return ChosenSetting(
        by=plan.choose,
        of=n_scores,
        setting=setting.index,
        values=dict(setting.values),
        mean=setting.mean,
        deviation=setting.deviation,
        n=len(setting.reached),
        run=cell.name if is_trained else None,
        run_value=cell.value if is_trained else None,
        seed=best.seed,
        fold=cell.fold,
        value=best.value,
        sentence=_choice_text(plan, setting, best.value, n_scores),
        expected=None,
        run_expected=None,
        not_corrected="",
    )


def _choice_text(plan: SweepPlan, setting: SettingScores, best_value: float, n_scores: int) -> str:
    """Returns the sentence on the chosen setting, with the score that it was chosen by.

    `learning_rate 2e-05: f1 on validation 0.8123 ± 0.0040, mean over 5 seeds`

    Args:
        plan: Plan of the sweep.
        setting: The chosen setting, which has a mean.
        best_value: Score of its best run.
        n_scores: Number of scores among which the best one was chosen.
    """
    words = setting_text(setting.values, plan.axes)
    if setting.deviation is None:
        spread = ""
    else:
        spread = f" ± {figure(setting.deviation)}"
    mean = f"{figure(setting.mean)}{spread}, mean over {count(len(setting.reached), 'seed')}"
    if plan.choose == "best-run":
        best = f"{figure(best_value)}, the best of {count(n_scores, 'run')}"
        return f"{words}: {plan.primary} {best}; its setting: {mean}"
    return f"{words}: {plan.primary} {mean}"


def _expected(plan: SweepPlan, settings: Sequence[SettingScores]) -> dict[str, Any]:
    """Returns the fields of the chosen setting that say what to expect of it.

    `expected` is the score of a new seed, and `run_expected` the score of the best run on new
    examples. Both are corrected for the luck of the setting that is chosen as the best of several.
    Both are None if they can't be computed, and `not_corrected` then has the reason.
    """
    try:
        new_seed, best_run = expect(plan, settings)
    except BertctlError as error:
        return {
            "expected": None,
            "run_expected": None,
            "not_corrected": _FOLDERS.sub("", error.message),
        }
    return {"expected": new_seed, "run_expected": best_run, "not_corrected": ""}


def _comparison(plan: SweepPlan, order: Sequence[SettingScores]) -> Comparison | NoComparison:
    """Returns the comparison of the two best settings, or why they are not compared.

    Args:
        plan: Plan of the sweep.
        order: All settings, the chosen one first.
    """
    scored = [setting for setting in order if setting.mean is not None]
    if len(scored) < 2:
        if len(order) < 2:
            return _not_compared("there is one setting only")
        return _not_compared("fewer than two settings have a score")
    first, second = scored[:2]
    try:
        comparison = compare_settings(plan, first, second)
    except BertctlError as error:
        reason = _not_compared(_FOLDERS.sub("", error.message))
        return reason.model_copy(update={"first": first.index, "second": second.index})
    names = [setting_text(setting.values, plan.axes) for setting in scored[:2]]
    return Comparison(
        first=first.index,
        second=second.index,
        seeds=list(comparison.seeds),
        difference=comparison.difference.value,
        low=comparison.difference.low,
        high=comparison.difference.high,
        p=comparison.difference.p,
        n=comparison.difference.n,
        method=comparison.difference.method,
        clusters=comparison.difference.clusters,
        of=len(scored),
        verdict=comparison.verdict,
        sentence=_verdict(plan, comparison, names, len(scored)),
    )


def _not_compared(reason: str) -> NoComparison:
    """Returns the entry in sweep.json for settings that are not compared."""
    return NoComparison(
        verdict="not compared",
        sentence=f"the first two settings are not compared: {reason}",
    )


def _verdict(
    plan: SweepPlan, comparison: SettingComparison, names: Sequence[str], n_settings: int
) -> str:
    """Returns the sentence on whether the first setting is better than the second.

    `learning_rate 2e-05 is better than learning_rate 1e-04 (+0.0210, 95 % +0.0100 to +0.0320, ...)`

    Args:
        plan: Plan of the sweep.
        comparison: Comparison of the two settings.
        names: Texts of the two settings, as `setting_text` gives them.
        n_settings: Number of settings that have a score.
    """
    difference = comparison.difference
    digits = (
        f"{difference.value:+.4f}, 95 % {difference.low:+.4f} to {difference.high:+.4f}, p "
        f"{difference.p:.2g}"
    )
    if (difference.value > 0) == plan.primary.higher_is_better:
        better = "better"
    else:
        better = "worse"
    sentence = f"{names[0]} is {better} than {names[1]}"
    if comparison.verdict == "undecided":
        sentence = f"{names[0]} and {names[1]} are not significantly different"
        if difference.p < ALPHA:  # undecided all the same, because there is only one seed
            sentence += ", which takes two seeds"
    elif plan.choose == "best-run":
        sentence = f"the best run of {names[0]} is {better} than that of {names[1]}"

    if plan.choose == "best-run":
        compared = "the best run of each"
    else:
        seeds = count(len(comparison.seeds), "seed")
        compared = f"the mean over {seeds} of each"
    if n_settings > 2:
        compared += f", the first two of {n_settings} settings"
    sentence += f" ({digits}; {difference.method}, {count(difference.n, 'example')}, {compared})"
    if comparison.left_out:
        left_out = count(len(comparison.left_out), "score")
        verb = "is" if len(comparison.left_out) == 1 else "are"
        sentence += f"; {left_out} without predictions in both settings {verb} left out"
    return sentence


def _test(
    plan: SweepPlan, cells: Sequence[CellResult], chosen: ChosenSetting | None
) -> list[TestScore]:
    """Returns the chosen run's scores on test splits, as its metrics.json has them.

    There are none if no run was chosen, or if it was not scored on a test split.
    """
    if chosen is None:
        return []
    runs = [RunFolder(cell.path) for cell in cells if cell.name == chosen.run]  # one or none
    name = plan.primary.name
    scores = []
    for run in runs:
        for split, by_name in run.read_metrics().metrics.items():
            if split.startswith("test") and name in by_name:
                metric = by_name[name].as_json()
                scores.append(
                    TestScore(
                        run=run.path.name,
                        split=split,
                        metric=name,
                        **metric,
                    )
                )
    return scores
