"""What a vocabulary holds, what it lacks for a corpus and how two differ."""

import fnmatch
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from bertctl.errors import UsageError
from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.load import SPECIAL_PIECES, OpenTokenizer
from bertctl.tokenization.reference import pieces_by_id
from bertctl.tokenization.stream import Portion
from bertctl.tokenization.words import CountedWord, WordCounter


@dataclass(frozen=True)
class Place:
    """Some pieces of a kind and where they stand.

    Attributes:
        count: how many.
        first: the first one and its id, or None.
        last: the last one and its id, or None.
    """

    count: int
    first: tuple[str, int] | None
    last: tuple[str, int] | None

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        first, last = (None if at is None else {"piece": at[0], "id": at[1]} for at in (self.first, self.last))
        return {"count": self.count, "first": first, "last": last}


@dataclass(frozen=True)
class VocabularyStats:
    """A vocabulary in numbers.

    Attributes:
        size: pieces.
        special: special tokens and their ids.
        unused: slots left for pieces of one's own (`[unused0]`, ...).
        characters: single characters that begin a word.
        words: pieces of several characters that begin a word.
        continuations: pieces that go on within a word (`##ing`); 0 where the tokenizer does not mark them so.
        scripts: single characters by script, the most frequent first.
        longest: the longest pieces with their ids.
    """

    size: int
    special: dict[str, int]
    unused: Place
    characters: Place
    words: Place
    continuations: Place
    scripts: dict[str, int]
    longest: tuple[tuple[str, int], ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "size": self.size,
            "special": self.special,
            "unused": self.unused.as_json(),
            "characters": self.characters.as_json(),
            "words": self.words.as_json(),
            "continuations": self.continuations.as_json(),
            "scripts": self.scripts,
            "longest": [{"piece": piece, "id": index} for piece, index in self.longest],
        }


def stats(tokenizer: Tokenizer) -> VocabularyStats:
    """Count what kinds of pieces there are, and where each kind begins and ends."""
    pieces = pieces_by_id(tokenizer)
    special = {token.content: index for index, token in sorted(tokenizer.get_added_tokens_decoder().items())}
    special |= {piece: pieces.index(piece) for piece in SPECIAL_PIECES if piece in pieces}
    prefix = continuation_prefix(tokenizer)
    kinds: dict[str, list[tuple[str, int]]] = {"unused": [], "characters": [], "words": [], "continuations": []}
    for index, piece in enumerate(pieces):
        if piece and piece not in special:
            kinds[_kind(piece, prefix)].append((piece, index))
    ordinary = kinds["words"] + kinds["continuations"]
    return VocabularyStats(
        size=sum(map(bool, pieces)),
        special=dict(sorted(special.items(), key=lambda item: item[1])),
        **{kind: Place(len(at), at[0] if at else None, at[-1] if at else None) for kind, at in kinds.items()},
        scripts=dict(Counter(script(piece) for piece, _ in kinds["characters"]).most_common()),
        longest=tuple(sorted(ordinary, key=lambda item: (-len(item[0].removeprefix(prefix or "")), item[1]))[:10]),
    )


def _kind(piece: str, prefix: str | None) -> str:
    if fnmatch.fnmatchcase(piece, "[[]unused*]"):
        return "unused"
    if prefix and piece.startswith(prefix) and piece != prefix:
        return "continuations"
    return "characters" if len(piece) == 1 else "words"


def continuation_prefix(tokenizer: Tokenizer) -> str | None:
    """`##` for BERT; None where pieces that go on within a word carry no mark."""
    prefix = getattr(tokenizer.model, "continuing_subword_prefix", None)
    return prefix if isinstance(prefix, str) and prefix else None


def script(character: str) -> str:
    """The script of a letter, by the first word of the Unicode name of what it stands for; else its kind."""
    plain = unicodedata.normalize("NFKC", character)[:1]
    category = unicodedata.category(plain)
    if category[0] == "L" and category != "Lm":
        first = unicodedata.name(plain, "UNNAMED").split(" ")[0].split("-")[0]
        return first if first == "CJK" else first.capitalize()
    return {"L": "modifiers", "N": "numbers", "P": "punctuation", "S": "symbols", "M": "marks"}.get(
        category[0], "others"
    )


def search(tokenizer: Tokenizer, pattern: str) -> list[tuple[str, int]]:
    """Pieces that fit, with their ids, in the order of the ids.

    Args:
        tokenizer: whose vocabulary is searched.
        pattern: an id (`2293`), a piece (`love`, `##er`), or a glob (`embed*`, `*ology`, `##?`). A word without a
            wildcard also finds its continuation (`##love`); a glob is compared with pieces without their mark, too.
    """
    pieces = pieces_by_id(tokenizer)
    prefix = continuation_prefix(tokenizer) or ""
    if pattern.isascii() and pattern.isdigit():
        found = [(piece, i) for i, piece in enumerate(pieces) if i == int(pattern) or piece == pattern]
        return [item for item in found if item[0]]
    if not any(c in pattern for c in "*?"):
        return [(piece, i) for i, piece in enumerate(pieces) if piece and piece in (pattern, prefix + pattern)]
    literal = pattern.replace("[", "[[]")  # brackets are letters here: [unused*]
    return [
        (piece, i)
        for i, piece in enumerate(pieces)
        if piece
        and (
            fnmatch.fnmatchcase(piece, literal)
            or (prefix and piece.startswith(prefix) and fnmatch.fnmatchcase(piece.removeprefix(prefix), literal))
        )
    ]


@dataclass(frozen=True)
class VocabularyDiff:
    """How vocabulary B differs from A.

    Attributes:
        common: pieces in both.
        moved: pieces in both under different ids, with the two ids.
        only_first: pieces of A that B lacks, in A's order.
        only_second: pieces of B that A lacks, in B's order.
    """

    common: int
    moved: tuple[tuple[str, int, int], ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether both have the same pieces under the same ids."""
        return not (self.moved or self.only_first or self.only_second)


def diff(first: Tokenizer, second: Tokenizer) -> VocabularyDiff:
    """Compare two vocabularies piece by piece."""
    a, b = first.get_vocab(), second.get_vocab()
    common = [piece for piece in sorted(a, key=a.__getitem__) if piece in b]
    return VocabularyDiff(
        common=len(common),
        moved=tuple((piece, a[piece], b[piece]) for piece in common if a[piece] != b[piece]),
        only_first=tuple(sorted((piece for piece in a if piece not in b), key=a.__getitem__)),
        only_second=tuple(sorted((piece for piece in b if piece not in a), key=b.__getitem__)),
    )


@dataclass(frozen=True)
class Coverage:
    """What a vocabulary has for the words of a corpus.

    Attributes:
        texts: texts read.
        tokens: tokens they become, special tokens not counted.
        words: words in them, punctuation not counted.
        own_piece: words that are a piece of their own.
        lacking: words that are not, the most frequent first.
        gains: for some numbers n: the share of all tokens that would be saved if the n most costly of these words got
            a piece each.
        forgotten: rare words not counted because there were too many different ones.
    """

    texts: int
    tokens: int
    words: int
    own_piece: int
    lacking: tuple[CountedWord, ...]
    gains: tuple[tuple[int, float], ...]
    forgotten: int

    def as_json(self, top: int) -> dict[str, Any]:
        """Plain values, with the first `top` words."""
        return {
            "texts": self.texts,
            "tokens": self.tokens,
            "words": self.words,
            "own_piece": self.own_piece,
            "lacking_words": len(self.lacking),
            "top": [
                {"word": w.word, "count": w.count, "pieces": list(w.pieces), "tokens_saved": w.cost}
                for w in self.lacking[:top]
            ],
            "gains": [{"new_pieces": n, "tokens_saved": share} for n, share in self.gains],
            "rare_words_forgotten": self.forgotten,
        }


def coverage(tokenizer: Tokenizer, portions: Iterable[Portion]) -> Coverage:
    """Count the words of a corpus that have no piece of their own, and what new pieces for them would save."""
    encoder = TextEncoder(tokenizer, special_tokens=False)
    counter = WordCounter(tokenizer, special_tokens=False)
    texts = tokens = 0
    for portion in portions:
        texts += len(portion.texts)
        for side in (portion.texts, portion.pairs or ()):
            encoded = encoder.encode(side)
            tokens += len(encoded.ids)
            counter.add(side, encoded)
    broken = counter.most_broken(None)
    lacking = sorted([*broken, *counter.most_unknown(None)], key=lambda w: (-w.count, w.word))
    costs = [word.cost for word in broken]
    unused = stats(tokenizer).unused.count
    steps = sorted({n for n in (100, unused, 1000, 5000, 10000) if 0 < n < len(costs)} | {len(costs)})
    return Coverage(
        texts=texts,
        tokens=tokens,
        words=counter.words,
        own_piece=counter.words - counter.broken_words - counter.unknown,
        lacking=tuple(lacking),
        gains=tuple((n, sum(costs[:n]) / max(tokens, 1)) for n in steps),
        forgotten=counter.forgotten,
    )


def require_bert(opened: OpenTokenizer, verb: str) -> None:
    """Refuse a vocabulary whose pieces say nothing about words.

    Raises:
        UsageError: it is no WordPiece vocabulary of BERT's kind.
    """
    if not opened.is_bert:
        raise UsageError(
            f"{verb} is for BERT's WordPiece; {opened.name} is {opened.kind}", remedy="Name another model."
        )
