"""The graph of an encoder with the states of all its layers, converted once and then in the cache.

It lies there by the hash of the model and the versions of what converted it.
"""

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from bertctl.exporting.convert import convert
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource
from bertctl.progress import SILENT, Listener
from bertctl.writing import cache_folder, replacing

if TYPE_CHECKING:
    from torch import Tensor

_CONVERTERS = ("torch", "transformers", "onnx", "onnxscript")
_TOKENS = 11


def cached_graph(
    source: ModelSource, loaded: Model, n_layers: int, *, listener: Listener = SILENT
) -> Path:
    """Returns the ONNX file of an encoder, which is converted if the cache has none.

    Its outputs are `last_hidden_state`, `hidden_states.N` for the word embeddings and each layer
    below the last, and `pooler_output` where the encoder has a pooler.

    Args:
        source: The model's files.
        loaded: The model as transformers loads it, on the CPU in fp32.
        n_layers: Number of its layers.
        listener: Receives a note of the conversion.

    Raises:
        UnavailableError: It can't be converted, or the cache folder can't be written.
    """
    from bertctl.modeling.graph_network import GraphNetwork

    # Another version of a converter may write another graph.
    versions = [f"{package} {version(package)}" for package in _CONVERTERS]
    key = hashlib.sha256("\n".join([source.content_hash(), *versions]).encode()).hexdigest()[:32]
    folder = cache_folder() / "onnx" / key
    path = folder / "model.onnx"
    if path.exists():
        return path

    listener.say(f"'{source.name}' is converted to ONNX, once, into {path}")
    network = GraphNetwork(loaded, hidden_states=tuple(range(n_layers)))
    with replacing(folder) as aside:
        aside.mkdir()
        convert(
            network,
            _sample(loaded),
            aside,
            name=source.name,
            remedy="Leave `backend=` out: torch reads it.",
        )
    return path


def _sample(loaded: Model) -> "dict[str, Tensor]":
    """Returns two texts of one word, one of them half padding, to trace the network with."""
    import torch

    word = int(loaded.tokenizer.encode("a", add_special_tokens=False).ids[0])  # no special token
    ids = torch.full((2, _TOKENS), word, dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, _TOKENS // 2 :] = 0
    ids[1, _TOKENS // 2 :] = loaded.padding.id
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": torch.zeros_like(ids),
    }
