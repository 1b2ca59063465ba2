"""What stands on top of an encoder. It computes in fp32, whatever the encoder does.

A number of bf16 has 8 bits: 5,000 answers would share 256 probabilities, up to 0.02 off. The
encoder's last states are read in the precision that they have. The one of a regression is trained
on standardised scores, and answers on the person's scale.

Letters: B examples, D dimensions.
"""

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertctl.arrays import Floats32


def head_test(network: nn.Module) -> Callable[[str], bool]:
    """Returns a test of weights by their names: whether a weight belongs to the network's head.

    Usually the encoder is one module of the network, and everything else is the head. There are two
    kinds of networks without such a module. A bare encoder has no head but bertctl's own
    `sentence_head`. T5 for questions has a linear layer, its head, beside the encoder's modules.
    """
    encoder_prefix = f"{network.base_model_prefix}."
    if hasattr(network, str(network.base_model_prefix)):
        return lambda name: not name.startswith(encoder_prefix)
    is_bare = "For" not in type(network).__name__
    heads = [
        name
        for name, child in network.named_children()
        if isinstance(child, nn.Linear) and not is_bare
    ]
    return lambda name: name.partition(".")[0] in (*heads, "sentence_head")


def head_modules(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yields the names and modules of the head, also those within other modules."""
    is_head = head_test(network)
    for name, module in network.named_modules():
        if name and is_head(f"{name}."):
            yield name, module


def last_layer(network: nn.Module) -> tuple[str, nn.Linear]:
    """Returns the name and the module of the linear layer that computes the head's outputs."""
    linear_layers = [
        (name, module) for name, module in head_modules(network) if isinstance(module, nn.Linear)
    ]
    return linear_layers[-1]


def keep_in_fp32(network: nn.Module) -> None:
    """Makes everything on top of the encoder compute in fp32 under autocast, also in scoring."""
    for name, module in head_modules(network):
        if "." not in name:
            module.forward = _in_fp32(module.forward)


def _in_fp32(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a module's forward pass with its first input in fp32 and autocast turned off."""

    @functools.wraps(forward)
    def in_fp32(states: Tensor, *others: Any, **keyword_inputs: Any) -> Any:
        with torch.autocast(states.device.type, enabled=False):
            return forward(states.float(), *others, **keyword_inputs)

    return in_fp32


def allow_ends_within(network: Any) -> None:
    """Lets the texts of a batch have different numbers of end-of-text tokens, with T5 and BART.

    Their heads read the state at a text's last end token, and transformers refuses such a batch.
    Here each of its texts is then computed alone, which gives the same answers.

    Args:
        network: A network for sequence classification, whose forward pass is replaced.
    """
    forward = network.forward
    end = network.config.eos_token_id

    @functools.wraps(forward)
    def rows_alone(input_ids: Tensor, **keyword_inputs: Tensor) -> Any:
        """Returns the network's outputs of (B, T) tokens.

        If the texts have different numbers of end tokens, which `forward` refuses, each text is
        computed alone, and the output has only the logits.
        """
        counts = (input_ids == end).sum(dim=1)
        if bool((counts == counts[:1]).all()):
            return forward(input_ids=input_ids, **keyword_inputs)
        logits = []
        for i, ids in enumerate(input_ids):
            row_inputs = {name: tensor[i : i + 1] for name, tensor in keyword_inputs.items()}
            logits.append(forward(input_ids=ids[None], **row_inputs).logits)
        return SimpleNamespace(logits=torch.cat(logits))

    network.forward = rows_alone


class ScoreHead(nn.Linear):
    """A linear layer whose output z stands for the score `mean + deviation * z`.

    It gives the score.

    The weights that are trained are those of z, so that learning goes the same way on every scale
    of scores. Those of the score itself, which are saved, are `weight * deviation` and
    `bias * deviation + mean`. The forward pass computes with these, so that a saved model answers
    the same to the last bit; bf16 would leave 8 bits for 300 to 500.

    Args:
        linear: The layer whose place and parameters it takes.
        mean: Mean of the training scores. A layer without a bias can't add it, and scales by the
            scores' root mean square instead.
        deviation: Standard deviation of the training scores.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, linear: nn.Linear, mean: float = 0.0, deviation: float = 1.0) -> None:
        has_bias = linear.bias is not None
        super().__init__(
            linear.in_features,
            linear.out_features,
            bias=has_bias,
            device="meta",
        )
        self.weight = linear.weight
        self.bias = linear.bias
        # Without a bias the mean can't be added, so the scale is the scores' root mean square.
        scale = deviation if has_bias else math.hypot(mean, deviation)
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("deviation", torch.tensor(scale), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Returns scores, from (B, D) to (B, 1)."""
        return functional.linear(input, *self._of_score(self.weight, self.bias))

    def _of_score(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Returns the weight and the bias that give scores, from those of standardised scores.

        A score is the standardised score times the deviation, plus the mean.
        """
        mean = self.mean.to(weight.device)
        deviation = self.deviation.to(weight.device)
        if bias is None:
            return weight * deviation, None
        return weight * deviation, bias * deviation + mean

    def folded(self, weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
        """Returns a network's weights as they are saved: this layer's weights give scores.

        In training, they give standardised scores.

        Args:
            weights: Weights of the network by name.
            name: Name of this layer in the network.
        """
        weight, bias = self._of_score(weights[f"{name}.weight"], weights.get(f"{name}.bias"))
        folded = {**weights, f"{name}.weight": weight}
        if bias is not None:
            folded[f"{name}.bias"] = bias
        return folded

    def unfold(self) -> None:
        """Converts the parameters from those of scores to those of standardised scores, in place.

        Loaded weights give scores. The layer standardises by its mean and deviation, so it returns
        the same scores afterwards.
        """
        with torch.no_grad():
            self.weight.div_(self.deviation)
            if self.bias is not None:
                self.bias.sub_(self.mean).div_(self.deviation)

    def take_folded(self) -> None:
        """Makes the layer return what its parameters give: they are those of scores from now on."""
        self.mean.zero_()
        self.deviation.fill_(1.0)


def use_score_head(network: nn.Module, mean: float = 0.0, deviation: float = 1.0) -> ScoreHead:
    """Replaces the network's last layer, which has one output, by a score head, and returns that.

    Args:
        network: Changed in place.
        mean: Mean of the training scores. With the defaults, the outputs stay as they are.
        deviation: Standard deviation of the training scores.
    """
    name, linear = last_layer(network)
    head = ScoreHead(linear, mean, deviation)
    network.set_submodule(name, head)
    return head


def score_heads(network: nn.Module) -> dict[str, ScoreHead]:
    """Returns the network's score heads by name."""
    return {
        name: module for name, module in network.named_modules() if isinstance(module, ScoreHead)
    }


def dense_layer(network: nn.Module) -> nn.Linear | None:
    """Returns the square linear layer between the first token's state and the last layer.

    It belongs to the head or to the pooler. None if there is no such layer with a bias, or if it is
    frozen.
    """
    _, output_layer = last_layer(network)
    size = output_layer.in_features
    candidates = [module for _, module in head_modules(network)]
    pooler = getattr(getattr(network, "base_model", None), "pooler", None)
    if isinstance(pooler, nn.Module):
        candidates += [*pooler.modules()]
    for module in candidates:
        if not isinstance(module, nn.Linear) or module is output_layer:
            continue
        if tuple(module.weight.shape) == (size, size) and module.bias is not None:
            if module.weight.requires_grad:
                return module
            return None
    return None


@contextlib.contextmanager
def reading_vectors(network: nn.Module, dense: nn.Linear | None = None) -> Iterator[nn.Linear]:
    """Makes a network return the inputs of its last layer in place of logits; yields that layer.

    Whatever the network does with the logits, such as choosing those of the last token, it does
    with these vectors.

    Args:
        network: A network with a head.
        dense: A layer between the encoder and the last one. Its inputs are joined to the vectors if
            they have the same shape.
    """
    _, last = last_layer(network)
    # Each thread computes a batch of its own, so each has the inputs of `dense` of its own.
    inputs_read = threading.local()

    def note_inputs(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Keeps the inputs of `dense` until the last layer has been called."""
        inputs_read.dense = inputs[0].float()

    def return_inputs(_module: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> Tensor:
        """Returns the inputs of the last layer in place of its outputs."""
        vectors = inputs[0].float()
        dense_inputs = getattr(inputs_read, "dense", None)
        if dense_inputs is None or dense_inputs.shape != vectors.shape:
            return vectors
        return torch.cat([vectors, dense_inputs], dim=-1)

    with contextlib.ExitStack() as hooks:
        hooks.enter_context(last.register_forward_hook(return_inputs))
        if dense is not None:
            hooks.enter_context(dense.register_forward_pre_hook(note_inputs))
        yield last


def set_weights(layer: nn.Linear, weight: Floats32, bias: Floats32) -> None:
    """Writes weights and biases into a linear layer, in place.

    Args:
        layer: A layer with D inputs and C outputs. The weights of a `ScoreHead` are those of
            standardised scores.
        weight: (C, D).
        bias: (C,); ignored if the layer has no bias.
    """
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        if layer.bias is not None:
            layer.bias.copy_(torch.from_numpy(bias))
