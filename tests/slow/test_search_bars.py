"""An index of a million vectors is searched in bounded memory.

The first of equally near rows come first.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bertctl.appended import AppendedArray

pytestmark = pytest.mark.slow

ROWS = 1_000_000
SIZE = 384

SEARCH = """
import resource, sys
from pathlib import Path
import numpy as np
from bertctl.search.index import Index
from tests.made_indexes import index_document

folder = Path(sys.argv[1])
index = Index(folder, index_document(rows=1_000_000, size=384))
found = index.nearest(np.load(folder / "queries.npy"), 10)
np.save(folder / "found.npy", found.rows)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_million_rows_in_less_than_a_gibibyte(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    array = AppendedArray(tmp_path / "vectors.npy", (SIZE,), "float32", None)
    for _ in range(ROWS // 10_000):
        block = random.standard_normal((10_000, SIZE), dtype=np.float32)
        array.append(block / np.linalg.norm(block, axis=1, keepdims=True))
    array.sync()
    array.close()
    vectors = np.load(tmp_path / "vectors.npy", mmap_mode="r+")
    positions = random.permutation(ROWS)[:100]
    queries = np.array(vectors[positions])
    vectors[ROWS - 1] = queries[0]
    vectors.flush()
    del vectors
    np.save(tmp_path / "queries.npy", queries)
    done = subprocess.run(
        [sys.executable, "-c", SEARCH, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * (1 if sys.platform == "darwin" else 1024) < 2**30
    arrays = np.load(tmp_path / "found.npy")
    assert arrays[:, 0].tolist() == positions.tolist()
    assert arrays[0, 1] == ROWS - 1
