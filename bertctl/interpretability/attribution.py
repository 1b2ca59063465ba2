"""How much each word contributes to a number that the network gives, by several methods, and how far to believe it.

Letters: W words of a line, T tokens, n lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from bertctl.interpretability.embeddings import EmbeddedNetwork, Floats
from bertctl.interpretability.lines import Line

TOLERANCE = 0.01
"""Share of F(x) - F(baseline) by which the sum of the attributions may miss it."""
MOST_STEPS = 512
"""Gradients of a path that does not become right."""
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the words that are taken away or kept (DeYoung et al. 2020, section 4.3)."""
FIGURES = ("comprehensiveness", "sufficiency")


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

    @classmethod
    def of(cls, line: Line, of_tokens: Floats, **facts: Any) -> Self:
        """Returns what (T,) contributions of tokens say of the words."""
        *words, apart = line.of_words(of_tokens)
        return cls(np.array(words), float(apart), facts)


def integrated_gradients(network: EmbeddedNetwork, lines: Sequence[Line], steps: int | None) -> list[Attribution]:
    """Returns the integrals of the gradients on the straight path from the baseline (Sundararajan et al. 2017).

    They add up to F(x) - F(baseline), which is what is checked. Gradients are taken at both ends and in the middle; a
    cubic spline through them is integrated. As the network's own value at each place says by how much the sum is off on
    each step, the steps that are most off are halved, all gradients kept, until the sum is right. On SST-2 that takes
    less than half the gradients of steps that are all halved, and a third of those of Gauss-Legendre.

    Args:
        network: what is explained.
        lines: n lines.
        steps: exactly so many, by Gauss-Legendre, as captum's default is; None as many as it takes.
    """
    if steps is not None:
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        changes = network.values(lines) - network.values(lines, np.zeros(len(lines)))
        points = [line for line in lines for _ in nodes]
        _values, products = network.gradients(points, np.tile((1 + nodes) / 2, len(lines)))
        sums = [weights / 2 @ products[i : i + steps] for i in range(0, len(points), steps)]
        return [_checked(*each, steps) for each in zip(lines, sums, changes, strict=True)]
    paths: list[dict[float, tuple[float, Floats]]] = [{} for _ in lines]
    found: dict[int, Attribution] = {}
    wanted = [(i, share) for i in range(len(lines)) for share in (0.0, 0.5, 1.0)]
    while wanted:
        values, along = network.gradients([lines[i] for i, _ in wanted], np.array([share for _, share in wanted]))
        for (i, share), value, of_tokens in zip(wanted, values.tolist(), along, strict=True):
            paths[i][share] = value, of_tokens
        asked, wanted = dict.fromkeys(i for i, _ in wanted), []
        for i in asked:
            shares, of_tokens, off = _integral(paths[i])
            change = paths[i][1.0][0] - paths[i][0.0][0]
            found[i] = _checked(lines[i], of_tokens, change, len(shares))
            if not found[i].facts["converged"] and len(shares) < MOST_STEPS:
                middles = (shares[:-1] + shares[1:]) / 2
                wanted += [(i, share) for share in middles[off >= off.max() / 2].tolist()]
    return [found[i] for i in range(len(lines))]


def _integral(path: Mapping[float, tuple[float, Floats]]) -> tuple[Floats, Floats, Floats]:
    """Returns where on a path it is known, its products' integrals (T,), and by how much each step is off in their sum.

    Args:
        path: value and products by the share of the way.
    """
    shares = np.array(sorted(path))
    values, products = zip(*(path[share] for share in shares.tolist()), strict=True)
    steps = np.diff(CubicSpline(shares, np.array(products)).antiderivative()(shares), axis=0)
    return shares, steps.sum(axis=0), np.abs(steps.sum(axis=1) - np.diff(values))


def _checked(line: Line, of_tokens: Floats, change: float, steps: int) -> Attribution:
    error = abs(float(of_tokens.sum() - change))
    converged = error <= TOLERANCE * abs(float(change))
    return Attribution.of(line, of_tokens, change=float(change), error=error, steps=steps, converged=converged)


def gradient_x_input(network: EmbeddedNetwork, lines: Sequence[Line], _: int | None) -> list[Attribution]:
    """Returns the products of each token's vector and the gradient with respect to it: a line through the text itself,
    which adds up to nothing in particular.
    """
    _values, products = network.gradients(lines, np.ones(len(lines)), of_input=True)
    return [Attribution.of(*each) for each in zip(lines, products, strict=True)]


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
        found[i] = Attribution.of(lines[i], flow[asked].mean(axis=0))
    return [found[i] for i in range(len(lines))]


Method = Callable[[EmbeddedNetwork, Sequence[Line], int | None], list[Attribution]]
METHODS: Mapping[str, Method] = {
    "integrated-gradients": integrated_gradients,
    "gradient-x-input": gradient_x_input,
    "leave-one-out": leave_one_out,
    "rollout": rollout,
}


def order_of(words: Floats) -> NDArray[np.int64]:
    """Returns the numbers of words by what they contribute, the most first; without those that can't be left out."""
    there = np.flatnonzero(~np.isnan(words))
    ordered: NDArray[np.int64] = there[np.argsort(-words[there], kind="stable")]
    return ordered


def faithfulness(
    network: EmbeddedNetwork, lines: Sequence[Line], whole: Floats, orders: Mapping[str, Sequence[NDArray[np.int64]]]
) -> list[dict[str, dict[str, float]]]:
    """Returns comprehensiveness and sufficiency of orders of words (DeYoung et al. 2020, section 4.3), line by line.

    By how much the number falls on average over `BINS` when the first words of the order are taken out of the text
    (comprehensiveness: more is better), and when only they are left (sufficiency: less is better). There it is a
    probability that falls; here it is the number that is explained, which answers of all tasks have.

    Args:
        network: asked without gradients.
        lines: n lines.
        whole: (n,) their numbers.
        orders: by name, for each line, the numbers of its removable words, the most important first.
    """
    variants: dict[tuple[int, bytes], Line] = {}  # the first words of a short text are the same for several bins
    asked: list[tuple[int, bytes]] = []
    for i, line in enumerate(lines):
        for order in (each[i] for each in orders.values()):
            for most in (int(np.ceil(share * len(order))) for share in BINS):
                for part in (order[:most], order[most:]):
                    gone = np.isin(np.arange(len(line.words)), part)
                    asked.append((i, gone.tobytes()))
                    variants.setdefault(asked[-1], line.without(gone))
    values = dict(zip(variants, network.values(list(variants.values())), strict=True))
    left = np.array([values[key] for key in asked]).reshape(len(lines), len(orders), len(BINS), len(FIGURES))
    falls = (whole[:, None, None] - left.mean(axis=2)).tolist()
    return [
        {name: dict(zip(FIGURES, fall, strict=True)) for name, fall in zip(orders, each, strict=True)} for each in falls
    ]
