"""Changes a tokenizer's vocabulary.

Words of a domain are put in, tokens that a corpus does not use are taken out.

Letters: V tokens in the old vocabulary, K of them kept.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Bools, Ints
from bertctl.errors import DataError, UsageError
from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.layout import special_ids
from bertctl.tokenization.reference import (
    PIECE_SPACE,
    continuation_prefix,
    load_tokenizer,
    tokens_by_id,
)
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.tokenizer_files import SPECIAL_TOKENS, OpenTokenizer
from bertctl.tokenization.vocab import count_words, require_bert
from bertctl.tokenization.word_counts import CountedWord

_SEEN = 2
"""Times that a word must occur to be added: what occurs once may be a slip."""


@dataclass(frozen=True)
class ChangedVocabulary:
    """A tokenizer with another vocabulary than the one it was made from.

    Attributes:
        tokenizer: the new one.
        kept: (K,) the old ids of the tokens that it has kept, in the order of the new ones.
        words: words that have become tokens. Their ids follow the ids of the kept tokens.
        pieces: for each word the old ids of the tokens that it was split into.
        counts: (V,) how often each old token occurs in the corpus.
        goes_on: (V,) whether each old token continues a word.
        tokens: tokens of the corpus with the new vocabulary.
    """

    tokenizer: Tokenizer
    kept: Ints
    words: Sequence[CountedWord]
    pieces: Sequence[Sequence[int]]
    counts: Ints
    goes_on: Bools
    tokens: int


def grown(opened: OpenTokenizer, chunks: Iterable[TextChunk], *, words: int) -> ChangedVocabulary:
    """Returns the tokenizer with words of a corpus as new tokens: the ones that save most tokens.

    They become tokens of WordPiece itself, not added tokens. WordPiece takes the longest token that
    a word begins with, so longer words that begin with a new one have fewer tokens, too. All other
    words keep their ids. New words have letters, and were seen at least twice.

    Args:
        opened: of BERT's kind.
        chunks: the corpus.
        words: how many to put in, at most.

    Raises:
        UsageError: it is no WordPiece tokenizer.
        DataError: the corpus has no such word.
    """
    require_bert(opened, "vocab grow")
    counter, _, counts = count_words(opened.tokenizer, chunks)
    split = counter.most_split(None)
    chosen = [
        split_word
        for split_word in split
        if split_word.count >= _SEEN and any(map(str.isalpha, split_word.word))
    ][:words]
    if not chosen:
        message = (
            f"no word of the corpus breaks into several tokens of {opened.name} and is seen twice"
        )
        raise DataError(
            message,
            remedy="Give more text of the domain (`bertctl vocab coverage` lists missing words).",
        )
    names = tokens_by_id(opened.tokenizer)
    old_ids = opened.tokenizer.get_vocab()
    document = json.loads(opened.tokenizer.to_str())
    # `old_ids` has the added tokens, too. Outside of the model's vocabulary, the library would
    # number them anew, and they would get the ids of the last words.
    new_ids = {split_word.word: len(names) + i for i, split_word in enumerate(chosen)}
    document["model"]["vocab"] = old_ids | new_ids
    new_tokenizer = load_tokenizer(json.dumps(document))
    prefix = continuation_prefix(opened.tokenizer)
    # All split words are encoded anew, since those that begin with a new token are shorter, too.
    new_encoder = TextEncoder(new_tokenizer, special_tokens=False)
    encoded = new_encoder.encode([word.word for word in split])
    n_saved = sum(
        split_word.count * (len(split_word.tokens) - n_tokens)
        for split_word, n_tokens in zip(split, encoded.lengths.tolist(), strict=True)
    )
    pieces = [[old_ids[token] for token in split_word.tokens] for split_word in chosen]
    goes_on = np.array([token.startswith(prefix) for token in names])
    return ChangedVocabulary(
        new_tokenizer,
        kept=np.arange(len(names)),
        words=chosen,
        pieces=pieces,
        counts=counts,
        goes_on=goes_on,
        tokens=int(counts.sum()) - n_saved,
    )


def shrunk(opened: OpenTokenizer, chunks: Iterable[TextChunk]) -> ChangedVocabulary:
    """Returns the tokenizer with only those tokens that a corpus uses.

    Special tokens and single characters stay. The mark of a space counts as a character, and so do
    the tokens of single bytes (Gemma, mmBERT). The corpus is still split into the same tokens:
    WordPiece takes the longest token that fits, and Unigram the most likely tokens. The tokens that
    were taken are all kept, and they have fewer competitors now. Unigram scores unknown characters
    by its least likely token, so that one stays. For BPE, all merges that lead to a kept token
    stay.

    Args:
        opened: A tokenizer of WordPiece, Unigram or BPE. BPE must not mark the tokens that continue
            a word.
        chunks: The corpus.

    Raises:
        UsageError: A tokenizer of another kind.
        DataError: No text.
    """
    document = json.loads(opened.tokenizer.to_str())
    model = document["model"]
    tokens = tokens_by_id(opened.tokenizer)
    prefix = continuation_prefix(opened.tokenizer)
    is_marked_bpe = model["type"] == "BPE" and bool(prefix)
    if model["type"] not in ("WordPiece", "Unigram", "BPE") or is_marked_bpe:
        raise UsageError(
            "vocab shrink is for WordPiece, Unigram and BPE without marks of continuation; "
            f"{opened.name} is {opened.kind}",
            remedy="Name another model, such as a multilingual BERT or XLM-R.",
        )
    _, _, used = count_words(opened.tokenizer, chunks)
    if not used.any():
        raise DataError("no texts to count", remedy="Give files with lines or rows.")

    kept_ids = _kept_ids(opened.tokenizer, model, tokens, used)
    kept_tokens = _with_parts({tokens[i] for i in kept_ids}, model.get("merges", ()))
    old_ids = [i for i, token in enumerate(tokens) if token and token in kept_tokens]
    new_ids = {old: new for new, old in enumerate(old_ids)}

    _shrink_model(model, new_ids, kept_tokens)
    for token in document["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    document["post_processor"] = _renumbered(document["post_processor"], new_ids)

    changed = load_tokenizer(json.dumps(document))
    return ChangedVocabulary(
        changed,
        kept=np.array(old_ids),
        words=(),
        pieces=(),
        counts=used,
        # Only the vectors of new words depend on it, and there are none.
        goes_on=np.zeros(len(tokens), dtype=np.bool_),
        tokens=int(used.sum()),
    )


def _shrink_model(model: dict[str, Any], new_ids: Mapping[int, int], kept_tokens: set[str]) -> None:
    """Removes tokens from the `model` of a tokenizer.json, in place, and renumbers the others.

    Args:
        model: Its `vocab` is a list of tokens with scores (Unigram), or token -> id.
        new_ids: Old id -> new id of each token that stays.
        kept_tokens: The tokens that stay. A merge stays if its two parts and its result do.
    """
    if model["type"] == "Unigram":
        model["vocab"] = [entry for i, entry in enumerate(model["vocab"]) if i in new_ids]
        model["unk_id"] = new_ids.get(model["unk_id"])
    else:
        model["vocab"] = {token: new_ids[i] for token, i in model["vocab"].items() if i in new_ids}
    if model["type"] == "BPE":
        model["merges"] = [
            [first, second]
            for first, second in model["merges"]
            if {first, second, first + second} <= kept_tokens
        ]


def _kept_ids(
    tokenizer: Tokenizer, model: Mapping[str, Any], tokens: Sequence[str], used: Ints
) -> set[int]:
    """Returns the ids of the tokens that shrinking keeps.

    They are the tokens that the corpus uses, single characters, and tokens with a purpose: special
    and added ones, and those that unknown characters become.

    Args:
        tokenizer: The tokenizer before.
        model: Its `model` in tokenizer.json.
        tokens: V tokens by id.
        used: (V,) how often the corpus uses each token.
    """
    # Ids 0 and 1 stay what they are if both tokens are kept. RoBERTa and models like it need that:
    # they number the positions of tokens from the padding's id, which is 1.
    kept_ids = {0, 1, *special_ids(tokenizer), *tokenizer.get_added_tokens_decoder()}

    named_tokens = {*SPECIAL_TOKENS, model.get("unk_token")}
    if model.get("byte_fallback"):
        # A character without a token is written as its bytes.
        named_tokens.update(f"<0x{byte:02X}>" for byte in range(256))

    prefix = continuation_prefix(tokenizer)
    for i, token in enumerate(tokens):
        characters = token.removeprefix(prefix).removeprefix(PIECE_SPACE).removesuffix("</w>")
        if used[i] or token in named_tokens or len(characters) < 2:
            kept_ids.add(i)

    if model["type"] == "Unigram":
        # Unigram scores unknown characters by the least likely token.
        scores = [score for _, score in model["vocab"]]
        kept_ids |= {model["unk_id"] or 0, int(np.argmin(scores))}
    return kept_ids


def _with_parts(tokens: set[str], merges: Iterable[Sequence[str]]) -> set[str]:
    """Returns tokens with all those that BPE merges on its way to them, by any merge.

    `{"ing"}` with the merges `i n` and `in g` -> `{"ing", "in", "g", "i", "n"}`.
    """
    parts_of: dict[str, set[str]] = {}
    for first, second in merges:
        parts_of.setdefault(first + second, set()).update((first, second))
    all_tokens = set(tokens)
    unvisited = list(tokens)
    while unvisited:
        unknown_parts = parts_of.get(unvisited.pop(), set()) - all_tokens
        all_tokens |= unknown_parts
        unvisited += unknown_parts
    return all_tokens


def _renumbered(part: Any, new_ids: Mapping[int, int]) -> Any:
    """Returns a post-processor with new ids.

    All ids in it are in lists: `{"ids": [101]}` of a template, `["[CLS]", 101]` beside their token.
    Other numbers, such as type ids, are in objects, and stay.

    Args:
        part: The post-processor of a tokenizer.json, or a part of it.
        new_ids: Old id -> new id.
    """
    if isinstance(part, dict):
        return {key: _renumbered(item, new_ids) for key, item in part.items()}
    if isinstance(part, list):
        return [new_ids[item] if type(item) is int else _renumbered(item, new_ids) for item in part]
    return part
