"""BERT and its like are trained without transformers to the same bits.

They are saved as transformers saves them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bertctl.modeling.fast.bert_files import network_to_train
from bertctl.modeling.fast.bert_to_train import bert_to_train
from bertctl.modeling.fast.packed_encoder import use_packed_encoder
from bertctl.modeling.load import load_model
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource
from bertctl.runtime.device import Compute
from bertctl.runtime.seeding import seed_everything
from bertctl.tasks.base import label_fields

_SIZES = {
    "hidden_size": 36,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 52,
}
_SHARES = {
    "hidden_dropout_prob": 0.11,
    "attention_probs_dropout_prob": 0.12,
    "classifier_dropout": 0.13,
}
_FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": {**_SIZES, **_SHARES},
    "Electra": {**_SIZES, **_SHARES, "embedding_size": 20},
    "DistilBert": {
        "dim": 36,
        "n_heads": 3,
        "n_layers": 2,
        "hidden_dim": 52,
        "dropout": 0.11,
        "attention_dropout": 0.12,
        "qa_dropout": 0.14,
        "seq_classif_dropout": 0.15,
    },
}
_LIKE_ROBERTA = {
    "Roberta": _SHARES,
    "XLMRoberta": {"hidden_dropout_prob": 0.2},
    "Camembert": _SHARES,
}
_HEADS = {
    "SequenceClassification": label_fields(["no", "yes", "maybe"], "single_label_classification"),
    "TokenClassification": label_fields(["O", "B-A", "I-A"], "single_label_classification")
    | {"tag_scheme": "BIO"},
    "QuestionAnswering": label_fields(["start", "end"], "single_label_classification"),
    "MultipleChoice": label_fields(["choice"], "regression"),
    "": {"sentence_embeddings": {"classes": 0, "widths": [12, 36]}},  # the bare encoder
}
_CASES = [
    (family, head)
    for family in _FAMILIES
    for head in _HEADS
    if (family, head) != ("Electra", "MultipleChoice")
]
_KIND = "AutoModelForSequenceClassification"


def _made(folder: Path, tokenizer: Path, family: str, kind: str = "", **fields: Any) -> ModelSource:
    """A saved network with random weights, and the tiny model's tokenizer beside it."""
    torch.manual_seed(3)
    spoken = transformers.AutoTokenizer.from_pretrained(tokenizer)
    values = {
        **_FAMILIES.get(family, _SIZES),
        "vocab_size": len(spoken),
        "max_position_embeddings": 44,
        **fields,
    }
    config = getattr(transformers, f"{family}Config")(**{"pad_token_id": 0, **values})
    network = getattr(transformers, f"AutoModelFor{kind}" if kind else "AutoModel").from_config(
        config
    )
    for parameter in network.parameters():
        parameter.data.normal_(std=0.2)
    network.save_pretrained(folder)
    spoken.save_pretrained(folder)
    return _source(folder)


def _source(folder: Path, **fields: Any) -> ModelSource:
    return ModelSource(
        "made", folder, json.loads((folder / "config.json").read_text()) | fields, 40, True
    )


def _read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def _both(source: ModelSource, kind: str, **more: Any) -> list[Model]:
    """The model without and with transformers, drawn from one seed."""
    models: list[Any] = []
    for make in (bert_to_train, load_model):
        seed_everything(7)
        models.append(
            make(source, f"AutoModelFor{kind}" if kind else "AutoModel", head=_HEADS[kind], **more)
        )
    assert models[0] is not None
    return models


def _steps(model: Model, kind: str, precision: str) -> tuple[list[float], dict[str, float]]:
    """Returns losses of three steps of training with dropout.

    With them come an answer after them, and the weights' sums.
    """
    network: Any = model.network
    assert use_packed_encoder(network, Compute("cpu", precision, 1, ""))
    seed_everything(5)
    inputs = _inputs_of_unequal_lengths(has_segments=model.has_segments)
    if kind == "MultipleChoice":
        inputs = {name: value.view(4, 2, -1) for name, value in inputs.items()}
    output_names = ["logits"]
    if kind == "QuestionAnswering":
        output_names = ["start_logits", "end_logits"]
    elif kind == "":
        output_names = ["last_hidden_state"]
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

    numbers = []
    network.train()
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            outputs = network(**inputs)
        loss = torch.zeros(())
        for name in output_names:
            values = getattr(outputs, name).float()
            loss = loss + values.sin().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        numbers.append(loss.item())

    network.eval()
    with torch.inference_mode():
        outputs = network(**inputs)
    numbers += [getattr(outputs, name).double().sum().item() for name in output_names]
    sums = {}
    for name, parameter in network.named_parameters():
        sums[name] = parameter.double().sum().item()
    return numbers, sums


def _inputs_of_unequal_lengths(*, has_segments: bool) -> dict[str, torch.Tensor]:
    """Eight windows of 30 tokens at most."""
    lengths = torch.tensor([30, 3, 21, 7, 1, 30, 11, 12])
    positions = torch.arange(30)
    mask = (positions < lengths[:, None]).long()
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 60, mask.shape, generator=generator) * mask
    inputs = {"input_ids": ids, "attention_mask": mask}
    if has_segments:
        inputs["token_type_ids"] = (positions > 9).long() * mask
    return inputs


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("family", "kind"), _CASES)
def test_training_is_that_of_transformers_to_the_bit(
    family: str, kind: str, precision: str, tiny_model: Path, tmp_path: Path
) -> None:
    ours, theirs = _both(_made(tmp_path, tiny_model, family), kind)
    states = [model.network.state_dict() for model in (ours, theirs)]
    assert list(states[0]) == [name for name in states[1] if "position_ids" not in name]
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), f"a new head is drawn alike: {name}"
    assert _steps(ours, kind, precision) == _steps(theirs, kind, precision)


@pytest.mark.parametrize("kind", [kind for kind in _HEADS if kind])
@pytest.mark.parametrize("family", _LIKE_ROBERTA)
def test_dropouts_of_other_families_are_those_of_transformers(
    family: str, kind: str, tiny_model: Path, tmp_path: Path
) -> None:
    source = _made(tmp_path, tiny_model, family, pad_token_id=1, **_LIKE_ROBERTA[family])
    config = source.config | {
        "id2label": {str(number): name for number, name in _HEADS[kind]["id2label"].items()}
    }
    read = network_to_train(source, f"AutoModelFor{kind}", config)
    assert read is not None
    ours, _ = read
    network = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
        tmp_path, num_labels=len(config["id2label"])
    )
    network.load_state_dict(ours.state_dict())

    our_steps = _steps(Model(ours, None, None, None, False), kind, "fp32")
    their_steps = _steps(Model(network, None, None, None, False), kind, "fp32")

    assert our_steps == their_steps


@pytest.mark.parametrize(("family", "kind"), _CASES)
def test_what_is_saved_is_loaded_by_transformers_as_what_it_saves(
    family: str, kind: str, tiny_model: Path, tmp_path: Path
) -> None:
    source = _made(tmp_path / "model", tiny_model, family)
    (source.folder / "config.json").write_text(
        json.dumps(source.config | {"torch_dtype": "float16", "mine": [1]})
    )
    document = json.loads((source.folder / "tokenizer_config.json").read_text())
    document |= {
        "name_or_path": "/a/private/place",
        "do_lower_case": False,
        "padding_side": "left",
        "model_max_length": 9,
    }
    (source.folder / "tokenizer_config.json").write_text(json.dumps(document))
    loaded = []
    for name, model in zip(
        ("ours", "theirs"), _both(_source(source.folder), kind, dropout=0.3), strict=True
    ):
        model.save(tmp_path / name)
        config = transformers.AutoConfig.from_pretrained(tmp_path / name).to_dict()
        del config["_name_or_path"]
        spoken = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        texts = ["A good film", "wasn't it?", "GOOD, good"]
        read = [
            dict(spoken(texts, padding=True)),
            dict(spoken(texts, texts, truncation=True, max_length=9)),
        ]
        names = (
            "padding_side",
            "truncation_side",
            "model_max_length",
            "special_tokens_map",
            "model_input_names",
        )
        read += [getattr(spoken, entry) for entry in names] + [
            spoken.clean_up_tokenization_spaces,
            type(spoken).__name__,
        ]
        weights = load_file(tmp_path / name / "model.safetensors")
        loaded.append(
            (config, read, {entry: tensor.sum().item() for entry, tensor in weights.items()})
        )
        assert "private" not in (tmp_path / name / "tokenizer_config.json").read_text()
    for ours, theirs in zip(*loaded, strict=True):
        assert ours == theirs
    assert loaded[0][0]["mine"] == [1]


def test_a_saved_network_is_loaded_back_and_its_head_kept_or_renewed(
    tiny_model: Path, tmp_path: Path
) -> None:
    ours, _ = _both(_made(tmp_path / "model", tiny_model, "Bert"), "SequenceClassification")
    ours.save(tmp_path / "saved")
    expected = {name: tensor.clone() for name, tensor in ours.network.state_dict().items()}
    for parameter in ours.network.parameters():
        parameter.data.zero_()
    ours.load(tmp_path / "saved")
    assert all(
        torch.equal(tensor, expected[name]) for name, tensor in ours.network.state_dict().items()
    )
    again = bert_to_train(_source(tmp_path / "saved"), _KIND, _HEADS["SequenceClassification"])
    assert again is not None
    assert torch.equal(
        again.network.state_dict()["classifier.weight"], expected["classifier.weight"]
    )
    for names in (["a", "b", "c"], ["a", "b"]):
        head = label_fields(names, "single_label_classification")
        drawn = []
        for make in (bert_to_train, load_model):
            seed_everything(8)
            made = make(_source(tmp_path / "saved"), _KIND, head=head)
            assert made is not None
            drawn.append(made.network.state_dict()["classifier.weight"])
        assert torch.equal(*drawn), "new labels, a new head, drawn alike"
        assert not torch.equal(drawn[0], expected["classifier.weight"])


def test_weights_do_not_change_with_a_file_that_others_write_over(
    tiny_model: Path, tmp_path: Path
) -> None:
    source = _made(tmp_path, tiny_model, "Bert")
    model = bert_to_train(source, _KIND, _HEADS["SequenceClassification"])
    assert model is not None
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    file = tmp_path / "model.safetensors"
    with file.open("r+b") as opened:
        opened.write(bytes(file.stat().st_size))
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in model.network.state_dict().items()
    )


_PLAIN = {"lstrip": False, "rstrip": False, "single_word": False, "special": True}
_LEFT: dict[str, dict[str, dict[str, Any]]] = {
    "another attention": {"config": {"attn_implementation": "eager"}},
    "a truth that is none": {"config": {"use_cache": None}},
    "a decoder that is null": {"config": {"is_decoder": None}},
    "an id that is none": {"config": {"bos_token_id": "x"}},
    "labels without numbers": {"config": {"id2label": {"a": "b"}}},
    "another class in config.json": {
        "tokenizer_config.json": {"tokenizer_class": None},
        "config": {"tokenizer_class": "RobertaTokenizer"},
    },
    "another token for a text": {"tokenizer_config.json": {"cls_token": "[MASK]"}},
    "a token that is read otherwise": {
        "tokenizer_config.json": {
            "added_tokens_decoder": {"0": {"content": "[PAD]", "normalized": True, **_PLAIN}}
        }
    },
    "not all added tokens": {
        "tokenizer_config.json": {
            "added_tokens_decoder": {"0": {"content": "[PAD]", "normalized": False, **_PLAIN}}
        }
    },
    "a truth of the tokenizer that is none": {
        "tokenizer_config.json": {"tokenize_chinese_chars": 1}
    },
    "more special tokens": {"tokenizer_config.json": {"additional_special_tokens": ["[MASK]"]}},
    "a chat": {"tokenizer_config.json": {"chat_template": "{{ messages }}"}},
    "another activation": {"config": {"hidden_act": "relu"}},
    "a decoder": {"config": {"is_decoder": True}},
    "a share that is none": {"config": {"hidden_dropout_prob": "0.1"}},
    "a share of all": {"config": {"hidden_dropout_prob": 1.0}},
    "a deviation that is no number": {"config": {"initializer_range": None}},
    "activations computed again": {"config": {"gradient_checkpointing": True}},
    "another tokenizer": {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}},
    "accents kept": {"tokenizer_config.json": {"strip_accents": False}},
    "no mask token": {"tokenizer_config.json": {"mask_token": None}},
    "another pipeline": {"tokenizer.json": {"pre_tokenizer": {"type": "Whitespace"}}},
    "texts put together otherwise": {"tokenizer.json": {"post_processor": None}},
    "a stripping of spaces": {
        "tokenizer.json": {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}
    },
}


@pytest.mark.parametrize("case", _LEFT)
def test_what_is_not_usual_is_left_to_transformers(
    case: str, tiny_model: Path, tmp_path: Path
) -> None:
    source = _made(tmp_path, tiny_model, "Bert")
    head = _HEADS["SequenceClassification"]
    assert bert_to_train(source, _KIND, head) is not None
    for file, fields in _LEFT[case].items():
        if file == "config":
            source = _source(tmp_path, **fields)
            continue
        document = json.loads((tmp_path / file).read_text()) | fields
        (tmp_path / file).write_text(json.dumps(document))
        (tmp_path / "special_tokens_map.json").unlink(missing_ok=True)
    assert bert_to_train(source, _KIND, head) is None


def test_weights_that_are_missing_are_left_to_transformers_which_refuses_them(
    tiny_model: Path, tmp_path: Path
) -> None:
    source = _made(tmp_path, tiny_model, "Bert")
    weights = load_file(tmp_path / "model.safetensors")
    head = _HEADS["SequenceClassification"]
    for name in ("pooler", "encoder.layer.1.output.dense.bias"):
        weights = {entry: tensor for entry, tensor in weights.items() if not entry.startswith(name)}
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
        actual = bert_to_train(source, _KIND, head)
        assert (actual is not None) == ("pooler" in name), "a pooler may be new"
    assert bert_to_train(source, _KIND, head | {"long_text": {"long_text": "window"}}) is None


def test_weights_that_transformers_finds_elsewhere_or_by_half_are_left_to_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    source = _made(tmp_path, tiny_model, "Bert")
    file = tmp_path / "model.safetensors"
    head = _HEADS["SequenceClassification"]
    tensors = load_file(file)
    without = {name: value for name, value in tensors.items() if name != "pooler.dense.bias"}
    under = {
        f"bert.{name}" if "pooler" not in name else name: value for name, value in tensors.items()
    }
    retained = {**tensors, "classifier.bias": torch.ones(3)}
    for weights in (without, under, retained):
        save_file(weights, file, metadata={"format": "pt"})
        assert bert_to_train(source, _KIND, head) is None
    for weights in ({**retained, "classifier.weight": torch.ones(3, 36)}, tensors):
        save_file(weights, file, metadata={"format": "pt"})
        assert bert_to_train(source, _KIND, head) is not None


def test_a_special_token_that_is_normalised_is_saved_by_its_own_name(
    tiny_model: Path, tmp_path: Path
) -> None:
    source = _made(tmp_path / "model", tiny_model, "Bert")
    document = _read(source.folder / "tokenizer.json")
    for token in document["added_tokens"]:
        token["normalized"] = True
    (source.folder / "tokenizer.json").write_text(json.dumps(document))
    model = bert_to_train(source, _KIND, _HEADS["SequenceClassification"])
    assert model is not None
    model.save(tmp_path / "saved")
    assert _read(tmp_path / "saved" / "tokenizer_config.json")["cls_token"] == "[CLS]"
    spoken = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert spoken("a film")["input_ids"] == model.tokenizer.encode("a film").ids
