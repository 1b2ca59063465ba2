"""Options that several verbs share, folded into one value.

A verb takes the value, a person types the options.
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
    """Returns an option or argument of a verb, as Typer reads it."""
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=annotation,
    )


def option(
    name: str, flags: str, help_text: str, kind: Any = str, default: Any = None, **settings: Any
) -> inspect.Parameter:
    """Returns an option of a verb; its flags with blanks between."""
    return parameter(
        name,
        Annotated[kind | None, typer.Option(*flags.split(), help=help_text, **settings)],
        default,
    )


_OUTPUTS = ("output", "destination", "junit", "gitlab_metrics", "gitlab_codequality", "npz")


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
_TEXTS = ("text", "texts")
"""Arguments that are texts first and files second: an address is a text."""


def refuse_typed_addresses(parameters: Iterable[Any], typed: Mapping[str, Any]) -> None:
    """Refuses addresses (`s3://...`) where a command line takes a file, a folder or a model.

    Args:
        parameters: the verb's options and arguments.
        typed: what was typed for each, by parameter name: a text, or a list of texts.

    Raises:
        UsageError: with the option and what to type.
    """
    for parameter in parameters:
        metavars = set(re.findall(r"[A-Z][A-Z0-9-]*", parameter.metavar or ""))
        is_path = "Path" in str(parameter.type_descriptor.annotation)
        is_local = is_path or bool(metavars & _LOCAL)
        if not is_local or parameter.name in _TEXTS:
            continue

        takes_text = "TEXT" in metavars
        long_flags = [flag for flag in parameter.opts if flag.startswith("--")]
        for value in _typed_texts(typed.get(parameter.name)):
            is_text = takes_text and any(map(str.isspace, value))
            if is_text:
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
    """Refuses an output path that is also an input of this command line.

    The input is a path that was typed, or stdin's file.

    Raises:
        UsageError: an output that is an input, another output, or a run of a sweep that would be
            replaced.
    """
    typed = [value for name, value in arguments.items() if name not in _OUTPUTS]
    words: list[str] = []
    for value in typed:
        words += map(str, value if isinstance(value, list) else [value])
    paths: list[Path] = []
    for word in words:
        paths += (Path(path) for path in (word, word.partition("=")[2]) if path)
    # A run's own recipe is read whole, and written again by the run that replaces it.
    protect(Path("/dev/stdin"), *(path for path in paths if not is_of_run(path)), anew=True)
    outputs = set[Path]()
    for name in _OUTPUTS:
        path = arguments.get(name)
        if path is not None:
            from bertctl.run_folder import RunFolder

            refuse_input(Path(path))
            place = Path(path).absolute()
            if place in outputs and not is_stream(Path(path)):
                raise UsageError(
                    f"{path} is given as two outputs", remedy="Name another file for one of them."
                )
            outputs.add(place)
            if arguments.get("overwrite") and (reason := RunFolder(Path(path)).why_of_sweep()):
                raise UsageError(
                    reason,
                    remedy="Choose another with -o. The same sweep command runs the missing runs.",
                )
            for folder in filter(os.path.isdir, paths):
                RunFolder(folder).refuse_output(Path(path))


def folds(
    before: Sequence[inspect.Parameter],
    after: Sequence[inspect.Parameter],
    fold: Callable[[dict[str, Any]], Any],
) -> Decorator:
    """Returns a decorator that folds several command-line parameters into one value.

    The verb is `verb(out, value, ...)`; its command has the parameters `before` and `after`, and no
    `value`. If several such decorators stand over a verb, the lowest gives the first value, the
    next one the second.

    Args:
        before: Parameters in front of the verb's own.
        after: Parameters behind the verb's own.
        fold: Takes the arguments of these parameters out of the mapping, and returns the value.
    """

    def decorate(verb: VerbFunction) -> VerbFunction:
        # The first parameter that has no Typer object is the one that no option gives.
        out, *verb_parameters = inspect.signature(verb).parameters.values()
        folded = next(
            verb_parameter
            for verb_parameter in verb_parameters
            if not hasattr(verb_parameter.annotation, "__metadata__")
        )

        @functools.wraps(verb)
        def command(out: Any, **arguments: Any) -> None:
            verb(out, **{folded.name: fold(arguments)}, **arguments)

        own_parameters = [
            verb_parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for verb_parameter in verb_parameters
            if verb_parameter is not folded
        ]
        signature = inspect.Signature([out, *before, *own_parameters, *after])
        command.__signature__ = signature  # type: ignore[attr-defined]
        return command

    return decorate
