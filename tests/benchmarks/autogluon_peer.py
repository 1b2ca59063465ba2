"""Scores AutoGluon's defaults on a set of `defaults.py`, in a Python that has AutoGluon and not us.

Usage: PYTHON autogluon_peer.py REQUEST.json

The request has `train` and `test` (files of JSON lines), `task`, `metric`, `model` (folder of the
encoder), `seed`, `threads` and `folder`. The answer is the last line of the output: the score on
the test rows, the seconds, and which rows are right.

Nothing but the encoder, the seed and the number of processes is set: AutoGluon holds out validation
rows by itself, trains up to 20 epochs at 1e-4 with patience, and averages the best weights.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from autogluon.multimodal import MultiModalPredictor
from sklearn.metrics import f1_score


def main() -> None:
    """Trains, scores, prints the answer."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if request["threads"] is not None:
        torch.set_num_threads(request["threads"])
    is_regression = request["task"] == "text-regression"
    train = read_frame(request["train"])
    test = read_frame(request["test"])

    started = time.perf_counter()
    predictor = MultiModalPredictor(
        label="label",
        problem_type="regression" if is_regression else None,
        path=str(Path(request["folder"]) / "autogluon"),
        verbosity=1,
    )
    predictor.fit(
        train,
        seed=request["seed"],
        hyperparameters={
            "model.names": ["hf_text"],
            "model.hf_text.checkpoint_name": request["model"],
            "env.num_gpus": 0,
            "env.num_workers": 0,
            "env.num_workers_inference": 0,
        },
    )
    predictions = predictor.predict(test.drop(columns="label")).to_numpy()
    seconds = time.perf_counter() - started
    print(json.dumps(score(predictions, test["label"].to_numpy(), request) | {"seconds": seconds}))


def read_frame(file: str) -> pd.DataFrame:
    """Returns the texts and labels of a file of JSON lines."""
    rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    columns = [name for name in ("text", "pair", "label") if name in rows[0]]
    return pd.DataFrame(rows)[columns]


def score(predictions: np.ndarray, gold: np.ndarray, request: dict[str, Any]) -> dict[str, Any]:
    """Returns the metric of the set, and for classes which rows are right."""
    if request["task"] == "text-regression":
        return {"score": float(np.corrcoef(predictions, gold)[0, 1])}
    right = predictions == gold
    value = float(right.mean())
    if request["metric"] == "f1_macro":
        value = float(f1_score(gold, predictions, average="macro"))
    return {"score": value, "right": "".join("01"[int(is_right)] for is_right in right)}


if __name__ == "__main__":
    main()
