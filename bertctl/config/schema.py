"""`Recipe`: the sections of `recipe_sections.py`, checked together.

Also the recipe's fields by dotted name, and its JSON Schema.
"""

import functools
from typing import Any, Self

from pydantic import model_validator
from pydantic.fields import FieldInfo

from bertctl.config.agreement import DisagreementError, disagreements
from bertctl.config.field_docs import field_docs
from bertctl.config.recipe_sections import Mark, RecipeFields, RecipeSection


class Recipe(RecipeFields):
    """One fine-tuning run, complete."""

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        """Refuses fields that are valid by themselves, but do not fit together."""
        problems = [*disagreements(self)]
        if problems:
            raise DisagreementError(problems)
        return self

    def with_fields(self, section: str, **values: Any) -> Self:
        """Returns the recipe with other values in a section, which are not checked."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=values)})


@functools.cache
def fields() -> dict[str, FieldInfo]:
    """Returns pydantic's description of every field by dotted name, such as `training.epochs`.

    Sections are not among them. The order is that of the schema.
    """
    infos: dict[str, FieldInfo] = {}
    for name, info in Recipe.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, RecipeSection):
            infos |= {
                f"{name}.{inner}": inner_info
                for inner, inner_info in info.annotation.model_fields.items()
            }
        else:
            infos[name] = info
    return infos


@functools.cache
def marked(mark: Mark) -> frozenset[str]:
    """Returns the dotted names of the fields with a mark."""
    return frozenset(dotted for dotted, info in fields().items() if mark in info.metadata)


def sections() -> list[str]:
    """Returns the names of the sections, in the schema's order."""
    known = fields()
    return [name for name in Recipe.model_fields if name not in known]


FILE_ONLY_KEYS = {
    "base": "a file or a built-in recipe, or a list of them: recipes that this one extends, the "
    "last the nearest",
    "environment": "a list of names: variables that values in this file may name, as ${NAME} or "
    "${NAME:-default}",
}
"""Key that a recipe file may have beside the recipe's fields -> what fits there; see `bases.py`."""


def recipe_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a recipe, each field with its documentation."""
    schema = Recipe.model_json_schema()

    for dotted, doc in field_docs().items():
        section, _, name = dotted.rpartition(".")
        if section:
            section_class = getattr(Recipe.model_fields[section].annotation, "__name__", "")
            properties = schema["$defs"][section_class]["properties"]
        else:
            properties = schema["properties"]
        properties[name]["description"] = doc.text

    # A recipe file may also have keys that are no fields of `Recipe`, such as `base`.
    name_or_names = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    for key, what_fits in FILE_ONLY_KEYS.items():
        schema["properties"][key] = {**name_or_names, "description": what_fits}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
