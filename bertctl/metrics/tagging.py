"""Metrics of tag sequences: entities and word accuracy.

Entities are found as conlleval (CoNLL-2000 to 2003) does.

Entities follow the functions `startOfChunk` and `endOfChunk` of conlleval.pl, so sequences that no
scheme allows are read as it reads them: an I after an O, or after another type, begins an entity.
conlleval.pl knows B, I, O and E; S of BIOES, and L and U of BILOU, are read as in its Python
descendants (conlleval.py, seqeval): S and U stand alone, E and L end what is open.

Letters: N sentences, M kinds of sentences, R resamples.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import numpy as np

from bertctl.arrays import Array, Floats, Ints
from bertctl.metrics.contributions import (
    Contributions,
    Proportion,
    f1_of_overlap,
    mean_of_defined,
    ratio,
)
from bertctl.metrics.resampling import Statistic

Entity = tuple[str, int, int]
"""Type, first word, word after the last one."""

Tags = Sequence[Sequence[str]]
"""The tags of each of N sentences."""

Counts = Sequence[tuple[int, ...]]
"""What is counted in each of several sentences, or kinds of them."""

ENTITY_METRICS = ("entity_precision", "entity_recall", "entity_f1")
"""Metrics of entities, by their names in metrics.json."""

_POSSIBLE = ((1, 0, 0), (0, 1, 0), (1, 1, 1))
"""Kinds of sentences that could occur and perhaps did not: an entity missed, one invented, one
found."""

_SAME_PREFIX = {"L": "E", "U": "S"}

# (prefix before, prefix here) between which an entity of one type ends, and before which one
# begins.
_ENDS = frozenset([
    *('B' + to for to in 'BOS'), *('I' + to for to in 'BOS'), *('E' + to for to in 'BIEOS'),
    *('S' + to for to in 'BIEOS'),
])  # fmt: skip
_BEGINS = frozenset([
    *('O' + to for to in 'BIES'), *('B' + to for to in 'BS'), *('I' + to for to in 'BS'),
    *('E' + to for to in 'BIES'), *('S' + to for to in 'BIES'),
])  # fmt: skip
_OUTSIDE = ("O", ".")


def split_tag(tag: str) -> tuple[str, str]:
    """Returns the prefix and the type, divided at the first hyphen.

    A tag without one is a prefix without a type.
    """
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def entities(tags: Sequence[str]) -> list[Entity]:
    """Returns the entities of one sentence, in their order, as conlleval reads them.

    `B-PER I-PER O B-LOC` gives ("PER", 0, 2) and ("LOC", 3, 4): type, first word, end.

    Args:
        tags: One per word, in any scheme of prefixes (B- I- E- S- L- U- and O), well formed or not.
    """
    spans: list[Entity] = []
    before = "O"
    type_before = ""
    start = -1  # first word of the entity that is open; -1 for none
    for i, tag in enumerate([*tags, "O"]):
        prefix, kind = split_tag(tag)
        prefix = _SAME_PREFIX.get(prefix, prefix)
        is_outside = prefix == "O" and before == "O"
        if not is_outside:
            # Whether an entity ends before this word or begins with it follows from the prefix
            # before and the prefix here, such as `E` and `B`, or from a change of the type. Longer
            # prefixes belong to no scheme.
            step = ""
            if len(before) == 1 and len(prefix) == 1:
                step = before + prefix
            type_changes = kind != type_before
            is_last = i == len(tags)
            ends = step in _ENDS or (type_changes and before not in _OUTSIDE) or is_last
            begins = step in _BEGINS or (type_changes and prefix not in _OUTSIDE)
            if start >= 0 and ends:
                spans.append((type_before, start, i))
                start = -1
            if begins:
                if start >= 0:  # only after prefixes that no scheme has
                    spans.append((type_before, start, i))
                start = i
        before = prefix
        type_before = kind
    return spans


# Several metrics ask for the same sentences, and again at each evaluation.
@lru_cache(maxsize=2**16)
def entity_set(tags: tuple[str, ...]) -> frozenset[Entity]:
    """Returns the entities of one sentence, which never overlap."""
    return frozenset(entities(tags))


def word_accuracy(gold: Tags, predicted: Tags, *, mark_entities: bool) -> Contributions:
    """Returns the share of words with the right tag.

    As in conlleval, `B-` and `B` are the same tag of an entity.

    Args:
        gold: N sentences of tags, at least one.
        predicted: The same for the answers.
        mark_entities: Whether the tags mark entities; parts of speech don't.

    Raises:
        ValueError: The two have different lengths, or a sentence has.
    """
    counts = []  # words and right words of each sentence
    for gold_tags, tags in _sentences(gold, predicted):
        n_right = _right_words(gold_tags, tags, mark_entities=mark_entities)
        counts.append((len(tags), n_right))
    usual = max(1, int(np.median([n_words for n_words, _ in counts])))
    # Kinds that could occur and perhaps did not: a sentence of usual length with one word wrong, or
    # one right.
    unseen = [(usual, usual - 1), (usual, 1)]
    # Two models could differ in a word that one tags rightly and the other wrongly.
    right_and_wrong = [(1, 1, 1, 0), (1, 0, 1, 1)]
    return _of_sentences(
        "accuracy",
        counts,
        unseen=unseen,
        possible=right_and_wrong,
    )


def entity_score(name: str, counts: Counts | Array) -> Contributions:
    """Returns precision, recall or F1 of entities, as in conlleval.

    Intervals come from sentences drawn again, since the words of one depend on each other.

    Args:
        name: One of `ENTITY_METRICS`.
        counts: Counts of each sentence, at least one: entities there, answered, right (see
            `entity_counts`).
    """
    # Two models could differ in an entity that one finds and the other misses: three counts of the
    # first model, three of the second one.
    found_and_missed = [(1, 1, 1, 1, 0, 0), (1, 0, 0, 1, 1, 1)]
    return _of_sentences(
        name,
        counts,
        unseen=_POSSIBLE,
        possible=found_and_missed,
    )


def macro_f1(counts: Sequence[Sequence[tuple[int, int, int]]]) -> Contributions:
    """Returns the mean of the F1 of K types.

    Args:
        counts: For each type, counts of each sentence, as for `entity_score`.
    """
    K = len(counts)
    # A sentence has gold, answered and right entities of each type: (N, 3 K).
    rows = np.concatenate(
        [np.array(type_counts, dtype=np.float64) for type_counts in counts], axis=1
    )
    is_used_K = rows.sum(axis=0).reshape(K, 3)[:, :2].any(axis=1)

    # The interval and the test also take sentences into account that could occur and perhaps don't.
    # Each has a single entity: one missed, one invented, or one found.
    kinds = np.array(_POSSIBLE, dtype=np.float64)
    unseen: list[Floats] = []
    pairs: list[Floats] = []
    for is_type_K in np.eye(K):  # 1 at the type of the entity
        missed, invented, hit = (np.kron(is_type_K, kind) for kind in kinds)
        unseen += [missed, invented, hit]
        # Two models could differ in an entity that one finds and the other misses.
        pairs += [np.concatenate([hit, missed]), np.concatenate([missed, hit])]

    def make(rows_MS: Floats) -> Statistic:
        """Returns the macro F1 as a function of (R, M) counts: how often R resamples draw rows."""

        def statistic(counts_RM: Floats) -> Floats:
            """Returns (R,) macro F1; a row has 3 counts of each type: gold, answered, right."""
            sums_RK3 = (counts_RM @ rows_MS).reshape(len(counts_RM), K, 3)
            gold_RK, answered_RK, right_RK = np.moveaxis(sums_RK3, 2, 0)
            uses_RK = gold_RK + answered_RK
            # A type that these sentences have and a resample lacks is undefined there, not 0.
            is_defined_RK = (uses_RK > 0) | ~is_used_K
            f1_RK = np.where(is_defined_RK, ratio(2 * right_RK, uses_RK), math.nan)
            return mean_of_defined(f1_RK)

        return statistic

    return Contributions(
        rows,
        family="statistic",
        make=make,
        unseen=np.array(unseen),
        possible=np.array(pairs),
    )


def _overlap(entity: Entity, answer: Entity) -> bool:
    """Returns whether two entities share a word."""
    _, begin, end = entity
    _, answer_begin, answer_end = answer
    return begin < answer_end and answer_begin < end


def relaxed_counts(gold: Tags, predicted: Tags) -> list[tuple[int, int, int]]:
    """Returns the counts of `entity_counts`, where an answer needs to share a word only.

    An answer is right if it has the type of a gold entity and shares a word with it. Each answer
    counts for one gold entity at most.
    """
    counts = []
    for gold_entities, answered in _entity_sets(gold, predicted):
        n_right = len(gold_entities & answered)
        unmatched = sorted(answered - gold_entities, key=lambda entity: entity[1])
        for entity in sorted(gold_entities - answered, key=lambda entity: entity[1]):
            matches = [
                answer
                for answer in unmatched
                if answer[0] == entity[0] and _overlap(entity, answer)
            ]
            if matches:
                unmatched.remove(matches[0])
                n_right += 1
        counts.append((len(gold_entities), len(answered), n_right))
    return counts


ENTITY_ERRORS = ("wrong boundary", "wrong type", "missed", "invented")


def entity_errors(gold: Tags, predicted: Tags) -> dict[str, Counter[str]]:
    """Returns for each kind of error how many entities of each type have it.

    A gold entity is "missed" if no answer shares a word with it. If answers do, it has the "wrong
    boundary" if one of them has its type, and otherwise the "wrong type". An answer that shares no
    word with any gold entity is "invented".
    """
    errors: dict[str, Counter[str]] = {name: Counter() for name in ENTITY_ERRORS}
    for gold_entities, answered in _entity_sets(gold, predicted):
        for entity in gold_entities - answered:
            types = {answer[0] for answer in answered if _overlap(entity, answer)}
            if not types:
                name = "missed"
            elif entity[0] in types:
                name = "wrong boundary"
            else:
                name = "wrong type"
            errors[name][entity[0]] += 1
        invented = [
            answer
            for answer in answered
            if not any(_overlap(answer, entity) for entity in gold_entities)
        ]
        errors["invented"].update(kind for kind, _, _ in invented)
    return errors


def _of_sentences(
    name: str, sentences: Counts | Array, unseen: Counts, possible: Counts
) -> Contributions:
    """Returns the contributions of sentences to a metric of `tagging_statistic`.

    Args:
        name: The metric.
        sentences: Counts of each sentence.
        unseen: Counts of sentences that could occur.
        possible: Pairs of such counts in which two models could differ.
    """
    rows, kinds, pairs = (
        np.array(table, dtype=np.float64) for table in (sentences, unseen, possible)
    )
    statistic = partial(tagging_statistic, name)
    return Contributions(
        rows,
        family="statistic",
        make=statistic,
        unseen=kinds,
        possible=pairs,
        proportion=_proportion(name, rows),
    )


def _proportion(name: str, rows: Floats) -> Proportion:
    """Returns hits and trials behind a metric of `tagging_statistic`.

    Args:
        name: The metric.
        rows: A row for each sentence. For accuracy, (N, 2) words and right words. For others,
            (N, 3) gold, answered and right entities.
    """
    gold_count = rows[:, 0]
    answered = rows[:, -2]  # not read for accuracy
    n_right = rows[:, -1]
    if name == "entity_precision":
        return Proportion(n_right, answered)
    if name == "entity_f1":
        return Proportion(n_right, gold_count + answered - n_right, f1_of_overlap)
    return Proportion(n_right, gold_count)


def _right_words(gold: Sequence[str], tags: Sequence[str], *, mark_entities: bool) -> int:
    """Returns how many words of a sentence have the right tag; of entities `B-` is `B`."""
    if list(gold) == list(tags):
        return len(gold)
    pairs = zip(gold, tags, strict=True)
    return sum(a == b or (mark_entities and split_tag(a) == split_tag(b)) for a, b in pairs)


def entity_counts(gold: Tags, predicted: Tags) -> list[tuple[int, int, int]]:
    """Returns for each sentence how many entities are there, were answered, and are right.

    Raises:
        ValueError: The two have different lengths, or a sentence has.
    """
    sets = _entity_sets(gold, predicted)
    return [
        (len(gold_entities), len(answered), len(gold_entities & answered))
        for gold_entities, answered in sets
    ]


def tagging_statistic(name: str, kinds: Ints) -> Statistic:
    """Returns a metric as a function of how often each kind of sentence occurs.

    Args:
        name: `accuracy`, `entity_precision`, `entity_recall` or `entity_f1`.
        kinds: (M, 2) words and right words of each kind, for accuracy; else (M, 3) as in
            `entity_counts`.
    """
    columns = kinds.astype(np.float64).T
    gold_count = columns[0]
    answered = columns[1]  # not read for accuracy
    n_right = columns[-1]
    numerator, denominator = {
        "accuracy": (n_right, gold_count),
        "entity_precision": (n_right, answered),
        "entity_recall": (n_right, gold_count),
        "entity_f1": (2 * n_right, gold_count + answered),
    }[name]
    return lambda counts: ratio(counts @ numerator, counts @ denominator, undefined=math.nan)


def _entity_sets(
    gold: Tags, predicted: Tags
) -> Iterator[tuple[frozenset[Entity], frozenset[Entity]]]:
    """Yields the gold entities and the answered entities of each sentence."""
    for gold_tags, answered_tags in _sentences(gold, predicted):
        yield entity_set(tuple(gold_tags)), entity_set(tuple(answered_tags))


def _sentences(gold: Tags, predicted: Tags) -> list[tuple[Sequence[str], Sequence[str]]]:
    """Returns the gold and the answered tags of each sentence.

    Raises:
        ValueError: The two have different lengths, or a sentence has.
    """
    pairs = list(zip(gold, predicted, strict=True))
    for i, (gold_tags, answered_tags) in enumerate(pairs):
        if len(gold_tags) != len(answered_tags):
            raise ValueError(
                f"sentence {i}: {len(gold_tags)} gold tags and {len(answered_tags)} answers"
            )
    return pairs
