"""AdamW and the paper's schedule; where google-research/bert `optimization.py` differs, config/schema.py says so."""

from typing import TYPE_CHECKING, Any

from bertctl.config.recipe_sections import OptimizerSection
from bertctl.modeling.layer_groups import parameter_depths

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import AdamW
    from torch.optim.lr_scheduler import LambdaLR


def build_optimizer(network: "nn.Module", settings: OptimizerSection) -> "AdamW":
    """Returns AdamW with bias correction and two groups: decayed weights, and biases with normalisation weights.

    With a layer decay, two such groups for the head and each layer down to the embeddings, each with its own learning
    rate; the first group is the head's, whose learning rate is the one that is logged.

    Args:
        network: its parameters that need a gradient are optimised.
        settings: learning rate, decays, betas, epsilon.

    Raises:
        UsageError: a layer decay, and layers that can't be told apart.
    """
    from torch.optim import AdamW

    groups, betas = _groups(network, settings), (settings.beta1, settings.beta2)
    return AdamW(groups, lr=settings.learning_rate, betas=betas, eps=settings.epsilon, fused=True)


def _groups(network: "nn.Module", settings: OptimizerSection) -> list[dict[str, Any]]:
    depths = parameter_depths(network) if settings.layer_decay < 1.0 else {}
    head = max(depths.values(), default=0)
    plain = _undecayed(network)
    trained = {name: one for name, one in network.named_parameters() if one.requires_grad}
    groups: list[dict[str, Any]] = []
    for depth in range(head, -1, -1):
        rate = settings.learning_rate * settings.layer_decay ** (head - depth)
        here = [name for name in trained if depths.get(name, 0) == depth]
        for is_plain, decay in ((False, settings.weight_decay), (True, 0.0)):
            chosen = [trained[name] for name in here if (name in plain) == is_plain]
            if chosen or not depths:
                groups.append({"params": chosen, "weight_decay": decay, "lr": rate})
    return groups


def build_schedule(optimizer: "AdamW", settings: OptimizerSection, *, steps: int) -> "LambdaLR":
    """Returns a linear warm-up from 0 over the first share of the steps, then a straight line to 0 at the last.

    Args:
        optimizer: whose rate is scheduled.
        settings: gives the share.
        steps: optimizer steps of the whole run.
    """
    from torch.optim.lr_scheduler import LambdaLR

    first = warmup_steps(settings, steps)

    def share(step: int) -> float:
        return step / first if step < first else max(0.0, (steps - step) / max(1, steps - first))

    return LambdaLR(optimizer, share)


def warmup_steps(settings: OptimizerSection, steps: int) -> int:
    """Steps of the warm-up, rounded down as in google-research/bert."""
    return int(steps * settings.warmup_fraction)


def _undecayed(network: "nn.Module") -> set[str]:
    """Names of biases and of every parameter of a normalisation layer, whatever the family calls it."""
    from torch import nn

    names: set[str] = set()
    for prefix, module in network.named_modules():
        is_norm = isinstance(module, nn.LayerNorm) or "norm" in type(module).__name__.lower()
        own = module.named_parameters(prefix, recurse=False)
        names |= {name for name, _ in own if is_norm or name.endswith("bias")}
    return names
