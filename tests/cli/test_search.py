"""`bertctl index`, `search`, `similarity` and `mine`, as a person types them."""

import csv
import gzip
import hashlib
import itertools
import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from bertctl.errors import ExitCode, UnavailableError
from bertctl.run_folder import hold
from bertctl.search.index import Index, with_graph
from tests.conftest import Run, TinyRun
from tests.documents.schemas import check
from tests.made_indexes import index_document
from tests.sentence_folders import make_folder, sentence_transformers

pytestmark = pytest.mark.in_process

TEXTS = [
    "the film was good",
    "it was bad food",
    "the film was very fine",
    "poor dull food",
    "bright",
    "not a good film",
    "the food was not bad",
    "it was fine",
    "a dull film",
    "the film was good",
]

BATCHES = 5e-6
"""Of a cosine: alone and in a batch a text has not quite the same vector; on some CPUs the sixth
digit shows it."""

COLUMNS = ("--text-column", "body", "--id-column", "id")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Ten texts with ids of their own, the first and the last of them equal."""
    rows = [
        {"id": f"row-{i}", "body": text, "label": "pos" if i % 2 else "neg"}
        for i, text in enumerate(TEXTS)
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


EXACT = ("--precision", "fp32")
"""Whether bf16 is fast, and taken, depends on the machine."""


def vectors_of(bertctl: Run, model: Path, file: str, tmp_path: Path) -> np.ndarray:
    done = bertctl(
        "extract-features",
        file,
        "-o",
        "v.npy",
        "--model",
        model,
        "--max-length",
        40,
        "--normalize",
        "--overwrite",
        "--precision",
        "fp32",
    )
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "v.npy")


def made(bertctl: Run, model: Path, *more: object, corpus: str = "corpus.jsonl") -> dict[str, Any]:
    done = bertctl("index", corpus, "-o", "x", "--model", model, *COLUMNS, "--json", *EXACT, *more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_index_is_found_in_as_by_hand(
    bertctl: Run, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    document = made(bertctl, tiny_model)
    check("index", json.loads((tmp_path / "x" / "index.json").read_text()), "index.json")
    assert document["rows"] == 10
    assert document["size"] == 36
    assert document["pooling"] == "mean"
    assert document["max_length"] == 41
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    vectors = vectors_of(bertctl, tiny_model, "texts.txt", tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "x" / "vectors.npy"), vectors, atol=1e-6)
    rows = lines(bertctl("search", "x", "texts.txt", "-k", 3).stdout)
    assert [(entry["query_id"], entry["rank"]) for entry in rows[:4]] == [
        ("0", 1),
        ("0", 2),
        ("0", 3),
        ("1", 1),
    ]
    order = np.argsort(-np.round(vectors.astype(np.float64) @ vectors.T, 9), axis=1, kind="stable")[
        :, :3
    ]
    assert [entry["id"] for entry in rows] == [f"row-{i}" for i in order.ravel()]
    assert [entry["id"] for entry in rows[:2]] == ["row-0", "row-9"], "equal texts in their order"
    assert rows[0] == {
        "query_id": "0",
        "query": TEXTS[0],
        "rank": 1,
        "score": 1.0,
        "id": "row-0",
        "text": TEXTS[0],
        "label": "neg",
    }


def test_every_form_of_answer(bertctl: Run, tiny_model: Path, corpus: Path, tmp_path: Path) -> None:
    made(bertctl, tiny_model)
    table = bertctl("search", "x", TEXTS[4], "-k", 2)
    assert table.stdout.splitlines()[1].split()[:4] == ["0", "bright", "1", "1.0000"]
    document = json.loads(bertctl("search", "x", TEXTS[4], "-k", 2, "--json").stdout)
    assert document["index"] == "x"
    assert document["count"] == 2
    assert document["answers"][0]["id"] == "row-4"
    written = json.loads(
        bertctl(
            "search", "x", "corpus.jsonl", "-k", 2, "-o", "found.csv", "--json", *COLUMNS
        ).stdout
    )
    assert written["count"] == 20
    assert written["files"] == ["found.csv"]
    with (tmp_path / "found.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["query_id"] for row in rows[::2]] == [f"row-{i}" for i in range(10)]
    piped = bertctl("search", "x", "-", "-k", 1, input="bright\n")
    assert lines(piped.stdout)[0]["id"] == "row-4"
    packed = tmp_path / "more.csv.gz"
    packed.write_bytes(gzip.compress(b"id,text\nq,bright\n"))
    assert (
        lines(bertctl("search", "x", packed, "-k", 1, "--id-column", "id").stdout)[0]["query_id"]
        == "q"
    )
    assert len(lines(bertctl("search", "x", packed, "-k", 99).stdout)) == 10, "all there are"


def test_it_grows_and_goes_on_where_it_was_killed(
    bertctl: Run, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    folder = made(bertctl, tiny_model)
    files = {path.name: path.read_bytes() for path in (tmp_path / "x").glob("[!.]*")}
    assert bertctl("index", corpus, "-o", "x", "--model", tiny_model).returncode == 2
    made(bertctl, tiny_model, "--resume")
    assert {path.name: path.read_bytes() for path in (tmp_path / "x").glob("[!.]*")} == files, (
        "nothing was left to do"
    )
    (tmp_path / "more.txt").write_text("fine food\na film\n")
    for more in ((), ("--text-column", "column1")):
        refused = bertctl("index", "more.txt", "-o", "x", "--append", *more)
        assert refused.returncode == 3, refused.stderr
        assert "more.txt has no column" in refused.stderr
    assert "'body'" in bertctl("index", "more.txt", "-o", "x", "--append").stderr, (
        "as the index was made"
    )
    (tmp_path / "more.csv").write_text("id,body,text\nrow-10,fine food,no\nrow-11,a film,no\n")
    assert (tmp_path / "x" / ".lock").exists(), (
        "what is made anew keeps the lock that its maker holds"
    )
    with hold(tmp_path / "x" / ".lock"):  # as another process does that adds to it
        refused = bertctl("index", "more.csv", "-o", "x", "--append")
    assert refused.returncode == 2, refused.stderr
    assert "x is in use by" in refused.stderr
    grown = bertctl("index", "more.csv", "-o", "x", "--append", "--json")
    assert grown.returncode == 0, grown.stderr
    assert "more.csv is read as the index was made: text_column body, id_column id" in grown.stderr
    assert json.loads(grown.stdout)["rows"] == 12
    assert json.loads(grown.stdout)["sources"] == [
        {"source": "corpus.jsonl", "rows": 10},
        {"source": "more.csv", "rows": 2},
    ]
    assert (
        lines(
            bertctl("search", "x", "fine food", "-k", 1, "-o", "f.jsonl").stdout
            or (tmp_path / "f.jsonl").read_text()
        )[0]["text"]
        == "fine food"
    )
    assert lines((tmp_path / "x" / "rows.jsonl").read_text())[10]["text"] == "fine food", (
        "of the column that the index remembers"
    )
    with_ids = [{"key": "row-10", "body": "a film"}, {"key": "new", "body": "dull"}]
    (tmp_path / "keyed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in with_ids))
    grown = bertctl("index", "keyed.jsonl", "-o", "x", "--append", "--id-column", "key")
    assert grown.returncode == 0, grown.stderr
    assert (
        "1 text of keyed.jsonl has an id that another text there or in the index has, such as "
        "'row-10'" in grown.stderr
    )
    # As after a kill: more in the files than index.json says, which is not complete.
    made(bertctl, tiny_model, "--overwrite")
    with (tmp_path / "x" / "rows.jsonl").open("a") as file:
        file.write('{"id": "half')
    document = folder | {"complete": False, "rows": 0, "vectors": 0, "bytes": 0}
    document["corpus"] = {"source": "corpus.jsonl", "rows": 0, "texts_sha256": ""}
    document.pop("index")
    (tmp_path / "x" / "index.json").write_text(json.dumps(document))
    for words in (("search", "x", "film"), ("index", "more.txt", "-o", "x", "--append")):
        refused = bertctl(*words)
        assert refused.returncode == 3, refused.stderr
        assert "--resume" in refused.stderr
    made(bertctl, tiny_model, "--resume")
    assert {path.name: path.read_bytes() for path in (tmp_path / "x").glob("[!.]*")} == files
    (tmp_path / "x" / "index.json").write_text(json.dumps(folder | {"complete": False}))
    other = bertctl("index", "more.csv", "-o", "x", "--resume")
    assert other.returncode == 3
    assert "first rows of more.csv" in other.stderr


def test_rows_that_can_not_be_added_leave_the_index_as_it_was(
    bertctl: Run, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    made(bertctl, tiny_model)
    files = {path.name: path.read_bytes() for path in (tmp_path / "x").glob("[!.]*")}
    rows = [json.dumps({"id": f"n{i}", "body": f"a film {i}"}) for i in range(5000)]
    (tmp_path / "more.jsonl").write_text("\n".join([*rows, "{half"]))
    refused = bertctl("index", "more.jsonl", "-o", "x", "--append")
    assert refused.returncode == 3, refused.stderr
    assert "more.jsonl:5001" in refused.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "x").glob("[!.]*")} == files
    assert bertctl("search", "x", "fine food").returncode == 0


def test_what_is_whole_is_not_computed_again(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    texts = [f"the film was {'very ' * (i % 5)}good {i}" for i in range(600)]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    words = ("index", "texts.txt", "-o", "x", "--model", tiny_model)
    assert bertctl(*words).returncode == 0
    index_path = tmp_path / "x" / "index.json"
    rows_path = tmp_path / "x" / "rows.jsonl"
    vectors_path = tmp_path / "x" / "vectors.npy"
    document = json.loads(index_path.read_text())
    rows = rows_path.read_bytes()
    vectors = np.load(vectors_path)
    assert document["rows"] == 600
    assert document["corpus"]["rows"] == 600
    assert len(vectors) == 600
    # What a kill leaves after a chunk of 256 rows, marked by numbers of its own.
    digest = hashlib.sha256("\x00".join(texts[:256]).encode() + b"\x01").hexdigest()
    first_rows = rows.splitlines(keepends=True)[:256]
    killed_document = document | {
        "rows": 256,
        "vectors": 256,
        "bytes": len(b"".join(first_rows)),
        "complete": False,
        "corpus": {"source": "texts.txt", "rows": 256, "texts_sha256": digest},
    }
    index_path.write_text(json.dumps(killed_document))
    marked = np.load(vectors_path, mmap_mode="r+")
    marked[:256] = 7
    marked.flush()

    resumed = bertctl(*words, "--resume")

    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(index_path.read_text()) == document
    assert rows_path.read_bytes() == rows
    resumed_vectors = np.load(vectors_path)
    assert (resumed_vectors[:256] == 7).all()
    np.testing.assert_allclose(resumed_vectors[256:], vectors[256:], atol=1e-6)

    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts[:100]))
    index_path.write_text(json.dumps(killed_document))
    shorter = bertctl(*words, "--resume")
    assert shorter.returncode == 3
    assert "first rows of texts.txt" in shorter.stderr


@pytest.mark.parametrize(
    ("dtype", "size"), [pytest.param("float16", 2, marks=pytest.mark.slow), ("int8", 1)]
)
def test_fewer_bits_are_measured(
    bertctl: Run, tiny_model: Path, corpus: Path, tmp_path: Path, dtype: str, size: int
) -> None:
    document = made(bertctl, tiny_model, "--dtype", dtype)
    assert (tmp_path / "x" / "vectors.npy").stat().st_size == 128 + 10 * 36 * size
    recall = document["recall"]
    assert recall["at"] == 10
    assert recall["queries"] == 10
    assert recall["rows"] == 10
    assert 0.9 < recall["value"] <= 1
    (tmp_path / "one.csv").write_text("id,body\nnew,one more\n")
    grown = bertctl("index", "one.csv", "-o", "x", "--append", "--model", tiny_model)
    assert grown.returncode == 0, grown.stderr
    assert "looked for theirs" not in grown.stderr, "one text has no ten others"
    exact = made(bertctl, tiny_model, "--overwrite")
    assert "recall" not in exact
    stderr = bertctl(
        "index", corpus, "-o", "y", "--model", tiny_model, *COLUMNS, "--dtype", dtype
    ).stderr
    assert f"{dtype} finds 100.0% of the 10 nearest texts in float32" in stderr
    score = json.loads(bertctl("search", "y", "bright", "--json").stdout)["answers"][0]["score"]
    assert score == pytest.approx(1, abs=1e-3 if dtype == "float16" else 1e-2)


def test_an_index_knows_its_model(
    bertctl: Run, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    model = make_folder("prompts", tiny_model, tmp_path / "model")
    document = made(bertctl, model)
    assert document["pooling"] == "model"
    assert document["max_length"] == 40, "as the folder says"
    other = bertctl("search", "x", "film", "--model", "minilm")
    assert other.returncode == 3, other.stderr
    assert "another model is given" in other.stderr
    assert bertctl("search", "x", "film", "--model", model).returncode == 0
    path = model / "config_sentence_transformers.json"
    before = path.read_text()
    path.write_text(before.replace("was it ", "is it "))
    other = bertctl("search", "x", "film")
    assert other.returncode == 3
    assert "another model is given" in other.stderr, "other words before queries"
    path.write_text(before)
    moved = shutil.move(model, tmp_path / "moved")
    assert bertctl("search", "x", "film").returncode == 4
    assert bertctl("search", "x", "film", "--model", moved).returncode == 0
    shutil.copytree(tiny_model, model)
    changed = json.loads((model / "config.json").read_text()) | {"layer_norm_eps": 1e-5}
    (model / "config.json").write_text(json.dumps(changed))
    assert bertctl("search", "x", "film").returncode == 2, "it has no modules.json any more"


@pytest.mark.parametrize(
    "dtype",
    ["float32", *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in ("float16", "int8"))],
)
def test_a_graph_finds_what_is_near_and_says_how_much(
    dtype: str, bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("usearch", reason="pip install 'bertctl[search]'")
    words = sorted({word for text in TEXTS for word in text.split()})
    texts = [f"{a} {b} {c}" for a in words[::2] for b in words for c in words[::3]]
    (tmp_path / "corpus.txt").write_text("\n".join(texts))
    (tmp_path / "queries.txt").write_text("\n".join(texts[::11][:40]))
    done = bertctl("index", "corpus.txt", "-o", "x", "--model", tiny_model, "--dtype", dtype)
    assert done.returncode == 0, done.stderr
    search = ("search", "x", "queries.txt", "-k", 5, "--json")
    exact, quick = (bertctl(*search, *more) for more in ((), ("--approximate",)))
    assert "making a graph" in quick.stderr
    right = json.loads(exact.stdout)["answers"]
    actual = json.loads(quick.stdout)["answers"]
    pairs = [
        {(entry["query_id"], entry["id"]): entry["score"] for entry in entry}
        for entry in (right, actual)
    ]
    both = pairs[0].keys() & pairs[1].keys()
    message = json.loads(quick.stdout)["approximate"]
    assert message == {
        "recall": pytest.approx(len(both) / 200),
        "at": 5,
        "queries": 40,
        "of": "queries",
    }
    assert message["recall"] > 0.8
    assert (
        f"{message['recall']:.1%} of the 5 nearest texts are found, as 40 queries" in quick.stderr
    )
    assert all(pairs[0][key] == pairs[1][key] for key in both), "the same cosines"
    assert [entry["score"] for entry in actual[:5]] == sorted(
        (entry["score"] for entry in actual[:5]), reverse=True
    )
    few = json.loads(bertctl("search", "x", "good", "-k", 5, "--json", "--approximate").stdout)[
        "approximate"
    ]
    assert few["at"] == 5
    assert few["of"] == "texts"
    assert 50 < few["queries"] <= 100


def test_a_graph_is_made_again_of_other_vectors_only(
    bertctl: Run, tiny_model: Path, corpus: Path
) -> None:
    pytest.importorskip("usearch", reason="pip install 'bertctl[search]'")
    made(bertctl, tiny_model)
    search = ("search", "x", TEXTS[0], "-k", 30, "--approximate", "--json")
    first = bertctl(*search)
    (graph,) = (corpus.parent / "x").glob("*.usearch")
    assert (
        first.stdout == bertctl("search", "x", TEXTS[0], "-k", 30, "--json", "--approximate").stdout
    )
    assert "making" not in bertctl(*search).stderr
    made(bertctl, tiny_model, "--append")
    assert len(json.loads(bertctl(*search).stdout)["answers"]) == 20
    (other,) = (corpus.parent / "x").glob("*.usearch")
    assert other != graph
    other.write_bytes(other.read_bytes()[:999])
    done = bertctl(*search)
    assert done.returncode == ExitCode.DATA
    assert f"Delete x/{other.name}" in done.stdout
    made(bertctl, tiny_model, "--overwrite")


def test_a_graph_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch", None)
    with pytest.raises(UnavailableError, match="needs the package usearch") as refused:
        with_graph(Index(tmp_path, index_document()), print)
    assert "pip install 'bertctl[search]'" in str(refused.value.remedy)


def test_queries_and_documents_have_their_prompts(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    """The folder has a prompt for queries, and for documents only its default one."""
    model = make_folder("prompts", tiny_model, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("fine\n")
    assert (
        bertctl("index", "texts.txt", "-o", "x", "--model", model, "--precision", "fp32").returncode
        == 0
    )
    plain = make_folder("mean", tiny_model, tmp_path / "plain")
    (plain / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    requests = "was it fine"
    read = "a very good film : fine"
    expected = json.loads(
        bertctl(
            "similarity", requests, read, "--model", plain, "--precision", "fp32", "--json"
        ).stdout
    )["answers"][0]["similarity"]
    score = json.loads(bertctl("search", "x", "fine", "--json").stdout)["answers"][0]["score"]
    assert score == pytest.approx(expected, abs=2e-6)
    same = json.loads(
        bertctl(
            "similarity", "fine", "fine", "--model", model, "--precision", "fp32", "--json"
        ).stdout
    )
    assert same["answers"][0]["similarity"] == pytest.approx(1, abs=1e-6)


def test_an_empty_prompt_of_documents_takes_the_place_of_the_default_one(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    """Sentence-transformers writes such a prompt into every folder that has none for documents."""
    library = sentence_transformers()
    model = make_folder("prompts", tiny_model, tmp_path / "model")
    messages = {"prompts": {"query": "was it ", "document": ""}, "default_prompt_name": "query"}
    (model / "config_sentence_transformers.json").write_text(json.dumps(messages))
    (tmp_path / "texts.txt").write_text("fine\n")
    assert (
        bertctl("index", "texts.txt", "-o", "x", "--model", model, "--precision", "fp32").returncode
        == 0
    )
    expected = library.SentenceTransformer(str(model), device="cpu").encode_document(["fine"])
    np.testing.assert_allclose(np.load(tmp_path / "x" / "vectors.npy"), expected, atol=1e-6)


def test_texts_whose_vectors_are_zeros_are_put_into_clusters(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    """A linear layer with ReLU gives every text but one a vector of zeros."""
    texts = ["good film", "bad food", "the film was dull"]
    model = make_folder("dense", tiny_model, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    file = model / "2_Dense" / "config.json"
    file.write_text(file.read_text().replace("Tanh", "ReLU"))
    assert (
        bertctl(
            "extract-features",
            "texts.txt",
            "-o",
            "x.npy",
            "--model",
            tiny_model,
            "--pooling",
            "mean",
            "--max-length",
            "40",
        ).returncode
        == 0
    )
    first, *others = np.load(tmp_path / "x.npy").astype(np.float32)
    way = first - np.mean(others, axis=0)
    bias = np.full(20, -max(way @ other for other in others) - 1e-3, dtype=np.float32)
    weights = {"linear.weight": np.tile(way, (20, 1)), "linear.bias": bias}
    save_file(weights, model / "2_Dense" / "model.safetensors")
    done = bertctl(
        "cluster", "texts.txt", "--method", "agglomerative", "--clusters", "2", "--model", model
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["cluster"] for line in done.stdout.splitlines()] == [1, 0, 0]


def test_other_rows_are_no_rest_of_a_finished_index(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    for name, text in (("one.txt", "good film"), ("two.txt", "bad food")):
        (tmp_path / name).write_text(f"{text}\n")
    assert bertctl("index", "one.txt", "-o", "x", "--model", tiny_model).returncode == 0

    refused = bertctl("index", "two.txt", "-o", "x", "--resume", "--model", tiny_model)

    assert refused.returncode == ExitCode.DATA
    assert "add other rows with --append alone" in refused.stderr


def test_an_append_that_was_killed_before_its_first_rows_begins_again(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    for name, text in (("one.txt", "good film"), ("two.txt", "bad food")):
        (tmp_path / name).write_text(f"{text}\n")
    for folder in ("plain", "resumed"):
        assert bertctl("index", "one.txt", "-o", folder, "--model", tiny_model).returncode == 0
    assert bertctl("index", "two.txt", "-o", "plain", "--append").returncode == 0

    resumed = bertctl("index", "two.txt", "-o", "resumed", "--append", "--resume")
    again = bertctl("index", "-", "-o", "resumed", "--append", "--resume", input="bad food\n")

    assert resumed.returncode == 0, resumed.stderr
    assert "has no rows of two.txt yet" in resumed.stderr
    assert again.returncode == 0, again.stderr
    for name in ("rows.jsonl", "vectors.npy"):
        assert (tmp_path / "resumed" / name).read_bytes() == (
            tmp_path / "plain" / name
        ).read_bytes()


REFUSED: Mapping[str, tuple[str, int, str]] = {
    "a folder that is no index": ("search . film", 4, "is not an index"),
    "an index that is not there": ("search nowhere film", 4, "nowhere is not an index"),
    "an empty query": ("search x ''", 2, "the text is empty"),
    "a file of queries that is not there": (
        "search x nowhere.txt",
        4,
        "nowhere.txt does not exist",
    ),
    "an empty file of queries": ("search x empty.txt", 3, "has no rows"),
    "no results": ("search x film -k 0", 2, "--top-k"),
    "another length": ("search x film --max-length 20", 3, "max_length 20 in place of 41"),
    "a longer length than the model's": (
        "search x film --max-length 2000",
        2,
        "2000 is over the 41 positions",
    ),
    "an empty corpus": ("index empty.txt -o y --model MODEL", 3, "has no rows"),
    "a corpus that is not there": (
        "index nowhere.txt -o y --model MODEL",
        4,
        "nowhere.txt does not exist",
    ),
    "a corpus of pairs": ("index pairs.csv -o y --model MODEL", 2, "two columns of texts"),
    "bytes that are no text": ("index latin.txt -o y --model MODEL", 3, "byte 0xe9 is not utf-8"),
    "a column that is not there": (
        "index pairs.csv -o y --model MODEL --text-column body",
        3,
        "body",
    ),
    "an index that is there": ("index texts.txt -o x --model MODEL", 2, "--append"),
    "a folder with something else": (
        "index texts.txt -o folder --overwrite --model MODEL",
        2,
        "more than an index",
    ),
    "a file in its place": (
        "index texts.txt -o three.txt --model MODEL",
        2,
        "three.txt is not a folder",
    ),
    "its own rows": ("index x/rows.jsonl -o x --append", 2, "lies in x"),
    "nothing to add to": ("index texts.txt -o y --append", 4, "y is not an index"),
    "another type of numbers": (
        "index texts.txt -o x --append --dtype int8",
        3,
        "dtype 'int8' in place of 'float32'",
    ),
    "another layer": (
        "index texts.txt -o x --append --layers 1",
        3,
        "layer '1' in place of 'last'",
    ),
    "other windows": ("index texts.txt -o x --append --long-text window", 3, "in place of None"),
    "more and anew": ("index texts.txt -o x --append --overwrite", 2, "Leave one of them out"),
    "answers into the index": (
        "search x texts.txt -o x/rows.jsonl",
        2,
        "is an input of this command",
    ),
    "answers as Parquet": ("search x texts.txt -o found.parquet", 2, ".jsonl, .json, .csv or .tsv"),
    "no such type": ("index texts.txt -o y --dtype int4", 2, "'int8'"),
    "a layer that there is none of": (
        "index texts.txt -o y --model MODEL --layers 9",
        2,
        "no layer 9",
    ),
    "vectors of tokens": (
        "index texts.txt -o y --model MODEL --pooling none",
        2,
        "vectors of tokens",
    ),
    "a pooling that there is none of": (
        "similarity film food --model MODEL --pooling men",
        2,
        "did you mean mean",
    ),
    "one column": ("similarity texts.txt --model MODEL", 2, "one column of texts"),
    "one text": ("similarity film --model nowhere/model", 2, "has one text"),
    "one text with itself": ("similarity film --all --model nowhere/model", 2, "has one text"),
    "no such scores": (
        "similarity pairs.csv --label-column gold --model nowhere/model",
        2,
        "no column 'gold'",
    ),
    "two texts against three": (
        "similarity texts.txt three.txt --model MODEL",
        3,
        "2 rows, three.txt 3",
    ),
    "an empty text": ("similarity film '' --model MODEL", 2, "the text is empty"),
    "a cosine over 1": ("mine texts.txt --threshold 1.5 --model MODEL", 2, "--threshold"),
    "more pairs than are let through": (
        "mine three.txt --threshold -1 --max-pairs 1 --strict --model MODEL",
        3,
        "the 1 nearest are given",
    ),
    "no number of clusters": ("cluster three.txt --model nowhere/model", 2, "--clusters 8"),
    "a number of clusters where it is found": (
        "cluster three.txt --method hdbscan --clusters 2 --model nowhere/model",
        2,
        "Leave --clusters out",
    ),
    "batches of what is no k-means": (
        "cluster three.txt --method hdbscan --approximate --model nowhere/model",
        2,
        "choose --method kmeans",
    ),
    "more clusters than texts": (
        "cluster three.txt --clusters 4 --model MODEL",
        2,
        "3 of them different",
    ),
    "a seed that k-means does not take": (
        "cluster three.txt --clusters 2 --seed 99999999999",
        2,
        "4294967295",
    ),
    "a model that is none": ("mine texts.txt --model nowhere/model", 4, "nowhere"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, nursery: Any, tiny_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("places")
    (folder / "texts.txt").write_text("a film\nfine food\n")
    (folder / "three.txt").write_text("a film\nfine food\nbright\n")
    (folder / "empty.txt").write_text("")
    (folder / "pairs.csv").write_text("sentence1,sentence2\na,b\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "folder").mkdir()
    (folder / "folder" / "thesis.txt").write_text("mine\n")
    done = nursery.run(["index", "texts.txt", "-o", "x", "--model", str(tiny_model)], cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("subject", REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence(
    subject: str, bertctl: Run, tiny_model: Path, places: Path
) -> None:
    line, code, message = REFUSED[subject]
    done = bertctl(
        *(word.replace("MODEL", str(tiny_model)) for word in shlex.split(line)), cwd=places
    )
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (places / "y" / "index.json").exists()


DAMAGE = {
    "half a file of vectors": ("vectors.npy", lambda data: data[: len(data) // 2]),
    "vectors that are none": ("vectors.npy", lambda data: data[:0] + b"hello"),
    "another shape": ("vectors.npy", lambda data: data.replace(b"(2, 36)", b"(4, 18)")),
    "numbers that are none": ("vectors.npy", lambda data: data[:128] + b"\xff" * (len(data) - 128)),
    "lost rows": ("rows.jsonl", lambda data: data.splitlines(keepends=True)[0]),
    "rows that are no JSON": ("rows.jsonl", lambda data: data.replace(b"{", b"[")),
    "rows without a text": ("rows.jsonl", lambda data: b"{}\n{}\n" + data[:0]),
    "rows that are lists": ("rows.jsonl", lambda data: b"[1]\n[2]\n" + data[:0]),
    "no JSON": ("index.json", lambda data: data[:-9]),
    "a wrong type": ("index.json", lambda data: data.replace(b'"rows": 2,', b'"rows": "two",')),
    "no hash": ("index.json", lambda data: data.replace(b"model_hash", b"model_hush")),
}


@pytest.mark.parametrize("subject", DAMAGE)
def test_a_damaged_index_is_refused(
    subject: str, bertctl: Run, places: Path, tmp_path: Path
) -> None:
    shutil.copytree(places / "x", tmp_path / "x")
    name, change = DAMAGE[subject]
    file = tmp_path / "x" / name
    before = file.read_bytes()
    file.write_bytes(change(before))
    assert file.read_bytes() != before
    done = bertctl("search", "x", "film")
    assert done.returncode == ExitCode.DATA, done.stderr
    assert name in done.stderr


def test_a_long_query_is_cut_and_said(bertctl: Run, places: Path) -> None:
    done = bertctl("search", "x", "very " * 50, cwd=places)
    assert done.returncode == 0
    assert "1 of 1 examples (100.0 %) are longer than 41 tokens" in done.stderr
    windows = bertctl("search", "x", "very " * 50, "--long-text", "window", cwd=places)
    assert windows.returncode == 0
    assert "longer" not in windows.stderr


def test_two_texts_two_files_and_two_columns(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    first = TEXTS[:4]
    second = TEXTS[4:8]
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in first))
    (tmp_path / "b.txt").write_text("".join(f"{text}\n" for text in second))
    rows = [f"{first[number]},{second[number]},{number}\n" for number in range(4)]
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,score\n" + "".join(rows))
    first_vectors = vectors_of(bertctl, tiny_model, "a.txt", tmp_path)
    second_vectors = vectors_of(bertctl, tiny_model, "b.txt", tmp_path)
    model = ("--model", tiny_model, "--precision", "fp32")

    def similarity(*arguments: object) -> Any:
        return bertctl("similarity", *arguments, *model)

    answers = lines(similarity("a.txt", "b.txt").stdout)
    cosines = similarities_of(answers)
    expected = (first_vectors * second_vectors).sum(axis=1)
    assert cosines == pytest.approx(expected, abs=2e-6)
    second_answer = answers[1]
    assert second_answer["id"] == "1"
    assert second_answer["pair_id"] == "1"
    assert second_answer["text"] == first[1]
    assert second_answer["pair"] == second[1]

    from scipy import stats

    of_columns = similarity("pairs.csv", "--json")
    document = json.loads(of_columns.stdout)
    assert document["answers"] == answers
    spearman = stats.spearmanr(range(4), cosines).statistic
    pearson = stats.pearsonr(range(4), cosines).statistic
    assert document["spearman"]["value"] == pytest.approx(spearman)
    assert document["pearson"]["value"] == pytest.approx(pearson, abs=1e-4)
    assert "spearman of cosines and scores" in of_columns.stderr

    of_all = similarities_of(lines(similarity("a.txt", "b.txt", "--all").stdout))
    expected_of_all = first_vectors @ second_vectors.T
    assert of_all == pytest.approx(expected_of_all.ravel(), abs=2e-6)
    of_one_text = similarities_of(lines(similarity(first[2], "b.txt", "--all").stdout))
    assert of_one_text == pytest.approx(of_all[8:12], abs=BATCHES), "alone and in a batch"

    of_typed_texts = similarity(first[0], second[0])
    header, row = of_typed_texts.stdout.splitlines()
    assert header.split()[:3] == ["similarity", "text", "pair"], "typed texts have no ids"
    assert float(row.split()[0]) == pytest.approx(cosines[0], abs=1e-4 + BATCHES)
    written = similarity(first[0], second[0], "-o", "one.jsonl")
    assert written.returncode == 0
    assert written.stdout == ""
    [written_answer] = lines((tmp_path / "one.jsonl").read_text())
    assert written_answer["similarity"] == pytest.approx(cosines[0], abs=BATCHES)

    among_themselves = lines(similarity("a.txt", "--all").stdout)
    id_pairs = [(line["id"], line["pair_id"]) for line in among_themselves]
    assert id_pairs == list(itertools.combinations("0123", 2))


def similarities_of(answers: list[dict[str, Any]]) -> list[float]:
    return [answer["similarity"] for answer in answers]


@pytest.mark.parametrize("labels", [("yes", "no", "no"), ("1", "1", "1"), ("0.5", "1")])
def test_what_is_no_score_has_no_correlation(
    labels: tuple[str, ...], bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    rows = [f"{i},{i + 1},{label}" for i, label in enumerate(labels)]
    (tmp_path / "pairs.csv").write_text("\n".join(["sentence1,sentence2,label", *rows]) + "\n")
    done = bertctl("similarity", "pairs.csv", "--model", tiny_model, "--json")
    assert done.returncode == 0, done.stderr
    assert "spearman" not in json.loads(done.stdout)


def test_a_row_without_a_score_is_left_out_of_the_correlation_and_said(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    results = []
    for scores in (("3", "0.5", "5", "1"), ("3", "0.5", "nan", "5", "", "1")):
        texts = [TEXTS[i] for i in ((0, 1, 2, 4) if len(scores) == 4 else (0, 1, 3, 2, 5, 4))]
        rows = [
            {"sentence1": text, "sentence2": "a film", "score": score}
            for text, score in zip(texts, scores, strict=True)
        ]
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        done = bertctl("similarity", "pairs.jsonl", "--model", tiny_model, "--json")
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    assert "pairs.jsonl:3: 'nan' is not a score; the correlation leaves 2 rows out" in done.stderr
    assert results[1]["spearman"] == results[0]["spearman"]
    assert results[1]["pearson"] == results[0]["pearson"]


def test_what_is_read_of_long_texts_is_the_index_s_own(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "long.txt").write_text("film " * 50 + "good " * 50 + "\n")
    for more in (("--long-text", "tail"), ("--long-text", "window", "--window-pooling", "max")):
        words = ("index", "long.txt", "-o", "x", "--model", tiny_model, "--overwrite", *more)
        assert bertctl(*words).returncode == 0
        check("index", json.loads((tmp_path / "x" / "index.json").read_text()), "index.json")
        assert bertctl("index", "long.txt", "-o", "x", "--append").returncode == 0
        first, second = np.load(tmp_path / "x" / "vectors.npy")
        np.testing.assert_allclose(first, second, atol=1e-6)
        rows = lines(bertctl("search", "x", "long.txt", "-k", 2).stdout)
        assert [(entry["id"], entry["score"]) for entry in rows] == [("0", 1.0), ("1", 1.0)]


def test_several_layers_are_one_vector_of_length_1(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("a film\nfine food\n")
    done = bertctl(
        "index", "texts.txt", "-o", "x", "--layers", "all", "--model", tiny_model, "--json"
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["size"] == 3 * 36
    np.testing.assert_allclose(
        np.linalg.norm(np.load(tmp_path / "x" / "vectors.npy"), axis=1), 1, rtol=1e-6
    )
    assert json.loads(bertctl("search", "x", "a film", "--json").stdout)["answers"][0][
        "score"
    ] == pytest.approx(1, abs=1e-6)


def test_every_near_pair_is_mined(bertctl: Run, tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    vectors = vectors_of(bertctl, tiny_model, "texts.txt", tmp_path)
    cosines = vectors @ vectors.T
    ordered = np.sort(cosines[np.triu_indices(10, 1)])
    threshold = round(float(ordered[-13:-11].mean()), 6)  # between two of them
    expected = []
    for i in range(10):
        expected += [(i, j) for j in range(i + 1, 10) if cosines[i, j] >= threshold]
    assert len(expected) == 12
    done = bertctl("mine", "texts.txt", "--threshold", threshold, "--model", tiny_model)
    assert [(int(row["id"]), int(row["pair_id"])) for row in lines(done.stdout)] == expected
    assert f"{len(expected)} pairs of 10 texts" in done.stderr
    same = lines(bertctl("mine", "texts.txt", "--threshold", 1, "--model", tiny_model).stdout)
    assert [(entry["id"], entry["pair_id"], entry["text"], entry["pair"]) for entry in same] == [
        ("0", "9", TEXTS[0], TEXTS[0])
    ]
    capped = bertctl(
        "mine",
        "texts.txt",
        "--threshold",
        threshold,
        "--max-pairs",
        3,
        "--model",
        tiny_model,
        "--json",
    )
    document = json.loads(capped.stdout)
    assert capped.returncode == 0
    assert document["count"] == 3
    assert document["complete"] is False
    assert document["pairs"] == 12
    nearest = sorted(expected, key=lambda pair: (-round(float(cosines[pair]), 6), pair))[:3]
    assert [
        (int(answer["id"]), int(answer["pair_id"])) for answer in document["answers"]
    ] == nearest, "not the first ones"
    assert "warning: 12 pairs of 10 texts" in capped.stderr
    strict = bertctl(
        "mine",
        "texts.txt",
        "--threshold",
        threshold,
        "--max-pairs",
        3,
        "--strict",
        "--model",
        tiny_model,
        "--json",
    )
    assert strict.returncode == 3
    assert json.loads(strict.stdout)["count"] == 3
    assert json.loads(strict.stdout)["error"]["code"] == 3


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """Twelve texts of two kinds that any vectors tell apart."""
    file = tmp_path / "groups.txt"
    kinds = ["good film the film", "zzz 0 9 8 zzz qqq"]
    file.write_text("".join(f"{kinds[i % 3 == 0]} {'!?.'[i % 3] * (i % 4)}\n" for i in range(12)))
    return file


@pytest.mark.parametrize(
    "how",
    [
        ("--clusters", 2),
        ("--method", "agglomerative", "--clusters", 2),
        ("--method", "hdbscan", "--min-size", 2),
    ],
)
def test_texts_in_groups(
    how: tuple[object, ...], bertctl: Run, tiny_model: Path, groups: Path
) -> None:
    done = bertctl("cluster", groups, "--model", tiny_model, *how, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    clusters = [answer["cluster"] for answer in document["answers"]]
    if "hdbscan" in how:
        kinds = {
            number: {i % 3 == 0 for i, entry in enumerate(clusters) if entry == number}
            for number in clusters
            if number >= 0
        }
        assert len(kinds) >= 2
        assert all(len(kind) == 1 for kind in kinds.values()), "none has texts of both kinds"
        return
    assert clusters == [int(i % 3 == 0) for i in range(12)], "the larger one is 0"
    assert [(cluster["cluster"], cluster["texts"]) for cluster in document["clusters"]] == [
        (0, 8),
        (1, 4),
    ]
    assert "film" in document["clusters"][0]["words"]
    assert document["clusters"][1]["words"] == "qqq zzz"
    assert {(answer["cluster"], answer["words"]) for answer in document["answers"]} == {
        (cluster["cluster"], cluster["words"]) for cluster in document["clusters"]
    }, "each text has the name of its cluster beside it"
    assert 0 < document["silhouette"]["value"] <= 1
    assert document["silhouette"]["texts"] == 11, "one of them stands twice"
    assert [cluster["different"] for cluster in document["clusters"]] == [7, 4]
    again = bertctl("cluster", groups, "--model", tiny_model, *how, "-o", "groups.csv")
    assert "cluster 0: 8 texts (1 copy among them): " in again.stderr
    assert bertctl("cluster", groups, "--model", tiny_model, *how, "--json").stdout == done.stdout


@pytest.mark.slow
def test_minilm_and_its_word_pieces_on_sts(bertctl: Run, shared_data: Path) -> None:
    """The bars: 0.867 without training, 0.645 for the mean of the word-piece embeddings."""
    file = shared_data / "glue" / "STS-B" / "dev.tsv"
    for more, expected in (
        ((), 0.867),
        (("--layers", "word-embeddings", "--pooling", "mean"), 0.645),
    ):
        document = json.loads(
            bertctl("similarity", file, "--precision", "fp32", "--json", *more).stdout
        )
        assert document["spearman"]["value"] == pytest.approx(expected, abs=0.001)


def test_a_run_is_a_model_here(bertctl: Run, tiny_run: TinyRun, corpus: Path) -> None:
    assert made(bertctl, tiny_run.path)["rows"] == 10
    assert bertctl("search", "x", "film").returncode == 0


def _measured_by(measure: str, tiny_model: Path, folder: Path) -> Path:
    """A folder whose vectors have several lengths, compared by this measure."""
    model = make_folder("mean and max", tiny_model, folder)
    (model / "config_sentence_transformers.json").write_text(
        json.dumps({"similarity_fn_name": measure})
    )
    return model


BY_HAND = {
    "dot": lambda a, b: a @ b.T,
    "euclidean": lambda a, b: -np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=2)),
    "manhattan": lambda a, b: -np.abs(a[:, None] - b[None]).sum(axis=2),
}


@pytest.mark.parametrize("measure", BY_HAND)
def test_vectors_are_compared_by_the_measure_of_their_folder(
    measure: str, bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    model = _measured_by(measure, tiny_model, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    exact = ("--precision", "fp32", "--model", model)
    done = bertctl(
        "extract-features",
        "texts.txt",
        "-o",
        "v.npy",
        "--pooling",
        "model",
        "--max-length",
        40,
        *exact,
    )
    assert done.returncode == 0, done.stderr
    vectors = np.load(tmp_path / "v.npy").astype(np.float64)
    similarities = BY_HAND[measure](vectors, vectors)

    made_index = bertctl("index", "texts.txt", "-o", "x", *exact, "--json")
    document = json.loads(made_index.stdout)
    check("index", json.loads((tmp_path / "x" / "index.json").read_text()), "index.json")
    assert document["similarity"] == measure
    assert document["reading"]["fields"]["runtime.precision"] == "fp32"
    rows = lines(bertctl("search", "x", "texts.txt", "-k", 3).stdout)
    order = np.argsort(-np.round(similarities, 5), axis=1, kind="stable")[:, :3]
    assert [int(row["id"]) for row in rows] == order.ravel().tolist()
    scores = [row["score"] for row in rows]
    expected = np.take_along_axis(similarities, order, axis=1).ravel()
    assert scores == pytest.approx(expected, rel=1e-4, abs=1e-4)

    pairs = lines(bertctl("similarity", "texts.txt", "--all", *exact).stdout)
    upper = similarities[np.triu_indices(10, 1)]
    assert similarities_of(pairs) == pytest.approx(upper, rel=1e-4, abs=1e-4)

    without_threshold = bertctl("mine", "texts.txt", *exact)
    assert without_threshold.returncode == 2
    message = f"by {measure} similarity, which has no usual threshold"
    assert message in without_threshold.stderr
    limits = ("--threshold", -1e6, "--max-pairs", 4)
    mined = json.loads(bertctl("mine", "texts.txt", *limits, *exact, "--json").stdout)
    nearest = np.sort(upper)[::-1][:4]
    assert similarities_of(mined["answers"]) == pytest.approx(nearest, rel=1e-4, abs=1e-4)
    assert mined["pairs"] == 45
    assert mined["complete"] is False

    options = ("--clusters", 2, "--method", "agglomerative")
    clustered = bertctl("cluster", "texts.txt", *options, *exact)
    assert (clustered.returncode == 0) == (measure != "dot"), clustered.stderr

    in_int8 = bertctl("index", "texts.txt", "-o", "y", "--dtype", "int8", *exact)
    assert in_int8.returncode == 2
    assert f"{measure} similarity needs their length" in in_int8.stderr
    by_cosine = bertctl("index", "texts.txt", "-o", "z", "--similarity", "cosine", *exact, "--json")
    assert json.loads(by_cosine.stdout)["similarity"] == "cosine"
    stored_vectors = np.load(tmp_path / "z" / "vectors.npy")
    lengths = np.linalg.norm(stored_vectors, axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)


def test_a_distance_is_negative_and_the_threshold_says_so(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("a film\nfine food\n")
    mine = ("mine", "texts.txt", "--model", tiny_model, "--similarity", "euclidean", "--threshold")
    refused = bertctl(*mine, 2)
    assert refused.returncode == 2
    assert "Type --threshold -2 for pairs at a distance up to 2" in refused.stderr
    assert bertctl(*mine, -100).returncode == 0


@pytest.mark.parametrize("more", ["csv", "tsv", "jsonl", "csv.gz"])
def test_what_is_added_is_read_from_the_columns_of_the_index(
    more: str, bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    rows = [
        {"id": f"a{i}", "title": "t", "text": "short", "body": f"a long film {i}"} for i in range(2)
    ]
    (tmp_path / "first.csv").write_text(
        "id;title;text;body\n" + "".join(";".join(row.values()) + "\n" for row in rows)
    )
    supplied = ("--text-column", "body", "--id-column", "id", "--delimiter", ";")
    assert (
        bertctl("index", "first.csv", "-o", "x", "--model", tiny_model, *supplied).returncode == 0
    )
    others = [{**row, "id": f"b{i}", "body": f"fine food {i}"} for i, row in enumerate(rows)]
    separator = "\t" if more == "tsv" else ";"
    table = (
        separator.join(others[0])
        + "\n"
        + "".join(separator.join(row.values()) + "\n" for row in others)
    )
    text = "".join(json.dumps(row) + "\n" for row in others) if more == "jsonl" else table
    path = tmp_path / f"more.{more}"
    path.write_bytes(gzip.compress(text.encode()) if more.endswith("gz") else text.encode())
    retyped = ("--delimiter", "tab") if more == "tsv" else ()
    grown = bertctl("index", path, "-o", "x", "--append", *retyped)
    assert grown.returncode == 0, grown.stderr
    answers = lines((tmp_path / "x" / "rows.jsonl").read_text())
    assert [row["id"] for row in answers] == ["a0", "a1", "b0", "b1"]
    assert [row["text"] for row in answers][2:] == ["fine food 0", "fine food 1"]
    check("index", json.loads((tmp_path / "x" / "index.json").read_text()), "index.json")


def test_a_guessed_column_is_taken_again_where_a_file_has_it(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "first.jsonl").write_text('{"body": "a film"}\n')
    assert bertctl("index", "first.jsonl", "-o", "x", "--model", tiny_model).returncode == 0
    (tmp_path / "both.jsonl").write_text('{"text": "no", "body": "fine food"}\n')
    (tmp_path / "other.txt").write_text("bright\n")
    for name in ("both.jsonl", "other.txt"):
        grown = bertctl("index", name, "-o", "x", "--append")
        assert grown.returncode == 0, grown.stderr
    rows = lines((tmp_path / "x" / "rows.jsonl").read_text())
    assert [(row["id"], row["text"]) for row in rows] == [
        ("0", "a film"),
        ("1", "fine food"),
        ("2", "bright"),
    ]


def test_numbers_are_not_put_beside_ids(bertctl: Run, tiny_model: Path, tmp_path: Path) -> None:
    """An index of an older version remembers no columns.

    One with numbers takes ids and counts those that it has.
    """
    (tmp_path / "ids.csv").write_text("key,text\n7,a film\n8,fine food\n")
    (tmp_path / "plain.txt").write_text("bright\nbright\n")
    index = ("index", "-o", "x", "--model", tiny_model)
    assert bertctl(*index, "ids.csv", "--id-column", "key").returncode == 0
    document = json.loads((tmp_path / "x" / "index.json").read_text())
    del document["reading"]
    (tmp_path / "x" / "index.json").write_text(json.dumps(document))
    refused = bertctl("index", "plain.txt", "-o", "x", "--append")
    assert refused.returncode == 3
    assert "have no ids, and those of x have, such as '7'" in refused.stderr
    (tmp_path / "twice.csv").write_text("key,text\n0,a film\n5,fine food\n1,dull\n")
    assert bertctl(*index, "plain.txt", "--overwrite").returncode == 0
    counted = bertctl("index", "twice.csv", "-o", "x", "--append", "--id-column", "key")
    assert counted.returncode == 0, counted.stderr
    assert (
        "2 texts of twice.csv have an id that another text there or in the index has, such as '0'"
        in counted.stderr
    )


@pytest.mark.parametrize(
    ("words", "unknown"), [(("😀", "👍"), "text and pair"), (("a film", "👍"), "pair")]
)
def test_texts_of_which_no_token_is_known_are_named_in_the_answer(
    words: tuple[str, str], unknown: str, bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    done = bertctl("similarity", *words, "--model", tiny_model, "--json")
    assert json.loads(done.stdout)["answers"][0]["unknown"] == unknown
    how_many = "2 texts" if unknown == "text and pair" else "1 text"
    assert f"the model knows no token of {how_many}" in done.stderr
    (tmp_path / "texts.txt").write_text("".join(f"{word}\n" for word in words))
    (mined,) = lines(bertctl("mine", "texts.txt", "--threshold", -1, "--model", tiny_model).stdout)
    assert mined["unknown"] == unknown
    known = json.loads(
        bertctl("similarity", "a film", "good", "--model", tiny_model, "--json").stdout
    )
    assert "unknown" not in known["answers"][0]


def test_what_both_sides_of_a_comparison_lose_is_said_once(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("the film was good\nfine\n")
    (tmp_path / "b.txt").write_text("the food was bad\nthe film was fine\n")
    done = bertctl("similarity", "a.txt", "b.txt", "--model", tiny_model, "--max-length", 4)
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    cut = [line for line in warnings if "are longer than 4 tokens" in line]
    assert len(cut) == 1, done.stderr
    assert "3 of 4 examples" in cut[0]
    assert len(warnings) == len(set(warnings))


def test_nearly_all_pairs_are_mined_by_a_graph(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("usearch", reason="pip install 'bertctl[search]'")
    words = ("film", "food", "good", "bad", "fine", "dull", "bright", "poor", "not", "very")
    texts = [f"the {a} was {b} and {c}" for a in words for b in words for c in words[:4]]
    texts[100:130] = ["the film was good"] * 30  # equal ones are each other's neighbours
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    mine = ("mine", "texts.txt", "--model", tiny_model, *EXACT, "--threshold", 0.98)
    exact = {(row["id"], row["pair_id"]) for row in lines(bertctl(*mine).stdout)}
    assert len(exact) > 1000, "not enough to measure"

    approximate = json.loads(bertctl(*mine, "--approximate", "--json").stdout)

    actual = [(answer["id"], answer["pair_id"]) for answer in approximate["answers"]]
    assert len(actual) == len(set(actual))
    assert set(actual) <= exact
    assert len(actual) >= 0.98 * len(exact)
    assert approximate["complete"] is False
    assert approximate["recall"]["value"] == pytest.approx(len(actual) / len(exact), abs=0.02)
    again = bertctl(*mine, "--approximate")
    assert [(row["id"], row["pair_id"]) for row in lines(again.stdout)] == actual
    assert "recall: " in again.stderr


def test_a_graph_that_there_is_none_of_is_refused(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("usearch", reason="pip install 'bertctl[search]'")
    (tmp_path / "texts.txt").write_text("a film\nfood\n")
    mine = ("mine", "texts.txt", "--model", tiny_model, "--approximate")
    refused = bertctl(*mine, "--similarity", "manhattan", "--threshold", -1)
    assert refused.returncode == 2
    assert "no graph for manhattan similarity" in refused.stderr
    none = bertctl(*mine, "--threshold", 1)
    assert none.returncode == 0, none.stderr
    assert "none of 2 texts that were tried has a pair" in none.stderr
