"""What the runs of a sweep came to: read from its folder, put together by seed and by setting. Nothing is dropped.

A run that diverged has no answers; it counts with what it would be worth, the score of the answer that ignores the
input. Runs that collapsed count with the best score they had reached. Runs that failed and those that are not there
can't be valued: they are counted beside the others.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertctl.errors import BertctlError, DataError, UnavailableError
from bertctl.metrics.contributions import Contributions
from bertctl.reporting.runs import read_run
from bertctl.run_folder import RunFolder
from bertctl.tasks.answers import Line
from bertctl.tasks.registry import answer_type

State = Literal["done", "collapsed", "diverged", "failed", "missing"]

STATES: tuple[State, ...] = ("done", "collapsed", "diverged", "failed", "missing")
"""From well to worst; the folds of a seed have the worst state of one of them."""

How = Literal["run", "pooled folds", "mean of folds"]

PLAN = "plan.json"
CELLS = "cells"


@dataclass(frozen=True)
class Cell:
    """One run of the plan.

    Attributes:
        name: of its folder: 16 hexadecimal digits.
        path: of its folder, whether or not it is there.
        setting: number in the plan's settings.
        seed: number in the plan's seeds.
        fold: which part is held out, from 1; None without folds.
        state: see `State`; a run that is not finished is missing.
        value: primary metric on the selection split; for a diverged run that of the majority; None for the last two.
        seconds: what its phases took; 0 where that is not known.
        message: why it failed or was stopped.
    """

    name: str
    path: Path
    setting: int
    seed: int
    fold: int | None
    state: State
    value: float | None
    seconds: float
    message: str

    @property
    def is_over(self) -> bool:
        """Whether there is a result, so that another call does not run it again."""
        return self.state not in ("missing", "failed")


@dataclass(frozen=True)
class Score:
    """What a setting reached with a seed: the value of a run, or of all its folds.

    Attributes:
        setting: number.
        seed: number.
        cells: one, or one a fold.
        state: the worst of them.
        value: None where one of them has none.
        how: from one run; from the answers of all folds together; or the mean over the folds.
    """

    setting: int
    seed: int
    cells: tuple[Cell, ...]
    state: State
    value: float | None
    how: How


@dataclass(frozen=True)
class SettingScores:
    """What a setting reached over the seeds.

    Attributes:
        index: number in the plan.
        values: dotted field -> value.
        scores: one a seed, in the plan's order.
    """

    index: int
    values: Mapping[str, Any]
    scores: tuple[Score, ...]

    @property
    def reached(self) -> list[float]:
        """The scores that have a value."""
        return [score.value for score in self.scores if score.value is not None]

    @property
    def mean(self) -> float | None:
        """None without a value. Rounded once, so that it does not depend on the order of the seeds."""
        found = self.reached
        return math.fsum(found) / len(found) if found else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds, with n - 1; None for fewer than two."""
        found, mean = self.reached, self.mean
        if mean is None or len(found) < 2:
            return None
        return math.sqrt(math.fsum((value - mean) ** 2 for value in found) / (len(found) - 1))

    @property
    def counts(self) -> dict[State, int]:
        """Runs by state, all states named."""
        return count_states([cell for score in self.scores for cell in score.cells])

    @property
    def seconds(self) -> float | None:
        """Mean time of the runs whose time is known."""
        known = [cell.seconds for score in self.scores for cell in score.cells if cell.seconds > 0]
        return math.fsum(known) / len(known) if known else None


def count_states(cells: Sequence[Cell]) -> dict[State, int]:
    """Runs by state, all states named."""
    found = Counter(cell.state for cell in cells)
    return {state: found[state] for state in STATES}


def read_cells(folder: Path) -> tuple[dict[str, Any], list[Cell]]:
    """The plan of a sweep and what became of each of its runs, in the plan's order.

    Args:
        folder: SWEEP.

    Raises:
        UnavailableError: no sweep there.
        DataError: a plan.json that is damaged.
    """
    path = folder / PLAN
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnavailableError(
            f"{folder} holds no sweep: {path} can't be read ({error.strerror})",
            remedy="Give the folder that `bertctl sweep` was given with -o.",
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}", remedy="Start the sweep again in another folder.") from error
    return plan, [_read_cell(folder, plan, row) for row in plan["cells"]]


def _read_cell(folder: Path, plan: Mapping[str, Any], row: Mapping[str, Any]) -> Cell:
    run = RunFolder(folder / CELLS / row["name"])
    state, value, message = _outcome(run, plan)
    seconds = 0.0
    if state != "missing" and run.performance.exists():
        try:
            seconds = math.fsum(run.read(run.performance).get("seconds", {}).values())
        except BertctlError:
            seconds = 0.0  # a time that can't be read is not known; the result does not depend on it
    return Cell(row["name"], run.path, row["setting"], row["seed"], row.get("fold"), state, value, seconds, message)


def _outcome(run: RunFolder, plan: Mapping[str, Any]) -> tuple[State, float | None, str]:
    """State, value and message of a run."""
    if not run.status.is_file():
        return "missing", None, ""
    try:
        status = run.read(run.status)
    except BertctlError as error:
        return "failed", None, error.message
    found, reason, message = status.get("state"), status.get("reason", ""), str(status.get("message", ""))
    if found == "failed" and reason == "diverged":
        value = plan.get("baseline", {}).get(plan["primary"]["name"])
        return "diverged", value, message
    if found == "failed":
        return "failed", None, message
    if found != "done" or reason == "hopeless":  # earlier versions stopped runs that did worse than the others
        return "missing", None, str(found)
    state: State = "collapsed" if reason == "collapsed" else "done"
    split, name = plan["primary"]["split"], plan["primary"]["name"]
    try:
        return state, read_run(run.path).metric(split, name).value, message
    except (BertctlError, KeyError) as error:
        return "failed", None, error.message if isinstance(error, BertctlError) else f"no metrics of '{split}'"


def by_setting(plan: Mapping[str, Any], cells: Sequence[Cell]) -> list[SettingScores]:
    """The runs put together: by seed (all folds of one), then by setting, in the plan's order."""
    return [
        SettingScores(
            index,
            values,
            tuple(
                _score(plan, [cell for cell in cells if (cell.setting, cell.seed) == (index, seed)])
                for seed in dict.fromkeys(cell.seed for cell in cells if cell.setting == index)
            ),
        )
        for index, values in enumerate(plan["settings"])
    ]


def _score(plan: Mapping[str, Any], cells: Sequence[Cell]) -> Score:
    first = cells[0]
    worst = max((cell.state for cell in cells), key=STATES.index)
    if plan.get("folds") is None:
        return Score(first.setting, first.seed, (first,), worst, first.value, "run")
    values = [cell.value for cell in cells if cell.value is not None]
    if len(values) < len(cells):
        return Score(first.setting, first.seed, tuple(cells), worst, None, "mean of folds")
    pooled = None if worst == "diverged" else _pooled(plan, cells)
    value = math.fsum(values) / len(values) if pooled is None else pooled
    how: How = "mean of folds" if pooled is None else "pooled folds"
    return Score(first.setting, first.seed, tuple(cells), worst, value, how)


def _pooled(plan: Mapping[str, Any], cells: Sequence[Cell]) -> float | None:
    """The metric of the answers of all folds together; None where the predictions don't give it.

    Each fold's own lines have to give the fold's own value: else they are not what the metric was computed from.
    """
    try:
        lines = [read_lines(plan, [cell]) for cell in cells]
        own = [score_lines(plan, part) for part in lines]
        found = score_lines(plan, [line for part in lines for line in part])
    except BertctlError:
        return None
    fits = all(part.agrees_with(cell.value) for part, cell in zip(own, cells, strict=True) if cell.value is not None)
    return found.value if fits else None


def score_lines(plan: Mapping[str, Any], lines: Sequence[Line]) -> Contributions:
    """What each example adds to the sweep's metric.

    Args:
        plan: content of plan.json.
        lines: predictions of one run, or of all folds of a seed.

    Raises:
        DataError: lines that don't give the metric.
    """
    task, name = plan["recipe"]["task"], plan["primary"]["name"]
    found = answer_type(task).from_lines(lines).contributions(lines, name)
    if found is None:
        raise DataError(f"{name} can't be computed from the predictions of a {task} run, example by example")
    return found


def read_lines(plan: Mapping[str, Any], cells: Sequence[Cell]) -> list[Line]:
    """The prediction lines of these runs on the selection split, one after the other.

    Raises:
        BertctlError: a run that has none.
    """
    return [line for cell in cells for line in read_run(cell.path).lines(plan["primary"]["split"])]
