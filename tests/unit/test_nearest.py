"""Nearest rows and near pairs by blocks, against all at once.

Indexes of more vectors than a block has.
"""

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
    block_rows,
    pairs_above,
    recall,
    row_by_row,
)
from tests.made_indexes import index_document


def unit(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def seen(rows: np.ndarray, queries: np.ndarray, top: int, block: int) -> Nearest:
    nearest = Nearest(queries, top)
    for first in range(0, len(rows), block):
        nearest.see(rows[first : first + block], first)
    return nearest


def all_at_once(rows: np.ndarray, queries: np.ndarray, top: int) -> np.ndarray:
    """By the exact cosine, of equals the first row."""
    scores = queries.astype(np.float64) @ rows.astype(np.float64).T
    return np.stack(
        [np.lexsort((np.arange(len(rows)), -np.round(score, 12)))[:top] for score in scores]
    )


@pytest.mark.parametrize("block", [1, 7, 100, 1000, 3000])
@pytest.mark.parametrize("top", [1, 10, 50])
def test_blocks_of_any_size_find_the_same_rows(block: int, top: int) -> None:
    rows = unit((1500, 16))
    queries = unit((20, 16), 1)
    rows[300:330] = rows[5]
    rows[1400] = rows[5]
    queries[0] = rows[5]
    actual = seen(rows, queries, top, block)
    assert (actual.rows == all_at_once(rows, queries, top)).all()
    assert actual.rows[0, : min(top, 3)].tolist() == [5, 300, 301][: min(top, 3)], (
        "equal rows in their order"
    )
    exact = (queries.astype(np.float64)[:, None] * rows[actual.rows].astype(np.float64)).sum(axis=2)
    np.testing.assert_allclose(actual.scores, exact, rtol=0, atol=1e-15)


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
    assert seen(unit((3, 8)), unit((2, 8), 1), 10, 2).rows.shape == (2, 3)


@pytest.mark.parametrize("block", [8, 100, 1024])
def test_every_pair_above_a_threshold(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    rows = unit((300, 12))
    rows[40:60] = rows[3]
    cosines = rows.astype(np.float64) @ rows.astype(np.float64).T
    expected = {(i, j) for i in range(300) for j in range(i + 1, 300) if cosines[i, j] >= 0.3}
    pairs = [
        pair
        for first, second, _ in pairs_above(0.3, rows)
        for pair in zip(first.tolist(), second.tolist(), strict=True)
    ]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected
    same = sum(len(first) for first, _, _ in pairs_above(1, rows))
    assert same == 21 * 20 // 2, "equal vectors, though fp32 loses the last digit of their cosine"
    other = unit((50, 12), 1)
    both = {
        pair
        for first, second, _ in pairs_above(0.3, rows, other)
        for pair in zip(first.tolist(), second.tolist(), strict=True)
    }
    assert both == {
        (int(i), int(j)) for i, j in zip(*np.nonzero(rows @ other.T >= 0.3), strict=True)
    }


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
    assert recall(np.array([[1, 2], [3, 4]]), np.array([[2, 9], [4, 3]])) == 0.75


@pytest.mark.parametrize(("dtype", "error"), [("float32", 0), ("float16", 1e-3), ("int8", 1e-2)])
def test_vectors_keep_their_direction(dtype: str, error: float) -> None:
    rows = np.vstack([unit((100, 64)), np.zeros((1, 64), dtype=np.float32)])
    stored = as_stored(rows, dtype)
    assert stored.dtype == dtype
    again = as_read(stored)
    assert np.abs(again - rows).max() <= error
    np.testing.assert_allclose(np.linalg.norm(again[:-1], axis=1), 1, rtol=1e-6)
    assert not again[-1].any()
    if dtype == "int8":
        assert (np.abs(stored[:-1].astype(int)).max(axis=1) == 127).all()


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
    rng = np.random.default_rng(2)
    rows = (unit((400, 16)) * rng.uniform(0.2, 9, (400, 1))).astype(np.float32)
    queries = (unit((5, 16), 1) * 3).astype(np.float32)
    if measure == "cosine":
        rows, queries = (
            entry / np.linalg.norm(entry, axis=1, keepdims=True) for entry in (rows, queries)
        )
    rows[[50, 300]] = rows[7]
    nearest = Nearest(queries, 10, measure)
    for first in range(0, len(rows), block):
        nearest.see(rows[first : first + block], first)
    for query in range(5):
        exact = exact_similarities(
            measure, np.repeat(queries[query : query + 1], 400, axis=0), rows
        )
        assert nearest.rows[query].tolist() == np.lexsort((np.arange(400), -exact))[:10].tolist()
        np.testing.assert_allclose(nearest.scores[query], np.sort(exact)[::-1][:10], rtol=1e-12)


@pytest.mark.parametrize("measure", MEASURES)
def test_pairs_are_near_by_every_measure(measure: str) -> None:
    rows = unit((60, 8)) * (1 if measure == "cosine" else np.float32(3))
    i, j = np.triu_indices(60, 1)
    exact = exact_similarities(measure, rows[i], rows[j])
    threshold = float(np.sort(exact)[-41:-39].mean())
    pairs = {
        pair
        for first, second, _ in pairs_above(threshold, rows, measure=measure)
        for pair in zip(first.tolist(), second.tolist(), strict=True)
    }
    assert pairs == {
        (int(a), int(b)) for a, b, near in zip(i, j, exact >= threshold, strict=True) if near
    }
    np.testing.assert_allclose(row_by_row(rows[i], rows[j], measure)[2], exact, rtol=1e-6)


@pytest.mark.parametrize("most", [1, 5, 40, 10_000])
def test_the_nearest_pairs_are_kept_whatever_their_order(most: int) -> None:
    rows = unit((80, 6))
    rows[60:64] = rows[3]
    nearest = NearestPairs(most)
    every = list(pairs_above(-2, rows))
    for first, second, scores in every:
        for start in range(0, len(first), 97):
            some = slice(start, start + 97)
            nearest.see((first[some], second[some], scores[some]))
    first, second, scores = (np.concatenate(parts) for parts in zip(*every, strict=True))
    assert nearest.seen == len(first) == 80 * 79 // 2
    order = np.lexsort((second, first, -np.round(scores.astype(np.float64), 6)))[:most]
    retained = nearest.nearest()
    assert retained[0].tolist() == first[order].tolist()
    assert retained[1].tolist() == second[order].tolist()
