"""Tagged words.

It finds tags and words that don't match, broken schemes, entities of nothing, and words off their
offsets.

A row has `words` and `label` (a tag for each word); optionally `text` with `offsets` (start and end
of each word in it).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from bertctl.checking.findings import (
    NO_WORD,
    Example,
    Finding,
    FindingRules,
    Places,
    listed,
    shorten,
)
from bertctl.checking.labels import RARE
from bertctl.checking.subject import Subject
from bertctl.data.label_cells import spelt_alike
from bertctl.data.rows import Rows
from bertctl.data.tag_schemes import Scheme, TagKind, may_follow, tag_kind
from bertctl.errors import DataError
from bertctl.metrics.tagging import entities
from bertctl.words import count_of

_RULES = FindingRules("tags")

_TAG = re.compile(r"([BIESLU])[-_](.+)", re.DOTALL)


class TaggedEntity(NamedTuple):
    """Entity in a row of tagged words.

    Attributes:
        row: Number of the row.
        type: Type of the entity, without the prefix of its tags, such as `person`.
        words: Words of the entity.
    """

    row: int
    type: str
    words: tuple[str, ...]


def check_tagging(subject: Subject) -> Iterator[Finding]:
    """Yields the faults of words, their offsets, their tags and their entities."""
    types: dict[str, Counter[str]] = {}
    for split, rows in subject.splits.items():
        if not rows.has("words"):  # texts with spans of which no words could be made
            continue
        yield from _words(rows, split)
        yield from _offsets(rows, split)
        if rows.has("label"):
            yield from _tags(rows, split)
            entity_types = Counter(entity.type for entity in tagged_entities(rows))
            if entity_types:
                types[split] = entity_types
            else:
                # The tags are of another kind, such as parts of speech: each is a type.
                types[split] = _plain_tags(rows)
    yield from _types(subject, types)


def tagged_entities(rows: Rows) -> list[TaggedEntity]:
    """Returns the entities that have a type, by the rules that they are scored by.

    If a row has more tags than words, which is a fault of its own, the surplus is left out.
    """
    tagged: list[TaggedEntity] = []
    for row, (words, tags) in enumerate(
        zip(rows.columns["words"], rows.columns["label"], strict=True)
    ):
        tags_of_words = [str(tag) for tag in tags][: len(words)]
        for kind, start, end in entities(tags_of_words):
            if kind:
                tagged.append(TaggedEntity(row, kind, tuple(map(str, words[start:end]))))
    return tagged


def split_tag(tag: object) -> tuple[str, str]:
    """Returns the prefix and the type of an entity's tag: `B-person` -> ("B", "person").

    Of `O`, and of anything that is no entity tag, both are empty.
    """
    match = _TAG.fullmatch(str(tag))
    if match:
        return (match[1], match[2])
    return ("", "")


def _plain_tags(rows: Rows) -> Counter[str]:
    """Returns how often each tag occurs, for tags that aren't entities, such as parts of speech."""
    tags = chain.from_iterable(rows.columns["label"])
    return Counter(str(tag) for tag in tags if tag not in ("O", "", None))


def _words(rows: Rows, split: str) -> Iterator[Finding]:
    """Yields rows without words, blank words, and words with a space inside."""
    problems = Places(_RULES, rows, split)
    total = 0
    for row, words in enumerate(rows.columns["words"]):
        total += len(words)
        if not len(words):
            problems.add("empty-sentence", row, "no words")
        for word in words:
            text = str(word)
            if not text.strip():
                problems.add("blank-word", row, f"{word!r} in: {' '.join(map(str, words))}")
            elif any(c.isspace() for c in text):
                problems.add("space-in-word", row, f"{word!r}")
    yield from problems.finding("empty-sentence", len(rows))
    for code in ("blank-word", "space-in-word"):
        yield from problems.finding(code, total)


def _offsets(rows: Rows, split: str) -> Iterator[Finding]:
    """Yields the words that the text does not have at their offsets."""
    if not rows.has("text") or not rows.has("offsets"):
        return
    problems = Places(_RULES, rows, split)
    total = 0
    for row, (text, words, offsets) in enumerate(
        zip(rows.columns["text"], rows.columns["words"], rows.columns["offsets"], strict=True)
    ):
        if text is None or offsets is None:
            continue
        total += len(words)
        if len(offsets) != len(words):
            problems.add("word-off-offset", row, f"{len(words)} words, {len(offsets)} offsets")
            continue
        for word, (start, end) in zip(words, offsets, strict=True):
            if text[start:end] != word:
                problems.add(
                    "word-off-offset", row, f"{word!r}, but {start} to {end} is {text[start:end]!r}"
                )
    yield from problems.finding("word-off-offset", total)


def _tags(rows: Rows, split: str) -> Iterator[Finding]:
    """Yields the faults of tags that mark entities; other tags have no scheme to break."""
    tags = Counter(map(str, chain.from_iterable(rows.columns["label"])))
    kind = _tag_kind(rows)
    if kind is not None and not kind.entities:
        return  # parts of speech and the like: tags without a scheme
    yield from _scheme(rows, split, tags, kind)
    yield from _entities(rows, split)


def _tag_kind(rows: Rows) -> TagKind | None:
    """Returns what training takes the tags for; None for tags of no scheme, which it refuses."""
    try:
        return tag_kind((list(map(str, tags)) for tags in rows.columns["label"]), rows.where)
    except DataError:
        return None


def _nearest_scheme(kind: TagKind | None) -> Scheme | None:
    """Returns the scheme that the tags follow, or else the one with the fewest violations.

    Args:
        kind: What training takes the tags for. It is None if training refuses them; then the result
            is None, too.
    """
    if kind is None:
        return None
    if kind.scheme is not None:
        return kind.scheme
    # `breaks` has the violations of each scheme that has the prefixes of the tags (B-, I-, ...).
    by_violations = sorted(kind.breaks, key=lambda scheme: kind.breaks[scheme].count)
    if by_violations:
        return by_violations[0]
    return "BIOES"  # no scheme has all these prefixes


def _scheme(rows: Rows, split: str, tags: Counter[str], kind: TagKind | None) -> Iterator[Finding]:
    """Yields tags that are not PREFIX-TYPE, and tags that may not follow the tag before them.

    Args:
        rows: The split's rows.
        split: Its name.
        tags: How often each tag occurs.
        kind: What training takes the tags for.
    """
    problems = Places(_RULES, rows, split)
    scheme = _nearest_scheme(kind)
    total = sum(count for tag, count in tags.items() if tag != "O")
    malformed = {tag for tag in tags if tag != "O" and tag.strip() and not split_tag(tag)[1]}
    for row, row_tags in enumerate(rows.columns["label"]):
        previous_tag = "O"
        for i, tag in enumerate(row_tags):
            if i < len(rows.columns["words"][row]):
                word = rows.columns["words"][row][i]
            else:
                word = ""
            if str(tag) in malformed:
                problems.add("malformed-tag", row, f"{tag!r} at {word!r}")
            elif scheme and not may_follow(scheme, previous_tag, str(tag)):
                previous_shown = row_tags[i - 1] if i else "nothing"
                excerpt = f"{tag} at {word!r} follows {previous_shown}"
                problems.add("tag-scheme", row, f"{excerpt}, which {scheme} does not allow")
            previous_tag = str(tag)
    yield from problems.finding(
        "malformed-tag", total, says=f"are neither O nor PREFIX-TYPE ({listed(sorted(malformed))})"
    )
    yield from problems.finding("tag-scheme", total)


def _entities(rows: Rows, split: str) -> Iterator[Finding]:
    """Yields entities that are only punctuation or have a blank word at an end.

    It also yields that no row of the split has an entity.
    """
    problems = Places(_RULES, rows, split)
    entities = tagged_entities(rows)
    for entity in entities:
        text = " ".join(entity.words)
        excerpt = f"{entity.type}: {text!r}"
        if text.strip() and NO_WORD.fullmatch(text):
            problems.add("punctuation-entity", entity.row, excerpt)
        elif any(not word.strip() for word in (entity.words[0], entity.words[-1])):
            problems.add("blank-entity", entity.row, excerpt)
    yield from problems.finding("blank-entity", len(entities))
    yield from problems.finding("punctuation-entity", len(entities))
    sentences = sum(len(words) > 0 for words in rows.columns["words"])
    if not entities and sentences:
        message = f"not one of the {len(rows):,} rows of {split} has an entity"
        if split == "train":
            severity = "error"
        else:
            severity = "warning"
        yield _RULES.finding(
            "no-entity",
            split,
            (len(rows), len(rows)),
            message=message,
            severity=severity,
        )


def _types(subject: Subject, types: Mapping[str, Counter[str]]) -> Iterator[Finding]:
    """Yields entity types that are rare, spelt in two ways, or missing on one side."""
    train = types.get("train")
    if not train:
        return
    rare = [
        f"{name!r}: {count}"
        for name, count in sorted(train.items(), key=lambda item: item[1])
        if count < RARE
    ]
    # In small data every type is rare: a finding is for types that are rarer than most.
    has_enough_entities = train.total() > RARE * len(train)
    if rare and has_enough_entities:
        counts = (len(rare), len(train))
        rare_names = ", ".join(rare[:8])
        message = (
            f"{count_of(*counts, 'type')} stand fewer than {RARE} times in train ({rare_names})"
        )
        yield _RULES.finding("rare-label", "train", counts, message=message)
    total: Counter[str] = sum(types.values(), Counter())
    for usual, unusual in spelt_alike(total):
        count = sum(total[name] for name in unusual)
        differ = "differ only in case or spacing, and count as different types"
        message = f"{listed(unusual)} ({count:,} times) and {usual!r} {differ}"
        remedy = f"Write them all as {usual!r}."
        yield _RULES.finding(
            "label-spelling",
            "",
            (count, total.total()),
            message=message,
            remedy=remedy,
        )
    for split, type_counts in types.items():
        only_in_split = [name for name in type_counts if name not in train]
        only_in_train = [name for name in train if name not in type_counts]
        if only_in_split:
            counts = (sum(type_counts[name] for name in only_in_split), type_counts.total())
            examples = _with_types(subject.splits[split], set(only_in_split))
            message = f"{split} has types that train has not: {listed(only_in_split)}"
            yield _RULES.finding(
                "label-not-in-train",
                split,
                counts,
                examples,
                message=message,
            )
        if only_in_train and type_counts:
            counts = (len(only_in_train), len(train))
            message = f"{split} has none of the type {listed(only_in_train)}"
            remedy = f"How well it is learned can't be seen on {split}: split the rows anew."
            yield _RULES.finding(
                "label-only-in-train",
                split,
                counts,
                message=message,
                remedy=remedy,
            )


def _with_types(rows: Rows, names: set[str]) -> tuple[Example, ...]:
    """Returns the first entities of these types as examples."""
    return tuple(
        Example(rows.where(entity.row), f"{entity.type}: {shorten(' '.join(entity.words))}")
        for entity in tagged_entities(rows)
        if entity.type in names
    )[:5]
