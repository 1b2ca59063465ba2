"""The results of a sweep's runs: read from its folder, put together by seed and by setting.

Nothing is dropped.

A run that diverged has no answers; it counts with what it would be worth, the score of the answer
that ignores the input, or where that is not known (a loss) the worst score of the sweep. Runs that
collapsed count with the best score they had reached. Runs that failed and those that are not there
can't be valued: they are counted beside the others. So are those that successive halving has
stopped; they have the score of their rung.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from bertctl.documents import read_json_lines
from bertctl.errors import BertctlError, DataError
from bertctl.metrics.contributions import Contributions
from bertctl.reporting.runs import read_run
from bertctl.run_documents.line_documents import HistoryLine
from bertctl.run_folder import RunFolder
from bertctl.sweeps.halving import Rung, RungScore, climb
from bertctl.sweeps.plan import CELLS, PlannedCell, SweepPlan, read_plan
from bertctl.tasks.answers import Line
from bertctl.tasks.registry import answer_type

State = Literal["done", "collapsed", "diverged", "stopped", "failed", "missing"]

STATES: tuple[State, ...] = ("done", "collapsed", "diverged", "stopped", "failed", "missing")
"""From well to worst; the folds of a seed have the worst state of one of them."""

How = Literal["run", "pooled folds", "mean of folds"]


@dataclass(frozen=True)
class CellResult:
    """Result of one run of the plan.

    Attributes:
        name: Name of its folder: 16 hexadecimal digits.
        path: Path of its folder, whether or not it is there.
        setting: number in the plan's settings.
        seed: number in the plan's seeds.
        fold: number of the fold that is held out, from 1; None without folds.
        state: How it ended, see `State`; a run that is not finished is `missing`.
        value: Primary metric on the selection split. For a diverged run it is that of the majority,
            or the worst of all runs if that is not known. None if it was stopped, failed or is
            missing.
        message: Why it failed or was stopped.
        seconds: Time of all its phases together; 0 if it is not known.
        step: Step at which successive halving stopped it; None if it did not.
        rung_value: Primary metric of the evaluation at that step.
    """

    name: str
    path: Path
    setting: int
    seed: int
    fold: int | None
    state: State
    value: float | None
    message: str
    seconds: float
    step: int | None = None
    rung_value: float | None = None

    @property
    def is_over(self) -> bool:
        """Returns whether there is a result, so that another call does not run it again."""
        return self.state not in ("missing", "failed")


@dataclass(frozen=True)
class Score:
    """Score of a setting with a seed: the value of a run, or of all its folds.

    Attributes:
        setting: number.
        seed: number.
        cells: Its run, or one run per fold.
        state: The worst state of these runs.
        value: Primary metric; None if one of the runs has none.
        how: Whether it is that of one run, of the answers of all folds together, or the mean over
            the folds.
    """

    setting: int
    seed: int
    cells: tuple[CellResult, ...]
    state: State
    value: float | None
    how: How


@dataclass(frozen=True)
class SettingScores:
    """Scores of a setting over the seeds.

    Attributes:
        index: number in the plan.
        values: dotted field -> value.
        scores: one per seed, in the plan's order.
    """

    index: int
    values: Mapping[str, Any]
    scores: tuple[Score, ...]

    @property
    def cells(self) -> list[CellResult]:
        """Returns all runs of the setting."""
        return list(chain.from_iterable(score.cells for score in self.scores))

    @property
    def reached(self) -> list[float]:
        """Returns the scores that have a value."""
        return [score.value for score in self.scores if score.value is not None]

    @property
    def mean(self) -> float | None:
        """Returns the mean score over the seeds; None if no seed has a score.

        It is summed exactly, so that it does not depend on the order of the seeds.
        """
        return _mean(self.reached)

    @property
    def deviation(self) -> float | None:
        """Returns the standard deviation over the seeds, with n - 1; None for fewer than two."""
        values = self.reached
        mean = self.mean
        if mean is None or len(values) < 2:
            return None
        return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))

    @property
    def seconds(self) -> float | None:
        """Returns the mean seconds of the runs whose time is known; None if none is."""
        return _mean([cell.seconds for cell in self.cells if cell.seconds > 0])


def _mean(values: Sequence[float]) -> float | None:
    """Returns the mean of some values, summed exactly; None without values."""
    if values:
        return math.fsum(values) / len(values)
    return None


def count_states(cells: Sequence[CellResult]) -> dict[State, int]:
    """Returns the number of runs by state, all states named."""
    counts = Counter(cell.state for cell in cells)
    return {state: counts[state] for state in STATES}


def read_cells(folder: Path) -> tuple[SweepPlan, list[CellResult]]:
    """Reads the plan of a sweep and the result of each of its runs, in the plan's order.

    A diverged run gets the worst score of all runs, if the majority's score is not known.

    Raises:
        UnavailableError: no sweep there.
        DataError: a plan.json that is damaged.
    """
    plan = read_plan(folder)
    cells = [read_cell(folder, plan, cell) for cell in plan.cells]
    cells = _with_stopped(plan, cells)
    values = [cell.value for cell in cells if cell.value is not None]
    worst = max(values, key=lambda value: plan.sign * value, default=None)
    return plan, [
        replace(cell, value=worst) if cell.state == "diverged" and cell.value is None else cell
        for cell in cells
    ]


def read_ladder(
    plan: SweepPlan, cells: Sequence[CellResult], retried: Collection[str] = ()
) -> list[Rung]:
    """Reads how far successive halving has come; see `climb`.

    Args:
        plan: Plan of a sweep with rungs.
        cells: Results of its runs, as `read_cell` gives them.
        retried: Runs that failed in an earlier call, and are tried again in this one.
    """
    scores = {cell.name: scores_by_step(RunFolder(cell.path), plan) for cell in cells}
    done = {cell.name for cell in cells if cell.state == "done"}
    lost = {cell.name for cell in cells if cell.state in ("collapsed", "diverged", "failed")}
    return climb(plan, scores, done, lost.difference(retried))


def _with_stopped(plan: SweepPlan, cells: list[CellResult]) -> list[CellResult]:
    """Returns the runs, with the state `stopped` for those that successive halving has stopped.

    A run's own folder does not say so: it waits at a rung for runs that turned out better.
    """
    if not plan.rungs:
        return cells
    stopped: dict[str, tuple[int, float]] = {}  # run -> step at which it was stopped, and score
    for rung in read_ladder(plan, cells):
        for name in rung.stopped:
            steps_of_rungs = plan.rungs[name]
            step = steps_of_rungs[rung.number - 1]  # rungs are numbered from 1
            stopped[name] = (step, rung.scores[name].value)
    marked = []
    for cell in cells:
        if cell.name not in stopped or cell.is_over:
            marked.append(cell)
            continue
        step, value = stopped[cell.name]
        message = f"stopped at step {step} of {plan.rungs[cell.name][-1]}"
        marked.append(
            replace(
                cell,
                state="stopped",
                message=message,
                step=step,
                rung_value=value,
            )
        )
    return marked


def scores_by_step(run: RunFolder, plan: SweepPlan) -> dict[int, RungScore]:
    """Returns the scores of each evaluation of a run so far, by its step."""
    if not run.history.is_file():
        return {}
    metric = f"{plan.primary.split}_{plan.primary.name}"
    loss = f"{plan.primary.split}_loss"
    scores: dict[int, RungScore] = {}
    with suppress(BertctlError):  # the last line of a run that was killed may be cut
        for row in read_json_lines(run.history, HistoryLine):
            if metric in row:
                scores[int(row["step"])] = RungScore(float(row[metric]), float(row[loss]))
    return scores


def read_cell(folder: Path, plan: SweepPlan, cell: PlannedCell) -> CellResult:
    """Reads the result of one run of the sweep in a folder."""
    run = RunFolder(folder / CELLS / cell.name)
    state, value, message = _outcome(run, plan)
    seconds = 0.0
    if state != "missing":
        # A time that can't be read is not known; the result does not depend on it.
        with suppress(BertctlError):
            seconds = math.fsum(run.read_performance().seconds.values())
    return CellResult(
        cell.name,
        run.path,
        cell.setting,
        cell.seed,
        cell.fold,
        state,
        value,
        message,
        seconds,
    )


def _outcome(run: RunFolder, plan: SweepPlan) -> tuple[State, float | None, str]:
    """Returns how a run ended, its primary metric, and a message, from its folder.

    A run that is not finished counts as `missing`: the same command runs it. A diverged run has no
    metrics and counts with the score of the best constant prediction. The metric is None if there
    is no such score. The message says why the run failed, or the state of a run that is not
    finished.
    """
    if not run.status.is_file():
        return "missing", None, ""
    try:
        status = run.read_status()
    except BertctlError as error:
        return "failed", None, error.message
    message = status.message or ""
    if status.state == "failed" and status.reason == "diverged":
        return "diverged", plan.baseline.get(plan.primary.name), message
    if status.state == "failed":
        return "failed", None, message
    # Earlier versions of bertctl stopped runs that did worse than the others, as `hopeless`.
    is_finished = status.state == "done" and status.reason != "hopeless"
    if not is_finished:
        return "missing", None, status.state
    split = plan.primary.split
    name = plan.primary.name
    try:
        value = read_run(run.path).metric(split, name).value
    except BertctlError as error:
        return "failed", None, error.message
    except KeyError:
        return "failed", None, f"no metrics of '{split}'"
    state: State = "collapsed" if status.reason == "collapsed" else "done"
    return state, value, message


def by_setting(plan: SweepPlan, cells: Sequence[CellResult]) -> list[SettingScores]:
    """Returns the scores of each setting over the seeds, in the plan's order.

    The runs of all folds of a setting and seed are combined into one score.
    """
    by_seed: dict[tuple[int, int], list[CellResult]] = {}
    for cell in cells:
        by_seed.setdefault((cell.setting, cell.seed), []).append(cell)
    scores = [_score(plan, fold_cells) for fold_cells in by_seed.values()]
    settings = []
    for index, values in enumerate(plan.settings):
        scores_of_setting = tuple(score for score in scores if score.setting == index)
        settings.append(SettingScores(index, values, scores_of_setting))
    return settings


def _score(plan: SweepPlan, cells: Sequence[CellResult]) -> Score:
    """Returns the score of one setting and seed: of its run, or over the runs of its folds.

    There is no value if a fold has none. Otherwise the metric is computed of the answers of all
    folds together (`pooled folds`), or if that can't be done, it is the mean over the folds.
    """
    first = cells[0]  # all have the same setting and seed
    # STATES goes from good to bad: a score is as doubtful as the worst of its runs.
    worst = max((cell.state for cell in cells), key=STATES.index)
    if plan.folds is None:
        return Score(
            first.setting,
            first.seed,
            cells=(first,),
            state=worst,
            value=first.value,
            how="run",
        )
    values = [cell.value for cell in cells if cell.value is not None]
    if len(values) < len(cells):
        return Score(
            first.setting,
            first.seed,
            cells=tuple(cells),
            state=worst,
            value=None,
            how="mean of folds",
        )
    if worst == "diverged":
        # A diverged run has no answers; its value is the majority's or the worst one.
        pooled = None
    else:
        pooled = _pooled(plan, cells)
    how: How = "mean of folds" if pooled is None else "pooled folds"
    if pooled is None:
        value = _mean(values)
    else:
        value = pooled
    return Score(
        first.setting,
        first.seed,
        cells=tuple(cells),
        state=worst,
        value=value,
        how=how,
    )


def _pooled(plan: SweepPlan, cells: Sequence[CellResult]) -> float | None:
    """Returns the metric computed from the predictions of all folds together.

    The result is None if the metric can't be computed from predictions, or if the predictions of a
    fold don't give the value in its metrics.json.
    """
    try:
        lines = [read_lines(plan, [cell]) for cell in cells]
        by_fold = [score_lines(plan, fold_lines) for fold_lines in lines]
        pooled = score_lines(plan, list(chain.from_iterable(lines)))
    except BertctlError:
        return None
    all_agree = all(
        contributions.agrees_with(cell.value)
        for contributions, cell in zip(by_fold, cells, strict=True)
        if cell.value is not None
    )
    return pooled.value if all_agree else None


def score_lines(plan: SweepPlan, lines: Sequence[Line]) -> Contributions:
    """Returns what each example adds to the sweep's metric.

    Args:
        plan: Plan of the sweep.
        lines: Predictions of one run, or of all folds of a seed.

    Raises:
        DataError: lines that don't give the metric.
    """
    name = plan.primary.name
    contributions = answer_type(plan.task).from_lines(lines).contributions(lines, name)
    if contributions is None:
        raise DataError(
            f"{name} can't be computed from the predictions of a {plan.task} run, example by "
            "example"
        )
    return contributions


def read_lines(plan: SweepPlan, cells: Sequence[CellResult]) -> list[Line]:
    """Returns the prediction lines on the selection split of these runs, run after run.

    Raises:
        BertctlError: A run has no predictions.
    """
    lines: list[Line] = []
    for fold, cell in enumerate(cells):
        for line in read_run(cell.path).lines(plan.primary.split):
            # Each run numbers its clusters from 0, so those of two folds are told apart. A row
            # without a cluster is one by itself.
            cluster = (fold, line.get("cluster", line["id"]))
            lines.append({**line, "cluster": cluster})
    return lines
