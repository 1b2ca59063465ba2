"""BERT and its like by torch alone, for answers and vectors: transformers takes longer to import than torch itself.

The operators are those of transformers 5 in their order, so that the numbers are the same to the last bit; the
parameters have names of their own, and none is trained. Whatever is not as the families below have it (another
activation, a decoder, a head of another kind, weights that config.json does not describe) is left to transformers,
which knows it or says what is wrong.

Letters: B windows, T tokens, E numbers of an embedding, H of a hidden state, A heads, C outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional

from bertctl.modeling.families import BARE, BERT_LAYER, COUNTS_FROM_PAD, DISTILBERT_LAYER, LOOKS_BACK, SIZES, family_of
from bertctl.modeling.heads import keep_in_fp32
from bertctl.modeling.source import ModelSource
from bertctl.modeling.stored_weights import StoredTensor, stored_weights

_OF_EMBEDDINGS = {
    "words": "embeddings.word_embeddings", "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings", "norm": "embeddings.LayerNorm",
    "projection": "embeddings_project", "pooler": "pooler.dense",
}  # fmt: skip


_USUAL_SIZES = tuple(names[0] for names in SIZES.values())


@dataclass(frozen=True)
class _Family:
    """What transformers calls the parts of a family.

    Attributes:
        encoder: where it is in a network with a head.
        layers: where they are in the encoder.
        of_layer: its parts, ours and theirs.
        dense: activation of the hidden layer in the head of sequence classification; None where the pooler is it.
        has_pooler: whether its bare encoder may have one.
        has_segments: whether it has a table of token types.
        epsilon: of its normalisations, whatever config.json says; None where that says it.
        activation: field of config.json that names the one within a layer.
        sizes: fields of config.json that say the sizes, in the order of `SIZES`.
    """

    encoder: str
    layers: str
    of_layer: Mapping[str, str]
    dense: Callable[[Tensor], Tensor] | None
    has_pooler: bool = False
    has_segments: bool = True
    epsilon: float | None = None
    activation: str = "hidden_act"
    sizes: Sequence[str] = _USUAL_SIZES


_DISTILBERT_SIZES = ("n_layers", "dim", "n_heads", "hidden_dim", "vocab_size", "max_position_embeddings")
_ROBERTA = _Family("roberta", "encoder.layer", BERT_LAYER, torch.tanh, has_pooler=True)
_FAMILIES = {
    "bert": _Family("bert", "encoder.layer", BERT_LAYER, None, has_pooler=True),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _ROBERTA),
    "electra": _Family("electra", "encoder.layer", BERT_LAYER, functional.gelu),
    "distilbert": _Family(
        "distilbert", "transformer.layer", DISTILBERT_LAYER, torch.relu,
        has_segments=False, epsilon=1e-12, activation="activation", sizes=_DISTILBERT_SIZES,
    ),
}  # fmt: skip

_USUAL = {
    "position_embedding_type": "absolute", **dict.fromkeys(("attn_implementation", "_attn_implementation"), "sdpa"),
    **dict.fromkeys(LOOKS_BACK, False),
}  # fmt: skip
"""What config.json may say of a model that is as those of its family usually are, or leave out."""

_OF_TOKENS = {"TokenClassification": "classifier", "QuestionAnswering": "qa_outputs"}
_OF_TEXTS = ("SequenceClassification", "MultipleChoice")


class _Layer(nn.Module):
    """A layer of an encoder (Devlin et al. 2019, section 3)."""

    def __init__(self, hidden: int, inner: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mixed = (nn.Linear(hidden, hidden) for _ in range(4))
        self.inner, self.outer = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.first_norm, self.last_norm = (nn.LayerNorm(hidden, eps=epsilon) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Returns (B, T, H) of (B, T, H), of which those are looked at where the mask (B, 1, T, T) is true."""
        split = (*x.shape[:2], self.heads, -1)
        q, k, v = (each(x).view(split).transpose(1, 2) for each in (self.query, self.key, self.value))
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=q.shape[-1] ** -0.5)
        x = self.first_norm(self.mixed(found.transpose(1, 2).reshape(x.shape)) + x)
        last: Tensor = self.last_norm(self.outer(functional.gelu(self.inner(x))) + x)
        return last


class Encoder(nn.Module):
    """An encoder without a head; it takes and gives what an AutoModel does.

    Attributes:
        config: of the model; `hidden_size` is H in each family.
        pooler: of [CLS] (H to H); None where the files have none.
        has_segments: whether token type ids mean first and second sentence to it.
    """

    def __init__(
        self, family: _Family, config: Mapping[str, Any], sizes: Mapping[str, int], *, has_pooler: bool
    ) -> None:
        super().__init__()
        hidden, epsilon = sizes["hidden"], family.epsilon or config["layer_norm_eps"]
        narrow = config["embedding_size"] if family_of(config) == "electra" else hidden
        kinds = config["type_vocab_size"] if family.has_segments else None
        self.config = SimpleNamespace(**{**config, "hidden_size": hidden})
        self.pad = sizes["pad"] if family_of(config) in COUNTS_FROM_PAD else None
        self.words, self.positions = (_table(sizes[name], narrow) for name in ("vocabulary", "positions"))
        self.segments = _table(kinds, narrow) if kinds else None
        self.has_segments = bool(kinds and kinds > 1)
        self.norm = nn.LayerNorm(narrow, eps=epsilon)
        self.projection = nn.Linear(narrow, hidden) if narrow != hidden else None
        of_layer = hidden, sizes["inner"], sizes["heads"], epsilon
        self.layers = nn.ModuleList(_Layer(*of_layer) for _ in range(sizes["layers"]))
        self.pooler = nn.Linear(hidden, hidden) if has_pooler else None

    def get_input_embeddings(self) -> nn.Module:
        """Returns the token table."""
        return self.words

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        output_hidden_states: bool = False,
    ) -> SimpleNamespace:
        """Returns `last_hidden_state` (B, T, H), `pooler_output` (B, H), and as tuple `hidden_states` where asked."""
        x = self.words(input_ids)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids)
        x = self.norm(x + self.positions(self._places(input_ids)))
        if self.projection is not None:
            x = self.projection(x)
        mask = None
        if attention_mask is not None and not bool(attention_mask.all()):
            mask = attention_mask.bool()[:, None, None].expand(-1, -1, input_ids.shape[1], -1)
        states = [x]
        for layer in self.layers:
            x = layer(x, mask)
            if output_hidden_states:
                states.append(x)
        pooled = None if self.pooler is None else torch.tanh(self.pooler(x[:, 0]))
        kept = tuple(states) if output_hidden_states else None
        return SimpleNamespace(last_hidden_state=x, pooler_output=pooled, hidden_states=kept)

    def _places(self, ids: Tensor) -> Tensor:
        """Returns the positions (1 or B, T) of (B, T) tokens; RoBERTa counts those that are no padding, from its id."""
        if self.pad is None:
            return torch.arange(ids.shape[1], device=ids.device)[None]
        real = ids.ne(self.pad).int()
        return (torch.cumsum(real, dim=1).type_as(real) * real).long() + self.pad


class Network(nn.Module):
    """An encoder with a head; it gives what the network of transformers does, but no loss.

    Attributes:
        kind: the head's, as in the names of transformers' classes.
        dense: in the head, before the last layer; None where there is none.
        last: gives the answers.
    """

    base_model_prefix = "encoder"

    def __init__(self, encoder: Encoder, kind: str, family: _Family, outputs: int, *, has_dense: bool) -> None:
        super().__init__()
        hidden = encoder.config.hidden_size
        self.encoder, self.kind, self._activation = encoder, kind, family.dense
        self.has_segments = encoder.has_segments
        self.dense = nn.Linear(hidden, hidden) if has_dense else None
        self.last = nn.Linear(hidden, outputs)

    def forward(self, **inputs: Tensor) -> SimpleNamespace:
        """Returns `logits` (B, C), of tags (B, T, C), of choices (B, K) of (B, K, T) ids; of questions two (B, T)."""
        choices = inputs["input_ids"].shape[1]
        if self.kind == "MultipleChoice":
            inputs = {name: each.flatten(0, 1) for name, each in inputs.items()}
        found = self.encoder(**inputs)
        if self.kind == "TokenClassification":
            return SimpleNamespace(logits=self.last(found.last_hidden_state))
        if self.kind == "QuestionAnswering":
            logits = self.last(found.last_hidden_state)
            first, last = (each.squeeze(-1).contiguous() for each in logits.split(1, dim=-1))
            return SimpleNamespace(start_logits=first, end_logits=last)
        x = found.pooler_output
        if self.dense is not None and self._activation is not None:
            x = self._activation(self.dense(found.last_hidden_state[:, 0]))
        logits = self.last(x)
        return SimpleNamespace(logits=logits.view(-1, choices) if self.kind == "MultipleChoice" else logits)


_Some = TypeVar("_Some", Encoder, Network)


def _table(rows: int, size: int) -> nn.Embedding:
    """Returns a table whose weights are still to come: to draw them, torch would import its compiler."""
    table: nn.Embedding = nn.Embedding.from_pretrained(torch.empty(rows, size))  # type: ignore[no-untyped-call]
    return table


def read_network(source: ModelSource, auto_class: str) -> Encoder | Network | None:
    """Returns a model's network on the CPU, in fp32 and evaluation mode; None where it is left to transformers.

    Args:
        source: the model's files.
        auto_class: name of the Auto class in transformers that has the head.

    Raises:
        UnavailableError: the weights can't be read.
    """
    config, kind = source.config, auto_class.removeprefix("AutoModelFor")
    family = _FAMILIES.get(family_of(config))
    sizes = None if family is None else _sizes(config, family)
    if family is None or sizes is None or not _is_plain(config, family):
        return None
    stored, is_bare = stored_weights(source.folder), auto_class == BARE
    if any(name.endswith((".gamma", ".beta")) for name in stored):  # older names, which transformers knows
        return None
    inside = f"{family.encoder}." if any(name.startswith(f"{family.encoder}.") for name in stored) else ""
    parts = _OF_EMBEDDINGS | {
        f"layers.{i}.{ours}": f"{family.layers}.{i}.{theirs}"
        for i in range(sizes["layers"])
        for ours, theirs in family.of_layer.items()
    }
    parts = {ours: inside + theirs for ours, theirs in parts.items()}
    of_head = {} if is_bare else _head(family, kind)
    outputs = 1 if kind == "MultipleChoice" else _outputs(config)
    if of_head is None or not (is_bare or (outputs and inside and kind in str(config.get("architectures")))):
        return None
    reads_pooler = kind in _OF_TEXTS and "dense" not in of_head
    has_pooler = family.has_pooler and f"{parts['pooler']}.weight" in stored if is_bare else reads_pooler
    with torch.device("meta"):
        encoder = Encoder(family, config, sizes, has_pooler=has_pooler)
        if is_bare:
            return _filled(encoder, parts, stored)
        network = Network(encoder, kind, family, outputs, has_dense="dense" in of_head)
    keep_in_fp32(network)
    return _filled(network, {f"encoder.{ours}": theirs for ours, theirs in parts.items()} | of_head, stored)


def _filled(network: _Some, parts: Mapping[str, str], stored: Mapping[str, StoredTensor]) -> _Some | None:
    """Returns a network with the weights of the files; None where one is not there, or of another shape."""
    weights = {}
    for name, parameter in network.named_parameters():
        part, _, which = name.rpartition(".")
        found = stored.get(f"{parts[part]}.{which}")
        if found is None or found.shape != parameter.shape:
            return None
        weights[name] = found
    for file in {found.file for found in weights.values()}:
        with safe_open(file, framework="pt") as opened:
            read = {name: opened.get_tensor(one.name).float() for name, one in weights.items() if one.file == file}
            network.load_state_dict(read, strict=False, assign=True)
    network.requires_grad_(requires_grad=False)
    return network.eval()


def _sizes(config: Mapping[str, Any], family: _Family) -> dict[str, int] | None:
    """Returns the sizes that config.json has to say; None where it leaves one to a class, or says one in two ways."""
    found = {size: config.get(name) for size, name in zip(SIZES, family.sizes, strict=True)}
    says_two = any(config.get(name, one) != one for name, one in zip(_USUAL_SIZES, found.values(), strict=True))
    found["pad"] = config.get("pad_token_id")
    sizes = {size: one for size, one in found.items() if type(one) is int and (one > 0 or size == "pad")}
    return None if says_two or sizes.keys() != found.keys() or sizes["hidden"] % sizes["heads"] else sizes


def _outputs(config: Mapping[str, Any]) -> int:
    """Returns how many answers config.json names; 0 where it does not say so in one way."""
    labels = config.get("id2label", {})
    if not isinstance(labels, dict) or not all(name.isdecimal() and str(int(name)) == name for name in labels):
        return 0
    number = config.get("num_labels", len(labels) or 2)
    return number if type(number) is int and len(labels) in (0, number) else 0


def _is_plain(config: Mapping[str, Any], family: _Family) -> bool:
    """Returns whether a model is as those of its family usually are."""
    epsilon, kinds = family.epsilon or config.get("layer_norm_eps"), config.get("type_vocab_size")
    is_said = type(epsilon) is float and epsilon > 0 and (not family.has_segments or (type(kinds) is int and kinds > 0))
    is_wide = family.encoder != "electra" or type(config.get("embedding_size")) is int
    is_usual = all(config.get(name) in (None, value) for name, value in _USUAL.items())
    is_changed = config.get("pruned_heads") or config.get("long_text")
    return is_said and is_wide and is_usual and not is_changed and config.get(family.activation) == "gelu"


def _head(family: _Family, kind: str) -> dict[str, str] | None:
    """Returns the parts of a head, ours and theirs; None of another kind."""
    if kind in _OF_TOKENS:
        return {"last": _OF_TOKENS[kind]}
    if kind in _OF_TEXTS and family.encoder == "distilbert":
        return {"dense": "pre_classifier", "last": "classifier"}
    if kind == "SequenceClassification" and family.dense is not None:
        return {"dense": "classifier.dense", "last": "classifier.out_proj"}
    return {"last": "classifier"} if kind in _OF_TEXTS and family.encoder != "electra" else None
