"""Vectors of texts, near where meanings are (Reimers & Gurevych 2019).

One encoder reads each text by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bertctl.arrays import Array, Floats, Floats32
from bertctl.catalog.models import locate_model
from bertctl.config.losses import SENTENCE_LOSSES, losses_for
from bertctl.config.recipe_sections import SentenceEmbeddingsSection, TrainingSection
from bertctl.config.schema import Recipe
from bertctl.data.reading import Reader
from bertctl.data.rows import Rows
from bertctl.data.sentence_files import SentenceReader
from bertctl.data.table import require_label
from bertctl.errors import DataError, UsageError
from bertctl.metrics.calibration import best_f1_threshold
from bertctl.metrics.similarity import COSINE, row_similarities
from bertctl.modeling.families import BARE
from bertctl.modeling.sentence_folder import SentenceModules, chosen_modules
from bertctl.runtime.batching import Padding
from bertctl.tasks.answers import Answers
from bertctl.tasks.base import Outputs, Task, TaskObjective
from bertctl.tasks.classification.positive_label import positive_label
from bertctl.tasks.sentences.sentence_answers import SentenceAnswers
from bertctl.tasks.sentences.sentence_features import (
    DifferentTexts,
    SentenceFeatures,
    different,
    text_keys,
)
from bertctl.tasks.sentences.sentence_rows import (
    CLASSES,
    MATCHES,
    ROW_KINDS,
    SCORES,
    TEXTS,
    LearnedLabels,
    RowKind,
    is_number,
    kind_of_rows,
    scores_of,
    unknown_positive,
)
from bertctl.tasks.sentences.sentence_search import SearchPlan, SearchResult, search
from bertctl.tasks.targets import Answered, Target
from bertctl.tokenization.encode import encode_texts
from bertctl.words import command, listing

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SENTENCE_MODULES_KEY = "sentence_modules"
"""Where a trained model's configuration holds, beside its config.json, what its folder says of
texts' vectors."""

_USUAL_COSINE = 0.5


@dataclass(frozen=True)
class SentenceEmbeddings(Task):
    """One vector for each text; of two, how alike they are.

    Attributes:
        modules: How vectors are made.
        settings: Settings of the recipe.
        kind: What the training labels are: scores, classes of pairs, matches (pairs that belong
            together), or classes of single texts.
        loss: Name of the loss; empty for a model that was not trained here.
        labels: Names of the classes, in their order.
        positive: Label of pairs that belong together.
        low: Score that stands for the cosine 0.
        high: Score that stands for the cosine 1.
        threshold: Similarity from which a pair belongs together; None where none is known.
    """

    modules: SentenceModules
    settings: SentenceEmbeddingsSection = field(default_factory=SentenceEmbeddingsSection)
    kind: str = "scores"
    loss: str = ""
    labels: tuple[str, ...] = ()
    positive: str | None = None
    low: float = 0.0
    high: float = 1.0
    threshold: float | None = None

    name: ClassVar[str] = "sentence-embeddings"
    auto_class: ClassVar[str] = BARE
    columns: ClassVar[tuple[str, ...]] = ("text",)
    answer_type: ClassVar[type[Answers]] = SentenceAnswers
    reader: ClassVar[Reader] = SentenceReader()
    compares_vectors: ClassVar[bool] = True

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in the order of the head's outputs."""
        return self.labels

    @property
    def primary_metric(self) -> str:
        """The metric by which a model is chosen.

        It is the Spearman correlation of scores, the average precision of pairs, or the reciprocal
        rank of what is searched.
        """
        return ROW_KINDS[self.kind].primary_metric

    @property
    def learned(self) -> LearnedLabels:
        """What the labels of the training rows were; of a model of others, nothing."""
        kind = self.kind if self.loss else None
        return LearnedLabels(kind, self.labels, self.positive, self.low, self.high)

    @classmethod
    def from_data(
        cls, recipe: Recipe, train: Rows, labels: Sequence[str] | None
    ) -> "SentenceEmbeddings":
        """Returns the task with what the training labels are: scores, classes, or none.

        Every row has a label: bare pairs, which have none in their file, get `MATCH` by the reader.

        Args:
            recipe: Recipe of the run.
            train: The training rows.
            labels: Names of the classes in the data set's official order; None if it has none.

        Raises:
            DataError: A missing label, scores of which a few are no numbers, or labels that are all
                the same.
            UsageError: A loss that does not fit the labels, or no positive label among them.
        """
        settings = recipe.sentence_embeddings
        model = recipe.model
        folder = locate_model(model.name, revision=model.revision)
        modules = chosen_modules(folder, settings, max_length=model.max_length)
        task = cls(modules, settings, labels=tuple(labels or ()))
        kind = task.kind_of(train)
        # Numbers are class names, not scores, if the recipe's loss learns classes.
        if kind is SCORES and settings.loss in losses_for(SENTENCE_LOSSES, CLASSES.name):
            kind = CLASSES
        if labels:
            names = tuple(labels)
        else:
            names = tuple(sorted({str(require_label(train, i)) for i in range(len(train))}))
        low, high = _score_range(settings, kind, train)
        if low >= high or (kind.has_classes and len(names) < 2):
            message = f"{train.source}: every label is the same; nothing can be learned"
            raise DataError(
                message, remedy="Check `data.label_column=`, or add rows with other labels."
            )
        loss = _choose_loss(recipe, kind, names, train)
        # Which label says that two texts belong together. The recipe names it, and has to if
        # training pairs have three or more labels; of two labels it can be guessed. Training rows
        # of another kind don't need it, but the pairs of an evaluation may.
        positive = recipe.evaluation.positive_label
        if kind is CLASSES and len(names) == 2:
            positive = positive_label(names, multi_label=False, requested=positive)
        elif kind is CLASSES and positive not in names:
            raise unknown_positive(names)
        return cls(
            modules,
            settings,
            kind=kind.name,
            loss=loss,
            labels=names if kind.has_classes else (),
            positive=positive,
            low=low,
            high=high,
        )

    @classmethod
    def from_model(cls, recipe: Recipe, model_config: Mapping[str, Any]) -> "SentenceEmbeddings":
        """Returns the task of a sentence model.

        Args:
            recipe: Recipe of the run; its section `sentence_embeddings` counts.
            model_config: The model's config.json, where bertctl keeps the task under
                `sentence_task`; without it, the task compares texts by cosine. Beside it are the
                pooling and the other modules of the folder, under `SENTENCE_MODULES_KEY`; without
                them they are a plain `SentenceModules`.
        """
        task_config = model_config.get("sentence_task") or {}
        modules = model_config.get(SENTENCE_MODULES_KEY) or SentenceModules()
        return cls(
            modules,
            recipe.sentence_embeddings,
            **{**task_config, "labels": tuple(task_config.get("labels") or ())},
        )

    def head(self) -> dict[str, Any]:
        """Returns the fields of the model's config that describe the task.

        They are what was learned from the rows, which the recipe does not have, and the sizes of
        the layer on the vectors: the classes of a softmax, and widths to which vectors can be cut.
        """
        names = ("kind", "loss", "labels", "positive", "low", "high")
        if self.loss == "softmax":
            classes = len(self.labels)
        else:
            classes = 0
        return {
            "sentence_task": {name: getattr(self, name) for name in names},
            "sentence_embeddings": {"classes": classes, "widths": list(self.settings.widths)},
        }

    def kind_of(self, rows: Rows) -> RowKind:
        """Returns what rows are labelled with."""
        return kind_of_rows(rows, self.labels)

    def check(self, rows: Rows) -> None:
        """Refuses labels that were not learned: other classes, scores outside the range.

        Raises:
            DataError: There is such a label; the message has file, line, and what fits.
        """
        kind = self.kind_of(rows) if rows.has("label") else MATCHES
        if kind is MATCHES:  # all pairs belong together, and no label says so
            return

        # The labels must be those of training if they are of the same kind. Rows of another kind
        # can be scored, too, and so can scores of any range if the recipe names no range.
        is_limited = kind.name == self.kind and (
            kind is not SCORES or self.settings.score_range is not None
        )
        for i in range(len(rows)):
            label = str(require_label(rows, i))
            if not is_limited:
                continue
            if kind is SCORES:
                fits = self.low <= float(label) <= self.high
            else:
                fits = label in self.labels
            if not fits:
                if self.labels:
                    known = listing(self.labels)
                else:
                    known = f"a score from {self.low:g} to {self.high:g}"
                message = (
                    f"{rows.where(i)}: the label {label!r} is not one of those learned ({known})"
                )
                raise DataError(
                    message,
                    remedy="Correct it, or train with rows (or a score_range) that have it.",
                )

    def encode(self, rows: Rows, tokenizer: "Tokenizer", *, max_length: int) -> SentenceFeatures:
        """Returns the texts as ids, each by itself, with targets and class numbers of the rows.

        A target is how near the texts of a row should be, 0 to 1: a scaled score, or 1 for texts
        that belong together and 0 for others. The targets are None without labels. The class
        numbers are those of the labels, and 0 for rows of which the labels name no classes.
        """
        has_labels = rows.has("label")
        if has_labels:
            kind = self.kind_of(rows)
        elif rows.has("pair"):
            kind = MATCHES
        else:
            kind = TEXTS
        names = [name for name in ("text", "pair", "negative") if rows.has(name)]
        # Prompts for queries and documents are used if the model was trained on matching pairs; a
        # model that was not trained here gets them for such rows.
        is_search = (self.kind if self.loss else kind.name) == MATCHES.name
        columns = []
        for name in names:
            role = "query" if name == "text" else "document"
            columns.append(self.modules.prepared(rows.columns[name], role if is_search else None))
        if has_labels:
            # What training has learned decides which score is 1, which label says that texts belong
            # together, and which number a label has.
            targets, classes = kind.targets(rows, self.learned)
        else:
            targets = None
            classes = np.zeros(len(rows), dtype=np.int64)
        text_numbers, texts = different(columns)  # equal texts are encoded once
        encoded = encode_texts(tokenizer, texts, max_length=max_length)
        # Keys are of texts without their prompts.
        keys = text_keys([rows.columns[name] for name in names])
        # For this loss the texts of the other rows of a batch are wrong answers. A text that equals
        # one of this row would be a right answer, so rows with equal texts go to different batches.
        apart = self.loss == "multiple-negatives"
        return SentenceFeatures(
            encoded,
            places=text_numbers,
            keys=keys,
            labels=targets,
            classes=classes,
            kind=kind.name,
            apart=apart,
        )

    def scored(self, features: SentenceFeatures) -> DifferentTexts:
        """Returns the different texts."""
        return DifferentTexts(features.encoded, None)

    def objective(
        self, padding: Padding, training: TrainingSection | None = None, train: Any = None
    ) -> TaskObjective:
        """Returns the loss of training, or of scoring if there is no `training`.

        Scoring needs a loss of its own: some losses of training compare a pair with the other rows
        of its batch, and the loss that evaluation reports must not depend on them.
        """
        if training is None:
            from bertctl.tasks.sentences.sentence_objectives import SentenceObjective

            return SentenceObjective(padding)

        loss = SENTENCE_LOSSES[self.loss]
        keywords = {"margin": loss.margin} | loss.keywords(self.settings)
        # A loss has a class for each kind of labels, such as "scores" or "two classes".
        kind_of_labels = _labels_of_rows(self.kind, self.labels)
        objective_class = loss.objective_class(kind_of_labels)
        objective: TaskObjective = objective_class(
            padding,
            widths=tuple(self.settings.widths),
            draws_partners=True,  # single texts are learned as pairs of a label
            draws_negatives=loss.draws_negatives,
            draws_third_text=loss.draws_third_text,
            **keywords,
        )
        return objective

    def array_outputs(self, outputs: Any) -> Array:
        """Returns the vectors of the texts, (B, 1, D)."""
        vectors: Array = outputs.vectors
        return vectors

    def collect_outputs(self, outputs: Any, batch: Any, features: Any, indices: Any) -> Outputs:
        """Returns the vectors of the different texts."""
        vectors = outputs
        if not isinstance(outputs, np.ndarray):
            vectors = outputs.float().cpu().numpy()
        return {"vectors": vectors[:, 0]}

    def tune(self, outputs: Outputs, features: SentenceFeatures, rows: Rows) -> dict[str, Any]:
        """Returns the similarity from which two texts belong together, with the best F1.

        It is empty unless labels say which pairs belong together, and there are pairs of both
        kinds.
        """
        belongs = features.labels
        if features.kind != CLASSES.name or belongs is None or not 0 < belongs.sum() < len(belongs):
            return {}
        similarities = self._similarities(outputs, features).astype(np.float64)
        lowest, highest = self._similarity_range(similarities)
        # Thresholds are chosen among numbers from 0 to 1, so similarities are scaled and back.
        shares = np.clip((similarities - lowest) / (highest - lowest), 0.0, 1.0)
        best_share = best_f1_threshold(shares, belongs > 0).value
        return {"cosine_threshold": (highest - lowest) * best_share + lowest}

    def _similarity_range(self, similarities: Floats) -> tuple[float, float]:
        """Returns the least and the greatest possible similarity.

        For cosines these are -1 and 1, else the extremes that occur.
        """
        if self.modules.similarity == COSINE:
            return -1.0, 1.0
        lowest = float(similarities.min())
        return lowest, max(float(similarities.max()), lowest + 1e-9)

    def with_decision(self, decision: Mapping[str, Any]) -> "SentenceEmbeddings":
        """Returns the task with the threshold that was chosen on validation rows.

        The key is `cosine_threshold` whatever the measure is, as runs have it.
        """
        threshold = decision.get("cosine_threshold", self.threshold)
        if threshold is None:
            return self
        return replace(self, threshold=float(threshold))

    def _threshold(self) -> float | None:
        """Returns the threshold.

        It is 0.5 for cosines where none was chosen, and None for the other measures.
        """
        if self.threshold is None and self.modules.similarity == COSINE:
            return _USUAL_COSINE
        return self.threshold

    def decode(
        self, outputs: Outputs, features: SentenceFeatures, rows: Rows
    ) -> list[dict[str, Any]]:
        """Returns the similarity of each pair, by the measure that the model's folder names.

        Raises:
            UsageError: Single texts.
        """
        if features.places.shape[1] < 2:
            remedy = (
                "Name the second one: `data.pair_column=NAME`. Vectors: "
                f"`{command('extract-features', pooling='model')}`."
            )
            raise UsageError(
                "the answer is how alike two texts are, and these rows have one", remedy=remedy
            )
        return [
            {"prediction": float(similarity)}
            for similarity in self._similarities(outputs, features)
        ]

    def lines(
        self, outputs: Outputs, features: SentenceFeatures, rows: Rows
    ) -> Sequence[dict[str, Any]]:
        """Returns a prediction line for each row, with its gold answer.

        A pair has its similarity and its label. If rows are searched, the first text of a row is a
        query, and the line has the ranks of the texts that are relevant to it.
        """
        kind = ROW_KINDS[features.kind]
        plan = kind.search_plan(features)
        if plan is not None:
            results = self._search(plan, outputs)
            # The prediction is the rank of the first relevant text, and 1 is the right one.
            return [
                {"gold": 1, "query": query, **results[query].line}
                for query in plan.query_of_row.tolist()
            ]
        lines = super().lines(outputs, features, rows)
        if kind.says_matches and features.labels is not None:
            threshold = self._threshold()
            for line, belongs in zip(lines, features.labels > 0, strict=True):
                line["gold_match"] = bool(belongs)
                if threshold is not None:
                    line["match"] = line["prediction"] >= threshold
        return lines

    def row_losses(self, outputs: Outputs, features: SentenceFeatures) -> Floats32 | None:
        """Returns the (N,) losses of the rows, or None without labels.

        That of a pair is the squared difference of its cosine from its label, which is 0 to 1. That
        of a query is -log of the probability of its texts among all texts of the split. The unit is
        the row, as in training, and the measure is the cosine, as in the losses.
        """
        plan = ROW_KINDS[features.kind].search_plan(features)
        if plan is not None:
            losses = [result.loss for result in self._search(plan, outputs)]
            return np.array(losses, dtype=np.float32)[plan.query_of_row]
        if features.labels is None:
            return None
        return (_row_similarities(COSINE, outputs, features) - features.labels) ** 2

    def _similarities(self, outputs: Outputs, features: SentenceFeatures) -> Floats32:
        """Returns (N,) similarities of the pairs, by the measure that the model's folder names."""
        return _row_similarities(self.modules.similarity, outputs, features)

    def _search(self, plan: SearchPlan, outputs: Outputs) -> list[SearchResult]:
        """Returns what each query finds, by the measure that the model's folder names."""
        return search(
            plan,
            outputs["vectors"],
            measure=self.modules.similarity,
            scale=self.settings.scale,
        )

    def constant_answer(self, train: Rows) -> float:
        """Returns the mean score, as a cosine; 0 where there are no scores."""
        if self.kind == SCORES.name:
            return (float(scores_of(train).mean()) - self.low) / (self.high - self.low)
        return 0.0

    def baseline(self, constant: Any, rows: Rows) -> dict[str, float]:
        """Returns the metrics of an answer that ignores the texts.

        It gives all pairs the same similarity. If the rows say which pairs belong together, it
        takes none for a match. For a search it gives each query a random order.

        Args:
            constant: The similarity.
            rows: Labelled rows.
        """
        kind = self.kind_of(rows)
        if kind in (MATCHES, TEXTS):
            lines = kind.random_lines(rows)
        else:
            lines = [
                {"gold": self.gold(rows, i), "prediction": float(constant)}
                for i in range(len(rows))
            ]
        if kind.says_matches:
            labels = [str(label) for label in rows.columns["label"]]
            positive = self.learned.positive_among(labels)
            for line, label in zip(lines, labels, strict=True):
                line |= {"gold_match": label == positive, "match": False}
        return {
            name: by_line.value for name, by_line in self.answers.all_contributions(lines).items()
        }

    def targets(self, answered: Answered, label: str | None) -> list[Target]:
        """Refuses to explain a similarity.

        Explanations attribute an output to the tokens of one input, and a similarity is of two
        texts that are read one by one.

        Raises:
            UsageError: Always.
        """
        raise UsageError(
            "how alike two texts are can't be explained word by word",
            remedy="Explain a classifier.",
        )

    def describe(self, rows: Rows) -> str:
        """Returns what the labels are, and how often each is there."""
        return self.kind_of(rows).describe(rows)

    def gold(self, rows: Rows, index: int) -> Any:
        """Returns the gold answer of a row: a score as a number, or a label.

        Pairs from a file without labels have the label `match`.
        """
        label = require_label(rows, index)
        is_score = str(label) not in self.labels and is_number(str(label))
        if is_score:
            return float(str(label))
        return str(label)


def _score_range(
    settings: SentenceEmbeddingsSection, kind: RowKind, train: Rows
) -> tuple[float, float]:
    """Returns the scores that stand for the cosines 0 and 1: the recipe's, else those that occur.

    It is 0 and 1 for rows without scores.

    Raises:
        UsageError: A range of the recipe that begins with the highest score.
    """
    if settings.score_range:
        low, high = settings.score_range
        if low >= high:
            message = f"sentence_embeddings.score_range: {low:g} is not below {high:g}"
            raise UsageError(message, remedy="Give the lowest score first: [0, 5].")
        return low, high

    if kind is not SCORES:
        return 0.0, 1.0
    scores = scores_of(train)
    return float(scores.min()), float(scores.max())


def _labels_of_rows(kind: str, names: Sequence[str]) -> str:
    """Returns the kind of labels as the table of losses names it."""
    if kind == CLASSES.name and len(names) == 2:
        return "two classes"
    return kind


def _choose_loss(recipe: Recipe, kind: RowKind, names: Sequence[str], train: Rows) -> str:
    """Returns the name of the recipe's loss, or of the default for these rows.

    Args:
        recipe: Names the loss, or leaves it open.
        kind: What the labels are; see `SentenceEmbeddings.kind`.
        names: Names of the classes.
        train: Training rows.

    Raises:
        UsageError: The loss cannot learn these rows, or not in batches of one row.
    """
    kind_of_labels = _labels_of_rows(kind.name, names)
    fitting = losses_for(SENTENCE_LOSSES, kind_of_labels)
    name = recipe.sentence_embeddings.loss or fitting[0]
    loss = SENTENCE_LOSSES[name]
    has_third_text = any(map(str.strip, train.columns.get("negative", ())))
    lacks_third_text = loss.needs_third_text and kind is MATCHES and not has_third_text
    # `loss.classes` has an objective for each kind of labels that the loss can learn.
    fits_labels = kind_of_labels in loss.classes

    if lacks_third_text or not fits_labels:
        reason = "can't learn them"
        if lacks_third_text:
            reason = "needs a third text (`data.negative_column=NAME`)"
        alternatives = ", ".join(fitting_name for fitting_name in fitting if fitting_name != name)
        raise UsageError(
            f"sentence_embeddings.loss: {name} {reason}; {train.source} has {kind.noun}",
            remedy=f"Choose from {alternatives}.",
        )
    if loss.compares_rows and recipe.training.batch_size == 1 and not has_third_text:
        raise UsageError(
            f"sentence_embeddings.loss: {name} compares the rows of a batch, and "
            "training.batch_size is 1",
            remedy="Type `training.batch_size=16`, say; or choose another loss.",
        )
    return name


def _row_similarities(measure: str, outputs: Outputs, features: SentenceFeatures) -> Floats32:
    """Returns the (N,) similarities of the rows' first two texts."""
    vectors = outputs["vectors"]
    first_vectors = vectors[features.places[:, 0]]
    second_vectors = vectors[features.places[:, 1]]
    return row_similarities(measure, first_vectors, second_vectors)
