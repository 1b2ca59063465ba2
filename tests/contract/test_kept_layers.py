"""Models that start from some layers of another.

What plain transformers loads answers as the network in memory does, for every family.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from families import TRIED, encoder_config, make_encoder

from bertctl.config.load import load_recipe
from bertctl.errors import UsageError
from bertctl.modeling.build import build_model, load_frozen
from bertctl.modeling.families import families_with
from bertctl.modeling.source import inspect_model
from bertctl.runtime.device import Compute

CANNOT = {
    "esm": "attention of all its layers",
    "esmc": "weigh what they add",
    "funnel": "does not say how many layers",
    "mt5": "encoder and a decoder",
    "t5": "encoder and a decoder",
    "umt5": "encoder and a decoder",
}
"""Families whose layers can't be taken apart, with what is said of them."""

FIRST = ("modernbert", "ultrabert")
"""Families that need their first layer."""

HEAD = {
    "num_labels": 2,
    "id2label": {0: "no", 1: "yes"},
    "label2id": {"no": 0, "yes": 1},
    "problem_type": "single_label_classification",
}
COMPUTE = Compute("cpu", "fp32", 1, "")
EACH = ("bert", "distilbert", "gpt2", "albert", "xlnet", "deberta-v2", "modernbert", "t5", "xlm")
"""What the default run tries: the others are slow."""


def sizes_of(family: str) -> dict[str, Any]:
    """Fields that make a network of four layers."""
    config = encoder_config(family, 50)
    if family == "xlnet":
        return {"n_layer": 4}
    if family in ("xlm", "flaubert"):
        return {"n_layers": 4}
    fields: dict[str, Any] = {"num_hidden_layers": 4}
    if family == "longformer":
        fields["attention_window"] = [8, 16, 8, 16]
    assert hasattr(config, "num_hidden_layers")
    return fields


@pytest.mark.parametrize(
    "family",
    [name if name in EACH else pytest.param(name, marks=pytest.mark.slow) for name in TRIED],
)
def test_a_model_of_some_layers_is_saved_as_plain_transformers_reads_it(
    family: str, tmp_path: Path
) -> None:
    sizes = {} if family in CANNOT else sizes_of(family)
    folder = make_encoder(family, tmp_path / "whole", **sizes)
    layers = [1, 3] if family in FIRST else [2, 4]
    options = {"model.name": str(folder), "model.max_length": 40, "model.keep_layers": layers}
    recipe = load_recipe("text-classification", options=options)
    if family in CANNOT:
        with pytest.raises(UsageError, match=CANNOT[family]):
            inspect_model(recipe.model)
        return
    source = inspect_model(recipe.model)
    kinds = ["AutoModelForSequenceClassification", "AutoModelForTokenClassification"]
    ids = torch.arange(8, 26).reshape(2, 9)
    if family == "longformer":
        ids[:, 0] = 0
        ids[:, -1] = 2
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    for kind in kinds:
        if family not in families_with(kind):
            continue
        for compute in (None, COMPUTE):
            model = build_model(source, kind, HEAD, recipe, compute=compute)
            model.network.eval()
            place = tmp_path / f"{kind}-{compute is None}"
            model.save(place)
            plain = getattr(transformers, kind).from_pretrained(place).eval()
            assert plain.config.num_hidden_layers == 2
            with torch.no_grad():
                ours = model.network(**inputs).logits
                torch.testing.assert_close(plain(**inputs).logits, ours, rtol=1e-5, atol=1e-5)
    frozen = load_frozen(source, COMPUTE)
    with torch.no_grad():
        state = frozen.network(**inputs).last_hidden_state
    assert torch.isfinite(state).all()


def refusal(family: str, folder: Path, layers: list[int], **fields: Any) -> str:
    made = make_encoder(family, folder, **fields)
    options = {"model.name": str(made), "model.max_length": 40, "model.keep_layers": layers}
    with pytest.raises(UsageError) as refused:
        inspect_model(load_recipe("text-classification", options=options).model)
    return f"{refused.value.message} {refused.value.remedy}"


def test_layers_that_are_not_there_are_refused_with_how_many_there_are(tmp_path: Path) -> None:
    message = refusal("bert", tmp_path / "bert", [1, 5], num_hidden_layers=4)
    assert "no layer 5" in message
    assert "has 4 layers" in message
    assert "counted from 1" in message


def test_a_family_with_another_first_layer_says_what_to_type(tmp_path: Path) -> None:
    message = refusal("modernbert", tmp_path / "made", [2, 4], num_hidden_layers=4)
    assert "can't begin with layer 2" in message
    assert "model.keep_layers=[1, 2, 4]" in message


@pytest.mark.parametrize("layers", [[0, 1], [2, 1], [1, 1], []], ids=str)
def test_numbers_are_counted_from_1_and_ascend(layers: list[int]) -> None:
    with pytest.raises(UsageError, match=re.escape("model.keep_layers")):
        load_recipe("text-classification", options={"model.keep_layers": layers})


def test_the_layers_that_are_kept_compute_as_in_the_whole_model(tmp_path: Path) -> None:
    """The first two of four layers give the second hidden state of the whole."""
    folder = make_encoder("bert", tmp_path / "whole", num_hidden_layers=4)
    options = {"model.name": str(folder), "model.max_length": 40}
    complete = load_frozen(
        inspect_model(load_recipe("text-classification", options=options).model), COMPUTE
    )
    options["model.keep_layers"] = [1, 2]
    part = load_frozen(
        inspect_model(load_recipe("text-classification", options=options).model), COMPUTE
    )
    ids = torch.arange(8, 26).reshape(2, 9)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        expected = complete.network(**inputs, output_hidden_states=True).hidden_states[2]
        assert torch.equal(part.network(**inputs).last_hidden_state, expected)
