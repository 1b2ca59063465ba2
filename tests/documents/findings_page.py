"""The page of all codes of `bertctl data check`, from the table of the package and our own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bertctl.cli.framework.option_names import as_options
from tests.documents.kept_outputs import console_block

TABLE = Path(__file__).resolve().parents[2] / "bertctl" / "checking" / "findings.yaml"
ABOUT = Path(__file__).with_name("findings.yaml")

FAMILIES = {
    "files": "Files",
    "fields": "Texts",
    "labels": "Labels",
    "scores": "Scores",
    "tags": "Tags and entities",
    "spans": "Character spans",
    "answers": "Answers to questions",
    "choices": "Multiple choice",
    "duplicates": "Duplicates",
    "leakage": "Leakage",
    "letters": "Encoding and markup",
    "languages": "Languages and scripts",
    "tokens": "Tokens of the model",
}
"""Heading of each family of checks, in the order of the page."""

_INTRODUCTION = """\
<!-- group: reference; order: 75; verbs: data -->
# Findings of data check

This page lists every code that `bertctl data check` can report, with its meaning and what you can
do about it. The codes are stable. You find them in `--json`, in JUnit files and in annotations.

For example, this file has a blank text, repeated rows and a contradiction:

<!-- file: reviews.csv -->
```text
text,label
a fine film,good
A fine  film,good
a dull film,bad
a dull film,good
,bad
```

{example}

| severity | meaning | exit code |
|---|---|---|
| error | Training would refuse the rows, or would learn something wrong. | 3 |
| warning | Training works, but the score or the model suffers. | 0 |
| note | Often harmless, but you should know it. | 0 |
"""


def findings_page() -> str:
    """Returns the page of all finding codes."""
    table: dict[str, dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    about: dict[str, dict[str, str]] = yaml.safe_load(ABOUT.read_text(encoding="utf-8"))
    example = console_block("findings", "bertctl data check reviews.csv --model minilm")
    parts = [_INTRODUCTION.format(example=example)]
    described: dict[str, str] = {}
    for family, title in FAMILIES.items():
        parts.append(f"## {title}\n")
        for code, rule in table[family].items():
            if code in described:
                anchor = f"[{code}](findings.md#{code})"
                parts.append(f"{anchor} is also reported here; see {described[code]}.\n")
                continue
            described[code] = title
            parts.append("\n".join(_entry(code, rule, about[code])) + "\n")
    return "\n".join(parts)


def _entry(code: str, rule: dict[str, Any], about: dict[str, str]) -> Iterator[str]:
    severity = about.get("severity") or rule["severity"]
    yield f"### {code}\n"
    yield f"*{severity}.* {about['about']}\n"
    if "says" in rule:
        noun = rule.get("noun", "row")
        yield f'Message: "{_plural(noun)} ... {rule["says"]}".\n'
    yield f"What to do: {as_options(rule.get('remedy', about.get('fix', '')))}"


def _plural(noun: str) -> str:
    if noun.endswith("y"):
        return noun[:-1] + "ies"
    return noun + "s"
