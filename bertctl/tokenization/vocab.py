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
    """Returns a token and its id as JSON documents have them; `piece` is an older name of token."""
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

    def longest_first(item: NamedId) -> tuple[int, int]:
        """Sorts tokens by length without their mark, and tokens of equal length by id."""
        token, index = item
        return -len(token.removeprefix(prefix)), index

    longest = sorted(kinds["words"] + kinds["continuations"], key=longest_first)[:10]
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
        "size": sum(map(bool, tokens)),  # ids that are not in use have an empty token
        "special": dict(sorted(special.items(), key=lambda item: item[1])),
        **counted,
        "scripts": dict(Counter(script(token) for token, _ in kinds["characters"]).most_common()),
        "longest": [named(*item) for item in longest],
    }


def _kind(token: str, prefix: str) -> str:
    """Returns which of `KINDS` a token is; `prefix` marks those that continue a word (`##`)."""
    if fnmatch.fnmatchcase(token, "[[]unused*]"):
        return "unused"
    if prefix and token.startswith(prefix) and token != prefix:
        return "continuations"
    if len(token) == 1:
        return "characters"
    return "words"


def script(character: str) -> str:
    """Returns the script of a letter, or the kind of another character.

    `a` -> Latin, `1` -> numbers, `?` -> punctuation. The script is the first word of the letter's
    Unicode name, once it is normalised.
    """
    normalised = unicodedata.normalize("NFKC", character)[:1]
    category = unicodedata.category(normalised)
    if category[0] == "L" and category != "Lm":
        first_word = unicodedata.name(normalised, "UNNAMED").split(" ")[0].split("-")[0]
        if first_word == "CJK":
            return first_word
        return first_word.capitalize()
    kinds = {"L": "modifiers", "N": "numbers", "P": "punctuation", "S": "symbols", "M": "marks"}
    return kinds.get(category[0], "others")


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
    """Returns how two vocabularies differ, as plain values.

    `only_first` and `only_second` are the tokens that one of them has, in the order of their ids;
    `common` is the number of tokens that both have, `moved` those of them with different ids.
    `identical` are vocabularies with the same tokens under the same ids.
    """
    first_ids = first.get_vocab()
    second_ids = second.get_vocab()
    first_tokens = sorted(first_ids, key=first_ids.__getitem__)
    second_tokens = sorted(second_ids, key=second_ids.__getitem__)
    common = [token for token in first_tokens if token in second_ids]
    return {
        "only_first": [token for token in first_tokens if token not in second_ids],
        "only_second": [token for token in second_tokens if token not in first_ids],
        "common": len(common),
        "moved": [
            {"piece": token, "first": first_ids[token], "second": second_ids[token]}
            for token in common
            if first_ids[token] != second_ids[token]
        ],
        "identical": first_ids == second_ids,
    }


def count_words(tokenizer: Tokenizer, chunks: Iterable[TextChunk]) -> tuple[WordCounter, int, Ints]:
    """Returns the counted words of a corpus, its number of texts, and (V,) the counts of its ids.

    Special tokens are not counted.
    """
    encoder = TextEncoder(tokenizer, special_tokens=False)
    counter = WordCounter(tokenizer)
    n_texts = 0
    counts = np.zeros(len(tokens_by_id(tokenizer)), dtype=np.int64)
    for chunk in chunks:
        n_texts += len(chunk.texts)
        for side in chunk.sides:
            encoded = encoder.encode(side)
            counts += np.bincount(encoded.ids, minlength=len(counts))
            counter.add(side, encoded)
    return counter, n_texts, counts


def coverage(tokenizer: Tokenizer, chunks: Iterable[TextChunk], *, top: int = 20) -> dict[str, Any]:
    """Returns the words of a corpus that are not a single token, and what new tokens would save.

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
    costs = [word.cost for word in split]  # descending, as `most_split` has them
    unused = stats(tokenizer)["unused"]["count"]
    # Numbers of new tokens: some round ones, the vocabulary's unused tokens, and all words.
    candidates = (100, unused, 1000, 5000, 10000)
    steps = sorted({n for n in candidates if 0 < n < len(costs)} | {len(costs)})
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
    """Returns the ids of a word's tokens as within a text: `love` -> `[2293]`.

    A token that is written as it is (`##ing`) gives its id.

    Raises:
        UsageError: an empty word, or one that the vocabulary does not know.
    """
    if needs_space(tokenizer):
        in_text = f" {word.strip()}"
    else:
        in_text = word.strip()
    ids: list[int] = tokenizer.encode(in_text, add_special_tokens=False).ids
    token_id = tokenizer.token_to_id(word.strip())
    # A text `##ing` would be split at its marks, but a token of that name stands for itself.
    if len(ids) != 1 and token_id is not None:
        ids = [token_id]
    is_unknown = unknown_id(tokenizer) in ids and token_id is None  # `[UNK]` itself is known
    if not ids or is_unknown:
        message = f"the vocabulary does not know '{word}'"
        raise UsageError(message, remedy="Give a word or a token of it (`bertctl vocab search`).")
    return ids


def require_bert(opened: OpenTokenizer, verb: str) -> None:
    """Refuses a tokenizer that is not BERT's WordPiece, in which tokens are words or parts of them.

    Args:
        opened: The tokenizer.
        verb: What needs it, for the message.

    Raises:
        UsageError: It is of another kind.
    """
    if not opened.is_bert:
        message = f"{verb} is for BERT's WordPiece; {opened.name} is {opened.kind}"
        raise UsageError(
            message,
            remedy="Name a model of BERT's kind, such as bert-base, distilbert-base or minilm.",
        )
