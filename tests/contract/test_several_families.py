"""Runs that answer together, for families of transformers: each answers as it does alone."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from families import TRIED, make_encoder_of_its_kind
from test_every_family import OF_EACH_KIND

from bertctl import load_runs, predict
from bertctl.modeling.families import families_with

QUICK = (*OF_EACH_KIND, "bert", "distilbert", "modernbert", "xlnet")
TEXTS = ["the food was good", "bad", "a bright film, was it not?", "the film was not good", "dull"]
CPU = {"runtime.device": "cpu", "runtime.precision": "fp32", "model.max_length": 24}


def with_head(encoder: Path, folder: Path, *, labels: int, seed: int) -> bool:
    """Saves an encoder under a random head; returns whether its encoder is the file's."""
    torch.manual_seed(seed)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        encoder, num_labels=labels
    )
    for name, parameter in network.named_parameters():
        if not name.startswith(f"{network.base_model_prefix}."):
            torch.nn.init.normal_(parameter, std=0.3)
    shutil.copytree(encoder, folder)
    network.save_pretrained(folder)
    stored = transformers.AutoModel.from_pretrained(encoder).state_dict()
    state = network.base_model.state_dict()
    return all(torch.equal(state[name], stored.get(name, state[name] + 1)) for name in state)


@pytest.mark.parametrize(
    "family",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TRIED],
)
def test_two_heads_on_one_encoder_answer_as_alone_and_share_its_pass(
    family: str, tmp_path: Path, own_session: None
) -> None:
    encoder = make_encoder_of_its_kind(family, tmp_path / family)
    kind = json.loads((encoder / "config.json").read_text())["model_type"]
    if kind not in families_with("AutoModelForSequenceClassification"):
        pytest.skip("no such head")
    heads = {"classes": 3, "score": 1}
    is_same = [
        with_head(encoder, tmp_path / name, labels=labels, seed=labels)
        for name, labels in heads.items()
    ]

    runs = load_runs([tmp_path / name for name in heads], CPU)
    lines = runs.predict(TEXTS)

    for name in heads:
        alone = predict(load_runs([tmp_path / name], CPU), TEXTS)
        assert [line[name] for line in lines] == [line[name] for line in alone]
    if all(is_same):
        assert runs.sharing["score"]["shared_layers"] >= 1
