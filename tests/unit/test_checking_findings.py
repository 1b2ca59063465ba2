"""The table of what data check says.

Every finding that a check can make has its severity, words and remedy.
"""

import ast
from pathlib import Path

import pytest

import bertctl.checking
from bertctl.checking.findings import WORST_FIRST
from bertctl.config.strict_yaml import read_document

FOLDER = Path(bertctl.checking.__file__).parent
TABLE = read_document((FOLDER / "findings.yaml").read_text(encoding="utf-8"))
MODULES = {
    "answers": "answers",
    "choices": "choices",
    "duplicates": "duplicates",
    "fields": "fields",
    "files": "reading",
    "labels": "labels",
    "languages": "languages",
    "leakage": "leakage",
    "letters": "text",
    "scores": "scores",
    "spans": "spans",
    "tags": "tagging",
    "tokens": "tokens",
}


def _calls(module: str) -> list[tuple[str, set[str]]]:
    """Code and keywords of each call that makes a finding with a code written out."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    return [
        (call.args[0].value, {keyword.arg or "" for keyword in call.keywords})
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("finding", "of_rows")
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]


def test_the_table_is_read_without_a_problem():
    assert TABLE.problems == []
    assert set(TABLE.values) == set(MODULES)


@pytest.mark.parametrize("family", MODULES)
def test_every_finding_has_severity_words_and_remedy(family):
    rules = TABLE.values[family]
    calls = _calls(MODULES[family])
    for code, message in calls:
        known = message | set(rules[code])
        assert {"severity", "remedy"} <= known, code
        assert known & {"message", "says"}, code
    written_out = {code for code, _ in calls}
    source = (FOLDER / f"{MODULES[family]}.py").read_text(encoding="utf-8")
    for code, rule in rules.items():
        assert f'"{code}"' in source, f"nothing finds {code}"
        assert set(rule) <= {"severity", "noun", "says", "remedy"}
        assert rule.get("severity", "note") in WORST_FIRST
        if code not in written_out:  # found in a loop over codes, which says nothing of its own
            assert {"severity", "remedy", "says"} <= set(rule), code
