"""Choices of an encoder's layers, by name or by number, and the vectors that they give.

The names are those of google-research/bert, of the paper's table and of transformers.

A model with L layers has L + 1 hidden states: 0 is what comes out of the embeddings (token,
position and segment, normalised), k the output of the k-th layer, L the last. Letters: B texts, T
tokens, H hidden size, D size of a vector.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bertctl.errors import UsageError
from bertctl.words import command, unknown

if TYPE_CHECKING:
    from torch import Tensor

WORD_EMBEDDINGS = -1
"""In place of a hidden state: the row of the token table alone, without position and segment."""

Join = Literal["one", "sum", "concat", "weighted"]


def _named_layers(n_layers: int) -> dict[str, tuple[tuple[int, ...], Join]]:
    """Returns, for each name, the numbers of the hidden states and how they are joined."""
    last_four = tuple(range(max(1, n_layers - 3), n_layers + 1))
    all_layers = tuple(range(1, n_layers + 1))
    return {
        "word-embeddings": ((WORD_EMBEDDINGS,), "one"),
        "embeddings": ((0,), "one"),
        "last": ((n_layers,), "one"),
        "second-to-last": ((n_layers - 1,), "one"),
        "sum-last-4": (last_four, "sum"),
        "concat-last-4": (last_four, "concat"),
        "sum-all": (all_layers, "sum"),
        "weighted-last-4": (last_four, "weighted"),
        "weighted-all": (all_layers, "weighted"),
    }


NAMES = tuple(_named_layers(4))
"""What layers may be called, beside numbers."""

PAPER = ("embeddings", "second-to-last", "last", "weighted-last-4", "concat-last-4", "weighted-all")
"""The six choices of the paper (table 7): BERT read as features, for named entities."""


@dataclass(frozen=True)
class LayerChoice:
    """One way to make a token's vector from the hidden states.

    Attributes:
        name: Name in the request, or the number of the hidden state.
        states: Hidden states that are read; `WORD_EMBEDDINGS` for the token table.
        join: How they become one vector: `one` takes the only one, `sum` adds them, `concat` puts
            them one behind the other, and `weighted` is a mix that a probe learns.
    """

    name: str
    states: tuple[int, ...]
    join: Join

    @property
    def is_learned(self) -> bool:
        """Returns whether the vector exists only after training.

        That is once a probe has learned the weights of the mix.
        """
        return self.join == "weighted"

    def size(self, hidden: int) -> int:
        """Returns D, for hidden states of size H."""
        if self.join == "concat":
            return hidden * len(self.states)
        return hidden


def layer_count(config: Mapping[str, Any]) -> int:
    """Returns L, the number of layers by a model's config.json.

    Raises:
        UsageError: The config doesn't have the number, or describes an encoder and a decoder.
    """
    if config.get("is_encoder_decoder"):
        message = (
            f"'{config.get('model_type')}' is an encoder and a decoder, so a layer's number says "
            "nothing"
        )
        remedy = (
            "Fine-tune it without settings of layers, or give a plain encoder "
            f"(`{command('recipes ls', models=True)}`)."
        )
        raise UsageError(message, remedy=remedy)
    for name in ("num_hidden_layers", "n_layers", "n_layer", "num_layers"):
        if isinstance(config.get(name), int):
            return int(config[name])
    message = (
        f"config.json of this model ('{config.get('model_type', 'no type')}') does not give "
        "its number of layers"
    )
    raise UsageError(
        message, remedy=f"Give an encoder of the kinds in `{command('recipes ls', models=True)}`."
    )


def choose_layers(names: Sequence[str], n_layers: int) -> tuple[LayerChoice, ...]:
    """Returns the layers that were asked for, each once, in the order given.

    Args:
        names: Names of `NAMES`; or numbers: 0 the embeddings, 1 the first layer, -1 the last (as in
            `extract_features.py --layers` of google-research/bert); or `all` (every hidden state),
            or `paper` (its six choices).
        n_layers: L.

    Raises:
        UsageError: A layer that the model does not have (those it has are listed).
    """
    chosen: dict[str, LayerChoice] = {}
    for name in names:
        expanded: Sequence[str] = (name,)
        if name == "all":
            expanded = [str(layer) for layer in range(n_layers + 1)]
        elif name == "paper":
            expanded = PAPER
        for layer in expanded:
            chosen.setdefault(layer, _choice(layer, n_layers))
    if not chosen:
        raise UsageError("no layer is named", remedy=f"Layers: {_known(n_layers)}.")
    return tuple(chosen.values())


def _choice(name: str, n_layers: int) -> LayerChoice:
    """Returns the hidden states that a name or number stands for, and how they are joined.

    Of 12 layers, `12`, `-1` and `last` are the same state; 0 is the embeddings.

    Raises:
        UsageError: The model has no such layer.
    """
    if name.lstrip("-").isdecimal() and name.count("-") <= 1:
        number = int(name)
        if -n_layers <= number <= n_layers:
            state = number if number >= 0 else n_layers + 1 + number
            return LayerChoice(name, (state,), "one")
        raise UsageError(f"the model has no layer {name}", remedy=f"It has {_known(n_layers)}.")
    choices = _named_layers(n_layers)
    if name not in choices:
        raise UsageError(
            unknown("layer", name, (*NAMES, "all", "paper")), remedy=f"It has {_known(n_layers)}."
        )
    states, join = choices[name]
    if name.endswith("last-4") and n_layers < 4:
        message = f"'{name}' needs four layers, and the model has {n_layers}"
        raise UsageError(message, remedy=f"It has {_known(n_layers)}.")
    return LayerChoice(name, states, join)


def _known(n_layers: int) -> str:
    """Returns the numbers and names of layers that fit a model, for a message."""
    names = [name for name in NAMES if n_layers >= 4 or not name.endswith("last-4")]
    return (
        f"0 (embeddings) to {n_layers} (last), -1 to -{n_layers} counted from the end, "
        f"{', '.join(names)}"
    )


def states_needed(choices: Sequence[LayerChoice]) -> tuple[int, ...]:
    """Returns the hidden states that some choice reads, ascending."""
    states: set[int] = set()
    for choice in choices:
        states.update(choice.states)
    return tuple(sorted(states))


def read_states(
    forward: Callable[..., Any],
    table: Any,
    inputs: Mapping[str, "Tensor"],
    states: Sequence[int],
    n_layers: int,
) -> tuple[dict[int, "Tensor"], "Tensor | None"]:
    """Returns some hidden states of a bare encoder, from one forward pass.

    Args:
        forward: An AutoModel, in evaluation mode, or what computes as one.
        table: Word embeddings of the model.
        inputs: input_ids (B, T), and its other inputs.
        states: Numbers of the hidden states to return.
        n_layers: L.

    Returns:
        State -> (B, T, H), and the pooler's output (B, H) where the network has a pooler.
    """
    hidden_states: dict[int, Tensor] = {}
    if WORD_EMBEDDINGS in states:
        from torch.nn.functional import embedding

        # Calling I-BERT's embedding returns two tensors.
        hidden_states[WORD_EMBEDDINGS] = embedding(inputs["input_ids"], table.weight)
    if tuple(states) == (WORD_EMBEDDINGS,):
        return hidden_states, None
    # The last state is among the usual outputs, without keeping all others.
    needs_all_states = any(state not in (WORD_EMBEDDINGS, n_layers) for state in states)
    output = forward(**inputs, output_hidden_states=needs_all_states)
    for state in states:
        if state == n_layers:
            hidden_states[state] = output.last_hidden_state
        elif state != WORD_EMBEDDINGS:
            hidden_states[state] = output.hidden_states[state]
    return hidden_states, getattr(output, "pooler_output", None)


def join_states(choice: LayerChoice, states: Mapping[int, "Tensor"]) -> "Tensor":
    """Returns (B, T, D), the choice's vector of every token, from hidden states of (B, T, H).

    A mix that is still to be learned has no vector: its states are kept apart, (B, T, len(states) x
    H), one behind the other.
    """
    import torch

    chosen_states = [states[number] for number in choice.states]
    if choice.join == "one":
        return chosen_states[0]
    if choice.join == "sum":
        # In fp32: a sum of bf16 numbers would lose what the later ones add.
        return torch.stack([state.float() for state in chosen_states]).sum(dim=0)
    return torch.cat(chosen_states, dim=-1)
