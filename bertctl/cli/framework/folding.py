"""Options that several verbs share: a user types them, a verb's function takes one value of them.

Also checks of paths that every command line passes: no addresses, and no output over an input.
"""

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.addresses import refuse_address
from bertctl.config.recipe_files import is_of_run
from bertctl.errors import UsageError
from bertctl.writing import is_stream, protect, refuse_input

VerbFunction = Callable[..., None]
Decorator = Callable[[VerbFunction], VerbFunction]


def parameter(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    """Returns a keyword-only parameter, which Typer reads as an option or argument of a verb."""
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=annotation,
    )


def option(
    name: str, flags: str, help_text: str, kind: Any = str, default: Any = None, **settings: Any
) -> inspect.Parameter:
    """Returns an option of a verb.

    Args:
        name: Name of the parameter.
        flags: The flags, parted by blanks: `--output -o`.
        help_text: The option's help.
        kind: Type of the value. An option can always be None, too.
        default: The value if the option is not typed.
        settings: Further keyword arguments of `typer.Option`.
    """
    return parameter(
        name,
        Annotated[kind | None, typer.Option(*flags.split(), help=help_text, **settings)],
        default,
    )


_OUTPUTS = ("output", "destination", "junit", "gitlab_metrics", "gitlab_codequality", "npz")
"""Names of parameters that are files or folders to write."""

_LOCAL = frozenset(
    [
        "A",
        "B",
        "CORPUS",
        "DEST",
        "DIR",
        "FILE",
        "FILES",
        "HUB-ID",
        "INDEX",
        "INPUT",
        "MODEL",
        "OUT",
        "PAGE",
        "PATH",
        "RECIPE",
        "RUN",
        "RUN2",
    ]
)
"""Words in an option's metavar that stand for something on this machine or a name of the hub, never
for an address."""
_ALSO_WRITTEN = ("to", "place")
"""Further parameters that are folders to write; they are not checked against the inputs."""

_TEXTS = ("text", "texts")
"""Parameters that take texts or files. An address is a text there."""


def refuse_typed_addresses(parameters: Iterable[Any], typed: Mapping[str, Any]) -> None:
    """Refuses addresses (`s3://...`) where a command line takes a file, a folder or a model.

    Args:
        parameters: The verb's options and arguments.
        typed: What was typed for each, by parameter name: a text, or a list of texts.

    Raises:
        UsageError: An address was typed there. The message names the option and what to type.
    """
    for parameter in parameters:
        # The words of a metavar such as `[TEXT|FILE ...|-]` tell what the parameter takes.
        metavars = set(re.findall(r"[A-Z][A-Z0-9-]*", parameter.metavar or ""))
        is_path = "Path" in str(parameter.type_descriptor.annotation)
        takes_path = is_path or bool(metavars & _LOCAL)
        if not takes_path or parameter.name in _TEXTS:
            continue

        takes_text = "TEXT" in metavars
        long_flags = [flag for flag in parameter.opts if flag.startswith("--")]
        for value in _typed_texts(typed.get(parameter.name)):
            # A value with blanks is a text, even if it begins with an address.
            has_blank = any(map(str.isspace, value))
            if takes_text and has_blank:
                continue
            refuse_address(
                value,
                long_flags[0] if long_flags else "",
                is_output=parameter.name in (*_OUTPUTS, *_ALSO_WRITTEN),
                is_model=bool(metavars & {"MODEL", "HUB-ID"}),
                is_perhaps_text=takes_text,
            )


def _typed_texts(typed: object) -> list[str]:
    """Returns the texts that were typed for a parameter: none, one or several."""
    if isinstance(typed, list | tuple):
        values = typed
    else:
        values = [typed]
    return [value for value in values if isinstance(value, str)]


def protect_inputs(arguments: Mapping[str, Any]) -> None:
    """Protects the inputs of a command line from being overwritten, and checks its outputs.

    Inputs are all paths that were typed except outputs, and the file that stdin is redirected from.
    Later writes to them are refused, too.

    Args:
        arguments: Parameters of the verb -> their values.

    Raises:
        UsageError: An output is also an input or another output, or it is a run of a sweep and
            would be replaced.
    """
    inputs = _typed_paths(arguments)
    # A run's recipe may be overwritten: it is read before the run that replaces it starts.
    protected = [path for path in inputs if not is_of_run(path)]
    # `anew`: this process may have run a command before, with other inputs.
    protect(Path("/dev/stdin"), *protected, anew=True)

    outputs = set[Path]()
    for name in _OUTPUTS:
        if arguments.get(name) is None:
            continue
        from bertctl.run_folder import RunFolder

        output = Path(arguments[name])
        refuse_input(output)
        if output.absolute() in outputs and not is_stream(output):
            raise UsageError(
                f"{arguments[name]} is given as two outputs",
                remedy="Name another file for one of them.",
            )
        outputs.add(output.absolute())
        if arguments.get("overwrite"):
            _refuse_run_of_sweep(output)
        # A folder that was typed may be a run or a model, whose files are all inputs.
        for folder in filter(os.path.isdir, inputs):
            RunFolder(folder).refuse_output(output)


def _refuse_run_of_sweep(output: Path) -> None:
    """Refuses to replace a run that a sweep consists of.

    Raises:
        UsageError: The output is such a run.
    """
    from bertctl.run_folder import RunFolder

    reason = RunFolder(output).why_of_sweep()
    if reason:
        raise UsageError(
            reason,
            remedy="Choose another with -o. The same sweep command runs the missing runs.",
        )


def _typed_paths(arguments: Mapping[str, Any]) -> list[Path]:
    """Returns every word of a command line that is not an output, as a path.

    Words that are no paths are among them: they do no harm, as no such file is written. Of
    `data.train_file=FILE`, the part after `=` is returned as well.
    """
    paths: list[Path] = []
    for name, value in arguments.items():
        if name in _OUTPUTS:
            continue
        words = value if isinstance(value, list) else [value]
        for word in map(str, words):
            assigned = word.partition("=")[2]
            paths += (Path(text) for text in (word, assigned) if text)
    return paths


def folds(
    before: Sequence[inspect.Parameter],
    after: Sequence[inspect.Parameter],
    fold: Callable[[dict[str, Any]], Any],
) -> Decorator:
    """Returns a decorator that folds several command-line parameters into one value.

    The verb is a function `verb(out, value, ...)`. The decorated function has the parameters
    `before` and `after` instead of `value`, and Typer makes options of them. A verb can have
    several such decorators: the lowest one gives its first value, the next one its second.

    Args:
        before: Parameters in front of the verb's own.
        after: Parameters behind the verb's own.
        fold: Removes the arguments of these parameters from a mapping of all arguments, and returns
            the value.
    """

    def decorate(verb: VerbFunction) -> VerbFunction:
        """Returns a function that takes the options, folds them, and calls the verb."""
        out, *verb_parameters = inspect.signature(verb).parameters.values()
        # The parameter of the folded value is the first one that is no option or argument itself,
        # as it has no `Annotated[..., typer.Option(...)]`.
        folded_parameter = next(
            verb_parameter
            for verb_parameter in verb_parameters
            if not hasattr(verb_parameter.annotation, "__metadata__")
        )

        @functools.wraps(verb)
        def command(out: Any, **arguments: Any) -> None:
            # `fold` removes the arguments of `before` and `after`, so that the verb's own are left.
            value = fold(arguments)
            verb(out, **{folded_parameter.name: value}, **arguments)

        own_parameters = [
            verb_parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for verb_parameter in verb_parameters
            if verb_parameter is not folded_parameter
        ]
        # Typer reads from the signature which options the function has.
        signature = inspect.Signature([out, *before, *own_parameters, *after])
        command.__signature__ = signature  # type: ignore[attr-defined]
        return command

    return decorate
