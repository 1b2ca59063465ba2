"""Recipes by name or path: file, `--set` and options laid over the defaults.

All that is wrong is said at once.
"""

import functools
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import ValidationError

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
from bertctl.config.recipe_paths import absolute_path, address_problems, make_absolute, named_files
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
"""Fields that describe one file. A recipe does not take them from its bases."""

_NAMES_OF_SPLITS = ("train", "training", "data")
"""Names of files that do not describe the data in them."""


class Origin(NamedTuple):
    """Source of a field's value. Origins are ordered by rank, then by line.

    The value of a higher rank wins, and its problems are listed later.

    Attributes:
        rank: Number of the recipe's file, bases first; `sys.maxsize` for what was typed, -1 for
            defaults.
        line: Line in the file. What was typed has 0 (`--set`) or 1 (options), only for the order.
        shown: Where the value was given, for messages, such as `recipe.yaml:12`.
        kind: base, file, environment or option; default if nobody gave the value.
        file: The recipe file that the value was read from.
        via: The value as written, if it names environment variables; or the preset that set it.
        absolute: Those of the field's paths that were given as absolute paths.
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

    If several sources give a field, the first of these wins: `options`, `sets`, the recipe's file,
    its bases, the defaults. A preset's values rank just below the source that names it.

    Args:
        name_or_path: A built-in recipe, or a YAML file (see `find_recipe`).
        sets: `section.field=value` each, the value in YAML (a text needs no quotes).
        options: Dotted field -> value, from the command line; None means not given, `NULL` is null.

    Raises:
        RecipeError: With every unknown key, wrong type, impossible value and disagreement at once.
        UsageError: No built-in recipe has this name.
        UnavailableError: The file or a base does not exist, or can't be read.
    """
    path = find_recipe(name_or_path)
    is_typed_path = path == expanded_path(name_or_path)
    shown_path = name_or_path if is_typed_path else path.name
    files = read_files(path, shown_path)  # the bases first, the recipe's own file last

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

    # No output of this command may overwrite a file that the recipe reads. Bases are such files.
    base_paths = [file.path for file in files[:-1]]
    protect(*named_files(recipe), *base_paths)
    return recipe, {dotted: layers.origins.get(dotted, DEFAULT) for dotted in fields()}


def _named_after_data(recipe: Recipe) -> Recipe:
    """Returns a task's built-in recipe, named after the user's data.

    A built-in recipe such as `text-classification` is used for any data. Its name is replaced by
    that of the data set or training file. Its description explains how to use it with a file, so
    it is left out once a file is given. Other recipes are returned unchanged.
    """
    data = recipe.data
    changed = {}
    if data.train_file and recipe.description == _description_of_builtin(recipe.task):
        changed["description"] = ""
    if recipe.name in task_names():
        if data.name:
            changed["name"] = recipe_name(data.name)
        elif data.train_file:
            changed["name"] = recipe_name(_name_of_rows(Path(data.train_file)))
    return recipe.model_copy(update=changed)


def _name_of_rows(file: Path) -> str:
    """Returns a name for the rows of a file: stem, or folder: `imdb/train.csv` -> `imdb`."""
    stem = file.name.partition(".")[0]
    if stem.lower() in _NAMES_OF_SPLITS:
        return file.parent.name
    return stem


@functools.cache
def _description_of_builtin(task: str) -> str | None:
    """Returns the description in the built-in recipe of a task; None if the task has no recipe."""
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
        recipe: The recipe as it was read.
        file: The recipe's file, for the message.
        named_fields: Dotted names of the fields that were typed on the command line.
        reaching: Dotted names of the fields to check: `REACHING`, or `CODE` alone.

    Raises:
        UsageError: A field names something that was not typed. The remedy says what to type.
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


def read_field(dotted: str, raw: Any) -> tuple[Any, list[str]]:
    """Returns one field's value as `--set` would read it, and a sentence for each of its problems.

    Only the value by itself is checked, not whether it fits the other fields.

    Args:
        dotted: The field's dotted name.
        raw: A text as typed, or a value that was read from YAML.

    Raises:
        KeyError: No field has this name.
    """
    section, _, name = dotted.rpartition(".")
    if isinstance(raw, str):
        value = _read_typed(dotted, raw)
    else:
        value = raw
    if dotted in marked(Mark.IS_PATH):
        problems = address_problems(dotted, value)
        if problems:
            return value, problems
        if isinstance(value, str):
            value = absolute_path(value, dotted, Path.cwd())
    if section:
        values = {section: {name: value}}
    else:
        values = {name: value}
    try:
        Recipe.model_validate(values)
    except ValidationError as error:
        # The fields that this one may disagree with have defaults here, not the recipe's values.
        if not disagreements_in(error):
            entries = error.errors(include_url=False)
            return value, [describe(entry) for entry in entries if not is_said_by_another(entry)]
    return value, []


def _read_typed(dotted: str, text: str) -> Any:
    """Returns a field's value from the YAML that a user typed; a text needs no quotes."""
    return read_value(text, as_text=field_schema(dotted)["type"] == "string")


def recipe_name(text: str) -> str:
    """Returns a text as a valid name of a recipe: `my data (1)` -> `my-data-1`."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".-")[:100] or "recipe"


_SET = Origin(sys.maxsize, 0, "--set", "option")
_OPTION = Origin(sys.maxsize, 1, "command line", "option")
_ENVIRONMENT = Origin(sys.maxsize, 1, "BERTCTL_DATA", "environment")


class _Layers:
    """The sources of one recipe, laid over each other, with the origin of each value.

    Files are laid first, then the `add_*` methods in the order of `trace_recipe`. Problems are
    collected on the way, and `recipe` raises them together.

    Args:
        files: The recipe's files, bases first, as `read_files` returns them.
        label: Name of the recipe in messages.

    Attributes:
        origins: Dotted name of a field -> where its value was given. A file's sections and unknown
            keys are among them.
    """

    def __init__(self, files: Sequence[RecipeFile], *, label: str) -> None:
        self.origins: dict[str, Origin] = {}
        self._label = label
        recipe_file = files[-1]  # the files before it are its bases
        self._path = recipe_file.path
        self._files_are_readable = not any(file.document.problems for file in files)
        self._problems: list[tuple[Origin, str | Mapping[str, Any]]] = []
        self._values: dict[str, Any] = {}
        # The values of a later file replace those of the files before it.
        for rank, file in enumerate(files):
            self._lay(rank, file, is_base=file is not recipe_file)
        # A recipe without a name is called like its file.
        self._values.setdefault("name", recipe_name(self._path.stem))

    def _lay(self, rank: int, file: RecipeFile, *, is_base: bool) -> None:
        """Lays a file over the files before it: sets its fields and the origin of each.

        Args:
            rank: Number of the file, from 0; bases come first.
            file: The file. Its values are changed: paths become absolute, removed fields go.
            is_base: Whether another file extends it. Its name and description are then left out.
        """

        def origin_in_line(line: int) -> Origin:
            """Returns the origin of what is in a line of this file."""
            return Origin(
                rank,
                line,
                shown=f"{file.shown}:{line}",
                kind="base" if is_base else "file",
                file=file.path,
            )

        values = file.document.values
        # A relative path starts at the folder of its own file, which is known only here. Paths that
        # were absolute already are remembered: they stay so when the recipe is written to a file.
        already_absolute: dict[str, tuple[str, ...]] = {}
        for dotted in marked(Mark.IS_PATH):
            already_absolute[dotted] = make_absolute(values, dotted, file.path.parent)
        drop_removed(values)

        left_out = _NOT_INHERITED if is_base else ()
        for key, value in values.items():
            if key not in left_out:
                self._values[key] = _overlaid(key, self._values.get(key), value)

        for line, sentence in file.document.problems:
            self._problems.append((origin_in_line(line), sentence))
        for key_path, line in file.document.lines.items():
            if key_path[0] in left_out:
                continue
            dotted = ".".join(key_path)
            self.origins[dotted] = origin_in_line(line)._replace(
                via=file.variables.get(dotted, ""),
                absolute=already_absolute.get(dotted, ()),
            )

    def add_set(self, assignment: str) -> None:
        """Sets a field by `section.field=value`, in place of its value so far.

        A faulty assignment raises no error here. It becomes one of the problems that `recipe`
        reports together.
        """
        dotted, separator, text = assignment.partition("=")
        dotted = dotted.strip()
        if not separator or not dotted:
            self._problems.append(
                (_SET, f"{assignment!r} given, section.field=value fits, such as training.epochs=2")
            )
        elif dotted not in fields():
            self._problems.append((_SET, unknown_key(dotted)))
        else:
            self._put(dotted, _read_typed(dotted, text), _SET)

    def add_option(self, dotted: str, value: Any) -> None:
        """Lays a command-line option on top; a path may be a `Path`, a list may be a tuple.

        Raises:
            KeyError: No field has this name: a mistake in our code, not in what was typed.
        """
        if dotted not in fields():
            raise KeyError(dotted)
        # A recipe is validated strictly: it takes lists and texts only.
        if isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Path):
            value = str(value)
        self._put(dotted, value, _OPTION)

    def add_places_of_data(self) -> None:
        """Sets where a data set that the recipe names is looked for, if no source sets that.

        `data.data_dir` becomes the folder in BERTCTL_DATA. `data.datasets_file` becomes the
        `datasets.yaml` beside the file that sets `data.name`, or else beside the recipe.
        """
        data = self._values.get("data")
        if not isinstance(data, dict) or not data.get("name"):
            return
        folder = os.environ.get("BERTCTL_DATA")
        if folder and data.get("data_dir") is None:
            self._put("data.data_dir", folder, _ENVIRONMENT)
        if data.get("datasets_file") is not None:
            return

        naming_file = self.origins.get("data.name", DEFAULT).file or self._path
        for recipe_file in (naming_file, self._path):
            datasets_file = recipe_file.with_name(DATASETS_FILE)
            if datasets_file.is_file():
                origin = DEFAULT._replace(shown=str(datasets_file))
                self._put("data.datasets_file", str(datasets_file), origin)
                return

    def add_preset(self) -> None:
        """Sets the fields of `training.preset` where they come from a source of lower rank.

        A field that the preset's own source gives, or one of higher rank, keeps its value.

        The values of the preset `auto` depend on rows and model, and are chosen once these are
        read. Until then its fields are left out.
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
        """Removes the values of the fields that the preset `auto` chooses.

        A value of the same or a higher rank stays.

        Args:
            origin: Where the preset was given.
        """
        for dotted in AUTO_FIELDS:
            section, _, name = dotted.partition(".")
            # A field without an origin has its default, whose rank is the lowest.
            if self.origins.get(dotted, DEFAULT).rank >= origin.rank:
                continue
            values = self._values.get(section)
            if isinstance(values, dict):
                values.pop(name, None)
            # The origin shows users that the preset will choose the value. Its kind is `default`
            # because nobody gave one: recipes that are written to a file leave the field out.
            self.origins[dotted] = origin._replace(kind="default", via=f"preset {AUTO}")

    def prefer_epochs(self) -> None:
        """Drops `training.max_steps` if a source of higher rank gives `training.epochs`.

        A number of steps overrides a number of epochs. A recipe's steps would thus override the
        epochs that a user typed.
        """
        epochs_rank = self.origins.get("training.epochs", DEFAULT).rank
        steps_rank = self.origins.get("training.max_steps", DEFAULT).rank
        if epochs_rank > steps_rank > DEFAULT.rank:
            del self._values["training"]["max_steps"], self.origins["training.max_steps"]

    def recipe(self) -> Recipe:
        """Returns the recipe of all values, checked.

        Raises:
            RecipeError: With all problems, those of the files first, line by line.
        """
        # pydantic takes an address (`https://...`) for a path, as it is a text, too.
        self._note_addresses()
        try:
            recipe = Recipe.model_validate(self._values)
        except ValidationError as error:
            self._note(error)
        if not self._problems:
            return recipe

        problems = sorted(self._problems, key=lambda problem: (problem[0].rank, problem[0].line))
        sentences: list[str] = []
        for origin, problem in problems[:SHOWN]:
            # Faults of the text are sentences already, those of values are pydantic's entries.
            sentence = problem if isinstance(problem, str) else describe(problem)
            sentences.append(f"{origin.shown}: {sentence}")
        raise RecipeError(
            self._label,
            sentences,
            more=max(0, len(problems) - SHOWN),
            remedy=f"`bertctl recipes show {self._similar_builtin()}` prints every field with "
            "its meaning.",
        )

    def _similar_builtin(self) -> str:
        """Returns the name of a built-in recipe of the same task, else of text classification."""
        task = self._values.get("task")
        if task == PRETRAINING:
            name = "pretrain"
        else:
            name = str(task)
        if name in builtin_recipes():
            return name
        return "text-classification"

    def _put(self, dotted: str, value: Any, origin: Origin) -> None:
        """Sets the value of a field, in place of the value that it has so far.

        Args:
            dotted: Dotted name of the field.
            value: The new value. A relative path starts at the working folder.
            origin: Where the value was given.
        """
        section, _, name = dotted.rpartition(".")
        if section:
            section_values = self._values.setdefault(section, {})
        else:
            section_values = self._values
        if not isinstance(section_values, dict):
            # A file has something else where the section should be. `recipe` reports that.
            return

        section_values[name] = value
        if dotted in marked(Mark.IS_PATH):
            absolute = make_absolute(self._values, dotted, Path.cwd())
            origin = origin._replace(absolute=absolute)
        self.origins[dotted] = origin

    def _note_addresses(self) -> None:
        """Adds a problem for each address (`https://...`) where a path should be."""
        for dotted in marked(Mark.IS_PATH):
            section, _, name = dotted.partition(".")
            values = self._values.get(section)
            if isinstance(values, dict):
                problems = address_problems(dotted, values.get(name))
                self._problems += [(self._origin(dotted), problem) for problem in problems]

    def _note(self, error: ValidationError) -> None:
        """Adds everything that pydantic refuses to the problems.

        pydantic looks for fields that disagree only if every field is valid by itself. So if some
        are not, the others are validated once more without them, to report all problems at once.
        """
        disagreeing = disagreements_in(error)
        if disagreeing:
            self._note_disagreements(disagreeing, invalid=())
            return

        invalid: list[str] = []  # dotted names
        # The sections are copied, because invalid fields are removed from them.
        valid_values = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in self._values.items()
        }
        for entry in error.errors(include_url=False):
            if is_said_by_another(entry):
                continue
            *section, name = place(entry)
            dotted = ".".join((*section, name))
            invalid.append(dotted)
            self._problems.append((self._origin(dotted), entry))
            section_values = valid_values[section[0]] if section else valid_values
            section_values.pop(name, None)
        try:
            Recipe.model_validate(valid_values)
        except ValidationError as remaining:
            self._note_disagreements(disagreements_in(remaining), invalid)

    def _note_disagreements(
        self, disagreeing: Sequence[Disagreement], invalid: Sequence[str]
    ) -> None:
        """Adds fields that do not fit together to the problems.

        Args:
            disagreeing: The fields that disagree.
            invalid: Dotted names of fields and sections that are wrong by themselves. What
                disagrees with them is left out: their value will change anyway.
        """
        # A field on a line that could not be read has its default here, not the value that the user
        # wrote. It may not disagree at all.
        if not self._files_are_readable:
            return
        # The dot at the end makes `data` the beginning of `data.fold`, but not of `data_dir`.
        invalid_prefixes = tuple(f"{name}." for name in invalid)
        for names, message in disagreeing:
            if any(f"{name}.".startswith(invalid_prefixes) for name in names):
                continue
            known_origins = [self.origins[name] for name in names if name in self.origins]
            origin = known_origins[0] if known_origins else self._origin(names[0])
            self._problems.append((origin, f"{names[0]}: {message}"))

    def _origin(self, dotted: str) -> Origin:
        """Returns where a field was given, else where its section begins, else the recipe."""
        section = dotted.partition(".")[0]
        return (
            self.origins.get(dotted)
            or self.origins.get(section)
            or Origin(-1, 0, self._label, "file")
        )


def _overlaid(key: str, lower: Any, upper: Any) -> Any:
    """Returns the value of a key of two files, one laid over the other.

    A section has the fields of both files; those of the upper file win. Any other value of the
    upper file replaces that of the lower one.

    Args:
        key: A section, or a field outside of sections.
        lower: The value in the files below; None if they lack the key.
        upper: The value in the file that is laid over them.
    """
    # YAML reads `training:` as null if every line below it is commented out.
    if upper is None and key in sections():
        upper = {}
    if isinstance(lower, dict) and isinstance(upper, dict):
        return lower | upper
    return upper
