"""The one error boundary: every way out of `bertctl` passes through `main`."""

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from bertctl.cli.app import VERBS, OnOutput, build
from bertctl.errors import (
    BertctlError,
    DeviceError,
    ExitCode,
    InterruptedRunError,
    UnavailableError,
    UsageError,
    is_out_of_memory,
)
from bertctl.runtime.launch import die_with_parent, is_first_worker, is_worker, leave, note_exit
from bertctl.words import unknown

if TYPE_CHECKING:
    from bertctl.cli.output import Output

_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused", "NCCL")
"""What the exchange between processes says when one of them is gone."""
_COMPLETING = "_BERTCTL_COMPLETE"
"""The variable with which a shell asks for completions."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line.

    Args:
        argv: arguments without the program's name; those of `sys.argv` where it is None.

    Returns:
        The exit code, one of `ExitCode`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Idle OpenMP threads soon sleep instead of spinning on. MiniLM on 2 cores, examples/s: alone 183 (191 if they spin
    # for ever, 150 when they sleep at once); two trainings side by side 225 together (fewer than 20 when they spin).
    # Read by the OpenMP library when torch loads it, hence here; what the person has set stands.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    die_with_parent()
    outputs: list[Output] = []
    try:
        code = _run(arguments, outputs.append)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, say) has left: not our error, and nothing more can be said on stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except KeyboardInterrupt:
        error: BertctlError = InterruptedRunError("interrupted; nothing had been started that could be saved")
    except BertctlError as refusal:
        error = refusal
    except Exception as bug:  # the boundary: a person gets a sentence, --debug gets the rest
        error = _translate(bug)
    else:
        return code
    return _report(error, outputs, debug="--debug" in arguments)


def _run(arguments: list[str], on_output: OnOutput) -> int:
    try:
        result = build(on_output).main(args=arguments, prog_name="bertctl", standalone_mode=False)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except SystemExit as error:
        if error.code in (0, None) or _COMPLETING in os.environ:
            return int(error.code or 0)
        raise BrokenPipeError from error  # Typer's answer to a reader of its help who has left
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(error.format_message() + "\n")
            return ExitCode.USAGE
        raise _usage(arguments, error) from error
    if result == ExitCode.INTERRUPTED:  # Typer turns Ctrl-C into this code
        raise KeyboardInterrupt
    return int(result or ExitCode.OK)


def _usage(arguments: Sequence[str], error: typer.TyperException) -> UsageError:
    message = error.format_message().replace("Value error, ", "")
    typed = next((word for word in arguments if not word.startswith("-")), "")
    names = [verb.name for verb in VERBS]
    if typed and typed not in names:
        return UsageError(
            unknown("verb", typed, names), remedy=f"Verbs: {', '.join(names)}. Type `bertctl --help` for what they do."
        )
    return UsageError(message, remedy=f"Type `bertctl {typed} --help` for what it takes." if typed else "")


def _translate(error: Exception) -> BertctlError:
    """Returns one of our errors for what can go wrong anywhere; anything else is a bug of ours."""
    if is_out_of_memory(error):
        translated: BertctlError = DeviceError(
            "out of memory",
            remedy="Try a smaller --max-length, a smaller --batch-size, or --set training.accumulation_steps=2.",
        )
    elif is_worker() and any(sign in str(error) for sign in _LOST):
        translated = DeviceError(
            "another process of this job ended without a message (killed, or out of memory)",
            remedy="Look at the machine's log. --resume continues a training run from its last checkpoint.",
        )
    elif isinstance(error, OSError) and error.filename is not None:
        translated = UnavailableError(f"{error.filename}: {error.strerror or error}")
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        translated = UnavailableError("the disk is full", remedy="Free some space, or write to another place.")
    elif isinstance(error, OSError) and error.strerror:
        translated = UnavailableError(error.strerror)
    else:
        translated = BertctlError(
            f"{type(error).__name__}: {error}",
            remedy="This is a bug in bertctl. Run the same command with --debug for the traceback to report.",
        )
    translated.__cause__ = error
    return translated


def _report(error: BertctlError, outputs: "Sequence[Output]", *, debug: bool) -> int:
    """Says what went wrong, through the verb's own output where there is one, and returns the exit code."""
    from bertctl.cli.output import Output

    if is_worker():
        said_first = note_exit(error.exit_code)
        # One worker says why. All of them are interrupted, and the first one knows what was saved.
        if not (is_first_worker() if isinstance(error, InterruptedRunError) else said_first):
            return int(error.exit_code)
    out = outputs[-1] if outputs else Output(debug=debug)
    if out.debug:
        out.close()
        traceback.print_exception(error)
    try:
        out.error(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return int(error.exit_code)


def entry() -> None:
    """Runs the console script."""
    code = main()
    if is_worker():
        leave(code)
    sys.exit(code)
