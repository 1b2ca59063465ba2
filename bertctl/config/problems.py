"""One sentence for each problem of a recipe: the field, what was given, what fits, and a guess.

Most problems are entries of pydantic's `ValidationError.errors()`, which are dictionaries with
`loc` (the keys and list positions that lead to the value), `type` (of the error) and `input`.
"""

import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bertctl.config.other_names import other_names, other_value
from bertctl.config.removed import REMOVED
from bertctl.config.schema import FILE_ONLY_KEYS, Recipe, fields, sections
from bertctl.config.strict_yaml import read_value
from bertctl.config.task_names import task_names
from bertctl.errors import UsageError
from bertctl.words import did_you_mean, harmless

SHOWN = 20
"""The most problems that the message about one recipe lists; the others are counted."""


class RecipeError(UsageError):
    """Error with everything that is wrong with a recipe.

    Args:
        subject: Name of the recipe.
        problems: A sentence for each problem, which begins with the file and line.
        more: Number of further problems, which are only counted.
        remedy: What to do.

    Attributes:
        problems: The first `SHOWN` of the sentences, with control characters escaped.
    """

    def __init__(
        self, subject: str, problems: Sequence[str], *, more: int = 0, remedy: str = ""
    ) -> None:
        self.problems = tuple(harmless(problem) for problem in problems[:SHOWN])
        more += len(problems) - len(self.problems)
        if len(problems) == 1:
            message = self.problems[0]
        else:
            lines = [f"{subject}: {len(self.problems) + more} problems"]
            lines += [f"  {problem}" for problem in self.problems]
            if more:
                lines.append(f"  ... and {more:,} more")
            message = "\n".join(lines)
        super().__init__(message, remedy=remedy)


def place(error: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the keys that lead to the field of a pydantic error: `("training", "epochs")`."""
    keys = tuple(part for part in error["loc"] if isinstance(part, str))
    if error["type"] == "extra_forbidden":
        return keys
    # If a field takes several types, the name of the type that was tried comes as a third key.
    return keys[:2]


def describe(error: Mapping[str, Any]) -> str:
    """Returns the sentence for one entry of pydantic's `ValidationError.errors()`.

    For example: `training.epochs: "5" given, a whole number of at least 1 fits; write it without
    quotes`.
    """
    path = ".".join(place(error))
    position = "".join(f"[{part}]" for part in error["loc"] if isinstance(part, int))
    value = error["input"]
    if error["type"] == "extra_forbidden":
        return unknown_key(path)
    if path in sections():
        names = ", ".join(name.split(".")[1] for name in fields() if name.startswith(f"{path}."))
        return f"{path}: {shown(value)} given, a section with fields fits: {names}"
    schema = field_schema(path)
    if position:
        # One item of the field's list is wrong.
        schema = schema["items"]
    sentence = f"{path}{position}: {shown(value)} given, {_what_fits(schema)} fits"
    hint = _hint(value, schema, path)
    if hint:
        return f"{sentence}; {hint}"
    return sentence


def is_said_by_another(error: Mapping[str, Any]) -> bool:
    """Returns whether another of pydantic's entries describes the same problem better.

    If a field takes a list or a word, pydantic tries both types and returns an entry for each. Of a
    faulty list, only the entry of the list type counts; of a faulty word, only that of the words.
    """
    # The third key names the type that was tried.
    is_one_of_several_types = len(error["loc"]) > 2 and isinstance(error["loc"][2], str)
    if isinstance(error["input"], list):
        error_of_other_type = "literal_error"
    else:
        error_of_other_type = "list_type"
    return is_one_of_several_types and error["type"] == error_of_other_type


def _hint(raw: Any, schema: Mapping[str, Any], path: str) -> str:
    """Returns what to type instead, guessed from what was given; empty if there is no guess.

    Args:
        raw: The value that was given.
        schema: JSON Schema of the field.
        path: The field's dotted name.
    """
    kind = schema["type"]
    words = [*schema.get("enum", ()), *schema.get("or", ())]
    if words and (value := other_value(path, str(raw))):
        return f"did you mean {value}?"
    if isinstance(raw, str) and words:
        return did_you_mean(raw, words)
    if kind == "string" and isinstance(raw, bool | int | float):
        return f'write it in quotes: "{json.dumps(raw)}"'
    if kind == "array" and isinstance(raw, str):
        can_be_empty = not schema.get("minItems")
        if raw or can_be_empty:
            return f"write [{raw}]"
    if isinstance(raw, str) and _fits_without_quotes(raw, kind):
        return "write it without quotes"
    return ""


def unknown_key(path: str) -> str:
    """Returns the sentence for a key that is no field, with the fields that may be meant."""
    if path in sections():
        fields_of_section = [name for name in fields() if name.startswith(f"{path}.")]
        return f"{path}: a section; name a field in it, such as {fields_of_section[0]}"
    if path in REMOVED:
        return f"{path}: this field is gone; take it out"
    if path in FILE_ONLY_KEYS:
        return f"{path}: belongs at the top of a recipe's file"
    nearest = _nearest(path)
    if nearest:
        hint = f", did you mean {' or '.join(nearest)}?"
    else:
        hint = ""
    return f"{path}: unknown key{hint}"


def shown(value: Any) -> str:
    """Returns a value as a recipe would have it, cut to 60 characters."""
    as_json = json.dumps(value, ensure_ascii=False, default=str)
    # Halves of surrogate pairs can't be printed.
    text = as_json.encode("utf-8", "backslashreplace").decode()
    if len(text) <= 60:
        return text
    return text[:57] + "..."


def _nearest(path: str) -> list[str]:
    """Returns the dotted names of the fields or sections that an unknown key may mean.

    The first of these that exists: the same name in the key's section, the same name in another
    section, the field that other programs call so, a similar name in the section, a similar name
    in any section.
    """
    section, _, word = path.rpartition(".")
    word = word.replace("-", "_").lower()
    known = [*fields(), *FILE_ONLY_KEYS]
    names_in_section = {
        name.split(".")[-1]: name for name in known if name.rpartition(".")[0] == section
    }
    if not section:
        names_in_section |= {name: name for name in sections()}
    if word in names_in_section:
        return [names_in_section[word]]

    # Other programs' names may mean a field with a value (`cpu`: `runtime.device=cpu`), which is
    # suggested without it, or an option or verb, which is not suggested.
    same_meaning = [name.partition("=")[0] for name in meant(word)]
    if same_meaning:
        return [name for name in same_meaning if name in known]

    similar = difflib.get_close_matches(word, names_in_section, n=1)
    if similar:
        return [names_in_section[similar[0]]]
    names_anywhere = {name.rpartition(".")[2] for name in known}
    similar = difflib.get_close_matches(word, names_anywhere, n=1)
    return [name for name in known if name.rpartition(".")[2] in similar]


def meant(word: str) -> list[str]:
    """Returns what a name without its section may mean: `epochs` -> `["training.epochs"]`.

    These are the fields of this name in any section. If there are none, it is what other programs
    call so: a field, `field=value`, an option or a verb of bertctl.

    Args:
        word: The name, with underscores.
    """
    same_name = [dotted for dotted in fields() if dotted.rpartition(".")[2] == word]
    if same_name:
        return same_name
    meaning_elsewhere = other_names("names")
    return [meaning_elsewhere[word]] if word in meaning_elsewhere else []


@functools.cache
def _json_schema(_tasks: tuple[str, ...]) -> dict[str, Any]:
    """Returns the JSON Schema of a recipe.

    It has the names of the tasks, which are only the cache's key here: the schema is built again
    once a plug-in has added a task.
    """
    return Recipe.model_json_schema()


def field_schema(path: str) -> dict[str, Any]:
    """Returns the JSON Schema of one field, simplified to a single type.

    Pydantic writes `anyOf` for a field that accepts null or several types. Instead, `nullable` is
    true if the field accepts null, and words that it accepts beside its type are listed under `or`,
    a key of our own.
    """
    recipe_schema = _json_schema(task_names())
    schema: dict[str, Any] = recipe_schema
    for key in path.split("."):
        schema = schema["properties"][key]
        if "$ref" in schema:
            schema = recipe_schema["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    choices = schema.get("anyOf")
    if choices is None:
        return schema

    types = [choice for choice in choices if choice["type"] != "null"]
    words = [choice["const"] for choice in types if "const" in choice]  # of `Literal["word"]`
    accepts_words_only = len(types) == 1 and bool(words)
    if accepts_words_only:
        return {"type": "string", "enum": words, "nullable": True}
    # If a field accepts words beside its type, the type is first in the annotation.
    simplified = {**types[0], "nullable": True}
    if "examples" in schema:
        simplified["examples"] = schema["examples"]
    if words:
        simplified["or"] = words
    return simplified


def _what_fits(schema: Mapping[str, Any]) -> str:
    """Returns which values a field's schema accepts, in words."""
    fits = _what_fits_except_null(schema)
    if schema.get("nullable"):
        return f"{fits}, or null,"
    return fits


def _what_fits_except_null(schema: Mapping[str, Any]) -> str:
    """Returns which values except null a field accepts, in words: `a whole number of at least 1`.

    Args:
        schema: As `field_schema` returns it. Its key `or`, which is not of JSON Schema, lists words
            that fit beside the field's type.
    """
    if "enum" in schema:
        *words, last_word = schema["enum"]
        if not words:
            return str(last_word)
        return f"{', '.join(words)} or {last_word}"
    match schema["type"]:
        case "boolean":
            return "true or false"
        case "array":
            length = ""
            if "minItems" in schema:
                length = f" of at least {schema['minItems']}"
            fitting_list = f"a list{length} ({_what_fits_except_null(schema['items'])} each)"
            return " or ".join([fitting_list, *schema.get("or", ())])
        case "string":
            if schema.get("maxLength") == 1:
                return 'a single character (a tab is "\\t")'
            if "examples" in schema:
                return f"a text such as {', '.join(schema['examples'])}"
            if "pattern" in schema:
                return "a name of letters, digits, `.`, `_` and `-`"
            return "a text"
        case "integer":
            return f"a whole number{_range(schema)}"
    return f"a number{_range(schema)}"


def _range(schema: Mapping[str, Any]) -> str:
    """Returns a number's bounds with a blank before: `{"minimum": 1}` -> `" of at least 1"`."""
    words = {
        "minimum": "of at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    bounds = [f"{word} {schema[name]:.12g}" for name, word in words.items() if name in schema]
    if bounds:
        return f" {' and '.join(bounds)}"
    return ""


def _fits_without_quotes(text: str, kind: str) -> bool:
    """Returns whether a text would be a value of a JSON Schema type without its quotes."""
    python_types: dict[str, type | tuple[type, ...]] = {
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    value = read_value(text)
    # In Python, a boolean is an integer, too.
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, python_types.get(kind, ()))
