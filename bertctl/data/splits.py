"""Parts of a split, fixed by the seed, and what a split's content hashes to.

A part is a hold-out, a sample, or the first rows.
"""

import hashlib
import itertools
import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertctl.arrays import Bools, Ints, numbers_of, starts_of
from bertctl.data.packed_columns import (
    CodedValues,
    codes_of,
    column_of,
    int_column,
    mapped_values,
    numbered_ids,
)
from bertctl.data.rows import Rows, joined_columns
from bertctl.data.table import in_chunks
from bertctl.errors import DataError

_IN_NO_FOLD = -1
"""Number of the side of rows that stay in training in every fold."""

_HASHED_ROWS = 8192
"""Values that are hashed at once."""

# So that draws from one seed do not depend on each other.
_HOLD_OUT_STREAM = 1
_SAMPLE_STREAM = 2
_FOLD_STREAM = 3
_LABEL_STREAM = 4


def hold_out(
    rows: Rows,
    *,
    fraction: float,
    seed: int,
    stratify: bool,
    groups: Sequence[Hashable] | None = None,
) -> tuple[Rows, Rows, bool]:
    """Divides training rows in two, each in file order.

    Args:
        rows: the training rows.
        fraction: share of the rows that is held out, rounded; at least one row. Whole groups may
            miss it a little.
        seed: decides which rows.
        stratify: whether each label gives its share. A label keeps at least one row in training.
        groups: (N,) keys; rows with the same key stay on one side. None: each row is by itself.

    Returns:
        What is left for training, what is held out (called `validation`), and whether it was
        stratified: labels that can't be counted (lists) or that are nearly all different can't be.

    Raises:
        DataError: fewer than two rows.
    """
    n = len(rows)
    if n < 2:
        message = f"{rows.source} has {n} row, and none can be held out for validation"
        raise DataError(
            message, remedy="Give more rows, or a validation file with `data.validation_file=`."
        )
    rng = np.random.default_rng([seed, _HOLD_OUT_STREAM])
    n_held_out = min(max(1, round(n * fraction)), n - 1)
    related = _Groups.of(range(n) if groups is None else groups)
    sides = None  # (N,) 1 for rows that are held out
    if stratify:
        sides = _stratified_sides(rows, related, n_held_out, rng)
    is_stratified = sides is not None
    if sides is None:
        sides = np.zeros(n, dtype=int)
        sides[_whole_groups(related, n_held_out, rng)] = 1
    return *_two_parts(rows, sides == 1), is_stratified


def _stratified_sides(
    rows: Rows, related: "_Groups", n_held_out: int, rng: np.random.Generator
) -> Ints | None:
    """Returns (N,) 1 for each row that is held out, 0 for the others; None if it is impossible.

    Args:
        rows: The training rows.
        related: Groups of rows that stay on one side.
        n_held_out: How many rows are held out, about their share of each label.
        rng: Draws them.
    """
    rows_by_label = _groups_of_labels(rows)
    if rows_by_label is None:
        return None
    drawn = _stratified(rows_by_label, n_held_out, rng)
    if drawn is None:
        return None

    drawn_sides = np.zeros(len(rows), dtype=int)
    drawn_sides[drawn] = 1
    divided_groups = related.on_several_sides(drawn_sides)
    target_sizes = [len(rows) - n_held_out, n_held_out]
    sides = with_whole_groups(drawn_sides, divided_groups, target_sizes)
    if sides is None:
        return None

    # Moving whole groups may have taken the last training row of a label. Then the first group with
    # the label goes back into training.
    lost_labels = [
        label for label in range(len(rows_by_label)) if sides[rows_by_label[label]].all()
    ]
    for label in lost_labels:
        sides[related.first_with(rows_by_label[label])] = 0
    if not sides.any():  # each group that was held out had a label of its own
        return None
    return sides


def hold_out_fold(
    rows: Rows,
    *,
    folds: int,
    fold: int,
    seed: int,
    stratify: bool,
    groups: Sequence[Hashable] | None = None,
) -> tuple[Rows, Rows, bool]:
    """Divides training rows in two, each in file order: one of K folds, and the rest.

    Each row is in one fold only. A label with a single row keeps it in training in every fold, with
    the rows of its group.

    Args:
        rows: the training rows.
        folds: K, how many there are.
        fold: which one is held out, from 1.
        seed: decides which rows go together.
        stratify: whether each fold gets its share of each label, as near as whole rows allow.
        groups: (N,) keys; rows with the same key stay in one part. None: each row is by itself.

    Returns:
        What is left for training, what is held out (called `validation`), and whether it was
        stratified.

    Raises:
        DataError: fewer rows (or groups) than folds.
    """
    n = len(rows)
    rng = np.random.default_rng([seed, _FOLD_STREAM])
    related = _Groups.of(range(n) if groups is None else groups)
    if len(related) < folds:
        raise DataError(
            f"{rows.source}: {n} rows, {len(related)} groups of rows that stay together, can't be "
            f"cut into {folds} folds",
            remedy="Take fewer folds, or give more rows.",
        )
    fold_of_row = None
    rows_by_label = _groups_of_labels(rows) if stratify else None
    if rows_by_label is not None and not _are_nearly_all_different(rows_by_label, n):
        fold_of_row = _stratified_folds(rows_by_label, related, folds, rng)
    is_stratified = fold_of_row is not None
    if fold_of_row is None:
        # Groups in random order are dealt out to the folds in turn.
        fold_of_group = np.empty(len(related), dtype=int)
        fold_of_group[rng.permutation(len(related))] = np.arange(len(related)) % folds
        fold_of_row = np.empty(n, dtype=int)
        fold_of_row[related.order] = np.repeat(fold_of_group, related.sizes)
    return *_two_parts(rows, fold_of_row == fold - 1), is_stratified


def _stratified_folds(
    rows_by_label: "_Groups", related: "_Groups", folds: int, rng: np.random.Generator
) -> Ints | None:
    """Returns (N,) the fold of each row, from 0; None if whole groups make it impossible.

    The single row of a label is in no fold, so it is always in training, with all related rows.

    Args:
        rows_by_label: The rows of each label.
        related: Groups of rows that stay together.
        folds: How many there are.
        rng: Draws the rows of each label.
    """
    n = len(rows_by_label.order)
    n_labels = len(rows_by_label)
    sizes = rows_by_label.sizes
    # The rows of one label after the other are dealt out like cards, to fold 0, 1, 2, 0, 1, ... So
    # each fold gets its share of each label, and the folds differ by one row at most.
    drawn = [rows_by_label[label][rng.permutation(sizes[label])] for label in range(n_labels)]
    dealt = np.empty(n, dtype=int)
    dealt[np.concatenate(drawn)] = np.arange(n) % folds

    groups_in_several_folds = related.on_several_sides(dealt)
    rows_per_fold = [n / folds] * folds
    fold_of_row = with_whole_groups(dealt, groups_in_several_folds, rows_per_fold)
    if fold_of_row is None:
        return None

    single_rows = {int(rows_by_label[label][0]) for label in range(n_labels) if sizes[label] == 1}
    if single_rows:
        for positions in related.parts():
            if not single_rows.isdisjoint(positions.tolist()):
                fold_of_row[positions] = _IN_NO_FOLD
    return fold_of_row


def _are_nearly_all_different(rows_by_label: "_Groups", n_rows: int) -> bool:
    """Returns whether labels have fewer than two rows on average, and so are no classes."""
    return 2 * len(rows_by_label) > n_rows


def most_folds(rows: Rows, groups: Sequence[Hashable] | None = None) -> int:
    """Returns the largest number of folds: the number of groups, or of rows without groups."""
    if groups is None:
        return len(rows)
    return len(set(groups))


def labels_of_single_rows(rows: Rows) -> list[str]:
    """Returns the labels that a single row has.

    It is empty if labels can't be counted, or are nearly all different.
    """
    rows_by_label = _groups_of_labels(rows)
    if rows_by_label is None or _are_nearly_all_different(rows_by_label, len(rows)):
        return []
    labels = rows.columns["label"]
    return [
        str(labels[int(positions[0])]) for positions in rows_by_label.parts() if len(positions) == 1
    ]


def _two_parts(rows: Rows, is_held_out: Bools) -> tuple[Rows, Rows]:
    """Returns the rows that stay for training, and those that are held out as validation."""
    train = rows.select(np.flatnonzero(~is_held_out))
    validation = rows.select(np.flatnonzero(is_held_out), split="validation")
    return train, validation


def with_whole_groups(
    sides: Ints, members: Sequence[Sequence[int]], target_sizes: Sequence[float]
) -> Ints | None:
    """Returns the sides with each group on one side; None if a side's size is far off then.

    A group on several sides is moved to the side among them that lacks most rows. Large groups are
    moved first, so that small groups even out the sizes. A side is far off if it has less than half
    of its rows, or more than one and a half times as many.

    Args:
        sides: (N,) number of each row's side, as drawn without groups: training or validation, or
            one of the folds.
        members: Positions of each group's rows.
        target_sizes: Rows that each side should have.
    """
    n_sides = len(target_sizes)
    sides = sides.copy()
    divided = [group for group in members if len(group) > 1 and len(set(sides[group])) > 1]
    n_lacking = np.array(target_sizes) - np.bincount(sides, minlength=n_sides)
    for group in sorted(divided, key=len, reverse=True):
        n_on_side = np.bincount(sides[group], minlength=n_sides)
        n_lacking += n_on_side  # as if the group were on no side
        candidates = np.where(n_on_side > 0, n_lacking, -np.inf)  # only sides that it is on
        side = int(np.argmax(candidates))
        sides[group] = side
        n_lacking[side] -= len(group)
    is_far_off = np.abs(n_lacking) > np.array(target_sizes) / 2
    if divided and is_far_off.any():
        return None
    return sides


@dataclass(frozen=True)
class _Groups:
    """Positions of equal values, group after group, in the order in which the values come.

    Attributes:
        order: (N,) positions; those of a group ascend.
        starts: (G + 1,) where each group begins in `order`; the last entry is N.
    """

    order: Ints
    starts: Ints

    @classmethod
    def of(cls, values: Sequence[Hashable]) -> "_Groups":
        """Returns the groups of equal values: `["a", "b", "a"]` -> positions 0, 2 and position 1.

        Raises:
            TypeError: Some can't be counted, such as lists.
        """
        if isinstance(values, range):  # each value is a group of its own
            return cls(order=np.arange(len(values)), starts=np.arange(len(values) + 1))
        if isinstance(values, CodedValues):  # different values, and the code of one for each row
            # Values with different codes can be equal, such as 1 and 1.0, and are one group then.
            group_of_code, _ = numbers_of(values.values)
            group_of_row = int_column(group_of_code[values.codes])
            # Groups are numbered anew, in the order in which the rows have them.
            group_numbers, _ = numbers_of(group_of_row)
        else:
            group_numbers, _ = numbers_of(values)
        sizes = np.bincount(group_numbers)
        return cls(order=np.argsort(group_numbers, kind="stable"), starts=starts_of(sizes))

    @property
    def sizes(self) -> Ints:
        """(G,) values of each group."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        """Returns the number of groups."""
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> Ints:
        """Returns the positions of a group, by its number."""
        return self.order[self.starts[number] : self.starts[number + 1]]

    def parts(self) -> Iterator[Ints]:
        """Yields the positions of each group."""
        for number in range(len(self)):
            yield self[number]

    def on_several_sides(self, sides: Ints) -> list[list[int]]:
        """Returns the positions of each group whose values are on more than one side.

        Args:
            sides: (N,) number of each row's side.
        """
        if not len(self):
            return []
        ordered_sides = sides[self.order]  # group after group
        # The lowest and the highest side of each group: if they differ, it is on several sides.
        lowest = np.minimum.reduceat(ordered_sides, self.starts[:-1])
        highest = np.maximum.reduceat(ordered_sides, self.starts[:-1])
        return [self[number].tolist() for number in np.flatnonzero(lowest < highest).tolist()]

    def first_with(self, positions: Ints) -> Ints:
        """Returns the positions of all values of the first group that has one of these positions.

        Args:
            positions: At least one position.
        """
        group_of_position = np.empty(len(self.order), dtype=np.int64)
        group_of_position[self.order] = np.repeat(np.arange(len(self)), self.sizes)
        return self[int(group_of_position[positions].min())]


def _groups_of_labels(rows: Rows) -> _Groups | None:
    """Returns the rows of each label, as positions; None without labels, or if they are lists."""
    if not rows.has("label"):
        return None
    try:
        return _Groups.of(rows.columns["label"])
    except TypeError:
        return None


def _stratified(rows_by_label: _Groups, n_drawn: int, rng: np.random.Generator) -> Ints | None:
    """Returns the positions of `n_drawn` rows with each label's share, by largest remainder.

    It is None if the labels are nearly all different, or if a label would not keep a row.
    """
    sizes = rows_by_label.sizes
    most_of_label = sizes - 1  # each label keeps a row
    n_rows = len(rows_by_label.order)
    if _are_nearly_all_different(rows_by_label, n_rows) or most_of_label.sum() < n_drawn:
        return None
    quota = sizes * (n_drawn / n_rows)  # share of each label, not rounded
    n_of_label = np.minimum(np.floor(quota).astype(int), most_of_label)
    while n_of_label.sum() < n_drawn:
        # One row more of the label with the largest remainder; on a tie of the first one.
        remainder = np.where(n_of_label < most_of_label, quota - n_of_label, -np.inf)
        n_of_label[int(np.argmax(remainder))] += 1
    drawn = [
        rows_by_label[label][rng.permutation(sizes[label])[:n]]
        for label, n in enumerate(n_of_label.tolist())
    ]
    return np.concatenate(drawn)


def _whole_groups(groups: _Groups, n_rows: int, rng: np.random.Generator) -> list[int]:
    """Returns positions of whole groups, drawn until there are `n_rows` rows.

    A group is passed over if the rows would become more than twice as many as `n_rows`. At least
    one group is left to the other split. If all groups are too large, the smallest one is returned.
    """
    chosen: list[int] = []
    group_order = rng.permutation(len(groups))
    most_groups = max(1, len(groups) - 1)  # one group is left
    for number in group_order[:most_groups].tolist():
        if len(chosen) >= n_rows:
            break
        positions = groups[number].tolist()
        if len(chosen) + len(positions) <= 2 * n_rows:
            chosen += positions
    if chosen:
        return chosen

    smallest = int(np.argmin(groups.sizes[group_order]))  # of equal ones the first that was drawn
    return list(groups[int(group_order[smallest])].tolist())


def joined(parts: Sequence[Rows]) -> Rows:
    """Returns the rows of several splits one behind the other, as rows of the first one's name.

    They have the columns that any of the splits has, and are numbered anew.
    """
    ids = numbered_ids(sum(map(len, parts)))
    all_have_ids = all(rows.file_ids for rows in parts)
    file_ids: Sequence[Any] = ()
    if all_have_ids:
        file_ids = column_of(itertools.chain.from_iterable(rows.file_ids for rows in parts))
    return Rows(
        parts[0].split,
        joined_columns(parts),
        ids,
        parts[0].source,
        tag_kind=parts[0].tag_kind,
        file_ids=file_ids,
        file_names=parts[0].file_names,
    )


def sample(rows: Rows, size: int, *, seed: int) -> Rows:
    """Returns a seeded sample in file order; all rows where there are no more than `size`."""
    if len(rows) <= size:
        return rows
    rng = np.random.default_rng([seed, _SAMPLE_STREAM])
    return rows.select(np.sort(rng.choice(len(rows), size, replace=False)))


def sample_of_labels(rows: Rows, size: int, *, seed: int) -> Rows:
    """Returns `size` rows of each label, drawn by the seed; all of a label that has fewer.

    They are in file order.
    """
    rng = np.random.default_rng([seed, _LABEL_STREAM])
    chosen: list[int] = []
    for _, positions in _positions_by_label(rows):
        n_drawn = min(size, len(positions))
        chosen += positions[rng.choice(len(positions), n_drawn, replace=False)].tolist()
    return rows.select(sorted(chosen))


def labels_with_fewer_rows(rows: Rows, size: int) -> dict[str, int]:
    """Returns the labels with fewer rows than `size`, and how many they have."""
    return {
        label: len(positions)
        for label, positions in _positions_by_label(rows)
        if len(positions) < size
    }


def _positions_by_label(rows: Rows) -> list[tuple[str, Ints]]:
    """Returns each label as a text, in order, and the positions of its rows."""
    names = codes_of(mapped_values(rows.columns["label"], str))
    positions_by_name: dict[str, Ints] = {}
    for positions in _Groups.of(names).parts():
        name = names[int(positions[0])]
        positions_by_name[name] = positions
    return sorted(positions_by_name.items(), key=lambda item: item[0])


def first_rows(rows: Rows, size: int) -> Rows:
    """Returns the first rows; all where there are no more than `size`."""
    if len(rows) <= size:
        return rows
    return rows.select(range(size))


def content_hash(rows: Rows, columns: Sequence[str] = ("text", "pair", "label")) -> str:
    """Returns the SHA-256 of the values of columns, in hexadecimal.

    What is hashed is a line with each column's name and one with its values as a JSON list, written
    in parts to hold little memory. No path, no id and no other column counts.
    """
    digest = hashlib.sha256()
    for name in columns:
        if rows.has(name):
            digest.update(f"{name}\n[".encode())
            for number, part in enumerate(in_chunks(rows.columns[name], _HASHED_ROWS)):
                values = json.dumps(part, default=str, separators=(",", ":"))
                without_brackets = values[1:-1]  # those of the whole list are written here
                separator = "," if number else ""
                digest.update(f"{separator}{without_brackets}".encode())
            digest.update(b"]\n")
    return digest.hexdigest()
