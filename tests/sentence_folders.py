"""Folders as sentence-transformers lays them out, around a tiny BERT.

And the library itself as the oracle.
"""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

_LEGACY = "sentence_transformers.models"
MADE = ("cls", "max", "dense", "prompts", "mean and max")


def sentence_transformers() -> Any:
    """The library, which only tests use; the test is skipped where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "sentence_transformers", reason="compares with sentence-transformers 6"
        )


def make_folder(name: str, tiny_model: Path, folder: Path) -> Path:
    """One of `MADE`, written by hand in the layouts of versions 2 to 6."""
    shutil.copytree(tiny_model, folder)
    kinds = [
        "Transformer",
        "Pooling",
        *{"dense": ["Dense", "Normalize"], "prompts": ["Normalize"]}.get(name, []),
    ]
    files: dict[str, Any] = {
        "modules.json": [
            {
                "idx": i,
                "name": str(i),
                "path": f"{i}_{kind}" if i else "",
                "type": f"{_LEGACY}.{kind}",
            }
            for i, kind in enumerate(kinds)
        ],
        "sentence_bert_config.json": {"max_seq_length": 40, "do_lower_case": False},
    }
    old = {"word_embedding_dimension": 36, "pooling_mode_cls_token": name == "cls"}
    old |= {
        "pooling_mode_mean_tokens": name in ("dense", "prompts"),
        "pooling_mode_max_tokens": name == "max",
    }
    files["1_Pooling/config.json"] = old
    if name == "mean and max":
        files["1_Pooling/config.json"] = {
            "embedding_dimension": 36,
            "pooling_mode": ["mean", "max"],
        }
    if name == "dense":
        files["2_Dense/config.json"] = {
            "in_features": 36,
            "out_features": 20,
            "bias": True,
            "activation_function": "torch.nn.modules.activation.Tanh",
        }
    if name in ("dense", "prompts"):
        files["config_sentence_transformers.json"] = {
            "prompts": {"query": "was it ", "all": "a very good film : "},
            "default_prompt_name": "all" if name == "prompts" else None,
        }
    for file, content in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(json.dumps(content))
    if name == "dense":
        torch.manual_seed(1)
        weights = {"linear.weight": torch.randn(20, 36), "linear.bias": torch.randn(20)}
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    return folder
