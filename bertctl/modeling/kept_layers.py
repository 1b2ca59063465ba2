"""A model that begins with some of another's layers (Sanh et al. 2019, DistilBERT).

Embeddings and head are kept, the layers that are named move together, and the rest is left out.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertctl.errors import UsageError
from bertctl.modeling.families import SIZES, family_of
from bertctl.modeling.layer_groups import layer_stacks
from bertctl.modeling.layers import layer_count

if TYPE_CHECKING:
    from torch import nn

    from bertctl.modeling.model import Model

_OF_EACH_LAYER = ("attention_window", "layer_types", "mlp_layer_types")
"""Fields of config.json that are lists with an entry per layer."""

_NUMBERS = ("layer_idx", "layer_id", "layer_number", "seed")
"""Attributes by which parts of a layer know the layer's number, counted from 0."""

_FIRST_IS_OTHER = {
    **dict.fromkeys(
        ("modernbert", "ultrabert"), "its first layer has no normalisation before the attention"
    ),
}
"""Families whose first layer is built in another way than the others, and how."""

_UNDIVIDED = {
    "esm": "a part of it reads the attention of all its layers",
    "esmc": "its layers weigh what they add by how many they are",
}
"""Families whose layers do not work without the others, and why."""

_COUNTS = ("n_layers", "num_layers", "num_hidden_layers")
"""Attributes in which an encoder keeps how many layers it has."""


def check_kept_layers(layers: Sequence[int], config: Mapping[str, Any], name: str) -> None:
    """Refuses layers that a model does not have, by its config.json alone.

    Args:
        layers: Numbers, counted from 1 at the bottom.
        config: Content of config.json, with all layers.
        name: Name of the model, for people.

    Raises:
        UsageError: Layers that are not there, or that can't be taken apart.
    """
    if int(config.get("num_hidden_groups") or 1) > 1:
        raise UsageError(
            f"model.keep_layers: the layers of '{name}' share their weights in groups, so which "
            "one is which changes with their number",
            remedy="Leave it out, or choose another model.",
        )
    reason = _UNDIVIDED.get(family_of(config))
    if reason is not None:
        raise UsageError(
            f"model.keep_layers: '{name}' can't be cut: {reason}",
            remedy="Leave it out, or choose another model.",
        )
    n_layers = layer_count(config)
    missing = [number for number in layers if number > n_layers]
    if missing:
        raise UsageError(
            f"model.keep_layers: '{name}' has {n_layers} layers and no layer {missing[0]}",
            remedy=f"Layers are counted from 1 at the bottom: 1 to {n_layers} fit.",
        )
    reason = _FIRST_IS_OTHER.get(family_of(config))
    if reason is not None and layers[0] != 1:
        raise UsageError(
            f"model.keep_layers: '{name}' can't begin with layer {layers[0]}: {reason}",
            remedy=f"Keep layer 1 as well: `model.keep_layers={[1, *layers]}`.",
        )


def kept_config(config: Mapping[str, Any], layers: Sequence[int]) -> dict[str, Any]:
    """Returns a model's config.json for some of its layers, counted from 1."""
    n_layers = layer_count(config)
    changed = dict(config)
    for field in SIZES["layers"]:
        if field in config:
            changed[field] = len(layers)
    for field in _OF_EACH_LAYER:
        values = config.get(field)
        if isinstance(values, list) and len(values) == n_layers:
            changed[field] = [values[number - 1] for number in layers]
    return changed


def select_layers(model: "Model", layers: Sequence[int]) -> None:
    """Removes all layers from a network but the named ones, in place.

    Args:
        model: A model with all its layers, on the CPU.
        layers: Numbers, counted from 1, ascending.

    Raises:
        UsageError: A network whose layers can't be told apart.
    """
    network: Any = model.network
    # ALBERT computes all layers with the same weights: fewer layers need only another config.
    if not hasattr(network.config, "num_hidden_groups"):
        _select_modules(network, layers)
    if hasattr(network, "saved_config"):
        _select_in_torch_bert(network, layers)
    else:
        _select_in_transformers(network, layers)
    names = {name for name, _ in network.named_parameters()}
    model.new_weights = tuple(name for name in model.new_weights if name in names)


def _select_modules(network: "nn.Module", layers: Sequence[int]) -> None:
    """Removes all layers from a network's lists but the named ones, in place.

    Modules may know the number of their layer, or how many layers there are. These attributes are
    changed as well.

    Args:
        network: A network with all its layers.
        layers: Numbers of the layers that are kept, counted from 1.
    """
    from torch import nn

    for name, stack in layer_stacks(network).items():
        selected = [stack[number - 1] for number in layers]
        for position, layer in enumerate(selected):
            for part in layer.modules():
                for attribute in _NUMBERS:
                    if isinstance(vars(part).get(attribute), int):
                        setattr(part, attribute, position)
        network.set_submodule(name, nn.ModuleList(selected))
    encoder: Any = network.base_model
    for part in encoder.modules():
        for attribute in _COUNTS:
            if isinstance(vars(part).get(attribute), int):
                setattr(part, attribute, len(layers))


def _select_in_torch_bert(network: Any, layers: Sequence[int]) -> None:
    """Changes the configs of a network of `torch_bert.py` to fewer layers, counted from 1."""
    for part in (network, network.base_model):
        part.saved_config = kept_config(part.saved_config, layers)
        part.config.num_hidden_layers = len(layers)
        for field in SIZES["layers"]:
            if hasattr(part.config, field):
                setattr(part.config, field, len(layers))


def _select_in_transformers(network: Any, layers: Sequence[int]) -> None:
    """Changes the configs of a network of transformers to fewer layers.

    Fields with a value per layer, such as `layer_types`, lose the values of the other layers.

    Args:
        network: The network, whose configs are changed in place.
        layers: Numbers of the layers that are kept, counted from 1 at the bottom.
    """
    # Modules share configs. Each config is changed once, or its lists would lose entries again.
    configs = {
        id(part.config): part.config for part in network.modules() if hasattr(part, "config")
    }
    for config in configs.values():
        n_layers = int(config.num_hidden_layers)
        for field in _OF_EACH_LAYER:
            values = getattr(config, field, None)
            if isinstance(values, list) and len(values) == n_layers:
                setattr(config, field, [values[number - 1] for number in layers])
        config.num_hidden_layers = len(layers)
