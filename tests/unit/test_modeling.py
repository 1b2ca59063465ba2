"""Models from folders.

What is refused before loading, what a save leaves, and what is loaded again.
"""

import json
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from bertctl.config.recipe_sections import ModelSection
from bertctl.errors import UnavailableError, UsageError
from bertctl.modeling.families import model_positions
from bertctl.modeling.load import load_model
from bertctl.modeling.model import Model
from bertctl.modeling.source import inspect_model

AUTO = "AutoModelForSequenceClassification"
HEAD = {"num_labels": 3, "id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}


def section(folder: Path, **fields: object) -> ModelSection:
    return ModelSection(name=str(folder), **{"max_length": 32, **fields})


@pytest.fixture
def loaded(tiny_model: Path) -> Model:
    torch.manual_seed(3)
    return load_model(inspect_model(section(tiny_model)), AUTO, head=HEAD)


@pytest.fixture
def copied(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow over `limit` bytes: the write fails in its middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("room", [40_000, 2_000])
def test_a_full_disk_leaves_the_last_save_whole(room, loaded, tmp_path):
    """Too little room for the weights (100 kB), or for the tokenizer (4 kB) too."""
    folder = tmp_path / "model"
    loaded.save(folder)
    before = contents(folder)
    assert len(before["model.safetensors"]) > room
    with torch.no_grad():
        loaded.network.classifier.bias += 1
    with (
        full_disk(room),
        pytest.raises(UnavailableError, match=r"disk is full, by .* .ulimit -f.") as caught,
    ):
        loaded.save(folder)
    assert "written before" in caught.value.message
    assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"], (
        "nothing half-written lies around"
    )
    loaded.save(folder)
    assert contents(folder)["model.safetensors"] != before["model.safetensors"]


def test_what_was_saved_is_what_is_loaded(loaded, tmp_path):
    folder = tmp_path / "model"
    loaded.save(folder)
    saved = {name: tensor.clone() for name, tensor in loaded.network.state_dict().items()}
    with torch.no_grad():
        for parameter in loaded.network.parameters():
            parameter += 1
    loaded.load(folder)
    assert all(
        torch.equal(saved[name], tensor) for name, tensor in loaded.network.state_dict().items()
    )
    again = load_model(inspect_model(section(folder)), AUTO, head=None)
    assert all(
        torch.equal(saved[name], tensor) for name, tensor in again.network.state_dict().items()
    )
    assert again.network.config.id2label == HEAD["id2label"]
    assert not list(folder.glob("*.bin")), "nothing is pickled"
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1, (
        "who may read the config may read the weights"
    )


def test_a_new_head_takes_the_place_of_one_with_other_labels(loaded, tmp_path):
    loaded.save(tmp_path / "model")
    other = {"num_labels": 2, "id2label": {0: "x", 1: "y"}, "label2id": {"x": 0, "y": 1}}
    again = load_model(inspect_model(section(tmp_path / "model")), AUTO, head=other)
    assert again.network.classifier.weight.shape[0] == 2
    assert again.network.config.id2label == {0: "x", 1: "y"}
    name = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(again.network.state_dict()[name], loaded.network.state_dict()[name])


def test_weights_are_fp32_whatever_they_were_saved_as(copied):
    from safetensors.torch import load_file, save_file

    path = copied / "model.safetensors"
    save_file(
        {name: tensor.half() for name, tensor in load_file(path).items()}, path, {"format": "pt"}
    )
    loaded = load_model(inspect_model(section(copied)), AUTO, head=HEAD)
    assert {parameter.dtype for parameter in loaded.network.parameters()} == {torch.float32}


@pytest.mark.parametrize(("requested", "expected"), [(None, 0.1), (0.0, 0.0), (0.3, 0.3)])
def test_dropout_is_the_models_own_unless_it_is_said(requested, expected, tiny_model):
    loaded = load_model(inspect_model(section(tiny_model)), AUTO, head=HEAD, dropout=requested)
    actual = [
        module.p for module in loaded.network.modules() if isinstance(module, torch.nn.Dropout)
    ]
    assert len(actual) > 4
    assert set(actual) == {expected}


def test_a_token_whose_id_has_no_vector_is_refused_however_few_there_are(copied):
    document = json.loads((copied / "tokenizer.json").read_text())
    del document["model"]["vocab"]["bright"]
    document["model"]["vocab"]["zebra"] = 500
    (copied / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(UnavailableError, match="the id 500, and the model has vectors for 103"):
        inspect_model(section(copied))


def test_the_tokenizer_neither_cuts_nor_pads_by_itself(copied):
    """Some tokenizer.json carry both (minilm's pads to 128); here lengths are the data's."""
    document = json.loads((copied / "tokenizer.json").read_text())
    document["truncation"] = {
        "direction": "Right",
        "max_length": 5,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    document["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    (copied / "tokenizer.json").write_text(json.dumps(document))
    loaded = load_model(inspect_model(section(copied)), AUTO, head=HEAD)
    assert len(loaded.tokenizer.encode("good").ids) == 3
    assert len(loaded.tokenizer.encode("good bad film food not very").ids) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "no-such-family"}, "no-such-family"),
        ({"vocab_size": 7}, "has vectors for 7"),
        ({"intermediate_size": 7}, "bert.encoder.layer.0.intermediate.dense.bias.*random"),
        ({"num_hidden_layers": 3}, r"bert.encoder.layer.2.*\(16 in all\) .*random"),
        ({"model_type": "distilbert"}, "random"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(change, message, copied):
    config = json.loads((copied / "config.json").read_text()) | change
    (copied / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnavailableError, match=message):
        load_model(inspect_model(section(copied)), AUTO, head=HEAD)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_file_that_is_no_json_is_refused_by_name(name, copied):
    (copied / name).write_text("{not json")
    with pytest.raises(UnavailableError, match=f"{name}: no JSON"):
        inspect_model(section(copied))


def test_broken_weights_are_refused(copied):
    os.truncate(copied / "model.safetensors", 1000)
    with pytest.raises(UnavailableError, match=r"the model in .* can't be used"):
        load_model(inspect_model(section(copied)), AUTO, head=HEAD)


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "gpt2", "n_positions": 1024}, 1024),
        ({"model_type": "xlnet"}, None),
        ({"model_type": "deberta-v2", "max_position_embeddings": -1}, None),
    ],
)
def test_the_longest_input_of_a_family(config, positions):
    assert model_positions(config) == positions


def test_the_positions_are_the_last_length_that_fits(tiny_model):
    assert inspect_model(section(tiny_model, max_length=41)).max_length == 41
    with pytest.raises(UsageError, match=r"max_length 42 .*41 positions"):
        inspect_model(section(tiny_model, max_length=42))


def _add_cased_pieces(folder: Path) -> None:
    document = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = document["model"]["vocab"]
    for piece, gone in zip(
        ("Good", "Bad", "Film", "Food"), ("##0", "##1", "##2", "##3"), strict=True
    ):
        vocabulary[piece] = vocabulary.pop(gone)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "vocab.txt").unlink()


def test_lower_casing_must_agree_with_the_vocabulary(copied):
    """The premise: three of a hundred pieces with a capital letter make a vocabulary cased."""
    assert inspect_model(section(copied, lowercase=True)).lowercase is True
    _add_cased_pieces(copied)
    with pytest.raises(UsageError, match=r"lower-casing is true, .* cased: 4 %"):
        inspect_model(section(copied))
    assert inspect_model(section(copied, lowercase=False)).lowercase is False


def test_lower_casing_reaches_the_tokenizer(copied):
    _add_cased_pieces(copied)
    loaded = load_model(inspect_model(section(copied, lowercase=False)), AUTO, head=HEAD)
    assert loaded.tokenizer.encode("Good film").tokens == ["[CLS]", "Good", "film", "[SEP]"]


def test_a_content_hash_is_of_the_content_not_of_the_place(tiny_model, copied):
    entry = inspect_model(section(tiny_model))
    other = inspect_model(section(copied))
    assert entry.content_hash() == other.content_hash()
    changed = Path(shutil.copytree(copied, copied.with_name("changed")))
    with (changed / "config.json").open("a") as config:
        config.write("\n")
    assert inspect_model(section(changed)).content_hash() != entry.content_hash()
