"""The data a recipe names, as splits.

They come from the catalog (bundled, official files, hub) or from a person's own files.
"""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from bertctl.catalog.dataset_row import DatasetRow
from bertctl.config.schema import Recipe
from bertctl.config.task_names import PRETRAINING
from bertctl.data.corpora import held_out_rows
from bertctl.data.label_cells import label_name
from bertctl.data.packed_columns import different_values
from bertctl.data.read_options import SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.recipe_sources import CatalogSource, OwnFiles, SplitSource
from bertctl.data.recipe_splits import canonical_name, groups_of, limited, require_column
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.data.splits import (
    content_hash,
    hold_out,
    joined,
)
from bertctl.errors import UsageError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import CONFIRM
from bertctl.words import command, listing

NO_ROWS: Mapping[str, MemoryFile] = MappingProxyType({})
"""No rows in memory: all splits are read from what the recipe names."""
_MANY_LABELS = 1000
"""Number of labels above which they are texts rather than classes: a loss is not reported."""


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
        listener: receives everything that was guessed, detected, held out or left out.
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
    source: SplitSource
    if recipe.data.name:
        source = CatalogSource(recipe, listener)
    else:
        source = OwnFiles(recipe, listener, skipped, rows_in_memory)

    # If the caller names the splits, only these are read. Then other validation splits may lack
    # their files without a warning.
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
        rows_by_split, lost_labels = _read_and_sample(source, split_names, recipe, listener)

    if confirms and validation[0] in rows_by_split:
        rows = rows_by_split[validation[0]]
        rows_by_split |= _confirming(rows, recipe, source.columns, listener)
        validation = (*validation, CONFIRM)

    _require_slice_columns(rows_by_split, recipe)
    # Metrics need to know which rows belong together. Whole splits are only looked at, not scored.
    if unsplit:
        loaded_splits = rows_by_split
    else:
        loaded_splits = _with_groups(rows_by_split, recipe, source.columns)
    return LoadedData(
        splits=loaded_splits,
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


def _read_and_sample(
    source: SplitSource, split_names: Sequence[str], recipe: Recipe, listener: Listener
) -> tuple[dict[str, Rows], frozenset[str]]:
    """Reads splits, and samples those that have more rows than the recipe says.

    Returns:
        Split name -> rows, and the labels that the sample of the training rows has lost.
    """
    whole_splits = source.read(split_names)
    rows_by_split = limited(whole_splits, recipe, listener)
    has_classes = READERS[recipe.task].stratify  # the labels of such a task are classes
    if "train" not in rows_by_split or not has_classes:
        return rows_by_split, frozenset()

    # `data.first_train_rows` may have cut off training rows when they were read.
    all_train_rows = source.unlimited_train or whole_splits["train"]
    lost_labels = _lost_labels(all_train_rows, rows_by_split["train"], listener)
    return rows_by_split, lost_labels


def _require_slice_columns(rows_by_split: Mapping[str, Rows], recipe: Recipe) -> None:
    """Refuses a scored split without a column of `evaluation.slice_columns`.

    Raises:
        DataError: With the columns of the split.
    """
    for name, rows in rows_by_split.items():
        if name == "train":
            continue
        for column in recipe.evaluation.slice_columns:
            require_column(rows, column, "evaluation.slice_columns")


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


def _hashes(
    recipe: Recipe, splits: Mapping[str, Rows], source: SplitSource | None = None
) -> dict[str, str]:
    """Returns split name -> SHA-256 of its rows' values that decide the results of a run.

    A user's own files that say the order of the labels have one more hash, `labels`.

    Args:
        recipe: The recipe of the run.
        splits: Split name -> rows.
        source: What the splits were read from; None for a corpus, whose rows have no groups.
    """
    hashes = dict[str, str]()
    group_column = recipe.data.group_column
    for name, rows in splits.items():
        columns = [*READERS[recipe.task].columns]
        if source and group_column:
            columns.append(canonical_name(group_column, rows, source.columns))
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
