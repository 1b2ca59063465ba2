"""A run, from a job made ready to a finished run folder.

Prints nothing; a listener hears what there is to say.
"""

import contextlib
import math
import operator
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bertctl.config.task_names import PRETRAINING
from bertctl.documents import read_json_lines
from bertctl.errors import BertctlError, DivergedError, InterruptedRunError, said_of
from bertctl.inference.evaluate import SplitResult
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.line_documents import HistoryLine
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.performance_document import PerformanceDocument
from bertctl.run_folder import DAMAGED, RunFolder
from bertctl.runtime.launch import ALONE, Workers
from bertctl.runtime.stopping import Terminated
from bertctl.tasks.registry import higher_is_better
from bertctl.training.checkpoints.checkpoint import Checkpoint, Checkpoints
from bertctl.training.checkpoints.checkpointing import Checkpointing, Due
from bertctl.training.checkpoints.snapshot import restore
from bertctl.training.collapse import look_for_collapse
from bertctl.training.early_stopping import NO_EARLY_STOPPING, EarlyStopping
from bertctl.training.head_start import HeadStart, start_head
from bertctl.training.job import Job
from bertctl.training.loop.best_model import ModelFile
from bertctl.training.loop.loop import Evaluation, Hooks, TrainingState, train
from bertctl.training.loop.training_engine import TrainingEngine, build_engine
from bertctl.training.model_selection import ModelSelection
from bertctl.training.run_writer import RunWriter, run_metrics, run_performance
from bertctl.training.signals import Signals
from bertctl.training.time_limit import TimeLimitedSteps, TimeLimitOutcome, longer_training
from bertctl.training.trackers import tell
from bertctl.training.undertraining import StillImproving, rising_scores, undertrained_losses
from bertctl.words import seconds_in


@dataclass(frozen=True)
class Result:
    """Folder and figures of a finished run.

    Attributes:
        folder: Of the run.
        metrics: Content of metrics.json.
        performance: Content of performance.json.
        trained: Whether it was trained now, not read from a folder that was finished before.
    """

    folder: RunFolder
    metrics: MetricsDocument
    performance: PerformanceDocument
    trained: bool = True


class Baselines(Protocol):
    """Simple models that were scored before the training, to be compared with the run."""

    def metrics(
        self, results: Mapping[str, SplitResult], chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the fields of metrics.json that compare the run with the simple models.

        Args:
            results: The run's scores and predictions by split.
            chosen: What was chosen on which split, as `selected_on` in metrics.json.
        """

    def announce(self, metrics: MetricsDocument) -> None:
        """Reports how the run compares with the simple models.

        Args:
            metrics: Content of the run's metrics.json.
        """


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out, besides its recipe.

    Attributes:
        strict: Whether a model that gives every example the same answer is an error.
        workers: The processes that share the job.
        early_stopping: May end the run early.
        model_file: When RUN/model is written.
        checkpoint_pause: Seconds from the start, and from each checkpoint, before the end of an
            epoch saves another.
        make_baselines: Scores simple models before the training, in the first process; None where
            there are none.
        used_seconds: Returns the seconds that count for a time limit. Default: those since
            `Job.started`.
        on_start: Called with the run folder before anything is trained, in each process.
        on_finish: Called with the run folder when it is finished, in the first process (writes the
            model card).
    """

    strict: bool = False
    workers: Workers = ALONE
    early_stopping: EarlyStopping = NO_EARLY_STOPPING
    model_file: ModelFile = "each time"
    checkpoint_pause: float = 0.0
    make_baselines: Callable[[Job, RunFolder, Listener], Baselines | None] | None = None
    used_seconds: Callable[[], float] | None = None
    on_start: Callable[[RunFolder], None] | None = None
    on_finish: Callable[[RunFolder], None] | None = None


DEFAULT_OPTIONS = RunOptions()

_SCORED_TOKEN_COST = 1 / 3
"""Time for a token that is scored, as a share of that for one that is trained on: there is no
backward pass."""


def run(
    job: Job,
    folder: RunFolder,
    *,
    checkpoint: Checkpoint | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
    listener: Listener = SILENT,
) -> Result:
    """Trains, keeps the best weights, scores them and writes the run folder.

    Args:
        job: Made ready, the same in each process.
        folder: Of the run; the first process writes it.
        checkpoint: Where an interrupted run continues; None for a new run.
        options: How it is carried out.
        listener: Receives messages and progress.

    Raises:
        DivergedError: Training exploded, or collapsed under `strict`.
        InterruptedRunError: Ctrl-C, SIGTERM or SIGHUP, after a checkpoint was saved.
        UnavailableError: The disk is full; the last good state stays.
    """
    training_run = _TrainingRun(job, folder, options, listener)
    # When a process dies, torchrun sends SIGTERM to the other ones. The handlers stay until each
    # has reported its own error, so that the signal doesn't hide it.
    with training_run.signals.handle_signals():
        try:
            training_run.writer.write_inputs()
            training_run.set_deadline()
            training_run.compute_baselines()
            training_run.train(checkpoint)
            with training_run.signals.interruptible():
                result = training_run.finish()
        except KeyboardInterrupt as error:
            raise _interruption(training_run, terminated=isinstance(error, Terminated)) from error
        except Exception as error:
            # A checkpoint that is being written is completed.
            with contextlib.suppress(BertctlError):
                training_run.checkpoints.wait()
            if isinstance(error, DivergedError):
                reason = error.kind
            else:
                reason = "error"
            training_run.writer.try_set_status(
                "failed",
                step=training_run.state.step,
                message=said_of(error),
                reason=reason,
            )
            raise
    if options.workers.is_first:
        # Not within the `try`: a run that is stopped here is finished, not interrupted.
        training_run.checkpoints.clear()
    return result


class _TrainingRun:
    """A run while it is trained: what happens at a log line, an evaluation, a step and the end.

    `run` calls `compute_baselines`, `train` and `finish` in this order.

    Attributes:
        job, folder, options, listener: As `run` got them.
        state: Progress of the training; replaced by the checkpoint's in `train`.
        signals: Hold back Ctrl-C and the like until nothing is half done.
        writer: Writes the files of the run.
        selection: Scores splits, and keeps the best weights.
        checkpoints: Reads and writes them.
        checkpointing: Decides when one is saved; None before `train`.
        time_limit: Plans the steps under a time limit; None without one, and before `train`.
        is_trained: Whether the last step is over.
        baselines: Scores of the simple models; None without them.
        head_start: What the head began as; None if nothing was fitted, or in a resumed run.
    """

    def __init__(
        self, job: Job, folder: RunFolder, options: RunOptions, listener: Listener
    ) -> None:
        self.job = job
        self.folder = folder
        self.options = options
        self.listener = listener
        self.state = TrainingState()
        self.signals = Signals(options.workers)
        self.writer = RunWriter(job, folder, options.workers)
        self.selection = ModelSelection(
            job,
            folder,
            options.workers,
            model_file=options.model_file,
            listener=listener,
        )
        self.checkpoints = Checkpoints(folder, job.hash, listener=listener)
        self.checkpointing: Checkpointing | None = None
        self.time_limit: TimeLimitedSteps | None = None
        self.is_trained = False
        self.baselines: Baselines | None = None
        self.head_start: HeadStart | None = None

    def set_deadline(self) -> None:
        """Notes when the time limit ends, for what comes before the training."""
        limit = self.job.recipe.training.time_limit
        if limit is not None:
            time_left = seconds_in(limit) - self._used_seconds()
            self.job.deadline = time.perf_counter() + time_left

    def compute_baselines(self) -> None:
        """Scores the simple models before training changes the encoder that one of them reads.

        The first process does it, the others wait.
        """
        workers = self.options.workers
        if self.options.make_baselines is None:
            return
        if workers.is_first:
            # Several processes can only stop together, at a step.
            can_stop = workers.count == 1
            with self.signals.interruptible() if can_stop else contextlib.nullcontext():
                self.baselines = self.options.make_baselines(self.job, self.folder, self.listener)
        workers.wait()

    def train(self, checkpoint: Checkpoint | None) -> None:
        """Trains from the first step, or the checkpoint's, to the last.

        Args:
            checkpoint: Where an interrupted run continues. It is None for a new run, whose head
                first gets the weights of a regression on the frozen encoder.
        """
        job = self.job
        training = self.job.recipe.training
        engine = build_engine(job, self.folder, self.options.workers, self.listener)
        try:
            if checkpoint is not None:
                seed = training.seed_of_init
                self.state = restore(
                    checkpoint,
                    engine,
                    self.folder,
                    seed=seed,
                    listener=self.listener,
                )
            else:
                self.head_start = start_head(job, self.options.workers, self.listener)
            due = Due(training.checkpoint_every, pause=self.options.checkpoint_pause)
            self.checkpointing = Checkpointing(
                engine, self.checkpoints, due, flush=self.selection.best.flush
            )
            if training.time_limit is not None:
                self.time_limit = self._limited_steps(engine)
                if checkpoint is not None:
                    self.time_limit.resume(self.state)
            train(
                engine,
                job.training_features,
                recipe=job.recipe,
                hooks=self._hooks(engine, self.checkpointing),
                state=self.state,
                listener=self.listener,
                step_plan=self.time_limit,
            )
        finally:
            # Accelerate's `end_training` would do it, but also ends the communication of the
            # processes, which scoring needs.
            tell(engine.accelerator.trackers, lambda tracker: tracker.finish(), self.listener)
        self.checkpoints.wait()
        self.is_trained = True

    @property
    def planned_steps(self) -> int:
        """Number of steps that the run is planned for at the moment."""
        if self.time_limit is None:
            return self.job.steps
        return self.time_limit.steps

    def _used_seconds(self) -> float:
        """Returns the seconds that count for a time limit until now."""
        if self.options.used_seconds is not None:
            return self.options.used_seconds()
        return time.perf_counter() - self.job.started

    def _limited_steps(self, engine: TrainingEngine) -> TimeLimitedSteps:
        """Returns the plan of steps under the recipe's time limit; it changes the schedule."""
        return TimeLimitedSteps(
            self.job,
            engine,
            used_seconds=self._used_seconds,
            scoring_seconds=lambda: self.selection.seconds,
            listener=self.listener,
        )

    def _hooks(self, engine: TrainingEngine, checkpointing: Checkpointing) -> Hooks:
        """Returns what the training loop calls at a log line, an evaluation and a step."""
        job = self.job

        def keep_weights(step: int) -> None:
            """Keeps the weights as the best so far; if they were written, status.json says so."""
            if self.selection.keep():
                self.writer.set_status(
                    "running", step=step, message=f"model/ holds the weights of step {step}"
                )

        def after_step(epoch_over: bool) -> None:
            """Ends the run early, saves a checkpoint or stops at a signal, where that is due."""
            self.options.early_stopping.after_step(self.state)
            checkpointing.after_step(self.state, epoch_over=epoch_over)
            try:
                self.signals.check()
            except KeyboardInterrupt:
                # The checkpoint that the interruption saves has the random states of this step.
                checkpointing.note_random_states()
                raise

        # The time of an evaluation is estimated from its tokens: without a backward pass, each
        # takes a third of the time of a trained one.
        tokens_of_epoch = job.training_features.lengths.sum()
        scored_tokens = job.features[job.selection].lengths.sum()
        evaluation_in_epochs = _SCORED_TOKEN_COST * scored_tokens / tokens_of_epoch

        # A head with the weights of a regression is scored before it is trained further. A head
        # start's `reason` says why the head begins with random weights instead.
        has_fitted_head = self.head_start is not None and not self.head_start.reason
        return Hooks(
            on_log=lambda figures: self._log(figures, engine),
            on_evaluate=lambda step: self._evaluate(step, engine, checkpointing),
            is_better=operator.gt if higher_is_better(job.primary) else operator.lt,
            on_better=keep_weights,
            on_step=after_step,
            names=job.training_ids,
            evaluation_cost=evaluation_in_epochs * job.steps_per_epoch,
            scores_start=has_fitted_head,
            breaks_ties=job.recipe.training.tie_breaker == "loss",
        )

    def _log(self, figures: dict[str, Any], engine: TrainingEngine) -> None:
        """Adds a line to the history, and gives its numbers to the trackers.

        Args:
            figures: Numbers of a step or an evaluation by name, and perhaps `samples`: texts that
                no tracker can plot.
            engine: Has the trackers.
        """
        self.writer.add_history(figures)
        if not self.options.workers.is_first:
            return
        step = int(figures["step"])
        values = {name: value for name, value in figures.items() if name not in ("step", "samples")}
        tell(
            engine.accelerator.trackers,
            lambda tracker: tracker.log(values, step=step),
            self.listener,
        )

    def _evaluate(
        self, step: int, engine: TrainingEngine, checkpointing: Checkpointing
    ) -> Evaluation:
        """Scores the weights of a step, and reports and stores what follows from the scores.

        Args:
            step: Steps of the optimizer so far; 0 before the first one.
            engine: Has the trackers.
            checkpointing: Saves a checkpoint before a scoring that several processes share.

        Returns:
            The primary metric and the loss of the split that chooses the best weights.
        """
        job = self.job
        result = self._scored_selection(step, checkpointing)
        value = result.metrics[job.primary].value
        loss = result.metrics["loss"].value
        evaluation = Evaluation(value, loss)

        self._say_scores(step, result)
        figures: dict[str, Any] = {
            "step": step,
            f"{job.selection}_{job.primary}": value,
            f"{job.selection}_loss": loss,
        }
        samples = job.task.samples(result.outputs, result.features, job.loaded.tokenizer)
        if samples:
            figures["samples"] = samples
        self._log(figures, engine)

        if step > 0:  # weights that were never trained are no candidates for the average
            self.selection.offer(self.state, evaluation)
        self.writer.set_status("running", step=step)
        if step > 0:
            self._look_for_an_end(step, result)
        return evaluation

    def _scored_selection(self, step: int, checkpointing: Checkpointing) -> SplitResult:
        """Returns the predictions and scores of the split that chooses the best weights."""
        # A signal that interrupts the scoring saves a checkpoint, which needs the random states of
        # this step. They are noted now; scoring draws no random number.
        checkpointing.note_random_states()
        is_alone = self.options.workers.count == 1
        if is_alone:
            with self.signals.interruptible():
                return self.selection.score(self.job.selection)

        # Several processes can only stop together, after the scoring. Whoever sent the signal may
        # not wait that long and kill them, so a checkpoint is saved before.
        if step > 0 and self.job.recipe.training.checkpoint_every != "off":
            checkpointing.save(self.state, behind=True)
        return self.selection.score(self.job.selection)

    def _say_scores(self, step: int, result: SplitResult) -> None:
        """Reports the scores of an evaluation: `epoch 2 of 3, step 68: validation accuracy ...`."""
        job = self.job
        scores = f"{job.selection} {result.headline(job.primary)}"
        if step == 0 and self.head_start is not None:
            self.listener.say(self.head_start.sentence(scores))
            return
        epoch = math.ceil(step / job.steps_per_epoch)
        self.listener.say(f"epoch {epoch} of {job.epochs}, step {step}: {scores}")

    def _look_for_an_end(self, step: int, result: SplitResult) -> None:
        """Ends the training if its answers have collapsed, or if early stopping says so.

        Raises:
            DivergedError: The answers have collapsed, under `strict`.
        """
        job = self.job
        state = self.state
        epoch, step_in_epoch = divmod(step, job.steps_per_epoch)
        is_end_of_epoch = step_in_epoch == 0
        # A collapse is noted for the ends of epochs. But with an `evaluate_every` that does not
        # divide an epoch, some epochs end without an evaluation; then none is noted.
        every_epoch_end_is_scored = (
            job.steps_per_epoch % (job.recipe.training.evaluate_every or 1) == 0
        )
        look_for_collapse(
            result,
            state,
            epoch_over=is_end_of_epoch and every_epoch_end_is_scored,
            strict=self.options.strict,
            listener=self.listener,
        )
        if is_end_of_epoch and step < self.planned_steps:
            state.stop_reason = self.options.early_stopping.after_epoch(epoch, state)
            state.stopped_early = bool(state.stop_reason)

    def finish(self) -> Result:
        """Scores all splits with the weights that stay, and writes what the run found.

        Returns:
            The folder with the content of its metrics.json and performance.json.
        """
        job = self.job
        state = self.state
        selection = self.selection
        selection.score_best(state)
        job.seconds |= {"train": state.seconds, "evaluate": selection.seconds}
        limited = None
        if self.time_limit is not None:
            limited = self.time_limit.outcome(state)
        final = selection.results[job.selection]
        constant_answer = final.task.answers.constant_prediction(final.lines)
        # A run that was stopped, or learned nothing, isn't advised to train longer.
        improving = None
        if not state.stopped_early and constant_answer is None:
            improving = self._still_improving(limited)

        scores = run_metrics(
            job,
            selection.results,
            state,
            selection.average,
            limited=limited,
            improving=improving,
        )
        if self.baselines is not None:
            scores |= self.baselines.metrics(selection.results, scores["selected_on"])
        metrics = MetricsDocument.model_validate(scores)
        performance = run_performance(job, state, self.options.workers, limited)
        self.writer.write_results(selection.results, metrics, performance)
        selection.finish()

        if limited is not None and limited.is_cut:
            self.listener.say(limited.sentence)
        self._set_done(limited, is_collapsed=constant_answer is not None)
        if constant_answer is not None:
            self.listener.warn(
                f"the model that was kept answers {constant_answer} to every example of "
                f"{job.selection}: nothing was learned"
            )
        if improving is not None:
            self.listener.warn(improving.sentence)
        if self.baselines is not None:
            self.baselines.announce(metrics)
        return Result(self.folder, metrics, performance)

    def _set_done(self, limited: TimeLimitOutcome | None, *, is_collapsed: bool) -> None:
        """Writes to status.json that the run is done, and why it ended before its last step.

        Args:
            limited: What the time limit did; None without one.
            is_collapsed: Whether the model gives every example the same answer.
        """
        state = self.state
        message = ""
        if limited is not None and limited.is_cut:
            message = limited.sentence
        elif state.stop_reason:
            message = f"stopped after step {state.step} of {self.job.steps}"
        reason = state.stop_reason
        if not reason and is_collapsed:
            reason = "collapsed"
        self.writer.set_status(
            "done",
            step=state.step,
            message=message,
            reason=reason,
        )

    def _still_improving(self, limited: TimeLimitOutcome | None) -> StillImproving | None:
        """Returns the evidence that the run ended while it was still improving, None without any.

        The losses of its last evaluations are looked at first, then their scores.

        Args:
            limited: What the time limit did, for the advice how to train longer.
        """
        job = self.job
        if job.recipe.task == PRETRAINING or not self.options.workers.is_first:
            return None
        history = read_json_lines(self.folder.history, HistoryLine, remedy=DAMAGED)
        best_step = self.state.best_step
        losses = undertrained_losses(history, selection=job.selection, best_step=best_step)
        option = longer_training(job.recipe.training, limited)
        if losses:
            return StillImproving(job.selection, "loss", tuple(losses), option)

        final = self.selection.results[job.selection].metrics[job.primary]
        if final.low is None or final.high is None:
            return None
        scores = rising_scores(
            history,
            selection=job.selection,
            metric=job.primary,
            best_step=best_step,
            interval_width=final.high - final.low,
            sign=1.0 if higher_is_better(job.primary) else -1.0,
        )
        if scores:
            return StillImproving(job.selection, job.primary, tuple(scores), option)
        return None


def _interruption(training_run: _TrainingRun, *, terminated: bool) -> InterruptedRunError:
    """Saves a checkpoint if any step was taken, and returns the error for a stopped run.

    Args:
        training_run: The run, stopped by Ctrl-C, SIGTERM or SIGHUP.
        terminated: Whether it was stopped by SIGTERM or SIGHUP.
    """
    state = training_run.state
    folder = training_run.folder
    verb = training_run.job.verb
    workers = training_run.options.workers
    checkpointing = training_run.checkpointing
    if checkpointing is not None and state.step and workers.is_first:
        # Once trained, the network may hold the best weights instead of the last ones; the end of
        # the last epoch has left a checkpoint.
        has_last_checkpoint = training_run.is_trained and training_run.checkpoints.any()
        if not has_last_checkpoint:
            checkpointing.save(state, behind=False)
        saved = f"a checkpoint was saved in {folder.checkpoints}"
        remedy = f"Continue with `{folder.command(verb, resume=True)}`."
    else:
        saved = "no step was complete, so there is nothing to keep"
        remedy = f"Start again with `{folder.command(verb, overwrite=True)}`."
    training_run.writer.try_set_status("interrupted", step=state.step, message=saved)
    if training_run.signals.together:
        # A launcher ends the processes that are left as soon as one has gone.
        workers.wait()
    if terminated:
        verdict = "terminated"
    else:
        verdict = "interrupted"
    message = f"{verdict} at step {state.step} of {training_run.job.steps}: {saved}"
    return InterruptedRunError(message, remedy=remedy, terminated=terminated)
