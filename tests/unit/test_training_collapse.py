"""A model that gives every example the same answer.

Warned of, an error under `strict`, noted at the ends of epochs.
"""

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from bertctl.errors import CollapsedError, DivergedError
from bertctl.progress import Listener
from bertctl.training.collapse import look_for_collapse
from bertctl.training.loop.loop import TrainingState


class Heard(Listener):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def scored(answer: str | None, loss: float = 0.7) -> Any:
    """A split on which the model gave one answer to everything, or different ones."""
    answers = SimpleNamespace(constant_prediction=lambda _lines: answer)
    return SimpleNamespace(
        task=SimpleNamespace(answers=answers),
        lines=[],
        rows=SimpleNamespace(split="validation"),
        metrics={"loss": SimpleNamespace(value=loss)},
    )


def test_the_losses_of_epochs_that_end_in_a_collapse_are_noted_until_one_does_not() -> None:
    listener = Heard()
    state = TrainingState(step=7)
    check = partial(look_for_collapse, strict=False, listener=listener)
    check(scored("pos", 0.7), state, epoch_over=True)
    check(scored("pos", 0.9), state, epoch_over=False)
    check(scored("neg", 0.6), state, epoch_over=True)
    assert state.collapsed_losses == [0.7, 0.6]
    assert re.search("step 7: .* pos .*validation", listener.warnings[0])
    assert len(listener.warnings) == 3
    check(scored(None), state, epoch_over=True)
    assert state.collapsed_losses == []
    assert len(listener.warnings) == 3


def test_strict_makes_an_error_of_it() -> None:
    check = partial(look_for_collapse, strict=True, listener=Heard())
    check(scored(None), TrainingState(), epoch_over=True)
    with pytest.raises(CollapsedError, match="answers pos") as refused:
        check(scored("pos"), TrainingState(), epoch_over=True)
    assert isinstance(refused.value, DivergedError)
    assert refused.value.exit_code == DivergedError.exit_code
