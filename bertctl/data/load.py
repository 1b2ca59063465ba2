"""The data a recipe names, as splits: from the catalog (bundled, official files, hub) or from a person's own files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bertctl.catalog.datasets import DatasetRow, find_dataset
from bertctl.config.schema import DataSection, Recipe
from bertctl.data import glue
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.data.splits import content_hash, first, hold_out, hold_out_fold, sample
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.words import did_you_mean


@dataclass(frozen=True)
class LoadedData:
    """What `load_data` read.

    Attributes:
        splits: split name -> rows.
        labels: label names in the data set's official order; None for regression and for a person's own files.
        dataset: catalog row, or None for a person's own files.
        validation_splits: the splits that pick the best weights and are scored at the end; the first one decides.
        columns: canonical name -> name in the file, as given or guessed (own files only).
        notes: what was guessed, detected, held out or skipped; each was also told to the listener.
        hashes: split name -> SHA-256 of its canonical columns' values; no path, no date.
    """

    splits: Mapping[str, Rows]
    labels: tuple[str, ...] | None
    dataset: DatasetRow | None
    validation_splits: tuple[str, ...]
    columns: Mapping[str, str]
    notes: tuple[str, ...]
    hashes: Mapping[str, str]


def load_data(recipe: Recipe, *, listener: Listener = SILENT, splits: Sequence[str] | None = None) -> LoadedData:
    """Read the rows that a recipe names.

    Args:
        recipe: its sections `data` and `evaluation`, its task and its seed are read.
        listener: told of everything that was guessed, detected, held out or left out.
        splits: which splits; None is training, validation and those in `recipe.evaluation.splits`. `test` is read
            only where it is named. `validation` works without a validation file too: it is held out from training.

    Raises:
        UsageError: unknown data set or split, no data named, columns that can't be guessed.
        DataError: rows, columns or bytes that are not what they should be, with file and line.
        UnavailableError: files that are not there, a hub out of reach.
    """
    notes = _Notes(listener)
    source: _Source = _CatalogSource(recipe, notes) if recipe.data.name else _OwnFiles(recipe, notes)
    named = list(recipe.evaluation.splits if splits is None else splits)
    for name in named:
        source.require(name)
    validation = source.validation_splits(optional_too=splits is not None)
    if splits is None:
        source.require("train")
        named = list(dict.fromkeys(["train", *validation, *named]))
    read = source.read(named)
    for name, rows in read.items():
        limit = recipe.data.max_train_rows if name == "train" else recipe.data.max_eval_rows
        if limit is not None and len(rows) > limit:
            if name == "train":
                read[name] = sample(rows, limit, seed=recipe.training.seed)
            else:
                read[name] = first(rows, limit)
            how = f"a sample, seed {recipe.training.seed}" if name == "train" else "the first ones"
            notes.say(f"{name}: {limit} of {len(rows)} rows ({how})")
    _check_slice_columns(recipe, read)
    return LoadedData(
        splits=read,
        labels=(source.dataset.labels or None) if source.dataset else None,
        dataset=source.dataset,
        validation_splits=validation,
        columns=source.columns,
        notes=tuple(notes.kept),
        hashes={name: content_hash(rows, READERS[recipe.task].columns) for name, rows in read.items()},
    )


class _Notes(Listener):
    """Keeps what is said, and passes it on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.kept: list[str] = []

    def say(self, text: str) -> None:
        self.kept.append(text)
        self._listener.say(text)

    def warn(self, text: str) -> None:
        self.kept.append(text)
        self._listener.warn(text)


class _Source(Protocol):
    """Where splits come from."""

    dataset: DatasetRow | None
    columns: Mapping[str, str]

    def require(self, split: str) -> None:
        """Refuse a split that this source can't have."""

    def validation_splits(self, *, optional_too: bool) -> tuple[str, ...]:
        """The splits that pick the best weights; `optional_too`: also those whose files are not there."""

    def read(self, splits: Sequence[str]) -> dict[str, Rows]:
        """The splits, in this order."""


class _CatalogSource:
    """A data set of the catalog."""

    def __init__(self, recipe: Recipe, listener: Listener) -> None:
        section = recipe.data
        self._row = find_dataset(section.name or "")
        self._recipe = recipe
        self._listener = listener
        self.dataset: DatasetRow | None = self._row
        self.columns: Mapping[str, str] = {}
        if self._row.task != recipe.task:
            raise UsageError(
                f"the data set '{self._row.name}' is for {self._row.task}, the recipe's task is {recipe.task}",
                remedy=f"Set task: {self._row.task}, or `bertctl finetune {self._row.name}`.",
            )
        folder = None if self._row.bundled else section.data_dir or os.environ.get("BERTCTL_DATA") or None
        self._folder = Path(folder).expanduser() if folder else None
        if self._row.bundled and section.data_dir:
            listener.say(f"'{self._row.name}' ships inside the package: {section.data_dir} is not looked at")

    def require(self, split: str) -> None:
        if split == "train" and "train" not in self._row.split_names:
            raise UsageError(
                f"the data set '{self._row.name}' has no training rows",
                remedy=f"It is for prediction: {self._row.note or 'bertctl predict'}.",
            )
        self._row.split(split)

    def validation_splits(self, *, optional_too: bool) -> tuple[str, ...]:
        of_row = self._row.validation_splits
        asked = self._recipe.evaluation.splits
        chosen = tuple(s for s in of_row if s in asked) or (of_row[:1] if asked else of_row)
        if optional_too or self._folder is None or not self._folder.is_dir():
            return chosen
        there = chosen[:1]
        for name in chosen[1:]:
            if name in asked or glue.find_split_file(self._row, self._row.split(name), self._folder):
                there += (name,)
            else:
                self._listener.warn(f"{self._folder} has no {name} file of '{self._row.name}': it is not scored")
        return there

    def read(self, splits: Sequence[str]) -> dict[str, Rows]:
        return {name: self._read(name) for name in splits}

    def _read(self, name: str) -> Rows:
        return _first_train_rows(self._read_all(name), self._recipe)

    def _read_all(self, name: str) -> Rows:
        split = self._row.split(name)
        if self._row.bundled:
            return glue.read_bundled(self._row, split, self._listener)
        if self._folder is not None:
            return glue.read_from_folder(self._row, split, self._folder, self._listener)
        return glue.read_from_hub(self._row, split, self._listener)


class _OwnFiles:
    """A person's own files. Columns are chosen by the first file that is read, and stay."""

    dataset: DatasetRow | None = None

    def __init__(self, recipe: Recipe, listener: Listener) -> None:
        section = recipe.data
        self._recipe = recipe
        self._listener = listener
        self._settings: DataSection = section
        self.columns: Mapping[str, str] = {}
        self._files = {
            "train": section.train_file,
            "validation": section.validation_file,
            "test": section.test_file,
        }
        if not any(self._files.values()):
            raise UsageError(
                "no data is named",
                remedy="Name a data set (data.name) or files of your own: --train-file FILE, --validation-file FILE.",
            )

    def require(self, split: str) -> None:
        if split not in self._files:
            hint = did_you_mean(split, self._files)
            raise UsageError(
                f"there is no split '{split}'" + (f": {hint}" if hint else ""),
                remedy="Splits: train, validation, test.",
            )
        if not self._files[split] and not (split == "validation" and self._files["train"]):
            raise UsageError(f"there are no {split} rows", remedy=f"Give a file: --{split}-file FILE.")

    def validation_splits(self, *, optional_too: bool) -> tuple[str, ...]:  # noqa: ARG002 - held out where it has no file
        return ("validation",)

    def read(self, splits: Sequence[str]) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        held_out = "validation" in splits and not self._files["validation"]
        if held_out:
            found["train"], found["validation"] = self._hold_out(self._read("train"))
        elif "train" in splits and not self._files["validation"]:
            found["train"], _ = self._hold_out(self._read("train"))
        for name in splits:
            if name not in found:
                found[name] = self._read(name)
        return {name: found[name] for name in splits}

    def _read(self, split: str) -> Rows:
        path = Path(self._files[split] or "").expanduser()
        reading = READERS[self._recipe.task].read(
            path, self._settings, split=split, label_needed=split != "test", listener=self._listener
        )
        if not self.columns:
            self.columns, self._settings = reading.columns, reading.settings
        return _first_train_rows(reading.rows, self._recipe)

    def _hold_out(self, rows: Rows) -> tuple[Rows, Rows]:
        fraction, seed = self._recipe.data.validation_fraction, self._recipe.training.seed
        reader = READERS[self._recipe.task]
        folds, fold = self._recipe.data.folds, self._recipe.data.fold
        if folds is not None and fold is not None:
            train, validation, stratified = hold_out_fold(
                rows, folds=folds, fold=fold, seed=seed, stratify=reader.stratify, together=reader.together
            )
            self._listener.say(
                f"part {fold} of {folds}: {len(validation)} of the {len(rows)} training rows are held out for "
                f"validation (seed {seed}, {'stratified by label' if stratified else 'not stratified'})"
            )
            return train, validation
        train, validation, stratified = hold_out(
            rows, fraction=fraction, seed=seed, stratify=reader.stratify, together=reader.together
        )
        how = f"seed {seed}, {'stratified by label' if stratified else 'not stratified'}"
        self._listener.say(
            f"no validation file: {len(validation)} of the {len(rows)} training rows are held out for validation "
            f"({how}); --validation-file FILE gives one"
        )
        return train, validation


def _first_train_rows(rows: Rows, recipe: Recipe) -> Rows:
    limit = recipe.data.first_train_rows
    return first(rows, limit) if limit is not None and rows.split == "train" else rows


def _check_slice_columns(recipe: Recipe, splits: Mapping[str, Rows]) -> None:
    for name, rows in splits.items():
        for column in recipe.evaluation.slice_columns:
            if name != "train" and not rows.has(column):
                hint = did_you_mean(column, rows.columns)
                raise DataError(
                    f"evaluation.slice_columns: {rows.source} has no column '{column}'" + (f": {hint}" if hint else ""),
                    remedy=f"Columns there: {', '.join(rows.columns)}.",
                )
