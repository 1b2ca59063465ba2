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
    output = tokens.copy()
    chosen = np.zeros(tokens.shape, dtype=bool)
    for window in range(windows):
        rng = np.random.default_rng([7, window])
        positions, groups = masking.choose(begins, rng)
        originals = tokens[window, positions]
        output[window, positions] = masking.disguise(originals, groups, rng)
        chosen[window, positions] = True
    return tokens, output, chosen


@pytest.mark.parametrize(
    ("windows", "length", "tolerances"),
    [
        pytest.param(80_000 // 7, 7, (0.003, 0.01, 0.01), marks=pytest.mark.slow),
        (8000, 126, (0.001, 0.005, 0.004)),
    ],
)
def test_fifteen_of_a_hundred_are_chosen_and_most_are_masked(
    windows: int, length: int, tolerances: tuple[float, float, float]
) -> None:
    tolerance_of_chosen, tolerance_of_masked, tolerance_of_same = tolerances

    tokens, output, chosen = _drawn(windows, length)

    assert chosen.mean() == pytest.approx(0.15, abs=tolerance_of_chosen)
    masked_share = (output == MASK)[chosen].mean()
    assert masked_share == pytest.approx(0.8, abs=tolerance_of_masked)
    is_same = output == tokens
    random_hits = 0.1 / len(IDS)
    assert is_same[chosen].mean() == pytest.approx(0.1 + random_hits, abs=tolerance_of_same)
    assert is_same[~chosen].all()
    assert set(output[chosen].tolist()) <= {MASK, *IDS.tolist()}


def test_whole_words_are_masked_together() -> None:
    _, _, chosen = _drawn(3000, 126, words=3, whole_word=True)
    words = chosen.reshape(-1, 3)
    assert (words.all(axis=1) == words.any(axis=1)).all()
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)


def test_spans_are_runs_of_whole_words() -> None:
    _, _, chosen = _drawn(3000, 126, words=2, spans=True)

    words = chosen.reshape(len(chosen), -1, 2)
    assert (words.all(axis=2) == words.any(axis=2)).all()
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)
    mean_length = np.mean(_run_lengths(words[:, :, 0]))
    assert 2.5 < mean_length < 4.5  # cut at the end of a window, and where the share is reached


def _run_lengths(chosen: np.ndarray) -> np.ndarray:
    """Lengths of the runs of true values in the rows of an array."""
    padded = np.pad(chosen.astype(int), ((0, 0), (1, 1)))
    edges = np.diff(padded, axis=1).ravel()
    starts = np.flatnonzero(edges == 1)
    ends = np.flatnonzero(edges == -1)
    return ends - starts


def test_all_tokens_of_a_span_have_one_fate() -> None:
    _, output, chosen = _drawn(3000, 126, words=2, spans=True)

    is_masked = output == MASK
    assert is_masked[chosen].mean() == pytest.approx(0.8, abs=0.02)
    is_chosen_word = chosen[:, ::2] & chosen[:, 1::2]
    both_alike = is_masked[:, ::2] == is_masked[:, 1::2]
    share = both_alike[is_chosen_word].mean()
    assert share > 0.99  # a random token may be the mask's neighbour in another span


def test_spans_that_are_tried_are_as_long_as_span_berts() -> None:
    """Their lengths have the probabilities 0.2 x 0.8^(n - 1) for n up to 10, scaled to 1.

    See Joshi et al. 2020, 3.1.
    """
    masking = Masking(MaskingSection(spans=True), MASK, IDS)
    rng = np.random.default_rng(3)
    word_lengths = np.ones(100_000, dtype=np.int64)

    spans = masking._spans(word_lengths, 100_000, rng)[:100_000]

    span_lengths = [len(span) for span in spans]
    shares = np.bincount(span_lengths, minlength=11)[1:] / len(spans)
    probabilities = 0.2 * 0.8 ** np.arange(10)
    assert shares == pytest.approx(probabilities / probabilities.sum(), abs=0.006)
    assert np.mean(span_lengths) == pytest.approx(3.8, abs=0.05)


def test_other_shares() -> None:
    tokens, output, chosen = _drawn(
        500,
        126,
        rate=0.4,
        replaced=1.0,
        random=0.0,
    )
    assert chosen.mean() == pytest.approx(0.4, abs=0.002)
    assert (output[chosen] == MASK).all()
    assert tokens.shape == output.shape
