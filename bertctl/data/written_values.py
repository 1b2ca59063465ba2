"""Lists and objects that are written as texts, as cells of a CSV hold them.

They are written in JSON, in Python, or as numpy shows them.
"""

import ast
import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

from bertctl.words import nearly_all

_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_STRINGS_WITHOUT_COMMAS = re.compile(
    rf"\[(?:\s*(?:{_STRING.pattern})(?=\s))+\s*(?:{_STRING.pattern})\s*\]", re.DOTALL
)
_ITEM = r"(?:[-+]?[\d.][\d.eE+-]*|True|False)"
_ITEMS_WITHOUT_COMMAS = re.compile(rf"\[\s*{_ITEM}(?:\s+{_ITEM})+\s*\]")
_LIST_OPENINGS = ("[", "{", "array(")
_STRUCTURE_OPENINGS = (*_LIST_OPENINGS, "(", "set(", "frozenset(", "tensor(", "asarray(")
_CALLS = frozenset(
    (
        "array", "asarray", "tensor", "set", "frozenset", "str_", "bool_", "int8", "int16", "int32",
        "int64", "float16", "float32", "float64",
    )
)  # fmt: skip
"""Functions by which Python, numpy and torch show what they hold; the first argument is that."""


def written_value(text: str) -> Any:
    """Returns the list or the object that a text writes: `'["a", 1]'` -> `["a", 1]`.

    A text that writes none is returned as it is. It may be JSON, Python's lists and dictionaries,
    numpy's arrays (`array(['a', 'b'], dtype=object)`, also inside a dictionary) and its lists
    without commas (`['a' 'b']`, `[1 2 0]`). What numpy has shortened by `...` is no list.
    """
    return _read(text, _LIST_OPENINGS)


def written_structure(text: str) -> Any:
    """Returns the list, object, tuple or set that a text writes, as labels are: `"{'a', 'b'}"`.

    A text that writes none is returned as it is.
    """
    value = _read(text, _STRUCTURE_OPENINGS)
    if isinstance(value, list | tuple | set | dict):
        return value
    return text


def with_lists(values: Sequence[Any]) -> Sequence[Any]:
    """Returns a column with lists in place of texts that write lists.

    Unless nearly all cells write lists, the column is returned as it is.
    """
    if not all(isinstance(value, str) for value in values):
        return values
    cells = [written_value(value) if value else None for value in values]
    n_filled = sum(cell is not None for cell in cells)
    n_lists = sum(isinstance(cell, list) for cell in cells)
    if n_lists and nearly_all(n_lists, n_filled):
        return cells
    return values


def _read(text: str, openings: tuple[str, ...]) -> Any:
    """Returns the value that a text writes; the text if it writes none.

    Args:
        text: In JSON or Python, or as numpy shows arrays, without commas.
        openings: How the text must begin.
    """
    stripped = text.strip()
    if not (stripped.startswith(openings) and stripped.endswith(("]", "}", ")"))):
        return text
    if _STRINGS_WITHOUT_COMMAS.fullmatch(stripped):
        stripped = f"[{', '.join(_STRING.findall(stripped))}]"
    elif _ITEMS_WITHOUT_COMMAS.fullmatch(stripped):
        stripped = f"[{', '.join(stripped[1:-1].split())}]"
    # JSON first, then Python. Deep nesting ends in MemoryError or RecursionError.
    for parse in (json.loads, _python_value):
        with contextlib.suppress(
            ValueError,
            SyntaxError,
            TypeError,
            MemoryError,
            RecursionError,
        ):
            return parse(stripped)
    return text


def is_shortened(value: Any) -> bool:
    """Returns whether a cell is an array that numpy has shortened to its beginning and its end."""
    if not isinstance(value, str):
        return False
    begins_like_list = value.lstrip().startswith(_LIST_OPENINGS)
    return begins_like_list and "..." in value


def _python_value(text: str) -> Any:
    """Returns the value of a Python literal, in which arrays of numpy are lists.

    Nothing in it is called or looked up.

    Raises:
        ValueError: It is no literal.
        SyntaxError: It is no Python.
    """
    tree = _WithoutCalls().visit(ast.parse(text, mode="eval"))
    return ast.literal_eval(tree)


class _WithoutCalls(ast.NodeTransformer):
    """Puts the content of arrays in the place of the calls that show them: `array([1])` -> `[1]`.

    `nan` and `null` become None. Other calls and names raise a ValueError.
    """

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Returns the first argument of a call such as `array([1, 2], dtype=int64)`."""
        if isinstance(node.func, ast.Name):
            name = node.func.id
        else:
            name = getattr(node.func, "attr", "")
        if name not in _CALLS:
            raise ValueError(f"{name} is not an array")
        if not node.args:
            return ast.List([], ast.Load())
        content: ast.AST = self.visit(node.args[0])
        return content

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Returns None for `nan` and `null`."""
        if node.id not in ("nan", "null"):
            raise ValueError(f"{node.id} is not a value")
        return ast.Constant(None)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Returns a constant, unless it is `...`, by which numpy shortens an array."""
        if node.value is Ellipsis:
            raise ValueError("a part is left out")
        return node
