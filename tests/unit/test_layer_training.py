"""Training that treats layers apart.

Learning rates, freezing, unfreezing and re-initialisation, layer by layer.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import nn

from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import OptimizerSection, TrainingSection
from bertctl.errors import UsageError
from bertctl.modeling.layer_groups import freeze, parameter_depths, reinitialise
from bertctl.modeling.source import inspect_model
from bertctl.run_folder import RunFolder
from bertctl.training.finetune import run
from bertctl.training.job import prepare
from bertctl.training.loop.layer_freezing import Unfreezing, describe
from bertctl.training.loop.optim import build_optimizer, build_schedule
from tests.tiny_recipes import tiny_recipe

SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 37,
    "vocab_size": 50,
}


def network_of(family: str, **sizes: Any) -> nn.Module:
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **sizes})
    config.pad_token_id = 0
    torch.manual_seed(0)
    return transformers.AutoModelForSequenceClassification.from_config(
        config, attn_implementation="eager"
    )


def trainable(network: nn.Module) -> set[int]:
    """Depths at which something is trained."""
    depths = parameter_depths(network)
    return {
        depths[name] for name, parameter in network.named_parameters() if parameter.requires_grad
    }


@pytest.mark.parametrize(
    ("family", "top", "head", "embeddings"),
    [
        (
            "bert",
            "bert.encoder.layer.2.",
            "bert.pooler.dense.weight",
            "bert.embeddings.LayerNorm.weight",
        ),
        (
            "roberta",
            "roberta.encoder.layer.2.",
            "classifier.out_proj.bias",
            "roberta.embeddings.word_embeddings",
        ),
        (
            "electra",
            "electra.encoder.layer.2.",
            "classifier.dense.weight",
            "electra.embeddings_project.weight",
        ),
        (
            "distilbert",
            "distilbert.transformer.layer.2.",
            "pre_classifier.weight",
            "distilbert.embeddings.LayerNorm",
        ),
        (
            "xlnet",
            "transformer.layer.2.",
            "logits_proj.weight",
            "transformer.word_embedding.weight",
        ),
        ("gpt2", "transformer.h.2.", "score.weight", "transformer.wpe.weight"),
        (
            "deberta-v2",
            "deberta.encoder.layer.2.",
            "pooler.dense.weight",
            "deberta.encoder.rel_embeddings",
        ),
        (
            "modernbert",
            "model.layers.2.",
            "head.dense.weight",
            "model.embeddings.tok_embeddings.weight",
        ),
    ],
)
def test_every_family_has_embeddings_layers_and_what_is_above_them(
    family: str, top: str, head: str, embeddings: str
) -> None:
    more = {
        "deberta-v2": {"relative_attention": True},
        "electra": {"embedding_size": 20},
        "xlnet": {"d_head": 8},
    }
    network = network_of(family, **more.get(family, {}))
    depths = parameter_depths(network)
    assert set(depths) == {name for name, _ in network.named_parameters()}
    assert {depth for name, depth in depths.items() if name.startswith(top)} == {3}
    assert {depth for name, depth in depths.items() if name.startswith(head)} == {4}
    assert {depth for name, depth in depths.items() if name.startswith(embeddings)} == {0}
    assert set(depths.values()) == {0, 1, 2, 3, 4}
    sizes = [sum(depth == layer for depth in depths.values()) for layer in (2, 3)]
    assert sizes[0] == sizes[1]


def test_what_debertas_layers_read_is_below_them_though_it_comes_after_them() -> None:
    more = {"relative_attention": True, "norm_rel_ebd": "layer_norm", "conv_kernel_size": 3}
    depths = parameter_depths(network_of("deberta-v2", **more))
    actual = {
        name.split(".")[2]: depth
        for name, depth in depths.items()
        if name.startswith("deberta.encoder.")
    }
    assert actual == {"layer": 3, "rel_embeddings": 0, "LayerNorm": 0, "conv": 1}


@pytest.mark.parametrize(
    ("family", "more", "above"),
    [
        ("esm", {"position_embedding_type": "absolute"}, ["esm.encoder.emb_layer_norm_after."]),
        (
            "opt",
            {"ffn_dim": 37, "word_embed_proj_dim": 12},
            ["model.decoder.final_layer_norm.", "model.decoder.project_out."],
        ),
    ],
)
def test_what_reads_the_last_layer_is_above_it_whatever_it_is_called(
    family: str, more: dict[str, Any], above: list[str]
) -> None:
    depths = parameter_depths(network_of(family, **more))
    for part in above:
        assert {depth for name, depth in depths.items() if name.startswith(part)} == {4}, part


def test_shared_layers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"3 layers of .*AlbertForSequenceClassification"):
        parameter_depths(network_of("albert"))


def test_each_layer_has_its_own_rate_from_the_head_down() -> None:
    network = network_of("bert")
    settings = OptimizerSection(learning_rate=1e-3, layer_decay=0.5)
    optimizer = build_optimizer(network, settings)
    depths = parameter_depths(network)
    name_of = {id(parameter): name for name, parameter in network.named_parameters()}
    by_hand = {4: 1e-3, 3: 5e-4, 2: 2.5e-4, 1: 1.25e-4, 0: 6.25e-5}
    observed = []
    for group in optimizer.param_groups:
        names = [name_of[id(parameter)] for parameter in group["params"]]
        (depth,) = {depths[name] for name in names}
        assert group["lr"] == pytest.approx(by_hand[depth])
        assert {"LayerNorm" in name or name.endswith("bias") for name in names} == {
            group["weight_decay"] == 0.0
        }
        assert group["weight_decay"] in (0.0, 0.01)
        observed += names
    assert sorted(observed) == sorted(depths)
    schedule = build_schedule(optimizer, settings, steps=20)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr()[0] == pytest.approx(1e-3 / 2), (
        "the head's rate is the one that is logged"
    )
    assert optimizer.param_groups[-1]["lr"] == pytest.approx(6.25e-5 / 2)


def test_without_decay_there_are_the_two_groups_that_there_always_were() -> None:
    groups = build_optimizer(network_of("albert"), OptimizerSection(layer_decay=1.0)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0]


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ({"freeze_embeddings": True}, {1, 2, 3, 4}),
        ({"freeze_layers": 2}, {0, 3, 4}),
        ({"freeze_embeddings": True, "freeze_layers": 3}, {4}),
        ({}, {0, 1, 2, 3, 4}),
    ],
)
def test_what_is_frozen_is_not_trained(arguments: dict[str, Any], left: set[int]) -> None:
    network = network_of("roberta")
    freeze(network, TrainingSection(**arguments))
    assert trainable(network) == left
    optimised = itertools.chain(
        *(group["params"] for group in build_optimizer(network, OptimizerSection()).param_groups)
    )
    assert {id(entry) for entry in optimised} == {
        id(parameter) for parameter in network.parameters() if parameter.requires_grad
    }


def test_one_part_more_is_trained_in_each_epoch_and_what_is_frozen_stays_so() -> None:
    network = network_of("distilbert")
    freeze(network, TrainingSection(freeze_layers=1))
    unfreezing = Unfreezing(network)
    by_hand = [{4}, {3, 4}, {2, 3, 4}, {2, 3, 4}, {0, 2, 3, 4}, {0, 2, 3, 4}]
    for epoch, depths in enumerate(by_hand):
        unfreezing(epoch)
        assert trainable(network) == depths
    unfreezing(1)  # a run that goes on in the second epoch
    assert trainable(network) == by_hand[1]


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_new_weights_are_those_of_a_fresh_network_and_only_where_they_are_meant(
    family: str,
) -> None:
    network = network_of(family, hidden_size=96)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    depths = parameter_depths(network)
    torch.manual_seed(5)
    reinitialise(network, 2)
    changed = {
        name for name, value in network.named_parameters() if not torch.equal(value, before[name])
    }
    assert changed == {
        name for name, depth in depths.items() if depth in (2, 3) or ".pooler." in name
    }
    fresh = network_of(family, hidden_size=96).state_dict()
    for name in changed:
        now = network.state_dict()[name]
        assert float(now.std(correction=0)) == pytest.approx(
            float(fresh[name].std(correction=0)), rel=0.2
        ), name
        assert float(now.mean()) == pytest.approx(float(fresh[name].mean()), abs=0.005), name
    torch.manual_seed(5)
    again = {name: value.clone() for name, value in network.state_dict().items()}
    reinitialise(network, 2)
    assert all(torch.equal(value, again[name]) for name, value in network.state_dict().items()), (
        "it is seeded"
    )


def test_zero_layers_mean_the_pooler_alone() -> None:
    network = network_of("bert")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    reinitialise(network, 0)
    changed = {
        name for name, value in network.state_dict().items() if not torch.equal(value, before[name])
    }
    assert changed == {"bert.pooler.dense.weight"}, "its bias is 0 before and after"


def recipe_of(tiny_model: Path, data: Path, **fields: Any) -> Any:
    return tiny_recipe(
        tiny_model, data, **{"training.epochs": 1, "training.checkpoint_every": "off", **fields}
    )


@pytest.mark.parametrize(
    ("fields", "trained"),
    [
        ({"training.gradual_unfreezing": True}, {3}),
        ({"training.freeze_layers": 1, "training.freeze_embeddings": True}, {2, 3}),
        ({"optimizer.layer_decay": 0.5, "training.accumulation_steps": 2}, {0, 1, 2, 3}),
    ],
)
def test_a_run_changes_what_it_trains_and_nothing_else(
    tiny_model: Path, opinions: Path, tmp_path: Path, fields: dict[str, Any], trained: set[int]
) -> None:
    job = prepare(recipe_of(tiny_model, opinions, **fields))
    depths = parameter_depths(job.loaded.network)
    before = {name: value.detach().clone() for name, value in job.loaded.network.named_parameters()}
    run(job, RunFolder.create(tmp_path / "run"))
    after = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert {
        depths[name] for name in before if not torch.equal(before[name], after[name])
    } == trained


def test_the_seed_of_the_new_weights_is_that_of_the_head(tiny_model: Path, opinions: Path) -> None:
    name = "bert.encoder.layer.1.output.dense.weight"

    def weights(**fields: Any) -> torch.Tensor:
        recipe = recipe_of(tiny_model, opinions, **{"training.reinit_layers": 1, **fields})
        return prepare(recipe).loaded.network.state_dict()[name]

    assert torch.equal(weights(), weights())
    assert not torch.equal(weights(), weights(**{"training.seed": 7}))
    assert not torch.equal(weights(), weights(**{"training.reinit_layers": 0}))


@pytest.mark.parametrize(
    ("fields", "epochs", "left"),
    [
        ({}, 1, "1 epoch leaves the lowest 2 layers and the embeddings as before"),
        ({}, 3, "3 epochs leave the embeddings as before"),
        (
            {"training.freeze_layers": 1, "training.freeze_embeddings": True},
            1,
            "leaves the lowest 1 layer as before",
        ),
        ({}, 4, "everything from epoch 4 on"),
    ],
)
def test_what_gradual_unfreezing_leaves_is_said_by_the_epochs_that_there_are(
    tiny_model: Path, opinions: Path, fields: dict[str, Any], epochs: int, left: str
) -> None:
    recipe = recipe_of(
        tiny_model,
        opinions,
        **fields,
        **{"training.gradual_unfreezing": True, "training.epochs": 9},
    )
    assert describe(recipe, inspect_model(recipe.model), epochs)[-1].endswith(left)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"training.freeze_layers": 3}, "training.freeze_layers: 3 .*2 layers"),
        ({"training.reinit_layers": 4}, "training.reinit_layers: 4 .*2 layers"),
        (
            {"training.freeze_layers": 1, "training.reinit_layers": 2},
            "training.freeze_layers 1 .*training.reinit_layers 2 .*2 layers",
        ),
        (
            {"training.average_best": 3, "training.evaluate_every": 1},
            "best 3 .*2 steps .*every 1 make 2",
        ),
        (
            {"training.average_best": 3, "training.max_steps": 3},
            "best 3 .*3 steps .*every 2 make 2",
        ),
        ({"training.class_weights": [1.0]}, "training.class_weights: 1 .*2 labels"),
    ],
)
def test_what_the_model_or_the_rows_can_not_do_is_refused(
    tiny_model: Path, opinions: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        prepare(recipe_of(tiny_model, opinions, **fields))
    assert refused.value.remedy
    if "training.class_weights" in fields:
        assert "'neg', 'pos'" in refused.value.remedy


@pytest.mark.parametrize(
    "freezing", [{"gradual_unfreezing": True}, {"freeze_embeddings": True, "freeze_layers": 2}]
)
def test_vectors_without_a_head_need_layers_that_are_trained(
    tiny_model: Path, tmp_path: Path, freezing: dict[str, Any]
) -> None:
    """The pooler is above the layers, and no vector is read from it."""
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(
        "text,pair,label\n" + "".join(f"good film {i},bad film {i},{i % 4}\n" for i in range(12))
    )
    fields = {f"training.{name}": value for name, value in freezing.items()} | {
        "model.max_length": 40
    }
    fields |= {
        "model.name": str(tiny_model),
        "data.train_file": str(pairs),
        "data.validation_file": str(pairs),
    }
    with pytest.raises(UsageError, match="it has no head that could be trained") as refused:
        prepare(load_recipe("sentence-embeddings", options=fields))
    assert next(iter(freezing)) in refused.value.remedy
    job = prepare(
        load_recipe("sentence-embeddings", options=fields | {"sentence_embeddings.projection": 8})
    )
    assert job.loaded.trainable_parameters()
