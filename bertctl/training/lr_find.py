"""The learning-rate range test (Smith 2017, section 3.3).

The paper is "Cyclical Learning Rates for Training Neural Networks".

The learning rate rises by the same factor from step to step: where the loss falls fastest, the
model learns; where it explodes, the learning rate is too high.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.config.schema import Recipe
from bertctl.errors import DivergedError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.runtime.launch import ALONE
from bertctl.runtime.seeding import WindowRandom
from bertctl.training.job import Job, prepare
from bertctl.training.loop.loop import plan_epoch
from bertctl.training.loop.out_of_memory import MicroBatches
from bertctl.training.loop.step import step_with_oom_retry
from bertctl.training.loop.training_engine import build_engine

_SMOOTHING = 0.9
"""Weight of earlier losses in their running mean."""
_EXPLODED = 4.0
"""The test ends at a smoothed loss this many times the lowest one."""
_FEWEST = 20
_NOISE = 7.0
"""Standard errors that a smoothed loss falls by where nothing is learned, in fewer than 2.5 % of 50
to 200 steps of white noise."""


def find_rate(
    recipe: Recipe,
    *,
    low: float = 1e-7,
    high: float = 1.0,
    steps: int = 100,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Trains with a rising learning rate, and drops the model.

    Args:
        recipe: As of a run; its learning rate, epochs and warm-up are not used.
        low: Learning rate of the first step.
        high: Learning rate of the last step, if the loss does not explode before.
        steps: How many steps are taken at most.
        listener: Receives progress.

    Returns:
        A document with `rates`, `losses` and `smoothed` losses of the steps that were taken, and
        `exploded`, whether they ended early. It has the learning rates `steepest`, where the
        smoothed loss falls fastest, `minimum`, where it is lowest, `minimum_tenth`, and
        `suggestion`, the lower one of steepest and minimum_tenth. `fall` is how far the smoothed
        loss falls, `noise` how far it would fall by chance. These are None if it never falls.

    Raises:
        UsageError: An invalid range or number of steps.
        DivergedError: The first loss is no finite number.
        BertctlError: Any refusal of the recipe.
    """
    if not 0.0 < low < high < math.inf:
        message = f"the learning rate can't rise from {low:g} to {high:g}"
        raise UsageError(message, remedy="Such as `from=1e-7` `to=1`; both above 0.")
    if steps < _FEWEST:
        raise UsageError(
            f"`steps={steps}` are too few to see a slope",
            remedy=f"Use {_FEWEST} or more; 100 are usual.",
        )
    job = prepare(recipe.with_fields("runtime", log_to=[]), listener=listener)
    if recipe.training.gradual_unfreezing:
        listener.say("training.gradual_unfreezing: this test trains all layers from its first step")
    rates = [float(rate) for rate in np.geomspace(low, high, steps)]
    losses = _losses(job, rates, listener)
    suggestion = suggest(rates, losses)
    return {
        "schema": SCHEMA,
        "recipe": job.recipe.name,
        "model": job.recipe.model.name,
        "device": job.compute.device,
        "batch_size": job.recipe.training.batch_size,
        "seed": job.recipe.training.seed,
        "steps": len(losses),
        "exploded": len(losses) < steps,
        **suggestion,
    }


def _losses(job: Job, rates: Sequence[float], listener: Listener) -> list[float]:
    """Trains one step with each learning rate, and returns their losses, until these explode.

    Args:
        job: Made ready; its network is trained.
        rates: Learning rates of the head, ascending.
        listener: Receives progress.

    Raises:
        DivergedError: The first loss is no finite number.
    """
    engine = build_engine(job, RunFolder(Path()), ALONE)  # without trackers nothing is written
    training = job.recipe.training
    features = job.training_features
    micro_batches = MicroBatches(training.accumulation_steps, training.batch_size, listener)
    schedule: Any = engine.schedule
    # With layer decay, each group of parameters has its own share of the learning rate.
    shares = [peak / job.recipe.optimizer.learning_rate for peak in schedule.base_lrs]
    batches = itertools.chain.from_iterable(
        plan_epoch(job.recipe, features, epoch) for epoch in itertools.count()
    )
    losses: list[float] = []
    engine.network.train()
    for rate in rates:
        for group, share in zip(engine.optimizer.param_groups, shares, strict=True):
            group["lr"] = rate * share
        rng = WindowRandom(training.seed, step=len(losses))
        loss = step_with_oom_retry(
            engine,
            features=features,
            batch=next(batches),
            rng=rng,
            micro_batches=micro_batches,
        ).loss
        if not math.isfinite(loss):
            if not losses:
                message = f"the loss is {loss} before anything was learned, so it can't explode"
                raise DivergedError(
                    message,
                    remedy="Look at the model's weights and the rows, or try "
                    "`runtime.precision=fp32`.",
                )
            break
        losses.append(loss)
        engine.optimizer.step()
        engine.optimizer.zero_grad(set_to_none=True)
        listener.advance(
            "rising",
            len(losses),
            len(rates),
            {"loss": f"{loss:.4f}", "learning rate": f"{rate:.2e}"},
        )
        smoothed_losses = smoothed(losses)
        if smoothed_losses[-1] > _EXPLODED * min(smoothed_losses):
            break
    listener.finish("rising")
    return losses


def smoothed(losses: Sequence[float]) -> list[float]:
    """Returns the exponential running mean of losses, one value for each.

    It begins at 0, and is corrected for that as Adam corrects its moments.
    """
    mean = 0.0
    result = []
    for count, loss in enumerate(losses, start=1):
        mean = _SMOOTHING * mean + (1.0 - _SMOOTHING) * loss
        result.append(mean / (1.0 - _SMOOTHING**count))
    return result


def suggest(rates: Sequence[float], losses: Sequence[float]) -> dict[str, Any]:
    """Returns what the losses of a range test suggest.

    Args:
        rates: Learning rates of the steps, rising by the same factor; perhaps more than losses.
        losses: Losses of the steps that were taken.

    Returns:
        The fields of `find_rate` that follow from the losses.
    """
    tried_rates = list(rates[: len(losses)])
    document: dict[str, Any] = {
        "rates": tried_rates,
        "losses": list(losses),
        "smoothed": smoothed(losses),
    }
    no_suggestion = dict.fromkeys(
        ("steepest", "minimum", "minimum_tenth", "suggestion", "fall", "noise")
    )
    is_too_short = len(losses) < _FEWEST // 2
    if is_too_short:
        return document | no_suggestion
    smooth = np.array(document["smoothed"])
    lowest = int(smooth.argmin())
    n_skipped = _FEWEST // 4  # a mean of few losses still jumps
    slopes = np.gradient(smooth, np.log10(tried_rates))[n_skipped : lowest + 1]
    if lowest <= n_skipped or slopes.min() >= 0.0:
        return document | no_suggestion
    steepest = tried_rates[n_skipped + int(slopes.argmin())]
    minimum = tried_rates[lowest]
    # The losses scatter about their running mean. The mean itself scatters less, by this share,
    # as for the exponential mean of white noise.
    share = math.sqrt((1.0 - _SMOOTHING) / (1.0 + _SMOOTHING))
    deviation = float(np.std(np.array(losses)[: lowest + 1] - smooth[: lowest + 1]))
    # Where nothing is learned, the mean rarely falls by more than so many of its deviations.
    noise = _NOISE * deviation * share
    return document | {
        "fall": float(smooth[n_skipped] - smooth[lowest]),
        "noise": noise,
        "steepest": steepest,
        "minimum": minimum,
        "minimum_tenth": minimum / 10.0,
        "suggestion": min(steepest, minimum / 10.0),
    }
