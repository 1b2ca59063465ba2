"""`probe`: linear classifiers on vectors of the frozen encoder, from a recipe to a finished run folder.

One forward pass gives every layer in every pooling. For each, the strength of the classifier is chosen by
cross-validation on the training rows; the choice with the best cross-validation score is the probe that is kept, so
that the score on the validation rows, which decided nothing, is an honest one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertctl.config.dump import dump_recipe, recipe_hash
from bertctl.config.schema import Recipe
from bertctl.data.load import load_data
from bertctl.errors import BertctlError, DataError, UsageError
from bertctl.features import classifiers
from bertctl.features.classifiers import Settings
from bertctl.features.encoder import Encoder, Wanted
from bertctl.features.given import GivenFeatures
from bertctl.features.selection import Choice, ProbeJob, Scorer, other_hold_outs, table_document
from bertctl.features.units import Units
from bertctl.inference.evaluate import (
    SplitResult,
    choose_primary,
    evaluate_split,
    metrics_document,
    prediction_lines,
    truncation_counts,
    warn_of_losses,
)
from bertctl.modeling.layers import choose_layers, layer_count
from bertctl.modeling.linear_head import LinearHead, load_frozen, with_head
from bertctl.modeling.source import inspect_model
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import RunFolder, write_json, write_jsonl, write_text
from bertctl.runtime.device import choose_compute
from bertctl.tasks.registry import task_from_data
from bertctl.tasks.sequences import SequenceFeatures

if TYPE_CHECKING:
    from bertctl.tasks.base import Task

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class ProbeResult:
    """What a finished probe hands to whoever shows it.

    Attributes:
        folder: the run.
        metrics: content of metrics.json; `probe` in it is the table.
        seconds: spent in each phase.
        rows: that went through the encoder.
    """

    folder: RunFolder
    metrics: dict[str, Any]
    seconds: dict[str, float]
    rows: int


def prepare(recipe: Recipe, *, given: GivenFeatures | None = None, listener: Listener = SILENT) -> ProbeJob:
    """Read and check everything; the refusals come in order of their cost.

    Args:
        recipe: of a task with one label, several labels or a score for each text.
        given: features from files, in place of a forward pass.

    Raises:
        BertctlError: any refusal: data, labels, model, layers, device.
    """
    started = time.perf_counter()
    source = inspect_model(recipe.model)
    n_layers = layer_count(source.config)
    if given is not None:
        given.check_model(source)
    names = given.layers if given is not None else recipe.probe.layers or ["last"]
    poolings = [given.pooling] if given is not None else recipe.probe.pooling
    layers = choose_layers(names, n_layers)
    if recipe.probe.repeats > 1 and (recipe.data.name or recipe.data.validation_file):
        raise UsageError(
            "probe.repeats holds rows out of the training rows again and again, and these have validation rows",
            remedy="Leave the validation file out, or probe.repeats.",
        )
    data = load_data(recipe, listener=listener)
    evaluated = tuple(recipe.evaluation.splits) or data.validation_splits
    for split in dict.fromkeys(("train", *evaluated)):
        if not data.splits[split].has("label"):
            raise DataError(f"the split '{split}' has no labels", remedy="Name the column: --label-column NAME.")
    task = task_from_data(recipe, data.splits["train"], data.labels)
    for split in dict.fromkeys((*evaluated, *data.validation_splits)):
        task.check(data.splits[split])
    settings = _settings(recipe, task)
    if given is not None:
        given.check_rows(data)
    read = time.perf_counter()
    compute = choose_compute(recipe.runtime)
    section = recipe.probe.model_copy(
        update={
            "layers": [layer.name for layer in layers],
            "pooling": list(poolings),
            "classifier": settings.classifier,
            "special_tokens": given.special_tokens if given else recipe.probe.special_tokens,
            "normalize": given.normalize if given else recipe.probe.normalize,
        }
    )
    runtime = recipe.runtime.model_copy(
        update={"device": compute.device, "precision": compute.precision, "threads": compute.threads}
    )
    resolved = recipe.model_copy(update={"runtime": runtime, "probe": section})
    loaded = load_frozen(source, compute)
    wanted = Wanted(
        layers, tuple(dict.fromkeys(poolings)), special_tokens=section.special_tokens, normalize=section.normalize
    )
    features: dict[str, SequenceFeatures] = {
        split: task.encode(rows, loaded.tokenizer, max_length=recipe.model.max_length)  # type: ignore[misc]
        for split, rows in data.splits.items()
    }
    model_hash = source.content_hash()
    job = ProbeJob(
        recipe=resolved,
        data=data,
        task=task,
        source=source,
        loaded=loaded,
        compute=compute,
        encoder=Encoder(source, loaded, wanted, compute),
        features=features,
        selection=data.validation_splits[0],
        evaluated=tuple(dict.fromkeys((data.validation_splits[0], *evaluated))),
        settings=settings,
        hash=recipe_hash(resolved, data_hashes=data.hashes, model_hash=model_hash),
        model_hash=model_hash,
        given=given,
    )
    job.seconds = {"read": read - started, "load": time.perf_counter() - read}
    return job


def _settings(recipe: Recipe, task: "Task") -> Settings:
    section = recipe.probe
    head = task.head()
    regression = recipe.task == "text-regression"
    classifier = section.classifier or (classifiers.RIDGE if regression else classifiers.LOGISTIC)
    if regression and classifier != classifiers.RIDGE:
        raise UsageError(
            f"{classifier} predicts labels, and the task is text-regression", remedy="Use --classifier ridge."
        )
    return Settings(
        classifier=classifier,
        multi_label=head["problem_type"] == "multi_label_classification",
        n_outputs=int(head["num_labels"]),
        balanced=section.class_weight == "balanced",
        strengths=tuple(sorted(section.strengths)),
        folds=section.folds,
        seed=recipe.training.seed,
    )


def announce(job: ProbeJob, *, listener: Listener) -> None:
    """Say what is about to happen."""
    listener.say(f"compute: {job.compute.why}")
    for split, rows in job.data.splits.items():
        listener.say(f"{split}: {len(rows)} examples ({job.task.describe(rows)})")
        counts = truncation_counts(job.features[split])
        warn_of_losses(split, counts, cut=job.task.cut, max_length=job.recipe.model.max_length, listener=listener)
    n = len(job.encoder.pairs)
    listener.say(f"{n} choices of layer and pooling from one forward pass" if n > 1 else "one forward pass")


def run(
    job: ProbeJob, folder: RunFolder, *, environment: Callable[[ProbeJob], dict[str, Any]], listener: Listener = SILENT
) -> ProbeResult:
    """Compute, train, score, and write the run folder.

    Args:
        environment: makes the content of environment.json.
    """
    write_text(folder.recipe, dump_recipe(job.recipe, command=f"bertctl probe {folder.recipe}"))
    write_json(folder.environment, environment(job))
    try:
        return _run(job, folder, listener)
    except BaseException as error:
        state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        message = error.message if isinstance(error, BertctlError) else f"{type(error).__name__}: {error}"
        folder.set_status(state, step=0, message=message)
        raise


def _run(job: ProbeJob, folder: RunFolder, listener: Listener) -> ProbeResult:
    started = time.perf_counter()
    train, held = job.features["train"], job.features[job.selection]
    vectors = _vectors(job, listener)
    computed = time.perf_counter()
    n_train, n = len(train), len(train) + len(held)
    labels = np.concatenate([train.gold, held.gold])
    known = [*job.task.baseline(train, held), "loss"]
    dataset = job.data.dataset
    primary = choose_primary(
        job.recipe.evaluation.primary_metric, dataset.primary_metric if dataset else None, job.task, known
    )
    table = []
    scorer = Scorer(job, labels, primary)
    hold_outs = [(np.arange(n_train), np.arange(n_train, n)), *other_hold_outs(job)]
    for number, (pair, found) in enumerate(zip(job.encoder.pairs, vectors, strict=True)):
        table.append(scorer.choice(pair, found, hold_outs))
        listener.advance("training", number + 1, len(vectors), {primary: table[-1].metrics[primary].value})
    listener.finish("training")
    best = max(range(len(table)), key=lambda i: table[i].cross_validation)  # the first of equals
    curve = scorer.curve(table[best], vectors[best], n_train)
    trained = time.perf_counter()
    results = _keep(job, table[best], folder, listener)
    metrics = metrics_document(results, primary=primary, selection=job.selection)
    metrics["baseline"] = {split: job.task.baseline(train, result.features) for split, result in results.items()}
    metrics["data"] = {split: truncation_counts(features) for split, features in job.features.items()}
    metrics["probe"] = table_document(job, table, best, curve, primary)
    for split, result in results.items():
        lines = prediction_lines(result, settings=job.recipe.evaluation)
        write_jsonl(folder.predictions(split), lines)
    write_json(folder.metrics, metrics)
    ended = time.perf_counter()
    job.seconds |= {"features": computed - started, "train": trained - computed, "evaluate": ended - trained}
    folder.set_status("done", step=0)
    return ProbeResult(folder, metrics, job.seconds, n)


def _vectors(job: ProbeJob, listener: Listener) -> list[NDArray[np.float32]]:
    """For each choice the vectors of the training rows, then of the validation rows."""
    splits = ("train", job.selection)
    if job.given is not None:
        return job.given.vectors([job.data.splits[split] for split in splits])
    total = sum(len(job.features[split]) for split in splits)
    seen = 0

    def done(count: int) -> None:
        nonlocal seen
        seen += count
        listener.advance("features", seen, total)

    parts = [job.encoder.texts(units_of(job.features[split]), done=done) for split in splits]
    listener.finish("features")
    return [np.concatenate([a, b]) for a, b in zip(*parts, strict=True)]


def units_of(features: SequenceFeatures) -> Units:
    """Encoded rows as units, one each."""
    encoded = features.encoded
    return Units(
        ids=encoded.ids,
        type_ids=encoded.type_ids,
        starts=encoded.starts,
        owner=np.arange(len(encoded)),
        rows=len(encoded),
        truncated=int(encoded.truncated.sum()),
        lost_tokens=int(features.lost_tokens.sum()),
        unknown=int(encoded.unknown.sum()),
    )


def _keep(job: ProbeJob, best: Choice, folder: RunFolder, listener: Listener) -> dict[str, SplitResult]:
    """Write the best probe, and score it the way `evaluate` will: text in, answers out."""
    head = LinearHead(
        layer=best.layer.name,
        pooling=best.pooling,
        special_tokens=job.encoder.wanted.special_tokens,
        normalize=job.encoder.wanted.normalize,
        classifier=job.settings.classifier,
        strength=best.fitted.strength,
        weight=best.fitted.weight,
        bias=best.fitted.bias,
        mix=best.fitted.mix,
    )
    head.save(folder.path, source=job.source, head=job.task.head())
    scoring = with_head(job.loaded, head, job.source, job.compute)
    return {
        split: evaluate_split(
            scoring.network,
            scoring,
            job.task,
            job.data.splits[split],
            job.features[split],
            compute=job.compute,
            settings=job.recipe.evaluation,
            seed=job.recipe.training.seed,
            listener=listener,
        )
        for split in job.evaluated
    }
