"""BERT and its like by torch alone give what transformers gives.

They do to the last bit, or are left to transformers.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bertctl.errors import UnavailableError
from bertctl.modeling.fast.bert_files import read_network
from bertctl.modeling.load import read_model
from bertctl.modeling.source import ModelSource
from bertctl.modeling.stored_weights import stored_weights

_SIZES = {
    "hidden_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "intermediate_size": 80,
}
_FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": _SIZES,
    "Roberta": {**_SIZES, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1},
    "XLMRoberta": {**_SIZES, "type_vocab_size": 1, "pad_token_id": 1},
    "Camembert": {**_SIZES, "pad_token_id": 1},
    "Electra": {**_SIZES, "embedding_size": 24},
    "DistilBert": {"dim": 48, "n_heads": 4, "n_layers": 3, "hidden_dim": 80},
}
_GONE = "no such field"
_HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")


def _made(folder: Path, family: str, head: str, **fields: Any) -> tuple[ModelSource, Any]:
    """A saved random network, as it is found by its files and as transformers loads it."""
    torch.manual_seed(0)
    labels = {} if head in ("QuestionAnswering", "MultipleChoice") else {"num_labels": 3}
    values = {
        "pad_token_id": 0,
        "vocab_size": 90,
        **_FAMILIES.get(family, _SIZES),
        **labels,
        **fields,
    }
    config = getattr(transformers, f"{family}Config")(max_position_embeddings=40, **values)
    kind = f"AutoModelFor{head}" if head else "AutoModel"
    network = getattr(transformers, kind).from_config(config)
    for parameter in network.parameters():
        parameter.data.normal_(std=0.3)  # of all sorts: biases, too, that transformers sets to 0
    network.save_pretrained(folder)
    return _source(folder), _loaded(getattr(transformers, kind), folder)


def _loaded(kind: Any, folder: Path) -> Any:
    """Loads a model as transformers does.

    But no weight begins beside 16 bytes because the file's does.
    """
    network = kind.from_pretrained(folder, dtype="float32").eval()
    for parameter in network.parameters():
        parameter.data = parameter.data.clone()
    return network


def _source(folder: Path) -> ModelSource:
    return ModelSource("made", folder, json.loads((folder / "config.json").read_text()), 38, None)


def _inputs(family: str, head: str, *, padded: bool) -> dict[str, torch.Tensor]:
    lengths = torch.tensor([19, 3, 19, 7, 1, 12] if padded else [19] * 6)
    mask = (torch.arange(19) < lengths[:, None]).long()
    pad = _FAMILIES[family].get("pad_token_id", 0)
    ids = torch.randint(5, 90, mask.shape, generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": torch.where(mask == 1, ids, pad), "attention_mask": mask}
    if family in ("Bert", "Electra"):
        inputs["token_type_ids"] = (torch.arange(19) > 9).long().expand(6, -1) * mask
    return (
        {name: value.view(3, 2, -1) for name, value in inputs.items()}
        if head == "MultipleChoice"
        else inputs
    )


@pytest.mark.parametrize(
    "padded",
    [
        pytest.param(True, id="padded"),
        pytest.param(False, id="of one length", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("head", _HEADS)
@pytest.mark.parametrize("family", _FAMILIES)
def test_answers_are_those_of_transformers(
    family: str, head: str, padded: bool, tmp_path: Path
) -> None:
    source, theirs = _made(tmp_path, family, head)
    ours = read_network(source, f"AutoModelFor{head}")
    inputs = _inputs(family, head, padded=padded)
    if (family, head) == ("Electra", "MultipleChoice"):
        assert ours is None, "its head has settings of its own"
        return
    assert ours is not None
    assert not ours.training
    names = ("start_logits", "end_logits") if head == "QuestionAnswering" else ("logits",)
    with torch.inference_mode():
        for name in names:
            assert torch.equal(getattr(ours(**inputs), name), getattr(theirs(**inputs), name))


@pytest.mark.parametrize("family", _FAMILIES)
def test_answers_in_bf16_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    from bertctl.modeling.heads import keep_in_fp32

    source, theirs = _made(tmp_path, family, "SequenceClassification")
    keep_in_fp32(theirs)
    ours = read_network(source, "AutoModelForSequenceClassification")
    inputs = _inputs(family, "", padded=True)
    assert ours is not None
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        actual = ours(**inputs).logits
        expected = theirs(**inputs).logits
    assert actual.dtype is torch.float32
    assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    "saved", ["", "SequenceClassification"], ids=["saved alone", "saved under a head"]
)
@pytest.mark.parametrize("family", _FAMILIES)
def test_hidden_states_are_those_of_transformers(family: str, saved: str, tmp_path: Path) -> None:
    source, _ = _made(tmp_path, family, saved)
    theirs = _loaded(transformers.AutoModel, tmp_path)
    ours = read_network(source, "AutoModel")
    inputs = _inputs(family, "", padded=True)
    assert ours is not None
    with torch.inference_mode():
        actual = ours(**inputs, output_hidden_states=True)
        expected = theirs(**inputs, output_hidden_states=True)
        assert ours(**inputs).hidden_states is None
    assert len(actual.hidden_states) == len(expected.hidden_states) == 4
    assert torch.equal(torch.stack(actual.hidden_states), torch.stack(expected.hidden_states))
    assert torch.equal(actual.last_hidden_state, expected.last_hidden_state)
    has_pooler = any("pooler" in name for name in load_file(tmp_path / "model.safetensors"))
    assert (actual.pooler_output is not None) == has_pooler
    if has_pooler:
        assert torch.equal(actual.pooler_output, expected.pooler_output)
    assert ours.get_input_embeddings().weight.shape[0] == 90
    assert ours.config.hidden_size == 48


def test_weights_in_half_precision_and_in_parts_are_read(tmp_path: Path) -> None:
    _, network = _made(tmp_path, "Bert", "SequenceClassification")
    network.to(torch.float16).save_pretrained(tmp_path, max_shard_size="60KB")
    (tmp_path / "model.safetensors").unlink(missing_ok=True)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    theirs = _loaded(transformers.AutoModelForSequenceClassification, tmp_path)
    ours = read_network(_source(tmp_path), "AutoModelForSequenceClassification")
    inputs = _inputs("Bert", "", padded=True)
    assert ours is not None
    with torch.inference_mode():
        assert torch.equal(ours(**inputs).logits, theirs(**inputs).logits)


@pytest.mark.parametrize("plain", [False, True], ids=["ours", "of transformers"])
def test_answers_are_the_same_wherever_weights_begin_in_a_file(
    tiny_model: Path, tmp_path: Path, plain: bool
) -> None:
    """A product by one row, as of this head, may be rounded otherwise.

    It is where numbers begin beside a multiple of 16 bytes.
    """
    source, _ = _made(tmp_path, "Bert", "MultipleChoice", vocab_size=120)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_model / name, tmp_path)
    file = tmp_path / "model.safetensors"
    actual = []
    contents = file.read_bytes()
    length = int.from_bytes(contents[:8], "little")
    for spaces in (0, 8):
        header = contents[8 : 8 + length] + b" " * spaces
        file.write_bytes(len(header).to_bytes(8, "little") + header + contents[8 + length :])
        network = read_model(source, "AutoModelForMultipleChoice", plain=plain).network.eval()
        with torch.inference_mode():
            actual.append(network(**_inputs("Bert", "MultipleChoice", padded=True)).logits)
    assert torch.equal(*actual)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("Bert", {"hidden_act": "relu"}),
        ("Bert", {"is_decoder": True}),
        ("DistilBert", {"activation": "relu"}),
        ("RoFormer", {}),
        ("Albert", {"embedding_size": 24}),
    ],
)
def test_other_networks_are_left_to_transformers(
    family: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    source, _ = _made(tmp_path, family, "SequenceClassification", **fields)
    assert read_network(source, "AutoModelForSequenceClassification") is None


def test_what_config_does_not_say_or_weights_do_not_have_is_left_to_transformers(
    tmp_path: Path,
) -> None:
    source, _ = _made(tmp_path, "Bert", "SequenceClassification")
    kind = "AutoModelForSequenceClassification"
    assert read_network(source, kind) is not None
    for head in ("TokenClassification", "QuestionAnswering", "MaskedLM"):
        assert read_network(source, f"AutoModelFor{head}") is None, (
            "another head than the one that was saved"
        )
    for field in ("hidden_size", "layer_norm_eps", "pad_token_id", "type_vocab_size", "hidden_act"):
        left = {name: value for name, value in source.config.items() if name != field}
        assert read_network(ModelSource("made", tmp_path, left, 38, None), kind) is None, field
    for field, value in {
        "id2label": {"0": "a", "1": "b"},
        "num_hidden_layers": 4,
        "vocab_size": 91,
        "num_attention_heads": 5,
        "hidden_size": True,
        "long_text": {"long_text": "window"},
    }.items():
        other = ModelSource("made", tmp_path, source.config | {field: value}, 38, None)
        assert read_network(other, kind) is None, field
    weights = load_file(tmp_path / "model.safetensors")
    older = weights | {"bert.embeddings.LayerNorm.gamma": torch.ones(48)}
    save_file(older, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert read_network(source, kind) is None
    del weights["bert.encoder.layer.1.output.dense.bias"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert read_network(source, kind) is None


_UNUSUAL: list[tuple[str, dict[str, Any]]] = [
    ("Bert", {"is_causal": True}),
    ("Bert", {"attn_implementation": "eager"}),
    ("Bert", {"_attn_implementation": "eager"}),
    ("Bert", {"layer_norm_eps": None}),
    ("Bert", {"layer_norm_eps": "1e-5"}),
    ("Bert", {"type_vocab_size": 0}),
    ("Bert", {"num_labels": 5, "id2label": {"0": "a", "1": "b", "2": "c"}}),
    ("Bert", {"num_labels": None}),
    ("Bert", {"id2label": ["a", "b", "c"]}),
    ("Bert", {"id2label": {"0": "a", "00": "b", "1": "c"}}),
    ("Bert", {"num_attention_heads": _GONE, "n_heads": 4}),
    ("Roberta", {"num_hidden_layers": _GONE, "n_layers": 3}),
    ("Electra", {"num_attention_heads": _GONE, "num_heads": 4}),
    ("Electra", {"embedding_size": _GONE}),
    ("DistilBert", {"hidden_act": "gelu", "activation": "relu"}),
    ("DistilBert", {"n_heads": _GONE, "num_heads": 4}),
    ("DistilBert", {"num_attention_heads": 2}),
]


@pytest.mark.parametrize(("family", "fields"), _UNUSUAL, ids=lambda one: str(one)[:60])
def test_what_is_said_in_an_unusual_way_is_left_to_transformers(
    family: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    source, _ = _made(tmp_path, family, "SequenceClassification")
    config = {name: value for name, value in (source.config | fields).items() if value != _GONE}
    assert read_network(source, "AutoModelForSequenceClassification") is not None
    changed = ModelSource("made", tmp_path, config, 38, None)
    assert read_network(changed, "AutoModelForSequenceClassification") is None


def test_what_a_family_does_not_read_changes_nothing(tmp_path: Path) -> None:
    source, theirs = _made(tmp_path, "DistilBert", "SequenceClassification")
    more = {
        "layer_norm_eps": 0.01,
        "hidden_act": "relu",
        "num_attention_heads": 4,
        "is_causal": None,
    }
    ours = read_network(
        ModelSource("made", tmp_path, source.config | more, 38, None),
        "AutoModelForSequenceClassification",
    )
    inputs = _inputs("DistilBert", "", padded=True)
    assert ours is not None
    with torch.inference_mode():
        assert torch.equal(ours(**inputs).logits, theirs(**inputs).logits)
    weights = load_file(tmp_path / "model.safetensors") | {
        "distilbert.pooler.dense.weight": torch.ones(48, 48)
    }
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    bare = read_network(source, "AutoModel")
    assert bare is not None
    assert not hasattr(bare, "pooler"), "the family has none"


def test_of_weights_in_parts_those_that_the_index_names_are_read(tmp_path: Path) -> None:
    source, network = _made(tmp_path, "Bert", "SequenceClassification")
    (tmp_path / "model.safetensors").unlink()
    network.save_pretrained(tmp_path, max_shard_size="60KB")
    expected = stored_weights(tmp_path)
    assert len({entry.file for entry in expected.values()}) > 1
    stale = {"classifier.bias": torch.ones(3)}
    save_file(stale, tmp_path / "model-00009-of-00009.safetensors", metadata={"format": "pt"})
    assert stored_weights(tmp_path) == expected
    ours = read_network(source, "AutoModelForSequenceClassification")
    inputs = _inputs("Bert", "", padded=True)
    assert ours is not None
    with torch.inference_mode():
        assert torch.equal(ours(**inputs).logits, network(**inputs).logits)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-00001", "../model-00001"))
    with pytest.raises(UnavailableError, match="names a file elsewhere"):
        stored_weights(tmp_path)
    index.unlink()
    with pytest.raises(UnavailableError, match=r"has no model\.safetensors"):
        stored_weights(tmp_path)
