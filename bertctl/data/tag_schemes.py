"""How tags mark entities: IOB1, IOB2, BIOES, BILOU.

It says which of them a file has, and writes tags in one of them.

words   John lives in New   York  City  London
IOB1    I-P  O     O  I-L   I-L   I-L   B-L      B only where an entity follows another of its type
IOB2    B-P  O     O  B-L   I-L   I-L   B-L      B at each beginning
BIOES   S-P  O     O  B-L   I-L   E-L   S-L      E at the end, S alone
BILOU   U-P  O     O  B-L   I-L   L-L   U-L      the same with other letters
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from bertctl.errors import DataError, WholeFileError

Scheme = Literal["IOB1", "IOB2", "BIOES", "BILOU"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

_LETTERS = {scheme: frozenset(scheme) - {"1", "2"} for scheme in SCHEMES}
_ALL_LETTERS = frozenset("BIOESLU")
_OUTSIDE = frozenset({"o", "0", "_", "-", "*", "out", "outside", "other", "none", "null"})
"""How O is written elsewhere, in small letters."""
_PREFIXED = re.compile(
    r"(?P<letter>[BIESLUMbieslum])[-_:./|~ \u2010-\u2015](?P<type>\S.*)", re.DOTALL
)
_SUFFIXED = re.compile(r"(?P<type>\S{2,})[-_:./|~\u2010-\u2015](?P<letter>[BIESLUM])", re.DOTALL)
_SCHEMES_BY_USE: tuple[Scheme, ...] = ("IOB2", "IOB1", "BIOES", "BILOU")
_MOST_EXCEPTIONS = 0.05
"""Share of the tags of entities that may break a scheme which the others follow: CoNLL-2003 has 2
such in 34,043."""


@dataclass(frozen=True)
class Break:
    """Where tags leave a scheme.

    Attributes:
        count: how often they leave it.
        before: the first tag that may not be followed by `tag`.
        tag: that tag. "O" is also the beginning and the end of a sentence.
    """

    count: int
    before: str
    tag: str


@dataclass(frozen=True)
class TagKind:
    """What the tags of a file are.

    Attributes:
        entities: whether they mark entities; else they are plain names, such as parts of speech.
        scheme: the scheme that nearly all tags follow; None for plain names, and for entities that
            follow no scheme.
        breaks: how that scheme is left, or, where there is none, the schemes whose letters fit.
        marks: how many tags mark a word of an entity.
        has_outside: of plain names, whether most are O, as where entities are marked.
    """

    entities: bool
    scheme: Scheme | None = None
    breaks: Mapping[Scheme, Break] = field(default_factory=dict)
    marks: int = 0
    has_outside: bool = False

    @property
    def answered(self) -> Scheme | None:
        """The scheme in which a model's predictions are written; None for plain tags.

        Entities of no pure scheme are written as IOB2.
        """
        if self.entities:
            return self.scheme or "IOB2"
        return None

    def sentence(self) -> str:
        """Returns the kind in words: `tags in IOB2, but of 34043 tags 2 times not ...`."""
        if not self.entities:
            if self.has_outside:
                hint = "; if they mark entities, write B-TYPE and I-TYPE"
            else:
                hint = ""
            return f"plain tags (none begins with B- or I-): scored word by word{hint}"
        exceptions = "; ".join(
            f"{broken.count} times not {scheme}, first {broken.tag} after {broken.before}"
            for scheme, broken in self.breaks.items()
        )
        if self.scheme and exceptions:
            return f"tags in {self.scheme}, but of {self.marks} tags {exceptions}"
        if self.scheme:
            return f"tags in {self.scheme}"
        return (
            f"tags in no pure scheme ({exceptions or 'prefixes of several'}): "
            "they are read by conlleval's rules and written as IOB2"
        )


def tag_kind(sentences: Iterable[Sequence[str]], where: Callable[[int], str]) -> TagKind:
    """Finds which scheme tags are in: the one that all follow, or all but a few.

    Args:
        sentences: one tag per word; of a whole file, since a few of its rows can look like another
            scheme.
        where: returns the file and line of a sentence, for messages.

    Raises:
        DataError: some tags are of a scheme and some are not, or have prefixes of a scheme that
            isn't known here.
    """
    # Which tag follows which decides the scheme. A sentence begins as if an O were before it, and
    # ends as if an O came next.
    bigrams: Counter[tuple[str, str]] = Counter()
    first_place: dict[str, tuple[int, int]] = {}  # tag -> first sentence with it, and word from 1
    n_sentences = 0
    for row, tags in enumerate(sentences):
        n_sentences += 1
        bigrams.update(zip(["O", *tags], [*tags, "O"], strict=True))
        has_new_tags = not first_place.keys() >= set(tags)
        if has_new_tags:
            for word, tag in enumerate(tags, start=1):
                first_place.setdefault(tag, (row, word))
    if not _mark_entities(set(first_place)):
        _refuse_other_writing(first_place, where)
        return TagKind(entities=False, has_outside=_is_mostly_outside(bigrams, n_sentences))
    _refuse_strangers(first_place, where)

    n_marks = sum(times for (_, tag), times in bigrams.items() if tag != "O")
    letters = {tag.partition("-")[0] for tag in first_place} | {"O"}
    has_end_letters = not letters <= _LETTERS["IOB2"]  # E, S, L or U
    breaks: dict[Scheme, Break] = {}
    for scheme in _SCHEMES_BY_USE:
        # Without end letters nothing speaks for BIOES or BILOU.
        is_plausible = has_end_letters or scheme in ("IOB1", "IOB2")
        if is_plausible and letters <= _LETTERS[scheme]:
            broken = _break(scheme, bigrams)
            if broken is None:
                return TagKind(entities=True, scheme=scheme, marks=n_marks)
            breaks[scheme] = broken
    # A scheme that nearly all tags follow counts, too: the one that they leave least often.
    nearest = min(breaks, key=lambda scheme: breaks[scheme].count, default=None)
    if nearest and breaks[nearest].count <= _MOST_EXCEPTIONS * n_marks:
        return TagKind(
            entities=True,
            scheme=nearest,
            breaks={nearest: breaks[nearest]},
            marks=n_marks,
        )
    return TagKind(entities=True, breaks=breaks, marks=n_marks)


def _is_mostly_outside(bigrams: Mapping[tuple[str, str], int], n_sentences: int) -> bool:
    """Returns whether more than half of the words have the tag O.

    Args:
        bigrams: Tag and next tag -> how often. After the last word of a sentence comes an O, which
            is no word.
        n_sentences: Number of sentences.
    """
    n_words = sum(bigrams.values()) - n_sentences
    n_outside = sum(times for (_, tag), times in bigrams.items() if tag == "O") - n_sentences
    return 2 * n_outside > n_words


def write_tags(spans: Iterable[tuple[str, int, int]], length: int, scheme: Scheme) -> list[str]:
    """Returns entities as tags: `("PER", 0, 2)` of 3 words -> `["B-PER", "I-PER", "O"]` in IOB2.

    Args:
        spans: type, first word, word after the last one; in order, none over another.
        length: words of the sentence.
        scheme: the tags' scheme.
    """
    tags = ["O"] * length
    last_type = ""
    last_end = -1
    for kind, start, end in spans:
        touches = (last_type, last_end) == (kind, start)
        for i in range(start, end):
            letter = _letter(scheme, is_first=i == start, is_last=i == end - 1, touches=touches)
            tags[i] = f"{letter}-{kind}" if kind else letter
        last_type = kind
        last_end = end
    return tags


def _letter(scheme: Scheme, *, is_first: bool, is_last: bool, touches: bool) -> str:
    """Returns the prefix of a word of an entity, such as `B`.

    Args:
        scheme: The tags' scheme.
        is_first: Whether the word is the entity's first one.
        is_last: Whether it is its last one.
        touches: Whether an entity of the same type ends just before this entity.
    """
    if scheme == "IOB1":
        return "B" if is_first and touches else "I"
    if scheme == "IOB2":
        return "B" if is_first else "I"
    if scheme == "BIOES":
        alone = "S"
        end = "E"
    else:
        alone = "U"
        end = "L"
    if is_first:
        return alone if is_last else "B"
    return end if is_last else "I"


def entity_types(tags: Iterable[str]) -> list[str]:
    """Returns the types among tags, in their order, each once."""
    return list(dict.fromkeys(tag.partition("-")[2] for tag in tags if tag != "O"))


def _mark_entities(tags: set[str]) -> bool:
    """Returns whether tags are meant as marks of entities, not as names such as parts of speech.

    Marks of entities are `B-PER`, or `B`, `I` and `O` without any type.
    """
    with_letter = {tag for tag in tags if tag[:1].isupper() and tag[1:2] == "-"}  # `M-PER`, `B-`
    prefixes_of_types: set[str] = set()  # what is before the hyphen of `B-PER`
    for tag in tags:
        prefix, _, kind = tag.partition("-")
        if kind:
            prefixes_of_types.add(prefix)

    has_known_prefix = bool(prefixes_of_types & (_ALL_LETTERS - {"O"}))
    if has_known_prefix:
        # A part of speech may look like `S-NP`. Then other tags, such as `NP`, have no letter, and
        # none is `O`.
        all_have_letters = with_letter == tags
        return "O" in tags or all_have_letters

    if "O" not in tags:
        return False
    has_only_letters = tags <= _ALL_LETTERS  # `B`, `I` and `O`
    # The letter of `M-PER` is of no scheme. The tag counts as a mark here, and is refused later.
    has_unknown_prefix = any(len(tag) > len("B-") for tag in with_letter)
    return has_only_letters or has_unknown_prefix


def written_as_mark(tag: str) -> str | None:
    """Returns how schemes write a tag of an entity, whatever its own writing; None for other tags.

    `B_PER`, `B:PER` and `PER-B` -> `B-PER`, `b-per` -> `B-per`, `o` -> `O`.
    """
    if tag == "O" or tag.casefold() in _OUTSIDE:
        return "O"
    match = _PREFIXED.fullmatch(tag) or _SUFFIXED.fullmatch(tag)
    if match:
        return f"{match['letter'].upper()}-{match['type']}"
    return None


def as_marks(tags: Sequence[str]) -> tuple[str, ...]:
    """Returns all tags of a model as schemes write them (`B-PER` for `B_PER`).

    Tags that mark nothing stay as they are.
    """
    if _mark_entities(set(tags)):
        return tuple(tags)
    marks = [written_as_mark(tag) for tag in tags]
    are_marks = "O" in marks and None not in marks and any(mark != "O" for mark in marks)
    # Two tags of a model must not become one, such as `B_PER` and `PER-B`.
    are_distinct = len(set(marks)) == len(marks)
    if not are_marks or not are_distinct:
        return tuple(tags)
    return tuple(mark for mark in marks if mark is not None)


def _refuse_other_writing(
    first_place: Mapping[str, tuple[int, int]], where: Callable[[int], str]
) -> None:
    """Refuses tags that mark entities in another writing, which would be taken for parts of speech.

    Such tags are `b`, `i` and `o`, or mostly ones such as `B_PER`, `b-per` and `PER-B`.

    Args:
        first_place: Each tag -> the first sentence that has it, and the number of the word.
        where: Returns the file and line of a sentence, for messages.

    Raises:
        WholeFileError: With the first of them, and how to write it.
    """
    marks: dict[str, str] = {}  # `b_PER` -> `B-PER`, `o` -> `O`
    for tag in first_place:
        mark = written_as_mark(tag)
        if mark is not None:
            marks[tag] = mark
    if not _look_like_marks(first_place.keys(), marks):
        return

    misspelt = [tag for tag, mark in marks.items() if tag != mark]
    if not misspelt:  # `marks` has no `b` and `i`, which have no type
        misspelt = [tag for tag in first_place if tag.islower()]
    if not misspelt:
        return
    # The example is the first tag with a type, or else the first one.
    typed_misspelt = [tag for tag in misspelt if marks.get(tag, "O") != "O"]
    tag = min(typed_misspelt or misspelt, key=first_place.__getitem__)
    index, word = first_place[tag]
    mark = marks.get(tag, tag.upper())
    is_small = tag[:1].islower() and tag[1:] == mark[1:]
    if is_small:
        how = "in small letters"
    else:
        how = "written in another way"
    raise WholeFileError(
        f"{where(index)}, word {word}: the tag {tag!r} looks like one of a scheme, {how}",
        remedy="Write B-TYPE and I-TYPE, with capitals before a hyphen, and O outside of "
        f"entities: {mark} for {tag}.",
    )


def _look_like_marks(tags: Collection[str], marks: Mapping[str, str]) -> bool:
    """Returns whether tags mark entities, in whatever writing.

    Args:
        tags: The different tags.
        marks: Tag -> how schemes write it, for the tags that look like marks of entities.
    """
    # All tags are letters without types, in small letters: b, i, o.
    are_letters = {tag.upper() for tag in tags} <= _ALL_LETTERS | {"M"}
    if are_letters and "b" in tags and "o" in tags:
        return True

    # Most tags have a prefix and a type, and there is an O, or a tag that begins an entity. `B-X`
    # as the only tag of a file may be a name.
    typed = [mark for mark in marks.values() if mark != "O"]
    n_outside = len(marks) - len(typed)
    are_mostly_typed = 2 * len(typed) > len(tags) - n_outside
    has_outside = any(tag in tags for tag in ("O", "o", "0"))
    has_beginning = len(tags) > 1 and any(mark[0] == "B" for mark in typed)
    return are_mostly_typed and (has_outside or has_beginning)


def _refuse_strangers(
    first_place: Mapping[str, tuple[int, int]], where: Callable[[int], str]
) -> None:
    """Refuses tags without a known prefix among marks of entities, such as `M-PER` and `PER`.

    Args:
        first_place: Each tag -> the first sentence that has it, and the number of the word.
        where: Returns the file and line of a sentence, for messages.

    Raises:
        DataError: With the first of them.
    """
    strangers = {
        tag
        for tag in first_place
        if tag.partition("-")[0] not in _ALL_LETTERS or tag.startswith("O-")
    }
    if not strangers:
        return
    tag = min(strangers, key=first_place.__getitem__)
    index, word = first_place[tag]
    usual = ", ".join(sorted(first_place.keys() - strangers)[:6])
    message = (
        f"{where(index)}, word {word}: the tag {tag!r} is of no scheme that is known here; others "
        f"there are {usual}"
    )
    remedy = (
        "Entities are marked by O and B-TYPE, I-TYPE (IOB1, IOB2), with E- and S- (BIOES) or L- "
        "and U- (BILOU); plain tags, such as parts of speech, have no such prefix. Is "
        "`data.label_column=` the right one?"
    )
    if tag.partition("-")[0] == "M":
        remedy = (
            "This is BMES, where M- is inside an entity: write I- in its place, which makes it "
            f"BIOES. {remedy}"
        )
    raise DataError(message, remedy=remedy)


def _break(scheme: Scheme, bigrams: Mapping[tuple[str, str], int]) -> Break | None:
    """Returns how often tags break a scheme, and where they do first; None if they never do.

    Args:
        scheme: The scheme.
        bigrams: Tag and next tag -> how often, in the order in which they occur first.
    """
    n_breaks = 0
    first_bigram: tuple[str, str] | None = None
    for (before, tag), times in bigrams.items():
        if not may_follow(scheme, before, tag):
            n_breaks += times
            first_bigram = first_bigram or (before, tag)
    if first_bigram is None:
        return None
    before, tag = first_bigram
    return Break(n_breaks, before, tag)


def may_follow(scheme: Scheme, before: str, tag: str) -> bool:
    """Returns whether a scheme lets `tag` follow the tag `before`.

    In IOB2 `I-PER` may not follow `O`. `O` is also what comes before and after a sentence.
    """
    last_letter, _, last_kind = before.partition("-")
    letter, _, kind = tag.partition("-")
    is_open = last_letter in ("B", "I")  # an entity that may go on
    continues = is_open and kind == last_kind
    if scheme == "IOB1":  # B parts two entities of one type, and has no other use
        return continues or letter != "B"
    if scheme == "IOB2":
        return continues or letter != "I"
    if letter in ("I", "E", "L"):
        return continues
    return not is_open  # an entity has to end with E or L
