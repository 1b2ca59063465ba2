"""oneDNN's products in place of torch's own: the same numbers, and only where they are meant."""

import os

import pytest
import torch
import transformers

from bertctl.config.recipe_sections import ModelSection
from bertctl.features.kept_memory import bound_caches
from bertctl.modeling.build import load_frozen
from bertctl.modeling.fast.fast_linear import use_fast_linears
from bertctl.modeling.source import inspect_model
from bertctl.runtime.cpu import has_bf16, leaves_mkl_behind
from bertctl.runtime.device import Compute


@pytest.mark.parametrize(("precision", "fits"), [("fp32", leaves_mkl_behind), ("bf16", has_bf16)])
def test_vectors_are_those_of_plain_layers(tiny_model, precision, fits):
    if not fits():
        pytest.skip(f"torch's own {precision} products are as fast on this CPU")
    source = inspect_model(ModelSection(name=str(tiny_model), max_length=40))
    compute = Compute("cpu", precision, torch.get_num_threads(), "")
    plain = load_frozen(source, compute, plain=True).network
    fast = load_frozen(source, compute).network
    exact = load_frozen(source, Compute("cpu", "fp32", 1, ""), plain=True).network
    kinds = {type(module).__name__ for module in fast.modules()}
    assert "FastLinear" in kinds
    assert "Linear" not in kinds
    ids = torch.tensor([[2, 60, 61, 62, 3], [2, 70, 3, 0, 0]])
    is_token = ids > 0
    our_layer = fast.get_submodule("encoder.layer.0.output.dense")
    their_layer = plain.encoder.layer[0].output.dense
    x = torch.randn(7, their_layer.in_features).to(their_layer.weight.dtype)

    def states_of(network: torch.nn.Module) -> torch.Tensor:
        outputs = network(ids, attention_mask=is_token.long())
        return outputs.last_hidden_state[is_token].float()

    with torch.inference_mode():
        exact_states = states_of(exact)
        plain_error = (states_of(plain) - exact_states).norm()
        fast_error = (states_of(fast) - exact_states).norm()
        difference_of_layers = (our_layer(x) - their_layer(x)).abs().max()

    tolerance = 1e-5 if precision == "fp32" else 0.0
    assert difference_of_layers <= tolerance
    assert fast_error <= max(1.2 * plain_error, 1e-5 * exact_states.norm())


def test_half_precision_and_other_devices_keep_their_layers(tiny_model):
    network = transformers.AutoModel.from_pretrained(tiny_model).eval()
    for compute in (Compute("cpu", "fp16", 1, ""), Compute("cuda", "fp32", 1, "")):
        assert use_fast_linears(network, compute) == 0
    assert "FastLinear" not in {type(module).__name__ for module in network.modules()}


def test_what_the_person_has_set_stands(monkeypatch):
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    bound_caches()
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "64"
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")


@pytest.mark.parametrize(
    "verb", ["probe", pytest.param("extract-features", marks=pytest.mark.slow)]
)
def test_the_verbs_bound_the_caches_before_torch_is_loaded(verb, nursery, tmp_path):
    code = (
        "import sys; from bertctl.features import kept_memory; from bertctl.cli.main import main\n"
        "def seen(): print('torch' in sys.modules)\n"
        "kept_memory.bound_caches = seen\n"
        f"main([{verb!r}, 'missing.csv', '-o', 'x.npy'])"
    )
    result = nursery.run_code(code, cwd=tmp_path)
    assert result.stdout.strip() == "False", result.stderr
