"""The losses that a recipe can name. Fields, checks, help and documentation are made from them.

A new loss is a row here and a class beside those of `tasks/objectives.py` (labels) or
`tasks/sentences/sentence_objectives.py` (vectors of texts).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from bertctl.plugins import plugin
from bertctl.words import unknown

ClassLabels = Literal["one label", "several labels", "tags"]
"""Kinds of labels of a classifier: one per text, several per text, one per word."""

SentenceLabels = Literal["scores", "classes", "two classes", "matches", "texts"]
"""Kinds of rows that vectors of texts are learned from: scored pairs, pairs with more than two
labels, with two, bare pairs that belong together, and single texts with labels."""


@dataclass(frozen=True)
class Loss:
    """One loss that a recipe can name.

    Attributes:
        name: The name in a recipe.
        summary: What it does and who proposed it, in one sentence for people.
        classes: Kind of labels -> class that computes the loss, as `module:Class`; imported when
            training begins.
        default_for: Kinds of labels that are learned with it if the recipe names no loss.
        options: Recipe field that the loss reads -> keyword of the class's constructor.
        conflicts: Recipe fields that must keep their default beside this loss.
        margin: Margin if the recipe gives none.
        compares_rows: Whether the loss of a row depends on the other rows of its batch.
        needs_third_text: Whether bare pairs need a third text, which does not belong to the first.
        draws_negatives: Whether every other partner that is drawn for a single labelled text has
            another label.
        draws_third_text: Whether single labelled texts get a third text, which has another label.
    """

    name: str
    summary: str
    classes: Mapping[str, str]
    default_for: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()
    margin: float = 0.0
    compares_rows: bool = False
    needs_third_text: bool = False
    draws_negatives: bool = False
    draws_third_text: bool = False

    def keywords(self, section: Any) -> dict[str, Any]:
        """Returns keyword arguments for the class, from the recipe fields that the loss reads.

        Args:
            section: The recipe section that has these fields. Those that are null are left out.
        """
        values = {
            keyword: getattr(section, path.partition(".")[2])
            for path, keyword in self.options.items()
        }
        return {keyword: value for keyword, value in values.items() if value is not None}

    def objective_class(self, labels: str) -> Any:
        """Returns the class that computes the loss for a kind of labels. This imports torch."""
        import importlib

        module, _, name = self.classes[labels].partition(":")
        return getattr(importlib.import_module(module), name)


class LossTable(Mapping[str, Loss]):
    """Losses by name. A plug-in's loss is found by its name, but is not listed.

    Args:
        losses: The built-in losses.
        labels: Kinds of labels. A plug-in's loss belongs to the table if it fits one of them.
    """

    def __init__(self, losses: Iterable[Loss], labels: Sequence[str]) -> None:
        self._losses = {loss.name: loss for loss in losses}
        self._kinds_of_labels = labels

    def __getitem__(self, name: str) -> Loss:
        """Returns the built-in loss, or a plug-in's loss if it fits the table's kinds of labels."""
        loss = self._losses.get(name) or plugin("losses", name)
        if loss is None:
            raise KeyError(name)
        fits = any(labels in loss.classes for labels in self._kinds_of_labels)
        if not fits:
            raise KeyError(name)
        return cast(Loss, loss)

    def __iter__(self) -> Iterator[str]:
        return iter(self._losses)

    def __len__(self) -> int:
        return len(self._losses)


_LABELS = "bertctl.tasks.objectives"
_VECTORS = "bertctl.tasks.sentences.sentence_objectives"

CLASS_LOSSES = LossTable(
    (
        Loss(
            name="cross-entropy",
            summary="the mean negative log-probability of the labels; if a text has several "
            "labels, of each one separately",
            classes={
                "one label": f"{_LABELS}:CrossEntropy",
                "several labels": f"{_LABELS}:BinaryCrossEntropy",
                "tags": f"{_LABELS}:CrossEntropy",
            },
            default_for=("one label", "several labels", "tags"),
        ),
        Loss(
            name="focal",
            summary=(
                "cross-entropy in which well-classified examples count less, so that rare and hard "
                "ones count more (Lin et al. 2017, section 3.2)"
            ),
            classes={
                "one label": f"{_LABELS}:FocalLoss",
                "several labels": f"{_LABELS}:BinaryFocalLoss",
                "tags": f"{_LABELS}:FocalLoss",
            },
            options={"training.focal_gamma": "gamma"},
            conflicts=("training.label_smoothing",),
        ),
    ),
    get_args(ClassLabels),
)
"""Losses of classifiers (`training.loss`), by name."""

SENTENCE_LOSSES = LossTable(
    (
        Loss(
            name="cosine",
            summary="the squared distance of a pair's cosine from its score (Reimers & Gurevych "
            "2019, section 3)",
            classes={
                "scores": f"{_VECTORS}:SentenceObjective",
                "texts": f"{_VECTORS}:SentenceObjective",
            },
            default_for=("scores",),
            draws_negatives=True,
        ),
        Loss(
            name="cosent",
            summary="pairs with a higher score get a higher cosine (Su 2022)",
            classes={"scores": f"{_VECTORS}:CosentObjective"},
            options={"sentence_embeddings.scale": "scale"},
            compares_rows=True,
        ),
        Loss(
            name="softmax",
            summary="a classifier on both vectors of a pair and their difference (Reimers & "
            "Gurevych 2019, section 3)",
            classes={
                "classes": f"{_VECTORS}:SoftmaxObjective",
                "two classes": f"{_VECTORS}:SoftmaxObjective",
            },
            default_for=("classes",),
        ),
        Loss(
            name="contrastive",
            summary="pairs of one class are close together, others at least a margin apart "
            "(Hadsell et al. 2006)",
            classes={
                "two classes": f"{_VECTORS}:ContrastiveObjective",
                "classes": f"{_VECTORS}:ContrastiveObjective",
                "texts": f"{_VECTORS}:ContrastiveObjective",
            },
            default_for=("two classes",),
            options={"sentence_embeddings.margin": "margin"},
            margin=0.5,
            draws_negatives=True,
        ),
        Loss(
            name="multiple-negatives",
            summary="the first text of a pair finds the second among all of the batch "
            "(Henderson et al. 2017, section 4.4)",
            classes={
                "matches": f"{_VECTORS}:MultipleNegatives",
                "texts": f"{_VECTORS}:MultipleNegatives",
                "classes": f"{_VECTORS}:MultipleNegatives",
                "two classes": f"{_VECTORS}:MultipleNegatives",
            },
            default_for=("matches", "texts"),
            options={
                "sentence_embeddings.scale": "scale",
                "sentence_embeddings.symmetric": "symmetric",
            },
            compares_rows=True,
        ),
        Loss(
            name="triplet",
            summary="the second text is closer to the first than the third is, by a margin "
            "(Schroff et al. 2015)",
            classes={
                "matches": f"{_VECTORS}:TripletObjective",
                "texts": f"{_VECTORS}:TripletObjective",
            },
            options={"sentence_embeddings.margin": "margin"},
            margin=5.0,
            needs_third_text=True,
            draws_third_text=True,
        ),
    ),
    get_args(SentenceLabels),
)
"""Losses of vectors of texts (`sentence_embeddings.loss`, `few_shot.loss`), by name."""

FEW_SHOT_LOSSES = LossTable(
    (loss for loss in SENTENCE_LOSSES.values() if "texts" in loss.classes), ("texts",)
)
"""Losses that single labelled texts can be learned with (`few_shot.loss`), by name."""

LOSS_TYPES: Mapping[str, Mapping[str, Loss]] = {
    "ClassLoss": CLASS_LOSSES,
    "SentenceLoss": SENTENCE_LOSSES,
    "FewShotLoss": FEW_SHOT_LOSSES,
}
"""Name of a field's type in `recipe_sections.py` -> the losses that it accepts."""


def losses_for(table: Mapping[str, Loss], labels: str) -> tuple[str, ...]:
    """Returns the names of the losses that fit a kind of labels, the default first."""
    fitting = [loss for loss in table.values() if labels in loss.classes]
    # False is sorted before True, and losses with the same key keep their order.
    fitting.sort(key=lambda loss: labels not in loss.default_for)
    return tuple(loss.name for loss in fitting)


def describe_losses(table: Mapping[str, Loss]) -> str:
    """Returns the losses with their summaries, as sentences for help and documentation."""
    return " ".join(f"`{name}`: {loss.summary}." for name, loss in table.items())


def require_loss(table: Mapping[str, Loss]) -> Callable[[str], str]:
    """Returns a pydantic validator that accepts the names of a table of losses."""

    def validate(name: str) -> str:
        if name not in table:
            raise ValueError(unknown("loss", name, table))
        return name

    return validate


def write_names(table: Mapping[str, Loss]) -> Callable[[dict[str, Any]], None]:
    """Returns a function that adds the names of a table of losses to a field's JSON Schema."""

    def write(schema: dict[str, Any]) -> None:
        schema["enum"] = list(table)

    return write
