"""Rows that stand twice: exactly or nearly, inside a split or in two of them, with one label or with several."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from bertctl.checking.findings import SHOWN_EXAMPLES, Example, Finding, FindingRules, examples_at, shorten
from bertctl.checking.near import SIMILARITY, near_duplicates, similarity
from bertctl.checking.subject import BETWEEN_FIELDS, Subject
from bertctl.data.groups import normalised
from bertctl.words import count_of

_RULES = FindingRules("duplicates")

_LOOKED_UP, _READ = 500, 2_000_000_000  # texts that are looked up, and letters that are read for it: 1 to 2 s
_PHRASE = 3  # words from which a text that stands inside another one says something
_CONTAINED = 0.05  # share of the texts from which scores are too good
_COPIED = 0.9  # share of a split's rows from which it is the training file again
_MANY = 0.01  # share of a split's rows from which repeats inside it weigh on training

Place = tuple[str, int]
"""Split and row."""


Groups = Mapping[str, Sequence[Place]]
"""The rows of all splits by what they say: key -> its rows, the splits in order."""


def check_duplicates(subject: Subject) -> Iterator[Finding]:
    """Yields exact and near duplicates, inside each split and across each two; texts with several labels."""
    groups: dict[str, list[Place]] = defaultdict(list)
    for split in subject.splits:
        for index, key in enumerate(subject.keys[split]):
            if key.strip(f" {BETWEEN_FIELDS}"):
                groups[key].append((split, index))
    yield from _exact_inside(subject, groups)
    yield from _exact_across(subject, groups)
    yield from _conflicts(subject, groups)
    yield from _near(subject, groups)
    yield from _contained(subject)
    yield from _shared_contexts(subject)


def _exact_inside(subject: Subject, groups: Groups) -> Iterator[Finding]:
    repeats: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for places in groups.values():
        first: dict[str, int] = {}
        for split, index in places:
            if split in first:
                repeats[split].append((index, first[split]))
            else:
                first[split] = index
    for split, found in repeats.items():
        rows = subject.splits[split]
        found.sort()
        twins = _twins(subject, [((split, index), (split, first)) for index, first in found])
        severity = "warning" if len(found) > _MANY * len(rows) else "note"
        yield _RULES.finding("duplicate", split, (len(found), len(rows)), twins, severity=severity)


def _exact_across(subject: Subject, groups: Groups) -> Iterator[Finding]:
    for one, other in combinations(subject.splits, 2):
        found: list[tuple[Place, Place]] = []
        for places in groups.values():
            earlier = next((place for place in places if place[0] == one), None)
            if earlier is not None:
                found += [(place, earlier) for place in places if place[0] == other]
        if found:
            found.sort()
            rows = subject.splits[other]
            says = f"are in {one} too, ignoring case and spacing{_with_another_label(subject, found)}"
            severity, remedy = None, _remedy(one, other)
            if one == "train" and len(found) > _COPIED * len(rows):
                severity, otherwise = "error", "rows of train are then held out. Scores on these say nothing."
                remedy = f"Give rows of their own for {other}, or no file: {otherwise}"
            of, twins = (len(found), len(rows)), _twins(subject, found)
            yield _RULES.finding(
                "duplicate-across-splits", other, of, twins, says=says, severity=severity, remedy=remedy
            )


def _conflicts(subject: Subject, groups: Groups) -> Iterator[Finding]:
    repeated = [places for places in groups.values() if len(places) > 1]
    conflicts = [places for places in repeated if len({_answer(subject, place) for place in places} - {None}) > 1]
    if not conflicts:
        return
    conflicts.sort(key=lambda places: places[0][1])
    examples: list[Example] = []
    for places in conflicts[:SHOWN_EXAMPLES]:
        shown = "; ".join(f"{_shown_answer(subject, p)} at {_place(subject, p)}" for p in places[1:4])
        split, index = places[0]
        first = f"{shorten(_text(subject, places[0]), limit=60)} = {_shown_answer(subject, places[0])}"
        examples.append(Example(subject.splits[split].where(index), f"{first}; {shown}"))
    splits, of = {place[0] for places in conflicts for place in places}, (len(conflicts), len(groups))
    message = f"{count_of(*of, 'different text')} occur with different labels"
    remedy = "Decide on one label for each: no model can be right on both."
    if "labels" in subject.checks and not subject.several_labels:
        remedy += " If both are meant, make it multi-label (--set text_classification.multi_label=true)."
    where = splits.pop() if len(splits) == 1 else ""
    yield _RULES.finding("conflicting-labels", where, of, tuple(examples), message=message, remedy=remedy)


def _near(subject: Subject, groups: Groups) -> Iterator[Finding]:
    """Yields each row's most similar twin in its own split, and in each split before it."""
    keys = list(groups)
    order = {split: number for number, split in enumerate(subject.splits)}
    nearest: dict[tuple[str, str], dict[int, tuple[float, Place]]] = defaultdict(dict)
    asks = "answers" in subject.checks
    # Questions on one paragraph would all look alike with it, so they are compared by themselves first.
    for first, second, alike in near_duplicates([key.split(BETWEEN_FIELDS)[0] for key in keys] if asks else keys):
        if not _alike_in_each_field(keys[first], keys[second]):
            continue
        for a, b in product(groups[keys[first]], groups[keys[second]]):
            earlier, later = sorted((a, b), key=lambda place: (order[place[0]], place[1]))
            of_row = nearest[earlier[0], later[0]]
            if alike > of_row.get(later[1], (0.0, later))[0]:
                of_row[later[1]] = (alike, earlier)
    for (one, other), found in sorted(nearest.items(), key=lambda item: [order[split] for split in item[0]]):
        rows = subject.splits[other]
        pairs: list[tuple[Place, Place]] = [((other, index), twin) for index, (_, twin) in sorted(found.items())]
        counts, examples = (len(found), len(rows)), _twins(subject, pairs, both=True)
        # Sentences that differ by a word differ in their tags, too.
        differing = "" if "tags" in subject.checks else _with_another_label(subject, pairs)
        if one == other:
            says = f"are nearly the same as an earlier row of it{differing}"
            yield _RULES.finding("near-duplicate", other, counts, examples, says=says)
        else:
            says = f"are nearly the same as a row of {one}{differing}"
            remedy = f"{_remedy(one, other)} Better still, split by source (document, author, thread) and not by row."
            code = "near-duplicate-across-splits"
            yield _RULES.finding(code, other, counts, examples, says=says, remedy=remedy)


def _alike_in_each_field(one: str, other: str) -> bool:
    """Whether all fields are alike: two questions on the same sentence are two examples, however long it is."""
    fields, others = one.split(BETWEEN_FIELDS), other.split(BETWEEN_FIELDS)
    if len(fields) == 1 or len(fields) != len(others):
        return len(fields) == len(others)
    return all(a == b or similarity(a, b) >= SIMILARITY for a, b in zip(fields, others, strict=True))


def _shared_contexts(subject: Subject) -> Iterator[Finding]:
    """Yields paragraphs that are read in training and in a later split."""
    with_context = list(subject.splits) if "answers" in subject.checks else []
    contexts = {
        split: {normalised(context): i for i, context in reversed(list(enumerate(subject.texts[split]["context"])))}
        for split in with_context
    }
    for one, other in combinations(with_context, 2):
        shared = {key: index for key, index in contexts[other].items() if key and key in contexts[one]}
        if shared:
            show, says = subject.texts[other]["context"].__getitem__, f"are in {one} too"
            examples = examples_at(subject.splits[other], sorted(shared.values()), show)
            counts = (len(shared), len(contexts[other]))
            yield _RULES.finding("context-across-splits", other, counts, examples, noun="paragraph", says=says)


def _contained(subject: Subject) -> Iterator[Finding]:
    """Yields texts that stand, whole, inside longer ones that are trained on, which no similarity of both shows.

    Where there is nothing but training rows, in other ones of them: some of these rows will be held out.
    """
    train = subject.texts["train"] if "train" in subject.splits else {}
    if len(train) != 1:
        return
    [column] = train.values()
    texts = [f" {normalised(text)} " for text in column]
    whole, copies = "\n".join(texts), Counter(texts)
    for split in [name for name in subject.splits if name != "train"] or ["train"]:
        [column] = subject.texts[split].values()
        many = min(_LOOKED_UP, max(1, _READ // (len(whole) + 1)))
        looked = [int(i) for i in np.linspace(0, len(column) - 1, min(many, len(column)))]
        keys = {i: f" {normalised(column[i])} " for i in looked}
        found = [i for i, key in keys.items() if len(key.split()) >= _PHRASE and whole.count(key) > copies[key]]
        if len(found) > _CONTAINED * len(looked):
            code = "contained" if split == "train" else "contained-across-splits"
            examples = examples_at(subject.splits[split], found, column.__getitem__)
            noun = "row" if len(looked) == len(column) else "sampled row"
            yield _RULES.finding(code, split, (len(found), len(looked)), examples, noun=noun)


def _twins(subject: Subject, pairs: Sequence[tuple[Place, Place]], *, both: bool = False) -> tuple[Example, ...]:
    """Returns rows and the earlier rows that they are like; `both`: with the text of those too."""
    found: list[Example] = []
    for place, twin in pairs[:SHOWN_EXAMPLES]:
        text = shorten(_text(subject, place), limit=80)
        other = f"{shorten(_text(subject, twin), limit=80)} at " if both else "as at "
        there = _place(subject, twin)
        found.append(Example(subject.splits[place[0]].where(place[1]), f"{text} / {other}{there}"))
    return tuple(found)


def _remedy(one: str, other: str) -> str:
    if one == "train":
        return "Take them out of train: a score on rows that were trained on is too good."
    return f"Take them out of {one}: settings that were chosen on {one} fit {other} too well."


def _with_another_label(subject: Subject, pairs: Sequence[tuple[Place, Place]]) -> str:
    differing = sum(
        one is not None and other is not None and one != other
        for one, other in ((_answer(subject, a), _answer(subject, b)) for a, b in pairs)
    )
    return f"; {differing:,} with another label" if differing else ""


def _answer(subject: Subject, place: Place) -> Hashable | None:
    """Returns what is to be learned of a row, comparable; None where there is nothing (no label, a score, a span)."""
    split, index = place
    rows = subject.splits[split]
    if not rows.has("label") or "scores" in subject.checks:
        return None
    names = subject.label_sets[split]
    if names is not None:
        return tuple(sorted(names[index])) or None
    value = rows.columns["label"][index]
    if isinstance(value, list | tuple):
        return tuple(map(str, value))
    return value if isinstance(value, Hashable) else None


def _shown_answer(subject: Subject, place: Place) -> str:
    answer: Any = _answer(subject, place)
    return shorten(" ".join(map(str, answer)) if isinstance(answer, tuple) else str(answer), limit=40)


def _text(subject: Subject, place: Place) -> str:
    split, index = place
    fields = (str(column[index]).replace(BETWEEN_FIELDS, " / ").strip() for column in subject.texts[split].values())
    return " | ".join(fields)


def _place(subject: Subject, place: Place) -> str:
    """Returns file and line without the folder, for a second place in one line."""
    return subject.splits[place[0]].where(place[1]).rpartition("/")[2]
