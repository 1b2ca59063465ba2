"""Masks as the BERT paper's: how many tokens, which, and what stands in their places."""

import numpy as np
import pytest

from bertctl.config.recipe_sections import MaskingSection
from bertctl.tasks.pretraining.masking import Masking

MASK = 4
IDS = np.arange(5, 1000)


def _drawn(
    windows: int, length: int, *, words: int = 1, **settings: object
) -> tuple[np.ndarray, ...]:
    """Returns tokens of windows whose words have so many tokens.

    With them come what stands in their places, and which were chosen.
    """
    masking = Masking(MaskingSection(**settings), MASK, IDS)
    begins = np.arange(length) % words == 0
    tokens = np.random.default_rng(8).choice(IDS, size=(windows, length))
    output = []
    chosen = []
    for window, personal in enumerate(tokens):
        rng = np.random.default_rng([7, window])
        positions, groups = masking.choose(begins, rng)
        changed = personal.copy()
        changed[positions] = masking.disguise(personal[positions], groups, rng)
        output.append(changed)
        chosen.append(np.bincount(positions, minlength=length) > 0)
    return tokens, np.array(output), np.array(chosen)


@pytest.mark.parametrize("length", [pytest.param(7, marks=pytest.mark.slow), 126])
def test_fifteen_of_a_hundred_are_chosen_and_most_are_masked(length: int) -> None:
    tokens, output, chosen = _drawn(80_000 // length if length == 7 else 8000, length)
    assert chosen.mean() == pytest.approx(0.15, abs=0.001 if length > 7 else 0.003)
    masked = (output == MASK)[chosen].mean()
    same = (output == tokens)[chosen].mean()
    assert masked == pytest.approx(0.8, abs=0.005 if length > 7 else 0.01)
    assert same == pytest.approx(0.1 + 0.1 / len(IDS), abs=0.004 if length > 7 else 0.01)
    assert (output == tokens)[~chosen].all()
    assert set(output[chosen].tolist()) <= {MASK, *IDS.tolist()}


def test_whole_words_are_masked_together() -> None:
    _, _, chosen = _drawn(3000, 126, words=3, whole_word=True)
    words = chosen.reshape(-1, 3)
    assert (words.all(axis=1) == words.any(axis=1)).all()
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)


def test_spans_are_runs_of_whole_words_with_one_fate() -> None:
    _, output, chosen = _drawn(3000, 126, words=2, spans=True)
    words = chosen.reshape(len(chosen), -1, 2)
    assert (words.all(axis=2) == words.any(axis=2)).all()
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)
    edges = np.diff(np.pad(words[:, :, 0].astype(int), ((0, 0), (1, 1))), axis=1)
    lengths = np.concatenate(
        [np.flatnonzero(row == -1) - np.flatnonzero(row == 1) for row in edges]
    )
    assert 2.5 < lengths.mean() < 4.5  # cut at the end of a window, and where the share is reached
    fates = [output[i, j] == MASK for i, j in zip(*np.nonzero(chosen), strict=True)]
    assert np.mean(fates) == pytest.approx(0.8, abs=0.02)
    first, second = (chosen & np.roll(chosen, -1, axis=1))[:, ::2].nonzero()
    together = (output[first, second * 2] == MASK) == (output[first, second * 2 + 1] == MASK)
    assert together.mean() > 0.99  # a random token may be the mask's neighbour in another span


def test_spans_that_are_tried_are_as_long_as_span_berts() -> None:
    """Their lengths have the probabilities 0.2 x 0.8^(n - 1) for n up to 10, scaled to 1.

    See Joshi et al. 2020, 3.1.
    """
    masking = Masking(MaskingSection(spans=True), MASK, IDS)
    rng = np.random.default_rng(3)
    spans = masking._spans(np.ones(100_000, dtype=np.int64), 100_000, rng)[:100_000]
    shares = np.bincount([len(span) for span in spans], minlength=11)[1:] / len(spans)
    expected = 0.2 * 0.8 ** np.arange(10)
    assert shares == pytest.approx(expected / expected.sum(), abs=0.006)
    assert np.mean([len(span) for span in spans]) == pytest.approx(3.8, abs=0.05)


def test_other_shares() -> None:
    tokens, output, chosen = _drawn(500, 126, rate=0.4, replaced=1.0, random=0.0)
    assert chosen.mean() == pytest.approx(0.4, abs=0.002)
    assert (output[chosen] == MASK).all()
    assert tokens.shape == output.shape
