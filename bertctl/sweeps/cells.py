"""The runs of a sweep: each an ordinary recipe, named by the hash of what decides its numbers."""

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from bertctl.config.agreement import DisagreementError
from bertctl.config.dump import recipe_hash
from bertctl.config.problems import RecipeError
from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.progress import SILENT, Listener
from bertctl.runtime.device import choose_compute
from bertctl.sweeps.grid import Setting, with_values
from bertctl.training.job import Encoded, check, encode, encoding_key, resolved_for

NAME_LENGTH = 16
"""Hexadecimal digits of the hash that name a cell's folder."""


@dataclass(frozen=True)
class Cell:
    """One run to be made.

    Attributes:
        setting: number in the sweep's settings.
        seed: number in its seeds.
        fold: which part is held out, from 1; None without folds.
        recipe: with device, precision and threads resolved once it is read.
        key: of its `Encoded`.
        name: of its folder; empty before its data is read.
    """

    setting: int
    seed: int
    fold: int | None
    recipe: Recipe
    key: str = ""
    name: str = ""


def plan_cells(
    base: Recipe, settings: Sequence[Setting], seeds: Sequence[Mapping[str, int]], folds: int | None
) -> list[Cell]:
    """Every setting with every seed with every fold, the last fastest.

    Raises:
        RecipeError: a UsageError with everything that does not go together in one of the settings.
    """
    parts: Sequence[int | None] = range(1, folds + 1) if folds else (None,)
    cells: list[Cell] = []
    problems: list[str] = []
    for (i, setting), (j, seed), fold in itertools.product(enumerate(settings), enumerate(seeds), parts):
        values = {**setting, "training.init_seed": seed["init"], "training.order_seed": seed["order"]}
        if fold is not None:
            values |= {"data.folds": folds, "data.fold": fold}
        try:
            cells.append(Cell(i, j, fold, with_values(base, values)))
        except ValidationError as error:
            problems += _disagreements(error)
    if problems:
        raise RecipeError("the settings of this sweep", list(dict.fromkeys(problems)))
    return cells


def read_all(
    cells: Sequence[Cell], encoded: dict[str, Encoded], *, listener: Listener = SILENT
) -> tuple[list[Cell], dict[str, str]]:
    """Read and tokenize what the cells need, each data once, and give every cell its name.

    torch computes nothing here, so that processes can be forked afterwards.

    Args:
        cells: without names.
        encoded: what has been read, by key; the rest is added.
        listener: hears what was read, and how.

    Returns:
        The cells, and the label of each key: which part, or which values, are its own.

    Raises:
        BertctlError: any refusal of recipe, files, labels, model or device, before anything is trained.
    """
    named: list[Cell] = []
    for cell in cells:
        key = encoding_key(cell.recipe)
        if key not in encoded:
            encoded[key] = encode(cell.recipe, listener=listener)
        found = encoded[key]
        resolved = resolved_for(cell.recipe, choose_compute(cell.recipe.runtime))
        if cell.seed == 0:
            check(resolved, found)
        digest = recipe_hash(resolved, data_hashes=found.data.hashes, model_hash=found.model_hash)
        named.append(replace(cell, recipe=resolved, key=key, name=digest[:NAME_LENGTH]))
    _refuse_twins(named)
    labels = _labels(named)
    listener.say(f"tokenized once: {_counts(encoded)}, for all {len(cells)} runs")
    return named, labels


def _disagreements(error: ValidationError) -> list[str]:
    found = [entry.get("ctx", {}).get("error") for entry in error.errors(include_url=False)]
    clashes = [clash for clash in found if isinstance(clash, DisagreementError)]
    if not clashes:
        raise error
    return [f"{item.fields[0]}: {item.message}" for clash in clashes for item in clash.found]


def _refuse_twins(cells: Sequence[Cell]) -> None:
    by_name: dict[str, Cell] = {}
    for cell in cells:
        twin = by_name.setdefault(cell.name, cell)
        if twin is not cell:
            raise UsageError(
                f"settings {twin.setting + 1} and {cell.setting + 1} of the grid give the same run: what tells them "
                "apart decides no number",
                remedy="Take fields out of the grid that decide none (names, logging, paths of equal files).",
            )


def _labels(cells: Sequence[Cell]) -> dict[str, str]:
    """What tells the data of the cells apart; one empty label where all have the same."""
    first = {cell.key: cell for cell in reversed(cells)}
    keys = list(dict.fromkeys(cell.key for cell in cells))
    if len(keys) == 1:
        return {keys[0]: ""}
    if len({cell.setting for cell in cells}) == 1 or len(keys) == len({cell.fold for cell in cells}):
        return {key: f"part {first[key].fold}" for key in keys}
    return {key: f"data {number}" for number, key in enumerate(keys, 1)}


def _counts(encoded: Mapping[str, Encoded]) -> str:
    counted = [
        ", ".join(f"{len(rows)} {split} rows" for split, rows in found.data.splits.items())
        for found in encoded.values()
    ]
    return "; ".join(dict.fromkeys(counted))


def by_cost(cells: Sequence[Cell], encoded: Mapping[str, Encoded]) -> list[Cell]:
    """The longest first, so that no worker is left with a long one at the end; a setting's cells stay together."""

    def cost(cell: Cell) -> tuple[int, int, int]:
        training = cell.recipe.training
        examples = len(encoded[cell.key].features["train"])
        return -training.epochs * examples, -training.epochs * math.ceil(examples / training.batch_size), cell.setting

    return sorted(cells, key=cost)


def share_of(cells: Sequence[Cell], shard: tuple[int, int] | None) -> list[Cell]:
    """The cells of a part: every n-th, so that parts take about the same time; all of them without one."""
    if shard is None:
        return list(cells)
    part, whole = shard
    return list(cells[part - 1 :: whole])


def identity(base: Recipe, document: Mapping[str, Any]) -> str:
    """A hash of what a sweep is, whatever the machine: the recipe without its threads, and the plan's fields."""
    recipe = base.model_copy(update={"runtime": base.runtime.model_copy(update={"threads": None})})
    own = {name: document[name] for name in ("settings", "seeds", "folds", "model_hash")}
    own["early_kill"] = False  # an option of earlier versions; folders keep their names
    text = recipe_hash(recipe, data_hashes=document["data_hashes"], model_hash="") + json.dumps(own, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
