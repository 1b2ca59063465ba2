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
    """Removes fields of older recipes from nested values, if they have their old default.

    A field with another value stays: validation then refuses it as an unknown key.
    """
    for dotted, default in REMOVED.items():
        section, _, name = dotted.partition(".")
        section_values = recipe.get(section)
        if not isinstance(section_values, dict) or name not in section_values:
            continue
        if section_values[name] == default:
            del section_values[name]
