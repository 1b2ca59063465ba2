"""Presets: values of several recipe fields under one name (`training.preset`)."""

from collections.abc import Mapping
from typing import Any

from bertctl.config.recipe_sections import RecipeFields

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Mosbach et al. 2021, "On the Stability of Fine-tuning BERT": rate 2e-5 with bias correction,
    # warm-up over the first 10 % of the steps, 20 epochs. Zhang et al. 2021, "Revisiting Few-sample
    # BERT Fine-tuning": bias correction (torch's AdamW always has it) and more steps. Patience is
    # ours: half of the epochs, as the first two are warm-up and the metric often stays where it is
    # for some more (MiniLM on 600 rows of MRPC: the majority class for three or four).
    "small-data": {
        "training.epochs": 20,
        "training.patience": 10,
        "optimizer.learning_rate": 2e-5,
        "optimizer.warmup_fraction": 0.1,
    }
}
"""What `training.preset` may be -> dotted field -> value, where the values are the same for all
data."""

AUTO = "auto"
"""The preset whose values depend on rows and model; `training/auto_settings.py` chooses them."""

AUTO_FIELDS = (
    "model.max_length",
    "training.epochs",
    "training.batch_size",
    "training.evaluate_every",
    "training.patience",
    "training.average_best",
    "training.tie_breaker",
    "optimizer.learning_rate",
    "optimizer.warmup_fraction",
    "optimizer.layer_decay",
    "evaluation.primary_metric",
)
"""Fields that the preset `auto` chooses if nobody gives them."""

AUTO_TASKS = (
    "text-classification",
    "text-regression",
    "token-classification",
    "question-answering",
    "multiple-choice",
)
"""Tasks that the preset `auto` knows values for."""


def fields_left_to_auto(recipe: RecipeFields) -> tuple[str, ...]:
    """Returns the dotted names of the fields whose values the preset `auto` is still to choose.

    They are those of `AUTO_FIELDS` that no file, option or code has set.
    """
    if recipe.training.preset != AUTO:
        return ()
    # pydantic knows which fields were given, even if they were given their default.
    set_fields = {
        *(f"model.{name}" for name in recipe.model.model_fields_set),
        *(f"training.{name}" for name in recipe.training.model_fields_set),
        *(f"optimizer.{name}" for name in recipe.optimizer.model_fields_set),
        *(f"evaluation.{name}" for name in recipe.evaluation.model_fields_set),
    }
    return tuple(dotted for dotted in AUTO_FIELDS if dotted not in set_fields)


def shown_values(recipe: RecipeFields) -> dict[str, Any]:
    """Returns a recipe's nested values, with the text `auto` for those that are left to `auto`."""
    values = recipe.model_dump()
    for dotted in fields_left_to_auto(recipe):
        section, _, name = dotted.partition(".")
        values[section][name] = AUTO
    return values


def given_values(recipe: RecipeFields) -> dict[str, Any]:
    """Returns a recipe's nested values without those that are left to the preset `auto`.

    `Recipe.model_validate` makes the same recipe of them, with the same fields left to `auto`.
    """
    values = recipe.model_dump()
    for dotted in fields_left_to_auto(recipe):
        section, _, name = dotted.partition(".")
        del values[section][name]
    return values
