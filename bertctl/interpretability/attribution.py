"""How much each word contributes to a number that the network gives, by several methods, and how far to believe it.

Letters: W words of a line, T tokens, n lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertctl.interpretability.embeddings import EmbeddedNetwork, Floats
from bertctl.interpretability.lines import Line

TOLERANCE = 0.01
"""Share of F(x) - F(baseline) by which the sum of the attributions may miss it."""
FIRST_STEPS, MOST_STEPS = 8, 512
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the words that are taken away or kept (DeYoung et al. 2020, section 4.3)."""


@dataclass(frozen=True)
class Attribution:
    """What a method says of one line.

    Attributes:
        words: (W,) in units of the number that is explained; NaN for a word that can't be left out.
        apart: sum over all tokens that belong to no word; None where the method has none.
        facts: what else is to be known, by name.
    """

    words: Floats
    apart: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def integrated_gradients(network: EmbeddedNetwork, lines: Sequence[Line], steps: int | None) -> list[Attribution]:
    """Returns the integrals of the gradients on the straight path from the baseline (Sundararajan et al. 2017).

    They add up to F(x) - F(baseline), which is what is checked. By the trapezoid rule, whose steps are doubled, all
    gradients kept, until the sum is right: as the network gives the same near both ends of most paths, that takes half
    the gradients of Gauss-Legendre.

    Args:
        network: what is explained.
        lines: n lines.
        steps: exactly so many, by Gauss-Legendre, as captum's default is; None doubles them.
    """
    sums = [np.zeros(len(line)) for line in lines]
    if steps is not None:
        ends, begins = network.values(lines, 1.0), network.values(lines, 0.0)
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        _add(network, lines, (1 + nodes) / 2, weights / 2, sums)
        return [_checked(*each, steps) for each in zip(lines, sums, ends - begins, strict=True)]
    ends, begins = (_add(network, lines, np.array([share]), np.array([0.5]), sums) for share in (1.0, 0.0))
    count, waiting, found = 1, list(range(len(lines))), {}
    while waiting:
        count *= 2
        shares = (np.arange(count // 2) * 2 + 1) / count
        added = [np.zeros(len(lines[i])) for i in waiting]
        _add(network, [lines[i] for i in waiting], shares, np.ones(len(shares)), added)
        for i, of_tokens in zip(waiting, added, strict=True):
            sums[i] += of_tokens
            found[i] = _checked(lines[i], sums[i] / count, ends[i] - begins[i], count)
        waiting = [
            i for i in waiting if count < FIRST_STEPS or not (found[i].facts["converged"] or count >= MOST_STEPS)
        ]
    return [found[i] for i in range(len(lines))]


def _add(
    network: EmbeddedNetwork, lines: Sequence[Line], shares: Floats, weights: Floats, sums: Sequence[Floats]
) -> Floats:
    """Adds the weighted products at these places of each path to `sums`; returns (n,) values at the last of them."""
    values = np.zeros(len(lines))
    points = [line for line in lines for _ in shares]
    for k, value, products in network.gradients(points, np.tile(shares, len(lines))):
        sums[k // len(shares)][:] += weights[k % len(shares)] * products
        values[k // len(shares)] = value
    return values


def _checked(line: Line, of_tokens: Floats, change: float, steps: int) -> Attribution:
    error = abs(float(of_tokens.sum() - change))
    *words, apart = line.of_words(of_tokens)
    facts = {
        "change": float(change),
        "error": error,
        "steps": steps,
        "converged": error <= TOLERANCE * abs(float(change)),
    }
    return Attribution(np.array(words), float(apart), facts)


def gradient_x_input(network: EmbeddedNetwork, lines: Sequence[Line], _: int | None) -> list[Attribution]:
    """Returns the products of each token's vector and the gradient with respect to it: a line through the text itself,
    which adds up to nothing in particular.
    """
    found: dict[int, Attribution] = {}
    for i, _value, products in network.gradients(lines, np.ones(len(lines)), of_input=True):
        *words, apart = lines[i].of_words(products)
        found[i] = Attribution(np.array(words), float(apart))
    return [found[i] for i in range(len(lines))]


def leave_one_out(network: EmbeddedNetwork, lines: Sequence[Line], _: int | None) -> list[Attribution]:
    """Returns by how much the number falls when a word is taken out of the text, the words behind it moved up."""
    places = [(i, word) for i, line in enumerate(lines) for word in np.flatnonzero(line.removable)]
    values = network.values([lines[i].without(np.arange(len(lines[i].words)) == word) for i, word in places])
    whole = network.values(lines)
    found = [np.full(len(line.words), np.nan) for line in lines]
    for (i, word), value in zip(places, values, strict=True):
        found[i][word] = whole[i] - value
    return [Attribution(words) for words in found]


def rollout(network: EmbeddedNetwork, lines: Sequence[Line], _: int | None) -> list[Attribution]:
    """Returns where the tokens that are asked look, through all layers (Abnar and Zuidema 2020): the mean attention of
    each layer's heads, half of it the residual path, multiplied up.

    That is what it is: no contribution to any label, the same for all labels, never negative, in all 1.
    """
    found: dict[int, Attribution] = {}
    for i, layers in network.attentions(lines):
        flow = np.eye(len(lines[i]))
        for mean in layers:
            flow = (mean + np.eye(len(flow))) / 2 @ flow
        asked = [place[0] for place in lines[i].places if len(place) > 1] or [lines[i].summary]
        *words, apart = lines[i].of_words(flow[asked].mean(axis=0))
        found[i] = Attribution(np.array(words), float(apart))
    return [found[i] for i in range(len(lines))]


Method = Callable[[EmbeddedNetwork, Sequence[Line], int | None], list[Attribution]]
METHODS: Mapping[str, Method] = {
    "integrated-gradients": integrated_gradients,
    "gradient-x-input": gradient_x_input,
    "leave-one-out": leave_one_out,
    "rollout": rollout,
}


def faithfulness(
    network: EmbeddedNetwork, lines: Sequence[Line], orders: Sequence[NDArray[Any]]
) -> list[dict[str, float]]:
    """Returns comprehensiveness and sufficiency of orders of words (DeYoung et al. 2020, section 4.3).

    By how much the number falls on average over `BINS` when the first words of the order are taken out of the text
    (comprehensiveness: more is better), and when only they are left (sufficiency: less is better). There it is a
    probability that falls; here it is the number that is explained, which answers of all tasks have.

    Args:
        network: asked without gradients.
        lines: n lines.
        orders: numbers of each line's removable words, the most important first.
    """
    variants: list[Line] = []
    whole = network.values(lines)
    for line, order in zip(lines, orders, strict=True):
        for most in (int(np.ceil(share * len(order))) for share in BINS):
            first, rest = (np.isin(np.arange(len(line.words)), part) for part in (order[:most], order[most:]))
            variants += [line.without(first), line.without(rest)]
    falls = whole[:, None] - network.values(variants).reshape(len(lines), len(BINS), 2).mean(axis=1)
    return [{"comprehensiveness": float(taken), "sufficiency": float(kept)} for taken, kept in falls]


def order_of(words: Floats) -> NDArray[np.int64]:
    """Returns the numbers of words by what they contribute, the most first; without those that can't be left out."""
    there = np.flatnonzero(~np.isnan(words))
    ordered: NDArray[np.int64] = there[np.argsort(-words[there], kind="stable")]
    return ordered
