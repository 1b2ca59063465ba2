"""The last layer of a regression: trained on standardised scores, answering on the person's scale.

Letters: B examples, D dimensions.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertctl.modeling.heads import last_layer


class ScoreHead(nn.Linear):
    """A linear layer whose output z stands for the score `mean + deviation * z`. It gives the score.

    The weights that are trained are those of z, so that learning goes the same way on every scale of scores. Those of
    the score itself, which are saved, are `weight * deviation` and `bias * deviation + mean`. The forward pass computes
    with these, so that a saved model answers the same to the last bit; bf16 would leave 8 bits for 300 to 500.

    Args:
        linear: the layer whose place it takes; it keeps its parameters.
        mean: of the training scores. A layer without a bias has no use for it, and takes their root mean square.
        deviation: of the training scores.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, linear: nn.Linear, mean: float = 0.0, deviation: float = 1.0) -> None:
        has_bias = linear.bias is not None
        super().__init__(linear.in_features, linear.out_features, bias=has_bias, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation if has_bias else math.hypot(mean, deviation)), False)

    def forward(self, input: Tensor) -> Tensor:
        """Returns scores, from (B, D) to (B, 1)."""
        return functional.linear(input, *self._of_score(self.weight, self.bias))

    def _of_score(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        mean, deviation = self.mean.to(weight.device), self.deviation.to(weight.device)
        return weight * deviation, None if bias is None else bias * deviation + mean

    def folded(self, weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
        """Returns weights of the network, those of this layer (which is called `name`) as those of the score itself."""
        weight, bias = self._of_score(weights[f"{name}.weight"], weights.get(f"{name}.bias"))
        return {**weights, f"{name}.weight": weight} | ({} if bias is None else {f"{name}.bias": bias})

    def unfold(self) -> None:
        """Takes the parameters, which are those of the score itself, to those of z: the answers stay."""
        with torch.no_grad():
            self.weight.div_(self.deviation)
            if self.bias is not None:
                self.bias.sub_(self.mean).div_(self.deviation)

    def take_folded(self) -> None:
        """Says that the parameters are those of the score itself from now on."""
        self.mean.zero_()
        self.deviation.fill_(1.0)


def use_score_head(network: nn.Module, mean: float = 0.0, deviation: float = 1.0) -> ScoreHead:
    """Puts a score head in the place of the network's last layer, which has one output, and returns it."""
    name, linear = last_layer(network)
    head = ScoreHead(linear, mean, deviation)
    network.set_submodule(name, head)
    return head


def score_heads(network: nn.Module) -> dict[str, ScoreHead]:
    """Returns the network's score heads by name."""
    return {name: module for name, module in network.named_modules() if isinstance(module, ScoreHead)}
