"""The linear layers that make queries and values, found by their names, and their outputs.

    bert.encoder.layer.2.attention.self.query    distilbert.transformer.layer.2.attention.q_lin

Nothing here imports torch before a network is hooked.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertctl.errors import UsageError
from bertctl.modeling.families import family_of
from bertctl.modeling.source import ModelSource
from bertctl.modeling.stored_weights import stored_weights

if TYPE_CHECKING:
    from torch import Tensor, nn

_PAIRS = {
    "query": "value",
    "q_lin": "v_lin",
    "q_proj": "v_proj",
    "query_proj": "value_proj",
    "q": "v",
}
"""What families call the layer of queries -> what they call that of values beside it."""

_NOT_BY_TOKEN = ("ibert", "longformer", "squeezebert")
"""Families whose layers of these names give something else than a vector for each token: quantised
numbers, padded blocks, channels.
"""

_OF_DECODERS = ("decoder", "crossattention")


@dataclass(frozen=True)
class AttentionParts:
    """The two linear layers of an attention.

    Attributes:
        query: Name of the module that makes queries.
        value: Name of the module that makes values.
    """

    query: str
    value: str


def attention_parts(modules: Iterable[str]) -> list[AttentionParts]:
    """Returns the names of the query and value modules of each layer, from the bottom to the top.

    Args:
        modules: Names of all modules of an encoder, or of its weights without their last part.
    """
    names = set(modules)
    layers = []
    for name in names:
        prefix, dot, short_name = name.rpartition(".")
        if short_name not in _PAIRS:  # not the module of queries in any family
            continue
        value_name = f"{prefix}{dot}{_PAIRS[short_name]}"
        is_of_decoder = any(word in name for word in _OF_DECODERS)
        if value_name in names and not is_of_decoder:
            layers.append(AttentionParts(query=name, value=value_name))
    # By the numbers in their names, so that layer 10 comes after layer 2.
    return sorted(layers, key=lambda parts: [int(n) for n in re.findall(r"\d+", parts.query)])


def stored_parts(source: ModelSource) -> tuple[list[AttentionParts], int]:
    """Returns the attention parts of each layer by a model's weights, and the size of its queries.

    Raises:
        UsageError: Queries and values are not made by linear layers of their own.
    """
    tensors = stored_weights(source.folder)
    names = [name.removesuffix(".weight") for name in tensors if name.endswith(".weight")]
    layers = attention_parts(names)
    # In some families, layers of these names don't give a vector for each token.
    gives_vectors = family_of(source.config) not in _NOT_BY_TOKEN
    if not layers or not gives_vectors:
        raise UsageError(
            f"distillation.relations: {source.name} ({source.config.get('model_type')}) does "
            "not make queries and values by plain linear layers, so there is nothing to compare",
            remedy="Leave distillation.relations out, or name models such as BERT, RoBERTa, "
            "ELECTRA, DistilBERT, MPNet or DeBERTa.",
        )
    return layers, int(tensors[f"{layers[-1].query}.weight"].shape[0])


class AttentionVectors:
    """Keeps the queries and values of one layer of a network, as each forward pass makes them.

    Args:
        network: The network.
        parts: The layer's parts.
    """

    def __init__(self, network: "nn.Module", parts: AttentionParts) -> None:
        self._vectors: dict[str, Tensor] = {}
        for kind, name in (("query", parts.query), ("value", parts.value)):
            network.get_submodule(name).register_forward_hook(self._keeping(kind))

    def _keeping(self, kind: str) -> Any:
        """Returns a forward hook that keeps a module's outputs as the vectors of this kind."""

        def keep(_: "nn.Module", inputs: Any, output: "Tensor") -> None:  # noqa: ARG001
            self._vectors[kind] = output

        return keep

    def take(self) -> "Mapping[str, Tensor]":
        """Returns the (B, T, H) vectors of the last pass by kind, and forgets them."""
        vectors = self._vectors
        self._vectors = {}
        return vectors
