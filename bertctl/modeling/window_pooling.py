"""Long texts in several windows.

One answer is made from the vectors that the network's last layer would read of each.

The windows are computed some at a time, as many as the batch has texts, so that a batch takes the
memory that it takes when each of its texts has one window, however long they are. In training the
windows' activations are not kept but for the last such chunk: the backward pass computes the others
again, chunk by chunk, with the random numbers (dropout) that they had. The gradients are those of
the whole document (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; Gao et al.
2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup").

Letters: U windows of B texts, T tokens, D size of a vector, C outputs.
"""

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertctl.modeling.heads import last_layer
from bertctl.modeling.stored_weights import stored_weights
from bertctl.runtime.heap import trim_heap

_QUERY = "window_pooling.query"


class WindowPooling(nn.Module):
    """Pools the vectors of a text's windows into one, and computes the text's logits from it.

    Args:
        how: `mean`, `max`, `first` or `attention` of the vectors; `logits` for the mean of the
            logits of each window.
        size: D.

    Attributes:
        query: (D + 2,) learned vector of the attention: for the D numbers of a window's vector, and
            for whether it is the first and the last window.
    """

    def __init__(self, how: str, size: int) -> None:
        super().__init__()
        self.how = how
        if how == "attention":  # zeros: at first all windows weigh the same
            self.query = nn.Parameter(torch.zeros(size + 2))

    def forward(self, vectors: Tensor, owners: Tensor, last: nn.Module) -> Tensor:
        """Returns (B, C) logits.

        Args:
            vectors: (U, D) of the windows.
            owners: (U,) number of the text of each window.
            last: The network's last layer, from D to C.
        """
        if self.how == "logits":
            vectors = last(vectors)
        n_texts = int(owners.max()) + 1
        pooled = torch.stack([self._pool(vectors[owners == text]) for text in range(n_texts)])
        if self.how == "logits":
            return pooled
        scores: Tensor = last(pooled)
        return scores

    def _pool(self, vectors: Tensor) -> Tensor:
        """Returns (D,) one vector of a text, from the (W, D) vectors of its windows in order."""
        if self.how == "attention":
            # AdamW moves each number of the query by about the learning rate. This rate is made for
            # the encoder, and too small for a new weight: the root of D makes up for that.
            root = math.sqrt(vectors.shape[1])
            # The position of a window matters as well: two more numbers mark the first and the last
            # one.
            ends = vectors.new_zeros(len(vectors), 2)
            ends[0, 0] = root
            ends[-1, 1] = root
            scores = torch.cat([vectors, ends], dim=1) @ self.query * root
            return torch.softmax(scores, dim=0) @ vectors
        if self.how == "max":
            return vectors.amax(dim=0)
        if self.how == "first":
            return vectors[0]
        return vectors.mean(dim=0)


def pool_windows(network: nn.Module, how: str, trained: Mapping[str, Tensor]) -> None:
    """Makes a network compute one answer for a text that is read in several windows.

    Its forward pass then takes `owners`, (U,) the number of the text of each window, beside the
    inputs of the U windows. The first windows of all texts come before the others. Without `owners`
    it computes as before.

    Args:
        network: A model of transformers with one answer for each text, changed in place.
        how: How the windows of a text are pooled; see `WindowPooling`.
        trained: The attention's learned vector by its name, see `saved_query`; empty for a new one.
    """
    from transformers.modeling_outputs import SequenceClassifierOutput

    _, last = last_layer(network)
    network.window_pooling = pooling = WindowPooling(how, last.in_features)
    network.load_state_dict(trained, strict=False)
    alone: Any = network.forward

    def vectors(**inputs: Tensor) -> Tensor:
        """Returns (B, D) inputs of the network's last layer, for one chunk of windows.

        `alone` is the network's own forward pass, `last` its last layer. A hook puts the layer's
        inputs in place of its outputs, the logits.
        """
        # Autocast copies the weights to half precision anew for each chunk. The gradients of one
        # shared copy would be added up in half precision.
        torch.clear_autocast_cache()
        # The heap would grow with each chunk: the little that is kept of a chunk lies between its
        # freed blocks.
        trim_heap()
        with last.register_forward_hook(lambda _, hook_inputs, __: hook_inputs[0]):
            last_inputs: Tensor = alone(**inputs).logits
        return last_inputs

    def forward(*, owners: Tensor | None = None, **inputs: Tensor) -> Any:
        """Returns (B, C) logits of texts from their windows, as the network's outputs.

        `vectors` computes a chunk of windows up to the network's last layer, `pooling` joins the
        windows of a text, and `last` is that layer.

        Args:
            owners: (U,) number of the text of each window; None if no text has several windows.
            **inputs: (U, T) inputs of the network.
        """
        if owners is None:
            return alone(**inputs)
        # A chunk has as many windows as there are texts, so that long texts take no more memory.
        n_texts = int(owners.max()) + 1
        *earlier_chunks, last_chunk = zip(
            *(torch.split(tensor, n_texts) for tensor in inputs.values()), strict=True
        )
        # In training, only the activations of the last chunk are kept. The backward pass begins
        # with this chunk, and computes the activations of the earlier ones again.
        compute_vectors = vectors
        if torch.is_grad_enabled():
            compute_vectors = functools.partial(checkpoint, vectors, use_reentrant=False)
        last_inputs = [
            compute_vectors(**dict(zip(inputs, chunk, strict=True))) for chunk in earlier_chunks
        ]
        last_inputs.append(vectors(**dict(zip(inputs, last_chunk, strict=True))))
        return SequenceClassifierOutput(logits=pooling(torch.cat(last_inputs), owners, last))

    network.forward = forward


def saved_query(folder: Path) -> dict[str, Tensor]:
    """Returns the attention's vector by its name, if one was saved beside the weights."""
    from safetensors import safe_open

    stored = stored_weights(folder).get(_QUERY)
    if stored is None:
        return {}
    with safe_open(stored.file, framework="pt") as file:
        return {_QUERY: file.get_tensor(_QUERY)}
