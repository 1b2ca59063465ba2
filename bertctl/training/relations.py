"""Relations of tokens that a student learns from its teacher: their checks, memory and objective.

A relation is how similar the query (or value) vectors of two tokens of a text are.
"""

from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.inference.trained import NetworkRun
from bertctl.modeling.attention_parts import stored_parts
from bertctl.modeling.families import model_sizes
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource
from bertctl.modeling.stored_weights import stored_weights
from bertctl.progress import Listener
from bertctl.runtime.seeding import generators_kept
from bertctl.tasks.base import Task, TaskObjective
from bertctl.training.same_tokens import check_tokens
from bertctl.words import count

_STATES = 8
"""Arrays of hidden states that a layer of the teacher has at once, with its queries and values."""

_GAPS = 2.5
"""How much more memory batches of many shapes take in the heap of a CPU."""

_MATRICES = 10
"""Arrays of relations of a batch: for queries and values scores, logarithms and divergences."""


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
    return model_sizes(teacher.source.config)["heads"] or 1


def relations_memory(
    recipe: Recipe, teacher: NetworkRun, *, longest: int, examples: int, device: str
) -> int:
    """Returns an estimate of the bytes that relations add to a training.

    It is the sum of three parts: the weights of the teacher, which stay in memory in fp32; the
    states of one of its layers at a time; and the relations of a batch. On a CPU, states and
    relations take 2.5 times as much, as in `estimate_memory`. For a student of MiniLM on a CPU, the
    estimate was 0.91 times (batches of 8) and 1.08 times (batches of 32) the measured peak.

    Args:
        recipe: Recipe of the student.
        teacher: The run that it learns from; only the headers of its files are read.
        longest: T, tokens of the longest example as the student reads it.
        examples: Examples that go through the model at once: a batch, or a micro-batch.
        device: cpu, cuda or mps.
    """
    tensors = stored_weights(teacher.source.folder).values()
    parameters = sum(tensor.size for tensor in tensors if tensor.is_parameter)
    sizes = model_sizes(teacher.source.config)
    hidden = sizes["hidden"] or 768
    inner = sizes["inner"] or 4 * hidden
    heads = sizes["heads"] or 12
    # Of one example: hidden states, the inner layer before and after its activation, and the scores
    # of attention before and after the softmax.
    states = longest * (_STATES * hidden + 2 * inner) + 2 * heads * longest * longest
    matrices = _MATRICES * relation_heads(recipe, teacher) * longest * longest
    activations = examples * (states + matrices)
    if device == "cpu":
        activations = round(activations * _GAPS)
    return 4 * (parameters + activations)


def with_relations(
    base: TaskObjective, recipe: Recipe, student: Model, teacher: NetworkRun, listener: Listener
) -> TaskObjective:
    """Returns the objective with the divergence of the student's relations from its teacher's.

    A relation is how similar the queries (or values) of two tokens of a text are, as in MiniLMv2.

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
    with generators_kept():  # loading draws no random number of the training
        engine = teacher.load(to_input=True)
    teacher_layers = attention_parts(name for name, _ in engine.network.named_modules())
    student_layers = attention_parts(name for name, _ in student.network.named_modules())
    layer = settings.relation_layer or len(teacher_layers)
    teacher_vectors = AttentionVectors(engine.network, teacher_layers[layer - 1])
    student_vectors = AttentionVectors(student.network, student_layers[-1])

    def compute_teacher_vectors(**inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the teacher's queries and values of a batch, each (B, T, H)."""
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
        teacher=compute_teacher_vectors,
        heads=heads,
        weight=settings.relations,
    )
