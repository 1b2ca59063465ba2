"""The console script: signals and streams first, then what takes time to import."""

import gc
import os
import sys

if sys.platform == "win32":  # before what needs fcntl and SIGHUP
    sys.stderr.write(
        "bertctl needs Linux, macOS or WSL 2 (https://learn.microsoft.com/windows/wsl/install).\n"
    )
    sys.exit(2)

from bertctl.runtime.command_clock import begin_command, begin_process
from bertctl.runtime.stopping import enter, ignore, watch
from bertctl.session import command_words, current, opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str] | None" = None) -> int:
    """Runs one command line in a process that goes on afterwards, as it was before.

    It can be called in any thread; commands in several threads take turns. It prints to
    `sys.stdout` and `sys.stderr` as they are, and handles no signals: Ctrl-C raises in the main
    thread as in any Python.

    Args:
        argv: Arguments without the program's name; those of `sys.argv` where it is None.

    Returns:
        The exit code, one of `ExitCode`.
    """
    with opened():
        return run_command(argv)


def run_command(argv: "Sequence[str] | None" = None) -> int:
    """Runs one command line in the session that is open; see `main`."""
    if argv is not None:
        current().command = argv
    begin_command()
    # Idle OpenMP threads soon sleep instead of spinning on. MiniLM on 2 cores with AMX, examples/s:
    # alone 197 (164 at a count of 1,000, 210 from 10,000 on); two trainings side by side 200
    # together (237 at 1,000, 33 at 100,000). Read by the OpenMP library when torch loads it, hence
    # here; what the person has set stands.
    if "OMP_WAIT_POLICY" not in os.environ:
        current().default_variable("GOMP_SPINCOUNT", "4000")
    if "huggingface_hub.constants" in sys.modules:
        from bertctl.catalog.huggingface_internals import follow_environment

        follow_environment()
    from bertctl.cli.boundary import run

    return run(command_words())


def entry() -> None:
    """Runs the console script."""
    opened().__enter__()
    begin_process()
    watch()
    # Libraries make objects by the hundred thousand, hardly any in cycles. To look for those at
    # every 700 objects takes an eighth of `predict` of one line and 3 % of a training step.
    gc.set_threshold(10_000)
    from bertctl.cli.framework.streams import open_streams

    open_streams()
    code = run_command()
    enter("ending")
    from bertctl.errors import ExitCode
    from bertctl.runtime.launch import is_worker, leave

    if is_worker() or code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        leave(code)
    ignore()
    gc.freeze()  # the interpreter's last look at 370,000 objects takes 0.6 s
    sys.exit(code)
