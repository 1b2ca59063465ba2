"""`probe`: linear classifiers on vectors of the frozen encoder, from a recipe to a finished run folder.

One forward pass gives every layer in every pooling. For each, the strength of the classifier is chosen by
cross-validation on the training rows; the choice with the best cross-validation score is the probe that is kept, so
that the score on the validation rows, which decided nothing, is an honest one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertctl.config.dump import dump_recipe, recipe_hash
from bertctl.config.schema import Recipe
from bertctl.data.load import LoadedData, load_data
from bertctl.data.rows import Rows
from bertctl.data.splits import hold_out
from bertctl.errors import BertctlError, DataError, UsageError
from bertctl.features import classifiers
from bertctl.features.classifiers import Fitted, Settings, choose_strength, fit, fit_mix, layer_mean
from bertctl.features.encoder import Encoder, Wanted
from bertctl.features.given import GivenFeatures
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
from bertctl.metrics.value import MetricValue
from bertctl.modeling.layers import LayerChoice, choose_layers, layer_count
from bertctl.modeling.linear_head import LinearHead, load_frozen, with_head
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, RunFolder, write_json, write_jsonl, write_text
from bertctl.runtime.device import Compute, choose_compute
from bertctl.tasks.registry import task_from_data
from bertctl.tasks.sequences import SequenceFeatures

if TYPE_CHECKING:
    from bertctl.modeling.load import LoadedModel
    from bertctl.tasks.base import Task

Indices = NDArray[np.int64]


@dataclass
class ProbeJob:
    """A probe made ready: everything read, checked and refused, nothing computed.

    Attributes:
        recipe: with device, precision, threads, layers and classifier resolved.
        data: the splits.
        task: fitted to the training rows.
        source: the encoder's files.
        loaded: the bare encoder.
        compute: where and how.
        encoder: gives the vectors.
        features: split -> encoded rows, with labels.
        selection: the validation split that is scored for every choice.
        evaluated: splits scored with the best one.
        settings: of the classifiers.
        hash: of what decides the numbers.
        hashes: of data and model, for environment.json.
        given: features from a file, in place of a forward pass.
        seconds: spent in each phase.
    """

    recipe: Recipe
    data: LoadedData
    task: "Task"
    source: ModelSource
    loaded: "LoadedModel"
    compute: Compute
    encoder: Encoder
    features: dict[str, SequenceFeatures]
    selection: str
    evaluated: tuple[str, ...]
    settings: Settings
    hash: str
    model_hash: str
    given: GivenFeatures | None = None
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """One layer in one pooling, trained.

    Attributes:
        layer: which.
        pooling: how.
        cross_validation: mean score over the folds.
        fitted: on all training rows.
        metrics: on the validation rows.
        repeats: the primary metric on each of the other hold-outs.
    """

    layer: LayerChoice
    pooling: str
    cross_validation: float
    fitted: Fitted
    metrics: dict[str, MetricValue]
    repeats: tuple[float, ...]


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
        warn_of_losses(split, counts, max_length=job.recipe.model.max_length, listener=listener)
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
    scorer = _Scorer(job, labels, primary)
    hold_outs = [(np.arange(n_train), np.arange(n_train, n)), *_other_hold_outs(job)]
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
    metrics["probe"] = _table_document(job, table, best, curve, primary)
    for split, result in results.items():
        lines = prediction_lines(job.task, result, settings=job.recipe.evaluation)
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


def _other_hold_outs(job: ProbeJob) -> list[tuple[Indices, Indices]]:
    """With `probe.repeats`, training and validation rows parted again, by the seeds that follow."""
    repeats = job.recipe.probe.repeats
    if repeats == 1:
        return []
    train, held = job.data.splits["train"], job.data.splits[job.selection]
    labels = [*train.columns["label"], *held.columns["label"]]
    n = len(labels)
    rows = Rows("train", {"text": [""] * n, "label": labels}, [str(i) for i in range(n)], train.source)
    found = []
    for number in range(1, repeats):
        left, out, _ = hold_out(
            rows,
            fraction=len(held) / n,
            seed=job.recipe.training.seed + number,
            stratify=job.recipe.task == "text-classification",
        )
        found.append((np.array([int(i) for i in left.ids]), np.array([int(i) for i in out.ids])))
    return found


class _Scorer:
    """Trains and scores one choice after the other on the same rows."""

    def __init__(self, job: ProbeJob, labels: NDArray[Any], primary: str) -> None:
        self._job, self._labels, self._primary = job, labels, primary

    def choice(
        self,
        pair: tuple[LayerChoice, str],
        vectors: NDArray[np.float32],
        hold_outs: Sequence[tuple[Indices, Indices]],
    ) -> Choice:
        """One layer in one pooling."""
        layer, pooling = pair
        (train, held), others = hold_outs[0], hold_outs[1:]
        score, fitted = self._fit(layer, vectors, train)
        repeats = []
        for inside, outside in others:
            _, again = self._fit(layer, vectors, inside)
            repeats.append(self._score(again, vectors, outside, resamples=100)[self._primary].value)
        resamples = self._job.recipe.evaluation.bootstrap_resamples
        metrics = self._score(fitted, vectors, held, resamples=resamples)
        return Choice(layer, pooling, score, fitted, metrics, tuple(repeats))

    def curve(self, best: Choice, vectors: NDArray[np.float32], n_train: int) -> list[dict[str, Any]]:
        """The best choice, trained on fewer rows (the strength chosen again among them)."""
        found = []
        held = np.arange(n_train, len(vectors))
        order = np.random.default_rng(self._job.recipe.training.seed).permutation(n_train)
        for size in sorted(set(self._job.recipe.probe.train_sizes)):
            if size > n_train:
                raise UsageError(
                    f"probe.train_sizes: {size} is more than the {n_train} training rows", remedy="Leave it out."
                )
            _, fitted = self._fit(best.layer, vectors, np.sort(order[:size]))
            metrics = self._score(fitted, vectors, held, resamples=self._job.recipe.evaluation.bootstrap_resamples)
            found.append({"rows": size, "strength": fitted.strength, **metrics[self._primary].as_json()})
        return found

    def _fit(self, layer: LayerChoice, vectors: NDArray[np.float32], rows: Indices) -> tuple[float, Fitted]:
        inside, labels, settings = vectors[rows], self._labels[rows], self._job.settings
        if not layer.is_learned:
            strength, score = choose_strength(inside, labels, settings)
            return score, fit(inside, labels, strength, settings)
        if settings.classifier == classifiers.SVM or settings.multi_label:
            raise UsageError(
                f"'{layer.name}' learns its mix with a logistic regression on one label",
                remedy="Take other layers, or leave --classifier out.",
            )
        n_layers = len(layer.states)
        # The strength of the plain mean of the layers: as many mixes would take as many times as long.
        strength, score = choose_strength(layer_mean(inside, n_layers), labels, settings)
        return score, fit_mix(inside, labels, strength, settings, layers=n_layers)

    def _score(
        self, fitted: Fitted, vectors: NDArray[np.float32], rows: Indices, *, resamples: int
    ) -> dict[str, MetricValue]:
        """The task's metrics of these rows."""
        held = self._job.features[self._job.selection]
        scored = replace(held, labels=self._labels[rows])
        logits = fitted.logits(vectors[rows])
        return self._job.task.score(logits, scored, resamples=resamples, seed=self._job.recipe.training.seed)


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


def _table_document(
    job: ProbeJob, table: Sequence[Choice], best: int, curve: Sequence[dict[str, Any]], primary: str
) -> dict[str, Any]:
    rows = []
    for choice in table:
        row: dict[str, Any] = {
            "layer": choice.layer.name,
            "pooling": choice.pooling,
            "strength": choice.fitted.strength,
            "cross_validation": choice.cross_validation,
            primary: choice.metrics[primary].as_json(),
        }
        if choice.fitted.mix is not None:
            row["mix"] = [round(float(weight), 6) for weight in choice.fitted.mix]
        if choice.repeats:
            values = np.array([choice.metrics[primary].value, *choice.repeats])
            row["hold_outs"] = {
                "n": len(values),
                "mean": float(values.mean()),
                "deviation": float(values.std(ddof=1)),
                "values": [float(value) for value in values],
            }
        rows.append(row)
    return {
        "schema": SCHEMA,
        "classifier": job.settings.classifier,
        "best": {"layer": table[best].layer.name, "pooling": table[best].pooling},
        "table": rows,
        **({"learning_curve": list(curve)} if curve else {}),
    }
