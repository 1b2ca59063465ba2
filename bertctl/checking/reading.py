"""The splits of a recipe as far as they can be read; what the readers refuse becomes a finding."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertctl.catalog.datasets import find_dataset
from bertctl.checking.findings import Example, Finding, count_of, shorten
from bertctl.checking.spans import SPAN_COLUMNS
from bertctl.config.schema import Recipe
from bertctl.data.delimited import SAMPLE_LINES, Layout, detect_layout
from bertctl.data.files import json_objects, kind_of, table_of_objects
from bertctl.data.load import LoadedData, load_data
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.data.table import Table, table_of_records
from bertctl.data.text_files import open_bytes, read_text, text_lines
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import SILENT, Listener

_PLACE = re.compile(r"(?P<where>.+?:\d+): (?P<what>.*)", re.DOTALL)


@dataclass(frozen=True)
class ReadData:
    """What could be read.

    Attributes:
        splits: split name -> rows.
        validation_splits: the splits that pick the best weights.
        labels: label names in the data set's official order, where it has one.
        findings: what was refused, and what the readers warned of.
    """

    splits: dict[str, Rows]
    validation_splits: tuple[str, ...]
    labels: tuple[str, ...] | None
    findings: tuple[Finding, ...]


def read_data(recipe: Recipe, *, listener: Listener = SILENT) -> ReadData:
    """Read all splits that are there, whole: without hold-out, sample or limit.

    Args:
        recipe: its sections `data` and `evaluation` are read.
        listener: told of what the readers guess and detect.

    Raises:
        UsageError: no data, an unknown data set or split, columns that can't be guessed.
        UnavailableError: a file that is named, or the training rows of a data set, can't be had.
    """
    if recipe.data.name:
        return _read_dataset(recipe, listener)
    return _read_own(recipe, listener)


def _read_dataset(recipe: Recipe, listener: Listener) -> ReadData:
    """Each split by itself: those that nobody asked for may be missing."""
    row = find_dataset(recipe.data.name or "", recipe.data.datasets_file)
    wanted = {"train", row.validation_splits[0] if row.validation_splits else "train", *recipe.evaluation.splits}
    local = bool(recipe.data.data_dir) or row.bundled or row.home is not None
    splits: dict[str, Rows] = {}
    findings: list[Finding] = []
    for name in row.split_names:
        if name not in wanted and not local and name not in row.validation_splits:
            continue  # the test split is not fetched from the hub to be looked at
        heard = _Heard(listener)
        try:
            splits[name] = load_data(recipe, listener=heard, splits=[name], whole=True).splits[name]
        except DataError as error:
            findings.append(refusal(error, name))
        except UnavailableError:
            if name in wanted and name in row.split_names:
                raise
            listener.say(f"{name}: not there, not checked")
        findings += heard.findings(name)
    return ReadData(splits, tuple(row.validation_splits), row.labels or None, tuple(findings))


def _read_own(recipe: Recipe, listener: Listener) -> ReadData:
    files = {
        "train": recipe.data.train_file,
        "validation": recipe.data.validation_file,
        "test": recipe.data.test_file,
    }
    names = [name for name, file in files.items() if file]
    heard = _Heard(listener)
    try:
        loaded: LoadedData = load_data(recipe, listener=heard, splits=names, whole=True)
    except DataError:
        return _read_own_one_by_one(recipe, {name: str(files[name]) for name in names}, listener)
    return ReadData(dict(loaded.splits), ("validation",), loaded.labels, tuple(heard.findings("")))


def _read_own_one_by_one(recipe: Recipe, files: Mapping[str, str], listener: Listener) -> ReadData:
    splits: dict[str, Rows] = {}
    findings: list[Finding] = []
    for name, file in files.items():
        heard = _Heard(listener)
        try:
            splits[name] = load_data(recipe, listener=heard, splits=[name], whole=True).splits[name]
        except DataError as error:
            rest = _Lenient(Path(file).expanduser(), recipe, name).read()
            if rest is not None:
                splits[name] = rest[0]
            findings.append(rest[1] if rest is not None and rest[1] is not None else refusal(error, name))
        findings += heard.findings(name)
    return ReadData(splits, ("validation",), None, tuple(findings))


def refusal(error: DataError, split: str, *, code: str = "unreadable") -> Finding:
    """A refusal as a finding; the place that its message begins with becomes its example."""
    place = _PLACE.fullmatch(error.message)
    examples = (Example(place["where"], shorten(place["what"], limit=140)),) if place else ()
    return Finding(code, "error", split, 1, 1, error.message, examples, error.remedy)


class _Heard(Listener):
    """Keeps the readers' warnings, which become findings; passes on the rest."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._warnings: list[str] = []

    def say(self, text: str) -> None:
        self._listener.say(text)

    def warn(self, text: str) -> None:
        self._warnings.append(text)

    def findings(self, split: str) -> Iterator[Finding]:
        for text in self._warnings:
            remedy = "Training goes on like this: check that it is meant, or correct the file."
            yield Finding("reader-warning", "warning", split, 1, 1, text, (), remedy)


class _Lenient:
    """A text file of a person's own, read past its faults."""

    def __init__(self, path: Path, recipe: Recipe, split: str) -> None:
        self._path = path
        self._settings = recipe.data
        self._task = recipe.task
        self._split = split
        self._bad: list[Example] = []
        self._undecodable = False
        self._records = 0

    def read(self) -> tuple[Rows, Finding | None] | None:
        """The rows that are sound, and a finding about all that are not; None where nothing can be made of it."""
        try:
            kind = kind_of(self._path)
            if kind not in ("csv", "tsv", "jsonl"):
                return None
            text = self._text()
            table = self._json_table(text) if kind == "jsonl" else self._delimited_table(text, tabs=kind != "csv")
            if not len(table):
                return None
            rows = self._rows(table)
        except (DataError, UsageError):
            return None
        return rows, self._finding()

    def _rows(self, table: Table) -> Rows:
        try:
            return (
                READERS[self._task]
                .from_table(table, self._settings, split=self._split, label_needed=self._split != "test")
                .rows
            )
        except DataError:
            spans = next((name for name in SPAN_COLUMNS if name in table.columns), None)
            if self._task != "token-classification" or spans is None or "text" not in table.columns:
                raise
            # Spans that can't be made into tags: their check says of all of them why.
            columns = {"text": table.columns["text"], spans: table.columns[spans]}
            return Rows(self._split, columns, [str(i) for i in range(len(table))], table.source, table.lines)

    def _text(self) -> str:
        try:
            return read_text(self._path, self._settings.encoding, SILENT)
        except DataError:
            with open_bytes(self._path) as file:
                data = file.read()
            if not data.strip() or data.count(0) > len(data) // 10:
                raise
            self._undecodable = True
            return data.decode(self._settings.encoding or "utf-8", errors="replace").removeprefix("\ufeff")

    def _json_table(self, text: str) -> Table:
        objects: list[tuple[int, dict[str, Any]]] = []
        for number, line in enumerate(text_lines(text), start=1):
            if line.isspace():
                continue
            self._records += 1
            try:
                objects += [(number, value) for _, value in json_objects([line], str(self._path))]
            except DataError as error:
                self._bad.append(Example(f"{self._path}:{number}", shorten(error.message.split(": ", 1)[-1])))
        return table_of_objects(objects, str(self._path))

    def _delimited_table(self, text: str, *, tabs: bool) -> Table:
        lines = list(text_lines(text))
        source = str(self._path)
        layout = detect_layout(
            lines[:SAMPLE_LINES], lines, tabs=tabs, settings=self._settings, source=source, listener=SILENT
        )
        width = len(layout.names)
        good: list[tuple[int, list[str]]] = []
        records = [(line, fields) for line, fields in _records(lines, layout) if fields]
        for line, fields in records[1 if layout.header else 0 :]:
            self._records += 1
            if len(fields) == width:
                good.append((line, fields))
            else:
                shown = shorten(layout.delimiter.join(fields), limit=60)
                self._bad.append(Example(f"{source}:{line}", f"{len(fields)} fields, not {width}: {shown}"))
        return table_of_records(layout.names, good, source, header=layout.header)

    def _finding(self) -> Finding | None:
        if not self._bad:
            return None
        return Finding(
            "bad-record",
            "error",
            self._split,
            len(self._bad),
            self._records,
            f"{count_of(len(self._bad), self._records, 'record')} of {self._split} can't be read; the others are "
            "checked below",
            tuple(self._bad[:5]),
            "Training refuses the file. A separator inside a field needs quotes around the field, a quote inside a "
            'quoted field is written twice (""); JSONL has one object a line.',
        )


def _records(lines: Sequence[str], layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Line and fields of each record, whatever their number; quotes that are not closed end with the file."""
    if not layout.quoted:
        for number, line in enumerate(lines, start=1):
            bare = line.rstrip("\r\n")
            yield number, bare.split(layout.delimiter) if bare else []
        return
    reader = csv.reader(lines, delimiter=layout.delimiter)
    begins = 1
    for fields in reader:
        yield begins, fields
        begins = reader.line_num + 1
