"""`probe`: linear classifiers on vectors of the frozen encoder.

It goes from a recipe to a finished run folder.

One forward pass gives every layer in every pooling. For each, the strength of the classifier is
chosen by cross-validation on the training rows; the choice with the best cross-validation score is
the probe that is kept, so that the score on the validation rows, which decided nothing, is an
honest one.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from bertctl.arrays import Floats32
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import NO_ROWS, load_data
from bertctl.data.sources import MemoryFile
from bertctl.errors import UsageError, said_of
from bertctl.features.encoded_windows import EncodedWindows
from bertctl.features.encoder import Encoder, VectorSpec, frozen_engine
from bertctl.features.selection import (
    ProbeJob,
    ProbeTrainer,
    TrainedProbe,
    labels_of,
    other_hold_outs,
    table_document,
)
from bertctl.inference.engine import Engine
from bertctl.inference.environment import describe_environment
from bertctl.inference.evaluate import SplitResult, report_truncation, write_predictions
from bertctl.inference.run_inputs import encode_splits, fit_task, primary_metric, resolved_for
from bertctl.modeling.build import load_frozen
from bertctl.modeling.classifiers import LOGISTIC, RIDGE, ClassifierSettings
from bertctl.modeling.layers import choose_layers, join_states, layer_count
from bertctl.modeling.linear_head import FIRST_OF_WORD, LinearHead
from bertctl.modeling.pooling import check_poolings, unit_length
from bertctl.modeling.source import inspect_model
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.status_document import State
from bertctl.run_folder import RunFolder
from bertctl.tasks.base import Task
from bertctl.tasks.registry import TASKS
from bertctl.tasks.sequences import SequenceFeatures
from bertctl.tasks.tagging.word_windows import WordFeatures
from bertctl.tokenization.long_texts import LongText
from bertctl.words import count
from bertctl.writing import write_json


def prepare(
    recipe: Recipe,
    *,
    rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
    listener: Listener = SILENT,
) -> ProbeJob:
    """Reads and checks everything that a probe needs, and loads the encoder.

    Cheap checks come first, so that a refusal takes little time.

    Args:
        recipe: A recipe of a task with one label, several labels or a score per text, or a tag per
            word.
        rows_in_memory: Split name -> rows in place of those in the recipe's files.
        listener: Receives what was guessed, held out, left out.

    Raises:
        BertctlError: Any refusal: data, labels, model, layers, device.
    """
    started = time.perf_counter()
    if recipe.model.keep_layers is not None:
        raise UsageError(
            "model.keep_layers: a probe reads the encoder as its files are",
            remedy="Leave it out, and choose layers with `probe.layers=`.",
        )
    if recipe.lora.rank is not None:
        raise UsageError(
            "lora.rank: a probe leaves the encoder as it is, so there is nothing to adapt",
            remedy="Leave it out, or fine-tune: `bertctl finetune` takes the same recipe or file.",
        )
    source = inspect_model(recipe.model)
    layers = choose_layers(recipe.probe.layers or ["last"], layer_count(source.config))
    by_word = "words" in TASKS[recipe.task].columns
    poolings = _poolings(recipe, by_word=by_word)
    _refuse_repeats(recipe, by_word=by_word)
    data = load_data(recipe, rows_in_memory=rows_in_memory, listener=listener)
    task, evaluated = fit_task(recipe, data)
    settings = _settings(recipe, task)
    read_at = time.perf_counter()
    compute = source.compute(recipe.runtime)
    probe_fields = {
        "layers": [layer.name for layer in layers],
        "pooling": poolings,
        "classifier": settings.classifier,
    }
    resolved = resolved_for(recipe, compute).with_fields("probe", **probe_fields)
    section = resolved.probe
    model = load_frozen(source, compute)
    spec = VectorSpec(
        layers=layers,
        poolings=tuple(poolings),
        words=FIRST_OF_WORD if by_word else None,
        special_tokens=section.special_tokens,
        normalize=section.normalize,
        windows=LongText.of(recipe.model).pooling,
    )
    job = ProbeJob(
        recipe=resolved,
        data=data,
        task=task,
        model=model,
        encoder=Encoder(source, model, spec, frozen_engine(model, compute)),
        features=encode_splits(task, data, recipe, model.tokenizer),
        primary=primary_metric(resolved, data, task),
        evaluated=tuple(dict.fromkeys((data.validation_splits[0], *evaluated))),
        settings=settings,
        environment=describe_environment(
            resolved,
            compute,
            data=data,
            model_hash=source.content_hash(),
        ),
    )
    job.seconds = {"read": read_at - started, "load": time.perf_counter() - read_at}
    return job


def _poolings(recipe: Recipe, *, by_word: bool) -> list[str]:
    """Returns the poolings to compare: how the vectors of tokens become one vector.

    Words have a single one, their first token, as in fine-tuning.

    Raises:
        UsageError: A task without one label per text or word; a pooling of texts for words, or of
            words for texts.
    """
    check_poolings([LongText.of(recipe.model).pooling], of="windows")
    poolings: list[str] = list(dict.fromkeys(recipe.probe.pooling))
    if by_word:
        # The default of texts is accepted, too: words have one pooling only.
        if poolings not in (
            ["mean"],
            [FIRST_OF_WORD],
        ):
            message = (
                f"'{poolings[0]}' makes one vector of a text, and {recipe.task} needs one for each "
                "word"
            )
            remedy = (
                f"Leave `pooling=` out: a word is read by its first token ('{FIRST_OF_WORD}'), as "
                "in fine-tuning."
            )
            raise UsageError(message, remedy=remedy)
        return [FIRST_OF_WORD]
    if "text" not in TASKS[recipe.task].columns:
        message = (
            "a probe learns a label or a score of a text, or a tag of a word, and the task is "
            f"{recipe.task}"
        )
        raise UsageError(
            message, remedy="Fine-tune for it: `bertctl finetune` takes the same recipe or file."
        )
    if FIRST_OF_WORD in poolings:
        raise UsageError(
            f"'{FIRST_OF_WORD}' is for words, and the task is {recipe.task}",
            remedy="Use cls or mean.",
        )
    return poolings


def _refuse_repeats(recipe: Recipe, *, by_word: bool) -> None:
    """Refuses `probe.repeats` where rows can't be held out anew.

    Raises:
        UsageError: The recipe names validation rows, or has labels of words.
    """
    if recipe.probe.repeats == 1:
        return
    if recipe.data.name or recipe.data.validation_file:
        message = (
            "probe.repeats holds rows out of the training rows again and again, and these have "
            "validation rows"
        )
        raise UsageError(message, remedy="Leave the validation file out, or probe.repeats.")
    if by_word:
        raise UsageError(
            "probe.repeats is for labels of texts",
            remedy="Leave it out, and give a validation file.",
        )


def _settings(recipe: Recipe, task: Task) -> ClassifierSettings:
    """Returns how classifiers are fitted: ridge regression of scores, else logistic regression.

    Raises:
        UsageError: A classifier of labels for a task with scores.
    """
    section = recipe.probe
    head = task.head()
    is_regression = head["problem_type"] == "regression"
    classifier = section.classifier or (RIDGE if is_regression else LOGISTIC)
    if is_regression and classifier != RIDGE:
        message = f"{classifier} predicts labels, and the task is {recipe.task}"
        raise UsageError(message, remedy="Use `classifier=ridge`.")
    return ClassifierSettings(
        classifier=classifier,
        multi_label=head["problem_type"] == "multi_label_classification",
        n_outputs=int(head["num_labels"]),
        labels=tuple(head.get("id2label", {}).values()),
        balanced=section.class_weight == "balanced",
        strengths=tuple(sorted(section.strengths)),
        folds=section.folds,
        seed=recipe.training.seed,
        # Folds have the same share of each label; words stay with their sentences instead.
        stratify=head["problem_type"] == "single_label_classification"
        and "words" not in task.columns,
    )


def announce(job: ProbeJob, *, listener: Listener) -> None:
    """Reports device, splits, truncation and the number of probes, before anything is computed."""
    listener.say(f"compute: {job.compute.why}")
    for split, rows in job.data.splits.items():
        listener.say(f"{split}: {count(len(rows), 'example')} ({job.task.describe(rows)})")
        report_truncation(
            split,
            job.features[split],
            job.task,
            job.recipe,
            listener,
        )
    for sentence in job.task.doubts(job.data.splits["train"]):
        listener.warn(sentence)
    if job.guess:
        listener.say(job.guess)
    n = len(job.encoder.pairs)
    if n > 1:
        listener.say(f"{n} combinations of layer and pooling from one forward pass")
    else:
        listener.say("one forward pass")


def run(job: ProbeJob, folder: RunFolder, *, listener: Listener = SILENT) -> MetricsDocument:
    """Computes features, trains probes, scores the best one, and writes the run folder.

    Args:
        job: What `prepare` has checked.
        folder: The run folder, which is made.
        listener: Receives progress.

    Returns:
        Its metrics.json, with the table of all probes under `probe`.
    """
    job.write_inputs(folder, "probe")
    try:
        return _run(job, folder, listener)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            state: State = "interrupted"
        else:
            state = "failed"
        folder.set_status(state, step=0, message=said_of(error))
        raise


def _run(job: ProbeJob, folder: RunFolder, listener: Listener) -> MetricsDocument:
    """Computes, trains, scores and writes; see `run`, which records failures."""
    started = time.perf_counter()
    train = job.features["train"]
    held_out = job.features[job.selection]
    labels = np.concatenate([labels_of(train), labels_of(held_out)])
    table = []
    steps = itertools.count(1)

    def on_step() -> None:
        """Shows that a classifier is being fitted; nobody knows in how many steps."""
        listener.advance("fitting, step", next(steps), 0)

    trainer = ProbeTrainer(job, labels, on_step=on_step)
    n_train = len(labels_of(train))
    # A hold-out is a pair of indices into `labels`: what is trained on, and what is held out. The
    # first one is the recipe's own splits; `probe.repeats` adds others.
    own_hold_out = (np.arange(n_train), np.arange(n_train, len(labels)))
    hold_outs = [own_hold_out, *other_hold_outs(job)]
    # Each hold-out chooses its strength by cross-validation on the rows that it trains on.
    folds = [trainer.check(rows) for rows, _ in hold_outs]
    # Similar hold-outs have the same messages; each message is reported once.
    sentences = itertools.chain.from_iterable(fold.sentences() for fold in folds)
    for sentence in dict.fromkeys(sentences):
        listener.say(sentence)
    n_windows = train.windows_of_rows().sum() + held_out.windows_of_rows().sum()
    listener.say(f"features: the encoder reads {n_windows:,} windows, once")
    vectors = _vectors(job, listener)
    computed = time.perf_counter()
    listener.say(
        f"training: {len(vectors)} x {len(job.settings.strengths)} classifiers, chosen by "
        "cross-validation"
    )
    listener.advance("training", 0, len(vectors))
    for number, pair in enumerate(job.encoder.pairs):
        table.append(trainer.train(pair, vectors[number], hold_outs))
        listener.finish("fitting, step")
        listener.advance(
            "training",
            number + 1,
            len(vectors),
            {job.primary: table[-1].metrics[job.primary].value},
        )
    listener.finish("training")
    # The sign makes more better for every metric; of equal probes the first is taken.
    best = max(table, key=lambda probe: job.sign * probe.cross_validation)
    listener.say(f"scoring: layer {best.layer.name}, {best.pooling} pooling")
    trained = time.perf_counter()
    results = _keep(job, best, folder, listener)
    # Layer and strength were chosen by cross-validation on the training rows. A choice among
    # several candidates makes scores on those rows optimistic, so metrics.json records it.
    n_candidates = {"layer": len(table), "C": len(job.settings.strengths)}
    choices = {name: {"split": "train", "of": n} for name, n in n_candidates.items() if n > 1}
    scores = job.metrics(results) | {
        "probe": table_document(job, table, best, folds[0]),
        "selected_on": choices,
    }
    metrics = MetricsDocument.model_validate(scores)
    write_predictions(folder, results, job.recipe.evaluation)
    write_json(folder.metrics, metrics.as_json())
    ended = time.perf_counter()
    job.seconds |= {
        "features": computed - started,
        "train": trained - computed,
        "evaluate": ended - trained,
    }
    folder.set_status("done", step=0)
    return metrics


def _vectors(job: ProbeJob, listener: Listener) -> Sequence[Floats32]:
    """Returns (N, D) vectors of the training rows, then the validation rows, for each probe.

    If tags of words are learned, they are vectors of the rows' words.
    """
    splits = ("train", job.selection)
    total = sum(len(job.features[split]) for split in splits)
    n_done = 0

    def done(count: int) -> None:
        """Reports that `count` more windows are computed."""
        nonlocal n_done
        n_done += count
        listener.advance("features", n_done, total)

    try:
        features = [job.features[split] for split in splits]
        if job.by_word:
            return WordVectors(job.encoder, cast(Sequence[WordFeatures], features), done)
        windows = [
            EncodedWindows.of(split_features)
            for split_features in cast(Sequence[SequenceFeatures], features)
        ]
        train, validation = (job.encoder.texts(split, done=done) for split in windows)
        return [np.concatenate([a, b]) for a, b in zip(train, validation, strict=True)]
    finally:
        listener.finish("features")


class WordVectors(Sequence[Floats32]):
    """Gives the vectors of words, for one probe at a time.

    The hidden states are kept, not what is made of them: the layers of the paper would take 2.4
    times as much memory.
    """

    def __init__(
        self, encoder: Encoder, splits: Sequence[WordFeatures], done: Callable[[int], None]
    ) -> None:
        """Computes the states of all words of the splits, one split after the other."""
        self._encoder = encoder
        n_words = sum(split.num_predictions for split in splits)
        self._states = {
            state: np.empty((n_words, width), dtype=np.float32)
            for state, width in encoder.widths.items()
        }
        begin = 0
        for split in splits:
            word_range = slice(begin, begin + split.num_predictions)
            encoder.first_tokens(
                split,
                {state: values[word_range] for state, values in self._states.items()},
                done=done,
            )
            begin = word_range.stop

    def __len__(self) -> int:
        return len(self._encoder.pairs)

    def __getitem__(self, number: Any) -> Any:
        """Returns (W, D) vectors of all words for the probe of this number."""
        import torch

        layer, _ = self._encoder.pairs[number]
        states = {state: torch.from_numpy(self._states[state]) for state in layer.states}
        vectors = join_states(layer, states).numpy()
        if self._encoder.spec.normalize:
            return unit_length(vectors)
        return vectors


def _keep(
    job: ProbeJob, best: TrainedProbe, folder: RunFolder, listener: Listener
) -> dict[str, SplitResult]:
    """Writes the best probe into the run folder, and scores it on the job's splits.

    It is scored with encoder and classifier as one network that reads texts, as `evaluate` will.
    """
    from bertctl.modeling.probe_network import with_head

    source = job.encoder.source
    spec = job.encoder.spec
    fitted = best.fitted
    head = LinearHead(
        layer=best.layer.name,
        pooling=best.pooling,
        special_tokens=spec.special_tokens,
        normalize=spec.normalize,
        classifier=job.settings.classifier,
        strength=fitted.strength,
        weight=fitted.weight,
        bias=fitted.bias,
        mix=fitted.mix,
        windows=spec.windows,
    )
    head.save(folder.path, source=source, head=job.task.head())
    return job.scored(
        Engine.of(with_head(job.model, head, source, job.compute), job.compute), listener
    )
