"""Long texts in windows, family by family: the mean of the logits of the windows, one by one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from families import FAMILIES, TRIED, make_encoder, make_family

from bertctl.inference.engine import Engine
from bertctl.run_folder import RunFolder
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.sequences import DocumentFeatures, padded_texts
from bertctl.training.finetune import RunOptions
from bertctl.training.job import prepare
from bertctl.training.loop.step import training_step
from bertctl.training.loop.training_engine import build_engine
from tests.tiny_recipes import tiny_recipe

QUICK = ("roberta", "xlnet", "gpt2")


NAMES = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name in dict.fromkeys([*FAMILIES, *TRIED])
]


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_of_the_windows(name: str, tmp_path: Path) -> None:
    data = tmp_path / "reviews.csv"
    texts = ["a film that was good " * count for count in (1, 9, 14, 2, 11, 1)]
    data.write_text(
        "text,label\n" + "".join(f"{text},{'ab'[i % 2]}\n" for i, text in enumerate(texts))
    )
    folder = tmp_path / name
    (make_family if name in FAMILIES else make_encoder)(name, folder)
    fields = {"model.long_text": "window", "model.max_length": 24, "training.batch_size": 6}
    job = prepare(tiny_recipe(folder, data, **fields))
    features = job.features["train"]
    network = job.loaded.network.eval()
    assert isinstance(features, DocumentFeatures)
    logits = (
        Engine.of(job.loaded, job.compute)
        .forward(job.task, features, batch_size=4)
        .outputs["logits"]
    )
    alone = []
    with torch.inference_mode():
        for window in range(len(features.all_windows)):
            inputs = padded_texts(features.all_windows, np.array([window]), job.loaded.padding)
            if not job.loaded.has_segments:
                del inputs["token_type_ids"]
            alone.append(network(**inputs).logits[0].numpy())
    by_hand = [np.stack(alone)[features.owners == row].mean(axis=0) for row in range(len(texts))]
    np.testing.assert_allclose(logits, by_hand, atol=2e-5 * max(1.0, float(np.abs(by_hand).max())))
    engine = build_engine(job, RunFolder(tmp_path), RunOptions().workers)
    engine.network.train()
    result = training_step(engine, features, np.arange(6), WindowRandom(0), micro_batches=2)
    assert np.isfinite(result.loss)
    assert result.grad_norm > 0
