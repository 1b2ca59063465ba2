"""A hundred model folders that nobody should trust.

Name -> what is different from the small model, file by file.
"""

import json
import pickle
from collections.abc import Mapping
from typing import Any

from tests.fuzz import originals
from tests.fuzz.originals import Tree
from tests.fuzz.places import Gone, Link, Pipe

MODEL = originals.model()
_CONFIG: dict[str, Any] = json.loads(MODEL["config.json"])
_TOKENIZER: dict[str, Any] = json.loads(MODEL["tokenizer.json"])
_SETTINGS: dict[str, Any] = json.loads(MODEL["tokenizer_config.json"])
_WEIGHTS = MODEL["model.safetensors"]
_LENGTH = int.from_bytes(_WEIGHTS[:8], "little")
_HEADER: dict[str, Any] = json.loads(_WEIGHTS[8 : 8 + _LENGTH])

EVIL = b"""import pathlib
pathlib.Path('pwned').touch()
pathlib.Path(__file__).with_name('pwned').touch()
"""
"""Code that leaves a trace when it is run."""
DEEP = b"[" * 100_000 + b"]" * 100_000


class _Touch:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return __import__("os").system, ("touch pwned",)


PICKLE = pickle.dumps(_Touch())


def config(**fields: Any) -> Tree:
    """config.json with these fields."""
    return {"config.json": json.dumps({**_CONFIG, **fields}).encode()}


def tokenizer(**fields: Any) -> Tree:
    """tokenizer.json with these parts."""
    return {"tokenizer.json": json.dumps({**_TOKENIZER, **fields}).encode()}


def _vocabulary(vocabulary: Any) -> Tree:
    return tokenizer(model={**_TOKENIZER["model"], "vocab": vocabulary})


def settings(**fields: Any) -> Tree:
    """tokenizer_config.json with these fields."""
    return {"tokenizer_config.json": json.dumps({**_SETTINGS, **fields}).encode()}


def weights(header: Any = None, *, length: int | None = None, data: bytes | None = None) -> Tree:
    """model.safetensors with another header, length or data."""
    written = json.dumps(_HEADER if header is None else header).encode()
    options = len(written) if length is None else length
    return {
        "model.safetensors": options.to_bytes(8, "little")
        + written
        + (_WEIGHTS[8 + _LENGTH :] if data is None else data)
    }


def _first(**fields: Any) -> dict[str, Any]:
    name = "embeddings.word_embeddings.weight"
    return {**_HEADER, name: {**_HEADER[name], **fields}}


_GONE = Gone()
_IDS = _TOKENIZER["model"]["vocab"]
_CODE = {
    "AutoModel": "evil.Evil",
    "AutoConfig": "evil.Evil",
    "AutoTokenizer": ["evil.Evil", "evil.Evil"],
}
_BARE: Mapping[str, Any] = {"tokenizer.json": _GONE, "tokenizer_config.json": _GONE}

HOSTILE: dict[str, Mapping[str, Any]] = {
    # config.json that is no config
    "config is a list": {"config.json": b"[]"},
    "config is null": {"config.json": b"null"},
    "config is a number": {"config.json": b"7"},
    "config is empty": {"config.json": b""},
    "config is an empty object": {"config.json": b"{}"},
    "config is not UTF-8": {"config.json": b'{"model_type": "b\xffrt"}'},
    "config is UTF-16": {"config.json": json.dumps(_CONFIG).encode("utf-16")},
    "config is 100,000 deep": {"config.json": b'{"model_type": "bert", "x": ' + DEEP + b"}"},
    "config is cut": {"config.json": MODEL["config.json"][:80]},
    "config is missing": {"config.json": _GONE},
    "config is a folder": {"config.json": _GONE, "config.json/x": b""},
    "config has 200,000 keys": config(**{f"k{i}": i for i in range(200_000)}),
    # sizes
    "10^8 layers": config(num_hidden_layers=10**8),
    "10^9 wide": config(hidden_size=10**9),
    "10^12 tokens": config(vocab_size=10**12),
    "10^10 positions": config(max_position_embeddings=10**10),
    "10^26 inner": config(intermediate_size=10**26),
    "no layer": config(num_hidden_layers=0),
    "-1 layers": config(num_hidden_layers=-1),
    "no width": config(hidden_size=0),
    "no heads": config(num_attention_heads=0),
    "heads that do not divide": config(num_attention_heads=3),
    "half a layer": config(num_hidden_layers=1.5),
    "layers as text": config(num_hidden_layers="two"),
    "layers as null": config(num_hidden_layers=None),
    "layers as a list": config(num_hidden_layers=[2]),
    "a text for the width": config(hidden_size="16"),
    "no positions": config(max_position_embeddings=0),
    "null positions": config(max_position_embeddings=None),
    "positions as text": config(max_position_embeddings="many"),
    # what else a config says
    "an unknown type": config(model_type="bertt"),
    "a type that is a list": config(model_type=["bert"]),
    "a type that is null": config(model_type=None),
    "a type that is a path": config(model_type="../../evil"),
    "a decoder's type": config(model_type="gpt2"),
    "architectures is a number": config(architectures=7),
    "architectures is nested": config(architectures=[["BertModel"]]),
    "an unknown architecture": config(architectures=["EvilModel"]),
    "code of its own": {**config(auto_map=_CODE), "evil.py": EVIL},
    "code of its own and an unknown type": {
        **config(auto_map=_CODE, model_type="evil"),
        "evil.py": EVIL,
    },
    "code on the hub": config(auto_map={"AutoModel": "evil/evil--evil.Evil"}, model_type="evil"),
    "a kernel from the hub": config(_attn_implementation="kernels-community/flash-attn"),
    "a kernel from the hub, by its other name": config(
        attn_implementation="kernels-community/flash-attn:evil"
    ),
    "an unknown attention": config(_attn_implementation="evil"),
    "attention that is a list": config(_attn_implementation=["eager"]),
    "quantized by bitsandbytes": config(
        quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}
    ),
    "quantized by nobody": config(quantization_config={"quant_method": "evil"}),
    "quantized by a list": config(quantization_config=[1]),
    "a number format that is none": config(dtype="os.system"),
    "a number format of integers": config(torch_dtype="int8"),
    "another place's name": config(_name_or_path="/etc"),
    "an activation that is none": config(hidden_act="os.system"),
    "an activation that is a list": config(hidden_act=["gelu"]),
    "dropout of 5": config(hidden_dropout_prob=5),
    "dropout as text": config(attention_probs_dropout_prob="a lot"),
    "an epsilon that is text": config(layer_norm_eps="small"),
    "a decoder": config(is_decoder=True, add_cross_attention=True),
    "pad id beyond the table": config(pad_token_id=10**6),
    "pad id below nothing": config(pad_token_id=-200),
    "labels as a list": config(id2label=["a", "b"]),
    "labels without numbers": config(id2label={"a": "b"}, label2id={"b": "a"}),
    "labels as text": config(id2label="ab"),
    "a million labels": config(num_labels=10**9),
    "heads pruned that are not there": config(pruned_heads={"7": [1, 2]}),
    "tuples for answers": config(return_dict=False),
    "a kind of problem that is none": config(problem_type="evil"),
    "chunks of text": config(chunk_size_feed_forward="x"),
    # tokenizer
    "tokenizer is a list": {"tokenizer.json": b"[]"},
    "tokenizer is null": {"tokenizer.json": b"null"},
    "tokenizer is empty": {"tokenizer.json": b""},
    "tokenizer is an empty object": {"tokenizer.json": b"{}"},
    "tokenizer is 100,000 deep": {"tokenizer.json": DEEP},
    "tokenizer is not UTF-8": {
        "tokenizer.json": MODEL["tokenizer.json"].replace(b"film", b"\xff\xfe")
    },
    "tokenizer without a vocabulary": tokenizer(model={}),
    "tokenizer of no model": tokenizer(model=None),
    "a token far away": _vocabulary({**_IDS, "d": 2**31}),
    "a token far away in vocab.json": {
        **_BARE,
        "vocab.json": json.dumps({**_IDS, "d": 2**31}).encode(),
    },
    "tokenizer of another model": tokenizer(model={"type": "Evil", "vocab": {}}),
    "a list of tokens": _vocabulary(list(_IDS)),
    "no tokens": _vocabulary({}),
    "ids below nothing": _vocabulary({token: -i for token, i in _IDS.items()}),
    "ids far beyond the table": _vocabulary({token: i + 10**6 for token, i in _IDS.items()}),
    "ids of 26 digits": _vocabulary({token: i + 10**26 for token, i in _IDS.items()}),
    "all ids the same": _vocabulary(dict.fromkeys(_IDS, 1)),
    "no [UNK]": _vocabulary({token: i for token, i in _IDS.items() if token != "[UNK]"}),
    "tokens with escapes": _vocabulary(
        {f"\x1b[31m{token}\n::error::{i}": i for token, i in _IDS.items()} | {"[UNK]": 1}
    ),
    "added tokens that are numbers": tokenizer(added_tokens=[1, 2]),
    "added tokens beyond the table": tokenizer(
        added_tokens=[
            {
                "id": 10**6,
                "content": "film",
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
        ]
    ),
    "an unknown normalizer": tokenizer(normalizer={"type": "Evil"}),
    "a regular expression that does not end": tokenizer(
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": "(a+)+(a+)+(a+)+$|(.*)*x"},
            "behavior": "Isolated",
            "invert": False,
        }
    ),
    "an unknown post-processor": tokenizer(post_processor={"type": "Evil"}),
    "truncation to nothing": tokenizer(
        truncation={"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 5}
    ),
    "padding to 10^12": tokenizer(
        padding={
            "strategy": {"Fixed": 10**12},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }
    ),
    "tokenizer settings are a list": {"tokenizer_config.json": b"[]"},
    "tokenizer settings are null": {"tokenizer_config.json": b"null"},
    "tokenizer settings are no JSON": {"tokenizer_config.json": b"{"},
    "tokenizer of an unknown class": settings(tokenizer_class="EvilTokenizer"),
    "tokenizer code of its own": {
        **settings(auto_map=_CODE, tokenizer_class="Evil"),
        "evil.py": EVIL,
    },
    "a length that is text": settings(model_max_length="long"),
    "a length of 10^30": settings(model_max_length=10**30),
    "special tokens that are numbers": settings(cls_token=7, sep_token=[1], pad_token=None),
    "a decoder of added tokens that is a list": settings(added_tokens_decoder=[1]),
    # a bare vocabulary
    "bare vocabulary with broken bytes": {
        **_BARE,
        "vocab.txt": MODEL["vocab.txt"].replace(b"film", b"\xc3\x28\xff"),
    },
    "bare vocabulary, empty": {**_BARE, "vocab.txt": b""},
    "bare vocabulary of one line": {**_BARE, "vocab.txt": b"film"},
    "bare vocabulary, each token twice": {**_BARE, "vocab.txt": MODEL["vocab.txt"] * 2},
    "no tokenizer at all": {**_BARE, "vocab.txt": _GONE},
    # weights
    "no weights": {"model.safetensors": _GONE},
    "empty weights": {"model.safetensors": b""},
    "a header of 2^63 bytes": weights(length=2**63),
    "a header of all bytes": weights(length=len(_WEIGHTS)),
    "a header that is a list": weights([1, 2]),
    "a header 100,000 deep": {"model.safetensors": len(DEEP).to_bytes(8, "little") + DEEP},
    "no tensors": weights({}, data=b""),
    "another shape": weights(_first(shape=[16, 103])),
    "a shape of 10^12": weights(_first(shape=[10**12, 16])),
    "a shape below nothing": weights(_first(shape=[-1, 16])),
    "offsets beyond the file": weights(_first(data_offsets=[0, 10**12])),
    "an unknown number format": weights(_first(dtype="F7")),
    "data cut": weights(data=b"\x00" * 100),
    "weights that are no numbers": weights(data=b"\xff" * (len(_WEIGHTS) - 8 - _LENGTH)),
    "weights of others": weights({f"evil.{name}": entry for name, entry in _HEADER.items()}),
    "weights are a pickle": {"model.safetensors": PICKLE},
    "a pickle in place of the weights": {"model.safetensors": _GONE, "pytorch_model.bin": PICKLE},
    "an index to elsewhere": {
        "model.safetensors": _GONE,
        "model.safetensors.index.json": json.dumps(
            {"metadata": {}, "weight_map": {"a": "../../outside/precious"}}
        ).encode(),
    },
    "an index that is a list": {"model.safetensors": _GONE, "model.safetensors.index.json": b"[]"},
    "an adapter on a model of the hub": {
        "adapter_config.json": json.dumps(
            {"peft_type": "LORA", "base_model_name_or_path": "evil/evil"}
        ).encode()
    },
    # what is not a file, and what is elsewhere
    "config without an end": {"config.json": Link("/dev/zero")},
    "weights without an end": {"model.safetensors": Link("/dev/zero")},
    "tokenizer without an end": {"tokenizer.json": Link("/dev/zero")},
    "config is a pipe": {"config.json": Pipe()},
    "weights are a pipe": {"model.safetensors": Pipe()},
    "tokenizer is a pipe": {"tokenizer.json": Pipe()},
    "config is a loop": {"config.json": Link("config.json")},
    "modules that shadow libraries": {
        f"{name}.py": EVIL for name in ("json", "torch", "transformers", "sitecustomize")
    },
}
