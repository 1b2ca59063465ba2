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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_BY_USE: tuple[Scheme, ...] = ("IOB2", "IOB1", "BIOES", "BILOU")
_EXCEPTIONS = 0.05
"""Share of the tags of entities that may break a scheme which the others follow: CoNLL-2003 has 2
such in 34,043."""


@dataclass(frozen=True)
class Break:
    """Where tags leave a scheme.

    Attributes:
        count: how often.
        before: the first tag that may not stand before ...
        tag: ... this one ("O" stands for the beginning and for the end of a sentence too).
    """

    count: int
    before: str
    tag: str


@dataclass(frozen=True)
class TagKind:
    """What the tags of a file are.

    Attributes:
        entities: whether they mark entities; else they are plain names, such as parts of speech.
        scheme: the scheme that nearly all of them follow; None for plain names, and where there is
            none.
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
        """The scheme in which rows with such tags are answered; None for plain names."""
        if self.entities:
            return self.scheme or "IOB2"
        return None

    def sentence(self) -> str:
        """Returns what a person is told."""
        if not self.entities:
            if self.has_outside:
                hint = "; if they mark entities, write B-TYPE and I-TYPE"
            else:
                hint = ""
            return f"plain tags (none begins with B- or I-): scored word by word{hint}"
        exceptions = "; ".join(
            f"{left.count} times not {scheme}, first {left.tag} after {left.before}"
            for scheme, left in self.breaks.items()
        )
        if self.scheme:
            return f"tags in {self.scheme}" + (
                f", but of {self.marks} tags {exceptions}" if exceptions else ""
            )
        return (
            f"tags in no pure scheme ({exceptions or 'prefixes of several'}): "
            "they are read by conlleval's rules and written as IOB2"
        )


def tag_kind(sentences: Iterable[Sequence[str]], where: Callable[[int], str]) -> TagKind:
    """Finds which scheme tags are in: the one that all follow, or all but a few.

    Args:
        sentences: one tag per word; of a whole file, since a few of its rows can look like another
            scheme.
        where: file and line of a sentence, for messages.

    Raises:
        DataError: some tags are of a scheme and some are not, or have prefixes of a scheme that
            isn't known here.
    """
    steps: Counter[tuple[str, str]] = Counter()
    first_place: dict[str, tuple[int, int]] = {}
    for row, tags in enumerate(sentences):
        steps.update(zip(["O", *tags], [*tags, "O"], strict=True))
        if not first_place.keys() >= set(tags):
            for word, tag in enumerate(tags, start=1):
                first_place.setdefault(tag, (row, word))
    if not _mark_entities(set(first_place)):
        _refuse_other_writing(first_place, where)
        words = {
            tag: sum(times for (_, last), times in steps.items() if last == tag)
            for tag in first_place
        }
        has_outside = (
            "O" in first_place and 2 * (words["O"] - row - 1) > sum(words.values()) - row - 1
        )
        return TagKind(entities=False, has_outside=has_outside)
    _refuse_strangers(first_place, where)
    marks = sum(times for (_, tag), times in steps.items() if tag != "O")
    letters = {tag.partition("-")[0] for tag in first_place} | {"O"}
    breaks: dict[Scheme, Break] = {}
    for scheme in _BY_USE:
        if letters <= _LETTERS[scheme] and (
            scheme in ("IOB1", "IOB2") or letters - _LETTERS["IOB2"]
        ):
            left = _break(scheme, steps)
            if left is None:
                return TagKind(entities=True, scheme=scheme, marks=marks)
            breaks[scheme] = left
    usual = min(breaks, key=lambda scheme: breaks[scheme].count, default=None)
    if usual and breaks[usual].count <= _EXCEPTIONS * marks:
        return TagKind(
            entities=True,
            scheme=usual,
            breaks={usual: breaks[usual]},
            marks=marks,
        )
    return TagKind(entities=True, breaks=breaks, marks=marks)


def write_tags(spans: Iterable[tuple[str, int, int]], length: int, scheme: Scheme) -> list[str]:
    """Returns entities as tags.

    Args:
        spans: type, first word, word after the last one; in order, none over another.
        length: words of the sentence.
        scheme: the tags' scheme.
    """
    tags = ["O"] * length
    last: tuple[str, int] = ("", -1)
    for kind, start, end in spans:
        for i in range(start, end):
            letter = _letter(scheme, i == start, i == end - 1, last == (kind, start))
            tags[i] = f"{letter}-{kind}" if kind else letter
        last = (kind, end)
    return tags


def _letter(scheme: Scheme, first: bool, final: bool, touches: bool) -> str:
    """Returns the prefix of a word of an entity.

    `touches` says that an entity of its type ends just before it.
    """
    if scheme == "IOB1":
        return "B" if first and touches else "I"
    if scheme == "IOB2":
        return "B" if first else "I"
    if scheme == "BIOES":
        alone = "S"
        end = "E"
    else:
        alone = "U"
        end = "L"
    if first:
        return alone if final else "B"
    return end if final else "I"


def entity_types(tags: Iterable[str]) -> list[str]:
    """Returns the types among tags, in their order, each once."""
    return list(dict.fromkeys(tag.partition("-")[2] for tag in tags if tag != "O"))


def _mark_entities(tags: set[str]) -> bool:
    """Returns whether tags are meant as marks of entities.

    Such tags are `B-PER`, or `B`, `I` and `O` without any type.
    """
    if any(
        letter in _ALL_LETTERS - {"O"} and kind
        for letter, _, kind in (tag.partition("-") for tag in tags)
    ):
        return "O" in tags or all(tag[:1].isupper() and tag[1:2] == "-" for tag in tags)
    if "O" not in tags:
        return False
    return tags <= _ALL_LETTERS or any(
        tag[:1].isupper() and tag[1:2] == "-" and tag[2:] for tag in tags
    )


def written_as_mark(tag: str) -> str | None:
    """Returns a tag of an entity that is written in another way as schemes write it.

    It is None for any other tag.

    `B_PER`, `B:PER`, `b-per` and `PER-B` are `B-PER` (with the type as it stands), `o` is `O`.
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
    if not are_marks or len(set(marks)) < len(marks):
        return tuple(tags)
    return tuple(mark for mark in marks if mark is not None)


def _refuse_other_writing(
    first_place: Mapping[str, tuple[int, int]], where: Callable[[int], str]
) -> None:
    """Refuses tags that mark entities in another writing, which would be taken for parts of speech.

    Raises:
        WholeFileError: with the first of them, and how to write it.
    """
    marks = {tag: mark for tag in first_place if (mark := written_as_mark(tag)) is not None}
    typed = {tag: mark for tag, mark in marks.items() if mark != "O"}
    letters = {mark[0] for mark in typed.values()}
    only_letters = {tag.upper() for tag in first_place} <= _ALL_LETTERS | {"M"} and {
        "b",
        "o",
    } <= first_place.keys()
    outside = [tag for tag, mark in marks.items() if mark == "O"]
    is_scheme = bool({"O", "o", "0"} & first_place.keys()) or (
        "B" in letters and len(first_place) > 1
    )
    is_most = 2 * len(typed) > len(first_place) - len(outside)
    if not only_letters and not (is_scheme and is_most):
        return

    misspelt = [tag for tag, mark in marks.items() if tag != mark] or [
        tag for tag in first_place if tag.islower()
    ]
    if not misspelt:
        return
    tag = min(
        misspelt, key=lambda misspelt_tag: (misspelt_tag not in typed, first_place[misspelt_tag])
    )
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


def _refuse_strangers(
    first_place: Mapping[str, tuple[int, int]], where: Callable[[int], str]
) -> None:
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


def _break(scheme: Scheme, steps: Mapping[tuple[str, str], int]) -> Break | None:
    count = 0
    first: tuple[str, str] | None = None
    for (before, tag), times in steps.items():
        if not may_follow(scheme, before, tag):
            count += times
            first = first or (before, tag)
    if first:
        return Break(count, *first)
    return None


def may_follow(scheme: Scheme, before: str, tag: str) -> bool:
    """Whether a scheme lets one tag stand before another.

    `O` stands for the ends of a sentence too.
    """
    last, _, last_kind = before.partition("-")
    letter, _, kind = tag.partition("-")
    is_open = last in ("B", "I")
    goes_on = is_open and kind == last_kind
    if scheme in ("IOB1", "IOB2"):
        return goes_on or letter != ("B" if scheme == "IOB1" else "I")
    if letter in ("I", "E", "L"):
        return goes_on
    return not is_open
