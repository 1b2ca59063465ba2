"""The data a recipe names, as splits.

They come from the catalog (bundled, official files, hub) or from a person's own files.
"""

import abc
import hashlib
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from bertctl.catalog.dataset_row import DatasetRow
from bertctl.catalog.datasets import bundled_folder, find_dataset
from bertctl.catalog.lock import FilesToRead, check_or_record
from bertctl.config.recipe_files import expanded_path
from bertctl.config.schema import Recipe
from bertctl.config.task_names import PRETRAINING
from bertctl.data import catalog_files
from bertctl.data.columns import beside_canonical
from bertctl.data.corpora import held_out_rows
from bertctl.data.groups import group_keys, number_of_groups
from bertctl.data.label_cells import LabelRules, label_name
from bertctl.data.packed_columns import different_values
from bertctl.data.pipes import regular
from bertctl.data.read_options import ReaderOptions, SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.data.splits import (
    content_hash,
    first_rows,
    hold_out,
    hold_out_fold,
    joined,
    labels_of_single_rows,
    labels_with_fewer_rows,
    sample,
    sample_of_labels,
)
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import CONFIRM
from bertctl.words import command, count, listing, seconds_in, shorten, unknown

NO_ROWS: Mapping[str, MemoryFile] = MappingProxyType({})
"""No rows in memory: all splits are read from what the recipe names."""

_HELD_OUT_PER_SECOND = 10
"""Rows held out at most for each second of a time limit: to score more of them would leave too
little of it for training."""
_FEWEST_WITH_LIMIT = 200
"""Rows that may be held out however short the time limit is."""

_SHOWN_LABELS = 8
"""Labels that a message names one by one."""

_MANY_LABELS = 1000
"""Labels above which they are texts rather than classes, and none is said to be lost."""


@dataclass(frozen=True)
class LoadedData:
    """What `load_data` read.

    Attributes:
        splits: split name -> rows.
        validation_splits: the splits that pick the best weights and are scored at the end; the
            first one decides.
        hashes: split name -> SHA-256 of its canonical columns' values; no path, no date.
        recipe: that named the data, with what the files have shown of their labels
            (`data.first_choice`).
        labels: label names in the order of the data set, or of the features in a file that
            `datasets` wrote; None where nothing names them.
        lost_labels: labels that training rows have, and their sample (`data.max_train_rows`) not.
        dataset: catalog row, or None for a person's own files.
        columns: canonical name -> name in the file, as given or guessed (own files only).
        slice_hashes: split name -> SHA-256 of the columns that its metrics are sliced by, where the
            recipe names some.
        rows_in_memory: split name -> the bytes of rows that no file on a disk has. A run keeps
            them.
    """

    splits: Mapping[str, Rows]
    validation_splits: tuple[str, ...]
    hashes: Mapping[str, str]
    recipe: Recipe
    labels: tuple[str, ...] | None = None
    dataset: DatasetRow | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    lost_labels: frozenset[str] = frozenset()
    slice_hashes: Mapping[str, str] = field(default_factory=dict)
    rows_in_memory: Mapping[str, MemoryFile] = field(default_factory=dict)

    def groups_of(self, *splits: str) -> Sequence[Hashable]:
        """Returns one key per row of these splits (`data.group_column`).

        Rows that belong together have the same key.
        """
        return groups_of(
            joined([self.splits[split] for split in splits]), self.recipe, self.columns
        )


def load_data(
    recipe: Recipe,
    *,
    listener: Listener = SILENT,
    splits: Sequence[str] | None = None,
    unsplit: bool = False,
    skipped: SkippedRows | None = None,
    rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
) -> LoadedData:
    """Reads the rows that a recipe names.

    Args:
        recipe: its sections `data` and `evaluation`, its task and its seed are read.
        listener: told of everything that was guessed, detected, held out or left out.
        splits: which splits; None is training, validation and those in `recipe.evaluation.splits`.
            `test` is read only where it is named. `validation` works without a validation file too:
            it is held out from training.
        unsplit: read every row of each split: nothing is held out, sampled or cut off.
        skipped: gets the rows of own files that can't be read.
        rows_in_memory: split name -> rows that are read in place of the recipe's file.

    Raises:
        UsageError: unknown data set or split, no data named, columns that can't be guessed.
        DataError: rows, columns or bytes that are not what they should be, with file and line.
        UnavailableError: files that are not there, a hub out of reach.
    """
    if recipe.task == PRETRAINING:
        return _held_out(recipe, splits or ("validation",), listener)
    source: _Source
    if recipe.data.name:
        source = _CatalogSource(recipe, listener)
    else:
        source = _OwnFiles(recipe, listener, skipped, rows_in_memory)

    # If the caller names the splits, validation splits are only names: it does not matter whether
    # they have files.
    validation = source.validation_splits(optional_too=splits is not None)
    has_confirm_rows = recipe.data.confirm_fraction is not None and bool(validation)
    confirms = has_confirm_rows and not unsplit
    split_names = list(recipe.evaluation.splits if splits is None else splits)
    if confirms:
        # The split `confirm` has no file: it is cut out of the first validation split below.
        split_names = [validation[0] if name == CONFIRM else name for name in split_names]
    for name in split_names:
        source.require(name)
    if splits is None:
        source.require("train")
        split_names = list(dict.fromkeys(["train", *validation, *split_names]))

    lost_labels: frozenset[str] = frozenset()
    if unsplit:
        rows_by_split = {name: source.read_whole(name) for name in split_names}
    else:
        whole_splits = source.read(split_names)
        rows_by_split = limited(whole_splits, recipe, listener)
        if "train" in rows_by_split and READERS[recipe.task].stratify:
            all_train_rows = source.unlimited_train or whole_splits["train"]
            lost_labels = _lost_labels(all_train_rows, rows_by_split["train"], listener)

    if confirms and validation[0] in rows_by_split:
        rows = rows_by_split[validation[0]]
        rows_by_split |= _confirming(rows, recipe, source.columns, listener)
        validation = (*validation, CONFIRM)

    for name, rows in rows_by_split.items():
        if name == "train":
            continue
        for column in recipe.evaluation.slice_columns:
            _require_column(rows, column, "evaluation.slice_columns")
    if unsplit:
        splits_with_groups = rows_by_split
    else:
        splits_with_groups = _with_groups(rows_by_split, recipe, source.columns)
    return LoadedData(
        splits=splits_with_groups,
        labels=source.labels,
        dataset=source.dataset,
        validation_splits=validation,
        columns=source.columns,
        hashes=_hashes(recipe, rows_by_split, source),
        recipe=source.resolved_recipe(),
        lost_labels=lost_labels,
        slice_hashes=_slice_hashes(recipe, rows_by_split),
        rows_in_memory=rows_in_memory,
    )


def _with_groups(
    rows_by_split: Mapping[str, Rows], recipe: Recipe, columns: Mapping[str, str]
) -> dict[str, Rows]:
    """Returns splits whose rows know which of them belong together, as metrics need it.

    Training rows, which are not scored, stay as they are.
    """
    with_groups = dict(rows_by_split)
    for name, rows in rows_by_split.items():
        if name != "train":
            with_groups[name] = replace(rows, groups=groups_of(rows, recipe, columns))
    return with_groups


def _lost_labels(all_rows: Rows, sampled: Rows, listener: Listener) -> frozenset[str]:
    """Returns the labels that a sample of the training rows has lost, and warns of them."""
    if len(sampled) == len(all_rows) or not (all_rows.has("label") and sampled.has("label")):
        return frozenset()
    known = _label_names(all_rows)
    lost = known - _label_names(sampled)
    if lost and len(known) <= _MANY_LABELS:
        names = listing(sorted(lost))
        listener.warn(
            f"train: the sample of {len(sampled)} of {len(all_rows)} rows has no row with the "
            f"label {names}"
        )
    return frozenset(lost)


def _label_names(rows: Rows) -> set[str]:
    """Returns the names of all labels of the rows, which may have several each."""
    names: set[str] = set()
    for label in different_values(rows.columns["label"]):
        labels_of_row = label if isinstance(label, list) else [label]
        names.update(map(label_name, labels_of_row))
    return names


def _held_out(recipe: Recipe, splits: Sequence[str], listener: Listener) -> LoadedData:
    """Returns the validation split of a pretrained run; its corpus has no other split.

    Raises:
        UsageError: Another split is named.
    """
    if tuple(splits) != ("validation",):
        message = f"a corpus has no split '{splits[0]}'"
        raise UsageError(message, remedy=f"Give a file: {command('evaluate RUN', file='FILE')}.")
    rows = {"validation": held_out_rows(recipe, listener)}
    return LoadedData(rows, ("validation",), _hashes(recipe, rows), recipe)


def _confirming(
    rows: Rows, recipe: Recipe, columns: Mapping[str, str], listener: Listener
) -> dict[str, Rows]:
    """Returns validation rows as two splits: one chooses the epoch, the other confirms its scores.

    `{"validation": ..., "confirm": ...}`, divided by `data.confirm_fraction`.
    """
    chooses, confirms, _ = hold_out(
        rows,
        fraction=recipe.data.confirm_fraction or 0.0,
        seed=recipe.data.split_seed,
        stratify=READERS[recipe.task].stratify,
        groups=groups_of(rows, recipe, columns),
    )
    listener.say(
        f"{rows.split}: {len(confirms)} of {len(rows)} rows choose nothing and are scored as "
        f"'{CONFIRM}'"
    )
    return {
        rows.split: replace(chooses, split=rows.split),
        CONFIRM: replace(confirms, split=CONFIRM),
    }


def groups_of(
    rows: Rows, recipe: Recipe, columns: Mapping[str, str], *, required: bool = True
) -> Sequence[Hashable]:
    """Returns one key per row, the same for rows that belong together, such as those of one author.

    Args:
        rows: A split, or a user's own file.
        recipe: `data.group_column` names the column with the keys. Without it the task knows which
            rows belong together, such as the questions about one context.
        columns: Canonical name -> name in the file.
        required: Whether rows without that column are refused. Otherwise they get the task's keys.

    Raises:
        DataError: The rows lack `data.group_column`.
    """
    group_column = recipe.data.group_column
    if group_column is None:
        return READERS[recipe.task].groups(rows)
    canonical = _canonical(group_column, rows, columns)
    if not (required or rows.has(canonical)):
        return READERS[recipe.task].groups(rows)
    _require_column(rows, canonical, "data.group_column")
    return group_keys(rows, (canonical,))


def held_out_by_recipe(
    rows: Rows, recipe: Recipe, groups: Sequence[Hashable]
) -> tuple[Rows, Rows, bool]:
    """Divides training rows as the recipe says: into training rows and validation rows.

    The third value is whether both have nearly the same shares of the labels.

    Args:
        rows: The training rows.
        recipe: `data.fold` of `data.folds` is held out, or else `data.validation_fraction`, or less
            if the time limit is short.
        groups: (N,) keys. Rows with the same key stay together.

    Raises:
        DataError: Too few rows.
    """
    data = recipe.data
    stratify = READERS[recipe.task].stratify
    if data.folds is not None and data.fold is not None:
        return hold_out_fold(
            rows,
            folds=data.folds,
            fold=data.fold,
            seed=data.split_seed,
            stratify=stratify,
            groups=groups,
        )
    return hold_out(
        rows,
        fraction=min(data.validation_fraction, _share_in_time(len(rows), recipe)),
        seed=data.split_seed,
        stratify=stratify,
        groups=groups,
    )


def _share_in_time(n_rows: int, recipe: Recipe) -> float:
    """Returns the share of the rows that can be held out within the time limit of a recipe."""
    limit = recipe.training.time_limit
    if limit is None:
        return 1.0
    n_rows_in_time = max(_FEWEST_WITH_LIMIT, round(_HELD_OUT_PER_SECOND * seconds_in(limit)))
    return n_rows_in_time / max(1, n_rows)


def limited(splits: Mapping[str, Rows], recipe: Recipe, listener: Listener) -> dict[str, Rows]:
    """Returns a sample of the splits that have more rows than the recipe says."""
    limited_splits = dict(splits)
    seed = recipe.data.split_seed
    rows_per_label = recipe.data.train_rows_per_label
    if rows_per_label is not None and "train" in splits:
        limited_splits["train"] = sample_of_labels(splits["train"], rows_per_label, seed=seed)
        listener.say(
            f"train: {len(limited_splits['train'])} of {len(splits['train'])} rows, "
            f"{rows_per_label} of each label (seed {seed})"
        )
        warn_of_rare_labels(splits["train"], rows_per_label, listener)
    for name, rows in list(limited_splits.items()):
        if name == "train":
            limit = recipe.data.max_train_rows
        else:
            limit = recipe.data.max_eval_rows
        if limit is not None and len(rows) > limit:
            limited_splits[name] = sample(rows, limit, seed=seed)
            listener.say(f"{name}: {limit} of {len(rows)} rows (a sample, seed {seed})")
    return limited_splits


def warn_of_rare_labels(train: Rows, rows_per_label: int, listener: Listener) -> None:
    """Warns of labels with fewer rows than are to be drawn of each: all of theirs are taken."""
    rare = labels_with_fewer_rows(train, rows_per_label)
    if not rare:
        return
    counted = [f"'{label}' has {number}" for label, number in rare.items()]
    if len(counted) > _SHOWN_LABELS:
        counted = [*counted[:_SHOWN_LABELS], f"... ({len(rare)} labels in all)"]
    listener.warn(
        f"labels with fewer than {rows_per_label} training rows, all of them taken: "
        f"{', '.join(counted)}"
    )


def _canonical(column: str, rows: Rows, columns: Mapping[str, str]) -> str:
    """Returns the name that a column of a file has in the rows.

    If the column `stem` is read as the context, it is `context`. A column `label` that is not read
    as the label is `file_label`. Others keep their name.

    Args:
        column: Name in the file.
        rows: Of the file.
        columns: Canonical name -> name in the file.
    """
    canonical_names = {name: role for role, name in columns.items()}
    if column in canonical_names:
        return canonical_names[column]
    renamed = beside_canonical(column)
    return renamed if rows.has(renamed) else column


def _hashes(
    recipe: Recipe, splits: Mapping[str, Rows], source: "_Source | None" = None
) -> dict[str, str]:
    """Returns split name -> SHA-256 of its rows' values that decide the results of a run.

    A user's own files that say the order of the labels have one more hash, `labels`.
    """
    hashes = dict[str, str]()
    group_column = recipe.data.group_column
    for name, rows in splits.items():
        columns = [*READERS[recipe.task].columns]
        if source and group_column:
            columns.append(_canonical(group_column, rows, source.columns))
        hashes[name] = content_hash(rows, columns)
    if source is None or not source.labels:
        return hashes

    # The labels of the built-in data sets are in the catalog, and always the same.
    is_built_in = source.dataset is not None and source.dataset.home is None
    if not is_built_in:
        hashes["labels"] = hashlib.sha256("\n".join(source.labels).encode()).hexdigest()
    return hashes


def _slice_hashes(recipe: Recipe, splits: Mapping[str, Rows]) -> dict[str, str]:
    """Returns a hash of the columns that the metrics of each scored split are sliced by."""
    columns = recipe.evaluation.slice_columns
    scored = {name: rows for name, rows in splits.items() if name != "train"}
    if columns:
        return {name: content_hash(rows, columns) for name, rows in scored.items()}
    return {}


class _Source(abc.ABC):
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

        With `optional_too` also those whose files do not exist.
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
        share_in_time = _share_in_time(len(rows), self._recipe)
        if data.folds is None and share_in_time < data.validation_fraction:
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


class _CatalogSource(_Source):
    """A data set of the catalog."""

    def __init__(self, recipe: Recipe, listener: Listener) -> None:
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
            data_dir: The folder that was named, or None. It comes before that of the
                `datasets.yaml` that describes the data set.
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


class _OwnFiles(_Source):
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


def _require_column(rows: Rows, column: str, field: str) -> None:
    """Refuses rows without a column that a field of the recipe names.

    Raises:
        DataError: With the columns there are.
    """
    if not rows.has(column):
        message = f"{field}: in {rows.source} {unknown('column', column, rows.columns)}"
        raise DataError(message, remedy=f"Columns there: {shorten(', '.join(rows.columns), 600)}.")
