"""A graph that names rows which are not there, or has vectors of another size, is damaged.

No bug of ours.
"""

from pathlib import Path

import numpy as np
import pytest

from bertctl.errors import DataError
from bertctl.search.index import Index, with_graph
from tests.made_indexes import index_document


@pytest.mark.parametrize(("size", "key"), [(8, 10**6), (5, 0)])
def test_a_graph_of_other_rows_is_told_as_damaged(tmp_path: Path, size: int, key: int) -> None:
    pytest.importorskip("usearch")
    from usearch.index import Index as Graph

    vectors = np.eye(8, dtype=np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    index = Index(tmp_path, index_document(rows=8, size=8))
    with_graph(index, lambda _: None)
    (path,) = tmp_path.glob("graph-*.usearch")
    other = Graph(ndim=size, metric="cos", dtype="float32")
    other.add(np.arange(8) + key, np.ascontiguousarray(vectors[:, :size] + 1))
    other.save(str(path))
    with pytest.raises(DataError, match=r"usearch can't be used: "):
        with_graph(index, lambda _: None).nearest(vectors, 3)
