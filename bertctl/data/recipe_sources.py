"""Where the splits of a recipe come from: a data set of the catalog, or a person's own files."""

import abc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bertctl.catalog.dataset_row import DatasetRow
from bertctl.catalog.datasets import bundled_folder, find_dataset
from bertctl.catalog.lock import FilesToRead, check_or_record
from bertctl.config.recipe_files import expanded_path
from bertctl.config.schema import Recipe
from bertctl.data import catalog_files
from bertctl.data.groups import number_of_groups
from bertctl.data.label_cells import LabelRules
from bertctl.data.pipes import regular
from bertctl.data.read_options import ReaderOptions, SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.recipe_splits import (
    groups_of,
    held_out_by_recipe,
    share_in_time,
)
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.data.splits import (
    first_rows,
    labels_of_single_rows,
)
from bertctl.errors import UsageError
from bertctl.progress import Listener
from bertctl.words import command, count, listing, unknown


class SplitSource(abc.ABC):
    """Source of splits.

    Attributes:
        dataset: row of the catalog, or None.
        columns: canonical name -> name in the file.
        labels: label names in the order that the data says; None where it says none.
        unlimited_train: all training rows, if `data.first_train_rows` has cut some off; else None.
        has_validation: whether there are validation rows; else training rows are held out.
        _why_held_out: Why training rows are held out, as the beginning of the message about it.
        _way_out: What to set so that none are held out, as the end of that message.
    """

    dataset: DatasetRow | None = None
    labels: tuple[str, ...] | None = None
    unlimited_train: Rows | None = None
    has_validation: bool
    _why_held_out: str
    _way_out = ""

    def __init__(self, recipe: Recipe, listener: Listener) -> None:
        self._recipe = recipe
        self._listener = listener
        self.columns: Mapping[str, str] = {}

    def resolved_recipe(self) -> Recipe:
        """Returns the recipe with what the files have shown of their labels."""
        return self._recipe

    @abc.abstractmethod
    def require(self, split: str) -> None:
        """Refuses a split that this source can't have."""

    @abc.abstractmethod
    def validation_splits(self, *, optional_too: bool) -> tuple[str, ...]:
        """Returns the splits that pick the best weights.

        With `optional_too`, it also returns splits whose files do not exist.
        """

    @abc.abstractmethod
    def read_whole(self, split: str) -> Rows:
        """Returns a split with all of its rows, without hold-out."""

    def read(self, splits: Sequence[str]) -> dict[str, Rows]:
        """Returns name -> rows of these splits; validation is held out from training if it must be.

        Training and validation rows then come from one division of all training rows.
        """
        rows_by_split: dict[str, Rows] = {}
        divided: dict[str, Rows] = {}
        is_divided = "train" in splits or "validation" in splits
        if is_divided and not self.has_validation:
            divided["train"], divided["validation"] = self._hold_out(self._read_limited("train"))
        for name in splits:
            if name in divided:
                rows_by_split[name] = divided[name]
            else:
                rows_by_split[name] = self._read_limited(name)
        return rows_by_split

    def _read_limited(self, split: str) -> Rows:
        """Returns the rows of a split; of `train` only the first ones (`data.first_train_rows`)."""
        rows = self.read_whole(split)
        limit = self._recipe.data.first_train_rows
        if split != "train" or limit is None:
            return rows
        self.unlimited_train = rows
        return first_rows(rows, limit)

    def _hold_out(self, rows: Rows) -> tuple[Rows, Rows]:
        """Divides all training rows into training rows and validation rows, and reports it."""
        data = self._recipe.data
        groups = groups_of(rows, self._recipe, self.columns)
        train, validation, is_stratified = held_out_by_recipe(rows, self._recipe, groups)
        n_groups = number_of_groups(groups)
        if is_stratified:
            details = "stratified by label"
        else:
            details = "not stratified"
        possible_share = share_in_time(len(rows), self._recipe)
        if data.folds is None and possible_share < data.validation_fraction:
            details += "; no more, so that the time limit leaves time to train"
        if n_groups < len(rows):
            details += f"; {n_groups} groups of related rows, each on one side whatever its labels"
        sentence = (
            f"{len(validation)} of the {len(rows)} training rows are held out for validation (seed "
            f"{data.split_seed}, {details})"
        )
        if data.folds is None:
            self._listener.say(f"{self._why_held_out}: {sentence}{self._way_out}")
            return train, validation

        message = f"fold {data.fold} of {data.folds}: {sentence}"
        if READERS[self._recipe.task].stratify:
            single = labels_of_single_rows(rows)
            if single:
                message += (
                    f"; {count(len(single), 'label')} with a single row, which stays in training: "
                    f"{listing(single, 8)}"
                )
        self._listener.say(message)
        return train, validation


class CatalogSource(SplitSource):
    """A data set of the catalog."""

    def __init__(self, recipe: Recipe, listener: Listener) -> None:
        """Finds the data set of `data.name` in the catalog, and the folder with its files.

        Raises:
            UsageError: There is no such data set, or it is for another task.
        """
        super().__init__(recipe, listener)
        section = recipe.data
        self._row = self.dataset = find_dataset(section.name or "", section.datasets_file)
        self.labels = self._row.labels or None
        if self._row.task != recipe.task:
            message = (
                f"the data set '{self._row.name}' is for {self._row.task}, the recipe's task is "
                f"{recipe.task}"
            )
            raise UsageError(
                message,
                remedy=f"Set task: {self._row.task}, or `bertctl finetune {self._row.name}`.",
            )
        # Without training rows there is nothing to hold out for validation.
        can_hold_out = "train" in self._row.split_names
        self.has_validation = bool(self._row.validation_splits) or not can_hold_out
        self._why_held_out = f"'{self._row.name}' has no validation split"
        self._folder = self._find_folder(section.data_dir or os.environ.get("BERTCTL_DATA"))
        if self._row.bundled and section.data_dir:
            listener.say(
                f"'{self._row.name}' ships inside the package: {section.data_dir} is not looked at"
            )

    def _find_folder(self, data_dir: str | None) -> Path | None:
        """Returns the folder with the data set's files; None if its rows come from the hub.

        Args:
            data_dir: The folder that the user named, or None. It is looked at before the folder of
                the `datasets.yaml` that describes the data set.
        """
        if self._row.bundled:
            return bundled_folder(self._row)
        folders: list[Path] = []
        if data_dir:
            folders.append(expanded_path(data_dir))
        if self._row.home:
            folders.append(self._row.home)
        for folder in folders:
            if any(self._file(name, folder) for name in self._row.split_names):
                return folder
        # No file is there. A folder that was named is not replaced by the hub: the error of reading
        # it says what it lacks.
        if folders and (data_dir or self._row.hub is None):
            return folders[0]
        return None

    def _file(self, split: str, folder: Path) -> Path | None:
        """Returns the file of a split in a folder; None if it has none."""
        return catalog_files.find_split_file(self._row, self._row.split(split), folder)

    def require(self, split: str) -> None:
        """Refuses a split that the data set has not; validation rows may be held out instead."""
        if split == "train" and "train" not in self._row.split_names:
            message = f"the data set '{self._row.name}' has no training rows"
            raise UsageError(
                message, remedy=f"It is for prediction: {self._row.note or 'bertctl predict'}."
            )
        is_held_out = split == "validation" and not self.has_validation
        if not is_held_out:
            self._row.split(split)  # refuses an unknown split

    def validation_splits(self, *, optional_too: bool) -> tuple[str, ...]:
        """Returns the data set's validation splits, such as MNLI's two, that the recipe scores.

        If the recipe names no splits to score, these are all validation splits. If it names only
        other splits, it is the first validation split.

        Args:
            optional_too: Whether to return splits that have no file in the data set's folder.
                Otherwise a later split without a file is left out with a warning, unless the
                recipe names it.
        """
        splits = self._row.validation_splits
        if not splits:
            if self.has_validation:  # the data set has no training rows either
                return ()
            return ("validation",)  # to be held out
        requested = self._recipe.evaluation.splits
        if requested:
            chosen = tuple(split for split in splits if split in requested) or splits[:1]
        else:
            chosen = splits
        if optional_too or self._folder is None or not self._folder.is_dir():
            return chosen
        first_split, *later_splits = chosen
        available = [first_split]
        for name in later_splits:
            if name in requested or self._file(name, self._folder):
                available.append(name)
            else:
                self._listener.warn(
                    f"{self._folder} has no {name} file of '{self._row.name}': it is not scored"
                )
        return tuple(available)

    def read_whole(self, split: str) -> Rows:
        """Returns all rows of a split, from the data folder if there is one, else from the hub."""
        row = self._row
        split_row = self._row.split(split)
        if self._folder is not None:
            return catalog_files.read_from_folder(row, split_row, self._folder, self._listener)
        return catalog_files.read_from_hub(row, split_row, self._listener)


class OwnFiles(SplitSource):
    """A person's own files. Columns are chosen by the first file that is read, and stay."""

    _why_held_out = "no validation file"
    _way_out = "; `data.validation_file=FILE` gives one"

    def __init__(
        self,
        recipe: Recipe,
        listener: Listener,
        skipped: SkippedRows | None,
        rows_in_memory: Mapping[str, MemoryFile],
    ) -> None:
        """Takes the file of each split from the recipe, or its rows from memory.

        Raises:
            UsageError: The recipe names no data.
        """
        super().__init__(recipe, listener)
        self._skipped = skipped
        self._settings = recipe.data
        self._files: dict[str, Path | MemoryFile | None] = {
            split: expanded_path(file) if file else None
            for split, file in recipe.data.own_files.items()
        }
        self._files |= rows_in_memory
        self.has_validation = bool(self._files["validation"])
        if not any(self._files.values()):
            remedy = (
                "Name a data set (data.name) or files of your own: `data.train_file=FILE`, "
                "`data.validation_file=FILE`."
            )
            raise UsageError("no data is named", remedy=remedy)

    def require(self, split: str) -> None:
        """Refuses a split without a file; validation rows may be held out of training instead."""
        if split not in self._files:
            raise UsageError(
                unknown("split", split, self._files), remedy="Splits: train, validation, test."
            )
        can_hold_out = split == "validation" and bool(self._files["train"])
        if not self._files[split] and not can_hold_out:
            remedy = (
                f"In training: `data.{split}_file=FILE`. A run: "
                f"`{command('evaluate RUN', file='FILE')}`, "
                "`predict RUN FILE`."
            )
            raise UsageError(f"no {split} rows", remedy=remedy)

    def resolved_recipe(self) -> Recipe:
        """Returns the recipe with `data.first_choice`: whether labels count choices from 0 or 1."""
        first_choice = self._settings.first_choice
        if first_choice == self._recipe.data.first_choice:
            return self._recipe
        return self._recipe.with_fields("data", first_choice=first_choice)

    def validation_splits(self, *, optional_too: bool) -> tuple[str, ...]:  # noqa: ARG002
        """Returns `validation`, which is held out from training where it has no file."""
        return ("validation",)

    def read_whole(self, split: str) -> Rows:
        """Returns all rows of a split's file.

        The first file that is read decides which column is which; the next ones are read alike.
        """
        path = self._files[split]
        if path is None:
            raise UsageError(f"no {split} rows", remedy=f"Give data.{split}_file.")
        if isinstance(path, Path):
            check_or_record(FilesToRead("dataset", path.name, {path.name: regular(path)}))
        reader = READERS[self._recipe.task]
        reader_options = ReaderOptions(
            listener=self._listener, skipped=self._skipped, labels=label_rules(self._recipe)
        )
        is_first_file = not self.columns
        if is_first_file:
            # Some settings can only be told from all files, such as whether choices count from 0.
            files = [file for file in self._files.values() if file is not None]
            self._settings = reader.settled(self._settings, files)
        reading = reader.read(
            path,
            self._settings,
            split=split,
            label_needed=split != "test",
            **reader_options,
        )
        if is_first_file:
            self.columns = reading.columns
            self._settings = reading.settings
            self.labels = reading.class_names or None
        return reading.rows


def label_rules(recipe: Recipe, *, can_name: bool = True) -> LabelRules:
    """Returns what a recipe says of its labels.

    Args:
        recipe: Its section `text_classification` is read.
        can_name: Whether the caller can still name the labels, as no model has been trained.
    """
    section = recipe.text_classification
    return LabelRules(
        names=tuple(section.labels or ()),
        separator=section.label_separator,
        several=bool(section.multi_label),
        can_name=can_name,
    )
