"""Nearest rows and near pairs by blocks, against all at once.

Indexes of more vectors than a block has.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from bertctl.appended import AppendedArray
from bertctl.errors import DataError
from bertctl.metrics.similarity import MEASURES, exact_similarities
from bertctl.search import nearest as module
from bertctl.search.index import Index, as_read, as_stored
from bertctl.search.nearest import (
    Nearest,
    NearestPairs,
    Pairs,
    block_rows,
    pairs_above,
    recall,
    row_by_row,
)
from tests.made_indexes import index_document


def unit(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal(shape).astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def seen(rows: np.ndarray, queries: np.ndarray, top: int, block: int) -> Nearest:
    nearest = Nearest(queries, top)
    for first in range(0, len(rows), block):
        nearest.see(rows[first : first + block], first)
    return nearest


def all_at_once(rows: np.ndarray, queries: np.ndarray, top: int) -> np.ndarray:
    """By the exact cosine, of equals the first row."""
    scores = queries.astype(np.float64) @ rows.astype(np.float64).T
    rounded = np.round(scores, 12)
    return np.argsort(-rounded, axis=1, kind="stable")[:, :top]


def pairs_of(blocks: Iterable[Pairs]) -> list[tuple[int, int]]:
    """Row numbers of pairs that are found in blocks."""
    pairs = []
    for first, second, _ in blocks:
        pairs += zip(first.tolist(), second.tolist(), strict=True)
    return pairs


@pytest.mark.parametrize("block", [1, 7, 100, 1000, 3000])
@pytest.mark.parametrize("top", [1, 10, 50])
def test_blocks_of_any_size_find_the_same_rows(block: int, top: int) -> None:
    rows = unit((1500, 16))
    queries = unit((20, 16), 1)
    rows[300:330] = rows[5]
    rows[1400] = rows[5]
    queries[0] = rows[5]

    nearest = seen(rows, queries, top, block)

    assert (nearest.rows == all_at_once(rows, queries, top)).all()
    first_three = nearest.rows[0, :3].tolist()
    assert first_three == [5, 300, 301][:top], "equal rows in their order"
    nearest_vectors = rows[nearest.rows].astype(np.float64)
    products = queries.astype(np.float64)[:, None] * nearest_vectors
    np.testing.assert_allclose(nearest.scores, products.sum(axis=2), rtol=0, atol=1e-15)


@pytest.mark.parametrize("order", ["nearer and nearer", "all equal"])
def test_orders_that_make_every_row_a_candidate(order: str) -> None:
    rows = unit((2000, 8))
    queries = unit((1, 8), 1)
    rows = (
        rows[np.argsort(rows @ queries[0])]
        if order == "nearer and nearer"
        else np.repeat(queries, 2000, axis=0)
    )
    assert (seen(rows, queries, 10, 64).rows == all_at_once(rows, queries, 10)).all()


def test_fewer_rows_than_are_asked_for() -> None:
    rows = unit((3, 8))
    queries = unit((2, 8), 1)

    nearest = seen(rows, queries, top=10, block=2)

    assert nearest.rows.shape == (2, 3)


@pytest.mark.parametrize("block", [8, 100, 1024])
def test_every_pair_above_a_threshold(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    rows = unit((300, 12))
    rows[40:60] = rows[3]
    doubles = rows.astype(np.float64)
    cosines = np.triu(doubles @ doubles.T, k=1)

    pairs = pairs_of(pairs_above(0.3, rows))
    equal_pairs = pairs_of(pairs_above(1, rows))

    assert sorted(pairs) == _pairs_where(cosines >= 0.3)
    n_pairs_of_21 = 21 * 20 // 2
    assert len(equal_pairs) == n_pairs_of_21, "though fp32 loses the last digit of their cosine"


@pytest.mark.parametrize("block", [8, 100, 1024])
def test_every_pair_of_two_files_above_a_threshold(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    rows = unit((300, 12))
    rows[40:60] = rows[3]
    others = unit((50, 12), 1)

    pairs = pairs_of(pairs_above(0.3, rows, others))

    assert sorted(pairs) == _pairs_where(rows @ others.T >= 0.3)


def _pairs_where(condition: np.ndarray) -> list[tuple[int, int]]:
    """Rows and columns at which a condition holds, in their order."""
    return [(row, column) for row, column in np.argwhere(condition).tolist()]


def test_300_near_duplicates_are_44850_pairs() -> None:
    rows = np.repeat(unit((1, 384)), 300, axis=0) + 0.001 * np.random.default_rng(
        1
    ).standard_normal((300, 384))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    assert sum(len(first) for first, _, _ in pairs_above(0.9, rows)) == 44_850


def test_row_by_row() -> None:
    a = unit((5, 4))
    b = unit((5, 4), 1)
    first, second, cosines = row_by_row(a, b)
    assert first.tolist() == second.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(cosines, np.diag(a @ b.T), rtol=1e-6)


def test_recall_is_the_share_of_the_right_ones() -> None:
    nearest = np.array([[1, 2], [3, 4]])
    answers = np.array([[2, 9], [4, 3]])

    assert recall(nearest, answers) == 0.75


@pytest.mark.parametrize(("dtype", "error"), [("float32", 0), ("float16", 1e-3), ("int8", 1e-2)])
def test_vectors_keep_their_direction(dtype: str, error: float) -> None:
    zero = np.zeros((1, 64), dtype=np.float32)
    rows = np.vstack([unit((100, 64)), zero])

    stored = as_stored(rows, dtype)
    restored = as_read(stored)

    assert stored.dtype == dtype
    assert np.abs(restored - rows).max() <= error
    lengths = np.linalg.norm(restored[:-1], axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)
    assert not restored[-1].any()
    if dtype == "int8":
        largest = np.abs(stored[:-1].astype(int)).max(axis=1)
        assert (largest == 127).all()


def index_of(rows: np.ndarray, folder: Path, dtype: str = "float32") -> Index:
    array = AppendedArray(folder / "vectors.npy", rows.shape[1:], dtype, None)
    array.append(as_stored(rows, dtype))
    array.sync()
    array.close()
    return Index(folder, index_document(rows=len(rows), size=rows.shape[1], dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_an_index_of_several_blocks(dtype: str, tmp_path: Path) -> None:
    rows = unit((2 * block_rows(1) + 5, 4))
    queries = unit((1, 4), 1)
    retained = as_read(as_stored(rows, dtype))
    assert (
        index_of(rows, tmp_path, dtype).nearest(queries, 10).rows
        == all_at_once(retained, queries, 10)
    ).all()


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    rows = unit((50, 4))
    rows[20, 2] = np.nan
    with pytest.raises(DataError, match="not a number"):
        index_of(rows, tmp_path).nearest(unit((1, 4), 1), 3)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("block", [7, 400])
def test_rows_are_near_by_every_measure(measure: str, block: int) -> None:
    rows = unit((400, 16))
    queries = unit((5, 16), 1)
    if measure != "cosine":
        rng = np.random.default_rng(2)
        rows = (rows * rng.uniform(0.2, 9, (400, 1))).astype(np.float32)
        queries = (queries * 3).astype(np.float32)
    rows[[50, 300]] = rows[7]

    nearest = Nearest(queries, 10, measure)
    for first in range(0, len(rows), block):
        nearest.see(rows[first : first + block], first)

    for number, query in enumerate(queries):
        repeated_query = np.repeat(query[None], 400, axis=0)
        exact = exact_similarities(measure, repeated_query, rows)
        expected_rows = np.argsort(-exact, kind="stable")[:10]
        assert nearest.rows[number].tolist() == expected_rows.tolist()
        np.testing.assert_allclose(nearest.scores[number], exact[expected_rows], rtol=1e-12)


@pytest.mark.parametrize("measure", MEASURES)
def test_pairs_are_near_by_every_measure(measure: str) -> None:
    scale = 1 if measure == "cosine" else np.float32(3)
    rows = unit((60, 8)) * scale
    first, second = np.triu_indices(60, 1)
    exact = exact_similarities(measure, rows[first], rows[second])
    threshold = float(np.sort(exact)[-41:-39].mean())
    is_near = exact >= threshold

    pairs = pairs_of(pairs_above(threshold, rows, measure=measure))
    _, _, similarities = row_by_row(rows[first], rows[second], measure)

    expected = zip(first[is_near].tolist(), second[is_near].tolist(), strict=True)
    assert sorted(pairs) == sorted(expected)
    np.testing.assert_allclose(similarities, exact, rtol=1e-6)


@pytest.mark.parametrize("most", [1, 5, 40, 10_000])
def test_the_nearest_pairs_are_kept_whatever_their_order(most: int) -> None:
    rows = unit((80, 6))
    rows[60:64] = rows[3]
    blocks = list(pairs_above(-2, rows))
    first = np.concatenate([block[0] for block in blocks])
    second = np.concatenate([block[1] for block in blocks])
    scores = np.concatenate([block[2] for block in blocks])

    nearest = NearestPairs(most)
    for start in range(0, len(first), 97):
        part = slice(start, start + 97)
        nearest.see((first[part], second[part], scores[part]))
    nearest_first, nearest_second, *_ = nearest.nearest()

    assert nearest.seen == len(first) == 80 * 79 // 2
    rounded_scores = np.round(scores.astype(np.float64), 6)
    order = np.lexsort((second, first, -rounded_scores))[:most]
    assert nearest_first.tolist() == first[order].tolist()
    assert nearest_second.tolist() == second[order].tolist()
