"""A probe on words.

Their vectors by hand, entities by fine-tuning's scorer, and what other verbs make of it.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers

from bertctl.config.load import load_recipe
from bertctl.errors import UsageError
from bertctl.features.probe import _vectors as vectors_of
from bertctl.features.probe import prepare, run
from bertctl.inference.score_run import evaluate_run
from bertctl.inference.trained import open_run
from bertctl.progress import SILENT
from bertctl.run_folder import RunFolder
from tests.scoring import tagging_metrics

WORDS = ["the film was good", "it was xyz bad food", "not the fine dull film", "a poor film"]


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 sentences in which `film` is a THING of one word and `bad food` one of two."""
    blocks = []
    for i in range(48):
        lines = []
        words = [*WORDS[i % 4].split(), str(i)]
        for word in words:
            tag = {"film": "B-THING", "bad": "B-THING", "food": "I-THING"}.get(word, "O")
            lines.append(f"{word} {tag}")
        blocks.append("\n".join(lines))
    path = tmp_path_factory.mktemp("tagged") / "rows.conll"
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path


def job_of(model: Path, rows: Path, **more: object):
    options = {
        "data.train_file": str(rows),
        "model.name": str(model),
        "model.max_length": 40,
        "runtime.precision": "fp32",
        "runtime.device": "cpu",
        "evaluation.bootstrap_resamples": 100,
        "probe.folds": 3,
        "data.validation_fraction": 0.25,
    }
    supplied = {name.replace("__", "."): value for name, value in more.items()}
    return prepare(load_recipe("token-classification", options=options | supplied))


class Finished(NamedTuple):
    """A run folder and its metrics.json."""

    folder: RunFolder
    metrics: dict[str, Any]


def probe(model: Path, rows: Path, out: Path, **more: object) -> Finished:
    folder = RunFolder.create(out)
    return Finished(folder, run(job_of(model, rows, **more), folder))


@pytest.fixture(scope="module")
def finished(tiny_model: Path, tagged: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    out = tmp_path_factory.mktemp("probe") / "run"
    return probe(
        tiny_model, tagged, out, probe__layers=["word-embeddings", "all", "weighted-all", "sum-all"]
    )


def test_a_words_vector_is_that_of_its_first_piece(tiny_model, tagged):
    job = job_of(tiny_model, tagged, probe__layers=["1", "last", "weighted-all"])
    network = transformers.AutoModel.from_pretrained(tiny_model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    expected_first = []
    expected_last = []
    for split in ("train", "validation"):
        for words in job.data.splits[split].columns["words"]:
            encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
            word_ids = encoded.word_ids()
            positions = [word_ids.index(word) for word in range(len(words))]
            with torch.inference_mode():
                outputs = network(**encoded, output_hidden_states=True)
            expected_first.append(outputs.hidden_states[1][0, positions])
            expected_last.append(outputs.hidden_states[2][0, positions])

    vectors = vectors_of(job, SILENT)

    first = torch.cat(expected_first)
    last = torch.cat(expected_last)
    mix = torch.cat([first, last], dim=-1)
    np.testing.assert_allclose(vectors[0], first, atol=1e-5)
    np.testing.assert_allclose(vectors[1], last, atol=1e-5)
    np.testing.assert_allclose(vectors[2], mix, atol=1e-5)


def test_entities_are_scored_as_after_fine_tuning(finished):
    lines = [
        json.loads(line)
        for line in finished.folder.predictions("validation").read_text().splitlines()
    ]
    gold = [line["gold"] for line in lines]
    answers = [line["prediction"] for line in lines]
    expected = tagging_metrics(gold, answers, resamples=100, seed=42, entities=True)["entity_f1"]
    assert finished.metrics.as_json()["primary"] == {"split": "validation", "name": "entity_f1"}
    assert finished.metrics.as_json()["metrics"]["validation"]["entity_f1"][
        "value"
    ] == pytest.approx(expected.value)
    assert expected.value > 0.9
    assert finished.metrics.as_json()["baseline"]["validation"]["entity_f1"] == 0.0


def test_the_table_scores_what_is_kept_and_evaluate_gives_it_again(finished):
    document = finished.metrics.as_json()["probe"]
    assert {row["pooling"] for row in document["table"]} == {"first"}
    assert [row["layer"] for row in document["table"]] == [
        "word-embeddings",
        "0",
        "1",
        "2",
        "weighted-all",
        "sum-all",
    ]
    (best,) = [
        r
        for r in document["table"]
        if {"layer": r["layer"], "pooling": r["pooling"]} == document["best"]
    ]
    assert finished.metrics.as_json()["metrics"]["validation"]["entity_f1"] == best["entity_f1"]
    before = finished.folder.metrics.read_bytes()
    evaluate_run(open_run(finished.folder.path))
    assert finished.folder.metrics.read_bytes() == before


@pytest.mark.parametrize("more", [{"probe__layers": ["weighted-all"]}, {"probe__normalize": True}])
def test_each_kind_is_kept_and_scored_alike(tiny_model, tagged, tmp_path, more):
    result = probe(tiny_model, tagged, tmp_path / "run", **more)
    (row,) = result.metrics.as_json()["probe"]["table"]
    assert result.metrics.as_json()["metrics"]["validation"]["entity_f1"] == row["entity_f1"]
    assert row["entity_f1"]["value"] > 0.7
    assert ("mix" in row) == ("probe__layers" in more)


def test_folds_never_part_a_sentence(tiny_model, tagged, tmp_path):
    short = tmp_path / "short.conll"
    short.write_text("\n\n".join(tagged.read_text().split("\n\n")[:3]) + "\n")

    result = probe(tiny_model, short, tmp_path / "run")

    assert result.metrics.as_json()["probe"]["folds"] == 2, (
        "as many as there are training sentences"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [({"probe__pooling": ["cls", "mean"]}, "'cls'"), ({"probe__repeats": 3}, "probe.repeats")],
)
def test_what_is_for_texts_is_refused(tiny_model, tagged, more, message):
    with pytest.raises(UsageError, match=message):
        job_of(tiny_model, tagged, **more)
