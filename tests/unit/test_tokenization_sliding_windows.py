"""Overlapping windows of items.

Every item is in one, none is larger than the room, and each is answered for where it sees most
context.
"""

import numpy as np
import pytest

from bertctl.tokenization.sliding_windows import SlidingWindows, sliding_windows


def windows_of(lengths: list[int], *, room: int, step: int) -> SlidingWindows:
    ends = np.array(lengths)
    return sliding_windows(
        np.zeros_like(ends), ends, room=np.full_like(ends, room), step=np.full_like(ends, step)
    )


def test_a_sequence_that_fits_has_one_window_and_a_longer_one_several():
    windows = windows_of([6, 10, 0], room=6, step=3)
    assert windows.rows.tolist() == [0, 1, 1, 1, 2]
    assert windows.first.tolist() == [0, 0, 3, 6, 0]
    assert windows.last.tolist() == [6, 6, 9, 10, 0]
    first, last = windows.answered()
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == [
        (0, 6),
        (0, 5),
        (5, 8),
        (8, 10),
        (0, 0),
    ]


def test_a_step_longer_than_the_room_leaves_nothing_out():
    windows = windows_of([10], room=4, step=100)
    assert windows.first.tolist() == [0, 4, 8]


def context(windows: SlidingWindows, index: int, item: int, *, counts_length: bool) -> float:
    """`_check_is_max_context` of google-research/bert, as it is written there."""
    first = windows.first[index]
    last = windows.last[index]
    if not first <= item < last:
        return -np.inf
    return min(item - first, last - 1 - item) + (0.01 * (last - first) if counts_length else 0.0)


@pytest.mark.parametrize("counts_length", [False, True])
@pytest.mark.parametrize(
    ("room", "step"), [(6, 3), (7, 2), (20, 1), (384, 128), (250, 249), (300, 10)]
)
def test_every_item_is_answered_for_where_it_sees_most_context(room, step, counts_length):
    lengths = [1, room, room + 1, room + step + 1, 3 * room + 2, 2 * room]
    windows = windows_of(lengths, room=room, step=step)
    first, last = windows.answered(counts_length=counts_length)
    for row, length in enumerate(lengths):
        mine = np.flatnonzero(windows.rows == row)
        for item in range(length):
            best = max(
                mine,
                key=lambda w, item=item: context(windows, w, item, counts_length=counts_length),
            )
            (answering,) = [w for w in mine if first[w] <= item < last[w]]
            assert answering == best, (length, item)


def test_words_stay_whole_and_the_last_window_reaches_back():
    sizes = np.array([2, 3, 1, 4, 2, 2, 1, 3])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    windows = sliding_windows(
        np.array([0]),
        np.array([8]),
        room=np.array([7]),
        step=np.array([3]),
        tokens_before=ends,
        reach_back=True,
    )
    tokens = ends[windows.last] - ends[windows.first]
    assert (tokens <= 7).all()
    assert windows.last[-1] == 8
    assert ends[8] - ends[windows.first[-1] - 1] > 7, "one word more does not fit"
    first, last = windows.answered(ends)
    assert np.concatenate(
        [np.arange(a, b) for a, b in zip(first, last, strict=True)]
    ).tolist() == list(range(8))
