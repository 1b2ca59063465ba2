"""Vectors of texts, near where meanings are (Reimers & Gurevych 2019): one encoder reads each text
by itself.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bertctl.arrays import Floats, Floats32, Ints
from bertctl.catalog.models import locate_model
from bertctl.config.losses import SENTENCE_LOSSES, losses_for
from bertctl.config.recipe_sections import SentenceEmbeddingsSection, TrainingSection
from bertctl.config.schema import Recipe
from bertctl.data.reading import Reader
from bertctl.data.rows import Rows
from bertctl.data.sentence_files import MATCH, SentenceReader
from bertctl.data.table import require_label
from bertctl.errors import DataError, UsageError
from bertctl.metrics.calibration import best_f1_threshold
from bertctl.metrics.retrieval import ranks_of
from bertctl.metrics.similarity import COSINE, row_similarities, similarity_rows
from bertctl.modeling.families import BARE
from bertctl.modeling.sentence_folder import SentenceModules, chosen_modules
from bertctl.runtime.batching import Padding
from bertctl.tasks.answers import Answers
from bertctl.tasks.base import Objective, Outputs, Task
from bertctl.tasks.classification.positive_label import positive_label
from bertctl.tasks.sentences.sentence_answers import SentenceAnswers
from bertctl.tasks.sentences.sentence_features import (
    DifferentTexts,
    SentenceFeatures,
    different,
    text_keys,
)
from bertctl.tasks.targets import Answered, Target
from bertctl.tokenization.encode import encode_texts
from bertctl.words import as_number, command, count, listing

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SAID = "sentence_modules"
"""Where a trained model's configuration holds, beside its config.json, what its folder says of
texts' vectors."""

_KINDS = {
    "scores": "scored pairs",
    "classes": "labelled pairs",
    "matches": "bare pairs",
    "texts": "labelled texts",
}
_METRICS = {"scores": "spearman", "classes": "average_precision"}
_KEPT = 100
_USUAL_COSINE = 0.5
_NO_NUMBERS = ("nan", "inf", "infinity", "none", "null", "na", "n/a")


@dataclass(frozen=True)
class SearchResult:
    """What one query has found.

    Attributes:
        line: Fields of the prediction line of each of its rows.
        loss: How unlikely its right texts are among all, as in `multiple-negatives`.
    """

    line: dict[str, Any]
    loss: float


@dataclass(frozen=True)
class _SearchPlan:
    """Different queries of a split and the different texts that they are looked for among.

    Letters: Q queries, C candidates.

    Attributes:
        query_of_row: (N,) number of each row's query.
        query_texts: (Q,) which text of the split each query is.
        candidate_texts: (C,) which text of the split each candidate is.
        relevant: Of each query the candidates that belong to it.
        own_candidate: Of each query the candidate that is the same text; -1 for none.
        leaves_out_itself: Whether that one is no candidate for its own query. Of pairs it is one,
            as it is for sentence-transformers' evaluator, which knows queries and documents by
            their ids.
    """

    query_of_row: Ints
    query_texts: Ints
    candidate_texts: Ints
    relevant: Sequence[Ints]
    own_candidate: Sequence[int]
    leaves_out_itself: bool


@dataclass(frozen=True)
class SentenceEmbeddings(Task):
    """One vector for each text; of two, how alike they are.

    Attributes:
        said: how vectors are made.
        settings: the recipe's.
        kind: what the training labels are: scores, classes of pairs, matches (pairs that belong
            together), or classes of single texts.
        loss: its name.
        labels: names of the classes, in their order.
        positive: that of pairs that belong together.
        low: score that stands for the cosine 0.
        high: score that stands for the cosine 1.
        threshold: Similarity from which a pair belongs together; None where none is known.
    """

    said: SentenceModules
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
        """Spearman correlation of scores, average precision of pairs, reciprocal rank of what is
        searched.
        """
        return _METRICS.get(self.kind, "mrr_at_10")

    @classmethod
    def from_data(
        cls, recipe: Recipe, train: Rows, labels: Sequence[str] | None
    ) -> "SentenceEmbeddings":
        """Reads what the labels are: scores, classes, or none.

        Raises:
            DataError: a label that is none of these, or of which there is one only.
            UsageError: a loss that does not fit them.
        """
        settings = recipe.sentence_embeddings
        model = recipe.model
        folder = locate_model(model.name, revision=model.revision)
        said = chosen_modules(folder, settings, max_length=model.max_length)
        task = cls(said, settings, labels=tuple(labels or ()))
        kind = task.kind_of(train)
        if kind == "scores" and settings.loss in losses_for(SENTENCE_LOSSES, "classes"):
            kind = "classes"  # which are numbers
        names = tuple(labels or sorted({str(require_label(train, i)) for i in range(len(train))}))
        if kind == "scores":
            scores = _scores(train)
        else:
            scores = np.array([0.0, 1.0])
        low, high = settings.score_range or (float(scores.min()), float(scores.max()))
        if settings.score_range and low >= high:
            message = f"sentence_embeddings.score_range: {low:g} is not below {high:g}"
            raise UsageError(message, remedy="Give the lowest score first: [0, 5].")
        if low >= high or (kind in ("classes", "texts") and len(names) < 2):
            message = f"{train.source}: every label is the same; nothing can be learned"
            raise DataError(
                message, remedy="Check `data.label_column=`, or add rows with other labels."
            )
        loss = _choose_loss(recipe, kind, names, train)
        asked = positive = recipe.evaluation.positive_label  # other rows may be labelled pairs
        if kind == "classes" and len(names) == 2:
            positive = positive_label(names, False, asked)
        elif kind == "classes" and asked not in names:
            raise _unknown_positive(names)
        return cls(
            said,
            settings,
            kind,
            loss,
            names if kind in ("classes", "texts") else (),
            positive,
            low,
            high,
        )

    @classmethod
    def from_model(cls, recipe: Recipe, model_config: Mapping[str, Any]) -> "SentenceEmbeddings":
        """Returns the task that the model's config.json describes; of a model of others, one that
        gives cosines.
        """
        told = model_config.get("sentence_task") or {}
        said = model_config.get(SAID) or SentenceModules()
        return cls(
            said, recipe.sentence_embeddings, **{**told, "labels": tuple(told.get("labels") or ())}
        )

    def head(self) -> dict[str, Any]:
        """Returns what of the task is not in the recipe, and the sizes of what stands on the
        vectors.
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

    def kind_of(self, rows: Rows) -> str:
        """Returns what the labels of rows are: scores, classes, matches, or classes of single
        texts.
        """
        found = rows.columns.get("label", ())
        if not rows.has("pair"):
            return "texts"
        if all(label == MATCH for label in found):
            return "matches"
        different = {str(label) for label in found}
        if different <= {*self.labels} or (len(different) <= 2 and all(map(_is_whole, different))):
            return "classes"
        words = {label for label in different if not _is_number(label)}
        _refuse_bad_scores(rows, different, words)
        return "classes" if words else "scores"

    def check(self, rows: Rows) -> None:
        """Refuses labels that were not learned: other classes, scores outside the range.

        Raises:
            DataError: with the file, the line, what was found and what fits.
        """
        if rows.has("label"):
            kind = self.kind_of(rows)
        else:
            kind = "matches"
        is_known = kind == self.kind and (kind != "scores" or self.settings.score_range is not None)
        for i in range(len(rows) if kind != "matches" else 0):
            label = str(require_label(rows, i))
            if kind != "scores":
                fits = label in self.labels
            else:
                fits = self.low <= float(label) <= self.high
            if is_known and not fits:
                if self.labels:
                    known = listing(self.labels)
                else:
                    known = f"a score from {self.low:g} to {self.high:g}"
                message = f"{rows.where(i)}: the label {label!r} is not what was learned ({known})"
                raise DataError(
                    message,
                    remedy="Correct it, or train with rows (or a score_range) that have it.",
                )

    def encode(self, rows: Rows, tokenizer: "Tokenizer", *, max_length: int) -> SentenceFeatures:
        """Returns each text by itself as ids; scores as 0 to 1, and 1 for what belongs together."""
        if rows.has("label"):
            kind = self.kind_of(rows)
        elif rows.has("pair"):
            kind = "matches"
        else:
            kind = "texts"
        names = [name for name in ("text", "pair", "negative") if rows.has(name)]
        is_search = (
            self.kind if self.loss else kind
        ) == "matches"  # as in training, where there was any
        sides = [
            ("query" if name == "text" else "document") if is_search else None for name in names
        ]
        columns = [
            self.said.prepared(rows.columns[name], side)
            for name, side in zip(names, sides, strict=True)
        ]
        if rows.has("label"):
            near = np.ones(len(rows), dtype=np.float32)
        else:
            near = None
        classes = np.zeros(len(rows), dtype=np.int64)
        if near is not None and kind == "scores":
            # not by a model of others
            scores = _scores(rows)
            is_known = self.loss and self.kind == "scores"
            low, high = (self.low, self.high) if is_known else (scores.min(), scores.max())
            near = ((scores - low) / max(high - low, 1e-9)).astype(np.float32)
        elif near is not None and kind != "matches":
            found = [str(label) for label in rows.columns["label"]]
            number = {
                name: i
                for i, name in enumerate(self.labels if kind == self.kind else sorted({*found}))
            }
            classes = np.array([number.get(name, 0) for name in found], dtype=np.int64)
            if kind == "classes":
                near = (np.array(found) == self._positive(found)).astype(np.float32)
        places, texts = different(columns)
        encoded = encode_texts(tokenizer, texts, max_length=max_length)
        keys = text_keys([rows.columns[name] for name in names])
        apart = self.loss == "multiple-negatives"
        return SentenceFeatures(
            encoded,
            places,
            keys,
            near,
            classes,
            kind,
            apart,
        )

    def scored(self, features: SentenceFeatures) -> DifferentTexts:
        """Returns the different texts."""
        return DifferentTexts(features.encoded, None)

    def _positive(self, labels: Sequence[str]) -> str | None:
        """Returns the label that says that two texts belong together.

        Raises:
            UsageError: it is none of three or more.
        """
        names = sorted({*labels})
        if self.positive is not None and (self.positive in names or {*names} <= {*self.labels}):
            return self.positive
        if len(names) > 2:
            raise _unknown_positive(names)
        if len(names) == 2:
            return positive_label(names, False, None)
        return "1"

    def objective(
        self, padding: Padding, training: TrainingSection | None = None, train: Any = None
    ) -> Objective:
        """Returns the loss; without `training` that of scoring, a pair by itself."""
        if training is None:
            from bertctl.tasks.sentences.sentence_objectives import SentenceObjective

            return SentenceObjective(padding)

        loss = SENTENCE_LOSSES[self.loss]
        keywords = {"margin": loss.margin} | loss.keywords(self.settings)
        objective: Objective = loss.objective_class(_labels_of_rows(self.kind, self.labels))(
            padding,
            widths=tuple(self.settings.widths),
            draws_partners=True,
            draws_negatives=loss.draws_negatives,
            draws_third_text=loss.draws_third_text,
            **keywords,
        )
        return objective

    def collect_outputs(self, outputs: Any, batch: Any, features: Any, indices: Any) -> Outputs:
        """Returns the vectors of the different texts."""
        return {"vectors": outputs.float().cpu().numpy()[:, 0]}

    def tune(self, outputs: Outputs, features: SentenceFeatures, rows: Rows) -> dict[str, Any]:
        """Returns the similarity from which two texts belong together, by F1; nothing where labels
        don't say it.
        """
        belongs = features.labels
        if features.kind != "classes" or belongs is None or not 0 < belongs.sum() < len(belongs):
            return {}
        similarities = self._similarities(outputs, features).astype(np.float64)
        lowest, highest = self._similarity_range(similarities)
        shares = np.clip((similarities - lowest) / (highest - lowest), 0.0, 1.0)
        best_share = best_f1_threshold(shares, belongs > 0).value
        return {"cosine_threshold": (highest - lowest) * best_share + lowest}

    def _similarity_range(self, similarities: Floats) -> tuple[float, float]:
        """Returns the least and the greatest similarity that there can be: of cosines -1 and 1,
        else what there is.
        """
        if self.said.similarity == COSINE:
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
        """Returns the threshold; 0.5 for cosines where none was chosen, and None for the other
        measures.
        """
        if self.threshold is None and self.said.similarity == COSINE:
            return _USUAL_COSINE
        return self.threshold

    def decode(
        self, outputs: Outputs, features: SentenceFeatures, rows: Rows
    ) -> list[dict[str, Any]]:
        """Returns the similarity of each pair, by the measure that the model's folder names.

        Raises:
            UsageError: single texts.
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
        """Returns the similarity of each pair with its label, or where what belongs to each text is
        found.
        """
        if features.kind in ("matches", "texts"):
            query_of_row, results = self._search(outputs, features)
            return [
                {"gold": 1, "query": int(query), **results[query].line} for query in query_of_row
            ]
        lines = super().lines(outputs, features, rows)
        if features.kind == "classes" and features.labels is not None:
            threshold = self._threshold()
            for line, belongs in zip(lines, features.labels > 0, strict=True):
                line["gold_match"] = bool(belongs)
                if threshold is not None:
                    line["match"] = line["prediction"] >= threshold
        return lines

    def row_losses(self, outputs: Outputs, features: SentenceFeatures) -> Floats32 | None:
        """Returns the (N,) losses: the squared distance of a cosine from how near a pair is.

        Of what is searched, how unlikely what belongs to a row is among all of the split. The unit
        is the row, as in training, and the measure is the cosine, as in the losses.
        """
        if features.kind in ("matches", "texts"):
            query_of_row, results = self._search(outputs, features)
            return np.array([results[query].loss for query in query_of_row], dtype=np.float32)
        if features.labels is None:
            return None
        return (_row_similarities(COSINE, outputs, features) - features.labels) ** 2

    def _similarities(self, outputs: Outputs, features: SentenceFeatures) -> Floats32:
        return _row_similarities(self.said.similarity, outputs, features)

    def _search(
        self, outputs: Outputs, features: SentenceFeatures
    ) -> tuple[Ints, list[SearchResult]]:
        """Searches once for each different query, however many rows have it.

        A pair's first text looks for its second ones among all different second texts of the split.
        A single text looks for the other texts that have one of its labels, among all other
        different texts.

        Returns:
            (N,) the number of each row's query, and the result of each query.
        """
        plan = _search_plan(features)
        vectors = outputs["vectors"]
        queries = vectors[plan.query_texts]
        candidates = vectors[plan.candidate_texts]

        measured = similarity_rows(self.said.similarity, queries, candidates)
        if self.said.similarity == COSINE:
            results = [self._result(plan, query, row, row) for query, row in enumerate(measured)]
        else:
            cosines = similarity_rows(COSINE, queries, candidates)
            both = zip(measured, cosines, strict=True)
            results = [
                self._result(plan, query, row, cosine_row)
                for query, (row, cosine_row) in enumerate(both)
            ]
        return plan.query_of_row, results

    def _result(
        self, plan: _SearchPlan, query: int, similarities: Floats, cosines: Floats
    ) -> SearchResult:
        relevant = plan.relevant[query]
        if not len(relevant):
            line = {
                "prediction": len(plan.candidate_texts),
                "ranks": [],
                "relevant": 0,
                "similarity": 0.0,
            }
            return SearchResult(line, loss=0.0)
        own = plan.own_candidate[query]
        is_itself = own >= 0 and own not in relevant
        if is_itself:
            cosines = cosines.copy()
            cosines[own] = -np.inf  # as in training, where a text is never its own negative
        if is_itself and plan.leaves_out_itself:
            similarities = similarities.copy()
            similarities[own] = -np.inf
        ranks = ranks_of(similarities, relevant)
        scaled = cosines * self.settings.scale
        loss = np.logaddexp.reduce(scaled) - np.logaddexp.reduce(scaled[relevant])
        line = {
            "prediction": ranks[0],
            "ranks": ranks[:_KEPT],
            "relevant": len(relevant),
            "similarity": float(similarities[relevant].max()),
        }
        return SearchResult(line, loss=float(max(loss, 0.0)))

    def constant_answer(self, train: Rows) -> float:
        """Returns the mean score, as a cosine; 0 where there are no scores."""
        if self.kind == "scores":
            return (float(_scores(train).mean()) - self.low) / (self.high - self.low)
        return 0.0

    def baseline(self, constant: Any, rows: Rows) -> dict[str, float]:
        """Returns the metrics of one similarity for all pairs; of a search, those of a random order
        for each query.
        """
        kind = self.kind_of(rows)
        if kind in ("matches", "texts"):
            lines = _random_search(kind, rows)
        else:
            labels = [str(label) for label in rows.columns["label"]]
            if kind == "classes":
                positive = self._positive(labels)
            else:
                positive = None
            lines = [
                {"gold": self.gold(rows, i), "prediction": float(constant)}
                for i in range(len(rows))
            ]
            if kind == "classes":
                for line, label in zip(lines, labels, strict=True):
                    line |= {"gold_match": label == positive, "match": False}
        return {name: found.value for name, found in self.answers.all_contributions(lines).items()}

    def targets(self, answered: Answered, label: str | None) -> list[Target]:
        """Refuses: a cosine rests on two lines of input, and what is explained rests on one.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "how alike two texts are can't be explained word by word",
            remedy="Explain a classifier.",
        )

    def describe(self, rows: Rows) -> str:
        """Returns what the labels are, and how often each is there."""
        kind = self.kind_of(rows)
        if kind == "scores":
            scores = _scores(rows)
            return f"scores {scores.min():g} to {scores.max():g}, mean {scores.mean():.3g}"
        if kind == "matches":
            if rows.has("negative"):
                return "triplets"
            return _KINDS[kind]
        counts = Counter(map(str, rows.columns["label"])).most_common(10)
        return f"{_KINDS[kind]}; " + ", ".join(f"{name}: {count}" for name, count in counts)

    def gold(self, rows: Rows, index: int) -> Any:
        """Returns the score, the label, or that a row's texts belong together."""
        label = require_label(rows, index)
        is_score = str(label) not in self.labels and _is_number(str(label))
        if is_score:
            return float(str(label))
        return str(label)


def _random_search(kind: str, rows: Rows) -> list[dict[str, Any]]:
    """Returns lines of queries whose right texts stand at random ranks, one for each different
    query.
    """
    queries = rows.columns["text"]
    if kind == "matches":
        relevant = Counter(text for text, _ in {*zip(queries, rows.columns["pair"], strict=True)})
        n_candidates = len({*rows.columns["pair"]})
    else:
        texts_of_label: dict[str, set[str]] = {}
        for text, label in zip(queries, rows.columns["label"], strict=True):
            texts_of_label.setdefault(str(label), set()).add(text)
        mates: dict[str, set[str]] = {}
        for texts in texts_of_label.values():
            for text in texts:
                mates.setdefault(text, set()).update(texts)
        relevant = Counter({text: len(others) - 1 for text, others in mates.items()})
        n_candidates = len(mates) - 1
    random = np.random.default_rng(0)
    lines = []
    for query in dict.fromkeys(queries):
        n_relevant = relevant[query]
        ranks = np.sort(
            1
            + random.choice(
                n_candidates,
                n_relevant,
                replace=False,
                shuffle=False,
            )
        ).tolist()
        lines.append(
            {
                "query": query,
                "prediction": ranks[0] if ranks else 0,
                "ranks": ranks,
                "relevant": n_relevant,
            }
        )
    return lines


def _labels_of_rows(kind: str, names: Sequence[str]) -> str:
    """Returns the kind of labels as the table of losses names it."""
    if kind == "classes" and len(names) == 2:
        return "two classes"
    return kind


def _choose_loss(recipe: Recipe, kind: str, names: Sequence[str], train: Rows) -> str:
    """Returns the name of the recipe's loss, or of the default for these rows.

    Args:
        recipe: Names the loss, or leaves it open.
        kind: What the labels are; see `SentenceEmbeddings.kind`.
        names: Of the classes.
        train: Training rows.

    Raises:
        UsageError: The loss cannot learn these rows, or not in batches of one row.
    """
    fitting = losses_for(SENTENCE_LOSSES, _labels_of_rows(kind, names))
    name = recipe.sentence_embeddings.loss or fitting[0]
    loss = SENTENCE_LOSSES[name]
    has_third_text = any(map(str.strip, train.columns.get("negative", ())))
    lacks_third_text = loss.needs_third_text and kind == "matches" and not has_third_text

    if name not in fitting or lacks_third_text:
        reason = "can't learn them"
        if lacks_third_text:
            reason = "needs a third text (`data.negative_column=NAME`)"
        others = ", ".join(other for other in fitting if other != name)
        raise UsageError(
            f"sentence_embeddings.loss: {name} {reason}; {train.source} has {_KINDS[kind]}",
            remedy=f"Choose from {others}.",
        )
    if loss.compares_rows and recipe.training.batch_size == 1 and not has_third_text:
        raise UsageError(
            f"sentence_embeddings.loss: {name} compares the rows of a batch, and "
            "training.batch_size is 1",
            remedy="Type `training.batch_size=16`, say; or choose another loss.",
        )
    return name


def _unknown_positive(names: Sequence[str]) -> UsageError:
    message = (
        f"which of the labels {listing(names)} says that two texts belong together is not known"
    )
    return UsageError(message, remedy="Name it in training: `evaluation.positive_label=LABEL`.")


def _scores(rows: Rows) -> Floats:
    return np.array([float(str(label)) for label in rows.columns["label"]], dtype=np.float64)


def _is_number(text: str) -> bool:
    return abs(as_number(text)) < 3.4e38


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _refuse_bad_scores(rows: Rows, different: set[str], words: set[str]) -> None:
    """Refuses a few labels that are no numbers among scores: no class is called 4.34, and none nan.

    Raises:
        DataError: with the first one.
    """
    numbers = different - words
    is_missing = all(word.lower().lstrip("+-") in _NO_NUMBERS for word in words)
    if words and numbers and (is_missing or not all(map(_is_whole, numbers))):
        first = next(i for i, label in enumerate(rows.columns["label"]) if str(label) in words)
        others = count(len(numbers), "other one is", "others are")
        message = (
            f"{rows.where(first)}: the label {rows.columns['label'][first]!r} is no score, and "
            f"{others}"
        )
        raise DataError(
            message,
            remedy="Correct it or leave the row out; or name another column: `data.label_column=NAME`.",
        )


def _row_similarities(measure: str, outputs: Outputs, features: SentenceFeatures) -> Floats32:
    """Returns the (N,) similarities of the rows' first two texts."""
    first = outputs["vectors"][features.places[:, 0]]
    second = outputs["vectors"][features.places[:, 1]]
    return row_similarities(measure, first, second)


def _search_plan(features: SentenceFeatures) -> _SearchPlan:
    """Returns which texts of a split look for which, each different text once."""
    if features.kind == "texts":
        return _plan_of_labelled_texts(features)
    return _plan_of_pairs(features)


def _plan_of_pairs(features: SentenceFeatures) -> _SearchPlan:
    query_keys, query_rows, query_of_row = np.unique(
        features.keys[:, 0], return_index=True, return_inverse=True
    )
    candidate_keys, candidate_rows, candidate_of_row = np.unique(
        features.keys[:, 1], return_index=True, return_inverse=True
    )
    relevant = _grouped(query_of_row, candidate_of_row, len(query_keys))
    positions = {key: position for position, key in enumerate(candidate_keys.tolist())}
    return _SearchPlan(
        query_of_row=query_of_row,
        query_texts=features.first_alike[features.places[query_rows, 0]],
        candidate_texts=features.first_alike[features.places[candidate_rows, 1]],
        relevant=relevant,
        own_candidate=[positions.get(key, -1) for key in query_keys.tolist()],
        leaves_out_itself=False,
    )


def _plan_of_labelled_texts(features: SentenceFeatures) -> _SearchPlan:
    keys, text_rows, text_of_row = np.unique(
        features.keys[:, 0], return_index=True, return_inverse=True
    )
    n_labels = int(features.classes.max(initial=0)) + 1
    texts_of_label = _grouped(features.classes, text_of_row, n_labels)
    labels_of_text = _grouped(text_of_row, features.classes, len(keys))
    relevant = []
    for text, labels in enumerate(labels_of_text):
        mates = np.unique(np.concatenate([texts_of_label[label] for label in labels]))
        relevant.append(mates[mates != text])
    texts = features.first_alike[features.places[text_rows, 0]]
    return _SearchPlan(
        query_of_row=text_of_row,
        query_texts=texts,
        candidate_texts=texts,
        relevant=relevant,
        own_candidate=list(range(len(keys))),
        leaves_out_itself=True,
    )


def _grouped(owners: Ints, members: Ints, n_owners: int) -> list[Ints]:
    """Returns the different members of each owner, in ascending order."""
    pairs = np.unique(np.stack([owners, members], axis=1), axis=0)
    starts = np.searchsorted(pairs[:, 0], np.arange(1, n_owners))
    return np.split(pairs[:, 1], starts)
