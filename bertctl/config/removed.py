"""Fields that recipes no longer have."""

from collections.abc import Mapping
from typing import Any

REMOVED: Mapping[str, Any] = {
    "probe.train_sizes": [],
    "question_answering.derive_unanswerable": 0.0,
}
"""Dotted name of a removed field -> the default that it had.

Saved recipes name every field. A removed field with its default is ignored, with another value it
is refused. A recipe's hash still contains it with its default, so that the hashes of recipes that
never used it do not change."""


def drop_removed(recipe: dict[str, Any]) -> None:
    """Removes the fields that recipes no longer have from nested values, if they have the default.

    One with another value is kept there: validation then refuses it as an unknown key.
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
