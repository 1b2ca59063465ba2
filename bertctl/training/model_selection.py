"""Which weights a run keeps.

They are the best by the primary metric on the selection split, or the mean of the best few.
"""

import time
from typing import Any

from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import SplitResult, evaluate_split
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.heap import trim_heap
from bertctl.runtime.launch import Workers
from bertctl.tasks.registry import higher_is_better
from bertctl.training.job import Job
from bertctl.training.loop.averaging import BestWeights
from bertctl.training.loop.best_model import BestModel, ModelFile
from bertctl.training.loop.loop import Evaluation, TrainingState


class ModelSelection:
    """Scores the weights of a run and keeps the best of them in RUN/model.

    Args:
        job: the run's job; its network is scored as it is at the moment.
        folder: the run.
        workers: the processes that share the job; all of them score, the first one writes.
        model_file: when RUN/model is written.
        listener: hears what is kept.

    Attributes:
        results: split -> its newest scores.
        best: the best weights.
        average: what metrics.json says of averaged weights; empty where none were averaged.
        seconds: spent scoring.
    """

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        workers: Workers,
        *,
        model_file: ModelFile,
        listener: Listener,
    ) -> None:
        self.results: dict[str, SplitResult] = {}  # split -> its newest scores
        self.average: dict[str, Any] = {}  # what metrics.json says of averaged weights
        self.seconds = 0.0  # spent scoring
        self._job = job
        self._workers = workers
        self._listener = listener
        self._best_result: SplitResult | None = None  # of the best weights, on the selection split
        self.best = BestModel(job.loaded, folder, model_file)
        keep = job.recipe.training.average_best
        self._averaging: BestWeights | None = None
        if keep:
            self._averaging = BestWeights(
                folder,
                keep,
                higher_is_better=higher_is_better(job.primary),
                writes=workers.is_first,
                breaks_ties=job.recipe.training.tie_breaker == "loss",
            )

    def score(self, split: str) -> SplitResult:
        """Scores a split with the weights as they are.

        The selection split comes first and chooses the thresholds; the others are scored with them.
        """
        job = self._job
        chooses = split == self._job.selection
        started = time.perf_counter()
        trim_heap()  # steps of all lengths leave holes, and scoring comes on top of them
        engine = Engine.of(job.loaded, job.compute, self._workers)
        if chooses:
            task = job.task
        else:
            task = self.results[job.selection].task
        rows = job.data.splits[split]
        features = job.features[split]
        listener = self._listener
        result = evaluate_split(
            engine,
            task,
            rows,
            features,
            recipe=job.recipe,
            choose=chooses,
            listener=listener,
        )
        self.seconds += time.perf_counter() - started
        self.results[split] = result
        return result

    def offer(self, state: TrainingState, evaluation: Evaluation) -> None:
        """Keeps the weights for the average at the end, if they are among the best so far.

        Without an average in the recipe, nothing is kept.
        """
        if self._averaging is not None:
            self._averaging.offer(state, evaluation, self._job.loaded)

    def keep(self) -> bool:
        """Keeps the weights as the best so far.

        It returns whether this process has written them to the disk.
        """
        self._best_result = self.results[self._job.selection]
        return self._workers.is_first and self.best.keep()

    def score_best(self, state: TrainingState) -> None:
        """Puts the weights that stay into the network, and scores all splits with them.

        They are the mean of the best weights if that is kept, else the best weights.
        """
        job = self._job
        is_average_kept = self._keep_average(state)
        is_last_best = state.best_step == state.step
        # The network still has the last weights, unless `_keep_average` has tried a mean and not
        # kept it. In that case, it has cleared the results.
        has_scored_best = is_last_best and job.selection in self.results
        if not is_average_kept and not has_scored_best:
            if not is_last_best:
                self._listener.say(
                    f"using the weights of step {state.best_step}, the best on {job.selection}"
                )
            self._workers.wait()  # until the first process has written them
            self.best.load_back()
            self.results.clear()
            # The best weights were scored when they were found. If that was before an interruption,
            # their result is lost, and they are scored again below.
            if self._best_result is not None:
                self.results[job.selection] = self._best_result
        for split in dict.fromkeys((job.selection, *job.evaluated)):
            if split not in self.results:
                self.score(split)
            # Adds the intervals of the metrics, which evaluations during training leave out.
            self.results[split] = self.results[split].thorough(job.recipe)

    def finish(self) -> None:
        """Brings RUN/model to its final state; the network holds the weights that stay."""
        if self._workers.is_first:
            self.best.finish()

    def _keep_average(self, state: TrainingState) -> bool:
        """Averages the weights of the best evaluations, where the recipe asks for it.

        Returns:
            Whether the mean is kept. If it is, the network and RUN/model have the mean. If it is
            not, the network may have it all the same, so the best weights must be loaded.
        """
        job = self._job
        averaging = self._averaging
        if averaging is None:
            return False
        if len(state.ranked) < 2:
            self._listener.warn(
                f"nothing to average: {len(state.ranked)} of the evaluations left weights"
            )
            return False
        self._workers.wait()  # until the first process has written them
        best = self._scored_best()
        averaging.average_into(job.loaded, state)
        self.results.clear()  # they are those of other weights
        mean = self.score(job.selection)
        self.average = average_entry(
            mean,
            best,
            job.primary,
            state,
            tie_breaker=job.recipe.training.tie_breaker,
        )
        self._listener.say(
            average_sentence(
                mean,
                best,
                job.primary,
                state,
                split=job.selection,
                keeps_mean=self.average["kept"],
            )
        )
        if self.average["kept"]:
            self.keep()
        else:
            self.results.clear()  # they are those of the mean
        return bool(self.average["kept"])

    def _scored_best(self) -> SplitResult:
        """Returns the scores of the best weights on the selection split."""
        if self._best_result is None:  # of a resumed run that has seen no better ones since
            self.best.load_back()
            self._best_result = self.score(self._job.selection)
        return self._best_result


def average_entry(
    mean: SplitResult,
    best: SplitResult,
    metric: str,
    state: TrainingState,
    *,
    tie_breaker: str,
) -> dict[str, Any]:
    """Returns what metrics.json has about averaged weights.

    The mean is kept if its metric is better. With the tie breaker `loss`, it is also kept if its
    loss is lower and the 95 % interval of the paired difference in the metric includes 0. The best
    weights were chosen among several evaluations by their score on these rows, so a part of their
    lead is luck; the mean was not. `docs/benchmarks.md` has the runs that this was measured on.

    Args:
        mean: Scores of the mean of the weights.
        best: Scores of the best weights alone, on the same rows.
        metric: The primary metric.
        state: Its `ranked` lists the weights that were averaged, as pairs of score and step.
        tie_breaker: As in the recipe, `first` or `loss`.

    Returns:
        The averaged `steps`, the metric of the mean (`value`) and of the best weights
        (`best_value`), and whether the mean is `kept`.
    """
    value = mean.metrics[metric].value
    best_value = best.metrics[metric].value
    keeps_mean = _gain(value, best_value, metric) > 0
    has_lower_loss = mean.metrics["loss"].value < best.metrics["loss"].value
    if tie_breaker == "loss" and has_lower_loss and not keeps_mean:
        keeps_mean = _may_be_chance(mean, best, metric)
    return {
        "steps": sorted(step for _, step in state.ranked),
        "value": value,
        "best_value": best_value,
        "kept": keeps_mean,
    }


def _gain(value: float, best_value: float, metric: str) -> float:
    """Returns by how much a value is better than that of the best weights; below 0 if worse."""
    if higher_is_better(metric):
        return value - best_value
    return best_value - value


def _may_be_chance(mean: SplitResult, best: SplitResult, metric: str) -> bool:
    """Returns whether the 95 % interval of the difference of a metric on the same rows includes 0.

    A metric that predictions alone don't determine, such as a script's, has no interval. Then the
    result is whether both values are equal.
    """
    of_mean = mean.task.answers.contributions(mean.lines, metric)
    of_best = best.task.answers.contributions(best.lines, metric)
    if of_mean is None or of_best is None:
        return mean.metrics[metric].value == best.metrics[metric].value
    difference = of_mean.difference(of_best)
    return difference.low <= 0 <= difference.high


def average_sentence(
    mean: SplitResult,
    best: SplitResult,
    metric: str,
    state: TrainingState,
    *,
    split: str,
    keeps_mean: bool,
) -> str:
    """Returns a sentence with the scores of the averaged weights and of the best weights.

    Args:
        mean: Scores of the mean of the weights.
        best: Scores of the best weights alone, on the same rows.
        metric: The primary metric.
        state: Says which steps were averaged.
        split: Name of these rows.
        keeps_mean: Whether the mean is kept.
    """
    steps = ", ".join(str(step) for step in sorted(step for _, step in state.ranked))
    if keeps_mean:
        verdict = "the mean is kept"
    else:
        verdict = "the mean is not kept"
    gain = _gain(mean.metrics[metric].value, best.metrics[metric].value, metric)
    if keeps_mean and gain < 0:
        verdict += f", as its {metric} may be worse by chance"
    return (
        f"the mean of the weights of steps {steps}: {split} {mean.headline(metric)}; "
        f"with those of step {state.best_step} alone: {best.headline(metric)}; {verdict}"
    )
