"""A network's attention function with another in its place.

The other sees queries and keys and can weigh heads.

Families of transformers that follow its attention interface call one function in each layer, with
what positions have been rotated into already. Families that compute their scores in a way of their
own call none: there nothing is seen.

Letters: L layers, B windows, H heads, T tokens, D size of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bertctl.modeling.transformers_internals import attention_function

if TYPE_CHECKING:
    from torch import Tensor, nn

_NAME = "bertctl_tap"


@dataclass(frozen=True)
class Scores:
    """What one layer computed its attention from.

    Attributes:
        query: (B, H, T, D).
        key: (B, H, T, D).
        scaling: What their products are multiplied by.
        mask: Added to that; None where every token sees every other.
    """

    query: "Tensor"
    key: "Tensor"
    scaling: float
    mask: "Tensor | None"

    def weights(self) -> "Tensor":
        """Returns (B, H, T, T) attention weights.

        They are the softmax of the scaled products, over the tokens that may be seen.
        """
        products = self.query @ self.key.transpose(-1, -2) * self.scaling
        if self.mask is not None:  # minus infinity for tokens that may not be seen
            products = products + self.mask
        return products.softmax(dim=-1)


@dataclass
class Tap:
    """What is seen of a forward pass, and what is done to it.

    Attributes:
        gates: (L, B, H), or 1 in place of B: what each head's output is multiplied by; None leaves
            it alone.
        scores: Scores of each of the L layers in the last pass.
    """

    gates: "Tensor | None" = None
    scores: list[Scores] = field(default_factory=list)

    def open_gates(self, texts: int) -> "Tensor":
        """Returns gates that leave all heads of the last pass as they are, (L, texts, H)."""
        query = self.scores[0].query
        return query.new_ones(len(self.scores), texts, query.shape[1])

    def begin(self, *_: object) -> None:
        """Forgets the last pass."""
        self.scores = []

    def attend(
        self,
        module: "nn.Module",
        query: "Tensor",
        key: "Tensor",
        value: "Tensor",
        mask: "Tensor | None",
        **options: Any,
    ) -> "tuple[Tensor, None]":
        """Computes a layer's attention as torch does, records its scores, and weighs its heads.

        It is what transformers calls in place of its own attention function.

        Args:
            module: The attention of the layer.
            query: (B, H, T, D).
            key: (B, K, T, D); a key may be shared by several of the H heads.
            value: (B, K, T, D).
            mask: What is added to the scores of (B, 1, T, T) pairs of tokens.
            options: What the layer passes on, such as `scaling`.

        Returns:
            (B, T, H, D) output of the heads, and no attention weights.
        """
        from transformers import AttentionInterface

        output, _ = AttentionInterface()["sdpa"](
            module,
            query,
            key,
            value,
            mask,
            **options,
        )
        # Each layer adds its scores, so there are as many as layers before this one.
        layer = len(self.scores)
        if self.gates is not None:
            output = output * self.gates[layer][:, None, :, None]
        shared = query.shape[1] // key.shape[1]  # heads that share a key
        scaling = options.get("scaling") or query.shape[-1] ** -0.5
        self.scores.append(Scores(query, key.repeat_interleave(shared, dim=1), scaling, mask))
        return output, None


@contextmanager
def attending(network: Any, function_name: str) -> Iterator[None]:
    """Makes a transformers model compute its attention by another function, within `with`.

    Args:
        network: The model.
        function_name: Name under which transformers has registered it, such as "eager".
    """
    before = attention_function(network)
    network.set_attn_implementation(function_name)
    try:
        yield
    finally:
        network.set_attn_implementation(before)


@contextmanager
def tapped(network: Any) -> Iterator[Tap]:
    """Puts a tap in place of a transformers model's attention function, within `with`."""
    from transformers import AttentionInterface, AttentionMaskInterface

    tap = Tap()
    AttentionInterface.register(_NAME, tap.attend)
    # `Scores` needs a mask of numbers to add.
    AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["eager"])
    with network.register_forward_pre_hook(tap.begin), attending(network, _NAME):
        yield tap
