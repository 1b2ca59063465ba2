"""Help, messages and remedies are in plain English.

None of the turns of phrase that readers stumble over occurs in a string of the package.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

PACKAGE = ROOT / "bertctl"
RECIPES = ROOT / "recipes"

ODD_PHRASES = {
    r"(?:is|are) no": "is not a, does not exist, no ... was found",
    r"(?:is|are) (?:said|told)": "the subject and an active verb",
    r"told apart|hang together": "distinguished; related",
    r"says? (?:how|which|what|whether|so)": "describes, names, sets",
    r"(?:go|goes|gone|going) on": "continue",
    r"stands? (?:beside|for|there|in|at|on)": "is, occurs, means",
    r"what (?:is|it|was|can)": "the noun",
    r"who (?!are)": "the noun",
    r"of which": "a sentence of its own",
    r"had before": "the earlier one",
}
"""Turn of phrase -> what to write in its place."""

NO_MESSAGES = frozenset(["Who was it?"])
"""Strings that nobody reads: a text by which tokenizers are compared."""

_ODD = re.compile(rf"\b(?:{'|'.join(ODD_PHRASES)})\b", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (*_FUNCTIONS, ast.ClassDef, ast.Module)


def test_no_string_of_the_package_has_an_odd_phrase() -> None:
    actual = []
    for path, line, text in package_strings():
        actual += [
            f"{path.relative_to(ROOT)}:{line}: '{match[0]}' in {text!r:.200}"
            for match in _ODD.finditer(text)
            if text not in NO_MESSAGES
        ]

    assert not actual, "\n".join(actual)


def test_the_strings_of_help_and_messages_are_looked_at() -> None:
    texts = [text for _, _, text in package_strings()]

    for known in (
        "Show which words a run's predictions rest on.",  # a verb's help
        "Share of the training rows held out if you give no validation file.",  # a recipe field's
        "Give files (- is stdin), or --data NAME.",  # a remedy
        "have a score that is not a finite number",  # a finding of `data check`
    ):
        assert any(known in text for text in texts), known


def package_strings() -> Iterator[tuple[Path, int, str]]:
    """Yields the strings of more than one word that people may read, with file and line.

    Those of the code, the docstrings that are help, and the values of the YAML files.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        unread = _docstrings_of_code(path, tree)
        for node in ast.walk(tree):
            if id(node) not in unread and (text := _text_of(node)) is not None and " " in text:
                yield path, getattr(node, "lineno", 0), text
    for path in sorted([*PACKAGE.rglob("*.yaml"), *RECIPES.glob("*.yaml")]):
        for text in _values(yaml.safe_load(path.read_text(encoding="utf-8"))):
            yield path, 0, text


def _docstrings_of_code(path: Path, tree: ast.Module) -> set[int]:
    """Returns the ids of the string nodes that are documentation of code, not help.

    All docstrings but those of verbs and recipe fields; and of the pieces of f-strings, which are
    looked at whole.
    """
    is_verb_file = path.parent.name == "verbs"
    unread: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            unread.update(map(id, node.values))
        if not isinstance(node, _DOCUMENTED):
            continue
        is_verb = is_verb_file and isinstance(node, _FUNCTIONS) and not node.name.startswith("_")
        is_section = path.name == "recipe_sections.py" and isinstance(node, ast.ClassDef)
        for number, statement in enumerate(node.body):
            is_docstring = isinstance(statement, ast.Expr) and number == 0
            is_of_attribute = isinstance(statement, ast.Expr) and not is_section
            if (is_docstring and not is_verb) or (is_of_attribute and number > 0):
                unread.add(id(statement.value))
    return unread


def _text_of(node: ast.AST) -> str | None:
    """Returns the text of a string; values that are put in are marks."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
        return "".join(map(str, parts))
    return None


def _values(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for value in document.values():
            yield from _values(value)
    elif isinstance(document, list):
        for value in document:
            yield from _values(value)
    elif isinstance(document, str) and " " in document:
        yield document
