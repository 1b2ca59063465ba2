"""Passes that a GPU starts at once give the numbers of those that are started one by one.

Other tests need no GPU.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.run_folder import RunFolder
from bertctl.runtime.batching import Padding
from bertctl.runtime.launch import ALONE
from bertctl.runtime.seeding import WindowRandom
from bertctl.training.job import prepare
from bertctl.training.loop.loop import plan_epoch
from bertctl.training.loop.step import training_step
from bertctl.training.loop.training_engine import build_engine

_RECIPES = ("sst2", "stsb", "wnut17", "squad", "codah")


@pytest.mark.parametrize(
    ("name", "precision"), [*((name, "bf16") for name in _RECIPES), ("sst2", "fp32")]
)
def test_recorded_passes_give_the_numbers_of_others(
    name: str, precision: str, shared_data: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """They do to the last bit, with dropout and micro-batches.

    The shapes are met once, twice and more often.
    """
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    data = shared_data / "glue" if name in ("sst2", "stsb") else shared_data
    messages = {"data.data_dir": str(data), "model.name": str(tiny_model), "model.max_length": 40}
    if name == "squad":
        messages |= {
            "question_answering.doc_stride": 8,
            "question_answering.max_question_length": 16,
        }
    how = {"runtime.device": "cuda", "runtime.precision": precision, "runtime.deterministic": True}
    recipe = load_recipe(name, options=messages | how)
    losses, weights = _train(recipe, tmp_path, recorded=None)
    for recorded in (6, 3):  # the second one as if memory had run out
        ours = _train(recipe, tmp_path, recorded=recorded)
        assert ours[0] == losses
        assert all(torch.equal(ours[1][name], weight) for name, weight in weights.items())


def _train(
    recipe: Recipe, folder: Path, *, recorded: int | None
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and gradients' norms of three batches, six times, and the weights then.

    So often they may be recorded.
    """
    job = prepare(recipe)
    engine = build_engine(job, RunFolder(folder), ALONE)
    assert engine.graphs is not None
    graphs = engine.graphs
    if recorded is None:
        engine = replace(engine, graphs=None)
    engine.network.train()
    torch.manual_seed(0)
    plan = plan_epoch(recipe, job.features["train"], 0)
    actual = []
    for turn in range(6):
        if turn == recorded:
            assert graphs.turn_off()
        for batch in plan[:3]:
            rng = WindowRandom(0, turn)
            count = 1 + turn % 2
            done = training_step(engine, job.features["train"], batch, rng, micro_batches=count)
            engine.optimizer.step()
            engine.optimizer.zero_grad(set_to_none=True)
            actual += [done.loss, done.grad_norm]
    return actual, {
        name: parameter.detach().clone()
        for name, parameter in job.loaded.network.named_parameters()
    }


@pytest.mark.parametrize("lengths", [[3, 8, 1], [9], [16, 2]])
def test_a_batch_is_filled_up_to_a_multiple(lengths: list[int]) -> None:
    values = np.array(lengths)
    plain = Padding(0, multiple=1).mask(values)
    rounded = Padding(0, multiple=8).mask(values)
    assert rounded.shape == (len(values), -(-max(lengths) // 8) * 8)
    np.testing.assert_array_equal(rounded[:, : plain.shape[1]], plain)
    assert not rounded[:, plain.shape[1] :].any()
    assert replace(Padding(0, multiple=8), left=True).mask(values).sum(1).tolist() == lengths
