"""A finished run, or a fine-tuned model, whose network torch computes."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bertctl.catalog.datasets import find_dataset
from bertctl.catalog.hub import NotCachedError, cache_only
from bertctl.catalog.lock import file_sha256
from bertctl.catalog.models import MODELS, refuse_adapter
from bertctl.config.agreement import CLASSIFIERS
from bertctl.config.dump import recipe_hash
from bertctl.config.load import load_recipe, recipe_name
from bertctl.config.recipe_sections import ModelSection
from bertctl.config.schema import Recipe
from bertctl.data.readers import READERS
from bertctl.documents import loading, read_json_if_there
from bertctl.errors import HeadlessModelError, UnavailableError
from bertctl.inference.engine import Engine
from bertctl.inference.trained_run import TrainedRun, refuse_learned_fields
from bertctl.modeling.families import read_length
from bertctl.modeling.linear_head import WEIGHTS, is_probe, read_probe
from bertctl.modeling.output_names import output_names
from bertctl.modeling.sentence_folder import read_modules
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import DAMAGED, UNFINISHED, RunFolder, refuse_export
from bertctl.runtime.device import exact_on_cpu
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import Task
from bertctl.tasks.registry import TASKS, task_type
from bertctl.tasks.sentences.sentence_embeddings import SENTENCE_MODULES_KEY
from bertctl.version import __version__
from bertctl.words import command, listing

if TYPE_CHECKING:
    from bertctl.modeling.build import FrozenEncoders


@dataclass(frozen=True, kw_only=True)
class NetworkRun(TrainedRun):
    """A run whose model is a network of torch.

    Attributes:
        source: The files of the model.
    """

    source: ModelSource

    @property
    def hash(self) -> str:
        """Hash of what decides its answers."""
        if is_probe(self.folder.path):
            head = file_sha256(self.folder.path / WEIGHTS)
        else:
            head = ""
        model_hash = self.source.content_hash() + head
        return recipe_hash(self.recipe, data_hashes={"bertctl": __version__}, model_hash=model_hash)

    def load(
        self,
        workers: Workers = ALONE,
        *,
        to_input: bool = False,
        plain: bool = False,
        encoders: "FrozenEncoders | None" = None,
    ) -> Engine:
        """Returns the model on its device, ready to compute.

        Args:
            workers: Processes that share the work.
            to_input: Whether gradients are to go through the network to its input, and to no
                weight. The model is in fp32 then.
            plain: Whether the network is to be that of transformers, see `load_trained`.
            encoders: Encoders of probes that are in memory already.

        Raises:
            UsageError: Processes with other models or settings.
        """
        from bertctl.modeling.build import load_trained

        if workers.group is not None:
            # Machines may have different numbers of threads.
            without_threads = self.recipe.with_fields("runtime", threads=None)
            workers.agree(replace(self, recipe=without_threads).hash)

        runtime = self.recipe.runtime
        if to_input:
            runtime = runtime.model_copy(update={"precision": "fp32"})
        elif self.task.compares_vectors:
            runtime = exact_on_cpu(runtime)

        # The message about the device says why one was chosen that nobody typed.
        reasons = {}
        for field in ("device", "precision"):
            if f"runtime.{field}" not in self.named:
                reasons[field] = "as in training"
        if runtime.precision != self.recipe.runtime.precision and not to_input:
            reasons["precision"] = "near similarities change places by rounding"
        compute = self.source.compute(runtime, reasons=reasons)

        model = load_trained(
            self.folder.path,
            self.source,
            self.task.auto_class,
            compute,
            to_input=to_input,
            plain=plain,
            encoders=encoders,
        )
        return Engine.of(model, compute, workers)


def open_run(
    path: Path, *, options: Mapping[str, object] | None = None, listener: Listener = SILENT
) -> NetworkRun:
    """Opens a run folder, or a fine-tuned model: a folder of transformers, or a hub id.

    Args:
        path: RUN, or the model.
        listener: Receives what such a model is.
        options: Recipe fields to change, by dotted name: `runtime.device`, `evaluation.batch_size`,
            `data.data_dir`.

    Raises:
        UnavailableError: No run, or one without a model.
        UsageError: Options that don't fit.
    """
    refuse_export(path)
    if _is_model(path):
        return _open_model(path, options or {}, listener)
    refuse_adapter(path)
    folder = RunFolder.open(path)
    refuse_learned_fields(path, options or {})
    state = folder.read_status().state
    if not is_probe(path) and not any(folder.model.glob("model*.safetensors")):
        message = f"{path} holds no model: the run's state is '{state}'"
        remedy = UNFINISHED
        if state == "done":
            remedy = (
                "Scores of a file have none: give the run or the model that was scored. A sweep "
                "keeps all by `keep=all`."
            )
        raise UnavailableError(message, remedy=remedy)
    if state != "done":
        listener.warn(
            f"{path} is not finished (its state is '{state}'): this is its best model so far"
        )
    recipe = load_recipe(str(folder.recipe), options=options)
    if "data.max_eval_rows" not in (options or {}):  # a limit holds for the call that named it
        recipe = recipe.with_fields("data", max_eval_rows=None)
    source = _model_of_run(folder, recipe)
    if is_probe(path):  # its head is in the run
        model_config = read_probe(path)[1].head
    else:
        model_config = {**source.config, SENTENCE_MODULES_KEY: read_modules(source.folder)}
    with loading(f"the run {path}", remedy=DAMAGED):
        task = task_type(recipe.task).from_model(recipe, model_config)
        if folder.decision.exists():
            task = task.with_decision(folder.read(folder.decision))
    return NetworkRun(
        folder=folder,
        recipe=recipe,
        source=source,
        task=task,
        pairs=_pairs(folder, recipe),
        named=tuple(options or ()),
    )


def _is_model(path: Path) -> bool:
    """Returns whether a path is no run but a model: a catalog name, a hub id, or its folder."""
    if str(path) in MODELS:
        return True
    # A path such as runs/mine is that of a missing run, though it could be a hub id, too.
    is_local_path = path.exists() or path.parent.is_dir() or path.parts[0] == "runs"
    if not is_local_path and len(path.parts) == 2:
        return True
    has_run_status = (path / "status.json").exists()
    return not has_run_status and (path / "config.json").exists()


def _model_of_run(folder: RunFolder, recipe: Recipe) -> ModelSource:
    """Returns the files of a run's model, or of a probe's encoder."""
    weights_folder = folder.encoder if is_probe(folder.path) else folder.model
    if is_probe(folder.path) and not weights_folder.is_dir():
        # This probe has no copy of its encoder: that is the model that the recipe names.
        return _encoder(recipe.model, folder.path)
    model = ModelSection(name=str(weights_folder), max_length=recipe.model.max_length)
    return inspect_model(model, is_from_run=True)


def _open_model(path: Path, options: Mapping[str, object], listener: Listener) -> NetworkRun:
    """Opens a fine-tuned model of transformers or sentence-transformers.

    Its task follows from the class that its config.json names (`...ForSequenceClassification`), or
    from the modules of a sentence encoder. Other settings are the defaults of that task's recipe.

    Args:
        path: A folder, or a hub id.
        options: Recipe fields to change, by dotted name.
        listener: Receives what the model is.

    Raises:
        HeadlessModelError: The model has no head for any task.
    """
    # Inspection refuses a model that can't read so long an input. How much this model reads is
    # known only after inspection, so it is asked for a length that every model can read.
    source = inspect_model(ModelSection(name=str(path), max_length=4))
    architecture = str((source.config.get("architectures") or ["model without a head"])[0])
    sentence_modules = read_modules(source.folder)
    fitting = _fitting_tasks(path, architecture, is_sentence_model=sentence_modules is not None)
    config = {**source.config, SENTENCE_MODULES_KEY: sentence_modules}
    with loading(
        path / "config.json", kind=UnavailableError, remedy="Give files that save_pretrained wrote."
    ):
        labels = output_names(config)
    is_score = config.get("problem_type") == "regression" or len(labels) == 1
    # One head fits two tasks: `fitting` has classification and then regression. Other heads fit one
    # task.
    if is_score and len(fitting) > 1:
        kind = fitting[1]
    else:
        kind = fitting[0]
    has_head = bool(_head_name(kind))
    if has_head:
        _check_outputs(
            path,
            config,
            labels,
            listener,
            is_score=is_score,
        )
    fields = {"name": recipe_name(path.name), "model.name": str(path)}
    if sentence_modules is None:
        max_length = None
    else:
        max_length = sentence_modules.max_length
    # How much of a text is read. Models that bertctl saved say it in `long_text`.
    reading = config.get("long_text") or _reading_of(source, max_length, kind.name, listener)
    with loading(path / "config.json", remedy="Its `long_text` has fields of `model` in a recipe."):
        lengths = {f"model.{name}": value for name, value in reading.items()}
    recipe = load_recipe(kind.name, options={**lengths, **options, **fields})
    labels_note = ""
    if has_head:
        labels_note = f", labels {listing(labels)}"
    listener.say(f"{path} is a model for {kind.name}: {architecture}{labels_note}")
    are_labels_nameless = all(label.startswith("LABEL_") for label in labels)
    if recipe.task in CLASSIFIERS and not is_score and are_labels_nameless:
        listener.warn(
            f"{path}: the labels have no names; `id2label` in its config.json would name them"
        )
    # The length that inspection was asked for gives way to the length that is read.
    source = replace(source, max_length=recipe.model.max_length)
    return NetworkRun(
        folder=RunFolder(path),
        recipe=recipe,
        source=source,
        task=kind.from_model(recipe, config),
        pairs=None,  # nothing says whether it was trained on pairs of texts
        named=tuple(options),
    )


def _fitting_tasks(path: Path, architecture: str, *, is_sentence_model: bool) -> list[type[Task]]:
    """Returns the tasks whose head a model has, at least one.

    Args:
        path: The model, for the message.
        architecture: Class of transformers, such as `BertForSequenceClassification`.
        is_sentence_model: Whether the folder has modules of sentence-transformers. Without a head
            the model then compares texts.

    Raises:
        HeadlessModelError: The model has no head for any task.
    """
    heads = {task: _head_name(task) for task in TASKS.values()}
    class_name = architecture.removesuffix("Simple")  # XLNetForQuestionAnsweringSimple
    fitting = [task for task, head in heads.items() if head and class_name.endswith(head)]
    if not fitting and is_sentence_model:
        fitting = [task for task, head in heads.items() if not head]
    if not fitting:
        raise HeadlessModelError(
            f"{path} has no head that answers: it is a {architecture}",
            remedy=f"Heads: {', '.join(dict.fromkeys(filter(None, heads.values())))}. To train "
            f"one: {command('finetune FILE', model=path)}",
        )
    return fitting


def _head_name(task: type[Task]) -> str:
    """Returns what the names of classes with the task's head end in; empty for no head."""
    return task.auto_class.removeprefix("AutoModel")


def _check_outputs(
    path: Path,
    config: Mapping[str, object],
    labels: Sequence[str],
    listener: Listener,
    *,
    is_score: bool,
) -> None:
    """Refuses a model whose config.json asks for other answers than bertctl would give.

    bertctl applies a softmax to classes, a sigmoid to several labels, and nothing to a score.

    Args:
        path: The model.
        config: Its config.json.
        labels: Names of its outputs.
        listener: Receives a warning about scores that others show transformed.
        is_score: Whether it answers with a score.

    Raises:
        UnavailableError: Several scores, or another function over the outputs than `problem_type`
            means.
    """
    problem = config.get("problem_type")
    if is_score and len(labels) > 1:
        raise UnavailableError(
            f"{path} gives {len(labels)} scores ({listing(labels)}; problem_type: regression), and "
            "text-regression answers with one",
            remedy="Give a model with one score. If these are classes, correct problem_type in its "
            "config.json.",
        )
    if is_score:
        usual = "none"
    elif problem == "multi_label_classification":
        usual = "sigmoid"
    else:
        usual = "softmax"
    # The pipelines of transformers apply the function that one of these two names.
    named_settings: list[object] = [config]
    task_params = config.get("task_specific_params")
    if isinstance(task_params, Mapping):
        named_settings.append(task_params.get("text-classification"))
    for settings in named_settings:
        if not isinstance(settings, Mapping):
            continue
        function = settings.get("function_to_apply")
        if function is not None and function != usual:
            raise UnavailableError(
                f"{path / 'config.json'}: function_to_apply is {str(function)[:40]!r}, and "
                f"problem_type {str(problem)[:40]!r} means {usual!r}",
                remedy="Set problem_type to the trained one (single_label_classification, "
                "multi_label_classification or regression), or take function_to_apply out.",
            )
    activation = _activation_of_pairs(config)
    if is_score and not activation.endswith("Identity"):
        listener.warn(
            f"{path}: sentence-transformers shows its scores through "
            f"{activation.rpartition('.')[2]} (config.json); "
            "these are the scores before it, in the same order"
        )


def _activation_of_pairs(config: Mapping[str, object]) -> str:
    """Returns the function that a CrossEncoder of sentence-transformers applies to its score."""
    section = config.get("sentence_transformers")
    activation = None
    if isinstance(section, Mapping):
        activation = section.get("activation_fn")
    older_name = "sbert_ce_default_activation_function"  # older folders have it
    return str(activation or config.get(older_name) or "Identity")


def _reading_of(
    source: ModelSource, max_length: int | None, task: str, listener: Listener
) -> dict[str, object]:
    """Returns fields of `model` for a model of transformers: its `max_length` and `long_text`.

    Args:
        source: The model, whose tokenizer_config.json may name a limit and a side.
        max_length: What the modules of sentence-transformers say; None without them.
        task: Name of the task.
        listener: Receives a note if the end of a long text is read.
    """
    file = source.folder / "tokenizer_config.json"
    settings = read_json_if_there(file)
    limit = settings.get("model_max_length")
    longest = read_length(source.config)
    # transformers writes a huge number for no limit. Below 4 no text would fit.
    if isinstance(limit, int) and 4 <= limit < longest:
        longest = limit
    reading: dict[str, object] = {"max_length": max_length or longest}
    answers_texts = task in ("text-classification", "text-regression")
    if settings.get("truncation_side") == "left" and answers_texts:
        listener.say(
            f"model: its tokenizer keeps the end of a long text (truncation_side), so {longest} "
            "tokens of it"
        )
        reading["long_text"] = "tail"
    return reading


def _encoder(settings: ModelSection, run: Path) -> ModelSource:
    """Returns the encoder of a probe, whose run folder has the head only.

    A run folder may be from a stranger. So an encoder that is not in the catalog is read from this
    disk only, and never downloaded.

    Args:
        settings: Section `model` of the run's recipe.
        run: The run folder.
    """
    try:
        with nullcontext() if settings.name in MODELS else cache_only():
            return inspect_model(settings)
    except NotCachedError as error:
        message = (
            f"{run} is a probe on '{settings.name}', which is not on this disk, and what a run "
            "names is not fetched"
        )
        remedy = f"If you trust it, fetch it yourself: hf download {settings.name}"
        raise UnavailableError(message, remedy=remedy) from error


def _pairs(folder: RunFolder, recipe: Recipe) -> bool | None:
    """Returns whether a run was trained on pairs of texts, or on single texts.

    It is None if the task leaves no choice, or if neither the data set nor the run's environment
    says it.
    """
    columns_of_task = READERS[recipe.task].columns
    # Tasks with a column of negatives train a network that reads each text of a pair by itself.
    reads_each_text_alone = "negative" in columns_of_task
    if "pair" not in columns_of_task or reads_each_text_alone:
        return None
    if recipe.data.name:
        return find_dataset(recipe.data.name, recipe.data.datasets_file).columns.pair is not None
    if not folder.environment.exists():
        return None
    columns = folder.read_environment().columns
    return "pair" in columns if columns else None
