"""The one place that makes a model: what it does with the recipe."""

import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.modeling.build import build_model
from bertctl.modeling.fast import used_tokens
from bertctl.modeling.model import Model
from bertctl.modeling.source import inspect_model

AUTO = "AutoModelForSequenceClassification"
HEAD = {
    "num_labels": 2,
    "id2label": {0: "no", 1: "yes"},
    "label2id": {"no": 0, "yes": 1},
    "problem_type": "single_label_classification",
}


def recipe(tiny_model: Path, **fields: object) -> Recipe:
    return load_recipe(
        "text-classification",
        options={"model.name": str(tiny_model), "model.max_length": 32, **fields},
    )


def build(tiny_model: Path, **fields: object) -> Model:
    made = recipe(tiny_model, **fields)
    return build_model(inspect_model(made.model), AUTO, HEAD, made)


def test_what_is_frozen_is_not_among_the_trainable_parameters(tiny_model: Path) -> None:
    """The premise: the tiny model has two layers."""
    everything = build(tiny_model).trainable_parameters()
    assert any(".layer.1." in name for name in everything)
    left = build(tiny_model, **{"training.freeze_embeddings": True, "training.freeze_layers": 1})
    gone = everything.keys() - left.trainable_parameters().keys()
    assert {name.split(".")[1] for name in gone} == {"embeddings", "encoder"}
    assert not any(".layer.1." in name for name in gone)


def test_weights_that_were_copied_can_be_put_back(tiny_model: Path) -> None:
    model = build(tiny_model)
    copied = model.copy_weights()
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(1.0)
    assert not any(
        torch.equal(tensor, copied[name]) for name, tensor in model.copy_weights().items()
    )
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.zero_()
    model.set_weights(copied)
    assert all(torch.equal(tensor, copied[name]) for name, tensor in model.copy_weights().items())
    with pytest.raises(RuntimeError):
        model.set_weights({name: tensor[:1] for name, tensor in copied.items()})


def test_the_trainable_state_leaves_out_what_is_frozen_and_a_model_saved_of_it_is_whole(
    tiny_model: Path, tmp_path: Path
) -> None:
    model = build(tiny_model, **{"training.freeze_embeddings": True, "training.freeze_layers": 1})
    state = model.trainable_state()
    assert state.keys() == model.trainable_parameters().keys()
    assert all(
        state[name].data_ptr() == parameter.data_ptr()
        for name, parameter in model.trainable_parameters().items()
    )
    copied = model.copy_weights()
    model.save(tmp_path / "before")
    with torch.no_grad():
        for parameter in model.trainable_parameters().values():
            parameter.add_(1.0)
    model.save(tmp_path / "copied", weights=copied)
    before = load_file(tmp_path / "before" / "model.safetensors")
    saved = load_file(tmp_path / "copied" / "model.safetensors")
    assert before.keys() == saved.keys() > state.keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("large", [0, 2**40], ids=["in a file", "in memory"])
def test_a_table_of_which_a_part_is_trained_is_put_together_when_it_is_saved(
    large: int, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(used_tokens, "_LARGE", large)
    monkeypatch.setattr(used_tokens, "_BLOCK", 3)
    model = build(tiny_model)
    complete = model.copy_weights()
    table = used_tokens.train_used_rows(model.network, torch.tensor([0, 3, 5]))
    assert table is not None
    assert isinstance(table.whole, Tensor) == bool(large)
    (name,) = (
        name for name, parameter in model.network.named_parameters() if parameter is table.weight
    )
    model.save(tmp_path / "first")
    table.decay = 0.5
    with torch.no_grad():
        table.weight.add_(1.0)
    second = model.copy_weights()
    expected = (complete[name] * 0.5).index_copy(0, table.used, complete[name][table.used] + 1)
    for weights, folder in ((None, "own"), (second, "given")):
        model.save(tmp_path / folder, weights=weights)
        assert torch.equal(load_file(tmp_path / folder / "model.safetensors")[name], expected)
    saved = load_file(tmp_path / "first" / "model.safetensors")
    assert all(torch.equal(saved[entry], tensor) for entry, tensor in complete.items())
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
