"""BERT and its like by torch alone: transformers takes longer to import than torch itself.

The operators are those of transformers 5 in their order, so that the numbers are the same to the
last bit, and so are the names of the parameters. In training the layers compute as
`packed_encoder.py` says. Which models these networks stand for is said in `bert_files.py`.

Letters: B windows, T tokens, E numbers of an embedding, H of a hidden state, A heads, C outputs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from bertctl.modeling.families import (
    BERT_LAYER,
    COUNTS_FROM_PAD,
    DISTILBERT_LAYER,
    SIZES,
    family_of,
)
from bertctl.writing import write_text

OF_TEXTS = ("SequenceClassification", "MultipleChoice")
"""Heads that read one state of a text, as they are called in the names of transformers' classes."""

OF_TOKENS = {"TokenClassification": "classifier", "QuestionAnswering": "qa_outputs"}
"""Those that read the state of each token, with what transformers calls their last layer."""

_TABLES = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
_HIDDEN = ("hidden_dropout_prob", 0.1)
_ATTENTION = ("attention_probs_dropout_prob", 0.1)
_HEADS = dict.fromkeys((*OF_TEXTS, "TokenClassification"), ("classifier_dropout", None))


@dataclass(frozen=True)
class Family:
    """What transformers calls the parts of a family.

    Attributes:
        encoder: where it is in a network with a head.
        architecture: how the names of its classes begin.
        stack: where its layers are in the encoder.
        of_layer: the parts of one, ours and theirs.
        dense: activation of the hidden layer in the head of sequence classification; None where the
            pooler is it.
        is_beside: whether that layer stands beside the last one, for choices too, and not in one
            module with it.
        has_pooler: whether its bare encoder may have one.
        has_segments: whether it has a table of token types.
        epsilon: of its normalisations, whatever config.json says; None where that says it.
        activation: field of config.json that names the one within a layer.
        sizes: fields of config.json that say the sizes, in the order of `SIZES`.
        dropouts: fields that say the shares of the attention, of its output, of the feed-forward
            part and of the embeddings, each with what they are where config.json is silent; the
            second is None where there is none.
        of_heads: such a field of each head that has a dropout; None is the share of the embeddings.
    """

    encoder: str
    architecture: str
    stack: str
    of_layer: Mapping[str, str]
    dense: Callable[[Tensor], Tensor] | None
    is_beside: bool = False
    has_pooler: bool = False
    has_segments: bool = True
    epsilon: float | None = None
    activation: str = "hidden_act"
    sizes: Sequence[str] = tuple(names[0] for names in SIZES.values())
    dropouts: Sequence[tuple[str, float] | None] = (_ATTENTION, _HIDDEN, _HIDDEN, _HIDDEN)
    of_heads: Mapping[str, tuple[str, float | None]] = field(default_factory=lambda: _HEADS)

    def dropout_fields(self) -> set[str]:
        """Returns the fields of config.json that say how much dropouts leave out."""
        return {
            field[0] for field in (*self.dropouts, *self.of_heads.values()) if field is not None
        }

    def has_dense_head(self, kind: str) -> bool:
        """Returns whether the head has a hidden layer of its own, in a module with its last one."""
        return kind == "SequenceClassification" and self.dense is not None and not self.is_beside

    def reads_pooler(self, kind: str) -> bool:
        """Returns whether a head reads what the pooler gives."""
        return kind in OF_TEXTS and not self.has_dense_head(kind) and not self.is_beside


def _roberta(architecture: str) -> Family:
    of_heads = {**_HEADS, "MultipleChoice": _HIDDEN}
    return Family(
        encoder="roberta",
        architecture=architecture,
        stack="encoder",
        of_layer=BERT_LAYER,
        dense=torch.tanh,
        has_pooler=True,
        of_heads=of_heads,
    )


_DISTILBERT_SIZES = (
    "n_layers",
    "dim",
    "n_heads",
    "hidden_dim",
    "vocab_size",
    "max_position_embeddings",
)
_DROPOUT = ("dropout", 0.1)
FAMILIES = {
    "bert": Family(
        encoder="bert",
        architecture="Bert",
        stack="encoder",
        of_layer=BERT_LAYER,
        dense=None,
        has_pooler=True,
    ),
    "roberta": _roberta("Roberta"),
    "xlm-roberta": _roberta("XLMRoberta"),
    "camembert": _roberta("Camembert"),
    "electra": Family(
        encoder="electra",
        architecture="Electra",
        stack="encoder",
        of_layer=BERT_LAYER,
        dense=functional.gelu,
        of_heads={**_HEADS, "MultipleChoice": ("summary_last_dropout", 0.1)},
    ),
    "distilbert": Family(
        encoder="distilbert",
        architecture="DistilBert",
        stack="transformer",
        of_layer=DISTILBERT_LAYER,
        dense=torch.relu,
        is_beside=True,
        has_segments=False,
        epsilon=1e-12,
        activation="activation",
        sizes=_DISTILBERT_SIZES,
        dropouts=(("attention_dropout", 0.1), None, _DROPOUT, _DROPOUT),
        of_heads={
            **dict.fromkeys(OF_TEXTS, ("seq_classif_dropout", 0.2)),
            "TokenClassification": _DROPOUT,
            "QuestionAnswering": ("qa_dropout", 0.1),
        },
    ),
}
"""By `model_type`."""


class Shares(NamedTuple):
    """What dropouts leave out in training: shares of elements."""

    attention: float = 0.0
    output: float = 0.0
    layer: float = 0.0
    embeddings: float = 0.0
    head: float = 0.0


@dataclass
class Outputs:
    """What a network gives: `logits`, or of question answering the two others."""

    logits: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None


class _Named(nn.Module):
    """A module whose parts are called as transformers calls them; here they go by names of ours."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self.names = names

    def put(self, ours: str, part: nn.Module) -> None:
        """Puts a part where transformers has it."""
        *path, attribute = self.names[ours].split(".")
        place: nn.Module = self
        for step in path:
            if not hasattr(place, step):
                place.add_module(step, nn.Module())
            place = place.get_submodule(step)
        place.add_module(attribute, part)

    def part(self, ours: str) -> Any:
        """Returns a part, whatever has been put in its place since."""
        return self.get_submodule(self.names[ours])


class Layer(_Named):
    """A layer of an encoder (Devlin et al. 2019, section 3).

    Attributes:
        heads: A.
        epsilon: of both normalisations.
        dropouts: of the attention, of its output and of the feed-forward part; they are read, not
            called.
        attend: computes the attention, and takes what torch's own function takes.
        activation: of the feed-forward part.
    """

    def __init__(
        self, family: Family, sizes: Mapping[str, int], epsilon: float, shares: Shares
    ) -> None:
        super().__init__(family.of_layer)
        hidden = sizes["hidden"]
        inner = sizes["inner"]
        self.heads = sizes["heads"]
        self.epsilon = epsilon
        self.dropouts = (
            nn.Dropout(shares.attention),
            nn.Dropout(shares.output),
            nn.Dropout(shares.layer),
        )
        self.attend: Callable[..., Tensor] = functional.scaled_dot_product_attention
        self.activation: Callable[[Tensor], Tensor] = functional.gelu
        shapes = {"inner": (hidden, inner), "outer": (inner, hidden)}
        for name in family.of_layer:
            is_norm = name.endswith("norm")
            shape = shapes.get(name, (hidden, hidden))
            self.put(name, nn.LayerNorm(hidden, eps=epsilon) if is_norm else nn.Linear(*shape))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Returns (B, T, H) of (B, T, H).

        Tokens look at those where the mask (B, 1, T, T) is true.
        """
        split = (*x.shape[:2], self.heads, -1)
        q, k, v = (
            self.part(name)(x).view(split).transpose(1, 2) for name in ("query", "key", "value")
        )
        of_attention, of_output, of_layer = (dropout.p for dropout in self.dropouts)
        looks = {
            "attn_mask": mask,
            "dropout_p": of_attention if self.training else 0.0,
            "scale": q.shape[-1] ** -0.5,
        }
        attended = self.attend(q, k, v, **looks)
        mixed = self.part("mixed")(attended.transpose(1, 2).reshape(x.shape))
        x = self.part("first_norm")(functional.dropout(mixed, of_output, self.training) + x)
        outer = self.part("outer")(self.activation(self.part("inner")(x)))
        output: Tensor = self.part("last_norm")(
            functional.dropout(outer, of_layer, self.training) + x
        )
        return output


class Stack(nn.Module):
    """The layers of an encoder, one after the other."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layer = nn.ModuleList(layers)

    def forward(
        self, x: Tensor, mask: Tensor | None, *, keeps_all: bool = False
    ) -> SimpleNamespace:
        """Returns `last_hidden_state` (B, T, H).

        Where all are kept, it also returns `hidden_states`, of each layer and before.
        """
        states = [x]
        for layer in self.layer:
            x = layer(x, mask)
            if keeps_all:
                states.append(x)
        return SimpleNamespace(
            last_hidden_state=x, hidden_states=tuple(states) if keeps_all else None
        )


class _Saved(_Named):
    """A whole network as transformers has it.

    Attributes:
        architecture: name of its class there.
        saved_config: config.json.
        config: the same; `hidden_size` is H in each family, `num_hidden_layers` the number of
            layers.
        base_model_prefix: where the encoder is in a network with a head.
        has_segments: whether token type ids mean first and second sentence to it.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        family: Family,
        kind: str,
        config: Mapping[str, Any],
        sizes: Mapping[str, int],
    ) -> None:
        super().__init__(names)
        self.architecture = family.architecture + kind
        self.saved_config = dict(config)
        self.base_model_prefix = family.encoder
        widths = {"hidden_size": sizes["hidden"], "num_hidden_layers": sizes["layers"]}
        self.config = SimpleNamespace(**{**config, **widths})
        self.has_segments = family.has_segments and config["type_vocab_size"] > 1

    @property
    def base_model(self) -> nn.Module:
        """Encoder."""
        return getattr(self, self.base_model_prefix, self)

    def get_input_embeddings(self) -> nn.Module:
        """Returns the token table."""
        return self.base_model.get_submodule(_TABLES["words"])

    def get_output_embeddings(self) -> None:
        """Returns None: no head guesses words."""

    def save_pretrained(self, folder: Path, *, state_dict: Mapping[str, Tensor]) -> None:
        """Writes config.json and weights, as transformers does."""
        folder.mkdir(exist_ok=True)
        config = self.saved_config | {"architectures": [self.architecture]}
        write_text(folder / "config.json", json.dumps(config, indent=2, sort_keys=True) + "\n")
        weights = {name: tensor.contiguous() for name, tensor in state_dict.items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    def _init_weights(self, module: nn.Module) -> None:
        """Draws the weights of a part anew, as transformers does."""
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


class Encoder(_Saved):
    """An encoder without a head; it takes and gives what an AutoModel does."""

    def __init__(
        self,
        family: Family,
        config: Mapping[str, Any],
        sizes: Mapping[str, int],
        shares: Shares,
        *,
        has_pooler: bool,
    ) -> None:
        """Makes one with weights still to come.

        Args:
            family: of the model.
            config: its config.json.
            sizes: that this says, and `pad`, the id of the padding token.
            shares: of the dropouts.
            has_pooler: whether there is one, of [CLS].
        """
        if family.has_segments:
            kinds = config["type_vocab_size"]
        else:
            kinds = 0
        hidden = sizes["hidden"]
        if family.encoder == "electra":
            narrow = config["embedding_size"]
        else:
            narrow = sizes["hidden"]
        tables = {"words": sizes["vocabulary"], "positions": sizes["positions"], "segments": kinds}
        names = {name: theirs for name, theirs in _TABLES.items() if tables.get(name, 1)}
        names |= {"projection": "embeddings_project"} if narrow != hidden else {}
        names |= {"stack": family.stack} | ({"pooler": "pooler.dense"} if has_pooler else {})
        super().__init__(
            names,
            family,
            "Model",
            config,
            sizes,
        )
        # From the successor of this id, padding left out; None counts them from 0.
        self.counts_from = sizes["pad"] if family_of(config) in COUNTS_FROM_PAD else None
        epsilon = family.epsilon or config["layer_norm_eps"]
        for name, rows in tables.items():
            if rows:
                self.put(name, _table(rows, narrow, sizes["pad"] if name == "words" else None))
        self.put("norm", nn.LayerNorm(narrow, eps=epsilon))
        self.dropout = nn.Dropout(shares.embeddings)
        if narrow != hidden:
            self.put("projection", nn.Linear(narrow, hidden))
        self.put(
            "stack", Stack([Layer(family, sizes, epsilon, shares) for _ in range(sizes["layers"])])
        )
        if has_pooler:
            self.put("pooler", nn.Linear(hidden, hidden))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        output_hidden_states: bool = False,
    ) -> SimpleNamespace:
        """Returns `last_hidden_state` (B, T, H) and `pooler_output` (B, H).

        Where asked, it also returns `hidden_states` as a tuple.
        """
        x = self.part("words")(input_ids)
        if "segments" in self.names:
            x = x + self.part("segments")(
                torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
            )
        x = self.dropout(self.part("norm")(x + self.part("positions")(self._places(input_ids))))
        if "projection" in self.names:
            x = self.part("projection")(x)
        mask = None
        # In training the CPU goes on: it would wait until a GPU is there.
        is_ahead = self.training and input_ids.is_cuda
        if attention_mask is not None and (is_ahead or not bool(attention_mask.all())):
            mask = attention_mask.bool()[:, None, None].expand(-1, -1, input_ids.shape[1], -1)
        encoded = self.part("stack")(
            x, mask, **({"keeps_all": True} if output_hidden_states else {})
        )
        has_pooler = "pooler" in self.names
        if has_pooler:
            pooled = torch.tanh(self.part("pooler")(encoded.last_hidden_state[:, 0]))
        else:
            pooled = None
        if output_hidden_states:
            states = encoded.hidden_states
        else:
            states = None
        return SimpleNamespace(
            last_hidden_state=encoded.last_hidden_state, pooler_output=pooled, hidden_states=states
        )

    def _places(self, ids: Tensor) -> Tensor:
        """Returns the positions (1 or B, T) of (B, T) tokens.

        RoBERTa counts those that are no padding, from its id.
        """
        if self.counts_from is None:
            return torch.arange(ids.shape[1], device=ids.device)[None]
        real = ids.ne(self.counts_from).int()
        return (torch.cumsum(real, dim=1).type_as(real) * real).long() + self.counts_from


class _DenseHead(nn.Module):
    """A hidden layer and one of answers, on the state of the first token."""

    def __init__(
        self, hidden: int, outputs: int, activation: Callable[[Tensor], Tensor], share: float
    ) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = nn.Dropout(share)
        self.dense = nn.Linear(hidden, hidden)
        self.out_proj = nn.Linear(hidden, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """Returns (B, C) of (B, T, H)."""
        logits: Tensor = self.out_proj(
            self.dropout(self.activation(self.dense(self.dropout(states[:, 0]))))
        )
        return logits


class Network(_Saved):
    """An encoder with a head; it gives what the network of transformers does, but no loss.

    Attributes:
        kind: the head's, as in the names of transformers' classes.
    """

    def __init__(
        self,
        encoder: Encoder,
        family: Family,
        sizes: Mapping[str, int],
        kind: str,
        outputs: int,
        share: float,
    ) -> None:
        hidden = sizes["hidden"]
        has_dense = family.is_beside and kind in OF_TEXTS

        # What each part is called in transformers, and so in saved weights.
        saved_names = {
            "encoder": family.encoder,
            "last": OF_TOKENS.get(kind, "classifier"),
        }
        if has_dense:
            saved_names["dense"] = "pre_classifier"
        super().__init__(
            saved_names,
            family,
            f"For{kind}",
            encoder.saved_config,
            sizes,
        )

        self.kind = kind
        self._activation = family.dense  # of the dense layer before the last one
        self.put("encoder", encoder)
        self.dropout = nn.Dropout(share)
        if has_dense:
            self.put("dense", nn.Linear(hidden, hidden))
        if family.dense is not None and family.has_dense_head(kind):
            self.put("last", _DenseHead(hidden, outputs, family.dense, share))
        else:
            self.put("last", nn.Linear(hidden, outputs))

    def forward(self, **inputs: Tensor) -> Outputs:
        """Returns `logits` (B, C).

        They are (B, T, C) of tags, (B, K) of the (B, K, T) ids of choices, and two (B, T) of
        questions.
        """
        choices = inputs["input_ids"].shape[1]
        if self.kind == "MultipleChoice":
            inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        encoded = self.part("encoder")(**inputs)
        if encoded.pooler_output is None:
            x = encoded.last_hidden_state
        else:
            x = encoded.pooler_output
        if "dense" in self.names and self._activation is not None:
            x = self._activation(self.part("dense")(x[:, 0]))
        logits = self.part("last")(
            x if isinstance(self.part("last"), _DenseHead) else self.dropout(x)
        )
        if self.kind == "QuestionAnswering":
            start, end = (tensor.squeeze(-1).contiguous() for tensor in logits.split(1, dim=-1))
            return Outputs(start_logits=start, end_logits=end)
        return Outputs(logits.view(-1, choices) if self.kind == "MultipleChoice" else logits)


def _table(rows: int, size: int, padding: int | None) -> nn.Embedding:
    """Returns a table whose weights are still to come.

    To draw them, torch would import its compiler.
    """
    from_pretrained: Any = nn.Embedding.from_pretrained
    table: nn.Embedding = from_pretrained(torch.empty(rows, size), padding_idx=padding)
    return table
