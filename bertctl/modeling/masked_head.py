"""Heads of pretraining: the words that fit masked places, and whether one text follows another.

Letters: B windows, T tokens, H hidden size, M masked places, V tokens of the vocabulary.
"""

import contextlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bertctl.errors import UsageError
from bertctl.modeling.transformers_internals import model_class

if TYPE_CHECKING:
    from torch import Tensor, nn

_ORDER_LABELS = {"next_sentence_label", "sentence_order_label"}
"""What transformers calls the labels, in the forward of a class that has the head; one kind of pair
learns as well as the other with it."""


def require_order_head(family: str, name: str) -> None:
    """Refuses a family that has no head for the order of two texts in transformers.

    Args:
        family: Family of the model.
        name: Name of the model, for the message.

    Raises:
        UsageError: The family has no such head; the message says what fits.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    # A class that has the head takes the labels of the pairs as an argument of its forward pass.
    network_class = model_class("AutoModelForPreTraining", CONFIG_MAPPING[family])
    parameters: set[str] = set()
    if network_class is not None:
        parameters = set(inspect.signature(network_class.forward).parameters)
    if _ORDER_LABELS.isdisjoint(parameters):
        message = f"the family '{family}' ('{name}') has no head for next sentences in transformers"
        raise UsageError(
            message,
            remedy="Train on masked words alone: `pretraining.objective=mlm`. (BERT and "
            "ALBERT have one.)",
        )


@contextlib.contextmanager
def read_only_at(network: "nn.Module", positions: "Tensor") -> Iterator[None]:
    """Makes a masked-word head compute only some tokens, as it reads each token by itself.

    Args:
        network: A network with the head; perhaps wrapped for several processes.
        positions: (M,) positions of these tokens among the B x T.
    """
    inner: Any = getattr(network, "module", network)
    base = inner.base_model

    def keep(_module: Any, _inputs: Any, output: Any) -> Any:
        """Makes the chosen tokens one window of M tokens, as the head reads (B, T, H) states."""
        states = output["last_hidden_state"]
        chosen = states.flatten(0, 1)[positions]
        output["last_hidden_state"] = chosen.unsqueeze(0)
        return output

    # Where a network's encoder can't be told from its head, the head computes all tokens.
    if base is inner:
        yield
        return
    with base.register_forward_hook(keep):
        yield


def word_logits(output: Any, positions: "Tensor") -> "Tensor":
    """Returns the (M, V) logits at the masked positions.

    Args:
        output: Output of a network with a masked-word head. Within `read_only_at` it has the logits
            of these positions only, as one window of M tokens.
        positions: (M,) positions of the masked tokens among the B x T.
    """
    if "prediction_logits" in output:
        logits: Tensor = output.prediction_logits
    else:
        logits = output.logits
    flat = logits.flatten(0, 1)
    if logits.shape[0] == 1 and len(flat) == len(positions):
        return flat
    return flat[positions]


def order_logits(output: Any) -> "Tensor | None":
    """Returns the (B, 2) logits of whether the second text follows the first.

    None if the network has no head for that. The names are those of BERT's head and of ALBERT's.
    """
    for name in ("seq_relationship_logits", "sop_logits"):
        if name in output:
            logits: Tensor = output[name]
            return logits
    return None
