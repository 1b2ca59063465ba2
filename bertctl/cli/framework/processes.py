"""Verbs whose work several processes share: how they are started, and which of them prints."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertctl.cli.framework.output import Output
from bertctl.data.pipes import is_read_once, regular
from bertctl.progress import SILENT, Listener
from bertctl.runtime.accelerate_config import lone_process_warning
from bertctl.runtime.command_clock import pass_on_start
from bertctl.runtime.launch import Workers, is_worker, launch, workers
from bertctl.session import command_words

if TYPE_CHECKING:
    from bertctl.inference.shards import Sharing

_OUTPUTS = ("-o", "--output")

NumProcessesOption = Annotated[
    int,
    typer.Option(
        "--num-processes",
        metavar="N",
        min=1,
        help="Number of processes that share the work (torchrun on CPUs, accelerate on GPUs).",
        rich_help_panel="Compute",
    ),
]


def in_processes(count: int, out: Output, *, source: str = "", config: Path | None = None) -> None:
    """Runs this command line again in several processes, waits for their ends, and exits.

    It returns if one process is enough, or if this process is one of the several.

    Args:
        count: Number of processes, of `--num-processes`.
        out: Receives warnings, such as that there are more processes than cores.
        source: What the command reads; `-` is stdin.
        config: Configuration file of accelerate, which tells the number of processes if `count`
            is 1.

    Raises:
        Exit: The processes have ended; with their exit code.
    """
    if is_worker():
        return
    if count > 1 or config is not None:
        # The processes report the time since this command began, not since they began.
        pass_on_start()
        with tempfile.TemporaryDirectory() as folder:
            # Each process has to read all of the input, and a pipe can be read only once.
            arguments = _with_files_for_pipes(command_words(), Path(folder))
            exit_code = launch(
                arguments,
                count,
                stdin=source == "-",
                config=config,
                listener=out,
            )
            raise typer.Exit(exit_code)
    warning = lone_process_warning()
    if warning:
        out.warn(warning)


def _with_files_for_pipes(arguments: Sequence[str], folder: Path) -> list[str]:
    """Returns a command line in which copies of pipes replace the pipes, for several processes.

    Args:
        arguments: Words that were typed after `bertctl`.
        folder: Folder for links to the copies.

    Raises:
        UnavailableError: A pipe can't be read, or its content has no room on the disk.
    """
    replaced = []
    for i, word in enumerate(arguments):
        # `value`, or `--option=value`; in `--option value` the option is the word before.
        option = sign = ""
        value = word
        if word.startswith("--"):
            option, sign, value = word.rpartition("=")
        is_output = option in _OUTPUTS or (i > 0 and arguments[i - 1] in _OUTPUTS)
        if not is_output and value not in ("", "-") and is_read_once(Path(value)):
            copied = regular(Path(value), seen_by_others=True)
            # The link has the name of the pipe, whose suffix may tell the format. Its folder is
            # its own, as two pipes may have one name.
            link_folder = folder / str(i)
            link_folder.mkdir()
            link = link_folder / Path(value).name
            link.symlink_to(copied)
            word = f"{option}{sign}{link}"
        replaced.append(word)
    return replaced


def this_worker(out: Output) -> tuple[Workers, Listener]:
    """Returns the processes that share the work, as this one sees them, and a listener.

    Messages of the first process are printed. The listener of any other process drops them.
    """
    shared = workers()
    return shared, out if shared.is_first else SILENT


def say_shard(sharing: "Sharing", out: Output, files: Sequence[str]) -> bool:
    """Reports the shard that this command has written, and returns whether it has written one.

    Args:
        sharing: What `--shard` and `--merge` mean for this command.
        out: Prints the answer and the message.
        files: Files that were written. If a shard was written, the first one is its file.
    """
    if sharing.shard is None:
        return False
    [file, *_] = files
    out.answer({"shard": sharing.shard, "file": file})
    message = f"written to {file}"
    if sharing.needs_merge:
        message += "; when all shards are there, type the same command with --merge"
    out.say(message)
    return True
