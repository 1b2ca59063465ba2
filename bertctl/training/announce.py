"""What a run says before it trains.

It is device, examples, steps, memory, and the first example as the model reads it.
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


def announce(job: Job, *, listener: Listener) -> None:
    """Reports what is about to happen.

    It is device, rows, steps, labels, memory, losses by truncation, and the first example.
    """
    listener.say(f"compute: {job.compute.why}")
    for split, rows in job.data.splits.items():
        if rows.has("label"):
            about = f" ({job.task.describe(rows)})"
        else:
            about = ""
        listener.say(f"{split}: {count(len(rows), 'example')}{about}")
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
    training = job.recipe.training
    read = len(job.training_features)
    n_rows = sum(len(job.data.splits.get(name, ())) for name in TRAINING_SPLITS)
    if read == n_rows:
        noun = "example"
    else:
        noun = "window"
    listener.say(
        f"training: {count(job.epochs, 'epoch')} of {count(read, noun)} in batches of "
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
    for sentence in filter(None, [job.guess, *beyond_plain(job)]):
        listener.say(sentence)
    if job.compute.device == "cpu":
        where = "in all"
    else:
        where = f"of the {job.compute.device} device"
    parts = "weights, AdamW and activations"
    if job.teacher is not None and job.recipe.distillation.relations:
        parts = "weights, AdamW, activations and the teacher"
    listener.say(f"memory: about {human_bytes(job.memory)} {where}, for {parts}")
    if training.checkpoint_every != "off":
        if training.checkpoint_every:
            also = f" and every {training.checkpoint_every}"
        else:
            also = ""
        size_note = (
            f"{human_bytes(job.checkpoint_size)} each; the last two are kept until the run is "
            "finished"
        )
        listener.say(f"checkpoints: at the end of each epoch{also}, {size_note}")
    listener.say(first_example(job))


def lengths_of(job: Job) -> dict[str, Any]:
    """Returns what each mode of `model.long_text` would keep of the training texts.

    It also returns the mode that is advised.

    Empty for other tasks, and where all texts fit.
    """
    features = job.features["train"]
    is_pair = job.data.splits["train"].has("pair")
    coverage = LongText.of(job.recipe.model).kept(
        features.tokens + features.truncated_tokens, pair=is_pair
    )
    if coverage["too_long"] and job.recipe.answers_texts:
        return coverage
    return {}


def beyond_plain(job: Job) -> list[str]:
    """Returns what the recipe does beyond plain fine-tuning, one sentence each."""
    from bertctl.tasks.objectives import ClassObjective

    sentences = describe(job.recipe, job.source, job.epochs)
    objective = job.objective
    sentences += describe_lora(job)
    about_head = announcement(job)
    if about_head:
        sentences.append(about_head)
    if isinstance(objective, ClassObjective) and objective.class_weights:
        names = list(job.task.head()["id2label"].values())
        pairs = [
            f"{name} {weight:.3g}"
            for name, weight in zip(names, objective.class_weights, strict=True)
        ]
        weights = ", ".join(pairs[:12])
        if len(pairs) > 12:
            weights += ", ..."
        sentences.append(f"class weights: {weights}")
    return sentences


def first_example(job: Job) -> str:
    """Returns the first training example as the model reads it: tokens above ids above segments."""
    rows = job.data.splits["train"].select([0])
    batch = job.features["train"].collate(
        np.zeros(1, dtype=np.int64), Padding(job.loaded.padding.id)
    )
    # Of several choices the first one is shown.
    first = {
        name: batch.inputs[name].flatten(end_dim=-2)[0]
        for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    ids = first["input_ids"][: int(first["attention_mask"].sum())].tolist()
    tokens = map(job.loaded.tokenizer.id_to_token, ids)
    tags = _tags(job, batch)

    # Segments have the batch's padding at their end, which `zip` cuts off with the tokens.
    rows_shown = [tokens, ids, first["token_type_ids"].tolist()]
    names = ["tokens ", "ids    ", "segment"]
    if tags:
        rows_shown.append(tags)
        names.append("tag    ")
    columns = [tuple(map(str, column)) for column in zip(*rows_shown, strict=False)]
    widths = [max(map(len, column)) for column in columns]
    # As many columns as a line has room for, with a space between two of them.
    ends = np.cumsum(np.array(widths) + 1) - 1
    n_columns = max(1, int((ends <= _SHOWN_WIDTH).sum()))
    columns = columns[:n_columns]
    widths = widths[:n_columns]
    lines = [" ".join(map(str.rjust, line, widths)) for line in zip(*columns, strict=True)]

    notes = []
    if rows.has("label") and not tags:
        notes.append(f"label {job.task.gold(rows, 0)}")
    if len(columns) < len(ids):
        notes.append(f"the first {len(columns)} of {len(ids)} tokens")
    head = "first example" + (f" ({', '.join(notes)}):" if notes else ":")
    body = [f"  {name} {line}" for name, line in zip(names, lines, strict=True)]
    if not job.loaded.has_segments:
        del body[names.index("segment")]
    return "\n".join([head, *body])


def _tags(job: Job, batch: Batch) -> list[str]:
    """Returns the tag of each token, `-` where none is learned.

    It is nothing where the task has one answer for a row.
    """
    ids = batch.inputs["input_ids"]
    if batch.labels is None or batch.labels.shape != ids.shape or "words" not in job.task.columns:
        return []
    names = job.task.head()["id2label"]
    numbers = batch.labels.flatten(end_dim=-2)[0].tolist()
    return [str(names.get(number, "-")) for number in numbers]
