"""Looks into vocabularies.

It shows what they hold, what they lack for a corpus, and how two of them differ.
"""

import fnmatch
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Ints
from bertctl.errors import UsageError
from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.reference import (
    continuation_prefix,
    needs_space,
    tokens_by_id,
    unknown_id,
)
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.tokenizer_files import SPECIAL_TOKENS, OpenTokenizer
from bertctl.tokenization.word_counts import WordCounter

KINDS = ("unused", "characters", "words", "continuations")
"""Kinds of tokens: left free for new ones (`[unused0]`), single characters that begin a word,
longer ones that do, and tokens that continue a word (`##ing`; none where the tokenizer does not
mark them so)."""

NamedId = tuple[str, int]


def named(token: str, index: int) -> dict[str, Any]:
    """Returns a token and its id as plain values."""
    return {"piece": token, "id": index}


def stats(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns what kinds of tokens there are, as plain values.

    That is: the number of tokens, the special ones with their ids, how many there are of each of
    `KINDS` with the first and the last, the number of single characters by script, and the longest
    tokens.
    """
    tokens = tokens_by_id(tokenizer)
    special = {
        token.content: index
        for index, token in sorted(tokenizer.get_added_tokens_decoder().items())
    }
    special |= {token: tokens.index(token) for token in SPECIAL_TOKENS if token in tokens}
    prefix = continuation_prefix(tokenizer)
    kinds: dict[str, list[NamedId]] = {kind: [] for kind in KINDS}
    for index, token in enumerate(tokens):
        if token and token not in special:
            kinds[_kind(token, prefix)].append((token, index))
    ordinary = kinds["words"] + kinds["continuations"]
    longest = sorted(ordinary, key=lambda item: (-len(item[0].removeprefix(prefix)), item[1]))[:10]
    counted = {}
    for kind, token_ids in kinds.items():
        if token_ids:
            first = named(*token_ids[0])
            last = named(*token_ids[-1])
        else:
            first = None
            last = None
        counted[kind] = {"count": len(token_ids), "first": first, "last": last}
    return {
        "size": sum(map(bool, tokens)),
        "special": dict(sorted(special.items(), key=lambda item: item[1])),
        **counted,
        "scripts": dict(Counter(script(token) for token, _ in kinds["characters"]).most_common()),
        "longest": [named(*item) for item in longest],
    }


def _kind(token: str, prefix: str) -> str:
    if fnmatch.fnmatchcase(token, "[[]unused*]"):
        return "unused"
    if prefix and token.startswith(prefix) and token != prefix:
        return "continuations"
    if len(token) == 1:
        return "characters"
    return "words"


def script(character: str) -> str:
    """Returns the script of a letter, by the first word of its Unicode name.

    The name is that of the normalised letter. Of others it returns their kind.
    """
    plain = unicodedata.normalize("NFKC", character)[:1]
    category = unicodedata.category(plain)
    if category[0] == "L" and category != "Lm":
        first = unicodedata.name(plain, "UNNAMED").split(" ")[0].split("-")[0]
        if first == "CJK":
            return first
        return first.capitalize()
    others = {"L": "modifiers", "N": "numbers", "P": "punctuation", "S": "symbols", "M": "marks"}
    return others.get(category[0], "others")


def search(tokenizer: Tokenizer, pattern: str) -> list[NamedId]:
    """Returns the tokens that fit, with their ids, in the order of the ids.

    Args:
        tokenizer: whose vocabulary is searched.
        pattern: an id (`2293`), a token (`love`, `##er`), or a glob (`embed*`, `*ology`, `##?`). A
            word without a wildcard also finds its continuation (`##love`); a glob is also compared
            with tokens without their mark.
    """
    prefix = continuation_prefix(tokenizer)
    tokens = [(token, index) for index, token in enumerate(tokens_by_id(tokenizer)) if token]
    if pattern.isascii() and pattern.isdigit():
        return [
            (token, index) for token, index in tokens if index == int(pattern) or token == pattern
        ]
    if not any(c in pattern for c in "*?"):
        return [(token, index) for token, index in tokens if token in (pattern, prefix + pattern)]
    glob = pattern.replace("[", "[[]")  # brackets are letters here: [unused*]
    return [
        (token, index)
        for token, index in tokens
        if fnmatch.fnmatchcase(token, glob) or fnmatch.fnmatchcase(token.removeprefix(prefix), glob)
    ]


def diff(first: Tokenizer, second: Tokenizer) -> dict[str, Any]:
    """Compares two vocabularies.

    It counts the tokens in both, those under other ids, and those that only one has.

    They are identical if both have the same tokens under the same ids.
    """
    a = first.get_vocab()
    b = second.get_vocab()
    a_tokens = sorted(a, key=a.__getitem__)
    b_tokens = sorted(b, key=b.__getitem__)
    common = [token for token in a_tokens if token in b]
    return {
        "only_first": [token for token in a_tokens if token not in b],
        "only_second": [token for token in b_tokens if token not in a],
        "common": len(common),
        "moved": [
            {"piece": token, "first": a[token], "second": b[token]}
            for token in common
            if a[token] != b[token]
        ],
        "identical": a == b,
    }


def count_words(tokenizer: Tokenizer, chunks: Iterable[TextChunk]) -> tuple[WordCounter, int, Ints]:
    """Returns the counted words of a corpus, its texts, and the counts of its ids.

    The latter say how often each id stands in it, special tokens apart.
    """
    encoder = TextEncoder(tokenizer, special_tokens=False)
    counter = WordCounter(tokenizer)
    texts = 0
    counts = np.zeros(len(tokens_by_id(tokenizer)), dtype=np.int64)
    for chunk in chunks:
        texts += len(chunk.texts)
        for side in chunk.sides:
            encoded = encoder.encode(side)
            counts += np.bincount(encoded.ids, minlength=len(counts))
            counter.add(side, encoded)
    return counter, texts, counts


def coverage(tokenizer: Tokenizer, chunks: Iterable[TextChunk], *, top: int = 20) -> dict[str, Any]:
    """Counts the words of a corpus that are not a single token.

    It also returns what new tokens for them would save.

    Args:
        tokenizer: of BERT's kind.
        chunks: the corpus.
        top: how many of these words are returned, the most frequent first.

    Returns:
        Plain values; `gains` are, for some numbers n, the share of all tokens that would be saved
        if the n most costly of these words were single tokens. Special tokens are not counted.
    """
    counter, texts, counts = count_words(tokenizer, chunks)
    tokens = int(counts.sum())
    split = counter.most_split(None)
    missing = sorted([*split, *counter.most_unknown(None)], key=lambda w: (-w.count, w.word))
    costs = [word.cost for word in split]
    unused = stats(tokenizer)["unused"]["count"]
    steps = sorted(
        {n for n in (100, unused, 1000, 5000, 10000) if 0 < n < len(costs)} | {len(costs)}
    )
    return {
        "texts": texts,
        "tokens": tokens,
        "words": counter.words,
        "own_piece": counter.words - counter.split_words - counter.unknown,
        "lacking_words": len(missing),
        "top": [{**word.as_json(), "tokens_saved": word.cost} for word in missing[:top]],
        "gains": [
            {"new_pieces": n, "tokens_saved": sum(costs[:n]) / max(tokens, 1)} for n in steps
        ],
        "rare_words_forgotten": counter.forgotten,
    }


def word_ids(tokenizer: Tokenizer, word: str) -> list[int]:
    """Returns the ids of a word's tokens as within a text.

    A token that is written as it is (`##ing`) gives its id.

    Raises:
        UsageError: an empty word, or one that the vocabulary does not know.
    """
    if needs_space(tokenizer):
        in_text = f" {word.strip()}"
    else:
        in_text = word.strip()
    ids: list[int] = tokenizer.encode(in_text, add_special_tokens=False).ids
    itself = tokenizer.token_to_id(word.strip())
    if len(ids) != 1 and itself is not None:
        ids = [itself]
    if not ids or (unknown_id(tokenizer) in ids and itself is None):
        message = f"the vocabulary does not know '{word}'"
        raise UsageError(message, remedy="Give a word or a token of it (`bertctl vocab search`).")
    return ids


def require_bert(opened: OpenTokenizer, verb: str) -> None:
    """Refuses a vocabulary whose tokens say nothing about words.

    Raises:
        UsageError: it is no WordPiece vocabulary of BERT's kind.
    """
    if not opened.is_bert:
        message = f"{verb} is for BERT's WordPiece; {opened.name} is {opened.kind}"
        raise UsageError(
            message,
            remedy="Name a model of BERT's kind, such as bert-base, distilbert-base or minilm.",
        )
