"""Attention of a training step in fp32 between bf16 layers.

The library's numbers, and evaluation as it was.
"""

from typing import Any

import pytest
import torch
import transformers

from bertctl.modeling.fast import training_attention
from bertctl.modeling.fast.training_attention import use_fp32_attention
from bertctl.runtime.device import Compute

BF16 = Compute("cpu", "bf16", 1, "")


def network() -> Any:
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    return transformers.BertModel(transformers.BertConfig(vocab_size=100, **sizes)).eval()


def inputs(tokens: int = 12) -> dict[str, torch.Tensor]:
    mask = torch.ones(3, tokens, dtype=torch.long)
    mask[1, tokens // 2 :] = 0
    return {
        "input_ids": torch.randint(100, (3, tokens), generator=torch.Generator().manual_seed(1)),
        "attention_mask": mask,
    }


def states(model: Any, arguments: dict[str, torch.Tensor], *, bf16: bool) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        actual: torch.Tensor = model(**arguments).last_hidden_state
    return actual[arguments["attention_mask"].bool()].float()


@pytest.fixture
def without_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_attention, "cpu_words", lambda: frozenset({"avx512_bf16"}))


def gradients(model: Any, *, bf16: bool) -> torch.Tensor:
    model.zero_grad()
    weighted_squares = states(model, inputs(), bf16=bf16).square().mul(torch.arange(64))
    weighted_squares.sum().backward()
    return torch.cat([p.grad.flatten() for p in model.encoder.parameters()])


@pytest.mark.usefixtures("without_amx")
def test_gradients_are_those_of_the_library_and_nearer_to_fp32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = network()
    exact = gradients(model, bf16=False)
    plain = gradients(model, bf16=True)
    assert use_fp32_attention(model, BF16)
    retained = gradients(model, bf16=True)
    assert not torch.equal(retained, plain)
    assert (retained - exact).norm() <= 1.02 * (plain - exact).norm() < 0.05 * exact.norm()


@pytest.mark.usefixtures("without_amx")
def test_evaluation_fp32_and_long_windows_are_as_before() -> None:
    model = network()
    long = inputs(300)
    with torch.no_grad():
        before = states(model, inputs(), bf16=True)
    complete = gradients(model, bf16=False)
    plain = states(model, long, bf16=True)
    assert use_fp32_attention(model, BF16)
    with torch.no_grad():
        assert torch.equal(states(model, inputs(), bf16=True), before)
    assert torch.equal(gradients(model, bf16=False), complete)
    assert torch.equal(states(model, long, bf16=True), plain)


@pytest.mark.usefixtures("without_amx")
def test_a_bias_on_the_scores_is_left_to_the_library() -> None:
    sizes = {"d_model": 24, "num_layers": 2, "num_heads": 3, "d_kv": 8, "d_ff": 36}
    torch.manual_seed(0)
    model = transformers.T5EncoderModel(
        transformers.T5Config(vocab_size=100, dropout_rate=0.0, **sizes)
    )
    plain = states(model, inputs(), bf16=True)
    assert use_fp32_attention(model, BF16)
    assert torch.equal(states(model, inputs(), bf16=True), plain)


def test_other_machines_and_precisions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    monkeypatch.setattr(
        training_attention, "cpu_words", lambda: frozenset({"avx512_bf16", "amx_bf16"})
    )
    assert not use_fp32_attention(model, BF16)
    monkeypatch.setattr(training_attention, "cpu_words", lambda: frozenset[str]())
    assert not use_fp32_attention(model, Compute("cpu", "fp32", 1, ""))
    assert not use_fp32_attention(torch.nn.Linear(2, 2), BF16)
    assert model.config._attn_implementation == "sdpa"
