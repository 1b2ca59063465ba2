"""How much each word contributes to a number that the network gives.

It is told by several methods, with how far to believe it.

Letters: W words of a line, T tokens, n lines.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.interpolate import CubicSpline

from bertctl.arrays import Floats, Ints
from bertctl.interpretability.embeddings import EmbeddedNetwork
from bertctl.interpretability.lines import Line

TOLERANCE = 0.01
"""Share of F(x) - F(baseline) by which the sum of the attributions may miss it."""
MOST_STEPS = 512
"""Gradients of a path that does not become right."""
# Places on the path. Most happens in its first half, nearer to the baseline.
_FIRST = (
    0.0,
    0.15,
    0.3,
    0.6,
    1.0,
)
_FAR = 64  # times what the whole sum may be off by: steps that are so far off are halved together
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the words that are taken away or kept (DeYoung et al. 2020, section 4.3)."""
FIGURES = ("comprehensiveness", "sufficiency")


class Attribution(NamedTuple):
    """What a method says of one line.

    Attributes:
        value: The number that is explained.
        words: (W,) in its units; NaN for a word that can't be left out.
        apart: Sum over all tokens that belong to no word; None where the method has none.
        facts: What else is to be known, by name.
    """

    value: float
    words: Floats
    apart: float | None = None
    facts: Mapping[str, Any] = {}

    @classmethod
    def of(cls, line: Line, value: float, of_tokens: Floats, **facts: Any) -> Self:
        """Returns the attribution of words: a word's contribution is the sum over its tokens.

        Args:
            line: The line, which knows the word of each token.
            value: The number that is explained.
            of_tokens: (T,) contributions of the tokens.
            facts: What else the method knows, such as `converged`.
        """
        *words, apart = line.of_words(of_tokens)
        return cls(float(value), np.array(words), float(apart), facts)


def integrated_gradients(
    network: EmbeddedNetwork, lines: Sequence[Line], steps: int | None
) -> list[Attribution]:
    """Returns the integrals of the gradients on the straight path from the baseline to the text.

    These are integrated gradients (Sundararajan et al. 2017): the contributions of the tokens. They
    must add up to F(x) - F(baseline), with the network's value F.

    Gradients are computed at a few points of the path, and a natural cubic spline through them is
    integrated. The sum is then checked on each step between two points, as the network's values at
    the points are known. The steps with the largest errors are halved, until the sum over the whole
    path is right (`_steps_to_halve`). On SST-2 this takes a third fewer gradients than halving all
    steps that are at least half as far off as the worst one.

    Args:
        network: What is explained.
        lines: Lines to explain, n of them.
        steps: Exactly so many, by Gauss-Legendre, as captum's default is; None as many as it takes.
    """
    if steps is not None:
        return _legendre_gradients(network, lines, steps)

    # For each line, value and products by the share of the way.
    paths: list[dict[float, tuple[float, Floats]]] = [{} for _ in lines]
    attributions: dict[int, Attribution] = {}
    pending = list(itertools.product(range(len(lines)), _FIRST))
    while pending:
        pending_lines = [lines[i] for i, _ in pending]
        pending_shares = np.array([share for _, share in pending])
        computed = network.gradients(pending_lines, pending_shares)
        for (i, share), value, products in zip(pending, *computed, strict=True):
            paths[i][share] = value, products

        line_numbers = dict.fromkeys(i for i, _ in pending)
        pending = []
        for i in line_numbers:
            attributions[i], halves = _integrated(lines[i], paths[i])
            pending += [(i, share) for share in halves]
    return [attributions[i] for i in range(len(lines))]


def _integrated(
    line: Line, path: Mapping[float, tuple[float, Floats]]
) -> tuple[Attribution, list[float]]:
    """Returns the integral along a path, and the shares at which to compute more gradients.

    None are needed if the integral is right, or if there are as many as allowed.

    Args:
        line: The line at the end of the path.
        path: For shares of the way, the network's value there, and for each token its gradient
            times (line - baseline), as `EmbeddedNetwork.gradients` returns them.
    """
    shares = np.array(sorted(path))
    values = np.array([path[share][0] for share in shares])
    products = np.array([path[share][1] for share in shares])
    weights = _weights(shares)  # (steps, shares)
    of_tokens = weights.sum(axis=0) @ products
    attribution = _checked(line, values[[0, -1]], of_tokens, len(shares))
    if attribution.facts["converged"] or len(shares) >= MOST_STEPS:
        return attribution, []

    # The integral of each step should be the change of the network's value there.
    errors = weights @ products.sum(axis=1) - np.diff(values)
    steps = _steps_to_halve(errors, abs(attribution.facts["change"]))
    halves = (shares[steps] + shares[steps + 1]) / 2
    return attribution, halves.tolist()


def _steps_to_halve(errors: Floats, change: float) -> Ints:
    """Returns the numbers of the steps that add most to the error of the whole path.

    They are those that are far off, but at most a third of all steps. If few are far off, they are
    the worst eighth of all steps, or the worst one of fewer than eight.

    Args:
        errors: Error of the integral of each step. Their sum is the error of the whole.
        change: By how much the network's value changes on the whole path.
    """
    added_errors = errors * np.sign(errors.sum())  # positive in the direction of the whole error
    n_far = int((added_errors > _FAR * TOLERANCE * change).sum())
    n_halved = max(1, len(errors) // 8, min(n_far, len(errors) // 3))
    return np.argsort(-added_errors)[:n_halved]


def _legendre_gradients(
    network: EmbeddedNetwork, lines: Sequence[Line], steps: int
) -> list[Attribution]:
    """Returns the integrals by so many steps of the Gauss-Legendre quadrature.

    The rule is for the integral from -1 to 1. The path from the baseline (0) to the text (1) is
    half as long: its nodes are (1 + node) / 2, its weights are halved.
    """
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    shares = (1 + nodes) / 2
    baseline_values = network.values(lines, np.full(len(lines), 0.0))
    text_values = network.values(lines, np.full(len(lines), 1.0))
    ends = np.transpose([baseline_values, text_values])

    repeated: list[Line] = []
    for line in lines:
        repeated += [line] * steps
    _, products = network.gradients(repeated, np.tile(shares, len(lines)))

    attributions = []
    for number, line in enumerate(lines):
        of_line = products[number * steps : (number + 1) * steps]
        integrals = weights / 2 @ of_line
        attributions.append(_checked(line, ends[number], integrals, steps))
    return attributions


def _weights(shares: Floats) -> Floats:
    """Returns (n - 1, n) how much each of n values counts in the integral over each step.

    The integral is that of the natural cubic spline through the values. It is linear in them, so
    the splines through unit vectors give the weights.

    Args:
        shares: (n,) ascending positions of the values.
    """
    spline = CubicSpline(shares, np.eye(len(shares)), bc_type="natural")
    return np.asarray(np.diff(spline.antiderivative()(shares), axis=0))


def _checked(line: Line, ends: Floats, of_tokens: Floats, steps: int) -> Attribution:
    """Returns an attribution, with whether its sum is right among its facts (`converged`).

    Args:
        line: What is explained.
        ends: The network's values for the baseline and for the line.
        of_tokens: (T,) integrals, which should add up to the difference of the two.
        steps: How many gradients were computed.
    """
    change = float(ends[1] - ends[0])
    error = abs(float(of_tokens.sum()) - change)
    # Passes in fp32 differ by rounding, even for an empty text.
    least = 1e-4 * float(np.abs(ends).max())
    converged = error <= TOLERANCE * max(abs(change), least)
    return Attribution.of(
        line,
        ends[1],
        of_tokens,
        change=change,
        error=error,
        steps=steps,
        converged=converged,
    )


def gradient_x_input(
    network: EmbeddedNetwork, lines: Sequence[Line], _: int | None
) -> list[Attribution]:
    """Returns the products of each token's vector and the gradient by it.

    Unlike integrated gradients, they add up to nothing in particular.
    """
    values, products = network.gradients(lines, np.ones(len(lines)), of_input=True)
    return [
        Attribution.of(line, value, line_products)
        for line, value, line_products in zip(lines, values, products, strict=True)
    ]


def leave_one_out(
    network: EmbeddedNetwork, lines: Sequence[Line], _: int | None
) -> list[Attribution]:
    """Returns by how much the explained number of each line falls without each of its words.

    The words behind the one that is taken out move up. Words that can't be taken out have NaN. The
    last argument, the number of steps, is for other methods.
    """
    removals: list[tuple[int, int]] = []
    variants: list[Line] = []
    for i, line in enumerate(lines):
        for word in np.flatnonzero(line.removable).tolist():
            removals.append((i, word))
            variants.append(line.without(np.arange(len(line.words)) == word))

    values = network.values(variants)
    full_values = network.values(lines)
    falls = [np.full(len(line.words), np.nan) for line in lines]
    for (i, word), value in zip(removals, values, strict=True):
        falls[i][word] = full_values[i] - value
    return [
        Attribution(float(value), words) for value, words in zip(full_values, falls, strict=True)
    ]


def rollout(network: EmbeddedNetwork, lines: Sequence[Line], _: int | None) -> list[Attribution]:
    """Returns attention rollout: where the tokens that the head reads look, through all layers.

    The mean attention of a layer's heads is averaged with the identity, which stands for the
    residual connection, and layers are multiplied (Abnar and Zuidema 2020). It is no contribution
    to a label: it is the same for all labels, never negative, and adds up to 1.
    """
    attributions = {}
    values = network.values(lines)
    config = getattr(network.engine.network, "config", None)
    is_mean = getattr(config, "classifier_pooling", "cls") == "mean"  # of ModernBERT
    for i, layers in network.attentions(lines):
        flow = np.eye(len(lines[i]))
        for mean in layers:
            flow = (mean + np.eye(len(flow))) / 2 @ flow
        is_decoder = not np.triu(layers[0], 1).any()  # no token sees later ones
        positions = lines[i].read_by_head(is_mean=is_mean, is_decoder=is_decoder)
        attributions[i] = Attribution.of(lines[i], values[i], flow[positions].mean(axis=0))
    return [attributions[i] for i in range(len(lines))]


Method = Callable[[EmbeddedNetwork, Sequence[Line], int | None], list[Attribution]]
METHODS: Mapping[str, Method] = {
    "integrated-gradients": integrated_gradients,
    "gradient-x-input": gradient_x_input,
    "leave-one-out": leave_one_out,
    "rollout": rollout,
}


def order_of(words: Floats) -> Ints:
    """Returns the numbers of words in the order of their contributions, the largest first.

    Args:
        words: Contributions of the words. Those with NaN, which can't be left out, are not in the
            order.
    """
    removable = np.flatnonzero(~np.isnan(words))
    return removable[np.argsort(-words[removable], kind="stable")]


def faithfulness(
    network: EmbeddedNetwork,
    lines: Sequence[Line],
    full_values: Floats,
    orders: Mapping[str, Sequence[Ints]],
) -> list[dict[str, dict[str, float]]]:
    """Returns comprehensiveness and sufficiency of orders of words, line by line.

    Both are falls of the number that is explained, averaged over the shares of words in `BINS`.
    Comprehensiveness is the fall when the first words of the order are taken out of the text: more
    is better. Sufficiency is the fall when only these words are left: less is better.

    See DeYoung et al. 2020, section 4.3. In the paper the number is a probability, which not all
    tasks have.

    Args:
        network: The network, which is asked without gradients.
        lines: Lines to explain, n of them.
        full_values: (n,) their numbers.
        orders: Orders by name: for each line, the numbers of its removable words, beginning with
            the most important one.
    """
    # Each different text is computed once: several bins of a short text leave out the same words.
    variants: dict[tuple[int, bytes], Line] = {}
    keys: list[tuple[int, bytes]] = []
    for i, line in enumerate(lines):
        for line_orders in orders.values():
            order = line_orders[i]
            for share in BINS:
                n_first = int(np.ceil(share * len(order)))
                # Comprehensiveness takes the first words out, sufficiency all others.
                for removed in (order[:n_first], order[n_first:]):
                    is_removed = np.isin(np.arange(len(line.words)), removed)
                    keys.append((i, is_removed.tobytes()))
                    variants.setdefault(keys[-1], line.without(is_removed))
    values = dict(zip(variants, network.values(list(variants.values())), strict=True))
    remaining_values = np.array([values[key] for key in keys]).reshape(
        len(lines), len(orders), len(BINS), len(FIGURES)
    )
    falls = full_values[:, None, None] - remaining_values.mean(axis=2)

    faithfulness_of_lines = []
    for line_falls in falls.tolist():
        by_order = {}
        for name, order_falls in zip(orders, line_falls, strict=True):
            by_order[name] = dict(zip(FIGURES, order_falls, strict=True))
        faithfulness_of_lines.append(by_order)
    return faithfulness_of_lines
