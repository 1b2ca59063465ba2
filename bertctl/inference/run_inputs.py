"""What every run works out before it computes, fine-tuning and probes alike.

It is its task, the splits it scores, and its primary metric.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Ints
from bertctl.catalog.models import MODELS
from bertctl.config.dump import dump_recipe
from bertctl.config.recipe_files import expanded_path
from bertctl.config.schema import Recipe
from bertctl.config.task_names import PRETRAINING
from bertctl.data.label_cells import label_name
from bertctl.data.readers import READERS
from bertctl.data.recipe_data import LoadedData
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile, kept_rows
from bertctl.data.unlabelled_rows import TRAINING_SPLITS
from bertctl.errors import DataError, UnknownLabelError, UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import SplitResult, data_document, evaluate_split, metrics_document
from bertctl.progress import Listener
from bertctl.run_folder import CONFIRM, RunFolder
from bertctl.runtime.device import Compute
from bertctl.tasks.base import Features, Task
from bertctl.tasks.registry import no_such_metric, task_type
from bertctl.words import command, count_of
from bertctl.writing import replacing_file, write_json, write_text


@dataclass(kw_only=True)
class ReadyRun:
    """Run made ready: everything read, checked and refused, nothing computed.

    Attributes:
        recipe: The recipe, with device, precision and threads resolved.
        data: The splits.
        task: Fitted to the training rows.
        features: Split -> encoded rows.
        evaluated: Splits scored at the end.
        primary: Name of the metric that decides.
        environment: Content of environment.json.
        seconds: Seconds spent in each phase.
    """

    recipe: Recipe
    data: LoadedData
    task: Task
    features: dict[str, Features]
    evaluated: tuple[str, ...]
    primary: str
    environment: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def selection(self) -> str:
        """Returns the validation split that decides."""
        return self.data.validation_splits[0]

    @property
    def guess(self) -> str | None:
        """Returns a note that the positive label was guessed, and how to change it.

        It is None if no label is positive, or if the recipe or the data says which one is.
        """
        positive = self.task.answers.positive
        dataset = self.data.dataset
        # The F1 of a catalog data set is official, so its positive label is no guess.
        is_known = dataset is not None and "f1" in dataset.metrics
        if positive is None or self.recipe.evaluation.positive_label or is_known:
            return None
        return (
            f"f1 is computed for '{positive}' (guessed from the label names); change it with "
            "`evaluation.positive_label=LABEL`"
        )

    @property
    def hash(self) -> str:
        """Returns the hash of what decides the numbers."""
        return str(self.environment["recipe_hash"])

    def scored(self, engine: Engine, listener: Listener) -> dict[str, SplitResult]:
        """Returns the scores of the splits that are evaluated at the end, with all intervals.

        They are computed as `bertctl evaluate` will compute them.
        """
        results = {}
        for split in self.evaluated:
            rows = self.data.splits[split]
            features = self.features[split]
            result = evaluate_split(
                engine,
                self.task,
                rows,
                features,
                recipe=self.recipe,
                listener=listener,
            )
            results[split] = result.thorough(self.recipe)
        return results

    def write_inputs(self, folder: RunFolder, verb: str) -> None:
        """Writes what the run is made of into its folder.

        That is its recipe, the command that runs it again, where it was begun, and rows that no
        file has.
        """
        recipe = write_rows(
            folder.path,
            self.recipe,
            self.data.rows_in_memory,
            keep_text=self.recipe.evaluation.keep_text,
        )
        write_text(folder.recipe, dump_recipe(recipe, command=f"bertctl {verb} {folder.recipe}"))
        if not folder.environment.exists():
            write_json(folder.environment, self.environment)

    def metrics(self, results: Mapping[str, SplitResult]) -> dict[str, Any]:
        """Returns what every metrics.json has.

        It has the metrics, those of the constant answer, and what truncation took.
        """
        constant = self.task.constant_answer(self.data.splits["train"])
        return {
            **metrics_document(results, primary=self.primary, selection=self.selection),
            "constant_answer": constant,
            "baseline": {
                split: self.task.baseline(constant, result.rows)
                for split, result in results.items()
            },
            "data": data_document(self.features, self.data.hashes),
        }


def write_rows(
    folder: Path,
    recipe: Recipe,
    rows_in_memory: Mapping[str, MemoryFile],
    *,
    keep_text: bool,
) -> Recipe:
    """Writes rows in memory into a folder, and returns the recipe that names them from there.

    Args:
        folder: The run, or the sweep.
        recipe: Recipe of it.
        rows_in_memory: Split name -> rows.
        keep_text: Whether they are written at all. If not, the recipe names their files all the
            same: a later command then says which rows of the run were not kept.
    """
    paths = kept_rows(rows_in_memory)
    if keep_text:
        for split, file in rows_in_memory.items():
            with replacing_file(folder / paths[split]) as out:
                out.writelines(file.pieces())
    return recipe.with_fields("data", **{f"{split}_file": path for split, path in paths.items()})


def encode_splits(
    task: Task, data: LoadedData, recipe: Recipe, tokenizer: Tokenizer
) -> dict[str, Features]:
    """Returns each split as the model reads it."""
    length = recipe.model.max_length
    return {
        split: task.encode(rows, tokenizer, max_length=length)
        for split, rows in data.splits.items()
    }


def fit_task(
    recipe: Recipe, data: LoadedData, *, labels_checked: bool = False
) -> tuple[Task, tuple[str, ...]]:
    """Returns the task, fitted to the training rows, and the splits to score.

    Args:
        recipe: Recipe of the run.
        data: Its splits.
        labels_checked: Whether the labels of these rows were checked before.

    Raises:
        DataError: No training rows; a split without labels, or with labels that the task doesn't
            know.
        UsageError: `evaluation.splits` names a split that the data doesn't have.
    """
    evaluated = tuple(recipe.evaluation.splits) or data.validation_splits
    # Rows that were set aside to confirm what was chosen on the validation split.
    if CONFIRM in data.splits and CONFIRM not in evaluated:
        evaluated += (CONFIRM,)
    if not len(data.splits["train"]):
        raise DataError("no training rows")
    for split in evaluated:
        if split not in data.splits:
            message = f"evaluation.splits: unknown split '{split}'"
            raise UsageError(message, remedy=f"Choose from {', '.join(data.splits)}.")
        if not data.splits[split].has("label"):
            remedy = (
                f"Use `{command('predict RUN', split=split)}`, or name other splits in "
                "evaluation.splits."
            )
            raise DataError(
                f"the split '{split}' has no labels, so it can't be scored", remedy=remedy
            )
    task = task_type(recipe.task).from_data(recipe, data.splits["train"], data.labels)
    if not labels_checked:
        for split in dict.fromkeys(("train", *evaluated, *data.validation_splits)):
            _refuse_lost_labels(data.splits[split], data, task)
            _check_labels(task, recipe, data, split)
    return task, evaluated


def _refuse_lost_labels(rows: Rows, data: LoadedData, task: Task) -> None:
    """Refuses a label that the training rows had until a sample of them was taken.

    Raises:
        DataError: With file and line, and what brings the label back.
    """
    lost = data.lost_labels - set(task.answers.labels)
    if not lost:
        return
    for index, label in enumerate(rows.columns["label"]):
        names = label if isinstance(label, list) else [label]
        for name in names:
            if label_name(name) in lost:
                all_labels = sorted({*task.answers.labels, *lost})
                raise DataError(
                    f"{rows.where(index)}: no training row has the label {label_name(name)!r}: the "
                    f"sample of {len(data.splits['train'])} training rows has lost it",
                    remedy="Take more rows (`data.max_train_rows=`, data.first_train_rows), the "
                    "same number of each label (`data.train_rows_per_label=N`), or name all "
                    f"labels: `text_classification.labels='[{', '.join(all_labels)}]'`.",
                )


def _check_labels(task: Task, recipe: Recipe, data: LoadedData, split: str) -> None:
    """Refuses labels of a split that the task doesn't know.

    A label is known if a training row has it. If only a part of the training rows was read, the
    error says that rows with the label may have been left out.

    Raises:
        DataError: With file and line.
    """
    try:
        task.check(data.splits[split])
    except UnknownLabelError as error:
        # Either of two fields may limit the training rows.
        if recipe.data.max_train_rows is not None:
            field = "max_train_rows"
        else:
            field = "first_train_rows"
        limit = getattr(recipe.data, field)
        has_all_training_rows = limit is None
        if has_all_training_rows or split == "train":
            raise
        n_rows = len(data.splits["train"])
        raise UnknownLabelError(
            f"{error.message}: none of the {n_rows:,} training rows has it, and they are only a "
            f"part of the file (data.{field}: {limit})",
            remedy="Take more training rows, or the same number of each label: "
            "`data.train_rows_per_label=N`. Or name all labels: "
            f"`{recipe.task.replace('-', '_')}.labels='[a, b]'`.",
        ) from error


def warn_of_shared_rows(recipe: Recipe, data: LoadedData, listener: Listener) -> None:
    """Warns where at least half of the rows of another split are training rows, too."""
    if recipe.task == PRETRAINING:
        return
    columns = [name for name in READERS[recipe.task].columns if name != "label"]
    known = _hashed_inputs(data.splits["train"], columns)
    known.sort()
    for split, rows in data.splits.items():
        if split in TRAINING_SPLITS:
            shared = 0
        else:
            shared = _number_known(_hashed_inputs(rows, columns), known)
        if shared and 2 * shared >= len(rows):
            listener.warn(
                f"{count_of(shared, len(rows), 'example')} of {split} are training rows, too, so "
                "its scores say nothing about new ones; `bertctl data check` shows them"
            )


def _number_known(hashes: Ints, known: Ints) -> int:
    """Returns how many hashes are among the known ones, which are in ascending order."""
    if not len(known):
        return 0
    positions = np.searchsorted(known, hashes)
    positions[positions == len(known)] = 0  # beyond the largest: any position, as none is equal
    return int((known[positions] == hashes).sum())


def _hashed_inputs(rows: Rows, columns: Sequence[str]) -> Ints:
    """Returns (N,) a hash of what the model reads of each row; empty if rows have none of it.

    Hashes of one process alone are comparable, and take less memory than texts.
    """
    values = [rows.columns[name] for name in columns if rows.has(name)]
    n_hashes = len(rows) if values else 0
    hashes = (hash(repr(row)) for row in zip(*values, strict=True))
    return np.fromiter(hashes, dtype=np.int64, count=n_hashes)


def primary_metric(recipe: Recipe, data: LoadedData, task: Task) -> str:
    """Returns the metric that decides, the recipe's, else the data set's, else the task's.

    Raises:
        UsageError: The recipe names one that the selection split does not give.
    """
    constant = task.constant_answer(data.splits["train"])
    known = [*task.baseline(constant, data.splits[data.validation_splits[0]]), "loss"]
    requested = recipe.evaluation.primary_metric
    if requested is not None and requested not in known:
        message, remedy = no_such_metric(requested, known)
        raise UsageError(f"evaluation.primary_metric: {message}", remedy=remedy)
    if requested is not None:
        return requested

    # Rows with other labels may lack the usual metric: there is no F1 of three labels.
    usual_metrics = [task.primary_metric]
    if data.dataset and data.dataset.primary_metric:
        usual_metrics.insert(0, data.dataset.primary_metric)
    return next((metric for metric in usual_metrics if metric in known), known[0])


def resolved_for(recipe: Recipe, compute: Compute) -> Recipe:
    """Returns the recipe with the device, precision and threads that are used.

    A folder's name is made absolute.
    """
    name = recipe.model.name
    folder = expanded_path(recipe.model.name)
    if name not in MODELS and folder.is_dir():  # `tiny` would be another folder elsewhere
        name = str(folder.absolute())
    used = {"device": compute.device, "precision": compute.precision, "threads": compute.threads}
    return recipe.with_fields("model", name=name).with_fields("runtime", **used)
