"""AdamW and the paper's schedule.

Where google-research/bert `optimization.py` differs, config/schema.py says so.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertctl.config.recipe_sections import OptimizerSection
from bertctl.modeling.layer_groups import parameter_depths

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import AdamW
    from torch.optim.lr_scheduler import LambdaLR, LRScheduler


def build_optimizer(network: "nn.Module", settings: OptimizerSection) -> "AdamW":
    """Returns AdamW with bias correction.

    It has two groups of parameters: those with weight decay, and those without (biases and
    normalisations). With a layer decay, the head, each layer and the embeddings have two such
    groups each, with a learning rate of their own. The first group is the head's; its learning rate
    is the one that is logged.

    Args:
        network: its parameters that need a gradient are optimised.
        settings: learning rate, decays, betas, epsilon.

    Raises:
        UsageError: a layer decay, and layers that can't be told apart.
    """
    from torch.optim import AdamW

    groups = _groups(network, settings)
    betas = (settings.beta1, settings.beta2)
    return AdamW(
        groups,
        lr=settings.learning_rate,
        betas=betas,
        eps=settings.epsilon,
        fused=True,
    )


def _groups(network: "nn.Module", settings: OptimizerSection) -> list[dict[str, Any]]:
    """Returns the optimizer's parameter groups: for each depth one with weight decay, one without.

    With `layer_decay` below 1, the learning rate falls by that factor with each depth below the
    head. Otherwise there is a single depth. Biases and normalisations get no weight decay.
    """
    if settings.layer_decay < 1.0:
        depths = parameter_depths(network)
    else:
        depths = {}
    depth_of_head = max(depths.values(), default=0)
    undecayed = _undecayed(network)
    trained = {
        name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad
    }
    groups: list[dict[str, Any]] = []
    for depth in range(depth_of_head, -1, -1):
        rate = settings.learning_rate * settings.layer_decay ** (depth_of_head - depth)
        names = [name for name in trained if depths.get(name, 0) == depth]
        decayed_parameters = [trained[name] for name in names if name not in undecayed]
        other_parameters = [trained[name] for name in names if name in undecayed]
        for parameters, decay in (
            (decayed_parameters, settings.weight_decay),
            (other_parameters, 0.0),
        ):
            # An empty group is left out. But a single depth always has its two groups.
            if parameters or not depths:
                groups.append({"params": parameters, "weight_decay": decay, "lr": rate})
    return groups


def build_schedule(optimizer: "AdamW", settings: OptimizerSection, *, steps: int) -> "LambdaLR":
    """Returns a linear warm-up from 0 over the first share of the steps, then a decay.

    The decay is a straight line to 0 at the last step.

    Args:
        optimizer: whose rate is scheduled.
        settings: gives the share.
        steps: optimizer steps of the whole run.
    """
    from torch.optim.lr_scheduler import LambdaLR

    return LambdaLR(optimizer, LinearRates(settings, steps))


@dataclass(frozen=True)
class _Segment:
    """Part of a schedule: a straight line up to the peak, and one down to 0.

    Attributes:
        start: Step where the segment begins.
        first_share: Share of the peak rate there.
        peak: Step of the top. The share there is 1, or `first_share` if the peak is behind the run
            already.
        end: Step where the rate would be 0.
    """

    start: int
    first_share: float
    peak: int
    end: int

    def share(self, step: int) -> float:
        """Returns the learning rate at a step of this segment, as a share of the peak rate.

        It rises from `first_share` to 1 at the step `peak`, and then falls to 0 at the step `end`.
        A segment that begins after the peak only falls.
        """
        if step < self.peak:
            rise = (step - self.start) / (self.peak - self.start)
            return self.first_share + (1.0 - self.first_share) * rise

        is_past_peak = self.peak <= self.start
        if is_past_peak:
            top = self.first_share
        else:
            top = 1.0
        top_step = max(self.start, self.peak)
        return top * max(0.0, (self.end - step) / max(1, self.end - top_step))


class LinearRates:
    """Share of the peak rate at each step: warm-up from 0, then a straight line to 0.

    The number of steps may change while a run goes on, as a time limit does it. The rate goes on
    from where it stands, finishes its warm-up if it has not, and falls in a straight line to 0 at
    the new last step.

    Args:
        settings: Settings with the share of the warm-up.
        steps: Optimizer steps of the run.
    """

    def __init__(self, settings: OptimizerSection, steps: int) -> None:
        self._settings = settings
        peak = warmup_steps(settings, steps)
        first_share = 0.0 if peak else 1.0  # without a warm-up, the peak rate is the first one
        # Each `change` of the number of steps begins a new segment.
        self._segments = [
            _Segment(
                start=0,
                first_share=first_share,
                peak=peak,
                end=steps,
            )
        ]

    def __call__(self, step: int) -> float:
        """Returns the learning rate at a step, as a share of the peak rate."""
        segment = next(segment for segment in reversed(self._segments) if segment.start <= step)
        return segment.share(step)

    def change(self, *, at: int, steps: int) -> None:
        """Plans another number of steps from a step on.

        A warm-up that is not finished ends where it would end in a run with the new number of
        steps. If that step is over, the steps that are left begin with a warm-up of their own.

        Args:
            at: Steps that were taken.
            steps: New number of steps of the run.
        """
        latest = self._segments[-1]
        is_warming_up = at < latest.peak
        peak = latest.peak
        if is_warming_up:
            peak = warmup_steps(self._settings, steps)
            if peak <= at:
                peak = at + warmup_steps(self._settings, steps - at)
        share = self(at)  # of the peak rate, where the new segment begins
        # So few steps are left that none of them belongs to a warm-up: the rate is at its peak now.
        if is_warming_up and peak <= at:
            share = 1.0

        self._segments.append(
            _Segment(
                start=at,
                first_share=share,
                peak=peak,
                end=steps,
            )
        )


def change_steps(schedule: "LRScheduler", *, at: int, steps: int) -> None:
    """Makes a schedule of `build_schedule` end at another step; see `LinearRates.change`."""
    lambda_schedule: Any = schedule
    rates: LinearRates = lambda_schedule.lr_lambdas[0]
    rates.change(at=at, steps=steps)


def warmup_steps(settings: OptimizerSection, steps: int) -> int:
    """Returns the steps of the warm-up, rounded down as in google-research/bert."""
    return int(steps * settings.warmup_fraction)


def _undecayed(network: "nn.Module") -> set[str]:
    """Returns the names of biases, and of all parameters of normalisation layers.

    Normalisation layers are found by their class, since families give them different names.
    """
    from torch import nn

    names: set[str] = set()
    for prefix, module in network.named_modules():
        is_norm = isinstance(module, nn.LayerNorm) or "norm" in type(module).__name__.lower()
        parameters = module.named_parameters(prefix, recurse=False)
        names |= {name for name, _ in parameters if is_norm or name.endswith("bias")}
    return names
