"""Settings as the command line calls them.

The library names a setting in a message by its name in Python, in a code span with an equals sign:

    `data.text_column=NAME`    a recipe field
    `overwrite=True`           a parameter of a function
    `output=`                  either of them without a value

Here each becomes what is typed: `--text-column NAME`, `--overwrite`, `-o`. Fields without an option
of their own are set with `--set FIELD=VALUE`.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

_NAME = r"(?:[a-z]\w*\.)?[a-z]\w*="
_SPAN = re.compile(rf"`(?={_NAME})([^`\n]*)`")
_ASSIGNMENT = re.compile(rf"({_NAME})((?:'[^']*'|(?! +{_NAME}).)*)")
"""A name and its value, which ends where the next name begins; quotes keep spaces together."""

_SHORT = {"output": "-o"}
"""Options that are known by their letter."""

_OPPOSITES = {"lowercase": "--cased"}
"""What stands for False where it is not the option with `no-` before it."""


def as_options(text: str) -> str:
    """Returns a message of the library with the settings in it named as options."""
    return _SPAN.sub(_options_of_span, text)


def all_as_options(document: Any) -> Any:
    """Returns a document of the library with the settings in all its texts named as options."""
    if isinstance(document, str):
        return as_options(document)
    if isinstance(document, Mapping):
        return {name: all_as_options(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [all_as_options(value) for value in document]
    return document


def _options_of_span(span: re.Match[str]) -> str:
    """Returns the options for the settings in a code span, such as `lowercase=True top_k=3`."""
    assignments = _ASSIGNMENT.findall(span[1])
    return " ".join(_option(name.removesuffix("="), value) for name, value in assignments)


def _option(name: str, value: str) -> str:
    """Returns the option for a setting of the library, as it is typed.

    Args:
        name: A recipe field, such as `data.text_column`, or a parameter, such as `overwrite`.
        value: Its value; empty for the option's name alone.
    """
    flags = _flags().get(name)
    is_field_without_option = flags is None and "." in name
    if is_field_without_option:
        # Without a value, the `=` is left out, too.
        return f"--set {name}={value}".rstrip("=")
    # A switch has two flags, for yes and no: `--header/--no-header`.
    affirmative, _, negative = (flags or _flags_of_parameter(name)).partition("/")
    if value.lower() == "true":
        return affirmative
    if value.lower() == "false":
        return negative or f"{affirmative} false"
    return f"{affirmative} {value}".rstrip()


def _flags_of_parameter(name: str) -> str:
    """Returns the options for a parameter as yes and no: `--overwrite/--no-overwrite`."""
    words = name.replace("_", "-")
    return f"{_SHORT.get(name, f'--{words}')}/{_OPPOSITES.get(name, f'--no-{words}')}"


@cache
def _flags() -> dict[str, str]:
    """Returns field -> option; for a switch both options, such as `--header/--no-header`."""
    from bertctl.cli.framework.recipe_options import SWITCHES

    return SWITCHES
