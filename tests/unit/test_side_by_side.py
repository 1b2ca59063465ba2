"""Batches side by side: the same results in the same order, and torch's threads as they were."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from bertctl.config.recipe_sections import ModelSection
from bertctl.inference.engine import Engine
from bertctl.modeling.build import load_frozen
from bertctl.modeling.source import inspect_model
from bertctl.runtime.device import Compute
from bertctl.runtime.side_by_side import side_by_side


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_items_are_computed_at_once_and_come_in_their_order() -> None:
    both = threading.Barrier(2)  # passed by two at once, or never

    def work(number: int) -> tuple[int, int, bool]:
        both.wait(timeout=60)
        return number, torch.get_num_threads(), torch.is_inference_mode_enabled()

    assert list(side_by_side(work, range(6), 2)) == [(number, 1, True) for number in range(6)]
    assert torch.get_num_threads() == 2
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("threads", [1, 64])
def test_with_one_thread_or_many_one_comes_after_the_other(threads: int) -> None:
    def work(number: int) -> tuple[int, bool, bool]:
        return (
            number,
            threading.current_thread() is threading.main_thread(),
            torch.is_inference_mode_enabled(),
        )

    assert list(side_by_side(work, range(3), threads)) == [
        (number, True, True) for number in range(3)
    ]
    assert torch.get_num_threads() == 2


def test_numbers_are_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(300, 200, generator=generator)
    items = [torch.randn(40 + i, 200, generator=generator) for i in range(9)]

    def work(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, weight).softmax(-1)

    for actual, x in zip(side_by_side(work, items, 2), items, strict=True):
        torch.testing.assert_close(actual, work(x), rtol=1e-6, atol=1e-7)


def test_an_error_and_an_early_end_leave_nothing_behind() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise ValueError("the fourth")
        return number

    before = {*threading.enumerate()}
    failing = side_by_side(work, itertools.count(), 2)
    assert [*itertools.islice(failing, 3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the fourth"):
        next(failing)
    assert torch.get_num_threads() == 2
    assert {*threading.enumerate()} <= before
    some = side_by_side(work, itertools.count(10), 2)
    assert next(some) == 10
    assert torch.get_num_threads() == 1
    some.close()
    assert torch.get_num_threads() == 2
    assert {*threading.enumerate()} <= before


def test_short_batches_of_our_own_networks_alone_are_computed_side_by_side(
    tiny_model: Path,
) -> None:
    compute = Compute("cpu", "fp32", 2, "")
    loaded = load_frozen(inspect_model(ModelSection(name=str(tiny_model), max_length=40)), compute)
    engine = Engine.of(loaded, compute)
    assert engine.at_once(1000) == 2
    assert engine.at_once(10**6) == 1, "an interrupted one would be waited for"
    loaded.network.train()
    assert engine.at_once(1000) == 1, "its training has needed most memory"
    theirs = transformers.AutoModel.from_pretrained(tiny_model).eval()
    assert Engine.of(replace(loaded, network=theirs), compute).at_once(1000) == 1
