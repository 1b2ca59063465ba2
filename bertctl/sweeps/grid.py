"""What a sweep varies: settings, seeds, and a share of the runs.

The settings come from a named grid, a line or a YAML file.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.config.bases import read_files
from bertctl.config.load import read_field
from bertctl.config.presets import fields_left_to_auto, given_values
from bertctl.config.problems import RecipeError, unknown_key
from bertctl.config.recipe_files import expanded_path
from bertctl.config.schema import Recipe, fields, sections
from bertctl.config.strict_yaml import read_document
from bertctl.errors import UsageError
from bertctl.words import unknown

Setting = dict[str, Any]
"""Dotted field -> value."""

AUTO_GRID = "auto"
"""Name of the grid around the values that the preset `auto` chooses; only rows and model say what
is in it."""

_RATE_FACTORS = (1 / 3, 1.0, 3.0)
_EPOCH_FACTORS = (1, 2)

_STREAM = 4  # of the random sample of settings


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    """Returns `grids.yaml`: the grids by name, and the fields that are not for a grid, by why."""
    return read_document(Path(__file__).with_name("grids.yaml").read_text(encoding="utf-8")).values


def read_grid(argument: str) -> list[Setting]:
    """Reads the settings of `--grid`: a name, `field=v1,v2 field=v1`, or a YAML file.

    A setting is one combination of the values, by field. All combinations are returned; the value
    of the last field changes fastest.

    Raises:
        RecipeError: a UsageError with every unknown key, doubled key and value that doesn't fit, at
            once.
        UsageError: an empty grid, or an unknown name.
        UnavailableError: a file that is not there.
    """
    text = argument.strip()
    grids = _tables()["grids"]
    if text in grids:
        return _combinations(grids[text])
    if Path(text).suffix in (".yaml", ".yml"):
        pairs, problems = _from_file(text)
    elif "=" in text:
        pairs, problems = _from_line(text)
    elif not text:
        raise _empty("`grid=''`")
    else:
        raise UsageError(
            unknown("grid", text, [*grids, AUTO_GRID]),
            remedy=f"Grids: {', '.join([*grids, AUTO_GRID])}; or "
            "`grid='optimizer.learning_rate=1e-5,2e-5 training.batch_size=16'`, or a YAML file "
            "with a list for each field.",
        )
    grid = _checked(pairs, problems)
    if problems:
        raise RecipeError(
            "the grid",
            problems,
            remedy="`bertctl recipes show text-classification` prints every field.",
        )
    if not grid:
        raise _empty(f"`grid={argument}`")
    return _combinations(grid)


def axes_around(recipe: Recipe) -> list[str]:
    """Returns the fields that `settings_around` varies.

    These are the fields of this recipe that the preset `auto` is to choose.
    """
    open_fields = fields_left_to_auto(recipe)
    axes = ["optimizer.learning_rate", "optimizer.layer_decay"]
    if recipe.training.max_steps is None:
        axes.append("training.epochs")
    return [axis for axis in axes if axis in open_fields]


def settings_around(recipe: Recipe, axes: Sequence[str]) -> list[Setting]:
    """Returns the settings around the values of a recipe: 12 where all three fields are free.

    They are all combinations of three learning rates (a third of the recipe's, its own and three
    times it, rounded to one digit), two layer decays (its own and none) and two numbers of epochs
    (its own and twice as many). A field that is not in `axes` keeps the recipe's value.

    Args:
        recipe: With the values that the preset `auto` has chosen.
        axes: Fields to vary, from `axes_around`.
    """
    rate = recipe.optimizer.learning_rate
    decay = recipe.optimizer.layer_decay
    values: dict[str, list[Any]] = {
        "optimizer.learning_rate": [float(f"{rate * factor:.0e}") for factor in _RATE_FACTORS],
        "optimizer.layer_decay": list(dict.fromkeys([decay, 1.0])),
        "training.epochs": [recipe.training.epochs * factor for factor in _EPOCH_FACTORS],
    }
    return _combinations({axis: values[axis] for axis in axes})


def pick(settings: Sequence[Setting], count: int | None, *, seed: int) -> list[Setting]:
    """Returns a seeded sample of the settings in the grid's order, or all without a count.

    Raises:
        UsageError: fewer than one.
    """
    if count is None:
        return list(settings)
    if count < 1:
        raise UsageError(f"`random={count}`: it must be at least 1")
    drawn = np.random.default_rng([seed, _STREAM]).permutation(len(settings))[:count]
    return [settings[i] for i in sorted(drawn.tolist())]


def read_seeds(argument: str, *, first: int) -> list[dict[str, int]]:
    """Reads `--seeds`: `5` or `init=3,order=3`.

    A number counts seeds that set initialisation and data order together. With `init` and `order`
    each initialisation is combined with each order. With first=42:

        "2" -> [{"init": 42, "order": 42}, {"init": 43, "order": 43}]
        "init=1,order=2" -> [{"init": 42, "order": 42}, {"init": 42, "order": 43}]

    Args:
        argument: Text that was typed.
        first: The recipe's seed; the others count up from it.

    Raises:
        UsageError: no positive numbers.
    """
    text = argument.replace(" ", "")
    if re.fullmatch(r"[1-9]\d*", text):
        pairs = [(i, i) for i in range(int(text))]
    elif re.fullmatch(r"init=[1-9]\d*(,order=[1-9]\d*)?|order=[1-9]\d*(,init=[1-9]\d*)?", text):
        counts = {}
        for assignment in text.split(","):
            name, _, number = assignment.partition("=")
            counts[name] = int(number)
        pairs = list(itertools.product(range(counts.get("init", 1)), range(counts.get("order", 1))))
    else:
        raise UsageError(
            f"`seeds={argument}`: this is not a number of seeds",
            remedy="Such as `seeds=5`, or init=3,order=3.",
        )
    return [{"init": (first + i) % 2**32, "order": (first + j) % 2**32} for i, j in pairs]


def _from_line(text: str) -> tuple[list[tuple[str, list[Any]]], list[str]]:
    """Reads fields with their values from `a=1,2 b=x`; commas within brackets belong to the value.

    It also returns a sentence for each word that is not of this form.
    """
    pairs = []
    problems = []
    for word in re.findall(r"(?:\[[^\]]*\]|\S)+", text):
        dotted, separator, values = word.partition("=")
        if separator and dotted:
            texts = re.findall(r"(?:\[[^\]]*\]|[^,])+", values)
            pairs.append((dotted, [text for text in texts if text.strip()]))
        else:
            problems.append(f"{word!r} given, field=value,value fits, such as training.epochs=2,3")
    return pairs, problems


def _from_file(name: str) -> tuple[list[tuple[str, list[Any]]], list[str]]:
    """Reads fields with their values from a YAML file, and problems as sentences.

    A file may name a base, another file of this kind. It takes those fields of the base that it
    does not have itself.
    """
    pairs: list[tuple[str, list[Any]]] = []
    problems: list[str] = []
    for file in read_files(expanded_path(name), name):  # a base comes before the files it is for
        document = file.document
        file_pairs = []
        problems += [f"{file.shown}:{line}: {sentence}" for line, sentence in document.problems]
        for key, value in document.values.items():
            is_section = isinstance(value, dict)
            if is_section and key not in sections():
                key_path = (key,)
                line = document.lines[key_path]
                problems.append(f"{file.shown}:{line}: {unknown_key(key)}")
                continue
            fields = {key: value}
            if is_section:
                fields = {f"{key}.{name}": values for name, values in value.items()}
            for dotted, values in fields.items():
                file_pairs.append((dotted, values if isinstance(values, list) else [values]))
        fields_of_file = {dotted for dotted, _ in file_pairs}
        inherited = [(dotted, values) for dotted, values in pairs if dotted not in fields_of_file]
        pairs = inherited + file_pairs
    return pairs, problems


def _checked(pairs: Iterable[tuple[str, list[Any]]], problems: list[str]) -> dict[str, list[Any]]:
    """Returns the values of each field as the recipe takes them.

    Args:
        pairs: Fields and their values, as they were read.
        problems: A sentence for each fault that is found is added to it.
    """
    grid: dict[str, list[Any]] = {}
    for dotted, values in pairs:
        if dotted in grid:
            problems.append(f"{dotted}: given twice; put all its values in one list")
        elif dotted not in fields():
            problems.append(unknown_key(dotted))
        elif _reason_against(dotted):
            problems.append(f"{dotted}: not for a grid; {_reason_against(dotted)}")
        elif not values:
            problems.append(f"{dotted}: no value given")
        else:
            grid[dotted] = _values(dotted, values, problems)
    return grid


def _reason_against(dotted: str) -> str:
    """Returns why a recipe field is not for a grid; empty if it is."""
    for reason, names in _tables()["not_in_a_grid"].items():
        if dotted in names:
            return str(reason)
    return ""


def _values(dotted: str, raw_values: Sequence[Any], problems: list[str]) -> list[Any]:
    """Returns the values of a recipe field as the recipe takes them.

    What is wrong with them, or given twice, is added to `problems`.
    """
    values: list[Any] = []
    for raw_value in raw_values:
        value, field_problems = read_field(dotted, raw_value)
        problems.extend(field_problems)
        if value in values and not field_problems:
            problems.append(f"{dotted}: {value} is given twice")
        values.append(value)
    return values


def _combinations(grid: Mapping[str, Sequence[Any]]) -> list[Setting]:
    """Returns every combination of the values, by field."""
    settings = []
    for values in itertools.product(*grid.values()):
        setting = dict(zip(grid, values, strict=True))
        settings.append(setting)
    return settings


def _empty(argument: str) -> UsageError:
    """Returns the error for a grid without settings."""
    return UsageError(
        f"{argument} is empty: there is nothing to run",
        remedy="Such as `grid=paper`, `grid=glue`, or `grid='optimizer.learning_rate=1e-5,2e-5'`.",
    )


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Returns the recipe with other values, checked as a whole.

    Raises:
        ValidationError: of pydantic; values that don't go together come as a `DisagreementError`
            inside it.
    """
    document = given_values(recipe)
    for dotted, value in values.items():
        section, _, name = dotted.partition(".")
        document[section][name] = value
    return Recipe.model_validate(document)
