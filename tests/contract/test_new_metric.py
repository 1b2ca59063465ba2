"""A metric costs one place: a row that only this test registers works wherever metrics are used."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from task_examples import EXAMPLES

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.metrics import contributions
from bertctl.metrics.contributions import Contributions, Metric
from bertctl.reporting.card import card_text
from bertctl.reporting.compare import compare
from bertctl.reporting.gate import gate
from bertctl.reporting.limits import parse_limit
from bertctl.reporting.report import build_report, gather
from bertctl.reporting.runs import read_run
from bertctl.run_folder import RunFolder
from bertctl.sweeps.plan import PrimaryMetric, SweepPlan
from bertctl.sweeps.results import score_lines
from bertctl.tasks.answers import Answers, Lines
from bertctl.tasks.regression.score_answers import ScoreAnswers, scores
from bertctl.training.finetune import run
from bertctl.training.job import check, encode, prepare


def _mae(_: Answers, lines: Lines) -> Contributions:
    gold, predicted = scores(lines)
    return contributions.mean(np.abs(gold - predicted))


MAE = Metric("mae", _mae, "mean absolute error", higher_is_better=False, is_fraction=False)


@dataclass(frozen=True)
class Trained:
    """Two runs of regression, and the recipe of the first.

    The new metric picks their best weights.
    """

    recipe: Recipe
    runs: tuple[Path, Path]


@pytest.fixture(scope="module")
def trained(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    folder = tmp_path_factory.mktemp("mae")
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in EXAMPLES["text-regression"].rows * 3))
    options = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(tiny_model),
    }
    options |= {
        "training.epochs": 2,
        "model.max_length": 40,
        "runtime.device": "cpu",
        "evaluation.primary_metric": "mae",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScoreAnswers, "metrics", (*ScoreAnswers.metrics, MAE))
        recipes = [
            load_recipe("text-regression", options={**options, "training.seed": seed})
            for seed in (1, 2)
        ]
        for recipe in recipes:
            run(prepare(recipe), RunFolder.create(folder / f"run{recipe.training.seed}"))
        yield Trained(recipes[0], (folder / "run1", folder / "run2"))


def _by_hand(path: Path) -> float:
    lines = read_run(path).lines("validation")
    return float(np.mean([abs(line["gold"] - line["prediction"]) for line in lines]))


def test_it_picks_the_weights_and_stands_beside_its_baseline(trained: Trained) -> None:
    metrics = read_run(trained.runs[0]).metrics.as_json()
    assert metrics["primary"]["name"] == "mae"
    actual = metrics["metrics"]["validation"]["mae"]
    assert actual["value"] == pytest.approx(_by_hand(trained.runs[0]), abs=1e-6)
    assert actual["low"] < actual["value"] < actual["high"]
    assert actual["higher_is_better"] is False
    golds = [row["label"] for row in EXAMPLES["text-regression"].rows]
    assert metrics["baseline"]["validation"]["mae"] == pytest.approx(
        np.mean(np.abs(golds - np.mean(golds)))
    )


def test_it_is_gated_and_compared_example_by_example(trained: Trained) -> None:
    first, second = trained.runs
    limits = [parse_limit("max", "mae=50"), parse_limit("max-drop", "mae=2.5")]  # it is no fraction
    actual = gate(first, limits, baseline=second, policy="point", allow_constant=True)
    assert actual.verdict == "pass"
    change = actual.judgements[1].change
    assert change is not None
    assert change.method == "paired bootstrap, exchange of clusters", (
        "each row is there three times"
    )
    assert change.value == pytest.approx(_by_hand(first) - _by_hand(second), abs=1e-6)
    with pytest.raises(UsageError, match="better when lower"):
        gate(first, [parse_limit("min", "mae=1")], policy="point")
    compared = compare([first, second])
    assert compared["primary"] == "mae"
    assert next(
        difference for difference in compared["differences"] if difference["metric"] == "mae"
    )["paired"]


def test_a_sweep_knows_it_and_pools_its_folds(trained: Trained) -> None:
    checked = check(trained.recipe, encode(trained.recipe))
    assert checked.primary == "mae"
    assert checked.baseline["mae"] > 0
    primary = PrimaryMetric(split="validation", name="mae", higher_is_better=False)
    plan = SweepPlan(
        name="made", recipe={"task": "text-regression"}, primary=primary, settings=[{}], seeds=[]
    )
    folds = [read_run(path).lines("validation") for path in trained.runs]
    pooled = score_lines(plan, [line for fold in folds for line in fold])
    assert pooled.value == pytest.approx(
        np.mean([_by_hand(path) for path in trained.runs]), abs=1e-6
    )
    assert not pooled.higher_is_better
    parts = [score_lines(plan, fold).linear_parts().mean() for fold in folds]
    assert np.mean(parts) == pytest.approx(pooled.value)


def test_report_and_card_show_it(trained: Trained) -> None:
    report = build_report(gather(trained.runs[0]))
    assert report.tiles[0].label == "mae, validation"
    assert "mae" in card_text(RunFolder.open(trained.runs[0]))
