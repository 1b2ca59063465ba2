"""`finetune`: from a recipe to a finished run folder. Prints nothing; what it has to say goes to the listener."""

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bertctl.config.dump import dump_recipe, recipe_hash
from bertctl.config.schema import Recipe
from bertctl.data.load import LoadedData, load_data
from bertctl.errors import BertctlError, DataError, InterruptedRunError, UnavailableError, UsageError
from bertctl.inference.evaluate import (
    SplitResult,
    choose_primary,
    evaluate_split,
    metrics_document,
    prediction_lines,
    truncation_counts,
)
from bertctl.metrics.names import METRICS
from bertctl.metrics.scripts import find_script
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, RunFolder, append_jsonl, write_json, write_jsonl, write_text
from bertctl.runtime.device import Compute, choose_compute
from bertctl.runtime.seeding import seed_everything
from bertctl.tasks.base import Features, Task
from bertctl.tasks.registry import task_from_data
from bertctl.training.environment import describe_environment
from bertctl.training.loop import Hooks, Outcome, total_steps, train
from bertctl.training.memory import MemoryEstimate, estimate_memory, peak_memory_bytes
from bertctl.training.signals import Terminated, sigterm_as_interrupt
from bertctl.training.trackers import check_trackers

if TYPE_CHECKING:
    from accelerate import Accelerator

    from bertctl.modeling.load import LoadedModel


@dataclass
class Job:
    """A run made ready: everything read, checked and refused, nothing trained.

    Attributes:
        recipe: with device, precision and threads resolved.
        data: the splits.
        task: fitted to the training rows.
        source: the model's files.
        loaded: the model with its new head.
        compute: where and how.
        features: split -> encoded rows.
        evaluated: splits scored at the end.
        selection: split that picks the best weights.
        primary: metric that does.
        steps: optimizer steps.
        memory: estimate.
        hash: of what decides the numbers.
        environment: content of environment.json.
        seconds: spent in each phase.
    """

    recipe: Recipe
    data: LoadedData
    task: Task
    source: ModelSource
    loaded: "LoadedModel"
    compute: Compute
    features: dict[str, Features]
    evaluated: tuple[str, ...]
    selection: str
    primary: str
    steps: int
    memory: MemoryEstimate
    hash: str
    environment: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)


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


def prepare(recipe: Recipe, *, listener: Listener = SILENT) -> Job:
    """Read and check everything a run needs; the refusals come in order of their cost.

    Raises:
        BertctlError: any refusal: recipe, files, labels, model, device.
    """
    started = time.perf_counter()
    check_trackers(recipe.runtime.log_to)
    for script in recipe.evaluation.metric_scripts:
        find_script(script)
    data, source = _find(recipe, listener)
    evaluated = tuple(recipe.evaluation.splits) or data.validation_splits
    _check_splits(data, evaluated)
    task = task_from_data(recipe, data.splits["train"], data.labels)
    for split in dict.fromkeys((*evaluated, *data.validation_splits)):
        task.check(data.splits[split])
    read = time.perf_counter()

    from bertctl.modeling.load import has_trained_head, keeps_head, load_model

    compute = choose_compute(recipe.runtime)
    resolved = _resolved(recipe, compute)
    seed_everything(recipe.training.seed)
    if has_trained_head(source):
        kept = "its trained head is kept" if keeps_head(source, task.head()) else "other labels, so it gets a new head"
        listener.say(f"model: {source.name} was fine-tuned before; {kept}")
    loaded = load_model(source, task.auto_class, head=task.head(), dropout=recipe.model.dropout)
    model_read = time.perf_counter()
    features = {
        split: task.encode(rows, loaded.tokenizer, max_length=recipe.model.max_length)
        for split, rows in data.splits.items()
    }
    model_hash = source.content_hash()
    digest = recipe_hash(resolved, data_hashes=data.hashes, model_hash=model_hash)
    job = Job(
        recipe=resolved,
        data=data,
        task=task,
        source=source,
        loaded=loaded,
        compute=compute,
        features=features,
        evaluated=evaluated,
        selection=data.validation_splits[0],
        primary=_primary(resolved, data, task, features),
        steps=total_steps(recipe, len(features["train"])),
        memory=estimate_memory(
            recipe,
            source.config,
            parameters=sum(p.numel() for p in loaded.network.parameters()),
            longest=int(features["train"].lengths.max()),
            precision=compute.precision,
        ),
        hash=digest,
        environment=describe_environment(
            resolved,
            compute,
            data_hashes=data.hashes,
            columns=data.columns,
            model_hash=model_hash,
            recipe_hash=digest,
        ),
    )
    job.seconds = {"read": read - started, "load": model_read - read, "encode": time.perf_counter() - model_read}
    return job


def _find(recipe: Recipe, listener: Listener) -> tuple[LoadedData, ModelSource]:
    """The rows and the model's files; where the rows can't be had, the error says too what is wrong with the model.

    Raises:
        BertctlError: any refusal of data or model.
    """
    try:
        data = load_data(recipe, listener=listener)
    except UnavailableError as missing:
        try:
            inspect_model(recipe.model)
        except BertctlError as error:
            raise UnavailableError(
                f"{missing.message}\n{error.message}", remedy=f"{missing.remedy}\n{error.remedy}"
            ) from missing
        raise
    return data, inspect_model(recipe.model)


def run(job: Job, folder: RunFolder, *, listener: Listener = SILENT) -> Result:
    """Train, keep the best weights, score, and write the run folder.

    Raises:
        DivergedError: training exploded.
        InterruptedRunError: Ctrl-C or SIGTERM, after the status was written.
        UnavailableError: the disk is full; the last good state stays.
    """
    outcome = Outcome()
    try:
        with sigterm_as_interrupt():
            write_text(folder.recipe, dump_recipe(job.recipe, command=f"bertctl finetune {folder.recipe}"))
            write_json(folder.environment, job.environment)
            return _train_and_score(job, folder, outcome, listener)
    except KeyboardInterrupt as error:
        raise _interrupted(folder, outcome, terminated=isinstance(error, Terminated)) from error
    except BertctlError as error:
        _try_status(folder, "failed", outcome.step, error.message)
        raise
    except Exception as error:
        _try_status(folder, "failed", outcome.step, f"{type(error).__name__}: {error}")
        raise


def _train_and_score(job: Job, folder: RunFolder, outcome: Outcome, listener: Listener) -> Result:
    from bertctl.modeling.load import load_weights, save_model

    accelerator = _accelerator(job, folder)
    results: dict[str, SplitResult] = {}
    evaluation_seconds = 0.0
    network = job.loaded.network

    def score(split: str) -> SplitResult:
        # The validation split comes first and chooses the thresholds, the others are scored with them.
        choose = split == job.selection
        return evaluate_split(
            network,
            job.loaded,
            job.task if choose else results[job.selection].task,
            job.data.splits[split],
            job.features[split],
            compute=job.compute,
            settings=job.recipe.evaluation,
            seed=job.recipe.training.seed,
            choose=choose,
            listener=listener,
        )

    def on_log(figures: dict[str, float]) -> None:
        append_jsonl(folder.history, figures)
        accelerator.log({name: value for name, value in figures.items() if name != "step"}, step=int(figures["step"]))

    def on_evaluate(step: int) -> tuple[float, float]:
        nonlocal evaluation_seconds
        started = time.perf_counter()
        result = score(job.selection)
        evaluation_seconds += time.perf_counter() - started
        value, loss = result.metrics[job.primary].value, result.metrics["loss"].value
        results[job.selection] = result
        listener.say(f"step {step}: {job.selection} {job.primary} {value:.4f}, loss {loss:.4f}")
        on_log({"step": step, f"{job.selection}_{job.primary}": value, f"{job.selection}_loss": loss})
        folder.set_status("running", step=step)
        return value, loss

    def on_better(step: int) -> None:
        save_model(job.loaded, network, folder.model)
        folder.set_status("running", step=step, message=f"model/ holds the weights of step {step}")

    train(
        job.loaded,
        job.task,
        job.features["train"],
        list(job.data.splits["train"].ids),
        recipe=job.recipe,
        compute=job.compute,
        accelerator=accelerator,
        higher_is_better=METRICS[job.primary].higher_is_better,
        hooks=Hooks(on_log, on_evaluate, on_better),
        outcome=outcome,
        listener=listener,
    )
    accelerator.end_training()
    if outcome.best_step != outcome.step:
        listener.say(f"using the weights of step {outcome.best_step}, the best on {job.selection}")
        load_weights(network, folder.model)
        results.clear()
    started = time.perf_counter()
    for split in dict.fromkeys((job.selection, *job.evaluated)):
        results[split] = results[split] if split in results else score(split)
    evaluation_seconds += time.perf_counter() - started
    job.seconds |= {"train": outcome.seconds, "evaluate": evaluation_seconds}
    return _write_results(job, folder, outcome, results)


def _write_results(job: Job, folder: RunFolder, outcome: Outcome, results: dict[str, SplitResult]) -> Result:
    for split, result in results.items():
        write_jsonl(
            folder.predictions(split),
            prediction_lines(result, settings=job.recipe.evaluation),
        )
    decision = results[job.selection].decision
    if decision:
        write_json(folder.decision, {"schema": SCHEMA, **decision, "fitted_on": job.selection})
    metrics = metrics_document(results, primary=job.primary, selection=job.selection)
    metrics["baseline"] = {
        split: job.task.baseline(job.features["train"], result.features) for split, result in results.items()
    }
    metrics["data"] = {split: truncation_counts(features) for split, features in job.features.items()}
    metrics["best_step"], metrics["steps"] = outcome.best_step, outcome.step
    performance = {
        "schema": SCHEMA,
        "seconds": {phase: round(seconds, 3) for phase, seconds in job.seconds.items()},
        "examples_per_second": round(outcome.examples / outcome.seconds, 2),
        "tokens_per_second": round(outcome.tokens / outcome.seconds, 1),
        "padding_share": round(outcome.padding, 4),
        "peak_memory_bytes": peak_memory_bytes(),
        "estimated_memory_bytes": job.memory.total,
        "stopped_early": outcome.stopped_early,
    }
    write_json(folder.metrics, metrics)
    write_json(folder.performance, performance)
    folder.set_status("done", step=outcome.step)
    return Result(folder, metrics, performance)


def _primary(recipe: Recipe, data: LoadedData, task: Task, features: dict[str, Features]) -> str:
    """The metric that picks the best weights; those that can be are the ones the baseline is scored by, and the loss.

    Raises:
        UsageError: the recipe names another.
    """
    known = [*task.baseline(features["train"], features[data.validation_splits[0]]), "loss"]
    catalog = data.dataset.primary_metric if data.dataset else None
    return choose_primary(recipe.evaluation.primary_metric, catalog, task, known)


def _accelerator(job: Job, folder: RunFolder) -> "Accelerator":
    from accelerate import Accelerator

    precision = {"fp32": "no"}.get(job.compute.precision, job.compute.precision)
    accelerator = Accelerator(
        mixed_precision=precision,
        cpu=job.compute.device == "cpu",
        log_with=list(job.recipe.runtime.log_to) or None,
        project_dir=folder.path / "trackers" if job.recipe.runtime.log_to else None,
    )
    if job.recipe.runtime.log_to:
        (folder.path / "trackers").mkdir(exist_ok=True)
        flat = {
            f"{section}.{name}": value if isinstance(value, int | float | str) else json.dumps(value)
            for section, fields in job.recipe.model_dump().items()
            if isinstance(fields, dict)
            for name, value in fields.items()
        }
        accelerator.init_trackers("bertctl", config=flat)
    return accelerator


def _check_splits(data: LoadedData, evaluated: tuple[str, ...]) -> None:
    if not len(data.splits["train"]):
        raise DataError("there are no training rows")
    for split in evaluated:
        if split not in data.splits:
            raise UsageError(
                f"evaluation.splits: there is no split '{split}'", remedy=f"Choose from {', '.join(data.splits)}."
            )
        if not data.splits[split].has("label"):
            raise DataError(
                f"the split '{split}' has no labels, so it can't be scored",
                remedy=f"Use `bertctl predict RUN --split {split}`, or name other splits in evaluation.splits.",
            )


def _resolved(recipe: Recipe, compute: Compute) -> Recipe:
    runtime = recipe.runtime.model_copy(
        update={"device": compute.device, "precision": compute.precision, "threads": compute.threads}
    )
    return recipe.model_copy(update={"runtime": runtime})


def _interrupted(folder: RunFolder, outcome: Outcome, *, terminated: bool) -> InterruptedRunError:
    saved = (
        f"{folder.model} holds the best weights so far, those of step {outcome.best_step}"
        if outcome.best_step
        else "no evaluation had been reached, so there are no weights to keep"
    )
    _try_status(folder, "interrupted", outcome.step, saved)
    how = "terminated" if terminated else "interrupted"
    return InterruptedRunError(
        f"{how} at step {outcome.step}: {saved}",
        remedy=f"Recipe, history and status are in {folder.path}. Start again with "
        f"`bertctl finetune {folder.recipe} -o NEW_FOLDER`.",
        terminated=terminated,
    )


def _try_status(folder: RunFolder, state: str, step: int, message: str) -> None:
    """Write the status on the way out; the error that is being reported matters more than this one."""
    try:
        folder.set_status(state, step=step, message=message)
    except BertctlError:
        return
