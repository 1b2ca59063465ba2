"""Recipes by name or path: file, `--set` and options laid over the defaults.

All that is wrong is said at once.
"""

import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import ValidationError

from bertctl.addresses import address_problem, address_remedy, is_address
from bertctl.config.agreement import Disagreement, disagreements_in
from bertctl.config.bases import RecipeFile, read_files
from bertctl.config.presets import AUTO, AUTO_FIELDS, PRESETS
from bertctl.config.problems import (
    SHOWN,
    RecipeError,
    describe,
    field_schema,
    is_said_by_another,
    place,
    unknown_key,
)
from bertctl.config.recipe_files import builtin_recipes, expanded_path, find_recipe
from bertctl.config.recipe_sections import Mark
from bertctl.config.removed import drop_removed
from bertctl.config.schema import Recipe, fields, marked, sections
from bertctl.config.strict_yaml import read_document, read_value
from bertctl.config.task_names import PRETRAINING, task_names
from bertctl.errors import UsageError
from bertctl.writing import protect

DATASETS_FILE = "datasets.yaml"
"""Name of the file beside a recipe that may hold data sets of a person's own."""

CODE = ("evaluation.metric_scripts",)
"""Fields that name code: no file is trusted with them, the person's own neither."""

REACHING = (*CODE, "runtime.log_to", "runtime.mlflow_register")
"""Fields that name code or a place on the network."""

_NOT_INHERITED = ("name", "description")
"""Fields that say what a file is, and nothing of those whose base it is."""

_NAMES_OF_SPLITS = ("train", "training", "data")
"""Names of files that say nothing of what is in them."""


class Origin(NamedTuple):
    """Where a value was given. Later ones count more, and stand later among the problems.

    Attributes:
        rank: of the source: the number of the file, bases first; what is typed comes after all of
            them.
        line: in the file; 0 for what was typed.
        shown: the place, for messages.
        kind: base, file, environment or option; default where nobody gave the value.
        file: the recipe's file that it stands in.
        via: the variables that it was made of, as they are written; or the preset that it belongs
            to.
        absolute: the paths in it that were given as absolute ones.
    """

    rank: int
    line: int
    shown: str
    kind: str
    file: Path | None = None
    via: str = ""
    absolute: tuple[str, ...] = ()


TracedRecipe: TypeAlias = tuple[Recipe, Mapping[str, Origin]]
"""A recipe, and the origin of each of its fields by the dotted name."""

DEFAULT = Origin(-1, 0, "", "default")

NULL = object()
"""An option's value that sets a field to null, where None means that the option is not given."""


def load_recipe(
    name_or_path: str, *, sets: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> Recipe:
    """Returns a recipe, complete and checked; see `trace_recipe`."""
    return trace_recipe(name_or_path, sets=sets, options=options)[0]


def trace_recipe(
    name_or_path: str, *, sets: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> TracedRecipe:
    """Returns a recipe, complete and checked, and the origin of each field by its dotted name.

    The nearest source wins: options, `sets`, the file, bases, the defaults.

    A preset is as near as the source that names it, and gives way to values of the same source.

    Args:
        name_or_path: a built-in recipe, or a YAML file (see `find_recipe`).
        sets: `section.field=value` each, the value in YAML (a text needs no quotes).
        options: dotted field -> value, from the command line; None means not given, `NULL` is null.

    Raises:
        RecipeError: a UsageError with every unknown key, wrong type, impossible value and
            disagreement at once.
        UsageError: no built-in recipe has this name.
        UnavailableError: the file or a base is not there or can't be read.
    """
    path = find_recipe(name_or_path)
    files = read_files(path, name_or_path if path == expanded_path(name_or_path) else path.name)
    layers = _Layers(files, label=name_or_path)
    for assignment in sets:
        layers.add_set(assignment)
    for dotted, value in (options or {}).items():
        if value is not None:
            layers.add_option(dotted, None if value is NULL else value)
    layers.add_places_of_data()
    layers.add_preset()
    layers.prefer_epochs()
    recipe = _named_after_data(layers.recipe())
    protect(*named_files(recipe), *(file.path for file in files[:-1]))
    return recipe, {dotted: layers.origins.get(dotted, DEFAULT) for dotted in fields()}


def _named_after_data(recipe: Recipe) -> Recipe:
    """Returns a task's recipe under the name of the person's own data, without its how-to."""
    data = recipe.data
    file = Path(recipe.data.train_file or "")
    changed = {}
    if data.train_file and recipe.description == _how_to(recipe.task):
        changed["description"] = ""
    if recipe.name in task_names() and (data.name or data.train_file):
        stem = file.name.partition(".")[0]
        changed["name"] = recipe_name(
            data.name or (file.parent.name if stem.lower() in _NAMES_OF_SPLITS else stem)
        )
    return recipe.model_copy(update=changed)


@functools.cache
def _how_to(task: str) -> str | None:
    """Returns what the built-in recipe of a task says to those who choose it."""
    path = builtin_recipes().get(task)
    if path:
        return str(read_document(path.read_text(encoding="utf-8")).values["description"])
    return None


def refuse_unnamed(
    recipe: Recipe, file: Path, named_fields: Collection[str], reaching: Iterable[str]
) -> None:
    """Refuses fields of a recipe file that would run code or connect to a server.

    They are accepted if the command line names them too.

    Args:
        recipe: as it was read.
        file: the recipe's.
        named_fields: dotted fields that stand on the command line.
        reaching: dotted fields that matter, of `REACHING`.

    Raises:
        UsageError: with what the recipe names, and what allows it.
    """
    values = recipe.model_dump()
    for dotted in reaching:
        section, _, name = dotted.partition(".")
        if values[section][name] and dotted not in named_fields:
            typed = " ".join(f"`{dotted}={shlex.quote(item)}`" for item in values[section][name])
            raise UsageError(
                f"{dotted}: {', '.join(values[section][name])}: named by {file}, and not on the "
                "command line",
                remedy="A file can't name code to run. If you know and trust it, type "
                f"it: {typed}; or take it out of {file}.",
                file=file,
            )


def named_files(recipe: Recipe) -> list[Path]:
    """Returns the files and folders that a recipe names, and what else would be one by its name."""
    paths: list[Path] = []
    for dotted in marked(Mark.IS_PATH):
        value: Any = functools.reduce(getattr, dotted.split("."), recipe)
        if isinstance(value, list):
            paths.extend(map(Path, value))
        elif value:
            paths.append(Path(value))
    return paths


def read_field(dotted: str, raw: Any) -> tuple[Any, list[str]]:
    """Returns one field's value as `--set` would read it, and what is wrong with it.

    The latter is a sentence for each thing.

    Args:
        dotted: the field.
        raw: a text as typed, or a value that was read from YAML.

    Raises:
        KeyError: there is no such field.
    """
    section, _, name = dotted.rpartition(".")
    if isinstance(raw, str):
        value = read_value(raw, as_text=field_schema(dotted)["type"] == "string")
    else:
        value = raw
    if dotted in marked(Mark.IS_PATH):
        problems = _address_problems(dotted, value)
        if problems:
            return value, problems
        if isinstance(value, str):
            value = _placed(value, dotted, Path.cwd())
    try:
        Recipe.model_validate({section: {name: value}} if section else {name: value})
    except ValidationError as error:
        if not disagreements_in(error):
            entries = error.errors(include_url=False)
            return value, [describe(entry) for entry in entries if not is_said_by_another(entry)]
    return value, []


def recipe_name(text: str) -> str:
    """Returns a text as the name of a recipe."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".-")[:100] or "recipe"


_SET = Origin(sys.maxsize, 0, "--set", "option")
_OPTION = Origin(sys.maxsize, 1, "command line", "option")
_ENVIRONMENT = Origin(sys.maxsize, 1, "BERTCTL_DATA", "environment")


class _Layers:
    """The sources of one recipe, laid over each other, with where each value came from."""

    def __init__(self, files: Sequence[RecipeFile], *, label: str) -> None:
        self.origins: dict[str, Origin] = {}
        self._label = label
        self._path = files[-1].path
        self._readable = not any(file.document.problems for file in files)
        self._problems: list[tuple[Origin, str | Mapping[str, Any]]] = []
        self._values: dict[str, Any] = {}
        for rank, file in enumerate(files):
            self._lay(rank, file, is_base=file is not files[-1])
        self._values.setdefault("name", recipe_name(self._path.stem))

    def _lay(self, rank: int, file: RecipeFile, *, is_base: bool) -> None:
        """Lays a file over its bases: its fields take the place of theirs, the others stay."""

        def origin(line: int, via: str = "") -> Origin:
            return Origin(
                rank,
                line,
                shown=f"{file.shown}:{line}",
                kind="base" if is_base else "file",
                file=file.path,
                via=via,
            )

        values = file.document.values
        # Relative paths are relative to their own file, so they are replaced before files mix.
        given_as_absolute: dict[str, tuple[str, ...]] = {}
        for dotted in marked(Mark.IS_PATH):
            given_as_absolute[dotted] = _make_absolute(values, dotted, file.path.parent)
        drop_removed(values)
        left_out = _NOT_INHERITED if is_base else ()
        for key in values:
            if key in left_out:
                continue
            # A section is None if every line below `training:` is commented out.
            empty = values[key] is None and key in sections()
            below = self._values.get(key)
            above = {} if empty else values[key]
            self._values[key] = (
                below | above if isinstance(below, dict) and isinstance(above, dict) else above
            )
        self._problems += [(origin(line), sentence) for line, sentence in file.document.problems]
        lines = {
            ".".join(key): line
            for key, line in file.document.lines.items()
            if key[0] not in left_out
        }
        for dotted, line in lines.items():
            variables = file.variables.get(dotted, "")
            self.origins[dotted] = origin(line, variables)._replace(
                absolute=given_as_absolute.get(dotted, ())
            )

    def add_set(self, assignment: str) -> None:
        """Lays one `section.field=value` on top."""
        dotted, separator, text = assignment.partition("=")
        dotted = dotted.strip()
        if not separator or not dotted:
            self._problems.append(
                (_SET, f"{assignment!r} given, section.field=value fits, such as training.epochs=2")
            )
        elif dotted not in fields():
            self._problems.append((_SET, unknown_key(dotted)))
        else:
            self._put(
                dotted, read_value(text, as_text=field_schema(dotted)["type"] == "string"), _SET
            )

    def add_option(self, dotted: str, value: Any) -> None:
        """Lays a command-line option on top; a path may be a `Path`, a list may be a tuple."""
        if dotted not in fields():
            raise KeyError(dotted)
        if isinstance(value, tuple):
            value = list(value)
        self._put(dotted, str(value) if isinstance(value, Path) else value, _OPTION)

    def add_places_of_data(self) -> None:
        """Takes BERTCTL_DATA for `data.data_dir`, and the `datasets.yaml` of a file.

        It does where a data set is named. The `datasets.yaml` lies beside the file that names it,
        else beside the recipe.
        """
        data = self._values.get("data")
        by = self.origins.get("data.name", DEFAULT).file or self._path
        if not isinstance(data, dict) or not data.get("name"):
            return
        folder = os.environ.get("BERTCTL_DATA")
        if folder and data.get("data_dir") is None:
            self._put("data.data_dir", folder, _ENVIRONMENT)
        beside = next(
            filter(
                Path.is_file, (folder_of.with_name(DATASETS_FILE) for folder_of in (by, self._path))
            ),
            None,
        )
        if beside and data.get("datasets_file") is None:
            self._put("data.datasets_file", str(beside), DEFAULT._replace(shown=str(beside)))

    def add_preset(self) -> None:
        """Puts the values of `training.preset` in place of those from weaker sources.

        Fields of the source that names the preset, and of stronger ones, stay.

        The values of `auto` depend on rows and model: the fields stay open until these are read.
        """
        training = self._values.get("training")
        if not isinstance(training, dict):
            return
        name = training.get("preset")
        if not isinstance(name, str):
            return

        origin = self.origins["training.preset"]
        if name == AUTO:
            self._leave_to_auto(origin)
        preset = PRESETS.get(name, {})  # an unknown name is reported with the other wrong values
        for dotted, value in preset.items():
            if self.origins.get(dotted, DEFAULT).rank < origin.rank:
                self._put(dotted, value, origin._replace(via=f"preset {name}"))

    def _leave_to_auto(self, origin: Origin) -> None:
        """Takes out the fields that the preset `auto` chooses, if a weaker source gave them."""
        for dotted in AUTO_FIELDS:
            section, _, name = dotted.partition(".")
            if self.origins.get(dotted, DEFAULT).rank >= origin.rank:
                continue
            values = self._values.get(section)
            if isinstance(values, dict):
                values.pop(name, None)
            self.origins[dotted] = origin._replace(kind="default", via=f"preset {AUTO}")

    def prefer_epochs(self) -> None:
        """Drops `training.max_steps` if a stronger source gives `training.epochs`.

        Otherwise the epochs that somebody typed would have no effect.
        """
        epochs_rank = self.origins.get("training.epochs", DEFAULT).rank
        steps_rank = self.origins.get("training.max_steps", DEFAULT).rank
        if epochs_rank > steps_rank > DEFAULT.rank:
            del self._values["training"]["max_steps"], self.origins["training.max_steps"]

    def recipe(self) -> Recipe:
        """Returns the checked whole.

        Raises:
            RecipeError: with all problems, those of the file first, line by line.
        """
        self._note_addresses()
        try:
            recipe = Recipe.model_validate(self._values)
        except ValidationError as error:
            self._note(error)
        if self._problems:
            problems = sorted(self._problems, key=lambda problem: problem[0][:2])
            sentences = [
                problem_entry if isinstance(problem_entry, str) else describe(problem_entry)
                for _, problem_entry in problems[:SHOWN]
            ]
            raise RecipeError(
                self._label,
                [
                    f"{origin.shown}: {sentence}"
                    for (origin, _), sentence in zip(problems, sentences, strict=False)
                ],
                more=max(0, len(problems) - SHOWN),
                remedy=f"`bertctl recipes show {self._of_its_task()}` prints every field with "
                "its meaning.",
            )
        return recipe

    def _of_its_task(self) -> str:
        """Returns the name of a built-in recipe that has the fields of this one."""
        task = self._values.get("task")
        if task == PRETRAINING:
            name = "pretrain"
        else:
            name = str(task)
        if name in builtin_recipes():
            return name
        return "text-classification"

    def _put(self, dotted: str, value: Any, origin: Origin) -> None:
        """Sets a field on top of all files; a relative path is relative to the working folder."""
        section, _, name = dotted.rpartition(".")
        if section:
            into = self._values.setdefault(section, {})
        else:
            into = self._values
        if isinstance(into, dict):  # a section that is none is reported by itself
            into[name] = value
            self.origins[dotted] = origin
            if dotted in marked(Mark.IS_PATH):
                absolute = _make_absolute(self._values, dotted, Path.cwd())
                self.origins[dotted] = origin._replace(absolute=absolute)

    def _note_addresses(self) -> None:
        """Keeps what is wrong with addresses in fields of paths."""
        for dotted in marked(Mark.IS_PATH):
            section, _, name = dotted.partition(".")
            values = self._values.get(section)
            if isinstance(values, dict):
                problems = _address_problems(dotted, values.get(name))
                self._problems += [(self._origin(dotted), problem) for problem in problems]

    def _note(self, error: ValidationError) -> None:
        """Keeps the problems that pydantic found.

        Then it looks for disagreements between the fields that are valid by themselves.
        """
        disagreeing = disagreements_in(error)
        if disagreeing:
            return self._note_disagreements(disagreeing, ())
        bad: list[str] = []
        valid_values = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in self._values.items()
        }
        for entry in error.errors(include_url=False):
            if is_said_by_another(entry):
                continue
            *section, name = place(entry)
            bad.append(".".join((*section, name)))
            self._problems.append((self._origin(bad[-1]), entry))
            (valid_values[section[0]] if section else valid_values).pop(name, None)
        try:
            Recipe.model_validate(valid_values)
        except ValidationError as remaining:
            self._note_disagreements(disagreements_in(remaining), bad)
        return None

    def _note_disagreements(self, disagreeing: Sequence[Disagreement], bad: Sequence[str]) -> None:
        """Notes disagreements of fields, except those of fields or sections that are bad anyway."""
        if not self._readable:
            return
        prefixes = tuple(f"{name}." for name in bad)
        for names, message in disagreeing:
            if any(f"{name}.".startswith(prefixes) for name in names):
                continue
            given_origins = [self.origins[name] for name in names if name in self.origins]
            origin = given_origins[0] if given_origins else self._origin(names[0])
            self._problems.append((origin, f"{names[0]}: {message}"))

    def _origin(self, dotted: str) -> Origin:
        """Returns the origin of the value, or of the section it stands in."""
        section = dotted.partition(".")[0]
        return (
            self.origins.get(dotted)
            or self.origins.get(section)
            or Origin(-1, 0, self._label, "file")
        )


def _address_problems(dotted: str, value: Any) -> list[str]:
    """Returns a sentence for each address in the value of a field of paths."""
    problems: list[str] = []
    for address in value if isinstance(value, list) else [value]:
        if isinstance(address, str) and is_address(address):
            remedy = address_remedy(address, is_model=dotted == "model.name")
            problems.append(f"{dotted}: {address_problem(address)}. {remedy}")
    return problems


def _make_absolute(values: Mapping[str, Any], dotted: str, base: Path) -> tuple[str, ...]:
    """Makes the paths of a field absolute in a recipe's nested values.

    It returns those that were absolute before.
    """
    section, _, name = dotted.partition(".")
    section_values = values.get(section)
    if not isinstance(section_values, dict):
        return ()
    value = section_values.get(name)
    if isinstance(value, str):
        section_values[name] = _placed(value, dotted, base)
    elif isinstance(value, list):
        section_values[name] = [
            _placed(item, dotted, base) if isinstance(item, str) else item for item in value
        ]

    if isinstance(value, list):
        texts = value
    else:
        texts = [value]
    absolute = [
        text
        for text in texts
        if isinstance(text, str) and text and expanded_path(text).is_absolute()
    ]
    return tuple(_placed(text, dotted, base) for text in absolute)


def _placed(path_text: str, dotted: str, base: Path) -> str:
    """Returns a field's path seen from `base`; what is a name in its field stays as it is."""
    is_path = _PERHAPS_PATHS.get(dotted)
    if is_address(path_text):  # the recipe is refused, with the address as it was written
        return path_text
    if not path_text or (is_path is not None and not is_path(path_text, base)):
        return path_text
    # Path.resolve follows links.
    return os.path.abspath(base / expanded_path(path_text))  # noqa: PTH100


def portable(recipe: Recipe, origins: Mapping[str, Origin], folder: Path) -> Recipe:
    """Returns a recipe as it occurs in a file that other machines may read.

    Paths are seen from the file's folder, but for those that were given as absolute ones. What an
    environment variable of this machine says is left to that of the other one.

    Args:
        recipe: As `trace_recipe` returns it.
        origins: Where each field's value comes from.
        folder: Where the file will lie.
    """
    for dotted in marked(Mark.IS_PATH):
        section, _, name = dotted.partition(".")
        origin = origins.get(dotted, DEFAULT)
        value = getattr(getattr(recipe, section), name)
        if origin.kind == "environment":
            recipe = recipe.with_fields(section, **{name: None})
        elif isinstance(value, list):
            relative_paths = [_seen_from(folder, item, dotted, origin) for item in value]
            recipe = recipe.with_fields(section, **{name: relative_paths})
        elif value:
            recipe = recipe.with_fields(
                section, **{name: _seen_from(folder, value, dotted, origin)}
            )
    return recipe


def _seen_from(folder: Path, path: str, dotted: str, origin: Origin) -> str:
    """Returns a path relative to a folder.

    A name, or what was given as an absolute path, stays as it is.
    """
    if not Path(path).is_absolute() or path in origin.absolute:
        return path
    relative = os.path.relpath(path, folder)
    could_be_a_name = dotted in _PERHAPS_PATHS and not relative.startswith("..")
    if could_be_a_name or relative.startswith("~"):
        return f"./{relative}"
    return relative


def chosen_fields(recipe: Recipe, origins: Mapping[str, Origin]) -> set[str]:
    """Returns the fields that a file needs to read back as this recipe.

    These are the fields that were given, and what the recipe is for.
    """
    set_fields = {
        dotted for dotted, origin in origins.items() if origin.kind in ("base", "file", "option")
    }
    values = {dotted: functools.reduce(getattr, dotted.split("."), recipe) for dotted in fields()}
    worked_out = {
        dotted for dotted, info in fields().items() if values[dotted] != info.get_default()
    }
    chosen = {"name", "task"} | set_fields | worked_out
    if recipe.description:
        return chosen
    return chosen - {"description"}


def _is_folder(model: str, base: Path) -> bool:
    """Returns whether a model's name is meant as a path.

    It begins like one, or a folder or a file with a suffix exists.
    """
    matches = (
        (base / model).is_dir() if "/" in model else Path(model).suffix and (base / model).is_file()
    )
    return model.startswith((".", "~", "/")) or bool(matches)


def _is_file(path_text: str, base: Path) -> bool:
    """Whether a file is meant, not a name without a suffix."""
    return "/" in path_text or "." in path_text or (base / path_text).exists()


_PERHAPS_PATHS: Mapping[str, Callable[[str, Path], bool]] = {
    # or the name of a metric on the hub, which is refused by that name
    "evaluation.metric_scripts": _is_file,
    "model.name": _is_folder,
    "pretraining.corpus": _is_file,
    "pretraining.from_scratch": lambda given, base: (
        _is_file(given, base) and not (base / given).is_dir()
    ),
}
"""Fields that hold a path or a name, with what tells them apart."""
