"""The generated files of the package.

Pages of the documentation (recipe fields, verbs, findings, agents, the table of pages), and the
JSON Schemas of a recipe and of the documents that runs, indexes and locks consist of.

    python -m tests.documents.generated        # writes them anew

`tests/unit/test_documents.py` fails when they are stale.
"""

import inspect
import itertools
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bertctl.cli.framework.doc_pages import GROUPS, OVERVIEW, load_pages
from bertctl.config.field_docs import documented_classes, field_docs, section_docs
from bertctl.config.schema import fields, recipe_schema
from bertctl.run_documents.distillation_document import DistillationDocument
from bertctl.run_documents.document_base import ABSENT, Document
from bertctl.run_documents.environment_document import EnvironmentDocument
from bertctl.run_documents.export_document import ExportDocument
from bertctl.run_documents.index_document import IndexDocument
from bertctl.run_documents.line_documents import HistoryLine, PredictionLine
from bertctl.run_documents.lock_document import LockDocument
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.performance_document import PerformanceDocument
from bertctl.run_documents.probe_document import ProbeDocument
from bertctl.run_documents.status_document import StatusDocument
from bertctl.run_documents.sweep_document import SweepDocument
from tests.documents.findings_page import findings_page
from tests.documents.verbs_page import agents_page, verbs_page

PACKAGE = Path(__file__).resolve().parents[2] / "bertctl"

DOCUMENTS: tuple[type[Document], ...] = (
    DistillationDocument,
    EnvironmentDocument,
    ExportDocument,
    HistoryLine,
    IndexDocument,
    LockDocument,
    MetricsDocument,
    PerformanceDocument,
    PredictionLine,
    ProbeDocument,
    StatusDocument,
    SweepDocument,
)

_INTRODUCTION = """\
<!-- group: reference; order: 40 -->
# Recipe fields

This page lists every field of a recipe with its type and default. If you have not written a recipe
yet, begin with [recipes](recipes.md).

`bertctl recipes show NAME` prints the same explanations next to the values of a recipe. To change a
value on the command line, use `--set SECTION.FIELD=VALUE`.
"""


_OVERVIEW = """\
# Documentation of bertctl

These pages ship with the package, so you can read them in your terminal. `bertctl docs` lists them,
`bertctl docs TOPIC` shows one, and `bertctl docs WORD` searches all of them.
"""


_CONDITION = re.compile(r"This \w+ is for you (if .*)")
"""Summary of a page that names its readers."""


def recipe_fields() -> str:
    """Returns the page of all recipe fields."""
    parts = [_INTRODUCTION]
    schema = recipe_schema()
    for section, names in itertools.groupby(fields(), key=lambda dotted: dotted.rpartition(".")[0]):
        parts.append(
            f"## {section}\n\n{section_docs()[section]}\n"
            if section
            else "## The top of the file\n"
        )
        parts.append("".join(_item(dotted, schema) for dotted in names))
    return "\n".join(parts)


def _item(dotted: str, schema: dict[str, Any]) -> str:
    info = fields()[dotted]
    name = dotted.rpartition(".")[2]
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
        group_pages = list(members)
        conditions = [_CONDITION.match(page.summary) for page in group_pages]
        if all(conditions):
            title = "read it"
            texts = [condition[1] for condition in conditions if condition]
        else:
            title = "content"
            texts = [page.summary for page in group_pages]
        rows = "".join(
            f"| [{page.title}]({page.name}.md) | {text} |\n"
            for page, text in zip(group_pages, texts, strict=True)
        )
        parts.append(f"## {GROUPS[group]}\n\n| page | {title} |\n|---|---|\n{rows}")
    return "\n".join(parts)


def document_json(model: type[Document]) -> str:
    """Returns the JSON Schema of a document as a file: what its writer promises.

    A reader's defaults, for files of older versions, are no part of it.
    """
    schema = model.model_json_schema()
    classes = {part.__name__: part for part in _parts(Document)}
    parts = {model.__name__: schema, **schema.get("$defs", {})}
    for name, part in parts.items():
        _publish(part, classes[name])
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    for key in ("title", "description", "type", "required", "properties"):
        dialect[key] = schema.pop(key)
    return json.dumps(dialect | schema, indent=2, ensure_ascii=False) + "\n"


def _parts(model: type[Document]) -> Iterator[type[Document]]:
    for part in model.__subclasses__():
        yield part
        yield from _parts(part)


def _publish(schema: dict[str, Any], model: type[Document]) -> None:
    """Turns what pydantic says of a class into what is published of it."""
    docs = {
        name: doc.text
        for name, _, doc in documented_classes(_source(model)).get(model.__name__, ())
    }
    schema["description"] = " ".join((model.__doc__ or "").split())
    if schema.get("title") == model.__name__:
        del schema["title"]
    if schema.get("additionalProperties") is True:
        del schema["additionalProperties"]
    required = []
    for name, info in model.model_fields.items():
        key = info.alias or name
        field = schema["properties"][key]
        field.pop("title", None)
        field.pop("default", None)
        if not field.pop(ABSENT, False):
            required.append(key)
        if name in docs:
            schema["properties"][key] = {"description": docs[name], **field}
    schema.pop("required", None)
    if required:
        schema["required"] = required


def _source(model: type[Document]) -> Path:
    return Path(inspect.getfile(model))


FILES = {
    PACKAGE / "docs" / "recipe-fields.md": recipe_fields,
    PACKAGE / "schemas" / "recipe.json": recipe_json,
    **{
        PACKAGE / "schemas" / f"{model.published}.json": partial(document_json, model)
        for model in DOCUMENTS
    },
    PACKAGE / "docs" / "findings.md": findings_page,
    PACKAGE / "docs" / "verbs.md": verbs_page,
    PACKAGE / "docs" / "agents.md": agents_page,
    PACKAGE / "docs" / f"{OVERVIEW}.md": overview,  # last: it reads the other pages
}

if __name__ == "__main__":
    for path, text in FILES.items():
        path.write_text(text(), encoding="utf-8")
