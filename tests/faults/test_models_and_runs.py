"""What strangers hand over, through every verb that reads it.

Hostile models, and run folders damaged in one place.
"""

import pytest

from tests.fuzz.__main__ import by_cause
from tests.fuzz.crew import taken

pytestmark = pytest.mark.slow

RUNS = 2_000
PIECES = 10
"""So that one that fails says so early."""


@pytest.mark.parametrize("piece", range(PIECES))
def test_hostile_models(piece: int) -> None:
    """No exit code 1, nothing run, nothing written elsewhere, 30 s and 2 GB at most.

    Tests/fuzz/worker.py looks.
    """
    from tests.faults.hostile_models import HOSTILE

    numbers = range(len(HOSTILE))[
        piece * len(HOSTILE) // PIECES : (piece + 1) * len(HOSTILE) // PIECES
    ]
    figures = taken(
        seed=1,
        inputs=len(numbers),
        first=numbers[0],
        kind="models",
    )
    assert figures.inputs == len(numbers)
    assert figures.failed == [], by_cause(figures)


@pytest.mark.parametrize("piece", range(PIECES))
def test_damaged_runs(piece: int) -> None:
    """Each goes through all verbs that read runs.

    They are gate, compare, report, predict, evaluate, extract-features and finetune --resume (or
    probe).
    """
    figures = taken(
        seed=3,
        inputs=RUNS // PIECES,
        first=piece * RUNS // PIECES,
        kind="runs",
    )
    assert figures.inputs == RUNS // PIECES
    assert figures.failed == [], by_cause(figures)


def test_there_are_more_than_a_hundred_models() -> None:
    from tests.faults.hostile_models import HOSTILE

    assert len(HOSTILE) > 100
