"""AdamW and its schedule, beside google-research/bert's optimization.py.

The stated differences are tested as differences.
"""

from pathlib import Path

import pytest
import torch

from bertctl.config.recipe_sections import ModelSection, OptimizerSection
from bertctl.modeling.load import load_model
from bertctl.modeling.source import inspect_model
from bertctl.training.loop.optim import build_optimizer, build_schedule, warmup_steps

SETTINGS = OptimizerSection(learning_rate=1e-3)


@pytest.fixture
def network(tiny_model: Path) -> torch.nn.Module:
    source = inspect_model(ModelSection(name=str(tiny_model), max_length=32))
    return load_model(source, "AutoModelForSequenceClassification", head={"num_labels": 2}).network


def test_biases_and_layer_norm_are_not_decayed(network: torch.nn.Module) -> None:
    optimizer = build_optimizer(network, SETTINGS)
    decayed, undecayed = optimizer.param_groups
    name_of = {id(parameter): name for name, parameter in network.named_parameters()}
    decayed_names = {name_of[id(p)] for p in decayed["params"]}
    undecayed_names = {name_of[id(p)] for p in undecayed["params"]}
    # google-research/bert optimization.py: exclude_from_weight_decay=["LayerNorm", "layer_norm",
    # "bias"]
    assert undecayed_names == {
        n for n in name_of.values() if "LayerNorm" in n or n.endswith("bias")
    }
    assert decayed_names == set(name_of.values()) - undecayed_names
    assert len(undecayed_names) == 24
    assert len(decayed_names) == 17
    assert decayed["weight_decay"] == 0.01
    assert undecayed["weight_decay"] == 0.0


def test_rate_rises_over_a_tenth_and_falls_straight_to_zero() -> None:
    rates = _rates(steps=100)
    assert rates[0] == 0.0
    assert rates[10] == pytest.approx(1e-3)
    assert rates[:11] == pytest.approx([1e-3 * step / 10 for step in range(11)])
    assert rates[10:] == pytest.approx([1e-3 * (100 - step) / 90 for step in range(10, 101)])
    assert rates[100] == 0.0


def test_the_schedule_differs_from_google_in_the_peak_alone() -> None:
    """Theirs decays from step 0, so its peak is 10 % lower and warm-up ends with a step down."""
    ours = _rates(steps=100)
    theirs = [1e-3 * step / 10 if step < 10 else 1e-3 * (1 - step / 100) for step in range(101)]
    assert ours[:10] == pytest.approx(theirs[:10])
    assert theirs[10] == pytest.approx(0.9 * ours[10])
    assert max(ours) == pytest.approx(1e-3)
    assert ours[100] == theirs[100] == 0.0


@pytest.mark.parametrize(
    ("steps", "fraction", "expected"), [(100, 0.1, 10), (99, 0.1, 9), (7, 0.1, 0), (50, 0.0, 0)]
)
def test_warm_up_steps_round_down_as_google_does(
    steps: int, fraction: float, expected: int
) -> None:
    assert warmup_steps(OptimizerSection(warmup_fraction=fraction), steps) == expected


def test_the_first_step_is_bias_corrected_and_googles_is_not() -> None:
    weight = torch.nn.Parameter(torch.tensor([[1.0, -2.0]]))
    module = torch.nn.Module()
    module.weight = weight
    optimizer = build_optimizer(
        module, OptimizerSection(learning_rate=0.01, weight_decay=0.1, epsilon=1e-6)
    )
    gradient = torch.tensor([[0.3, -0.02]])
    weight.grad = gradient.clone()
    before = weight.detach().clone()
    optimizer.step()
    ours = before - weight.detach()
    by_hand = 0.01 * (gradient / (gradient.abs() + 1e-6) + 0.1 * before)
    assert torch.allclose(ours, by_hand, atol=1e-7)
    # optimization.py::AdamWeightDecayOptimizer.apply_gradients, first step: m = 0.1 g, v = 0.001
    # g^2, no correction.
    update = 0.1 * gradient / ((0.001 * gradient**2).sqrt() + 1e-6)
    theirs = 0.01 * (update + 0.1 * before)
    assert torch.allclose(
        (theirs - 0.001 * before) / (ours - 0.001 * before), torch.tensor(3.16), atol=0.01
    )


def test_epsilon_differs_from_googles() -> None:
    assert OptimizerSection().epsilon == 1e-8


def _rates(steps: int) -> list[float]:
    module = torch.nn.Linear(1, 1)
    optimizer = build_optimizer(module, SETTINGS)
    schedule = build_schedule(optimizer, SETTINGS, steps=steps)
    rates = []
    for _ in range(steps + 1):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates
