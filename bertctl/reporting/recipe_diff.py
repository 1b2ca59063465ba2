"""What differs between two recipes, and what of it moves numbers.

The latter is what the recipe's hash is made of.
"""

from typing import Any

from bertctl.config.dump import NOT_IN_HASH, differing
from bertctl.config.load import load_recipe
from bertctl.config.presets import AUTO, AUTO_FIELDS
from bertctl.config.recipe_files import expanded_path, is_of_run
from bertctl.config.recipe_sections import Mark
from bertctl.config.schema import Recipe, marked
from bertctl.run_folder import SCHEMA, RunFolder


def diff_recipes(first_recipe: str, second_recipe: str) -> dict[str, Any]:
    """Compares two recipes, and returns the document of `--json`.

    Each entry of `differences` has a `field`, its `values`, and whether it `moves_numbers`, that
    is, whether runs of the two recipes give different scores because of it. That is None if it
    can't be known: for values that the machine chooses, and for paths and model names, as only the
    content of the files counts. Of two runs, the contents are compared by the hashes that they
    keep.

    Args:
        first_recipe: a built-in recipe, a file or a run folder.
        second_recipe: the same.

    Raises:
        UsageError: no recipe has this name, or something in one is wrong.
        UnavailableError: a file or a run is not there.
    """
    left, left_hashes = _read(first_recipe)
    right, right_hashes = _read(second_recipe)
    knows_content = bool(left_hashes and right_hashes)
    rows = [
        {
            "field": name,
            "values": [left_value, right_value],
            "moves_numbers": _moves(name, (left_value, right_value), known=knows_content),
        }
        for name, left_value, right_value in differing(left, right, but=())
    ]
    if knows_content:
        for name in left_hashes | right_hashes:
            if left_hashes.get(name) != right_hashes.get(name):
                values = [hashes.get(name, "none")[:8] for hashes in (left_hashes, right_hashes)]
                field = f"content of {name}"
                rows.append({"field": field, "values": values, "moves_numbers": True})
    moves = {row["moves_numbers"] for row in rows}
    if True in moves:
        moves_numbers = True
    elif None in moves:
        moves_numbers = None
    else:
        moves_numbers = False
    return {
        "schema": SCHEMA,
        "recipes": [first_recipe, second_recipe],
        "differences": rows,
        "moves_numbers": moves_numbers,
    }


def _read(name: str) -> tuple[Recipe, dict[str, str]]:
    """Returns a recipe and, of a run, the hashes of what it has read: `model`, and each split."""
    path = expanded_path(name)
    if not path.is_dir() and not is_of_run(path):
        return load_recipe(name), {}
    folder = RunFolder.open(path if path.is_dir() else path.parent, or_export=True)
    hashes = {}
    if folder.environment.exists():
        environment = folder.read_environment()
        hashes = {**environment.data_hashes, "model": environment.model_hash}
    return load_recipe(str(folder.recipe)), hashes


def _moves(name: str, values: tuple[Any, Any], *, known: bool) -> bool | None:
    """Returns whether a field that differs moves numbers; None if that can't be known.

    Args:
        name: Dotted name of the field.
        values: What the two recipes have.
        known: Whether the content behind paths and model names is compared for itself.
    """
    # A field that is left open gets its value from the machine, or (preset `auto`) from the rows.
    by_machine = name.startswith("runtime.") and any(value in (None, "auto") for value in values)
    by_rows = AUTO in values and name in AUTO_FIELDS
    by_unknown_content = name in marked(Mark.BY_CONTENT) and not known
    if by_machine or by_rows or by_unknown_content:
        return None
    return name not in NOT_IN_HASH
