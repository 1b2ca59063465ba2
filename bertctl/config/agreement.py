"""Fields of a recipe that are possible each by itself, but not together."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from bertctl.config.losses import CLASS_LOSSES
from bertctl.config.presets import AUTO, AUTO_TASKS, fields_left_to_auto
from bertctl.config.recipe_sections import RecipeFields, RecipeSection, TaskSettings
from bertctl.config.task_names import PRETRAINING
from bertctl.documents import is_encoding
from bertctl.words import listing

_SETTINGS = {
    name: info.annotation
    for name, info in RecipeFields.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, TaskSettings)
}
TASK_SECTIONS: dict[str, str] = {name.replace("_", "-"): name for name in _SETTINGS}
"""Task -> the recipe section that holds its own settings, where it has any (multiple choice has
none)."""

CLASSIFIERS = tuple(
    task for task, section in TASK_SECTIONS.items() if "labels" in _SETTINGS[section].model_fields
)
"""Tasks whose labels are the same in every example: their settings have label names."""

_STARTED_HEADS = (
    "text-classification",
    "text-regression",
    "token-classification",
    "multiple-choice",
)
"""Tasks whose new head can start as a regression on the frozen encoder."""

TAUGHT_TASKS = (
    "text-classification",
    "text-regression",
    "token-classification",
    "question-answering",
)
"""Tasks whose students learn from a teacher's answers."""


class Disagreement(NamedTuple):
    """Fields of a recipe that are valid each by itself, but not together.

    Attributes:
        fields: Dotted names of the fields. The first one is the one to change.
        message: Why the fields don't fit together.
    """

    fields: tuple[str, ...]
    message: str


class DisagreementError(ValueError):
    """Error with all the disagreements of one recipe.

    Raised in a validator of pydantic, which wraps it into its `ValidationError`.
    """

    def __init__(self, problems: Sequence[Disagreement]) -> None:
        super().__init__("; ".join(f"{item.fields[0]}: {item.message}" for item in problems))
        self.disagreements = problems


def disagreements_in(error: ValidationError) -> Sequence[Disagreement]:
    """Returns the fields that disagree, if that is why pydantic refuses a recipe.

    The result is empty if single fields are wrong.
    """
    for entry in error.errors(include_url=False):
        cause = entry.get("ctx", {}).get("error")
        if isinstance(cause, DisagreementError):
            return cause.disagreements
    return ()


def disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields the fields of a recipe that exclude or contradict each other, with the reason.

    The value of each field is allowed by itself, as pydantic has checked.
    """
    yield from _batch_size_disagreements(recipe)
    yield from _data_disagreements(recipe)
    yield from _fold_disagreements(recipe)
    yield from _column_disagreements(recipe)
    yield from _list_disagreements(recipe)
    yield from _layer_disagreements(recipe)
    yield from _distillation_disagreements(recipe)
    yield from _training_disagreements(recipe)
    yield from _window_disagreements(recipe)
    yield from _pretraining_disagreements(recipe)
    yield from _few_shot_disagreements(recipe)
    yield from _lora_disagreements(recipe)
    for task, section in TASK_SECTIONS.items():
        changed = [*getattr(recipe, section).model_dump(exclude_defaults=True)]
        if task != recipe.task and changed:
            reason = f"a setting of the task '{task}', but this recipe's task is '{recipe.task}'"
            yield Disagreement((f"{section}.{changed[0]}", "task"), reason)


def _batch_size_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields accumulation steps that batches can't be divided into."""
    training = recipe.training
    # A batch size that the preset `auto` will choose is not known yet.
    has_batch_size = "training.batch_size" not in fields_left_to_auto(recipe)
    if has_batch_size and training.batch_size % training.accumulation_steps:
        reason = (
            f"{training.accumulation_steps} does not divide training.batch_size "
            f"{training.batch_size}"
        )
        yield Disagreement(("training.accumulation_steps", "training.batch_size"), reason)


def _data_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields files of the user's own beside the name of a data set, and a folder without a name."""
    data = recipe.data
    if data.name:
        reason = f"data.name '{data.name}' already names the rows; leave one out"
        for split, file in data.own_files.items():
            if file:
                yield Disagreement((f"data.{split}_file", "data.name"), reason)
    elif data.data_dir:
        reason = "of use only with data.name; your own files go into data.train_file"
        yield Disagreement(("data.data_dir", "data.name"), reason)


def _column_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields what is wrong with how files are read: encoding, columns, several labels in one."""
    data = recipe.data
    labels = recipe.text_classification
    if data.encoding is not None and not is_encoding(data.encoding):
        yield Disagreement(
            ("data.encoding",),
            f"unknown text encoding '{data.encoding}'; utf-8 or latin-1 fits",
        )
    column_fields = ("text_column", "pair_column", "label_column")
    for name, later_name in itertools.combinations(column_fields, 2):
        column = getattr(data, name)
        if column is not None and column == getattr(data, later_name):
            yield Disagreement(
                (f"data.{later_name}", f"data.{name}"), f"the same column as data.{name}"
            )
    if labels.label_separator and labels.multi_label is False:
        fields = ("text_classification.label_separator", "text_classification.multi_label")
        yield Disagreement(
            fields, "several labels in a field, but text_classification.multi_label is false"
        )


def _list_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields lists that name something twice, and slice columns whose names are reserved."""
    lists = {
        "text_classification.labels": recipe.text_classification.labels or (),
        "evaluation.splits": recipe.evaluation.splits,
        "evaluation.slice_columns": recipe.evaluation.slice_columns,
    }
    for name, values in lists.items():
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            yield Disagreement((name,), f"given twice: {', '.join(twice)}")
    slices = recipe.evaluation.slice_columns
    if slices:
        from bertctl.run_documents.line_documents import PredictionLine

        reserved = [name for name in slices if name in PredictionLine.model_fields]
        if reserved:
            reason = f"prediction files have their own {listing(reserved)}; rename the column"
            yield Disagreement(("evaluation.slice_columns",), reason)


def _fold_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields what is wrong with cross-validation folds.

    They need both `data.fold` and `data.folds`, and hold out training rows for validation: so the
    data must not have validation rows of its own.
    """
    data = recipe.data
    if (data.fold is None) != (data.folds is None):
        if data.fold is None:
            present = "folds"
            missing = "fold"
        else:
            present = "fold"
            missing = "folds"
        yield Disagreement(
            (f"data.{present}", f"data.{missing}"), f"needs data.{missing} beside it"
        )
    elif data.fold is not None and data.folds is not None and data.fold > data.folds:
        yield Disagreement(
            ("data.fold", "data.folds"),
            f"fold {data.fold} is asked for, but there are {data.folds}",
        )
    if data.folds is not None and data.validation_file:
        reason = "there is a validation file, so no training rows are held out"
        yield Disagreement(("data.folds", "data.validation_file"), reason)
    if data.folds is not None and data.name:
        reason = (
            f"for files of your own; the data set '{data.name}' has its splits, and none is held "
            "out by folds"
        )
        yield Disagreement(("data.folds", "data.name"), reason)


def _training_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields what is wrong with training.*, as far as it shows without the model or the rows."""
    training = recipe.training
    is_paired = recipe.few_shot.loss is not None
    if training.preset == AUTO and (recipe.task not in AUTO_TASKS or is_paired):
        if is_paired:
            learned = "few-shot training"
        else:
            learned = f"the task '{recipe.task}'"
        reason = (
            f"auto knows values for {listing(AUTO_TASKS)}, and none for {learned}; leave it out"
        )
        yield Disagreement(("training.preset", "task"), reason)
    defaults = {"class_weights": None, "label_smoothing": 0.0, "loss": "cross-entropy"}
    for name, default in defaults.items():
        if getattr(training, name) != default and recipe.task not in CLASSIFIERS:
            yield Disagreement(
                (f"training.{name}", "task"),
                f"for labels that are the same in every example ({', '.join(CLASSIFIERS)}), but "
                "this recipe's task is "
                f"'{recipe.task}'",
            )
    if recipe.model.head_start == "probe" and recipe.task not in _STARTED_HEADS:
        reason = (
            f"for the heads of {listing(_STARTED_HEADS)}, but this recipe's task is '{recipe.task}'"
        )
        yield Disagreement(("model.head_start", "task"), reason)
    yield from _loss_disagreements(recipe)
    # The number of evaluations is known only if there is one after each of the recipe's epochs.
    is_left_to_auto = "training.epochs" in fields_left_to_auto(recipe)
    counts_steps = training.evaluate_every is not None or training.max_steps is not None
    if is_left_to_auto or counts_steps:
        return
    if training.average_best and training.average_best > training.epochs:
        yield Disagreement(
            ("training.average_best", "training.epochs"),
            f"the best {training.average_best} are asked for, but there are {training.epochs} "
            "evaluations, one after "
            "each epoch; training.evaluate_every makes more",
        )


def _loss_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields fields that the classifier's loss does not read, or that exclude it."""
    changed = {f"training.{name}" for name in recipe.training.model_dump(exclude_defaults=True)}
    chosen = CLASS_LOSSES[recipe.training.loss]

    for name in chosen.conflicts:
        if name in changed:
            yield Disagreement(
                (name, "training.loss"), f"not defined for training.loss: {chosen.name}"
            )
    for loss in CLASS_LOSSES.values():
        for name in loss.options.keys() - chosen.options.keys():
            if name in changed:
                yield Disagreement(
                    (name, "training.loss"), f"of use only with training.loss: {loss.name}"
                )


def _window_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields what is wrong with how long texts are read."""
    model = recipe.model
    if model.long_text != "head" and not recipe.answers_texts:
        reason = (
            "tags and answers to questions come from overlapping windows anyway, and choices are "
            "cut"
        )
        yield Disagreement(
            ("model.long_text", "task"),
            f"for one answer about a text, not for '{recipe.task}': {reason}",
        )
    if model.long_text != "window":
        stated = model.model_dump(exclude_defaults=True)
        for name in ("window_pooling", "window_stride"):
            # "mean" was the default once, and is in the recipes of older runs.
            if name in stated and stated[name] != "mean":
                reason = "of use only with model.long_text: window"
                yield Disagreement((f"model.{name}", "model.long_text"), reason)

    # A window repeats `window_stride` tokens of the window before it. Its other tokens are two
    # special ones and at least one new one.
    longest_stride = max(0, model.max_length - 3)
    if (model.window_stride or 0) > longest_stride:
        reason = (
            f"a window of {model.max_length} tokens must move forward: {longest_stride} at most"
        )
        yield Disagreement(("model.window_stride", "model.max_length"), reason)


def _distillation_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields settings of distillation without a teacher, and what no teacher can be used for."""
    if not recipe.distillation.model_dump(exclude_defaults=True):
        return
    yield from _useless_without("distillation", recipe.distillation, "teacher")
    if recipe.task not in TAUGHT_TASKS:
        reason = (
            f"a teacher answers {listing(TAUGHT_TASKS)}, and nothing of '{recipe.task}' can be "
            "learned from it"
        )
        yield Disagreement(("distillation.teacher", "task"), reason)
    yield from _relation_disagreements(recipe)
    if recipe.few_shot.loss is not None:
        reason = "few-shot training learns pairs of texts, to which no teacher answers"
        yield Disagreement(("distillation.teacher", "few_shot.loss"), reason)


def _relation_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields what conflicts with learning the teacher's relations between tokens.

    If the recipe does not use them, it yields their settings instead, which then have no effect.
    """
    section = recipe.distillation
    if not section.relations:
        for name in ("relation_heads", "relation_layer"):
            if getattr(section, name) is not None:
                reason = "of use only with distillation.relations above 0"
                yield Disagreement((f"distillation.{name}", "distillation.relations"), reason)
        return
    if recipe.model.long_text == "window":
        reason = "relations are those of one window, and long texts are read in several"
        yield Disagreement(("distillation.relations", "model.long_text"), reason)
    if recipe.training.gradient_checkpointing:
        reason = "gradient checkpointing forgets the vectors that are compared"
        yield Disagreement(("distillation.relations", "training.gradient_checkpointing"), reason)


def _useless_without(name: str, section: RecipeSection, switch: str) -> Iterator[Disagreement]:
    """Yields a field that has no effect, because the section is not switched on.

    Args:
        name: Name of the section, such as `lora`.
        section: The section, of which at least one field is not the default.
        switch: The field that switches the section on, such as `rank`.
    """
    if getattr(section, switch) is None:
        changed = [*section.model_dump(exclude_defaults=True)]
        reason = f"of use only with {name}.{switch}"
        yield Disagreement((f"{name}.{changed[0]}", f"{name}.{switch}"), reason)


def _layer_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields what is wrong with the choice of layers that a model starts with."""
    layers = recipe.model.keep_layers
    if layers is None:
        return
    if layers != sorted(set(layers)):
        reason = f"each layer once, from the bottom to the top: {sorted(set(layers))}"
        yield Disagreement(("model.keep_layers",), reason)
    if recipe.few_shot.loss is not None:
        reason = "few-shot training reads the encoder as its files are"
        yield Disagreement(("model.keep_layers", "few_shot.loss"), reason)
    if recipe.pretraining.from_scratch is not None:
        reason = "a new BERT has as many layers as its size says"
        yield Disagreement(("model.keep_layers", "pretraining.from_scratch"), reason)


def _pretraining_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields what is wrong with masking, the mix of corpora, and a new BERT's vocabulary."""
    section = recipe.pretraining
    masking = recipe.masking
    changes_masking = bool(masking.model_dump(exclude_defaults=True))
    if recipe.task != PRETRAINING and changes_masking:
        # `masking.rate` stands for whichever field of the section was changed.
        yield Disagreement(("masking.rate", "task"), f"of use only with the task '{PRETRAINING}'")
    if masking.replaced + masking.random > 1.0:
        message = (
            f"{masking.replaced:g} and {masking.random:g} are more than all of the chosen tokens"
        )
        yield Disagreement(("masking.replaced", "masking.random"), message)
    if section.mix and section.mix_temperature is not None:
        yield Disagreement(
            ("pretraining.mix", "pretraining.mix_temperature"), "two ways to weigh corpora"
        )
    if section.vocab is not None and section.from_scratch is None:
        reason = "the model has its vocabulary; a new one needs a new BERT"
        yield Disagreement(("pretraining.vocab", "pretraining.from_scratch"), reason)


def _lora_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields settings of LoRA without effect, and ways of training that LoRA can't be used in."""
    if not recipe.lora.model_dump(exclude_defaults=True):
        return
    yield from _useless_without("lora", recipe.lora, "rank")
    if recipe.task == PRETRAINING:
        reason = "for fine-tuning; pretraining learns the vectors of words, which LoRA leaves alone"
        yield Disagreement(("lora.rank", "task"), reason)
    if recipe.few_shot.loss is not None:
        reason = "few-shot training saves an encoder and a regression, and has no adapter"
        yield Disagreement(("lora.rank", "few_shot.loss"), reason)


def _few_shot_disagreements(recipe: RecipeFields) -> Iterator[Disagreement]:
    """Yields fields that have no effect together with few-shot training, or without it."""
    changed = [*recipe.few_shot.model_dump(exclude_defaults=True)]
    training = recipe.training
    if changed and recipe.few_shot.loss is None:
        yield Disagreement(
            (f"few_shot.{changed[0]}", "few_shot.loss"), "of use only with few_shot.loss"
        )
    if changed and recipe.model.head_start == "probe":
        reason = "few-shot training fits its head after the encoder"
        yield Disagreement(("model.head_start", "few_shot.loss"), reason)
    if changed:
        unused = {"patience", "evaluate_every", "average_best", "class_weights", "label_smoothing"}
        for name in sorted(unused & training.model_dump(exclude_defaults=True).keys()):
            yield Disagreement(
                (f"training.{name}", "few_shot.loss"),
                "few-shot training learns pairs, and chooses nothing",
            )
    if changed and training.time_limit is not None:
        reason = "few-shot training repeats short runs, and has no time limit"
        yield Disagreement(("training.time_limit", "few_shot.loss"), reason)
    if recipe.few_shot.draws > 1 and recipe.data.train_rows_per_label is None:
        reason = (
            "several draws of all training rows are the same; data.train_rows_per_label sets how "
            "many are drawn"
        )
        yield Disagreement(("few_shot.draws", "data.train_rows_per_label"), reason)
