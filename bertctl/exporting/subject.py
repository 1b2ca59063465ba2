"""What is exported: a run or a model, opened, with its network as transformers made it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Array, Ints
from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import ModelSection
from bertctl.config.task_names import PRETRAINING
from bertctl.errors import HeadlessModelError
from bertctl.inference.engine import Engine
from bertctl.inference.export_proof import Window
from bertctl.inference.trained import NetworkRun, open_run
from bertctl.inference.window_answers import WindowAnswers
from bertctl.modeling.build import load_frozen, load_trained
from bertctl.modeling.families import read_length
from bertctl.modeling.linear_head import FIRST_OF_WORD, is_probe, read_probe
from bertctl.modeling.model import Model
from bertctl.modeling.sentence_folder import SentenceModules, read_modules
from bertctl.modeling.source import inspect_model
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.export_document import ExportWindows
from bertctl.run_folder import RunFolder
from bertctl.runtime.device import Compute
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import Features, Task
from bertctl.tasks.registry import task_type
from bertctl.tasks.sentences.sentence_embeddings import SENTENCE_MODULES_KEY
from bertctl.tokenization.layout import special_ids

if TYPE_CHECKING:
    from bertctl.modeling.graph_network import GraphNetwork

ENCODER_TASK = "sentence-embeddings"
"""The task that an encoder without a head is exported for."""

_SHORTEST = 4
"""Tokens that every model reads."""

_ON_CPU = {"runtime.device": "cpu", "runtime.precision": "fp32"}
"""Recipe fields of an export: graphs are compared with the model in fp32 on the CPU."""


@dataclass(frozen=True)
class Subject:
    """A model that is exported.

    Attributes:
        path: Path or name, as it was typed.
        run: The run or model, opened; its recipe computes on the CPU in fp32.
        model: The model as transformers loads it.
        engine: The model ready to compute: what the export is compared with.
        is_run: Whether it is a run, which has data and scores of its own.
        modules: How vectors are made, where the task is about vectors.
        windows: How the windows of long texts become one answer; None where none do.
    """

    path: Path
    run: NetworkRun
    model: Model
    engine: Engine
    is_run: bool
    modules: SentenceModules | None
    windows: WindowAnswers | None

    @property
    def task(self) -> Task:
        """Task of the run, with the run's decision thresholds."""
        return self.run.task

    @property
    def compute(self) -> Compute:
        """Where the comparison is computed."""
        return self.engine.compute

    def network(self) -> "GraphNetwork":
        """Returns what becomes the graph."""
        from bertctl.modeling.graph_network import GraphNetwork

        return GraphNetwork(self.model, with_windows=self.windows is not None)

    def windows_of(self, features: Features, indices: Ints) -> list[Window]:
        """Returns everything that the model reads for some windows of `Features`, without padding.

        A window of features can be several for the model: one per choice, per sentence of a pair of
        sentences, or per part of a long text.
        """
        objective = self.task.objective(self.model.padding)
        rng = WindowRandom(0)
        windows: list[Window] = []
        for index in indices.tolist():
            batch = objective.batch(features, np.array([index]), rng)
            inputs = {name: tensor.numpy() for name, tensor in batch.inputs.items()}
            windows += _unpadded(inputs)
        return windows


def _unpadded(inputs: Mapping[str, Array]) -> list[Window]:
    """Returns the windows in a padded batch of (..., T) inputs, without padding."""
    n_tokens = inputs["input_ids"].shape[-1]
    ids, types, mask = (
        inputs[name].reshape(-1, n_tokens)
        for name in ("input_ids", "token_type_ids", "attention_mask")
    )
    windows = []
    for row in range(len(ids)):
        is_token = mask[row] > 0
        windows.append(Window(ids[row, is_token], types[row, is_token]))
    return windows


def open_subject(path: Path, options: Mapping[str, object], listener: Listener = SILENT) -> Subject:
    """Opens what is exported, and loads it on the CPU in fp32.

    Args:
        path: A run, a folder of transformers, or a model's name.
        options: Recipe fields that were given. Device and precision are not taken from them.
        listener: Receives progress messages.

    Raises:
        UnavailableError: There is nothing, or it is damaged.
        UsageError: Options that don't fit.
    """
    run, is_run = _opened(path, {**options, **_ON_CPU}, listener)
    compute = run.source.compute(run.recipe.runtime)
    if is_probe(run.folder.path):
        from bertctl.modeling.probe_network import with_head

        head, _ = read_probe(run.folder.path)
        encoder = load_frozen(run.source, compute, plain=True)
        model = with_head(encoder, head, run.source, compute)
    else:
        model = load_trained(run.folder.path, run.source, run.task.auto_class, compute, plain=True)
    modules = None
    if run.task.compares_vectors:
        modules = read_modules(run.source.folder) or SentenceModules()
    return Subject(
        path=path,
        run=run,
        model=model,
        engine=Engine.of(model, compute),
        is_run=is_run,
        modules=modules,
        windows=_window_answers(run, model),
    )


def _opened(
    path: Path, options: Mapping[str, object], listener: Listener
) -> tuple[NetworkRun, bool]:
    """Returns the run or model, and whether it is a run, which has data of its own.

    A model without a head, or pretrained by bertctl, is opened as an encoder of texts.
    """
    try:
        run = open_run(path, options=options, listener=listener)
    except HeadlessModelError:
        return _opened_encoder(path, options, listener), False
    if run.recipe.task == PRETRAINING:
        listener.say(f"{path} was pretrained: its encoder is exported, without its head for words")
        return _opened_encoder(run.source.folder, options, listener), False
    is_run = (path / "status.json").exists()  # only training writes this file
    return run, is_run


def _opened_encoder(path: Path, options: Mapping[str, object], listener: Listener) -> NetworkRun:
    """Returns an encoder without a head, opened for vectors of texts: the mean of its tokens'."""
    # Opened with the shortest length first, as only its files tell the length that it reads.
    found_model = inspect_model(ModelSection(name=str(path), max_length=_SHORTEST))
    modules = read_modules(found_model.folder) or SentenceModules()
    longest = modules.max_length or read_length(found_model.config)
    fields = {"model.max_length": longest, **options, "model.name": str(path)}
    recipe = load_recipe(ENCODER_TASK, options=fields)
    source = inspect_model(recipe.model)
    listener.say(f"{path} has no head: its vectors are exported, by {'+'.join(modules.poolings)}")
    task = task_type(ENCODER_TASK).from_model(
        recipe, {**source.config, SENTENCE_MODULES_KEY: modules}
    )
    return NetworkRun(
        folder=RunFolder(path),
        recipe=recipe,
        source=source,
        task=task,
        pairs=None,
        named=tuple(options),
    )


def _window_answers(run: NetworkRun, model: Model) -> WindowAnswers | None:
    """Returns how windows become one answer, if the run pools the windows of long texts.

    It holds the weights of the last layer, which an export computes outside of its graph.
    """
    if run.recipe.model.long_text != "window" or run.task.auto_class != _POOLS_WINDOWS:
        return None
    from bertctl.modeling.heads import last_layer
    from bertctl.modeling.probe_network import ProbeNetwork

    network: Any = model.network
    if isinstance(network, ProbeNetwork):
        head = network.head
        if head.pooling == FIRST_OF_WORD:  # words have answers of their own: nothing is pooled
            return None
        # Ids of tokens that do not count where windows are weighed by their tokens.
        uncounted: list[int] = []
        if not head.special_tokens:
            uncounted = sorted(special_ids(model.tokenizer))
        window_pooling = ExportWindows.model_validate(
            {
                "pooling": head.windows,
                "tokens_pooling": head.pooling,
                "normalize": head.normalize,
                "uncounted": uncounted,
            }
        )
        return WindowAnswers(window_pooling, head.weight, head.bias)

    pooling = network.window_pooling
    _, last_linear = last_layer(network)
    window_pooling = ExportWindows(pooling=pooling.how)
    weight = last_linear.weight.detach().numpy()
    bias = np.zeros(len(weight), dtype=np.float32)
    if last_linear.bias is not None:
        bias = last_linear.bias.detach().numpy()
    query = None
    if pooling.how == "attention":
        query = pooling.query.detach().numpy()
    return WindowAnswers(window_pooling, weight, bias, query)


_POOLS_WINDOWS = "AutoModelForSequenceClassification"
