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
        groups: (N,) keys; rows with equal ones stay on one side. None: each row is by itself.

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
    members = _Groups.of(range(n) if groups is None else groups)
    if stratify:
        of_label = _groups_of_labels(rows)
    else:
        of_label = None
    if of_label is None:
        held = None
    else:
        held = _stratified(of_label, n_held_out, rng)
    sides = None
    if of_label is not None and held is not None:
        drawn = np.zeros(n, dtype=int)
        drawn[held] = 1
        sides = with_whole_groups(drawn, members.torn(drawn), [n - n_held_out, n_held_out])
    if of_label is not None and sides is not None:
        lost = [label for label in range(len(of_label)) if sides[of_label[label]].all()]
        for label in lost:  # has no row left in training
            sides[members.first_with(of_label[label])] = 0
        sides = sides if sides.any() else None  # each held group had a label of its own
    stratified = sides is not None
    if sides is None:
        sides = np.zeros(n, dtype=int)
        sides[_whole_groups(members, n_held_out, rng)] = 1
    return *_two_parts(rows, sides == 1), stratified


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

    Each row is in one fold only.

    Args:
        rows: the training rows.
        folds: K, how many there are.
        fold: which one is held out, from 1.
        seed: decides which rows go together.
        stratify: whether each fold gets its share of each label, as near as whole rows allow.
        groups: (N,) keys; rows with equal ones stay in one part. None: each row is by itself.

    Returns:
        What is left for training, what is held out (called `validation`), and whether it was
        stratified.

    Raises:
        DataError: fewer rows (or groups) than folds.

    A label with a single row keeps it in training in every fold, with what hangs together with it.
    """
    n = len(rows)
    rng = np.random.default_rng([seed, _FOLD_STREAM])
    if stratify:
        of_label = _groups_of_labels(rows)
    else:
        of_label = None
    members = _Groups.of(range(n) if groups is None else groups)
    if len(members) < folds:
        raise DataError(
            f"{rows.source}: {n} rows, {len(members)} groups of rows that stay together, can't be "
            "cut into "
            f"{folds} folds",
            remedy="Take fewer folds, or give more rows.",
        )
    sides = np.empty(n, dtype=int)
    stratified = of_label is not None and 2 * len(of_label) <= n
    if of_label is not None and stratified:
        # One label after the other: each fold gets its share of each, and the folds differ by one
        # row at most.
        order = np.concatenate(
            [of_label[i][rng.permutation(of_label.sizes[i])] for i in range(len(of_label))]
        )
        sides[order] = np.arange(n) % folds
        with_groups = with_whole_groups(sides, members.torn(sides), [n / folds] * folds)
        stratified = with_groups is not None
        sides = sides if with_groups is None else with_groups
    if not stratified:
        of_group = np.empty(len(members), dtype=int)
        of_group[rng.permutation(len(members))] = np.arange(len(members)) % folds
        sides[members.order] = np.repeat(of_group, members.sizes)
    if of_label is not None and stratified:
        single_rows = {int(of_label[i][0]) for i in range(len(of_label)) if of_label.sizes[i] == 1}
        if single_rows:
            for positions in members.parts():
                if not single_rows.isdisjoint(positions.tolist()):
                    sides[positions] = _IN_NO_FOLD
    return *_two_parts(rows, sides == fold - 1), stratified


def most_folds(rows: Rows, groups: Sequence[Hashable] | None = None) -> int:
    """Returns the largest number of folds that rows can be cut into: that of their groups."""
    if groups is None:
        return len(rows)
    return len(set(groups))


def labels_of_single_rows(rows: Rows) -> list[str]:
    """Returns the labels that a single row has.

    It is empty if labels can't be counted, or are nearly all different.
    """
    of_label = _groups_of_labels(rows)
    if of_label is None or 2 * len(of_label) > len(rows):
        return []
    labels = rows.columns["label"]
    return [str(labels[int(positions[0])]) for positions in of_label.parts() if len(positions) == 1]


def _two_parts(rows: Rows, held: Bools) -> tuple[Rows, Rows]:
    train = rows.select(np.flatnonzero(~held))
    validation = rows.select(np.flatnonzero(held), split="validation")
    return train, validation


def with_whole_groups(
    sides: Ints, members: Sequence[Sequence[int]], target_sizes: Sequence[float]
) -> Ints | None:
    """Returns the sides with no group on two of them.

    A torn group goes, the largest first, to that of its sides which then lacks most rows. It is
    None where a side ends with less than half (or more than twice) of what it should have.

    Args:
        sides: (N,) number of each row's side, as drawn without groups. Where no group is torn, they
            stay.
        members: positions of each group's rows.
        target_sizes: rows per side.
    """
    sides = sides.copy()
    torn = [group for group in members if len(group) > 1 and len(set(sides[group])) > 1]
    lacking = np.array(target_sizes) - np.bincount(sides, minlength=len(target_sizes))
    for group in sorted(torn, key=len, reverse=True):
        here = np.bincount(sides[group], minlength=len(target_sizes))
        lacking += here
        sides[group] = side = int(np.argmax(np.where(here > 0, lacking, -np.inf)))
        lacking[side] -= len(group)
    missed = np.abs(lacking) > np.array(target_sizes) / 2
    if torn and missed.any():
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
        """Returns the groups of values.

        Raises:
            TypeError: some can't be counted, such as lists.
        """
        if isinstance(values, range):
            return cls(np.arange(len(values)), np.arange(len(values) + 1))
        if isinstance(values, CodedValues):
            of_values = numbers_of(values.values)[0]  # 1 and 1.0 are one label
            numbers = numbers_of(int_column(of_values[values.codes]))[0]
        else:
            numbers = numbers_of(values)[0]
        sizes = np.bincount(numbers)
        return cls(np.argsort(numbers, kind="stable"), starts_of(sizes))

    @property
    def sizes(self) -> Ints:
        """(G,) values of each group."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> Ints:
        return self.order[self.starts[number] : self.starts[number + 1]]

    def parts(self) -> Iterator[Ints]:
        """Yields the positions of each group."""
        for number in range(len(self)):
            yield self[number]

    def torn(self, sides: Ints) -> list[list[int]]:
        """Returns the groups that are not all on one side."""
        if not len(self):
            return []
        of_members = sides[self.order]
        lowest = np.minimum.reduceat(of_members, self.starts[:-1])
        highest = np.maximum.reduceat(of_members, self.starts[:-1])
        return [self[number].tolist() for number in np.flatnonzero(lowest < highest).tolist()]

    def first_with(self, positions: Ints) -> Ints:
        """Returns the first group that has one of these positions."""
        numbers = np.empty(len(self.order), dtype=np.int64)
        numbers[self.order] = np.repeat(np.arange(len(self)), self.sizes)
        return self[int(numbers[positions].min())]


def _groups_of_labels(rows: Rows) -> _Groups | None:
    """Returns the rows of each label.

    It is None if there are no labels, or lists, which can't be counted.
    """
    if not rows.has("label"):
        return None
    try:
        return _Groups.of(rows.columns["label"])
    except TypeError:
        return None


def _stratified(groups: _Groups, n_rows_wanted: int, rng: np.random.Generator) -> Ints | None:
    """Returns positions of `n_rows_wanted` rows; None if impossible.

    Each label has its share by largest remainder.
    """
    sizes = groups.sizes
    room = sizes - 1
    n_rows = len(groups.order)
    if 2 * len(groups) > n_rows or room.sum() < n_rows_wanted:
        return None
    quota = sizes * (n_rows_wanted / n_rows)
    take = np.minimum(np.floor(quota).astype(int), room)
    # The label with the largest remainder that still has room; on a tie the first one.
    while take.sum() < n_rows_wanted:
        take[int(np.argmax(np.where(take < room, quota - take, -np.inf)))] += 1
    drawn = [
        groups[label][rng.permutation(sizes[label])[:count]]
        for label, count in enumerate(take.tolist())
    ]
    return np.concatenate(drawn)


def _whole_groups(members: _Groups, n_rows: int, rng: np.random.Generator) -> list[int]:
    """Returns positions of whole groups, drawn until there are `n_rows` rows.

    A group that would make it more than twice as many is passed over, and at least one group is
    left to the other split. If all groups are too large, it is the smallest one.
    """
    chosen: list[int] = []
    group_order = rng.permutation(len(members))
    most_groups = max(1, len(members) - 1)
    for number in group_order[:most_groups].tolist():
        if len(chosen) >= n_rows:
            break
        group = members[number].tolist()
        if len(chosen) + len(group) <= 2 * n_rows:
            chosen += group
    if chosen:
        return chosen

    smallest = int(np.argmin(members.sizes[group_order]))  # of equal ones the first that was drawn
    return list(members[int(group_order[smallest])].tolist())


def joined(parts: Sequence[Rows]) -> Rows:
    """Returns the rows of several splits one behind the other.

    They have the columns that any of the splits has.
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
    """Returns so many rows of each label, drawn by the seed, in file order.

    Of a label with fewer rows it returns all.
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
    coded = codes_of(mapped_values(rows.columns["label"], str))
    groups = _Groups.of(coded)
    names = [coded[int(groups[number][0])] for number in range(len(groups))]
    return [
        (name, groups[number])
        for name, number in sorted(zip(names, range(len(groups)), strict=True))
    ]


def first(rows: Rows, size: int) -> Rows:
    """Returns the first rows; all where there are no more than `size`."""
    if len(rows) <= size:
        return rows
    return rows.select(range(size))


def content_hash(rows: Rows, columns: Sequence[str] = ("text", "pair", "label")) -> str:
    """Returns the SHA-256 of the canonical columns' values, in hexadecimal.

    No path, no id and no other column counts.
    """
    digest = hashlib.sha256()
    for name in columns:
        if rows.has(name):
            digest.update(f"{name}\n[".encode())
            for number, part in enumerate(in_chunks(rows.columns[name], _HASHED_ROWS)):
                values = json.dumps(part, default=str, separators=(",", ":"))
                separator = "," if number else ""
                digest.update(f"{separator}{values[1:-1]}".encode())
            digest.update(b"]\n")
    return digest.hexdigest()
