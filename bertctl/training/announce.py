"""What a run reports before it trains.

The lines name its device, its examples, its steps and its memory, and show the first example as
the model reads it.
"""

from typing import Any

import numpy as np

from bertctl.data.unlabelled_rows import TRAINING_SPLITS
from bertctl.inference.evaluate import report_truncation
from bertctl.inference.run_inputs import warn_of_shared_rows
from bertctl.progress import Listener
from bertctl.runtime.batching import Padding
from bertctl.tasks.batches import Batch
from bertctl.tokenization.long_texts import LongText
from bertctl.training.head_start import announcement
from bertctl.training.job import Job
from bertctl.training.loop.layer_freezing import describe
from bertctl.training.lora_description import describe_lora
from bertctl.words import count, human_bytes

_SHOWN_WIDTH = 68  # of the tokens: with their names, a line of 80 columns
_MOST_CLASS_WEIGHTS = 12  # more labels would make the line unreadable


def announce(job: Job, *, listener: Listener) -> None:
    """Reports what a run is about to do: device, splits, steps, memory, checkpoints, an example.

    Args:
        job: Made ready, not yet trained.
        listener: Receives the lines, and warnings about the rows.
    """
    listener.say(f"compute: {job.compute.why}")
    _announce_splits(job, listener)
    _announce_steps(job, listener)
    if job.guess:
        listener.say(job.guess)
    for sentence in beyond_plain(job):
        listener.say(sentence)
    _announce_memory(job, listener)
    listener.say(first_example(job))


def _announce_splits(job: Job, listener: Listener) -> None:
    """Reports the rows of each split, what truncation cuts off, and doubts about the rows."""
    for split, rows in job.data.splits.items():
        if rows.has("label"):
            description = f" ({job.task.describe(rows)})"
        else:
            description = ""
        listener.say(f"{split}: {count(len(rows), 'example')}{description}")
        report_truncation(
            split,
            job.features[split],
            job.task,
            job.recipe,
            listener,
        )
    for sentence in job.task.doubts(job.data.splits["train"]):
        listener.warn(sentence)
    warn_of_shared_rows(job.recipe, job.data, listener)


def _announce_steps(job: Job, listener: Listener) -> None:
    """Reports epochs, steps, learning rate, what the preset `auto` chose, and early stopping."""
    training = job.recipe.training
    n_inputs = len(job.training_features)
    n_rows = sum(len(job.data.splits.get(name, ())) for name in TRAINING_SPLITS)
    # Long texts are read in several windows, so there can be more inputs than rows.
    if n_inputs == n_rows:
        noun = "example"
    else:
        noun = "window"
    listener.say(
        f"training: {count(job.epochs, 'epoch')} of {count(n_inputs, noun)} in batches of "
        f"{training.batch_size}: {count(job.steps, 'step')}, learning rate "
        f"{job.recipe.optimizer.learning_rate:g}"
    )
    if job.chosen:
        listener.say(job.chosen)
    if training.patience is not None:
        listener.say(
            f"early stopping: training ends after {count(training.patience, 'evaluation')} on "
            f"{job.selection} without a better {job.primary}, so {count(job.epochs, 'epoch')} at "
            "most (training.patience)"
        )


def _announce_memory(job: Job, listener: Listener) -> None:
    """Reports the estimated memory of a run, and when it saves checkpoints of which size."""
    if job.compute.device == "cpu":
        where = "in all"
    else:
        where = f"of the {job.compute.device} device"
    contents = "weights, AdamW and activations"
    # A teacher whose attention relations are learned runs in each step, so it stays in memory.
    if job.teacher is not None and job.recipe.distillation.relations:
        contents = "weights, AdamW, activations and the teacher"
    listener.say(f"memory: about {human_bytes(job.memory)} {where}, for {contents}")

    interval = job.recipe.training.checkpoint_every
    if interval == "off":
        return
    moments = "at the end of each epoch"
    if interval:
        moments += f" and every {interval}"
    listener.say(
        f"checkpoints: {moments}, {human_bytes(job.checkpoint_size)} each; the last two are kept "
        "until the run is finished"
    )


def lengths_of(job: Job) -> dict[str, Any]:
    """Returns what each mode of `model.long_text` would keep of the training texts.

    Returns:
        The counts, shares and the advised mode that `LongText.kept` describes. Empty for a task
        that doesn't give one answer per text, and where no text is too long.
    """
    features = job.features["train"]
    full_lengths = features.tokens + features.truncated_tokens
    is_pair = job.data.splits["train"].has("pair")
    coverage = LongText.of(job.recipe.model).kept(full_lengths, pair=is_pair)
    if coverage["too_long"] and job.recipe.answers_texts:
        return coverage
    return {}


def beyond_plain(job: Job) -> list[str]:
    """Returns what the recipe does beyond plain fine-tuning, one sentence each.

    The sentences are about frozen layers, LoRA, the start of the head and class weights.
    """
    from bertctl.tasks.objectives import ClassObjective

    sentences = describe(job.recipe, job.source, job.epochs)
    sentences += describe_lora(job)
    head_sentence = announcement(job)
    if head_sentence:
        sentences.append(head_sentence)
    objective = job.objective
    if isinstance(objective, ClassObjective) and objective.class_weights:
        names = list(job.task.head()["id2label"].values())
        pairs = [
            f"{name} {weight:.3g}"
            for name, weight in zip(names, objective.class_weights, strict=True)
        ]
        weights = ", ".join(pairs[:_MOST_CLASS_WEIGHTS])
        if len(pairs) > _MOST_CLASS_WEIGHTS:
            weights += ", ..."
        sentences.append(f"class weights: {weights}")
    return sentences


def first_example(job: Job) -> str:
    """Returns the first training example as the model reads it: tokens above ids above segments.

    Each line is cut at the columns that a terminal has room for. A task with a tag per token has a
    line of tags as well; a model without segments has no line of them.
    """
    row = job.data.splits["train"].select([0])
    batch = job.features["train"].collate(
        np.zeros(1, dtype=np.int64), Padding(job.loaded.padding.id)
    )
    # A multiple-choice row has one sequence per choice, and only its first one is shown.
    first = {
        name: batch.inputs[name].flatten(end_dim=-2)[0]
        for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    n_tokens = int(first["attention_mask"].sum())
    ids = first["input_ids"][:n_tokens].tolist()
    tags = _tags(job, batch)

    values_by_line: dict[str, list[Any]] = {
        "tokens ": list(map(job.loaded.tokenizer.id_to_token, ids)),
        "ids    ": ids,
    }
    if job.loaded.has_segments:
        values_by_line["segment"] = first["token_type_ids"][:n_tokens].tolist()
    if tags:
        values_by_line["tag    "] = tags[:n_tokens]
    lines, n_columns = _aligned_lines(values_by_line)

    notes = []
    if row.has("label") and not tags:
        notes.append(f"label {job.task.gold(row, 0)}")
    if n_columns < n_tokens:
        notes.append(f"the first {n_columns} of {n_tokens} tokens")
    heading = "first example"
    if notes:
        heading += f" ({', '.join(notes)})"
    return "\n".join([f"{heading}:", *lines])


def _aligned_lines(values_by_line: dict[str, list[Any]]) -> tuple[list[str], int]:
    """Returns lines whose values stand below each other, and how many columns have room in them.

    Args:
        values_by_line: For each line, by its padded name, the values of all its columns.
    """
    columns = [tuple(map(str, column)) for column in zip(*values_by_line.values(), strict=True)]
    widths = [max(map(len, column)) for column in columns]
    # As many columns as a line has room for, at least one, with a space between two of them.
    ends = np.cumsum(np.array(widths) + 1) - 1
    n_columns = max(1, int((ends <= _SHOWN_WIDTH).sum()))

    lines = []
    for name, values in values_by_line.items():
        cells = [
            str(value).rjust(width)
            for value, width in zip(values[:n_columns], widths[:n_columns], strict=True)
        ]
        lines.append(f"  {name} {' '.join(cells)}")
    return lines, n_columns


def _tags(job: Job, batch: Batch) -> list[str]:
    """Returns the gold tag of each token of a batch's first sequence.

    A token whose tag is not learned, such as [CLS], has `-`. For a task with one answer for the
    whole text, the list is empty.
    """
    ids = batch.inputs["input_ids"]
    if batch.labels is None or batch.labels.shape != ids.shape or "words" not in job.task.columns:
        return []
    names = job.task.head()["id2label"]
    label_ids = batch.labels.flatten(end_dim=-2)[0].tolist()
    return [str(names.get(label_id, "-")) for label_id in label_ids]
