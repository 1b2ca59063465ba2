"""The files of a recipe: the one that is named, and its bases under it (`base:`).

Each takes something from the environment (`environment:`). A resolved recipe has neither.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertctl.config.problems import field_schema, shown
from bertctl.config.recipe_files import find_recipe, is_of_run
from bertctl.config.schema import OF_FILES, fields
from bertctl.config.strict_yaml import MOST_CHARACTERS, Document, read_document, read_value
from bertctl.documents import read_text
from bertctl.errors import BertctlError, UsageError
from bertctl.words import did_you_mean

_VARIABLE = re.compile(r"\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\})?")
_NAMES_OF_SECRETS = (
    r"(?i)token(?!iz)|secret|passw|credential|bearer|key(?!board|word)"
    r"|(^|_)(pass|pwd|pat|auth)(_|\d|$)"
)
_SECRETS = (
    r"\b(hf_|gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA|eyJ)[\w-]{8}"
    r"|-----BEGIN|://[^/@\s]+:[^/@\s]+@"
)
MOST_STOREYS = 30
"""Bases that may lie under each other."""


@dataclass(frozen=True)
class RecipeFile:
    """One file of a recipe, read.

    Attributes:
        path: of the file.
        shown: its name in messages.
        document: its fields, with the environment's values in them.
        variables: of each field (dotted) with such a value, what stands in the file.
    """

    path: Path
    shown: str
    document: Document
    variables: dict[str, str] = field(default_factory=dict)


def read_files(path: Path, label: str) -> list[RecipeFile]:
    """Returns the files of a recipe, each after its bases: the last one that gives a field counts.

    A base of several of them is there once, before all of them.

    Args:
        path: of the recipe.
        label: its name in messages.

    Raises:
        UsageError: a base that is no recipe, bases in a circle, a variable that is called like a
            secret; or a run's recipe with a base: others may have made it, and it needs none.
        UnavailableError: a file is not there, or can't be read.
    """
    files: dict[Path, RecipeFile] = {}
    _read(path, label, {}, files)
    return [*files.values()]


def _read(path: Path, label: str, above: Mapping[Path, str], files: dict[Path, RecipeFile]) -> None:
    """Adds a file to those that were found, its bases before it.

    `above` are the files whose base it is.
    """
    document = read_document(read_text(path, limit=MOST_CHARACTERS, kind=UsageError))
    file = RecipeFile(path, label, document)
    places_of_keys = {
        key: f"{label}:{document.lines[key,]}: {key}: "
        for key in OF_FILES
        if (key,) in document.lines
    }
    if places_of_keys and is_of_run(path):
        raise UsageError(
            f"{min(places_of_keys.values())}the recipe of a run is whole, and has none",
            remedy="Take it out.",
        )
    variables, bases = (_names(document, key) for key in ("environment", "base"))
    for name in filter(re.compile(_NAMES_OF_SECRETS).search, variables):
        message = (
            f"{places_of_keys['environment']}'{name}' is called like a secret, and every run "
            f"holds its recipe's values"
        )
        remedy = (
            "Leave it out: hub and trackers read their tokens themselves. If the "
            "value is not secret, give it another name."
        )
        raise UsageError(message, remedy=remedy)
    if "environment" in places_of_keys:
        _fill(file, variables)
    above = {**above, path.resolve(): label}
    for base in bases:
        try:
            base_path = find_recipe(base, folder=path.parent)
        except BertctlError as error:
            raise type(error)(
                places_of_keys["base"] + error.message, remedy=error.remedy
            ) from error
        if base_path.resolve() in above or len(above) > MOST_STOREYS:
            if base_path.resolve() in above:
                reason = "a recipe can't be its own base"
            else:
                reason = f"more than {MOST_STOREYS} storeys"
            raise UsageError(
                f"{places_of_keys['base']}{reason}: {' -> '.join([*above.values(), base])}"
            )
        if base_path.resolve() not in files:
            is_path = "/" in base or base_path.parent == path.parent
            shown_name = str(base_path) if is_path else base_path.name
            _read(base_path, shown_name, above, files)
    files[path.resolve()] = file


def _names(document: Document, key: str) -> list[str]:
    """Takes a name, or a list of them, out of a document."""
    value = document.values.pop(key, None)
    if value is None:
        names = []
    elif isinstance(value, str):
        names = [value]
    else:
        names = value
    if isinstance(names, list) and all(isinstance(name, str) and name for name in names):
        return names
    document.problems.append(
        (document.lines[key,], f"{key}: {shown(value)} given, what fits is {OF_FILES[key]}")
    )
    return []


def _fill(file: RecipeFile, names: Sequence[str]) -> None:
    """Puts values of the environment into those of a file.

    A wrong value is noted as a problem, and its field left out.
    """
    top = file.document.values
    # "" stands for the fields at the top, such as `name`.
    sections: dict[str, Any] = {
        "": top,
        **{name: inner for name, inner in top.items() if isinstance(inner, dict)},
    }
    for section, values in sections.items():
        with_variables = {
            key: value
            for key, value in values.items()
            if "${" in str(value) and not isinstance(value, dict)
        }
        for key, value in with_variables.items():
            dotted = f"{section}.{key}".lstrip(".")
            file.variables[dotted] = str(value)
            try:
                values[key] = _filled(value, dotted, names)
            except UsageError as error:
                line = file.document.lines[(section, key) if section else (key,)]
                file.document.problems.append((line, f"{dotted}: {error.message}"))
                del values[key]


def _filled(raw: Any, dotted: str, names: Sequence[str], *, in_list: bool = False) -> Any:
    """Returns a value; a text with variables is read anew, as `--set` would read it."""
    if isinstance(raw, list):
        return [_filled(item, dotted, names, in_list=True) for item in raw]
    if not isinstance(raw, str) or "${" not in raw:
        return raw
    if dotted in fields():
        kind: dict[str, Any] = field_schema(dotted)
    else:
        kind = {"type": "string"}
    text = _VARIABLE.sub(lambda match: _value(match, names), raw)
    return read_value(
        text, as_text=(kind.get("items", kind) if in_list else kind)["type"] == "string"
    )


def _value(match: re.Match[str], names: Sequence[str]) -> str:
    """Returns what stands in a variable's place."""
    name = match[1]
    default = match[2]
    if name is None:
        raise UsageError("`${` without a name and `}` after it; ${NAME} or ${NAME:-default} fits")
    if name not in names:
        hint = did_you_mean(name, names) or f"add it: environment: [{', '.join([*names, name])}]"
        raise UsageError(f"{name} is not among the variables of `environment`; {hint}")
    value = os.environ.get(name) or default
    if value is None:
        raise UsageError(
            f"the environment variable {name} is not set, or empty; set it, or write "
            f"${{{name}:-default}}"
        )
    if re.search(_SECRETS, value) or value != value.encode("utf-8", "ignore").decode():
        raise UsageError(
            f"the value of {name} looks like a secret or is not UTF-8, and every run holds "
            f"its recipe"
        )
    return value
