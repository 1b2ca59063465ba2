"""Fields that recipes no longer have."""

from collections.abc import Mapping
from typing import Any

REMOVED: Mapping[str, Any] = {
    "probe.train_sizes": [],
    "question_answering.derive_unanswerable": 0.0,
}
"""Dotted field -> the default it had. Saved recipes name every field: with its default a removed
one is read over, with another value refused. Hashes count it with its default, so that a recipe
which never used it keeps its hash."""


def drop_removed(recipe: dict[str, Any]) -> None:
    """Drops removed fields that have their old default from a recipe's nested values.

    Others are left there, to be refused.
    """
    for dotted, default in REMOVED.items():
        section, _, name = dotted.partition(".")
        section_values = recipe.get(section)
        if (
            isinstance(section_values, dict)
            and name in section_values
            and section_values[name] == default
        ):
            del section_values[name]
