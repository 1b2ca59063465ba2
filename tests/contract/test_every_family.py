"""The contract over all families of transformers, as one release has them.

Another says what it has more or less.
"""

import contextlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from families import (
    DECIDED_IN,
    STOOD_FOR,
    TRIED,
    encoder_config,
    make_encoder,
    make_encoder_of_its_kind,
)
from matrix import PAGE, cell, page, row, table
from packaging.version import Version
from safetensors.torch import load_file, save_file
from task_examples import EXAMPLES
from transformers.models.auto import modeling_auto

from bertctl import extract_features
from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.errors import UnavailableError, UsageError
from bertctl.jobs.doctor import recipe_needs
from bertctl.modeling.build import build_model
from bertctl.modeling.families import (
    _ONLY_FP32,
    _READS_PADDING,
    _SLOW_STEP,
    REFUSED,
    families_with,
    model_positions,
    only_fp32,
    reads_padding,
    require_head,
)
from bertctl.modeling.layer_groups import freeze, parameter_depths
from bertctl.modeling.load import load_model
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.run_folder import RunFolder
from bertctl.tasks.registry import TASKS
from bertctl.training.finetune import run
from bertctl.training.job import prepare
from bertctl.training.loop.layer_freezing import check_layers

HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
OF_EACH_KIND = ("funnel", "nomic_bert", "nystromformer", "t5", "xlm")
"""What the default run tries: the others are slow."""

CPU = {"model.max_length": 40, "runtime.device": "cpu", "runtime.precision": "fp32"}
TEXTS = [
    "the food was good",
    "bad",
    "a bright film, was it not?",
    "very fine",
    "the film was not good",
    "dull",
]


def names_of(kind: str) -> set[str]:
    words = "".join(f"_{letter}" if letter.isupper() else letter for letter in kind).upper()
    return set(getattr(modeling_auto, f"MODEL_FOR{words}_MAPPING_NAMES"))


def test_every_family_with_a_head_is_tried_or_stood_for_or_refused() -> None:
    decided = [*TRIED, *(name for names in STOOD_FOR.values() for name in names)]
    assert len(set(decided)) == len(decided)
    assert not set(decided) & set(REFUSED)
    assert set(OF_EACH_KIND) <= set(TRIED)
    families = set().union(*map(names_of, HEADS)) - set(REFUSED)
    new = sorted(families - set(decided))
    gone = sorted(set(decided) - families)
    if Version(transformers.__version__).release[:2] != DECIDED_IN:
        pytest.skip(f"in transformers {transformers.__version__}, not decided: {new}; gone: {gone}")
    assert new == []
    assert gone == []


def test_which_families_have_a_head_is_read_as_transformers_says_it() -> None:
    assert families_with("AutoModel") == set(modeling_auto.MODEL_MAPPING_NAMES)
    for kind in HEADS:
        assert families_with(f"AutoModelFor{kind}") == names_of(kind)


@pytest.fixture(
    scope="module",
    params=[
        name if name in OF_EACH_KIND else pytest.param(name, marks=pytest.mark.slow)
        for name in TRIED
    ],
)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    make = (
        make_encoder_of_its_kind if request.param == "longformer" else make_encoder
    )  # it needs three separators
    folder = make(request.param, tmp_path_factory.mktemp(request.param))
    return inspect_model(recipe_of(folder).model)


def recipe_of(folder: Path, **fields: object) -> Any:
    options = {"model.name": str(folder), "model.max_length": 40, "model.dropout": 0.0, **fields}
    return load_recipe("text-classification", options=options)


def built(source: ModelSource, kind: str, **fields: object) -> Model:
    names = {0: "choice"} if kind == "MultipleChoice" else {0: "no", 1: "yes"}
    head = {
        "num_labels": len(names),
        "id2label": names,
        "label2id": {name: n for n, name in names.items()},
    }
    problem = {"problem_type": "single_label_classification"}
    return build_model(
        source, f"AutoModelFor{kind}", head | problem, recipe_of(source.folder, **fields)
    )


def answers(model: Model, kind: str, length: int = 9) -> torch.Tensor:
    """What the network says of two rows of some length, special tokens included."""
    ids = torch.arange(8, 8 + 2 * length).reshape(2, length) % 90 + 8
    first, last = (0, 2) if model.network.config.model_type == "longformer" else (2, 3)
    ids[:, 0] = first
    ids[:, -1] = last
    if kind in ("QuestionAnswering", "MultipleChoice"):
        ids[:, 3:5] = last  # where the first text of a pair ends: Longformer looks for it
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.has_segments:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    if kind == "MultipleChoice":
        inputs = {name: tensor[None] for name, tensor in inputs.items()}
    output = model.network(**inputs)
    actual = output.start_logits if kind == "QuestionAnswering" else output.logits
    assert isinstance(actual, torch.Tensor)
    return actual


def kinds(source: ModelSource) -> list[str]:
    """The heads that the family has; the others are refused with a sentence."""
    results = []
    for kind in HEADS:
        if source.config["model_type"] in names_of(kind):
            results.append(kind)
            continue
        with pytest.raises(UsageError, match=source.config["model_type"]):
            require_head(source.config, f"AutoModelFor{kind}", source.name)
    if "MultipleChoice" in results and (
        reads_padding(source.config) or source.config["model_type"] == "roformer"
    ):
        results.remove("MultipleChoice")
    return results


def test_each_head_takes_a_step_in_its_precision_and_without_dropout_says_the_same_twice(
    source: ModelSource,
) -> None:
    for kind in kinds(source):
        model = built(source, kind)
        model.network.train()
        torch.manual_seed(0)
        first = answers(model, kind)
        assert torch.equal(answers(model, kind), first), kind
        with torch.autocast("cpu", torch.bfloat16, enabled=not only_fp32(source.config)):
            answers(model, kind).float().square().sum().backward()
        norms = [
            float(parameter.grad.norm())
            for parameter in model.trainable_parameters().values()
            if parameter.grad is not None
        ]
        assert np.isfinite(norms).all(), kind
        assert max(norms) > 0, kind


def test_the_longest_input_passes_and_one_more_is_refused(source: ModelSource) -> None:
    kind = kinds(source)[0]
    longest = model_positions(source.config)
    assert answers(built(source, kind), kind, longest or 64).isfinite().all()
    if longest is not None:
        with pytest.raises(UsageError, match=f"the {longest} positions"):
            inspect_model(recipe_of(source.folder, **{"model.max_length": longest + 1}).model)


def test_weights_that_are_missing_or_called_otherwise_are_refused_with_and_without_a_head(
    source: ModelSource, tmp_path: Path
) -> None:
    weights = load_file(source.folder / "model.safetensors")
    layer = ".1." if any(".1." in name for name in weights) else ".0."  # ALBERT has one
    for name, retained in {
        "renamed": {f"module.{name}": tensor for name, tensor in weights.items()},
        "dropped": {name: tensor for name, tensor in weights.items() if layer not in name},
    }.items():
        folder = Path(shutil.copytree(source.folder, tmp_path / name))
        save_file(retained, folder / "model.safetensors", metadata={"format": "pt"})
        changed = inspect_model(recipe_of(folder).model)
        for auto_class in ("AutoModel", f"AutoModelFor{kinds(source)[0]}"):
            with pytest.raises(UnavailableError, match="would be random"):
                load_model(changed, auto_class, head=None)


@pytest.mark.filterwarnings(
    "ignore:`gradient_checkpointing_enable` is deprecated"
)  # its successor came after 5.10
def test_options_about_layers_and_memory_work_or_are_refused(source: ModelSource) -> None:
    kind = kinds(source)[0]
    can = row(source.config["model_type"])
    for field in ("training.freeze_layers", "training.reinit_layers"):
        recipe = recipe_of(source.folder, **{field: 1})
        with contextlib.nullcontext() if can["layers"] == "yes" else pytest.raises(UsageError):
            check_layers(recipe, source)
            built(source, kind, **{field: 1})
    with contextlib.suppress(UsageError):
        model = built(source, kind, **{"training.gradient_checkpointing": True})
        model.network.train()
        answers(model, kind).square().sum().backward()
    with contextlib.nullcontext() if can["vectors"] == "yes" else pytest.raises(UsageError):
        features = extract_features(
            TEXTS, model=source.folder, layers="word-embeddings", fields=CPU
        )
        assert len(features) == len(TEXTS)


@pytest.fixture(scope="module")
def readable(source: ModelSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The family with a tokenizer of its own kind."""
    return make_encoder_of_its_kind(
        source.config["model_type"], tmp_path_factory.mktemp("readable")
    )


def _tier(task: str) -> Any:
    """By default a task that all of them do, and one that most of them refuse."""
    quick = task in ("text-classification", "multiple-choice")
    return pytest.param(task, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("task", [_tier(task) for task in sorted(TASKS)])
def test_it_is_trained_saved_and_asked_by_plain_transformers_or_refused_as_the_matrix_says(
    source: ModelSource, readable: Path, task: str, tmp_path: Path
) -> None:
    recipe = recipe_for(readable, task, tmp_path)
    refused = [need.error for need in recipe_needs(recipe, place=tmp_path) if need.error]
    if cell(source.config["model_type"], task) == "no":
        assert [type(error) for error in refused] == [UsageError]
        with pytest.raises(UsageError, match=re.escape(refused[0].message)):
            prepare(recipe)
        return
    assert not refused
    assert_trained_and_asked(recipe, tmp_path)


def test_texts_of_few_tokens_and_empty_ones_are_trained_on_and_predicted(
    source: ModelSource, readable: Path, tmp_path: Path
) -> None:
    texts = ["", " ", "a", "bad", "a film"]
    recipe = recipe_for(readable, "text-classification", tmp_path)
    refused = [{"text": text, "label": "no"} for text in texts]
    praised = [{"text": text, "label": "yes"} for text in texts]
    lines = [json.dumps(row) + "\n" for row in refused + praised]
    (tmp_path / "rows.jsonl").write_text("".join(lines))

    folder = run(prepare(recipe), RunFolder.create(tmp_path / "run")).folder

    predictions = folder.predictions("validation").read_text(encoding="utf-8").splitlines()
    assert len(predictions) == 2 * len(texts)


def recipe_for(model: Path, task: str, folder: Path) -> Recipe:
    """One step on the contract's rows, which are scored too."""
    data = folder / "rows.jsonl"
    example = EXAMPLES[task]
    data.write_text("".join(json.dumps(row) + "\n" for row in example.rows))
    fields = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(model),
        "model.dropout": 0.0,
        "training.epochs": 1,
        "training.batch_size": 8,
        "optimizer.learning_rate": 2e-3,
        "evaluation.bootstrap_resamples": 100,
        **CPU,
        **example.settings,
    }
    return load_recipe(task, options=fields)


def assert_trained_and_asked(recipe: Recipe, place: Path) -> None:
    """Validation answers in batches; plain transformers answers one at a time."""
    example = EXAMPLES[recipe.task]
    folder = run(prepare(recipe), RunFolder.create(place / "run")).folder
    network = (
        getattr(transformers, TASKS[recipe.task].auto_class).from_pretrained(folder.model).eval()
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.model)
    lines = folder.predictions("validation").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(example.rows)
    for line in lines[:3]:
        example.agrees(network, tokenizer, json.loads(line))


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        "bart",
        "bloom",
        "falcon",
        "gemma2",
        "gpt_neox",
        "llama",
        "mistral",
        "modernbert-decoder",
        "opt",
        "phi3",
        "qwen3",
    ],
)
def test_some_of_those_that_others_stand_for(family: str, tmp_path: Path) -> None:
    known = encoder_config(family, 99).to_dict()
    small = {"num_key_value_heads": 3, "head_dim": 8, "ffn_dim": 36}
    small |= {
        f"{part}_{size}": number
        for part in ("encoder", "decoder")
        for size, number in {"layers": 1, "attention_heads": 3, "ffn_dim": 36}.items()
    }
    fields = {name: number for name, number in small.items() if name in known}
    folder = make_encoder(family, tmp_path / "model", **fields)
    assert_trained_and_asked(recipe_for(folder, "text-classification", tmp_path), tmp_path)


def test_the_matrix_stands_in_the_documents() -> None:
    sys.stdout.write(table())  # pytest -rP shows it
    assert page() == PAGE.read_text(encoding="utf-8"), (
        "python tests/contract/matrix.py writes it anew"
    )
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    for family, reason in [
        *REFUSED.items(),
        *_ONLY_FP32.items(),
        *_READS_PADDING.items(),
        *_SLOW_STEP.items(),
    ]:
        assert f"`{family}`" in text, family
        assert reason in text, family


def test_freezing_all_leaves_the_head_and_the_pooler(source: ModelSource) -> None:
    model = built(source, kinds(source)[0])
    if source.config.get("is_encoder_decoder") or source.config["model_type"] in (
        "albert",
        "funnel",
    ):
        return  # their layers can't be told apart, and options about them are refused
    depths = parameter_depths(model.network)
    assert set(depths.values()) == {0, 1, 2, 3}
    assert all(depth == 3 for name, depth in depths.items() if "pooler" in name)
    recipe = recipe_of(
        source.folder, **{"training.freeze_embeddings": True, "training.freeze_layers": 2}
    )
    freeze(model.network, recipe.training)
    before = {
        name: parameter.detach().clone() for name, parameter in model.network.named_parameters()
    }
    text = f"{model.network.base_model_prefix}."
    above = [
        name
        for name in model.trainable_parameters()
        if name.startswith(text) and "pooler" not in name
    ]
    assert all(before[name].dim() == 1 or "con" in name for name in above), (
        above
    )  # last norms; contacts of ESM


def test_a_text_has_the_same_vectors_alone_among_others_and_in_plain_transformers(
    source: ModelSource,
) -> None:
    if source.config.get("is_encoder_decoder") or source.config["model_type"] == "funnel":
        with pytest.raises(UsageError):
            extract_features(TEXTS, model=source.folder, fields={"model.max_length": 40})
        return
    many = extract_features(TEXTS, model=source.folder, layers="1,last", fields=CPU)
    for text, vector in zip(TEXTS[:2], many, strict=False):
        alone = extract_features([text], model=source.folder, layers="1,last", fields=CPU)
        np.testing.assert_allclose(vector, alone[0], atol=1e-4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.folder)
    plain = transformers.AutoModel.from_pretrained(source.folder).eval()
    encoded = tokenizer(TEXTS[0], return_tensors="pt")
    encoded = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        states = plain(**encoded, output_hidden_states=True)
    theirs = torch.cat([states.hidden_states[1], states.last_hidden_state], dim=-1)[0].mean(0)
    np.testing.assert_allclose(many[0], theirs.numpy(), atol=1e-4)
