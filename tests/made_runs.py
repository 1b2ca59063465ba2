"""Finished run folders for tests of what reads them, written by hand.

Every task, no model, no training.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

LABELS = ("negative", "positive")


def made_run(
    folder: Path,
    lines: Sequence[Mapping[str, Any]],
    *,
    task: str = "text-classification",
    primary: str = "accuracy",
    value: float = 0.8,
    split: str = "validation",
    recipe: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Path:
    """A run folder with these predictions; what else is in it is made up and always the same."""
    (folder / "predictions").mkdir(parents=True)
    (folder / "model").mkdir()
    steps = range(10, 210, 10)
    history = [
        {"step": step, "epoch": step / 100, "loss": 0.7 * 0.99**step, "learning_rate": 1e-5}
        for step in steps
    ]
    for step, score in ((100, value - 0.05), (200, value)):
        history.append({"step": step, f"{split}_{primary}": score, f"{split}_loss": 0.5})
    count = {
        "examples": len(lines),
        "truncated": 3,
        "lost_tokens": 40,
        "unknown_tokens": 5,
        "tokens": 30 * len(lines),
    }
    entry = {
        "value": value,
        "low": value - 0.03,
        "high": value + 0.02,
        "n": len(lines),
        "higher_is_better": True,
    }
    loss = {"value": 0.5, "low": 0.4, "high": 0.6, "n": len(lines), "higher_is_better": False}
    contents: dict[str, Any] = {
        "status.json": {"schema": 1, "state": "done", "step": 200, "pid": 1, "host": "h"},
        "metrics.json": {
            "schema": 1,
            "metrics": {split: {primary: entry, "loss": loss}},
            "primary": {"split": split, "name": primary},
            "baseline": {split: {primary: 0.5}},
            "data": {"train": {**count, "examples": 4 * len(lines)}, split: count},
            "best_step": 200,
            "steps": 200,
            **(metrics or {}),
        },
        "environment.json": {
            "schema": 1,
            "bertctl": "0.1.0",
            "python": "3.11.7",
            "platform": "Linux-secret-machine",
            "packages": {"torch": "2.13.0+cpu"},
            "device": "cpu",
            "precision": "fp32",
            "threads": 2,
            "seed": 42,
            "recipe_hash": "b4a0" * 16,
            "model_hash": "9425" * 16,
            "data_hashes": {"train": "c2f5" * 16, split: "a1b2" * 16},
            "command": f"bertctl finetune x -o {folder}",
        },
        "performance.json": {
            "schema": 1,
            "seconds": {"read": 0.1, "train": 75.0},
            "examples_per_second": 100.0,
            "tokens_per_second": 3000.0,
            "padding_share": 0.03,
            "peak_memory_bytes": 10**9,
        },
        "model/config.json": {"id2label": dict(enumerate(LABELS))},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    document = {
        "name": "made",
        "task": task,
        "data": {"name": None, "train_file": "/home/someone/rows.csv"},
        "model": {"name": "minilm", "max_length": 64},
        "training": {"epochs": 2, "batch_size": 16, "seed": 42},
        "optimizer": {"learning_rate": 3e-5},
        "evaluation": {"slice_columns": ["source"]},
        **(recipe or {}),
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    for name, rows in (("history.jsonl", history), (f"predictions/{split}.jsonl", lines)):
        (folder / name).write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )
    return folder


def _ends(line: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The fields that every line ends with."""
    return {
        **line,
        "loss": 0.5,
        "tokens": 5 + number % 40,
        "truncated": number % 50 == 7,
        "source": "ab"[number % 2],
    }


def classified(
    n: int = 200, labels: Sequence[str] = LABELS, *, seed: int = 0
) -> list[dict[str, Any]]:
    """Lines of text-classification: about four in five right, and too sure of themselves."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        gold = str(rng.choice(labels))
        given = (
            gold
            if rng.random() < 0.8
            else str(rng.choice([name for name in labels if name != gold]))
        )
        top = float(rng.uniform(0.9, 0.999))
        rest = (1 - top) / (len(labels) - 1)
        probabilities = {name: top if name == given else rest for name in labels}
        line = {"id": str(i), "text": f"text number {i}", "gold": gold, "prediction": given}
        rows.append(_ends({**line, "probabilities": probabilities}, i))
    return rows


def several_labels(
    n: int = 120, labels: Sequence[str] = ("joy", "fear", "anger")
) -> list[dict[str, Any]]:
    """Lines of multi-label text-classification."""
    rng = np.random.default_rng(1)
    rows = []
    for i in range(n):
        gold = [name for name in labels if rng.random() < 0.4]
        p = {name: float(rng.beta(8, 3) if name in gold else rng.beta(3, 8)) for name in labels}
        given = [name for name in labels if p[name] >= 0.5]
        line = {"id": str(i), "text": f"text {i}", "gold": gold, "prediction": given}
        rows.append(_ends({**line, "probabilities": p}, i))
    return rows


def scored(n: int = 150) -> list[dict[str, Any]]:
    """Lines of text-regression on pairs."""
    rng = np.random.default_rng(2)
    rows = []
    for i in range(n):
        gold = float(np.round(rng.uniform(0, 5), 2))
        line = {"id": str(i), "text": f"one {i}", "pair": f"other {i}", "gold": gold}
        rows.append(_ends({**line, "prediction": float(gold + rng.normal(0, 0.5))}, i))
    return rows


def tagged(n: int = 60) -> list[dict[str, Any]]:
    """Lines of token-classification: every third sentence misses its place."""
    rows = []
    for i in range(n):
        words = ["Ada", "Lovelace", "went", "to", "London", f"{i}", "."]
        gold = ["B-PER", "I-PER", "O", "O", "B-LOC", "O", "O"]
        given = gold if i % 3 else [*gold[:4], "O", "O", "O"]
        entities = [{"type": "PER", "start": 0, "end": 2}]
        line = {"id": str(i), "words": words, "gold": gold, "prediction": given}
        rows.append(_ends({**line, "entities": entities}, i))
    return rows


def answered(n: int = 90) -> list[dict[str, Any]]:
    """Lines of question-answering: every third unanswerable, some wrong."""
    rows = []
    for i in range(n):
        gold = [] if i % 3 == 0 else ["the Nile", "Nile"]
        prediction = "Nile" if i % 5 else "the river Rhine"
        if i % 6 == 0:
            prediction = ""
        line = {
            "id": f"q{i}",
            "question": f"Which river, {i}?",
            "context": "The Nile is a river. " * 40,
            "gold": gold,
        }
        rows.append(
            _ends(
                {
                    **line,
                    "prediction": prediction,
                    "probability": 0.5 + (i % 10) / 20,
                    "null_odds": -1.0,
                },
                i,
            )
        )
    return rows


def chosen(n: int = 80) -> list[dict[str, Any]]:
    """Lines of multiple-choice with four choices."""
    rng = np.random.default_rng(3)
    rows = []
    for i in range(n):
        gold = int(rng.integers(4))
        given = gold if rng.random() < 0.7 else int(rng.integers(4))
        p = [0.1, 0.1, 0.1, 0.1]
        p[given] = 0.7
        choices = [f"ending {k} of {i}" for k in range(4)]
        line = {"id": str(i), "context": f"Someone begins {i}", "choices": choices, "gold": gold}
        rows.append(_ends({**line, "prediction": given, "probabilities": p}, i))
    return rows


TASKS = {
    "text-classification": (classified, "accuracy"),
    "text-regression": (scored, "spearman"),
    "token-classification": (tagged, "entity_f1"),
    "question-answering": (answered, "f1"),
    "multiple-choice": (chosen, "accuracy"),
}
"""Task -> its lines, and its primary metric."""
