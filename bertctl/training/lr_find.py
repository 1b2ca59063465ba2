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
        recipe: as of a run; its learning rate, epochs and warm-up are not used.
        low: learning rate of the first step.
        high: learning rate of the last step, if the loss does not explode before.
        steps: how many.
        listener: hears of progress.

    Returns:
        A document: `rates`, `losses` and `smoothed` losses of the steps; learning rates of
            interest: `steepest`, where
        the smoothed loss falls fastest, `minimum`, where it is lowest, `minimum_tenth`, and
        `suggestion`, the lower one of steepest and minimum_tenth, None where the loss never falls;
        `fall`, of the smoothed loss, and `noise`, how far it falls by chance; `exploded`, whether
        it ended early.

    Raises:
        UsageError: an invalid range or number of steps.
        DivergedError: a first loss that is no finite number.
        BertctlError: any refusal of the recipe.
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
    about = {
        "schema": SCHEMA,
        "recipe": job.recipe.name,
        "model": job.recipe.model.name,
        "device": job.compute.device,
    }
    about |= {"batch_size": job.recipe.training.batch_size, "seed": job.recipe.training.seed}
    return about | {"steps": len(losses), "exploded": len(losses) < steps} | suggestion


def _losses(job: Job, rates: Sequence[float], listener: Listener) -> list[float]:
    """Returns the loss of each step, until it explodes."""
    machine = build_engine(job, RunFolder(Path()), ALONE)  # without trackers nothing is written
    training = job.recipe.training
    features = job.training_features
    micro_batches = MicroBatches(training.accumulation_steps, training.batch_size, listener)
    schedule: Any = machine.schedule
    # Layer decay makes them differ.
    shares = [peak / job.recipe.optimizer.learning_rate for peak in schedule.base_lrs]
    batches = itertools.chain.from_iterable(
        plan_epoch(job.recipe, features, epoch) for epoch in itertools.count()
    )
    losses: list[float] = []
    machine.network.train()
    for rate in rates:
        for group, share in zip(machine.optimizer.param_groups, shares, strict=True):
            group["lr"] = rate * share
        rng = WindowRandom(training.seed, step=len(losses))
        loss = step_with_oom_retry(
            machine,
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
        machine.optimizer.step()
        machine.optimizer.zero_grad(set_to_none=True)
        listener.advance(
            "rising",
            len(losses),
            len(rates),
            {"loss": f"{loss:.4f}", "learning rate": f"{rate:.2e}"},
        )
        smooth = smoothed(losses)
        if smooth[-1] > _EXPLODED * min(smooth):
            break
    listener.finish("rising")
    return losses


def smoothed(losses: Sequence[float]) -> list[float]:
    """Returns the running mean, corrected for its start as Adam corrects its moments."""
    mean = 0.0
    result = []
    for count, loss in enumerate(losses, start=1):
        mean = _SMOOTHING * mean + (1.0 - _SMOOTHING) * loss
        result.append(mean / (1.0 - _SMOOTHING**count))
    return result


def suggest(rates: Sequence[float], losses: Sequence[float]) -> dict[str, Any]:
    """Returns what the losses of a range test suggest.

    Args:
        rates: of the steps, rising by the same factor; perhaps more than losses.
        losses: of the steps that were taken.

    Returns:
        The fields of `find_rate` from `rates` to `suggestion`; rates are None where the loss never
        falls.
    """
    tried_rates = list(rates[: len(losses)])
    document: dict[str, Any] = {
        "rates": tried_rates,
        "losses": list(losses),
        "smoothed": smoothed(losses),
    }
    nothing = dict.fromkeys(("steepest", "minimum", "minimum_tenth", "suggestion", "fall", "noise"))
    if len(losses) < _FEWEST // 2:
        return document | nothing
    smooth = np.array(document["smoothed"])
    lowest = int(smooth.argmin())
    n_skipped = _FEWEST // 4  # a mean of few losses still jumps
    slopes = np.gradient(smooth, np.log10(tried_rates))[n_skipped : lowest + 1]
    if lowest <= n_skipped or slopes.min() >= 0.0:
        return document | nothing
    steepest = tried_rates[n_skipped + int(slopes.argmin())]
    minimum = tried_rates[lowest]
    spread = float(np.std(np.array(losses)[: lowest + 1] - smooth[: lowest + 1]))
    return document | {
        "fall": float(smooth[n_skipped] - smooth[lowest]),
        "noise": _NOISE * spread * math.sqrt((1.0 - _SMOOTHING) / (1.0 + _SMOOTHING)),
        "steepest": steepest,
        "minimum": minimum,
        "minimum_tenth": minimum / 10.0,
        "suggestion": min(steepest, minimum / 10.0),
    }
