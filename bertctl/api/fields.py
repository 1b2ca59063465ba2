"""Recipe fields as Python code gives them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bertctl.config.load import NULL
from bertctl.config.schema import fields as known_fields
from bertctl.errors import UsageError
from bertctl.words import unknown

Fields = Mapping[str, Any]
"""Recipe fields by their dotted names; None sets a field to null."""


def as_options(fields: Fields | None) -> dict[str, Any]:
    """Returns the fields as options of a recipe, with values as the command line gives them.

    None becomes `NULL`, as a None among the options means that an option was not typed. Numbers of
    NumPy become those of Python.

    Raises:
        UsageError: There is no such field.
    """
    known = known_fields()
    options: dict[str, Any] = {}
    for name, value in (fields or {}).items():
        if name not in known:
            raise UsageError(
                unknown("recipe field", name, known),
                remedy="`bertctl recipes show NAME` lists them.",
            )
        if value is None:
            options[name] = NULL
        elif isinstance(value, np.generic):
            options[name] = value.tolist()
        else:
            options[name] = value
    return options
