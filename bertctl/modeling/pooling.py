"""One vector for a text from the vectors of its tokens. What is padding never counts.

Letters: B texts, T tokens, D size of a vector, W words.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertctl.arrays import Array, Bools, Floats32, Ints
from bertctl.errors import DataError, UsageError
from bertctl.words import unknown

if TYPE_CHECKING:
    from torch import Tensor

TEXT_POOLINGS = ("cls", "mean", "max", "mean-max", "pooler")
"""One vector a text."""

POOLINGS = (*TEXT_POOLINGS, "model", "none")
"""`model`: as a folder of sentence-transformers says; `none`: a vector for each token."""

_OF = {
    "texts": POOLINGS,
    "words": ("first", "last", "mean"),
    "windows": ("mean", "max", "first", "logits"),
}
"""One vector of each: of a word its first token's, its last token's, or the mean of all its
tokens'; of windows where nothing is learned, `model.window_pooling` but for its attention."""


def check_poolings(names: Sequence[str], of: str = "texts") -> tuple[str, ...]:
    """Returns the names of poolings, each once, if all are known.

    Args:
        names: Names of poolings.
        of: Noun of what is pooled: texts, words or windows.

    Raises:
        UsageError: There is no pooling of this name.
    """
    known = _OF[of]
    for name in names:
        if name not in known:
            raise UsageError(
                unknown("pooling", name, known), remedy=f"Choose from {', '.join(known)}."
            )
    return tuple(dict.fromkeys(names))


def pool(
    vectors: "Tensor",
    mask: "Tensor | None",
    how: Sequence[str],
    *,
    counted: "Tensor | None" = None,
    cls_last: bool = False,
) -> "list[Tensor]":
    """Returns the vectors of B texts, pooled in each of the ways named.

    Args:
        vectors: (B, T, D) of every token.
        mask: (B, T) bool, true at tokens and false at padding, with at least one token in each
            text; None if there is no padding.
        how: Names of the ways: cls, mean, max or mean-max.
        counted: (B, T) bool, tokens that count for mean and max, if special tokens don't; None if
            all tokens count. In a text without such a token, all its tokens count.
        cls_last: Whether [CLS] is the last token (XLNet) instead of the first.

    Returns:
        For each name (B, D) fp32; mean-max (B, 2 D), the mean first.
    """
    import torch

    made: dict[str, Tensor] = {}
    token_mask = mask
    if counted is not None:
        if mask is None:
            is_token = torch.ones_like(counted)
        else:
            is_token = mask
        has_counted = counted.any(dim=1, keepdim=True)
        token_mask = (counted & has_counted) | (is_token & ~has_counted)
    if "mean" in how or "mean-max" in how:
        if token_mask is None:
            ones = torch.ones(vectors.shape[:2], device=vectors.device)
        else:
            ones = token_mask.float()
        weights = ones / ones.sum(dim=1, keepdim=True)
        # A product of matrices: reads the vectors once, where masking them first would write them
        # again. Padding may hold anything finite; its weight is 0.
        made["mean"] = torch.bmm(weights[:, None, :], vectors.float())[:, 0]
    if "max" in how or "mean-max" in how:
        made["max"] = _max(vectors, token_mask).float()
    if "cls" in how:
        made["cls"] = _cls(vectors, mask, last=cls_last).float()
    if "mean-max" in how:
        made["mean-max"] = torch.cat([made["mean"], made["max"]], dim=-1)
    return [made[name] for name in how]


def _max(vectors: "Tensor", token_mask: "Tensor | None") -> "Tensor":
    """Returns the (B, D) maximum of each number over the tokens of a text.

    Args:
        vectors: (B, T, D) of every token.
        token_mask: (B, T), true at tokens that count; None if all count.
    """
    import torch

    # A compiled graph can't choose the texts to mask by their masks, as is done below.
    if torch.compiler.is_compiling() and token_mask is not None:
        return vectors.masked_fill(~token_mask[:, :, None], -torch.inf).amax(dim=1)

    highest = vectors.max(dim=1).values
    if token_mask is not None:
        # Masking copies the vectors, so only texts are masked in which a token doesn't count.
        rows = (~token_mask.all(dim=1)).nonzero()[:, 0]
        if len(rows):
            is_left_out = ~token_mask[rows][:, :, None]
            highest[rows] = vectors[rows].masked_fill(is_left_out, -torch.inf).amax(dim=1)
    return highest


def _cls(vectors: "Tensor", mask: "Tensor | None", *, last: bool) -> "Tensor":
    """Returns (B, D) vectors of the first or last token of each text, wherever the padding is.

    Args:
        vectors: (B, T, D) of every token.
        mask: (B, T), false at padding; None without padding.
        last: Whether it is the last token instead of the first one.
    """
    if mask is None:
        return vectors[:, -1 if last else 0]
    # `argmax` returns the position of the first 1.
    is_token = mask.long()
    if last:
        position = mask.shape[1] - 1 - is_token.flip(1).argmax(dim=1)
    else:
        position = is_token.argmax(dim=1)
    index = position[:, None, None].expand(-1, 1, vectors.shape[-1])
    return vectors.gather(1, index)[:, 0]


def pool_arrays(
    vectors: Floats32,
    mask: Bools,
    how: str,
    *,
    counted: Bools | None = None,
    cls_last: bool = False,
) -> Floats32:
    """Returns the vectors of B texts as `pool` makes them, in arrays.

    Args:
        vectors: (B, T, D) of every token.
        mask: (B, T) what is no padding, at least one token in each row.
        how: One of cls, mean, max and mean-max.
        counted: (B, T) tokens that count for mean and max; see `pool`.
        cls_last: Whether [CLS] is the last token instead of the first.

    Returns:
        (B, D), of mean-max (B, 2 D).
    """
    if how == "cls":
        # `argmax` is the first True: padding may be on either side.
        last_position = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
        position = last_position if cls_last else mask.argmax(axis=1)
        return np.asarray(vectors[np.arange(len(vectors)), position])
    if counted is not None:
        has_some = counted.any(axis=1, keepdims=True)
        mask = np.where(has_some, counted, mask)
    parts = []
    if how in ("mean", "mean-max"):
        weights = mask / mask.sum(axis=1, keepdims=True)
        parts.append(np.einsum("bt,btd->bd", weights.astype(np.float32), vectors))
    if how in ("max", "mean-max"):
        parts.append(np.where(mask[:, :, None], vectors, -np.inf).max(axis=1))
    return np.concatenate(parts, axis=1).astype(np.float32)


def join_windows(
    vectors: Floats32, owners: Ints, counts: Ints, how: str, windows: str = "mean"
) -> Floats32:
    """Returns the (B, D) vectors of texts, each combined from the vectors of the text's windows.

    Args:
        vectors: (U, D) vectors of the windows.
        owners: (U,) number of each window's text.
        counts: (U,) number of tokens in each window that count.
        how: How the tokens of a window were pooled: cls, mean, max or mean-max.
        windows: How windows are pooled, see `model.window_pooling`. `mean` pools as if the text
            were one window: the mean over all tokens (those that two windows share count in both),
            the maximum over all, the mean of the [CLS] vectors. `logits` is the plain mean.
    """
    # `mean` combines windows by the way in which their tokens were pooled.
    if windows == "mean":
        combination = how
    else:
        combination = windows
    if combination == "mean-max":
        half = vectors.shape[1] // 2
        halves = [(vectors[:, :half], "mean"), (vectors[:, half:], "max")]
        return np.hstack([join_windows(columns, owners, counts, name) for columns, name in halves])
    # Windows of a text side by side; a text starts where the owner changes.
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    if combination == "first":
        return vectors[order[starts]]
    if combination == "max":
        return np.asarray(np.maximum.reduceat(vectors[order], starts), dtype=np.float32)
    if combination == "mean":
        weights = counts[order].astype(np.float64)
    else:  # [CLS] vectors or logits: all windows of a text weigh the same
        weights = np.ones(len(owners))
    summed = np.add.reduceat(vectors[order] * weights[:, None], starts)
    return (summed / np.add.reduceat(weights, starts)[:, None]).astype(np.float32)


def pool_words(vectors: "Tensor", words: "Tensor", n_words: int, how: str) -> "Tensor":
    """Returns one vector per word, from the vectors of the tokens of all texts together.

    Args:
        vectors: (T, D), tokens in the order of the text.
        words: (T,) int64 number of each token's word, ascending; -1 for tokens of none (special
            tokens).
        n_words: W.
        how: Vector of a word: the `mean` of its tokens, the `first` or the `last` one.

    Returns:
        (W, D) fp32; zeros for a word without a token (one of control characters only).
    """
    import torch

    is_in_word = words >= 0
    tokens = vectors[is_in_word].float()
    numbers = words[is_in_word]
    out = torch.zeros((n_words, vectors.shape[1]), dtype=torch.float32, device=vectors.device)
    if how == "mean":
        counts = torch.zeros(n_words, device=vectors.device).index_add_(
            0, numbers, torch.ones(len(numbers))
        )
        return out.index_add_(0, numbers, tokens) / counts.clamp(min=1.0)[:, None]
    # The first token of a word has another number than the token before it. The last token has
    # another number than the token after it.
    no_word = numbers.new_full((1,), -1)
    if how == "first":
        is_chosen = numbers.diff(prepend=no_word) != 0
    else:
        is_chosen = numbers.diff(append=no_word) != 0
    out[numbers[is_chosen]] = tokens[is_chosen]
    return out


def unit_length(vectors: Floats32) -> Floats32:
    """Returns each vector divided by its length; zeros stay zeros."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def finite(numbers: Array, model: str) -> Array:
    """Returns numbers that a model has computed, if all of them are finite.

    Raises:
        DataError: Some are NaN or infinite.
    """
    if not np.isfinite(numbers).all():
        message = f"'{model}' computes NaN or infinity"
        raise DataError(message, remedy="Give weights that are whole.")
    return numbers
