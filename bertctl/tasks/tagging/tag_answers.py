"""What the tags of words mean: token classification."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np

from bertctl.errors import UsageError
from bertctl.metrics import contributions, tagging
from bertctl.metrics.contributions import Contributions, Metric
from bertctl.metrics.tagging import entities, entity_counts, entity_score, entity_set
from bertctl.tasks.answers import (
    BY_LOSS,
    Answers,
    ErrorOrder,
    Line,
    Lines,
    Outcome,
    clustered,
    field,
    sides,
)
from bertctl.words import natural_order


def _accuracy(answers: "TagAnswers", lines: Lines) -> Contributions:
    """Returns what each sentence adds to the share of words with the right tag."""
    return tagging.word_accuracy(*sides(lines), mark_entities=answers.mark_entities)


def _of_entities(name: str, answers: "TagAnswers", lines: Lines) -> Contributions | None:
    """Returns what each line adds to a metric of entities; None where tags mark none."""
    if answers.mark_entities:
        return entity_score(name, entity_counts(*sides(lines)))
    return None


_precision, _recall, _f1 = (partial(_of_entities, name) for name in tagging.ENTITY_METRICS)


def _relaxed(answers: "TagAnswers", lines: Lines) -> Contributions | None:
    """Returns what each line adds to the F1 of entities for which one shared word is enough."""
    if answers.mark_entities:
        return entity_score("entity_f1", tagging.relaxed_counts(*sides(lines)))
    return None


def _macro(answers: "TagAnswers", lines: Lines) -> Contributions | None:
    """Returns what each line adds to the mean F1 over the types of entities that are in gold.

    Types in gold are the same for all models, unlike types that are answered. It is None where
    there are none.
    """
    if answers.mark_entities:
        by_type = _counts_by_type(lines)
    else:
        by_type = {}
    occurring = [counts for counts in by_type.values() if _has_gold(counts)]
    if occurring:
        return tagging.macro_f1(occurring)
    return None


def _has_gold(counts: Sequence[tuple[int, int, int]]) -> bool:
    """Returns whether any sentence has an entity, by (gold, predicted, right) counts."""
    return any(n_gold for n_gold, _, _ in counts)


def _counts_by_type(
    lines: Lines, *, of_words: bool = False
) -> dict[str, list[tuple[int, int, int]]]:
    """Returns for each type of entity its (gold, predicted, right) counts in each line.

    A line with one right PER and one that was missed adds (2, 1, 1) to the list of "PER". With
    `of_words` it counts the words of each tag instead.
    """
    spans_of = _words if of_words else entity_set
    counted = []
    for gold_tags, predicted_tags in zip(*sides(lines), strict=True):
        gold = spans_of(tuple(gold_tags))
        predicted = spans_of(tuple(predicted_tags))
        counted.append((_by_kind(gold), _by_kind(predicted), _by_kind(gold & predicted)))

    kinds = set[str]()
    for n_gold, n_predicted, _ in counted:
        kinds.update(n_gold, n_predicted)
    counts = {}
    for kind in sorted(kinds, key=natural_order):
        counts[kind] = [
            (n_gold[kind], n_predicted[kind], n_right[kind])
            for n_gold, n_predicted, n_right in counted
        ]
    return counts


def _by_kind(spans: Iterable[tagging.Entity]) -> Counter[str]:
    """Returns how many spans there are of each type or tag."""
    return Counter(kind for kind, _, _ in spans)


def _tags_of(lines: Lines) -> list[str]:
    """Returns the tags in gold answers and predictions, sorted."""
    tags = set[str]()
    for tags_of_lines in sides(lines):
        tags.update(*tags_of_lines)
    return sorted(tags, key=natural_order)


def _words(tags: Sequence[str]) -> frozenset[tagging.Entity]:
    """Returns each word with its tag as an entity of one word: (tag, place, place + 1)."""
    return frozenset((tag, place, place + 1) for place, tag in enumerate(tags))


@dataclass(frozen=True)
class TagAnswers(Answers):
    """One tag per word; metrics of entities are `NAME:TYPE` for those of one type.

    Attributes:
        labels: Names of the tags, in the model's order.
        mark_entities: Whether the tags mark entities (`B-PER`, `I-PER`) and not words (`NOUN`).
    """

    labels: tuple[str, ...] = ()
    mark_entities: bool = False

    task: ClassVar[str] = "token-classification"
    texts: ClassVar[tuple[str, ...]] = ("words",)
    columns: ClassVar[tuple[str, ...]] = ("text", "words", "offsets", "document")
    checks: ClassVar[frozenset[str]] = frozenset({"tags", "spans"})
    in_windows: ClassVar[bool] = True
    usage: ClassVar[str] = """from transformers import pipeline

answer = pipeline("token-classification", model=MODEL, aggregation_strategy="simple")
answer("Ada Lovelace lived in London.")"""
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("accuracy", _accuracy, "share of words with the right tag"),
        Metric(
            "entity_precision",
            _precision,
            "share of the entities answered that are right",
            hub_name="precision",
        ),
        Metric(
            "entity_recall",
            _recall,
            "share of the entities there that are answered",
            hub_name="recall",
        ),
        Metric("entity_f1", _f1, "harmonic mean of the two, as conlleval counts", hub_name="f1"),
        Metric("entity_f1_macro", _macro, "mean of the entity_f1 of the types that are there"),
        Metric(
            "entity_f1_relaxed",
            _relaxed,
            "entity_f1 where the right type and a common word are enough",
        ),
    )

    @classmethod
    def from_lines(cls, lines: Lines) -> Self:
        """Returns answers with the tags that occur in the lines, sorted.

        The tags mark entities if the lines list entities, or if tags look like it.
        """
        tags = _tags_of(lines)
        marked = any(tag[:2] in ("B-", "I-", "S-", "E-") for tag in tags)
        return cls(tuple(tags), "entities" in lines[0] or marked)

    def contributions(self, lines: Lines, name: str) -> Contributions | None:
        """Returns what each line adds to a metric; `entity_f1:PER` is that of one type."""
        metric, _, kind = name.partition(":")
        if not kind:
            return super().contributions(lines, name)
        if not self.mark_entities or metric not in tagging.ENTITY_METRICS:
            return None
        never_occurs = [(0, 0, 0)] * len(lines)
        counts = _counts_by_type(lines).get(kind, never_occurs)
        return clustered(entity_score(metric, counts), lines)

    def each_contributions(self, lines: Lines) -> Iterator[tuple[str, Contributions]]:
        """Yields what each line adds to every metric.

        It includes those of each type where the model knows several.
        """
        yield from super().each_contributions(lines)
        types = {tagging.split_tag(tag)[1] for tag in self.labels if tag != "O"}
        if self.mark_entities and len(types) > 1:
            for kind, counts in _counts_by_type(lines).items():
                for name in tagging.ENTITY_METRICS:
                    yield f"{name}:{kind}", clustered(entity_score(name, counts), lines)

    def losses(self, lines: Lines) -> Contributions | None:
        """Returns what each line adds to the mean loss of words; None where words were cut off."""
        if any(line.get("truncated") for line in lines):
            return None
        words = np.array([len(field(line, "gold")) for line in lines], dtype=np.float64)
        return contributions.loss(np.array([field(line, "loss") for line in lines]) * words, words)

    def baseline_answer(self, gold: Sequence[Any]) -> Any:
        """Returns the most frequent tag of the training rows: O, where entities are marked."""
        return super().baseline_answer(list(chain.from_iterable(gold)))

    def answered(self, line: Line, constant: Any) -> Line:
        """Returns a line with the constant tag at every word."""
        return {**line, "prediction": [constant] * len(line["gold"])}

    def baseline(self, constant: Any, lines: Lines) -> dict[str, float]:
        """Returns the metrics of one tag for every word.

        Metrics of single types are those of types that occur, as for a model.
        """
        occurring = {""}
        for line in lines:
            occurring.update(self.labels_of(line))
        baselines = super().baseline(constant, lines)
        return {
            name: value for name, value in baselines.items() if name.partition(":")[2] in occurring
        }

    def constant_prediction(self, lines: Lines) -> str | None:
        """Returns the only tag that was answered, such as O for every word."""
        tags = list(chain.from_iterable(line["prediction"] for line in lines))
        if len(tags) > 1 and set(tags) == {tags[0]}:
            return repr(tags[0])
        return None

    def is_error(self, line: Line) -> bool:
        """Returns whether the predicted entities differ from the gold ones.

        The scheme of the tags (IOB2, BIOES) does not count. If tags don't mark entities, the tags
        themselves are compared.
        """
        gold = line["gold"]
        predicted = line["prediction"]
        if self.mark_entities:
            return entities(gold) != entities(predicted)
        return list(gold) != list(predicted)

    def error_order(self) -> ErrorOrder:
        """Returns the order by loss."""
        return BY_LOSS

    def shown(self, line: Line) -> tuple[str, str, str]:
        """Returns the words, and the entities (or tags) in which gold and prediction differ."""
        gold = line["gold"]
        predicted = line["prediction"]
        if self.mark_entities:
            gold_entities = set(entities(gold))
            predicted_entities = set(entities(predicted))
            return (
                self.shown_input(line),
                _entities(line, gold_entities - predicted_entities),
                _entities(line, predicted_entities - gold_entities),
            )
        words: Sequence[str] = line.get("words") or [str(i) for i in range(len(gold))]
        gold_texts = []
        predicted_texts = []
        for i, (gold_tag, predicted_tag) in enumerate(zip(gold, predicted, strict=True)):
            if gold_tag != predicted_tag:
                gold_texts.append(f"{words[i]}: {gold_tag}")
                predicted_texts.append(f"{words[i]}: {predicted_tag}")
        return self.shown_input(line), "; ".join(gold_texts), "; ".join(predicted_texts)

    def shown_input(self, line: Line) -> str:
        """Returns the words."""
        return " ".join(line.get("words") or ())

    def labels_of(self, line: Line) -> list[str]:
        """Returns the types of the gold entities, or the gold tags where none mark entities."""
        gold = field(line, "gold")
        if self.mark_entities:
            return [kind for kind, _, _ in entities(gold)]
        return list(gold)

    def of_label(self, lines: Lines, name: str, label: str) -> Contributions | None:
        """Returns precision, recall or F1 of the entities of one type.

        If tags don't mark entities, it is about the words of one tag.
        """
        if name not in ("precision", "recall", "f1"):
            return None
        counts = _counts_by_type(lines, of_words=not self.mark_entities)[label]
        if name == "precision" and not any(answered for _, answered, _ in counts):
            raise UsageError(
                f"the precision of '{label}' is undefined: the model never answers '{label}'"
            )
        return clustered(entity_score(f"entity_{name}", counts), lines)

    def group_score(self, lines: Lines) -> tuple[str, Contributions]:
        """Returns F1 of entities, or accuracy of words where there are none."""
        if self.mark_entities:
            return "entity F1", clustered(
                entity_score("entity_f1", entity_counts(*sides(lines))), lines
            )
        return "accuracy of words", clustered(_accuracy(self, lines), lines)

    def outcome(self, lines: Lines) -> Outcome:
        """Returns a row per type of entity, or per tag."""
        if self.mark_entities:
            return _outcome_of_types(lines)

        tag_pairs = []  # of each line the (gold, predicted) tags of its words
        for gold_tags, predicted_tags in zip(*sides(lines), strict=True):
            tag_pairs.append(list(zip(gold_tags, predicted_tags, strict=True)))
        return Outcome.counted(
            title="By tag",
            heading="tag",
            names=_tags_of(lines),
            lines=lines,
            pairs=tag_pairs,
        )


def _outcome_of_types(lines: Lines) -> Outcome:
    """Returns a row per type of entity: counts, precision, recall, F1, and kinds of errors."""
    by_type = _counts_by_type(lines)
    pairs: list[list[tuple[str | None, str | None]]] = [[] for _ in lines]
    for kind, counts in by_type.items():
        for line_pairs, (n_gold, n_answered, n_right) in zip(pairs, counts, strict=True):
            n_missed = n_gold - n_right
            n_wrong = n_answered - n_right
            line_pairs += [
                *[(kind, kind)] * n_right,
                *[(kind, None)] * n_missed,
                *[(None, kind)] * n_wrong,
            ]
    counted = Outcome.counted(
        title="By type",
        heading="type",
        names=list(by_type),
        lines=lines,
        pairs=pairs,
    )

    errors = tagging.entity_errors(*sides(lines))
    rows = []
    for row in counted.rows:
        kind = str(row[0])
        rows.append([*row, *(n_errors[kind] for n_errors in errors.values())])
    return replace(counted, header=(*counted.header, *errors), rows=rows)


def _entities(line: Line, marked: set[tagging.Entity]) -> str:
    """Returns some of a line's entities as a text: "PER: Ada Lovelace; LOC: London"."""
    words = line.get("words") or []
    ordered = sorted(marked, key=lambda span: span[1])
    texts = [
        f"{kind}: {' '.join(words[start:end]) or f'words {start} to {end - 1}'}"
        for kind, start, end in ordered
    ]
    return "; ".join(texts) or "(nothing)"
