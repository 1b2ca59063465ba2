"""Private parts of other libraries: gathered in one file per library, and each still what it was.

A failure of the tests at the end says which part an upgrade has taken away, and what is to be
written anew: the function of `*_internals.py` that the test calls.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub import constants
from transformers.models.auto import modeling_auto

import bertctl
from bertctl.catalog import huggingface_internals
from bertctl.modeling import transformers_internals
from bertctl.runtime import torch_internals
from bertctl.session import opened
from bertctl.training.accelerate_internals import forget_accelerator

PACKAGE = Path(bertctl.__file__).parent
OF_PYTHON = {"_replace", "_fields", "_exit", "_thread"}
"""Names with an underscore that Python documents."""


def _foreign_private_parts(file: Path) -> Iterator[str]:
    """Yields what begins with an underscore and is not defined in the file itself."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    personal = OF_PYTHON | {name for node in ast.walk(tree) for name in _defined_names(node)}
    for node in ast.walk(tree):
        for name in _used_names(node):
            if name.startswith("_") and not name.startswith("__") and name not in personal:
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}: {name}"


def _defined_names(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Name(id=name, ctx=ast.Store()):
            return [name]
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
            return [name]
    return []


def _used_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Attribute(attr=name):
            return [name]
        case ast.ImportFrom(module=module, names=names):
            return [*(module or "").split("."), *(alias.name for alias in names)]
        case ast.Import(names=names):
            return [part for alias in names for part in alias.name.split(".")]
        case ast.Call(
            func=ast.Name(id="getattr" | "setattr" | "hasattr"),
            args=[_, ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def test_private_parts_of_others_are_used_in_files_for_them_alone() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if not file.stem.endswith("_internals")]
    assert len(files) > 300
    assert [use for file in files for use in _foreign_private_parts(file)] == []


def test_the_search_finds_each_way_to_use_a_private_part(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "from torch import _C\nimport rich._ratio\nnetwork._init_weights\ngetattr(x, '_y')\n"
        "x._replace\nself._own = 1\nself._own\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "PACKAGE", tmp_path)
        actual = [use.rpartition(" ")[2] for use in _foreign_private_parts(file)]
    assert sorted(actual) == ["_C", "_init_weights", "_ratio", "_y"]


# huggingface_hub


def test_the_cache_finds_a_file_where_it_is_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "a" * 40
    repository = tmp_path / "models--someone--something"
    file = huggingface_internals.pointer_path(repository, commit, "config.json")
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    huggingface_internals.name_commit(repository, "main", commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert huggingface_hub.try_to_load_from_cache("someone/something", "config.json") == str(file)


def test_clients_come_from_the_factory_that_was_set() -> None:
    before = huggingface_internals.client_factory()

    def factory() -> object:
        return before()

    huggingface_hub.set_client_factory(factory)
    try:
        assert huggingface_internals.client_factory() is factory
    finally:
        huggingface_hub.set_client_factory(before)


def test_constants_follow_variables_and_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    names = huggingface_internals._ENVIRONMENT_CONSTANTS
    before = {name: getattr(constants, name) for name in names}
    with opened():
        monkeypatch.setenv("HF_HOME", "/somewhere")
        monkeypatch.setenv("HF_ENDPOINT", "https://hub.example/")
        monkeypatch.setenv("HF_HUB_OFFLINE", "0" if constants.HF_HUB_OFFLINE else "1")
        for name in ("HF_HUB_CACHE", "HF_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        huggingface_internals.set_hub_variable("HF_HUB_DISABLE_SYMLINKS", "1")
        assert os.environ["HF_HUB_DISABLE_SYMLINKS"] == "1"
        expected = {
            "ENDPOINT": "https://hub.example",
            "HF_HOME": "/somewhere",
            "HF_HUB_CACHE": "/somewhere/hub",
            "HF_HUB_DISABLE_SYMLINKS": True,
            "HF_HUB_OFFLINE": not before["HF_HUB_OFFLINE"],
            "HF_TOKEN_PATH": "/somewhere/token",
            "HUGGINGFACE_CO_URL_TEMPLATE": (
                "https://hub.example/{repo_id}/resolve/{revision}/{filename}"
            ),
        }
        assert {name: getattr(constants, name) for name in names} == {**before, **expected}
    assert "HF_HUB_DISABLE_SYMLINKS" not in os.environ
    assert {name: getattr(constants, name) for name in names} == before


# transformers


@pytest.mark.parametrize("kind", ["", "ForSequenceClassification", "ForTokenClassification"])
def test_families_of_the_source_are_those_of_the_library(kind: str) -> None:
    mappings = {
        "": modeling_auto.MODEL_MAPPING_NAMES,
        "ForSequenceClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        "ForTokenClassification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    }
    assert transformers_internals.families_with(f"AutoModel{kind}") == set(mappings[kind])


def test_an_auto_class_says_which_class_it_makes() -> None:
    of_bert = transformers_internals.model_class("AutoModelForPreTraining", transformers.BertConfig)
    assert of_bert is transformers.BertForPreTraining
    of_other = transformers_internals.model_class(
        "AutoModelForPreTraining", transformers.AlbertConfig
    )
    assert of_other is transformers.AlbertForPreTraining
    assert transformers_internals.model_class("AutoModelForPreTraining", str) is None


def _network() -> transformers.BertModel:
    config = transformers.BertConfig(
        vocab_size=11,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=5,
    )
    return transformers.BertModel(config)


def test_a_network_names_its_attention() -> None:
    network = _network()
    network.set_attn_implementation("eager")
    assert transformers_internals.attention_function(network) == "eager"
    assert transformers_internals.configured_attention(network.config) == "eager"
    network.set_attn_implementation("sdpa")
    assert transformers_internals.attention_function(network) == "sdpa"


def test_a_layer_is_drawn_anew_as_the_family_does_it() -> None:
    network = _network()
    dense = network.pooler.dense
    with torch.no_grad():
        dense.weight.fill_(7.0)
        dense.bias.fill_(7.0)
    for parameter in dense.parameters():
        parameter._is_hf_initialized = True  # as if it had been loaded
    torch.manual_seed(0)
    transformers_internals.initialise(network, dense)
    torch.manual_seed(0)
    expected = torch.empty_like(dense.weight).normal_(std=network.config.initializer_range)
    assert torch.equal(dense.weight, expected)
    assert not dense.bias.any()


# torch


def test_the_gradient_of_a_softmax_is_that_of_autograd() -> None:
    scores = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weights = scores.softmax(-1)
    gradient = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    weights.backward(gradient)
    actual = torch_internals.softmax_gradient(gradient, weights.detach(), -1, torch.float32)
    torch.testing.assert_close(actual, scores.grad)


def test_several_tensors_are_filled_with_zeros() -> None:
    tensors = [torch.ones(3), torch.ones(2, 2)]
    torch_internals.fill_with_zeros(tensors)
    assert not any(tensor.any() for tensor in tensors)


def test_a_schedule_is_moved_to_where_its_steps_lead() -> None:
    def schedule() -> torch.optim.lr_scheduler.LambdaLR:
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=0.5)
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    stepped = schedule()
    for _ in range(3):
        stepped.optimizer.step()
        stepped.step()
    moved = schedule()
    assert torch_internals.move_schedule(moved, 3) == stepped.get_last_lr() == [0.125]
    assert moved.state_dict() == {**stepped.state_dict(), "_step_count": moved._step_count}
    moved.optimizer.step()
    moved.step()
    stepped.optimizer.step()
    stepped.step()
    assert moved.get_last_lr() == stepped.get_last_lr() == [0.1]


def test_processes_count_in_their_store(tmp_path: Path) -> None:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert [torch_internals.count_in_store("x") for _ in range(2)] == [1, 2]
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN"
)
def test_onednn_multiplies_by_a_weight_that_is_laid_out() -> None:
    assert torch_internals.OneDnn.is_available()
    assert isinstance(torch_internals.OneDnn.has_bf16(), bool)
    plain = torch.nn.Linear(6, 4)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        weight = torch_internals.OneDnn.lay_out(plain.weight, 64)
        product = torch_internals.OneDnn.product(x, weight, plain.bias, "none")
        torch.testing.assert_close(product, plain(x), rtol=1e-4, atol=1e-5)
        activated = torch_internals.OneDnn.product(x, weight, plain.bias, "gelu")
        expected = torch.nn.functional.gelu(plain(x))
        torch.testing.assert_close(activated, expected, rtol=1e-4, atol=1e-5)


# accelerate


def test_an_accelerator_may_have_another_precision_than_the_one_before() -> None:
    from accelerate import Accelerator

    forget_accelerator()
    assert Accelerator(mixed_precision="bf16", cpu=True).mixed_precision == "bf16"
    forget_accelerator()
    assert Accelerator(mixed_precision="no", cpu=True).mixed_precision == "no"
    forget_accelerator()
