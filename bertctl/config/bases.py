"""The files of a recipe: the one that was named, and its bases, the recipes that it extends.

A file names its bases under `base:`, and under `environment:` the environment variables that its
values use as `${NAME}`. A resolved recipe has neither key.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertctl.config.problems import field_schema, shown
from bertctl.config.recipe_files import find_recipe, is_of_run
from bertctl.config.schema import FILE_ONLY_KEYS, fields
from bertctl.config.strict_yaml import MOST_CHARACTERS, Document, read_document, read_value
from bertctl.documents import read_text
from bertctl.errors import BertctlError, UsageError
from bertctl.words import did_you_mean

_VARIABLE = re.compile(r"\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\})?")
"""`${NAME}` or `${NAME:-default}`; also a `${` alone, without groups, which is refused."""

_NAMES_OF_SECRETS = (
    r"(?i)token(?!iz)|secret|passw|credential|bearer|key(?!board|word)"
    r"|(^|_)(pass|pwd|pat|auth)(_|\d|$)"
)
"""Pattern of variable names that probably hold a secret."""

_SECRETS = (
    r"\b(hf_|gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA|eyJ)[\w-]{8}"
    r"|-----BEGIN|://[^/@\s]+:[^/@\s]+@"
)
"""Pattern of values that probably are secrets: tokens, private keys, addresses with a password."""

LONGEST_CHAIN = 30
"""The most files that may extend each other, one above the other."""


@dataclass(frozen=True)
class RecipeFile:
    """One file of a recipe, read.

    Attributes:
        path: The file.
        shown: The file's name in messages.
        document: Its fields, in which variables are replaced by their values.
        variables: Dotted name of a field that uses variables -> its value as written in the file.
    """

    path: Path
    shown: str
    document: Document
    variables: dict[str, str] = field(default_factory=dict)


def read_files(path: Path, label: str) -> list[RecipeFile]:
    """Returns the files of a recipe, each after its bases: the last file that gives a field wins.

    A file that is a base of several others is listed once, before all of them.

    Args:
        path: File of the recipe.
        label: The recipe's name in messages.

    Raises:
        UsageError: A base is no recipe, files are bases of each other, or a variable is called
            like a secret. A recipe in a run folder may have no base and no variables: it needs
            none, and may come from another person.
        UnavailableError: A file does not exist, or can't be read.
    """
    files: dict[Path, RecipeFile] = {}
    _read(path, label, {}, files)
    return [*files.values()]


def _read(
    path: Path, label: str, extending: Mapping[Path, str], files: dict[Path, RecipeFile]
) -> None:
    """Reads a recipe file and its bases, and adds them to the files, the bases first.

    Args:
        path: The file.
        label: The file's name in messages.
        extending: Files that lead to this one, each of them a base of the file before it -> their
            names in messages.
        files: Files read so far, by their resolved paths. Files that it has are not read again.
    """
    document = read_document(read_text(path, limit=MOST_CHARACTERS, kind=UsageError))
    file = RecipeFile(path, label, document)
    # How messages begin that are about the keys `base` and `environment`, if the file has them.
    message_starts = {
        key: f"{label}:{document.lines[key,]}: {key}: "
        for key in FILE_ONLY_KEYS
        if (key,) in document.lines
    }
    if message_starts and is_of_run(path):
        message_start = min(message_starts.values())  # one message is enough for both keys
        raise UsageError(
            f"{message_start}the recipe of a run is whole, and has none",
            remedy="Take it out.",
        )
    # These keys are no fields: they are removed from the document before others read it.
    variables = _pop_names(document, "environment")
    bases = _pop_names(document, "base")
    if "environment" in message_starts:
        _refuse_secrets(variables, message_starts["environment"])
        _fill(file, variables)

    extending = {**extending, path.resolve(): label}
    for base in bases:
        try:
            base_path = find_recipe(base, folder=path.parent)
        except BertctlError as error:
            raise type(error)(
                message_starts["base"] + error.message, remedy=error.remedy
            ) from error
        is_circle = base_path.resolve() in extending
        if is_circle or len(extending) > LONGEST_CHAIN:
            if is_circle:
                reason = "a recipe can't be its own base"
            else:
                reason = f"more than {LONGEST_CHAIN} storeys"
            raise UsageError(
                f"{message_starts['base']}{reason}: {' -> '.join([*extending.values(), base])}"
            )
        if base_path.resolve() not in files:
            # Messages show a built-in recipe by its file name, wherever bertctl is installed.
            is_users_file = "/" in base or base_path.parent == path.parent
            shown_name = str(base_path) if is_users_file else base_path.name
            _read(base_path, shown_name, extending, files)
    files[path.resolve()] = file


def _refuse_secrets(variables: Sequence[str], message_start: str) -> None:
    """Refuses an environment variable whose name is like that of a secret, such as `HF_TOKEN`.

    Args:
        variables: Names of the variables that a file lists.
        message_start: What the message begins with.
    """
    for name in variables:
        if re.search(_NAMES_OF_SECRETS, name):
            message = (
                f"{message_start}'{name}' is called like a secret, and every run "
                f"holds its recipe's values"
            )
            remedy = (
                "Leave it out: hub and trackers read their tokens themselves. If the "
                "value is not secret, give it another name."
            )
            raise UsageError(message, remedy=remedy)


def _pop_names(document: Document, key: str) -> list[str]:
    """Removes a key from a document, and returns the names in its value.

    The value is a name or a list of names. Anything else is added to the document's problems.
    """
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
        (document.lines[key,], f"{key}: {shown(value)} given, what fits is {FILE_ONLY_KEYS[key]}")
    )
    return []


def _fill(file: RecipeFile, names: Sequence[str]) -> None:
    """Replaces the environment variables in a file's values, in place.

    A field whose variables have no usable value is removed, and a problem is added instead.

    Args:
        file: The file.
        names: Variables that it may use: those that it lists under `environment`.
    """
    top = file.document.values
    sections = {name: values for name, values in top.items() if isinstance(values, dict)}
    # "" stands for the fields outside of sections, such as `name`.
    for section, values in {"": top, **sections}.items():
        with_variables = {
            key: value
            for key, value in values.items()
            if "${" in str(value) and not isinstance(value, dict)
        }
        for key, value in with_variables.items():
            dotted = f"{section}.{key}" if section else key
            file.variables[dotted] = str(value)
            try:
                values[key] = _filled(value, dotted, names)
            except UsageError as error:
                key_path = (section, key) if section else (key,)
                line = file.document.lines[key_path]
                file.document.problems.append((line, f"{dotted}: {error.message}"))
                del values[key]


def _filled(raw: Any, dotted: str, names: Sequence[str], *, in_list: bool = False) -> Any:
    """Returns a field's value with its variables replaced.

    A text that had variables is then read as `--set` would read it: `${N}` can become a number.

    Args:
        raw: The value as written, or an item of it.
        dotted: The field.
        names: Variables that may be used.
        in_list: Whether `raw` is an item of the field's list.
    """
    if isinstance(raw, list):
        return [_filled(item, dotted, names, in_list=True) for item in raw]
    if not isinstance(raw, str) or "${" not in raw:
        return raw

    # An unknown field is refused later, with the text as its value.
    schema: dict[str, Any] = {"type": "string"}
    if dotted in fields():
        schema = field_schema(dotted)
    if in_list:
        schema = schema.get("items", schema)
    text = _VARIABLE.sub(lambda match: _value(match, names), raw)
    return read_value(text, as_text=schema["type"] == "string")


def _value(match: re.Match[str], names: Sequence[str]) -> str:
    """Returns the text that replaces a variable: its value, or else its default.

    Args:
        match: A match of `_VARIABLE`.
        names: Variables that may be used.

    Raises:
        UsageError: The variable is not among `names`, has no value, or has a secret as its value.
    """
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
    is_utf8 = value == value.encode("utf-8", "ignore").decode()
    if re.search(_SECRETS, value) or not is_utf8:
        raise UsageError(
            f"the value of {name} looks like a secret or is not UTF-8, and every run holds "
            f"its recipe"
        )
    return value
