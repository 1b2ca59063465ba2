"""Parts of a split, fixed by the seed: a hold-out, a sample, the first rows; and what a split's content hashes to."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertctl.data.rows import Rows
from bertctl.errors import DataError

_HOLD_OUT_STREAM, _SAMPLE_STREAM, _FOLD_STREAM = 1, 2, 3  # so that draws from one seed don't depend on each other


def hold_out(
    rows: Rows, *, fraction: float, seed: int, stratify: bool, together: str | None = None
) -> tuple[Rows, Rows, bool]:
    """Divides training rows in two, each in file order.

    Args:
        rows: the training rows.
        fraction: share of the rows that is held out, rounded; at least one row.
        seed: decides which rows.
        stratify: whether each label gives its share. A label keeps at least one row in training.
        together: column whose equal values stay on one side, such as the text that several questions are about.

    Returns:
        What is left for training, what is held out (called `validation`), and whether it was stratified: labels that
        can't be counted (lists) or that are nearly all different can't be.

    Raises:
        DataError: fewer than two rows.
    """
    n = len(rows)
    if n < 2:
        raise DataError(
            f"{rows.source} has {n} row, and none can be held out for validation",
            remedy="Give more rows, or a validation file with --validation-file.",
        )
    rng = np.random.default_rng([seed, _HOLD_OUT_STREAM])
    wanted = min(max(1, round(n * fraction)), n - 1)
    held = _stratified(rows.columns["label"], wanted, rng) if stratify and rows.has("label") else None
    if held is not None:
        chosen = held
    elif together is not None and rows.has(together) and len(set(rows.columns[together])) > 1:
        chosen = _groups_of(rows.columns[together], wanted, rng)
    else:
        chosen = [int(i) for i in rng.permutation(n)[:wanted]]
    inside = set(chosen)
    left = rows.select([i for i in range(n) if i not in inside])
    return left, rows.select(sorted(inside), split="validation"), held is not None


def hold_out_fold(
    rows: Rows, *, folds: int, fold: int, seed: int, stratify: bool, together: str | None = None
) -> tuple[Rows, Rows, bool]:
    """Divides training rows in two, each in file order: one of K folds, and the rest. Each row is in one fold only.

    Args:
        rows: the training rows.
        folds: K, how many there are.
        fold: which one is held out, from 1.
        seed: decides which rows go together.
        stratify: whether each fold gets its share of each label, as near as whole rows allow.
        together: column whose equal values stay in one part.

    Returns:
        What is left for training, what is held out (called `validation`), and whether it was stratified.

    Raises:
        DataError: fewer rows (or values that stay together) than folds.
    """
    n = len(rows)
    rng = np.random.default_rng([seed, _FOLD_STREAM])
    labels = rows.columns["label"] if stratify and rows.has("label") else None
    groups = _groups(labels) if labels is not None else None
    stratified = groups is not None and 2 * len(groups) <= n
    if groups is None or not stratified:
        whole = rows.columns[together] if together is not None and rows.has(together) else range(n)
        groups = _groups(whole) or {}
        members = [list(groups.values())[int(i)] for i in rng.permutation(len(groups))]
    else:
        # One label after the other: each fold gets its share of each, and the folds differ by one row at most.
        members = [[group[int(i)]] for group in groups.values() for i in rng.permutation(len(group))]
    if len(members) < folds:
        raise DataError(
            f"{rows.source}: {len(members)} rows{' that stay together' if together else ''} can't be cut into "
            f"{folds} folds",
            remedy="Take fewer folds, or give more rows.",
        )
    inside = {row for group in members[fold - 1 :: folds] for row in group}
    left = rows.select([i for i in range(n) if i not in inside])
    return left, rows.select(sorted(inside), split="validation"), stratified


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


def _groups_of(values: Sequence[Any], wanted: int, rng: np.random.Generator) -> list[int]:
    """Returns positions of whole groups of equal values, drawn until there are `wanted` rows; one group is left."""
    chosen: list[int] = []
    members = list((_groups(values) or {}).values())
    for number in rng.permutation(len(members))[: max(1, len(members) - 1)]:
        if len(chosen) >= wanted:
            break
        chosen += members[int(number)]
    return chosen


def sample(rows: Rows, size: int, *, seed: int) -> Rows:
    """Returns a seeded sample in file order; all rows where there are no more than `size`."""
    if len(rows) <= size:
        return rows
    rng = np.random.default_rng([seed, _SAMPLE_STREAM])
    return rows.select(sorted(int(i) for i in rng.choice(len(rows), size, replace=False)))


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
