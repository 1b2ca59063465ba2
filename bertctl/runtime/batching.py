"""Which examples go together: batches of similar lengths, in an order fixed by seed and epoch.

Batches are formed once, for all processes together; each process and micro-batch computes a share
of them.
"""

from dataclasses import dataclass

import numpy as np

from bertctl.arrays import Bools, Ints

POOL_BATCHES = 64
"""Batches drawn at random and then sorted by length among themselves: enough to leave little
padding (3 % on SST-2, against 1 % when the whole set is sorted), few enough that batches stay mixed
from epoch to epoch."""

Plan = list[Ints]


@dataclass(frozen=True)
class Padding:
    """How the windows of a batch are filled up to one length.

    Attributes:
        id: of the padding token.
        left: whether padding goes before the text (XLNet).
        width: length to fill up to; that of the longest window of the batch where it is None.
        unwanted: whether it changes the model's answers, so that only windows of one length share a
            batch.
        multiple: of tokens, that the longest window is filled up to as well.
        shortest: tokens that the model needs at least; shorter batches are filled up to it.
    """

    id: int
    left: bool = False
    width: int | None = None
    unwanted: bool = False
    multiple: int = 1
    shortest: int = 1

    def mask(self, lengths: Ints) -> Bools:
        """Returns (B, T) booleans: which positions of a batch are no padding.

        The windows have these lengths (B,).
        """
        longest = max(int(lengths.max()), self.shortest)
        width = self.width or -(-longest // self.multiple) * self.multiple
        columns = np.arange(width)
        if self.left:
            return columns >= (width - lengths)[:, None]
        return columns < lengths[:, None]


def training_plan(
    lengths: Ints, batch_size: int, *, seed: int, epoch: int, group_by_length: bool = True
) -> Plan:
    """Returns the batches of one epoch: each example once, the last batch perhaps smaller.

    Args:
        lengths: (N,) tokens of each example.
        batch_size: examples per optimizer step, over all devices and accumulation steps.
        seed: the run's seed.
        epoch: counted from 0; each has an order of its own.
        group_by_length: sort pools of batches by length; the order of the batches is random all the
            same.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    if group_by_length:
        # Batches of similar lengths, from a part of the examples that is drawn at random.
        pools = _cut(order, batch_size * POOL_BATCHES)
        # A stable sort keeps the random order among examples of one length.
        if pools:
            order = np.concatenate(
                [pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]
            )
    batches = _cut(order, batch_size)
    if group_by_length:
        batches = [batches[i] for i in rng.permutation(len(batches))]
    return batches


def evaluation_plan(lengths: Ints, batch_size: int, *, one_length: bool = False) -> Plan:
    """Returns batches for a forward pass over all examples.

    The longest come first, so that memory peaks at the start.

    Args:
        lengths: (N,) tokens of each example.
        batch_size: examples of a batch.
        one_length: leave no padding in any batch.
    """
    order = np.argsort(-lengths, kind="stable")
    groups = [order]
    if one_length:
        length_changes = np.diff(lengths[order])
        first_of_length = np.flatnonzero(length_changes) + 1
        groups = np.split(order, first_of_length)
    batches: Plan = []
    for group in groups:
        batches += _cut(group, batch_size)
    return batches


def token_budget_plan(lengths: Ints, budget: int, *, one_length: bool = False) -> Plan:
    """Returns batches for a forward pass, longest first, of about `budget` tokens each.

    The tokens of a batch include its padding. Once a batch is a quarter full, it ends where the
    next example is shorter: its examples then often have one length, and attention is quicker
    without padding, as no mask is applied.

    Args:
        lengths: (N,) tokens of each example.
        budget: Tokens of a batch; an example that is longer is a batch by itself.
        one_length: Whether all examples of a batch must have one length, so that none is padded.
    """
    order = np.argsort(-lengths, kind="stable")
    sorted_lengths = lengths[order].tolist()
    batches: Plan = []
    batch_start = 0
    for i, length in enumerate(sorted_lengths):
        n_in_batch = i - batch_start
        if not n_in_batch:
            continue
        widest = sorted_lengths[batch_start]
        is_full = widest * (n_in_batch + 1) > budget
        is_shorter = length < sorted_lengths[i - 1]
        may_end_early = one_length or 4 * widest * n_in_batch >= budget
        if is_full or (is_shorter and may_end_early):
            batches.append(order[batch_start:i])
            batch_start = i
    if len(order):
        batches.append(order[batch_start:])
    return batches


def padding_share(lengths: Ints, plan: Plan) -> float:
    """Returns the share of positions that are padding when each batch is padded to its longest."""
    padded = sum(int(lengths[batch].max()) * len(batch) for batch in plan)
    real = sum(int(lengths[batch].sum()) for batch in plan)
    return 1.0 - real / padded if padded else 0.0


def _cut(order: Ints, size: int) -> Plan:
    """Returns consecutive parts of so many examples; the last one may be smaller."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def set_apart(plan: Plan, distinct: Ints) -> Plan:
    """Returns the same examples in as many batches, in which no number repeats if that can be.

    Numbers stand for texts, for example, that must not be each other's negatives. An example that
    shares a number with its batch waits for the next batch that it fits. An example that fits none
    goes where there is room.

    Args:
        plan: Batches, of which the first is as large as any.
        distinct: (N, K) numbers of each example, -1 for none.
    """
    remaining = np.concatenate(plan).tolist()
    numbers = [set(row) - {-1} for row in distinct.tolist()]
    size = len(max(plan, key=len))
    batches = list[list[int]]()
    for _ in plan:
        numbers_of_batch = set[int]()
        batch = list[int]()
        waiting = list[int]()
        for place, row in enumerate(remaining):
            if len(batch) == size:
                waiting += remaining[place:]
                break
            if numbers_of_batch.isdisjoint(numbers[row]):
                batch.append(row)
                numbers_of_batch |= numbers[row]
            else:
                waiting.append(row)
        batches.append(batch)
        remaining = waiting
    for batch in batches:
        while remaining and len(batch) < size:
            batch.append(remaining.pop())
    return [np.array(batch, dtype=np.int64) for batch in batches if batch]


def repeated(plan: Plan, distinct: Ints) -> int:
    """Returns how many examples share a number with another example of their batch.

    Args:
        plan: Batches.
        distinct: (N, K) numbers of each example, -1 for none; see `set_apart`.
    """
    n_repeated = 0
    for batch in plan:
        rows = np.sort(distinct[batch], axis=1)
        # A number that an example has twice is not shared with another example by that.
        is_repeat = rows[:, 1:] == rows[:, :-1]
        rows[:, 1:][is_repeat] = -1
        numbers, counts = np.unique(rows, return_counts=True)
        shared_numbers = numbers[(counts > 1) & (numbers >= 0)]
        shares_a_number = np.isin(rows, shared_numbers).any(axis=1)
        n_repeated += int(shares_a_number.sum())
    return n_repeated
