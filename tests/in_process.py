"""The command line in the test's own process.

`bertctl` without a process and imports for each command.

What is tested is the same but for signals, the start and the end of a process: `run_command` in a
session with streams of its own, as `bertctl.cli.main.entry` has them.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TextIO

from bertctl.cli.framework.streams import open_streams
from bertctl.cli.main import run_command
from bertctl.session import opened


def run_here(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end, in this process.

    Args:
        words: What is typed after `bertctl`.
        cwd: Its folder.
        env: Its environment.
        stdin: A file; nothing where it is None.
    """
    with (
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
        open(stdin or os.devnull, "rb") as supplied,  # noqa: PTH123 - may be os.devnull
    ):
        with (
            _process_state_kept(),
            _descriptors_lead_to(supplied, stdout, stderr),
            warnings_as_in_a_new_process(),
        ):
            os.environ.clear()
            os.environ.update(env)
            os.chdir(cwd)
            code = _exit_code(words)
        return subprocess.CompletedProcess(["bertctl", *words], code, _text(stdout), _text(stderr))


def _exit_code(words: Sequence[str]) -> int:
    with opened():
        open_streams()
        try:
            return run_command(words)
        except SystemExit as left:
            return left.code if isinstance(left.code, int) else int(left.code is not None)
        except Exception:  # noqa: BLE001 - what leaves the command line is a traceback for a person
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()


@contextlib.contextmanager
def _process_state_kept() -> Iterator[None]:
    """Restores what belongs to the harness: folder and environment."""
    folder = os.open(".", os.O_RDONLY)
    env = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(env)
        os.fchdir(folder)
        os.close(folder)


@contextlib.contextmanager
def _descriptors_lead_to(*files: IO[bytes]) -> Iterator[None]:
    """Leads descriptors 0, 1 and 2, and Python's names for them, to files."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    for stream in streams[1:]:
        stream.flush()
    descriptors = [os.dup(number) for number in range(3)]
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextlib.contextmanager
def warnings_as_in_a_new_process() -> Iterator[None]:
    """Writes warnings to stderr, which are errors in tests."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        (file or sys.stderr).write(
            warnings.formatwarning(message, category, filename, lineno, line)
        )

    with warnings.catch_warnings():
        warnings.resetwarnings()
        for category in (
            DeprecationWarning,
            PendingDeprecationWarning,
            ImportWarning,
            ResourceWarning,
        ):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show
        yield


def _text(file: IO[bytes]) -> str:
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode()
