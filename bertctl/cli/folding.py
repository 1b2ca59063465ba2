"""Options that several verbs share, folded into one value: a verb takes the value, a person types the options."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.config.recipe_files import is_of_run
from bertctl.writing import protect, refuse_input

VerbFunction = Callable[..., None]
Decorator = Callable[[VerbFunction], VerbFunction]


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Returns an option or argument of a verb, as Typer reads it."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def option(name: str, flags: str, help_text: str, kind: Any = str, **settings: Any) -> inspect.Parameter:
    """Returns an option of a verb, whose value is None where it is not typed; its flags with blanks between."""
    return parameter(name, Annotated[kind | None, typer.Option(*flags.split(), help=help_text, **settings)], None)


_OUTPUTS = ("output", "destination", "junit", "gitlab_metrics", "gitlab_codequality", "npz")


def protect_inputs(given: Mapping[str, Any]) -> None:
    """Has no output of this command line be one of its inputs: what else was typed that is there, and stdin's file.

    Raises:
        UsageError: an output that is an input.
    """
    typed = [value for name, value in given.items() if name not in _OUTPUTS]
    words = [str(word) for value in typed for word in (value if isinstance(value, list) else [value])]
    paths = [Path(path) for word in words for path in (word, word.partition("=")[2]) if path]
    # A run's own recipe is read whole, and written again by the run that replaces it.
    protect(Path("/dev/stdin"), *(path for path in paths if not is_of_run(path)), anew=True)
    for path in (given.get(name) for name in _OUTPUTS):
        if path is not None:
            refuse_input(Path(path))


def folds(
    before: Sequence[inspect.Parameter], after: Sequence[inspect.Parameter], fold: Callable[[dict[str, Any]], Any]
) -> Decorator:
    """Returns a decorator of a verb `verb(out, value, ...)` that puts other parameters in place of `value`.

    Args:
        before: the parameters that stand before the verb's own.
        after: those that stand after them.
        fold: takes what these parameters were given out of the mapping, and returns the value.
    """

    def decorate(verb: VerbFunction) -> VerbFunction:
        out, _, *own = inspect.signature(verb).parameters.values()

        @functools.wraps(verb)
        def command(out: Any, **given: Any) -> None:
            value = fold(given)
            verb(out, value, **given)

        own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        command.__signature__ = inspect.Signature([out, *before, *own, *after])  # type: ignore[attr-defined]
        return command

    return decorate
