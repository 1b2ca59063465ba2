"""Folds of a cross-validation: which rows are held out together, and how many folds there can be.

Letters: N rows, C labels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bertctl.arrays import Array, Bools, Ints, sorted_unique
from bertctl.data.splits import with_whole_groups
from bertctl.errors import DataError
from bertctl.words import count, listing

NEVER_HELD_OUT = -1
"""Number of the fold of rows that stay in training in every fold."""


@dataclass(frozen=True)
class Folds:
    """Folds of a cross-validation.

    Attributes:
        fold_of_row: (N,) fold in which each row is held out, from 0; `NEVER_HELD_OUT` for rows that
            never are.
        number: How many folds there are.
        requested: How many were asked for.
        limit: Why there are fewer than that; empty where there are not.
        single_labels: Labels with a single row, which stays in training.
    """

    fold_of_row: Ints
    number: int
    requested: int
    limit: str = ""
    single_labels: tuple[str, ...] = ()

    @property
    def is_held_out(self) -> Bools:
        """(N,) whether a row is held out in one of the folds."""
        return np.asarray(self.fold_of_row != NEVER_HELD_OUT)

    def sentences(self) -> list[str]:
        """Returns what a person should know about these folds.

        It is nothing where they are as requested.
        """
        sentences = []
        if self.limit:
            sentences.append(
                f"cross-validation: {self.number} folds instead of {self.requested}, as "
                f"{self.limit}"
            )
        if self.single_labels:
            sentences.append(
                f"cross-validation: {count(len(self.single_labels), 'label')} with a single "
                "training row "
                f"({listing(self.single_labels, 8)}), which stays in training in every fold"
            )
        return sentences


def make_folds(
    labels: Array,
    groups: Ints | None,
    *,
    requested: int,
    seed: int,
    stratify: bool,
    label_names: Sequence[str] = (),
) -> Folds:
    """Returns folds of rows: as many as requested, or fewer if labels or groups allow no more.

    With `stratify`, there are at most as many folds as the rarest label has rows. A label with a
    single row does not count here: its row stays in training in every fold.

    Args:
        labels: (N,), or (N, C) for several labels.
        groups: (N,) number of each row's group, ascending. The rows of a group are held out
            together, such as the words of a sentence. None if each row is a group.
        requested: How many folds there should be.
        seed: Seed of the shuffling.
        stratify: Whether each fold has its share of each label.
        label_names: Names of the labels, for messages.

    Raises:
        DataError: Fewer than two rows (or groups) can be held out.
    """
    if groups is None:
        group_of_row = np.arange(len(labels))
    else:
        group_of_row = np.unique(groups, return_inverse=True)[1]
    can_be_held_out = np.ones(len(labels), dtype=bool)
    rarest = ""
    rarest_count = len(labels)
    single_labels: tuple[str, ...] = ()
    if stratify:
        values, counts = np.unique(labels, return_counts=True)
        single_labels = tuple(_label_name(value, label_names) for value in values[counts == 1])
        can_be_held_out = _rows_to_hold_out(labels, group_of_row)
        values, counts = np.unique(labels[can_be_held_out], return_counts=True)
        if len(counts):
            rarest_count = int(counts.min())
            rarest = _label_name(values[counts.argmin()], label_names)

    n_groups = len(sorted_unique(group_of_row[can_be_held_out]))
    if n_groups < 2:
        raise DataError(
            "cross-validation holds out rows of labels that have others, at least 2, and "
            f"{n_groups} of the "
            f"{count(len(labels), 'training row')} can be held out",
            remedy="Give more rows of each label.",
        )
    n_folds = min(requested, rarest_count, n_groups)
    limit = ""
    if n_folds < requested:
        limit = f"the label {rarest!r} has {count(rarest_count, 'training row')}"
        if n_groups < rarest_count:
            limit = f"there are {n_groups} training rows, or groups of rows that stay together"

    fold_of_row = np.full(len(labels), NEVER_HELD_OUT, dtype=np.int64)
    fold_of_row[can_be_held_out] = _drawn_folds(
        labels[can_be_held_out],
        group_of_row[can_be_held_out],
        n_folds,
        seed=seed,
        stratify=stratify,
    )
    return Folds(
        fold_of_row,
        n_folds,
        requested=requested,
        limit=limit,
        single_labels=single_labels,
    )


def _label_name(number: int, names: Sequence[str]) -> str:
    """Returns the name of a label; its number if labels have no names."""
    if names:
        return names[int(number)]
    return str(number)


def _drawn_folds(
    labels: Array, group_of_row: Ints, n_folds: int, *, seed: int, stratify: bool
) -> Ints:
    """Returns the fold that holds out each row, drawn at random; groups stay whole.

    Args:
        labels: (N,) labels of the rows, or (N, C).
        group_of_row: (N,) number of each row's group.
        n_folds: How many folds there are.
        seed: Seed of the shuffling.
        stratify: Whether each fold has its share of each label, as far as groups allow.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    shuffled = {"n_splits": n_folds, "shuffle": True, "random_state": seed}
    if stratify:
        pairs = StratifiedKFold(**shuffled).split(np.zeros(len(labels)), labels)
        stratified = _with_whole_groups(_fold_numbers(pairs, len(labels)), group_of_row, n_folds)
        # With whole groups, stratified folds may differ too much in size.
        if stratified is not None:
            return stratified

    group_numbers, group_of_row = np.unique(group_of_row, return_inverse=True)
    n_groups = len(group_numbers)
    fold_of_group = _fold_numbers(KFold(**shuffled).split(np.arange(n_groups)), n_groups)
    return fold_of_group[group_of_row]


def _rows_to_hold_out(labels: Ints, group_of_row: Ints) -> Bools:
    """Returns (N,) whether a row may be held out.

    A row may not if it is the only one with its label that may. Then no row of its group may, as
    the rows of a group are held out together.

    Args:
        labels: (N,) labels.
        group_of_row: (N,) number of each row's group.
    """
    may_be_held_out = np.ones(len(labels), dtype=bool)
    while True:
        values, counts = np.unique(labels[may_be_held_out], return_counts=True)
        is_single = may_be_held_out & np.isin(labels, values[counts == 1])
        if not is_single.any():
            return may_be_held_out
        may_be_held_out &= ~np.isin(group_of_row, group_of_row[is_single])


def _with_whole_groups(fold_of_row: Ints, group_of_row: Ints, n_folds: int) -> Ints | None:
    """Returns the fold of each row with all rows of a group in one fold.

    None if the folds would then differ too much in size.

    Args:
        fold_of_row: (N,) number of each row's fold.
        group_of_row: (N,) number of each row's group.
        n_folds: How many folds there are.
    """
    order = np.argsort(group_of_row, kind="stable")
    sizes = np.bincount(np.unique(group_of_row, return_inverse=True)[1])
    members = np.split(order, np.cumsum(sizes)[:-1])
    target_sizes = [len(fold_of_row) / n_folds] * n_folds
    return with_whole_groups(fold_of_row, [group.tolist() for group in members], target_sizes)


def _fold_numbers(folds: Iterable[tuple[Ints, Ints]], n: int) -> Ints:
    """Returns (n,) the fold that holds out each row, from scikit-learn's pairs of indices."""
    fold_numbers = np.empty(n, dtype=np.int64)
    for fold, (_, held_out) in enumerate(folds):
        fold_numbers[held_out] = fold
    return fold_numbers
