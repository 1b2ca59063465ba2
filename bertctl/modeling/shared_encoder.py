"""Encoders that several networks have alike: each batch goes once through what is the same.

Networks that were fine-tuned from one model share what their training left as it was: the whole
encoder if it was frozen, else its lowest layers up to the first one that differs. A network looks
at what the other one read of the same batch. If it reads something else, it computes by itself, so
a shared pass never changes an answer.

Letters: B windows, T tokens, H numbers of a hidden state.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from bertctl.modeling.fast.torch_bert import Layer, Network, Stack
from bertctl.modeling.probe_network import ProbeNetwork


@dataclass(frozen=True)
class SharedPart:
    """What a network shares with an earlier one.

    Attributes:
        partner: Number of the earlier network, from 0.
        layers: Layers that each batch goes through once for both.
        of: Layers of the encoder.
    """

    partner: int
    layers: int
    of: int


def share_encoder(earlier: Mapping[int, nn.Module], network: nn.Module) -> SharedPart | None:
    """Makes a network share its lowest layers with the earlier one that has most of them.

    Args:
        earlier: Networks by number; they and the new one are changed in place.
        network: A network on the same device and in the same precision, ready to answer.

    Returns:
        What is shared; None if it is no layer.
    """
    best: SharedPart | None = None
    for number, other in earlier.items():
        layers = _count_alike(other, network)
        if layers and (best is None or layers > best.layers):
            best = SharedPart(partner=number, layers=layers, of=_depth(_encoder_of(network)))
    if best is not None:
        _share(earlier[best.partner], network, best.layers)
    return best


_OF_HEADS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "classifier_dropout",
        "dtype",
        "id2label",
        "label2id",
        "long_text",
        "num_labels",
        "positive_label",
        "problem_type",
        "score_mean",
        "score_range",
        "score_scale",
        "transformers_version",
    }
)
"""Fields of config.json that say nothing about the encoder."""


def _count_alike(earlier: nn.Module, network: nn.Module) -> int:
    """Returns how many of the lowest layers two networks can compute in one pass.

    Networks of `torch_bert.py` share their layers up to the first one that differs. Networks of
    transformers share their whole encoder or nothing.
    """
    encoder = _encoder_of(network)
    earlier_encoder = _encoder_of(earlier)
    if encoder is earlier_encoder:
        return _depth(encoder)
    if isinstance(earlier, Network) and isinstance(network, Network):
        pairs = zip(_stack_of(earlier).layer, _stack_of(network).layer, strict=False)
        n_alike = 0
        for earlier_layer, layer in pairs:
            if not _is_same_layer(cast(Layer, earlier_layer), cast(Layer, layer)):
                break
            n_alike += 1
        return n_alike
    if _is_same_encoder(earlier_encoder, encoder):
        return _depth(encoder)
    return 0


def _share(earlier: nn.Module, network: nn.Module, layers: int) -> None:
    """Makes a network use the layers that an earlier one has just computed, instead of its own.

    Args:
        earlier: Network whose lowest layers are the same; changed in place.
        network: Changed in place.
        layers: How many of the lowest layers are the same.
    """
    if isinstance(earlier, Network) and isinstance(network, Network):
        partner = _partly_shared(earlier)
        own_layers = [*_stack_of(network).layer]
        joined = [*partner.layer[:layers], *own_layers[layers:]]
        stack = PartlySharedStack(cast(list[Layer], joined), partner, layers)
        network.base_model.put("stack", stack.eval())  # type: ignore[operator]
        return

    # Networks of transformers share their encoders only as a whole.
    encoder = _encoder_of(earlier)
    _remember_last_pass(encoder, keeps_all=isinstance(network, ProbeNetwork))
    if not isinstance(network, ProbeNetwork):
        setattr(network, str(network.base_model_prefix), encoder)


def _partly_shared(network: Network) -> "PartlySharedStack":
    """Returns the layers of a network as a stack whose outputs other networks can continue from.

    If they are another kind of stack, it is replaced in the network.
    """
    stack = _stack_of(network)
    if not isinstance(stack, PartlySharedStack):
        stack = PartlySharedStack(cast(list[Layer], [*stack.layer])).eval()
        network.base_model.put("stack", stack)  # type: ignore[operator]
    return stack


def _stack_of(network: Network) -> Stack:
    stack: Stack = network.base_model.part("stack")  # type: ignore[operator]
    return stack


def _encoder_of(network: nn.Module) -> nn.Module:
    """Returns the encoder of a network with a head, or of a probe."""
    if isinstance(network, ProbeNetwork):
        return network.encoder
    return cast(nn.Module, network.base_model)


def _depth(encoder: nn.Module) -> int:
    """Returns the number of an encoder's layers; 1 if its config doesn't have it."""
    return int(getattr(encoder.config, "num_hidden_layers", 1))


def _is_same_layer(layer: Layer, other: Layer) -> bool:
    """Returns whether two layers compute the same: equal settings and equal weights."""
    is_same_kind = layer.names == other.names and layer.heads == other.heads
    is_same_kind = is_same_kind and layer.epsilon == other.epsilon
    return is_same_kind and _has_equal_weights(layer, other)


def _is_same_encoder(encoder: nn.Module, other: nn.Module) -> bool:
    """Returns whether two encoders of transformers compute the same."""
    if type(encoder) is not type(other) or not hasattr(encoder.config, "to_dict"):
        return False
    return _shape(encoder) == _shape(other) and _has_equal_weights(encoder, other)


def _shape(encoder: nn.Module) -> dict[str, Any]:
    """Returns the fields of an encoder's config.json without those of a head."""
    config: Any = encoder.config
    return {name: value for name, value in config.to_dict().items() if name not in _OF_HEADS}


def _has_equal_weights(module: nn.Module, other: nn.Module) -> bool:
    """Returns whether two modules have the same weights by name; False if they have none."""
    state = module.state_dict()
    other_state = other.state_dict()
    if not state or state.keys() != other_state.keys():
        return False
    return all(_is_equal(state[name], other_state[name]) for name in state)


def _is_equal(value: Any, other: Any) -> bool:
    """Returns whether two inputs of a network are the same, tensors number by number."""
    if value is other:
        return True
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        is_same_kind = value.dtype == other.dtype and value.shape == other.shape
        return is_same_kind and torch.equal(value, other)
    if isinstance(value, Tensor) or isinstance(other, Tensor):
        return False
    return bool(value == other)


@dataclass(frozen=True)
class _StackPass:
    """What a stack read and gave in its last pass.

    Attributes:
        states: (B, T, H) that came in.
        mask: (B, 1, T, T), or None.
        outputs: (B, T, H) behind some of its layers, by their number from 1.
    """

    states: Tensor
    mask: Tensor | None
    outputs: Mapping[int, Tensor]


class PartlySharedStack(Stack):
    """The layers of an encoder, of which the lowest are those of another network.

    Each thread computes batches of its own.

    Args:
        layers: All of its layers.
        partner: The stack of the other network; None for none.
        shared: How many of the lowest layers both have.
    """

    def __init__(
        self, layers: Sequence[Layer], partner: "PartlySharedStack | None" = None, shared: int = 0
    ) -> None:
        super().__init__(layers)
        self._partners = (partner,)  # in a tuple, so that it is no part of this network
        self._shared = shared
        # Numbers of the layers whose outputs other networks continue from.
        self._ends: set[int] = set()
        # What this thread's last pass has read and computed.
        self._last = threading.local()
        if partner is not None:
            partner.keep_output_behind(shared)

    def keep_output_behind(self, number: int) -> None:
        """Makes each pass keep the output of a layer, counted from 1, until the next one."""
        self._ends.add(number)

    def output_behind(self, number: int, states: Tensor, mask: Tensor | None) -> Tensor | None:
        """Returns the output of a layer in the last pass; None if that pass had other inputs.

        Args:
            number: Number of the layer, from 1.
            states: (B, T, H) that go in.
            mask: (B, 1, T, T), or None.
        """
        last: _StackPass | None = getattr(self._last, "value", None)
        if last is None or not (_is_equal(states, last.states) and _is_equal(mask, last.mask)):
            return None
        return last.outputs.get(number)

    def forward(
        self, x: Tensor, mask: Tensor | None, *, keeps_all: bool = False
    ) -> SimpleNamespace:
        """Returns what a `Stack` does, without the layers that the partner has just computed.

        The partner is the stack of another network, which has the same `_shared` lowest layers. If
        it has computed them for the same inputs, this stack continues from their output. For
        partners of its own, it keeps the outputs of the layers in `_ends`.

        Args:
            x: (B, T, H) states before the first layer.
            mask: (B, 1, T, T), or None.
            keeps_all: Whether the states of all layers are returned: then all are computed here.
        """
        [partner] = self._partners  # in a tuple, so that torch doesn't take it for a part
        if keeps_all:
            return super().forward(x, mask, keeps_all=True)

        states = x
        computed = 0
        if partner is not None:
            output = partner.output_behind(self._shared, states, mask)
            if output is not None:
                x = output
                computed = self._shared
        outputs: dict[int, Tensor] = {}
        for number, layer in enumerate(self.layer, start=1):
            if number > computed:
                x = layer(x, mask)
            if number in self._ends:
                outputs[number] = x
        self._last.value = _StackPass(states, mask, outputs)
        return SimpleNamespace(last_hidden_state=x, hidden_states=None)


def _remember_last_pass(encoder: Any, *, keeps_all: bool) -> None:
    """Makes an encoder return the outputs of its last pass if it is called with the same inputs.

    Args:
        encoder: The encoder, changed in place.
        keeps_all: Whether all hidden states are computed, because some network reads them. It has
            no effect on an encoder that remembers its last pass already.
    """
    remembers_already = isinstance(getattr(encoder.forward, "last", None), threading.local)
    if remembers_already:
        return
    plain = encoder.forward
    last = threading.local()

    def forward(*inputs: Any, **keyword_inputs: Any) -> Any:
        """Returns the encoder's outputs, those of the thread's last call if the inputs are equal.

        `plain` is the encoder's own forward pass, `last` the arguments and outputs of its last
        call. With `keeps_all`, the outputs include all hidden states.
        """
        if keeps_all:
            keyword_inputs["output_hidden_states"] = True
        arguments = dict(enumerate(inputs)) | keyword_inputs
        previous = getattr(last, "arguments", None)
        if previous is None or not _are_equal(arguments, previous):
            last.outputs = plain(*inputs, **keyword_inputs)
            last.arguments = arguments
        return last.outputs

    forward.last = last  # type: ignore[attr-defined]
    encoder.forward = forward


def _are_equal(arguments: Mapping[Any, Any], others: Mapping[Any, Any]) -> bool:
    """Returns whether two calls of a network have equal arguments, by position or name."""
    if arguments.keys() != others.keys():
        return False
    return all(_is_equal(value, others[name]) for name, value in arguments.items())
