"""The files of a run but its weights.

They are recipe, environment, history, status, predictions, metrics, and timings.
"""

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

from bertctl.errors import BertctlError
from bertctl.inference.evaluate import SplitResult, write_predictions
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.performance_document import PerformanceDocument
from bertctl.run_documents.status_document import State
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.runtime.launch import Workers
from bertctl.training.job import Job
from bertctl.training.loop.loop import TrainingState
from bertctl.training.step_memory import peak_memory_bytes
from bertctl.training.time_limit import TimeLimitOutcome
from bertctl.training.undertraining import StillImproving
from bertctl.writing import append_text, write_json


class RunWriter:
    """Writes the files of a run.

    Only the first of several processes writes; in the others nothing happens.

    Args:
        job: the run's job.
        folder: where to.
        workers: the processes that share the job.
    """

    def __init__(self, job: Job, folder: RunFolder, workers: Workers) -> None:
        self._job = job
        self._folder = folder
        self._writes = workers.is_first

    def write_inputs(self) -> None:
        """Writes what the run is made of: its recipe and its environment."""
        if self._writes:
            self._job.write_inputs(self._folder, self._job.verb)

    def add_history(self, figures: Mapping[str, Any]) -> None:
        """Adds a line to history.jsonl."""
        if self._writes:
            append_text(self._folder.history, json.dumps(figures) + "\n")

    def set_status(self, state: State, *, step: int, message: str = "", reason: str = "") -> None:
        """Writes status.json; see `RunFolder.set_status`."""
        if self._writes:
            self._folder.set_status(
                state,
                step=step,
                message=message,
                reason=reason,
            )

    def try_set_status(self, state: State, *, step: int, message: str, reason: str = "") -> None:
        """Writes status.json on the way out.

        The error that is being reported matters more than this one.
        """
        with contextlib.suppress(BertctlError):
            self.set_status(
                state,
                step=step,
                message=message,
                reason=reason,
            )

    def write_results(
        self,
        results: Mapping[str, SplitResult],
        metrics: MetricsDocument,
        performance: PerformanceDocument,
    ) -> None:
        """Writes predictions, the decision, metrics.json and performance.json.

        The decision says how scores become answers, such as by a threshold; not all tasks have one.
        """
        if not self._writes:
            return
        job = self._job
        folder = self._folder
        write_predictions(folder, results, job.recipe.evaluation)
        decision = results[job.selection].decision
        if decision:
            write_json(folder.decision, {"schema": SCHEMA, **decision, "fitted_on": job.selection})
        write_json(folder.metrics, metrics.as_json())
        write_json(folder.performance, performance.as_json())


def run_metrics(
    job: Job,
    results: Mapping[str, SplitResult],
    state: TrainingState,
    average: Mapping[str, Any],
    *,
    limited: TimeLimitOutcome | None = None,
    improving: StillImproving | None = None,
) -> dict[str, Any]:
    """Returns the content of metrics.json.

    Args:
        job: Of the run.
        results: Scores and predictions by split.
        state: At the end of the training.
        average: What weights were averaged; empty if none were.
        limited: What the time limit changed, if there was one.
        improving: Set if the scores still rose at the end.
    """
    steps_between = job.recipe.training.evaluate_every or job.steps_per_epoch
    # The averaged weights are one more candidate.
    n_candidates = math.ceil(state.step / steps_between) + bool(average)
    # What was chosen on which split, from how many: scores there are slightly optimistic.
    chosen: dict[str, Any] = {}
    if n_candidates > 1:
        chosen["epoch"] = {"split": job.selection, "of": n_candidates}
    settings = job.recipe.evaluation.settings_compared
    if settings > 1:
        chosen["setting"] = {"split": job.selection, "of": settings}
    steps = {"best_step": state.best_step, "steps": state.step, "selected_on": chosen}
    decision = results[job.selection].decision
    if decision:
        chosen["threshold"] = {"split": job.selection}
        steps["decisions"] = dict.fromkeys(results, decision)
    if limited is not None and limited.is_cut:
        steps["time_limit"] = limited.for_metrics()
    if improving is not None:
        steps["still_improving"] = improving.as_json()
    return job.metrics(results) | steps | ({"average": average} if average else {})


def run_performance(
    job: Job, state: TrainingState, workers: Workers, limited: TimeLimitOutcome | None = None
) -> PerformanceDocument:
    """Returns the content of performance.json."""
    performance = PerformanceDocument(
        schema_number=SCHEMA,
        compute=job.compute.why,
        seconds={phase: round(seconds, 3) for phase, seconds in job.seconds.items()},
        examples_per_second=round(state.examples / state.seconds, 2),
        tokens_per_second=round(state.tokens / state.seconds, 1),
        padding_share=round(state.padding, 4),
        peak_memory_bytes=peak_memory_bytes(),
        estimated_memory_bytes=job.memory,
        stopped_early=state.stopped_early,
        processes=workers.count,
        skipped_steps=state.skipped_steps,
    )
    if limited is None:
        return performance
    return performance.model_copy(update={"time_limit": limited.for_performance()})
