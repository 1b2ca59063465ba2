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
    """Refuses a family that transformers has no head for pairs of texts for.

    Args:
        family: of the model.
        name: of the model, for the message.

    Raises:
        UsageError: with what fits.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    network_class = model_class("AutoModelForPreTraining", CONFIG_MAPPING[family])
    if network_class is None or not _ORDER_LABELS & set(
        inspect.signature(network_class.forward).parameters
    ):
        message = f"the family '{family}' ('{name}') has no head for next sentences in transformers"
        raise UsageError(
            message,
            remedy="Train on masked words alone: `pretraining.objective=mlm`. (BERT and "
            "ALBERT have one.)",
        )


@contextlib.contextmanager
def read_only_at(network: "nn.Module", positions: "Tensor") -> Iterator[None]:
    """Makes a masked-word head see only some of the encoder's tokens.

    It reads each of them by itself.

    Args:
        network: with the head; perhaps wrapped.
        positions: (M,) of the B x T tokens.
    """
    inner: Any = getattr(network, "module", network)
    base = inner.base_model

    def keep(_module: Any, _inputs: Any, output: Any) -> Any:
        """Makes the chosen tokens one window of M tokens, as the head reads (B, T, H) states."""
        states = output["last_hidden_state"]
        chosen = states.flatten(0, 1)[positions]
        output["last_hidden_state"] = chosen.unsqueeze(0)
        return output

    with contextlib.nullcontext() if base is inner else base.register_forward_hook(keep):
        yield


def word_logits(output: Any, positions: "Tensor") -> "Tensor":
    """Returns the (M, V) logits at the masked places."""
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

    It is None without that head.
    """
    return next(
        (output[name] for name in ("seq_relationship_logits", "sop_logits") if name in output), None
    )
