"""AdamW and the paper's schedule; where google-research/bert `optimization.py` differs, config/schema.py says so."""

from typing import TYPE_CHECKING

from bertctl.config.schema import OptimizerSection

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import AdamW
    from torch.optim.lr_scheduler import LambdaLR


def build_optimizer(network: "nn.Module", settings: OptimizerSection) -> "AdamW":
    """`torch.optim.AdamW` with bias correction, two groups: decayed weights, and biases with normalisation weights.

    Args:
        network: its parameters that need a gradient are optimised.
        settings: rate, decay, betas, epsilon.
    """
    from torch.optim import AdamW

    plain = _undecayed(network)
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            (undecayed if name in plain else decayed).append(parameter)
    return AdamW(
        [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": undecayed, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )


def build_schedule(optimizer: "AdamW", settings: OptimizerSection, *, steps: int) -> "LambdaLR":
    """Linear warm-up from 0 over the first share of the steps, then a straight line to 0 at the last.

    Args:
        optimizer: whose rate is scheduled.
        settings: gives the share.
        steps: optimizer steps of the whole run.
    """
    from transformers import get_linear_schedule_with_warmup

    schedule: LambdaLR = get_linear_schedule_with_warmup(optimizer, warmup_steps(settings, steps), steps)
    return schedule


def warmup_steps(settings: OptimizerSection, steps: int) -> int:
    """Steps of the warm-up, rounded down as in google-research/bert."""
    return int(steps * settings.warmup_fraction)


def _undecayed(network: "nn.Module") -> set[str]:
    """Names of biases and of every parameter of a normalisation layer, whatever the family calls it."""
    from torch import nn

    names = set()
    for module_name, module in network.named_modules():
        is_norm = isinstance(module, nn.LayerNorm) or "norm" in type(module).__name__.lower()
        for name, _ in module.named_parameters(recurse=False):
            if is_norm or name.endswith("bias"):
                names.add(f"{module_name}.{name}" if module_name else name)
    return names
