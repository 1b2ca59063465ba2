"""Passes through layers that two networks have alike."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bertctl.config.recipe_sections import ModelSection
from bertctl.modeling.load import read_model
from bertctl.modeling.shared_encoder import share_encoder
from bertctl.modeling.source import inspect_model

HEAD = "AutoModelForSequenceClassification"


@pytest.fixture
def headed(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model with a head of two labels."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    folder = tmp_path / "headed"
    AutoModelForSequenceClassification.from_pretrained(tiny_model).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return folder


def network_of(folder: Path) -> Any:
    source = inspect_model(ModelSection(name=str(folder), max_length=40))
    return read_model(source, HEAD).network


def counted(networks: list[Any]) -> Counter[str]:
    """Counts the passes of each layer, by its number."""
    passes = Counter[str]()
    layers = {}
    for network in networks:
        for number, layer in enumerate(network.base_model.part("stack").layer):
            layers[id(layer)] = (str(number), layer)
    for name, layer in layers.values():

        def count(_: Any, __: Any, ___: Any, name: str = name) -> None:
            passes[name] += 1

        layer.register_forward_hook(count)
    return passes


def batch(seed: int, *, padded: bool = False) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 80, (3, 7), generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        mask[1, 4:] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


@pytest.mark.parametrize(("changed", "shared"), [(None, 2), (1, 1), (0, None)])
@torch.inference_mode()
def test_layers_up_to_the_first_that_differs_are_passed_once(
    changed: int | None, shared: int | None, headed: Path
) -> None:
    first = network_of(headed)
    second = network_of(headed)
    if changed is not None:
        second.base_model.part("stack").layer[changed].part("mixed").bias.data += 0.5
    inputs = [batch(1), batch(2, padded=True), batch(2)]
    expected = [second(**inputs_of_batch).logits for inputs_of_batch in inputs]

    part = share_encoder({0: first}, second)
    passes = counted([first, second])
    logits = []
    for inputs_of_batch in inputs:
        first(**inputs_of_batch)
        logits.append(second(**inputs_of_batch).logits)

    assert (part.layers if part else None) == shared
    assert all(torch.equal(a, b) for a, b in zip(logits, expected, strict=True))
    assert passes["0"] == len(inputs) * (1 if shared else 2)
    assert passes["1"] == len(inputs) * (1 if shared == 2 else 2)


@torch.inference_mode()
def test_a_batch_that_the_other_network_has_not_read_is_computed(headed: Path) -> None:
    first = network_of(headed)
    second = network_of(headed)
    expected = second(**batch(3, padded=True)).logits
    share_encoder({0: first}, second)
    first(**batch(3))

    logits = second(**batch(3, padded=True)).logits

    assert torch.equal(logits, expected)


@torch.inference_mode()
def test_the_third_network_continues_from_the_one_that_has_most_of_its_layers(
    headed: Path,
) -> None:
    networks = [network_of(headed) for _ in range(3)]
    for network in networks[1:]:
        network.base_model.part("stack").layer[1].part("mixed").bias.data += 0.5
    expected = networks[2](**batch(4)).logits

    parts = [share_encoder(dict(enumerate(networks[:n])), networks[n]) for n in (1, 2)]
    passes = counted(networks)
    logits = [network(**batch(4)).logits for network in networks]

    assert [(part.partner, part.layers) for part in parts if part] == [(0, 1), (1, 2)]
    assert torch.equal(logits[2], expected)
    assert passes == {"0": 1, "1": 2}
