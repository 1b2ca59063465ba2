"""What the network reads, as words: a line of ids whose tokens belong to words that a person wrote.

    # line    [CLS] an un ##for ##get ##table film [SEP]
    # word     -1   0  1    1    1     1     2    -1

A word is one of `split_words`, or those that share a token, so models can be compared word by word;
where rows have words, they are those. Special tokens belong to none, nor do words that are only
read beside others (neighbours of a sentence in its document). Letters: T tokens of a line, W words
of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Bools, Floats, Ints
from bertctl.data.word_splitting import split_words
from bertctl.errors import UsageError
from bertctl.tasks.targets import Answered, Part, Target
from bertctl.tokenization.layout import Layout

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bertctl.inference.engine import Engine
    from bertctl.tasks.base import TaskObjective


@dataclass(frozen=True)
class Line:
    """One line of input and the outputs of the network that are looked at.

    Attributes:
        ids: (T,) tokens, special tokens included, no padding.
        type_ids: (T,) segments.
        word: (T,) number of the word that each token belongs to; -1 for none.
        places: The outputs that are added up, as in `Target`.
        words: W words: what was written, its column, and where it begins and ends there
            (characters; of words, words).
    """

    ids: Ints
    type_ids: Ints
    word: Ints
    places: tuple[tuple[int, ...], ...]
    words: Sequence[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def asked(self) -> list[int]:
        """Positions whose own outputs are looked at; none where the line has one output."""
        return [place[0] for place in self.places if len(place) > 1]

    def read_by_head(self, *, is_mean: bool, is_decoder: bool) -> list[int]:
        """Returns the positions whose hidden states the model's head reads.

        If outputs have tokens of their own (tags), it reads these. Otherwise it reads the token
        that stands for the line: [CLS] in front, or the last one.

        Args:
            is_mean: Whether the head reads the mean of all tokens.
            is_decoder: Whether no token sees later ones, so that only the last one sees the line.
        """
        if self.asked:
            return self.asked
        if is_mean:
            return list(range(len(self)))
        begins_with_word = self.word[0] >= 0  # XLNet has its special tokens behind
        if is_decoder or begins_with_word:
            return [len(self) - 1]
        return [0]

    @cached_property
    def removable(self) -> Bools:
        """(W,) whether a word can be left out: only if no token of it has an explained output."""
        is_removable = np.ones(len(self.words), dtype=np.bool_)
        read_words = self.word[self.asked]
        is_removable[read_words[read_words >= 0]] = False
        return is_removable

    def without(self, words: Bools) -> "Line":
        """Returns the line without the tokens of these (W,) words.

        The words are removable, and the tokens behind them move up.

        Raises:
            ValueError: The output of a token of such a word is looked at.
        """
        # Special tokens have the word -1, which is the last entry: they are kept.
        is_kept = np.append(~words, True)[self.word]
        if not is_kept[self.asked].all():
            raise ValueError("a token whose output is read can't be left out")
        new_positions = np.cumsum(is_kept) - 1
        # The index of an output begins with the position of its token, if each token has outputs.
        # With one index alone, it is an output of the whole line.
        moved_places = []
        for place in self.places:
            if len(place) > 1:
                moved_places.append((int(new_positions[place[0]]), *place[1:]))
            else:
                moved_places.append(place)
        return replace(
            self,
            ids=self.ids[is_kept],
            type_ids=self.type_ids[is_kept],
            word=self.word[is_kept],
            places=tuple(moved_places),
        )

    def of_words(self, values: Floats) -> Floats:
        """Returns (W + 1,) sums over each word's tokens of (T,) values.

        The last one is that of all other tokens.
        """
        size = len(self.words) + 1
        # Other tokens have the word -1, which modulo turns into the last number.
        return np.bincount(self.word % size, values, size).astype(np.float64)


def read_lines(
    targets: Sequence[Target], answered: Answered, objective: "TaskObjective", engine: "Engine"
) -> list[Line]:
    """Returns the line of each target as the network read it.

    Raises:
        UsageError: A text that was not read from its beginning.
    """
    from bertctl.runtime.seeding import WindowRandom

    lines = []
    for target in targets:
        inputs = objective.batch(
            answered.features, np.array([target.window]), WindowRandom(0)
        ).inputs
        line = {
            name: inputs[name].flatten(0, -2)[target.line].numpy()
            for name in ("attention_mask", "input_ids", "token_type_ids")
        }
        is_token = line["attention_mask"].astype(np.bool_)
        ids = line["input_ids"][is_token]
        # The words of the line, and the number of each token's word: None if the line doesn't have
        # the beginnings of the texts.
        words, word_of_token = _words(target.parts, ids, engine.tokenizer)
        # `owners` has the number of each window's text. Several windows of the first text, number
        # 0, mean that a long text is read in windows.
        has_several_windows = "owners" in inputs and (inputs["owners"] == 0).sum() > 1
        if word_of_token is None or has_several_windows:
            raise UsageError(
                "a text is longer than this model reads at once, and the run reads more of it than "
                "the beginning (model.long_text)",
                remedy="Explain answers to the beginnings of such texts: `long_text=head`.",
            )
        types = line["token_type_ids"][is_token]
        lines.append(Line(ids, types, word_of_token, target.places, words))
    return lines


def _words(
    parts: Sequence[Part], ids: Ints, tokenizer: "Tokenizer"
) -> tuple[list[dict[str, Any]], Ints | None]:
    """Returns the words of a line of (T,) ids, and the (T,) word of each token.

    A word is a text with its column and where it begins and ends there. The word of a special token
    is -1. The words of the tokens are None if the line does not have the tokens of the parts, each
    from its beginning.

    Args:
        parts: Texts of the line, in their order; or one that is words.
        ids: Token ids of the line, without padding.
        tokenizer: The model's tokenizer.
    """
    if parts[0].places is not None:
        return _given_words(parts[0], len(ids))

    words: list[dict[str, Any]] = []
    word = np.full(len(ids), -1, dtype=np.int64)
    begins = 0  # position in the line, behind what has been compared with the parts
    # Slots are the places of the texts and of the special tokens before, between and behind them.
    slots = Layout.of(tokenizer, pair=len(parts) > 1).slots
    ids_of_next_slot = [*(slot.ids for slot in slots[1:]), ()]
    for slot, special_behind in zip(slots, ids_of_next_slot, strict=True):
        if slot.sequence is None:
            begins += len(slot.ids)
            continue
        part = parts[slot.sequence]
        encoding = tokenizer.encode(str(part.text), add_special_tokens=False)
        # A text can be cut at its end: the line has as many of its tokens as are equal.
        count = _equal_at_start(encoding.ids[part.start :], ids[begins:].tolist())
        # If the text has a [SEP] of its own just where it was cut, the line's [SEP] was counted as
        # that one.
        next_ids = tuple(ids[begins + count :][: len(special_behind)].tolist())
        if count > 0 and next_ids != special_behind:
            count -= 1
        offsets = encoding.offsets[part.start : part.start + count]
        part_words, word_of_token = _words_of_text(part, offsets)
        if part_words:  # words of all parts are numbered through
            word[begins : begins + count] = len(words) + word_of_token
        words += part_words
        begins += count
    if begins != len(ids):  # the line has tokens that are not those of the parts
        return words, None
    return words, word


def _words_of_text(
    part: Part, offsets: Sequence[tuple[int, int]]
) -> tuple[list[dict[str, Any]], Ints]:
    """Returns the words of a text that have tokens in a line, and (n,) the word of each token.

    Words that share a token become one, as the two of RoBERTa's token `).` do. A text without words
    has none, and its (n,) numbers mean nothing.

    Args:
        part: The text.
        offsets: For each of n tokens, the position of its first character in the text, and of the
            character after its last one.
    """
    text = str(part.text)
    spans = split_words(text)[1]
    starts, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    # A token belongs to the word that it begins in. One that begins in the blanks before a word
    # belongs to that word, and one behind the last word to the last word.
    word_ends = [end for _, end in spans]
    last_word = len(spans) - 1  # -1 if there are no words
    numbers = np.minimum(np.searchsorted(word_ends, starts, side="right"), last_word)
    words_with_tokens = np.unique(numbers[numbers >= 0]).tolist()
    next_words = [*words_with_tokens[1:], len(spans)]
    words: list[dict[str, Any]] = []
    for number, next_word in zip(words_with_tokens, next_words, strict=False):
        begin, end = spans[number]
        # No token begins in the words between this one and the next one with tokens. A token of
        # this word may reach into some of them, and these are joined to this word.
        tokens_end = ends[numbers == number].max()
        for other_begin, other_end in spans[number:next_word]:
            if other_begin < tokens_end:
                end = max(end, other_end)
        words.append(
            {
                "word": text[begin:end],
                "column": part.column,
                "start": begin,
                "end": end,
            }
        )
    # Numbers among all words of the text become numbers among those that have tokens.
    return words, np.searchsorted(words_with_tokens, numbers)


def _given_words(part: Part, n_tokens: int) -> tuple[list[dict[str, Any]], Ints]:
    """Returns the words of a line that was given as words, and the (T,) word of each token.

    Args:
        part: The words, with the range of each one's tokens.
        n_tokens: T.
    """
    assert part.places is not None  # noqa: S101 - of words
    words: list[dict[str, Any]] = []
    word = np.full(n_tokens, -1, dtype=np.int64)
    for number, (text, (begin, end)) in enumerate(zip(part.text, part.places, strict=True)):
        word[begin:end] = number
        position = part.start + number
        words.append(
            {
                "word": text,
                "column": part.column,
                "start": position,
                "end": position + 1,
            }
        )
    return words, word


def _equal_at_start(text_ids: Sequence[int], line_ids: Sequence[int]) -> int:
    """Returns how many ids two rows of ids have in common at their beginnings."""
    n_equal = 0
    for text_id, line_id in zip(text_ids, line_ids, strict=False):
        if text_id != line_id:
            break
        n_equal += 1
    return n_equal
