"""Workers that share the inputs out, and are watched.

They are replaced when one of them dies or takes too long.
"""

import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.worker import Told
from tests.nursery import Child, Nursery

SECONDS = 30.0
"""Of the processor that a command may take on any input."""
PATIENCE = 120.0
"""Seconds by the clock after which an input hangs, on a machine that has other work."""
BYTES = 2 << 30
"""Of memory that it may take."""
# A disk would wait for each file.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
_ROOT = Path(__file__).resolve().parent.parent.parent
_RUN = f"import sys; sys.path[:0] = [{str(_ROOT)!r}]; from tests.fuzz.worker import begin; begin()"


@dataclass
class Figures:
    """What became of all inputs.

    Attributes:
        inputs: how many there were.
        codes: exit code -> commands that ended so (the last of each input).
        targets: target -> inputs.
        costs: target -> seconds of the processor.
        failed: inputs of which something was wrong.
        longest: seconds of the slowest input, and which.
        highest: bytes of the largest peak, and which.
        seconds: of it all.
    """

    inputs: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    targets: Counter[str] = field(default_factory=Counter)
    costs: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    failed: list[Told] = field(default_factory=list)
    longest: tuple[float, int] = (0.0, -1)
    highest: tuple[int, int] = (0, -1)
    seconds: float = 0.0

    def add(self, told: Told) -> None:
        """Counts one input."""
        self.inputs += 1
        self.codes[told.code] += 1
        self.targets[told.target] += 1
        self.costs[told.target] += told.seconds
        self.longest = max(self.longest, (told.seconds, told.number))
        self.highest = max(self.highest, (told.peak, told.number))
        if told.seconds > SECONDS:
            told.wrong.append(f"{told.seconds:.0f} seconds")
        if told.peak > BYTES:
            told.wrong.append(f"{told.peak >> 20} MiB of memory")
        if told.wrong:
            self.failed.append(told)

    def __str__(self) -> str:
        slow = self.longest
        high = self.highest
        codes = " ".join(f"{code}:{count}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.inputs} inputs, {len(self.failed)} failed, {self.seconds:.0f} s, "
            f"longest {slow[0]:.1f} s (input {slow[1]}), peak {high[0] >> 20} MiB (input "
            f"{high[1]}); exit codes {codes}"
        )


def taken(
    seed: int,
    inputs: int,
    *,
    jobs: int = 1,
    kind: str = "light",
    first: int = 0,
    minutes: float = math.inf,
    nursery: Nursery | None = None,
) -> Figures:
    """Takes so many inputs, from `first` on, through the command line in `jobs` processes at once.

    Stops in time.

    The processes come out of the nursery, if there is one.
    """
    figures = Figures()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_MEMORY) as folder:
        if kind == "runs":
            words = [sys.executable, "-m", "tests.fuzz.trained", str(Path(folder) / "trained")]
            subprocess.run(words, cwd=_ROOT, check=True, capture_output=True)
        workers = [
            _Worker(Path(folder) / str(job), seed, first + job, first + inputs, jobs, kind, nursery)
            for job in range(jobs)
        ]
        while workers:
            ready, _, _ = select.select([worker.pipe for worker in workers], [], [], 1.0)
            for worker in list(workers):
                for told in worker.heard(worker.pipe in ready):
                    figures.add(told)
                if worker.is_done or time.monotonic() - started > 60 * minutes:
                    worker.stop()
                    workers.remove(worker)
    figures.seconds = time.monotonic() - started
    return figures


class _Worker:
    """A process, and the one that comes after it when it dies."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        number: int,
        before: int,
        step: int,
        kind: str,
        nursery: Nursery | None,
    ) -> None:
        self._arguments = (seed, before, step, kind)
        self._nursery = nursery
        self._folder = folder
        self._next = number
        self._start()

    def _start(self) -> None:
        seed, before, step, kind = self._arguments
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        words = list(map(str, (self._folder, seed, self._next, before, step, kind)))
        self._process: subprocess.Popen[bytes] | Child
        with (self._folder / "stderr").open("wb") as said:
            if self._nursery is not None:
                self._process = self._nursery.start(
                    ["-c", _RUN, *words],
                    cwd=_ROOT,
                    env=os.environ,
                    stderr=said.fileno(),
                    kind="light",
                )
            else:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _RUN, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    cwd=_ROOT,
                    start_new_session=True,
                )
        assert self._process.stdout is not None
        self.pipe = self._process.stdout.fileno()
        self._left = b""
        self._in_hand: int | None = None
        self._since = time.monotonic()
        self.is_done = False

    def stop(self) -> None:
        """Ends it, if it has not ended."""
        self._process.kill()
        self._process.wait()

    def heard(self, ready: bool) -> Iterator[Told]:
        """Yields the inputs that are over."""
        if ready:
            said = os.read(self.pipe, 1 << 16)
            if not said:
                yield from self._ended()
                return
            *lines, self._left = (self._left + said).split(b"\n")
            for line in lines:
                self._since = time.monotonic()
                if line[:1] == b"{":
                    told = Told(**json.loads(line))
                    self._in_hand = None
                    self._next = told.number + self._arguments[2]
                    yield told
                else:
                    self._in_hand = int(line)
        elif self._in_hand is not None and time.monotonic() - self._since > PATIENCE:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _ended(self) -> Iterator[Told]:
        code = self._process.wait()
        self._process.stdout.close()
        if self._in_hand is None:
            if code:
                raise RuntimeError(
                    f"the worker could not begin:\n{(self._folder / 'stderr').read_text()[-3_000:]}"
                )
            self.is_done = True
            return
        took = time.monotonic() - self._since
        said = (self._folder / "stderr").read_text(encoding="utf-8", errors="replace")[-600:]
        yield Told(
            self._in_hand,
            "?",
            code=code,
            wrong=[f"the process ended with {code} after {took:.0f} s"],
            said=said,
        )
        self._next = self._in_hand + self._arguments[2]
        if self._next >= self._arguments[1]:
            self.is_done = True
        else:
            self._start()
