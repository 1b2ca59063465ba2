"""A sweep from its plan to its last run.

Parallel workers run what is missing; what is done is kept.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bertctl.data.recipe_data import load_data
from bertctl.errors import BertctlError, ExitCode, InterruptedRunError
from bertctl.inference.score_run import evaluate_run
from bertctl.inference.trained import open_run
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import RunFolder, hold
from bertctl.session import command_words
from bertctl.sweeps.best_setting import best_cell
from bertctl.sweeps.disk import delete_models, disk_needed, say_disk
from bertctl.sweeps.executors import Jobs
from bertctl.sweeps.halving import RUNG_SHARES, Rung, full_steps, most_steps, rung_text
from bertctl.sweeps.plan import CELLS, Keep, PlannedCell, settle_plan
from bertctl.sweeps.pool import Pool, import_what_runs_import, visible_devices
from bertctl.sweeps.prepare import Sweep, SweepCell
from bertctl.sweeps.results import by_setting, read_cell, read_cells, read_ladder, scores_by_step
from bertctl.sweeps.setting_text import seed_text, setting_text
from bertctl.sweeps.worker import CellReply, WorkerSettings
from bertctl.tasks.registry import TASKS
from bertctl.training.job import n_training_windows
from bertctl.training.steps import total_steps
from bertctl.words import count


@contextmanager
def locked(folder: Path, shard: tuple[int, int] | None) -> Iterator[tuple[int, ...]]:
    """Keeps other processes from running this sweep, or this shard of it, at the same time.

    Shards share the lock of the sweep, and each has a lock of its own.

    Args:
        folder: SWEEP.
        shard: Number and count of the shard; None for the whole sweep.

    Yields:
        The descriptors of the open lock files.

    Raises:
        UsageError: Another process runs it; which, and where.
    """
    if shard is None:
        with hold(folder / ".lock") as number:
            yield (number,)
        return
    shard_file = folder / f".lock-{shard[0]}-of-{shard[1]}"
    with hold(folder / ".lock", shared=True) as sweep_lock, hold(shard_file) as shard_lock:
        yield (sweep_lock, shard_lock)


def run_sweep(sweep: Sweep, *, started: float | None = None, listener: Listener = SILENT) -> int:
    """Runs every cell of a sweep (or of a shard of it) that is not done.

    If requested, it scores the chosen run on test.

    Args:
        sweep: The sweep, made ready. Its folder is made, or has a part of it already.
        started: `time.perf_counter()` when the wall time began; None for now.
        listener: Receives a message on every run that ends.

    Returns:
        The exit code of the first run that failed; 0 where none did. A run that diverged is a
        result.

    Raises:
        UsageError: another process runs it, or it was started with other settings.
        InterruptedRunError: Ctrl-C or SIGTERM; the same call resumes it.
        BertctlError: see `settle_plan`.
    """
    if started is None:
        begun = time.perf_counter()
    else:
        begun = started
    with locked(sweep.folder, sweep.request.shard) as locks:
        # The plan in the folder counts, if an earlier call has made one.
        sweep = replace(sweep, plan=settle_plan(sweep.plan, sweep.folder))
        _clear_after_kill(sweep)
        runner = SweepRunner(sweep, locks, listener)
        replies = runner.run(begun)
        if sweep.request.test:
            runner.score_test()
    failure_codes = [reply.code for reply in replies if reply.code not in (0, ExitCode.DIVERGED)]
    if failure_codes:
        return failure_codes[0]
    return 0


def _clear_after_kill(sweep: Sweep) -> None:
    """Deletes models and checkpoints that an earlier, killed attempt had no time to delete."""
    # An attempt that ended by itself has written sweep.json, and has deleted its models before.
    was_concluded = (sweep.folder / "sweep.json").exists()
    if sweep.plan.keep == "best" and not was_concluded:
        delete_models(sweep.folder, [cell.name for cell in sweep.mine])

    for cell in read_cells(sweep.folder)[1]:
        if cell.state in ("done", "collapsed"):
            shutil.rmtree(RunFolder(cell.path).checkpoints, ignore_errors=True)


class SweepRunner:
    """Runs the cells of one call, and reports each that ends.

    Args:
        sweep: The sweep, made ready, with the plan of its folder.
        locks: Descriptors of the open lock files, which workers must close.
        listener: Receives messages and progress.
    """

    def __init__(self, sweep: Sweep, locks: tuple[int, ...], listener: Listener) -> None:
        self._sweep = sweep
        self._folder = sweep.folder
        self._plan = sweep.plan
        self._mine = [cell.name for cell in sweep.mine]
        self._planned = {cell.name: cell for cell in self._plan.cells}
        self._locks = locks
        self._listener = listener
        self._done = 0  # runs of this call or shard that are over, earlier ones included

    def run(self, begun: float) -> list[CellReply]:
        """Runs all cells that have no result yet, and returns the workers' replies.

        Args:
            begun: `time.perf_counter()` when the wall time began.

        Raises:
            InterruptedRunError: A signal came.
        """
        plan = self._plan
        listener = self._listener
        cells = read_cells(self._folder)[1]
        finished = {cell.name for cell in cells if cell.is_over}
        waiting = [name for name in self._mine if name not in finished]
        replies: list[CellReply] = []
        self._done = len(self._mine) - len(waiting)
        listener.say(self._about())
        if not waiting:
            return replies
        if plan.rungs:
            return self._climb(begun)
        # Training examples of each run that is not over yet: progress is a share of their sum.
        remaining_work = {
            cell.name: self._examples(cell) for cell in self._sweep.cells if cell.name in waiting
        }
        total_work = sum(remaining_work.values())
        listener.advance("runs", self._done, len(self._mine), share=0.0)
        # The disk space is estimated from the model and the rows of the first run.
        encoded = self._sweep.encoded[self._sweep.cells[0].key]
        needed = disk_needed(plan, encoded, cells=len(waiting))
        say_disk(self._folder, needed, plan, listener)

        def note_ended(reply: CellReply) -> None:
            """Adds a reply to `replies`, takes its run off `remaining_work`, and reports it."""
            replies.append(reply)
            if reply.state != "interrupted":
                self._done += 1
            self._say(reply)
            remaining_work.pop(reply.cell, None)
            share = 1 - sum(remaining_work.values()) / total_work
            listener.advance("runs", self._done, len(self._mine), share=share)
            if plan.keep == "best":
                # Only runs that may still turn out the best keep their models.
                delete_models(self._folder, self._mine)

        self._carry_out(
            waiting,
            note_ended,
            keep=plan.keep,
            jobs=plan.jobs,
        )
        self._say_time(replies, begun, min(plan.jobs, len(waiting)))
        return replies

    def _climb(self, begun: float) -> list[CellReply]:
        """Runs the cells of successive halving rung by rung; only the best of a rung go on.

        Args:
            begun: `time.perf_counter()` when the wall time began.

        Raises:
            InterruptedRunError: A signal came.
        """
        plan = self._plan
        listener = self._listener
        replies: list[CellReply] = []
        # Runs that failed in an earlier call are tried once more in this one.
        retried = {cell.name for cell in read_cells(self._folder)[1] if cell.state == "failed"}
        n_rungs = len(RUNG_SHARES) + 1  # the last rung is the end of the runs
        # The disk space is estimated from the model and the rows of the first run.
        encoded = self._sweep.encoded[self._sweep.cells[0].key]
        needed = disk_needed(plan, encoded, cells=len(self._mine))
        say_disk(self._folder, needed, plan, listener)

        def note_ended(reply: CellReply) -> None:
            """Adds a reply to `replies`, and reports it; a failed run is tried again only once."""
            replies.append(reply)
            retried.discard(reply.cell)
            if reply.state in ("done", "failed"):
                self._done += 1
            self._say(reply)

        n_said = 0  # complete rungs that were reported
        while True:
            # Rungs are read from the run folders, so an interrupted sweep continues as if it had
            # not been interrupted.
            cells = [read_cell(self._folder, plan, cell) for cell in plan.cells]
            rungs = read_ladder(plan, cells, retried)
            # Runs are promoted or stopped at every rung but the last.
            deciding_rungs = rungs[: n_rungs - 1]
            complete = [rung for rung in deciding_rungs if not rung.waiting]
            for rung in complete[n_said:]:
                listener.say(rung_text(plan, rung))
                self._forget_stopped(rung)
            n_said = len(complete)
            current = rungs[-1]
            waiting = [name for name in self._mine if name in current.waiting]
            if not waiting:
                break
            pauses = {}  # step at which each run waits; at the last rung none does
            if current.number < n_rungs:
                pauses = {name: plan.rungs[name][current.number - 1] for name in waiting}
            self._carry_out(
                waiting,
                note_ended,
                keep=plan.keep,
                jobs=plan.jobs,
                pauses=pauses,
            )
        if plan.keep == "best":
            delete_models(self._folder, self._mine)
        self._say_time(replies, begun, plan.jobs)
        return replies

    def _forget_stopped(self, rung: Rung) -> None:
        """Deletes the checkpoints of the runs that stop at a rung: each is as large as 4 models."""
        for name in rung.stopped:
            run = RunFolder(self._folder / CELLS / name)
            # A run that is done was trained to its end by an earlier call, and keeps what it has.
            if run.read_status().state != "done":
                shutil.rmtree(run.checkpoints, ignore_errors=True)

    def _say_time(self, replies: Sequence[CellReply], begun: float, jobs: int) -> None:
        """Reports how long this call took, and how much of that was training and evaluation."""
        listener = self._listener
        wall = time.perf_counter() - begun
        worked = 0.0
        for reply in replies:
            worked += reply.seconds.get("train", 0.0)
            worked += reply.seconds.get("evaluate", 0.0)
        if self._plan.rungs:  # the times of runs that wait or stop are not known
            listener.say(f"{count(len(self._mine), 'run')} in {wall:.1f} s, {jobs} at a time")
        elif worked:  # nothing was trained if all runs failed at once
            figures = f"{count(len(replies), 'run')} in {wall:.1f} s"
            took = f"training and evaluation took {worked:.1f} s"
            # Jobs wait in a queue, and each of them imports anew.
            if self._sweep.request.executor == "local":
                figures += f", {jobs} at a time"
                took += f", {100 * worked / (wall * jobs):.0f} % of the time of all jobs"
            listener.say(f"{figures}: {took}")

    def score_test(self) -> None:
        """Scores the recommended run on the test split, once.

        If its model is gone, it is trained again first.
        """
        plan, cells = read_cells(self._folder)
        best = best_cell(plan, by_setting(plan, cells))
        if best is None:
            self._listener.warn("no run was trained to its end, so none is scored on test")
            return
        run = RunFolder(best.path)
        typed_recipe = self._sweep.request.recipe
        metrics = run.read_metrics()
        test_hash = load_data(typed_recipe, splits=["test"]).hashes["test"]
        # An earlier call may have scored it, on the same rows.
        if "test" in metrics.metrics and metrics.data["test"].sha256 == test_hash:
            return
        if not (run.model / "config.json").exists():
            self._listener.say(f"{best.name}: its model was not kept; it is trained again")
            replies: list[CellReply] = []
            self._carry_out(
                [best.name],
                replies.append,
                keep="best",
                jobs=1,
                trains_again=True,
            )
            if replies[0].state != "done":
                raise BertctlError(f"{best.name} could not be trained again: {replies[0].message}")
        # Where these files are now: the run's folder has the paths of the call that trained it.
        scripts = self._sweep.cells[0].recipe.evaluation.metric_scripts
        options: dict[str, object] = {
            "evaluation.metric_scripts": scripts,
            "data.test_file": typed_recipe.data.test_file,
        }
        evaluate_run(open_run(best.path, options=options), split="test", listener=self._listener)

    def _carry_out(
        self,
        names: Sequence[str],
        on_reply: Callable[[CellReply], None],
        *,
        keep: Keep,
        jobs: int,
        trains_again: bool = False,
        pauses: Mapping[str, int] | None = None,
    ) -> None:
        """Runs some cells to their ends, or to their rungs.

        Args:
            names: Names of the cells.
            on_reply: Called with the reply of each cell that is over.
            keep: Which runs keep their model.
            jobs: Runs at a time.
            trains_again: Whether finished runs are trained once more.
            pauses: Step at which a run waits at its rung, by its name; None if none waits.

        Raises:
            InterruptedRunError: A signal came.
        """
        pool = self._pool(
            keep,
            jobs,
            trains_again=trains_again,
            pauses=pauses or {},
        )
        pool.run(names, on_reply)
        self._listener.finish("runs")
        if pool.stopped_by:
            terminated = pool.stopped_by != signal.SIGINT
            if terminated:
                how = "terminated"
            else:
                how = "interrupted"
            over = f"{self._done} of {count(len(self._mine), 'run')} are over"
            is_local = self._sweep.request.executor == "local"
            if is_local:
                saved = "have saved what they had"
            else:
                saved = "continue from their last checkpoint"
            message = f"{how}: {over}, those that were under way {saved}"
            remedy = f"The same command continues in {self._folder}."
            raise InterruptedRunError(message, remedy=remedy, terminated=terminated)

    def _pool(
        self, keep: Keep, jobs: int, *, trains_again: bool, pauses: Mapping[str, int]
    ) -> Pool | Jobs:
        """Returns what runs are given to: jobs of Ray or Slurm, or workers on this machine.

        Args:
            keep: Which runs keep their model.
            jobs: Runs at a time.
            trains_again: Whether finished runs are trained once more.
            pauses: The step at which a run waits at its rung, by its name.
        """
        recipes = {cell.name: cell.recipe.model_dump() for cell in self._sweep.cells}
        settings = WorkerSettings(
            folder=self._folder.absolute(),
            recipes=recipes,
            keep=keep,
            parent=os.getpid(),
            locks=self._locks,
            trains_again=trains_again,
            pauses=pauses,
            command=tuple(command_words()),
        )
        if self._sweep.request.executor != "local":
            labels = {name: self._label(cell) for name, cell in self._planned.items()}
            return Jobs(
                settings,
                self._sweep.request.executor,
                jobs,
                self._listener,
                labels,
            )
        if self._plan.recipe["runtime"]["device"] == "cuda":
            devices = visible_devices()
        else:
            devices = []
        if self._sweep.request.forks:
            encoded = self._sweep.encoded
        else:
            encoded = {}
        pool = Pool(
            settings,
            encoded,
            jobs=jobs,
            devices=devices,
        )
        if pool.forks:
            for encoded_data in self._sweep.encoded.values():
                import_what_runs_import(encoded_data.source, TASKS[self._plan.task].auto_class)
        else:
            self._listener.say(
                "each worker reads and tokenizes for itself, once: it can't be forked here"
            )
        return pool

    def _examples(self, cell: SweepCell) -> int:
        """Returns how many examples a run trains on, summed over its epochs."""
        rows = n_training_windows(self._sweep.encoded[cell.key].features)
        recipe = cell.recipe
        return total_steps(recipe, rows) * min(rows, recipe.training.batch_size)

    def _about(self) -> str:
        """Returns the size of the sweep, for its first message.

        `6 runs: 3 settings x 2 seeds; 1 done before; 2 at a time with 1 thread each`
        """
        plan = self._plan
        factors = [count(len(plan.settings), "setting"), count(len(plan.seeds), "seed")]
        if plan.folds:
            factors.append(f"{plan.folds} folds")
        runs_text = f"{count(len(plan.cells), 'run')}: {' x '.join(factors)}"
        if len(self._mine) < len(plan.cells):
            share = f"; {len(self._mine)} of them here"
        else:
            share = ""
        if self._done:
            done_before = f"; {self._done} done before"
        else:
            done_before = ""
        if plan.rungs:
            limit = round(100 * most_steps(plan) / full_steps(plan))
            runs_text += (
                f", where the best continue at two rungs: at most {limit} % of the steps of all"
            )
        threads = count(plan.threads, "thread")
        return f"{runs_text}{share}{done_before}; {plan.jobs} at a time with {threads} each"

    def _say(self, reply: CellReply) -> None:
        """Reports that a run has ended, or waits at a rung; a failed one as a warning."""
        cell = self._planned[reply.cell]
        if reply.state == "paused":
            self._listener.say(f"{self._label(cell)}: {self._rung_text(reply.cell)}")
            return
        if reply.state == "interrupted":
            result = reply.message
        else:
            result = self._result_text(cell, reply)
        line = (
            f"{self._done} of {len(self._mine)}: {self._label(cell)}: {result}, "
            f"{reply.seconds.get('whole', 0.0):.1f} s"
        )
        if reply.state == "failed" and reply.code != ExitCode.DIVERGED:
            self._listener.warn(line)
        else:
            self._listener.say(line)

    def _rung_text(self, name: str) -> str:
        """Returns what a run has reached at the rung where it waits."""
        steps = self._plan.rungs[name]
        scores = scores_by_step(RunFolder(self._folder / CELLS / name), self._plan)
        step = max(scores)
        return f"{self._plan.primary.name} {scores[step].value:.4f} at step {step} of {steps[-1]}"

    def _label(self, cell: PlannedCell) -> str:
        """Returns the setting, seed and fold of a run, for people."""
        setting = setting_text(self._plan.settings[cell.setting], self._plan.axes)
        if cell.fold:
            fold = f", fold {cell.fold}"
        else:
            fold = ""
        return f"{setting}, {seed_text(self._plan.seeds[cell.seed])}{fold}"

    def _result_text(self, cell: PlannedCell, reply: CellReply) -> str:
        """Returns a run's result, such as `f1 0.8123` or `f1 0.3333 (collapsed)`."""
        result = read_cell(self._folder, self._plan, cell)
        if reply.state == "failed":
            outcome = "diverged" if result.state == "diverged" else "failed"
            return f"{outcome}: {reply.message}"
        if result.value is None:
            value = "no score"
        else:
            value = f"{self._plan.primary.name} {result.value:.4f}"
        if result.state == "done":
            return value
        return f"{value} ({result.state})"
