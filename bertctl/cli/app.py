"""The table of verbs, and how a verb becomes a command. Only the verb that was typed is imported."""

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from bertctl import __version__
from bertctl.cli.output import Output


@dataclass(frozen=True)
class Verb:
    """One row of the table.

    Attributes:
        name: what is typed.
        module: the file in `bertctl.cli`; it has `COMMAND` (a function), or `COMMANDS` (name -> function) for a group.
        summary: the line in `bertctl --help`.
        panel: the heading it stands under there.
    """

    name: str
    module: str
    summary: str
    panel: str


VERBS = (
    Verb("finetune", "finetune", "Fine-tune an encoder on a data set or on your own files.", "Train"),
    Verb("sweep", "sweep", "Run a grid of settings with several seeds, side by side; choose by the mean.", "Train"),
    Verb("sweep-merge", "sweep_merge", "Put the parts of a sweep (--shard) together.", "Train"),
    Verb("evaluate", "evaluate", "Score a run on a split or on a file of your own.", "Use"),
    Verb("predict", "predict", "Predict with a run: lines, CSV or JSONL, from a file or stdin.", "Use"),
    Verb(
        "extract-features", "extract_features", "Read vectors out of an encoder: any layer, any amount of text.", "Use"
    ),
    Verb("probe", "probe", "Put a linear classifier on a frozen encoder; compare its layers.", "Train"),
    Verb("gate", "gate", "Decide by statistics whether a run is good enough, as an exit code.", "Decide"),
    Verb("compare", "compare", "Compare runs: metrics, differences, what was set, which examples changed.", "Decide"),
    Verb("report", "report", "Show a run in one file: HTML to open anywhere, or Markdown.", "Use"),
    Verb("push", "push", "Put a run's model on the hub, with its card.", "Use"),
    Verb("recipes", "recipes", "List, show, copy and validate recipes; list models and data sets.", "Prepare"),
    Verb("data", "data", "Find faults in a data set before a model is trained on it: `data check`.", "Prepare"),
    Verb("tokenize", "tokenize", "See what the model reads: pieces and ids, or the numbers of a corpus.", "Look"),
    Verb("vocab", "vocab", "Search, count, compare, check and train vocabularies.", "Look"),
    Verb("doctor", "doctor", "See whether this machine is ready, and what a recipe needs that is not here.", "Prepare"),
    Verb("estimate", "estimate", "Time a few steps; say what the whole run takes: time, memory, disk.", "Prepare"),
    Verb("lr-find", "lr_find", "Find a learning rate: let it rise until the loss explodes, and look.", "Prepare"),
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Answer with exactly one JSON document on stdout.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No talk on stderr but warnings and errors.")]
VerboseFlag = Annotated[bool, typer.Option("--verbose", "-v", help="More talk, third-party warnings too.")]
DebugFlag = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
OfflineFlag = Annotated[bool, typer.Option("--offline", help="Try no connection at all (as HF_HUB_OFFLINE=1).")]

_SHARED = {
    "as_json": JsonFlag,
    "quiet": QuietFlag,
    "verbose": VerboseFlag,
    "debug": DebugFlag,
    "offline": OfflineFlag,
}


def build(argv: Sequence[str], on_output: Callable[[Output], None]) -> typer.Typer:
    """The Typer app for this command line; the verbs not named in it are left unimported stubs.

    Args:
        argv: the arguments without the program's name.
        on_output: told of the verb's `Output` once it exists, so that the error boundary speaks through it.
    """
    app = typer.Typer(
        name="bertctl",
        help="Fine-tune, score, use and look into BERT encoders, in a terminal or in a pipeline.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    typed = next((word for word in argv if not word.startswith("-")), None)
    for verb in VERBS:
        if verb.name == typed:
            _add(app, verb, on_output)
        else:
            app.command(verb.name, help=verb.summary, rich_help_panel=verb.panel)(_unimported)
    return app


def _add(app: typer.Typer, verb: Verb, on_output: Callable[[Output], None]) -> None:
    module = importlib.import_module(f"bertctl.cli.{verb.module}")
    if hasattr(module, "COMMAND"):
        app.command(verb.name, rich_help_panel=verb.panel)(with_output(module.COMMAND, on_output))
        return
    commands: Mapping[str, Callable[..., None]] = module.COMMANDS
    group = typer.Typer(help=verb.summary, no_args_is_help=True, rich_markup_mode="rich")
    for name, function in commands.items():
        group.command(name)(with_output(function, on_output))
    app.add_typer(group, name=verb.name, rich_help_panel=verb.panel)


def with_output(function: Callable[..., None], on_output: Callable[[Output], None]) -> Callable[..., None]:
    """Give a verb `verb(out, ...)` the shared options; it gets the `Output` made from them as its first argument."""
    signature = inspect.signature(function)
    own = list(signature.parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in _SHARED.items()
    ]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        offline = given.pop("offline")
        flags = {name: given.pop(name) for name in _SHARED if name in given}
        if offline:  # read by huggingface_hub, datasets and transformers when they are imported, which is later
            os.environ["HF_HUB_OFFLINE"] = "1"
        out = Output(**flags)
        on_output(out)
        try:
            function(out, **given)
        except BrokenPipeError:  # the reader (head, say) has left: not an error, and Typer would make exit code 1 of it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            out.close()

    parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY) if p.kind is not inspect.Parameter.VAR_POSITIONAL else p
        for p in own
    ]
    command.__signature__ = inspect.Signature([*parameters, *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*parameters, *shared]}
    return command


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"bertctl {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


def _unimported() -> None:
    raise AssertionError("a verb that was not typed can't run")
