"""Entities and their scores against conlleval's own way of counting."""

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertctl.metrics.tagging import ENTITY_METRICS, entities, entity_counts
from bertctl.tasks.registry import answer_type
from tests.scoring import scores_by_type, tagging_metrics

Sentences = list[list[str]]
Tag = tuple[str, str]
"""Prefix and type of a tag."""

NO_TAG: Tag = ("O", "")
_CHUNK_ENDS = {
    ("B", "B"),
    ("B", "O"),
    ("I", "B"),
    ("I", "O"),
    ("E", "E"),
    ("E", "I"),
    ("E", "O"),
}
_CHUNK_BEGINS = {
    ("B", "B"),
    ("I", "B"),
    ("O", "B"),
    ("O", "I"),
    ("E", "E"),
    ("E", "I"),
    ("O", "E"),
}


def _ends_chunk(previous: Tag, tag: Tag) -> bool:
    """conlleval.pl's `endOfChunk`."""
    if (previous[0], tag[0]) in _CHUNK_ENDS or previous[0] in ("[", "]"):
        return True
    return previous[0] not in ("O", ".") and previous[1] != tag[1]


def _begins_chunk(previous: Tag, tag: Tag) -> bool:
    """conlleval.pl's `startOfChunk`."""
    if (previous[0], tag[0]) in _CHUNK_BEGINS or tag[0] in ("[", "]"):
        return True
    return tag[0] not in ("O", ".") and previous[1] != tag[1]


def _parsed_tag(tag: str) -> Tag:
    match = re.fullmatch(r"([^-]*)-(.*)", tag)
    return (match[1], match[2]) if match else (tag, "")


def _tag_pairs(gold: Sentences, predicted: Sentences) -> Iterator[tuple[Tag, Tag] | None]:
    """Yields the gold and answered tag of each word, and None after each sentence."""
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        for gold_tag, predicted_tag in zip(gold_tags, predicted_tags, strict=True):
            yield _parsed_tag(gold_tag), _parsed_tag(predicted_tag)
        yield None


def conlleval(gold: Sentences, predicted: Sentences) -> dict[str, tuple[int, int, int]]:
    """The main loop of conlleval.pl.

    Gold, answered and right chunks by type, and words and right words as `tags`.

    It never lists chunks: it walks over the words of the whole file and counts beginnings and
    common ends.
    """
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    in_correct_chunk = False
    last = NO_TAG
    last_answer = NO_TAG
    for pair in _tag_pairs(gold, predicted):
        tag, answer = pair or (NO_TAG, NO_TAG)

        gold_ends = _ends_chunk(last, tag)
        answer_ends = _ends_chunk(last_answer, answer)
        if in_correct_chunk:
            if gold_ends and answer_ends and last_answer[1] == last[1]:
                in_correct_chunk = False
                counts[last[1]][2] += 1
            elif gold_ends != answer_ends or answer[1] != tag[1]:
                in_correct_chunk = False

        gold_begins = _begins_chunk(last, tag)
        answer_begins = _begins_chunk(last_answer, answer)
        if gold_begins and answer_begins and answer[1] == tag[1]:
            in_correct_chunk = True
        if gold_begins:
            counts[tag[1]][0] += 1
        if answer_begins:
            counts[answer[1]][1] += 1

        if pair:
            counts["tags"][0] += 1
            counts["tags"][2] += tag == answer
        last = tag
        last_answer = answer
    counts["tags"]  # a file without words has counts, too
    return {kind: tuple(count) for kind, count in counts.items()}


def sentences_of(tags: list[str]) -> st.SearchStrategy[tuple[Sentences, Sentences]]:
    """Gold and answered tags of up to four sentences, in any order that a scheme allows or not."""
    pair = st.tuples(st.sampled_from(tags), st.sampled_from(tags))
    sentence = st.lists(pair, min_size=0, max_size=9)
    return st.lists(sentence, min_size=1, max_size=4).map(_gold_and_predicted)


def _gold_and_predicted(
    sentences: list[list[tuple[str, str]]],
) -> tuple[Sentences, Sentences]:
    gold = []
    predicted = []
    for sentence in sentences:
        gold.append([gold_tag for gold_tag, _ in sentence])
        predicted.append([predicted_tag for _, predicted_tag in sentence])
    return gold, predicted


@settings(max_examples=40, deadline=None)
@given(
    sentences_of(
        ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-GPE-X", "I-GPE-X", "B", "I", "B-", "I-"]
    )
)
def test_counts_are_those_of_conlleval_for_every_sequence_of_b_i_and_o(pair):
    gold, predicted = pair
    expected = conlleval(gold, predicted)
    n_words, _, n_correct_words = expected.pop("tags")
    n_gold = sum(counts[0] for counts in expected.values())
    n_predicted = sum(counts[1] for counts in expected.values())
    n_correct = sum(counts[2] for counts in expected.values())

    rows = scores_by_type(gold, predicted)
    totals = np.sum(entity_counts(gold, predicted), axis=0)
    metrics = tagging_metrics(gold, predicted, resamples=100, seed=1, entities=True)

    assert {row.type: (row.gold, row.predicted, row.correct) for row in rows} == expected
    assert totals.tolist() == [n_gold, n_predicted, n_correct]
    precision = n_correct / n_predicted if n_predicted else 0
    recall = n_correct / n_gold if n_gold else 0
    assert metrics["entity_precision"].value == precision
    assert metrics["entity_recall"].value == recall
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
    assert metrics["entity_f1"].value == pytest.approx(f1, abs=1e-12)
    accuracy = n_correct_words / n_words if n_words else 0
    assert metrics["accuracy"].value == accuracy


@settings(deadline=None)
@given(sentences_of(["O", "E-PER", "I-PER", "E-LOC", "I-LOC"]))
def test_counts_are_those_of_conlleval_for_entities_marked_at_their_ends(pair):
    expected = conlleval(*pair)
    expected.pop("tags")
    assert {
        row.type: (row.gold, row.predicted, row.correct) for row in scores_by_type(*pair)
    } == expected


def with_ends(tags: list[str]) -> list[tuple[str, int, int]]:
    """Entities where S stands alone and E ends.

    What is open goes on only under I or E of its type.
    """
    results: list[tuple[str, int, int]] = []
    is_open = False
    for i, tag in enumerate(tags):
        letter, _, kind = tag.partition("-")
        if letter == "O":
            is_open = False
            continue
        if letter in "BS" or not is_open or results[-1][0] != kind:
            results.append((kind, i, i))
        results[-1] = (kind, results[-1][1], i + 1)
        is_open = letter not in "ES"
    return results


@settings(deadline=None)
@given(st.lists(st.sampled_from([f"{p}-{t}" for p in "BIES" for t in "XY"] + ["O"]), max_size=12))
def test_with_s_and_e_what_is_open_ends_there(tags):
    assert entities(tags) == with_ends(tags)
    letters = {"E": "L", "S": "U"}
    other = [letters.get(tag[0], tag[0]) + tag[1:] for tag in tags]
    assert entities(other) == entities(tags), "BILOU is BIOES with other letters"


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-A O", [("A", 0, 2)]),
        ("O I-A I-B", [("A", 1, 2), ("B", 2, 3)]),
        ("B-A B-A I-A", [("A", 0, 1), ("A", 1, 3)]),
        ("B-A I-B I-A", [("A", 0, 1), ("B", 1, 2), ("A", 2, 3)]),
        ("S-A S-A B-A E-A", [("A", 0, 1), ("A", 1, 2), ("A", 2, 4)]),
        ("O O", []),
        ("", []),
    ],
)
def test_entities_by_hand(tags, expected):
    assert entities(tags.split()) == expected


def test_an_entity_ends_with_its_sentence():
    gold = [["B-A"], ["I-A"]]
    predicted = [["B-A"], ["I-A"]]

    first, second = entity_counts(gold, predicted)

    assert first == (1, 1, 1)
    assert second == (1, 1, 1)


def test_one_table_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "O"]]
    answers = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "O"]]

    rows = {row.type: row for row in scores_by_type(gold, answers)}

    assert rows["PER"].precision == 0.5
    assert rows["PER"].recall == 1.0
    assert rows["PER"].f1 == pytest.approx(2 / 3)
    assert rows["LOC"].precision == 0.0
    assert rows["LOC"].recall == 0.0
    assert rows["LOC"].f1 == 0.0

    metrics = tagging_metrics(gold, answers, resamples=200, seed=0, entities=True)

    assert metrics["entity_f1"].value == pytest.approx(0.4)
    assert metrics["accuracy"].value == pytest.approx(4 / 6)
    assert {metric.n for metric in metrics.values()} == {2}
    names_by_type = {name for name in metrics if ":" in name}
    names_of_persons = {f"{name}:PER" for name in ENTITY_METRICS}
    names_of_locations = {f"{name}:LOC" for name in ENTITY_METRICS}
    assert names_by_type == names_of_persons | names_of_locations
    assert metrics["entity_f1:PER"].value == rows["PER"].f1


def test_intervals_hold_the_value_repeat_and_narrow_with_more_sentences():
    gold = [
        ["B-A", "O", "B-A", "O"],
        ["O", "B-B", "I-B", "O"],
        ["O", "O", "B-A", "I-A"],
    ]
    answers = [
        ["B-A", "O", "O", "O"],
        ["O", "B-B", "I-B", "O"],
        ["O", "B-A", "B-A", "I-A"],
    ]
    drawing = {"resamples": 500, "seed": 3, "entities": True}

    of_few = tagging_metrics(gold * 5, answers * 5, **drawing)
    of_few_again = tagging_metrics(gold * 5, answers * 5, **drawing)
    of_many = tagging_metrics(gold * 80, answers * 80, **drawing)

    assert of_few == of_few_again
    for name in ("accuracy", *ENTITY_METRICS):
        few = of_few[name]
        many = of_many[name]
        assert few.low < few.value < few.high
        assert many.high - many.low < 0.5 * (few.high - few.low)
        assert many.value == pytest.approx(few.value)


def test_perfect_answers_leave_room_below():
    gold = [["B-A", "O", "O"]] * 30
    metrics = tagging_metrics(gold, gold, resamples=100, seed=0, entities=True)
    assert all(
        metric.value == metric.high == 1.0 and 0.8 < metric.low < 1.0 for metric in metrics.values()
    )


def test_parts_of_speech_have_accuracy_alone():
    assert list(tagging_metrics([["NOUN"]], [["VERB"]], resamples=100, seed=0, entities=False)) == [
        "accuracy"
    ]


def test_sentences_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="sentence 1: 1 gold tags and 2 answers"):
        entity_counts([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(ValueError, match="shorter"):
        entity_counts([["O"]], [])


def test_one_sentence_says_nothing_of_how_sentences_differ():
    sentence = {"gold": ["O"] * 30 + ["B-PER"], "prediction": ["O"] * 31}
    for count, has_interval in ((1, False), (2, True)):
        lines = [{"id": str(number), **sentence} for number in range(count)]
        metric = (
            answer_type("token-classification")
            .from_lines(lines)
            .contributions(lines, "accuracy")
            .metric()
        )
        assert metric.value == 30 / 31
        assert (metric.low is not None) == has_interval
