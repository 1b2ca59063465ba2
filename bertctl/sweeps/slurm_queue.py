"""Slurm's queue, as `squeue` shows it.

It needs no accounting (sacct), which Slurm does not have by default.
"""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertctl.errors import UnavailableError
from bertctl.progress import Listener
from bertctl.words import count, shorten

_SECONDS_BETWEEN_POLLS = 5.0
"""One `squeue` for all jobs of a sweep; sites ask for no more than one in a few seconds."""
_SECONDS_TO_END = 180.0
"""Longest wait for jobs that were cancelled: Slurm's KillWait is 30 s."""
_POLLS_WITHOUT = 2
"""Polls without a job after which it is over: those that have ended leave the list after
MinJobAge."""
_LONGEST_NOTICE = 90
"""Seconds before its time limit at which a job is told to save a checkpoint; Slurm does so up to 30
s earlier."""
_TIME_LIMIT = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})")
"""Time limit as `sbatch --time` takes it, such as `30`, `1:30:00`, `2-0` or `2-12:00:00`."""

_OVER = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)
"""States of jobs without a process; PREEMPTED is one, as no job of ours is requeued."""

_STUCK = (
    "AccountNotAllowed",
    "BadConstraints",
    "DependencyNeverSatisfied",
    "InvalidAccount",
    "InvalidQOS",
    "JobHeldAdmin",
    "JobHeldUser",
    "PartitionConfig",
    "PartitionDown",
    "PartitionInactive",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOSNotAllowed",
)
"""Why a job waits until somebody changes something: most clusters accept jobs that can never
start."""


@dataclass(frozen=True)
class QueuedJob:
    """A job of this user.

    Attributes:
        id: Slurm's number.
        state: Such as `PENDING`, `RUNNING` or `NODE_FAIL`.
        name: Name that it was submitted with.
        reason: Why it waits, such as `Resources` or `PartitionTimeLimit`.
        script: Path of its batch script.
    """

    id: str
    state: str
    name: str
    reason: str
    script: str

    @property
    def is_over(self) -> bool:
        """Returns whether the job has no process any more, and will have none."""
        return self.state in _OVER


class SlurmQueue:
    """The jobs of this user in Slurm, asked for at most once in a few seconds, from any thread.

    Args:
        listener: Is told when Slurm does not answer.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._jobs: dict[str, QueuedJob] = {}  # of the last answer, by id
        self._polls = 0  # answers so far
        self._polled_at = float("-inf")
        self._missing_since: dict[str, int] = {}  # job -> number of polls when it was first missing
        self._is_silent = False  # whether Slurm did not answer the last time; a warning said so
        self._reasons: set[str] = set()  # why jobs are stuck; each was warned of

    def check(self) -> None:
        """Asks once, before anything is submitted.

        Raises:
            UnavailableError: Slurm does not answer.
        """
        with self._lock:
            problem = self._poll()
        if problem:
            remedy = (
                "Ask Slurm yourself: squeue --me. Is its controller up, and is this a machine that "
                "may ask it?"
            )
            raise UnavailableError(f"Slurm does not answer: {problem}", remedy=remedy)

    def state(self, job_id: str) -> str:
        """Returns the state of a job.

        It is `gone` if Slurm does not list it any more, and empty if it is unknown.
        """
        with self._lock:
            if time.monotonic() - self._polled_at >= _SECONDS_BETWEEN_POLLS:
                problem = self._poll()  # empty if Slurm has answered
                self._warn(problem)
            if job_id in self._jobs:
                self._missing_since.pop(job_id, None)
                self._warn_of_stuck(self._jobs[job_id])
                return self._jobs[job_id].state
            # A job that has ended is no longer listed after a while.
            first_missing = self._missing_since.setdefault(job_id, self._polls)
            n_polls_without = self._polls - first_missing
            if n_polls_without >= _POLLS_WITHOUT:
                return "gone"
            return ""

    def is_over(self, job_id: str) -> bool:
        """Returns whether a job has ended, whichever way."""
        return self.state(job_id) in (*_OVER, "gone")

    def unfinished_below(self, folder: Path, names: Collection[str]) -> list[QueuedJob]:
        """Returns jobs of an earlier command, with these names and a script in the folder."""
        with self._lock:
            self._warn(self._poll())
            jobs = list(self._jobs.values())
        return [
            job
            for job in jobs
            if not job.is_over
            and job.name in names
            and Path(job.script).is_relative_to(folder.absolute())
        ]

    def cancel(self, job_ids: Collection[str]) -> None:
        """Cancels jobs, and waits until none of them has a process.

        Raises:
            UnavailableError: One of them does not end.
        """
        if not job_ids:
            return
        subprocess.run(
            ["scancel", *job_ids],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        with self._lock:
            self._polled_at = float("-inf")  # the next look at a job asks Slurm at once
        waits_until = time.monotonic() + _SECONDS_TO_END
        while not all(self.is_over(job_id) for job_id in job_ids):
            if time.monotonic() > waits_until:
                message = (
                    f"{count(len(job_ids), 'job')} of Slurm can't be cancelled: "
                    f"{', '.join(job_ids)}"
                )
                raise UnavailableError(
                    message, remedy="See why with squeue --me. Then type the same command again."
                )
            time.sleep(0.5)

    def _warn_of_stuck(self, job: QueuedJob) -> None:
        """Warns of jobs that may wait forever, once for each reason."""
        may_wait_forever = job.state == "PENDING" and job.reason in _STUCK
        was_warned = job.reason in self._reasons
        if not may_wait_forever or was_warned:
            return
        self._reasons.add(job.reason)
        self._listener.warn(
            f"job {job.id} waits, and will not start before something is changed: Slurm's reason "
            f"is {job.reason}. See it with: scontrol show job {job.id}"
        )

    def _warn(self, problem: str) -> None:
        """Warns that Slurm does not answer, once until it answers again.

        Args:
            problem: Why it does not answer; empty if it does.
        """
        if problem and not self._is_silent:
            self._listener.warn(f"Slurm does not answer, and is asked again: {problem}")
        self._is_silent = bool(problem)

    def _poll(self) -> str:
        """Asks Slurm for all jobs of this user; returns why it does not answer."""
        self._polled_at = time.monotonic()
        squeue = shutil.which("squeue")
        if squeue is None:
            return "squeue is not here"
        command = [
            squeue,
            "--noheader",
            "--states=all",
            f"--user={os.getuid()}",
            "--format=%i|%T|%j|%r|%o",
        ]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")
        }
        try:
            answer = subprocess.run(
                command,
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env=environment,
                timeout=60,
                text=True,
                errors="replace",
            )
        except subprocess.CalledProcessError as error:
            return shorten(error.stderr.strip() or f"exit code {error.returncode}", 200)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        self._polls += 1
        self._jobs = _read_jobs(answer.stdout)
        return ""


def _read_jobs(answer: str) -> dict[str, QueuedJob]:
    """Returns the jobs of an answer by their ids."""
    jobs: dict[str, QueuedJob] = {}
    for line in answer.splitlines():
        fields = line.split("|", 4)
        if len(fields) == 5:
            jobs[fields[0]] = QueuedJob(*fields)
    return jobs


def last_words(log: Path) -> str:
    """Returns the last line of a job's log that is not blank, for a message; empty if none is."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    for line in reversed(lines):
        if line.strip():
            return shorten(line.strip(), 160)
    return ""


def job_names(cells: Mapping[str, object] | Collection[str]) -> dict[str, str]:
    """Returns the name of each cell's jobs, as `squeue` shows it."""
    return {cell: f"bertctl-{cell}" for cell in cells}


def seconds_before_limit(time_limit: str) -> int:
    """Returns how long before its time limit a job is told to save a checkpoint.

    With a short limit this is a quarter of the limit. Otherwise a job with a limit of one minute
    would be told to stop while it starts.

    Args:
        time_limit: Limit as `sbatch --time` takes it; empty for that of the partition.
    """
    limit = _seconds_of_limit(time_limit)
    if limit is None:
        return _LONGEST_NOTICE
    return max(1, min(_LONGEST_NOTICE, limit // 4))


def _seconds_of_limit(time_limit: str) -> int | None:
    """Returns the seconds of a time limit, or None if Slurm doesn't take it or it has no end."""
    match = _TIME_LIMIT.fullmatch(time_limit.strip())
    if match is None:
        return None
    parts = [int(part) for part in match["clock"].split(":")]
    if match["days"] is not None:  # hours, hours:minutes or hours:minutes:seconds
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(parts) == 3:
        hours, minutes, seconds = parts
        return (hours * 60 + minutes) * 60 + seconds
    minutes, seconds = (*parts, 0)[:2]
    limit = minutes * 60 + seconds
    # Slurm takes 0 for no limit.
    return limit or None
