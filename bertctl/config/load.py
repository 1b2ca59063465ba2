"""Recipes by name or path: file, `--set` and options laid over the defaults; all that is wrong is said at once."""

import functools
import os
import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from bertctl.config.agreement import DisagreementError
from bertctl.config.presets import PRESETS
from bertctl.config.problems import SHOWN, RecipeError, describe, field_schema, is_said_by_another, place, unknown_key
from bertctl.config.recipe_files import builtin_recipes, expanded_path, find_recipe
from bertctl.config.removed import drop_removed
from bertctl.config.schema import Recipe, fields, sections
from bertctl.config.strict_yaml import MOST_CHARACTERS, read_document, read_value
from bertctl.config.task_names import task_names
from bertctl.documents import read_text
from bertctl.errors import UsageError
from bertctl.writing import protect

DATASETS_FILE = "datasets.yaml"
"""Name of the file beside a recipe that may hold data sets of a person's own."""

CODE = {"evaluation.metric_scripts": "--metric"}
"""Fields that name code, with their options: no file is trusted with them, the person's own neither."""

REACHING = {**CODE, "runtime.log_to": "--log-to", "runtime.mlflow_register": "--set runtime.mlflow_register"}
"""Fields that name code or a place on the network, with their options."""

_NAMES_OF_SPLITS = ("train", "training", "data")
"""Names of files that say nothing of what is in them."""

_PATH_FIELDS = (
    "data.datasets_file",
    "data.data_dir",
    "data.train_file",
    "data.validation_file",
    "data.test_file",
    "evaluation.metric_scripts",
    "model.name",
)


def load_recipe(name_or_path: str, *, sets: Sequence[str] = (), options: Mapping[str, Any] | None = None) -> Recipe:
    """Returns a recipe, complete and checked. The nearest source wins: options, `sets`, the file, the defaults.

    A preset is as near as the source that names it, and gives way to values of the same source.

    Args:
        name_or_path: a built-in recipe, or a YAML file (see `find_recipe`).
        sets: `section.field=value` each, the value in YAML (a text needs no quotes).
        options: dotted field -> value, from the command line; None means not given.

    Raises:
        RecipeError: a UsageError with every unknown key, wrong type, impossible value and disagreement at once.
        UsageError: no built-in recipe has this name.
        UnavailableError: the file is not there or can't be read.
    """
    path = find_recipe(name_or_path)
    layers = _Layers(path, named=name_or_path)
    for given in sets:
        layers.add_set(given)
    for dotted, value in (options or {}).items():
        if value is not None:
            layers.add_option(dotted, value)
    layers.add_environment()
    layers.add_datasets_file()
    layers.add_preset()
    recipe = _named_after_data(layers.recipe())
    protect(*named_files(recipe))
    return recipe


def _named_after_data(recipe: Recipe) -> Recipe:
    """Returns the recipe; that of a task, for data of one's own, under the name of the data and without its how-to."""
    data, file = recipe.data, Path(recipe.data.train_file or "")
    changed = {}
    if data.train_file and recipe.description == _how_to(recipe.task):
        changed["description"] = ""
    if recipe.name in task_names() and (data.name or data.train_file):
        stem = file.name.partition(".")[0]
        changed["name"] = recipe_name(data.name or (file.parent.name if stem.lower() in _NAMES_OF_SPLITS else stem))
    return recipe.model_copy(update=changed)


@functools.cache
def _how_to(task: str) -> str | None:
    """Returns what the built-in recipe of a task says to those who choose it."""
    path = builtin_recipes().get(task)
    return str(read_document(path.read_text(encoding="utf-8")).values["description"]) if path else None


def refuse_unnamed(
    recipe: Recipe, file: Path, named: Collection[str], flags: Mapping[str, str] = MappingProxyType(REACHING)
) -> None:
    """Refuses what a recipe's file would have run or connected to, unless the command line names it too.

    Args:
        recipe: as it was read.
        file: the recipe's.
        named: dotted fields that stand on the command line.
        flags: field -> option of those that matter.

    Raises:
        UsageError: with what the recipe names, and what allows it.
    """
    own = recipe.model_dump()
    for dotted, flag in flags.items():
        section, _, name = dotted.partition(".")
        if own[section][name] and dotted not in named:
            raise UsageError(
                f"{dotted}: {', '.join(own[section][name])}: named by {file}, and not on the command line",
                remedy=f"What a file names is not run. If you know what it is and trust it, type it: "
                f"{' '.join(f'{flag} {shlex.quote(each)}' for each in own[section][name])}; or take it out of {file}.",
                file=file,
            )


def named_files(recipe: Recipe) -> list[Path]:
    """Returns the files and folders that a recipe names, and what else would be one by its name."""
    values: list[Any] = [functools.reduce(getattr, dotted.split("."), recipe) for dotted in _PATH_FIELDS]
    return [Path(one) for value in values if value for one in (value if isinstance(value, list) else [value])]


def read_field(dotted: str, given: Any) -> tuple[Any, list[str]]:
    """Returns one field's value as `--set` would read it, and a sentence for each thing that is wrong with it.

    Args:
        dotted: the field.
        given: a text as typed, or a value that was read from YAML.

    Raises:
        KeyError: there is no such field.
    """
    section, _, name = dotted.rpartition(".")
    value = read_value(given, as_text=field_schema(dotted)["type"] == "string") if isinstance(given, str) else given
    if dotted in _PATH_FIELDS and isinstance(value, str) and (dotted != "model.name" or _is_folder(value, Path.cwd())):
        value = _absolute(value, Path.cwd())
    try:
        Recipe.model_validate({section: {name: value}} if section else {name: value})
    except ValidationError as error:
        entries = [entry for entry in error.errors(include_url=False) if not is_said_by_another(entry)]
        if not any(isinstance(entry.get("ctx", {}).get("error"), DisagreementError) for entry in entries):
            return value, [describe(entry) for entry in entries]
    return value, []


def recipe_name(text: str) -> str:
    """Returns a text as the name of a recipe."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".-")[:100] or "recipe"


class _Origin(NamedTuple):
    """Where a value was given: its line in the file (or after the last), and what is shown of it."""

    line: int
    shown: str


_SET = _Origin(sys.maxsize - 1, "--set")
_OPTION = _Origin(sys.maxsize, "command line")
_ENVIRONMENT = _Origin(sys.maxsize, "BERTCTL_DATA")


class _Layers:
    """The sources of one recipe, laid over each other, with where each value came from."""

    def __init__(self, path: Path, *, named: str) -> None:
        document = read_document(read_text(path, limit=MOST_CHARACTERS, kind=UsageError))
        source = named if path == expanded_path(named) else path.name
        self._named = named
        self._folder = path.parent
        self._readable = not document.problems
        self._problems: list[tuple[_Origin, str | Mapping[str, Any]]] = [
            (_Origin(line, f"{source}:{line}"), sentence) for line, sentence in document.problems
        ]
        self._origins = {".".join(key): _Origin(line, f"{source}:{line}") for key, line in document.lines.items()}
        self._values = document.values
        self._values.setdefault("name", recipe_name(path.stem))
        for section in sections():
            if self._values.get(section, self) is None:  # `training:` with every line below it commented out
                self._values[section] = {}
        for dotted in _PATH_FIELDS:
            self._make_absolute(dotted, path.parent)
        drop_removed(self._values)

    def add_set(self, given: str) -> None:
        """Lays one `section.field=value` on top."""
        dotted, separator, text = given.partition("=")
        dotted = dotted.strip()
        if not separator or not dotted:
            self._problems.append((_SET, f"{given!r} given, section.field=value fits, such as training.epochs=2"))
        elif dotted in sections():
            inside = next(name for name in fields() if name.startswith(f"{dotted}."))
            self._problems.append((_SET, f"{dotted}: a section; name a field in it, such as {inside}"))
        elif dotted not in fields():
            self._problems.append((_SET, unknown_key(dotted)))
        else:
            self._put(dotted, read_value(text, as_text=field_schema(dotted)["type"] == "string"), _SET)

    def add_option(self, dotted: str, value: Any) -> None:
        """Lays a command-line option on top; a path may be a `Path`, a list may be a tuple."""
        if dotted not in fields():
            raise KeyError(dotted)
        value = list(value) if isinstance(value, tuple) else value
        self._put(dotted, str(value) if isinstance(value, Path) else value, _OPTION)

    def add_environment(self) -> None:
        """Takes BERTCTL_DATA for `data.data_dir` where a data set is named."""
        folder = os.environ.get("BERTCTL_DATA")
        data = self._values.get("data")
        if folder and isinstance(data, dict) and data.get("name") and data.get("data_dir") is None:
            self._put("data.data_dir", folder, _ENVIRONMENT)

    def add_datasets_file(self) -> None:
        """Takes the `datasets.yaml` beside the recipe file, where a data set is named and no other file is."""
        beside = self._folder / DATASETS_FILE
        data = self._values.get("data")
        if isinstance(data, dict) and data.get("name") and data.get("datasets_file") is None and beside.is_file():
            self._put("data.datasets_file", str(beside), _Origin(sys.maxsize, str(beside)))

    def add_preset(self) -> None:
        """Lays the values of `training.preset` under what stands in the source that names it, and over the rest."""
        training = self._values.get("training")
        name = training.get("preset") if isinstance(training, dict) else None
        if not isinstance(name, str):
            return
        origin = self._origins["training.preset"]
        typed = (_SET, _OPTION)
        for dotted, value in PRESETS.get(name, {}).items():  # a name that is none is reported by itself
            there = self._origins.get(dotted)
            if there is None or (origin in typed and there not in typed):
                self._put(dotted, value, origin)

    def recipe(self) -> Recipe:
        """Returns the checked whole.

        Raises:
            RecipeError: with all problems, those of the file first, line by line.
        """
        try:
            recipe = Recipe.model_validate(self._values)
        except ValidationError as error:
            self._note(error)
        if self._problems:
            found = sorted(self._problems, key=lambda problem: problem[0].line)
            said = [what if isinstance(what, str) else describe(what) for _, what in found[:SHOWN]]
            raise RecipeError(
                self._named,
                [f"{origin.shown}: {sentence}" for (origin, _), sentence in zip(found, said, strict=False)],
                more=max(0, len(found) - SHOWN),
                remedy="`bertctl recipes show text-classification` prints every field with what it means.",
            )
        return recipe

    def _put(self, dotted: str, value: Any, origin: _Origin) -> None:
        section, _, name = dotted.rpartition(".")
        into = self._values.setdefault(section, {}) if section else self._values
        if isinstance(into, dict):  # a section that is none is reported by itself
            into[name] = value
            self._origins[dotted] = origin
            if dotted in _PATH_FIELDS:
                self._make_absolute(dotted, Path.cwd())

    def _make_absolute(self, dotted: str, base: Path) -> None:
        section, _, name = dotted.partition(".")
        inside = self._values.get(section)
        if not isinstance(inside, dict):
            return
        value = inside.get(name)
        if isinstance(value, str) and (dotted != "model.name" or _is_folder(value, base)):
            inside[name] = _absolute(value, base)
        elif isinstance(value, list):
            inside[name] = [
                _absolute(item, base) if isinstance(item, str) and _is_path(item, base) else item for item in value
            ]

    def _note(self, error: ValidationError) -> None:
        """Keeps what pydantic found, then looks for disagreements between the fields that are right by themselves."""
        bad: list[str] = []
        rest = {key: dict(value) if isinstance(value, dict) else value for key, value in self._values.items()}
        for entry in error.errors(include_url=False):
            clash = entry.get("ctx", {}).get("error")
            if isinstance(clash, DisagreementError):
                return self._note_disagreements(clash, bad)
            if is_said_by_another(entry):
                continue
            *section, name = place(entry)
            bad.append(".".join((*section, name)))
            self._problems.append((self._origin(bad[-1]), entry))
            (rest[section[0]] if section else rest).pop(name, None)
        try:
            Recipe.model_validate(rest)
        except ValidationError as remaining:
            clash = remaining.errors()[0].get("ctx", {}).get("error")
            if isinstance(clash, DisagreementError):
                self._note_disagreements(clash, bad)
        return None

    def _note_disagreements(self, clash: DisagreementError, bad: Sequence[str]) -> None:
        for names, message in clash.found:
            if self._readable and not any(
                name == other or name.startswith(f"{other}.") for name in names for other in bad
            ):
                origin = next((self._origins[name] for name in names if name in self._origins), self._origin(names[0]))
                self._problems.append((origin, f"{names[0]}: {message}"))

    def _origin(self, dotted: str) -> _Origin:
        """Returns the origin of the value, or of the section it stands in."""
        section = dotted.partition(".")[0]
        return self._origins.get(dotted) or self._origins.get(section) or _Origin(0, self._named)


def _is_path(given: str, base: Path) -> bool:
    """Whether a metric script is meant, not the bare name of a metric on the hub (which is refused by that name)."""
    return "/" in given or given.endswith(".py") or (base / given).exists()


def _absolute(path: str, base: Path) -> str:
    """Returns `path` seen from `base`; symbolic links stay as they are."""
    return os.path.abspath(base / expanded_path(path)) if path else path  # noqa: PTH100  # Path.resolve follows links


def _is_folder(model: str, base: Path) -> bool:
    """Whether a model name is meant as a folder: it begins like a path, or has a slash and a folder is there."""
    return model.startswith((".", "~", "/")) or ("/" in model and (base / model).is_dir())
