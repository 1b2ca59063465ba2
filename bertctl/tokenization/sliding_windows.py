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

        Windows overlap, so an item can be in several of them. Its context in a window is the number
        of tokens to its left or to its right in the window, whichever is smaller. The window in
        which it has the most context answers for it; on a tie, the earlier one does
        (google-research/bert `run_squad.py::_check_is_max_context`).

        Two neighbouring windows share their items up to a border: the earlier window answers for
        those before it, the later window for the rest. An item belongs to the later window if it
        has more tokens to its left there than to its right in the earlier window.

        Args:
            tokens_before: (M + 1,) tokens before each item; None where items are tokens.
            counts_length: whether a hundredth of the window's length is added to the context, as
                `run_squad.py` does.
        """
        first = self.first.copy()
        last = self.last.copy()
        # Pairs of windows of one sequence, by the earlier one; they share the items from
        # `overlap_begin` up to the one before `overlap_end`.
        earlier = np.flatnonzero(self.rows[1:] == self.rows[:-1])
        later = earlier + 1
        overlap_begin = self.first[later]
        overlap_end = self.last[earlier]
        advantage = np.zeros_like(overlap_begin)  # of the earlier window, by its length
        if counts_length:
            lengths = self.last - self.first
            advantage = (lengths[earlier] - lengths[later]) // 100
        if tokens_before is None:
            n_before = _of_tokens(self.last)
        else:
            n_before = tokens_before
        # The first item whose middle lies behind that of the overlap, so that it has more to its
        # left in the later window. Both middles are doubled, to stay whole numbers.
        doubled_middles = n_before[:-1] + n_before[1:]
        overlap_middle = n_before[overlap_begin] + n_before[overlap_end] + advantage
        border = np.searchsorted(doubled_middles, overlap_middle, side="right")
        # With an advantage for its length, the earlier window wins all shared items if the later
        # window has hardly any item of its own.
        n_own_items = self.last[later] - overlap_end
        can_later_win = (advantage == 0) | (n_own_items > advantage)
        border = np.where(can_later_win, np.clip(border, overlap_begin, overlap_end), overlap_end)
        last[earlier] = border
        first[later] = border
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
    """Returns the windows of sequences; a sequence that fits into one has one.

    Each round cuts the next window of all sequences that are not finished.

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
        n_before = _of_tokens(end)
    else:
        n_before = tokens_before
    rounds: list[tuple[Ints, Ints, Ints]] = []
    rows = np.arange(len(begin))  # sequences that are not finished
    first = begin  # item that the next window of each begins with
    while len(rows):
        window_start = n_before[first]
        sequence_end = n_before[end[rows]]
        is_last = sequence_end - window_start <= room[rows]
        # A window that isn't the last one of its sequence ends before the first item that does not
        # fit into it.
        full_end = np.searchsorted(n_before, window_start + room[rows], side="right") - 1
        last = np.where(is_last, end[rows], full_end)
        # A last window that is filled up begins as far before the end as there is room.
        filled_first = np.searchsorted(n_before, sequence_end - room[rows], side="left")
        is_filled = is_last & (first > begin[rows]) & reach_back
        window_first = np.where(is_filled, np.maximum(filled_first, begin[rows]), first)
        rounds.append((rows, window_first, last))
        # The next window begins a step later: at least one item, at most behind this one.
        next_first = np.searchsorted(n_before, window_start + step[rows], side="left")
        first = np.maximum(first + 1, np.minimum(next_first, last))[~is_last]
        rows = rows[~is_last]
    if not rounds:  # no sequences: the arrays are empty
        return SlidingWindows(begin, begin, end)
    all_rows, all_first, all_last = (np.concatenate(part) for part in zip(*rounds, strict=True))
    # Rounds have the first window of all sequences, then the second ones; the order is by sequence.
    order = np.argsort(all_rows, kind="stable")
    return SlidingWindows(
        rows=all_rows[order],
        first=all_first[order],
        last=all_last[order],
    )


def _of_tokens(end: Ints) -> Ints:
    """Returns the number of tokens before each item, if every item is a single token."""
    return np.arange(end.max(initial=0) + 1)
