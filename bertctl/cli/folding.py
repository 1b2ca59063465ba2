"""Options that several verbs share, folded into one value: a verb takes the value, a person types the options."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

VerbFunction = Callable[..., None]
Decorator = Callable[[VerbFunction], VerbFunction]


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Returns an option or argument of a verb, as Typer reads it."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


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
