"""Catalog data sets: official files, the hub's Parquet files, and that both give the same rows.

The layouts below are written down here a second time, from the official files themselves, so that a
slip in the catalog's table shows.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bertctl.catalog.datasets import builtin_datasets, find_dataset
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import LoadedData, load_data
from bertctl.errors import DataError

TEXTS = [
    'He said "no',
    '"Quoted" and plain',
    "trailing space ",
    "naïve café – 10 €",
    "",
    "it 's , well ; fine",
    "a 'b\" c",
]
PAIRS = ['"', "second", " leading space", "Ünïcode", "pair 5", "x", "y"]


@dataclass(frozen=True)
class Layout:
    """What the official file and the hub's file of a task look like.

    `line` is a format for one line of a labelled file, `test_line` for the unlabelled one.
    """

    header: str
    line: str
    test_header: str
    test_line: str
    hub: tuple[str, ...]
    labels: tuple[str, ...]
    written: tuple[str, ...]
    folder: str
    bom: bool = False


_NLI = "index\tsentence1\tsentence2"
_STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
_STSB_LINE = "{i}\tmain\tMSRvid\t2012test\t0001\tnone\tnone\t{a}\t{b}"
_MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse"
    "\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2"
)
_MNLI_LINE = "{i}\t1\t1e\tfiction\t( p )\t( q )\t(R p)\t(R q)\t{a}\t{b}"
_PAIRED = ("sentence1", "sentence2")
_NLI3 = ("entailment", "neutral", "contradiction")
_RTE2 = ("entailment", "not_entailment")

LAYOUTS = {
    "cola": Layout(
        "",
        "gj04\t{y}\t*\t{a}",
        "index\tsentence",
        "{i}\t{a}",
        ("sentence",),
        ("unacceptable", "acceptable"),
        ("0", "1"),
        "CoLA",
    ),
    "sst2": Layout(
        "sentence\tlabel",
        "{a}\t{y}",
        "index\tsentence",
        "{i}\t{a}",
        ("sentence",),
        ("negative", "positive"),
        ("0", "1"),
        "SST-2",
    ),
    "mrpc": Layout(
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "{y}\t70\t71\t{a}\t{b}",
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "{i}\t70\t71\t{a}\t{b}",
        _PAIRED,
        ("not_equivalent", "equivalent"),
        ("0", "1"),
        "MRPC",
        bom=True,
    ),
    "stsb": Layout(
        _STSB + "\tscore",
        _STSB_LINE + "\t{y}",
        _STSB,
        _STSB_LINE,
        _PAIRED,
        (),
        ("3.800", "0.25"),
        "STS-B",
    ),
    "qqp": Layout(
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "{i}\t5\t6\t{a}\t{b}\t{y}",
        "id\tquestion1\tquestion2",
        "{i}\t{a}\t{b}",
        ("question1", "question2"),
        ("not_duplicate", "duplicate"),
        ("0", "1"),
        "QQP",
    ),
    "mnli": Layout(
        _MNLI + "\tlabel1\tgold_label",
        _MNLI_LINE + "\tneutral\t{y}",
        _MNLI,
        _MNLI_LINE,
        ("premise", "hypothesis"),
        _NLI3,
        _NLI3,
        "MNLI",
    ),
    "qnli": Layout(
        "index\tquestion\tsentence\tlabel",
        "{i}\t{a}\t{b}\t{y}",
        "index\tquestion\tsentence",
        "{i}\t{a}\t{b}",
        ("question", "sentence"),
        _RTE2,
        _RTE2,
        "QNLI",
    ),
    "rte": Layout(
        _NLI + "\tlabel", "{i}\t{a}\t{b}\t{y}", _NLI, "{i}\t{a}\t{b}", _PAIRED, _RTE2, _RTE2, "RTE"
    ),
    "wnli": Layout(
        _NLI + "\tlabel",
        "{i}\t{a}\t{b}\t{y}",
        _NLI,
        "{i}\t{a}\t{b}",
        _PAIRED,
        ("not_entailment", "entailment"),
        ("0", "1"),
        "WNLI",
    ),
    "ax": Layout("", "", _NLI, "{i}\t{a}\t{b}", ("premise", "hypothesis"), _NLI3, (), "diagnostic"),
}
SPLITS = {
    "mnli": {
        "train": "train.tsv",
        "validation_matched": "dev_matched.tsv",
        "validation_mismatched": "dev_mismatched.tsv",
        "test_matched": "test_matched.tsv",
        "test_mismatched": "test_mismatched.tsv",
    },
    "ax": {"test": "diagnostic.tsv"},
}
USUAL_SPLITS = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}


def _content(split: str) -> tuple[list[str], list[str]]:
    """Texts and second sentences that differ from split to split.

    No text ends with a tab or a line end.
    """
    texts_of_split = [f"{text}{split[:3]}" for text in TEXTS[:4]]
    texts = texts_of_split + TEXTS[4:]
    return texts, PAIRS


def write_official(name: str, folder: Path) -> None:
    layout = LAYOUTS[name]
    for split, file in SPLITS.get(name, USUAL_SPLITS).items():
        texts, pairs = _content(split)
        test = split.startswith("test")
        header, line = (
            (layout.test_header, layout.test_line) if test else (layout.header, layout.line)
        )
        lines = [header] if header else []
        for i, (a, b) in enumerate(zip(texts, pairs, strict=True)):
            y = "" if test else layout.written[i % len(layout.written)]
            lines.append(line.format(i=i, a=a, b=b, y=y))
        path = folder / layout.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        data = ("\n".join(lines) + "\n").encode("utf-8")
        path.write_bytes(b"\xef\xbb\xbf" * (layout.bom and not test) + data)


def write_hub(name: str, folder: Path) -> None:
    """The Parquet files as the hub has them.

    `ClassLabel` numbers, -1 in test splits (real ones in MRPC's), `idx`.
    """
    from datasets import ClassLabel, Dataset, Features, Value

    layout = LAYOUTS[name]
    for split in SPLITS.get(name, USUAL_SPLITS):
        texts, pairs = _content(split)
        test = split.startswith("test")
        if test:
            labels = [1 if name == "mrpc" else -1] * len(texts)
        elif layout.labels:
            labels = [i % len(layout.written) for i in range(len(texts))]
        else:
            labels = [float(layout.written[i % 2]) for i in range(len(texts))]
        columns = dict(zip(layout.hub, (texts, pairs), strict=False))
        features = Features(
            {
                **{column: Value("string") for column in columns},
                "label": ClassLabel(names=list(layout.labels))
                if layout.labels
                else Value("float32"),
                "idx": Value("int32"),
            }
        )
        path = folder / name / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {**columns, "label": labels, "idx": list(range(len(texts)))}
        Dataset.from_dict(data, features=features).to_parquet(path)


@pytest.fixture(scope="module")
def official(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("official")
    for name in LAYOUTS:
        write_official(name, folder)
    return folder


@pytest.fixture(scope="module")
def parquet(tmp_path_factory) -> Path:
    import datasets

    datasets.disable_progress_bars()
    folder = tmp_path_factory.mktemp("parquet")
    for name in LAYOUTS:
        write_hub(name, folder)
    return folder


def recipe_for(name: str, **data: object) -> Recipe:
    dataset = builtin_datasets()[name]
    return Recipe(task=dataset.task, data=DataSection(name=name, **data))


def load_all(name: str, folder: Path) -> LoadedData:
    return load_data(
        recipe_for(name, data_dir=str(folder)), splits=builtin_datasets()[name].split_names
    )


def as_plain(data: LoadedData) -> dict[str, object]:
    return {
        split: {
            "ids": list(rows.ids),
            "columns": {name: list(values) for name, values in rows.columns.items()},
        }
        for split, rows in data.splits.items()
    }


@pytest.mark.parametrize("name", LAYOUTS)
def test_official_layout(official, name):
    layout = LAYOUTS[name]
    data = load_all(name, official)
    assert data.labels == (layout.labels or None)
    assert list(data.splits) == list(SPLITS.get(name, USUAL_SPLITS))
    for split, rows in data.splits.items():
        texts, pairs = _content(split)
        assert list(rows.columns["text"]) == texts
        assert rows.has("pair") == (len(layout.hub) == 2)
        if rows.has("pair"):
            assert list(rows.columns["pair"]) == pairs
        assert list(rows.ids) == [str(i) for i in range(len(texts))]
        first = 1 if split in ("train", "validation") and not layout.header else 2
        assert list(rows.lines) == list(range(first, first + len(texts)))
        assert rows.has("label") == (not split.startswith("test"))
        if rows.has("label"):
            names = layout.labels or (3.8, 0.25)
            assert list(rows.columns["label"]) == [names[i % len(names)] for i in range(len(texts))]


_LOADER = """
import json, sys
from bertctl.catalog.datasets import builtin_datasets, find_dataset
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import load_data
found = {}
for name in sys.argv[1:]:
    row = builtin_datasets()[name]
    data = load_data(Recipe(task=row.task, data=DataSection(name=name)), splits=row.split_names)
    found[name] = {
        "hashes": dict(data.hashes),
        "source": data.splits["test" if name == "ax" else "train"].source,
        "splits": {
            split: {"ids": list(rows.ids), "columns": {k: list(v) for k, v in rows.columns.items()}}
            for split, rows in data.splits.items()
        },
    }
assert "torch" not in sys.modules
print(json.dumps(found))
"""


@pytest.fixture
def stand_in_hub(parquet) -> Iterator[tuple[str, list[str]]]:
    """A local server with the hub's addresses for the pinned revision.

    Also the list of what was asked for.
    """
    asked: list[str] = []
    prefix = f"/datasets/nyu-mll/glue/resolve/{find_dataset('sst2').hub.revision}/"

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

        def _answer(self, *, body: bool) -> None:
            asked.append(self.path)
            file = parquet / self.path.removeprefix(prefix)
            if not (self.path.startswith(prefix) and file.is_file()):
                self.send_response(200 if self.path == "/" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = file.read_bytes()
            self.send_response(200)
            self.send_header("ETag", f'"{abs(hash(self.path)):x}"')
            self.send_header("X-Repo-Commit", find_dataset("sst2").hub.revision)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


# by default cli/test_fetch.py brings from a hub, and the test below reads the same files
@pytest.mark.slow
def test_hub_and_files_give_the_same_rows(official, stand_in_hub, tmp_path):
    address, asked = stand_in_hub
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home")}
    environment.pop("HF_HUB_OFFLINE")
    command = [sys.executable, "-c", _LOADER, *LAYOUTS]
    fetched = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=3600, check=False
    )
    assert fetched.returncode == 0, fetched.stderr
    from_hub = json.loads(fetched.stdout)
    for name in LAYOUTS:
        from_files = load_all(name, official)
        assert from_hub[name]["splits"] == as_plain(from_files), name
        assert from_hub[name]["hashes"] == from_files.hashes, name
        assert from_hub[name]["source"].startswith(f"nyu-mll/glue/{name}/")
    assert len(asked) > 2 * 27  # every split of every data set came from the server

    asked.clear()
    again = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=3600, check=False
    )
    assert json.loads(again.stdout) == from_hub
    assert not asked  # the pinned revision is in the cache: nobody is asked


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_of_the_hub_works_as_data_dir(official, parquet, name):
    assert as_plain(load_all(name, parquet)) == as_plain(load_all(name, official))


def test_hub_labels_in_another_order_are_refused(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features(
        {"sentence": Value("string"), "label": ClassLabel(names=["positive", "negative"])}
    )
    (tmp_path / "sst2").mkdir()
    data = Dataset.from_dict({"sentence": ["a", "b"], "label": [0, 1]}, features=features)
    data.to_parquet(tmp_path / "sst2" / "train-00000-of-00001.parquet")
    with pytest.raises(DataError, match=r"'positive', 'negative'.*'negative', 'positive'"):
        load_data(recipe_for("sst2", data_dir=str(tmp_path)), splits=["train"])


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("cola", {"train": 8551, "validation": 1043, "test": 1063}),
        ("sst2", {"train": 67349, "validation": 872, "test": 1821}),
        ("mrpc", {"train": 3668, "validation": 408, "test": 1725}),
        ("stsb", {"train": 5749, "validation": 1500, "test": 1379}),
        ("rte", {"train": 2490, "validation": 277, "test": 3000}),
        ("wnli", {"train": 635, "validation": 71, "test": 146}),
    ],
)
def test_the_real_files(shared_data, name, sizes):
    data = load_all(name, shared_data / "glue")
    assert {split: len(rows) for split, rows in data.splits.items()} == sizes
    for split, rows in data.splits.items():
        assert rows.has("label") == (split != "test")
        if rows.has("label") and data.labels:
            assert set(rows.columns["label"]) == set(data.labels)
        assert not any("\t" in text for text in rows.columns["text"])
