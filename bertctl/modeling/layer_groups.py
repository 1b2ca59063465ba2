"""Depths of a network's parameters, and what a recipe does to layers: freeze, initialise anew.

Depth 0 is the embeddings, 1 to L are the layers from the bottom, L + 1 is the head and the pooler
that it reads through.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bertctl.config.recipe_sections import TrainingSection
from bertctl.errors import UsageError
from bertctl.modeling.families import PARTS_APART
from bertctl.modeling.transformers_internals import initialise

if TYPE_CHECKING:
    from torch import nn


def parameter_depths(network: "nn.Module") -> dict[str, int]:
    """Returns the depth of each parameter by name, in the network's order.

    A layer's parameters have its number, from 1. The parameters of the encoder before the layers
    are embeddings, and so are later ones with embeddings in their name (MPNet: relative positions).
    The pooler, other parameters after the layers, and what is no part of the encoder are L + 1.

    Raises:
        UsageError: A network whose layers can't be told apart, such as ALBERT's, which share their
            weights.
    """
    stacks = layer_stacks(network)
    prefix = _prefix(network)
    n_layers = len(next(iter(stacks.values())))
    depth_of_head = n_layers + 1
    parts_apart = PARTS_APART.get(str(getattr(network.config, "model_type", "")), {})
    depths: dict[str, int] = {}
    is_after_layers = False
    for name, _ in network.named_parameters():
        layer = _layer_of(name, stacks)
        if layer is not None:
            is_after_layers = True
            depths[name] = layer
        elif name.startswith(prefix):
            depths[name] = _depth_outside_layers(
                name.removeprefix(prefix),
                parts_apart,
                depth_of_head,
                is_after_layers=is_after_layers,
            )
        else:
            depths[name] = depth_of_head
    return depths


def _layer_of(parameter: str, stacks: "Mapping[str, nn.ModuleList]") -> int | None:
    """Returns the number of the layer that a parameter belongs to, from 1; None outside of layers.

    Args:
        parameter: Name of the parameter in the network, such as
            `bert.encoder.layer.3.output.dense.weight`.
        stacks: Lists of layers by name, such as `bert.encoder.layer`.
    """
    for stack in stacks:
        if parameter.startswith(f"{stack}."):
            index, _, _ = parameter.removeprefix(f"{stack}.").partition(".")
            return int(index) + 1
    return None


def _depth_outside_layers(
    name: str, parts_apart: Mapping[str, int], depth_of_head: int, *, is_after_layers: bool
) -> int:
    """Returns the depth of an encoder's parameter that belongs to none of its layers.

    Args:
        name: Name of the parameter in the encoder.
        parts_apart: Exceptions of the network's family: depths by the beginning of the name.
        depth_of_head: L + 1.
        is_after_layers: Whether layers come before it in the network's order.
    """
    for part, depth in parts_apart.items():
        if name.startswith(part):
            # -1 in `PARTS_APART` means L + 1.
            return depth_of_head if depth == -1 else depth
    if "pooler" in name:
        return depth_of_head
    is_embedding = "embed" in name or "relative" in name
    if is_after_layers and not is_embedding:
        return depth_of_head
    return 0


def reinitialise(network: "nn.Module", n_top: int) -> None:
    """Initialises the pooler and the `n_top` highest layers anew, in place.

    The weights are drawn as the model's family does it, from torch's generator.

    Args:
        network: A model of transformers; its head is left alone.
        n_top: How many layers; 0 means the pooler alone, where the model has one.

    Raises:
        UsageError: A network whose layers can't be told apart.
    """
    encoder: Any = network.base_model
    modules: list[nn.Module] = []
    if n_top:
        for stack in layer_stacks(network).values():
            modules += list(stack)[-n_top:]
    pooler = getattr(encoder, "pooler", None)
    if pooler is not None:
        modules.append(pooler)
    for module in modules:
        # Submodules before the module that contains them, as transformers does it.
        for part in reversed(list(module.modules())):
            initialise(network, part)


def reinitialised(network: "nn.Module", n_top: int) -> set[str]:
    """Returns the names of the weights that `reinitialise` draws anew.

    They are those of the pooler and of the `n_top` highest layers.
    """
    from bertctl.modeling.heads import head_test

    is_head = head_test(network)
    # Without layers, their depths are not needed, and may not be known (ALBERT).
    depths = parameter_depths(network) if n_top else {}
    depth_of_head = max(depths.values(), default=0)
    top_depths = range(depth_of_head - n_top, depth_of_head)
    names = set()
    for name, _ in network.named_parameters():
        is_in_top_layer = depths.get(name) in top_depths
        if not is_head(name) and ("pooler" in name or is_in_top_layer):
            names.add(name)
    return names


def freeze(network: "nn.Module", training: TrainingSection) -> None:
    """Freezes the embeddings and the lower layers, as the recipe says.

    Their parameters need no gradient afterwards. Gradual unfreezing freezes nothing more here
    (`Unfreezing` does that in each epoch), but needs a head, which is checked here.

    Args:
        network: Changed in place.
        training: The recipe's fields.

    Raises:
        UsageError: A network without a head has nothing that is trained from the first epoch on.
    """
    from bertctl.modeling.heads import head_test

    is_gradual = training.gradual_unfreezing
    if not (training.freeze_embeddings or training.freeze_layers or is_gradual):
        return
    depths = parameter_depths(network)
    lowest_frozen = 0 if training.freeze_embeddings else 1
    for name, parameter in network.named_parameters():
        if lowest_frozen <= depths[name] <= training.freeze_layers:
            parameter.requires_grad_(False)

    has_head = any(map(head_test(network), depths))
    # Gradual unfreezing begins with the head alone, so a network without one trains nothing.
    if not has_head and (is_gradual or not _trains_vectors(network)):
        message = (
            "this model's vectors come from its layers alone: it has no head that could be trained "
            "while these are not"
        )
        field = "gradual_unfreezing" if is_gradual else "freeze_embeddings"
        remedy = (
            f"Add one with `sentence_embeddings.projection=256`, or leave training.{field} out."
        )
        raise UsageError(message, remedy=remedy)


def _trains_vectors(network: "nn.Module") -> bool:
    """Returns whether any weight is trained that the vectors of a headless network depend on.

    The vectors are made of token states, so the pooler is no part of them.
    """
    return any(
        weight.requires_grad and "pooler" not in name for name, weight in network.named_parameters()
    )


def layer_stacks(network: "nn.Module") -> "dict[str, nn.ModuleList]":
    """Returns the list of the encoder's layers by its name in the network.

    It is the first list with as many modules as the config has layers. XLM has a list for each part
    of its layers, side by side in one module; all of them are returned.

    Raises:
        UsageError: No list has as many modules, or the layers share their weights.
    """
    from torch import nn

    config = network.config
    n_layers = int(getattr(config, "num_hidden_layers", 0))
    encoder: Any = network.base_model
    stacks: dict[str, nn.ModuleList] = {}
    parent_of_stacks = None
    # ALBERT's groups share weights.
    if isinstance(encoder, nn.Module) and not hasattr(config, "num_hidden_groups"):
        for name, module in encoder.named_modules(prefix=_prefix(network).rstrip(".")):
            parent, _, _ = name.rpartition(".")
            is_stack = isinstance(module, nn.ModuleList) and len(module) == n_layers
            if is_stack and parent_of_stacks in (None, parent):
                stacks[name] = module
                parent_of_stacks = parent
    if stacks:
        return stacks
    message = f"the {n_layers} layers of this {type(network).__name__} can't be distinguished"
    raise UsageError(
        message, remedy="Leave out what the recipe says about layers, or choose another model."
    )


def _prefix(network: "nn.Module") -> str:
    """Returns how the names of the encoder's parameters begin, such as `bert.`.

    Empty for a bare encoder, which is the whole network.
    """
    prefix = str(network.base_model_prefix)
    if hasattr(network, prefix):
        return f"{prefix}."
    return ""
