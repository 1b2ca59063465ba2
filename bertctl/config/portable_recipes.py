"""A recipe as it is written to a file that may be read on another machine."""

import functools
from collections.abc import Mapping
from pathlib import Path

from bertctl.config.load import DEFAULT, Origin
from bertctl.config.recipe_paths import relative_path
from bertctl.config.recipe_sections import Mark
from bertctl.config.schema import Recipe, fields, marked


def portable(recipe: Recipe, origins: Mapping[str, Origin], folder: Path) -> Recipe:
    """Returns a recipe for a file that may be read on another machine.

    Its paths are relative to the file's folder, except those that were given as absolute paths. A
    folder that comes from an environment variable is left out: the other machine has its own.

    Args:
        recipe: The recipe, as `trace_recipe` returns it.
        origins: Dotted name of a field -> where its value was given.
        folder: Folder of the file that is to be written.
    """
    for dotted in marked(Mark.IS_PATH):
        section, _, name = dotted.partition(".")
        origin = origins.get(dotted, DEFAULT)
        value = getattr(getattr(recipe, section), name)
        if origin.kind == "environment":
            recipe = recipe.with_fields(section, **{name: None})
        elif isinstance(value, list):
            paths = [relative_path(item, folder, dotted, origin.absolute) for item in value]
            recipe = recipe.with_fields(section, **{name: paths})
        elif value:
            path = relative_path(value, folder, dotted, origin.absolute)
            recipe = recipe.with_fields(section, **{name: path})
    return recipe


def chosen_fields(recipe: Recipe, origins: Mapping[str, Origin]) -> set[str]:
    """Returns the dotted names of the fields that a file must have to read back as this recipe.

    They are its name and task, the fields that somebody gave, and those that differ from their
    default for another reason, such as a preset.
    """
    set_fields = {
        dotted for dotted, origin in origins.items() if origin.kind in ("base", "file", "option")
    }
    values = {dotted: functools.reduce(getattr, dotted.split("."), recipe) for dotted in fields()}
    not_default = {
        dotted for dotted, info in fields().items() if values[dotted] != info.get_default()
    }
    chosen = {"name", "task"} | set_fields | not_default
    if not recipe.description:  # a built-in recipe's, which is empty once a file is given
        return chosen - {"description"}
    return chosen
