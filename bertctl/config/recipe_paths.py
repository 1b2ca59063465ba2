"""Fields of a recipe that hold paths: which texts are paths, made absolute and relative again."""

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from bertctl.addresses import address_problem, address_remedy, is_address
from bertctl.config.recipe_files import expanded_path
from bertctl.config.recipe_sections import Mark
from bertctl.config.schema import Recipe, marked


def named_files(recipe: Recipe) -> list[Path]:
    """Returns the values of all fields that can be paths, as paths.

    The name of a model on the hub is among them, as if it were a path. That does no harm where
    paths are only compared.
    """
    paths: list[Path] = []
    for dotted in marked(Mark.IS_PATH):
        section, _, name = dotted.partition(".")
        value = getattr(getattr(recipe, section), name)
        if isinstance(value, list):
            paths.extend(map(Path, value))
        elif value:
            paths.append(Path(value))
    return paths


def address_problems(dotted: str, value: Any) -> list[str]:
    """Returns a sentence for each address in a field that holds a path or a list of paths."""
    problems: list[str] = []
    candidates = value if isinstance(value, list) else [value]
    for candidate in candidates:
        if isinstance(candidate, str) and is_address(candidate):
            remedy = address_remedy(candidate, is_model=dotted == "model.name")
            problems.append(f"{dotted}: {address_problem(candidate)}. {remedy}")
    return problems


def make_absolute(values: Mapping[str, Any], dotted: str, base: Path) -> tuple[str, ...]:
    """Makes the paths of a field absolute, in place.

    Args:
        values: A recipe's nested values, not validated yet: anything may be in a field.
        dotted: Dotted name of the field, whose value is a path or a list of paths.
        base: Folder that relative paths start from.

    Returns:
        The paths that the field gave as absolute ones, as they are now. A path that begins with `~`
        is one of them.
    """
    section, _, name = dotted.partition(".")
    section_values = values.get(section)
    if not isinstance(section_values, dict):
        return ()
    value = section_values.get(name)
    if isinstance(value, str):
        paths = [value]
        section_values[name] = absolute_path(value, dotted, base)
    elif isinstance(value, list):
        paths = [item for item in value if isinstance(item, str)]
        section_values[name] = [
            absolute_path(item, dotted, base) if isinstance(item, str) else item for item in value
        ]
    else:
        return ()

    given_as_absolute = [path for path in paths if path and expanded_path(path).is_absolute()]
    return tuple(absolute_path(path, dotted, base) for path in given_as_absolute)


def absolute_path(path_text: str, dotted: str, base: Path) -> str:
    """Returns a path as an absolute one.

    A text that is no path in this field, such as the name of a model on the hub, is returned
    unchanged. So is an address: the recipe is refused for it, with the address as it was written.

    Args:
        path_text: The path as it was given.
        dotted: Dotted name of the field that has the path.
        base: Folder that a relative path starts from.
    """
    if not path_text or is_address(path_text):
        return path_text
    is_path = _PATH_TESTS.get(dotted)
    if is_path is not None and not is_path(path_text, base):
        return path_text
    # `Path.resolve` would replace symbolic links.
    return os.path.abspath(base / expanded_path(path_text))  # noqa: PTH100


def relative_path(path: str, folder: Path, dotted: str, given_as_absolute: Collection[str]) -> str:
    """Returns a path relative to a folder.

    Args:
        path: The value of a field that holds paths. What is no absolute path, such as the name of
            a model on the hub, is returned unchanged.
        folder: The folder.
        dotted: Dotted name of the field.
        given_as_absolute: Paths that the user gave as absolute ones. They are returned unchanged.
    """
    if not Path(path).is_absolute() or path in given_as_absolute:
        return path
    relative = os.path.relpath(path, folder)
    # Some fields, such as `model.name`, take a name or a path. There, a path needs `./` in front,
    # or it would be read as a name. In any field, `~` in front would be read as the home folder.
    takes_names = dotted in _PATH_TESTS
    could_be_a_name = takes_names and not relative.startswith("..")
    if could_be_a_name or relative.startswith("~"):
        return f"./{relative}"
    return relative


def _is_model_path(model: str, base: Path) -> bool:
    """Returns whether a model is given as a path, not by its name on the hub.

    A name of the hub may have one slash, so `user/model` is a path only if the folder exists. A
    bare name is a path only if it is a file with a suffix.
    """
    if model.startswith((".", "~", "/")):
        return True
    path = base / model
    if "/" in model:
        return path.is_dir()
    return bool(path.suffix) and path.is_file()


def _is_file(path_text: str, base: Path) -> bool:
    """Returns whether a text is meant as a file: it has a slash or a dot, or such a file exists."""
    return "/" in path_text or "." in path_text or (base / path_text).exists()


def _is_model_config(path_text: str, base: Path) -> bool:
    """Returns whether a text is meant as a model config, not as a size of BERT such as `tiny`.

    A folder that happens to be named like a size does not count.
    """
    return _is_file(path_text, base) and not (base / path_text).is_dir()


_PATH_TESTS: Mapping[str, Callable[[str, Path], bool]] = {
    # or the name of a metric on the hub, which is refused by that name
    "evaluation.metric_scripts": _is_file,
    "model.name": _is_model_path,
    "pretraining.corpus": _is_file,
    "pretraining.from_scratch": _is_model_config,
}
"""Fields that hold a path or a name -> function of the text and the folder that a path starts from,
which returns whether it is a path."""
