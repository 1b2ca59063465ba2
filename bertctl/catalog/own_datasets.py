"""A person's own data sets: a `datasets.yaml` beside the recipe, checked as the built-in rows are.

trec:
task: text-classification
columns: {text: question, label: coarse_label}
labels: [ABBR, DESC, ENTY, HUM, LOC, NUM]
splits: {train: train.csv, test: test.csv}
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from bertctl.catalog.dataset_row import Columns, DatasetRow, Hub, files
from bertctl.config.problems import RecipeError
from bertctl.config.strict_yaml import Document, read_document
from bertctl.errors import UnavailableError
from bertctl.words import did_you_mean

_Text = Annotated[str, Field(min_length=1)]
_SHAPE = "A data set is written `NAME: {task: ..., columns: {text: ..., label: ...}, splits: {train: FILE}}`."


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _OwnColumns(_Strict):
    text: _Text
    pair: _Text | None = None
    label: _Text | None = None
    choices: list[_Text] = []

    def value(self) -> Columns:
        return Columns(self.text, self.pair, self.label, tuple(self.choices))


class _OwnHub(_Strict):
    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    revision: _Text
    file: _Text = Hub.file
    columns: _OwnColumns | None = None

    def value(self) -> Hub:
        return Hub(self.repo, self.revision, self.file, self.columns.value() if self.columns else None)


class _OwnDataset(_Strict):
    task: _Text
    description: str = ""
    columns: _OwnColumns
    splits: dict[_Text, _Text | list[_Text]]
    labels: list[_Text] = []
    metrics: list[_Text] = []
    hub: _OwnHub | None = None
    note: str = ""

    def row(self, name: str, home: Path) -> DatasetRow:
        return DatasetRow(
            name=name,
            task=self.task,
            description=self.description,
            columns=self.columns.value(),
            splits=files(**{key: tuple(file) if isinstance(file, list) else file for key, file in self.splits.items()}),
            labels=tuple(self.labels),
            hub=self.hub.value() if self.hub else None,
            metrics=tuple(self.metrics),
            home=home,
            note=self.note,
        )


def read_datasets(path: Path, *, taken: Collection[str]) -> dict[str, DatasetRow]:
    """Returns the data sets of a file by name.

    Args:
        path: a `datasets.yaml`.
        taken: names of the built-in data sets.

    Raises:
        RecipeError: with everything that is wrong in the file, each with its line.
        UnavailableError: the file can't be read.
    """
    try:
        document = read_document(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error
    found: dict[str, DatasetRow] = {}
    problems = list(document.problems)
    for name, values in document.values.items():
        if name in taken:
            problems.append((document.lines[name,], f"{name}: a built-in data set has this name; choose another"))
            continue
        try:
            row = TypeAdapter(_OwnDataset).validate_python(values).row(name, path.parent)
        except ValidationError as error:
            problems += [_described(entry, name, document) for entry in error.errors(include_url=False)]
            continue
        problems += [
            (_line(document, (name, attribute)), f"{name}.{attribute}: {sentence}")
            for attribute, sentence in row.problems()
        ]
        found[name] = row
    if problems:
        raise RecipeError(str(path), [f"{path}:{line}: {what}" for line, what in sorted(problems)], remedy=_SHAPE)
    return found


def _described(entry: Any, name: str, document: Document) -> tuple[int, str]:
    """Returns line and sentence of one thing that pydantic found."""
    location = (name, *(part for part in entry["loc"] if isinstance(part, str) and not part.endswith("]")))
    dotted = ".".join(location)
    if entry["type"] == "extra_forbidden":
        hint = did_you_mean(location[-1], _keys(location))
        return _line(document, location), f"{dotted}: unknown key" + (f", {hint}" if hint else "")
    if entry["type"] == "missing":
        return _line(document, location), f"{dotted}: is needed and not there"
    return _line(document, location), f"{dotted}: {entry['input']!r:.60} given: {entry['msg']}"


def _keys(location: tuple[str, ...]) -> Mapping[str, Any]:
    """Returns the fields of the section in which a key stands."""
    inner: Mapping[str, type[BaseModel]] = {"columns": _OwnColumns, "hub": _OwnHub}
    return (inner.get(location[-2], _OwnDataset) if len(location) > 2 else _OwnDataset).model_fields


def _line(document: Document, location: tuple[str, ...]) -> int:
    """Returns the line of a key, or of the nearest one around it that stands in the file."""
    while location and location not in document.lines:
        location = location[:-1]
    return document.lines.get(location, 1)
