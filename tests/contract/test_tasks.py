"""What every registered task must do.

Overfit, save, load in plain transformers, agree, and not mind its batch.
"""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers
from task_examples import EXAMPLES, ask, assert_alike, assert_same

from bertctl.config.load import load_recipe
from bertctl.errors import UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.score_run import evaluate_file
from bertctl.inference.scorers import ArrayScorer
from bertctl.inference.shards import Sharing
from bertctl.inference.trained import open_run
from bertctl.interpretability.explain import Asked, Explainer
from bertctl.reporting.card import card_text
from bertctl.reporting.compare import compare
from bertctl.reporting.gate import gate
from bertctl.reporting.limits import parse_limit
from bertctl.reporting.report import build_report, gather
from bertctl.run_folder import RunFolder
from bertctl.runtime.batching import Padding
from bertctl.runtime.launch import ALONE
from bertctl.tasks.base import Task
from bertctl.tasks.batches import tensors_of
from bertctl.tasks.registry import TASKS
from bertctl.training.finetune import Result, run
from bertctl.training.job import prepare
from tests.documents.schemas import check_run

MAX_LENGTH = 40


def test_every_registered_task_is_under_contract() -> None:
    assert set(TASKS) == set(EXAMPLES)
    assert len(TASKS) == 6


TRAINED_ELSEWHERE = ("text-regression", "sentence-embeddings")
"""Default tests of numeric/test_regression_scales.py and test_every_verb.py train these; here it
takes them longest."""


def _tier(task: str) -> Any:
    return pytest.param(task, marks=pytest.mark.slow if task in TRAINED_ELSEWHERE else ())


@pytest.fixture(scope="module", params=[_tier(task) for task in sorted(EXAMPLES)])
def finished(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Result:
    """A run that has learned its 8 examples by heart.

    Training and validation rows are the same file.
    """
    task: str = request.param
    folder = tmp_path_factory.mktemp(task)
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in EXAMPLES[task].rows))
    recipe = load_recipe(
        task,
        options={
            "data.train_file": str(data),
            "data.validation_file": str(data),
            "model.name": str(tiny_model),
            "model.max_length": MAX_LENGTH,
            "model.dropout": 0.0,
            "training.epochs": EXAMPLES[task].passes,
            "training.evaluate_every": 2 * EXAMPLES[task].passes,
            "training.checkpoint_every": "off",
            "training.batch_size": 4,
            "optimizer.learning_rate": 3e-3,
            "runtime.precision": "fp32",
            "runtime.device": "cpu",
            "evaluation.bootstrap_resamples": 100,
            "evaluation.primary_metric": "loss",
            **EXAMPLES[task].settings,
        },
    )
    return run(prepare(recipe), RunFolder.create(folder / "run"))


def lines_of(finished: Result) -> list[dict[str, Any]]:
    text = finished.folder.predictions("validation").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_it_overfits_eight_examples(finished: Result) -> None:
    task = open_run(finished.folder.path).task
    scored = finished.metrics.as_json()["metrics"]["validation"]
    assert scored[task.primary_metric]["value"] >= EXAMPLES[task.name].floor
    assert scored["loss"]["value"] < 0.1


def test_plain_transformers_loads_it_and_agrees(finished: Result) -> None:
    trained = open_run(finished.folder.path)
    example = EXAMPLES[trained.task.name]
    network = (
        getattr(transformers, trained.task.auto_class).from_pretrained(finished.folder.model).eval()
    )
    assert type(network).__name__.startswith("Bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(finished.folder.model)
    lines = lines_of(finished)
    assert [[line[name] for name in example.texts] for line in lines] == [
        [row[name] for name in example.texts] for row in example.rows
    ]
    for line in lines:
        example.agrees(network, tokenizer, line)


class Arrays:
    """A network of torch that takes and gives arrays, as a converted model does."""

    def __init__(self, engine: Engine) -> None:
        self.torch = engine.backend

    def __call__(self, **inputs: np.ndarray) -> Any:
        with self.torch.inference():
            outputs = self.torch(**tensors_of(inputs))
        numbers = {
            name: getattr(outputs, name).numpy()
            for name in ("logits", "start_logits", "end_logits", "vectors")
            if getattr(outputs, name, None) is not None
        }
        return SimpleNamespace(**numbers)

    def inference(self) -> Any:
        return contextlib.nullcontext()

    def scorer(self, task: Task, padding: Padding, device: str) -> ArrayScorer:
        return ArrayScorer(task, self, padding)


def test_arrays_are_scored_as_tensors_are(finished: Result) -> None:
    trained = open_run(finished.folder.path)
    rows = prepare(trained.recipe).data.splits["validation"]
    engine = trained.load()
    task = trained.task
    features = task.encode(rows, engine.tokenizer, max_length=MAX_LENGTH)
    arrays = replace(engine, backend=Arrays(engine))
    assert arrays.network is None
    tensors = engine.forward(task, features, batch_size=3)
    numbers = arrays.forward(task, features, batch_size=3)
    assert {*tensors.outputs} == {*numbers.outputs}
    for name, values in tensors.outputs.items():
        assert numbers.outputs[name].dtype == values.dtype
        np.testing.assert_allclose(numbers.outputs[name], values, atol=1e-5)
    if tensors.losses is None:
        assert task.name == "sentence-embeddings"
        assert numbers.losses is None
    else:
        assert numbers.losses is not None
        np.testing.assert_allclose(numbers.losses, tensors.losses, atol=2e-6, rtol=1e-5)


def test_each_answer_is_explained_by_words_that_add_up(finished: Result) -> None:
    trained = open_run(finished.folder.path)
    example = EXAMPLES[trained.task.name]
    rows = prepare(trained.recipe).data.splits["validation"]
    explainer = Explainer(
        trained, Asked(methods=("integrated-gradients", "leave-one-out", "rollout"))
    )
    if not example.explained:
        with pytest.raises(UsageError, match="can't be explained"):
            list(explainer.explain([rows]))
        return
    values = list(explainer.explain([rows]))
    assert explainer.counts["targets"] >= len(values) == len(example.rows)
    assert (
        explainer.counts["not_converged"] <= 1
    )  # what is learned by heart may bend more often than 512 steps see
    for row, line in zip(example.rows, values, strict=True):
        assert_alike(
            line["prediction"],
            lines_of(finished)[int(line["id"]) - int(values[0]["id"])]["prediction"],
        )
        for target in line["targets"]:
            facts = target["methods"]["integrated-gradients"]
            total = sum(word["integrated-gradients"] for word in target["words"])
            error = abs(total - facts["change"])
            allowed = 0.01 * abs(facts["change"])
            rounding = 1e-6 * len(target["words"])  # each word's number is rounded
            if abs(error - allowed) > rounding:
                assert facts["converged"] == (error <= allowed)
            rollout = (
                sum(word["rollout"] for word in target["words"])
                + target["methods"]["rollout"]["apart"]
            )
            assert rollout == pytest.approx(1.0, abs=1e-5)
            for word in target["words"]:
                texts = {
                    **row,
                    "choice": row["choices"][target["choice"]] if "choice" in target else "",
                }
                place = slice(word["start"], word["end"])
                assert texts[word["column"]][place] == (
                    [word["word"]] if word["column"] == "words" else word["word"]
                )
            words = [word for word in target["words"] if word["leave-one-out"] is None]
            assert bool(words) == bool({"type", "tag", "answer"} & set(target)), (
                "tokens whose outputs are read stay"
            )
            if "answer" in target:
                assert all(target["start"] <= word["start"] < target["end"] for word in words)


def test_a_batch_of_one_equals_a_batch_of_many_whatever_the_padding(finished: Result) -> None:
    trained = open_run(finished.folder.path)
    engine = trained.load()
    lines = lines_of(finished)
    task = trained.task
    rows = prepare(trained.recipe).data.splits["validation"]
    features = task.encode(rows, engine.tokenizer, max_length=MAX_LENGTH)
    assert len(set(features.lengths.tolist())) > 3, "the premise: batches of many need padding"
    many = ask(engine, task, features, rows, batch_size=8)
    assert_same(ask(engine, task, features, rows, batch_size=1), many)
    assert_same(
        ask(
            engine,
            task,
            features,
            rows,
            batch_size=3,
            padding=replace(engine.padding, width=MAX_LENGTH),
        ),
        many,
    )
    for line, answer in zip(lines, many.answers, strict=True):
        assert_alike(answer["prediction"], line["prediction"])
    passed = engine.forward(task, features, batch_size=8)
    assert_alike(task.decode(passed.outputs, features, rows), many.answers)
    sums = np.bincount(features.rows, many.losses)
    weights = np.bincount(features.rows, features.weights)
    assert [line["loss"] for line in lines] == pytest.approx(
        (sums / weights.clip(1)).tolist(), abs=1e-5
    )


def test_its_prediction_file_reads_back(finished: Result, tmp_path: Path) -> None:
    """A prediction file is a JSONL file of rows like any other.

    It can be scored again with its gold column.
    """
    task = open_run(finished.folder.path).task.name
    trained = open_run(finished.folder.path, options=dict(EXAMPLES[task].again))
    metrics = evaluate_file(trained, finished.folder.predictions("validation"), tmp_path / "again")
    assert (
        metrics.as_json()["metrics"]["file"] == finished.metrics.as_json()["metrics"]["validation"]
    )


def test_two_shards_of_its_scores_are_the_whole(finished: Result, tmp_path: Path) -> None:
    task = open_run(finished.folder.path).task.name
    file = finished.folder.predictions("validation")
    trained = open_run(
        finished.folder.path, options={**EXAMPLES[task].again, "evaluation.batch_size": 2}
    )
    evaluate_file(trained, file, tmp_path / "whole")
    for shard in ("1/2", "2/2", None):
        sharing = Sharing.read(shard, shard is None, tmp_path / "merged", 1, ".zip")
        with sharing.workers(trained, ALONE) as workers:
            evaluate_file(trained, file, tmp_path / "merged", workers=workers)
    for name in ("metrics.json", "predictions/file.jsonl"):
        assert (tmp_path / "merged" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_it_beats_the_baseline_that_ignores_the_text(finished: Result) -> None:
    primary = open_run(finished.folder.path).task.primary_metric
    value = finished.metrics.as_json()["metrics"]["validation"][primary]["value"]
    assert value > finished.metrics.as_json()["baseline"]["validation"][primary] + 0.2


def test_every_metric_is_what_the_prediction_lines_give(finished: Result) -> None:
    trained = open_run(finished.folder.path)
    task = trained.task
    lines = lines_of(finished)
    scored = finished.metrics.as_json()["metrics"]["validation"]
    assert set(task.answers.all_contributions(lines)) | {"loss"} == set(scored)
    read = type(task.answers).from_lines(lines)
    for name, entry in read.all_contributions(lines).items():
        assert (
            entry.metric(resamples=100, seed=trained.recipe.training.seed, thorough=True).as_json()
            == scored[name]
        )
        quick = entry.metric(resamples=0)  # what is computed while a run trains
        assert quick.value == entry.value
        assert quick.low is None
        assert quick.high is None


def test_report_card_comparison_and_gate_know_it(finished: Result) -> None:
    folder = finished.folder
    task = open_run(finished.folder.path).task
    sections = {section.name: section for section in build_report(gather(folder.path)).sections}
    assert {"result", "outcome", "errors"} <= set(sections)
    card = card_text(folder)
    assert task.auto_class in card or 'pipeline("' in card or "SentenceTransformer(" in card
    primary = task.primary_metric
    compared = compare([folder.path, folder.path])
    assert compared["metrics"][primary][0] == compared["metrics"][primary][1]
    assert {difference["verdict"] for difference in compared["differences"]} == {"undecided"}
    limits = [parse_limit("min", f"{primary}=0.1"), parse_limit("max-drop", f"{primary}=0.01")]
    assert gate(folder.path, limits, baseline=folder.path, policy="point").verdict == "pass"


def test_its_files_fit_the_json_schemas_that_ship(finished: Result) -> None:
    assert check_run(finished.folder.path) >= 5 + 8
