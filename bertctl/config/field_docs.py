"""What the schema says of each recipe field, read from its source.

Help and completion do not wait for pydantic.
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
    """What stands in the schema about one field.

    Attributes:
        text: its docstring as one line.
        choices: the words that fit, where only some do.
    """

    text: str
    choices: tuple[str, ...]

    @property
    def help_text(self) -> str:
        """Docstring in two paragraphs.

        They are its first sentence with what is said of the default, and the rest.
        """
        summary, *sentences = self.text.replace(". ", ".\n").splitlines()
        defaults = [sentence for sentence in sentences if sentence.startswith("Default: ")]
        details = [sentence for sentence in sentences if sentence not in defaults]
        return " ".join([summary, *defaults]) + "\n\n" + " ".join(details)


@functools.cache
def field_docs() -> Mapping[str, FieldDoc]:
    """Returns the documentation of every field of a recipe by its dotted name.

    It is in the schema's order.
    """
    classes = documented_classes(_SCHEMA)
    docs: dict[str, FieldDoc] = {}
    for name, annotation, doc in classes["RecipeFields"]:
        if isinstance(annotation, ast.Name) and annotation.id in classes:
            docs |= {f"{name}.{inner}": inner_doc for inner, _, inner_doc in classes[annotation.id]}
        else:
            docs[name] = doc
    return docs | {"task": docs["task"]._replace(choices=task_names())}


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
    """Returns the attributes with a docstring of each class of a Python file.

    Each has its name, annotation and documentation.
    """
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {
        node.name: list(_fields(node.body)) for node in tree.body if isinstance(node, ast.ClassDef)
    }


def _fields(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr, FieldDoc]]:
    """Yields name, annotation and documentation of each attribute with a docstring under it."""
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
    """Yields the words of each `Literal` in an annotation."""
    for node in ast.walk(annotation):
        match node:
            case ast.Subscript(value=ast.Name(id="Literal")):
                yield from (
                    str(leaf.value) for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)
                )


def _losses(annotation: ast.expr) -> Mapping[str, Loss]:
    """Returns the losses that a field accepts, by name; none where it names no loss."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name) and node.id in LOSS_TYPES:
            return LOSS_TYPES[node.id]
    return {}
