"""Text files of word vectors as `--model`.

What plain numpy makes of them, in every verb that reads vectors.
"""

import gzip
import json
from codecs import BOM_UTF8
from pathlib import Path

import numpy as np
import pytest

from bertctl.catalog.word_vectors import word_vectors_folder
from bertctl.errors import DataError
from tests.conftest import Run

pytestmark = pytest.mark.in_process

_WORDS = ("the", "film", "good", "bad", "was", "café", ",")


def _table() -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(0).normal(size=(len(_WORDS), 5)).round(4)
    return dict(zip(_WORDS, numbers, strict=True))


def _lines(table: dict[str, np.ndarray]) -> list[str]:
    lines = []
    for word, vector in table.items():
        numbers = [str(number) for number in vector]
        lines.append(" ".join([word, *numbers]))
    return lines


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text("\n".join(_lines(_table())) + "\n", encoding="utf-8")
    return path


TEXTS = ("The film, was GOOD", "an unknown film", "nothing known", "café café bad")
KNOWN = (("the", "film", ",", "was", "good"), ("film",), (), ("café", "café", "bad"))


def test_a_packed_file_with_a_damaged_byte_is_refused_wherever_it_is(vectors, tmp_path):
    good = gzip.compress(vectors.read_bytes() * 20)
    damaged = tmp_path / "damaged.txt.gz"
    for i in range(10, len(good), 11):
        damaged.write_bytes(good[:i] + bytes([good[i] ^ 255]) + good[i + 1 :])
        with pytest.raises(DataError, match="damaged"):
            word_vectors_folder(damaged)


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("form", ["glove", "word2vec", "gz"])
def test_vectors_are_the_means_of_the_known_words(
    bertctl: Run, vectors: Path, tmp_path: Path, form: str, pooling: str
) -> None:
    table = _table()
    if form == "word2vec":
        vectors.write_text(
            "\n".join([f"{len(table)} 5", *(f"{line} " for line in _lines(table))]),
            encoding="utf-8",
        )
    if form == "gz":
        content = vectors.read_bytes()
        vectors = tmp_path / "vectors.txt.gz"
        vectors.write_bytes(gzip.compress(content))
    texts = "".join(f"{text}\n" for text in TEXTS)
    done = bertctl(
        "extract-features",
        "-",
        "-o",
        "out.npy",
        "--model",
        vectors.name,
        "--pooling",
        pooling,
        input=texts,
    )
    assert done.returncode == 0, done.stderr
    pool = {"mean": np.mean, "max": np.max}[pooling]
    expected = [
        pool([table[word] for word in words], axis=0) if words else np.zeros(5) for words in KNOWN
    ]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-6)


def test_the_first_of_equal_words_counts_and_a_word_may_have_spaces(
    bertctl: Run, tmp_path: Path
) -> None:
    (tmp_path / "vectors.txt").write_bytes(BOM_UTF8 + b"3 2\nfilm 1 2\nfilm 3 4\n. . 5 6\n")
    done = bertctl(
        "extract-features", "-", "-o", "out.npy", "--model", "vectors.txt", input="film\n"
    )
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "out.npy").tolist() == [[1.0, 2.0]]


def test_capitals_are_kept_where_the_vocabulary_has_some(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("Film 1 2\nfilm 3 4\n")
    done = bertctl(
        "extract-features",
        "-",
        "-o",
        "out.npy",
        "--model",
        "vectors.txt",
        input="Film\nfilm\nFILM\n",
    )
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "out.npy").tolist() == [[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]


def test_a_probe_on_them_that_predicts_from_elsewhere(
    bertctl: Run, vectors: Path, tmp_path: Path
) -> None:
    rows = [f"the film was good {i},pos\nthe film was bad {i},neg" for i in range(15)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    made = bertctl("probe", "rows.csv", "--model", vectors.name, "-o", "run", "--json")
    assert made.returncode == 0, made.stderr
    metrics = json.loads(made.stdout)["metrics"]
    assert metrics["validation"]["accuracy"]["value"] == 1.0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    answered = bertctl(
        "predict", tmp_path / "run", "-", input="good film\nbad unheard film\n", cwd=elsewhere
    )
    assert answered.returncode == 0, answered.stderr
    assert [json.loads(line)["prediction"] for line in answered.stdout.splitlines()] == [
        "pos",
        "neg",
    ]
    scored = bertctl("evaluate", tmp_path / "run", "--json")
    assert json.loads(scored.stdout)["metrics"] == metrics


def test_texts_are_compared_and_searched_by_them(
    bertctl: Run, vectors: Path, tmp_path: Path
) -> None:
    table = _table()
    u = np.mean([table["good"], table["film"]], axis=0)
    v = table["bad"]
    done = bertctl("similarity", "a good film", "bad", "--model", vectors.name, "--json")
    assert done.returncode == 0, done.stderr
    cosine = u @ v / np.linalg.norm(u) / np.linalg.norm(v)
    assert json.loads(done.stdout)["answers"][0]["similarity"] == pytest.approx(cosine, abs=1e-5)
    (tmp_path / "texts.txt").write_text("bad\ngood\nfilm\n")
    made = bertctl("index", "texts.txt", "-o", "index", "--model", vectors.name)
    assert made.returncode == 0, made.stderr
    searched = bertctl("search", "index", "Film", "-k", 1, "--json")
    assert searched.returncode == 0, searched.stderr
    assert json.loads(searched.stdout)["answers"][0]["text"] == "film"


def test_what_needs_a_network_is_refused(bertctl: Run, vectors: Path, opinions: Path) -> None:
    for words in (("finetune", opinions), ("finetune", "few-shot", "--train-file", opinions)):
        done = bertctl(*words, "--model", vectors.name, "-o", "run")
        assert done.returncode == 2, done.stderr
        assert "bertctl probe" in done.stderr


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", ""),
        (b"3 4\n", ""),
        (b"film\n", ":1"),
        (b"film 1\n", ":1"),
        (b"a film is good\n", ":1"),
        (b"film 1 2\ngood 1\n", ":2"),
        (b"film 1 2\ngood 1 x\n", ":2"),
        (
            b"film 1 nan\n",
            ":1: this is not a text file of word vectors: a number that is not finite",
        ),
        (
            b"film 1 2\ngood 3 1 2\n",
            ":2: this is not a text file of word vectors: 3 numbers, where there should be 2",
        ),
        (b"2 2\nfilm 1 2 3\ngood 1 2 3\n", ":2"),
        (b"2 2\nfilm 1 2\n", " has 1 word vector, and its first line promises 2"),
        (b"1 2\nfilm " + bytes(range(128, 255)), ":2"),
        (b"film 1 2\n\ngood 1 2\n", ":2"),
    ],
)
def test_other_files_are_refused_with_the_line(
    bertctl: Run, tmp_path: Path, content: bytes, line: str
) -> None:
    (tmp_path / "vectors.txt").write_bytes(content)
    done = bertctl(
        "extract-features", "-", "-o", "out.npy", "--model", "vectors.txt", input="film\n"
    )
    assert done.returncode == 3, done.stderr
    assert f"vectors.txt{line}" in done.stderr
    assert not (tmp_path / "out.npy").exists()


def test_a_damaged_gz_is_refused(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "vectors.txt.gz").write_bytes(gzip.compress(b"film 1 2\n" * 50)[:-9])
    done = bertctl(
        "extract-features", "-", "-o", "out.npy", "--model", "vectors.txt.gz", input="film\n"
    )
    assert done.returncode == 3, done.stderr
