"""Rows in memory through the Python API: what they give is what the same rows give as a file."""

import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertctl
from bertctl.config.recipe_sections import DataSection
from bertctl.data.guessing import guess_task
from bertctl.data.memory_rows import kept_file, memory_file
from bertctl.data.readers import READERS
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.inference.layouts import write_answers
from tests.conftest import Run as Command
from tests.conftest import TinyRun
from tests.contract.task_examples import EXAMPLES

TEXTS = ["the film was good", "it was bad\nfood", "", "dull"]
ROWS = [
    {"text": "the film was good", "label": "pos", "stars": 5},
    {"text": "it was bad food", "label": "neg", "stars": 1},
]

_WATCHED: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _WATCHED is None or event != "open":
        return
    path, mode, flags = arguments
    writes = flags & 3 != 0 if isinstance(flags, int) else False
    if (writes or (isinstance(mode, str) and set(mode) & set("wax+"))) and path != os.devnull:
        _WATCHED.append(str(path))


sys.addaudithook(_watch)


@pytest.fixture
def written() -> Iterator[list[str]]:
    """Names of the files that are opened for writing during a test."""
    global _WATCHED
    tempfile.gettempdir()  # is tried out when a library is imported, else
    _WATCHED = []
    yield _WATCHED
    _WATCHED = None


def opinions(n: int = 16) -> list[dict[str, Any]]:
    rows = []
    for i in range(n // 2):
        rows.append({"text": f"the film was good {'very ' * (i % 3)}fine {i}", "label": "pos"})
        rows.append({"text": f"it was bad food {'not ' * (i % 4)}dull {i}", "label": "neg"})
    return rows


def csv_of(rows: list[dict[str, Any]], path: Path) -> Path:
    header = ",".join(rows[0])
    records = [",".join(map(str, row.values())) for row in rows]
    lines = [header, *records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def short(tiny_model: Path, **more: Any) -> dict[str, Any]:
    return {
        "model.name": str(tiny_model),
        "model.max_length": 40,
        "training.preset": None,
        "training.epochs": 2,
        "training.batch_size": 8,
        "optimizer.learning_rate": 5e-3,
        "runtime.device": "cpu",
        "runtime.precision": "fp32",
        "runtime.threads": 1,
        "evaluation.bootstrap_resamples": 100,
        **more,
    }


def as_pandas(rows: list[dict[str, Any]]) -> Any:
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(rows, index=range(7, 7 + len(rows)))


def as_polars(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("polars").DataFrame(rows)


def as_arrow(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pyarrow").Table.from_pylist(rows)


def as_dataset(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("datasets").Dataset.from_list(rows)


FRAMES = [as_pandas, as_polars, as_arrow, as_dataset]


def as_lines(answers: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    write_answers(answers, out, layout="jsonl")
    return out.getvalue()


def test_predict_answers_as_the_verb_to_the_byte(
    tiny_run: TinyRun, bertctl: Command, tmp_path: Path, written: list[str]
) -> None:
    import bertctl as api

    run = api.load_run(tiny_run.path)
    of_texts = run.predict(TEXTS)
    of_rows = run.predict(dict(row) for row in ROWS)
    assert not written
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(" ".join(text.splitlines()) + "\n" for text in TEXTS))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    done = bertctl("predict", str(tiny_run.path), str(texts))
    assert as_lines(of_texts) == done.stdout
    done = bertctl("predict", str(tiny_run.path), str(rows))
    assert as_lines(of_rows) == done.stdout
    assert of_rows[0]["stars"] == 5
    assert "stars" not in run.predict(ROWS, keep_columns="none")[0]
    assert run.predict(ROWS, top_k=1)[0]["top"][0]["label"] == of_rows[0]["prediction"]


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_answers_as_its_rows(
    tiny_run: TinyRun, frame: Callable[[list[dict[str, Any]]], Any], written: list[str]
) -> None:
    run = bertctl.load_run(tiny_run.path)
    rows = frame(ROWS)
    written.clear()  # a library may have written while it was imported
    assert run.predict(rows) == run.predict(ROWS)
    assert not written


def test_predict_reads_a_generator_as_answers_are_taken(
    tiny_run: TinyRun, written: list[str]
) -> None:
    drawn = itertools.count()
    texts = (f"good film {next(drawn)}" for _ in range(100_000))
    run = bertctl.load_run(tiny_run.path)
    answers = run.stream(texts)
    first = next(answers)
    assert first["text"] == "good film 0"
    assert next(drawn) < 3 * 2048, "no more than is worked on at once"
    list(itertools.islice(answers, 2 * 2048))
    assert next(drawn) < 6 * 2048
    assert not written


@pytest.mark.slow
def test_predict_of_100_000_texts_writes_no_file(tiny_run: TinyRun, written: list[str]) -> None:
    run = bertctl.load_run(tiny_run.path)
    answers = run.predict(f"good film {number}" for number in range(100_000))
    assert len(answers) == 100_000
    assert not written


def test_evaluate_of_rows_gives_the_scores_of_their_file(
    tiny_run: TinyRun, tmp_path: Path, written: list[str]
) -> None:
    run = bertctl.load_run(tiny_run.path)
    rows = opinions()
    of_rows = run.evaluate(rows=rows)
    assert not written
    file = csv_of(rows, tmp_path / "rows.csv")
    assert of_rows == run.evaluate_file(file, tmp_path / "of-file")
    run.evaluate(rows=as_arrow(rows), output=tmp_path / "of-rows")
    ours = tmp_path / "of-rows" / "metrics.json"
    theirs = tmp_path / "of-file" / "metrics.json"
    assert ours.read_bytes() == theirs.read_bytes()
    with pytest.raises(UsageError, match="a split and rows are given"):
        run.evaluate("test", rows=rows)
    with pytest.raises(UsageError, match="rows with labels are needed"):
        run.evaluate(rows=["a text"])
    with pytest.raises(DataError, match="rows:2: the label is empty"):
        run.evaluate(rows=[rows[0], {"text": "good", "label": ""}])


@pytest.mark.parametrize("task", EXAMPLES)
def test_rows_of_every_task_are_read_as_their_file(task: str, tmp_path: Path) -> None:
    reader = READERS[task]
    rows = [dict(row) for row in EXAMPLES[task].rows]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = DataSection()
    of_file = reader.read(path, settings, split="train", label_needed=True)
    of_rows = reader.read(kept_file(rows, "rows"), settings, split="train", label_needed=True)
    assert of_rows.columns == of_file.columns
    assert of_rows.rows.columns == of_file.rows.columns
    for supplied in (rows, iter(rows)):
        source = memory_file(supplied, "rows")
        assert source is not None
        read = [part.columns for part in reader.stream(source, settings, chunk_rows=3)]
        again = [part.columns for part in reader.stream(path, settings, chunk_rows=3)]
        assert read == again
    if task in ("text-classification", "multiple-choice", "question-answering"):
        by_rows = guess_task(kept_file(rows, "rows"), settings)[:2]
        by_file = guess_task(path, settings)[:2]
        assert by_rows == by_file


@pytest.mark.parametrize(
    "rows",
    ["a text", ["a", None], [{"text": "a"}, "b"], [1.0], {"text": "a"}, None, 5],
)
def test_what_is_no_rows_is_refused(tiny_run: TinyRun, rows: Any) -> None:
    with pytest.raises(UsageError, match="a list of texts, or a list of mappings"):
        bertctl.predict(tiny_run.path, rows)


def test_frames_that_do_not_fit_are_refused(tiny_run: TinyRun) -> None:
    pd = pytest.importorskip("pandas")
    datasets = pytest.importorskip("datasets")
    with pytest.raises(UsageError, match="can't be made into columns"):
        bertctl.predict(tiny_run.path, pd.DataFrame({"text": ["a", 1]}))
    splits = datasets.DatasetDict({"train": as_dataset(ROWS)})
    with pytest.raises(UsageError, match="several splits"):
        bertctl.predict(tiny_run.path, splits)
    assert bertctl.predict(tiny_run.path, pd.DataFrame({"text": []})) == []


def test_an_error_of_a_generator_comes_through(tiny_run: TinyRun) -> None:
    def texts() -> Iterator[str]:
        yield "good"
        raise OSError("the database is gone")

    with pytest.raises(OSError, match="the database is gone"):
        bertctl.predict(tiny_run.path, texts())


def test_finetune_of_rows_gives_the_metrics_of_their_files(
    tiny_model: Path, tmp_path: Path
) -> None:
    train = opinions()
    validation = opinions(8)
    files = {
        "data.train_file": str(csv_of(train, tmp_path / "train.csv")),
        "data.validation_file": str(csv_of(validation, tmp_path / "validation.csv")),
    }
    of_files = bertctl.finetune(
        "text-classification", short(tiny_model, **files), output=tmp_path / "of-files"
    )
    of_rows = bertctl.finetune(
        "text-classification",
        short(tiny_model),
        train=as_arrow(train),
        validation=validation,
        test=validation,
        output=tmp_path / "of-rows",
    )
    assert of_rows.metrics == of_files.metrics
    for name in ("metrics.json", "predictions/validation.jsonl"):
        assert (of_rows.path / name).read_bytes() == (of_files.path / name).read_bytes()

    moved = of_rows.path.rename(tmp_path / "moved")
    code = (
        "import sys, bertctl; scores = bertctl.evaluate(sys.argv[1], 'test'); "
        "assert scores['test'] == bertctl.load_run(sys.argv[1]).metrics['validation'], scores"
    )
    subprocess.run([sys.executable, "-c", code, str(moved)], check=True, cwd=tmp_path)


def test_rows_are_kept_unless_texts_are_not(tiny_model: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    retained = bertctl.finetune(
        None, short(tiny_model), train=opinions(), validation=opinions(8), output=place
    )
    assert retained.recipe.task == "text-classification", "guessed"
    assert sorted(path.name for path in (place / "rows").iterdir()) == [
        "train.jsonl",
        "validation.jsonl",
    ]
    again = bertctl.finetune(
        None,
        short(tiny_model, **{"evaluation.keep_text": False}),
        train=opinions(),
        validation=opinions(8),
        output=place,
        overwrite=True,
    )
    assert again.metrics == retained.metrics
    assert not (place / "rows").exists()
    with pytest.raises(UnavailableError, match="was trained on rows in memory"):
        again.evaluate()
    assert again.evaluate(rows=opinions(8))["file"] == again.metrics["validation"]


def test_a_run_of_rows_is_gone_on_with(tiny_model: Path, tmp_path: Path) -> None:
    values: dict[str, Any] = {"train": opinions(), "output": tmp_path / "run"}
    first = bertctl.finetune("text-classification", short(tiny_model), **values)
    again = bertctl.finetune("text-classification", short(tiny_model), **values, resume="if any")
    assert again.metrics == first.metrics
    with pytest.raises(DataError, match=r"the rows of .* are not those"):
        bertctl.finetune(
            "text-classification",
            short(tiny_model),
            train=opinions(12),
            output=tmp_path / "run",
            resume="if any",
        )


def test_what_excludes_rows_is_said(tiny_model: Path) -> None:
    with pytest.raises(UsageError, match="no recipe, and no training rows"):
        bertctl.finetune()
    with pytest.raises(UsageError, match=r"data\.train_file is given, and rows"):
        bertctl.finetune("text-classification", {"data.train_file": "x.csv"}, train=opinions())
    with pytest.raises(UsageError, match="rows are given as well"):
        bertctl.finetune(bertctl.load_recipe("sst2"), train=opinions())
    with pytest.raises(UsageError, match="train has no rows"):
        bertctl.finetune("text-classification", train=[])
    with pytest.raises(UsageError, match="train is a list of texts"):
        bertctl.finetune("text-classification", train=["a text"])
    with pytest.raises(UsageError, match="no rows in memory"):
        bertctl.finetune("pretrain-demo", train=opinions())


def test_class_names_of_a_dataset_are_the_labels(tiny_model: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["pos", "neg"])}
    )
    train = datasets.Dataset.from_list(opinions(), features=features)
    run = bertctl.finetune(None, short(tiny_model), train=train, output=tmp_path / "run")
    answer = run.predict(["good"])[0]
    assert list(answer["probabilities"]) == ["pos", "neg"]


def test_a_probe_of_rows_gives_the_metrics_of_their_files(tiny_model: Path, tmp_path: Path) -> None:
    train = opinions()
    validation = opinions(8)
    fields = {
        "model.name": str(tiny_model),
        "model.max_length": 40,
        "probe.folds": 2,
        "runtime.device": "cpu",
        "evaluation.bootstrap_resamples": 100,
    }
    files = {
        "data.train_file": str(csv_of(train, tmp_path / "train.csv")),
        "data.validation_file": str(csv_of(validation, tmp_path / "validation.csv")),
    }
    of_files = bertctl.probe(
        "text-classification", {**fields, **files}, output=tmp_path / "of-files"
    )
    of_rows = bertctl.probe(
        None, fields, train=train, validation=as_arrow(validation), output=tmp_path / "of-rows"
    )
    assert of_rows.metrics == of_files.metrics
    assert of_rows.predict(["good"]) == of_files.predict(["good"])
    assert of_rows.evaluate() == of_files.metrics


def test_features_are_those_of_the_verb(
    tiny_model: Path, bertctl: Command, tmp_path: Path, written: list[str]
) -> None:
    import bertctl as api

    rows = [{"text": text, "pair": "a good film"} for text in ("good", "dull food")]
    fields = {"model.max_length": 40, "runtime.device": "cpu"}
    of_texts = api.extract_features(TEXTS, tiny_model, layers="-1,-2", fields=fields)
    of_rows = api.extract_features(iter(rows), tiny_model, fields=fields)
    assert not written
    assert api.extract_features([], tiny_model, fields=fields).shape == (0, of_rows.shape[1])
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(" ".join(text.splitlines()) + "\n" for text in TEXTS))
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for path, vectors, layers in ((texts, of_texts, "-1,-2"), (file, of_rows, "last")):
        arguments = ["--model", str(tiny_model), "--max-length", "40", "--device", "cpu"]
        out = path.with_suffix(".npy")
        bertctl("extract-features", str(path), "-o", str(out), "--layers", layers, *arguments)
        stored = np.load(out)
        assert stored.reshape(len(stored), -1).tobytes() == vectors.tobytes()


def test_similarity_and_index_answer_as_their_verbs(
    tiny_model: Path, bertctl: Command, tmp_path: Path
) -> None:
    import bertctl as api

    texts = ["a good film", "it was bad", "the food was dull"]
    others = ["a fine film", "it was good", "very dull"]
    fields = {"runtime.device": "cpu"}
    first = tmp_path / "first.txt"
    second = tmp_path / "second.txt"
    first.write_text("\n".join(texts) + "\n")
    second.write_text("\n".join(others) + "\n")
    model = ["--model", str(tiny_model), "--device", "cpu"]

    done = bertctl("similarity", str(first), str(second), *model, "--json")
    document = api.similarity(texts, iter(others), tiny_model, fields=fields)
    pairs = [{"text": text, "pair": other} for text, other in zip(texts, others, strict=True)]
    of_pairs = api.similarity(as_arrow(pairs), model=tiny_model, fields=fields)
    of_equal_texts = api.similarity("good", "good", tiny_model, fields=fields)

    assert document["answers"] == json.loads(done.stdout)["answers"]
    similarities = [line["similarity"] for line in document["answers"]]
    assert [line["similarity"] for line in of_pairs["answers"]] == similarities
    assert of_equal_texts["answers"][0]["similarity"] == pytest.approx(1)

    bertctl("index", str(first), "-o", str(tmp_path / "by-verb"), *model)
    api.index((text for text in texts), tmp_path / "by-api", tiny_model, fields=fields)
    for name in ("vectors.npy", "rows.jsonl"):
        ours = tmp_path / "by-api" / name
        theirs = tmp_path / "by-verb" / name
        assert ours.read_bytes() == theirs.read_bytes()
    requests = ["a dull film", "-k", "2", "--device", "cpu", "--json"]
    done = bertctl("search", str(tmp_path / "by-verb"), *requests)
    search_index = api.search_index(tmp_path / "by-api", "a dull film", 2, fields=fields)
    assert search_index == json.loads(done.stdout)["answers"]
    more = api.index(others, tmp_path / "by-api", append=True, fields=fields)
    assert more["rows"] == 6


def test_a_run_shows_itself(tiny_run: TinyRun) -> None:
    run = bertctl.load_run(tiny_run.path)
    text = repr(run)
    assert text.startswith(f"<Run {tiny_run.path}: task: text-classification; data: ")
    assert "opinions.csv; model: tiny-bert; score: accuracy on validation 1.0000 (" in text
    html = run._repr_html_()
    assert "<th" in html
    assert "accuracy" in html
    assert "<strong>1.0000</strong>" in html
    assert "opinions.csv" in html


@pytest.mark.slow
def test_a_sweep_of_rows_gives_the_scores_of_their_files(tiny_model: Path, tmp_path: Path) -> None:
    train = opinions()
    validation = opinions(8)
    files = {
        "data.train_file": str(csv_of(train, tmp_path / "train.csv")),
        "data.validation_file": str(csv_of(validation, tmp_path / "validation.csv")),
    }
    grid = {"training.epochs": [1, 2]}
    of_files = bertctl.sweep(
        "text-classification",
        short(tiny_model, **files),
        grid="training.epochs=1,2",
        output=tmp_path / "of-files",
    )
    of_rows = bertctl.sweep(
        None,
        short(tiny_model),
        grid=grid,
        train=as_arrow(train),
        validation=validation,
        test=validation,
        score_test=True,
        output=tmp_path / "of-rows",
    )
    for ours, theirs in zip(of_rows["settings"], of_files["settings"], strict=True):
        assert ours["mean"] == theirs["mean"]
    best = bertctl.load_run(next((tmp_path / "of-rows" / "cells").glob("*/model")).parent)
    assert bertctl.evaluate(best, "test")["test"] == best.metrics["validation"]
