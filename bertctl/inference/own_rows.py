"""Whether the rows of a run's own data are still those that the run was made of."""

from collections.abc import Sequence

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import LoadedData, load_data
from bertctl.errors import DataError
from bertctl.run_folder import RunFolder
from bertctl.words import command

_LIMITS = ("max_eval_rows", "max_train_rows", "train_rows_per_label", "first_train_rows")
"""Fields of `data` by which a split is a part of its file."""


def refuse_changed_rows(
    folder: RunFolder,
    recipe: Recipe,
    named_fields: Sequence[str],
    data: LoadedData,
    *,
    used: Sequence[str],
) -> None:
    """Refuses splits whose rows are not those that a run was trained and scored with.

    If a validation split was drawn from the training file and this file has changed, the split is
    drawn again, and rows that the run was trained on get into it.

    Args:
        folder: The run.
        recipe: The run's, with what the caller changed.
        named_fields: Fields that the caller named.
        data: The splits as they were read now.
        used: Names of the splits that are scored or answered. Other splits may have changed, such
            as a training file that has grown.

    Raises:
        DataError: The rows, or columns of them that metrics are sliced by, have changed.
    """
    if not folder.environment.exists() or not folder.recipe.exists():
        return
    recorded = load_recipe(str(folder.recipe))
    if recorded.data.name != recipe.data.name:  # the caller chose another data set
        return
    environment = folder.read_environment()
    hashes = environment.data_hashes
    slice_hashes = environment.slice_hashes
    is_sliced_alike = recipe.evaluation.slice_columns == recorded.evaluation.slice_columns
    has_same_slices = is_sliced_alike and recipe.data == recorded.data

    for split in used:
        rows = data.splits[split]
        has_hash = split in hashes  # recorded in training
        if has_hash and hashes[split] not in _hashes_as_then(recipe, recorded, data, split):
            _refuse(folder, split, rows.source, "rows")
        is_comparable = split in slice_hashes and has_same_slices
        if is_comparable and slice_hashes[split] != data.slice_hashes[split]:
            columns = ", ".join(recorded.evaluation.slice_columns)
            _refuse(folder, split, rows.source, f"columns {columns}")
        # A split that `evaluate` scored after the training has its hash in metrics.json.
        if not has_hash and f"data.{split}_file" not in named_fields:
            _compare_with_scored(folder, recipe, data, split)
    if "labels" in hashes and hashes["labels"] != data.hashes.get("labels"):
        _refuse(folder, "the data set", str(recipe.data.datasets_file), "labels")


def _hashes_as_then(recipe: Recipe, recorded: Recipe, data: LoadedData, split: str) -> set[str]:
    """Returns hashes of a split as it is today; a run has recorded one of them if nothing changed.

    Rows are hashed under the limits on rows of the run's own recipe, whatever limits the caller has
    named. If the limits differ, the split is read again for that.

    Args:
        recipe: The run's, with what the caller changed.
        recorded: The run's, as it is in its folder.
        data: The splits as they were read now.
        split: Name of the split.
    """
    current = {limit: getattr(recipe.data, limit) for limit in _LIMITS}
    before = {limit: getattr(recorded.data, limit) for limit in _LIMITS}
    if current == before:
        digests = {data.hashes[split]}
    else:
        limited_as_then = recipe.with_fields("data", **before)
        digests = {load_data(limited_as_then, splits=[split]).hashes[split]}
    # Few-shot runs record the hash of the whole file.
    if split == "train" and before["train_rows_per_label"] is not None:
        all_rows = recipe.with_fields("data", **{**before, "train_rows_per_label": None})
        digests.add(load_data(all_rows, splits=[split]).hashes[split])
    return digests


def _compare_with_scored(folder: RunFolder, recipe: Recipe, data: LoadedData, split: str) -> None:
    """Refuses a split that the run was scored on after its training, with other rows."""
    if not folder.metrics.exists() or recipe.data.max_eval_rows is not None:
        return
    scored = folder.read_metrics().data.get(split)
    if scored is None or scored.sha256 is None or scored.max_eval_rows is not None:
        return
    if scored.sha256 != data.hashes[split]:
        _refuse(folder, split, data.splits[split].source, "rows")


def _refuse(folder: RunFolder, split: str, source: str, changed: str) -> None:
    """Refuses a split that has changed since the run was made.

    Args:
        folder: The run.
        split: The split.
        source: Its file.
        changed: What of it has changed: its rows, labels or columns.

    Raises:
        DataError: Always.
    """
    raise DataError(
        f"the {changed} of {split} ({source}) are not those that the run in {folder.path} was made "
        "with: the file has changed since",
        remedy="Give the same file again. To score or answer other rows, name them as a file: "
        f"{command('evaluate', folder.path, file='FILE', output='NEW')}, "
        f"{command('predict', folder.path, 'FILE')}.",
    )
