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
        places: the outputs that are added up, as in `Target`.
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

    def read_by_head(self, *, every: bool, last: bool) -> list[int]:
        """Returns the positions whose states the outputs come from.

        Without tokens of their own, outputs come from what stands for the whole line.

        Args:
            every: whether that is the mean of all.
            last: whether it is the last one, whatever is first; so it is where no special token is
                (XLNet, GPT).
        """
        if self.asked or every:
            return self.asked or list(range(len(self)))
        return [len(self) - 1 if last or self.word[0] >= 0 else 0]

    @cached_property
    def removable(self) -> Bools:
        """(W,) whether a word can be left out: not one at whose token the network is asked."""
        is_removable = np.ones(len(self.words), dtype=np.bool_)
        read_words = self.word[self.asked]
        is_removable[read_words[read_words >= 0]] = False
        return is_removable

    def without(self, words: Bools) -> "Line":
        """Returns the line without the tokens of these (W,) words.

        The words are removable, and those behind move up.
        """
        is_kept = np.append(~words, True)[self.word]  # -1 is the last one
        if not is_kept[self.asked].all():
            raise ValueError("a token whose output is read can't be left out")
        before = np.cumsum(is_kept) - 1
        positions = tuple(
            (int(before[place[0]]), *place[1:]) if len(place) > 1 else place
            for place in self.places
        )
        return replace(
            self,
            ids=self.ids[is_kept],
            type_ids=self.type_ids[is_kept],
            word=self.word[is_kept],
            places=positions,
        )

    def of_words(self, values: Floats) -> Floats:
        """Returns (W + 1,) sums over each word's tokens of (T,) values.

        The last one is that of all other tokens.
        """
        size = len(self.words) + 1
        return np.bincount(self.word % size, values, size).astype(np.float64)


def read_lines(
    targets: Sequence[Target], answered: Answered, objective: "TaskObjective", engine: "Engine"
) -> list[Line]:
    """Returns the line of each target as the network read it.

    Raises:
        UsageError: a text that was not read from its beginning.
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
        words, word = _words(target.parts, ids, engine.tokenizer)
        if word is None or ("owners" in inputs and (inputs["owners"] == 0).sum() > 1):
            raise UsageError(
                "a text is longer than this model reads at once, and the run reads more of it than "
                "the beginning (model.long_text)",
                remedy="Explain answers to the beginnings of such texts: `long_text=head`.",
            )
        types = line["token_type_ids"][is_token]
        lines.append(Line(ids, types, word, target.places, words))
    return lines


def _words(
    parts: Sequence[Part], ids: Ints, tokenizer: "Tokenizer"
) -> tuple[list[dict[str, Any]], Ints | None]:
    """Returns the words of a line of (T,) ids, and the (T,) word of each token.

    It is None if a part of the text begins elsewhere.
    """
    words: list[dict[str, Any]] = []
    word = np.full(len(ids), -1, dtype=np.int64)
    begins = 0
    if parts[0].places is not None:
        for number, (text, (first, last)) in enumerate(
            zip(parts[0].text, parts[0].places, strict=True)
        ):
            word[first:last] = number
            at = parts[0].start + number
            words.append({"word": text, "column": parts[0].column, "start": at, "end": at + 1})
        return words, word
    slots = Layout.of(tokenizer, pair=len(parts) > 1).slots
    for slot, behind in zip(slots, [*(slot.ids for slot in slots[1:]), ()], strict=True):
        if slot.sequence is None:
            begins += len(slot.ids)
            continue
        part = parts[slot.sequence]
        encoding = tokenizer.encode(str(part.text), add_special_tokens=False)
        same = [
            a == b for a, b in zip(encoding.ids[part.start :], ids[begins:].tolist(), strict=False)
        ]
        count = [*same, False].index(False)  # a text is cut at its end
        # One that was cut where it has a special token of its own, as [SEP], is not as long as it
        # looks.
        count -= count > 0 and tuple(ids[begins + count :][: len(behind)].tolist()) != behind
        spans = split_words(str(part.text))[1]
        starts, ends = (
            np.array(encoding.offsets[part.start : part.start + count], dtype=np.int64)
            .reshape(-1, 2)
            .T
        )
        # A token belongs to the first word that ends behind where it begins: so does the blank
        # before a word.
        numbers = np.minimum(
            np.searchsorted([end for _, end in spans], starts, side="right"), len(spans) - 1
        )
        visible_words = np.unique(numbers[numbers >= 0]).tolist()
        word[begins : begins + count] = (
            len(words) + np.searchsorted(visible_words, numbers) if visible_words else -1
        )
        for number, behind in zip(visible_words, [*visible_words[1:], len(spans)], strict=False):
            # Words that begin within its last token, as the point does in RoBERTa's ").", are shown
            # with it.
            begin = spans[number][0]
            last = ends[numbers == number].max()
            end = max(
                spans[number][1], *(stop for start, stop in spans[number:behind] if start < last)
            )
            words.append(
                {
                    "word": str(part.text)[begin:end],
                    "column": part.column,
                    "start": begin,
                    "end": end,
                }
            )
        begins += count
    return words, word if begins == len(ids) else None
