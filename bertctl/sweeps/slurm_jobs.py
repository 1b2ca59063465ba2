"""The jobs of a sweep in Slurm: submitted by submitit, watched by `squeue`."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from bertctl.errors import UnavailableError, UsageError
from bertctl.progress import Listener
from bertctl.sweeps.far_job import SECONDS_UNSEEN, run_far
from bertctl.sweeps.slurm_queue import SlurmQueue, job_names, last_words, seconds_before_limit
from bertctl.sweeps.worker import WorkerSettings
from bertctl.words import count, shorten

_MINUTES_OF_A_MONTH = 30 * 24 * 60
_NO_ANSWER = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Communication connection failure",
    "Communication shutdown failure",
    "Zero Bytes were transmitted",
    "Resource temporarily unavailable",
    "Slurm controller not responding",
    "Slurm backup controller in standby mode",
)
"""Parts of what `sbatch` says where it does not know whether the job was taken (slurm_errno.c)."""


class LostJobError(Exception):
    """A job that ended without a reply."""


class RefusedJobError(UsageError):
    """A job that the cluster does not take, as it was asked for."""


class NoAnswerError(Exception):
    """A cluster that does not answer at the moment."""


class SlurmCluster:
    """Slurm, by submitit, which runs the jobs on this machine where there is no Slurm.

    submitit asks only `sacct` what has become of a job, and that is not there without accounting.
    So the queue is read here. No job is requeued by Slurm: a second job of the same run would begin
    beside the one that is submitted in place of the lost one.

    Args:
        folder: Folder for submitit's files.
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
        self._folder = folder
        # Cells whose last `sbatch` had no clear answer: their job may be in the queue or not.
        self._in_doubt: set[str] = set()
        # submitit stops a job after its timeout. A month leaves the limit to Slurm.
        self._executor.update_parameters(
            timeout_min=_MINUTES_OF_A_MONTH,
            cpus_per_task=cpus,
            slurm_gpus_per_node=gpus,
        )
        self._queue: SlurmQueue | None = None
        if self._executor.cluster != "slurm":
            listener.warn("Slurm is not here (no srun): submitit runs the jobs on this machine")
            return
        # `sbatch` gets no `--time`, so the limit is SBATCH_TIMELIMIT or the partition's. It is
        # set here because `update_parameters` takes no None.
        self._executor.parameters["time"] = None
        # Slurm signals a job some seconds before that limit, so that it saves a checkpoint.
        time_limit = os.environ.get("SBATCH_TIMELIMIT", "")
        self._executor.update_parameters(
            slurm_additional_parameters={"no-requeue": True},
            slurm_signal_delay_s=seconds_before_limit(time_limit),
        )
        queue = SlurmQueue(listener)
        queue.check()
        self._queue = queue
        # Jobs of a command that was killed would train the same runs once more. Earlier versions
        # of bertctl submitted jobs under submitit's default name.
        earlier = self._cancel_jobs({*self._names.values(), "submitit"})
        if earlier:
            listener.warn(
                f"{count(len(earlier), 'job')} of an earlier command cancelled: "
                f"{', '.join(earlier)}"
            )

    def submit(self, settings: WorkerSettings, cell: str) -> Any:
        """Submits the job of a cell, under the cell's name; called by one thread at a time.

        Raises:
            RefusedJobError: `sbatch` refuses its options.
            NoAnswerError: Slurm does not answer.
            UnavailableError: The job can't be written, or there is no `sbatch`.
        """
        name = self._names[cell]
        if cell in self._in_doubt:
            # Slurm may have taken the last submission, though it gave no answer.
            self._cancel_jobs({name})
            self._in_doubt.remove(cell)
        self._executor.update_parameters(name=name)
        try:
            with _silent_thread():
                return self._executor.submit(
                    run_far,
                    settings,
                    cell,
                    Path.cwd(),
                    os.environ.get("HF_HUB_OFFLINE", "0"),
                )
        except OSError as error:
            message = f"the job can't be submitted: {error}"
            raise UnavailableError(message) from None
        except Exception as error:
            # submitit raises an error of its own, whose cause is the failed call of `sbatch`.
            if not isinstance(error.__cause__, subprocess.CalledProcessError):
                raise
            message = _message_of_sbatch(error.__cause__.stderr)
            if any(part in message for part in _NO_ANSWER):
                self._in_doubt.add(cell)
                raise NoAnswerError(message) from None
            raise _refusal(message) from None

    def result(self, job: Any) -> dict[str, Any]:
        """Waits for a job, and returns its reply.

        Raises:
            LostJobError: It ended without one.
        """
        if self._queue is None:  # there is no Slurm, so submitit runs the job on this machine
            return cast(dict[str, Any], job.result())
        while not job.paths.result_pickle.exists():
            # The result of a job that is over may take a moment to appear on a shared disk.
            if self._queue.is_over(job.job_id) and not _appears(job.paths.result_pickle):
                words = last_words(job.paths.stderr)
                state = self._queue.state(job.job_id)
                message = f"Slurm says {state}"
                if words:
                    message += f"; its last words: {words}"
                raise LostJobError(message)
            time.sleep(1)
        return cast(dict[str, Any], job.result())

    def cancel(self, job: Any) -> None:
        """Stops a job."""
        job.cancel(check=False)

    def end(self, job: Any) -> None:
        """Cancels a job that is lost, and waits until it has no process."""
        if self._queue is not None:
            self._queue.cancel([job.job_id])

    def leave(self) -> None:
        """Does nothing: there is no connection."""

    def _cancel_jobs(self, names: Collection[str]) -> list[str]:
        """Cancels jobs of this sweep by their names, and waits for their ends; returns them."""
        if self._queue is None:
            return []
        jobs = [job.id for job in self._queue.unfinished_below(self._folder, names)]
        self._queue.cancel(jobs)
        return jobs


def _appears(path: Path) -> bool:
    """Returns whether a file can be seen within a minute.

    A client of NFS may not see a new file for a while, as it remembers that there was none.
    """
    for _ in range(SECONDS_UNSEEN):
        with contextlib.suppress(OSError):
            os.listdir(path.parent)  # noqa: PTH208 - it asks the server again
        if path.exists():
            return True
        time.sleep(1)
    return False


def _refusal(message: str) -> RefusedJobError:
    """Returns the error for options that `sbatch` does not take."""
    variables = [f"{name}={value}" for name, value in os.environ.items() if _is_option(name)]
    if variables:
        options = f"given by {', '.join(sorted(variables))} and `runtime.threads=`"
    else:
        options = "SBATCH_PARTITION, SBATCH_TIMELIMIT, ... and `runtime.threads=`"
    return RefusedJobError(
        f"sbatch refuses the jobs: {message}",
        remedy=f"Change the jobs' options ({options}), or ask for fewer at once (`jobs=N`). "
        "`sinfo` lists what the cluster has.",
    )


def _is_option(variable: str) -> bool:
    """Returns whether an environment variable is an option of `sbatch`."""
    return variable.startswith("SBATCH_")


def _message_of_sbatch(stderr: str) -> str:
    """Returns what `sbatch` says, in one line."""
    lines = [line.strip().removeprefix("sbatch: error: ") for line in stderr.splitlines()]
    return shorten("; ".join(line for line in lines if line) or "without a reason", 400)


@contextlib.contextmanager
def _silent_thread() -> Iterator[None]:
    """Drops what this thread writes to stderr.

    The library submitit writes the message of `sbatch` there, which its error has as well.
    """
    with contextlib.redirect_stderr(cast(TextIO, _OtherThreads(sys.stderr))):
        yield


class _OtherThreads:
    """Stream that drops what the thread writes that made it, and passes on the rest.

    Args:
        stream: Receives what other threads write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._silent_thread = threading.get_ident()

    def write(self, text: str) -> int:
        """Writes text, unless the silent thread has written it."""
        if threading.get_ident() == self._silent_thread:
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
