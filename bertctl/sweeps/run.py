"""A sweep from its plan to its last run: what is missing is run, by workers side by side; what is done is kept."""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertctl.errors import BertctlError, InterruptedRunError
from bertctl.inference.score_run import evaluate_run
from bertctl.inference.trained import open_run
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import RunFolder, hold
from bertctl.sweeps.cells import Cell, by_cost, share_of
from bertctl.sweeps.keep import disk_needed, prune, say_disk
from bertctl.sweeps.plan import Sweep, fix_plan
from bertctl.sweeps.pool import Pool, import_what_runs_import, visible_devices
from bertctl.sweeps.results import by_setting, read_cells
from bertctl.sweeps.select import best_cell
from bertctl.sweeps.words import count_words, seed_words, setting_words
from bertctl.sweeps.worker import Answer, Order
from bertctl.tasks.registry import TASKS


@dataclass
class Ended:
    """What a call has done.

    Attributes:
        answers: of the runs that were made.
        kept: how many were there already.
        seconds: wall time, from `started` to the end of the last run.
        worked: training and evaluation of all these runs, in seconds.
        jobs: runs side by side.
    """

    answers: list[Answer] = field(default_factory=list)
    kept: int = 0
    seconds: float = 0.0
    worked: float = 0.0
    jobs: int = 1

    @property
    def exit_code(self) -> int:
        """That of the first run that failed; 0 where none did. A run that diverged is a result."""
        failed = [answer for answer in self.answers if answer.state != "done" and answer.reason != "diverged"]
        return failed[0].code if failed else 0

    @property
    def ratio(self) -> float:
        """Wall time against the least it could be: all training and evaluation, divided by the jobs."""
        return self.seconds * self.jobs / self.worked if self.worked else 0.0


@contextmanager
def locked(folder: Path, shard: Sequence[int] | None) -> Iterator[tuple[int, ...]]:
    """Keep others from running this sweep, or this part of it; the numbers of the open lock files.

    Raises:
        UsageError: another process does; which, and where.
    """
    if shard is None:
        with hold(folder / ".lock") as number:
            yield (number,)
        return
    part, whole = shard
    with hold(folder / ".lock", shared=True) as one, hold(folder / f".lock-{part}-of-{whole}") as other:
        yield (one, other)


def run_sweep(
    sweep: Sweep,
    folder: Path,
    *,
    shard: tuple[int, int] | None = None,
    test: bool = False,
    started: float | None = None,
    listener: Listener = SILENT,
) -> Ended:
    """Run every cell of a sweep (or of a part of it) that is not done, and score the chosen one on test if asked.

    Args:
        sweep: made ready.
        folder: SWEEP; made, or gone on with.
        shard: which part of how many.
        test: whether the recommended run is scored on the test split.
        started: `time.perf_counter()` when the wall time began; now when left out.
        listener: hears of every run that ends.

    Raises:
        UsageError: another process runs it, or it was started with other settings.
        InterruptedRunError: Ctrl-C or SIGTERM; the same call goes on.
        BertctlError: see `fix_plan`.
    """
    begun = time.perf_counter() if started is None else started
    with locked(folder, shard) as locks:
        plan = fix_plan(sweep, folder)
        mine = share_of(by_cost(sweep.cells, sweep.encoded), shard)
        crew = _Crew(sweep, plan, folder, mine, locks, listener)
        ended = crew.run(begun)
        if test:
            crew.score_test()
    return ended


class _Crew:
    """The runs of one call."""

    def __init__(
        self,
        sweep: Sweep,
        plan: Mapping[str, Any],
        folder: Path,
        mine: Sequence[Cell],
        locks: tuple[int, ...],
        listener: Listener,
    ) -> None:
        self._sweep = sweep
        self._plan = plan
        self._folder = folder
        self._mine = {cell.name: cell for cell in mine}
        self._locks = locks
        self._listener = listener
        self._axes = list(dict.fromkeys(axis for values in plan["settings"] for axis in values))
        self._done = 0

    def run(self, begun: float) -> Ended:
        """All that is missing.

        Raises:
            InterruptedRunError: a signal came.
        """
        plan, listener = self._plan, self._listener
        there = {cell.name for cell in read_cells(self._folder)[1] if cell.is_over}
        waiting = [name for name in self._mine if name not in there]
        ended = Ended(kept=len(self._mine) - len(waiting), jobs=min(plan["jobs"], max(1, len(waiting))))
        self._done = ended.kept
        listener.say(self._about(len(waiting)))
        if not waiting:
            return ended
        first = self._sweep.encoded[self._sweep.cells[0].key]
        needed = disk_needed(plan, first, cells=len(waiting), jobs=plan["jobs"])
        say_disk(self._folder, needed, plan["keep"], listener)

        def over(answer: Answer) -> None:
            ended.answers.append(answer)
            self._done += answer.state != "interrupted"
            self._say(answer)
            if plan["keep"] == "best" and answer.state == "done":
                prune(self._folder, self._mine, finished=False)

        pool = self._pool(plan["keep"], plan["jobs"])
        pool.run(waiting, over)
        ended.seconds = time.perf_counter() - begun
        ended.worked = sum(
            answer.seconds.get(phase, 0.0) for answer in ended.answers for phase in ("train", "evaluate")
        )
        if pool.asked:
            raise self._interrupted(pool.asked)
        if plan["keep"] == "best":
            prune(self._folder, self._mine, finished=True)
        if ended.worked:
            listener.say(
                f"{count_words(len(ended.answers), 'run')} in {ended.seconds:.1f} s, {ended.jobs} at a time: "
                f"{ended.worked:.1f} s of training and evaluation, {ended.ratio:.2f} times that a job"
            )
        return ended

    def score_test(self) -> None:
        """Score the recommended run on the test split, once; where its model is gone, it is trained again first."""
        plan, cells = read_cells(self._folder)
        best = best_cell(plan, by_setting(plan, cells))
        if best is None:
            self._listener.warn("no run was trained to its end, so none is scored on test")
            return
        run = RunFolder(best.path)
        if "test" in run.read(run.metrics)["metrics"]:
            return
        if not (run.model / "config.json").exists():
            self._listener.say(f"{best.name}: its model was not kept; it is trained again")
            answers: list[Answer] = []
            pool = self._pool("best", 1)
            pool.run([best.name], answers.append)
            if pool.asked:
                raise self._interrupted(pool.asked)
            if answers[0].state != "done":
                raise BertctlError(f"{best.name} could not be trained again: {answers[0].message}")
        evaluate_run(open_run(best.path), split="test", listener=self._listener)

    def _pool(self, keep: str, jobs: int) -> Pool:
        plan = self._plan
        order = Order(
            folder=self._folder.absolute(),
            recipes={cell.name: cell.recipe.model_dump() for cell in self._sweep.cells},
            keep=keep,
            parent=os.getpid(),
            locks=self._locks,
        )
        devices = visible_devices() if plan["recipe"]["runtime"]["device"] == "cuda" else []
        pool = Pool(order, self._sweep.encoded, jobs=jobs, devices=devices)
        if pool.forks:
            for found in self._sweep.encoded.values():
                import_what_runs_import(found.source, TASKS[plan["recipe"]["task"]].auto_class)
        if not pool.forks:
            self._listener.say("each worker reads and tokenizes for itself, once: it can't be forked here")
        return pool

    def _about(self, waiting: int) -> str:
        plan = self._plan
        parts = [count_words(len(plan["settings"]), "setting"), count_words(len(plan["seeds"]), "seed")]
        if plan["folds"]:
            parts.append(f"{plan['folds']} folds")
        whole = f"{count_words(len(plan['cells']), 'run')}: {' x '.join(parts)}"
        share = f"; {len(self._mine)} of them here" if len(self._mine) < len(plan["cells"]) else ""
        kept = len(self._mine) - waiting
        done = f"; {kept} done before" if kept else ""
        threads = count_words(plan["threads"], "thread")
        return f"{whole}{share}{done}; {plan['jobs']} at a time with {threads} each"

    def _say(self, answer: Answer) -> None:
        cell, name = self._mine[answer.cell], self._plan["primary"]["name"]
        what = setting_words(self._plan["settings"][cell.setting], self._axes)
        what += f", {seed_words(self._plan['seeds'][cell.seed])}" + (f", part {cell.fold}" if cell.fold else "")
        if answer.state == "done":
            result = f"{name} {answer.value:.4f}" + (f" ({answer.reason})" if answer.reason else "")
        elif answer.state == "interrupted":
            result = answer.message
        else:
            result = f"{answer.reason if answer.reason == 'diverged' else answer.state}: {answer.message}"
        line = f"{self._done} of {len(self._mine)}: {what}: {result}, {answer.seconds.get('whole', 0.0):.1f} s"
        if answer.state == "failed" and answer.reason != "diverged":
            self._listener.warn(line)
        else:
            self._listener.say(line)

    def _interrupted(self, number: int) -> InterruptedRunError:
        terminated = number == signal.SIGTERM
        how = "terminated" if terminated else "interrupted"
        return InterruptedRunError(
            f"{how}: {self._done} of {count_words(len(self._mine), 'run')} are over, those that were under way have "
            "saved what they had",
            remedy=f"The same command goes on in {self._folder}.",
            terminated=terminated,
        )
