"""The one error boundary: every way out of `bertctl` passes through `main`."""

import errno
import os
import sys
import traceback
from collections.abc import Sequence

import typer

from bertctl.cli.app import VERBS, build
from bertctl.cli.output import Output
from bertctl.errors import BertctlError, DeviceError, ExitCode, InterruptedRunError, UnavailableError, UsageError
from bertctl.runtime.launch import die_with_parent, is_first_worker, is_worker, leave, note_exit
from bertctl.words import did_you_mean

_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused", "NCCL")
"""What the exchange between processes says when one of them is gone."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        argv: arguments without the program's name; `sys.argv` when left out.

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
    out = Output(debug="--debug" in arguments)

    def adopt(verbs_output: Output) -> None:
        nonlocal out
        out = verbs_output

    try:
        code = _run(arguments, adopt)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, say) has left: not our error, and nothing more can be said on stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except KeyboardInterrupt:
        return _report(out, InterruptedRunError("interrupted; nothing had been started that could be saved"))
    except BertctlError as error:
        return _report(out, error)
    except Exception as error:  # the boundary: a person gets a sentence, --debug gets the rest
        return _report(out, _translate(error))
    return code


def _run(arguments: list[str], adopt: object) -> int:
    command = typer.main.get_command(build(arguments, adopt))  # type: ignore[arg-type]
    try:
        result = command.main(args=arguments, prog_name="bertctl", standalone_mode=False)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except SystemExit as error:  # Typer's answer to a reader of its help who has left
        raise BrokenPipeError from error
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(error.format_message() + "\n")
            return ExitCode.USAGE
        raise _usage(arguments, error) from error
    if result == ExitCode.INTERRUPTED:  # Typer turns Ctrl-C into this code
        raise KeyboardInterrupt
    return int(result or ExitCode.OK)


def _usage(arguments: Sequence[str], error: typer.TyperException) -> UsageError:
    message = error.format_message()
    typed = next((word for word in arguments if not word.startswith("-")), "")
    names = [verb.name for verb in VERBS]
    if typed and typed not in names:
        hint = did_you_mean(typed, names)
        return UsageError(
            f"there is no verb '{typed}'" + (f": {hint}" if hint else ""),
            remedy=f"Verbs: {', '.join(names)}. Type `bertctl --help` for what they do.",
        )
    return UsageError(message, remedy=f"Type `bertctl {typed} --help` for what it takes." if typed else "")


def _translate(error: Exception) -> BertctlError:
    """What can go wrong anywhere, as one of our errors; anything else is a bug of ours."""
    from bertctl.training.out_of_memory import is_out_of_memory

    if is_out_of_memory(error):
        translated: BertctlError = DeviceError(
            "out of memory",
            remedy="Try a smaller --max-length, a smaller --batch-size, or --set training.accumulation_steps=2.",
        )
    elif is_worker() and any(sign in str(error) for sign in _LOST):
        translated = DeviceError(
            "another process of this job has gone without a word (killed, or out of memory)",
            remedy="Look at the machine's log; --resume goes on from the last checkpoint of a training run.",
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


def _report(out: Output, error: BertctlError) -> int:
    if is_worker():
        said_first = note_exit(error.exit_code)
        # One worker says why. All of them are interrupted, and the first one knows what was saved.
        if not (is_first_worker() if isinstance(error, InterruptedRunError) else said_first):
            return int(error.exit_code)
    if out.debug:
        out.close()
        traceback.print_exception(error)
    try:
        out.error(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return int(error.exit_code)


def entry() -> None:
    """The console script."""
    code = main()
    if is_worker():
        leave(code)
    sys.exit(code)
