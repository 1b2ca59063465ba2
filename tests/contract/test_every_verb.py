"""Every registered task through the verbs that people use.

One of them is a task that only this test registers.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from task_examples import EXAMPLES, TEXTS

from bertctl.tasks.registry import TASKS
from tests.nursery import Nursery

TOY = "ordinal-rating"
"""The task of `toy_task.py`, which is imported by the `bertctl` processes of this test and not
here."""

STARS = (
    {"text": text, "label": stars}
    for text, stars in zip(TEXTS, (5, 1, 4, 2, 5, 1, 4, 2), strict=True)
)
ROWS: dict[str, Sequence[dict[str, Any]]] = {name: one.rows for name, one in EXAMPLES.items()} | {
    TOY: tuple(STARS)
}
RECIPE = """
training: {epochs: 2, batch_size: 4}
model: {max_length: 40, dropout: 0.0}
optimizer: {learning_rate: 3.0e-3}
evaluation: {bootstrap_resamples: 100}
runtime: {precision: fp32, device: cpu, threads: 1}
"""
VERBS = (
    "data",
    "sweep",
    "evaluate",
    "predict",
    "explain",
    "report",
    "gate",
    "compare",
    "attention",
    "finetune",
)
"""In the order in which the test takes them."""

OF_TWO_PASSES = {"sentence-embeddings"}
"""How alike two texts are rests on two inputs: `explain` and the importance of heads look into one,
and refuse it."""


def test_every_task_takes_every_verb() -> None:
    assert set(ROWS) == {*TASKS} | {TOY}
    assert len(ROWS) * len(VERBS) == 7 * 10


def _tier(task: str) -> Any:
    """By default the toy task, that of two inputs and one with windows.

    Before a release the others too.
    """
    marks = () if task in (TOY, "question-answering", *OF_TWO_PASSES) else pytest.mark.slow
    return pytest.param(task, marks=marks)


@pytest.mark.parametrize("task", [_tier(task) for task in sorted(ROWS)])
def test_a_task_goes_through_every_verb(
    task: str, nursery: Nursery, tiny_model: Path, tmp_path: Path
) -> None:
    taken: list[str] = []
    env = {**nursery.env, "NURSERY_IMPORTS": "toy_task"}

    def run(*words: object, code: int = 0) -> str:
        done = nursery.run(words, cwd=tmp_path, env=env)
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        taken.append(str(words[0]))
        return done.stdout

    def lines(text: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in text.splitlines()]

    data = tmp_path / "rows.jsonl"
    recipe = tmp_path / "mine.yaml"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS[task]))
    sections = [f"name: mine\ntask: {task}{RECIPE}"]
    sections.append(f"data: {{train_file: {data}, validation_file: {data}}}\n")
    sets = [
        word
        for name, value in getattr(EXAMPLES.get(task), "settings", {}).items()
        for word in ("--set", f"{name}={value}")
    ]
    recipe.write_text("".join(sections).replace("model: {", f"model: {{name: {tiny_model}, "))

    checked = json.loads(run("data", "check", recipe, *sets, "--json", code=3))
    assert {found["code"] for found in checked["findings"] if found["severity"] == "error"} == {
        "duplicate-across-splits"
    }
    assert {split["rows"] for split in checked["splits"].values()} == {8}
    swept = json.loads(
        run(
            "sweep",
            recipe,
            *sets,
            "--grid",
            "training.epochs=1,2",
            "--keep",
            "all",
            "-o",
            "sweep",
            "--json",
        )
    )
    assert (
        swept["counts"]["failed"] == swept["counts"]["diverged"] == 0
    )  # so few steps may well answer one thing
    one, other = sorted((tmp_path / "sweep" / "cells").iterdir())

    def documents(run: Path) -> list[dict[str, Any]]:
        return [
            json.loads((run / name).read_text()) for name in ("metrics.json", "performance.json")
        ]

    metrics, _ = documents(one)
    primary = metrics["primary"]["name"]
    value = metrics["metrics"]["validation"][primary]["value"]
    assert primary in metrics["baseline"]["validation"]
    gold = [line["gold"] for line in lines((one / "predictions" / "validation.jsonl").read_text())]
    assert len(gold) == 8

    again = json.loads(run("evaluate", one, "--json"))
    assert again["metrics"]["validation"][primary]["value"] == pytest.approx(value, abs=1e-6)
    answers = lines(run("predict", one, data))
    assert [answer["prediction"] for answer in answers] == [
        line["prediction"] for line in lines((one / "predictions" / "validation.jsonl").read_text())
    ]
    one_input = task not in OF_TWO_PASSES
    run(
        "explain",
        one,
        data,
        "-o",
        "explained.jsonl",
        "--faithfulness",
        "2",
        code=0 if one_input else 2,
    )
    if one_input:
        explained = lines((tmp_path / "explained.jsonl").read_text())
        assert [line["prediction"] for line in explained] == [
            answer["prediction"] for answer in answers
        ]
        assert all(
            target["words"] and "value" in target
            for line in explained
            for target in line["targets"]
        )
    run("report", one, "-o", "report.html")
    assert primary.replace("_", " ") in (tmp_path / "report.html").read_text().replace("_", " ")

    better = metrics["metrics"]["validation"][primary]["higher_is_better"]
    limit = f"{primary}={-1 if better else value + 1}"
    verdict = json.loads(
        run(
            "gate",
            one,
            "--min" if better else "--max",
            limit,
            "--policy",
            "point",
            "--allow-constant",
            "--json",
        )
    )
    assert verdict["verdict"] == "pass"
    allowed = ["--max-drop", f"{primary}={1 if better else 100}", "--policy", "lenient"]
    drop = json.loads(run("gate", one, "--baseline", other, *allowed, "--allow-constant", "--json"))
    assert drop["checks"][0]["metric"] == primary, "the difference of two runs is known"
    compared = json.loads(run("compare", one, other, "--json"))
    assert primary in json.dumps(compared["differences"])

    weighed = run(
        "attention", one, "--importance", "ablation", "--json", code=0 if one_input else 2
    )
    if one_input:
        matters = json.loads(weighed)
        assert matters["importance"]["metric"] == primary
        assert matters["importance"]["value"] == pytest.approx(value, abs=1e-6)
        assert len(matters["heads"]) == 6
        assert all(head["gradient"] > 0 for head in matters["heads"])
        assert any(head["loss_rise"] for head in matters["heads"])

    run("finetune", recipe, *sets, "-o", "run")
    assert task in (tmp_path / "run" / "model" / "README.md").read_text()
    assert set(taken) == set(VERBS)
