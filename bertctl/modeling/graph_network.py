"""The network that is exported as a graph: tensors by name go in and come out.

Letters: B windows, T tokens, C outputs, D size of a vector, H hidden size.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bertctl.modeling.heads import last_layer
from bertctl.modeling.model import Model
from bertctl.modeling.probe_network import ProbeNetwork
from bertctl.modeling.sentence_head import sentence_head
from bertctl.run_documents.export_document import LAST_STATE, VECTOR, WINDOW_VECTORS

_ANSWERS = ("logits", "start_logits", "end_logits", "pooler_output")


class GraphNetwork(nn.Module):
    """A network that takes (B, T) tensors by name and returns its outputs as a dictionary.

    Args:
        model: A model on the CPU in fp32, with the network of transformers.
        with_windows: Whether what the last layer reads is an output too, for the windows of long
            texts.
        hidden_states: Numbers of the layers whose states are outputs `hidden_states.N`.
    """

    def __init__(
        self, model: Model, *, with_windows: bool = False, hidden_states: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self.network: Any = model.network
        self.config = _config_of(model.network)
        input_names = ["input_ids", "attention_mask"]
        if model.has_segments:
            input_names.append("token_type_ids")
        self.names = tuple(input_names)
        self._hidden_states = hidden_states
        self._is_choice = "ForMultipleChoice" in type(model.network).__name__
        # The last layer, if its inputs are an output too. A probe's network returns these vectors
        # by itself.
        self._last: nn.Linear | None = None
        if with_windows and not isinstance(model.network, ProbeNetwork):
            _, self._last = last_layer(model.network)
        self.eval()

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Returns the outputs by name; see `ExportDocument.outputs`."""
        if isinstance(self.network, ProbeNetwork):
            return self._probe_outputs(inputs)
        if sentence_head(self.network) is not None:
            return self._vector_outputs(inputs)
        return self._head_outputs(inputs)

    def _head_outputs(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
        """Returns the logits of a network with a head, its last hidden state, and further outputs.

        With windows, the last layer returns its input in front of its output (`_with_input`), and
        the two are separated here.

        Args:
            inputs: (B, T) tensors by name.
        """
        if self._is_choice:
            # One choice a row: (B, T) becomes (B, 1, T).
            inputs = {name: tensor.unsqueeze(1) for name, tensor in inputs.items()}
        if self._hidden_states:
            inputs = {**inputs, "output_hidden_states": True}
        with _reading(_encoder_of(self.network)) as states, _with_input(self._last):
            result = self.network(**inputs)
        outputs: dict[str, Tensor] = {
            name: result[name] for name in _ANSWERS if getattr(result, name, None) is not None
        }
        if self._last is not None:
            size = self._last.in_features
            outputs[WINDOW_VECTORS] = outputs["logits"][..., :size]
            outputs["logits"] = outputs["logits"][..., size:]
        outputs[LAST_STATE] = _last_state(states[-1] if states else result)
        for number in self._hidden_states:
            outputs[f"hidden_states.{number}"] = result["hidden_states"][number]
        return outputs

    def _vector_outputs(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the vectors of texts, from a network with a `SentenceHead`, and its last state.

        The network's own forward pass takes (B, K, T), so its class's is called.
        """
        head: Any = sentence_head(self.network)
        result = type(self.network).forward(self.network, **inputs)
        states = _last_state(result)
        vectors = head(states, inputs["attention_mask"].bool())
        return {VECTOR: vectors, LAST_STATE: states}

    def _probe_outputs(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the logits of a probe, the vectors that they are computed from, and its state."""
        with _reading(self.network.encoder) as states:
            vectors, _ = self.network.window_vectors(**inputs)
        outputs = {"logits": self.network.answers(vectors), WINDOW_VECTORS: vectors}
        if states:  # a probe may read the word embeddings alone
            outputs[LAST_STATE] = _last_state(states[-1])
        return outputs


def _config_of(network: nn.Module) -> Any:
    """Returns the config of a network of transformers; of a probe, that of its encoder."""
    if isinstance(network, ProbeNetwork):
        return network.encoder.config
    return network.config


def _encoder_of(network: Any) -> nn.Module | None:
    """Returns the encoder, which computes the tokens' states; None if it is the network itself."""
    encoder = getattr(network, "base_model", None)
    return None if encoder is network else encoder


def _last_state(result: Any) -> Tensor:
    """Returns the (B, T, H) last hidden state among an encoder's outputs, a tuple or by name."""
    if isinstance(result, tuple):
        state: Tensor = result[0]
    else:
        state = result[LAST_STATE]
    return state


@contextlib.contextmanager
def _reading(module: nn.Module | None) -> Iterator[list[Any]]:
    """Collects the outputs of a module, one per call, in the list that is yielded.

    Args:
        module: The module; None to collect nothing.
    """
    results: list[Any] = []
    if module is None:
        yield results
        return
    hook = module.register_forward_hook(lambda _, __, result: results.append(result))
    try:
        yield results
    finally:
        hook.remove()


@contextlib.contextmanager
def _with_input(last: nn.Linear | None) -> Iterator[None]:
    """Makes the last layer return its inputs in front of its outputs, joined.

    Whatever the network does with the outputs, such as choosing those of the last token, it does
    with both.

    Args:
        last: The network's last layer; None to change nothing.
    """
    if last is None:
        yield
        return
    hook = last.register_forward_hook(
        lambda _, inputs, output: torch.cat([inputs[0], output], dim=-1)
    )
    try:
        yield
    finally:
        hook.remove()
