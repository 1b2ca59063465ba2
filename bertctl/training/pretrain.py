"""A run of pretraining made ready: corpus, vocabulary, model; what trains it is what fine-tunes."""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from scipy.special import entr

from bertctl.arrays import Ints
from bertctl.config.schema import Recipe
from bertctl.data.corpora import open_corpora
from bertctl.data.recipe_data import NO_ROWS, LoadedData
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.documents import loading
from bertctl.errors import DataError, UsageError
from bertctl.modeling.build import build_tokenizer
from bertctl.modeling.families import family_of
from bertctl.modeling.masked_head import require_order_head
from bertctl.modeling.model import Model
from bertctl.modeling.source import inspect_model
from bertctl.progress import SILENT, Listener
from bertctl.tasks.pretraining.corpus_windows import CorpusWindows, mixed, weights_of
from bertctl.tasks.pretraining.task import Pretraining
from bertctl.tokenization.packing import PackedText
from bertctl.tokenization.reference import tokens_by_id
from bertctl.training.corpus_cache import CorpusData, read_corpus
from bertctl.training.first_weights import begin_from
from bertctl.training.job import Inputs, Job, assembled, check_outside
from bertctl.training.loop.layer_freezing import check_layers
from bertctl.training.new_model import new_model
from bertctl.words import listing
from bertctl.writing import cache_folder

_CHUNK = 2**24  # tokens that are counted together
_OF_LOGITS = 4 * 4  # bytes of fp32: logits, their logarithms, the gradients of both


def prepare(
    recipe: Recipe,
    *,
    rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
    listener: Listener = SILENT,
) -> Job:
    """Reads and checks everything a run needs; the refusals come in order of their cost.

    Args:
        recipe: Recipe of the run; its task is `pretraining`.
        rows_in_memory: Must be empty: a corpus is read from files.
        listener: Receives what was guessed, held out and left out.

    Raises:
        BertctlError: Any refusal of recipe, corpus, vocabulary, model or device.
    """
    started = time.perf_counter()
    if rows_in_memory:
        raise UsageError(
            "pretraining reads a corpus from files, and no rows in memory",
            remedy="Write the texts into a file, and name it in pretraining.corpus.",
        )
    if not recipe.pretraining.corpus:
        raise UsageError(
            "no corpus was named", remedy="Name files or folders: bertctl pretrain CORPUS..."
        )
    check_outside(recipe)
    # Refuses missing files before anything is read.
    open_corpora(recipe.pretraining.corpus, recipe.data)
    task = Pretraining.of(recipe)
    if recipe.pretraining.from_scratch:
        source = new_model(recipe, listener)
    else:
        source = inspect_model(recipe.model)
    check_layers(recipe, source)
    if task.pairs:
        require_order_head(family_of(source.config), source.name)
    tokenizer = build_tokenizer(source, task.auto_class, {})
    corpus = read_corpus(recipe, tokenizer, listener=listener)
    # A damaged cache has ids that the vocabulary lacks.
    with loading(cache_folder() / "corpora", remedy="Delete it: it is made anew."):
        counts = _token_counts(corpus.train, len(tokens_by_id(tokenizer)))
    # The entropy of single tokens: the loss of a model that only knows how often each occurs.
    task = replace(task, unigram=float(entr(counts / counts.sum()).sum()))
    primary = recipe.evaluation.primary_metric or task.primary_metric
    read = Inputs(
        data=_loaded(recipe, corpus),
        source=source,
        task=task,
        evaluated=("validation",),
        primary=primary,
        recipe=recipe,
    )
    settings = recipe.training
    size = recipe.model.max_length
    cutting = {"short": recipe.pretraining.short_sequences, "seed": settings.seed_of_order}

    def features_of(loaded: Model) -> dict[str, Any]:
        """Returns the windows of the two splits, and sets first weights from the corpus."""
        windows = task.windows(
            corpus.train,
            loaded.tokenizer,
            size,
            held_out=False,
            **cutting,
        )
        # With `pretraining.mix`, windows of a corpus that is too small for its weight are repeated.
        # The first weights are learned from the text as it is.
        train = _mixed(windows, recipe, corpus)
        if recipe.pretraining.from_scratch and recipe.pretraining.first_weights == "corpus":
            message = (
                "model: its first weights are the corpus's own: how often tokens occur, and how "
                "often together"
            )
            listener.say(message)
            begin_from(loaded.network, windows, counts)
        return {
            "train": train,
            "validation": task.encode(corpus.validation, loaded.tokenizer, max_length=size),
        }

    job = assembled(
        recipe,
        read,
        features_of,
        started=started,
        listener=listener,
    )
    # The logits of masked tokens over the vocabulary come on top of the usual estimate.
    windows_at_once = math.ceil(settings.batch_size / settings.accumulation_steps)
    tokens_at_once = windows_at_once * int(job.features["train"].lengths.max())
    masked_at_once = round(tokens_at_once * recipe.masking.rate)
    job.memory += masked_at_once * job.loaded.tokenizer.get_vocab_size() * _OF_LOGITS
    return job


def _loaded(recipe: Recipe, corpus: CorpusData) -> LoadedData:
    """Returns the corpus as a run's data, with rows of a train and a validation split.

    The rows of the train split have numbers as ids and no columns: their texts are packed.
    """
    numbers = cast(Any, range(len(corpus.train.documents) - 1))
    train = Rows("train", {}, numbers, ", ".join(corpus.names))
    # A text of masked words is its own label.
    columns = {**corpus.validation.columns, "label": corpus.validation.columns["text"]}
    validation = replace(corpus.validation, columns=columns)
    splits = {"train": train, "validation": validation}
    return LoadedData(splits, ("validation",), corpus.hashes, recipe)


def _mixed(windows: CorpusWindows, recipe: Recipe, corpus: CorpusData) -> CorpusWindows:
    """Returns the windows of an epoch, drawn by the corpora's weights if the recipe has any.

    Args:
        windows: All windows of the training text.
        recipe: Has the weights, `pretraining.mix`.
        corpus: Names of the corpora, and where each begins.

    Raises:
        UsageError: A corpus has no weight, or a weight has no corpus.
        DataError: A corpus with a weight has no window, or no corpus has one.
    """
    section = recipe.pretraining
    # Number of the corpus that each window is from. A window knows the number of its document, and
    # a corpus the number of its first document.
    corpora = np.searchsorted(corpus.train.corpora, windows.rows, side="right") - 1
    window_counts = np.bincount(corpora, minlength=len(corpus.names)).tolist()
    counts = dict(zip(corpus.names, window_counts, strict=True))
    try:
        weights = weights_of(counts, section.mix, section.mix_temperature)
    except KeyError as error:
        raise UsageError(
            "`pretraining.mix=` has "
            f"{listing([entry.rpartition('=')[0] for entry in section.mix])}, and the corpora are "
            f"{listing(corpus.names)}",
            remedy="Give each corpus one weight: "
            + " ".join(f"`pretraining.mix={name}=1`" for name in corpus.names),
        ) from error
    empty = [name for name, number in counts.items() if not number]
    # Without weights, an empty corpus does no harm as long as another one has windows.
    is_empty_one_needed = weights is not None or not len(windows)
    if empty and is_empty_one_needed:
        message = f"the corpus '{empty[0]}' has no window to train on"
        raise DataError(message, remedy="Leave it out, or give it longer texts.")
    if weights is None:
        return windows
    chosen = mixed(corpora, weights)
    return replace(
        windows,
        starts=windows.starts[chosen],
        sizes=windows.sizes[chosen],
        rows=windows.rows[chosen],
    )


def _token_counts(text: PackedText, size: int) -> Ints:
    """Returns how often each of the tokens of a vocabulary of that size occurs."""
    counts = np.zeros(size, dtype=np.int64)
    for i in range(0, len(text.ids), _CHUNK):
        counts += np.bincount(text.ids[i : i + _CHUNK], minlength=size)
    return counts
