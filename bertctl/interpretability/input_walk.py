"""What becomes of an input, step by step: pieces, the vectors that are added for each, and what each layer gives.

Letters: T tokens of the input, H hidden size.
"""

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.errors import UsageError
from bertctl.interpretability.vectors import find_encoder
from bertctl.modeling.layers import layer_count
from bertctl.modeling.pooling import finite
from bertctl.progress import SILENT, Listener

if TYPE_CHECKING:
    from torch import Tensor

_TABLES = {"segment": re.compile("type|segment"), "position": re.compile("pos|wpe"), "token": re.compile("emb|wte|tok")}
"""What the families call their tables, looked up in this order: BERT's `token_type_embeddings` are segments."""


def walk_input(name: str, text: str, pair: str | None = None, *, listener: Listener = SILENT) -> dict[str, Any]:
    """Returns what a bare encoder makes of a text, or a pair.

    Args:
        name: a model's name, folder or hub id.
        text: of the input.
        pair: its second text.
        listener: hears of a text that is cut.

    Returns:
        `tokens`, each with the lengths (norms) of the vectors that are added for it and of their normalised sum, and
        `states`, the shape and mean norm of what the embeddings and each layer give.

    Raises:
        UsageError: an empty text; no such model.
        UnavailableError: files that are not there, or can't be loaded.
    """
    source, length = find_encoder(name)
    layer_count(source.config)  # refuses what has two stacks of them
    if not text.strip():
        raise UsageError("the text is empty", remedy='Give one, such as --embeddings "the bank of the river".')
    import torch
    from torch import nn

    from bertctl.modeling.load import load_model

    loaded = load_model(source, "AutoModel", head=None)
    network = loaded.network.eval()
    inputs = loaded.saved_tokenizer(text, pair, truncation=True, max_length=length, return_tensors="pt")
    [encoding] = inputs.encodings
    if encoding.overflowing:
        listener.warn(f"the input has more than {length} tokens; the first {length} are read")
    added: dict[str, Tensor] = {}

    def keep(called: str, output: "Tensor") -> None:
        if output.shape[-2:-1] == (len(encoding),) and math.prod(output.shape[:-2]) == 1:
            kind = next((kind for kind, words in _TABLES.items() if words.search(called)), called)
            added.setdefault(kind, output.reshape(len(encoding), -1))

    for called, module in network.named_modules():
        if isinstance(module, nn.Embedding):
            module.register_forward_hook(lambda _, __, output, called=called: keep(called.rpartition(".")[2], output))
    with torch.inference_mode():
        given = network(**inputs, output_hidden_states=True)
    states = [one[0].float() for one in given.hidden_states]
    finite(np.array([float(state.norm()) for state in states]), name)
    norms = {kind: vectors.norm(dim=-1).tolist() for kind, vectors in (*added.items(), ("embeddings", states[0]))}
    return {
        "tokens": [
            {"token": token, "id": encoding.ids[i], "segment": encoding.type_ids[i], "position": i}
            | {"norms": {kind: round(lengths[i], 4) for kind, lengths in norms.items()}}
            for i, token in enumerate(encoding.tokens)
        ],
        "states": [
            {"layer": layer, "shape": [1, *state.shape], "mean_norm": round(float(state.norm(dim=-1).mean()), 4)}
            for layer, state in enumerate(states)
        ],
    }
