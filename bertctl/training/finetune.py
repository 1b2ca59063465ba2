"""`finetune`: from a job made ready to a finished run folder. Prints nothing; a listener hears what there is to say."""

import contextlib
import operator
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.config.dump import dump_recipe
from bertctl.errors import BertctlError, DivergedError, InterruptedRunError
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import (
    SplitResult,
    evaluate_split,
    metrics_document,
    prediction_lines,
    truncation_counts,
)
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, RunFolder, append_jsonl, write_json, write_jsonl, write_text
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.registry import higher_is_better
from bertctl.training.averaging import best_weights, verdict_sentence
from bertctl.training.best_model import BestModel, ModelFile
from bertctl.training.checkpoint import Checkpoint, Checkpoints, Due
from bertctl.training.job import Job
from bertctl.training.loop import Hooks, TrainingState, train
from bertctl.training.memory import peak_memory_bytes
from bertctl.training.signals import Signals, Terminated
from bertctl.training.snapshot import RandomStates, Snapshot, random_states, restore, take
from bertctl.training.training_engine import TrainingEngine, build_engine
from bertctl.training.watching import NOBODY, EpochEnd, Watch

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Result:
    """What a finished run hands to whoever shows it.

    Attributes:
        folder: the run.
        metrics: content of metrics.json.
        performance: content of performance.json.
    """

    folder: RunFolder
    metrics: dict[str, Any]
    performance: dict[str, Any]


def run(
    job: Job,
    folder: RunFolder,
    *,
    resume: Checkpoint | None = None,
    strict: bool = False,
    workers: Workers = ALONE,
    watch: Watch = NOBODY,
    model: ModelFile = "each time",
    checkpoint_pause: float = 0.0,
    listener: Listener = SILENT,
) -> Result:
    """Train, keep the best weights, score, and write the run folder.

    Args:
        job: made ready, in each process the same.
        folder: where to; the first process writes it.
        resume: checkpoint to go on from.
        strict: whether a model that answers one thing to everything is an error.
        workers: the processes that share the job.
        watch: looks on, and may end the run.
        model: when RUN/model is written.
        checkpoint_pause: seconds from the start, and from each checkpoint, before the end of an epoch saves another.
        listener: hears of what happens.

    Raises:
        DivergedError: training exploded, or collapsed under `strict`.
        InterruptedRunError: Ctrl-C or SIGTERM, after a checkpoint was saved.
        UnavailableError: the disk is full; the last good state stays.
    """
    training = _Training(job, folder, strict=strict, workers=workers, listener=listener)
    training.watch = watch
    training.model = BestModel(job.loaded, folder, model)
    training.due.pause = checkpoint_pause
    try:
        with training.signals.listening():
            if workers.is_first and resume is None:
                write_text(folder.recipe, dump_recipe(job.recipe, command=f"bertctl finetune {folder.recipe}"))
                write_json(folder.environment, job.environment)
            return training.run(resume)
    except KeyboardInterrupt as error:
        raise training.interrupted(terminated=isinstance(error, Terminated)) from error
    except BertctlError as error:
        training.try_status("failed", error.message, reason=training.reason_of(error))
        raise
    except Exception as error:
        training.try_status("failed", f"{type(error).__name__}: {error}", reason="error")
        raise


class _Training:
    """One run while it goes on: the machine, where it is, and what is written when."""

    def __init__(self, job: Job, folder: RunFolder, *, strict: bool, workers: Workers, listener: Listener) -> None:
        self.job = job
        self.folder = folder
        self.strict = strict
        self.workers = workers
        self.listener = listener
        self.signals = Signals()
        self.signals.workers = workers
        self.outcome = TrainingState()
        self.watch = NOBODY
        self.model = BestModel(job.loaded, folder, "each time")
        self.checkpoints = Checkpoints(folder, job.hash, listener=listener)
        self.due = Due(job.recipe.training.checkpoint_every, time.monotonic)
        self.results: dict[str, SplitResult] = {}
        self.evaluation_seconds = 0.0
        self.machine: TrainingEngine | None = None
        self.random: RandomStates = {}
        self.snapshot: Snapshot | None = None
        self.is_trained = False
        self.averaging = best_weights(job, folder, writes=workers.is_first)
        self.average: dict[str, Any] = {}

    @property
    def network(self) -> "nn.Module":
        """The model without accelerate's wrapping."""
        return self.job.loaded.network

    def run(self, resume: Checkpoint | None) -> Result:
        """All of it, from the first step (or the checkpoint's) to the files."""
        job, outcome = self.job, self.outcome
        machine = build_engine(job, self.folder, self.workers)
        if resume is not None:
            seed = job.recipe.training.seed_of_init
            outcome = self.outcome = restore(resume, machine, self.folder, seed=seed, listener=self.listener)
        self.random = random_states(self.workers)
        self.machine = machine
        train(
            machine,
            job.task.for_training(job.recipe.training, job.features["train"]),
            job.features["train"],
            recipe=job.recipe,
            hooks=Hooks(
                on_log=self._log,
                on_evaluate=self._evaluate,
                is_better=operator.gt if higher_is_better(job.primary) else operator.lt,
                on_better=self._better,
                on_step=self._after_step,
                names=lambda rows: [job.data.splits["train"].ids[i] for i in rows],
            ),
            state=outcome,
            listener=self.listener,
        )
        for tracker in machine.accelerator.trackers:
            tracker.finish()  # not `end_training`: that ends the exchange too, and scoring needs it
        self.checkpoints.wait()
        with self.signals.welcome():
            return self._finish()

    def _finish(self) -> Result:
        """Score with the best weights, write everything, and take the checkpoints away."""
        job, outcome = self.job, self.outcome
        self.is_trained = True
        if not self._average() and (outcome.best_step != outcome.step or job.selection not in self.results):
            if outcome.best_step != outcome.step:
                self.listener.say(f"using the weights of step {outcome.best_step}, the best on {job.selection}")
            self.workers.wait()  # until the first process has written them
            self.model.load_into(self.network)
            self.results.clear()
        started = time.perf_counter()
        for split in dict.fromkeys((job.selection, *job.evaluated)):
            if split not in self.results:
                self.results[split] = self._score(split)
        self.evaluation_seconds += time.perf_counter() - started
        job.seconds |= {"train": outcome.seconds, "evaluate": self.evaluation_seconds}
        result = self._write_results()
        if self.workers.is_first:
            self.checkpoints.clear()
        return result

    def _average(self) -> bool:
        """Average the weights of the best evaluations, where it is asked for; whether that is better than the best.

        If so, the network and model/ hold the average; else the network has to get the best weights back.
        """
        job, outcome, averaging = self.job, self.outcome, self.averaging
        if averaging is None:
            return False
        if len(outcome.ranked) < 2:
            self.listener.warn(f"nothing to average: {len(outcome.ranked)} of the evaluations left weights")
            return False
        self.workers.wait()  # until the first process has written them
        averaging.average_into(self.network, outcome)
        started = time.perf_counter()
        result = self._score(job.selection)
        self.evaluation_seconds += time.perf_counter() - started
        self.average = averaging.verdict(result.metrics[job.primary].value, outcome)
        self.listener.say(verdict_sentence(self.average, f"{job.selection} {job.primary}", outcome))
        self.results.clear()
        if not self.average["kept"]:
            return False
        self.results[job.selection] = result
        self._keep()
        return True

    def interrupted(self, *, terminated: bool) -> InterruptedRunError:
        """The error for Ctrl-C and SIGTERM, after a checkpoint was saved where a step had been taken."""
        outcome, folder = self.outcome, self.folder
        how = "terminated" if terminated else "interrupted"
        saved = "no step was complete, so there is nothing to keep"
        goes_on = f"Start again with `bertctl finetune {folder.recipe} -o {folder.path} --overwrite`."
        if self.signals.impatient:
            saved = "asked twice, so it left at once"
            if self.checkpoints.any():
                goes_on = (
                    f"Go on from the last checkpoint with `bertctl finetune {folder.recipe} -o {folder.path} --resume`."
                )
        elif self.machine is not None and outcome.step and self.workers.is_first:
            # Once trained, the network may hold the best weights instead of the last ones; the end of the last epoch
            # has left a checkpoint.
            if not (self.is_trained and self.checkpoints.any()):
                self._save(behind=False)
            saved = f"a checkpoint was saved in {folder.checkpoints}"
            goes_on = f"Go on with `bertctl finetune {folder.recipe} -o {folder.path} --resume`."
        self.try_status("interrupted", saved)
        if self.signals.together:
            self.workers.wait()  # a launcher ends those that are left as soon as one has gone
        return InterruptedRunError(
            f"{how} at step {outcome.step} of {self.job.steps}: {saved}", remedy=goes_on, terminated=terminated
        )

    def reason_of(self, error: BertctlError) -> str:
        """Why a run failed, in a word: `strict` makes an error of a collapse."""
        if not isinstance(error, DivergedError):
            return "error"
        return "collapsed" if self.outcome.collapsed_losses and self.strict else "diverged"

    def try_status(self, state: str, message: str, *, reason: str = "") -> None:
        """Write the status on the way out; the error that is being reported matters more than this one."""
        if not self.workers.is_first:
            return
        try:
            self.folder.set_status(state, step=self.outcome.step, message=message, reason=reason)
        except BertctlError:
            return

    def _score(self, split: str) -> SplitResult:
        # The validation split comes first and chooses the thresholds, the others are scored with them.
        choose = split == self.job.selection
        return evaluate_split(
            Engine.of(self.job.loaded, self.job.compute, self.workers),
            self.job.task if choose else self.results[self.job.selection].task,
            self.job.data.splits[split],
            self.job.features[split],
            recipe=self.job.recipe,
            choose=choose,
            listener=self.listener,
        )

    def _log(self, figures: dict[str, float]) -> None:
        if not self.workers.is_first:
            return
        append_jsonl(self.folder.history, figures)
        if self.machine is not None:
            values = {name: value for name, value in figures.items() if name != "step"}
            self.machine.accelerator.log(values, step=int(figures["step"]))

    def _evaluate(self, step: int) -> float:
        job = self.job
        # Taken now: a signal during the scoring saves from here, and scoring draws no random number.
        self.random = random_states(self.workers)
        alone = self.workers.count == 1
        if not alone and job.recipe.training.checkpoint_every != "off":
            self._save(behind=True)  # several processes stop together, after the scoring, which may take too long
        started = time.perf_counter()
        with self.signals.welcome() if alone else contextlib.nullcontext():
            result = self.results[job.selection] = self._score(job.selection)
        self.evaluation_seconds += time.perf_counter() - started
        value, loss = result.metrics[job.primary].value, result.metrics["loss"].value
        self.listener.say(f"step {step}: {job.selection} {job.primary} {value:.4f}, loss {loss:.4f}")
        self._log({"step": step, f"{job.selection}_{job.primary}": value, f"{job.selection}_loss": loss})
        if self.averaging is not None:
            self.averaging.offer(self.outcome, value, self.network)
        if self.workers.is_first:
            self.folder.set_status("running", step=step)
        self._look_on(result, step, value, loss)
        return value

    def _look_on(self, result: SplitResult, step: int, value: float, loss: float) -> None:
        """Note a collapse, and let the watch end the run at the end of an epoch, the last one excepted."""
        outcome, epoch_steps = self.outcome, self.job.steps // self.job.recipe.training.epochs
        answer = result.task.constant_prediction(result.outputs, result.features)
        epoch, inside = divmod(step, epoch_steps)
        if not inside:
            outcome.collapsed_losses = [*outcome.collapsed_losses, loss] if answer is not None else []
        if answer is not None:
            self._warn_of_collapse(answer, result, step)
        if not inside and step < self.job.steps:
            outcome.stop_reason = self.watch.after_epoch(EpochEnd(epoch, step, value), outcome)
            outcome.stopped_early = bool(outcome.stop_reason)

    def _warn_of_collapse(self, answer: str, result: SplitResult, step: int) -> None:
        message = f"step {step}: the model answers {answer} to every example of {result.rows.split}"
        if self.strict:
            raise DivergedError(
                message,
                remedy="Try a lower --learning-rate, another --seed, a longer warm-up "
                "(--set optimizer.warmup_fraction=0.2); without --strict this is a warning.",
            )
        self.listener.warn(message)

    def _keep(self) -> bool:
        """Keep the weights as the best so far; whether this process has put them on the disk."""
        return self.workers.is_first and self.model.keep(self.network)

    def _better(self, step: int) -> None:
        if self._keep():
            self.folder.set_status("running", step=step, message=f"model/ holds the weights of step {step}")

    def _after_step(self, epoch_over: bool) -> None:
        self.watch.after_step(self.outcome)
        due = np.array([self.due(self.outcome.step, epoch_over=epoch_over)], dtype=np.int64)
        if self.workers.sum(due)[0]:  # minutes pass at another step in each process
            self.random = random_states(self.workers)
            self._save(behind=True)
        try:
            self.signals.check()
        except KeyboardInterrupt:
            self.random = random_states(self.workers)
            raise

    def _save(self, *, behind: bool) -> None:
        """Saves a checkpoint, in the first process."""
        if self.machine is None:
            raise ValueError("there is nothing to save before the machine is built")
        if not self.workers.is_first:
            return
        self.model.flush()
        history = self.folder.history
        bytes_ = history.stat().st_size if history.exists() else 0
        self.checkpoints.wait()
        self.snapshot = take(self.machine, self.outcome, self.random, history_bytes=bytes_, into=self.snapshot)
        self.checkpoints.save(self.snapshot, behind=behind)

    def _end_reason(self) -> str:
        """Why a watch ended the run, or that the weights that stay answer one thing to everything; else empty."""
        chosen = self.results[self.job.selection]
        collapsed = chosen.task.constant_prediction(chosen.outputs, chosen.features) is not None
        return self.outcome.stop_reason or ("collapsed" if collapsed else "")

    def _write_results(self) -> Result:
        job, folder, outcome, results = self.job, self.folder, self.outcome, self.results
        metrics = metrics_document(results, primary=job.primary, selection=job.selection)
        metrics["baseline"] = {
            split: job.task.baseline(job.data.splits["train"], result.rows) for split, result in results.items()
        }
        metrics["data"] = {split: truncation_counts(features) for split, features in job.features.items()}
        metrics["best_step"], metrics["steps"] = outcome.best_step, outcome.step
        if self.average:
            metrics["average"] = self.average
        performance = {
            "schema": SCHEMA,
            "seconds": {phase: round(seconds, 3) for phase, seconds in job.seconds.items()},
            "examples_per_second": round(outcome.examples / outcome.seconds, 2),
            "tokens_per_second": round(outcome.tokens / outcome.seconds, 1),
            "padding_share": round(outcome.padding, 4),
            "peak_memory_bytes": peak_memory_bytes(),
            "estimated_memory_bytes": job.memory.total,
            "stopped_early": outcome.stopped_early,
            "processes": self.workers.count,
            "skipped_steps": outcome.skipped_steps,
        }
        if self.workers.is_first:
            for split, result in results.items():
                write_jsonl(folder.predictions(split), prediction_lines(result, settings=job.recipe.evaluation))
            decision = results[job.selection].decision
            if decision:
                write_json(folder.decision, {"schema": SCHEMA, **decision, "fitted_on": job.selection})
            write_json(folder.metrics, metrics)
            write_json(folder.performance, performance)
            self.model.finish(self.network)
            stopped = f"stopped after step {outcome.step} of {job.steps}" if outcome.stop_reason else ""
            folder.set_status("done", step=outcome.step, message=stopped, reason=self._end_reason())
        return Result(folder, metrics, performance)
