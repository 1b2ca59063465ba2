"""Lists and objects that are written as texts, as cells of a CSV hold them: in JSON, in Python, as numpy shows them."""

import ast
import contextlib
import json
import re
from typing import Any

_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_STRINGS_WITHOUT_COMMAS = re.compile(rf"\[(?:\s*(?:{_STRING.pattern})(?=\s))+\s*(?:{_STRING.pattern})\s*\]", re.DOTALL)
_NUMBERS_WITHOUT_COMMAS = re.compile(r"\[\s*[-+]?[\d.][\d.eE+-]*(?:\s+[-+]?[\d.][\d.eE+-]*)+\s*\]")
_CALLS = frozenset(
    ("array", "asarray", "tensor", "str_", "bool_", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)
"""Functions by which numpy and torch show what they hold; the first argument is that."""


def written_value(text: str) -> Any:
    """Returns the list or the object that a text writes; a text that writes none is returned as it is.

    Read are JSON, Python's lists and dictionaries, numpy's arrays (`array(['a', 'b'], dtype=object)`, also inside a
    dictionary) and its lists without commas (`['a' 'b']`, `[1 2 0]`). What numpy has shortened by `...` is no list.
    """
    stripped = text.strip()
    if not (stripped.startswith(("[", "{", "array(")) and stripped.endswith(("]", "}", ")"))):
        return text
    if _STRINGS_WITHOUT_COMMAS.fullmatch(stripped):
        stripped = f"[{', '.join(_STRING.findall(stripped))}]"
    elif _NUMBERS_WITHOUT_COMMAS.fullmatch(stripped):
        stripped = f"[{', '.join(stripped[1:-1].split())}]"
    for read in (json.loads, _python_value):
        with contextlib.suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return read(stripped)
    return text


def is_shortened(value: Any) -> bool:
    """Returns whether a cell is an array of which numpy shows the beginning and the end alone."""
    return isinstance(value, str) and value.lstrip().startswith(("[", "{", "array(")) and "..." in value


def _python_value(text: str) -> Any:
    tree = _WithoutCalls().visit(ast.parse(text, mode="eval"))
    return ast.literal_eval(tree)


class _WithoutCalls(ast.NodeTransformer):
    """Puts the content of arrays in the place of the calls that show them."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name not in _CALLS or not node.args:
            raise ValueError(f"{name} is no array")
        content: ast.AST = self.visit(node.args[0])
        return content

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in ("nan", "null"):
            raise ValueError(f"{node.id} is no value")
        return ast.Constant(None)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if node.value is Ellipsis:
            raise ValueError("a part is left out")
        return node
