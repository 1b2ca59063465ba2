"""Which part of a network a parameter belongs to.

It is the embeddings, one of the layers, or what stands above them.

Depth 0 is the embeddings, 1 to L the layers from the bottom, L + 1 the head and what it reads
through (the pooler).
"""

from typing import TYPE_CHECKING, Any

from bertctl.config.recipe_sections import TrainingSection
from bertctl.errors import UsageError
from bertctl.modeling.families import PARTS_APART
from bertctl.modeling.transformers_internals import initialise

if TYPE_CHECKING:
    from torch import nn


def parameter_depths(network: "nn.Module") -> dict[str, int]:
    """Returns the depth of each parameter by name, in the network's order.

    What comes before the layers, or has embeddings (MPNet: relative positions) in its name, is
    depth 0; what comes after them, the pooler, and what is no part of the encoder, is L + 1.

    Raises:
        UsageError: a network whose layers can't be told apart, such as ALBERT's, which share their
            weights.
    """
    stacks = layer_stacks(network)
    prefix = _prefix(network)
    count = len(next(iter(stacks.values())))
    depths: dict[str, int] = {}
    above = False
    parts_apart = PARTS_APART.get(str(getattr(network.config, "model_type", "")), {})
    for name, _ in network.named_parameters():
        stack = next(
            (f"{stack_name}." for stack_name in stacks if name.startswith(f"{stack_name}.")), None
        )
        rest = name.removeprefix(prefix)
        is_in_encoder = name.startswith(prefix)
        if stack is not None:
            above = True
            depths[name] = int(name.removeprefix(stack).partition(".")[0]) + 1
        elif apart := [
            depth for part, depth in parts_apart.items() if is_in_encoder and rest.startswith(part)
        ]:
            depths[name] = apart[0] % (count + 2)
        elif (
            is_in_encoder
            and "pooler" not in rest
            and (not above or "embed" in rest or "relative" in rest)
        ):
            depths[name] = 0
        else:
            depths[name] = count + 1
    return depths


def reinitialise(network: "nn.Module", n_top: int) -> None:
    """Initialises the pooler and the `n_top` highest layers anew, in place.

    It draws as the model's family does, from torch's generator.

    Args:
        network: a model of transformers; its head is left alone.
        n_top: how many layers; 0 means the pooler alone, where there is one.

    Raises:
        UsageError: a network whose layers can't be told apart.
    """
    encoder: Any = network.base_model
    modules: list[nn.Module] = []
    if n_top:
        for stack in layer_stacks(network).values():
            modules += [*stack][-n_top:]
    pooler = getattr(encoder, "pooler", None)
    if pooler is not None:
        modules.append(pooler)
    for module in modules:
        # Parts before the whole, as transformers does it.
        for part in reversed([*module.modules()]):
            initialise(network, part)


def reinitialised(network: "nn.Module", n_top: int) -> set[str]:
    """Returns the names of the weights that `reinitialise` draws anew."""
    from bertctl.modeling.heads import head_test

    is_head = head_test(network)
    depths = {} if not n_top else parameter_depths(network)
    head = max(depths.values(), default=0)
    return {
        name
        for name, _ in network.named_parameters()
        if not is_head(name) and ("pooler" in name or head - n_top <= depths.get(name, -1) < head)
    }


def freeze(network: "nn.Module", training: TrainingSection) -> None:
    """Takes the embeddings and the lower layers out of training, as the recipe says.

    Raises:
        UsageError: nothing is left that is trained from the first epoch on, of a network without a
            head.
    """
    from bertctl.modeling.heads import head_test

    gradual = training.gradual_unfreezing
    if not (training.freeze_embeddings or training.freeze_layers or gradual):
        return
    lowest = 0 if training.freeze_embeddings else 1
    depths = parameter_depths(network)
    is_head = head_test(network)
    for name, parameter in network.named_parameters():
        if lowest <= depths[name] <= training.freeze_layers:
            parameter.requires_grad_(False)
    # A pooler alone is no part of a text's vector.
    trained_from_start = [
        name
        for name, weight in network.named_parameters()
        if weight.requires_grad and not (gradual or "pooler" in name)
    ]
    if not (trained_from_start or any(map(is_head, depths))):
        message = (
            "this model's vectors come from its layers alone: it has no head that could be trained "
            "while these are not"
        )
        remedy = "Add one with `sentence_embeddings.projection=256`, or leave training.{} out."
        raise UsageError(
            message, remedy=remedy.format("gradual_unfreezing" if gradual else "freeze_embeddings")
        )


def layer_stacks(network: "nn.Module") -> "dict[str, nn.ModuleList]":
    """Returns the encoder's layers by name: the list that has as many as the config says.

    XLM keeps the parts of its layers in lists beside each other; all of them are returned.

    Raises:
        UsageError: there is none.
    """
    from torch import nn

    config = network.config
    count = int(getattr(network.config, "num_hidden_layers", 0))
    encoder: Any = network.base_model
    stacks: dict[str, nn.ModuleList] = {}
    # ALBERT's groups share weights.
    if isinstance(encoder, nn.Module) and not hasattr(config, "num_hidden_groups"):
        for name, module in encoder.named_modules(prefix=_prefix(network).rstrip(".")):
            beside = not stacks or name.rpartition(".")[0] == next(iter(stacks)).rpartition(".")[0]
            if isinstance(module, nn.ModuleList) and len(module) == count and beside:
                stacks[name] = module
    if stacks:
        return stacks
    message = f"the {count} layers of this {type(network).__name__} can't be distinguished"
    raise UsageError(
        message, remedy="Leave out what the recipe says about layers, or choose another model."
    )


def _prefix(network: "nn.Module") -> str:
    """Returns how the names of the encoder's parameters begin.

    They begin with nothing where the network is a bare one.
    """
    prefix = str(network.base_model_prefix)
    if hasattr(network, prefix):
        return f"{prefix}."
    return ""
