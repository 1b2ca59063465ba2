"""The one place that makes a model: what it does with the recipe, and the seam for adapters such as LoRA."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.modeling import used_tokens
from bertctl.modeling.build import build_model
from bertctl.modeling.model import Model
from bertctl.modeling.source import inspect_model

AUTO = "AutoModelForSequenceClassification"
HEAD = {
    "num_labels": 2,
    "id2label": {0: "no", 1: "yes"},
    "label2id": {"no": 0, "yes": 1},
    "problem_type": "single_label_classification",
}
IDS = torch.tensor([[2, 10, 11, 12, 3]])


class LowRank(nn.Module):
    """A linear layer and a product of two narrow matrices beside it (Hu et al. 2021)."""

    def __init__(self, plain: nn.Linear, rank: int) -> None:
        super().__init__()
        self.plain = plain
        self.down = nn.Parameter(torch.randn(rank, plain.in_features))
        self.up = nn.Parameter(torch.zeros(plain.out_features, rank))

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.plain(inputs) + inputs @ self.down.T @ self.up.T
        return result


class LowRankValues:
    """LoRA on the values of every layer: the smallest adapter that the seam must carry."""

    def attach(self, network: nn.Module) -> None:
        network.requires_grad_(requires_grad=False)
        for module in list(network.modules()):
            if isinstance(getattr(module, "value", None), nn.Linear):
                module.value = LowRank(module.value, rank=2)

    def merged(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        plain = {name.replace(".value.plain.", ".value."): tensor.clone() for name, tensor in weights.items()}
        for name in [name for name in plain if name.endswith(".value.up")]:
            layer = name.removesuffix(".up")
            plain[f"{layer}.weight"] += plain.pop(name) @ plain.pop(f"{layer}.down")
        return plain


def recipe(tiny_model: Path, **fields: object) -> Recipe:
    return load_recipe("text-classification", options={"model.name": str(tiny_model), "model.max_length": 32, **fields})


def build(tiny_model: Path, adapter: LowRankValues | None = None, **fields: object) -> Model:
    made = recipe(tiny_model, **fields)
    return build_model(inspect_model(made.model), AUTO, HEAD, made, adapter=adapter)


def test_what_is_frozen_is_not_among_the_trainable_parameters(tiny_model: Path) -> None:
    """The premise: the tiny model has two layers."""
    everything = build(tiny_model).trainable_parameters()
    assert any(".layer.1." in name for name in everything)
    left = build(tiny_model, **{"training.freeze_embeddings": True, "training.freeze_layers": 1})
    gone = everything.keys() - left.trainable_parameters().keys()
    assert {name.split(".")[1] for name in gone} == {"embeddings", "encoder"}
    assert not any(".layer.1." in name for name in gone)


def test_an_adapter_is_trained_alone_and_merged_into_a_plain_model(tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(1)
    model = build(tiny_model, LowRankValues())
    model.network.eval()
    parameters = model.trainable_parameters()
    assert {name.rpartition(".")[2] for name in parameters} == {"down", "up"}
    before = model.network(input_ids=IDS).logits
    frozen = model.copy_weights()
    optimizer = torch.optim.Adam(parameters.values(), lr=1.0)
    for _ in range(3):
        model.network(input_ids=IDS).logits[0, 0].backward()
        optimizer.step()
    after = model.network(input_ids=IDS).logits.detach()
    assert (before - after).abs().max() > 1e-3, "the premise: the adapter has changed the answer"
    assert all(
        torch.equal(tensor, frozen[name]) for name, tensor in model.copy_weights().items() if name not in parameters
    )

    model.save(tmp_path / "model")
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert not [name for name, _ in plain.named_parameters() if "down" in name]
    torch.testing.assert_close(plain(input_ids=IDS).logits, after, atol=1e-5, rtol=0)


def test_weights_that_were_copied_can_be_put_back(tiny_model: Path) -> None:
    model = build(tiny_model)
    copied = model.copy_weights()
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(1.0)
    assert not any(torch.equal(tensor, copied[name]) for name, tensor in model.copy_weights().items())
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.zero_()
    model.set_weights(copied)
    assert all(torch.equal(tensor, copied[name]) for name, tensor in model.copy_weights().items())
    with pytest.raises(RuntimeError):
        model.set_weights({name: tensor[:1] for name, tensor in copied.items()})


@pytest.mark.parametrize("large", [0, 2**40], ids=["in a file", "in memory"])
def test_a_table_of_which_a_part_is_trained_is_put_together_when_it_is_saved(
    large: int, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(used_tokens, "_LARGE", large)
    monkeypatch.setattr(used_tokens, "_BLOCK", 3)
    model = build(tiny_model)
    whole = model.copy_weights()
    table = used_tokens.train_used_rows(model.network, torch.tensor([0, 3, 5]))
    assert table is not None
    assert isinstance(table.whole, Tensor) == bool(large)
    (name,) = (name for name, one in model.network.named_parameters() if one is table.weight)
    model.save(tmp_path / "first")
    table.decay = 0.5
    with torch.no_grad():
        table.weight.add_(1.0)
    second = model.copy_weights()
    expected = (whole[name] * 0.5).index_copy(0, table.used, whole[name][table.used] + 1)
    for weights, folder in ((None, "own"), (second, "given")):
        model.save(tmp_path / folder, weights=weights)
        assert torch.equal(load_file(tmp_path / folder / "model.safetensors")[name], expected)
    saved = load_file(tmp_path / "first" / "model.safetensors")
    assert all(torch.equal(saved[each], tensor) for each, tensor in whole.items())
    outside = torch.tensor([[2, 10, 1, 7, 3]])
    model.network.eval()
    after = model.network(input_ids=outside).logits
    model.load(tmp_path / "first")
    before = model.network(input_ids=outside).logits
    model.set_weights(second)
    assert torch.equal(model.network(input_ids=outside).logits, after)
    model.load(tmp_path / "own")
    assert torch.equal(model.network(input_ids=outside).logits, after)
    assert not torch.equal(before, after)


def test_a_table_stays_in_memory_where_there_is_no_room_for_it(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(used_tokens, "_LARGE", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tiny_model / "nowhere"))
    table = used_tokens.train_used_rows(build(tiny_model).network, torch.tensor([0, 3, 5]))
    assert table is not None
    assert isinstance(table.whole, Tensor)
