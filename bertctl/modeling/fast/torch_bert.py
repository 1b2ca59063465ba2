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
"""Heads that read the state of each token, with the name of their last layer in transformers."""

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
    """Names in transformers of a family's modules and fields of config.json.

    A dropout's field comes with its default, the probability if config.json doesn't have the field.

    Attributes:
        encoder: Name of the encoder in a network with a head, such as `bert`.
        architecture: How the names of its classes begin, such as `Bert`.
        stack: Name of the module in the encoder that has the layers.
        of_layer: Names of the modules of a layer: here -> in transformers.
        dense: Activation of the hidden layer in the head of sequence classification; None if the
            pooler takes its place.
        is_beside: Whether that hidden layer is a module of the network, which multiple choice has
            as well. If not, it is in one module with the last layer.
        has_pooler: Whether its bare encoder may have a pooler.
        has_segments: Whether it has a table of token types.
        epsilon: Epsilon of its normalisations; None if config.json has it.
        activation: Field with the activation of a layer's feed-forward part.
        sizes: Fields with the sizes, in the order of `SIZES`.
        dropouts: Fields of the dropouts of the attention, of its output, of the feed-forward part
            and of the embeddings. None if the family has no such dropout.
        of_heads: Field of the head's dropout, by the kind of head. A default of None stands for the
            probability of the embeddings.
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
        """Returns the names of all fields of config.json with the probability of a dropout."""
        fields = (*self.dropouts, *self.of_heads.values())
        return {field[0] for field in fields if field is not None}

    def has_dense_head(self, kind: str) -> bool:
        """Returns whether the head has a hidden layer of its own, in a module with its last one."""
        return kind == "SequenceClassification" and self.dense is not None and not self.is_beside

    def reads_pooler(self, kind: str) -> bool:
        """Returns whether a head reads the pooler's outputs, not states of the last layer."""
        return kind in OF_TEXTS and not self.has_dense_head(kind) and not self.is_beside


def _roberta(architecture: str) -> Family:
    """Returns RoBERTa's family, or one like it with another name of its classes.

    Args:
        architecture: How the names of the classes in transformers begin, such as `Roberta`.
    """
    # The field of config.json with the head's dropout: the head for choices has another field.
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
    """Probabilities of a network's dropouts: shares of elements that are set to 0 in training."""

    attention: float = 0.0
    output: float = 0.0
    layer: float = 0.0
    embeddings: float = 0.0
    head: float = 0.0


@dataclass
class Outputs:
    """Outputs of a network: `logits`, or the two others in question answering."""

    logits: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None


class _Named(nn.Module):
    """A module whose submodules have transformers' names, and are looked up by names of bertctl.

    Args:
        names: Names of bertctl -> dotted names of transformers, such as
            `{"mixed": "attention.output.dense"}`.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self.names = names

    def put(self, ours: str, part: nn.Module) -> None:
        """Adds a submodule under its name in transformers, with empty modules on the way to it.

        Args:
            ours: Name of bertctl.
            part: The submodule. It replaces one that was added before.
        """
        *path, attribute = self.names[ours].split(".")
        parent: nn.Module = self
        for name in path:
            if not hasattr(parent, name):
                parent.add_module(name, nn.Module())
            parent = parent.get_submodule(name)
        parent.add_module(attribute, part)

    def part(self, ours: str) -> Any:
        """Returns the submodule that has a name of bertctl; LoRA may have replaced it."""
        return self.get_submodule(self.names[ours])


class Layer(_Named):
    """A layer of an encoder (Devlin et al. 2019, section 3).

    Attributes:
        heads: A.
        epsilon: Epsilon of both normalisations.
        dropouts: Dropouts of the attention, of its output and of the feed-forward part. Only their
            probabilities are read, the modules are not called.
        attend: Computes the attention; takes the arguments of torch's own function.
        activation: Activation of the feed-forward part.
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
        """Returns (B, T, H) states after the layer, whose attention has A heads.

        Args:
            x: (B, T, H) states before it.
            mask: (B, 1, T, T), true where a token attends to another; None if all attend to all.
        """
        split = (*x.shape[:2], self.heads, -1)  # (B, T, A, H / A)
        q, k, v = (
            self.part(name)(x).view(split).transpose(1, 2) for name in ("query", "key", "value")
        )
        of_attention, of_output, of_layer = (dropout.p for dropout in self.dropouts)
        attention_options = {
            "attn_mask": mask,
            "dropout_p": of_attention if self.training else 0.0,
            "scale": q.shape[-1] ** -0.5,
        }
        attended = self.attend(q, k, v, **attention_options)
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
        """Returns `last_hidden_state` (B, T, H), and with `keeps_all` all `hidden_states`.

        Args:
            x: (B, T, H) states before the first layer.
            mask: (B, 1, T, T), true where a token attends to another; None if all attend to all.
            keeps_all: Whether the states before the first layer and after each one are returned.
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
    """A network that is saved as the one of transformers, and has the same attributes.

    Attributes:
        architecture: Name of its class in transformers.
        saved_config: Content of config.json.
        config: Its fields as attributes. In each family `hidden_size` is H and `num_hidden_layers`
            the number of layers, as in BERT's.
        base_model_prefix: Name of the encoder in a network with a head.
        has_segments: Whether token type ids mean first and second sentence to it.
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
        # Some families call these sizes otherwise in config.json.
        sizes_as_bert = {"hidden_size": sizes["hidden"], "num_hidden_layers": sizes["layers"]}
        self.config = SimpleNamespace(**{**config, **sizes_as_bert})
        self.has_segments = family.has_segments and config["type_vocab_size"] > 1

    @property
    def base_model(self) -> nn.Module:
        """Encoder."""
        return getattr(self, self.base_model_prefix, self)

    def get_input_embeddings(self) -> nn.Module:
        """Returns the token table."""
        return self.base_model.get_submodule(_TABLES["words"])

    def get_output_embeddings(self) -> None:
        """Returns None: no head of these networks predicts words."""

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
        """Builds the modules, without weights.

        Args:
            family: Family of the model.
            config: Content of its config.json.
            sizes: The sizes in it, and `pad`, the id of the padding token.
            shares: Probabilities of the dropouts.
            has_pooler: Whether it has a pooler, which reads the first token.
        """
        hidden = sizes["hidden"]
        # ELECTRA's embeddings may be narrower than its layers, and are then projected.
        embedding_size = hidden
        if family.encoder == "electra":
            embedding_size = config["embedding_size"]
        is_projected = embedding_size != hidden

        rows_by_table = {"words": sizes["vocabulary"], "positions": sizes["positions"]}
        if family.has_segments:
            rows_by_table["segments"] = config["type_vocab_size"]
        names = {name: _TABLES[name] for name in (*rows_by_table, "norm")}
        names["stack"] = family.stack
        if is_projected:
            names["projection"] = "embeddings_project"
        if has_pooler:
            names["pooler"] = "pooler.dense"
        super().__init__(
            names,
            family,
            "Model",
            config,
            sizes,
        )
        # Positions are counted from this id + 1, padding left out; None counts all tokens from 0.
        self.counts_from = sizes["pad"] if family_of(config) in COUNTS_FROM_PAD else None
        epsilon = family.epsilon or config["layer_norm_eps"]
        for name, n_rows in rows_by_table.items():
            padding = sizes["pad"] if name == "words" else None
            self.put(name, _table(n_rows, embedding_size, padding))
        self.put("norm", nn.LayerNorm(embedding_size, eps=epsilon))
        self.dropout = nn.Dropout(shares.embeddings)
        if is_projected:
            self.put("projection", nn.Linear(embedding_size, hidden))
        layers = [Layer(family, sizes, epsilon, shares) for _ in range(sizes["layers"])]
        self.put("stack", Stack(layers))
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
        """Returns `last_hidden_state` (B, T, H) and `pooler_output` (B, H), None without a pooler.

        Args:
            input_ids: (B, T) tokens.
            attention_mask: (B, T), 0 for padding; None without any.
            token_type_ids: (B, T), 1 in the second sentence; None if there is only one.
            output_hidden_states: Whether `hidden_states` are returned as well: a tuple of (B, T, H)
                before the first layer and after each one.
        """
        x = self.part("words")(input_ids)
        if "segments" in self.names:
            if token_type_ids is None:
                token_type_ids = torch.zeros_like(input_ids)
            x = x + self.part("segments")(token_type_ids)
        x = self.dropout(self.part("norm")(x + self.part("positions")(self._places(input_ids))))
        if "projection" in self.names:
            x = self.part("projection")(x)
        mask = None
        # Attention is quicker without a mask, so a mask without padding is left out. In training on
        # a GPU, any mask is passed: to look at it, the CPU would have to wait for the GPU.
        is_ahead_of_gpu = self.training and input_ids.is_cuda
        if attention_mask is not None and (is_ahead_of_gpu or not bool(attention_mask.all())):
            mask = attention_mask.bool()[:, None, None].expand(-1, -1, input_ids.shape[1], -1)
        # Passed only if it is needed: what takes the place of `Stack.forward` need not know it.
        stack_options = {"keeps_all": True} if output_hidden_states else {}
        encoded = self.part("stack")(x, mask, **stack_options)
        pooled = None
        if "pooler" in self.names:
            pooled = torch.tanh(self.part("pooler")(encoded.last_hidden_state[:, 0]))
        states = None
        if output_hidden_states:
            states = encoded.hidden_states
        return SimpleNamespace(
            last_hidden_state=encoded.last_hidden_state, pooler_output=pooled, hidden_states=states
        )

    def _places(self, ids: Tensor) -> Tensor:
        """Returns the positions of (B, T) tokens in the position table: (1, T), or (B, T).

        BERT counts all tokens from 0. RoBERTa counts the real ones from its padding id + 1, and
        gives padding the position of that id.
        """
        if self.counts_from is None:
            return torch.arange(ids.shape[1], device=ids.device)[None]
        is_real = ids.ne(self.counts_from).int()
        number_in_text = torch.cumsum(is_real, dim=1).type_as(is_real) * is_real
        return number_in_text.long() + self.counts_from


class _DenseHead(nn.Module):
    """A head of two linear layers on the state of the first token, as RoBERTa's and ELECTRA's."""

    def __init__(
        self, hidden: int, outputs: int, activation: Callable[[Tensor], Tensor], share: float
    ) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = nn.Dropout(share)
        self.dense = nn.Linear(hidden, hidden)
        self.out_proj = nn.Linear(hidden, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """Returns (B, C) logits of (B, T, H) states."""
        logits: Tensor = self.out_proj(
            self.dropout(self.activation(self.dense(self.dropout(states[:, 0]))))
        )
        return logits


class Network(_Saved):
    """An encoder with a head; it returns the outputs of transformers' network, but no loss.

    Args:
        encoder: Without weights, as all modules here.
        family: Family of the encoder.
        sizes: The sizes in config.json.
        kind: Kind of the head, as in the names of transformers' classes: `SequenceClassification`.
        outputs: C.
        share: Probability of the head's dropout.

    Attributes:
        kind: The same.
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
        # A family has the hidden layer of its head as a module beside the last layer, or both
        # together in a `_DenseHead`, or the pooler in its place.
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
        """Returns `logits`: (B, C), or (B, T, C) for tags, or (B, K) for K choices.

        For questions it returns `start_logits` and `end_logits`, both (B, T).

        Args:
            **inputs: Inputs of the encoder, (B, T), or (B, K, T) for choices.
        """
        choices = inputs["input_ids"].shape[1]  # K; read for choices only
        if self.kind == "MultipleChoice":
            inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        encoded = self.part("encoder")(**inputs)
        if encoded.pooler_output is None:
            x = encoded.last_hidden_state
        else:
            x = encoded.pooler_output
        if "dense" in self.names and self._activation is not None:
            x = self._activation(self.part("dense")(x[:, 0]))
        last = self.part("last")
        # A `_DenseHead` has a dropout of its own.
        if not isinstance(last, _DenseHead):
            x = self.dropout(x)
        logits = last(x)
        if self.kind == "QuestionAnswering":
            start, end = (tensor.squeeze(-1).contiguous() for tensor in logits.split(1, dim=-1))
            return Outputs(start_logits=start, end_logits=end)
        if self.kind == "MultipleChoice":
            logits = logits.view(-1, choices)
        return Outputs(logits)


def _table(rows: int, size: int, padding: int | None) -> nn.Embedding:
    """Returns an embedding table whose weights are still to be filled in.

    `nn.Embedding` would draw random ones, for which torch imports its compiler.

    Args:
        rows: Number of rows.
        size: Numbers of a row.
        padding: Row that gets no gradient; None for none.
    """
    from_pretrained: Any = nn.Embedding.from_pretrained
    table: nn.Embedding = from_pretrained(torch.empty(rows, size), padding_idx=padding)
    return table
