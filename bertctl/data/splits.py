"""Parts of a split, fixed by the seed: a hold-out, a sample, the first rows; and what a split's content hashes to."""

import hashlib
import json
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from bertctl.arrays import Bools, Ints
from bertctl.data.rows import Rows
from bertctl.errors import DataError

_IN_NO_FOLD = -1
"""Number of the side of rows that stay in training in every fold."""

# So that draws from one seed do not depend on each other.
_HOLD_OUT_STREAM, _SAMPLE_STREAM, _FOLD_STREAM, _LABEL_STREAM = 1, 2, 3, 4


def hold_out(
    rows: Rows, *, fraction: float, seed: int, stratify: bool, groups: Sequence[Hashable] | None = None
) -> tuple[Rows, Rows, bool]:
    """Divides training rows in two, each in file order.

    Args:
        rows: the training rows.
        fraction: share of the rows that is held out, rounded; at least one row. Whole groups may miss it a little.
        seed: decides which rows.
        stratify: whether each label gives its share. A label keeps at least one row in training.
        groups: (N,) keys; rows with equal ones stay on one side. None: each row is by itself.

    Returns:
        What is left for training, what is held out (called `validation`), and whether it was stratified: labels that
        can't be counted (lists) or that are nearly all different can't be.

    Raises:
        DataError: fewer than two rows.
    """
    n = len(rows)
    if n < 2:
        what = f"{rows.source} has {n} row, and none can be held out for validation"
        raise DataError(what, remedy="Give more rows, or a validation file with --validation-file.")
    rng = np.random.default_rng([seed, _HOLD_OUT_STREAM])
    wanted = min(max(1, round(n * fraction)), n - 1)
    members = list((_groups(range(n) if groups is None else groups) or {}).values())
    labels = rows.columns["label"] if stratify and rows.has("label") else None
    sides = None
    if labels is not None and (held := _stratified(labels, wanted, rng)) is not None:
        sides = with_whole_groups(np.isin(np.arange(n), held).astype(int), members, [n - wanted, wanted])
        if sides is not None:
            for lost in dict.fromkeys(labels).keys() - {labels[i] for i in np.flatnonzero(sides == 0).tolist()}:
                sides[next(group for group in members if any(labels[i] == lost for i in group))] = 0
            sides = sides if sides.any() else None  # each held group had a label of its own
    stratified = sides is not None
    if sides is None:
        sides = np.isin(np.arange(n), _whole_groups(members, wanted, rng)).astype(int)
    return *_two_parts(rows, sides == 1), stratified


def hold_out_fold(
    rows: Rows, *, folds: int, fold: int, seed: int, stratify: bool, groups: Sequence[Hashable] | None = None
) -> tuple[Rows, Rows, bool]:
    """Divides training rows in two, each in file order: one of K folds, and the rest. Each row is in one fold only.

    Args:
        rows: the training rows.
        folds: K, how many there are.
        fold: which one is held out, from 1.
        seed: decides which rows go together.
        stratify: whether each fold gets its share of each label, as near as whole rows allow.
        groups: (N,) keys; rows with equal ones stay in one part. None: each row is by itself.

    Returns:
        What is left for training, what is held out (called `validation`), and whether it was stratified.

    Raises:
        DataError: fewer rows (or groups) than folds.

    A label with a single row keeps it in training in every fold, with what hangs together with it.
    """
    n = len(rows)
    rng = np.random.default_rng([seed, _FOLD_STREAM])
    labels = rows.columns["label"] if stratify and rows.has("label") else None
    of_label = _groups(labels) if labels is not None else None
    members = list((_groups(range(n) if groups is None else groups) or {}).values())
    if len(members) < folds:
        raise DataError(
            f"{rows.source}: {n} rows, {len(members)} groups of rows that stay together, can't be cut into "
            f"{folds} folds",
            remedy="Take fewer folds, or give more rows.",
        )
    sides = np.empty(n, dtype=int)
    stratified = of_label is not None and 2 * len(of_label) <= n
    if of_label is not None and stratified:
        # One label after the other: each fold gets its share of each, and the folds differ by one row at most.
        order = [group[int(i)] for group in of_label.values() for i in rng.permutation(len(group))]
        sides[order] = np.arange(n) % folds
        whole = with_whole_groups(sides, members, [n / folds] * folds)
        stratified, sides = whole is not None, sides if whole is None else whole
    if not stratified:
        for place, number in enumerate(rng.permutation(len(members))):
            sides[members[int(number)]] = place % folds
    if of_label is not None and stratified:
        single_rows = {positions[0] for positions in of_label.values() if len(positions) == 1}
        for group in members:
            if not single_rows.isdisjoint(group):
                sides[group] = _IN_NO_FOLD
    return *_two_parts(rows, sides == fold - 1), stratified


def most_folds(rows: Rows, groups: Sequence[Hashable] | None = None) -> int:
    """Returns the largest number of folds that rows can be cut into: that of their groups."""
    return len(rows) if groups is None else len(set(groups))


def labels_of_single_rows(rows: Rows) -> list[str]:
    """Returns the labels with a single row; none where labels can't be counted, or are nearly all different."""
    of_label = _groups(rows.columns["label"]) if rows.has("label") else None
    if of_label is None or 2 * len(of_label) > len(rows):
        return []
    return [str(label) for label, positions in of_label.items() if len(positions) == 1]


def _two_parts(rows: Rows, held: Bools) -> tuple[Rows, Rows]:
    return rows.select(np.flatnonzero(~held).tolist()), rows.select(np.flatnonzero(held).tolist(), split="validation")


def with_whole_groups(sides: Ints, members: Sequence[Sequence[int]], wanted: Sequence[float]) -> Ints | None:
    """Returns the sides with no group on two of them: a torn one goes, the largest first, to that of its sides which
    then lacks most rows; None where a side ends with less than half (or more than twice) of what it should have.

    Args:
        sides: (N,) number of each row's side, as drawn without groups. Where no group is torn, they stay.
        members: positions of each group's rows.
        wanted: rows per side.
    """
    sides = sides.copy()
    torn = [group for group in members if len(group) > 1 and len(set(sides[group])) > 1]
    lacking = np.array(wanted) - np.bincount(sides, minlength=len(wanted))
    for group in sorted(torn, key=len, reverse=True):
        here = np.bincount(sides[group], minlength=len(wanted))
        lacking += here
        sides[group] = side = int(np.argmax(np.where(here > 0, lacking, -np.inf)))
        lacking[side] -= len(group)
    missed = np.abs(lacking) > np.array(wanted) / 2
    return None if torn and missed.any() else sides


def _groups(values: Sequence[Any]) -> dict[Any, list[int]] | None:
    """Returns positions by value; None where the values can't be counted (lists)."""
    groups: dict[Any, list[int]] = {}
    try:
        for index, value in enumerate(values):
            groups.setdefault(value, []).append(index)
    except TypeError:
        return None
    return groups


def _stratified(labels: Sequence[Any], wanted: int, rng: np.random.Generator) -> list[int] | None:
    """Returns positions of `wanted` rows, each label in its share by largest remainder; None if impossible."""
    groups = _groups(labels)
    if groups is None:
        return None
    sizes = np.array([len(group) for group in groups.values()])
    room = sizes - 1
    if 2 * len(groups) > len(labels) or room.sum() < wanted:
        return None
    quota = sizes * (wanted / len(labels))
    take = np.minimum(np.floor(quota).astype(int), room)
    while take.sum() < wanted:  # the largest remainder that still has room, the first label on a tie
        take[int(np.argmax(np.where(take < room, quota - take, -np.inf)))] += 1
    chosen: list[int] = []
    for group, count in zip(groups.values(), take, strict=True):
        chosen += [group[int(i)] for i in rng.permutation(len(group))[:count]]
    return chosen


def _whole_groups(members: Sequence[Sequence[int]], wanted: int, rng: np.random.Generator) -> list[int]:
    """Returns positions of whole groups, drawn until there are `wanted` rows, at most twice as many; one group is left.

    Where every group is larger than that, it is the smallest.
    """
    chosen: list[int] = []
    drawn = [list(members[int(number)]) for number in rng.permutation(len(members))]
    for group in drawn[: max(1, len(members) - 1)]:
        if len(chosen) < wanted and len(chosen) + len(group) <= 2 * wanted:
            chosen += group
    return chosen or min(drawn, key=len)


def joined(parts: Sequence[Rows]) -> Rows:
    """Returns the rows of several splits one behind the other, with the columns that all of them have."""
    names = [name for name in parts[0].columns if all(rows.has(name) for rows in parts)]
    columns = {name: [value for rows in parts for value in rows.columns[name]] for name in names}
    ids = [str(i) for i in range(sum(map(len, parts)))]
    all_have_ids = all(rows.file_ids for rows in parts)
    file_ids = [value for rows in parts for value in rows.file_ids] if all_have_ids else ()
    return Rows(
        parts[0].split,
        columns,
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
    return rows.select(sorted(int(i) for i in rng.choice(len(rows), size, replace=False)))


def sample_of_labels(rows: Rows, size: int, *, seed: int) -> Rows:
    """Returns so many rows of each label, drawn by the seed, in file order; all rows of a label that has fewer."""
    rng = np.random.default_rng([seed, _LABEL_STREAM])
    chosen: list[int] = []
    for _, positions in sorted(_positions_of_labels(rows).items()):
        drawn = rng.choice(len(positions), min(size, len(positions)), replace=False)
        chosen += [positions[int(i)] for i in drawn]
    return rows.select(sorted(chosen))


def labels_with_fewer_rows(rows: Rows, size: int) -> dict[str, int]:
    """Returns the labels with fewer rows than `size`, and how many they have."""
    return {
        label: len(positions)
        for label, positions in sorted(_positions_of_labels(rows).items())
        if len(positions) < size
    }


def _positions_of_labels(rows: Rows) -> dict[str, list[int]]:
    return _groups([str(label) for label in rows.columns["label"]]) or {}


def first(rows: Rows, size: int) -> Rows:
    """Returns the first rows; all where there are no more than `size`."""
    return rows if len(rows) <= size else rows.select(range(size))


def content_hash(rows: Rows, columns: Sequence[str] = ("text", "pair", "label")) -> str:
    """Returns the SHA-256 of the canonical columns' values, in hexadecimal: no path, no id, no other column."""
    digest = hashlib.sha256()
    for name in columns:
        if rows.has(name):
            values = json.dumps(list(rows.columns[name]), default=str, separators=(",", ":"))
            digest.update(f"{name}\n{values}\n".encode())
    return digest.hexdigest()
