"""Tokenizers of families that are trained without transformers.

As it reads them, and as it saves them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from families import make_encoder_of_its_kind

from bertctl.modeling.fast.bert_to_train import bert_to_train
from bertctl.modeling.load import load_model
from bertctl.modeling.source import ModelSource
from bertctl.tasks.base import label_fields

_HEADS = {  # of words that are given one by one, and of pairs
    "TokenClassification": label_fields(["O", "B-A", "I-A"], "single_label_classification")
    | {"tag_scheme": "BIO"},
    "QuestionAnswering": label_fields(["start", "end"], "single_label_classification"),
}


def _read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text())
    return document


@pytest.mark.parametrize("says", ["all", "nothing", "another class"])
@pytest.mark.parametrize("kind", _HEADS)
@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "electra"])
def test_tokenizers_of_families_read_and_are_saved_as_transformers_has_them(
    family: str, kind: str, says: str, tmp_path: Path
) -> None:
    folder = make_encoder_of_its_kind(family, tmp_path / "model")
    path = folder / "tokenizer_config.json"
    if says == "nothing":
        path.write_text(json.dumps({"model_max_length": 32}))
    elif says == "another class":
        path.write_text(json.dumps(_read(path) | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    source = ModelSource(
        "made", folder, _read(folder / "config.json"), 24, None if "roberta" in family else True
    )
    ours = bert_to_train(source, f"AutoModelFor{kind}", _HEADS[kind])
    theirs = load_model(source, f"AutoModelFor{kind}", head=_HEADS[kind])
    assert ours is not None
    assert ours.padding == theirs.padding
    assert ours.has_segments == theirs.has_segments
    assert ours.cls_id == theirs.cls_id
    ours.save(tmp_path / "ours")
    theirs.save(tmp_path / "theirs")
    spoken = [
        transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("ours", "theirs")
    ]
    texts = [
        "A good film",
        " wasn't it?",
        "GOOD,  good\n",
        "Île-de-France",
        "",
        "<mask> and [MASK] </s>",
    ]
    pairs = [*zip(texts, reversed(texts), strict=True)]
    words = [text.split() or ["a"] for text in texts]
    for inputs in (texts, pairs):
        expected = [entry.ids for entry in theirs.tokenizer.encode_batch(inputs)]
        assert [entry.ids for entry in ours.tokenizer.encode_batch(inputs)] == expected
        for tokenizer in spoken:
            supplied = zip(*inputs, strict=True) if inputs is pairs else [inputs]
            assert tokenizer(*map(list, supplied))["input_ids"] == expected
    expected = [entry.ids for entry in theirs.tokenizer.encode_batch(words, is_pretokenized=True)]
    assert [
        entry.ids for entry in ours.tokenizer.encode_batch(words, is_pretokenized=True)
    ] == expected
    for tokenizer in spoken if kind == "TokenClassification" else ():
        assert tokenizer(words, is_split_into_words=True)["input_ids"] == expected
    for role in ("pad_token", "cls_token", "sep_token", "unk_token", "mask_token"):
        assert getattr(spoken[0], role) == getattr(spoken[1], role)
    assert spoken[0].model_input_names == spoken[1].model_input_names
    assert spoken[0].model_max_length == spoken[1].model_max_length
