"""The one place that makes a model: what it does with the recipe, and the seam for adapters such as LoRA."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.modeling.build import build_model
from bertctl.modeling.model import Model
from bertctl.modeling.source import inspect_model
from bertctl.modeling.used_tokens import train_used_rows

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
    room = model.copy_weights(into=copied)
    assert all(room[name] is tensor for name, tensor in copied.items()), "written over"
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.zero_()
    model.set_weights(room)
    assert all(torch.equal(tensor, room[name]) for name, tensor in model.copy_weights().items())
    with pytest.raises(RuntimeError):
        model.set_weights({name: tensor[:1] for name, tensor in room.items()})


def test_a_table_of_which_a_part_is_trained_is_put_together_for_each_copy(tiny_model: Path) -> None:
    model = build(tiny_model)
    whole = model.copy_weights()
    table = train_used_rows(model.network, torch.tensor([0, 3, 5]))
    assert table is not None
    first = model.copy_weights()
    assert all(torch.equal(first[name], tensor) for name, tensor in whole.items())
    earlier = dict(first)
    (name,) = (name for name, one in model.network.named_parameters() if one is table.weight)
    table.decay = 0.5
    with torch.no_grad():
        table.weight.add_(1.0)
    second = model.copy_weights(into=first)
    assert torch.equal(earlier[name], whole[name]), "nothing is written over, and it is let go"
    assert name not in first
    assert torch.equal(second[name][[0, 3, 5]], whole[name][[0, 3, 5]] + 1)
    assert torch.equal(second[name][1], whole[name][1] * 0.5)
    assert all(second[other] is tensor for other, tensor in first.items())
