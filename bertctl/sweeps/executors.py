"""The runs of a sweep as jobs of Slurm (by submitit) or tasks of a Ray cluster.

They take the place of workers on this machine.

A job is a process on some machine that runs one cell with a worker of its own (pool.py). The
machines share the sweep's folder. A job that is lost with its machine, or ran out of time, is
cancelled, submitted again, and goes on from its checkpoint.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from bertctl.errors import ExitCode, UnavailableError
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.stopping import StopRequest, end_now, handled_by
from bertctl.session import carried, current
from bertctl.sweeps.far_job import SECONDS_UNSEEN, run_far, unseen_folder
from bertctl.sweeps.plan import CELLS
from bertctl.sweeps.slurm_jobs import NoAnswerError, RefusedJobError, SlurmCluster
from bertctl.sweeps.worker import CellReply, WorkerSettings, note_failure
from bertctl.words import shorten

PACKAGES = {"local": "bertctl", "slurm": "submitit", "ray": "ray"}
"""What has to be installed, by the name of the executor."""

_MOST_LOSSES = 5
"""Jobs of one cell in a row that end without having brought the run further."""
_SECONDS_BETWEEN_SUBMISSIONS = 30
"""Longest wait before a job that was not taken is submitted again."""
_MOST_REFUSALS = 10
"""Refusals in a row after the sweep's last job has ended: the cluster counts it for a while."""


def check_executor(name: str) -> None:
    """Refuses an executor whose package is not installed, before anything is loaded.

    Raises:
        UnavailableError: with the install line.
    """
    if find_spec(PACKAGES[name]) is None:
        remedy = f"Install it, on all machines: pip install 'bertctl[{name}]'"
        raise UnavailableError(
            f"`executor={name}` needs the package {PACKAGES[name]}", remedy=remedy
        )


class Engine(Protocol):
    """Where jobs run: a cluster, by the library that talks to it."""

    def submit(self, settings: WorkerSettings, cell: str) -> Any:
        """Submits the job of a cell, and returns what the library knows it by.

        Raises:
            RefusedJobError: The cluster does not take such a job.
            NoAnswerError: The cluster does not answer at the moment.
        """

    def result(self, job: Any) -> dict[str, Any]:
        """Waits for a job, and returns its reply as a dictionary.

        For a lost job it raises the library's error.
        """

    def cancel(self, job: Any) -> None:
        """Stops a job; it saves what it has."""

    def end(self, job: Any) -> None:
        """Returns when a job that was lost has no process any more and won't be started again."""

    def leave(self) -> None:
        """Ends the connection."""


class RayCluster:
    """A Ray cluster.

    Args:
        cpus: Processors that a job asks for.
        gpus: GPUs that a job asks for; None without.
    """

    def __init__(self, cpus: int, gpus: int | None) -> None:
        # Unless the user has set the variable, Ray sends no usage statistics.
        current().default_variable("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init(log_to_driver=False, logging_level="ERROR")
        self._run_far = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_far)
        # Functions of Ray that are methods of an `Engine`, as they are.
        self.result = ray.get
        self.cancel = ray.cancel
        self.leave = ray.shutdown

    def submit(self, settings: WorkerSettings, cell: str) -> Any:
        """Submits the job of a cell."""
        return self._run_far.remote(
            settings, cell, Path.cwd(), os.environ.get("HF_HUB_OFFLINE", "0")
        )

    def end(self, job: Any) -> None:
        """Does nothing: a task that is lost has gone with its node."""


class Jobs:
    """Runs cells as jobs, as `Pool` does in processes.

    Args:
        settings: Settings of the workers.
        executor: `slurm` or `ray`. Each job asks for the threads and the GPU of its recipe.
        jobs: Number of jobs that are under way at most.
        listener: Receives warnings of jobs that are lost.
        labels: Setting and seed of each cell, for people; None to use the names of the cells.

    Attributes:
        stopped_by: The signal that ended the work; 0 if none did.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        executor: str,
        jobs: int,
        listener: Listener,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._labels = labels or {}
        self._request = StopRequest()
        self._threads = ThreadPoolExecutor(jobs)  # each thread runs one cell at a time
        self._submitting = threading.Lock()  # one thread at a time submits a job
        self._is_refused = False  # whether the cluster takes no job: then the sweep ends
        self._warnings: set[str] = set()  # warnings that were given, as each is given once
        self._running: dict[str, Any] = {}  # cell -> its job
        self._n_ended = 0  # jobs that have ended, in whatever way
        runtime = next(iter(settings.recipes.values()))["runtime"]
        cpus = runtime["threads"]
        if runtime["device"] == "cuda":
            gpus = 1
        else:
            gpus = None
        self._engine: Engine
        if executor == "ray":
            self._engine = RayCluster(cpus, gpus)
        else:
            self._engine = SlurmCluster(
                settings.folder / "jobs", settings.recipes.keys(), cpus, gpus, listener
            )

    @property
    def stopped_by(self) -> int:
        """Returns the signal that ended the work; 0 where none did."""
        return self._request.number

    def run(self, cells: Sequence[str], on_reply: Callable[[CellReply], None]) -> None:
        """Runs the cells.

        A signal cancels the jobs, which save what they have, and a second one waits for none.
        """
        # Ray prints messages about dead nodes to stdout, where only the command's answer belongs.
        # They go to stderr. Ray is shut down before the answer is printed.
        with self._threads as threads, handled_by(self._stop), redirect_stdout(sys.stderr):
            run = carried(self._run)  # in the session of this thread
            try:
                for future in as_completed([threads.submit(run, cell) for cell in cells]):
                    reply = future.result()
                    if reply is not None:
                        on_reply(reply)
            finally:
                self._engine.leave()

    def _stop(self, number: int, _: object) -> None:
        """Handles a signal: the first one cancels all jobs, a second one ends this process."""
        is_first = not self._request.number
        if self._request.hear(number):
            end_now(number)
        if not is_first:
            return
        for job in list(self._running.values()):
            self._engine.cancel(job)

    def _run(self, cell: str) -> CellReply | None:
        """Runs a cell to its end, with a new job for each lost job, and returns its reply.

        The reply is None if no job was submitted before the sweep ended. The cell fails after some
        lost jobs in a row. A lost job that had brought the run further begins the count anew, as a
        long run may need many jobs with a time limit.
        """
        folder = RunFolder(self._settings.folder / CELLS / cell)
        settings = replace(self._settings, recipes={cell: self._settings.recipes[cell]})
        losses = 0  # in a row, without progress
        step = _saved_step(folder)
        while losses < _MOST_LOSSES:
            job = self._submit(settings, cell)
            if job is None:
                return None
            try:
                reply = CellReply(**self._engine.result(job))
            except Exception as error:  # noqa: BLE001  # each engine has its own for a lost machine
                reply = CellReply(cell, "interrupted", _loss_message(error))
            # The job is counted as ended first, and only then taken off the running ones. Between
            # the two lines another thread may submit a job that the cluster refuses. With no job
            # running and none ended, it would conclude that the cluster refuses all jobs.
            self._n_ended += 1
            self._running.pop(cell)
            if reply.state != "interrupted" or self.stopped_by:
                return _seen(reply, folder)
            self._engine.end(job)
            step_before = step
            step = _saved_step(folder)
            has_progressed = step > step_before
            if has_progressed:
                losses = 1
            else:
                losses += 1
            job_id = getattr(job, "job_id", "")
            number = f" {job_id}" if job_id else ""
            if losses >= _MOST_LOSSES:
                next_step = "it is given up"
            elif step:
                next_step = f"it continues from step {step} in another job"
            else:
                next_step = "it starts again in another job"
            self._listener.warn(
                f"{self._labels.get(cell, cell)}: job{number} ended before the run did "
                f"({reply.message}); {next_step}"
            )
        message = f"{_MOST_LOSSES} jobs in a row were lost; the last one: {reply.message}"
        note_failure(folder, message)
        return CellReply(cell, "failed", message, ExitCode.DEVICE)

    def _submit(self, settings: WorkerSettings, cell: str) -> Any | None:
        """Submits the job of a cell; returns None if the sweep ends before the cluster takes it.

        Clusters limit how many jobs a user may have. So if the job is refused while other jobs of
        this sweep run, it is submitted again once one of these has ended. Until then no other job
        is submitted, as it would be refused as well, hundreds of times in a large sweep.

        Raises:
            RefusedJobError: The job is refused, and no job of this sweep runs whose end could help.
        """
        n_refusals_alone = 0  # in a row, with no other job of this sweep under way
        with self._submitting:
            while True:
                if self.stopped_by or self._is_refused:
                    return None
                n_ended = self._n_ended
                try:
                    job = self._engine.submit(settings, cell)
                except NoAnswerError as error:
                    problem = f"the cluster does not answer, and is asked again: {error}"
                except RefusedJobError as error:
                    if self._running:
                        n_refusals_alone = 0
                    else:
                        n_refusals_alone += 1
                    # A job that is refused alone is asked for again only if the cluster has taken
                    # jobs of this sweep before: it may count an ended job for a while. The first
                    # job of all is refused for its options, which do not change.
                    allowed_refusals = _MOST_REFUSALS if self._n_ended else 0
                    if n_refusals_alone > allowed_refusals:
                        self._is_refused = True
                        raise
                    problem = f"{error.message}; other runs wait until one of the jobs has ended"
                else:
                    self._running[cell] = job
                    break
                self._warn_once(problem)
                self._wait_for_others(n_ended)
        if self.stopped_by:
            # The signal came while the job was submitted, so it was not cancelled with the others.
            self._engine.cancel(job)
        return job

    def _warn_once(self, problem: str) -> None:
        """Warns of a problem with submitting, unless the same warning was given before."""
        if problem not in self._warnings:
            self._warnings.add(problem)
            self._listener.warn(problem)

    def _wait_for_others(self, n_ended: int) -> None:
        """Waits until another job has ended or a signal has come, for half a minute at most.

        Args:
            n_ended: Number of jobs that had ended before.
        """
        for _ in range(_SECONDS_BETWEEN_SUBMISSIONS):
            if self.stopped_by or self._n_ended > n_ended:
                return
            time.sleep(1)


def _loss_message(error: Exception) -> str:
    """Returns what an engine says of a lost job, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return shorten(text, 300)


def _saved_step(folder: RunFolder) -> int:
    """Returns the step of the newest checkpoint; 0 without one."""
    numbers = [path.name.removeprefix("step-") for path in folder.checkpoints.glob("step-*")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _seen(reply: CellReply, folder: RunFolder) -> CellReply:
    """Returns the reply of a job once its run folder says `done` on this machine too.

    A network file system may show it late. If it does not within a minute, the reply is that the
    machine does not see the folder. A reply that is not `done` is returned at once.
    """
    for _ in range(SECONDS_UNSEEN):
        if reply.state != "done" or (
            folder.status.is_file() and folder.read_status().state == "done"
        ):
            return reply
        time.sleep(1)
    return unseen_folder(reply.cell, folder.path)
