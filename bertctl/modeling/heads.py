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
    """Returns what tells a weight of the head, by its name, from one of the encoder.

    A bare encoder has no head; T5's for questions holds the parts of its encoder itself, beside a
    linear layer.
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
    """Yields all modules that do not belong to the encoder, by name, those within others too."""
    is_head = head_test(network)
    for name, module in network.named_modules():
        if name and is_head(f"{name}."):
            yield name, module


def last_layer(network: nn.Module) -> tuple[str, nn.Linear]:
    """Returns the linear layer whose outputs are the answers, by name."""
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
    @functools.wraps(forward)
    def in_fp32(states: Tensor, *others: Any, **keyword_inputs: Any) -> Any:
        with torch.autocast(states.device.type, enabled=False):
            return forward(states.float(), *others, **keyword_inputs)

    return in_fp32


def allow_ends_within(network: Any) -> None:
    """Makes a network that reads a text at its last end token take any batch.

    The texts of a batch may hold unequally many of these tokens.

    Transformers refuses such a batch (T5, BART); it takes each of the texts alone, which gives the
    same answers.
    """
    forward = network.forward
    end = network.config.eos_token_id

    @functools.wraps(forward)
    def rows_alone(input_ids: Tensor, **keyword_inputs: Tensor) -> Any:
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
        linear: the layer whose place it takes; it keeps its parameters.
        mean: of the training scores. A layer without a bias has no use for it, and takes their root
            mean square.
        deviation: of the training scores.
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
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer(
            "deviation", torch.tensor(deviation if has_bias else math.hypot(mean, deviation)), False
        )

    def forward(self, input: Tensor) -> Tensor:
        """Returns scores, from (B, D) to (B, 1)."""
        return functional.linear(input, *self._of_score(self.weight, self.bias))

    def _of_score(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        mean = self.mean.to(weight.device)
        deviation = self.deviation.to(weight.device)
        return weight * deviation, None if bias is None else bias * deviation + mean

    def folded(self, weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
        """Returns weights of the network, with those of this layer as of the score itself.

        The layer is called `name`.
        """
        weight, bias = self._of_score(weights[f"{name}.weight"], weights.get(f"{name}.bias"))
        return {**weights, f"{name}.weight": weight} | (
            {} if bias is None else {f"{name}.bias": bias}
        )

    def unfold(self) -> None:
        """Takes the parameters, which are those of the score itself, to those of z.

        The answers stay.
        """
        with torch.no_grad():
            self.weight.div_(self.deviation)
            if self.bias is not None:
                self.bias.sub_(self.mean).div_(self.deviation)

    def take_folded(self) -> None:
        """Marks the parameters as those of the score itself from now on."""
        self.mean.zero_()
        self.deviation.fill_(1.0)


def use_score_head(network: nn.Module, mean: float = 0.0, deviation: float = 1.0) -> ScoreHead:
    """Puts a score head in the place of the network's last layer, and returns it.

    That layer has one output.
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
    """Returns the square layer between the first token's state and the last layer.

    It is a pooler's, or a head's own.

    None where there is none, or where it is not trained.
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
    """Makes the network give the vectors that its last layer reads, which is yielded.

    They take the place of its logits.

    Whatever the network does with the logits, such as choosing those of the last token, it does
    with the vectors.

    Args:
        network: With a head.
        dense: A layer between the encoder and the last one. What it reads then follows each vector,
            where it is as many vectors of the same size.
    """
    _, last = last_layer(network)
    read_by = threading.local()  # several threads may each compute a batch

    def note(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        read_by.dense = inputs[0].float()

    def give(_module: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> Tensor:
        vectors = inputs[0].float()
        beside = getattr(read_by, "dense", None)
        if beside is None or beside.shape != vectors.shape:
            return vectors
        return torch.cat([vectors, beside], dim=-1)

    with contextlib.ExitStack() as hooks:
        hooks.enter_context(last.register_forward_hook(give))
        if dense is not None:
            hooks.enter_context(dense.register_forward_pre_hook(note))
        yield last


def set_weights(layer: nn.Linear, weight: Floats32, bias: Floats32) -> None:
    """Puts weights (C, D) and biases (C,) into a layer, in place.

    A layer, in place; a layer without a bias has no use for them.

    Those of a score head stand for standardised scores.
    """
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        if layer.bias is not None:
            layer.bias.copy_(torch.from_numpy(bias))
