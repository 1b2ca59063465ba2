"""The files of recipes: the built-in ones by name, and a person's own by path.

Nothing here needs pydantic.
"""

import os
from pathlib import Path

from bertctl.addresses import refuse_address
from bertctl.errors import BertctlError, UnavailableError, UsageError
from bertctl.words import did_you_mean, unknown

_SUFFIXES = (".yaml", ".yml")
_SAVED_DATASET = ("dataset_info.json", "dataset_dict.json")
"""Files by which a folder is known that `save_to_disk` of the library `datasets` has written."""


def builtin_recipes() -> dict[str, Path]:
    """Returns the files of the built-in recipes by name, in the order of the names."""
    files = {path.stem: path for path in _builtin_folder().rglob("*") if path.suffix in _SUFFIXES}
    return dict(sorted(files.items()))


def find_recipe(name_or_path: str, folder: Path = Path()) -> Path:
    """Returns the YAML file of a built-in recipe, or of a path.

    A text with a slash or a YAML suffix is a path. Any other one is first looked for among the
    built-in recipes, then among files.

    Args:
        name_or_path: The name or path as it was given.
        folder: Folder that a relative path starts from.

    Raises:
        UsageError: No built-in recipe has the name; or the path is a folder or a URL.
        UnavailableError: The path's file does not exist.
    """
    refuse_address(name_or_path)
    path = folder / expanded_path(name_or_path)
    looks_like_path = (
        "/" in name_or_path or os.sep in name_or_path or path.suffix.lower() in _SUFFIXES
    )
    builtin = builtin_recipes()
    if not looks_like_path and name_or_path in builtin:
        return builtin[name_or_path]
    if path.is_file():
        return path
    if name_or_path and path.is_dir():
        recipe_in_folder = path / "recipe.yaml"
        remedy = "Give a YAML file, or a name from `bertctl recipes ls`."
        if recipe_in_folder.is_file():
            remedy = f"Its recipe is {recipe_in_folder}."
        elif any((path / name).is_file() for name in _SAVED_DATASET):
            remedy = (
                "It is a data set that `datasets` saved. Write its splits as Parquet: "
                f"load_from_disk({str(path)!r}).to_parquet('train.parquet')."
            )
        raise UsageError(f"{name_or_path} is a folder, not a recipe", remedy=remedy, file=path)
    if looks_like_path:
        hint = did_you_mean(path.stem, builtin)
        raise UnavailableError(
            f"the recipe file {name_or_path} does not exist"
            + (f"; for a built-in recipe: {hint}" if hint else ""),
            remedy="Check the path, or copy a recipe with `bertctl recipes cp NAME FILE`.",
            file=path,
        )
    remedy = (
        f"Recipes: {', '.join(builtin)}. `bertctl recipes ls` describes them; a YAML file fits too."
    )
    raise UsageError(unknown("recipe", name_or_path, builtin), remedy=remedy)


def is_of_run(path: Path) -> bool:
    """Returns whether a file is the recipe in a run folder, which may come from another person."""
    return path.name == "recipe.yaml" and path.with_name("status.json").exists()


def expanded_path(path: str | Path) -> Path:
    """Returns a path with `~` or `~user` replaced by the home folder.

    If no such user exists, the path is returned unchanged.
    """
    # Path.expanduser would raise an error then.
    return Path(os.path.expanduser(path))  # noqa: PTH111


def _builtin_folder() -> Path:
    """Returns the folder of built-in recipes.

    It is `bertctl/_recipes` of an installed wheel, or `recipes/` beside the package in a checkout.
    """
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent / "recipes"
    if (package / "_recipes").is_dir():
        return package / "_recipes"
    if checkout.is_dir() and (package.parent / "pyproject.toml").is_file():
        return checkout
    raise BertctlError(
        "the built-in recipes are missing from this installation",
        remedy="Reinstall bertctl with pip.",
    )


def is_recipe(name: str) -> bool:
    """Returns whether a text names a recipe: a built-in one, or a YAML file."""
    return Path(name).suffix.lower() in _SUFFIXES or name in builtin_recipes()


def is_data_file(name: str) -> bool:
    """Returns whether a text names a file of rows, such as `train.csv`, and not a recipe.

    It does if the file exists, or if it has a suffix and is no folder. So a misspelled file name
    is reported as a missing file.
    """
    if is_recipe(name):
        return False
    path = expanded_path(name)
    if path.is_file():
        return True
    return bool(path.suffix) and not path.is_dir()
