"""The runs of a sweep as jobs of Slurm (by submitit) or tasks of a Ray cluster, in place of workers on this machine.

A job is a process on some machine that runs one cell with a worker of its own (pool.py). The machines share the sweep's
folder. A job that is lost with its machine, or ran out of time, is submitted again and goes on from its checkpoint.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bertctl.errors import ExitCode, UnavailableError
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.stopping import end_now, handled_by
from bertctl.sweeps.plan import CELLS, PLAN
from bertctl.sweeps.pool import Pool, visible_devices
from bertctl.sweeps.worker import CellReply, WorkerSettings, note_failure

PACKAGES = {"local": "bertctl", "slurm": "submitit", "ray": "ray"}
"""What has to be installed, by the name of the executor."""

_MOST_LOSSES = 5  # of one cell's jobs


def check_executor(name: str) -> None:
    """Refuses an executor whose package is not installed, before anything is loaded.

    Raises:
        UnavailableError: with the install line.
    """
    if find_spec(PACKAGES[name]) is None:
        remedy = f"Install it, on all machines: pip install 'bertctl[{name}]'"
        raise UnavailableError(f"--executor {name} needs the package {PACKAGES[name]}", remedy=remedy)


class Jobs:
    """Runs cells as jobs, as `Pool` does in processes.

    Args:
        settings: of the workers.
        executor: `slurm` or `ray`; each job asks for the threads and the GPU of its recipe.
        jobs: under way at most.
        listener: hears of jobs that are lost.

    Attributes:
        stopped_by: the signal that came; 0 without.
    """

    def __init__(self, settings: WorkerSettings, executor: str, jobs: int, listener: Listener) -> None:
        self._settings, self._listener, self.stopped_by = settings, listener, 0
        self._threads, self._running = ThreadPoolExecutor(jobs), dict[str, Any]()
        runtime = next(iter(settings.recipes.values()))["runtime"]
        cpus, gpus = runtime["threads"], 1 if runtime["device"] == "cuda" else None
        if executor == "ray":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            import ray

            ray.init(log_to_driver=False, logging_level="ERROR")
            self._submit = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_far).remote
            self._result, self._cancel, self._leave = ray.get, ray.cancel, ray.shutdown
            return
        import submitit

        engine = submitit.AutoExecutor(settings.folder / "jobs")
        if engine.cluster != "slurm":
            listener.warn("there is no Slurm here (no srun): submitit runs the jobs on this machine")
        # A month for the clock of submitit.
        engine.update_parameters(timeout_min=43200, cpus_per_task=cpus, slurm_gpus_per_node=gpus)
        if engine.cluster == "slurm":  # its partition's, or SBATCH_TIMELIMIT; `update_parameters` takes no None
            engine.parameters["time"] = None
        self._submit = lambda *given: engine.submit(run_far, *given)
        self._result, self._cancel = (lambda job: job.result()), (lambda job: job.cancel())
        self._leave = lambda: None

    def run(self, cells: Sequence[str], on_reply: Callable[[CellReply], None]) -> None:
        """Runs the cells; a signal cancels the jobs, which save what they have, and a second one waits for none."""
        # Ray has words of its own for stdout, of nodes that die; it has left before the answer is printed.
        with self._threads as threads, handled_by(self._stop), redirect_stdout(sys.stderr):
            for future in as_completed([threads.submit(self._run, cell) for cell in cells]):
                if (reply := future.result()) is not None:
                    on_reply(reply)
            self._leave()

    def _stop(self, number: int, _: object) -> None:
        if self.stopped_by:
            end_now(number)
        self.stopped_by = number
        for job in list(self._running.values()):
            self._cancel(job)

    def _run(self, cell: str) -> CellReply | None:
        """Runs a cell to its end, by several jobs where they are lost; returns None where it was not begun any more."""
        folder = RunFolder(self._settings.folder / CELLS / cell)
        settings = replace(self._settings, recipes={cell: self._settings.recipes[cell]})
        for number in range(1, _MOST_LOSSES + 1):
            if self.stopped_by:
                return None
            try:
                job = self._submit(settings, cell, Path.cwd(), os.environ.get("HF_HUB_OFFLINE", "0"))
                self._running[cell] = job
                if self.stopped_by:  # while it was submitted
                    self._cancel(job)
                reply = CellReply(**self._result(job))
            except Exception as error:  # noqa: BLE001 - each engine has its own for a machine that is gone
                reply = CellReply(cell, "interrupted", repr(error)[:300])
            if reply.state != "interrupted" or self.stopped_by:
                return _seen(reply, folder)
            self._listener.warn(f"{cell}: job {number} was lost ({reply.message})")
        note_failure(folder, f"{_MOST_LOSSES} jobs were lost")
        return CellReply(cell, "failed", f"{_MOST_LOSSES} jobs were lost", ExitCode.DEVICE)


def _seen(reply: CellReply, folder: RunFolder) -> CellReply:
    """Returns the reply once its cell is as it says; one that failed where that is not seen."""
    for _ in range(60):  # seconds: NFS remembers for so long what is not there
        if reply.state != "done" or (folder.status.is_file() and folder.read(folder.status)["state"] == "done"):
            return reply
        time.sleep(1)
    return _unseen(reply.cell, folder.path)


def _unseen(cell: str, folder: Path) -> CellReply:
    return CellReply(cell, "failed", f"{os.uname().nodename} does not see {folder}, as all must", ExitCode.UNAVAILABLE)


def run_far(settings: WorkerSettings, cell: str, where: Path, offline: str) -> dict[str, Any]:
    """Is the job: runs a cell with a worker on this machine; returns its reply as a dictionary.

    Args:
        settings: of the worker.
        cell: its name.
        where: the command was typed: the recipe's paths are relative to it.
        offline: HF_HUB_OFFLINE there.
    """
    if not (settings.folder / PLAN).is_file():
        return vars(_unseen(cell, settings.folder))
    os.chdir(where)
    os.environ["HF_HUB_OFFLINE"] = offline
    # What Slurm says, through submitit, when the time is nearly up.
    signal.signal(signal.SIGUSR2, lambda *_: signal.raise_signal(signal.SIGTERM))
    devices = visible_devices() if settings.recipes[cell]["runtime"]["device"] == "cuda" else []
    replies = [CellReply(cell, "interrupted", "it was told to stop")]
    Pool(replace(settings, parent=os.getpid()), {}, jobs=1, devices=devices).run([cell], replies.append)
    return vars(replies[-1])
