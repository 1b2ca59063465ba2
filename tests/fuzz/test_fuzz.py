"""Damaged inputs through the command line.

Never a traceback, never for long, never much memory, nothing outside.
"""

import pytest

from tests.fuzz.__main__ import by_cause
from tests.fuzz.crew import BYTES, SECONDS, Figures, taken
from tests.fuzz.found import FOUND
from tests.nursery import Nursery

EVERY_DAY = 400
BEFORE_A_RELEASE = 100_000
MINUTES = 15.0
"""On two cores."""


def _none_fails(figures: Figures) -> None:
    assert figures.failed == [], by_cause(figures)
    assert figures.longest[0] < SECONDS
    assert figures.highest[0] < BYTES
    assert len(figures.targets) > 25


def test_four_hundred_inputs(nursery: Nursery) -> None:
    figures = taken(seed=1, inputs=EVERY_DAY, kind="quick", nursery=nursery)
    assert figures.inputs == EVERY_DAY
    _none_fails(figures)


@pytest.mark.slow
def test_two_thousand_inputs() -> None:
    """Those of every day are the first of them."""
    figures = taken(seed=1, inputs=2_000, kind="quick")
    assert figures.inputs == 2_000
    _none_fails(figures)


@pytest.mark.slow
def test_a_hundred_thousand_inputs() -> None:
    figures = taken(seed=2, inputs=BEFORE_A_RELEASE, jobs=2)
    print(figures)  # noqa: T201 - the bar asks for the figures
    assert figures.failed == [], by_cause(figures)
    assert figures.inputs == BEFORE_A_RELEASE


def test_what_was_found_once(nursery: Nursery) -> None:
    """Every input of found.py, by its own content.

    A number would make another fuzzer make something else of it.
    """
    figures = taken(seed=0, inputs=len(FOUND), kind="found", nursery=nursery)
    assert figures.failed == [], by_cause(figures)
    assert figures.inputs == len(FOUND) > 30
