"""How long the scoring of a run's rows takes, measured on a sample of them."""

import time
from typing import TYPE_CHECKING

import numpy as np

from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import SplitResult, evaluate_split
from bertctl.progress import SILENT, Listener
from bertctl.runtime.launch import ALONE, Workers

if TYPE_CHECKING:
    from bertctl.training.job import Job


def time_scoring(
    job: "Job",
    n_rows: int,
    *,
    workers: Workers = ALONE,
    choose: bool = False,
    listener: Listener = SILENT,
) -> tuple[SplitResult, float]:
    """Returns the scores of a seeded sample of the selection split, and the seconds they took.

    Args:
        job: Made ready; its model scores as it is.
        n_rows: Size of the sample; a smaller split is scored whole.
        workers: Processes that share the work.
        choose: Whether thresholds are chosen as well, see `evaluate_split`.
        listener: Receives progress.
    """
    rows = job.data.splits[job.selection]
    drawn = np.random.default_rng(job.recipe.training.seed).permutation(len(rows))[:n_rows]
    sample = rows.select(sorted(drawn.tolist()))
    features = job.task.encode(sample, job.loaded.tokenizer, max_length=job.recipe.model.max_length)
    engine = Engine.of(job.loaded, job.compute, workers)

    for _ in range(2):  # the first time kernels are made, so the second one counts
        started = time.perf_counter()
        result = evaluate_split(
            engine,
            job.task,
            sample,
            features,
            recipe=job.recipe,
            choose=choose,
            listener=listener,
        )
        seconds = time.perf_counter() - started
    return result, seconds
