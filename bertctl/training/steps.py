"""How many optimizer steps a recipe takes."""

import math

from bertctl.config.schema import Recipe


def steps_per_epoch(recipe: Recipe, examples: int) -> int:
    """Returns the optimizer steps of a pass over a number of examples."""
    return math.ceil(examples / recipe.training.batch_size)


def total_steps(recipe: Recipe, examples: int) -> int:
    """Returns the optimizer steps of the whole run."""
    return recipe.training.max_steps or recipe.training.epochs * steps_per_epoch(recipe, examples)
