"""Rows of a split, divided and cut as a recipe says.

Training rows are held out for validation, large splits are sampled, and rows that belong together
stay together.
"""

from collections.abc import Hashable, Mapping, Sequence

from bertctl.config.schema import Recipe
from bertctl.data.columns import beside_canonical
from bertctl.data.groups import group_keys
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.data.splits import (
    hold_out,
    hold_out_fold,
    labels_with_fewer_rows,
    sample,
    sample_of_labels,
)
from bertctl.errors import DataError
from bertctl.progress import Listener
from bertctl.words import seconds_in, shorten, unknown

_HELD_OUT_PER_SECOND = 10
"""Rows held out at most for each second of a time limit: to score more of them would leave too
little of it for training."""
_FEWEST_WITH_LIMIT = 200
"""Rows that may be held out however short the time limit is."""
_SHOWN_LABELS = 8
"""Labels that a message names one by one."""


def groups_of(
    rows: Rows, recipe: Recipe, columns: Mapping[str, str], *, required: bool = True
) -> Sequence[Hashable]:
    """Returns one key per row. Rows that belong together, such as an author's, have the same key.

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
    canonical = canonical_name(group_column, rows, columns)
    if not (required or rows.has(canonical)):
        return READERS[recipe.task].groups(rows)
    require_column(rows, canonical, "data.group_column")
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
        fraction=min(data.validation_fraction, share_in_time(len(rows), recipe)),
        seed=data.split_seed,
        stratify=stratify,
        groups=groups,
    )


def share_in_time(n_rows: int, recipe: Recipe) -> float:
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
    """Warns of labels with fewer than `rows_per_label` rows: all of their rows are taken."""
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


def canonical_name(column: str, rows: Rows, columns: Mapping[str, str]) -> str:
    """Returns the name that a column of a file has in the rows.

    If the column `stem` is read as the context, it is `context`. A column `label` that is not read
    as the label is `file_label`. Others keep their name.

    Args:
        column: Name in the file.
        rows: Rows of the file.
        columns: Canonical name -> name in the file.
    """
    canonical_names = {name: role for role, name in columns.items()}
    if column in canonical_names:
        return canonical_names[column]
    renamed = beside_canonical(column)
    return renamed if rows.has(renamed) else column


def require_column(rows: Rows, column: str, field: str) -> None:
    """Refuses rows without a column that a field of the recipe names.

    Raises:
        DataError: With the columns there are.
    """
    if not rows.has(column):
        message = f"{field}: in {rows.source} {unknown('column', column, rows.columns)}"
        raise DataError(message, remedy=f"Columns there: {shorten(', '.join(rows.columns), 600)}.")
