"""The one boundary: the answer and every error of `bertctl` leave through `run`."""

import errno
import itertools
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
"""Texts in the errors that torch's process groups raise when another process has ended."""


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
    except Exception as bug:  # users get a sentence; --debug also prints the traceback
        error = _translate(bug, arguments)
        error.__cause__ = bug
    else:
        return _delivered(code, outputs)

    # `asked` returns the number of a signal that asked the command to stop, else 0.
    stop_signal = asked()
    if stop_signal and not isinstance(error, InterruptedRunError):
        # A library turned the signal into an error of its own.
        error = interruption(error)
    elif stop_signal not in (0, signal.SIGINT):
        # SIGTERM has its own exit code; that of an interruption may still be Ctrl-C's.
        error.exit_code = ExitCode.TERMINATED
    enter("ending")
    return _report(error, outputs, arguments)


def _warn_of_plugin(message: str) -> None:
    """Writes a warning about a plug-in. It can come before the verb's `Output` exists."""
    sys.stderr.write(f"warning: {message}\n")


def _run(arguments: list[str]) -> int:
    """Parses a command line, runs its verb, and returns the exit code.

    Raises:
        UsageError: Typer can't parse the command line, or has no completion for this shell.
        BertctlError: The verb's own refusal.
    """
    try:
        # Without standalone mode, Typer returns the exit code and raises its errors.
        returned = build().main(args=arguments, prog_name="bertctl", standalone_mode=False)
        code = int(returned or ExitCode.OK)
    except SystemExit as error:  # Typer ends the process itself after shell completion
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
    """Prints the answer of a verb that ended well, and returns the exit code.

    If stdout can't be written, success becomes an error, unless the verb has written its results
    to files. A verb's own exit code other than 0 stays.

    Args:
        code: The exit code of the verb.
        outputs: The verb's `Output`; empty if no verb was run, as for `--help`.
    """
    enter("ending")
    for out in outputs:
        out.deliver()
    streams.flush()
    error = streams.lost(1)
    if error is None or not outputs or code:
        return code

    # Whether the results were printed only, so that a part of them is lost now.
    are_results_lost = outputs[-1].is_printed
    if error.errno == errno.EPIPE:
        # The reader of the pipe, such as `head`, closed it and needs no message.
        exit_code = ExitCode.CUT if are_results_lost else ExitCode.OK
        if exit_code and is_worker():
            note_exit(exit_code)
        return exit_code
    message = f"stdout can't be written: {error.strerror}"
    if not are_results_lost:
        outputs[-1].warn(f"{message}; everything else is done")
        return code
    return _report(
        UnavailableError(message, remedy="Write to another place, or name a file with -o."),
        outputs,
        [],
    )


def _usage(arguments: Sequence[str], error: typer.TyperException) -> UsageError:
    """Returns the error for a command line that Typer can't parse.

    Its message names what was probably meant, its remedy the help to read.

    Args:
        arguments: The command line without `bertctl`, such as `["train", "--epoch", "3"]`.
        error: Typer's error.
    """
    # Of Typer's errors, only the one of an unknown option has possibilities.
    if hasattr(error, "possibilities"):
        return _unknown_option(arguments, error)
    from bertctl.cli.framework.typed_instead import (
        argument_hint,
        extra_arguments,
        unknown_group_verb,
        unknown_verb,
    )

    # pydantic begins the message of a validator with "Value error, ".
    message = error.format_message().replace("Value error, ", "")
    verb = next((word for word in arguments if not word.startswith("-")), "")
    names = [known_verb.name for known_verb in VERBS]
    if verb and verb not in names:
        remedy = f"Verbs: {', '.join(names)}. Type `bertctl --help` for what they do."
        return UsageError(unknown_verb(verb), remedy=remedy)

    # The context is Typer's record of the command it was parsing: `bertctl vocab train`.
    context = getattr(error, "ctx", None)
    if context:
        command = context.command_path
    else:
        command = f"bertctl {verb}"
    remedy = ""
    if verb:
        remedy = f"Type `{command} --help` to see its options."

    # More arguments than the verb takes. For some verbs bertctl knows what is probably meant.
    extra_words = extra_arguments(message)
    if extra_words:
        hint = argument_hint(command.removeprefix("bertctl "), extra_words)
        if hint:
            return UsageError(
                f"{command} takes no further argument: {extra_words}; {hint}", remedy=remedy
            )

    # An argument is missing: the remedy shows an example of the verb.
    if message.startswith("Missing argument") and context is not None:
        example = _first_example(context.command.help or "")
        if example:
            remedy = f"For example: {example}\n{remedy}"

    # A group such as `vocab` was typed with a verb that it does not have.
    unknown_command = re.match(r"No such command '([^']*)'", message)
    if unknown_command and context is not None:
        verbs_of_group = context.command.list_commands(context)
        message = unknown_group_verb(verb, unknown_command[1], verbs_of_group)
    return UsageError(message, remedy=remedy)


def _first_example(text: str) -> str:
    """Returns the first example command in a verb's help, without its comment; empty if none."""
    _, _, examples = text.partition("Examples:\n")
    return examples.partition("\n")[0].partition("  #")[0].strip()


def _unknown_option(arguments: Sequence[str], error: Any) -> UsageError:
    """Returns the error for an unknown option, which suggests one that the verb has.

    Args:
        arguments: The command line without `bertctl`.
        error: Typer's NoSuchOption, with the name of the option and the context of the verb.
    """
    from bertctl.cli.framework.typed_instead import option_hint

    # Typer's name of the option lacks a value after `=`, and the next word can be its value.
    typed = error.option_name
    following = ""
    for word, next_word in itertools.pairwise([*arguments, ""]):
        if word.startswith(error.option_name):
            typed = word
            following = next_word
            break
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
    """Returns a `BertctlError` for any other exception.

    Full memory or disks, missing files, broken packages and names that are not UTF-8 can occur in
    any verb, and are explained here. Anything else is reported as a bug in bertctl.

    Args:
        error: The exception.
        arguments: The command line. One of its words may be a name that is not UTF-8.
    """
    if is_out_of_memory(error):
        remedy = (
            "Try a smaller --max-length, a smaller --batch-size, or --set "
            "training.accumulation_steps=2."
        )
        return DeviceError("out of memory", remedy=remedy)
    # Another process of the job has ended, so this one can't exchange tensors with it any more.
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

    # A word that is not UTF-8 loses something when it is encoded: Python reads its wrong bytes as
    # half surrogates, which have no encoding.
    words_not_utf8 = [
        argument
        for argument in arguments
        if argument != argument.encode("utf-8", "ignore").decode()
    ]
    # If the locale is not UTF-8, a name of a file with other characters can't be encoded.
    is_file_name = isinstance(error, UnicodeEncodeError) and sys.getfilesystemencoding() != "utf-8"
    if words_not_utf8 or is_file_name:
        if words_not_utf8:
            subject = repr(words_not_utf8[0])
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
    """Returns an error about a package that can't be imported, if that caused an exception.

    It returns None for another cause, and for an import error of bertctl's own, which is a bug.

    Args:
        error: The exception.
    """
    # Libraries wrap import errors, so the exceptions behind this one are searched for one.
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
    """Returns the installed package in which an import failed, or an empty string.

    It is the package of the innermost stack frame that lies in `site-packages`.
    """
    package = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        parts = Path(frame.f_code.co_filename).parts
        if "site-packages" in parts[:-1]:
            package = parts[parts.index("site-packages") + 1]
    return package


def _report(error: BertctlError, outputs: "Sequence[Output]", arguments: "Sequence[str]") -> int:
    """Prints an error, and returns the exit code.

    Args:
        error: The error. Settings in its message, such as `max_length=N`, become options:
            `--max-length N`.
        outputs: The verb's `Output`; empty if the error came before the verb started.
        arguments: The command line, in which `--json` and `--debug` are then looked for.
    """
    from bertctl.cli.framework.option_names import as_options
    from bertctl.cli.framework.output import Output

    error.message = as_options(error.message)
    error.remedy = as_options(error.remedy)
    if is_worker() and not _is_reporting_worker(error):
        return int(error.exit_code)
    if outputs:
        out = outputs[-1]
    else:
        out = Output(as_json="--json" in arguments, debug="--debug" in arguments)
    out.error(error)
    streams.flush()
    return int(error.exit_code)


def _is_reporting_worker(error: BertctlError) -> bool:
    """Returns whether this worker is the one of all that prints an error; notes its exit code.

    After a stop signal it is the first worker, which knows what was saved. If that one was killed,
    the launcher reports it. Any other error is printed by the worker that notes its exit code
    first.
    """
    if isinstance(error, InterruptedRunError):
        if not is_first_worker():
            return False
        note_exit(error.exit_code)
        return True
    return note_exit(error.exit_code)
