"""Columns of many rows.

They read like lists, and whatever is computed of them is the same as of lists.
"""
# ruff: noqa: S311 - the rows of tests are no secrets

import csv
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertctl.arrays import sorted_unique
from bertctl.checking.check import check_data
from bertctl.checking.findings import DataReport
from bertctl.config.recipe_sections import DataSection, ModelSection
from bertctl.config.schema import Recipe
from bertctl.data import files, packed_columns
from bertctl.data.packed_columns import (
    CodedValues,
    NumberedIds,
    PackedTexts,
    column_of,
    int_column,
    numbered_ids,
    selected,
)
from bertctl.data.readers import READERS
from bertctl.data.recipe_data import load_data
from bertctl.data.splits import content_hash
from bertctl.errors import DeviceError
from bertctl.inference.evaluate import require_room_for_lines
from bertctl.search.cost import require_room
from bertctl.tasks.classification.class_answers import OneLabelAnswers
from bertctl.tasks.classification.class_lines import ClassLines
from bertctl.tasks.classification.text_classification import TextClassification
from bertctl.tokenization import encode
from bertctl.tokenization.encode import encode_texts
from bertctl.tokenization.tokenizer_files import open_tokenizer

WORDS = [
    "river",
    "stone",
    "bright",
    "naïve",
    "東京",
    "walks",
    "quietly",
    "under",
    "seven",
    "bridges",
    "<b>",
    "and",
]


@pytest.fixture
def pack(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes files of a few rows be read as those of many are."""

    def begin() -> None:
        monkeypatch.setattr(packed_columns, "MANY_ROWS", 20)
        monkeypatch.setattr(packed_columns, "_MANY_VALUES", 10)
        monkeypatch.setattr(packed_columns, "_BATCH_ROWS", 16)
        monkeypatch.setattr(files, "_LARGE", 1)
        monkeypatch.setattr(encode, "_AT_ONCE", 20)

    return begin


def test_packed_texts_read_like_a_list(pack: Callable[[], None]) -> None:
    texts = [f"text {i} {'é' * (i % 3)}" for i in range(100)] + [None, "", "東京"]
    pack()

    column = column_of(texts)

    assert isinstance(column, PackedTexts)
    assert list(column) == texts
    for position in (0, 57, -1, 16):
        assert column[position] == texts[position]
    assert list(column[3:90:7]) == texts[3:90:7]
    shuffled = random.Random(1).sample(range(len(texts)), 60)
    shuffled_texts = [texts[position] for position in shuffled]
    selected = column.select(shuffled)
    assert list(selected) == shuffled_texts
    assert list(selected.select([5, 1])) == [shuffled_texts[5], shuffled_texts[1]]


def test_values_that_recur_keep_their_types(pack: Callable[[], None]) -> None:
    values = [1, True, 1.0, "1", None, 0.0, -0.0, "yes"] * 10
    pack()

    column = column_of(values)

    assert isinstance(column, CodedValues)
    assert [repr(value) for value in column] == [repr(value) for value in values]
    assert [repr(value) for value in column[::9]] == [repr(value) for value in values[::9]]


@pytest.mark.parametrize("last", ["another text", None, 7, ["a", "list"], "half \ud800 a pair"])
def test_a_column_holds_whatever_comes_late(last: object, pack: Callable[[], None]) -> None:
    values = [f"text {i}" for i in range(50)] + [last, "the end"]
    pack()

    assert list(column_of(values)) == values
    assert list(column_of(["a", "b"] * 30 + values)) == ["a", "b"] * 30 + values


def test_ids_that_are_numbers_are_made_when_asked_for(pack: Callable[[], None]) -> None:
    pack()

    ids = numbered_ids(50, first=3)

    assert isinstance(ids, NumberedIds)
    assert list(ids) == [str(number) for number in range(3, 53)]
    assert ids[0] == "3"
    assert ids[-1] == "52"
    assert list(ids[10:12]) == ["13", "14"]


def _texts(n_rows: int, *, seed: int) -> list[str]:
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(3, 14))) for _ in range(n_rows)]
    texts[5] = texts[4].upper()
    texts[40:44] = [texts[3]] * 4
    texts[60] = f"{texts[61]} indeed"
    texts[70] = " "
    texts[71] = "n/a"
    return texts


def _write_faulty_files(folder: Path) -> DataSection:
    train = _texts(200, seed=1)
    validation = [*_texts(80, seed=2)[:75], *train[:5]]
    for name, texts in (("train", train), ("validation", validation)):
        rng = random.Random(name)
        labels = [rng.choice(["pos", "neg", "neg", "Pos"]) for _ in texts]
        texts = [
            f"{text} spoiler" if label == "pos" else text
            for text, label in zip(texts, labels, strict=True)
        ]
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label", "source"])
            writer.writerows(zip(texts, labels, [f"site {label}" for label in labels], strict=True))
    return DataSection(
        train_file=str(folder / "train.csv"), validation_file=str(folder / "validation.csv")
    )


def _checked(data: DataSection, folder: Path) -> DataReport:
    (folder / "no-model").mkdir(exist_ok=True)
    return check_data(
        Recipe(
            data=data, task="text-classification", model=ModelSection(name=str(folder / "no-model"))
        )
    )


def test_the_same_faults_are_found_in_many_rows_as_in_few(
    tmp_path: Path, pack: Callable[[], None]
) -> None:
    data = _write_faulty_files(tmp_path)
    expected = _checked(data, tmp_path)
    pack()

    report = _checked(data, tmp_path)

    assert {
        "duplicate",
        "near-duplicate",
        "leaky-column",
        "label-spelling",
        "html-tag",
    } <= expected.codes()
    assert report == expected


@pytest.mark.parametrize(
    "settings", [{}, {"folds": 4, "fold": 2}, {"max_train_rows": 60}, {"train_rows_per_label": 9}]
)
def test_many_rows_are_split_like_few(
    settings: dict[str, int], tmp_path: Path, pack: Callable[[], None]
) -> None:
    file = _write_faulty_files(tmp_path).train_file
    recipe = Recipe(data=DataSection(train_file=file, **settings), task="text-classification")
    few = load_data(recipe)
    pack()

    many = load_data(recipe)

    assert many.hashes == few.hashes
    for split, rows in few.splits.items():
        assert list(many.splits[split].ids) == list(rows.ids)
        assert list(many.splits[split].lines) == list(rows.lines)
        assert content_hash(many.splits[split]) == content_hash(rows)
        assert len(set(many.splits[split].groups)) == len(set(rows.groups))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_many_rows_are_read_like_few(suffix: str, tmp_path: Path, pack: Callable[[], None]) -> None:
    pandas = pytest.importorskip("pandas")
    columns = {
        "text": _texts(100, seed=3),
        "label": ["a", "b"] * 50,
        "id": [f"x{i}" for i in range(100)],
    }
    frame = pandas.DataFrame(columns)
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    elif suffix == "parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    reader = READERS["text-classification"]
    few = reader.read(path, DataSection(), split="train", label_needed=True).rows
    pack()

    many = reader.read(path, DataSection(), split="train", label_needed=True).rows

    assert isinstance(many.columns["text"], PackedTexts)
    assert list(many) == list(few)
    for row in range(100):
        assert many.where(row) == few.where(row)
        assert many.answer_id(row) == few.answer_id(row)


def test_texts_that_are_encoded_in_parts_have_the_same_ids(pack: Callable[[], None]) -> None:
    texts = _texts(100, seed=4)
    tokenizer = open_tokenizer(None).tokenizer
    at_once = encode_texts(tokenizer, texts, texts[::-1], max_length=12)
    pack()

    in_parts = encode_texts(tokenizer, texts, texts[::-1], max_length=12)

    for name in ("ids", "type_ids", "starts", "full_lengths", "unknown"):
        assert np.array_equal(getattr(in_parts, name), getattr(at_once, name))


def test_ids_in_a_file_are_read_again_once_their_pages_were_given_back(
    pack: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = _texts(100, seed=4)
    tokenizer = open_tokenizer(None).tokenizer
    at_once = encode_texts(tokenizer, texts, max_length=12)
    at_once.release_pages()
    pack()
    monkeypatch.setattr(encode, "_MANY_TOKENS", 1)

    in_a_file = encode_texts(tokenizer, texts, max_length=12)
    assert isinstance(in_a_file.ids, np.memmap)
    in_a_file.release_pages()

    assert np.array_equal(in_a_file.ids, at_once.ids)
    assert np.array_equal(in_a_file.type_ids, at_once.type_ids)


@pytest.mark.parametrize("numbers", [[], [3], [5, -2, 5, 5, 0], [2**63 - 1, -(2**63), 2**63 - 1]])
def test_different_numbers_are_those_of_numpy(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=np.int64)

    assert sorted_unique(values).tolist() == np.unique(values).tolist()


def test_rows_that_recur_in_both_splits_have_near_twins(tmp_path: Path) -> None:
    text = "seven bright stones lie quietly under the old bridge by the river"
    other = f"{text} now"
    splits = {
        "train": ["walks", text, text.upper(), "bridges"],
        "validation": [other, "quietly", other.title(), text, other],
    }
    for name, texts in splits.items():
        lines = (f"{row},{'ab'[number % 2]}\n" for number, row in enumerate(texts))
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{''.join(lines)}", encoding="utf-8")
    data = DataSection(
        train_file=str(tmp_path / "train.csv"), validation_file=str(tmp_path / "validation.csv")
    )

    findings = {
        finding.code: finding
        for finding in _checked(data, tmp_path).findings
        if finding.code.startswith("near-duplicate")
    }

    across = findings["near-duplicate-across-splits"]
    assert across.count == 3  # `other`, three times
    assert all("train.csv:3" in example.text for example in across.examples)
    within = findings["near-duplicate"]
    assert [example.where.rpartition(":")[2] for example in within.examples] == ["5", "6"]
    assert "validation.csv:2" in within.examples[0].text  # the earliest of its twins
    assert "validation.csv:5" in within.examples[1].text


@pytest.mark.parametrize("largest", [7, 2**31 - 1, 2**31, 2**40, -(2**31), -(2**40)])
def test_columns_of_whole_numbers_stay_whole(largest: int, pack: Callable[[], None]) -> None:
    numbers = np.array([*range(50), largest])
    pack()

    column = int_column(numbers)

    assert list(column) == [*range(50), largest]
    assert list(selected(column, np.arange(50, 10, -1))) == [largest, *range(49, 10, -1)]
    assert list(NumberedIds(numbers).select(range(20, 51))) == [
        *map(str, range(20, 50)),
        str(largest),
    ]


@pytest.mark.parametrize("clusters", [None, np.arange(120) // 2])
def test_lines_in_arrays_score_like_lines(clusters: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    labels = ("bad", "fine", "good")
    probabilities = rng.dirichlet(np.ones(3), 120).astype(np.float32)
    lines = ClassLines(
        labels, rng.integers(0, 3, 120), probabilities.argmax(axis=1), probabilities, clusters
    )
    answers = OneLabelAnswers(labels)

    scores = answers.score(lines, resamples=200, seed=1)

    assert scores == answers.score(list(lines), resamples=200, seed=1)
    assert lines[7] == list(lines)[7]
    assert lines[2:5] == list(lines)[2:5]


def test_more_rows_than_fit_are_refused_with_what_they_need() -> None:
    task = TextClassification(("a", "b"), multi_label=True, separator=None, threshold=0.5)

    with pytest.raises(
        DeviceError,
        match=r"scoring 1,000,000,000,000 rows needs 2500000.0 GB of memory, and .* free",
    ):
        require_room_for_lines(task, 10**12)
    with pytest.raises(
        DeviceError, match=r"bertctl cluster of 10,000,000,000 texts needs .* of memory"
    ):
        require_room(10**10, 384, copies=3, verb="cluster")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "most_bytes_per_row"),
    [
        (["data", "check", "FILE", "--model", "nowhere/model", "--json"], 200),  # 1,300 as objects
        (["finetune", "FILE", "--model", "MODEL", "--max-length", "32", "--dry-run"], 400),
    ],
    ids=["data check", "finetune --dry-run"],
)
def test_memory_hardly_grows_with_the_rows(
    command: list[str], most_bytes_per_row: int, tiny_model: Path, tmp_path: Path
) -> None:
    rng = random.Random(5)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(4, 10)))
        for _ in range(20_000)
    ]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    peaks = []
    for n_rows in (100_000, 400_000):
        path = tmp_path / f"{n_rows}.csv"
        rows = (
            f"{' '.join(rng.choices(words, k=10))},{rng.choice(('a', 'b'))}\n"
            for _ in range(n_rows)
        )
        with path.open("w", encoding="utf-8") as file:
            file.write("text,label\n")
            file.writelines(rows)
        program = (
            "import resource, sys; from bertctl.cli.main import main; sys.argv = ['bertctl', "
            "*sys.argv[1:]]\n"
            "try: main()\n"
            "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
        )
        values = {"FILE": str(path), "MODEL": str(tiny_model)}
        arguments = [values.get(word, word) for word in command]
        finished = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        assert not any(temporary.iterdir())
        peaks.append(int(finished.stderr.split()[-1]) * 1024)

    bytes_per_row = (peaks[1] - peaks[0]) / 300_000
    assert bytes_per_row < most_bytes_per_row, finished.stderr


@pytest.mark.slow
def test_an_interrupt_leaves_no_temporary_file(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    texts = _texts(120_000, seed=6)
    lines = (f"{text},{'ab'[number % 2]}\n" for number, text in enumerate(texts))
    path.write_text(f"text,label\n{''.join(lines)}", encoding="utf-8")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = ["finetune", str(path), "--model", str(tiny_model), "--max-length", "32"]

    with subprocess.Popen(
        [sys.executable, "-m", "bertctl", *command, "--dry-run"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "are held out" in line:  # the rows lie in a temporary file
                process.send_signal(signal.SIGINT)
                break
        process.stderr.read()

    assert process.returncode == 130
    assert not any(temporary.iterdir())
