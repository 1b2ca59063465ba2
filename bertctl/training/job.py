"""A run made ready: recipe, rows, model and device.

They are read, checked and refused in the order of their cost.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from bertctl.arrays import Ints
from bertctl.catalog.mlflow_models import check_registry
from bertctl.config.agreement import TASK_SECTIONS
from bertctl.config.presets import fields_left_to_auto
from bertctl.config.schema import Recipe
from bertctl.config.task_names import verb_of
from bertctl.data.recipe_data import NO_ROWS, LoadedData, load_data
from bertctl.data.sources import MemoryFile
from bertctl.data.unlabelled_rows import (
    TRAINING_SPLITS,
    UNLABELLED,
    check_unlabelled,
    read_unlabelled,
    unlabelled_hash,
)
from bertctl.errors import BertctlError, UnavailableError, UsageError
from bertctl.inference.environment import describe_environment
from bertctl.inference.run_inputs import (
    ReadyRun,
    encode_splits,
    fit_task,
    primary_metric,
    resolved_for,
)
from bertctl.metrics.scripts import find_script
from bertctl.modeling.families import require_head
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.progress import SILENT, Listener
from bertctl.runtime.batching import Padding, evaluation_plan
from bertctl.runtime.device import Compute
from bertctl.runtime.seeding import only_deterministic, seed_everything
from bertctl.tasks.base import Features, Task, TaskObjective
from bertctl.tasks.classification.class_weights import check_weights
from bertctl.tasks.teacher_answers import n_answers
from bertctl.training.auto_settings import TrainingTraits, resolve_auto
from bertctl.training.loop.layer_freezing import check_evaluations, check_layers
from bertctl.training.lora_checks import check_lora, check_peft
from bertctl.training.relations import relations_memory, with_relations
from bertctl.training.step_memory import estimate_memory, resident_bytes
from bertctl.training.steps import steps_per_epoch, total_steps
from bertctl.training.teacher import Teacher, open_teacher, teacher_hash
from bertctl.training.trackers import check_trackers

if TYPE_CHECKING:
    from torch import Tensor

_ROWS_IN_MEMORY = 2**17
"""Rows whose tokens are looked at before the pages of a mapped file are given back."""


@dataclass(kw_only=True)
class Job(ReadyRun):
    """A run of fine-tuning made ready: everything read, checked and refused, nothing trained.

    Attributes:
        source: The model's files.
        loaded: The model with its new head.
        compute: Device, precision and threads.
        steps: Optimizer steps.
        memory: Estimated bytes of memory of the whole run, see `estimate_memory`.
        checkpoint_size: Estimated bytes of a checkpoint, without its copy of the best weights.
        used_tokens: (U,) rows of the word table that are trained; None for all.
        run: Function that carries the job out in place of `finetune.run`, with its arguments.
        started: `time.perf_counter()` before the recipe's files were read.
        chosen: What the preset `auto` chose, as a sentence; empty without it.
        teacher: Run whose answers are learned, where there is one.
        deadline: `time.perf_counter()` at which the time limit ends; None without a limit.
    """

    source: ModelSource
    loaded: Model
    compute: Compute
    steps: int
    memory: int
    checkpoint_size: int
    used_tokens: "Tensor | None" = None
    run: Callable[..., Any] | None = None
    started: float = field(default_factory=time.perf_counter)
    chosen: str = ""
    teacher: Teacher | None = None
    deadline: float | None = None

    @property
    def verb(self) -> str:
        """Verb that runs the recipe."""
        return verb_of(self.recipe.task)

    @property
    def steps_per_epoch(self) -> int:
        """Number of optimizer steps of a pass over the training rows."""
        return steps_per_epoch(self.recipe, n_training_windows(self.features))

    @cached_property
    def training_features(self) -> Features:
        """Windows that training reads.

        Windows of the training rows come first, then the windows of rows without labels.
        """
        return joined_features(self.features)

    def training_ids(self, rows: Ints) -> list[str]:
        """Returns the ids of rows that training reads, for people."""
        train = self.data.splits["train"]
        unlabelled = self.data.splits.get(UNLABELLED)
        ids = []
        for row in rows:
            # Rows without labels are numbered after the training rows.
            if row < len(train) or unlabelled is None:
                ids.append(train.ids[row])
            else:
                ids.append(f"{UNLABELLED} {unlabelled.ids[row - len(train)]}")
        return ids

    @property
    def epochs(self) -> int:
        """Number of passes over the training rows; `training.max_steps` may cut the last one."""
        return math.ceil(self.steps / self.steps_per_epoch)

    @cached_property
    def objective(self) -> TaskObjective:
        """Loss on the labels that training minimises."""
        return self.task.objective(
            self.loaded.padding, self.recipe.training, self.features["train"]
        )

    def objective_with_teacher(self, listener: Listener = SILENT) -> TaskObjective:
        """Returns the quantity that training minimises, with the loss on a teacher's answers.

        Without a teacher it is the loss on the labels alone. A teacher whose answers are not in the
        cache answers the training rows now.

        Args:
            listener: Receives progress of the teacher.
        """
        if self.teacher is None:
            return self.objective
        from bertctl.tasks.distillation import LabelledShare, distillation_of

        settings = self.recipe.distillation
        by_word = "words" in self.task.columns
        names = [name for name in TRAINING_SPLITS if name in self.features]
        answers = self.teacher.answers(
            [self.data.splits[name] for name in names],
            [n_answers(self.features[name]) for name in names],
            listener,
        )
        # Rows without labels have a loss only on the teacher's answers, so the share of windows
        # with a label is needed. A window of words can be without a word that it answers for.
        labelled = None
        if UNLABELLED in self.features:
            n_labelled = int((self.features["train"].weights > 0).sum())
            weights = self.training_features.weights  # of words: how many each window answers for
            labelled = LabelledShare(
                windows=n_labelled / len(weights),
                answers=float(weights.mean()) if by_word else 1.0,
            )
        objective = distillation_of(
            self.objective,
            answers,
            alpha=settings.alpha,
            temperature=settings.temperature,
            by_word=by_word,
            labelled=labelled,
        )
        if not settings.relations:
            return objective
        return with_relations(
            objective,
            recipe=self.recipe,
            student=self.loaded,
            teacher=self.teacher.run,
            listener=listener,
        )


def joined_features(features: Mapping[str, Any]) -> Features:
    """Returns the windows that training reads: the training rows, then those without labels."""
    train: Features = features["train"]
    if UNLABELLED not in features:
        return train
    joined: Features = features["train"].with_unlabelled(features[UNLABELLED])
    return joined


def n_training_windows(features: Mapping[str, Features]) -> int:
    """Returns how many windows training reads."""
    return len(features["train"]) + len(features.get(UNLABELLED, ()))


@dataclass(frozen=True)
class Encoded:
    """Rows, and what the model reads of them.

    Jobs whose recipes have one `encoding_key` share it.

    Attributes:
        data: the splits.
        source: the model's files, with the length that the rows were encoded with.
        model_hash: of their content.
        features: split -> encoded rows.
    """

    data: LoadedData
    source: ModelSource
    model_hash: str
    features: dict[str, Features]


def encoding_key(recipe: Recipe) -> str:
    """Returns the recipe's fields that decide which rows are read and how they are encoded.

    Recipes with equal keys can share their encoded rows. The key is JSON, only to be compared.
    """
    model = recipe.model
    section = TASK_SECTIONS.get(recipe.task)
    deciding_fields = {
        "task": recipe.task,
        "settings": getattr(recipe, section).model_dump() if section else None,
        "data": recipe.data.model_dump(),
        "model": [
            model.name,
            model.revision,
            model.max_length,
            model.lowercase,
            model.keep_layers,
        ],
        "long_text": [model.long_text, model.window_stride],
        "is_length_open": "model.max_length" in fields_left_to_auto(recipe),
        "splits": recipe.evaluation.splits,
        "slices": recipe.evaluation.slice_columns,
        "unlabelled": recipe.distillation.unlabelled,
    }
    return json.dumps(deciding_fields, sort_keys=True)


def encode(recipe: Recipe, *, listener: Listener = SILENT) -> Encoded:
    """Reads, checks and encodes the rows that a recipe names, for many jobs. No network is loaded.

    Raises:
        BertctlError: any refusal of recipe, files, labels or model.
    """
    read = _read(recipe, listener)

    from bertctl.modeling.build import build_tokenizer

    tokenizer = build_tokenizer(read.source, read.task.auto_class, read.task.head())
    features = encode_splits(read.task, read.data, read.recipe, tokenizer)
    return Encoded(read.data, read.source, read.source.content_hash(), features)


@dataclass(frozen=True)
class Inputs:
    """What a recipe names, read and checked; no network.

    Attributes:
        data: the splits.
        source: the model's files.
        task: fitted to the training rows.
        evaluated: splits scored at the end.
        primary: metric that picks the best weights.
        recipe: The recipe that named it, with the values of the preset `auto`.
        chosen: What the preset `auto` chose, as a sentence; empty without it.
        teacher: Run whose answers are learned, where there is one.
    """

    data: LoadedData
    source: ModelSource
    task: Task
    evaluated: tuple[str, ...]
    primary: str
    recipe: Recipe
    chosen: str = ""
    teacher: Teacher | None = None

    @property
    def baseline(self) -> dict[str, float]:
        """Returns the metrics of the answer that ignores the text, on the selection split."""
        constant = self.task.constant_answer(self.data.splits["train"])
        return self.task.baseline(constant, self.data.splits[self.data.validation_splits[0]])


def check(recipe: Recipe, encoded: Encoded) -> Inputs:
    """Checks the recipe of a job whose rows are encoded already, and returns the job's inputs.

    No network is built.

    Raises:
        BertctlError: any refusal that needs no network.
    """
    inputs = _read(recipe, SILENT, encoded)
    rows = n_training_windows(encoded.features)
    resolved = inputs.recipe
    check_evaluations(
        resolved.training, total_steps(resolved, rows), steps_per_epoch(resolved, rows)
    )
    return inputs


def prepare(
    recipe: Recipe,
    *,
    encoded: Encoded | None = None,
    rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
    listener: Listener = SILENT,
) -> Job:
    """Reads and checks everything a run needs; the refusals come in order of their cost.

    Args:
        recipe: what to run.
        encoded: rows that were read and encoded before, for a recipe with the same `encoding_key`.
        rows_in_memory: split name -> rows in place of those in the recipe's files.
        listener: receives what was guessed, held out, left out.

    Raises:
        BertctlError: any refusal: recipe, files, labels, model, device.
    """
    started = time.perf_counter()
    read = _read(
        recipe,
        listener,
        encoded,
        rows_in_memory,
    )

    def features_of(loaded: Model) -> dict[str, Any]:
        """Returns the encoded rows of each split, by its name."""
        if encoded:
            return encoded.features
        return encode_splits(read.task, read.data, read.recipe, loaded.tokenizer)

    model_hash = encoded.model_hash if encoded else ""
    return assembled(
        read.recipe,
        read,
        features_of,
        started=started,
        model_hash=model_hash,
        listener=listener,
    )


def assembled(
    recipe: Recipe,
    read: Inputs,
    features_of: Callable[[Model], dict[str, Any]],
    *,
    started: float,
    model_hash: str = "",
    listener: Listener = SILENT,
) -> Job:
    """Returns a job that is ready to be trained, from what was read for its recipe.

    The network is built, the rows are encoded, and the memory is estimated.

    Args:
        recipe: Recipe of the run, with the values that the preset `auto` has chosen.
        read: Rows, model files and task that it names, read and checked.
        features_of: Returns the encoded rows of each split, by its name, for the built model.
        started: `time.perf_counter()` when reading began.
        model_hash: Hash of the content of the model's files; computed here if empty.
        listener: Receives messages about the model.

    Raises:
        BertctlError: Any refusal of model, device or evaluations.
    """
    data = read.data
    source = read.source
    task = read.task
    data_read = time.perf_counter()

    # These import torch, which all checks so far could do without.
    from bertctl.modeling.build import build_model
    from bertctl.modeling.fast.used_tokens import num_parameters, used_tokens

    compute = source.compute(recipe.runtime)
    # Of multiple choice: whether the file counts its choices from 0 or 1. If the recipe leaves it
    # open, the rows have shown it.
    recipe = recipe.with_fields("data", first_choice=data.recipe.data.first_choice)
    # The run's record names the device, precision and threads that are used, in place of `auto`.
    resolved = resolved_for(recipe, compute)
    seed_everything(recipe.training.seed_of_init)  # the new head is drawn at random
    if recipe.runtime.deterministic:
        only_deterministic()
    loaded = build_model(
        source,
        task.auto_class,
        task.head(),
        recipe,
        compute=compute,
        listener=listener,
    )
    model_read = time.perf_counter()
    features = features_of(loaded)
    n_windows = n_training_windows(features)
    steps = total_steps(recipe, n_windows)
    check_evaluations(recipe.training, steps, steps_per_epoch(recipe, n_windows))
    trained_splits = [features[name] for name in TRAINING_SPLITS if name in features]
    token_batches = (_tokens(split, loaded.padding) for split in trained_splits)
    used = used_tokens(loaded.network, chain.from_iterable(token_batches))
    # Numbers of parameters: all; all but unused rows of the word table; and those that are trained.
    total, held, trained = num_parameters(loaded.network, used)
    memory = _memory_needed(
        recipe,
        read,
        compute,
        parameters=(held, trained),
        longest=max(int(split.lengths.max()) for split in trained_splits),
    )
    if compute.device == "cpu":
        # The estimate comes on top of what the process holds now, the loaded model included. The
        # unused rows of the word table (fp32) will be freed before training.
        memory += resident_bytes() - (total - held) * 4
    job = Job(
        recipe=resolved,
        data=data,
        task=task,
        source=source,
        loaded=loaded,
        compute=compute,
        features=features,
        evaluated=read.evaluated,
        primary=read.primary,
        steps=steps,
        # Bytes in fp32 of the trained weights and AdamW's two moments of each. Where only the used
        # rows of the word table are trained, the table is saved with its other rows too.
        checkpoint_size=(trained * 3 + total - held) * 4,
        used_tokens=used,
        started=started,
        memory=memory,
        environment=describe_environment(
            resolved,
            compute,
            data=data,
            model_hash=model_hash or source.content_hash(),
        ),
        chosen=read.chosen,
        teacher=read.teacher,
    )
    encoded_at = time.perf_counter()
    job.seconds = {
        "read": data_read - started,
        "load": model_read - data_read,
        "encode": encoded_at - model_read,
    }
    return job


def _memory_needed(
    recipe: Recipe,
    read: Inputs,
    compute: Compute,
    *,
    parameters: tuple[int, int],
    longest: int,
) -> int:
    """Returns about how many bytes training needs on its device, a teacher's layers included.

    Args:
        recipe: Recipe of the run.
        read: Model files and teacher that it names.
        compute: Device and precision.
        parameters: Number of parameters in memory, and of those that are trained.
        longest: Tokens of the longest row.
    """
    settings = recipe.training
    # Examples that go through the model at once: a part of the batch, rounded up.
    examples = -(-settings.batch_size // settings.accumulation_steps)
    n_bytes = estimate_memory(
        read.source.config,
        parameters=parameters,
        longest=longest,
        examples=examples,
        precision=compute.precision,
        device=compute.device,
        checkpoints=settings.checkpoint_every != "off",
    )
    if read.teacher is not None and recipe.distillation.relations:
        n_bytes += relations_memory(
            recipe,
            read.teacher.run,
            longest=longest,
            examples=examples,
            device=compute.device,
        )
    return n_bytes


def _tokens(features: Features, padding: Padding) -> "Iterator[Tensor]":
    """Yields the token ids of encoded rows, a batch at a time.

    The ids may be mapped from a file. Their memory is given back after each chunk of rows, so that
    never all of them are in memory.
    """
    for start in range(0, len(features.lengths), _ROWS_IN_MEMORY):
        # A batch has rows of similar lengths from one chunk. Such rows from all over the file would
        # be in as many different pages of memory.
        for indices in evaluation_plan(features.lengths[start : start + _ROWS_IN_MEMORY], 512):
            yield features.collate(start + indices, padding).inputs["input_ids"]
        features.release_memory()


def check_outside(recipe: Recipe) -> None:
    """Refuses a recipe whose trackers or model registry are not installed.

    Raises:
        BertctlError: Saying how to install them.
    """
    check_trackers(recipe.runtime.log_to)
    if recipe.runtime.mlflow_register is not None:
        check_registry(recipe.runtime.mlflow_register)


def _read(
    recipe: Recipe,
    listener: Listener,
    encoded: Encoded | None = None,
    rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
) -> Inputs:
    """Reads what a recipe names, and refuses what does not fit together; no network is built.

    Args:
        recipe: What to run.
        listener: Receives messages.
        encoded: Data and model as another run has read them; read here if None.
        rows_in_memory: Rows by split, in place of those in the recipe's files.

    Raises:
        BertctlError: Any refusal of recipe, data or model.
    """
    if recipe.few_shot.loss is not None:
        message = (
            "few_shot.loss: this recipe trains on pairs of a few texts, which `bertctl finetune` "
            "does, run by run"
        )
        raise UsageError(message, remedy="Type `bertctl finetune`, or leave few_shot.loss out.")
    check_outside(recipe)
    check_peft(recipe)
    check_unlabelled(recipe)
    for script in recipe.evaluation.metric_scripts:
        find_script(script)
    if encoded is not None:
        data = encoded.data
        source = encoded.source
    else:
        data, source = _find(recipe, listener, rows_in_memory)
    task, splits_to_score = fit_task(recipe, data, labels_checked=encoded is not None)
    require_head(source.config, task.auto_class, source.name)
    traits = TrainingTraits.of(recipe, data, task, source, is_encoded=encoded is not None)
    recipe, chosen = resolve_auto(recipe, traits)
    source = replace(source, max_length=recipe.model.max_length)
    check_layers(recipe, source)
    check_lora(recipe, source)
    if recipe.training.class_weights:
        check_weights(recipe.training, list(task.head()["id2label"].values()))
    teacher = None
    if recipe.distillation.teacher is not None:
        teacher = open_teacher(
            recipe,
            task,
            source,
            data.splits["train"],
            listener,
        )
        data = replace(data, hashes={**data.hashes, "teacher": teacher_hash(teacher)})
        data = _with_unlabelled(recipe, data, listener)
    primary = primary_metric(recipe, data, task)
    return Inputs(
        data,
        source,
        task,
        splits_to_score,
        primary,
        recipe=recipe,
        chosen=chosen,
        teacher=teacher,
    )


def _with_unlabelled(recipe: Recipe, data: LoadedData, listener: Listener) -> LoadedData:
    """Returns the data with the rows of `distillation.unlabelled`, where there is such a file."""
    if recipe.distillation.unlabelled is None or UNLABELLED in data.splits:
        return data
    rows = read_unlabelled(recipe, data.splits["train"], listener=listener)
    return replace(
        data,
        splits={**data.splits, UNLABELLED: rows},
        hashes={**data.hashes, UNLABELLED: unlabelled_hash(recipe, rows)},
    )


def _find(
    recipe: Recipe, listener: Listener, rows_in_memory: Mapping[str, MemoryFile]
) -> tuple[LoadedData, ModelSource]:
    """Returns the rows and the model's files.

    An error about missing rows also says what is wrong with the model.

    Raises:
        BertctlError: any refusal of data or model.
    """
    try:
        data = load_data(recipe, listener=listener, rows_in_memory=rows_in_memory)
    except UnavailableError as missing:
        try:
            inspect_model(recipe.model)
        except BertctlError as error:
            message = f"{missing.message}\n{error.message}"
            remedy = f"{missing.remedy}\n{error.remedy}"
            raise UnavailableError(
                message, remedy=remedy, file=missing.file or error.file
            ) from missing
        raise
    return data, inspect_model(recipe.model)
