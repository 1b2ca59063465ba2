"""The encoder of a BERT in a training step on a CPU.

Each layer is one autograd function over the tokens of the batch (`packed_layer.py`).

The library's layers also compute padding, convert weights and hidden states to bf16 for each
product, and draw a random number per element by `bernoulli_`, in one thread. Here the tokens of a
batch lie one after the other without padding, a layer converts each tensor once and saves it for
its backward pass, and a random 64-bit number serves four elements.

Letters: B windows, T tokens of the longest, N tokens of all windows (in bf16 rounded up), C numbers
of a hidden state, H heads, F numbers of the feed-forward part, R ranks of a LoRA update.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertctl.modeling.families import BERT_LAYER, DISTILBERT_LAYER, LOOKS_BACK
from bertctl.modeling.fast.dropout_masks import dropout_in_training
from bertctl.modeling.fast.packed_attention import Looks, first_tokens, pack
from bertctl.modeling.fast.packed_layer import LayerSettings, LayerWeights, compute_layer
from bertctl.modeling.fast.torch_bert import OF_TEXTS, Layer, Network, Stack
from bertctl.modeling.lora import LoraLayer
from bertctl.modeling.transformers_internals import configured_attention
from bertctl.runtime.device import Compute

_LIKE_BERT = ("BertLayer", "RobertaLayer", "XLMRobertaLayer", "CamembertLayer", "ElectraLayer")
# oneDNN makes code for each shape of a bf16 product, which takes 25 ms (AMX) in the first step with
# a new number of tokens. So the number is rounded up: to a multiple of 32 up to 512 tokens, to one
# of 64 above.
_FEW_TOKENS = 512
_MULTIPLE_OF_FEW = 32
_MULTIPLE_OF_MANY = 64


def use_packed_encoder(network: nn.Module, compute: Compute) -> bool:
    """Makes the encoder of a network compute its training steps over packed tokens, if it can.

    Weights, their names, evaluation and saved files stay the library's.

    Args:
        network: A network of transformers, one that contains such a network, or one of
            `torch_bert.py`. Changed in place.
        compute: Where it is trained, and in which precision.

    Returns:
        Whether the network was changed. It is not on a GPU, in fp16, or if its layers are of
        another kind than BERT's or DistilBERT's.
    """
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}.get(compute.precision)
    if compute.device != "cpu" or dtype is None or not _is_usual(network.config):
        return False
    for encoder in network.modules():
        layers = _read_layers(encoder, dtype)
        if layers:
            encoder.forward = _in_training(encoder, layers, _reads_first_tokens(network))
            _use_fast_dropout(network)
            return True
    return False


def _use_fast_dropout(network: nn.Module) -> None:
    """Makes all dropouts of a network draw their masks as the packed layers do.

    This matters for those of the embeddings and the head. The dropouts of the layers are not called
    in training: a layer only reads their probabilities.
    """
    for module in network.modules():
        if type(module) is nn.Dropout:
            forward: Any = dropout_in_training(module)
            module.forward = forward  # type: ignore[method-assign]


def _is_usual(config: Any) -> bool:
    """Returns whether the packed encoder can compute a network with this config.

    Each token must look at all others, by torch's own attention. The head must not read a state
    where padding may stand, which ELECTRA's `summary_type` can ask for.
    """
    looks_back = any(getattr(config, name, None) for name in LOOKS_BACK)
    attention = configured_attention(config)
    summary = getattr(config, "summary_type", None)
    return not looks_back and attention in (None, "sdpa") and summary in (None, "first")


def _read_layers(encoder: Any, dtype: torch.dtype) -> list[LayerWeights]:
    """Returns the settings and weights of all layers of a module, from the first to the last.

    Empty if the module has no layers, or one that the packed encoder can't compute.
    """
    layers = []
    for module in getattr(encoder, "layer", ()):
        layer = _read_layer(module, dtype)
        if layer is None:
            return []
        layers.append(layer)
    return layers


def _read_layer(layer: Any, dtype: torch.dtype) -> LayerWeights | None:
    """Returns the settings and the weights of a layer of BERT's or DistilBERT's kind.

    None for a layer of another kind, one whose activation is not gelu, one that recomputes its
    activations, and one with modules that `packed_layer.py` doesn't compute.

    Args:
        layer: A module of transformers, or a `torch_bert.Layer`.
        dtype: Dtype of its matrix products.
    """
    kind = type(layer).__name__
    if isinstance(layer, Layer):
        parts = [layer.part(name) for name in layer.names]
        dropouts = layer.dropouts
        heads = layer.heads
        epsilons = (layer.epsilon, layer.epsilon)
        has_gelu = True
    elif kind in _LIKE_BERT:
        parts = [layer.get_submodule(name) for name in BERT_LAYER.values()]
        inner = layer.attention.self
        dropouts = inner.dropout, layer.attention.output.dropout, layer.output.dropout
        heads = inner.num_attention_heads
        epsilons = _epsilons(parts)
        has_gelu = _is_gelu(layer.intermediate.intermediate_act_fn)
    elif kind == "TransformerBlock":
        parts = [layer.get_submodule(name) for name in DISTILBERT_LAYER.values()]
        inner = layer.attention
        dropouts = inner.dropout, nn.Dropout(0.0), layer.ffn.dropout
        heads = inner.n_heads
        epsilons = _epsilons(parts)
        has_gelu = _is_gelu(layer.ffn.activation)
    else:
        return None
    is_recomputed = bool(getattr(layer, "gradient_checkpointing", False))
    if not has_gelu or is_recomputed or not all(map(_is_plain, parts)):
        return None

    updates = [part for part in parts if isinstance(part, LoraLayer)]
    scaling = updates[0].scaling if updates else 1.0
    weights: list[Tensor] = []
    for part in parts:
        weights += [part.weight, part.bias]
    return LayerWeights(
        settings=LayerSettings(heads, epsilons, dropouts, dtype, scaling),
        weights=weights,
        adapters=_adapters(parts) if updates else (),
    )


def _epsilons(parts: Sequence[Any]) -> tuple[float, float]:
    """Returns the epsilons of a layer's two LayerNorms, that of the attention first.

    An epsilon is 0 for a part that is no LayerNorm; the caller refuses such a layer afterwards.
    """
    # In the order of BERT_LAYER, the LayerNorms are the parts 4 and 7.
    of_attention = float(getattr(parts[4], "eps", 0.0))
    of_output = float(getattr(parts[7], "eps", 0.0))
    return of_attention, of_output


def _is_gelu(activation: Any) -> bool:
    return type(activation).__name__ == "GELUActivation"


def _is_plain(part: Any) -> bool:
    """Returns whether `packed_layer.py` computes what this module of a layer does."""
    if isinstance(part, LoraLayer):
        return part.is_plain_update
    # A subclass may compute something else.
    return type(part) in (nn.Linear, nn.LayerNorm)


def _adapters(parts: Sequence[Any]) -> list[Tensor | None]:
    """Returns two LoRA matrices for each linear layer of `parts`, None and None without an update.

    Args:
        parts: Linear layers and normalisations of a layer, in the order of `BERT_LAYER`.
    """
    adapters: list[Tensor | None] = []
    for part in parts:
        if isinstance(part, LoraLayer):
            adapters += [part.lora_A, part.lora_B]
        elif not isinstance(part, nn.LayerNorm):
            adapters += [None, None]
    return adapters


def _reads_first_tokens(network: nn.Module) -> bool:
    """Returns whether the head of a network reads only the first token of each window.

    The architecture's name says so, such as `BertForSequenceClassification`.
    """
    if isinstance(network, Network):
        name = network.architecture
    else:
        name = type(network).__name__
    return name.endswith(tuple(f"For{kind}" for kind in OF_TEXTS))


def _in_training(
    encoder: Any, layers: Sequence[LayerWeights], reads_firsts: bool
) -> Callable[..., Any]:
    """Returns the encoder's new forward pass: over packed tokens in training, else the old one.

    Args:
        encoder: Module whose `forward` is replaced.
        layers: Settings and weights of the encoder's layers.
        reads_firsts: Whether the head reads only the states of first tokens. The states of all
            other tokens are then 0.
    """
    plain = encoder.forward
    outputs = _outputs_of(encoder)

    def forward(
        hidden_states: Tensor, attention_mask: Tensor | None = None, *rest: Any, **more: Any
    ) -> Any:
        """Returns (B, T, C) states of the last layer, of (B, T, C) embeddings and their mask."""
        if not encoder.training:
            return plain(hidden_states, attention_mask, *rest, **more)

        positions, blocks = pack(hidden_states, attention_mask)
        flat = hidden_states.flatten(0, 1)
        x = flat.index_select(0, positions).float()
        computes_in_bf16 = layers[0].settings.dtype is torch.bfloat16
        if computes_in_bf16:
            # For each new number of rows, oneDNN takes time to make code for its bf16 products.
            # Rounded up, batches have few different numbers.
            multiple = _MULTIPLE_OF_MANY if len(x) > _FEW_TOKENS else _MULTIPLE_OF_FEW
            n_added = -len(x) % multiple
            # The added rows belong to no window, and give no gradient.
            x = functional.pad(x, (0, 0, 0, n_added))

        # In each layer all tokens of a window look at all of it.
        looks: Looks = list(zip(blocks, blocks, strict=True))
        # The last layer computes only the first tokens if the head reads no others and each window
        # has one: `selected` are their rows in x.
        last_looks = looks
        selected = None
        if reads_firsts:
            looks_and_rows = first_tokens(positions, hidden_states.shape[1], blocks)
            if looks_and_rows is not None:
                last_looks, selected = looks_and_rows

        # The layers convert to bf16 themselves.
        with torch.autocast("cpu", enabled=False):
            for layer in layers[:-1]:
                x = compute_layer(
                    x,
                    layer.settings,
                    looks,
                    None,
                    *layer.weights,
                    *layer.adapters,
                )
            last_layer = layers[-1]
            x = compute_layer(
                x,
                last_layer.settings,
                last_looks,
                selected,
                *last_layer.weights,
                *last_layer.adapters,
            )

        if selected is not None:
            positions = positions[selected]
        # Back to (B, T, C), without the rows that were added for bf16.
        padded = (
            x.new_zeros(flat.shape)
            .index_copy(0, positions, x[: len(positions)])
            .view(hidden_states.shape)
        )
        return outputs(last_hidden_state=padded)

    return forward


def _outputs_of(encoder: Any) -> Any:
    """Returns the class of an encoder's outputs, which takes `last_hidden_state`."""
    if isinstance(encoder, Stack):
        return SimpleNamespace
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

    return BaseModelOutputWithPastAndCrossAttentions
