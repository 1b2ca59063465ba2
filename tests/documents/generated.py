"""The generated files of the documentation: recipe fields, verbs, findings, the table of pages, and
the JSON Schema of a recipe.

    python -m tests.documents.generated        # writes them anew

`tests/unit/test_documents.py` fails when they are stale.
"""

import itertools
import json
from pathlib import Path
from typing import Any

from bertctl.cli.framework.doc_pages import GROUPS, OVERVIEW, load_pages
from bertctl.config.field_docs import field_docs, section_docs
from bertctl.config.schema import fields, recipe_schema
from tests.documents.findings_page import findings_page
from tests.documents.verbs_page import agents_page, verbs_page

PACKAGE = Path(__file__).resolve().parents[2] / "bertctl"

_INTRODUCTION = """\
<!-- group: reference; order: 40 -->
# Recipe fields

This page lists all fields of a recipe with their types and defaults, for you if you write a recipe or look for a
setting. `bertctl recipes show NAME` prints the same words
beside the values of a recipe, and `--set SECTION.FIELD=VALUE` changes one. See [recipes](recipes.md).
"""


_OVERVIEW = """\
# Documentation of bertctl

These pages ship with the package: `bertctl docs` lists them, `bertctl docs TOPIC` shows one in the terminal, and
`bertctl docs WORD` searches them.
"""


def recipe_fields() -> str:
    """Returns the page of all recipe fields."""
    parts, schema = [_INTRODUCTION], recipe_schema()
    for section, names in itertools.groupby(fields(), key=lambda dotted: dotted.rpartition(".")[0]):
        parts.append(
            f"## {section}\n\n{section_docs()[section]}\n"
            if section
            else "## The top of the file\n"
        )
        parts.append("".join(_item(dotted, schema) for dotted in names))
    return "\n".join(parts)


def _item(dotted: str, schema: dict[str, Any]) -> str:
    info, name = fields()[dotted], dotted.rpartition(".")[2]
    value = info.get_default(call_default_factory=True)
    default = (
        "" if value is None or value == "" else f", default `{json.dumps(value).strip(chr(34))}`"
    )
    return (
        f"- **`{name}`** ({_type(_property(dotted, schema))}{default}): "
        f"{field_docs()[dotted].text}\n"
    )


def _property(dotted: str, schema: dict[str, Any]) -> dict[str, Any]:
    section, _, name = dotted.rpartition(".")
    properties = (
        schema["$defs"][schema["properties"][section]["$ref"].rpartition("/")[2]]
        if section
        else schema
    )
    return dict(properties["properties"][name])


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(
            _type(option) for option in schema["anyOf"] if option.get("type") != "null"
        )
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema["type"])


def recipe_json() -> str:
    """Returns the JSON Schema of a recipe as a file."""
    return json.dumps(recipe_schema(), indent=2, ensure_ascii=False) + "\n"


def overview() -> str:
    """Returns the table of all pages by group, for readers of the source."""
    parts = [_OVERVIEW]
    pages = load_pages().values()
    for group, members in itertools.groupby(pages, key=lambda page: page.group):
        rows = "".join(f"| [{page.title}]({page.name}.md) | {page.summary} |\n" for page in members)
        parts.append(f"## {GROUPS[group]}\n\n| page | what it is for |\n|---|---|\n{rows}")
    return "\n".join(parts)


FILES = {
    PACKAGE / "docs" / "recipe-fields.md": recipe_fields,
    PACKAGE / "schemas" / "recipe.json": recipe_json,
    PACKAGE / "docs" / "findings.md": findings_page,
    PACKAGE / "docs" / "verbs.md": verbs_page,
    PACKAGE / "docs" / "agents.md": agents_page,
    PACKAGE / "docs" / f"{OVERVIEW}.md": overview,  # last: it reads the other pages
}

if __name__ == "__main__":
    for path, text in FILES.items():
        path.write_text(text(), encoding="utf-8")
