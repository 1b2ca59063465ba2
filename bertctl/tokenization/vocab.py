"""Looks into vocabularies: what they hold, what they lack for a corpus, and how two of them differ."""

import fnmatch
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from bertctl.errors import UsageError
from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.reference import continuation_prefix, tokens_by_id
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.tokenizer_files import SPECIAL_TOKENS, OpenTokenizer
from bertctl.tokenization.word_counts import CountedWord, WordCounter

KINDS = ("unused", "characters", "words", "continuations")
"""Kinds of tokens: left free for new ones (`[unused0]`), single characters that begin a word, longer ones that do, and
tokens that go on within a word (`##ing`; none where the tokenizer does not mark them so)."""

NamedId = tuple[str, int]


@dataclass(frozen=True)
class VocabularyStats:
    """Is a vocabulary in numbers.

    Attributes:
        size: number of tokens.
        special: special tokens and their ids.
        kinds: for each of `KINDS` its tokens with their ids, in the order of the ids.
        scripts: number of single characters by script, the most frequent first.
        longest: the longest tokens with their ids.
    """

    size: int
    special: dict[str, int]
    kinds: dict[str, list[NamedId]]
    scripts: dict[str, int]
    longest: list[NamedId]

    def as_json(self) -> dict[str, Any]:
        """Returns plain values, with the first and the last token of each kind."""
        kinds = {
            kind: {
                "count": len(found),
                "first": named(*found[0]) if found else None,
                "last": named(*found[-1]) if found else None,
            }
            for kind, found in self.kinds.items()
        }
        longest = [named(*item) for item in self.longest]
        return {"size": self.size, "special": self.special, **kinds, "scripts": self.scripts, "longest": longest}


def named(token: str, index: int) -> dict[str, Any]:
    """Returns a token and its id as plain values."""
    return {"piece": token, "id": index}


def stats(tokenizer: Tokenizer) -> VocabularyStats:
    """Returns which kinds of tokens there are."""
    tokens = tokens_by_id(tokenizer)
    special = {token.content: index for index, token in sorted(tokenizer.get_added_tokens_decoder().items())}
    special |= {token: tokens.index(token) for token in SPECIAL_TOKENS if token in tokens}
    prefix = continuation_prefix(tokenizer)
    kinds: dict[str, list[NamedId]] = {kind: [] for kind in KINDS}
    for index, token in enumerate(tokens):
        if token and token not in special:
            kinds[_kind(token, prefix)].append((token, index))
    ordinary = kinds["words"] + kinds["continuations"]
    return VocabularyStats(
        size=sum(map(bool, tokens)),
        special=dict(sorted(special.items(), key=lambda item: item[1])),
        kinds=kinds,
        scripts=dict(Counter(script(token) for token, _ in kinds["characters"]).most_common()),
        longest=sorted(ordinary, key=lambda item: (-len(item[0].removeprefix(prefix)), item[1]))[:10],
    )


def _kind(token: str, prefix: str) -> str:
    if fnmatch.fnmatchcase(token, "[[]unused*]"):
        return "unused"
    if prefix and token.startswith(prefix) and token != prefix:
        return "continuations"
    return "characters" if len(token) == 1 else "words"


def script(character: str) -> str:
    """Returns the script of a letter, by the first word of its (normalised) Unicode name; of others their kind."""
    plain = unicodedata.normalize("NFKC", character)[:1]
    category = unicodedata.category(plain)
    if category[0] == "L" and category != "Lm":
        first = unicodedata.name(plain, "UNNAMED").split(" ")[0].split("-")[0]
        return first if first == "CJK" else first.capitalize()
    others = {"L": "modifiers", "N": "numbers", "P": "punctuation", "S": "symbols", "M": "marks"}
    return others.get(category[0], "others")


def search(tokenizer: Tokenizer, pattern: str) -> list[NamedId]:
    """Returns the tokens that fit, with their ids, in the order of the ids.

    Args:
        tokenizer: whose vocabulary is searched.
        pattern: an id (`2293`), a token (`love`, `##er`), or a glob (`embed*`, `*ology`, `##?`). A word without a
            wildcard also finds its continuation (`##love`); a glob is also compared with tokens without their mark.
    """
    prefix = continuation_prefix(tokenizer)
    tokens = [(token, index) for index, token in enumerate(tokens_by_id(tokenizer)) if token]
    if pattern.isascii() and pattern.isdigit():
        return [(token, index) for token, index in tokens if index == int(pattern) or token == pattern]
    if not any(c in pattern for c in "*?"):
        return [(token, index) for token, index in tokens if token in (pattern, prefix + pattern)]
    glob = pattern.replace("[", "[[]")  # brackets are letters here: [unused*]
    return [
        (token, index)
        for token, index in tokens
        if fnmatch.fnmatchcase(token, glob) or fnmatch.fnmatchcase(token.removeprefix(prefix), glob)
    ]


@dataclass(frozen=True)
class VocabularyDiff:
    """Is how vocabulary B differs from A.

    Attributes:
        common: number of tokens in both.
        moved: tokens in both under different ids, with the two ids.
        only_first: tokens of A that B lacks, in A's order.
        only_second: tokens of B that A lacks, in B's order.
    """

    common: int
    moved: tuple[tuple[str, int, int], ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Returns whether both have the same tokens under the same ids."""
        return not (self.moved or self.only_first or self.only_second)


def diff(first: Tokenizer, second: Tokenizer) -> VocabularyDiff:
    """Compares two vocabularies token by token."""
    a, b = first.get_vocab(), second.get_vocab()
    a_tokens, b_tokens = sorted(a, key=a.__getitem__), sorted(b, key=b.__getitem__)
    common = [token for token in a_tokens if token in b]
    return VocabularyDiff(
        common=len(common),
        moved=tuple((token, a[token], b[token]) for token in common if a[token] != b[token]),
        only_first=tuple(token for token in a_tokens if token not in b),
        only_second=tuple(token for token in b_tokens if token not in a),
    )


@dataclass(frozen=True)
class Coverage:
    """Is how well a vocabulary covers the words of a corpus.

    Attributes:
        texts: texts read.
        tokens: tokens they become, special tokens not counted.
        words: words in them, punctuation not counted.
        whole_words: words that are a single token.
        missing_words: words that are not, the most frequent first.
        gains: for some numbers n: the share of all tokens that would be saved if the n most costly of these words were
            single tokens.
        forgotten: rare words not counted because there were too many different words.
    """

    texts: int
    tokens: int
    words: int
    whole_words: int
    missing_words: tuple[CountedWord, ...]
    gains: tuple[tuple[int, float], ...]
    forgotten: int

    def as_json(self, top: int) -> dict[str, Any]:
        """Returns plain values, with the first `top` words."""
        return {
            "texts": self.texts,
            "tokens": self.tokens,
            "words": self.words,
            "own_piece": self.whole_words,
            "lacking_words": len(self.missing_words),
            "top": [
                {"word": w.word, "count": w.count, "pieces": list(w.tokens), "tokens_saved": w.cost}
                for w in self.missing_words[:top]
            ],
            "gains": [{"new_pieces": n, "tokens_saved": share} for n, share in self.gains],
            "rare_words_forgotten": self.forgotten,
        }


def coverage(tokenizer: Tokenizer, chunks: Iterable[TextChunk]) -> Coverage:
    """Counts the words of a corpus that are not a single token, and what new tokens for them would save."""
    encoder = TextEncoder(tokenizer, special_tokens=False)
    counter = WordCounter(tokenizer, special_tokens=False)
    texts = tokens = 0
    for chunk in chunks:
        texts += len(chunk.texts)
        for side in chunk.sides:
            encoded = encoder.encode(side)
            tokens += len(encoded.ids)
            counter.add(side, encoded)
    split = counter.most_split(None)
    missing = sorted([*split, *counter.most_unknown(None)], key=lambda w: (-w.count, w.word))
    costs = [word.cost for word in split]
    unused = len(stats(tokenizer).kinds["unused"])
    steps = sorted({n for n in (100, unused, 1000, 5000, 10000) if 0 < n < len(costs)} | {len(costs)})
    return Coverage(
        texts=texts,
        tokens=tokens,
        words=counter.words,
        whole_words=counter.words - counter.split_words - counter.unknown,
        missing_words=tuple(missing),
        gains=tuple((n, sum(costs[:n]) / max(tokens, 1)) for n in steps),
        forgotten=counter.forgotten,
    )


def require_bert(opened: OpenTokenizer, verb: str) -> None:
    """Refuses a vocabulary whose tokens say nothing about words.

    Raises:
        UsageError: it is no WordPiece vocabulary of BERT's kind.
    """
    if not opened.is_bert:
        raise UsageError(
            f"{verb} is for BERT's WordPiece; {opened.name} is {opened.kind}", remedy="Name another model."
        )
