"""Files of data sets by name.

They are the built-in `datasets.yaml` beside this module, and a person's own beside a recipe.

    trec:
      task: text-classification
      columns: {text: question, label: coarse_label}
      labels: [ABBR, DESC, ENTY, HUM, LOC, NUM]
      splits: {train: train.csv, test: test.csv}

The keys are the attributes of `DatasetRow`; a split is a file, a list of files of which one is
enough, or the attributes of a `SplitRow`.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bertctl.catalog.dataset_row import Columns, DatasetRow, Hub, PublishedScore, SplitRow
from bertctl.config.problems import RecipeError
from bertctl.config.strict_yaml import MOST_CHARACTERS, Document, read_document
from bertctl.documents import read_text
from bertctl.words import did_you_mean

_NOT_IN_FILE = ("name", "home")
_SHAPE = (
    "A data set is written `NAME: {task: ..., columns: {text: ..., label: ...}, splits: {train: "
    "FILE}}`."
)
_SECTIONS = {"columns": Columns, "hub": Hub, "splits": SplitRow, "published": PublishedScore}


def read_datasets(
    path: Path, *, reserved: Collection[str] = (), home: Path | None = None
) -> dict[str, DatasetRow]:
    """Returns the data sets of a file by name.

    Args:
        path: a `datasets.yaml`.
        reserved: names that it may not use.
        home: folder that is searched for their files where no other is given.

    Raises:
        RecipeError: with everything that is wrong in the file, each with its line.
        UnavailableError: the file can't be read.
    """
    document = read_document(read_text(path, limit=MOST_CHARACTERS))
    datasets: dict[str, DatasetRow] = {}
    problems = list(document.problems)
    adapter = TypeAdapter(DatasetRow)
    for name, values in document.values.items():
        if name in reserved:
            problems.append(
                (
                    document.lines[name,],
                    f"{name}: a built-in data set has this name; choose another",
                )
            )
            continue
        try:
            row = adapter.validate_python(_attributes(name, values, home))
        except ValidationError as error:
            problems += [
                _described(entry, name, document) for entry in error.errors(include_url=False)
            ]
            continue
        problems += [
            (_line(document, (name, attribute)), f"{name}.{attribute}: {sentence}")
            for attribute, sentence in row.problems()
        ]
        datasets[name] = row
    if problems:
        raise RecipeError(
            str(path),
            [f"{path}:{line}: {problem}" for line, problem in sorted(problems)],
            remedy=_SHAPE,
        )
    return datasets


def _attributes(name: str, values: Any, home: Path | None) -> Any:
    """Returns the attributes of a `DatasetRow` as the file has them, each split with its name.

    Args:
        name: Name of the data set.
        values: What the file has under this name. Something else than a mapping is returned as it
            is, and refused by pydantic.
        home: Folder that is searched for the files.
    """
    if not isinstance(values, Mapping):
        return values
    # The file can't write `name` and `home`: with a blank behind them they are unknown keys.
    attributes = {
        key if key not in _NOT_IN_FILE else f"{key} ": value for key, value in values.items()
    }
    splits = values.get("splits")
    if isinstance(splits, Mapping):
        attributes["splits"] = [_split(split, value) for split, value in splits.items()]
    return {**attributes, "name": name, "home": home}


def _split(name: str, value: Any) -> dict[str, Any]:
    """Returns the attributes of a `SplitRow`.

    `train: a.csv` -> `{"files": ["a.csv"], "name": "train"}`.

    Args:
        name: Name of the split.
        value: A file, a list of files, or the attributes.
    """
    if isinstance(value, Mapping):
        attributes = dict(value)
    else:
        attributes = {"files": value}
    if isinstance(attributes.get("files"), str):
        attributes["files"] = [attributes["files"]]
    return {**attributes, "name": name}


def _described(entry: Any, name: str, document: Document) -> tuple[int, str]:
    """Returns the line and the sentence of one fault that pydantic has found.

    Args:
        entry: One of pydantic's errors.
        name: Name of the data set.
        document: The file.
    """
    # `_attributes` has written a blank behind keys that the file may not have.
    location = (name, *(part.strip() for part in entry["loc"] if isinstance(part, str)))
    dotted = ".".join(location)
    line = _line(document, location)
    if entry["type"] == "unexpected_keyword_argument":
        section: Any = _SECTIONS.get(location[-2], DatasetRow)
        known = [field.name for field in fields(section) if field.name not in _NOT_IN_FILE]
        hint = did_you_mean(location[-1], known)
        message = f"{dotted}: unknown key"
        if hint:
            message += f", {hint}"
        return line, message
    if entry["type"] == "missing":
        return line, f"{dotted}: is needed and not there"
    return line, f"{dotted}: {entry['input']!r:.60} given: {entry['msg']}"


def _line(document: Document, location: tuple[str, ...]) -> int:
    """Returns the line of a key, or of the nearest one around it that stands in the file."""
    while location and location not in document.lines:
        location = location[:-1]
    return document.lines.get(location, 1)
