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
from bertctl.tokenization.layout import Layout, Ragged, lengths_in_room
from bertctl.tokenization.sliding_windows import sliding_windows

_HEAD_SHARE = 4
"""One token of so many comes from the beginning: 128 of 510 in Sun et al. 2019, "How to Fine-Tune
BERT for Text Classification?", section 5.3.1."""

_WORTH_WINDOWS = 0.01
"""Share of too long texts from which another mode than `head` is advised."""

_MOST_WINDOWS = 8.0
"""Windows of a text on average up to which they are advised: each takes a forward pass."""


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
        """Returns what a recipe says of long texts.

        Args:
            model: Its section `model`.
            stride: If given, texts are read in windows with this stride, whatever the recipe says.
        """
        mode = model.long_text
        if stride is not None:
            mode = "window"
        elif model.window_stride is not None:
            stride = model.window_stride
        else:
            stride = model.max_length // 8
        return cls(
            mode=mode,
            max_length=model.max_length,
            stride=stride,
            pooling=model.window_pooling or "mean",
        )

    def fields(self) -> dict[str, Any]:
        """Returns what a model's config says about long texts, in the recipe's names.

        It is empty if texts are cut as usual.
        """
        if self.mode == "head":
            return {}
        fields: dict[str, Any] = {"long_text": self.mode, "max_length": self.max_length}
        if self.mode == "window":
            fields["window_stride"] = self.stride
            fields["window_pooling"] = self.pooling
        return {"long_text": fields}

    def kept(self, lengths: Ints, *, special: int = 2, pair: bool = False) -> dict[str, Any]:
        """Returns what each mode would keep of texts.

        Args:
            lengths: (N,) tokens of each text, special tokens included.
            special: Special tokens of a text.
            pair: Whether the texts are pairs, which are never read in windows.

        Returns:
            Numbers of `texts` and of texts that are `too_long`. The share of all tokens that is
            `kept` by the modes that cut (head, tail, head-tail). For the mode `window`, the number
            of `windows` of all texts, and the `most_windows` of one text. The mode that is
            `advised`.
        """
        # One window, and one more for each step that the rest of a text needs, rounded up. `//`
        # rounds down, so subtracting a negative quotient rounds up.
        step = max(1, self.max_length - special - self.stride)
        windows = 1 - np.minimum(self.max_length - lengths, 0) // step  # (N,)
        kept_share = np.minimum(lengths, self.max_length).sum() / max(1, lengths.sum())
        n_texts = len(lengths)
        n_too_long = int((windows > 1).sum())
        windows_per_text = float(windows.sum()) / max(1, n_texts)
        if n_too_long <= _WORTH_WINDOWS * n_texts:
            advised = "head"
        elif pair or windows_per_text > _MOST_WINDOWS:
            advised = "head-tail"
        else:
            advised = "window"
        return {
            "texts": n_texts,
            "too_long": n_too_long,
            "kept": float(kept_share),
            "windows": int(windows.sum()),
            "most_windows": int(windows.max(initial=1)),
            "advised": advised,
        }


HEAD = LongText()
"""Texts are cut."""


def kept_words(coverage: Mapping[str, Any]) -> str:
    """Returns what the modes keep, given what `LongText.kept` returned, as half a sentence."""
    windows_per_text = coverage["windows"] / max(1, coverage["texts"])
    return (
        f"head, tail and head-tail each keep {100 * coverage['kept']:.1f} % of the tokens; window "
        f"keeps all, in {windows_per_text:.1f} windows of a text on average (at most "
        f"{coverage['most_windows']:,}), and takes about {windows_per_text:.1f} times as long"
    )


def ends_of(
    encoded: EncodedTexts, tokenizer: Tokenizer, columns: Sequence[Sequence[str]], mode: str
) -> EncodedTexts:
    """Returns texts (or pairs) with the last tokens of long ones, or their first and last ones.

    A text that is too long keeps its number of tokens. Other texts stay as they are.

    Args:
        encoded: N encoded texts. Those that are too long have their first tokens.
        tokenizer: That encoded them.
        columns: N texts, and N second texts of pairs.
        mode: `tail` or `head-tail`.
    """
    uncut = _uncut_texts(encoded, tokenizer, columns)
    layout = Layout.of(tokenizer, pair=len(columns) > 1)
    # A text that is too long was cut to the maximum length. So the longest row has that length.
    room = int(encoded.lengths.max(initial=0)) - layout.special
    ends = [
        _ends(texts, kept_lengths, mode)
        for texts, kept_lengths in zip(uncut, lengths_in_room(uncut, room), strict=True)
    ]
    ids = np.array(encoded.ids)
    is_of_long_text = np.repeat(encoded.truncated, encoded.lengths)
    ids[is_of_long_text] = layout.fill(ends)[0]
    return replace(encoded, ids=ids).mapped()


def all_windows(
    encoded: EncodedTexts, tokenizer: Tokenizer, texts: Sequence[str], long: LongText
) -> tuple[EncodedTexts, Ints]:
    """Returns U windows, and (U,) the number of the text that each window is from.

    First come the first windows of all N texts, which `encoded` has already. Then come the later
    windows of the M texts that are too long.

    Args:
        encoded: N encoded texts. Those that are too long have their first tokens.
        tokenizer: That encoded them.
        texts: N.
        long: Length and stride of the windows.
    """
    (uncut,) = _uncut_texts(encoded, tokenizer, [texts])  # of the M texts
    layout = Layout.of(tokenizer, pair=False)
    zeros = np.zeros_like(uncut.lengths)  # (M,) each text begins with its token 0
    room = zeros + long.max_length - layout.special
    windows = sliding_windows(
        zeros,
        uncut.lengths,
        room=room,
        step=room - long.stride,
        reach_back=True,
    )
    # The first window of each text is in `encoded` already.
    is_later = np.diff(windows.rows, prepend=-1) == 0
    rows = windows.rows[is_later]
    first = windows.first[is_later]
    last = windows.last[is_later]
    ids, type_ids, starts = layout.fill(
        [Ragged(uncut.flat, uncut.starts[rows] + first, last - first)]
    )
    later_windows = EncodedTexts(
        ids=ids,
        type_ids=type_ids,
        starts=starts,
        full_lengths=np.diff(starts),
        unknown=np.zeros_like(rows),
    )
    text_of_later = np.flatnonzero(encoded.truncated)[rows]  # number among M -> number among N
    text_of_window = np.concatenate([np.arange(len(encoded)), text_of_later])
    return encoded.followed_by(later_windows), text_of_window


def _uncut_texts(
    encoded: EncodedTexts, tokenizer: Tokenizer, columns: Sequence[Sequence[str]]
) -> list[Ragged]:
    """Returns all tokens of the M texts that are too long, without special tokens.

    Args:
        encoded: N texts (or pairs), which say which ones are too long.
        tokenizer: That encoded them.
        columns: N texts, and N second texts of pairs. Each is one item of the result.
    """
    encoder = TextEncoder(tokenizer, special_tokens=False)
    too_long = np.flatnonzero(encoded.truncated).tolist()
    encoded_columns = [encoder.encode([column[i] for i in too_long]) for column in columns]
    return [
        Ragged(encoded_column.ids, encoded_column.starts[:-1], encoded_column.lengths)
        for encoded_column in encoded_columns
    ]


def _ends(texts: Ragged, kept_lengths: Ints, mode: str) -> Ragged:
    """Returns the tokens of texts that a mode keeps.

    Args:
        texts: M texts, uncut.
        kept_lengths: (M,) tokens to keep of each.
        mode: `head-tail` keeps a quarter of them at the beginning, `tail` none.
    """
    # Of each token: its position in its text, and how many tokens that text loses.
    position = np.arange(len(texts.flat)) - np.repeat(texts.starts, texts.lengths)
    n_lost = np.repeat(texts.lengths - kept_lengths, texts.lengths)
    n_head = np.zeros_like(kept_lengths)
    if mode == "head-tail":
        n_head = kept_lengths // _HEAD_SHARE
    head_end = np.repeat(n_head, texts.lengths)
    is_kept = (position < head_end) | (position >= head_end + n_lost)
    return Ragged.joined(texts.flat[is_kept], kept_lengths)
