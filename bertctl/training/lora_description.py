"""The sentences of a run about LoRA: what is trained, how, and at which learning rate."""

from bertctl.training.auto_settings import TrainingTraits, learning_rate, lora_learning_rate
from bertctl.training.job import Job
from bertctl.words import count, listing


def describe_lora(job: Job) -> list[str]:
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
    # Modules that are trained whole, such as the head.
    beside = ""
    if adapter.parts.modules_to_save:
        beside = f" beside {listing(adapter.parts.modules_to_save)}"
    sentences = [
        f"LoRA: {kind} on {count(len(adapter.parts.target_modules), 'linear layer')}{beside}: "
        f"{trained:,} of {total:,} parameters are trained ({100 * trained / total:.1f} %)"
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
    # A rate of up to twice the usual one for all weights was probably chosen for all weights. If
    # the usual rate for LoRA is in this range too, nothing is known about the choice.
    highest_for_all_weights = 2 * learning_rate(traits)
    if rate <= highest_for_all_weights < usual:
        sentences.append(
            f"learning rate: {rate:g} is one for training all weights; LoRA learns about "
            f"as well with {usual:g} (`optimizer.learning_rate={usual:g}`, or "
            "`training.preset=auto`)"
        )
    return sentences
