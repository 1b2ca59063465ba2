"""Several processes that share one job: started by torchrun, here or on several machines; and what each knows of it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bertctl.errors import BertctlError, ExitCode, UsageError
from bertctl.runtime.device import available_cores

_CODES = "BERTCTL_EXIT_CODES"
_LONGEST_WAIT = timedelta(days=7)  # the others may have a long way to go


@dataclass(frozen=True)
class Workers:
    """This process among those that share the job.

    Attributes:
        rank: its number, from 0.
        count: how many there are.
        wait: returns when all have called it.
    """

    rank: int
    count: int
    wait: Callable[[], None]


def workers() -> Workers | None:
    """This process among those of torchrun or `accelerate launch`; None where it runs alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count < 2 or "RANK" not in os.environ:
        return None
    import torch.distributed as group

    if not group.is_initialized():
        group.init_process_group("gloo", timeout=_LONGEST_WAIT)
    return Workers(int(os.environ["RANK"]), count, group.barrier)


def is_worker() -> bool:
    """Whether somebody has started this process as one of several."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def note_exit(error: BertctlError) -> None:
    """Leave the exit code for the launcher: torchrun returns 1, whatever a worker returned."""
    folder = os.environ.get(_CODES)
    if folder:
        (Path(folder) / os.environ.get("RANK", "0")).write_text(str(int(error.exit_code)), encoding="ascii")


def launch(arguments: Sequence[str], count: int) -> int:
    """Run a `bertctl` command line in several processes on this machine.

    Args:
        arguments: what is typed after `bertctl`, `--num-processes` and its value included; they are taken out. `-` for
            stdin is replaced by a file, for every process has to read it.
        count: processes. Each gets its share of the cores unless `--threads` says otherwise.

    Returns:
        The exit code, the first worker's own where one failed.
    """
    if count < 1:
        raise UsageError(f"--num-processes {count}: it must be at least 1")
    passed = without_option(arguments, "--num-processes")
    if "--threads" not in passed and not any(word.startswith("--threads=") for word in passed):
        passed += ["--threads", str(max(1, available_cores() // count))]
    with tempfile.TemporaryDirectory() as folder:
        codes = Path(folder) / "codes"
        codes.mkdir()
        if "-" in passed:
            spooled = Path(folder) / "stdin.txt"
            with spooled.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            passed[passed.index("-")] = str(spooled)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]
        environment = {**os.environ, _CODES: str(codes), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen([*command, "-m", "bertctl", *passed], env=environment, stderr=subprocess.PIPE)
        if process.stderr is not None:
            _pass_on(process.stderr)
        if process.wait() == 0:
            return ExitCode.OK
        left = sorted(int(path.read_text(encoding="ascii")) for path in codes.iterdir())
        return left[0] if left else ExitCode.BUG


def _pass_on(lines: Iterable[bytes]) -> None:
    """What the workers say, each error once; torchrun's own long report of a failure, which follows, is left out."""
    said: set[bytes] = set()
    mute = False
    for line in lines:
        mute = mute or b"torch/distributed/" in line
        if not mute and line not in said:
            sys.stderr.buffer.write(line)
            sys.stderr.flush()
        said.add(line)


def without_option(arguments: Sequence[str], option: str) -> list[str]:
    """The arguments without an option and its value."""
    kept: list[str] = []
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word == option:
            skip = True
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept
