"""The values of `training.preset: auto`: how an encoder is trained where nobody says it.

Few rules, smooth in rows and labels; `docs/training.md` has the runs that they were fitted on.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bertctl.config.presets import AUTO, fields_left_to_auto
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import LoadedData
from bertctl.modeling.families import model_sizes
from bertctl.modeling.source import ModelSource
from bertctl.tasks.base import Task
from bertctl.training.text_length import length_for_rows
from bertctl.words import count

_PAPER_WIDTH = 768
_PAPER_LAYERS = 12
_PAPER_RATE = 3e-5
"""The middle of the BERT paper's grid (appendix A.3: 2e-5, 3e-5, 5e-5), for its base model of 12
layers, 768 wide."""

_WIDTH_POWER = 1.5
_LAYERS_POWER = 0.5
_LOWEST_RATE = 1e-5
_HIGHEST_RATE = 5e-4

_LORA_FACTOR = 10
"""The learning rate of LoRA over the one for all weights; `docs/smaller.md` has the runs."""

_LAYER_DECAY = 0.9

_USUAL_EPOCHS = 3
_MOST_EPOCHS = 20
_ROWS_OF_USUAL_EPOCHS = 1500
"""Training rows from which a run with two labels has the usual epochs; fewer rows have more."""
_ROWS_POWER = 0.4
FEW_LABELS = 5
"""Labels up to which a run is trained, and its head started, as one with two labels is."""
_LABELS_POWER = 0.2

_BATCH_SIZE = 16
_FEWEST_STEPS_PER_EPOCH = 8
_SMALLEST_BATCH = 8

_WARMUP = 0.1

_AVERAGED = 3
"""Evaluations whose weights are averaged at the end. Their mean is kept if it is not worse."""

_ONE_SIDED = 0.9
"""Share of the most frequent label from which accuracy would choose the weights that always answer
it."""


@dataclass(frozen=True)
class TrainingTraits:
    """What the values follow from.

    Attributes:
        n_rows: Training rows.
        n_labels: Labels of rows; 1 where the answer is a number, a span or a choice, and where
            words have tags: a sentence teaches many of them.
        width: Numbers in a hidden state of the encoder; 0 where its config.json does not say.
        n_layers: Layers of the encoder; 0 where its config.json does not say.
        has_shared_layers: Whether the layers share their weights, as ALBERT's do.
        majority_share: Share of the training rows that have the most frequent label; 0 where rows
            have no single label, or where the data set itself says which metric counts.
        max_length: Tokens to read of a text, see `text_length.py`; None for the usual number.
    """

    n_rows: int
    n_labels: int
    width: int
    n_layers: int
    has_shared_layers: bool
    majority_share: float = 0.0
    max_length: int | None = None

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        data: LoadedData,
        task: Task,
        source: ModelSource,
        *,
        is_encoded: bool = False,
    ) -> "TrainingTraits":
        """Returns what is known of a run before it is trained.

        Args:
            recipe: Of the run.
            data: Its rows.
            task: Fitted to them.
            source: The encoder.
            is_encoded: Whether the rows are encoded already, with `source.max_length`.
        """
        n_train = len(data.splits["train"])
        folds = recipe.data.folds
        # Folds differ by a row, and all of them are to be trained alike.
        if folds is not None:
            n_rows = n_train + len(data.splits[data.validation_splits[0]])
            n_train = n_rows - n_rows // folds
        sizes = model_sizes(source.config)
        max_length = None
        if "model.max_length" in fields_left_to_auto(recipe):
            # Encoded rows have a length already, which was chosen before.
            if not is_encoded:
                max_length = length_for_rows(recipe, data, task, source)
            elif source.max_length != recipe.model.max_length:
                max_length = source.max_length
        if task.name == "text-classification":
            n_labels = int(task.head()["num_labels"])
        else:
            n_labels = 1
        # An encoder with a decoder has two stacks of layers, which no layer decay fits either.
        has_shared_layers = "num_hidden_groups" in source.config or bool(
            source.config.get("is_encoder_decoder")
        )
        return cls(
            n_rows=n_train,
            n_labels=n_labels,
            width=sizes["hidden"],
            n_layers=sizes["layers"],
            has_shared_layers=has_shared_layers,
            majority_share=_majority_share(data, task),
            max_length=max_length,
        )


def _majority_share(data: LoadedData, task: Task) -> float:
    """Returns the share of the training rows with the most frequent label; 0 if it decides nothing.

    A large share makes accuracy a poor metric. So it matters only where rows have a single label
    and accuracy would be the metric, because the data set does not name another one.
    """
    has_metric_of_dataset = data.dataset is not None and data.dataset.primary_metric is not None
    would_be_accuracy = task.name == "text-classification" and task.primary_metric == "accuracy"
    if has_metric_of_dataset or not would_be_accuracy:
        return 0.0
    labels = data.splits["train"].columns["label"]
    counts = Counter(label for label in labels if label is not None)
    if not counts:
        return 0.0
    _, most = counts.most_common(1)[0]
    return most / counts.total()


def learning_rate(traits: TrainingTraits) -> float:
    """Returns the peak learning rate: lower for wide and deep encoders, higher for many labels.

    For BERT-base and few labels it is 3e-5, the middle one of the three rates that the BERT paper
    tries. For an encoder half as wide and half as deep it is three to four times as much. Many
    labels leave few rows for each, so that training at the paper's rate ends before the labels are
    learned.

    Example:
        >>> learning_rate(TrainingTraits(5000, 2, width=768, n_layers=12, has_shared_layers=False))
        3e-05
        >>> learning_rate(TrainingTraits(5000, 2, width=384, n_layers=6, has_shared_layers=False))
        0.0001
        >>> learning_rate(TrainingTraits(5000, 48, width=384, n_layers=6, has_shared_layers=False))
        0.0002
    """
    return _rounded_rate(_rate_of_encoder(traits) * _many_labels(traits))


def lora_learning_rate(traits: TrainingTraits) -> float:
    """Returns the peak learning rate of LoRA.

    It is ten times the rate of full training, as LoRA trains small matrices whose product begins at
    zero. That is high already, so many labels do not make it higher; more was not measured.

    Example:
        >>> lora_learning_rate(
        ...     TrainingTraits(5000, 2, width=384, n_layers=6, has_shared_layers=False)
        ... )
        0.001
    """
    return float(f"{_LORA_FACTOR * _rounded_rate(_rate_of_encoder(traits)):.0e}")


def _rate_of_encoder(traits: TrainingTraits) -> float:
    """Returns the learning rate that fits the width and the depth of the encoder."""
    width = traits.width or _PAPER_WIDTH
    n_layers = traits.n_layers or _PAPER_LAYERS
    narrower: float = (_PAPER_WIDTH / width) ** _WIDTH_POWER
    shallower: float = (_PAPER_LAYERS / n_layers) ** _LAYERS_POWER
    return _PAPER_RATE * narrower * shallower


def _rounded_rate(rate: float) -> float:
    """Returns a rate within the limits, with one digit; more would look like a measurement."""
    return float(f"{min(max(rate, _LOWEST_RATE), _HIGHEST_RATE):.0e}")


def layer_decay(traits: TrainingTraits) -> float:
    """Returns the factor from a layer's learning rate to the rate of the layer below it."""
    can_decay = traits.n_layers > 0 and not traits.has_shared_layers
    return _LAYER_DECAY if can_decay else 1.0


def batch_size(traits: TrainingTraits) -> int:
    """Returns the examples of a step: fewer where an epoch would have only a few steps."""
    few_rows = _BATCH_SIZE * _FEWEST_STEPS_PER_EPOCH
    if traits.n_rows < few_rows:
        return _SMALLEST_BATCH
    return _BATCH_SIZE


def epochs(traits: TrainingTraits) -> int:
    """Returns the passes over the training rows: more for few rows, and for many labels."""
    few_rows: float = (_ROWS_OF_USUAL_EPOCHS / max(1, traits.n_rows)) ** _ROWS_POWER
    n_epochs = round(_USUAL_EPOCHS * few_rows * _many_labels(traits))
    return min(max(n_epochs, _USUAL_EPOCHS), _MOST_EPOCHS)


def _many_labels(traits: TrainingTraits) -> float:
    """Returns the factor of the learning rate and of the epochs for many labels.

    It is 1 for up to 5 labels, 1.6 for 50, 2.1 for 200.
    """
    factor: float = max(1.0, traits.n_labels / FEW_LABELS) ** _LABELS_POWER
    return factor


def is_one_sided(traits: TrainingTraits) -> bool:
    """Returns whether nearly all training rows have the same label.

    A model that always answers with this label then has nearly the best accuracy.
    """
    return traits.majority_share >= _ONE_SIDED


_RULES: Mapping[str, Callable[[TrainingTraits], Any]] = {
    "model.max_length": lambda traits: traits.max_length,
    "training.epochs": epochs,
    "training.batch_size": batch_size,
    "training.average_best": lambda _: _AVERAGED,
    "training.tie_breaker": lambda _: "loss",
    "evaluation.primary_metric": lambda traits: "f1_macro" if is_one_sided(traits) else None,
    "optimizer.learning_rate": learning_rate,
    "optimizer.warmup_fraction": lambda _: _WARMUP,
    "optimizer.layer_decay": layer_decay,
}
"""Field -> its value. A field without a rule, or whose value is None, keeps its default."""

_LORA_RULES: Mapping[str, Callable[[TrainingTraits], Any]] = {
    "optimizer.learning_rate": lora_learning_rate,
    "optimizer.layer_decay": lambda _: None,
}
"""Rules that are others with LoRA. A decay protects the lower layers, which LoRA leaves as they
are."""


def resolve_auto(recipe: Recipe, traits: TrainingTraits) -> tuple[Recipe, str]:
    """Replaces the preset `auto` in a recipe by the values that it chooses.

    Args:
        recipe: As it was read.
        traits: Of its rows and its model.

    Returns:
        The recipe with these values and without the preset, and a sentence about the values. With
        another preset, or none, it is the same recipe and an empty sentence.
    """
    if recipe.training.preset != AUTO:
        return recipe, ""
    open_fields = fields_left_to_auto(recipe)
    if recipe.lora.rank is None:
        rules = _RULES
    else:
        rules = {**_RULES, **_LORA_RULES}
    values = {dotted: rule(traits) for dotted, rule in rules.items() if dotted in open_fields}
    chosen = {dotted: value for dotted, value in values.items() if value is not None}
    chosen = _fitted(chosen, recipe)
    resolved = recipe.with_fields("training", preset=None, **_section("training", chosen))
    resolved = resolved.with_fields("model", **_section("model", chosen))
    resolved = resolved.with_fields("optimizer", **_section("optimizer", chosen))
    resolved = resolved.with_fields("evaluation", **_section("evaluation", chosen))
    return resolved, _sentence(chosen, traits, with_lora=recipe.lora.rank is not None)


def _fitted(chosen: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """Returns the chosen values, changed or left out where they don't fit the recipe's own values.

    Args:
        chosen: Field -> value, of the fields that the recipe leaves open.
        recipe: With the values that somebody gave.
    """
    fitted = dict(chosen)
    training = recipe.training
    if training.max_steps is not None:  # the steps decide, not the epochs
        fitted.pop("training.epochs", None)
    # An average of n weights needs n evaluations, and each epoch ends with one.
    if "training.epochs" in fitted and training.average_best is not None:
        fitted["training.epochs"] = max(fitted["training.epochs"], training.average_best)
    n_epochs = fitted.get("training.epochs", training.epochs)
    is_scored_by_epoch = training.max_steps is None and training.evaluate_every is None
    if not is_scored_by_epoch or n_epochs < _AVERAGED:
        fitted.pop("training.average_best", None)
    accumulation_steps = training.accumulation_steps
    # A batch is split into micro-batches of equal size, so it is rounded up to a multiple.
    if "training.batch_size" in fitted:
        micro_batches = math.ceil(fitted["training.batch_size"] / accumulation_steps)
        fitted["training.batch_size"] = micro_batches * accumulation_steps
    return fitted


def _section(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of one section by the fields' short names."""
    prefix = f"{section}."
    return {
        dotted.removeprefix(prefix): value
        for dotted, value in values.items()
        if dotted.startswith(prefix)
    }


def _sentence(chosen: Mapping[str, Any], traits: TrainingTraits, *, with_lora: bool) -> str:
    """Returns what was chosen, each value with its reason.

    Args:
        chosen: Field -> value, of the fields that nobody gave.
        traits: What the values follow from.
        with_lora: Whether the learning rate is for LoRA; then it does not follow from the labels.
    """
    rows = count(traits.n_rows, "row")
    if traits.n_labels > 2:
        rows += f", {count(traits.n_labels, 'label')}"
    shape = f"{traits.width} dimensions, {count(traits.n_layers, 'layer')}"
    parts = []
    if "optimizer.learning_rate" in chosen:
        reason = shape
        if traits.n_labels > FEW_LABELS and not with_lora:
            reason += f", {count(traits.n_labels, 'label')}"
        parts.append(f"learning rate {chosen['optimizer.learning_rate']:g} ({reason})")
    if chosen.get("optimizer.layer_decay", 1.0) < 1.0:
        parts.append(f"layer decay {chosen['optimizer.layer_decay']:g}")
    if "training.epochs" in chosen:
        parts.append(f"{count(chosen['training.epochs'], 'epoch')} ({rows})")
    if "training.batch_size" in chosen:
        parts.append(f"batches of {chosen['training.batch_size']}")
    if "model.max_length" in chosen:
        length = chosen["model.max_length"]
        parts.append(f"{length} tokens of a text (over 5 % of the rows have more than 128)")
    if "training.average_best" in chosen:
        parts.append(f"the mean of the best {chosen['training.average_best']} if it is not worse")
    share = f"{100 * traits.majority_share:.0f} % of the rows have one label"
    if "evaluation.primary_metric" in chosen:
        parts.append(f"the best weights by {chosen['evaluation.primary_metric']} ({share})")
    if not parts:
        return "auto: every value is given"
    return f"auto: {', '.join(parts)}"
