"""Verbs whose work several processes share: how they are started, and which of them speaks."""

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
    """Runs this command line in several processes if that was asked for, then ends.

    In one of these processes it does nothing.

    Args:
        count: how many processes.
        out: hears of more processes than cores.
        source: what is read; `-` is stdin.
        config: a configuration of accelerate; it says how many processes there are where `count` is
            1.

    Raises:
        Exit: with the exit code of the processes.
    """
    if is_worker():
        return
    if count > 1 or config is not None:
        pass_on_start()
        with tempfile.TemporaryDirectory() as folder:
            arguments = _with_files_for_pipes(command_words(), Path(folder))
            raise typer.Exit(
                launch(
                    arguments,
                    count,
                    stdin=source == "-",
                    config=config,
                    listener=out,
                )
            )
    warning = lone_process_warning()
    if warning:
        out.warn(warning)


def _with_files_for_pipes(arguments: Sequence[str], folder: Path) -> list[str]:
    """Returns a command line whose inputs each process can read.

    Pipes are read here, once, into files of their names.

    Args:
        arguments: what was typed after `bertctl`.
        folder: for the files.

    Raises:
        UnavailableError: a pipe can't be read, or holds more than the disk.
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
            copy_folder = folder / str(i)
            copy_folder.mkdir()
            link = copy_folder / Path(value).name
            link.symlink_to(regular(Path(value), seen_by_others=True))
            word = f"{option}{sign}{link}"
        replaced.append(word)
    return replaced


def this_worker(out: Output) -> tuple[Workers, Listener]:
    """Returns this process among those that share the work, and its listener.

    Only the first process is heard.
    """
    shared = workers()
    return shared, out if shared.is_first else SILENT


def say_shard(sharing: "Sharing", out: Output, files: Sequence[str]) -> bool:
    """Reports the shard that this command has written, and returns whether there is one.

    Args:
        sharing: As it was typed.
        out: Receives the message.
        files: Files of the shard.
    """
    if sharing.shard is None:
        return False
    [file, *_] = files
    out.answer({"shard": sharing.shard, "file": file})
    message = f"written to {file}"
    if sharing.paths:
        message += "; when all shards are there, type the same command with --merge"
    out.say(message)
    return True
