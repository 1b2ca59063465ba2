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
    """Runs one command line, and leaves the process as it was before.

    It can be called in any thread; commands in several threads take turns. It prints to
    `sys.stdout` and `sys.stderr` as they are, and handles no signals: Ctrl-C raises in the main
    thread as in any Python.

    Args:
        argv: Arguments without the program's name; None takes those of `sys.argv`.

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
    # An idle thread of OpenMP spins before it sleeps. If it spins for long, trainings that share
    # the cores slow each other down. Examples per second of MiniLM on 2 cores with AMX:
    #
    #     spin count                    1,000   4,000   10,000   100,000
    #     one training                    164     197      210       210
    #     two, side by side, together     237     200                 33
    #
    # The variable is set here because the OpenMP library reads it when torch loads the library.
    # Settings of the user are kept.
    if "OMP_WAIT_POLICY" not in os.environ:
        current().default_variable("GOMP_SPINCOUNT", "4000")
    # In a process that has run other code, the library may have read its variables long ago.
    if "huggingface_hub.constants" in sys.modules:
        from bertctl.catalog.huggingface_internals import follow_environment

        follow_environment()
    from bertctl.cli.boundary import run

    return run(command_words())


def entry() -> None:
    """Runs the console script `bertctl`, and ends the process with the command's exit code."""
    # The session stays open until the process ends.
    opened().__enter__()
    begin_process()
    watch()  # from now on, signals are handled
    # Libraries make objects by the hundred thousand, hardly any in cycles. To look for cycles at
    # every 700 objects takes an eighth of `predict` of one line and 3 % of a training step.
    gc.set_threshold(10_000)
    from bertctl.cli.framework.streams import open_streams

    open_streams()
    code = run_command()
    enter("ending")
    from bertctl.errors import ExitCode
    from bertctl.runtime.launch import is_worker, leave

    # Here threads of libraries may still be at work, and could make the interpreter's shutdown
    # fail. So the process ends without it.
    if is_worker() or code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        leave(code)
    ignore()  # a signal during the shutdown no longer changes the exit code
    gc.freeze()  # the interpreter's last look at 370,000 objects takes 0.6 s
    sys.exit(code)
