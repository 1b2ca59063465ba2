"""Counts the words of encoded texts.

It counts which are unknown, which are split into several tokens, and how often.

Letters: N texts, T tokens of all of them together, V in the vocabulary.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertctl.tokenization.encode import EncodedTexts
from bertctl.tokenization.layout import special_ids
from bertctl.tokenization.reference import chunks, continuation_prefix, tokens_by_id, unknown_id
from bertctl.tokenization.word_starts import WordStarts

_MOST_WORDS = 1_000_000
"""Different words that are counted. Beyond, those that occurred once are forgotten, to bound the
memory."""


@dataclass(frozen=True)
class CountedWord:
    """Word of the texts.

    Attributes:
        word: lower-cased where the tokenizer does that; an unknown one as it occurs in the text.
        tokens: what the tokenizer makes of it.
        count: how often it was seen.
    """

    word: str
    tokens: tuple[str, ...]
    count: int

    @property
    def cost(self) -> int:
        """Returns how many tokens would be saved if the word were a single token."""
        return self.count * (len(self.tokens) - 1)

    def as_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {"word": self.word, "pieces": list(self.tokens), "count": self.count}


class WordCounter:
    """Counts the words of encoded texts.

    A word is what the tokenizer takes as one; for BERT a run of letters, digits and symbols. Marks
    of punctuation are not counted as words, nor are special tokens.

    Args:
        tokenizer: with truncation and padding off; the texts are encoded without special tokens.

    Attributes:
        words: Words so far, unknown ones included.
        word_tokens: Tokens of all words.
        split_words: Words of several tokens.
        unknown: Words that became the unknown token.
        forgotten: Different rare words that are not listed, to bound the memory.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.words = 0
        self.word_tokens = 0  # tokens of all words
        self.split_words = 0  # words of several tokens
        self.unknown = 0  # words that became the unknown token
        self.forgotten = 0  # rare words that are no longer listed
        self._tokenizer = tokenizer
        self._unknown_id = unknown_id(tokenizer)
        self._names = tokens_by_id(tokenizer)
        self._split: Counter[tuple[int, ...]] = Counter()
        self._unknown_words: Counter[str] = Counter()
        self._prefix = continuation_prefix(tokenizer)
        special = special_ids(tokenizer)
        self._word_starts = WordStarts(tokenizer)
        # (V,) whether this token alone can be a word. Special tokens, punctuation, and ids without
        # a token (their name is empty) can't.
        self._is_word = np.array(
            [
                bool(name) and i not in special and not _is_punctuation(name)
                for i, name in enumerate(self._names)
            ]
        )
        if self._unknown_id is not None:
            self._is_word[self._unknown_id] = True

    def add(self, texts: Sequence[str], encoded: EncodedTexts) -> None:
        """Counts the words of N texts. It is called once per side for pairs.

        Args:
            texts: N.
            encoded: The same texts, encoded without truncation and special tokens.
        """
        begins_word = self._word_starts.of(texts, encoded)
        starts = np.flatnonzero(begins_word)
        lengths = np.diff(starts, append=len(encoded.ids))  # of each word, in tokens
        is_word = self._is_word[encoded.ids[starts]] | (lengths > 1)
        self.words += int(is_word.sum())
        self.word_tokens += int(lengths[is_word].sum())
        is_split = is_word & (lengths > 1)
        self.split_words += int(is_split.sum())
        ids = encoded.ids.tolist()
        spans = zip(starts[is_split].tolist(), lengths[is_split].tolist(), strict=True)
        self._split.update(tuple(ids[start : start + length]) for start, length in spans)
        if self._unknown_id is not None and encoded.unknown.any():
            self._add_unknown([texts[i] for i in np.flatnonzero(encoded.unknown).tolist()])
        for counter in (self._split, self._unknown_words):
            self.forgotten += _forget_rare(counter)

    def _add_unknown(self, texts: Sequence[str]) -> None:
        """Counts the words of texts that are the unknown token, as they stand in the text.

        The texts are encoded once more, since only the reference library gives offsets.
        """
        for chunk in chunks(texts):
            for text, encoding in zip(chunk, self._tokenizer.encode_batch(chunk), strict=True):
                for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
                    if token == self._unknown_id:
                        self.unknown += 1
                        self._unknown_words[text[start:end]] += 1

    def most_split(self, limit: int | None = 20) -> list[CountedWord]:
        """Returns words of several tokens, the most costly first; see `CountedWord.cost`."""
        counted = [
            CountedWord(self._word(ids), tuple(self._names[i] for i in ids), count)
            for ids, count in self._split.items()
        ]
        return sorted(counted, key=lambda w: (-w.cost, w.word))[:limit]

    def most_unknown(self, limit: int | None = 20) -> list[CountedWord]:
        """Returns words that became the unknown token, the most frequent first."""
        if self._unknown_id is None:
            name = ""
        else:
            name = self._names[self._unknown_id]
        ordered = sorted(self._unknown_words.items(), key=lambda item: (-item[1], item[0]))
        return [CountedWord(word, (name,), count) for word, count in ordered[:limit]]

    def _word(self, ids: tuple[int, ...]) -> str:
        """Returns the word that tokens make up: `trans`, `##form` -> `transform`."""
        if not self._prefix:
            return self._tokenizer.decode(list(ids)).strip()
        first, *rest = (self._names[i] for i in ids)
        return first + "".join(token.removeprefix(self._prefix) for token in rest)


def _forget_rare(counter: Counter[Any]) -> int:
    """Removes what occurred once if there are too many different words; returns how many went."""
    if len(counter) <= _MOST_WORDS:
        return 0
    rare = [key for key, count in counter.items() if count == 1]
    for key in rare:
        del counter[key]
    return len(rare)


def _is_punctuation(token: str) -> bool:
    """Returns whether a token has nothing but marks of punctuation."""
    return all(unicodedata.category(character)[0] == "P" for character in token)
