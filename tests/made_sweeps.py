"""Sweep folders for tests of what reads them, written by hand.

A plan and finished runs, no model, no training.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bertctl.run_documents.sweep_document import SweepDocument
from bertctl.sweeps.describe import describe
from bertctl.sweeps.page import sweep_tables
from bertctl.sweeps.results import read_cells
from tests.made_runs import LABELS, made_run

BASELINE = 0.6
RATES = [{"optimizer.learning_rate": rate} for rate in (5e-5, 3e-5, 2e-5)]
PAPER = [
    {"optimizer.learning_rate": rate, "training.batch_size": batch, "training.epochs": epochs}
    for epochs in (2, 3, 4)
    for batch in (16, 32)
    for rate in (5e-5, 3e-5, 2e-5)
]


def answers(right: float, *, seed: int, n: int = 200, first: int = 0) -> list[dict[str, Any]]:
    """Lines of text-classification with about this share right.

    The same gold labels for any seed.
    """
    golds = np.random.default_rng(0).random(first + n)[first:] < BASELINE
    hits = np.random.default_rng([seed, first]).random(n) < right
    lines = []
    for i, (gold, hit) in enumerate(zip(golds, hits, strict=True)):
        supplied = bool(gold) == bool(hit)
        p = 0.9 if supplied else 0.1
        line = {"id": str(first + i), "text": f"text {first + i}", "gold": LABELS[int(gold)]}
        line |= {
            "prediction": LABELS[int(supplied)],
            "probabilities": {LABELS[0]: 1 - p, LABELS[1]: p},
        }
        lines.append(
            {**line, "loss": 0.1 + 0.001 * i + (0 if hit else 2), "tokens": 9, "truncated": False}
        )
    return lines


def accuracy(lines: Sequence[Mapping[str, Any]]) -> float:
    n_right = sum(line["gold"] == line["prediction"] for line in lines)
    return n_right / len(lines)


def made_sweep(
    folder: Path,
    settings: Sequence[Mapping[str, Any]],
    shares: Sequence[float],
    *,
    seeds: int = 3,
    folds: int | None = None,
    states: Mapping[tuple[int, int], str] | None = None,
    plan: Mapping[str, Any] | None = None,
    n: int = 200,
) -> Path:
    """A sweep whose setting i answers about `shares[i]` of the examples rightly.

    Args:
        folder: SWEEP.
        settings: dotted field -> value of each.
        shares: one a setting.
        seeds: how many.
        folds: parts that are held out, one run each.
        states: (setting, seed) -> collapsed, diverged, failed or missing; else done.
        plan: overrides of plan.json.
        n: examples scored by a run.
    """
    cells = []
    for s, values in enumerate(settings):
        for seed in range(seeds):
            for fold in range(1, folds + 1) if folds else [None]:
                name = f"{s:04x}{seed:04x}{fold or 0:08x}"
                cells.append({"name": name, "setting": s, "seed": seed, "fold": fold})
                first = 0 if fold is None else (fold - 1) * n
                lines = answers(
                    shares[s],
                    seed=100 * s + seed,
                    n=n,
                    first=first,
                )
                made_cell(
                    folder / "cells" / name, lines, (states or {}).get((s, seed), "done"), values
                )
    document = {
        "schema": 1,
        "recipe": {"task": "text-classification", "model": {"name": "/models/minilm"}},
        "name": "made",
        "primary": {"split": "validation", "name": "accuracy", "higher_is_better": True},
        "settings": list(settings),
        "seeds": [{"init": i + 1, "order": i + 1} for i in range(seeds)],
        "folds": folds,
        "baseline": {"accuracy": BASELINE},
        "choose": "mean",
        "keep": "best",
        "shard": None,
        "cells": cells,
        **(plan or {}),
    }
    (folder / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def made_cell(
    folder: Path,
    lines: Sequence[Mapping[str, Any]],
    state: str,
    values: Mapping[str, Any],
    *,
    value: float | None = None,
) -> None:
    """One run of a sweep in any state."""
    if state == "missing":
        return
    sections: dict[str, dict[str, Any]] = {
        "training": {"epochs": 2, "batch_size": 16, "seed": 42},
        "optimizer": {},
    }
    for dotted, setting in values.items():
        section, _, field = dotted.partition(".")
        sections.setdefault(section, {})[field] = setting
    value = accuracy(lines) if value is None else value
    made_run(folder, lines, value=value, recipe=sections)
    if state == "done":
        return
    status = {"schema": 1, "state": "done", "step": 20, "pid": 1, "host": "h", "reason": state}
    if state in ("diverged", "failed"):
        status |= {"state": "failed", "reason": "diverged" if state == "diverged" else "error"}
        status["message"] = (
            "step 9: the loss is nan"
            if state == "diverged"
            else f"{folder}/model: the disk is full"
        )
        for gone in ("metrics.json", "performance.json", "predictions/validation.jsonl"):
            (folder / gone).unlink()
    (folder / "status.json").write_text(json.dumps(status), encoding="utf-8")


def shown(document: dict[str, Any]) -> str:
    """The answer as a terminal of 200 columns shows it."""
    console = Console(width=200)
    with console.capture() as captured:
        console.print(sweep_tables(SweepDocument.model_validate(document)))
    return captured.get()


def document_of(folder: Path, **options: Any) -> dict[str, Any]:
    """The content of sweep.json, nothing written."""
    plan, cells = read_cells(folder)
    return describe(plan, cells, **options).as_json()
