"""LoRA before a run: what does not fit is refused without torch, by its fields and the model."""

from importlib.util import find_spec

from bertctl.config.schema import Recipe
from bertctl.errors import UnavailableError, UsageError
from bertctl.modeling.layers import layer_count
from bertctl.modeling.source import ModelSource
from bertctl.modeling.stored_weights import stored_weights
from bertctl.words import listing


def check_peft(recipe: Recipe) -> None:
    """Refuses LoRA where peft, which writes the adapter, is not installed.

    Raises:
        UnavailableError: With the install line.
    """
    if recipe.lora.rank is not None and find_spec("peft") is None:
        message = "lora.rank: the adapter is written by peft, which is not installed"
        raise UnavailableError(message, remedy="Install it: pip install 'bertctl[peft]'")


def check_lora(recipe: Recipe, source: ModelSource) -> None:
    """Refuses what the model's files show to be impossible; torch is not needed for it.

    Raises:
        UsageError: No layer is left to adapt, or no layer has a name that is asked for.
    """
    settings = recipe.lora
    if settings.rank is None:
        return
    n_frozen = recipe.training.freeze_layers
    if n_frozen and n_frozen >= layer_count(source.config):
        message = (
            f"training.freeze_layers: all {n_frozen} layers are frozen, so lora.rank has nothing "
            "to adapt"
        )
        remedy = "LoRA freezes the weights by itself. Leave `training.freeze_layers=` out."
        raise UsageError(message, remedy=remedy)

    matrices = [
        name.removesuffix(".weight")
        for name, tensor in stored_weights(source.folder).items()
        if name.endswith(".weight") and len(tensor.shape) == 2 and "embedding" not in name
    ]
    for target in settings.targets:
        if not any(f".{name}".endswith(f".{target}") for name in matrices):
            last_parts = sorted({name.rpartition(".")[2] for name in matrices})
            raise UsageError(
                f"lora.targets: '{source.name}' has no layer called '{target}'",
                remedy=f"They are called {listing(last_parts)}; leave `lora.targets=` out for all.",
            )
