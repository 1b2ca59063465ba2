"""A corpus larger than the memory it may take: 1 GiB of text, packed by a process.

Prints its figures (-s).
"""

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertctl.config.schema import Recipe

pytestmark = pytest.mark.slow

GIB = 1 << 30

READS = """
import json, resource, sys, time
from bertctl.config.schema import Recipe
from bertctl.tokenization.tokenizer_files import open_tokenizer
from bertctl.training.corpus_cache import read_corpus

tokenizer = open_tokenizer("minilm").tokenizer
started = time.perf_counter()
data = read_corpus(Recipe.model_validate_json(sys.argv[1]), tokenizer)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
seconds = time.perf_counter() - started
n_documents = len(data.train.documents) - 1
print(json.dumps([seconds, peak, data.train.ids.nbytes, n_documents]))
"""


@pytest.fixture(scope="module", params=["document", "sentence"])
def big_file(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Texts of ten sentences of words, none of them twice.

    The words are as long and as frequent as English ones.
    """
    draw = random.Random(3)  # noqa: S311
    lengths = [1 + i.bit_length() // 2 + draw.randint(0, 3) for i in range(30_000)]
    words = ["".join(draw.choices("etaoinshrdlu", k=length)) for length in lengths]
    many = [words[int(30_000 ** draw.random()) - 1] for _ in range(200_000)]
    path = tmp_path_factory.mktemp("big") / "big.txt"
    between = " "
    end = "\n"
    if request.param == "sentence":
        between = "\n"
        end = "\n\n"
    with path.open("w", encoding="utf-8") as out:
        written = 0
        numbers = itertools.count()
        while written < GIB:
            number = next(numbers)
            starts = (draw.randrange(199_000) for _ in range(10))
            text = between.join(
                f"{number} {' '.join(many[i : i + draw.randint(5, 30)])}." for i in starts
            )
            written += out.write(text + end)
    yield path
    path.unlink()


def test_a_gibibyte_takes_little_memory_and_little_disk(big_file: Path, tmp_path: Path) -> None:
    recipe = Recipe.model_validate(
        {"task": "pretraining", "pretraining": {"corpus": [str(big_file)]}}
    )
    env = os.environ | {"BERTCTL_CACHE": str(tmp_path / "cache")}
    typed = [sys.executable, "-c", READS, recipe.model_dump_json()]
    actual = [json.loads(subprocess.check_output(typed, env=env, text=True)) for _ in range(2)]
    stored = sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*") if file.is_file())
    for subject, (seconds, peak, ids, documents) in zip(("packed", "opened"), actual, strict=True):
        figures = (
            f"{seconds:.1f} s, peak {peak / GIB:.2f} GiB, {documents:,} documents, "
            f"{stored / ids:.3f} x ids"
        )
        print(f"{subject}: {figures}")  # noqa: T201
        assert peak < 1.5 * GIB
        assert stored <= 1.2 * ids
    assert actual[0][2:] == actual[1][2:]
