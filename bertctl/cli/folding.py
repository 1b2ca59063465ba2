"""Options that several verbs share, folded into one value: a verb takes the value, a person types the options."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.config.recipe_files import is_of_run
from bertctl.errors import UsageError
from bertctl.writing import is_stream, protect, refuse_input

VerbFunction = Callable[..., None]
Decorator = Callable[[VerbFunction], VerbFunction]


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Returns an option or argument of a verb, as Typer reads it."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def option(
    name: str, flags: str, help_text: str, kind: Any = str, default: Any = None, **settings: Any
) -> inspect.Parameter:
    """Returns an option of a verb; its flags with blanks between."""
    return parameter(name, Annotated[kind | None, typer.Option(*flags.split(), help=help_text, **settings)], default)


_OUTPUTS = ("output", "destination", "junit", "gitlab_metrics", "gitlab_codequality", "npz")


def protect_inputs(given: Mapping[str, Any]) -> None:
    """Has no output of this command line be one of its inputs: what else was typed that is there, and stdin's file.

    Raises:
        UsageError: an output that is an input, another output, or a run of a sweep that would be replaced.
    """
    typed = [value for name, value in given.items() if name not in _OUTPUTS]
    words = [str(word) for value in typed for word in (value if isinstance(value, list) else [value])]
    paths = [Path(path) for word in words for path in (word, word.partition("=")[2]) if path]
    # A run's own recipe is read whole, and written again by the run that replaces it.
    protect(Path("/dev/stdin"), *(path for path in paths if not is_of_run(path)), anew=True)
    taken = set[Path]()
    for path in (given.get(name) for name in _OUTPUTS):
        if path is not None:
            from bertctl.run_folder import RunFolder

            refuse_input(Path(path))
            if (place := Path(path).absolute()) in taken and not is_stream(Path(path)):
                raise UsageError(f"{path} is given as two outputs", remedy="Name another file for one of them.")
            taken.add(place)
            if given.get("overwrite") and (why := RunFolder(Path(path)).why_of_sweep()):
                raise UsageError(why, remedy="Choose another with -o. The sweep, typed again, runs what it lacks.")
            for folder in filter(os.path.isdir, paths):
                RunFolder(folder).refuse_output(Path(path))


def folds(
    before: Sequence[inspect.Parameter], after: Sequence[inspect.Parameter], fold: Callable[[dict[str, Any]], Any]
) -> Decorator:
    """Returns a decorator of a verb `verb(out, value, ...)` that puts other parameters in place of `value`.

    Of several such decorators the lowest takes the first value, the others those behind it.

    Args:
        before: the parameters that stand before the verb's own.
        after: those that stand after them.
        fold: takes what these parameters were given out of the mapping, and returns the value.
    """

    def decorate(verb: VerbFunction) -> VerbFunction:
        out, *own = inspect.signature(verb).parameters.values()
        folded = next(one for one in own if not hasattr(one.annotation, "__metadata__"))

        @functools.wraps(verb)
        def command(out: Any, **given: Any) -> None:
            verb(out, **{folded.name: fold(given)}, **given)

        own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own if one is not folded]
        command.__signature__ = inspect.Signature([out, *before, *own, *after])  # type: ignore[attr-defined]
        return command

    return decorate
