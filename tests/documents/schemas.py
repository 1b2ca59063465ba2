"""The files of run folders against the JSON Schemas that ship with the package."""

import functools
import json
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).resolve().parents[2] / "bertctl" / "schemas"

_WHOLE = ("metrics", "status", "environment", "performance", "probe", "distillation")


@functools.cache
def validator(name: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check(name: str, document: Any, where: object) -> None:
    errors = [
        f"{where}: {error.json_path}: {error.message}"
        for error in validator(name).iter_errors(document)
    ]
    assert errors == []


def check_run(run: Path) -> int:
    """Checks the files of one run folder and returns how many documents it held."""
    documents = [
        (name, json.loads((run / f"{name}.json").read_text()))
        for name in _WHOLE
        if (run / f"{name}.json").exists()
    ]
    documents.append(("recipe", yaml.safe_load((run / "recipe.yaml").read_text())))
    lines = [("history", run / "history.jsonl")] if (run / "history.jsonl").exists() else []
    for name, file in [
        *lines,
        *(("prediction", file) for file in sorted(run.glob("predictions/*.jsonl"))),
    ]:
        documents += [
            (name, json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()
        ]
    for name, document in documents:
        check(name, document, f"{run.name}/{name}")
    return len(documents)
