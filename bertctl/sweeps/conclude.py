"""The result of a sweep: one document from its runs.

It is written as sweep.json, sweep.html, best.yaml and pictures.

The document holds nothing that differs between two equal sweeps, except under `performance`: a
sweep that was stopped and went on writes the same one as an undisturbed sweep.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from bertctl.config.dump import dump_recipe
from bertctl.config.load import load_recipe
from bertctl.errors import BertctlError
from bertctl.progress import SILENT, Listener
from bertctl.reporting.escape import one_line
from bertctl.reporting.html import render_html
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
from bertctl.run_folder import SCHEMA, RunFolder, hold
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
from bertctl.sweeps.page import chosen_by, sweep_report
from bertctl.sweeps.pictures import write_pictures
from bertctl.sweeps.plan import CELLS, SweepPlan
from bertctl.sweeps.results import (
    CellResult,
    Score,
    SettingScores,
    by_setting,
    count_states,
    read_cells,
)
from bertctl.sweeps.setting_text import seed_text, setting_text
from bertctl.words import count
from bertctl.writing import write_json, write_text

BEST = "best.yaml"

_FOLDERS = re.compile(r"(?<![\w.~/])(?!//)~?/(?:[^\s:;,'\"()]+/)+")
"""Folders of an absolute path in a message, such as `/home/me/` in `/home/me/a.txt`."""

_NAMED = 3
"""Most runs that a note on failed, diverged or other runs names."""

_WORTH = {
    "collapsed": "one answer to every example, at the end or when it was stopped; counts with its "
    "best score",
    "stopped": "had not the best scores at its rung; not trained to the end, so in no mean "
    "(without `halving=True` all are)",
    "failed": "can't be valued, so it is in no mean",
    "missing": "not there or not finished, so in no mean",
}
"""State of runs -> how they count, for the notes. What diverged runs count with depends on the
sweep (`_notes_on_states`)."""


def conclude(
    folder: Path, *, test_split: bool = False, listener: Listener = SILENT
) -> SweepDocument:
    """Reads all runs of a sweep and writes sweep.json, sweep.html, best.yaml and pictures.

    Args:
        folder: SWEEP, with its plan and whatever runs there are.
        test_split: whether to show the chosen run's score on a test split, if that has been
            computed.
        listener: Receives a warning if there is no best.yaml.

    Returns:
        The content of sweep.json.

    Raises:
        UnavailableError: no sweep there, or the place can't be written.
        DataError: a damaged plan.
    """
    # Shards in one folder conclude one after the other: otherwise one that read fewer runs could
    # overwrite the result of one that read more.
    with hold(folder / ".lock-result", patient=True):
        plan, cells = read_cells(folder)
        document = describe(plan, cells, test_split=test_split)
        write_json(folder / "sweep.json", document.as_json())
        recipe = _write_best(folder, plan, document, listener)
        write_pictures(document, folder)
        write_text(
            folder / "sweep.html", render_html(sweep_report(document, folder, recipe=recipe))
        )
    return document


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
    return document.model_copy(update={"notes": _footnotes(document)})


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
    """Returns the rungs of successive halving, and its steps beside those of the full grid.

    It is None without halving.
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
    cell = best.cells[0]  # the first fold's run stands for the others
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

    `expected` is the score of a new seed, and `run_expected` that of its best run on new examples.
    Both are corrected for the luck of the setting that is chosen as the best of several. Both are
    None if they can't be computed, and `not_corrected` then has the reason.
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


def _write_best(folder: Path, plan: SweepPlan, document: SweepDocument, listener: Listener) -> str:
    """Writes the recipe of the recommended run as best.yaml, and returns the text of the file.

    The text is empty if there is no such run, or if its recipe can't be read, which is a warning.
    """
    chosen = document.chosen
    if chosen is None or chosen.run is None:
        # A best.yaml of an earlier call would look like the result of this one.
        (folder / BEST).unlink(missing_ok=True)
        return ""
    try:
        recipe = load_recipe(str(RunFolder(folder / CELLS / chosen.run).recipe))
    except BertctlError as error:
        listener.warn(f"no {BEST}: {error.message}")
        return ""
    head = "".join(f"# {line}\n" for line in _header(plan, chosen))
    text = head + dump_recipe(recipe, command=f"bertctl finetune {folder / BEST}")
    write_text(folder / BEST, text)
    return text


def _header(plan: SweepPlan, chosen: ChosenSetting) -> Iterator[str]:
    """Yields the lines of the comment in best.yaml: run, seed, choice, and scores to expect."""
    if chosen.fold is None:
        held_out = ""
    else:
        held_out = f", fold {chosen.fold} of {plan.folds} held out"
    if chosen.run_value is None:
        value = ""
    else:
        value = f"; {plan.primary} {figure(chosen.run_value)}"
    seed = seed_text(plan.seeds[chosen.seed])
    yield f"Run {chosen.run} of the sweep '{plan.name}' ({seed}{held_out}){value}."
    yield f"Chosen by {chosen_by(chosen)}: {setting_text(chosen.values, plan.axes)}."
    if chosen.deviation is None:
        spread = ""
    else:
        spread = f" ± {figure(chosen.deviation)}"
    measured = (
        f"{figure(chosen.mean)}{spread} (mean over {count(chosen.n, 'seed')}, on the split "
        "that chose)"
    )
    if chosen.expected is None:
        yield f"Expect of a new seed at most {measured}."
    else:
        expected = figure(chosen.expected)
        yield f"Expect of a new seed: {expected}, corrected for the choice; measured {measured}."
        yield f"Expect of this run on new examples: {figure(chosen.run_expected)}."
    if chosen.fold is not None:
        yield "To train on more rows, take out data.folds and data.fold."


def _footnotes(document: SweepDocument) -> list[str]:
    """Returns the notes below the table of settings, a sentence each.

    They are on runs that did not end well, on how scores were computed, and on the choice.

    Args:
        document: Content of sweep.json, without the notes.
    """
    notes = _notes_on_states(document)
    if document.counts.missing and document.shard:
        number, shards = document.shard
        notes.append(
            f"this is shard {number} of {shards}; `bertctl sweep-merge` puts the shards together"
        )
    if document.folds is not None:
        notes += _folds(document)
    if document.chosen is None:
        return [*notes, "no run has a score, so nothing is chosen"]
    return notes + _notes_on_choice(document, document.chosen)


def _notes_on_states(document: SweepDocument) -> list[str]:
    """Returns a note for each state of runs that did not end well: which runs, how they count."""
    baseline = document.baseline
    if baseline is None:
        diverged = (
            "without answers; the majority's score is not known, so it counts with the worst score "
            "of all runs"
        )
    else:
        diverged = f"without answers; counts with the majority's score, {figure(baseline)}"
    notes = []
    for state, how_they_count in {"diverged": diverged, **_WORTH}.items():
        if document.counts.of_state(state):
            notes.append(f"{state}, {_runs(document, state)}: {how_they_count}")
    return notes


def _notes_on_choice(document: SweepDocument, chosen: ChosenSetting) -> list[str]:
    """Returns notes on what the scores of the chosen setting are worth."""
    notes = []
    if chosen.by == "best-run":
        notes.append(
            f"chosen as the best of {count(chosen.of, 'run')}: its score is too good to be "
            "expected again, and says nothing of the setting's other seeds"
        )
    if chosen.expected is None:
        notes.append(f"what to expect is not corrected for the choice: {chosen.not_corrected}")
    elif all(row.n == 1 for row in document.settings if row.n):
        notes.append("with one seed per setting, what to expect still holds the luck of that seed")
    if chosen.run is None:
        notes.append(
            "no run of the chosen setting was trained to its end, so no best.yaml was written"
        )
    halving = document.halving
    if halving is not None:
        notes.append(
            f"successive halving: {halving.steps:,} of the {halving.full_steps:,} steps of the "
            "full grid; settings that were stopped are not among those the choice is corrected for"
        )
    if any(row.n > chosen.n for row in document.settings):
        notes.append(f"the chosen setting has {count(chosen.n, 'score')}, others have more")
    elif chosen.n == 1 and len(document.settings) > 1:
        notes.append("one score per setting: a good setting can't be told from a lucky seed")
    return notes


def _runs(document: SweepDocument, state: str) -> str:
    """Returns the runs in a state as text, such as `2 runs (learning_rate 1 with seed 1; ...)`.

    Failed ones have their message. The first three are named, the others counted.
    """
    rows = [row for row in document.runs if row.state == state]
    values = document.values_by_setting
    seeds = document.seeds
    names = []
    for row in rows[:_NAMED]:
        setting = setting_text(values[row.setting], document.axes)
        name = f"{setting} with {seed_text(seeds[row.seed])}"
        if row.fold is not None:
            name += f", fold {row.fold}"
        if row.message and state == "failed":
            name += f": {one_line(row.message, limit=120)}"
        names.append(name)
    if len(rows) > _NAMED:
        names.append(f"and {len(rows) - _NAMED} more")
    return f"{count(len(rows), 'run')} ({'; '.join(names)})"


def _folds(document: SweepDocument) -> list[str]:
    """Returns notes on how scores were made of K folds: of their pooled answers, or as a mean."""
    valued = [score for score in document.scores if score.value is not None]
    n_means = sum(score.how == "mean of folds" for score in valued)
    K = document.folds
    notes = []
    if n_means < len(valued):
        notes.append(
            f"a score is that of the answers of all {K} folds together, each from the run that did "
            "not see it"
        )
    if n_means:
        notes.append(
            f"{count(n_means, 'score')} of {len(valued)}: the mean over the {K} folds, as their "
            "answers can't be scored together"
        )
    return notes
