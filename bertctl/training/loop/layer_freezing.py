"""Freezing and gradual unfreezing of layers.

It also checks the recipe fields that treat layers apart.

Each is a recipe field, off by default; the field's docstring says where it comes from.
"""

import math
from typing import TYPE_CHECKING

from bertctl.config.recipe_sections import TrainingSection
from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.modeling.layers import layer_count
from bertctl.modeling.source import ModelSource
from bertctl.words import count as counted

if TYPE_CHECKING:
    from torch import nn


def check_layers(recipe: Recipe, source: ModelSource) -> None:
    """Refuses fields about layers that the model can't do, by its config.json, without torch.

    Raises:
        UsageError: The layers share their weights, are fewer than the recipe says, or are both
            frozen and initialised anew.
    """
    training = recipe.training
    requested_fields = _about_layers(recipe)
    if not requested_fields:
        return
    if "num_hidden_groups" in source.config:
        family = source.config.get("model_type")
        raise UsageError(
            f"{requested_fields[0]}: the layers of '{source.name}' ({family}) share their weights, "
            "so one can't be treated in another way than the rest",
            remedy=f"Leave {' and '.join(requested_fields)} out, or choose another model.",
        )
    n_layers = layer_count(source.config)
    frozen = training.freeze_layers
    anew = training.reinit_layers or 0
    for field, count in (("training.freeze_layers", frozen), ("training.reinit_layers", anew)):
        if count > n_layers:
            message = f"{field}: {count} given, but '{source.name}' has {n_layers} layers"
            raise UsageError(message, remedy=f"Use {n_layers} or less.")
    if frozen + anew > n_layers:
        raise UsageError(
            f"training.freeze_layers {frozen} and training.reinit_layers {anew} overlap: "
            f"'{source.name}' has {n_layers} layers, and one with new weights has to be trained",
            remedy=f"Together they can be {n_layers} at most.",
        )


def check_evaluations(training: TrainingSection, steps: int, of_epoch: int) -> None:
    """Refuses an average over more evaluations than there will be.

    Args:
        training: Has `average_best` and `evaluate_every`.
        steps: Of the run.
        of_epoch: Steps of an epoch. Without `evaluate_every`, each epoch ends with an evaluation.

    Raises:
        UsageError: There are fewer evaluations; the message says how many.
    """
    steps_between = training.evaluate_every or of_epoch
    count = math.ceil(steps / steps_between)
    if training.average_best is not None and training.average_best > count:
        raise UsageError(
            f"training.average_best: the best {training.average_best} are asked for, but {steps} "
            f"steps with one evaluation every {steps_between} make {count}",
            remedy="Use a lower training.evaluate_every, or average fewer.",
        )


class Unfreezing:
    """Unfreezes one more layer in each epoch, from the head down to the embeddings.

    The number of the epoch alone decides which layers are trained, so that a resumed run trains the
    same.

    Args:
        network: Parameters that need no gradient now stay frozen to the end.
    """

    def __init__(self, network: "nn.Module") -> None:
        from bertctl.modeling.layer_groups import parameter_depths

        # Depths count from the embeddings (0) up; the head has the largest one.
        depths = parameter_depths(network)
        self._head = max(depths.values())
        self._parameters = [
            (parameter, depths[name])
            for name, parameter in network.named_parameters()
            if parameter.requires_grad
        ]

    def __call__(self, epoch: int) -> None:
        """Lets an epoch train the head and the `epoch` layers below it; the first epoch is 0."""
        for parameter, depth in self._parameters:
            parameter.requires_grad_(depth >= self._head - epoch)


def describe(recipe: Recipe, source: ModelSource, epochs: int) -> list[str]:
    """Returns what the recipe does to layers and weights beyond plain fine-tuning, as sentences.

    Args:
        recipe: The recipe.
        source: The model's files, for its number of layers.
        epochs: Of the run; gradual unfreezing may need more.
    """
    training = recipe.training
    sentences = []
    if training.preset:
        sentences.append(
            f"preset {training.preset}: its values stand where nothing nearer says otherwise"
        )
    if recipe.optimizer.layer_decay < 1.0:
        lowest_rate = recipe.optimizer.learning_rate * recipe.optimizer.layer_decay ** (
            layer_count(source.config) + 1
        )
        head = f"{recipe.optimizer.learning_rate:g} for the head"
        sentences.append(f"learning rates: {head}, down to {lowest_rate:.3g} for the embeddings")
    if training.freeze_embeddings:
        frozen = ["the embeddings"]
    else:
        frozen = []
    if training.freeze_layers:
        frozen.append(f"the lower {training.freeze_layers} of {layer_count(source.config)} layers")
    if frozen:
        sentences.append(f"frozen: {' and '.join(frozen)}")
    if training.reinit_layers is not None:
        if training.reinit_layers:
            top = f" and the top {counted(training.reinit_layers, 'layer')}"
        else:
            top = ""
        sentences.append(f"new weights: the pooler (where there is one){top}")
    if training.gradual_unfreezing:
        n_layers = layer_count(source.config)
        if training.freeze_embeddings:
            lowest_depth = training.freeze_layers + 1
        else:
            lowest_depth = 0
        # The embeddings have the depth 0, then come the layers, then the head. Each epoch trains
        # one depth more, from the head down to the lowest one that isn't frozen.
        depth_of_head = n_layers + 1
        needed = depth_of_head - lowest_depth + 1
        trains_embeddings = lowest_depth == 0
        n_untrained_layers = needed - epochs - trains_embeddings
        untrained = []
        if n_untrained_layers > 0:
            untrained.append(f"the lowest {counted(n_untrained_layers, 'layer')}")
        if trains_embeddings:
            untrained.append("the embeddings")
        verb = "leaves" if epochs == 1 else "leave"
        too_short = f"; {counted(epochs, 'epoch')} {verb} {' and '.join(untrained)} as before"
        sentences.append(
            "unfreezing: the head in the first epoch, one layer more in each that follows, "
            f"everything from epoch {needed} on" + (too_short if epochs < needed else "")
        )
    if training.average_best:
        sentences.append(
            f"averaging: the weights of the {training.average_best} best evaluations are kept "
            "until the end"
        )
    return sentences


def _about_layers(recipe: Recipe) -> list[str]:
    """Returns the fields in use that treat layers apart."""
    training = recipe.training
    used = {
        "optimizer.layer_decay": recipe.optimizer.layer_decay < 1.0,
        "training.freeze_layers": training.freeze_layers > 0,
        "training.freeze_embeddings": training.freeze_embeddings,
        "training.gradual_unfreezing": training.gradual_unfreezing,
        "training.reinit_layers": bool(training.reinit_layers),
    }
    return [name for name, is_used in used.items() if is_used]
