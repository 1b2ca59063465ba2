"""The one boundary: the answer and every error of `bertctl` leave through `run`."""

import errno
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertctl.cli.app import VERBS, Outputs, build, interruption
from bertctl.cli.framework import streams
from bertctl.errors import (
    BertctlError,
    DeviceError,
    ExitCode,
    InterruptedRunError,
    UnavailableError,
    UsageError,
    is_out_of_memory,
)
from bertctl.plugins import on_broken
from bertctl.runtime.launch import (
    another_ended,
    check_ranks,
    die_with_parent,
    is_first_worker,
    is_worker,
    note_exit,
    take_ranks_of_slurm,
)
from bertctl.runtime.stopping import asked, enter
from bertctl.session import current

if TYPE_CHECKING:
    from bertctl.cli.framework.output import Output

_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection refused",
    "NCCL",
)
"""What the exchange between processes says when one of them is gone."""


def run(arguments: list[str]) -> int:
    """Runs one command line to its end, with one answer or one error.

    Returns:
        The exit code, one of `ExitCode`.
    """
    die_with_parent()
    on_broken.set(_warn_of_plugin)
    outputs = current().part(Outputs)
    try:
        take_ranks_of_slurm()
        check_ranks()
        code = _run(arguments)
    except BertctlError as refusal:
        error = refusal
    except Exception as bug:  # the boundary: a person gets a sentence, --debug gets the rest
        error = _translate(bug, arguments)
        error.__cause__ = bug
    else:
        return _delivered(code, outputs)
    # A library has made an error of its own of the signal.
    if asked() and not isinstance(error, InterruptedRunError):
        error = interruption(error)
    elif asked() not in (0, signal.SIGINT):
        error.exit_code = ExitCode.TERMINATED
    enter("ending")
    return _report(error, outputs, arguments)


def _warn_of_plugin(message: str) -> None:
    """Writes a warning before there is a verb's output."""
    sys.stderr.write(f"warning: {message}\n")


def _run(arguments: list[str]) -> int:
    """Parses a command line, runs its verb, and returns the exit code.

    Raises:
        UsageError: Typer can't parse the command line, or has no completion for this shell.
        BertctlError: The verb's own refusal.
    """
    try:
        code = int(
            build().main(args=arguments, prog_name="bertctl", standalone_mode=False) or ExitCode.OK
        )
    except SystemExit as error:  # completion, which Typer ends so
        code = int(error.code or 0)
    except typer.TyperException as error:
        # `bertctl` alone, or a group alone: the message is the help.
        if type(error).__name__ == "NoArgsIsHelpError" and "--json" not in arguments:
            sys.stdout.write(error.format_message() + "\n")
            return ExitCode.USAGE
        raise _usage(arguments, error) from error
    if code and arguments and arguments[0] in ("--install-completion", "--show-completion"):
        raise UsageError(
            "completion is not made for this shell",
            remedy="Type it in bash, zsh, fish or PowerShell.",
        )
    return code


def _delivered(code: int, outputs: "Sequence[Output]") -> int:
    """Writes the answer, and returns the exit code.

    A good verdict becomes an error if the answer was cut off.
    """
    enter("ending")
    for out in outputs:
        out.deliver()
    streams.flush()
    error = streams.lost(1)
    if error is None or not outputs or code:
        return code
    if error.errno == errno.EPIPE:  # the reader (head, say) has left, and knows it
        if outputs[-1].is_printed:
            cut = ExitCode.CUT
        else:
            cut = ExitCode.OK
        if cut and is_worker():
            note_exit(cut)
        return cut
    message = f"stdout can't be written: {error.strerror}"
    if not outputs[-1].is_printed:
        outputs[-1].warn(f"{message}; everything else is done")
        return code
    return _report(
        UnavailableError(message, remedy="Write to another place, or name a file with -o."),
        outputs,
        [],
    )


def _usage(arguments: Sequence[str], error: typer.TyperException) -> UsageError:
    """Returns our refusal for a command line that Typer can't parse.

    It names what was meant where that can be guessed, and the help to read.

    Args:
        arguments: The command line without `bertctl`, such as `["train", "--epoch", "3"]`.
        error: What Typer says of it.
    """
    if hasattr(error, "possibilities"):  # Typer's NoSuchOption alone has them
        return _unknown_option(arguments, error)
    from bertctl.cli.framework.typed_instead import (
        argument_hint,
        extra_arguments,
        unknown_group_verb,
        unknown_verb,
    )

    # pydantic begins the message of a validator with "Value error, ".
    message = error.format_message().replace("Value error, ", "")
    typed = next((word for word in arguments if not word.startswith("-")), "")
    names = [verb.name for verb in VERBS]
    if typed and typed not in names:
        remedy = f"Verbs: {', '.join(names)}. Type `bertctl --help` for what they do."
        return UsageError(unknown_verb(typed), remedy=remedy)

    context = getattr(error, "ctx", None)
    if context:
        command = context.command_path
    else:
        command = f"bertctl {typed}"
    if typed:
        remedy = f"Type `{command} --help` to see its options."
    else:
        remedy = ""
    extra_words = extra_arguments(message)
    if extra_words:
        hint = argument_hint(command.removeprefix("bertctl "), extra_words)
    else:
        hint = ""
    if hint:
        return UsageError(
            f"{command} takes no further argument: {extra_words}; {hint}", remedy=remedy
        )
    if message.startswith("Missing argument") and context is not None:
        example = _first_example(context.command.help or "")
        remedy = f"For example: {example}\n{remedy}" if example else remedy
    unknown_command = re.match(r"No such command '([^']*)'", message)
    if unknown_command and context is not None:
        verbs_of_group = context.command.list_commands(context)
        message = unknown_group_verb(typed, unknown_command[1], verbs_of_group)
    return UsageError(message, remedy=remedy)


def _first_example(text: str) -> str:
    """Returns the first example of a verb's help, without what it says of it; empty without one."""
    _, _, examples = text.partition("Examples:\n")
    return examples.partition("\n")[0].partition("  #")[0].strip()


def _unknown_option(arguments: Sequence[str], error: Any) -> UsageError:
    """Returns the error for an unknown option.

    It names our option for one of another program, else the nearest one.
    """
    from bertctl.cli.framework.typed_instead import option_hint

    words = [*arguments, ""]  # the option may be the last word, with nothing following
    option_index = next(
        (i for i, word in enumerate(arguments) if word.startswith(error.option_name)),
        len(arguments),
    )
    typed = words[option_index] or error.option_name
    if option_index < len(arguments):
        following = words[option_index + 1]
    else:
        following = ""
    command = error.ctx.command_path.removeprefix("bertctl ")
    parameters = error.ctx.command.get_params(error.ctx)
    options: list[str] = []
    for parameter in parameters:
        options += (*parameter.opts, *parameter.secondary_opts)

    hint = option_hint(typed, following, command, options)
    message = f"unknown option {typed.partition('=')[0]}"
    if hint:
        message += f": {hint}"
    return UsageError(message, remedy=f"Type `{error.ctx.command_path} --help` to see its options.")


def _translate(error: Exception, arguments: "Sequence[str]") -> BertctlError:
    """Returns one of our errors for what can go wrong anywhere; anything else is a bug of ours."""
    not_utf8 = [
        argument
        for argument in arguments
        if argument != argument.encode("utf-8", "ignore").decode()
    ]
    if is_out_of_memory(error):
        remedy = (
            "Try a smaller --max-length, a smaller --batch-size, or --set "
            "training.accumulation_steps=2."
        )
        return DeviceError("out of memory", remedy=remedy)
    if is_worker() and any(sign in str(error) for sign in _LOST):
        return another_ended()
    broken = _broken_package(error)
    if broken:
        return broken
    if isinstance(error, OSError) and error.filename is not None:
        return UnavailableError(f"{error.filename}: {error.strerror or error}", file=error.filename)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return UnavailableError(
            "the disk is full", remedy="Free some space, or write to another place."
        )
    if isinstance(error, OSError) and error.strerror:
        return UnavailableError(error.strerror)
    is_file_name = isinstance(error, UnicodeEncodeError) and sys.getfilesystemencoding() != "utf-8"
    if not_utf8 or is_file_name:
        if not_utf8:
            subject = repr(not_utf8[0])
        else:
            subject = "the name of a file"
        return UsageError(
            f"{subject} is not UTF-8", remedy="Rename it, or take a UTF-8 locale (LC_ALL=C.UTF-8)."
        )
    remedy = (
        "This is a bug in bertctl. Run the same command with --debug for the traceback to report."
    )
    return BertctlError(f"{type(error).__name__}: {error}", remedy=remedy)


def _broken_package(error: BaseException | None) -> UnavailableError | None:
    """Returns the error of a package that can't be imported.

    It is None if no package but our own is behind this error.
    """
    while error is not None and not isinstance(error, ImportError):
        error = error.__cause__ or error.__context__
    if error is None:
        return None

    package = (error.name or "").partition(".")[0] or _importing_package(error)
    if not package or package == "bertctl":
        return None
    if isinstance(error, ModuleNotFoundError):
        message = f"the package {package} is not installed, or not all of it"
    else:
        message = f"the package {package} is installed and can't be imported: {error}"
    return UnavailableError(
        message, remedy=f"Install it again: pip install --force-reinstall {package}"
    )


def _importing_package(error: ImportError) -> str:
    """Returns the installed package in which an import failed, or an empty string."""
    package = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        parts = Path(frame.f_code.co_filename).parts
        if "site-packages" in parts[:-1]:
            package = parts[parts.index("site-packages") + 1]
    return package


def _report(error: BertctlError, outputs: "Sequence[Output]", arguments: "Sequence[str]") -> int:
    """Reports what went wrong, and returns the exit code.

    It goes through the verb's own output where there is one.
    """
    from bertctl.cli.framework.option_names import as_options
    from bertctl.cli.framework.output import Output

    error.message = as_options(error.message)
    error.remedy = as_options(error.remedy)
    if is_worker():
        # One worker says why. Of a stop it is the first one, which knows what was saved; where that
        # was killed, and its end stopped the others, the launcher does.
        is_stop = isinstance(error, InterruptedRunError)
        if (is_stop and not is_first_worker()) or not (note_exit(error.exit_code) or is_stop):
            return int(error.exit_code)
    if outputs:
        out = outputs[-1]
    else:
        out = Output(as_json="--json" in arguments, debug="--debug" in arguments)
    out.error(error)
    streams.flush()
    return int(error.exit_code)
