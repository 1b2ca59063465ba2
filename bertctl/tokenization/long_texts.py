"""Texts that are longer than the model: what is read of them.

    # head        [CLS] a b c d e f [SEP]   the beginning, as everywhere else
    # tail        [CLS] o p q r s t [SEP]
    # head-tail   [CLS] a p q r s t [SEP]   a quarter from the beginning, the rest from the end
    # window      [CLS] a b c d e f [SEP] [CLS] e f g h i j [SEP] ... [CLS] o p q r s t [SEP]

The last window is filled up with what stands before it: all windows of a text have one length.
Letters: N texts, M of them too long, U windows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Ints
from bertctl.config.recipe_sections import ModelSection
from bertctl.tokenization.encode import EncodedTexts, TextEncoder
from bertctl.tokenization.layout import Layout, Ragged, longest_first
from bertctl.tokenization.sliding_windows import sliding_windows

_HEAD_SHARE = 4
"""One token of so many comes from the beginning: 128 of 510 in Sun et al. 2019, "How to Fine-Tune
BERT for Text Classification?", section 5.3.1."""

_WORTH_WINDOWS, _MOST_WINDOWS = 0.01, 8.0
"""Share of too long texts from which windows are advised, and windows of a text on average up to
which they are."""


@dataclass(frozen=True)
class LongText:
    """Rule for what is read of a text that is too long; the fields of `model` in a recipe.

    Attributes:
        mode: head, tail, head-tail or window.
        max_length: tokens from which a text is too long.
        stride: tokens that each window repeats of the one before.
        pooling: how the vectors of windows become one.
    """

    mode: str = "head"
    max_length: int = 128
    stride: int = 16
    pooling: str = "mean"

    @classmethod
    def of(cls, model: ModelSection, stride: int | None = None) -> Self:
        """Returns what a recipe says; a `stride` makes windows of it."""
        if stride is None:
            mode = model.long_text
        else:
            mode = "window"
        if stride is None:
            requested_stride = model.window_stride
        else:
            requested_stride = stride
        if requested_stride is None:
            stride = model.max_length // 8
        else:
            stride = requested_stride
        pooling = model.window_pooling or "mean"
        return cls(mode, model.max_length, stride, pooling)

    def fields(self) -> dict[str, Any]:
        """Returns what a model's config says about long texts, in the recipe's names.

        It is empty if texts are cut as usual.
        """
        if self.mode == "window":
            windows = {"window_stride": self.stride, "window_pooling": self.pooling}
        else:
            windows = {}
        fields = {"long_text": self.mode, "max_length": self.max_length, **windows}
        if self.mode == "head":
            return {}
        return {"long_text": fields}

    def kept(self, lengths: Ints, *, special: int = 2, pair: bool = False) -> dict[str, Any]:
        """Returns what each mode would keep of texts.

        Args:
            lengths: (N,) tokens of each text, special tokens included.
            special: how many of them are special.
            pair: whether they are pairs, over which there are no windows.

        Returns:
            The `texts`, those that are `too_long`, the share of all tokens that is `kept` by the
            modes that cut, the `windows` of all texts in that mode, the `most_windows` of one, and
            the mode that is `advised`.
        """
        windows = 1 - np.minimum(self.max_length - lengths, 0) // max(
            1, self.max_length - special - self.stride
        )
        kept_share = np.minimum(lengths, self.max_length).sum() / max(1, lengths.sum())
        too_long = int((windows > 1).sum())
        texts = len(lengths)
        windows_per_text = float(windows.sum()) / max(1, len(lengths))
        if pair or windows_per_text > _MOST_WINDOWS:
            advised = "head-tail"
        else:
            advised = "window"
        return {
            "texts": texts,
            "too_long": too_long,
            "kept": float(kept_share),
            "windows": int(windows.sum()),
            "most_windows": int(windows.max(initial=1)),
            "advised": advised if too_long > _WORTH_WINDOWS * texts else "head",
        }


HEAD = LongText()
"""Texts are cut."""


def kept_words(coverage: Mapping[str, Any]) -> str:
    """Returns what `LongText.kept` found, in a sentence without its end."""
    windows_per_text = coverage["windows"] / max(1, coverage["texts"])
    return (
        f"head, tail and head-tail each keep {100 * coverage['kept']:.1f} % of the tokens; window "
        f"keeps all, in {windows_per_text:.1f} windows of a text on average (at most "
        f"{coverage['most_windows']:,}), and takes about {windows_per_text:.1f} times as long"
    )


def ends_of(
    encoded: EncodedTexts, tokenizer: Tokenizer, columns: Sequence[Sequence[str]], mode: str
) -> EncodedTexts:
    """Returns the same texts (or pairs); those that are too long are read at their ends.

    All lengths stay.

    Args:
        encoded: N texts, cut.
        tokenizer: that encoded them.
        columns: N texts, and N second texts of pairs.
        mode: tail or head-tail.
    """
    sides = _whole(encoded, tokenizer, columns)
    layout = Layout.of(tokenizer, pair=len(columns) > 1)
    room = int(encoded.lengths.max(initial=0)) - layout.special
    lengths = longest_first(sides[0].lengths, sides[1].lengths if len(sides) > 1 else None, room)
    ends = [
        _ends(side, kept_lengths, mode)
        for side, kept_lengths in zip(sides, lengths, strict=False)
        if kept_lengths is not None
    ]
    ids = np.array(encoded.ids)
    ids[np.repeat(encoded.truncated, encoded.lengths)] = layout.fill(ends)[0]
    return replace(encoded, ids=ids).mapped()


def all_windows(
    encoded: EncodedTexts, tokenizer: Tokenizer, texts: Sequence[str], long: LongText
) -> tuple[EncodedTexts, Ints]:
    """Returns U windows, and the (U,) text of each.

    The first window of each text, which `encoded` holds, comes first, then the others.

    Args:
        encoded: N texts, cut.
        tokenizer: that encoded them.
        texts: N.
        long: length and stride of the windows.
    """
    (uncut,) = _whole(encoded, tokenizer, [texts])
    layout = Layout.of(tokenizer, pair=False)
    zeros = np.zeros_like(uncut.lengths)
    room = zeros + long.max_length - layout.special
    windows = sliding_windows(
        zeros,
        uncut.lengths,
        room=room,
        step=room - long.stride,
        reach_back=True,
    )
    others = np.flatnonzero(np.diff(windows.rows, prepend=-1) == 0)
    rows = windows.rows[others]
    first = windows.first[others]
    last = windows.last[others]
    ids, type_ids, starts = layout.fill(
        [Ragged(uncut.flat, uncut.starts[rows] + first, last - first)]
    )
    more = {"ids": ids, "type_ids": type_ids, "starts": encoded.starts[-1] + starts[1:]}
    more |= {"full_lengths": np.diff(starts), "unknown": np.zeros_like(rows)}
    every: Any = {
        name: np.concatenate([getattr(encoded, name), values]) for name, values in more.items()
    }
    owners = np.concatenate([np.arange(len(encoded)), np.flatnonzero(encoded.truncated)[rows]])
    return replace(encoded, **every).mapped(), owners


def _whole(
    encoded: EncodedTexts, tokenizer: Tokenizer, columns: Sequence[Sequence[str]]
) -> list[Ragged]:
    """Returns the M texts that are too long, as a whole, without special tokens; of pairs both."""
    encoder = TextEncoder(tokenizer, special_tokens=False)
    long = np.flatnonzero(encoded.truncated).tolist()
    encoded_columns = [encoder.encode([column[i] for i in long]) for column in columns]
    return [
        Ragged(encoded_column.ids, encoded_column.starts[:-1], encoded_column.lengths)
        for encoded_column in encoded_columns
    ]


def _ends(side: Ragged, kept_lengths: Ints, mode: str) -> Ragged:
    """Returns `kept_lengths` (M,) tokens of each text."""
    column = np.arange(len(side.flat)) - np.repeat(side.starts, side.lengths)
    lost = side.lengths - kept_lengths
    head = np.repeat(
        kept_lengths // _HEAD_SHARE if mode == "head-tail" else np.zeros_like(kept_lengths),
        side.lengths,
    )
    return Ragged.joined(
        side.flat[(column < head) | (column >= head + np.repeat(lost, side.lengths))], kept_lengths
    )
