"""Relations of tokens that a student learns from its teacher.

It says what is compared, and what is refused.
"""

from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.inference.trained import NetworkRun
from bertctl.modeling.attention_parts import stored_parts
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource
from bertctl.progress import Listener
from bertctl.runtime.seeding import generators_kept
from bertctl.tasks.base import Objective, Task
from bertctl.training.same_tokens import check_tokens
from bertctl.words import count

_HEADS = ("num_attention_heads", "n_heads", "n_head")
"""Fields of config.json that say the number of attention heads."""


def check_relations(recipe: Recipe, teacher: NetworkRun, source: ModelSource, task: Task) -> None:
    """Refuses a student whose relations can't be compared with its teacher's.

    Args:
        recipe: Recipe of the student.
        teacher: The run that it learns from.
        source: Files of the model that the student starts from.
        task: Task of the student.

    Raises:
        UsageError: Another tokenizer, a family without layers for queries and values, a layer that
            is not there, or a number of relation heads that divides the vectors unevenly.
    """
    settings = recipe.distillation
    layers, teacher_size = stored_parts(teacher.source)
    _, student_size = stored_parts(source)
    if settings.relation_layer is not None and settings.relation_layer > len(layers):
        raise UsageError(
            f"distillation.relation_layer: {settings.relation_layer}, and {teacher.folder.path} "
            f"has {count(len(layers), 'layer')}",
            remedy=f"1 to {len(layers)} fit.",
        )
    heads = relation_heads(recipe, teacher)
    for name, size in (("teacher", teacher_size), ("student", student_size)):
        if size % heads:
            raise UsageError(
                f"distillation.relation_heads: {heads} relation heads don't divide the {size} "
                f"numbers of the {name}'s vectors",
                remedy=f"Take a number that divides {teacher_size} and {student_size}.",
            )
    check_tokens(teacher, source, task, reason="relations compare the same tokens")


def relation_heads(recipe: Recipe, teacher: NetworkRun) -> int:
    """Returns the number of relation heads: the recipe's, or that of the teacher's attention."""
    if recipe.distillation.relation_heads is not None:
        return recipe.distillation.relation_heads
    config = teacher.source.config
    return next((int(config[name]) for name in _HEADS if config.get(name)), 1)


def with_relations(
    base: Objective, recipe: Recipe, student: Model, teacher: NetworkRun, listener: Listener
) -> Objective:
    """Returns the objective with the divergence of the student's relations from its teacher's.

    Args:
        base: Objective on labels and answers.
        recipe: Recipe of the student.
        student: Its network; the vectors of its last layer are compared.
        teacher: The run that it learns from; its network reads each batch.
        listener: Receives messages.
    """
    import torch

    from bertctl.modeling.attention_parts import AttentionVectors, attention_parts
    from bertctl.tasks.relations import RelationDistillation

    settings = recipe.distillation
    heads = relation_heads(recipe, teacher)
    with generators_kept():
        engine = teacher.load(to_input=True)
    of_teacher = attention_parts(name for name, _ in engine.network.named_modules())
    of_student = attention_parts(name for name, _ in student.network.named_modules())
    layer = settings.relation_layer or len(of_teacher)
    teacher_vectors = AttentionVectors(engine.network, of_teacher[layer - 1])
    student_vectors = AttentionVectors(student.network, of_student[-1])

    def ask(**inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            engine.backend(**inputs)
        return dict(teacher_vectors.take())

    listener.say(
        f"relations: queries and values of layer {layer} of the teacher and of the student's last "
        f"one, {count(heads, 'relation head')}; the teacher reads each batch"
    )
    return RelationDistillation(
        base=base,
        student=student_vectors.take,
        teacher=ask,
        heads=heads,
        weight=settings.relations,
    )
