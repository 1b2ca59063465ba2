"""LoRA before a run: what does not fit is refused without torch, and what is trained is said."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from bertctl.config.schema import Recipe
from bertctl.errors import UnavailableError, UsageError
from bertctl.modeling.layers import layer_count
from bertctl.modeling.source import ModelSource
from bertctl.modeling.stored_weights import stored_weights
from bertctl.training.auto_settings import TrainingTraits, learning_rate, lora_learning_rate
from bertctl.words import count, listing

if TYPE_CHECKING:
    from bertctl.training.job import Job


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


def describe_lora(job: "Job") -> list[str]:
    """Returns what LoRA trains in a run, one sentence each; nothing without it."""
    adapter = job.loaded.adapter
    if adapter is None:
        return []
    settings = job.recipe.lora
    parameters = [*job.loaded.network.parameters()]
    total = sum(parameter.numel() for parameter in parameters)
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    variants = [name for name in ("rslora", "dora") if getattr(settings, name)]
    kind = f"rank {settings.rank}, alpha {settings.alpha_in_use:g}"
    if variants:
        kind += f", {listing(variants)}"
    beside = (
        f" beside {listing(adapter.parts.modules_to_save)}" if adapter.parts.modules_to_save else ""
    )
    sentences = [
        f"LoRA: {kind} on {count(len(adapter.parts.target_modules), 'linear layer')}{beside}: "
        f"{trained:,} of {total:,} parameters are trained ({trained / total:.1%})".replace(
            "%)", " %)"
        )
    ]
    if job.compute.device == "cpu" and (settings.dropout or settings.dora):
        field = "lora.dora" if settings.dora else "lora.dropout"
        sentences.append(
            f"{field}: the library's layers compute the steps, because the faster ones for CPUs "
            "know LoRA without it only"
        )
    traits = TrainingTraits.of(job.recipe, job.data, job.task, job.source)
    usual = lora_learning_rate(traits)
    rate = job.recipe.optimizer.learning_rate
    if rate <= 2 * learning_rate(traits) < usual:
        sentences.append(
            f"learning rate: {rate:g} is one for training all weights; LoRA learns about "
            f"as well with {usual:g} (`optimizer.learning_rate={usual:g}`, or "
            "`training.preset=auto`)"
        )
    return sentences
