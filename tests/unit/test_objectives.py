"""Objectives in the loop.

The numbers are the same however a global batch is split, whatever the losses count.
"""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bertctl.progress import SILENT
from bertctl.runtime.batching import Padding
from bertctl.runtime.device import Compute
from bertctl.runtime.launch import ALONE, Workers
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import Objective
from bertctl.tasks.batches import Batch, padded_inputs
from bertctl.training.loop.out_of_memory import MicroBatches
from bertctl.training.loop.step import step_with_oom_retry, training_step
from bertctl.training.loop.training_engine import TrainingEngine

VOCABULARY = 50
MASK = 1
SIZE = 8
GLOBAL_BATCH = np.random.default_rng(5).permutation(40)[:32]


class Texts:
    """40 texts of 3 to 14 tokens; each has a label as well."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.lengths = rng.integers(3, 15, 40)
        self.texts = [rng.integers(2, VOCABULARY, length) for length in self.lengths]
        self.labels = rng.integers(0, 2, 40)

    def padded(
        self, indices: NDArray[np.int64], texts: list[NDArray[np.int64]]
    ) -> dict[str, Tensor]:
        flat = np.concatenate(texts)
        return padded_inputs(flat, np.zeros_like(flat), self.lengths[indices], Padding(0))


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """The labels are the second loss's.

    `hidden` holds the token at each masked position, -100 elsewhere.
    """

    hidden: Tensor


class MaskedAndNext(Objective):
    """As BERT's pretraining.

    Masked tokens and a yes or no for each text, each with a mean of its own.
    """

    def batch(self, features: Texts, indices: NDArray[np.int64], rng: WindowRandom) -> MaskedBatch:
        shown = []
        hidden = []
        for i in indices:
            is_hidden = rng.of(i).random(len(features.texts[i])) < 0.3
            shown.append(np.where(is_hidden, MASK, features.texts[i]))
            hidden.append(np.where(is_hidden, features.texts[i], -100))
        inputs = features.padded(indices, shown)
        targets = torch.full(inputs["input_ids"].shape, -100)
        targets[inputs["attention_mask"].bool()] = torch.from_numpy(np.concatenate(hidden))
        return MaskedBatch(inputs, torch.from_numpy(features.labels[indices]), targets)

    def counts(self, batch: MaskedBatch) -> dict[str, int]:
        is_masked = batch.hidden != -100
        return {"masked": int(is_masked.sum()), "next": len(batch.gold)}

    def losses(self, outputs: Any, batch: MaskedBatch) -> dict[str, Tensor]:
        words = functional.cross_entropy(
            outputs.words.flatten(0, 1), batch.hidden.flatten(), reduction="sum"
        )
        return {
            "masked": words,
            "next": functional.cross_entropy(outputs.pair, batch.gold, reduction="sum"),
        }


class Contrastive(Objective):
    """Each text against all others of the batch.

    The vector of its first half is to be found by that of its second.
    """

    spans_batch: ClassVar[bool] = True

    def batch(self, features: Texts, indices: NDArray[np.int64], rng: WindowRandom) -> Batch:
        texts = [features.texts[i] for i in indices]
        inputs = features.padded(indices, texts)
        return Batch(inputs, None)

    def forward(self, network: Any, batch: Batch) -> Tensor:
        vectors: Tensor = network(**batch.inputs).vectors
        return vectors

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"pairs": len(batch.inputs["input_ids"])}

    def losses(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        assert len(outputs) == len(batch.inputs["input_ids"]), "the outputs of the whole batch"
        one, other = functional.normalize(outputs, dim=-1).unbind(dim=1)
        return {
            "pairs": functional.cross_entropy(
                10 * one @ other.T, torch.arange(len(outputs)), reduction="sum"
            )
        }


class Tiny(nn.Module):
    """Embeddings, a mean, and a head for each of the objectives above."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(VOCABULARY, SIZE)
        self.words = nn.Linear(SIZE, VOCABULARY)
        self.pair = nn.Linear(SIZE, 2)
        self.halves = nn.Linear(SIZE, 2 * SIZE)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        states = torch.tanh(self.table(input_ids)) * attention_mask[..., None]
        mean = states.sum(dim=1) / attention_mask.sum(dim=1, keepdim=True)
        return SimpleNamespace(
            words=self.words(states),
            pair=self.pair(mean),
            vectors=self.halves(mean).view(-1, 2, SIZE),
        )


def engine_of(objective: Objective, workers: Workers = ALONE) -> TrainingEngine:
    network = Tiny()
    accelerator = SimpleNamespace(
        no_sync=lambda network: nullcontext(),  # noqa: ARG005
        backward=lambda loss: loss.backward(),
        clip_grad_norm_=nn.utils.clip_grad_norm_,
    )
    return TrainingEngine(
        loaded=SimpleNamespace(has_segments=False),
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        schedule=None,
        accelerator=accelerator,
        objective=objective,
        compute=Compute("cpu", "fp32", 1, ""),
        max_grad_norm=1e9,
        workers=workers,
    )


def gradients(engine: TrainingEngine) -> dict[str, Tensor]:
    gradients = {}
    for name, parameter in engine.network.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad
    return gradients


def stepped(
    objective: Objective, *, micro_batches: int = 1, rng: WindowRandom | None = None
) -> tuple[float, Any]:
    engine = engine_of(objective)
    step = rng or WindowRandom(7, 1, 3)
    found = training_step(engine, Texts(), GLOBAL_BATCH, step, micro_batches=micro_batches)
    return found.loss, gradients(engine)


@dataclass
class Meeting:
    """Where the threads of `ThreadWorkers` exchange arrays."""

    count: int
    barrier: threading.Barrier = field(init=False)
    arrays: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.count)
        self.arrays = [None] * self.count


@dataclass(frozen=True)
class ThreadWorkers(Workers):
    """Processes that are threads of this one."""

    meeting: Any = None

    def gather(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        self.meeting.arrays[self.rank] = values
        self.meeting.barrier.wait(3600)
        found = list(self.meeting.arrays)
        self.meeting.barrier.wait(3600)
        assert len({values.shape for values in found}) == 1, "as torch.distributed demands"
        return found

    def sum(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.sum(self.gather(values), axis=0)


def shared(
    objective: Objective, *, processes: int, micro_batches: int = 1
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses of all processes, and the mean of their gradients, as DDP takes it."""
    meeting = Meeting(processes)
    engines = [
        engine_of(objective, ThreadWorkers(rank, processes, meeting=meeting))
        for rank in range(processes)
    ]
    losses = [0.0] * processes

    def work(rank: int) -> None:
        step = WindowRandom(7, 1, 3)
        found = training_step(
            engines[rank], Texts(), GLOBAL_BATCH, step, micro_batches=micro_batches
        )
        losses[rank] = found.loss

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [gradients(engine) for engine in engines]
    return losses, {
        name: torch.stack([one[name] for one in found]).mean(dim=0) for name in found[0]
    }


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert set(one) == set(other)
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, other[name], atol=1e-6, rtol=1e-5)


def test_the_premise_masks_are_many_and_uneven_and_the_two_counts_differ() -> None:
    objective = MaskedAndNext()
    texts = Texts()
    counts = [
        objective.counts(objective.batch(texts, part, WindowRandom(7, 1, 3)))
        for part in (GLOBAL_BATCH[:16], GLOBAL_BATCH[16:])
    ]
    assert counts[0]["masked"] != counts[1]["masked"]
    assert counts[0]["next"] == counts[1]["next"] == 16


@pytest.mark.parametrize("micro_batches", [2, 3, 32])
def test_two_losses_with_their_own_denominators_are_the_same_in_micro_batches(
    micro_batches: int,
) -> None:
    loss, whole = stepped(MaskedAndNext())
    split_loss, split = stepped(MaskedAndNext(), micro_batches=micro_batches)
    assert split_loss == pytest.approx(loss, abs=1e-6)
    assert_same(split, whole)


@pytest.mark.parametrize(("processes", "micro_batches"), [(2, 1), (3, 2)])
def test_two_losses_with_their_own_denominators_are_the_same_in_processes(
    processes: int, micro_batches: int
) -> None:
    loss, whole = stepped(MaskedAndNext())
    losses, split = shared(MaskedAndNext(), processes=processes, micro_batches=micro_batches)
    assert losses == pytest.approx([loss] * processes, abs=1e-6)
    assert_same(split, whole)


def test_a_batch_moves_with_all_its_tensors() -> None:
    batch = MaskedAndNext().batch(Texts(), GLOBAL_BATCH, WindowRandom(0)).to("meta")
    moved = [*batch.inputs.values(), batch.gold, batch.hidden]
    assert {tensor.device.type for tensor in moved} == {"meta"}


def test_two_losses_by_hand() -> None:
    objective = MaskedAndNext()
    network = Tiny()
    batch = objective.batch(Texts(), GLOBAL_BATCH, WindowRandom(7, 1, 3))
    with torch.no_grad():
        outputs = network(batch.inputs["input_ids"], batch.inputs["attention_mask"])
    words = functional.cross_entropy(
        outputs.words.flatten(0, 1), batch.hidden.flatten()
    )  # means, ignoring -100
    by_hand = {
        "masked": float(words),
        "next": float(functional.cross_entropy(outputs.pair, batch.gold)),
    }
    engine = engine_of(objective)

    step = training_step(engine, Texts(), GLOBAL_BATCH, WindowRandom(7, 1, 3), micro_batches=3)

    assert step.losses == pytest.approx(by_hand)
    assert step.loss == pytest.approx(sum(by_hand.values()))


def test_masks_change_from_step_to_step_and_epoch_to_epoch() -> None:
    steps = [
        WindowRandom(7, 1, 3),
        WindowRandom(7, 1, 4),
        WindowRandom(7, 2, 3),
        WindowRandom(8, 1, 3),
    ]
    batches = [MaskedAndNext().batch(Texts(), GLOBAL_BATCH, rng) for rng in steps]
    assert len({str(batch.hidden.tolist()) for batch in batches}) == len(steps)


@pytest.mark.parametrize("processes", [2, 3])
def test_a_loss_across_the_batch_sees_all_of_it(processes: int) -> None:
    """32 texts among 3 processes are 11, 11 and 10.

    Arrays of one length are exchanged all the same.
    """
    loss, whole = stepped(Contrastive())
    split_loss, split = stepped(Contrastive(), micro_batches=4)
    assert split_loss == pytest.approx(loss, abs=1e-6), "its negatives are those of the whole batch"
    assert_same(split, whole)
    losses, shares = shared(Contrastive(), processes=processes)
    assert losses == pytest.approx([loss] * processes, abs=1e-6)
    assert_same(shares, whole)


def _fails(times: int) -> Callable[[Any, Any], None]:
    left = [times]

    def fail(module: Any, inputs: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise MemoryError("no memory")

    return fail


def test_lack_of_memory_splits_the_batch_whatever_its_losses_look_at() -> None:
    engine = engine_of(MaskedAndNext())
    engine.network.register_forward_pre_hook(_fails(2))
    micro_batches = MicroBatches(1, 32, SILENT)
    random = WindowRandom(7, 1, 3)

    step = step_with_oom_retry(engine, Texts(), GLOBAL_BATCH, random, micro_batches)

    loss_in_one_batch, _ = stepped(MaskedAndNext())
    assert micro_batches.count == 4
    assert step.loss == pytest.approx(loss_in_one_batch, abs=1e-6)


def test_lack_of_memory_splits_a_batch_of_cached_embeddings() -> None:
    cached = engine_of(Contrastive())
    cached.network.register_forward_pre_hook(_fails(1))
    micro_batches = MicroBatches(1, 32, SILENT)
    random = WindowRandom(7, 1, 3)

    step = step_with_oom_retry(cached, Texts(), GLOBAL_BATCH, random, micro_batches)

    loss_in_one_batch, _ = stepped(Contrastive())
    assert micro_batches.count == 2
    assert step.loss == pytest.approx(loss_in_one_batch, abs=1e-6)
