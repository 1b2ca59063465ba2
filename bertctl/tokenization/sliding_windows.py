"""Overlapping windows over what is longer than the model.

It says which window answers for which token. It is the one place that cuts them, for features,
words and questions.

    # text       a b c d e f g h i j        room for 6 tokens, a step of 3
    # window 1   a b c d e f                answers for a b c d
    # window 2         d e f g h i          answers for e f g
    # window 3               g h i j        answers for h i j

Letters: N sequences, U windows, M items of all sequences. An item is a token, or a word whose
tokens stay together.
"""

from dataclasses import dataclass

import numpy as np

from bertctl.arrays import Ints


@dataclass(frozen=True)
class SlidingWindows:
    """Windows of N sequences.

    Attributes:
        rows: (U,) sequence of each window, ascending.
        first: (U,) its first item.
        last: (U,) the item after its last one.
    """

    rows: Ints
    first: Ints
    last: Ints

    def answered(
        self, tokens_before: Ints | None = None, *, counts_length: bool = False
    ) -> tuple[Ints, Ints]:
        """Returns which items each window answers for: (U,) first ones and (U,) ends.

        Windows overlap, so an item is in several. It belongs to the one with most context on its
        poorer side: the smaller of its numbers of tokens to the left and to the right decides, and
        the earlier window on a tie (google-research/bert `run_squad.py::_check_is_max_context`). Of
        two neighbours the later one wins just if the item has more to its left there than to its
        right in the earlier one. So what a window answers for is one range of items.

        Args:
            tokens_before: (M + 1,) tokens before each item; None where items are tokens.
            counts_length: whether a hundredth of the window's length is added to the context, as
                `run_squad.py` does.
        """
        first = self.first.copy()
        last = self.last.copy()
        before = np.flatnonzero(self.rows[1:] == self.rows[:-1])
        begin = self.first[before + 1]
        end = self.last[before]
        longer = np.zeros_like(begin)
        if counts_length:
            lengths = self.last - self.first
            longer = (lengths[before] - lengths[before + 1]) // 100
        if tokens_before is None:
            ends = _of_tokens(self.last)
        else:
            ends = tokens_before
        border = np.searchsorted(
            ends[:-1] + ends[1:], ends[begin] + ends[end] + longer, side="right"
        )
        # Otherwise the later window is too short to win.
        gains = (longer == 0) | (self.last[before + 1] - end > longer)
        border = np.where(gains, np.clip(border, begin, end), end)
        last[before] = border
        first[before + 1] = border
        return first, last


def sliding_windows(
    begin: Ints,
    end: Ints,
    *,
    room: Ints,
    step: Ints,
    tokens_before: Ints | None = None,
    reach_back: bool = False,
) -> SlidingWindows:
    """Cuts sequences into windows; one that fits has one.

    Args:
        begin: (N,) first item of each sequence.
        end: (N,) the item after its last one.
        room: (N,) tokens that fit into a window; every item does.
        step: (N,) tokens between the beginnings of two windows; never more than fit, so that
            nothing is left out.
        tokens_before: (M + 1,) tokens before each item; None where items are tokens.
        reach_back: whether the last window of several is filled up with what stands before it.
    """
    if tokens_before is None:
        ends = _of_tokens(end)
    else:
        ends = tokens_before
    pieces: list[tuple[Ints, Ints, Ints]] = []
    rows = np.arange(len(begin))
    at = begin
    while len(rows):
        here = ends[at]
        stop = ends[end[rows]]
        is_last = stop - here <= room[rows]
        full = np.searchsorted(ends, here + room[rows], side="right") - 1
        following = np.searchsorted(ends, here + step[rows], side="left")
        back = np.searchsorted(ends, stop - room[rows], side="left")
        last = np.where(is_last, end[rows], full)
        reaches = is_last & (at > begin[rows]) & reach_back
        pieces.append((rows, np.where(reaches, np.maximum(back, begin[rows]), at), last))
        at = np.maximum(at + 1, np.minimum(following, last))[~is_last]
        rows = rows[~is_last]
    if not pieces:
        return SlidingWindows(begin, begin, end)
    joined = [np.concatenate(part) for part in zip(*pieces, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return SlidingWindows(*(part[order] for part in joined))


def _of_tokens(end: Ints) -> Ints:
    """Returns the tokens before each item where every item is one."""
    return np.arange(end.max(initial=0) + 1)
