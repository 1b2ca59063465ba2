"""One sentence for each thing that is wrong with a recipe.

It has its path, what was given, what fits, and the nearest word.
"""

import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bertctl.config.other_names import other_names, other_value
from bertctl.config.removed import REMOVED
from bertctl.config.schema import OF_FILES, Recipe, fields, sections
from bertctl.config.strict_yaml import read_value
from bertctl.config.task_names import task_names
from bertctl.errors import UsageError
from bertctl.words import did_you_mean, harmless

SHOWN = 20
"""Problems that are said of one recipe."""


class RecipeError(UsageError):
    """A recipe that can't be meant, with everything that is wrong with it.

    Attributes:
        problems: one sentence each, beginning with where it stands; the first `SHOWN` of them.
    """

    def __init__(
        self, subject: str, problems: Sequence[str], *, more: int = 0, remedy: str = ""
    ) -> None:
        self.problems = tuple(harmless(problem) for problem in problems[:SHOWN])
        more += len(problems) - len(self.problems)
        lines = [
            f"{subject}: {len(self.problems) + more} problems",
            *(f"  {problem}" for problem in self.problems),
        ]
        lines += [f"  ... and {more:,} more"] if more else []
        super().__init__(
            self.problems[0] if len(problems) == 1 else "\n".join(lines), remedy=remedy
        )


def place(error: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns section and field that an entry of pydantic's `ValidationError.errors()` is about."""
    location = tuple(part for part in error["loc"] if isinstance(part, str))
    # then comes a union's branch
    if error["type"] == "extra_forbidden":
        return location
    return location[:2]


def describe(error: Mapping[str, Any]) -> str:
    """Returns the sentence for one entry of pydantic's `ValidationError.errors()`."""
    path = ".".join(place(error))
    items = "".join(f"[{part}]" for part in error["loc"] if isinstance(part, int))
    value = error["input"]
    if error["type"] == "extra_forbidden":
        return unknown_key(path)
    if path in sections():
        names = ", ".join(name.split(".")[1] for name in fields() if name.startswith(f"{path}."))
        return f"{path}: {shown(value)} given, a section with fields fits: {names}"
    schema = field_schema(path)
    if items:
        schema = schema["items"]
    sentence = f"{path}{items}: {shown(value)} given, {_what_fits(schema)} fits"
    hint = _hint(value, schema, path)
    if hint:
        return f"{sentence}; {hint}"
    return sentence


def is_said_by_another(error: Mapping[str, Any]) -> bool:
    """Whether another entry says what is wrong with a field.

    A field that takes a list or a word gets a second entry for the kind that was not given.
    """
    in_branch = len(error["loc"]) > 2 and isinstance(error["loc"][2], str)
    if isinstance(error["input"], list):
        wrong_kind = "literal_error"
    else:
        wrong_kind = "list_type"
    return in_branch and error["type"] == wrong_kind


def _hint(raw: Any, schema: Mapping[str, Any], path: str) -> str:
    """Returns what to type, where it can be guessed from what was given."""
    kind = schema["type"]
    words = [*schema.get("enum", ()), *schema.get("or", ())]
    if words and (value := other_value(path, str(raw))):
        return f"did you mean {value}?"
    if isinstance(raw, str) and words:
        return did_you_mean(raw, words)
    if kind == "string" and isinstance(raw, bool | int | float):
        return f'write it in quotes: "{json.dumps(raw)}"'
    if kind == "array" and isinstance(raw, str) and (raw or not schema.get("minItems")):
        return f"write [{raw}]"
    if isinstance(raw, str) and _is_quoted(raw, kind):
        return "write it without quotes"
    return ""


def unknown_key(path: str) -> str:
    """Returns the sentence for a key that is no field.

    It is a section, or a key that the schema does not have, with the field that was probably meant.
    """
    if path in sections():
        example = next(name for name in fields() if name.startswith(f"{path}."))
        return f"{path}: a section; name a field in it, such as {example}"
    if path in REMOVED:
        return f"{path}: this field is gone; take it out"
    if path in OF_FILES:
        return f"{path}: belongs at the top of a recipe's file"
    nearest = _nearest(path)
    if nearest:
        hint = f", did you mean {' or '.join(nearest)}?"
    else:
        hint = ""
    return f"{path}: unknown key{hint}"


def shown(value: Any) -> str:
    """Returns a value as it would stand in the recipe, cut to a line."""
    text = (
        json.dumps(value, ensure_ascii=False, default=str)
        .encode("utf-8", "backslashreplace")
        .decode()
    )
    if len(text) <= 60:
        return text
    return text[:57] + "..."


def _nearest(path: str) -> list[str]:
    """Returns the fields or sections that an unknown key may mean, by dotted name.

    The same word is looked for first in the key's section, then as a name elsewhere or in other
    programs; then a similar word, again in the section first.
    """
    section, _, word = path.rpartition(".")
    word = word.replace("-", "_").lower()
    known = [*fields(), *OF_FILES]
    names_in_section = {
        name.split(".")[-1]: name for name in known if name.rpartition(".")[0] == section
    }
    if not section:
        names_in_section |= {name: name for name in sections()}
    if word in names_in_section:
        return [names_in_section[word]]
    meant_fields = [name.partition("=")[0] for name in meant(word)]
    if meant_fields:
        return [name for name in meant_fields if name in known]
    near = difflib.get_close_matches(word, names_in_section, n=1)
    if near:
        return [names_in_section[near[0]]]
    near = difflib.get_close_matches(word, {name.rpartition(".")[2] for name in known}, n=1)
    return [name for name in known if name.rpartition(".")[2] in near]


def meant(word: str) -> list[str]:
    """Returns the fields of a recipe that have this name (with `_`), such as `training.epochs`.

    Else it returns what other programs mean by it.
    """
    same_name = [name for name in fields() if name.rpartition(".")[2] == word]
    names_elsewhere = other_names("names").items()
    return same_name or [field for elsewhere, field in names_elsewhere if elsewhere == word]


@functools.cache
def _json_schema(_tasks: tuple[str, ...]) -> dict[str, Any]:
    """Returns the JSON Schema, made anew where a task was registered since."""
    return Recipe.model_json_schema()


def field_schema(path: str) -> dict[str, Any]:
    """Returns the JSON Schema of one field without null.

    `or` holds the words that fit beside its type.
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
    kinds = [choice for choice in choices if choice["type"] != "null"]
    words = [choice["const"] for choice in kinds if "const" in choice]
    if len(kinds) == 1 and words:
        return {"type": "string", "enum": words, "nullable": True}
    if "examples" in schema:
        with_examples = {"examples": schema["examples"]}
    else:
        with_examples = {}
    return {**kinds[0], **with_examples, "nullable": True, **({"or": words} if words else {})}


def _what_fits(schema: Mapping[str, Any]) -> str:
    fits = _what_fits_itself(schema)
    if schema.get("nullable"):
        return f"{fits}, or null,"
    return fits


def _what_fits_itself(schema: Mapping[str, Any]) -> str:
    """Returns which values a field's schema accepts, in words; null is left out."""
    if "enum" in schema:
        *words, last_word = schema["enum"]
        if not words:
            return str(last_word)
        return f"{', '.join(words)} or {last_word}"
    match schema["type"]:
        case "boolean":
            return "true or false"
        case "array":
            if "minItems" in schema:
                least = f" of at least {schema['minItems']}"
            else:
                least = ""
            return " or ".join(
                [
                    f"a list{least} ({_what_fits_itself(schema['items'])} each)",
                    *schema.get("or", ()),
                ]
            )
        case "string":
            if schema.get("maxLength") == 1:
                return 'a single character (a tab is "\\t")'
            if "examples" in schema:
                return f"a text such as {', '.join(schema['examples'])}"
            if "pattern" in schema:
                return "a name of letters, digits, `.`, `_` and `-`"
            return "a text"
    return ("a whole number" if schema["type"] == "integer" else "a number") + _range(schema)


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


def _is_quoted(text: str, kind: str) -> bool:
    """Whether the text would fit without its quotes."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    value = read_value(text)
    return isinstance(value, kinds.get(kind, ())) and isinstance(value, bool) == (kind == "boolean")
