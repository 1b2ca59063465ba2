"""The runs of a sweep as jobs of Slurm (by submitit) or tasks of a Ray cluster, in place of workers
on this machine.

A job is a process on some machine that runs one cell with a worker of its own (pool.py). The
machines share the sweep's folder. A job that is lost with its machine, or ran out of time, is
cancelled, submitted again, and goes on from its checkpoint.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, cast

from bertctl.catalog.huggingface_internals import set_hub_variable
from bertctl.errors import ExitCode, UnavailableError
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.stopping import STOPS, StopRequest, end_now, handled_by
from bertctl.session import carried, current
from bertctl.sweeps.plan import CELLS, PLAN
from bertctl.sweeps.pool import Pool, visible_devices
from bertctl.sweeps.slurm_queue import SlurmQueue, job_names, last_words, seconds_before_limit
from bertctl.sweeps.worker import TIME_IS_UP, CellReply, WorkerSettings, note_failure
from bertctl.words import count, shorten

PACKAGES = {"local": "bertctl", "slurm": "submitit", "ray": "ray"}
"""What has to be installed, by the name of the executor."""

_MOST_LOSSES = 5
"""Jobs of one cell in a row that end without having brought the run further."""
_SECONDS_UNSEEN = 60
"""So long NFS remembers what is not there."""


def check_executor(name: str) -> None:
    """Refuses an executor whose package is not installed, before anything is loaded.

    Raises:
        UnavailableError: with the install line.
    """
    if find_spec(PACKAGES[name]) is None:
        remedy = f"Install it, on all machines: pip install 'bertctl[{name}]'"
        raise UnavailableError(
            f"--executor {name} needs the package {PACKAGES[name]}", remedy=remedy
        )


class Engine(Protocol):
    """Where jobs run: a cluster, by the library that talks to it."""

    def submit(self, settings: WorkerSettings, cell: str) -> Any:
        """Submits the job of a cell, and returns what the library knows it by."""

    def result(self, job: Any) -> dict[str, Any]:
        """Waits for a job, and returns its reply as a dictionary; raises what the library has for a
        lost one.
        """

    def cancel(self, job: Any) -> None:
        """Has a job stop; it saves what it has."""

    def end(self, job: Any) -> None:
        """Returns when a job that was lost has no process any more and won't be started again."""

    def leave(self) -> None:
        """Ends the connection."""


class LostJobError(Exception):
    """A job that ended without a reply."""


class RayCluster:
    """A Ray cluster.

    Args:
        cpus: Processors that a job asks for.
        gpus: GPUs that a job asks for; None without.
    """

    def __init__(self, cpus: int, gpus: int | None) -> None:
        current().default_variable("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init(log_to_driver=False, logging_level="ERROR")
        self._run_far = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_far)
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


class SlurmCluster:
    """Slurm, by submitit, which runs the jobs on this machine where there is no Slurm.

    submitit asks only `sacct` what has become of a job, and that is not there without accounting.
    So the queue is read here. No job is requeued by Slurm: a second job of the same run would begin
    beside the one that is submitted in place of the lost one.

    Args:
        folder: Of submitit's files.
        cells: Names of the runs.
        cpus: Processors that a job asks for.
        gpus: GPUs that a job asks for; None without.
        listener: Receives warnings.
    """

    def __init__(
        self, folder: Path, cells: Collection[str], cpus: int, gpus: int | None, listener: Listener
    ) -> None:
        import submitit

        self._executor = submitit.AutoExecutor(folder)
        self._names = job_names(cells)
        self._submitting = threading.Lock()
        # A month for the clock of submitit.
        self._executor.update_parameters(
            timeout_min=43200, cpus_per_task=cpus, slurm_gpus_per_node=gpus
        )
        self._queue: SlurmQueue | None = None
        if self._executor.cluster != "slurm":
            listener.warn(
                "there is no Slurm here (no srun): submitit runs the jobs on this machine"
            )
            return
        # Its partition's time, or SBATCH_TIMELIMIT; `update_parameters` takes no None.
        self._executor.parameters["time"] = None
        self._executor.update_parameters(
            slurm_additional_parameters={"no-requeue": True},
            slurm_signal_delay_s=seconds_before_limit(os.environ.get("SBATCH_TIMELIMIT", "")),
        )
        queue = SlurmQueue(listener)
        queue.check()
        self._queue = queue
        # Jobs of a command that was killed would train the same runs once more.
        earlier = [
            job.id for job in queue.unfinished_below(folder, {*self._names.values(), "submitit"})
        ]
        if earlier:
            listener.warn(
                f"{count(len(earlier), 'job')} of an earlier command cancelled: "
                f"{', '.join(earlier)}"
            )
            queue.cancel(earlier)

    def submit(self, settings: WorkerSettings, cell: str) -> Any:
        """Submits the job of a cell, under the cell's name."""
        with self._submitting:
            self._executor.update_parameters(name=self._names[cell])
            return self._executor.submit(
                run_far,
                settings,
                cell,
                Path.cwd(),
                os.environ.get("HF_HUB_OFFLINE", "0"),
            )

    def result(self, job: Any) -> dict[str, Any]:
        """Waits for a job, and returns its reply.

        Raises:
            LostJobError: It ended without one.
        """
        if self._queue is None:
            return cast(dict[str, Any], job.result())
        while not job.paths.result_pickle.exists():
            if self._queue.is_over(job.job_id) and not _appears(job.paths.result_pickle):
                words = last_words(job.paths.stderr)
                state = self._queue.state(job.job_id)
                raise LostJobError(
                    f"Slurm says {state}" + (f"; its last words: {words}" if words else "")
                )
            time.sleep(1)
        return cast(dict[str, Any], job.result())

    def cancel(self, job: Any) -> None:
        """Has a job stop."""
        job.cancel(check=False)

    def end(self, job: Any) -> None:
        """Cancels a job that is lost, and waits until it has no process."""
        if self._queue is not None:
            self._queue.cancel([job.job_id])

    def leave(self) -> None:
        """Does nothing: there is no connection."""


def _appears(path: Path) -> bool:
    """Returns whether a file is seen within a minute: NFS remembers for a while what is not
    there.
    """
    for _ in range(_SECONDS_UNSEEN):
        with contextlib.suppress(OSError):
            os.listdir(path.parent)  # noqa: PTH208 - it asks the server again
        if path.exists():
            return True
        time.sleep(1)
    return False


class Jobs:
    """Runs cells as jobs, as `Pool` does in processes.

    Args:
        settings: of the workers.
        executor: `slurm` or `ray`; each job asks for the threads and the GPU of its recipe.
        jobs: under way at most.
        listener: hears of jobs that are lost.
        labels: setting and seed of each cell, for people; their names where left out.

    Attributes:
        stopped_by: the signal that came; 0 without.
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
        self._threads = ThreadPoolExecutor(jobs)
        self._running: dict[str, Any] = {}
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
                settings.folder / "jobs",
                settings.recipes.keys(),
                cpus,
                gpus,
                listener,
            )

    @property
    def stopped_by(self) -> int:
        """Returns the signal that ended the work; 0 where none did."""
        return self._request.number

    def run(self, cells: Sequence[str], on_reply: Callable[[CellReply], None]) -> None:
        """Runs the cells; a signal cancels the jobs, which save what they have, and a second one
        waits for none.
        """
        # Ray has words of its own for stdout, of nodes that die; it has left before the answer is
        # printed.
        with self._threads as threads, handled_by(self._stop), redirect_stdout(sys.stderr):
            run = carried(self._run)
            for future in as_completed([threads.submit(run, cell) for cell in cells]):
                if (reply := future.result()) is not None:
                    on_reply(reply)
            self._engine.leave()

    def _stop(self, number: int, _: object) -> None:
        is_first = not self._request.number
        if self._request.hear(number):
            end_now(number)
        if not is_first:
            return
        for job in list(self._running.values()):
            self._engine.cancel(job)

    def _run(self, cell: str) -> CellReply | None:
        """Runs a cell to its end, by several jobs where they are lost; returns None where it was
        not begun any more.

        A job that has brought the run further is none of the few that may be lost: a long run takes
        many time limits.
        """
        folder = RunFolder(self._settings.folder / CELLS / cell)
        settings = replace(self._settings, recipes={cell: self._settings.recipes[cell]})
        losses = 0
        step = _saved_step(folder)
        while losses < _MOST_LOSSES:
            if self.stopped_by:
                return None
            job = None
            try:
                job = self._engine.submit(settings, cell)
                self._running[cell] = job
                if self.stopped_by:  # while it was submitted
                    self._engine.cancel(job)
                reply = CellReply(**self._engine.result(job))
            except Exception as error:  # noqa: BLE001 - each engine has its own for a machine that is gone
                reply = CellReply(cell, "interrupted", _said_of_loss(error))
            if reply.state != "interrupted" or self.stopped_by:
                return _seen(reply, folder)
            if job is not None:
                self._engine.end(job)
            step_before = step
            step = _saved_step(folder)
            if step <= step_before:
                losses = losses + 1
            else:
                losses = 1
            job_id = getattr(job, "job_id", "")
            number = f" {job_id}" if job_id else ""
            if step:
                where = f"goes on from step {step}"
            else:
                where = "starts again"
            self._listener.warn(
                f"{self._labels.get(cell, cell)}: job{number} ended before the run did "
                f"({reply.message}); "
                + (f"it {where} in another job" if losses < _MOST_LOSSES else "it is given up")
            )
        message = f"{_MOST_LOSSES} jobs in a row were lost; the last one: {reply.message}"
        note_failure(folder, message)
        return CellReply(cell, "failed", message, ExitCode.DEVICE)


def _said_of_loss(error: Exception) -> str:
    """Returns what an engine says of a lost job, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return shorten(text, 300)


def _saved_step(folder: RunFolder) -> int:
    """Returns the step of the newest checkpoint; 0 without one."""
    numbers = [path.name.removeprefix("step-") for path in folder.checkpoints.glob("step-*")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _seen(reply: CellReply, folder: RunFolder) -> CellReply:
    """Returns the reply once its cell is as it says; one that failed where that is not seen."""
    for _ in range(_SECONDS_UNSEEN):
        if reply.state != "done" or (
            folder.status.is_file() and folder.read(folder.status)["state"] == "done"
        ):
            return reply
        time.sleep(1)
    return _unseen(reply.cell, folder.path)


def _unseen(cell: str, folder: Path) -> CellReply:
    return CellReply(
        cell,
        "failed",
        f"{os.uname().nodename} does not see {folder}, as all must",
        ExitCode.UNAVAILABLE,
    )


def run_far(settings: WorkerSettings, cell: str, where: Path, offline: str) -> dict[str, Any]:
    """Is the job: runs a cell with a worker on this machine; returns its reply as a dictionary.

    Args:
        settings: of the worker.
        cell: its name.
        where: the command was typed: the recipe's paths are relative to it.
        offline: HF_HUB_OFFLINE there.
    """
    request = StopRequest()
    with ignored_until_heard(request):
        if not (settings.folder / PLAN).is_file():
            return vars(_unseen(cell, settings.folder))
        os.chdir(where)
        set_hub_variable("HF_HUB_OFFLINE", offline)
        current().command = settings.command
        if settings.recipes[cell]["runtime"]["device"] == "cuda":
            devices = visible_devices()
        else:
            devices = []
        # A job that is told so again and again has too little time to read the data and to load the
        # model.
        message = (
            "it was told to stop, by its time limit or by scancel, before it could save anything "
            "new"
        )
        replies = [CellReply(cell, "interrupted", message)]
        pool = Pool(
            replace(settings, parent=os.getpid()),
            {},
            jobs=1,
            devices=devices,
            request=request,
        )
        pool.run([cell], replies.append)
    return vars(replies[-1])


@contextlib.contextmanager
def ignored_until_heard(request: StopRequest) -> Iterator[None]:
    """Notes signals from the first line of a job on, while nothing is there yet that could save a
    checkpoint.

    Args:
        request: Hears of the signals; `Pool.run` looks at it when it begins, and hears the later
            ones itself.
    """

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        request.hear(number)

    def pass_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        signal.raise_signal(signal.SIGTERM)

    handlers = {number: signal.getsignal(number) for number in (*STOPS, TIME_IS_UP)}
    for number in STOPS:
        signal.signal(number, note)
    signal.signal(TIME_IS_UP, pass_on)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
