"""The documentation of each recipe field, read from the source code of `recipe_sections.py`.

The file is parsed, not imported: it needs pydantic, whose import would slow down help and
completion.
"""

import ast
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bertctl.config.losses import LOSS_TYPES, Loss, describe_losses
from bertctl.config.task_names import task_names

_SCHEMA = Path(__file__).with_name("recipe_sections.py")


class FieldDoc(NamedTuple):
    """Documentation of one recipe field.

    Attributes:
        text: The field's docstring as one line.
        choices: The words that the field accepts; empty if it accepts other values.
    """

    text: str
    choices: tuple[str, ...]

    @property
    def help_text(self) -> str:
        """Docstring in two paragraphs: its first sentence with the default, and the rest."""
        summary, *sentences = self.text.replace(". ", ".\n").splitlines()
        defaults = [sentence for sentence in sentences if sentence.startswith("Default: ")]
        details = [sentence for sentence in sentences if sentence not in defaults]
        return " ".join([summary, *defaults]) + "\n\n" + " ".join(details)


@functools.cache
def field_docs() -> Mapping[str, FieldDoc]:
    """Returns the documentation of every recipe field by its dotted name, in the schema's order."""
    classes = documented_classes(_SCHEMA)
    docs: dict[str, FieldDoc] = {}
    for name, annotation, doc in classes["RecipeFields"]:
        # The annotation of a section is the name of its class.
        if isinstance(annotation, ast.Name) and annotation.id in classes:
            fields_of_section = classes[annotation.id]
            docs |= {f"{name}.{inner}": inner_doc for inner, _, inner_doc in fields_of_section}
        else:
            docs[name] = doc
    # The type of `task` is a plain text, so its choices are not in the source.
    docs["task"] = docs["task"]._replace(choices=task_names())
    return docs


@functools.cache
def section_docs() -> Mapping[str, str]:
    """Returns the docstring under each section of a recipe as one line, by the section's name."""
    return {
        name: doc.text
        for name, _, doc in documented_classes(_SCHEMA)["RecipeFields"]
        if name not in field_docs()
    }


@functools.cache
def documented_classes(source: Path) -> dict[str, list[tuple[str, ast.expr, FieldDoc]]]:
    """Returns the attributes of each class of a Python file that have a docstring under them.

    Returns:
        Name of the class -> (name, annotation, documentation) of each such attribute.
    """
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {
        node.name: list(_fields(node.body)) for node in tree.body if isinstance(node, ast.ClassDef)
    }


def _fields(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr, FieldDoc]]:
    """Yields name, annotation and documentation of each attribute with a docstring under it.

    Args:
        body: The statements of a class, in which the docstring is a statement of its own.
    """
    for statement, below in itertools.pairwise(body):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(docstring))
            ):
                text = " ".join(docstring.split())
                choices = tuple(_choices(statement.annotation))
                losses = _losses(statement.annotation)
                if losses:
                    text = f"{text} {describe_losses(losses)}"
                    choices = tuple(losses)
                yield name, statement.annotation, FieldDoc(text, choices)


def _choices(annotation: ast.expr) -> Iterator[str]:
    """Yields the words of each `Literal` in an annotation: `Literal["a", "b"] | None` -> a, b."""
    for node in ast.walk(annotation):
        match node:
            case ast.Subscript(value=ast.Name(id="Literal")):
                constants = [leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)]
                yield from (str(constant.value) for constant in constants)


def _losses(annotation: ast.expr) -> Mapping[str, Loss]:
    """Returns the losses by name that a field accepts; empty if its type is not one of losses."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name) and node.id in LOSS_TYPES:
            return LOSS_TYPES[node.id]
    return {}
