"""The table of verbs, and how a verb becomes a command.

Only the verb that was typed is imported.
"""

import functools
import importlib
import inspect
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from bertctl.cli.framework import streams
from bertctl.cli.framework.folding import VerbFunction, parameter, protect_inputs
from bertctl.cli.framework.help import RARE, SHARED, VerbCommand, VerbGroup, described, show_all
from bertctl.errors import BertctlError, InterruptedRunError, UnavailableError
from bertctl.plugins import all_plugins, on_broken, plugin
from bertctl.runtime.launch import another_ended, was_left
from bertctl.runtime.stopping import Terminated, asked, enter
from bertctl.session import current
from bertctl.version import __version__

if TYPE_CHECKING:
    from bertctl.cli.framework.output import Output


class Outputs(list["Output"]):
    """The `Output` of each verb that has run, by which the error boundary prints, too."""


@dataclass(frozen=True)
class Verb:
    """Verb of the command line, a row of the table `VERBS`.

    Its function has the name of the verb, and so has the file in `cli/verbs`, both with `_` for
    `-`.

    Attributes:
        name: Name as it is typed.
        summary: Its line in `bertctl --help`.
        panel: Heading of that line.
        prints: Whether its result is what it prints, and not a run folder or a verdict in the exit
            code.
    """

    name: str
    summary: str
    panel: str
    prints: bool = False


VERBS = (
    Verb("finetune", "Fine-tune an encoder on a data set or on your own files.", "Train"),
    Verb(
        "pretrain",
        "Pretrain a BERT on your own text: from scratch, or from an existing model.",
        "Train",
    ),
    Verb("adapt", "Test whether pretraining on your domain's text improves a task.", "Train"),
    Verb("distill", "Train a smaller model that learns from a run's predictions.", "Train"),
    Verb("sweep", "Run a grid of settings with several seeds; choose by mean.", "Train"),
    Verb("sweep-merge", "Merge the shards of a sweep (--shard).", "Train"),
    Verb("probe", "Train linear classifiers on a frozen encoder, per layer.", "Train"),
    Verb("evaluate", "Score a run on a split or on a file of your own.", "Use"),
    Verb(
        "predict", "Predict with a run: lines, CSV or JSONL, a file or stdin.", "Use", prints=True
    ),
    Verb("extract-features", "Compute vectors of texts with any layer of an encoder.", "Use"),
    Verb(
        "similarity",
        "Compare texts by meaning: two texts, two files, or all pairs.",
        "Use",
        prints=True,
    ),
    Verb("index", "Build an index of texts to search by meaning.", "Use"),
    Verb("search", "Find the texts of an index that are nearest in meaning.", "Use", prints=True),
    Verb(
        "mine", "Find paraphrases and duplicates: all pairs of similar texts.", "Use", prints=True
    ),
    Verb("cluster", "Cluster texts by meaning, and name the clusters.", "Use", prints=True),
    Verb("fill-mask", "Predict the masked words of a text.", "Use", prints=True),
    Verb("score", "Score how likely a text is, or which of two is likelier.", "Use", prints=True),
    Verb(
        "report", "Show a run in one file: HTML to open anywhere, or Markdown.", "Use", prints=True
    ),
    Verb("runs", "List runs; delete some, or all but the best.", "Use", prints=True),
    Verb("export", "Export a run for ONNX Runtime or OpenVINO, and check its predictions.", "Use"),
    Verb("push", "Upload a run's model to the hub, with its card.", "Use"),
    Verb("gate", "Decide whether a run is good enough, as an exit code.", "Decide"),
    Verb(
        "compare", "Compare runs: metrics, settings, examples that changed.", "Decide", prints=True
    ),
    Verb("fetch", "Download models and data before a run and pin them in a lock file.", "Prepare"),
    Verb(
        "recipes",
        "List, show, copy and validate recipes; list models and data.",
        "Prepare",
        prints=True,
    ),
    Verb("data", "Find faults in a data set before training; copy a bundled one.", "Prepare"),
    Verb("doctor", "Check whether this machine is ready for a recipe.", "Prepare"),
    Verb(
        "estimate",
        "Estimate time, memory and disk of a run from a few steps.",
        "Prepare",
        prints=True,
    ),
    Verb(
        "lr-find", "Find a learning rate: raise it until the loss explodes.", "Prepare", prints=True
    ),
    Verb(
        "tokenize", "Show what the model reads: tokens and ids, or statistics.", "Look", prints=True
    ),
    Verb("vocab", "Search, count, compare, check and train vocabularies.", "Look", prints=True),
    Verb(
        "inspect", "Show what a model is made of; compare the layers of two.", "Look", prints=True
    ),
    Verb("attention", "Show what tokens attend to, and what each head does.", "Look", prints=True),
    Verb("explain", "Show which words a run's predictions rest on.", "Look", prints=True),
    Verb("docs", "Show the documentation in the terminal.", "Look", prints=True),
)


def _shared(*flags: str, help: str, panel: str = SHARED, **settings: Any) -> Any:
    """Returns the annotation of a flag that every verb has.

    Args:
        flags: Its names, such as `"--quiet", "-q"`.
        help: Its line in the help.
        panel: Heading over that line.
        settings: Further arguments of `typer.Option`.
    """
    return Annotated[
        bool,
        typer.Option(
            *flags,
            help=help,
            rich_help_panel=panel,
            **settings,
        ),
    ]


_SHARED = {
    "as_json": _shared("--json", help="Answer with exactly one JSON document on stdout."),
    "quiet": _shared("--quiet", "-q", help="Print only warnings and errors to stderr."),
    "verbose": _shared(
        "--verbose", "-v", help="Print more: scores by label, third-party warnings."
    ),
    "debug": _shared("--debug", help="Show the traceback of an error."),
    "no_groups": _shared(
        "--no-groups", help="Do not fold the logs of GitHub and GitLab.", panel=RARE
    ),
    "offline": _shared("--offline", help="Try no connection at all (as HF_HUB_OFFLINE=1)."),
    "help_all": _shared(
        "--help-all",
        help="Show every option in full.",
        is_eager=True,
        callback=show_all,
    ),
}
"""The options of every verb, by parameter name."""


class Verbs(VerbGroup):
    """Command `bertctl`: it knows its verbs by the table, and imports the one that was typed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Returns the names of the verbs."""
        return [*(verb.name for verb in VERBS), *sorted(all_plugins("verbs"))]

    def get_command(self, ctx: Any, cmd_name: str) -> VerbCommand | None:  # noqa: ARG002
        """Returns a verb by its name and summary alone, for help and completion.

        It returns None for an unknown name.
        """
        verb = find_verb(cmd_name)
        if verb:
            return VerbCommand(verb.name, help=verb.summary, rich_help_panel=verb.panel)
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Returns the verb that was typed, imported, and its arguments."""
        name, command, verb_arguments = super().resolve_command(ctx, args)
        if command is not None:
            command = verb_command(cast(Verb, find_verb(str(name))))
        return name, command, verb_arguments


def build() -> Verbs:
    """Returns the whole command line as a command."""
    app = typer.Typer(
        name="bertctl",
        cls=Verbs,
        help="Fine-tune, score, use and look into BERT encoders, in a terminal or in a pipeline.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    return cast(Verbs, typer.main.get_command(app))


def find_verb(name: str) -> Verb | None:
    """Returns a verb of the table, or of a plug-in that can be imported."""
    for verb in VERBS:
        if verb.name == name:
            return verb
    added = plugin("verbs", name)
    if added is None:
        return None
    summary = (added.__doc__ or "").strip().partition("\n")[0]
    return Verb(name, summary, "Plug-ins")


def verb_functions(verb: Verb) -> Mapping[str, VerbFunction]:
    """Returns the function of a verb by its name, or the functions of a group by their names.

    The file of the verb is imported now.
    """
    is_of_plugin = verb not in VERBS
    if is_of_plugin:
        return {verb.name: plugin("verbs", verb.name)}
    name = verb.name.replace("-", "_")
    module = importlib.import_module(f"bertctl.cli.verbs.{name}")
    commands: Mapping[str, VerbFunction] | None = getattr(module, "COMMANDS", None)
    if commands is None:
        return {verb.name: getattr(module, name)}
    return commands


@functools.cache
def verb_command(verb: Verb) -> Any:
    """Returns Typer's command for a verb or a group of verbs. The verb's file is imported now."""
    functions = verb_functions(verb)
    app = typer.Typer(
        name=verb.name,
        cls=VerbGroup,
        help=verb.summary,
        no_args_is_help=True,
        add_completion=False,
    )
    is_group = verb.name not in functions
    if is_group:
        # With a callback, Typer makes a group even of a single verb.
        app.callback()(lambda: None)
    for name, function in functions.items():
        app.command(name, cls=VerbCommand)(with_output(function, prints=verb.prints))
    return typer.main.get_command(app)


def with_output(function: VerbFunction, *, prints: bool = False) -> VerbFunction:
    """Returns the function that Typer calls for a verb: with the options that all verbs share.

    It makes an `Output` of the shared options (`--json`, `--quiet`, ...), and calls the verb with
    it and the verb's own options. The help of an option is that of its Typer object, else its entry
    under `Args:` in the docstring of the verb.

    Args:
        function: The verb, as `verb(out, ...)`.
        prints: Whether the verb's result is what it prints, unless a file is named for it. Then it
            is an error if stdout can't be written to its end.
    """
    # The first parameter is `out`, which is not an option.
    _, *verb_parameters = inspect.signature(function).parameters.values()
    help_of_verb, help_of_options = described(function.__doc__ or "")
    for verb_parameter in verb_parameters:
        # The object of `typer.Option` or `typer.Argument` in `Annotated`.
        [option] = verb_parameter.annotation.__metadata__
        # Python removes docstrings with -OO; then an option may have no help.
        option.help = option.help or help_of_options.get(verb_parameter.name)
    shared = [parameter(name, option, False) for name, option in _SHARED.items()]

    @functools.wraps(function)
    def command(**arguments: Any) -> None:
        """Runs the verb, and turns Ctrl-C into one of our errors.

        Args:
            arguments: The shared options and the verb's own, by their names in Python.
        """
        out = _output_of_shared_options(arguments, prints=prints)
        current().part(Outputs).append(out)
        on_broken.set(out.warn)  # for plug-ins that can't be imported
        _require_working_folder()
        protect_inputs(arguments)
        enter("working")
        try:
            function(out, **arguments)
        except KeyboardInterrupt as error:  # Typer would make an exit code of it
            raise interruption(error) from error
        except OSError as error:
            if error is not streams.lost(1):
                raise
            # Stdout is lost: its reader is gone, or its disk is full. The boundary decides whether
            # that is an error. Without the traceback, files that its frames refer to are closed
            # before Python shuts down.
            error.__traceback__ = None
        finally:
            out.close()

    # Typer reads the options from signature and annotations, and the help from the docstring.
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        *(verb_parameter.replace(kind=keyword_only) for verb_parameter in verb_parameters),
        *shared,
    ]
    command.__doc__ = help_of_verb
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {
        command_parameter.name: command_parameter.annotation for command_parameter in parameters
    }
    return command


def _output_of_shared_options(arguments: dict[str, Any], *, prints: bool) -> "Output":
    """Removes the options that all verbs share from a verb's arguments, and makes an `Output`.

    `--offline` takes effect here.

    Args:
        arguments: The shared options and the verb's own, by their names in Python.
        prints: Whether the verb's result is what it prints, unless a file is named for it.
    """
    from bertctl.cli.framework.output import Output

    flags = {name: arguments.pop(name) for name in _SHARED}
    flags.pop("help_all")  # Typer has called its callback, which prints the help
    if flags.pop("offline"):
        from bertctl.catalog.huggingface_internals import set_hub_variable

        set_hub_variable("HF_HUB_OFFLINE", "1")
    named_output = arguments.get("output", arguments.get("destination"))
    return Output(**flags, is_printed=prints and not named_output)


def _require_working_folder() -> None:
    """Refuses to work in a folder that has been deleted.

    Libraries ask for the working folder, and some end the process if there is none.

    Raises:
        UnavailableError: It has been deleted.
    """
    try:
        os.getcwd()  # noqa: PTH109 - `pathlib` would take time to import
    except FileNotFoundError as error:
        raise UnavailableError(
            "the working folder has been deleted", remedy="Change into another (cd)."
        ) from error


def interruption(error: BaseException) -> BertctlError:
    """Returns the error that reports a signal (Ctrl-C, SIGTERM) that has ended a verb.

    Args:
        error: What the signal raised. The first of its notes, if any, says what is kept on the
            disk; further lines of the note say how to continue.
    """
    stop_signal = asked()  # 0 if none was noted
    terminated = isinstance(error, Terminated) or stop_signal not in (0, signal.SIGINT)
    if terminated and was_left():
        # The signal came from torchrun, because another process of the job has died.
        return another_ended()
    if terminated:
        ending = "terminated"
    else:
        ending = "interrupted"
    notes = getattr(error, "__notes__", None)
    if notes:
        state, _, remedy = notes[0].partition("\n")
        remedy = remedy or "Type the same command with --resume to continue."
        return InterruptedRunError(f"{ending}; {state}", remedy=remedy, terminated=terminated)
    return InterruptedRunError(
        f"{ending}; only files that were complete by then are kept", terminated=terminated
    )


def _show_version(is_requested: bool) -> None:
    """Prints the version and ends; the callback of `--version`."""
    if is_requested:
        typer.echo(f"bertctl {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
) -> None:
    pass  # the option works by its callback
